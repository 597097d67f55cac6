"""LlamaIndex: the retriever of an agent's tools.

>>> agent = FunctionAgent(tool_retriever=ToolRetriever(tools), llm=model)
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from llama_index.core.objects import ObjectRetriever
from llama_index.core.tools import BaseTool

from toolscout.adapters._index import ToolIndex, definition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from llama_index.core.schema import QueryType

    from toolscout import Catalog


class ToolRetriever(ObjectRetriever[BaseTool]):
    """Retrieve the tools that fit what was asked, after those that were retrieved before.

    One retriever is for one conversation: it remembers, so that what was found stays there and the
    beginning of a prompt stays as it was. Beyond `keep` tools it begins anew with those just found.
    """

    def __init__(
        self,
        tools: Sequence[BaseTool],
        catalog: Catalog | None = None,
        *,
        limit: int = 5,
        keep: int = 24,
        embedder: str | None = None,
    ) -> None:
        """Search these tools."""
        # The base class retrieves nodes of an index, of which there is none here.
        self._index = ToolIndex(catalog, limit=limit, embedder=embedder)
        self._tools = {tool.metadata.get_name(): tool for tool in tools}
        self._definitions = [_definition(tool) for tool in tools]
        self._keep = keep
        self._found: dict[str, BaseTool] = {}

    def retrieve(self, str_or_query_bundle: QueryType) -> list[BaseTool]:
        """Retrieve tools."""
        query = str_or_query_bundle
        text = query if isinstance(query, str) else query.query_str
        now = {name: self._tools[name] for name in self._index.find(text, self._definitions)}
        found = {**self._found, **now}
        self._found = found if len(found) <= self._keep else now
        return list(self._found.values())

    async def aretrieve(self, str_or_query_bundle: QueryType) -> list[BaseTool]:
        """Retrieve tools."""
        return await asyncio.to_thread(self.retrieve, str_or_query_bundle)


def _definition(tool: BaseTool) -> dict[str, object]:
    metadata = tool.metadata
    return definition(metadata.get_name(), metadata.description, metadata.get_parameters_dict())
