"""Reads pairs (English text, text in another language) from snapshots of public repositories.

A translated project keeps one file a language beside the English one. The language is a part of the path, so the
files of one text are found by taking it out: `locales/es/common.json` and `locales/en/common.json` are both
`locales/@/common.json`. No project needs rules of its own except tldr, CLDR and the sentences of Home Assistant."""
import configparser
import html
import json
import os
import re
import xml.etree.ElementTree as tree
from collections import defaultdict
from pathlib import Path

import polib
import yaml

LANGUAGES = ("zh", "ja", "ko", "es", "pt", "fr", "de", "it", "ru")
# The variant of a language that is read where a project has several; the first that exists wins.
VARIANTS = {
    "en": ("en", "en_us", "en_gb", "en_en"), "zh": ("zh_cn", "zh_hans", "zh_rcn", "zh_hans_cn", "zh"),
    "ja": ("ja", "ja_jp", "jp"), "ko": ("ko", "ko_kr", "kr"), "es": ("es", "es_es"), "fr": ("fr", "fr_fr"),
    "pt": ("pt_br", "pt_rbr", "pt", "pt_pt", "pt_rpt"), "de": ("de", "de_de"), "it": ("it", "it_it"), "ru": ("ru", "ru_ru"),
}
CODE = {variant: (language, rank) for language, names in VARIANTS.items() for rank, variant in enumerate(names)}
FORMATS = (".json", ".arb", ".yaml", ".yml", ".po", ".ini", ".resw", ".xlf", ".properties", ".php", ".ts", ".strings")
TOKEN = re.compile(r"(?<![A-Za-z])([a-z]{2}(?:[-_](?:r?[A-Z]{2}|[a-z]{2}|Hans|Hant|hans|hant)(?:[-_]CN)?)?)(?![A-Za-z])")
LONGEST = 300


def clean(text):
    """A text without markup, placeholders and shortcuts of the keyboard."""
    text = html.unescape(html.unescape(text))
    text = re.sub(r"<[^>]{1,80}>|\{+[^{}]*\}+|%\d*\$?[sd@]|%\([^)]*\)[sd]|\$\w+\$?|:[a-z_]+\b(?!\s)|\\[nrt]|https?://\S+", " ", text)
    text = re.sub(r"\(?[&_]([A-Za-zА-я])\)?", r"\1", text) if re.search(r"(^|[\s(])[&_][A-Za-zА-я]", text) else text
    return re.sub(r"\s+", " ", text.replace("\\'", "'").replace('\\"', '"').replace("**", " ").replace("`", " ")).strip()


def good(english, other):
    """Whether a pair says something: words on both sides, not the same, not longer than a request."""
    return (english != other and 2 < len(english) <= LONGEST and 0 < len(other) <= LONGEST
            and re.search(r"[A-Za-z]{2}", english) and re.search(r"[^\W\d_]", other))


# ------------------------------------------------------------------------------------------------- readers of formats

def flatten(value, key="", out=None):
    """Nested mappings as one, keys joined by dots."""
    out = {} if out is None else out
    if isinstance(value, dict):
        # Mattermost and Chrome keep a list or an object with a text; the text is what counts.
        for name, inner in value.items():
            flatten(inner, f"{key}.{name}", out)
    elif isinstance(value, list) and all(isinstance(inner, str) for inner in value):
        out[key] = ", ".join(value)     # keywords: their order differs between languages
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            named = isinstance(inner, dict) and isinstance(inner.get("id"), str)
            flatten(inner, f"{key}.{inner['id'] if named else number}", out)
    elif isinstance(value, str):
        out[key] = value
    return out


def below_language(parsed):
    """What is under the name of the language, where a file has that at the top, as those of Rails."""
    top = list(parsed) if isinstance(parsed, dict) else []
    return parsed[top[0]] if len(top) == 1 else parsed


def read_android(text):
    out = {}
    for node in tree.fromstring(text).iter():
        name = node.get("name")
        if node.tag == "string" and name:
            out[name] = "".join(node.itertext())
        elif node.tag in ("string-array", "plurals") and name:
            for number, item in enumerate(node):
                out[f"{name}.{item.get('quantity') or number}"] = "".join(item.itertext())
    return {key: text.strip().strip('"') for key, text in out.items()}


def read_properties_xml(text):
    return {node.get("key"): "".join(node.itertext()) for node in tree.fromstring(text).iter("entry")}


def read_resw(text):
    return {node.get("name"): node.findtext("value") or "" for node in tree.fromstring(text).iter("data")}


def read_xlf(text):
    """Translations of an XLIFF file, by their English text."""
    out, tag = {}, lambda node: node.tag.split("}")[-1]
    for unit in tree.fromstring(text).iter():
        parts = {tag(node): "".join(node.itertext()) for node in unit.iter()} if tag(unit) in ("trans-unit", "unit") else {}
        if parts.get("source") and parts.get("target"):
            out[parts["source"]] = parts["target"]
    return out


def read_ini(text):
    reader = configparser.RawConfigParser(delimiters=("=",), strict=False, allow_no_value=True)
    reader.read_string("[top]\n" + text)
    return {f"{part}.{key}": value.strip("`\"") for part in reader.sections() for key, value in reader.items(part) if value}


def read_properties(text):
    text = re.sub(r"\\\r?\n\s*", "", text)
    found = re.findall(r"^\s*([^#!\s=:]+)\s*[=:]\s*(.+)$", text, re.M)
    unescape = lambda value: re.sub(r"\\u([0-9a-fA-F]{4})", lambda m: chr(int(m[1], 16)), value)
    return {key: unescape(value) for key, value in found}


def read_quoted(text):
    """PHP, TypeScript and Apple's files: 'key' => 'text', key: 'text', "key" = "text". The last key before a text
    names it; nesting is ignored, and keys that occur twice are dropped."""
    pattern = r"""(?:'((?:[^'\\\n]|\\.)+)'|"((?:[^"\\\n]|\\.)+)"|([A-Za-z_]\w*))\s*(?:=>|:|=)\s*(?:'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)")"""
    out, twice = {}, set()
    for a, b, c, single, double in re.findall(pattern, text):
        key = a or b or c
        twice.update({key} & out.keys())
        out[key] = single or double
    return {key: value for key, value in out.items() if key not in twice}


def read(path):
    """The texts of a file by key, or nothing if it cannot be read."""
    try:
        data = path.read_bytes()
        text = data.decode("utf-16") if data[:2] in (b"\xff\xfe", b"\xfe\xff") else data.decode("utf-8-sig", "ignore")
        kind = path.suffix
        if path.name.endswith(".properties.xml"):
            return read_properties_xml(text)
        if kind == ".xml":
            return read_android(text)
        if kind in (".json", ".arb"):
            return {key: value for key, value in flatten(below_language(json.loads(text))).items() if "@" not in key}
        if kind in (".yaml", ".yml"):
            return flatten(below_language(yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))))
        reader = {".ini": read_ini, ".resw": read_resw, ".xlf": read_xlf, ".properties": read_properties}.get(kind, read_quoted)
        return reader(text)
    except Exception:
        return {}


# ------------------------------------------------------------------------------------------------------ whole projects

def locate(relative):
    """(language, rank of its variant, path without the language), for every place where a path may name it."""
    if relative.endswith(".properties.xml") or relative.endswith(".properties"):
        stem, dot, rest = relative.partition(".properties")
        found = re.search(r"_([a-z]{2}(?:_[A-Z]{2})?)$", stem)
        if not found:
            yield "en", 0, relative
        elif found[1].lower() in CODE:
            yield *CODE[found[1].lower()], stem[:found.start()] + dot + rest
        return
    if relative.endswith(".xml"):
        found = re.search(r"/values(-[a-z]{2}(?:-r[A-Z]{2})?)?/[^/]+\.xml$", "/" + relative)
        code = (found[1] or "-en")[1:].replace("-", "_").lower() if found else ""
        if code in CODE:
            yield *CODE[code], relative.replace(f"/values{found[1] or ''}/", "/values/")
        return
    for found in TOKEN.finditer(relative):
        code = found[1].replace("-", "_").lower()
        if code in CODE:
            yield *CODE[code], relative[:found.start()] + "@" + relative[found.end():]


def read_po(path):
    try:
        return [(entry.msgid, entry.msgstr) for entry in polib.pofile(str(path)) if not entry.fuzzy and not entry.obsolete]
    except Exception:
        return []


def files_of(root):
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(f for f in folders if f not in (".git", "doc", "docs", "test", "tests"))
        for name in sorted(names):
            if name.endswith(FORMATS) or "values" in folder and name.endswith(".xml") or name.endswith(".properties.xml"):
                yield Path(folder, name)


def interface(root, stated=None):
    """Pairs of a project that keeps one file a language. `stated` is what a file must say of its licence, for projects
    that state it in each file only."""
    groups = defaultdict(dict)
    for path in files_of(root):
        if stated and stated not in path.read_text("utf-8", "ignore"):
            continue
        for language, rank, key in locate(str(path.relative_to(root))):
            best = groups[key].get(language)
            if best is None or rank < best[0]:
                groups[key][language] = (rank, path)
    for group in groups.values():
        english = read(group["en"][1]) if "en" in group else {}
        for language in LANGUAGES:
            if language not in group:
                continue
            path = group[language][1]
            if path.suffix == ".po":
                yield from ((language, a, b) for a, b in read_po(path))
            elif path.suffix == ".xlf":
                yield from ((language, a, b) for a, b in read(path).items())
            elif english or path.suffix in (".php", ".json"):
                # Of some projects, as Kanboard, the keys are the English texts.
                texts = read(path)
                yield from ((language, english.get(key, key if " " in key else ""), text) for key, text in texts.items())


def tldr_page(path):
    """Description and examples, {command: what it does}, of one page of tldr."""
    lines = path.read_text("utf-8", "ignore").split("\n")
    about = [line[2:].strip() for line in lines if line.startswith("> ") and "http" not in line]
    examples, said = [], None
    for line in lines:
        if line.startswith("- "):
            said = line[2:].strip().rstrip(":：").strip()
        elif line.startswith("`") and said:
            examples.append((re.sub(r"\{\{.*?\}\}", "{}", line.strip("` ")), said))
            said = None
    return about, examples


def tldr(root):
    """Pairs of tldr: the first line about a command, and what each example does, joined by equal commands. In English,
    what an example does goes with the command and the line about it, as a request goes with a tool."""
    plain = lambda text: re.sub(r"[\[\]`]", "", text)
    for path in sorted(Path(root, "pages").rglob("*.md")):
        about, examples = tldr_page(path)
        if about and not path.name.startswith("az"):
            yield from (("en", f"{path.stem.replace('-', ' ')}: {plain(about[0])}", plain(said)) for _, said in examples[:3])
    for code, language in (("zh", "zh"), ("ja", "ja"), ("ko", "ko"), ("es", "es"), ("pt_BR", "pt"), ("pt_PT", "pt"),
                           ("fr", "fr"), ("de", "de"), ("it", "it"), ("ru", "ru")):
        for path in sorted(Path(root, f"pages.{code}").rglob("*.md")):
            original = Path(root, "pages", path.parent.name, path.name)
            if not original.exists() or path.name.startswith("az"):
                continue
            (about, examples), (about_en, examples_en) = tldr_page(path), tldr_page(original)
            if about and about_en:
                yield language, plain(about_en[0]), plain(about[0])
            same = sum(a[0] == b[0] for a, b in zip(examples, examples_en))
            if len(examples) == len(examples_en) and same * 2 >= len(examples):
                pairs = zip(examples_en, examples)
            else:
                by_command = dict(examples_en)
                pairs = (((command, by_command[command]), (command, said)) for command, said in examples if command in by_command)
            yield from ((language, plain(a[1]), plain(b[1])) for a, b in pairs)


def cldr(root):
    """Names of languages, countries, currencies, units, times and pictures."""
    wanted = ("languages", "territories", "currencies", "units", "dateFields", "ca-gregorian", "annotations", "timeZoneNames")
    for language in LANGUAGES:
        for path in sorted(Path(root).rglob("*.json")):
            folder = "zh-Hans" if language == "zh" and (path.parent.parent / "zh-Hans").exists() else language
            if path.stem in wanted and path.parent.name == folder:
                english = path.parent.parent / "en" / path.name
                if english.exists():
                    a, b = (flatten(next(iter(next(iter(json.loads(p.read_text("utf-8")).values())).values()))
                                    if "annotations" not in p.name else json.loads(p.read_text("utf-8"))) for p in (english, path))
                    yield from ((language, a[key], b[key]) for key in sorted(a.keys() & b.keys()) if "skin tone" not in a[key])


def intents(root, rng):
    """Examples of Home Assistant's sentences. A file of the same name asks for the same thing in every language."""
    def examples(path):
        found = re.findall(r"^\s+example: (.+)$", path.read_text("utf-8"), re.M) if path.exists() else []
        return [text.strip("\"'") for text in found]
    for language in LANGUAGES:
        folder = next(f for f in {"zh": ("zh-cn", "zh"), "pt": ("pt-BR", "pt-br", "pt")}.get(language, (language,))
                      if Path(root, "sentences", f).exists() or f == "pt" or f == language)
        for path in sorted(Path(root, "sentences", folder).rglob("*.yaml")):
            english = examples(Path(root, "sentences", "en", path.parent.name, path.name))
            for number, text in enumerate(examples(path)):
                if english:
                    yield language, english[number] if number < len(english) else rng.choice(english), text


def tatoeba(path, language):
    """Sentences of a file of Tatoeba whose every line states author and licence."""
    for line in path.read_text("utf-8", "ignore").split("\n"):
        parts = line.split("\t")
        if len(parts) == 3 and parts[2].startswith("CC-BY 2.0 (France) Attribution: tatoeba.org"):
            yield language, parts[0], parts[1]


def pairs_of(root, source, rng):
    """Cleaned pairs of one source, without repetition: [(language, English, other)]."""
    kind = source.get("kind", "interface")
    if kind == "intents":
        found = intents(root, rng)
    elif kind == "tatoeba":
        found = tatoeba(Path(root, source["file"]), source["language"])
    elif kind == "interface":
        found = interface(root, source.get("stated"))
    else:
        found = {"tldr": tldr, "cldr": cldr}[kind](root)
    seen = {}
    for language, english, other in found:
        if isinstance(english, str) and isinstance(other, str):
            pair = language, clean(english), clean(other)
            if good(pair[1], pair[2]):
                seen[pair] = None
    return list(seen)
