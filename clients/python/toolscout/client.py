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
from toolscout._errors import ApiError
from toolscout._requests import Answered, EventReader, Request, Resumption, Retries, Selection

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
    from types import TracebackType

    from typing_extensions import Self, Unpack

    from toolscout import api_types
    from toolscout._requests import (
        CallOptions,
        EnrichOptions,
        EvaluationOptions,
        FeedbackOptions,
        Removed,
        SearchParameters,
    )
    from toolscout._toolscout import ToolInput

Page = TypeVar("Page")

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
        """Find tools; the options have the names of those of `Catalog.search`."""
        answer = self.request(_requests.search(self.catalog, query, parameters))
        _requests.ASKED.note(query, answer)
        return answer

    def add(
        self,
        tools: ToolInput,
        *,
        server: str | None = None,
        skip_invalid: bool = False,
        include: str | Sequence[str] | None = None,
        exclude: str | Sequence[str] | None = None,
    ) -> api_types.UpsertAnswer | api_types.Task:
        """Add tools, or replace those with the same id; waits for the task of a large load.

        `tools` are what `Catalog.add` takes. Files are read here.
        """
        selection = Selection.of(include, exclude)
        request = _requests.add(self.catalog, tools, server, skip_invalid, selection)
        return self._finished(self.request(request))

    def sync(
        self,
        server: str,
        tools: ToolInput,
        *,
        include: str | Sequence[str] | None = None,
        exclude: str | Sequence[str] | None = None,
    ) -> api_types.SyncAnswer | api_types.Task:
        """Replace all tools of a server; waits for the task of a large load."""
        selection = Selection.of(include, exclude)
        request = _requests.sync(self.catalog, server, tools, selection)
        return self._finished(self.request(request))

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

    def remove(self, ids: str | Sequence[str]) -> Removed:
        """Remove tools by id: one, or several. `removed` has those that were there."""
        removed = []
        for tool_id in [ids] if isinstance(ids, str) else ids:
            try:
                self.request(_requests.tool("DELETE", self.catalog, tool_id))
            except ApiError as error:
                if error.code != "unknown_tool":
                    raise
                continue
            removed.append(tool_id)
        return {"removed": removed}

    def catalogs(self) -> Iterator[api_types.Catalog]:
        """Iterate over the catalogs of the server that the key may see, page by page."""
        for page in self._pages(_requests.catalogs):
            yield from page["catalogs"]

    def _pages(self, request: Callable[[str | None], Request[Page]]) -> Iterator[Page]:
        cursor = None
        while True:
            page = self.request(request(cursor))
            yield page
            cursor = cast("dict[str, Any]", page).get("next_cursor")
            if cursor is None:
                return

    def create_catalog(self, name: str) -> api_types.Catalog:
        """Create a catalog, or read the one of this name. A client with `catalog=name` uses it."""
        return self.request(_requests.catalog("PUT", name))

    def delete_catalog(self, name: str) -> None:
        """Delete a catalog with all its tools; `unknown_catalog` where there is none."""
        self.request(_requests.catalog("DELETE", name))

    def feedback(
        self, answer: api_types.SearchAnswer, tool: str, **options: Unpack[FeedbackOptions]
    ) -> api_types.FeedbackAnswer:
        """Report that a tool of the answer was used, from which the catalog learns.

        It sends the text of the search; `query=None` does not. `remembered` of the answer says
        whether the usage memory has taken it: it has to be on (`set_memory`).
        """
        return self.request(_requests.feedback(self.catalog, answer, tool, options))

    def memory(self) -> Iterator[api_types.MemoryEntry]:
        """Iterate over the entries of the usage memory, page by page."""
        pages: Iterator[api_types.MemoryPage] = self._pages(self._page_of("memory"))
        for page in pages:
            yield from page["entries"]

    def set_memory(self, enabled: bool) -> api_types.MemorySwitch:
        """Switch the usage memory on or off; its entries stay."""
        value = {"enabled": enabled}
        switch: api_types.MemorySwitch = self._write_part("PUT", "memory", value)
        return switch

    def forget(self, *, tool: str | None = None, query: str | None = None) -> api_types.Forgotten:
        """Delete entries of the usage memory: those of a tool, those of a request, or all."""
        forgotten: api_types.Forgotten = self._part("DELETE", "memory", tool=tool, query=query)
        return forgotten

    def words(self) -> api_types.WordsAnswer:
        """Read the owner's words: aliases, synonyms, pins, boosts and descriptions."""
        words: api_types.WordsAnswer = self._part("GET", "words")
        return words

    def set_words(self, words: api_types.Words) -> api_types.WordsAnswer:
        """Replace the owner's words."""
        written: api_types.WordsAnswer = self._write_part("PUT", "words", words)
        return written

    def patch_words(self, patch: Mapping[str, object]) -> api_types.WordsAnswer:
        """Change the owner's words by a JSON merge patch: `None` removes an entry."""
        written: api_types.WordsAnswer = self._write_part("PATCH", "words", patch)
        return written

    def settings(self) -> api_types.CatalogSettings:
        """Read the settings: the defaults of searches."""
        settings: api_types.CatalogSettings = self._part("GET", "settings")
        return settings

    def set_settings(self, settings: api_types.CatalogSettings) -> api_types.CatalogSettings:
        """Replace the settings."""
        written: api_types.CatalogSettings = self._write_part("PUT", "settings", settings)
        return written

    def stats(self) -> api_types.CatalogStats:
        """Read the sizes of the catalog."""
        stats: api_types.CatalogStats = self._part("GET", "stats")
        return stats

    def servers(self) -> list[api_types.Server]:
        """List the servers of the catalog, with their connections."""
        listed: api_types.ServerList = self._part("GET", "servers")
        return listed["servers"]

    def changes(
        self, *, server: str | None = None, tool: str | None = None
    ) -> Iterator[api_types.ToolChange]:
        """Iterate over changes of tools since a person approved them, and over blocked tools."""
        request = self._page_of("changes", server=server, tool=tool)
        pages: Iterator[api_types.ChangePage] = self._pages(request)
        for page in pages:
            yield from page["changes"]

    def review(
        self,
        decisions: Sequence[api_types.DecisionBody] = (),
        *,
        accept_all: Sequence[str] = (),
    ) -> api_types.ReviewAnswer:
        """Accept changes, and block tools; `accept_all` names servers."""
        value = {"decisions": list(decisions), "accept_all": list(accept_all)}
        reviewed: api_types.ReviewAnswer = self._write_part("POST", "changes", value)
        return reviewed

    def keys(self) -> Iterator[api_types.ApiKey]:
        """Iterate over the keys of the server, newest first."""
        for page in self._pages(_requests.keys):
            yield from page["keys"]

    def key(self, id: str) -> api_types.ApiKey:
        """Read one key; `unknown_key` where there is none."""
        return self.request(_requests.key("GET", id))

    def create_key(
        self,
        scopes: Sequence[api_types.KeyScope],
        *,
        catalogs: Sequence[str] | None = None,
        profiles: Sequence[str] | None = None,
        expires_in_s: int | None = None,
    ) -> api_types.CreatedKeyBody:
        """Create a key. The answer is the only one that has it whole."""
        fields = {"scopes": scopes, "catalogs": catalogs, "profiles": profiles}
        return self.request(_requests.create_key({**fields, "expires_in_s": expires_in_s}))

    def revoke_key(self, id: str) -> api_types.ApiKey:
        """Revoke a key."""
        return self.request(_requests.key("DELETE", id))

    def usage(self) -> api_types.ServerStats:
        """Read what the server has done since its start: requests, searches, saved tokens."""
        return self.request(_requests.usage())

    def texts(self, *, server: str | None = None) -> Iterator[api_types.ToolTexts]:
        """Iterate over what people say when they need tools, page by page."""
        pages: Iterator[api_types.TextsPage] = self._pages(self._page_of("texts", server=server))
        for page in pages:
            yield from page["tools"]

    def texts_of(self, id: str) -> api_types.ToolTexts:
        """Read what people say when they need a tool; `texts` is empty where nobody wrote any."""
        return self.request(_requests.texts("GET", self.catalog, id))

    def set_texts(
        self, id: str, texts: Sequence[str], *, model: str | None = None
    ) -> api_types.ToolTexts:
        """Replace what people say when they need a tool; `model` says who wrote it."""
        return self.request(_requests.set_texts(self.catalog, id, texts, model))

    def delete_texts(self, id: str) -> None:
        """Delete what people say when they need a tool; `no_texts` where there is none."""
        self.request(_requests.texts("DELETE", self.catalog, id))

    def questions(
        self,
        *,
        server: str | None = None,
        limit: int | None = None,
        texts: int | None = None,
        languages: Sequence[str] = (),
    ) -> str:
        """Ask about tools without texts, in a text that any assistant answers (`take_texts`)."""
        return self.request(_requests.questions(self.catalog, server, limit, texts, languages))

    def take_texts(self, answers: str) -> api_types.TakenTexts:
        """Store the answers to `questions`, or lines of texts of another catalog."""
        return self.request(_requests.take_texts(self.catalog, answers))

    def enrich_state(self) -> api_types.EnrichState:
        """Read how many tools have texts, and what may be spent on others."""
        state: api_types.EnrichState = self._part("GET", "enrich")
        return state

    def estimate_enrich(self, **options: Unpack[EnrichOptions]) -> api_types.EnrichEstimate:
        """Count what `enrich` would take; nothing is sent to a model."""
        fields = {**options, "dry_run": True}
        estimate: api_types.EnrichEstimate = self.request(_requests.enrich(self.catalog, fields))
        return estimate

    def enrich(self, **options: Unpack[EnrichOptions]) -> api_types.Task:
        """Let the server's model write texts for tools without any, and wait for the task."""
        task: api_types.Task = self.request(_requests.enrich(self.catalog, options))
        return self._finished(task)

    def measure_texts(self, *, server: str | None = None) -> api_types.EnrichMeasure:
        """Measure what the texts are worth: one of each tool is kept aside and searched for."""
        figures: api_types.EnrichMeasure = self._part("GET", "enrich", "measure", server=server)
        return figures

    def evaluations(self) -> list[api_types.Evaluation]:
        """List the evaluations of the catalog, newest first."""
        listed: api_types.EvaluationList = self._part("GET", "evaluations")
        return listed["evaluations"]

    def evaluation(self, id: str) -> api_types.EvaluationBody:
        """Read an evaluation."""
        return self.request(_requests.evaluation(self.catalog, id))

    def evaluation_queries(self, id: str) -> Iterator[api_types.QueryRow]:
        """Iterate over the queries of an evaluation with their answers, page by page."""
        request = self._page_of("evaluations", id, "queries")
        pages: Iterator[api_types.QueryPage] = self._pages(request)
        for page in pages:
            yield from page["queries"]

    def delete_evaluation(self, id: str) -> None:
        """Delete an evaluation."""
        self._part("DELETE", "evaluations", id)

    def _part(self, method: str, *names: str, **params: str | None) -> Any:
        return self.request(_requests.part(method, self.catalog, *names, **params))

    def _write_part(self, method: str, name: str, value: object) -> Any:
        return self.request(_requests.written_part(method, self.catalog, name, value))

    def _page_of(self, *names: str, **params: str | None) -> Callable[[str | None], Request[Any]]:
        catalog = self.catalog
        return lambda cursor: _requests.part("GET", catalog, *names, **params, cursor=cursor)

    def call(
        self,
        tool: str,
        arguments: Mapping[str, object] | None = None,
        **options: Unpack[CallOptions],
    ) -> api_types.CallAnswer:
        """Call a tool through the gate. It is never repeated."""
        return self.request(_requests.call(self.catalog, tool, arguments, options))

    def evaluate(
        self,
        queries: str | bytes | os.PathLike[str] | Iterable[Mapping[str, object]],
        **options: Unpack[EvaluationOptions],
    ) -> api_types.EvaluationBody:
        """Measure how well the catalog answers judged queries, and wait for the figures.

        `queries` are what `Catalog.evaluate` takes: dicts, lines of JSON, or the path of a file.
        """
        started = self.request(_requests.evaluate(self.catalog, queries, options))
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

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self._http.base_url)!r}, catalog={self.catalog!r})"

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
        """Find tools; the options have the names of those of `Catalog.search`."""
        answer = await self.request(_requests.search(self.catalog, query, parameters))
        _requests.ASKED.note(query, answer)
        return answer

    async def add(
        self,
        tools: ToolInput,
        *,
        server: str | None = None,
        skip_invalid: bool = False,
        include: str | Sequence[str] | None = None,
        exclude: str | Sequence[str] | None = None,
    ) -> api_types.UpsertAnswer | api_types.Task:
        """Add tools, or replace those with the same id; waits for the task of a large load.

        `tools` are what `Catalog.add` takes. Files are read here.
        """
        selection = Selection.of(include, exclude)
        request = await asyncio.to_thread(
            _requests.add, self.catalog, tools, server, skip_invalid, selection
        )
        return await self._finished(await self.request(request))

    async def sync(
        self,
        server: str,
        tools: ToolInput,
        *,
        include: str | Sequence[str] | None = None,
        exclude: str | Sequence[str] | None = None,
    ) -> api_types.SyncAnswer | api_types.Task:
        """Replace all tools of a server; waits for the task of a large load."""
        selection = Selection.of(include, exclude)
        request = await asyncio.to_thread(_requests.sync, self.catalog, server, tools, selection)
        return await self._finished(await self.request(request))

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

    async def remove(self, ids: str | Sequence[str]) -> Removed:
        """Remove tools by id: one, or several. `removed` has those that were there."""
        removed = []
        for tool_id in [ids] if isinstance(ids, str) else ids:
            try:
                await self.request(_requests.tool("DELETE", self.catalog, tool_id))
            except ApiError as error:
                if error.code != "unknown_tool":
                    raise
                continue
            removed.append(tool_id)
        return {"removed": removed}

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
            cursor = cast("dict[str, Any]", page).get("next_cursor")
            if cursor is None:
                return

    async def create_catalog(self, name: str) -> api_types.Catalog:
        """Create a catalog, or read the one of this name. A client with `catalog=name` uses it."""
        return await self.request(_requests.catalog("PUT", name))

    async def delete_catalog(self, name: str) -> None:
        """Delete a catalog with all its tools; `unknown_catalog` where there is none."""
        await self.request(_requests.catalog("DELETE", name))

    async def feedback(
        self, answer: api_types.SearchAnswer, tool: str, **options: Unpack[FeedbackOptions]
    ) -> api_types.FeedbackAnswer:
        """Report that a tool of the answer was used, from which the catalog learns.

        It sends the text of the search; `query=None` does not. `remembered` of the answer says
        whether the usage memory has taken it: it has to be on (`set_memory`).
        """
        return await self.request(_requests.feedback(self.catalog, answer, tool, options))

    async def memory(self) -> AsyncIterator[api_types.MemoryEntry]:
        """Iterate over the entries of the usage memory, page by page."""
        pages: AsyncIterator[api_types.MemoryPage] = self._pages(self._page_of("memory"))
        async for page in pages:
            for item in page["entries"]:
                yield item

    async def set_memory(self, enabled: bool) -> api_types.MemorySwitch:
        """Switch the usage memory on or off; its entries stay."""
        value = {"enabled": enabled}
        switch: api_types.MemorySwitch = await self._write_part("PUT", "memory", value)
        return switch

    async def forget(
        self, *, tool: str | None = None, query: str | None = None
    ) -> api_types.Forgotten:
        """Delete entries of the usage memory: those of a tool, those of a request, or all."""
        forgotten: api_types.Forgotten = await self._part(
            "DELETE", "memory", tool=tool, query=query
        )
        return forgotten

    async def words(self) -> api_types.WordsAnswer:
        """Read the owner's words: aliases, synonyms, pins, boosts and descriptions."""
        words: api_types.WordsAnswer = await self._part("GET", "words")
        return words

    async def set_words(self, words: api_types.Words) -> api_types.WordsAnswer:
        """Replace the owner's words."""
        written: api_types.WordsAnswer = await self._write_part("PUT", "words", words)
        return written

    async def patch_words(self, patch: Mapping[str, object]) -> api_types.WordsAnswer:
        """Change the owner's words by a JSON merge patch: `None` removes an entry."""
        written: api_types.WordsAnswer = await self._write_part("PATCH", "words", patch)
        return written

    async def settings(self) -> api_types.CatalogSettings:
        """Read the settings: the defaults of searches."""
        settings: api_types.CatalogSettings = await self._part("GET", "settings")
        return settings

    async def set_settings(self, settings: api_types.CatalogSettings) -> api_types.CatalogSettings:
        """Replace the settings."""
        written: api_types.CatalogSettings = await self._write_part("PUT", "settings", settings)
        return written

    async def stats(self) -> api_types.CatalogStats:
        """Read the sizes of the catalog."""
        stats: api_types.CatalogStats = await self._part("GET", "stats")
        return stats

    async def servers(self) -> list[api_types.Server]:
        """List the servers of the catalog, with their connections."""
        listed: api_types.ServerList = await self._part("GET", "servers")
        return listed["servers"]

    async def changes(
        self, *, server: str | None = None, tool: str | None = None
    ) -> AsyncIterator[api_types.ToolChange]:
        """Iterate over changes of tools since a person approved them, and over blocked tools."""
        request = self._page_of("changes", server=server, tool=tool)
        pages: AsyncIterator[api_types.ChangePage] = self._pages(request)
        async for page in pages:
            for item in page["changes"]:
                yield item

    async def review(
        self,
        decisions: Sequence[api_types.DecisionBody] = (),
        *,
        accept_all: Sequence[str] = (),
    ) -> api_types.ReviewAnswer:
        """Accept changes, and block tools; `accept_all` names servers."""
        value = {"decisions": list(decisions), "accept_all": list(accept_all)}
        reviewed: api_types.ReviewAnswer = await self._write_part("POST", "changes", value)
        return reviewed

    async def keys(self) -> AsyncIterator[api_types.ApiKey]:
        """Iterate over the keys of the server, newest first."""
        async for page in self._pages(_requests.keys):
            for item in page["keys"]:
                yield item

    async def key(self, id: str) -> api_types.ApiKey:
        """Read one key; `unknown_key` where there is none."""
        return await self.request(_requests.key("GET", id))

    async def create_key(
        self,
        scopes: Sequence[api_types.KeyScope],
        *,
        catalogs: Sequence[str] | None = None,
        profiles: Sequence[str] | None = None,
        expires_in_s: int | None = None,
    ) -> api_types.CreatedKeyBody:
        """Create a key. The answer is the only one that has it whole."""
        fields = {"scopes": scopes, "catalogs": catalogs, "profiles": profiles}
        return await self.request(_requests.create_key({**fields, "expires_in_s": expires_in_s}))

    async def revoke_key(self, id: str) -> api_types.ApiKey:
        """Revoke a key."""
        return await self.request(_requests.key("DELETE", id))

    async def usage(self) -> api_types.ServerStats:
        """Read what the server has done since its start: requests, searches, saved tokens."""
        return await self.request(_requests.usage())

    async def texts(self, *, server: str | None = None) -> AsyncIterator[api_types.ToolTexts]:
        """Iterate over what people say when they need tools, page by page."""
        pages: AsyncIterator[api_types.TextsPage] = self._pages(
            self._page_of("texts", server=server)
        )
        async for page in pages:
            for tool in page["tools"]:
                yield tool

    async def texts_of(self, id: str) -> api_types.ToolTexts:
        """Read what people say when they need a tool; `texts` is empty where nobody wrote any."""
        return await self.request(_requests.texts("GET", self.catalog, id))

    async def set_texts(
        self, id: str, texts: Sequence[str], *, model: str | None = None
    ) -> api_types.ToolTexts:
        """Replace what people say when they need a tool; `model` says who wrote it."""
        return await self.request(_requests.set_texts(self.catalog, id, texts, model))

    async def delete_texts(self, id: str) -> None:
        """Delete what people say when they need a tool; `no_texts` where there is none."""
        await self.request(_requests.texts("DELETE", self.catalog, id))

    async def questions(
        self,
        *,
        server: str | None = None,
        limit: int | None = None,
        texts: int | None = None,
        languages: Sequence[str] = (),
    ) -> str:
        """Ask about tools without texts, in a text that any assistant answers (`take_texts`)."""
        return await self.request(
            _requests.questions(self.catalog, server, limit, texts, languages)
        )

    async def take_texts(self, answers: str) -> api_types.TakenTexts:
        """Store the answers to `questions`, or lines of texts of another catalog."""
        return await self.request(_requests.take_texts(self.catalog, answers))

    async def enrich_state(self) -> api_types.EnrichState:
        """Read how many tools have texts, and what may be spent on others."""
        state: api_types.EnrichState = await self._part("GET", "enrich")
        return state

    async def estimate_enrich(self, **options: Unpack[EnrichOptions]) -> api_types.EnrichEstimate:
        """Count what `enrich` would take; nothing is sent to a model."""
        fields = {**options, "dry_run": True}
        estimate: api_types.EnrichEstimate = await self.request(
            _requests.enrich(self.catalog, fields)
        )
        return estimate

    async def enrich(self, **options: Unpack[EnrichOptions]) -> api_types.Task:
        """Let the server's model write texts for tools without any, and wait for the task."""
        task: api_types.Task = await self.request(_requests.enrich(self.catalog, options))
        return await self._finished(task)

    async def measure_texts(self, *, server: str | None = None) -> api_types.EnrichMeasure:
        """Measure what the texts are worth: one of each tool is kept aside and searched for."""
        figures: api_types.EnrichMeasure = await self._part(
            "GET", "enrich", "measure", server=server
        )
        return figures

    async def evaluations(self) -> list[api_types.Evaluation]:
        """List the evaluations of the catalog, newest first."""
        listed: api_types.EvaluationList = await self._part("GET", "evaluations")
        return listed["evaluations"]

    async def evaluation(self, id: str) -> api_types.EvaluationBody:
        """Read an evaluation."""
        return await self.request(_requests.evaluation(self.catalog, id))

    async def evaluation_queries(self, id: str) -> AsyncIterator[api_types.QueryRow]:
        """Iterate over the queries of an evaluation with their answers, page by page."""
        request = self._page_of("evaluations", id, "queries")
        pages: AsyncIterator[api_types.QueryPage] = self._pages(request)
        async for page in pages:
            for item in page["queries"]:
                yield item

    async def delete_evaluation(self, id: str) -> None:
        """Delete an evaluation."""
        await self._part("DELETE", "evaluations", id)

    async def _part(self, method: str, *names: str, **params: str | None) -> Any:
        return await self.request(_requests.part(method, self.catalog, *names, **params))

    async def _write_part(self, method: str, name: str, value: object) -> Any:
        return await self.request(_requests.written_part(method, self.catalog, name, value))

    def _page_of(self, *names: str, **params: str | None) -> Callable[[str | None], Request[Any]]:
        catalog = self.catalog
        return lambda cursor: _requests.part("GET", catalog, *names, **params, cursor=cursor)

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, object] | None = None,
        **options: Unpack[CallOptions],
    ) -> api_types.CallAnswer:
        """Call a tool through the gate. It is never repeated."""
        return await self.request(_requests.call(self.catalog, tool, arguments, options))

    async def evaluate(
        self,
        queries: str | bytes | os.PathLike[str] | Iterable[Mapping[str, object]],
        **options: Unpack[EvaluationOptions],
    ) -> api_types.EvaluationBody:
        """Measure how well the catalog answers judged queries, and wait for the figures.

        `queries` are what `Catalog.evaluate` takes: dicts, lines of JSON, or the path of a file.
        """
        started = await self.request(
            await asyncio.to_thread(_requests.evaluate, self.catalog, queries, options)
        )
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

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self._http.base_url)!r}, catalog={self.catalog!r})"

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
