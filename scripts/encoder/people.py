"""Trains the encoder on requests in people's words, with documentation between:

    python people.py --work DIR --people DIR [DIR ...] [--fold N] [--from FILE] [--sets DIR]

--people holds a folder for each catalog of folds.toml, with tools.jsonl and queries.jsonl. Several such folders are read as
one: further requests of a catalog may stand in another. --from is the encoder to start with, what build.py writes;
DIR/tools.json are the tools of its sources. With --fold, the catalogs of that fold are left out of training, and those of the
first folder are judged. Writes DIR/people.bin, or DIR/fold-N.bin, and a reference of vectors beside it."""

import argparse
import copy
import json
import random
import time
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

import evaluate
import export
from batches import Source
from build import averaged, principal
from folds import FOLDS
from model import embed, embed_tokens, tokens
from train import documentation_loss, products

REQUEST_TOKENS, TOOL_TOKENS, JUDGED_TOKENS = 48, 56, 96
# Catalogs of a batch and requests of each.
CATALOGS, REQUESTS = 3, 20
# Right tools and mined neighbours of a request in a batch, at most.
RIGHT, NEIGHBOURS = 2, 2
# Neighbours are drawn from so many of the nearest wrong tools.
NEAREST = 12
NAME_ONLY = 0.2
SCALE, RATE, WARM_UP, LEAST_RATE, DECAY = 20.0, 5e-5, 15, 0.05, 0.01


class Catalog:
    """Tools and requests of a catalog; `right` are places of tools."""

    def __init__(self, name, folders):
        tools, asked = (
            [line for folder in folders if (path := folder / name / file).exists() for line in evaluate.read_lines(path)]
            for file in ("tools.jsonl", "queries.jsonl")
        )
        place = {tool["id"]: i for i, tool in enumerate(tools)}
        self.name = name
        self.texts, self.names = map(list, zip(*map(evaluate.views_of, tools)))
        self.requests = [query["query"] for query in asked]
        self.kinds = [query["kind"] for query in asked]
        self.right = [[place[tool] for tool in query["relevant"]] for query in asked]
        # Needed before a right tool: neither right nor wrong.
        self.before = [{place[tool] for tool in query.get("prepares", [])} for query in asked]


def ndcg_by_kind(encoder, tokenizer, catalog):
    """(kind, nDCG@10) of each request."""
    asked = embed(encoder, tokenizer, catalog.requests, JUDGED_TOKENS)
    scores = np.maximum(
        *((asked @ embed(encoder, tokenizer, of, JUDGED_TOKENS).T).numpy() for of in (catalog.texts, catalog.names))
    )
    for row, right, kind in zip(scores, catalog.right, catalog.kinds):
        yield kind, evaluate.ndcg(np.argsort(-row, kind="stable")[:10], set(right))


class People:
    """Draws batches of requests of some catalogs, with right tools and near wrong ones."""

    def __init__(self, encoder, tokenizer, catalogs, seed):
        self.encoder, self.catalogs, self.draw = encoder, catalogs, random.Random(seed)
        known, first = {}, 0
        for catalog in catalogs:
            # Tools are counted over all catalogs; those with the same text have the same number.
            catalog.first = first
            first += len(catalog.texts)
            catalog.same = [known.setdefault(text, len(known)) for text in catalog.texts]
            catalog.asked_ids = tokens(tokenizer, catalog.requests, REQUEST_TOKENS)
            catalog.text_ids = tokens(tokenizer, catalog.texts, TOOL_TOKENS)
            catalog.name_ids = tokens(tokenizer, catalog.names, TOOL_TOKENS)

    def mine(self):
        """Finds the nearest wrong tools of each request in its own catalog."""
        for catalog in self.catalogs:
            asked, tools = (embed_tokens(self.encoder, ids) for ids in (catalog.asked_ids, catalog.text_ids))
            order = torch.argsort(asked @ tools.T, dim=1, descending=True).tolist()
            catalog.near = []
            for row, right, before in zip(order, catalog.right, catalog.before):
                spared = before.union(right)
                catalog.near.append([tool for tool in row if tool not in spared][:NEAREST])

    def loss(self):
        """Each right tool against all wrong ones of the batch."""
        asked, tools, spared, texts = [], {}, [], []
        for catalog in self.draw.sample(self.catalogs, CATALOGS):
            for i in self.draw.sample(range(len(catalog.requests)), min(REQUESTS, len(catalog.requests))):
                right, near = catalog.right[i], catalog.near[i]
                chosen = self.draw.sample(right, min(RIGHT, len(right)))
                for tool in chosen + self.draw.sample(near, min(NEIGHBOURS, len(near))):
                    if (catalog, tool) not in tools:
                        tools[catalog, tool] = len(texts)
                        name_only = self.draw.random() < NAME_ONLY
                        texts.append((catalog.name_ids if name_only else catalog.text_ids)[tool])
                asked.append(catalog.asked_ids[i])
                # The same tool may stand in two catalogs, so texts are compared, not places.
                either = [catalog.same[tool] for tool in [*right, *catalog.before[i]]]
                spared.append(([catalog.first + tool for tool in right], either))
        places = [other.first + tool for other, tool in tools]
        same = [other.same[tool] for other, tool in tools]
        masks = (
            np.stack([np.isin(places, right) for right, _ in spared]),
            np.stack([np.isin(same, either, invert=True) for _, either in spared]),
        )
        is_right, is_wrong = (torch.from_numpy(mask).to(self.encoder.device) for mask in masks)
        with products(self.encoder.device):
            asked, texts = self.encoder(asked), self.encoder(texts)
        scores = SCALE * asked.float() @ texts.float().T
        wrong = torch.logsumexp(scores.masked_fill(~is_wrong, -1e4), 1, keepdim=True)
        of_request = (functional.softplus(wrong - scores) * is_right).sum(1) / is_right.sum(1)
        return of_request.mean()


def train(first, tokenizer, catalogs, tools, options, seed, say):
    """The encoder after all steps. Every `documentation` steps one is on documentation, the others on requests of people."""
    encoder = copy.deepcopy(first)
    encoder.requires_grad_(False)
    encoder.layers.requires_grad_(True)
    people, documentation = People(encoder, tokenizer, catalogs, seed), Source(tools, seed)
    optimizer = torch.optim.AdamW(encoder.layers.parameters(), lr=RATE, weight_decay=DECAY)
    losses, began = {"people": [], "documentation": []}, time.time()
    mining = {options.steps * k // options.mined for k in range(options.mined)}
    for step in range(options.steps):
        if step in mining:
            people.mine()
        share = max(LEAST_RATE, 1 - step / options.steps)
        for group in optimizer.param_groups:
            group["lr"] = RATE * min((step + 1) / WARM_UP, share)
        kind = "documentation" if (step + 1) % options.documentation == 0 else "people"
        if kind == "people":
            loss = people.loss()
        else:
            loss = documentation_loss(encoder, tokenizer, documentation.batch())[0]
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(encoder.layers.parameters(), 1.0)
        optimizer.step()
        losses[kind].append(loss.item())
        if (step + 1) % 20 == 0:
            means = ", ".join(f"{kind} {np.mean(found[-20:]):.3f}" for kind, found in losses.items() if found)
            say(f"seed {seed}, step {step + 1}: loss {means}; {time.time() - began:.0f} s of training")
    return encoder.requires_grad_(False)


def mean(encoders):
    """The encoder whose weights are the means of others'; it generalises better than each of them."""
    states = [encoder.state_dict() for encoder in encoders]
    encoders[0].load_state_dict({name: torch.stack([state[name] for state in states]).mean(0) for name in states[0]})
    return encoders[0]


def judge(name, encoder, tokenizer, catalogs, sets, say):
    """Prints nDCG@10 of the vectors alone: of catalogs, by kind of request, and of sets."""
    encoder.eval()
    by_kind, means = {}, []
    for catalog in catalogs:
        found = list(ndcg_by_kind(encoder, tokenizer, catalog))
        means.append(np.mean([value for _, value in found]))
        for kind, value in found:
            by_kind.setdefault(kind, []).append(value)
    kinds = " ".join(f"{kind} {np.mean(values):.3f}" for kind, values in sorted(by_kind.items()))
    if means:
        say(name, f"people, left out: {np.mean(means):.4f} {kinds}")
    if sets:
        say(evaluate.line(name, evaluate.figures(encoder, tokenizer, sets)))


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--work", type=Path, required=True)
    options.add_argument("--people", type=Path, required=True, nargs="+")
    options.add_argument("--from", dest="first", type=Path, help="DIR/encoder.bin when not given")
    options.add_argument("--fold", type=int, help="1 to 4: left out of training and judged")
    options.add_argument("--sets", type=Path)
    options.add_argument("--steps", type=int, default=1000)
    options.add_argument("--mined", type=int, default=8, help="times that near wrong tools are looked for in a training")
    options.add_argument("--documentation", type=int, default=4, help="one step of so many is on documentation")
    options.add_argument("--share", type=float, default=0.85, help="of the trained weights in the average")
    options.add_argument("--seeds", type=int, default=3, help="trainings whose weights are averaged")
    options.add_argument("--device", default="cpu", help="cuda: 5 minutes for all seeds; cpu: some hours")
    options = options.parse_args()
    began = time.time()
    say = lambda *what: print(f"{time.time() - began:.0f} s:", *what, flush=True)
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")

    names, held_out = sorted(sum(FOLDS, [])), FOLDS[options.fold - 1] if options.fold else []
    taught = [Catalog(name, options.people) for name in names if name not in held_out]
    judged = [Catalog(name, options.people[:1]) for name in held_out if (options.people[0] / name).is_dir()]
    first, tokenizer = export.read(options.first or options.work / "encoder.bin")
    first.rotation = None
    first.to(options.device)
    judge("before", first, tokenizer, judged, options.sets, say)

    tools = json.loads((options.work / "tools.json").read_text())
    say(len(taught), "catalogs,", sum(len(catalog.requests) for catalog in taught), "requests")
    encoder = mean([train(first, tokenizer, taught, tools, options, seed, say) for seed in range(options.seeds)])
    encoder = averaged(first, encoder, options.share).cpu()
    encoder.rotation = principal(encoder, tokenizer, tools, 0)
    name = f"fold-{options.fold}" if options.fold else "people"
    export.write(options.work / f"{name}.bin", encoder, tokenizer)
    shipped, own_tokenizer = export.read(options.work / f"{name}.bin")
    export.write_reference(options.work / f"{name}-reference.json", shipped, own_tokenizer)
    judge(name, shipped, own_tokenizer, judged, options.sets, say)


if __name__ == "__main__":
    main()
