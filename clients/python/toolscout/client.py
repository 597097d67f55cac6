"""A client for the HTTP API, in a synchronous and an asynchronous form.

>>> with toolscout.Client("http://127.0.0.1:7700") as client:  # doctest: +SKIP
...     client.search("report a bug", k=5)["hits"]
"""

from __future__ import annotations

import asyncio
import os
import time
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

try:
    import httpx
except ImportError as missing:
    raise ImportError(
        "the client needs httpx; `pip install toolscout[client]` installs it"
    ) from missing

from toolscout import _requests
from toolscout._requests import Answered, EventReader, Request, Resumption, Retries

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
    from types import TracebackType

    from typing_extensions import Self, Unpack

    from toolscout import api_types
    from toolscout._requests import SearchParameters

Page = TypeVar("Page", "api_types.ToolPage", "api_types.CatalogList")

DEFAULT_URL = "http://127.0.0.1:7700"
"""Where `toolscout serve` listens unless it is told otherwise."""


class Client:
    """A connection to a server. Safe for use by several threads; `with` closes it at the end.

    A request that meets a busy server or none is repeated, up to `retries` times, after what the
    server asks to wait and else a growing time. One that changes something is repeated only where
    that does no harm. What remains raises `ApiError` or `ConnectionFailedError`.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        key: str | None = None,
        catalog: str = "default",
        timeout: float = 30.0,
        retries: int = 3,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """Connect to `url`, or `TOOLSCOUT_URL`, with `key`, or `TOOLSCOUT_KEY`."""
        self.catalog = catalog
        self._retries = retries
        self._http = httpx.Client(**_options(url, key, timeout), transport=transport)

    def request(self, request: Request[Answered]) -> Answered:
        """Send any request, and return the JSON of the answer; `None` for one without a body."""
        attempts = Retries(request, self._retries)
        while True:
            try:
                answer = self._http.request(**request.arguments())
            except httpx.TransportError as failure:
                wait = attempts.after_failure(failure)
            else:
                if answer.is_success:
                    return cast("Answered", _requests.body(answer))
                wait = attempts.after_answer(answer)
            time.sleep(wait)

    def search(
        self, query: str | list[str], **parameters: Unpack[SearchParameters]
    ) -> api_types.SearchAnswer:
        """Find tools; the parameters are those of the body of a search."""
        return self.request(_requests.search(self.catalog, query, parameters))

    def add(
        self, tools: Any, *, server: str | None = None, skip_invalid: bool = False
    ) -> api_types.UpsertAnswer | api_types.Task:
        """Add tools, or replace those with the same id; waits for the task of a large load."""
        answer = self.request(_requests.add(self.catalog, tools, server, skip_invalid))
        return self._finished(answer)

    def sync(self, server: str, tools: Any) -> api_types.SyncAnswer | api_types.Task:
        """Replace all tools of a server; waits for the task of a large load."""
        return self._finished(self.request(_requests.sync(self.catalog, server, tools)))

    def _finished(self, answer: Answered) -> Answered:
        last: Any = answer
        waits = _requests.waits()
        while _requests.is_running(last):
            time.sleep(next(waits))
            last = self.request(_requests.task(last["id"]))
        return cast("Answered", _requests.succeeded(last))

    def tools(
        self, *, server: str | None = None, tag: str | None = None, name: str | None = None
    ) -> Iterator[api_types.ToolBody]:
        """Iterate over the tools, page by page."""
        pages = self._pages(partial(_requests.tools, self.catalog, server, tag, name))
        for page in pages:
            yield from page["tools"]

    def get(self, id: str) -> api_types.ToolBody:
        """Read one tool; `unknown_tool` where there is none."""
        return self.request(_requests.tool("GET", self.catalog, id))

    def remove(self, id: str) -> None:
        """Remove one tool; `unknown_tool` where there is none."""
        self.request(_requests.tool("DELETE", self.catalog, id))

    def catalogs(self) -> Iterator[api_types.Catalog]:
        """Iterate over the catalogs of the server that the key may see, page by page."""
        for page in self._pages(_requests.catalogs):
            yield from page["catalogs"]

    def _pages(self, request: Callable[[str | None], Request[Page]]) -> Iterator[Page]:
        cursor = None
        while True:
            page = self.request(request(cursor))
            yield page
            cursor = page.get("next_cursor")
            if cursor is None:
                return

    def create_catalog(self, name: str) -> api_types.Catalog:
        """Create a catalog, or read the one of this name. A client with `catalog=name` uses it."""
        return self.request(_requests.catalog("PUT", name))

    def delete_catalog(self, name: str) -> None:
        """Delete a catalog with all its tools; `unknown_catalog` where there is none."""
        self.request(_requests.catalog("DELETE", name))

    def feedback(self, answer: api_types.SearchAnswer, tool: str, **fields: Any) -> None:
        """Report that a tool of the answer was used, from which the catalog learns."""
        self.request(_requests.feedback(self.catalog, answer, tool, fields))

    def call(
        self, tool: str, arguments: Mapping[str, Any] | None = None, **fields: Any
    ) -> dict[str, Any]:
        """Call a tool through the gate. It is never repeated."""
        return self.request(_requests.call(self.catalog, tool, arguments, fields))

    def evaluate(
        self, queries: str | Iterable[Mapping[str, Any]], **fields: Any
    ) -> api_types.EvaluationBody:
        """Measure how well the catalog answers judged queries, and wait for the figures."""
        started = self.request(_requests.evaluate(self.catalog, queries, fields))
        task = self._finished(started)
        return self.request(_requests.evaluation(self.catalog, task.get("evaluation") or ""))

    def ask(
        self,
        query: str,
        *,
        conversation: str | None = None,
        agent: str | None = None,
        identity: str | None = None,
        resume: bool = True,
    ) -> Iterator[api_types.AgentEvent]:
        """Ask the agent, and iterate over the events of its answer; the last one is `done`.

        `agent` names one of several agents of the server; by default that of the conversation
        answers.
        With `resume`, the run goes on while the connection is lost, and the events go on with what
        is left of it. Without, leaving the iteration stops the run.
        """
        request = _requests.ask(query, conversation, agent, identity, detached=resume)
        # One event at a time: the answer may take minutes, and silence is bounded by heartbeats.
        with self._http.stream(**request.arguments()) as answer:
            if not answer.is_success:
                answer.read()
                raise _requests.error_of(answer)
            rest = Resumption(answer.headers.get("x-conversation-id"))
            reader = EventReader()
            try:
                for line in answer.iter_lines():
                    for event in reader.feed(line):
                        rest.seen(event)
                        yield event
            except httpx.TransportError as failure:
                rest.check(failure, can_resume=resume)
        if rest.is_done:
            return
        waits = _requests.waits()
        while (turns := self.request(rest.turns()))["running"]:
            time.sleep(next(waits))
        yield from rest.remaining(turns, self.request(rest.events(turns)))

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class AsyncClient:
    """As `Client`, for asyncio."""

    def __init__(
        self,
        url: str | None = None,
        *,
        key: str | None = None,
        catalog: str = "default",
        timeout: float = 30.0,
        retries: int = 3,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """Connect to `url`, or `TOOLSCOUT_URL`, with `key`, or `TOOLSCOUT_KEY`."""
        self.catalog = catalog
        self._retries = retries
        self._http = httpx.AsyncClient(**_options(url, key, timeout), transport=transport)

    async def request(self, request: Request[Answered]) -> Answered:
        """Send any request, and return the JSON of the answer; `None` for one without a body."""
        attempts = Retries(request, self._retries)
        while True:
            try:
                answer = await self._http.request(**request.arguments())
            except httpx.TransportError as failure:
                wait = attempts.after_failure(failure)
            else:
                if answer.is_success:
                    return cast("Answered", _requests.body(answer))
                wait = attempts.after_answer(answer)
            await asyncio.sleep(wait)

    async def search(
        self, query: str | list[str], **parameters: Unpack[SearchParameters]
    ) -> api_types.SearchAnswer:
        """Find tools; the parameters are those of the body of a search."""
        return await self.request(_requests.search(self.catalog, query, parameters))

    async def add(
        self, tools: Any, *, server: str | None = None, skip_invalid: bool = False
    ) -> api_types.UpsertAnswer | api_types.Task:
        """Add tools, or replace those with the same id; waits for the task of a large load."""
        answer = await self.request(_requests.add(self.catalog, tools, server, skip_invalid))
        return await self._finished(answer)

    async def sync(self, server: str, tools: Any) -> api_types.SyncAnswer | api_types.Task:
        """Replace all tools of a server; waits for the task of a large load."""
        answer = await self.request(_requests.sync(self.catalog, server, tools))
        return await self._finished(answer)

    async def _finished(self, answer: Answered) -> Answered:
        last: Any = answer
        waits = _requests.waits()
        while _requests.is_running(last):
            await asyncio.sleep(next(waits))
            last = await self.request(_requests.task(last["id"]))
        return cast("Answered", _requests.succeeded(last))

    async def tools(
        self, *, server: str | None = None, tag: str | None = None, name: str | None = None
    ) -> AsyncIterator[api_types.ToolBody]:
        """Iterate over the tools, page by page."""
        pages = self._pages(partial(_requests.tools, self.catalog, server, tag, name))
        async for page in pages:
            for tool in page["tools"]:
                yield tool

    async def get(self, id: str) -> api_types.ToolBody:
        """Read one tool; `unknown_tool` where there is none."""
        return await self.request(_requests.tool("GET", self.catalog, id))

    async def remove(self, id: str) -> None:
        """Remove one tool; `unknown_tool` where there is none."""
        await self.request(_requests.tool("DELETE", self.catalog, id))

    async def catalogs(self) -> AsyncIterator[api_types.Catalog]:
        """Iterate over the catalogs of the server that the key may see, page by page."""
        async for page in self._pages(_requests.catalogs):
            for catalog in page["catalogs"]:
                yield catalog

    async def _pages(self, request: Callable[[str | None], Request[Page]]) -> AsyncIterator[Page]:
        cursor = None
        while True:
            page = await self.request(request(cursor))
            yield page
            cursor = page.get("next_cursor")
            if cursor is None:
                return

    async def create_catalog(self, name: str) -> api_types.Catalog:
        """Create a catalog, or read the one of this name. A client with `catalog=name` uses it."""
        return await self.request(_requests.catalog("PUT", name))

    async def delete_catalog(self, name: str) -> None:
        """Delete a catalog with all its tools; `unknown_catalog` where there is none."""
        await self.request(_requests.catalog("DELETE", name))

    async def feedback(self, answer: api_types.SearchAnswer, tool: str, **fields: Any) -> None:
        """Report that a tool of the answer was used, from which the catalog learns."""
        await self.request(_requests.feedback(self.catalog, answer, tool, fields))

    async def call(
        self, tool: str, arguments: Mapping[str, Any] | None = None, **fields: Any
    ) -> dict[str, Any]:
        """Call a tool through the gate. It is never repeated."""
        return await self.request(_requests.call(self.catalog, tool, arguments, fields))

    async def evaluate(
        self, queries: str | Iterable[Mapping[str, Any]], **fields: Any
    ) -> api_types.EvaluationBody:
        """Measure how well the catalog answers judged queries, and wait for the figures."""
        started = await self.request(_requests.evaluate(self.catalog, queries, fields))
        task = await self._finished(started)
        return await self.request(_requests.evaluation(self.catalog, task.get("evaluation") or ""))

    async def ask(
        self,
        query: str,
        *,
        conversation: str | None = None,
        agent: str | None = None,
        identity: str | None = None,
        resume: bool = True,
    ) -> AsyncIterator[api_types.AgentEvent]:
        """Ask the agent, as `Client.ask` does."""
        request = _requests.ask(query, conversation, agent, identity, detached=resume)
        async with self._http.stream(**request.arguments()) as answer:
            if not answer.is_success:
                await answer.aread()
                raise _requests.error_of(answer)
            rest = Resumption(answer.headers.get("x-conversation-id"))
            reader = EventReader()
            try:
                async for line in answer.aiter_lines():
                    for event in reader.feed(line):
                        rest.seen(event)
                        yield event
            except httpx.TransportError as failure:
                rest.check(failure, can_resume=resume)
        if rest.is_done:
            return
        waits = _requests.waits()
        while (turns := await self.request(rest.turns()))["running"]:
            await asyncio.sleep(next(waits))
        for event in rest.remaining(turns, await self.request(rest.events(turns))):
            yield event

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()


def _options(url: str | None, key: str | None, timeout: float) -> dict[str, Any]:
    key = key or os.environ.get("TOOLSCOUT_KEY")
    url = url or os.environ.get("TOOLSCOUT_URL") or DEFAULT_URL
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"the address {url!r} does not begin with http:// or https://")
    return {
        "base_url": url,
        "headers": {"Authorization": f"Bearer {key}"} if key else {},
        "timeout": timeout,
    }
