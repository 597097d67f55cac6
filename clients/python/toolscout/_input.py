"""Values of Python as the text that the engine reads."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from typing import Any

from toolscout._tools import definition_of, is_location, items_of

__all__ = ["items_of", "query_lines", "to_json"]


def to_json(items: list[Any], before: int = 0) -> str:
    """Write tools as JSON; `before` is the number of items before these."""
    for position, item in enumerate(items):
        if type(item) is not dict:
            items[position] = definition_of(item, f"tools, item {before + position + 1},")
    return json.dumps(items, default=_plain, allow_nan=False, separators=(",", ":"))


def query_lines(queries: Any) -> str:
    """Write judged queries one a line: those of a text, of a file, or of an iterable of dicts."""
    if isinstance(queries, bytes):
        return queries.decode()
    if isinstance(queries, os.PathLike) or (isinstance(queries, str) and is_location(queries)):
        with open(queries, encoding="utf-8-sig") as file:
            return file.read()
    if isinstance(queries, str):
        return queries
    if isinstance(queries, Mapping) or not isinstance(queries, Iterable):
        raise TypeError(
            "queries must be an iterable of dicts, lines of JSON, or the path of a file, "
            f"not {type(queries).__name__}"
        )
    return "\n".join(json.dumps(query, allow_nan=False) for query in queries)


def _plain(value: Any) -> Any:
    # A model of pydantic within a dict.
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json", by_alias=True, exclude_none=True)
    kind = type(value)
    name = f"{kind.__module__}.{kind.__qualname__}"
    raise TypeError(f"a tool has a value of type {name}, which JSON does not have")
