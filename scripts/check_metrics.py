#!/usr/bin/env python3
"""Checks the figures of `toolscout eval`, query by query, against implementations of others.

    toolscout eval SET_DIR --json out.json --trec out.trec
    python3 scripts/check_metrics.py out.json out.trec

Needs `pip install ir-measures==0.4.3 pytrec_eval-terrier`, Perl for ERR and nDCG with exponential gains, and with `--ranx`
also `pip install ranx`. For every arm it reads the run file and the qrels that `--trec` wrote, and computes each metric anew:

- by ir_measures, which uses pytrec_eval, gdeval and its own code;
- with `--ranx` also by ranx;
- in this script, where the others have no such metric: needs of groups, `rbp`, `tau` and `prefix`.

Exits with 1 when a value differs, when an arm has no run file, or when nothing was compared. Known differences:

- Recall and `complete` count groups of alternatives; for queries with groups the script computes them.
- gdeval prints five decimals, so its metrics are compared to 1e-5.
- A query without hits has no value in ir_measures and ranx; it counts as 0, as `trec_eval -c` has it.
- ir_measures breaks ties for RR@k and Judged by id, the first in front, and trec_eval the last. For these the script orders the
  hits as trec_eval does. Runs of `--trec` have no ties. `--run=ARM:FILE` names the file of an arm of `eval --run` itself, with its
  ties and without the queries that it lacks.
- ranx breaks ties in the order of the file, so such an arm is not compared with it. It has binary metrics only from a grade on,
  so its graded metric is nDCG.
"""

import json
import math
import sys
from collections import defaultdict
from pathlib import Path
from urllib.parse import quote

import ir_measures

NAMES = {
    "ndcg": "nDCG", "recall": "R", "precision": "P", "mrr": "RR", "success": "Success", "complete": "R", "ap": "AP",
    "rprec": "Rprec", "err": "ERR", "bpref": "Bpref", "judged": "Judged", "unjudged": "Judged",
}
BINARY = {"recall", "precision", "mrr", "success", "complete", "ap", "rprec", "bpref"}
OWN = {"rbp", "tau", "prefix"}


def main(arguments):
    with_ranx = "--ranx" in arguments
    paths = [argument for argument in arguments if not argument.startswith("--")]
    files = dict(argument[len("--run="):].split(":", 1) for argument in arguments if argument.startswith("--run="))
    if len(paths) != 2:
        sys.exit(__doc__)
    report = json.loads(Path(paths[0]).read_text(encoding="utf-8"))
    compared, differing = 0, 0
    for of_set in report["sets"]:
        for arm, figures in of_set["arms"].items():
            found = compare(of_set, arm, figures, Path(paths[1]), files.get(arm), with_ranx and arm not in files)
            for metric, query, ours, theirs, tolerance in found:
                compared += 1
                if abs(ours - theirs) > tolerance:
                    differing += 1
                    print(f"{of_set['set']} {arm} {metric} {query}: ours {ours:.9f}, theirs {theirs:.9f}")
    print(f"{compared} values compared, {differing} differ")
    return 1 if differing or not compared else 0


def compare(report, arm, figures, trec, file, with_ranx):
    """Yields the value of each metric for each query, ours and theirs, and the mean as query `all`."""
    name = escape(report["set"])
    qrels = list(ir_measures.read_trec_qrels(str(trec.with_name(f"{trec.stem}.{name}.qrels"))))
    suffix = trec.suffix or ".trec"
    run_path = Path(file) if file else trec.with_name(f"{trec.stem}.{name}.{file_name(arm)}{suffix}")
    if not run_path.exists():
        sys.exit(f"{run_path} is missing")
    run = list(ir_measures.read_trec_run(str(run_path)))
    assert {judgement.query_id for judgement in qrels} == {escape(query["id"]) for query in report["per_query"]}
    for metric in figures:
        if parts(metric) is None:
            continue
        tolerance = 1e-5 if "exp" in metric or metric.startswith("err") else 1e-6
        theirs = their_values(metric, report, qrels, run)
        values = []
        for query in report["per_query"]:
            ours = query["arms"][arm]["values"][metric]
            if ours is None:
                continue
            value = theirs(query)
            values.append(value)
            yield metric, query["id"], ours, value, tolerance
        yield metric, "all", figures[metric], sum(values) / max(len(values), 1), tolerance
        if with_ranx:
            yield from by_ranx(metric, report, arm, qrels, run)


def parts(metric):
    """The measure, its parameters and its cut-off; None for what is no metric."""
    head, _, depth = metric.partition("@")
    measure, _, parameters = head.partition("(")
    if measure not in NAMES and measure not in OWN:
        return None
    return measure, parameters.rstrip(")"), int(depth) if depth else None


def their_values(metric, report, qrels, run):
    """A function that gives the value of a query."""
    measure, parameters, depth = parts(metric)
    hits = defaultdict(list)
    # As trec_eval orders them: by score in single precision, then by id, the last first.
    for hit in run:
        hits[hit.query_id].append(hit)
    for ranking in hits.values():
        ranking.sort(key=lambda hit: hit.doc_id, reverse=True)
        ranking.sort(key=lambda hit: single(hit.score), reverse=True)
    ids = {query: [hit.doc_id for hit in ranking] for query, ranking in hits.items()}
    least = rel_of(parameters) or report["relevant_from"] or 1
    if measure in OWN:
        return lambda query: own_value(measure, parameters, depth, query, ids.get(escape(query["id"]), []), least)
    if measure in BINARY and "rel=" not in parameters and report["relevant_from"]:
        parameters = ",".join(filter(None, [parameters, f"rel={int(report['relevant_from'])}"]))
    text = NAMES[measure] + (f"({parameters})" if parameters else "") + (f"@{depth}" if depth else "")
    # gdeval takes queries with numbers only.
    numbers = {query: str(number) for number, query in enumerate(sorted({row.query_id for row in qrels}), 1)}
    queries = {number: query for query, number in numbers.items()}
    qrels = [row._replace(query_id=numbers[row.query_id], relevance=max(row.relevance, 0)) for row in qrels]
    if measure in ("mrr", "judged", "unjudged"):
        # Their ties are broken in another way: see above.
        run = [hit._replace(score=-rank) for ranking in hits.values() for rank, hit in enumerate(ranking)]
    run = [row._replace(query_id=numbers[row.query_id]) for row in run]
    values = defaultdict(float)
    for value in ir_measures.parse_measure(text).iter_calc(qrels, run):
        values[queries[value.query_id]] = value.value

    def value_of(query):
        identifier = escape(query["id"])
        if measure in ("recall", "complete") and query.get("groups"):
            recall = needs_met(query, ids.get(identifier, [])[:depth], least)
        else:
            recall = values[identifier]
        if measure == "complete":
            return float(recall == 1)
        if measure == "unjudged":
            return 1 - recall if ids.get(identifier) else 0.0
        return recall

    return value_of


def needs_met(query, hits, least):
    relevant = {tool for tool, grade in query["judged"].items() if grade >= least and grade > 0}
    needs = [relevant.intersection(group) for group in query["groups"]]
    needs = [need for need in needs if need]
    found = {tool for tool in relevant if escape(tool) in hits}
    return sum(bool(need & found) for need in needs) / max(len(needs), 1)


def own_value(measure, parameters, depth, query, hits, least):
    hits = hits[:depth] if depth else hits
    if measure == "rbp":
        persistence = float(dict(part.split("=") for part in parameters.split(","))["p"])
        relevant = {escape(tool) for tool, grade in query["judged"].items() if grade >= least and grade > 0}
        return sum((1 - persistence) * persistence**index for index, hit in enumerate(hits) if hit in relevant)
    order = [escape(tool) for tool in query["order"]]
    if measure == "prefix":
        same = 0
        while same < min(len(order), len(hits)) and order[same] == hits[same]:
            same += 1
        return same / len(order)
    ranks = [hits.index(tool) if tool in hits else math.inf for tool in order]
    pairs = [(a, b) for index, a in enumerate(ranks) for b in ranks[index + 1 :]]
    return sum((a < b) - (a > b) for a, b in pairs) / len(pairs)


def by_ranx(metric, report, arm, qrels, run):
    """The means by ranx, for the metrics that it defines in the same way."""
    import ranx

    measure, parameters, depth = parts(metric)
    names = {"ndcg": "ndcg", "recall": "recall", "precision": "precision", "mrr": "mrr", "success": "hit_rate", "ap": "map"}
    if parameters not in ("", "dcg='exp-log2'") or measure not in names:
        return
    name = "ndcg_burges" if parameters else names[measure]
    if measure == "recall" and any(query.get("groups") for query in report["per_query"]):
        return
    least = int(report["relevant_from"] or 1)
    judged, found = defaultdict(dict), defaultdict(dict)
    for judgement in qrels:
        judged[judgement.query_id][judgement.doc_id] = judgement.relevance
    for hit in run:
        found[hit.query_id][hit.doc_id] = hit.score
    level = f"-l{least}" if measure in BINARY else ""
    text = name + (f"@{depth}" if depth else "") + level
    values = ranx.evaluate(
        ranx.Qrels(dict(judged)), ranx.Run(dict(found)), text, make_comparable=True, return_mean=False
    )
    ours = [query["arms"][arm]["values"][metric] for query in report["per_query"]]
    yield metric, "all by ranx", sum(ours) / len(ours), sum(values) / len(ours), 1e-6


def rel_of(parameters):
    found = [part[4:] for part in parameters.split(",") if part.startswith("rel=")]
    return int(found[0]) if found else None


def single(score):
    """The score in single precision."""
    import struct

    return struct.unpack("f", struct.pack("f", score))[0]


def escape(name):
    """Ids and names as `--trec` writes them: white space, control characters and % percent-encoded."""
    plain = lambda c: not (c.isspace() or c == "%" or ord(c) < 32 or 127 <= ord(c) < 160)
    return "".join(c if plain(c) else quote(c, safe="") for c in name)


def file_name(arm):
    return "".join(c if c.isalnum() or c in "-_.=+," else "_" for c in arm)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
