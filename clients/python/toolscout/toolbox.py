"""The tools that a model sees in one conversation, within a token budget.

>>> import toolscout
>>> catalog = toolscout.Catalog.temporary(embedder="table")
>>> changes = catalog.add({"name": "create_issue", "description": "Opens an issue."})
>>> toolbox = toolscout.Toolbox(catalog, budget=8000)
>>> answer = toolbox.call("tool_search", {"query": "report a bug"})
>>> toolbox.tools("names")
['tool_search', 'create_issue']
>>> catalog.close()
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypedDict, cast, overload

from toolscout import _arguments
from toolscout._errors import Error
from toolscout._tools import definition_of
from toolscout._toolscout import Catalog, Hit, Results, Tool, ToolboxCore, tool_search_definition
from toolscout.asynchronous import AsyncCatalog

if TYPE_CHECKING:
    from typing_extensions import NotRequired

    from toolscout._toolscout import ToolFormat

    class SearchArguments(TypedDict, total=False):
        """The arguments of a call of `tool_search`."""

        query: str
        queries: list[str]
        limit: int
        server: str

    class ToolboxOptions(TypedDict):
        """The options of a toolbox, as a state has them."""

        budget: int
        policy: Policy
        idle_turns: int
        limit: NotRequired[int | None]
        more_tools: NotRequired[int | None]
        more_chars: NotRequired[int | None]
        servers: NotRequired[list[str]]
        tags: NotRequired[list[str]]

    class ToolboxState(TypedDict):
        """What is stored of a toolbox: JSON."""

        version: int
        options: ToolboxOptions
        pinned: list[str]
        toolbox: dict[str, Any]


Policy = Literal["lru", "lfu", "none"]
Function = Callable[..., Any]
SEARCH = "tool_search"

log = logging.getLogger("toolscout")


@dataclass(frozen=True)
class Injection:
    """What an injection has done, by ids."""

    added: list[str] = field(default_factory=list)
    """Newly visible."""
    already: list[str] = field(default_factory=list)
    """Visible before."""
    refused: list[tuple[str, int]] = field(default_factory=list)
    """Tools that do not fit into the budget, with their tokens."""
    evicted: list[str] = field(default_factory=list)
    """Evicted for the new ones."""


@dataclass(frozen=True)
class Searched(Injection):
    """What a call of `tool_search` has done."""

    text: str = ""
    """The answer for the model."""
    found: list[str] = field(default_factory=list)
    """The ids of what was found, best first."""


class SearchTool:
    """The tool `tool_search` of a toolbox: its definition, and a callable.

    Its answer is a text for the model. What it finds is in the tools of the next request.
    """

    __name__ = SEARCH

    def __init__(self, toolbox: Toolbox) -> None:
        """Search for this toolbox."""
        self._toolbox = toolbox
        definition = self.to("mcp")
        self.name: str = definition["name"]
        self.description: str = definition["description"]
        self.input_schema: dict[str, Any] = definition["inputSchema"]
        self.__doc__ = self.description

    @overload
    def to(self, format: Literal["names", "signature"]) -> str: ...
    @overload
    def to(
        self,
        format: Literal["openai", "openai_responses", "anthropic", "anthropic_reference", "mcp"],
    ) -> dict[str, Any]: ...
    def to(self, format: ToolFormat) -> Any:
        """Write the definition in a provider's format."""
        return tool_search_definition(format)

    def __call__(
        self,
        query: str | None = None,
        queries: list[str] | None = None,
        limit: int | None = None,
        server: str | None = None,
    ) -> str:
        """Search, show what was found, and return the answer for the model."""
        return self._toolbox.search(_search_arguments(query, queries, limit, server)).text

    async def acall(
        self,
        query: str | None = None,
        queries: list[str] | None = None,
        limit: int | None = None,
        server: str | None = None,
    ) -> str:
        """Search without blocking the event loop."""
        return await asyncio.to_thread(self, query, queries, limit, server)

    def __repr__(self) -> str:
        return f"SearchTool(of={self._toolbox!r})"


def _search_arguments(
    query: str | None, queries: list[str] | None, limit: int | None, server: str | None
) -> SearchArguments:
    given = {"query": query, "queries": queries, "limit": limit, "server": server}
    return cast("SearchArguments", {key: part for key, part in given.items() if part is not None})


class Toolbox:
    """The tools that a model sees in one conversation: `tool_search`, and what it has found.

    Together they take at most `budget` tokens. Where new ones do not fit, `policy` chooses which
    go: `lru` the least recently used, `lfu` the least often used, `none` none, so that new ones are
    refused. Tools with an open call and those that were called in the last two rounds stay. New
    tools go to the end of the list, so that the beginning of the prompt stays as it was.

    It is the toolbox of the program's own agent. Any number of threads may use it.
    """

    def __init__(
        self,
        catalog: Catalog | AsyncCatalog,
        *,
        budget: int = 8000,
        policy: Policy = "lru",
        idle_turns: int = 3,
        limit: int | None = None,
        more_tools: int = 11,
        more_chars: int = 100,
        servers: str | Sequence[str] | None = None,
        tags: str | Sequence[str] | None = None,
        pinned: str | Sequence[str] = (),
        functions: Mapping[str, Function] | Iterable[Function] = (),
    ) -> None:
        """Make an empty toolbox.

        `limit` is the number of tools of a search whose model names none. A search also names the
        `more_tools` tools that come next, with `more_chars` characters of their descriptions; the
        model loads one with the query `select:NAME`. `servers` and `tags` restrict what is found.
        `pinned` tools are always visible. `functions` are what `call` calls: by the id or the name
        of the tool, or functions that are tools of the catalog.
        """
        options = {
            "budget": _int("budget", budget),
            "policy": policy,
            "idle_turns": _int("idle_turns", idle_turns),
            "limit": None if limit is None else _int("limit", limit),
            "more_tools": _int("more_tools", more_tools),
            "more_chars": _int("more_chars", more_chars),
            "servers": _list("servers", servers),
            "tags": _list("tags", tags),
        }
        if not isinstance(policy, str):
            raise TypeError(f"policy must be a str, not {type(policy).__name__}")
        self._begin(ToolboxCore(_catalog(catalog), json.dumps(options)), functions)
        if pinned:
            self.pin(pinned)

    def _begin(
        self, core: ToolboxCore, functions: Mapping[str, Function] | Iterable[Function]
    ) -> None:
        self._core = core
        self._functions = _by_name(functions)

    @classmethod
    def from_state(
        cls,
        catalog: Catalog | AsyncCatalog,
        state: ToolboxState | str,
        *,
        functions: Mapping[str, Function] | Iterable[Function] = (),
    ) -> Toolbox:
        """Make the toolbox that a state is of.

        Tools that the catalog no longer has are left out, and named in `missing`. Changed tools
        have their definition of now.
        """
        text = state if isinstance(state, str) else json.dumps(state)
        toolbox = cls.__new__(cls)
        toolbox._begin(ToolboxCore.restored(_catalog(catalog), text), functions)
        if toolbox.missing:
            log.warning("the catalog no longer has %s of the toolbox", ", ".join(toolbox.missing))
        return toolbox

    def state(self) -> ToolboxState:
        """Return what `from_state` takes: JSON to store with the conversation."""
        return self._core.state()

    @property
    def missing(self) -> list[str]:
        """The tools of the state that the catalog no longer has."""
        return self._core.missing

    @property
    def catalog(self) -> Catalog:
        """The catalog."""
        return self._core.catalog

    @property
    def options(self) -> ToolboxOptions:
        """The options."""
        return self._core.options()

    @property
    def ids(self) -> list[str]:
        """The ids of the visible tools, in their order."""
        return [tool_id for tool_id, _, _ in self._core.visible()]

    @property
    def names(self) -> list[str]:
        """The names of the visible tools for the model, in their order."""
        return [name for _, name, _ in self._core.visible()]

    @property
    def tokens(self) -> int:
        """The tokens of the visible tools, without `tool_search`, by OpenAI's `o200k_base`."""
        return self._core.tokens

    def search_tool(self) -> SearchTool:
        """Return the tool `tool_search`: its definition in any format, and a callable."""
        return SearchTool(self)

    @overload
    def tools(self, format: Literal["names", "signature"], *, search: bool = True) -> list[str]: ...
    @overload
    def tools(
        self, format: Literal["mcp"], *, search: bool = True
    ) -> dict[str, list[dict[str, Any]]]: ...
    @overload
    def tools(
        self,
        format: Literal["openai", "openai_responses", "anthropic", "anthropic_reference"] = ...,
        *,
        search: bool = True,
    ) -> list[dict[str, Any]]: ...
    def tools(self, format: ToolFormat = "openai", *, search: bool = True) -> Any:
        """Write the tools of the next request to a model: `tool_search`, then the visible ones."""
        return self._core.tools(format, search)

    def search(self, arguments: SearchArguments | str) -> Searched:
        """Search as a model's call of `tool_search` asks, and show what was found.

        A query `select:name_a,name_b` shows tools by name. A call that cannot be searched is
        answered with a text that says how to search.
        """
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        try:
            searched = self._core.search(text)
        except Error as failure:
            if failure.code != "internal":
                raise
            # The model's own JSON.
            return Searched(text=f"the arguments are no JSON: {failure}")
        if "refused_search" in searched:
            return Searched(text=searched["refused_search"])
        done = Searched(**searched)
        log.debug("tool_search found %s, evicted %s", done.found, done.evicted)
        return done

    def inject(self, tools: str | Tool | Hit | Results | Sequence[str | Tool | Hit]) -> Injection:
        """Show tools of the catalog, by id, name or hit; `unknown_tool` for one that it lacks."""
        injection = Injection(**self._core.inject(_names(tools)))
        log.debug("injected %s, evicted %s", injection.added, injection.evicted)
        return injection

    def pin(self, tools: str | Tool | Hit | Results | Sequence[str | Tool | Hit]) -> None:
        """Show tools for good, whatever the budget."""
        self._core.pin(_names(tools))

    def evict(self, tools: str | Tool | Hit | Results | Sequence[str | Tool | Hit]) -> list[str]:
        """Hide tools, and return the ids of those that are gone. Pinned tools stay."""
        return self._core.evict(_names(tools))

    def find(self, name: str) -> Tool | None:
        """Return the visible tool that a model calls by this name."""
        return self._core.find(name)

    @contextlib.contextmanager
    def calling(self, name: str) -> Iterator[Tool]:
        """Keep a tool from eviction while it is called, and count the call.

        `unknown_tool` for a name that is not visible; the text is for the model.
        """
        tool = self._core.open_call(name)
        if tool is None:
            raise Error("unknown_tool", self._no_tool(name))
        try:
            yield tool
        finally:
            self._core.close_call(tool.id)

    def _no_tool(self, name: str) -> str:
        if self._core.unloaded(name) is not None:
            return f"{name} was unloaded; call tool_search with the query `select:{name}`"
        return f"no visible tool is called {name!r}; find one with tool_search"

    def call(self, name: str, arguments: Mapping[str, Any] | str | None = None) -> Any:
        """Call a tool for a model: `tool_search`, or the function of a visible tool.

        `arguments` are a dict, or JSON as models write it. With pydantic installed, a function gets
        the objects that its annotations name, otherwise what JSON has. Returns what it returns.
        """
        if name == SEARCH:
            return self.search(cast("SearchArguments", arguments or {})).text
        with self.calling(name) as tool:
            function = self._function(tool)
            result = function(**self._keywords(name, function, arguments))
            if inspect.isawaitable(result):
                if inspect.iscoroutine(result):
                    result.close()
                raise Error("async_function", f"{name} is async; use `await toolbox.acall(…)`")
            return result

    async def acall(self, name: str, arguments: Mapping[str, Any] | str | None = None) -> Any:
        """As `call`, for asyncio: awaits async functions, and runs others in a thread."""
        if name == SEARCH:
            return await asyncio.to_thread(self.call, name, arguments)
        with self.calling(name) as tool:
            function = self._function(tool)
            keywords = self._keywords(name, function, arguments)
            if inspect.iscoroutinefunction(function):
                return await function(**keywords)
            result = await asyncio.to_thread(lambda: function(**keywords))
            return await result if inspect.isawaitable(result) else result

    def _function(self, tool: Tool) -> Function:
        for name in (tool.id, tool.name, tool.model_name):
            if name in self._functions:
                return self._functions[name]
        raise Error(
            "no_function",
            f"nothing says how {tool.id} is called; give it in `functions`, or call it yourself "
            f"within `toolbox.calling({tool.id!r})`",
        )

    def _keywords(
        self, name: str, function: Function, arguments: Mapping[str, Any] | str | None
    ) -> dict[str, Any]:
        keywords = _keywords(name, arguments)
        try:
            written = json.dumps(keywords)
        except (TypeError, ValueError):
            # Objects of Python come from the program itself; a model writes JSON.
            return keywords
        problem = self._core.arguments_problem(name, written)
        if problem is not None:
            raise Error("invalid_arguments", problem)
        return _arguments.of_function(function, keywords)

    def begin_turn(self) -> None:
        """Begin a turn: a question of the user."""
        self._core.begin_turn()

    def end_turn(self) -> list[str]:
        """End a turn, and return the ids of tools that go since they were idle for `idle_turns`."""
        return self._core.end_turn()

    @contextlib.contextmanager
    def turn(self) -> Iterator[Toolbox]:
        """Begin a turn, and end it."""
        self.begin_turn()
        try:
            yield self
        finally:
            self.end_turn()

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._core.find(name) is not None

    def __len__(self) -> int:
        return len(self._core.visible())

    def __bool__(self) -> bool:
        """Return true: an empty toolbox is a toolbox."""
        return True

    def __iter__(self) -> Iterator[Tool]:
        found = (self._core.find(name) for name in self.ids)
        return (tool for tool in found if tool is not None)

    def __repr__(self) -> str:
        options = self.options
        return (
            f"Toolbox(tools={len(self)}, tokens={self.tokens}, budget={options['budget']}, "
            f"policy={options['policy']!r})"
        )


def _catalog(catalog: Catalog | AsyncCatalog) -> Catalog:
    if isinstance(catalog, AsyncCatalog):
        return catalog.catalog
    if not isinstance(catalog, Catalog):
        raise TypeError(f"catalog must be a toolscout.Catalog, not {type(catalog).__name__}")
    return catalog


def _int(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        shown = f": {value!r}" if isinstance(value, str | float | bool) else ""
        raise TypeError(f"{name} must be an int, not {type(value).__name__}{shown}")
    return value


def _list(name: str, value: str | Sequence[str] | None) -> list[str]:
    if value is None:
        return []
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, Iterable):
        raise TypeError(f"{name} must be a str or a list of str, not {type(value).__name__}")
    for item in values:
        if not isinstance(item, str):
            raise TypeError(f"{name} must be a str or a list of str, not {type(item).__name__}")
    return list(values)


def _names(tools: str | Tool | Hit | Results | Sequence[str | Tool | Hit]) -> list[str]:
    items = [tools] if isinstance(tools, str | Tool | Hit) else list(tools)
    names = []
    for item in items:
        if not isinstance(item, str | Tool | Hit):
            raise TypeError(f"tools must be ids, Tools or Hits, not {type(item).__name__}")
        names.append(item if isinstance(item, str) else item.id)
    return names


def _by_name(functions: Mapping[str, Function] | Iterable[Function]) -> dict[str, Function]:
    if isinstance(functions, Mapping):
        return dict(cast("Mapping[str, Function]", functions))
    return {definition_of(function, "a function")["name"]: function for function in functions}


def _keywords(name: str, arguments: Mapping[str, Any] | str | None) -> dict[str, Any]:
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except ValueError as failure:
            raise Error(
                "invalid_arguments", f"the arguments of {name} are no JSON: {failure}"
            ) from None
    if arguments is not None and not isinstance(arguments, Mapping):
        raise Error("invalid_arguments", f"the arguments of {name} are no JSON object")
    return dict(arguments or {})
