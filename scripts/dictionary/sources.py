"""Reads the sources: each yields (word, English, weight)."""
import gzip
import re
import unicodedata

TAGS = re.compile(r"\[[^\]]*\]|\{[^}]*\}")
PARENTHESES = re.compile(r"\([^()]*\)")
TRANSCRIPTION = re.compile(r"/[^/]*/")


def english(gloss):
    """A gloss as plain words of English, or nothing."""
    gloss = PARENTHESES.sub(" ", PARENTHESES.sub(" ", TAGS.sub(" ", gloss))).lower()
    gloss = re.sub(r"^\s*(to be|to|a|an|the|some)\s+", "", gloss.strip())
    gloss = re.sub(r"\s+(something|somebody|someone|one's|sth|sb)\b", "", gloss)
    gloss = " ".join(gloss.replace("-", " ").split())
    return gloss if re.fullmatch(r"[a-z]+( [a-z]+){0,2}", gloss) else None


def normalised(word):
    """A word as the dictionary has it: in lowercase, Russian without ё and without marks of stress."""
    if word.isascii():
        return word.lower()
    word = unicodedata.normalize("NFKC", word).lower()
    if "\u0400" <= word[:1] <= "\u04ff":
        word = unicodedata.normalize("NFC", unicodedata.normalize("NFD", word).replace("\u0301", "")).replace("ё", "е")
    return word


def other(word):
    """A word of another language without what an article says of it."""
    if not word.isalpha():
        word = TRANSCRIPTION.sub(" ", PARENTHESES.sub(" ", TAGS.sub(" ", word)))
    return normalised(" ".join(word.split()))


def split_glosses(text):
    """Glosses between commas and semicolons outside of parentheses."""
    depth, start = 0, 0
    for position, character in enumerate(text):
        if character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
        elif character in ",;" and depth <= 0:
            yield text[start:position]
            start = position + 1
    yield text[start:]


def articles_of(text):
    """(head, translations) of the entries of a list by Matthias Buchmeier, as text or as DSL."""
    if text.startswith("#NAME"):
        head = None
        for line in text.splitlines():
            if line and not line[0].isspace() and line[0] != "#":
                head = line
            elif head and line.strip().startswith("[m1]"):
                line = re.sub(r"\[p\][^\[]*\[/p\]|\[c[^\]]*\][^\[]*\[/c\]|\[i\][^\[]*\[/i\]", " ", line)
                yield head, TAGS.sub("", line).replace("\\", ",")
    else:
        for line in text.splitlines():
            head, found, translations = line.partition(" :: ")
            if found and "SEE:" not in line:
                yield head, translations


def from_english(text):
    for head, translations in articles_of(text):
        word = english(head)
        if not word:
            continue
        rank = 0
        for translation in split_glosses(TRANSCRIPTION.sub(" ", translations)):
            key = other(translation)
            if key:
                yield key, word, 1 / (1 + 0.4 * rank)
                rank += 1


FORM = re.compile(r"(?:form|plural|singular|feminine|masculine|participle|imperative|gerund|tense|indicative|subjunctive|infinitive|"
                  r"spelling|variant|person) of ([\w-]+)")


def to_english(text):
    """Yields forms too, as (form, "=word", weight)."""
    for head, glosses in articles_of(text):
        key = other(head)
        form = FORM.search(glosses)
        if form:
            yield key, "=" + other(form[1]), 1.0
            continue
        for rank, gloss in enumerate(split_glosses(glosses)):
            word = english(gloss)
            if word and key:
                yield key, word, 1.4 / (1 + 0.5 * rank)


def cedict(path):
    """Yields words in traditional characters as forms."""
    for line in gzip.open(path, "rt", encoding="utf-8"):
        match = re.match(r"(\S+) (\S+) \[([^\]]*)\] /(.*)/", line)
        # Capital letters begin names of people and places.
        if not match or match[3][:1].isupper():
            continue
        traditional, simplified, _, glosses = match.groups()
        rank = 0
        for gloss in glosses.split("/"):
            if re.match(r"(CL:|variant of|old variant|see |surname|abbr\. for|also written)", gloss):
                continue
            for part in split_glosses(gloss):
                word = english(part)
                if word:
                    yield other(simplified), word, 1 / (1 + 0.4 * rank)
                    rank += 1
        if traditional != simplified:
            yield other(traditional), "=" + other(simplified), 1.0


def jmdict(text):
    """The FreeDict form of JMdict: a line of written forms, then senses."""
    keys, rank, names = [], 0, False
    for line in text.splitlines():
        if re.search(r"[\u3040-\u30ff\u4e00-\u9fff]", line) and " /" in line and not line.startswith("("):
            common = re.search(r"\[(ichi1|news1|spec1|nf[012]\d)\]", line)
            line = re.sub(r"\[[a-z0-9]+\]", " ", TRANSCRIPTION.sub(" ", line))
            keys = [other(part) for part in line.split(",")]
            # A reading in kana is many words; it counts less than what is written in characters.
            keys = [(key, (1.0 if common else 0.6) * (1.0 if re.search("[\u30a0-\u30ff\u4e00-\u9fff]", key) else 0.4)) for key in keys if key]
            rank = 0
        elif keys and line.strip() and not line.strip().startswith(("(", "Note", "see")):
            for part in split_glosses(re.sub(r"^\d+\.\s*", "", line)):
                word = english(part)
                if word:
                    for key, weight in keys:
                        yield key, word, weight / (1 + 0.4 * rank)
                    rank += 1
