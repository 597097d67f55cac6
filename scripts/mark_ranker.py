#!/usr/bin/env python3
"""Notes in a ranker file which sets it was trained on, so that `toolscout eval` can say so of their figures.

    python scripts/mark_ranker.py index/assets/ranker.json SET_DIR...

Writes no text of the sets: of a quarter of their queries, chosen by their hashes, 32 bits of the hash of each
(index/src/ranker/seen.rs). What the file said before is replaced. Needs blake3 of scripts/requirements-ranker.txt.
"""

import argparse
import json
from pathlib import Path

from blake3 import blake3

SAMPLING = 4


def kept_hashes(folders):
    """The hashes that are kept of the queries of these sets, ascending."""
    hashes = set()
    for folder in folders:
        for line in (Path(folder) / "queries.jsonl").read_text(encoding="utf-8").splitlines():
            query = " ".join(json.loads(line)["query"].lower().split())
            number = int.from_bytes(blake3(query.encode()).digest()[:4], "little")
            if number % SAMPLING == 0:
                hashes.add(number)
    return sorted(hashes)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ranker", type=Path)
    parser.add_argument("sets", nargs="+", help="folders with a queries.jsonl")
    arguments = parser.parse_args()
    head, body = arguments.ranker.read_text(encoding="utf-8").split("\n", 1)
    magic, version, _ = head.split()
    # Only the end of the file changes, so that no number of the trees is written in another way.
    body = body.rstrip()
    known = json.loads(body)
    if "seen" in known:
        body = body[: body.rindex(',"seen":')] + "}"
    seen = kept_hashes(arguments.sets)
    body = body[:-1] + ',"seen":' + json.dumps(seen, separators=(",", ":")) + "}"
    json.loads(body)
    text = f"{magic} {version} {blake3(body.encode()).hexdigest()}\n{body}"
    arguments.ranker.write_text(text, encoding="utf-8")
    print(f"{arguments.ranker}: {len(seen)} hashes, {len(text)} bytes")


if __name__ == "__main__":
    main()
