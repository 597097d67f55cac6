"""LlamaIndex: the retriever of an agent's tools.

>>> agent = FunctionAgent(tool_retriever=ToolRetriever(tools), llm=model)
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from llama_index.core.objects import ObjectRetriever
from llama_index.core.tools import BaseTool

from toolscout._tools import definition_of
from toolscout.adapters._index import Shown, ToolIndex

if TYPE_CHECKING:
    from collections.abc import Sequence

    from llama_index.core.schema import QueryType

    from toolscout import Catalog
    from toolscout.toolbox import Policy


class ToolRetriever(ObjectRetriever[BaseTool]):
    """Retrieve the tools that fit what was asked, after those that were retrieved before.

    One retriever is for one conversation: it remembers, so that what was found stays there and the
    beginning of a prompt stays as it was. The tools take at most `budget` tokens: the toolbox of
    the program's agent evicts those that were not found for longest.
    """

    def __init__(
        self,
        tools: Sequence[BaseTool],
        catalog: Catalog | None = None,
        *,
        limit: int = 5,
        budget: int = 8000,
        policy: Policy = "lru",
        embedder: str | None = None,
    ) -> None:
        """Search these tools."""
        # The base class retrieves nodes of an index, of which there is none here.
        index = ToolIndex(catalog, limit=limit, embedder=embedder)
        self._tools = {tool.metadata.get_name(): tool for tool in tools}
        definitions = [definition_of(tool) for tool in tools]
        self._shown = Shown(index, definitions, budget=budget, policy=policy)

    def retrieve(self, str_or_query_bundle: QueryType) -> list[BaseTool]:
        """Retrieve tools."""
        query = str_or_query_bundle
        text = query if isinstance(query, str) else query.query_str
        self._shown.search(text)
        return [self._tools[name] for name in self._shown.names]

    async def aretrieve(self, str_or_query_bundle: QueryType) -> list[BaseTool]:
        """Retrieve tools."""
        return await asyncio.to_thread(self.retrieve, str_or_query_bundle)
