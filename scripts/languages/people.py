"""Tunes the table on requests in people's words: `python people.py TABLE CATALOGS OUT [--fold N]`.

CATALOGS is a folder with a folder for each catalog: tools.jsonl, queries.jsonl (English) and languages.jsonl (other
languages). A request must be nearer to its right tools than to the others of its catalog. --fold leaves the catalogs of
that fold out of training and prints how well their requests in other languages are served before and after."""
import argparse
import json
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
import scipy.sparse as sparse

from evaluate import in_words
from table import Table, pack

sys.path.insert(0, str(Path(__file__).parent.parent / "encoder"))
from folds import FOLDS  # noqa: E402

SCALE, RATE, WARM, BATCH = 8.0, 0.02, 50, 128
# The chance of a step with requests in other languages. Each catalog has 25 of them and 160 in English.
OTHER_LANGUAGES = 0.5
# The pull of each row towards where it started, so that words that are rare in training keep their meaning.
ANCHOR = 0.003
OUT_OF_REACH = -1e9


def lines(path):
    return [json.loads(line) for line in open(path, encoding="utf-8") if line.strip()] if path.exists() else []


def views(tool):
    """The two texts of a tool that the engine embeds."""
    name = f"{in_words(tool.get('server') or '')} {in_words(tool['name'])}".strip()
    parameters = (tool.get("inputSchema") or {}).get("properties") or {}
    return [f"{name}: {tool.get('description') or ''} {' '.join(map(in_words, parameters))}", name]


def bags(table, texts):
    """One row a text: how often it has each piece."""
    ids = [table.split(text) for text in texts]
    rows = np.repeat(np.arange(len(ids)), [len(row) for row in ids])
    columns = np.array([piece for row in ids for piece in row], np.int64)
    return sparse.csr_matrix((np.ones(len(columns), np.float32), (rows, columns)), shape=(len(ids), len(table.pieces)))


class Catalog:
    def __init__(self, table, folder):
        tools = lines(folder / "tools.jsonl")
        number = {tool["id"]: place for place, tool in enumerate(tools)}
        self.tools = bags(table, [text for tool in tools for text in views(tool)])
        self.requests = {}
        for name in ("queries", "languages"):
            judged = [query for query in lines(folder / f"{name}.jsonl") if query.get("relevant")]
            right = np.zeros((len(judged), len(tools)), bool)
            neither = np.zeros((len(judged), len(tools)), bool)
            for row, query in enumerate(judged):
                right[row, [number[tool] for tool in query["relevant"] if tool in number]] = True
                neither[row, [number[tool] for tool in query.get("prepares", []) if tool in number]] = True
            kinds = [query.get("kind", "") for query in judged]
            self.requests[name] = bags(table, [query["query"] for query in judged]), right, neither & ~right, kinds


def unit(sums):
    size = np.linalg.norm(sums, axis=1, keepdims=True) + 1e-9
    return sums / size, size


def through_length(slope, directions, size):
    """The slope of the sums, given that of their directions."""
    return (slope - directions * (slope * directions).sum(1, keepdims=True)) / size


def slopes(vectors, requests, tools, right, neither):
    """(loss, slope of the requests' sums, slope of the tools' sums)."""
    asked, asked_size = unit(requests @ vectors)
    offered, offered_size = unit(tools @ vectors)
    cosines = (asked @ offered.T).reshape(len(asked), -1, 2)
    nearer = cosines.argmax(2)
    logits = SCALE * cosines.max(2)
    logits[neither] = OUT_OF_REACH
    chances = np.exp(logits - logits.max(1, keepdims=True))
    chances /= chances.sum(1, keepdims=True)
    among_right = np.where(right, chances, 0)
    sum_right = among_right.sum(1, keepdims=True) + 1e-12
    slope = (chances - among_right / sum_right) * SCALE / len(asked)
    spread = np.zeros((len(asked), right.shape[1], 2), np.float32)
    np.put_along_axis(spread, nearer[:, :, None], slope[:, :, None], 2)
    spread = spread.reshape(len(asked), -1)
    of_requests = through_length(spread @ offered, asked, asked_size)
    of_tools = through_length(spread.T @ asked, offered, offered_size)
    return -np.log(sum_right).mean(), of_requests, of_tools


def train(vectors, catalogs, steps, seed):
    start, rng = vectors.copy(), np.random.RandomState(seed)
    squares = np.full(len(vectors), 1e-12, np.float32)
    for step in range(steps):
        kind = "languages" if rng.rand() < OTHER_LANGUAGES else "queries"
        able = [catalog for catalog in catalogs if catalog.requests[kind][1].any()]
        catalog = able[rng.randint(len(able))]
        requests, right, neither, _ = catalog.requests[kind]
        chosen = rng.permutation(np.flatnonzero(right.any(1)))[:BATCH]
        _, of_requests, of_tools = slopes(vectors, requests[chosen], catalog.tools, right[chosen], neither[chosen])
        used = np.unique(np.concatenate([requests[chosen].indices, catalog.tools.indices]))
        slope = (requests[chosen][:, used].T @ of_requests + catalog.tools[:, used].T @ of_tools).astype(np.float32)
        squares[used] += (slope**2).mean(1)
        pace = min(1, (step + 1) / WARM) * max(0.02, 1 - step / steps)
        vectors[used] -= RATE * pace * slope / np.sqrt(squares[used])[:, None] + ANCHOR * pace * (vectors[used] - start[used])


def success(vectors, catalogs, kind, first=5):
    """{kind of request: share with a right tool among the first}."""
    found = defaultdict(list)
    for catalog in catalogs:
        requests, right, _, kinds = catalog.requests[kind]
        if not len(kinds):
            continue
        cosines = (unit(requests @ vectors)[0] @ unit(catalog.tools @ vectors)[0].T).reshape(len(kinds), -1, 2).max(2)
        best = np.argsort(-cosines, axis=1, kind="stable")[:, :first]
        hit = np.take_along_axis(right, best, 1).any(1)
        for name, value in zip(kinds, hit):
            found[name].append(value)
            found["all"].append(value)
    return {name: float(np.mean(values)) for name, values in sorted(found.items())}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    parser.add_argument("catalogs", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--fold", type=int, help="leave the catalogs of this fold out")
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    table = Table(options.table.read_bytes())
    left_out = set(FOLDS[options.fold - 1]) if options.fold else set()
    folders = sorted(folder for folder in options.catalogs.iterdir() if (folder / "tools.jsonl").exists())
    learned = [Catalog(table, folder) for folder in folders if folder.name not in left_out]
    kept = [Catalog(table, folder) for folder in folders if folder.name in left_out]
    vectors = table.vectors.copy()
    for kind in ("languages", "queries") if kept else ():
        print("before", kind, {k: round(v, 3) for k, v in success(vectors, kept, kind).items()})
    train(vectors, learned, options.steps, options.seed)
    for kind in ("languages", "queries") if kept else ():
        print("after", kind, {k: round(v, 3) for k, v in success(vectors, kept, kind).items()})
    options.out.write_bytes(pack(table.pieces, -table.costs, vectors))


if __name__ == "__main__":
    main()
