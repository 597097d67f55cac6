"""LangChain: a middleware for agents with many tools.

>>> agent = create_agent(model, middleware=[ToolSearchMiddleware(tools)])
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

from langchain.agents.middleware import AgentMiddleware
from langchain_core.tools import BaseTool, StructuredTool

from toolscout._tools import definition_of
from toolscout.adapters._index import Shown, ToolIndex

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from langchain.agents.middleware import ModelRequest, ModelResponse
    from langchain_core.messages import AnyMessage

    from toolscout import Catalog
    from toolscout.toolbox import Policy

SEARCH = "tool_search"


class ToolSearchMiddleware(AgentMiddleware[Any, Any, Any]):
    """Show a model `tool_search`, and of these tools those that it has found in the conversation.

    What was found is read from the messages, so it survives where they do: with a checkpointer,
    over turns. Found tools follow those before them, so that the beginning of a prompt stays. They
    take at most `budget` tokens: the toolbox of the program's agent evicts those of earlier turns.
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
        """Search these tools; `create_agent(tools=…)` has those that are always shown."""
        super().__init__()
        self._index = ToolIndex(catalog, limit=limit, embedder=embedder)
        self._hidden = {tool.name: tool for tool in tools}
        self._definitions = [definition_of(tool) for tool in tools]
        self._options: Any = {"budget": budget, "policy": policy}
        self._search = StructuredTool.from_function(
            self._find,
            coroutine=self._afind,
            name=SEARCH,
            description="Finds tools by what they do. They can be called from the next step on.",
            response_format="content_and_artifact",
        )
        self.tools = [self._search, *tools]

    def _find(self, query: Annotated[str, "What the tool should do"]) -> tuple[str, list[str]]:
        found = self._index.find(query, self._definitions)
        return (f"Found: {', '.join(found)}" if found else "No tool fits; try other words."), found

    async def _afind(
        self, query: Annotated[str, "What the tool should do"]
    ) -> tuple[str, list[str]]:
        return await asyncio.to_thread(self._find, query)

    def _shown(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        ours = {*self._hidden, SEARCH}
        others = [tool for tool in request.tools if _name(tool) not in ours]
        found = [self._hidden[name] for name in self._replayed(request.messages).names]
        return request.override(tools=[*others, self._search, *found])

    def _replayed(self, messages: Sequence[AnyMessage]) -> Shown:
        return Shown(self._index, self._definitions, **self._options).replay(messages, SEARCH)

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Show the tools that were found."""
        return handler(self._shown(request))

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any]:
        """Show the tools that were found."""
        return await handler(self._shown(request))


def _name(tool: BaseTool | dict[str, Any]) -> str | None:
    return tool.get("name") if isinstance(tool, dict) else tool.name
