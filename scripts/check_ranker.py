#!/usr/bin/env python3
"""Writes what LightGBM predicts for trees of its own, for the tests of the crate's tree walker.

    python scripts/check_ranker.py --trees 4 --leaves 5 >index/tests/engine/lightgbm.json

Trains a small forest on random numbers with the parameters of scripts/train_ranker.py, and prints it in the crate's
format beside rows and LightGBM's own predictions. Rows hold thresholds themselves, where a walker goes wrong first.
"""

import argparse
import json

import lightgbm
import numpy as np

import train_ranker


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trees", type=int, default=4)
    parser.add_argument("--leaves", type=int, default=5)
    parser.add_argument("--features", type=int, default=3)
    parser.add_argument("--rows", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()

    random = np.random.RandomState(options.seed)
    rows = random.rand(2000, options.features).astype(np.float32)
    labels = (rows[:, 0] + 0.3 * random.rand(2000) > 0.8).astype(int)
    parameters = {
        "objective": "lambdarank",
        "num_leaves": options.leaves,
        "min_data_in_leaf": 20,
        "monotone_constraints": [1] + [0] * (options.features - 1),
        **train_ranker.common(train_ranker.Plan(seed=options.seed)),
    }
    data = lightgbm.Dataset(rows, labels, group=[20] * 100)
    booster = lightgbm.train(parameters, data, options.trees)
    trees = train_ranker.trees_of(booster)

    asked = random.rand(options.rows, options.features).astype(np.float32)
    thresholds = [(split[0], split[1]) for tree in trees for split in tree["splits"]]
    for row, (feature, threshold) in zip(asked, thresholds):
        row[feature] = np.float32(threshold)
    predictions = booster.predict(asked)
    rows = [[float(str(value)) for value in row] for row in asked]
    print(json.dumps({"trees": trees, "rows": rows, "predictions": predictions.tolist()}, separators=(",", ":")))


if __name__ == "__main__":
    main()
