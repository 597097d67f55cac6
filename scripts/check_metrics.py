#!/usr/bin/env python3
"""Checks the figures of `toolscout eval` against ir-measures, an implementation of others.

    toolscout eval SET_DIR --json out.json --trec out.trec
    python3 scripts/check_metrics.py out.json out.trec

Needs `pip install ir-measures==0.4.3`. For every arm it reads the run file and the qrels that `--trec` wrote, computes
each metric anew and compares the means. Exits with 1 when any differs by more than 1e-6, when an arm has no run file,
or when nothing was compared.
"""

import json
import sys
from collections import defaultdict
from pathlib import Path
from urllib.parse import quote

import ir_measures
from ir_measures import RR, P, R, Success, nDCG

TOLERANCE = 1e-6


def main(json_path, trec_path):
    reports = json.loads(Path(json_path).read_text(encoding="utf-8"))
    if isinstance(reports, dict):
        reports = [reports]
    compared, differing = 0, 0
    for report in reports:
        for arm, figures in report["arms"].items():
            for metric, ours, theirs in compare(report, arm, figures, Path(trec_path)):
                compared += 1
                if abs(ours - theirs) > TOLERANCE:
                    differing += 1
                    print(f"{report['set']} {arm} {metric}: ours {ours:.9f}, ir-measures {theirs:.9f}")
    print(f"{compared} figures compared, {differing} differ by more than {TOLERANCE}")
    return 1 if differing or not compared else 0


def compare(report, arm, figures, trec):
    """Yields each metric of an arm with our mean and that of ir-measures."""
    name = escape(report["set"])
    qrels = list(ir_measures.read_trec_qrels(str(trec.with_name(f"{trec.stem}.{name}.qrels"))))
    suffix = trec.suffix or ".trec"
    run = list(ir_measures.read_trec_run(str(trec.with_name(f"{trec.stem}.{name}.{arm}{suffix}"))))
    queries = {judgement.query_id for judgement in qrels}
    assert len(queries) == report["queries"], "the qrels are not those of the report"
    for metric, ours in figures.items():
        measure, _, depth = metric.partition("@")
        if depth.isdigit():
            yield metric, ours, their_mean(measure, int(depth), qrels, run, queries)


def their_mean(measure, depth, qrels, run, queries):
    """The mean over all judged queries; one without hits counts as 0."""
    theirs = {"ndcg": nDCG, "recall": R, "precision": P, "mrr": RR, "success": Success, "complete": R}[measure] @ depth
    values = defaultdict(float)
    for value in theirs.iter_calc(qrels, run):
        # Everything is found exactly when recall is 1.
        values[value.query_id] = float(value.value == 1) if measure == "complete" else value.value
    return sum(values[query] for query in queries) / len(queries)


def escape(name):
    """Ids and names as `--trec` writes them: white space and % percent-encoded."""
    return "".join(quote(c) if c.isspace() or c == "%" else c for c in name)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
