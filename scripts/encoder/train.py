"""Contrast: of the tools of a batch, a request shall be nearest to its own, and a tool to its own request."""

import time

import torch
from torch.nn import functional

from batches import PAIRS
from model import tokens

SCALE, RATE, WARM_UP, DECAY = 20.0, 2e-5, 50, 0.01
REQUEST_TOKENS, TOOL_TOKENS = 64, 64
# Processors that have products in bfloat16 take half the time at the same result, and others many times as long.
HAS_BFLOAT16 = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


def products(device):
    """Matrix products in bfloat16 where the device has them."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type != "cpu" or HAS_BFLOAT16)


def loss_of(requests, tools, joined, needs):
    """Symmetric InfoNCE, and for requests with two needs the mean over both. Tensors of unit vectors."""
    own = torch.arange(PAIRS, device=requests.device)
    scores = SCALE * requests @ tools.T
    both = -functional.log_softmax(SCALE * joined @ tools.T, dim=1).gather(1, needs).mean()
    found = (scores.argmax(1) == own).float().mean()
    pairs = (functional.cross_entropy(scores, own) + functional.cross_entropy(scores.T, own)) / 2
    return pairs + both * len(joined) / PAIRS, found


def documentation_loss(encoder, tokenizer, batch):
    """The loss of a batch of `batches.Source`, and the share of requests whose own tool is nearest."""
    texts = tokens(tokenizer, batch.requests + batch.joined, REQUEST_TOKENS) + tokens(
        tokenizer, batch.tools, TOOL_TOKENS
    )
    with products(encoder.device):
        vectors = encoder(texts)
    requests, joined, tools = vectors.float().split([PAIRS, len(batch.joined), PAIRS])
    return loss_of(requests, tools, joined, torch.tensor(batch.needs, device=encoder.device))


def rate(step, schedule):
    """Rises over the first steps, then falls to a twentieth."""
    if step < WARM_UP:
        return (step + 1) / WARM_UP
    return 1 - 0.95 * (step - WARM_UP) / max(1, schedule - WARM_UP)


def contrast(encoder, tokenizer, source, steps, schedule, report, keep):
    """Trains all but the token embeddings; `keep(step, encoder)` is called after each step."""
    trained = [parameter for parameter in encoder.parameters() if parameter.requires_grad]
    matrices, others = ([p for p in trained if (p.ndim > 1) == wanted] for wanted in (True, False))
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": DECAY}, {"params": others, "weight_decay": 0.0}], lr=RATE
    )
    rates = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate(step, schedule))
    encoder.train()
    losses, found, began = [], [], time.time()
    for step in range(1, steps + 1):
        loss, right = documentation_loss(encoder, tokenizer, source.batch())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        rates.step()
        losses.append(loss.item())
        found.append(right.item())
        if step % 20 == 0:
            report(step, sum(losses[-20:]) / 20, sum(found[-20:]) / 20, time.time() - began)
        keep(step, encoder)
