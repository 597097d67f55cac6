"""Finds the right tools of large catalogs: the engine, the program, and a client for its HTTP API.

>>> import toolscout
>>> with toolscout.Catalog.temporary(embedder="table") as catalog:
...     changes = catalog.add({"name": "create_issue", "description": "Opens an issue."})
...     catalog.search("report a bug").ids
['create_issue']
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolscout._errors import ApiError, ConnectionFailedError, Error
from toolscout._toolscout import __VERSION__ as __version__  # noqa: N811
from toolscout._toolscout import (
    Catalog,
    Changes,
    Evaluation,
    Figure,
    Hit,
    Results,
    Skipped,
    Tool,
    ToolIterator,
)
from toolscout.asynchronous import AsyncCatalog
from toolscout.toolbox import Injection, SearchTool, Toolbox

if TYPE_CHECKING:
    from toolscout.client import AsyncClient, Client

__all__ = [
    "ApiError",
    "AsyncCatalog",
    "AsyncClient",
    "Catalog",
    "Changes",
    "Client",
    "ConnectionFailedError",
    "Error",
    "Evaluation",
    "Figure",
    "Hit",
    "Injection",
    "Results",
    "SearchTool",
    "Skipped",
    "Tool",
    "ToolIterator",
    "Toolbox",
    "__version__",
]


def __getattr__(name: str) -> Any:
    # Loaded on first use: they need httpx, which `pip install toolscout[client]` adds.
    if name in ("AsyncClient", "Client"):
        from toolscout import client

        return getattr(client, name)
    raise AttributeError(f"module 'toolscout' has no attribute {name!r}")
