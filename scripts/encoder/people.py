"""Trains the upper layers on requests in people's words, with documentation between:

    python people.py --work DIR --people DIR [--fold N] [--from FILE] [--sets DIR]

--people holds a folder for each catalog, with tools.jsonl and queries.jsonl. --from is the encoder to start with, what
build.py writes; DIR/tools.json are the tools of its sources. With --fold, the catalogs of that fold of folds.toml are left
out of training and judged. Writes DIR/people.bin, or DIR/fold-N.bin, and a reference of vectors beside it."""

import argparse
import copy
import json
import random
import time
import tomllib
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

import evaluate
import export
from batches import Source
from build import averaged, principal
from model import HIDDEN, Batch, embed, tokens
from train import documentation_loss

HERE = Path(__file__).parent
# Layers below are kept as they are, so what they say of each text is computed once.
FROZEN = 2
REQUEST_TOKENS, TOOL_TOKENS, JUDGED_TOKENS = 48, 56, 96
CATALOGS, REQUESTS = 3, 20
# Right tools and mined neighbours of a request in a batch, at most.
RIGHT, NEIGHBOURS = 2, 2
# Neighbours are drawn from so many of the nearest wrong tools, and mined so often in a run.
NEAREST, MINED = 12, 3
NAME_ONLY = 0.2
SCALE, RATE, WARM_UP, LEAST_RATE, DECAY = 20.0, 5e-5, 15, 0.05, 0.01


class Catalog:
    """Tools and requests of a folder; `right` and `other` are places of tools."""

    def __init__(self, folder):
        lines = lambda name: [json.loads(line) for line in (folder / name).read_text().splitlines() if line.strip()]
        tools, asked = lines("tools.jsonl"), lines("queries.jsonl")
        place = {tool["id"]: i for i, tool in enumerate(tools)}
        self.name = folder.name
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


class Upper:
    """The layers that are trained, over states of the frozen ones."""

    def __init__(self, encoder, tokenizer):
        self.encoder, self.tokenizer = encoder, tokenizer
        for parameter in encoder.parameters():
            parameter.requires_grad_(False)
        self.trained = [parameter for layer in encoder.layers[FROZEN:] for parameter in layer.parameters()]
        for parameter in self.trained:
            parameter.requires_grad_(True)

    @torch.no_grad()
    def frozen(self, texts, most, batch_tokens=4096):
        """[(token ids, states)] of each text, in 16 bit."""
        ids = tokens(self.tokenizer, texts, most)
        found = [None] * len(ids)

        def compute(chosen):
            batch = Batch([ids[i] for i in chosen])
            states = self.encoder.norm(self.encoder.words(batch.ids) + self.encoder.positions(batch.position))
            for layer in self.encoder.layers[:FROZEN]:
                states = layer(states, batch)
            for i, part in zip(chosen, states.half().split(batch.lengths.tolist())):
                found[i] = (ids[i], part.clone())

        chosen = []
        for i in sorted(range(len(ids)), key=lambda i: len(ids[i])):
            if chosen and (len(chosen) + 1) * len(ids[i]) > batch_tokens:
                compute(chosen)
                chosen = []
            chosen.append(i)
        compute(chosen)
        return found

    def vectors(self, texts):
        """Unit vectors of texts that `frozen` read."""
        ids, states = zip(*texts)
        batch = Batch(ids)
        states = torch.cat(states).float()
        for layer in self.encoder.layers[FROZEN:]:
            states = layer(states, batch)
        return functional.normalize(batch.mean(states), dim=1)

    @torch.inference_mode()
    def all_vectors(self, texts, count=64):
        vectors = torch.zeros(len(texts), HIDDEN)
        order = sorted(range(len(texts)), key=lambda i: len(texts[i][0]))
        for at in range(0, len(order), count):
            part = order[at : at + count]
            vectors[part] = self.vectors([texts[i] for i in part])
        return vectors


class People:
    """Draws batches of requests of some catalogs, with right tools and near wrong ones."""

    def __init__(self, upper, catalogs, seed):
        self.upper, self.catalogs, self.draw = upper, catalogs, random.Random(seed)
        for catalog in catalogs:
            catalog.asked_states = upper.frozen(catalog.requests, REQUEST_TOKENS)
            catalog.text_states = upper.frozen(catalog.texts, TOOL_TOKENS)
            catalog.name_states = upper.frozen(catalog.names, TOOL_TOKENS)

    def mine(self):
        """Finds the nearest wrong tools of each request in its own catalog."""
        for catalog in self.catalogs:
            asked, tools = self.upper.all_vectors(catalog.asked_states), self.upper.all_vectors(catalog.text_states)
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
                        texts.append((catalog.name_states if name_only else catalog.text_states)[tool])
                asked.append(catalog.asked_states[i])
                # The same tool may stand in two catalogs, so texts are compared, not places.
                right_texts = {catalog.texts[tool] for tool in right}
                spared.append((catalog, right, right_texts | {catalog.texts[tool] for tool in catalog.before[i]}))
        is_right = torch.zeros(len(asked), len(texts), dtype=torch.bool)
        is_wrong = torch.ones(len(asked), len(texts), dtype=torch.bool)
        for (other, tool), column in tools.items():
            for row, (catalog, right, either) in enumerate(spared):
                is_right[row, column] = catalog is other and tool in right
                is_wrong[row, column] = other.texts[tool] not in either
        scores = SCALE * self.upper.vectors(asked) @ self.upper.vectors(texts).T
        wrong = torch.logsumexp(scores.masked_fill(~is_wrong, -1e4), 1, keepdim=True)
        of_request = (functional.softplus(wrong - scores) * is_right).sum(1) / is_right.sum(1)
        return of_request.mean()


def train(upper, people, documentation, options, say):
    """Every `documentation` steps one is on documentation, the others on requests of people."""
    optimizer = torch.optim.AdamW(upper.trained, lr=RATE, weight_decay=DECAY)
    losses, began = {"people": [], "documentation": []}, time.time()
    mining = {options.steps * k // MINED for k in range(MINED)}
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
            loss = documentation_loss(upper.encoder, upper.tokenizer, documentation.batch())[0]
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(upper.trained, 1.0)
        optimizer.step()
        losses[kind].append(loss.item())
        if (step + 1) % 20 == 0:
            means = ", ".join(f"{kind} {np.mean(found[-20:]):.3f}" for kind, found in losses.items() if found)
            say(f"step {step + 1}: loss {means}; {time.time() - began:.0f} s of training")


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
    options.add_argument("--people", type=Path, required=True)
    options.add_argument("--from", dest="first", type=Path, help="DIR/encoder.bin when not given")
    options.add_argument("--fold", type=int, help="1 to 4: left out of training and judged")
    options.add_argument("--sets", type=Path)
    options.add_argument("--steps", type=int, default=300)
    options.add_argument("--documentation", type=int, default=4, help="one step of so many is on documentation")
    options.add_argument("--share", type=float, default=0.85, help="of the trained weights in the average")
    options.add_argument("--seed", type=int, default=0)
    options = options.parse_args()
    began = time.time()
    say = lambda *what: print(f"{time.time() - began:.0f} s:", *what, flush=True)
    torch.manual_seed(options.seed)

    folds = [set(fold["catalogs"]) for fold in tomllib.loads((HERE / "folds.toml").read_text())["fold"]]
    held_out = folds[options.fold - 1] if options.fold else set()
    catalogs = [Catalog(options.people / name) for name in sorted(set.union(*folds))]
    judged = [catalog for catalog in catalogs if catalog.name in held_out]
    taught = [catalog for catalog in catalogs if catalog.name not in held_out]
    encoder, tokenizer = export.read(options.first or options.work / "encoder.bin")
    encoder.rotation = None
    first = copy.deepcopy(encoder)
    judge("before", first, tokenizer, judged, options.sets, say)

    upper = Upper(encoder, tokenizer)
    tools = json.loads((options.work / "tools.json").read_text())
    say(len(taught), "catalogs,", sum(len(catalog.requests) for catalog in taught), "requests")
    train(upper, People(upper, taught, options.seed), Source(tools, options.seed), options, say)

    encoder = averaged(first, encoder, options.share)
    encoder.requires_grad_(False)
    encoder.rotation = principal(encoder, tokenizer, tools, options.seed)
    name = f"fold-{options.fold}" if options.fold else "people"
    export.write(options.work / f"{name}.bin", encoder, tokenizer)
    shipped, own_tokenizer = export.read(options.work / f"{name}.bin")
    export.write_reference(options.work / f"{name}-reference.json", shipped, own_tokenizer)
    judge(name, shipped, own_tokenizer, judged, options.sets, say)


if __name__ == "__main__":
    main()
