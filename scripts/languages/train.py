"""Chooses the pieces, gives them first vectors, and trains those so that a text lies near its translation."""
import re

import numpy as np
import scipy.sparse as sparse

from table import words
from teacher import split

SCALE, BATCH, RATE, WEIGHT_RATE, WARM = 20.0, 512, 0.1, 0.05, 200
# What people wrap around a request. It is added to one side of a pair, so that the vectors learn to pass over it.
PHRASES = {
    "en": "please|can you|could you please|i need to|i want to|i'd like to|help me|show me|tell me|for me|today|right now|thanks|hi|what is|how do i|which|are there any|my|our|at 3 pm|in berlin|for anna|by friday|\"report.pdf\"",
    "zh": "请|请帮我|帮我|麻烦你|我想|我要|我需要|能不能|可以吗|告诉我|给我看|谢谢|你好|今天|现在|什么|有没有|怎么|我的|下午三点|在上海|给小王|一下|把|周五之前|“报告.pdf”",
    "ja": "お願いします|ください|して|したい|してほしい|教えて|見せて|ですか|ますか|私の|今日|今すぐ|ありがとう|こんにちは|何|どう|どれ|午後三時に|東京で|田中さんに|これを|金曜日までに",
    "ko": "해 줘|해 주세요|부탁해요|하고 싶어|알려 줘|보여 줘|있어?|뭐야?|어떻게|제|내|오늘|지금|고마워|안녕하세요|오후 세 시에|서울에서|민수에게|이|금요일까지",
    "es": "por favor|puedes|podrías|necesito|quiero|me gustaría|ayúdame a|dime|muéstrame|para mí|hoy|ahora|gracias|hola|cuál es|cómo|hay|mi|a las tres|en madrid|para ana|este|antes del viernes",
    "pt": "por favor|você pode|poderia|preciso|quero|gostaria de|me ajude a|me diga|mostre|para mim|hoje|agora|obrigado|olá|qual é|como|há|meu|minha|às três|em lisboa|para ana|este|até sexta",
    "fr": "s'il te plaît|s'il vous plaît|peux-tu|pourrais-tu|j'ai besoin de|je veux|je voudrais|aide-moi à|dis-moi|montre-moi|pour moi|aujourd'hui|maintenant|merci|bonjour|quel est|comment|y a-t-il|mon|à 15 heures|à paris|pour anne|ce|avant vendredi",
    "de": "bitte|kannst du|könntest du|ich brauche|ich möchte|ich will|hilf mir|sag mir|zeig mir|für mich|heute|jetzt|danke|hallo|was ist|wie|gibt es|mein|um 15 uhr|in berlin|für anna|diese|bis freitag",
    "it": "per favore|puoi|potresti|ho bisogno di|voglio|vorrei|aiutami a|dimmi|mostrami|per me|oggi|adesso|grazie|ciao|qual è|come|c'è|mio|alle tre|a roma|per anna|questo|entro venerdì",
    "ru": "пожалуйста|можешь|не мог бы ты|мне нужно|я хочу|хотелось бы|помоги|скажи|покажи|для меня|сегодня|сейчас|спасибо|привет|какой|как|есть ли|мой|в три часа|в москве|для анны|этот|до пятницы",
}
CJK, CYRILLIC, LATIN = r"\u3005-\u3007\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af", r"\u0400-\u04ff", r"A-Za-z\u00c0-\u024f"


def choose(pieces, scores, counts, size):
    """Numbers of the kept pieces: single characters first, then what is frequent here and among the teacher's. Its order
    is by frequency over a hundred languages, so Chinese, Japanese and Korean pieces count as more frequent."""
    served = re.compile(f"^\u2581?(?:[{CJK}]+|[{CYRILLIC}]+|[{LATIN}]+|[0-9]*)$")
    ranks = []
    for number in range(4, len(pieces)):
        piece = pieces[number]
        word = piece.replace("\u2581", "")
        if not served.match(piece) or piece != piece.lower() or len(piece.encode()) > 255:
            continue
        script = 0.3 if re.search(f"[{CJK}]", word) else 1.5 if re.search(f"[{CYRILLIC}]", word) else 1.0
        single = len(word) <= 1 and (counts[number] or script == 0.3 or word.isascii())
        ranks.append((-1.0 if single else number * script / (1 + min(counts[number], 50)), number))
    return np.array(sorted(number for _, number in sorted(ranks)[:size]))


def first_vectors(teacher, kept, context, width=256, drop=4):
    """Vectors of the kept pieces before training, and their weights.

    Mean states in context, blended with those of the piece alone by how often it was seen; then principal components
    without the first few, which hold what all pieces share, each divided by its spread."""
    vectors = teacher.isolated(kept)
    total, count = context
    seen = np.where(count[kept] > 0)[0]
    often = count[kept][seen][:, None]
    mean = total[kept][seen] / often
    alone = vectors[seen]
    shifted = (mean - mean.mean(0)) * (alone.std() / mean.std()) + alone.mean(0)
    vectors[seen] = (alone + often * shifted) / (1 + often)
    p = np.exp(teacher.scores[kept])
    share = np.sqrt(p) / np.sqrt(p).sum()
    centred = vectors - share @ vectors
    spread, axes = np.linalg.eigh((centred * share[:, None]).T @ centred)
    spread, axes = spread[::-1][drop:drop + width], axes[:, ::-1][:, drop:drop + width]
    out = centred @ axes / np.sqrt(spread)
    return (out / np.sqrt((out ** 2).sum(1).mean())).astype(np.float32), (3e-5 / (3e-5 + p)).astype(np.float32)


class Ragged:
    """Many short sequences of ids in one array."""

    def __init__(self, sequences):
        lengths = np.array([len(s) for s in sequences])
        self.starts = np.concatenate([[0], np.cumsum(lengths)])
        self.ids = np.concatenate(sequences) if len(sequences) else np.zeros(0, np.int32)

    def __getitem__(self, i):
        return self.ids[self.starts[i]:self.starts[i + 1]]


def tokenize(pairs, unigram):
    """{(source, language): (English sides, other sides)} as ids of rows."""
    rows = lambda texts: [ids[ids > 0] - 1 for ids in split(unigram, [words(t) for t in texts])]
    groups = {}
    for source, found in pairs.items():
        for language in sorted({pair[0] for pair in found}):
            english, other = zip(*((e, o) for l, e, o in found if l == language))
            both = [(a, b) for a, b in zip(rows(english), rows(other)) if len(a) and len(b)]
            if len(both) >= 64:
                groups[source, language] = len(both), Ragged([a for a, _ in both]), Ragged([b for _, b in both])
    return groups


def contrast(groups, weights, vectors, w, unigram, steps, seed=0, wrap=0.7, report=None):
    """Trains in place: of a batch of one source and language, each text must be nearest to its own translation.
    Adagrad with one rate a row; the weight of a piece is trained in its logarithm."""
    rng = np.random.RandomState(seed)
    phrases = {l: [ids[ids > 0] - 1 for ids in split(unigram, [words(t) for t in text.split("|")])] for l, text in PHRASES.items()}
    names = list(groups)
    chance = np.array([weights(*name, groups[name][0]) for name in names])
    chance /= chance.sum()
    row_sum, weight_sum = np.full(len(vectors), 1e-12, np.float32), np.full(len(vectors), 1e-12, np.float32)

    def wrapped(ids, language):
        if rng.rand() > wrap or len(ids) < 2:
            return ids
        own = phrases[language]
        return np.concatenate([ids] + [own[i] for i in rng.randint(len(own), size=1 + min(5, rng.geometric(0.35)))])

    losses = []
    for step in range(steps):
        source, language = name = names[rng.choice(len(names), p=chance)]
        size, english, other = groups[name]
        batch = min(BATCH, size)
        chosen = rng.choice(size, batch, replace=False)
        first = rng.rand() < 0.35
        texts = [wrapped(english[i], "en") if first else english[i] for i in chosen]
        texts += [other[i] if first else wrapped(other[i], language) for i in chosen]
        columns = np.concatenate(texts)
        row = np.repeat(np.arange(2 * batch), [len(t) for t in texts])
        used, place = np.unique(columns, return_inverse=True)
        bag = sparse.csr_matrix((w[columns], (row, place)), shape=(2 * batch, len(used)))
        old = vectors[used]
        sums = bag @ old
        size_ = np.linalg.norm(sums, axis=1, keepdims=True) + 1e-9
        unit = sums / size_
        a, b = unit[:batch], unit[batch:]
        logits = SCALE * a @ b.T
        p = np.exp(logits - SCALE)
        by_row, by_column = p / p.sum(1, keepdims=True), p / p.sum(0, keepdims=True)
        losses.append(-np.log(np.diag(by_row) + 1e-12).mean())
        slope = (by_row + by_column) / 2
        slope[np.arange(batch), np.arange(batch)] -= 1
        slope *= SCALE / batch
        g = np.concatenate([slope @ b, slope.T @ a])
        g = (g - unit * (g * unit).sum(1, keepdims=True)) / size_
        g_rows = (bag.T @ g).astype(np.float32)
        g_weights = (old * g_rows).sum(1)
        row_sum[used] += (g_rows ** 2).mean(1)
        weight_sum[used] += g_weights ** 2
        pace = min(1, (step + 1) / WARM) * max(0.02, 1 - step / steps)
        vectors[used] = old - RATE * pace * g_rows / np.sqrt(row_sum[used])[:, None] / 16
        w[used] *= np.exp(-WEIGHT_RATE * pace * g_weights / np.sqrt(weight_sum[used]))
        if report and (step + 1) % 200 == 0:
            report(step + 1, float(np.mean(losses[-200:])))
