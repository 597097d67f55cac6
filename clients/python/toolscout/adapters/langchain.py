"""LangChain: a middleware for agents with many tools.

>>> agent = create_agent(model, middleware=[ToolSearchMiddleware(tools)])
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, StructuredTool
from langchain_core.utils.function_calling import convert_to_openai_function

from toolscout.adapters._index import ToolIndex, definition

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from langchain.agents.middleware import ModelRequest, ModelResponse

    from toolscout import Catalog

SEARCH = "tool_search"


class ToolSearchMiddleware(AgentMiddleware[Any, Any, Any]):
    """Show a model `tool_search`, and of these tools those that it has found in the conversation.

    What was found is read from the messages, so it survives where they do: with a checkpointer,
    over turns. Found tools follow those before them, so that the beginning of a prompt stays.
    """

    def __init__(
        self,
        tools: Sequence[BaseTool],
        catalog: Catalog | None = None,
        *,
        limit: int = 5,
        embedder: str | None = None,
    ) -> None:
        """Search these tools; `create_agent(tools=…)` has those that are always shown."""
        super().__init__()
        self._index = ToolIndex(catalog, limit=limit, embedder=embedder)
        self._hidden = {tool.name: tool for tool in tools}
        self._definitions = [_definition(tool) for tool in tools]
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
        found: dict[str, BaseTool] = {}
        for message in request.messages:
            if isinstance(message, ToolMessage) and message.name == SEARCH:
                names = message.artifact if isinstance(message.artifact, list) else []
                found.update((name, self._hidden[name]) for name in names if name in self._hidden)
        return request.override(tools=[*others, self._search, *found.values()])

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


def _definition(tool: BaseTool) -> dict[str, Any]:
    return definition(tool.name, tool.description, convert_to_openai_function(tool)["parameters"])


def _name(tool: BaseTool | dict[str, Any]) -> str | None:
    return tool.get("name") if isinstance(tool, dict) else tool.name
