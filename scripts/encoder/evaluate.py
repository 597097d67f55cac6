"""How well an encoder finds tools: nDCG@10 of its vectors alone on benchmark sets.

A set is a folder with tools.jsonl and queries.jsonl. At most 300 requests of it are asked; of a large catalog, the
relevant tools and 700 others are kept, so figures compare encoders and nothing else."""

import json
import re
from functools import cache

import numpy as np

from model import embed

REQUESTS, OTHERS = 300, 700
SETS = ("metatool", "livemcpbench", "toollinkos", "bfcl", "stabletoolbench", "sealtools", "acebench_en", "aws_ops")
# The mean that choices are made by; aws_ops is shown beside.
MEAN_OF = SETS[:7]


def spaced(name):
    """A name as words, as the engine splits it: `getHTTPStatus_code2` gives `get HTTP Status code 2`."""
    name = re.sub(r"[_\-./]", " ", name)
    name = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Za-z])(?=[0-9])|(?<=[0-9])(?=[A-Za-z])", " ", name)
    return re.sub(r"(?<=[A-Z])(?=[A-Z][a-z])", " ", name)


def views(server, name, description, parameters):
    """The two texts of a tool that the engine embeds: everything, and the name alone."""
    full_name = " ".join(part for part in (spaced(server), spaced(name)) if part)
    return f"{full_name}: {description} {' '.join(map(spaced, parameters))}".strip(), full_name


def views_of(tool):
    schema = tool.get("inputSchema") or {}
    return views(tool.get("server") or "", tool["name"], tool.get("description") or "", schema.get("properties") or {})


def read_lines(path):
    """The objects of a file with one a line."""
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


@cache
def sample(folder):
    """(requests, sets of relevant ids, ids of tools, texts of tools) of a set, the same at every call."""
    tools = read_lines(folder / "tools.jsonl")
    asked = [query for query in read_lines(folder / "queries.jsonl") if query["relevant"]]
    random = np.random.default_rng(0)
    asked = [asked[i] for i in random.permutation(len(asked))[:REQUESTS]]
    needed = {identity for query in asked for identity in query["relevant"]}
    others = [tool for tool in tools if tool["id"] not in needed]
    kept = random.permutation(len(others))[:OTHERS]
    tools = [tool for tool in tools if tool["id"] in needed] + [others[i] for i in kept]
    return (
        [query["query"] for query in asked],
        [set(query["relevant"]) for query in asked],
        [tool["id"] for tool in tools],
        [views_of(tool) for tool in tools],
    )


def ndcg(found, relevant):
    gains = 1 / np.log2(np.arange(2, 12))
    hits = np.array([identity in relevant for identity in found])
    return (hits * gains[: len(hits)]).sum() / gains[: len(relevant)].sum()


def ndcg_of_set(encoder, tokenizer, folder):
    requests, relevant, ids, texts = sample(folder)
    asked = embed(encoder, tokenizer, requests)
    scores = np.maximum.reduce([(asked @ embed(encoder, tokenizer, view).T).numpy() for view in zip(*texts)])
    best = np.argsort(-scores, axis=1, kind="stable")[:, :10]
    return float(np.mean([ndcg([ids[i] for i in row], wanted) for row, wanted in zip(best, relevant)]))


def figures(encoder, tokenizer, sets):
    """{set: nDCG@10} with the mean of those that choices are made by."""
    encoder.eval()
    found = {name: ndcg_of_set(encoder, tokenizer, sets / name) for name in SETS if (sets / name).is_dir()}
    found["mean"] = float(np.mean([found[name] for name in MEAN_OF if name in found]))
    return found


def line(name, found):
    return f"{name:24}" + " ".join(f"{set_[:12]} {value:.4f}" for set_, value in found.items())
