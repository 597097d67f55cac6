"""The file that the crate carries, and reading it again.

Little-endian: a head of eight numbers with the BLAKE3 of all the rest, the vocabulary, the token embeddings in 4 bit in
groups of 32 (version 1) or in 8 bit by row (version 2), positions and norms as 32-bit floats, and each matrix as 8-bit
codes with a scale for each output row, in blocks of 16 rows by 4 columns. Last comes the rotation of vectors, 32-bit
floats."""

import json
import re
import struct

import numpy as np
import torch
from blake3 import blake3
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from model import HEADS, HIDDEN, INTERMEDIATE, LAYERS, POSITIONS, Encoder, embed, tokens

MAGIC, GROUP, SPECIAL = b"toolscEN", 32, ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
FOUR_BIT, EIGHT_BIT = 1, 2
ROWS, COLUMNS = 16, 4
# ASCII, Latin and Greek letters, and the signs that English texts have: dashes, quotes,
# currencies, arrows, mathematics, ligatures.
KEPT = re.compile(
    "[\u0021-\u007e\u00a1-\u024f\u0370-\u03ff\u1e00-\u1fff\u2010-\u205e\u20a0-\u20bf\u2100-\u27bf\ufb00-\ufb06]+"
)


def kept_tokens(tokenizer):
    """(pieces, their ids) of the vocabulary without unused pieces and other scripts, in the order they have."""
    pieces = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    kept = [
        (piece, i)
        for piece, i in pieces
        if piece in SPECIAL or (KEPT.fullmatch(piece) and not re.fullmatch(r"\[(unused\d+|MASK)\]", piece))
    ]
    return [piece for piece, _ in kept], [i for _, i in kept]


def word_piece(pieces):
    """The tokenizer of BERT without case, over these pieces."""
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=100))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", vocabulary["[SEP]"]), ("[CLS]", vocabulary["[CLS]"]))
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


# Numbers ---------------------------------------------------------------------------------------------------------------


def four_bit(rows):
    """(scales as 16-bit floats, codes from -7 to 7) of groups of 32. Of several scales the one with the least error is
    taken: the greatest value of a group is often worth cutting."""
    groups = rows.reshape(len(rows), -1, GROUP)
    widest = np.abs(groups).max(axis=2) / 7
    best = np.full(widest.shape, np.inf)
    scales, codes = np.zeros(widest.shape, np.float16), np.zeros(groups.shape, np.int8)
    for share in np.arange(0.7, 1.01, 0.05):
        scale = (widest * share).astype(np.float16)
        safe = np.maximum(scale.astype(np.float32), 1e-8)[..., None]
        code = np.clip(np.rint(groups / safe), -7, 7)
        error = ((groups - code * safe) ** 2).sum(axis=2)
        better = error < best
        best[better], scales[better], codes[better] = error[better], scale[better], code[better]
    return scales, codes.reshape(rows.shape)


def eight_bit(rows):
    """(scale of each row, codes from -127 to 127)."""
    scales = np.maximum(np.abs(rows).max(axis=1) / 127, 1e-12).astype(np.float32)
    return scales, np.clip(np.rint(rows / scales[:, None]), -127, 127).astype(np.int8)


def blocks(codes):
    """Codes of a matrix as the four-byte dot product reads them: 16 rows by 4 columns."""
    rows, columns = codes.shape
    return codes.reshape(rows // ROWS, ROWS, columns // COLUMNS, COLUMNS).transpose(0, 2, 1, 3)


def unblocked(data, rows, columns):
    return data.reshape(rows // ROWS, columns // COLUMNS, ROWS, COLUMNS).transpose(0, 2, 1, 3).reshape(rows, columns)


# Writing ---------------------------------------------------------------------------------------------------------------


def floats(values):
    return values.detach().numpy().astype("<f4").tobytes()


def linear(layer):
    scales, codes = eight_bit(layer.weight.detach().numpy())
    return blocks(codes).tobytes() + scales.astype("<f4").tobytes() + floats(layer.bias)


def norm(layer):
    return floats(layer.weight) + floats(layer.bias)


def embeddings(rows, version):
    if version == EIGHT_BIT:
        scales, codes = eight_bit(rows)
        return scales.astype("<f4").tobytes() + codes.tobytes()
    scales, codes = four_bit(rows)
    nibbles = (codes + 8).astype(np.uint8)
    return scales.astype("<f2").tobytes() + (nibbles[:, 0::2] | nibbles[:, 1::2] << 4).tobytes()


def write(path, encoder, tokenizer, version=FOUR_BIT):
    """Writes the encoder with the pruned vocabulary; returns the number of bytes."""
    pieces, ids = kept_tokens(tokenizer)
    vocabulary = "\n".join(pieces).encode()
    parts = [
        vocabulary,
        embeddings(encoder.words.weight.numpy()[ids], version),
        floats(encoder.positions.weight),
        norm(encoder.norm),
    ]
    for layer in encoder.layers:
        parts += [
            linear(layer.qkv),
            linear(layer.attention),
            norm(layer.attention_norm),
            linear(layer.intermediate),
            linear(layer.output),
            norm(layer.output_norm),
        ]
    parts.append(encoder.rotation.numpy().astype("<f4").tobytes())
    head = MAGIC + struct.pack(
        "<8I", version, HIDDEN, LAYERS, HEADS, INTERMEDIATE, POSITIONS, len(pieces), len(vocabulary)
    )
    body = b"".join(parts)
    path.write_bytes(head + blake3(head + body).digest() + body)
    return path.stat().st_size


# Reading ---------------------------------------------------------------------------------------------------------------


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, kind, *shape):
        values = np.frombuffer(self.data, kind, int(np.prod(shape)), self.at)
        self.at += values.nbytes
        return values.reshape(shape)

    def linear(self, layer):
        rows, columns = layer.weight.shape
        codes = unblocked(self.take("i1", rows * columns), rows, columns)
        self.set(layer.weight, codes * self.take("<f4", rows)[:, None])
        self.set(layer.bias, self.take("<f4", rows))

    def norm(self, layer):
        self.set(layer.weight, self.take("<f4", HIDDEN))
        self.set(layer.bias, self.take("<f4", HIDDEN))

    def embeddings(self, count, version):
        if version == EIGHT_BIT:
            scales = self.take("<f4", count)
            return self.take("i1", count, HIDDEN) * scales[:, None]
        scales = self.take("<f2", count, HIDDEN // GROUP).astype(np.float32)
        pairs = self.take("u1", count, HIDDEN // 2)
        codes = np.stack([pairs & 15, pairs >> 4], axis=2).reshape(count, -1, GROUP).astype(np.float32) - 8
        return (codes * scales[..., None]).reshape(count, HIDDEN)

    @staticmethod
    def set(parameter, values):
        parameter.data = torch.from_numpy(np.array(values, np.float32))


def read(path):
    """(encoder with the stored numbers as 32-bit floats, tokenizer) of a file."""
    data = path.read_bytes()
    head, checksum, body = data[:40], data[40:72], data[72:]
    version, *shape, count, length = struct.unpack("<8I", head[8:])
    if (
        head[:8] != MAGIC
        or shape != [HIDDEN, LAYERS, HEADS, INTERMEDIATE, POSITIONS]
        or blake3(head + body).digest() != checksum
    ):
        raise SystemExit(f"{path}: no whole encoder of this layout; build it anew")
    reader = Reader(body)
    pieces = reader.take("u1", length).tobytes().decode().split("\n")
    encoder = Encoder()
    encoder.words = torch.nn.Embedding.from_pretrained(
        torch.from_numpy(reader.embeddings(count, version).astype(np.float32))
    )
    reader.set(encoder.positions.weight, reader.take("<f4", POSITIONS, HIDDEN))
    reader.norm(encoder.norm)
    for layer in encoder.layers:
        reader.linear(layer.qkv)
        reader.linear(layer.attention)
        reader.norm(layer.attention_norm)
        reader.linear(layer.intermediate)
        reader.linear(layer.output)
        reader.norm(layer.output_norm)
    encoder.rotation = torch.from_numpy(reader.take("<f4", HIDDEN, HIDDEN).copy())
    if reader.at != len(body):
        raise SystemExit(f"{path}: {len(body) - reader.at} bytes too many; build it anew")
    return encoder.eval(), word_piece(pieces)


# Reference -------------------------------------------------------------------------------------------------------------

TEXTS = (
    "",
    " ",
    "a",
    "weather",
    "What is the weather like in Paris tomorrow?",
    "weather get Forecast: Returns the forecast of a place. place Name days",
    "Create a new issue in the repository and assign it to Maria.",
    "spin up a new linux server",
    "who deleted my database yesterday",
    "aws ec2 Describe Instances: Describes the specified instances or all instances. Instance Ids filters",
    "git Hub create Pull Request",
    "CASE does NOT matter, aCCentS and çédilles neither: São Paulo, naïve café, Zürich, Ålesund, Łódź",
    "e\u0301 decomposed and é composed",
    "Straße und Größe",
    "Ελληνικά γράμματα",
    "Привет, мир",
    "你好,世界",
    "创建一个新的日程 in my calendar",
    "カレンダーに予定を追加",
    "일정 추가",
    "مرحبا بالعالم",
    "rocket 🚀 and family 👨‍👩‍👧 emoji",
    "3.14159 + 42 - 1,000,000 = 50%",
    "2024-05-12T08:30:00Z",
    "192.168.0.1:8080",
    "C:\\Users\\me\\file.txt",
    "https://example.com/a/b?c=d&e=f#g",
    "snake_case_name kebab-case-name camelCaseName",
    "!?.,;:()[]{}<>\"'`~@#$%^&*-_=+|/\\",
    "don't can't won't it's",
    "tabs\tand\nline breaks\r\nand  double  spaces",
    "zero\u200bwidth and soft\u00adhyphen and \u0000null and \ufffdreplacement",
    "non\u00a0breaking\u3000ideographic space",
    "x" * 100,
    "y" * 101,
    "pneumonoultramicroscopicsilicovolcanoconiosis",
    "fullwidth ABC123 and ligature fi",
    "½ © ® ™ € £ ¥ § ± ×",
    "I need to book a flight from Berlin to Tokyo on 3 March, find a hotel near the station for five nights, convert 2,000 euros to yen and then "
    "send the whole plan to my colleague by e-mail before noon.",
    " ".join(f"word{i} and number {i * 37}" for i in range(60)),
)


def write_reference(path, encoder, tokenizer):
    """Texts with token ids and vectors, for the tests of another implementation."""
    vectors = embed(encoder, tokenizer, TEXTS).tolist()
    entries = [
        {"text": text, "ids": ids, "vector": [round(value, 7) for value in vector]}
        for text, ids, vector in zip(TEXTS, tokens(tokenizer, TEXTS), vectors)
    ]
    path.write_text(json.dumps(entries, ensure_ascii=False, indent=0))
