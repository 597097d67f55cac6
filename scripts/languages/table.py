"""The packed table: writing it, reading it, and the vector of a text. The engine reads the same format."""
import re
import struct
import unicodedata

import numpy as np
from blake3 import blake3

MAGIC, VERSION, GROUP = b"toolscML", 1, 32
MARK = "\u2581"          # begins a word
UNKNOWN_COST = 20.0      # of a character that is no piece
LONGEST = 512            # characters of a text that count


def words(text):
    """The form in which texts are split: NFKC, lower case, and a space for all that is neither letter nor digit. Without
    the last, a word behind a bracket or an inverted question mark would not begin with the mark and be another piece."""
    return re.sub(r"[\W_]+", " ", unicodedata.normalize("NFKC", text[:LONGEST]).lower()).strip()


def normal(text):
    return "".join(MARK + word for word in words(text).split())


def half(values):
    """Floats to the nearest bfloat16, as bits."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")


def widen(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def quantize(vectors):
    """(codes, scales): 4 bit in groups of 32. Of a few scales, each group takes the one that is nearest."""
    groups = vectors.reshape(len(vectors), -1, GROUP)
    top = np.abs(groups).max(2, keepdims=True)
    best_error = None
    for share in (1 / 7.5, 1 / 8, 1 / 7, 0.92 / 7.5, 0.84 / 7.5):
        scale = widen(half(np.maximum(top * share, 1e-9)))
        code = np.clip(np.round(groups / scale), -8, 7)
        error = ((code * scale - groups) ** 2).sum(2, keepdims=True)
        if best_error is None:
            codes, scales, best_error = code, scale, error
        better = error < best_error
        codes, scales, best_error = np.where(better, code, codes), np.where(better, scale, scales), np.minimum(error, best_error)
    return (codes + 8).astype(np.uint8).reshape(len(vectors), -1), scales[:, :, 0]


def pack(pieces, scores, vectors):
    """The bytes of a table. Pieces are sorted by their bytes."""
    order = sorted(range(len(pieces)), key=lambda i: pieces[i].encode())
    names = [pieces[i].encode() for i in order]
    codes, scales = quantize(vectors[order])
    costs = np.clip(np.round(-np.asarray(scores)[order] * 2048), 0, 65535).astype("<u2")
    body = struct.pack("<III", len(names), vectors.shape[1], GROUP)
    body += bytes(map(len, names)) + b"".join(names) + costs.tobytes() + half(scales).tobytes()
    body += (codes[:, 0::2] | codes[:, 1::2] << 4).tobytes()
    return MAGIC + struct.pack("<I", VERSION) + blake3(body).digest() + body


class Table:
    """A packed table. Slow and plain: it says what the engine must compute."""

    def __init__(self, data):
        body = data[44:]
        if data[:8] != MAGIC or struct.unpack_from("<I", data, 8)[0] != VERSION or blake3(body).digest() != data[12:44]:
            raise ValueError("not a table of this version, or damaged")
        count, self.width, group = struct.unpack_from("<III", body)
        at, self.pieces = 12 + count, []
        for length in body[12:12 + count]:
            self.pieces.append(body[at:at + length].decode())
            at += length
        self.number = {piece: i for i, piece in enumerate(self.pieces)}
        self.costs = np.frombuffer(body, "<u2", count, at) / 2048
        at += 2 * count
        scales = widen(np.frombuffer(body, "<u2", count * self.width // group, at)).reshape(count, -1, 1)
        at += scales.size * 2
        codes = np.frombuffer(body, np.uint8, count * self.width // 2, at).reshape(count, -1)
        codes = np.stack([codes & 15, codes >> 4], 2).reshape(count, -1, group).astype(np.float32) - 8
        self.vectors = (codes * scales).reshape(count, self.width)
        self.longest = max(map(len, self.pieces))

    def split(self, text):
        """Numbers of the pieces on the cheapest path; characters that are no piece are left out."""
        text = normal(text)
        cost, last = [0.0] + [np.inf] * len(text), [None] * (len(text) + 1)
        for end in range(1, len(text) + 1):
            for start in range(max(0, end - self.longest), end):
                piece = self.number.get(text[start:end])
                if piece is not None:
                    price = self.costs[piece]
                elif end - start == 1:
                    price = UNKNOWN_COST
                else:
                    continue
                if cost[start] + price < cost[end]:
                    cost[end], last[end] = cost[start] + price, (start, piece)
        out, end = [], len(text)
        while end:
            end, piece = last[end]
            if piece is not None:
                out.append(piece)
        return out[::-1]

    def embed(self, text):
        total = self.vectors[self.split(text)].sum(0, dtype=np.float32) if text else np.zeros(self.width, np.float32)
        size = np.sqrt((total * total).sum())
        return total / size if size > 0 else total
