"""langgraph-bigtool: the function that retrieves tools.

>>> agent = create_agent(model, registry, retrieve_tools_function=retrieve_tools_function(registry))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolscout._tools import definition_of
from toolscout.adapters._index import ToolIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from langchain_core.tools import BaseTool

    from toolscout import Catalog


def retrieve_tools_function(
    registry: Mapping[str, BaseTool | Callable[..., Any]],
    catalog: Catalog | None = None,
    *,
    limit: int = 5,
    embedder: str | None = None,
) -> Callable[[str], list[str]]:
    """Retrieve tools of a registry, by their ids in it.

    The framework keeps what was retrieved in its own state, which only grows.
    """
    index = ToolIndex(catalog, limit=limit, embedder=embedder)
    id_of: dict[str, str] = {}
    definitions = []
    for tool_id, tool in registry.items():
        definition = definition_of(tool)
        id_of.setdefault(definition["name"], tool_id)
        definitions.append(definition)

    def retrieve_tools(query: str) -> list[str]:
        """Find tools by what they do. They can be called from the next step on."""
        return [id_of[name] for name in index.find(query, definitions)]

    return retrieve_tools
