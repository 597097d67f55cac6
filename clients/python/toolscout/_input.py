"""Values of Python as the text that the engine reads."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Any


def to_json(items: list[Any]) -> str:
    """Write tools as JSON."""
    return json.dumps(items, default=_plain, allow_nan=False, separators=(",", ":"))


def query_lines(queries: Any) -> str:
    """Write judged queries one a line."""
    if isinstance(queries, bytes):
        return queries.decode()
    if isinstance(queries, os.PathLike):
        with open(queries, encoding="utf-8") as file:
            return file.read()
    if isinstance(queries, str):
        if "\n" in queries.strip() or queries.lstrip().startswith("{"):
            return queries
        with open(queries, encoding="utf-8") as file:
            return file.read()
    if isinstance(queries, dict) or not isinstance(queries, Iterable):
        raise TypeError(
            "queries must be an iterable of dicts, lines of JSON, or the path of a file, "
            f"not {type(queries).__name__}"
        )
    return "\n".join(json.dumps(query, allow_nan=False) for query in queries)


def _plain(value: Any) -> Any:
    # Tools of the MCP SDK, and other models of pydantic.
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json", by_alias=True, exclude_none=True)
    raise TypeError(f"a tool is a dict, not {type(value).__name__}")
