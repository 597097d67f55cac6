"""FastMCP: a search transform for servers with many tools.

>>> server.add_transform(ToolscoutSearchTransform())
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

from fastmcp.server.context import Context  # noqa: TC002 (read by FastMCP)
from fastmcp.server.transforms.search.base import BaseSearchTransform
from fastmcp.tools.base import Tool

from toolscout.adapters._index import ToolIndex, definition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolscout import Catalog


class ToolscoutSearchTransform(BaseSearchTransform):
    """Replace the list of tools by `search_tools` and `call_tool`, which find and call them."""

    def __init__(
        self,
        catalog: Catalog | None = None,
        *,
        max_results: int = 5,
        embedder: str | None = None,
        **options: Any,
    ) -> None:
        """Take the options of FastMCP's own search transforms, such as `always_visible`."""
        super().__init__(max_results=max_results, **options)
        self._index = ToolIndex(catalog, limit=max_results, embedder=embedder)

    def _make_search_tool(self) -> Tool:
        async def search_tools(
            query: Annotated[str, "What the tool should do, in a few words"],
            ctx: Context,
        ) -> Any:
            """Find tools by what they do, best first, with their definitions."""
            hidden = await self._get_visible_tools(ctx)
            return await self._render_results(await self._search(hidden, query))

        return Tool.from_function(fn=search_tools, name=self._search_tool_name)

    async def _search(self, tools: Sequence[Tool], query: str) -> Sequence[Tool]:
        by_name = {tool.name: tool for tool in tools}
        definitions = [definition(tool.name, tool.description, tool.parameters) for tool in tools]
        found = await asyncio.to_thread(self._index.find, query, definitions)
        return [by_name[name] for name in found]
