"""langgraph-bigtool: the function that retrieves tools.

>>> agent = create_agent(model, registry, retrieve_tools_function=retrieve_tools_function(registry))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_core.utils.function_calling import convert_to_openai_function

from toolscout.adapters._index import ToolIndex, definition

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
    """Retrieve tools of a registry, by their ids in it."""
    index = ToolIndex(catalog, limit=limit, embedder=embedder)
    id_of: dict[str, str] = {}
    definitions = []
    for tool_id, tool in registry.items():
        function = convert_to_openai_function(tool)
        name, parameters = function["name"], function.get("parameters")
        id_of.setdefault(name, tool_id)
        definitions.append(definition(name, function.get("description"), parameters))

    def retrieve_tools(query: str) -> list[str]:
        """Find tools by what they do. They can be called from the next step on."""
        return [id_of[name] for name in index.find(query, definitions)]

    return retrieve_tools
