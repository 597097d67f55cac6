"""Builds the table for all languages: `python build.py --work DIR`.

DIR/snapshots holds the repositories of sources.toml, each in a folder owner+name at the commit named there. Everything
else comes from requirements.txt. Writes DIR/table.bin; what was computed on the way is kept in DIR and used again."""
import argparse
import json
import random
import time
import tomllib
from collections import defaultdict
from pathlib import Path

import numpy as np

import extract
import table
import train
from teacher import Teacher, segmenter, split

# How often a source is drawn, beside its size; 1 if it is not named.
SHARE = {"tldr-pages/tldr": 4.0}


def chance(source, language, size):
    return SHARE.get(source, 1.0) * (min(size, 8000) / 1000) ** 0.5


def read_pairs(work):
    """{source: [(language, English, other)]} of all sources."""
    kept = work / "pairs.json"
    if not kept.exists():
        pairs = {}
        for source in tomllib.loads(Path(__file__).with_name("sources.toml").read_text())["source"]:
            root = work / "snapshots" / source["name"].replace("/", "+")
            pairs[source["name"]] = extract.pairs_of(root, source, random.Random(0))
            print(source["name"], len(pairs[source["name"]]), flush=True)
        kept.write_text(json.dumps(pairs, ensure_ascii=False))
    return json.loads(kept.read_text())


def count_pieces(teacher, pairs):
    """How often each piece of the teacher occurs in the texts, each text once."""
    texts = sorted({table.words(text) for found in pairs.values() for pair in found for text in pair[1:]})
    counts = np.zeros(len(teacher.pieces), np.int64)
    for start in range(0, len(texts), 50000):
        counts += np.bincount(np.concatenate(teacher.split(texts[start:start + 50000])), minlength=len(counts))
    return counts


def context(work, teacher, pairs, texts):
    """Sums of the teacher's states of each piece over a sample of the texts, and how often it occurred: as many texts of
    each language, twice as many English ones. It takes most of the time, so it is kept."""
    kept = work / "context.npz"
    if not kept.exists():
        by_language = defaultdict(set)
        for found in pairs.values():
            for language, english, other in found:
                by_language["en"].add(table.words(english))
                by_language[language].add(table.words(other))
        share = texts // (len(by_language) + 1)
        chosen = [text for language, all_texts in sorted(by_language.items())
                  for text in random.Random(1).sample(sorted(all_texts), share * (1 + (language == "en")))]
        total, count = teacher.in_context(chosen)
        np.savez(kept, total=total[count > 0], count=count[count > 0], which=np.where(count > 0)[0])
    stored = np.load(kept)
    total, count = np.zeros((len(teacher.pieces), teacher.width), np.float32), np.zeros(len(teacher.pieces), np.int64)
    total[stored["which"]], count[stored["which"]] = stored["total"], stored["count"]
    return total, count


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--work", type=Path, required=True)
    options.add_argument("--pieces", type=int, default=48000)
    options.add_argument("--steps", type=int, default=14000)
    options.add_argument("--texts", type=int, default=76000, help="that the teacher reads")
    options = options.parse_args()
    began = time.time()
    say = lambda *what: print(f"{time.time() - began:.0f} s:", *what, flush=True)

    pairs = read_pairs(options.work)
    say(sum(map(len, pairs.values())), "pairs")
    teacher = Teacher()
    kept = train.choose(teacher.pieces, teacher.scores, count_pieces(teacher, pairs), options.pieces)
    say(len(kept), "pieces")
    vectors, weights = train.first_vectors(teacher, kept, context(options.work, teacher, pairs, options.texts))
    unigram = segmenter(["<unk>"] + [teacher.pieces[k] for k in kept], np.concatenate([[-20.0], teacher.scores[kept]]))
    groups = train.tokenize(pairs, unigram)
    say(len(groups), "groups")
    train.contrast(groups, chance, vectors, weights, unigram, options.steps, report=lambda step, loss: say(step, f"{loss:.3f}"))
    data = table.pack([teacher.pieces[k] for k in kept], teacher.scores[kept], vectors * weights[:, None])
    (options.work / "table.bin").write_bytes(data)
    say(len(data), "bytes")


if __name__ == "__main__":
    main()
