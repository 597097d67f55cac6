#!/usr/bin/env python3
"""Trains the ranker and the confidence that the crate carries (index/assets/ranker.json).

    pip install -r scripts/requirements-ranker.txt
    python scripts/train_ranker.py table.jsonl encoder.jsonl --out index/assets/ranker.json

The files are what `toolscout eval SET ... --features FILE` writes; those of the same legs are read as one.
`scripts/ranker` makes them and calls this. The same files and seed give the same ranker.

`--evaluate` prints what rankers and confidence give on sets they have not seen: each set left out in turn, and
catalogs of people's requests by the folds of scripts/encoder/folds.toml. `--leave-out SET,SET` writes a ranker that has
not seen these sets.
"""

import argparse
import dataclasses
import functools
import json
import os
import sys
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import lightgbm
import numpy as np
from blake3 import blake3

sys.path.append(str(Path(__file__).parent / "encoder"))
from folds import FOLDS

MAGIC = "toolscout-ranker"
FORMAT_VERSION = 2
FIRST_PLACE = np.float32(1 / 5)
# What confidence says of an answer, by legs: below the first bound probably no tool serves the request, from the second
# on a right tool is very likely among five hits. `--evaluate` prints what they do on sets left out: the first loses at most
# 2 % of the requests that a tool serves, the mean over all sets. Requests in other languages are translated.
MATCH_BOUNDS = {
    ("static-table",): {"english": (0.265, 0.75), "other": (0.26, 0.9)},
    ("static-table", "tool-encoder"): {"english": (0.315, 0.75), "other": (0.29, 0.6)},
}
# Requests of another world begin with this in a set; others that no tool serves are near to the catalog.
FOREIGN = "foreign-"
# Catalogs of people's requests and the fold of each. A ranker that leaves one out leaves out its whole fold.
FOLD_OF = {name: f"fold-{number}" for number, names in enumerate(FOLDS, 1) for name in names}


def catalog_of(name):
    """The catalog that was measured; with texts of its tools the name has an addition."""
    return name.partition("+")[0]


def group_of(name):
    """What is left out together."""
    return FOLD_OF.get(catalog_of(name), catalog_of(name))


@dataclasses.dataclass(frozen=True)
class Plan:
    """What training depends on."""

    trees: int = 150
    leaves: int = 12
    learning_rate: float = 0.08
    # Requests of one set that are learned from, so that large sets do not drown small ones.
    requests: int = 700
    # The ranker's weight beside the formula.
    mix: float = 1.0
    # What a tool that deletes loses, in the ranker's unit, where nobody asked for that. The sets have too few such
    # tools among the best for the trees to learn it.
    harm: float = 1.0
    confidence_trees: int = 60
    confidence_leaves: int = 6
    confidence_rate: float = 0.06
    seed: int = 1


@dataclasses.dataclass
class Request:
    """The candidates of one request, measured."""

    set: str
    id: str
    held_out: bool
    answerable: bool
    # True if the set marks it as one that no tool can answer.
    none: bool
    relevant: int
    rows: np.ndarray
    labels: np.ndarray
    signals: np.ndarray


    @property
    def is_judged(self):
        """True for a request of the whole catalog that has relevant tools."""
        return not self.held_out and not self.none

    @property
    def group(self):
        """What is left out together."""
        return group_of(self.set)


@dataclasses.dataclass(eq=False)
class Export:
    """What one features file holds."""

    legs: list
    features: list
    monotone: list
    signals: list
    signals_monotone: list
    requests: list

    def column(self, name):
        """The place of a feature."""
        return self.features.index(name)


def read(path):
    """Reads a features file."""
    with open(path, encoding="utf-8") as file:
        head = json.loads(next(file))
        names = lambda columns: [column["name"] for column in columns]
        matches = lambda columns: [int(column["is_match"]) for column in columns]
        requests = []
        for line in file:
            one = json.loads(line)
            requests.append(
                Request(
                    one["set"],
                    one["query"],
                    one["held_out"],
                    one["answerable"],
                    one["none"],
                    one["relevant"],
                    np.array(one["rows"], np.float32).reshape(-1, len(head["features"])),
                    np.array(one["labels"], np.int8),
                    np.array(one["signals"], np.float32),
                )
            )
    return Export(
        head["legs"],
        names(head["features"]),
        matches(head["features"]),
        names(head["signals"]),
        matches(head["signals"]),
        requests,
    )


def read_all(paths):
    """One export for each combination of legs."""
    by_legs = {}
    for path in paths:
        export = read(path)
        known = by_legs.setdefault(tuple(export.legs), export)
        if known is not export:
            if (known.features, known.signals) != (export.features, export.signals):
                sys.exit(f"{path}: other features than those of a file before it; measure both with one program")
            known.requests += export.requests
    return list(by_legs.values())


def sampled(requests, count, seed):
    """At most `count` requests of each set, evenly chosen by the seed."""
    by_set = defaultdict(list)
    for request in requests:
        by_set[request.set].append(request)
    chosen = []
    for name in sorted(by_set):
        of_set = by_set[name]
        places = np.random.RandomState(seed).permutation(len(of_set))[:count]
        chosen += [of_set[place] for place in sorted(places)]
    return chosen


def fit_ranker(export, requests, plan):
    """LambdaMART over candidates, never falling in a feature that can only mean a better match."""
    requests = [request for request in sampled(requests, plan.requests, plan.seed) if request.labels.any()]
    data = lightgbm.Dataset(
        np.concatenate([request.rows for request in requests]),
        np.concatenate([request.labels for request in requests]),
        group=[len(request.labels) for request in requests],
        params={"max_bin": 127},
    )
    parameters = {
        "objective": "lambdarank",
        "num_leaves": plan.leaves,
        "learning_rate": plan.learning_rate,
        "min_data_in_leaf": 200,
        "feature_fraction": 0.6,
        "bagging_fraction": 0.7,
        "bagging_freq": 1,
        "lambda_l2": 5.0,
        "lambdarank_truncation_level": 12,
        "monotone_constraints": export.monotone,
        "monotone_constraints_method": "basic",
        **common(plan),
    }
    return lightgbm.train(parameters, data, plan.trees)


def fit_confidence(export, requests, ranker, plan):
    """Logistic boosting over the signals of answers: is one of the first five hits right?"""
    requests = sampled(requests, plan.requests, plan.seed)
    rows = np.array([signals(export, request, ranker(request), plan.mix) for request in requests])
    right = np.array([found(export, request, ranker(request), plan.mix) for request in requests])
    data = lightgbm.Dataset(rows, right, params={"max_bin": 127})
    parameters = {
        "objective": "binary",
        "num_leaves": plan.confidence_leaves,
        "learning_rate": plan.confidence_rate,
        "min_data_in_leaf": 40,
        "feature_fraction": 0.5,
        "bagging_fraction": 0.7,
        "bagging_freq": 1,
        "lambda_l2": 10.0,
        "monotone_constraints": export.signals_monotone,
        **common(plan),
    }
    return lightgbm.train(parameters, data, plan.confidence_trees)


def common(plan):
    """Parameters that make LightGBM say the same twice, and read every number as it is."""
    return {
        "use_missing": False,
        "verbose": -1,
        "num_threads": 1,
        "deterministic": True,
        "force_row_wise": True,
        "seed": plan.seed,
    }


def final_scores(export, request, ranked, mix):
    """The formula's score and the ranker's, as the engine adds them."""
    return request.rows[:, export.column("fused")] + np.float32(mix) * ranked


def found(export, request, ranked, mix):
    """True when one of the first five hits is right."""
    order = np.argsort(-final_scores(export, request, ranked, mix), kind="stable")[:5]
    return bool(request.labels[order].any())


def signals(export, request, ranked, mix):
    """The signals of an answer whose candidates have these scores; the engine's definitions (`Candidates::signals`)."""
    values = dict(zip(export.signals, request.signals))
    if not len(request.rows):
        return request.signals
    scores = final_scores(export, request, ranked, mix)
    order = np.argsort(-scores, kind="stable")
    top, following = order[0], order[1:6]
    cell = lambda feature: request.rows[top, export.column(feature)]
    for signal, feature in [
        ("top_coverage", "coverage"),
        ("top_name_coverage", "name_coverage"),
        ("top_name_recall", "name_recall"),
        ("top_lexical_share", "lexical_share"),
        ("top_triples", "triples"),
        ("top_near", "near"),
        ("top_near_name_recall", "near_name_recall"),
        ("top_verb", "verb"),
        ("top_harmless", "harmless"),
        ("top_everyday", "everyday"),
        ("top_pairs", "pairs"),
        ("top_table_cosine", "table_cosine"),
        ("top_model_cosine", "model_cosine"),
    ]:
        values[signal] = cell(feature)
    mean = lambda of: of[following].mean() if len(following) else 0.0
    values["margin"] = scores[top] - (scores[following[0]] if len(following) else 0.0)
    values["lead"] = scores[top] - mean(scores)
    values["ranker"] = ranked[top]
    values["ranker_lead"] = ranked[top] - mean(ranked)
    ranks = ["lexical_rank"] + [leg for leg in ("table_rank", "model_rank") if request.rows[:, export.column(leg)].any()]
    values["unanimity"] = np.mean([cell(rank) == FIRST_PLACE for rank in ranks])
    return np.array([values[name] for name in export.signals], np.float32)


def check_signals(export):
    """The engine exports signals of answers without a ranker: they must be those worked out here."""
    for request in export.requests[:200]:
        here = signals(export, request, np.zeros(len(request.rows), np.float32), 0.0)
        worst = np.abs(here - request.signals).max(initial=0.0)
        if worst > 1e-4:
            name = export.signals[int(np.abs(here - request.signals).argmax())]
            sys.exit(f"query {request.id} of {request.set}: the engine's {name} differs by {worst}")


def ndcg(request, scores, depth=10):
    """nDCG@10 with binary gains; candidates keep the order of ids among equals."""
    gains = request.labels[np.argsort(-scores, kind="stable")[:depth]]
    discounts = 1 / np.log2(np.arange(2, depth + 2))
    return float(gains @ discounts[: len(gains)] / discounts[: min(depth, request.relevant)].sum())


def harm_tree(export, plan):
    """The tree that lowers tools which delete where nobody asked for that; the engine's feature is then -1."""
    return {"splits": [[export.column("harmless"), -0.5, -1, -2, 0.0]], "leaves": [-plan.harm, 0.0]}


def ranked_by(booster, export, rows, plan):
    """What a ranker of these trees and `harm_tree` gives."""
    harm = np.where(rows[:, export.column("harmless")] <= -0.5, plan.harm, 0.0)
    return (booster.predict(rows) - harm).astype(np.float32)


def trees_of(booster):
    """The trees of a booster in the crate's format."""
    return [tree_of(tree["tree_structure"]) for tree in booster.dump_model()["tree_info"]]


def tree_of(root):
    """One tree: splits before those below them, leaves by number."""
    splits, leaves = [], []

    def add(node):
        if "split_feature" not in node:
            leaves.append(node["leaf_value"])
            return -len(leaves)
        assert node["decision_type"] == "<="
        place = len(splits)
        splits.append(None)
        left, right = add(node["left_child"]), add(node["right_child"])
        splits[place] = [node["split_feature"], node["threshold"], left, right, round(node["internal_value"], 5)]
        return place

    add(root)
    return {"splits": splits, "leaves": leaves}


def write(path, exports, models):
    """Writes a ranker file: a line that says what it is, with a checksum, and the models."""
    first = exports[0]
    body = json.dumps({"features": first.features, "signals": first.signals, "models": models}, separators=(",", ":"))
    checksum = blake3(body.encode()).hexdigest()
    Path(path).write_text(f"{MAGIC} {FORMAT_VERSION} {checksum}\n{body}", encoding="utf-8")
    print(f"{path}: {Path(path).stat().st_size} bytes, checksum {checksum[:8]}", file=sys.stderr)


@functools.cache
def rankers_without(export, plan):
    """For each set, its requests, and a ranker that has not seen it."""
    by_set = defaultdict(list)
    for request in export.requests:
        by_set[request.set].append(request)

    def fit_without(group):
        rest = [request for request in export.requests if request.group != group and request.is_judged]
        # A single set has no others to learn from.
        return fit_ranker(export, rest or export.requests, plan)

    groups = sorted({request.group for request in export.requests})
    # Each fit has one thread, so that it says the same twice.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        of_group = dict(zip(groups, pool.map(fit_without, groups)))
    return by_set, {name: of_group[group_of(name)] for name in by_set}


def out_of_sample(export, plan):
    """For each set, its requests, and what a ranker gives them that has not seen the set."""
    by_set, rankers = rankers_without(export, plan)
    return by_set, {
        name: {id(request): ranked_by(rankers[name], export, request.rows, plan) for request in by_set[name]}
        for name in by_set
    }


def evaluate(export, plan):
    """Prints nDCG@10 by set with the set left out, by weight of the ranker, then what confidence tells."""
    check_signals(export)
    by_set, ranked = out_of_sample(export, plan)
    legs = "+".join(["words", *export.legs])
    mixes = [0.0, 0.1, 0.3, 1.0, 10.0]
    print(f"\n## {legs}: nDCG@10 on sets left out, by weight of the ranker\n")
    print("| set | queries |" + "".join(f" {mix} |" for mix in mixes))
    print("|---|---|" + "---|" * len(mixes))
    table = {}
    for name, requests in by_set.items():
        whole = [request for request in requests if request.is_judged]
        of = lambda mix: [ndcg(r, final_scores(export, r, ranked[name][id(r)], mix)) for r in whole]
        table[name] = [100 * np.mean(of(mix)) for mix in mixes]
        print(f"| {name} | {len(whole)} |" + "".join(f" {value:.1f} |" for value in table[name]))
    people = [name for name in by_set if name in FOLD_OF]
    with_texts = [name for name in by_set if name != catalog_of(name)]
    same_without = [name for name in people if any(catalog_of(other) == name for other in with_texts)]
    open_sets = [name for name in by_set if group_of(name) == name]
    without_aws = [name for name in open_sets if name != "aws_ops"]
    rows = [
        ("mean", open_sets),
        ("mean without aws_ops", without_aws),
        ("mean of people's catalogs", people),
        ("mean with texts", with_texts),
        ("mean of the same without texts", same_without),
    ]
    for label, chosen in rows:
        if not chosen:
            continue
        mean = np.mean([table[name] for name in chosen], axis=0)
        print(f"| {label} | |" + "".join(f" {value:.1f} |" for value in mean))
    evaluate_confidence(export, by_set, ranked, plan)


def evaluate_confidence(export, by_set, ranked, plan):
    """Prints how well confidence and single signals tell answers with a right hit, and requests without any.

    Confidence is not trained on foreign requests, so that they are new to it."""
    names = sorted(by_set)
    of_request = {key: value for scores in ranked.values() for key, value in scores.items()}
    ranker = lambda request: of_request[id(request)]
    rows = {n: np.array([signals(export, r, ranker(r), plan.mix) for r in by_set[n]]) for n in names}
    right = {n: np.array([found(export, r, ranker(r), plan.mix) for r in by_set[n]]) for n in names}
    told = {}
    for group in sorted(set(map(group_of, names))):
        rest = [request for other in names if group_of(other) != group for request in by_set[other]]
        rest = [request for request in rest if not request.id.startswith(FOREIGN)]
        without = fit_confidence(export, rest, ranker, plan)
        told |= {name: without.predict(rows[name]) for name in names if group_of(name) == group}
    print("\n| signal | AUC, a right hit in five | AUC, answerable at all | ECE |")
    print("|---|---|---|---|")
    columns = {"confidence": told}
    for place, signal in enumerate(export.signals):
        columns[signal] = {name: rows[name][:, place] for name in names}
    scored = []
    for signal, values in columns.items():
        hit = np.mean([auc(values[name], right[name]) for name in names])
        held = {n: np.array([r.held_out or r.none for r in by_set[n]]) for n in names}
        able = {n: np.array([r.answerable for r in by_set[n]]) for n in names}
        answerable = [auc(values[n][held[n]], able[n][held[n]]) for n in names if held[n].any()]
        scored.append((signal, hit, np.mean(answerable) if answerable else np.nan))
    for signal, hit, answerable in sorted(scored, key=lambda row: -row[1]):
        error = np.mean([calibration_error(told[n], right[n]) for n in names]) if signal == "confidence" else np.nan
        print(f"| {signal} | {hit:.3f} | {answerable:.3f} | {'' if np.isnan(error) else f'{error:.3f}'} |")
    evaluate_matches(export, by_set, told, right)
    print("\n| set | answers | right hit in five | mean confidence | ECE | AUC |")
    print("|---|---|---|---|---|---|")
    for name in names:
        figures = [right[name].mean(), told[name].mean(), calibration_error(told[name], right[name])]
        figures.append(auc(told[name], right[name]))
        print(f"| {name} | {len(right[name])} |" + "".join(f" {figure:.3f} |" for figure in figures))


def evaluate_matches(export, by_set, told, right):
    """Prints which requests are called good, possible or none, those of the whole catalog."""
    bounds = MATCH_BOUNDS.get(tuple(sorted(export.legs)))
    if bounds is None:
        return
    none_below, good_from = bounds["english"]
    print(f"\nnone below {none_below}, good from {good_from}:\n")
    print("| set | false none | none of foreign | none of near ones | good | right if good | good of foreign | good of near ones |")
    print("|---|---|---|---|---|---|---|---|")
    for name, requests in by_set.items():
        judged = np.array([request.is_judged for request in requests])
        whole = np.array([not request.held_out for request in requests])
        foreign = np.array([request.id.startswith(FOREIGN) for request in requests])
        near = np.array([request.none for request in requests]) & whole & ~foreign
        is_none, is_good = told[name] < none_below, told[name] >= good_from
        shares = [is_none[judged], is_none[foreign & whole], is_none[near], is_good[judged], right[name][judged & is_good]]
        shares += [is_good[foreign & whole], is_good[near]]
        cells = [f"{100 * share.mean():.1f}%" if len(share) else "" for share in shares]
        print(f"| {name} | {' | '.join(cells)} |")


def auc(values, positive):
    """Probability that a positive has the higher value, ties half."""
    if positive.all() or not positive.any():
        return np.nan
    ranks = np.empty(len(values))
    order = np.argsort(values, kind="stable")
    sorted_values = np.asarray(values)[order]
    first = np.searchsorted(sorted_values, sorted_values, "left")
    last = np.searchsorted(sorted_values, sorted_values, "right")
    ranks[order] = (first + last + 1) / 2
    count = positive.sum()
    return float((ranks[positive].sum() - count * (count + 1) / 2) / (count * (len(values) - count)))


def calibration_error(told, right, bins=10):
    """Expected calibration error over ten bins of equal width."""
    bin_of = np.minimum((told * bins).astype(int), bins - 1)
    gaps = [abs(told[bin_of == b].mean() - right[bin_of == b].mean()) * (bin_of == b).mean() for b in set(bin_of)]
    return float(sum(gaps))


def train(export, left_out, plan):
    """The model for one combination of legs."""
    requests = [request for request in export.requests if catalog_of(request.set) not in left_out]
    whole = [request for request in requests if request.is_judged]
    booster = fit_ranker(export, whole, plan)
    # Confidence learns from scores of rankers that had not seen the set, as it will meet them.
    kept = dataclasses.replace(export, requests=requests) if left_out else export
    _, ranked = out_of_sample(kept, plan)
    of_request = {key: value for scores in ranked.values() for key, value in scores.items()}
    confidence = fit_confidence(kept, requests, lambda request: of_request[id(request)], plan)
    return model(export, plan, booster, trees_of(confidence))


def model(export, plan, booster, confidence):
    """A model as the file has it."""
    trees = [*trees_of(booster), harm_tree(export, plan)]
    written = {"legs": sorted(export.legs), "mix": plan.mix, "trees": trees, "confidence": confidence}
    bounds = MATCH_BOUNDS.get(tuple(sorted(export.legs)))
    if bounds is not None and confidence:
        both = {of: dict(zip(("none_below", "good_from"), pair)) for of, pair in bounds.items()}
        written["bounds"] = both
    return written


def write_each_left_out(folder, exports, plan):
    """Writes `without-SET.json` for each set: rankers that have not seen it, for `toolscout eval --ranker`."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name in sorted({catalog_of(name) for name in rankers_without(exports[0], plan)[0]}):
        models = [model(export, plan, rankers_without(export, plan)[1][name], []) for export in exports]
        write(Path(folder) / f"without-{name}.json", exports, models)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("features", nargs="+", help="what `toolscout eval --features` wrote, a file for each tier")
    parser.add_argument("--out", help="the ranker file to write")
    parser.add_argument("--evaluate", action="store_true", help="print figures on sets left out")
    parser.add_argument("--each-left-out", metavar="DIR", help="write a ranker without each set in turn")
    parser.add_argument("--leave-out", default="", help="sets the ranker must not see, separated by commas")
    for field in dataclasses.fields(Plan):
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=type(field.default), default=field.default)
    arguments = parser.parse_args()
    plan = Plan(**{field.name: getattr(arguments, field.name) for field in dataclasses.fields(Plan)})
    exports = read_all(arguments.features)
    if arguments.evaluate:
        for export in exports:
            evaluate(export, plan)
    if arguments.each_left_out:
        write_each_left_out(arguments.each_left_out, exports, plan)
    if arguments.out:
        left_out = set(filter(None, arguments.leave_out.split(",")))
        write(arguments.out, exports, [train(export, left_out, plan) for export in exports])


if __name__ == "__main__":
    main()
