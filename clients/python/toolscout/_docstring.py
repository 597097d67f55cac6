"""What a docstring says: the description, and a text for each parameter.

Reads the styles of Google, NumPy and Sphinx.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, field

PARAMETERS = frozenset(
    {"args", "arguments", "parameters", "params", "keyword args", "keyword arguments"}
    | {"other parameters", "attributes", "fields"}
)
KEPT = frozenset(
    {"note", "notes", "warning", "warnings", "usage", "example", "examples", "see also"}
)
"""Sections that are part of the description."""
SECTIONS = PARAMETERS | KEPT | {
    "returns", "return", "yields", "yield", "receives", "raises", "raise", "except", "exceptions",
    "warns", "references", "todo", "methods",
}  # fmt: skip

_NAMES = r"\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*"
_GOOGLE_ENTRY = re.compile(rf"^({_NAMES})\s*(?:\((?:[^()]|\([^()]*\))*\))?\s*:(?:\s+(.*))?$")
_NUMPY_ENTRY = re.compile(rf"^({_NAMES})\s*(?::.*)?$")
_FIELD = re.compile(r"^[:@](\w+)((?:\s+[^:]+?)?)\s*:\s?(.*)$")
_PARAMETER_FIELDS = frozenset({"param", "parameter", "arg", "argument", "key", "keyword", "ivar"})


@dataclass
class Docstring:
    """A docstring in parts."""

    description: str = ""
    parameters: dict[str, str] = field(default_factory=dict)


def read(text: str | None) -> Docstring:
    """Read a docstring of any style."""
    lines = inspect.cleandoc(text or "").splitlines()
    docstring = Docstring()
    described: list[str] = []
    position = 0
    while position < len(lines):
        found = _FIELD.match(lines[position])
        if found and (found[1] in _PARAMETER_FIELDS or found[2] or found[1].startswith("r")):
            position = _sphinx(lines, position, found, docstring)
            continue
        title = _title(lines, position)
        if title is None:
            described.append(lines[position])
            position += 1
            continue
        is_numpy = _is_underlined(lines, position)
        start = position
        body, position = _section(lines, start + (2 if is_numpy else 1), is_numpy=is_numpy)
        if title in KEPT:
            described += lines[start:position]
        elif title in PARAMETERS:
            docstring.parameters.update(_entries(body, _NUMPY_ENTRY if is_numpy else _GOOGLE_ENTRY))
    docstring.description = re.sub(r"\n{3,}", "\n\n", "\n".join(described)).strip()
    return docstring


def _title(lines: list[str], position: int) -> str | None:
    line = lines[position]
    if line.startswith((" ", "\t")):
        return None
    if _is_underlined(lines, position):
        title = line.strip().lower()
    elif line.rstrip().endswith(":"):
        title = line.rstrip()[:-1].strip().lower()
    else:
        return None
    return title if title in SECTIONS else None


def _is_underlined(lines: list[str], position: int) -> bool:
    below = lines[position + 1].strip() if position + 1 < len(lines) else ""
    return len(below) >= 3 and set(below) <= {"-", "="}


def _section(lines: list[str], start: int, *, is_numpy: bool) -> tuple[list[str], int]:
    """Return the lines of a section, and where the next one begins."""
    end = start
    while end < len(lines):
        line = lines[end]
        is_flush = bool(line.strip()) and not line.startswith((" ", "\t"))
        if is_flush and (not is_numpy or _title(lines, end) or _FIELD.match(line)):
            break
        end += 1
    return lines[start:end], end


def _entries(body: list[str], entry: re.Pattern[str]) -> dict[str, str]:
    """Read the parameters of a section: a line with the name, and deeper lines with more of it."""
    body = inspect.cleandoc("\n" + "\n".join(body)).splitlines()
    entries: dict[str, list[str]] = {}
    current: list[str] = []
    for line in body:
        is_deeper = line.startswith((" ", "\t"))
        found = None if is_deeper else entry.match(line)
        if found:
            current = [found[2]] if entry is _GOOGLE_ENTRY and found[2] else []
            for name in found[1].split(","):
                entries[name.strip().lstrip("*")] = current
        else:
            current.append(line.strip())
    return {name: _joined(texts) for name, texts in entries.items() if _joined(texts)}


def _sphinx(lines: list[str], position: int, found: re.Match[str], docstring: Docstring) -> int:
    """Read a field such as `:param str name: text`, with the lines that continue it."""
    texts = [found[3]]
    position += 1
    while position < len(lines) and lines[position].startswith((" ", "\t")):
        texts.append(lines[position].strip())
        position += 1
    words = found[2].split()
    if found[1] in _PARAMETER_FIELDS and words and _joined(texts):
        docstring.parameters[words[-1].lstrip("*")] = _joined(texts)
    return position


def _joined(texts: list[str]) -> str:
    return " ".join(text for text in texts if text).strip()
