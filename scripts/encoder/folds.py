"""Prints the catalogs of a fold of folds.toml: `python folds.py 1`."""

import sys
import tomllib
from pathlib import Path

folds = tomllib.loads((Path(__file__).parent / "folds.toml").read_text())["fold"]
print(" ".join(folds[int(sys.argv[1]) - 1]["catalogs"]))
