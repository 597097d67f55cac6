"""The folds of folds.toml. `python folds.py 1` prints the catalogs of one."""

import sys
import tomllib
from pathlib import Path

# The names of the catalogs of each fold.
FOLDS = [fold["catalogs"] for fold in tomllib.loads((Path(__file__).parent / "folds.toml").read_text())["fold"]]

if __name__ == "__main__":
    print(" ".join(FOLDS[int(sys.argv[1]) - 1]))
