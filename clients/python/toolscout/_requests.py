"""What both clients share: requests, retries, and the events of a stream. Opens no connection."""

from __future__ import annotations

import json
import logging
import os
import random
import threading
import urllib.parse
import warnings
from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from toolscout._errors import ApiError, ConnectionFailedError, Error
from toolscout._input import items_of, query_lines, to_json
from toolscout._tools import is_location
from toolscout._toolscout import read_tools

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import httpx
    from typing_extensions import TypedDict

    from toolscout import api_types

    class SearchParameters(TypedDict, total=False):
        """The options of a search, by the names that the engine has for them too."""

        limit: int
        kinds: str | list[str]
        servers: str | list[str]
        tags: str | list[str]
        ids: str | list[str]
        read_only: bool
        destructive: bool
        mode: api_types.SearchMode
        fusion: api_types.SearchFusion
        dense_weight: float
        whole: bool
        min_score: float
        min_confidence: float
        companions: bool
        ranker: bool
        budget_ms: float
        fold_duplicates: bool
        explain: bool
        format: api_types.ToolFormat
        max_tokens: int
        call_id: str
        min_generation: int
        k: int
        """The former name of `limit`."""
        filter: api_types.SearchFilter
        """The former place of `servers` and the others."""

    class FeedbackOptions(TypedDict, total=False):
        """What feedback says besides the tool."""

        outcome: api_types.Outcome
        query: str | None

    class CallOptions(TypedDict, total=False):
        """How a tool is called."""

        approve: str
        dry_run: bool
        identity: str

    class EnrichOptions(TypedDict, total=False):
        """Which tools texts are written for."""

        servers: list[str]
        limit: int
        texts: int
        languages: list[str]

    class EvaluationOptions(TypedDict, total=False):
        """What is measured, and how."""

        name: str
        qrels: str
        depths: list[int]
        search: api_types.ArmSettings
        compare: api_types.ArmSettings

    class Removed(TypedDict):
        """The tools that were removed."""

        removed: list[str]


log = logging.getLogger("toolscout")

Answered = TypeVar("Answered")
"""The JSON of the answer."""

FIRST_WAIT_S = 0.25
"""Before the first repetition; doubled for each later one."""
LONGEST_WAIT_S = 30.0
MAX_EVENT_BYTES = 64 << 20
"""Of one event of a stream: a server that sends more is no server of ours."""
REPEATED = frozenset({429, 502, 503, 504})
"""Statuses after which the same request may succeed."""


@dataclass(frozen=True)
class Request(Generic[Answered]):
    """A request of the HTTP API, and the type of its answer."""

    method: str
    path: str
    params: dict[str, Any] = field(default_factory=dict)
    content: str | bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)
    repeats: bool = True
    """Whether doing it twice is as good as doing it once."""

    def arguments(self) -> dict[str, Any]:
        """Write it for httpx."""
        return {
            "method": self.method,
            "url": self.path,
            "params": {key: value for key, value in self.params.items() if value is not None},
            "content": self.content,
            "headers": self.headers,
        }


def json_request(method: str, path: str, value: Any, **options: Any) -> Request[Any]:
    """Make a request with a JSON body."""
    content = json.dumps(value, allow_nan=False)
    return Request(
        method, path, content=content, headers={"content-type": "application/json"}, **options
    )


def _path(*parts: str) -> str:
    return "/v1/" + "/".join(urllib.parse.quote(part, safe="") for part in parts)


FILTERS = ("kinds", "servers", "tags", "ids")
FORMER = {
    "k": "`k` is now called `limit`",
    "filter": "`filter` is now `servers`, `tags`, `ids`, `read_only` and `destructive`",
}


def search(
    catalog: str, query: str | list[str], parameters: Mapping[str, Any]
) -> Request[api_types.SearchAnswer]:
    """Make a search."""
    asked: dict[str, Any] = {"query": query} if isinstance(query, str) else {"queries": query}
    for name in parameters:
        if name in FORMER:
            # At the line of the caller: search of the client, and this function, are between.
            warnings.warn(FORMER[name], DeprecationWarning, stacklevel=3)
    filters = dict(parameters.get("filter") or {})
    for name, value in parameters.items():
        if value is None or name == "filter":
            continue
        if name in FILTERS:
            filters[name] = [value] if isinstance(value, str) else list(value)
        elif name in ("read_only", "destructive"):
            filters[name] = value
        else:
            asked["k" if name == "limit" else name] = value
    if filters:
        asked["filter"] = filters
    return json_request("POST", _path("catalogs", catalog, "search"), asked)


class Asked:
    """The texts of searches by the tokens of their answers, which have no text themselves."""

    MOST = 4096

    def __init__(self) -> None:
        """Know none."""
        self._queries: OrderedDict[str, list[str]] = OrderedDict()
        self._lock = threading.Lock()

    def note(self, query: str | list[str], answer: api_types.SearchAnswer) -> None:
        """Note what an answer is to."""
        token = answer.get("feedback_token")
        if not token:
            return
        with self._lock:
            self._queries[token] = [query] if isinstance(query, str) else list(query)
            while len(self._queries) > self.MOST:
                self._queries.popitem(last=False)

    def query_of(self, answer: api_types.SearchAnswer, tool: str) -> str | None:
        """Return the text that found a tool."""
        with self._lock:
            queries = self._queries.get(answer["feedback_token"])
        if not queries:
            return None
        for hit in answer["hits"]:
            matched = hit.get("matched_queries")
            if hit["id"] == tool and matched and matched[0] < len(queries):
                return queries[matched[0]]
        return queries[0]


ASKED = Asked()


def _tools(
    method: str,
    path: str,
    tools: Any,
    params: dict[str, Any],
    selection: Selection,
) -> Request[Any]:
    kind = "application/json"
    content: str | bytes
    is_place = isinstance(tools, os.PathLike) or (isinstance(tools, str) and is_location(tools))
    if is_place or selection.is_given:
        # Read here, as the engine does: the server does not have the file.
        content = read_tools(tools, params.get("server"), selection.include, selection.exclude)
    elif isinstance(tools, str | bytes):
        content = tools.encode() if isinstance(tools, str) else tools
        if not content.lstrip().startswith((b"{", b"[")):
            kind = "application/yaml"
    else:
        content = to_json(list(items_of(tools)))
    # Adding a tool twice is as good as adding it once.
    return Request(method, path, params=params, content=content, headers={"content-type": kind})


@dataclass(frozen=True)
class Selection:
    """Which operations of a document are taken."""

    include: list[str]
    exclude: list[str]

    @classmethod
    def of(
        cls, include: str | Iterable[str] | None, exclude: str | Iterable[str] | None
    ) -> Selection:
        """Read the options."""
        return cls(_texts(include), _texts(exclude))

    @property
    def is_given(self) -> bool:
        """Whether it selects."""
        return bool(self.include or self.exclude)


def _texts(value: str | Iterable[str] | None) -> list[str]:
    if value is None:
        return []
    return [value] if isinstance(value, str) else list(value)


def add(
    catalog: str, tools: Any, server: str | None, skip_invalid: bool, selection: Selection
) -> Request[api_types.UpsertAnswer | api_types.Task]:
    """Add tools."""
    params = {"server": server, "skip_invalid": "true" if skip_invalid else None}
    return _tools("POST", _path("catalogs", catalog, "tools"), tools, params, selection)


def sync(
    catalog: str, server: str, tools: Any, selection: Selection
) -> Request[api_types.SyncAnswer | api_types.Task]:
    """Replace the tools of a server."""
    path = _path("catalogs", catalog, "servers", server, "tools")
    return _tools("PUT", path, tools, {}, selection)


def tools(
    catalog: str, server: str | None, tag: str | None, name: str | None, cursor: str | None
) -> Request[api_types.ToolPage]:
    """List a page of tools."""
    params = {"server": server, "tag": tag, "name": name, "cursor": cursor}
    return Request("GET", _path("catalogs", catalog, "tools"), params=params)


def tool(method: str, catalog: str, id: str) -> Request[api_types.ToolBody]:
    """Read or remove one tool."""
    return Request(method, _path("catalogs", catalog, "tools", id))


def catalogs(cursor: str | None) -> Request[api_types.CatalogList]:
    """List a page of catalogs."""
    return Request("GET", _path("catalogs"), params={"cursor": cursor})


def catalog(method: str, name: str) -> Request[api_types.Catalog]:
    """Read, create or delete a catalog."""
    return Request(method, _path("catalogs", name))


def task(id: str) -> Request[api_types.Task]:
    """Read the state of a task."""
    return Request("GET", _path("tasks", id))


def feedback(
    catalog: str, answer: api_types.SearchAnswer, used: str, fields: Mapping[str, Any]
) -> Request[api_types.FeedbackAnswer]:
    """Report what was used, with the text of the search, from which the catalog learns."""
    query = fields["query"] if "query" in fields else ASKED.query_of(answer, used)
    if query is None and "query" not in fields:
        log.warning(
            "the text of the search is not known here, so the catalog does not learn from %s; "
            "give it as `query`",
            used,
        )
    body = {"feedback_token": answer["feedback_token"], "tool": used, **fields, "query": query}
    body = {key: value for key, value in body.items() if value is not None}
    path = _path("catalogs", catalog, "feedback")
    return json_request("POST", path, body, repeats=False)


def call(
    catalog: str, called: str, arguments: Mapping[str, Any] | None, fields: Mapping[str, Any]
) -> Request[api_types.CallAnswer]:
    """Call a tool."""
    body = {"tool": called, "arguments": arguments or {}, **fields}
    return json_request("POST", _path("catalogs", catalog, "calls"), body, repeats=False)


def part(method: str, catalog: str, *names: str, **params: Any) -> Request[Any]:
    """Make a request about a part of a catalog: its memory, words, settings and the like."""
    return Request(method, _path("catalogs", catalog, *names), params=params)


def written_part(method: str, catalog: str, name: str, value: Any) -> Request[Any]:
    """Write a part of a catalog."""
    return json_request(method, _path("catalogs", catalog, name), value)


def texts(method: str, catalog: str, id: str) -> Request[api_types.ToolTexts]:
    """Read or delete what people say when they need a tool."""
    return Request(method, _path("catalogs", catalog, "texts", id))


def set_texts(
    catalog: str, id: str, texts: Sequence[str], model: str | None
) -> Request[api_types.ToolTexts]:
    """Replace what people say when they need a tool."""
    if isinstance(texts, str):
        raise TypeError(f"texts must be a list of str, not one: {texts!r}")
    value = {"texts": list(texts), "model": model}
    return json_request("PUT", _path("catalogs", catalog, "texts", id), value)


def questions(
    catalog: str,
    server: str | None,
    limit: int | None,
    texts: int | None,
    languages: Sequence[str],
) -> Request[str]:
    """Ask about tools without texts."""
    names = [languages] if isinstance(languages, str) else languages
    params = {
        "server": server,
        "limit": limit,
        "texts": texts,
        "languages": ",".join(names) or None,
    }
    return Request("GET", _path("catalogs", catalog, "questions"), params=params)


def take_texts(catalog: str, answers: str) -> Request[api_types.TakenTexts]:
    """Store answers about tools, or the texts of another catalog."""
    path = _path("catalogs", catalog, "texts")
    headers = {"content-type": "text/plain; charset=utf-8"}
    return Request("POST", path, content=answers.encode(), headers=headers)


def enrich(catalog: str, fields: Mapping[str, Any]) -> Request[Any]:
    """Let the server's model write texts, or count what that would take."""
    given = {name: value for name, value in fields.items() if value is not None}
    return json_request("POST", _path("catalogs", catalog, "enrich"), given, repeats=False)


def keys(cursor: str | None) -> Request[api_types.KeyPage]:
    """List a page of keys."""
    return Request("GET", _path("keys"), params={"cursor": cursor})


def key(method: str, id: str) -> Request[api_types.ApiKey]:
    """Read or revoke a key."""
    return Request(method, _path("keys", id))


def create_key(fields: Mapping[str, Any]) -> Request[api_types.CreatedKeyBody]:
    """Create a key. Doing it twice would create two."""
    body = {name: value for name, value in fields.items() if value is not None}
    return json_request("POST", _path("keys"), body, repeats=False)


def usage() -> Request[api_types.ServerStats]:
    """Read what the server has done."""
    return Request("GET", _path("stats"))


def evaluate(catalog: str, queries: Any, fields: Mapping[str, Any]) -> Request[api_types.Task]:
    """Begin an evaluation."""
    body = {"queries": query_lines(queries), **fields}
    path = _path("catalogs", catalog, "evaluations")
    return json_request("POST", path, body, repeats=False)


def evaluation(catalog: str, id: str) -> Request[api_types.EvaluationBody]:
    """Read an evaluation."""
    return Request("GET", _path("catalogs", catalog, "evaluations", id))


def ask(
    query: str,
    conversation: str | None,
    agent: str | None,
    identity: str | None,
    *,
    detached: bool,
) -> Request[None]:
    """Ask an agent."""
    body = {"query": query, "conversation": conversation, "agent": agent, "identity": identity}
    body = {key: value for key, value in body.items() if value is not None}
    return json_request("POST", _path("agent", "chat"), {**body, "detached": detached})


def body(answer: httpx.Response) -> Any:
    """Read the JSON of an answer, or its text where it is no JSON by its type."""
    if answer.headers.get("content-type", "").startswith("text/markdown"):
        return answer.text
    if not answer.content:
        return None
    try:
        return answer.json()
    except ValueError:
        start = answer.text[:100]
        message = (
            f"{answer.request.url} answered {start!r}, which is no JSON; is it a toolscout server?"
        )
        raise ConnectionFailedError("unreadable_answer", message) from None


def error_of(answer: httpx.Response) -> ApiError:
    """Read the error of an answer."""
    try:
        fields = answer.json()["error"]
        code, message = str(fields["code"]), str(fields["message"])
    except (ValueError, LookupError, TypeError):
        start = answer.text[:200]
        fields, code = {}, "unreadable_answer"
        message = f"{answer.request.url} answered {answer.status_code}: {start}"
    return ApiError(
        code,
        message,
        status=answer.status_code,
        kind=fields.get("type", "internal"),
        request_id=fields.get("request_id"),
        retry_after=_seconds(answer.headers.get("retry-after")),
        items=fields.get("items"),
    )


def _seconds(text: str | None) -> float | None:
    try:
        return max(0.0, float(text)) if text is not None else None
    except ValueError:
        # A date, which servers of ours do not send.
        return None


class Retries:
    """Whether a request is sent again, and after how long."""

    def __init__(self, request: Request[Any], most: int) -> None:
        """Allow `most` repetitions."""
        self.request = request
        self.left = most
        self.wait = FIRST_WAIT_S

    def after_answer(self, answer: httpx.Response) -> float:
        """Wait so long after an error answer, or raise it."""
        error = error_of(answer)
        log.debug("%s %s: %s", self.request.method, self.request.path, error)
        # A server that is too busy for a request has not begun with it.
        is_refused = answer.status_code == 429
        if answer.status_code not in REPEATED or not (self.request.repeats or is_refused):
            raise error
        return self._next(error, error.retry_after)

    def after_failure(self, failure: httpx.TransportError) -> float:
        """Wait so long after a lost connection, or raise it."""
        path = self.request.path
        error = ConnectionFailedError(
            "connection_failed", f"{self.request.method} {path}: {failure}"
        )
        error.__cause__ = failure
        # Without a connection it was not sent.
        was_sent = type(failure).__name__ not in ("ConnectError", "ConnectTimeout", "PoolTimeout")
        if was_sent and not self.request.repeats:
            raise error
        return self._next(error, None)

    def _next(self, error: Error, wanted: float | None) -> float:
        if self.left <= 0 or (wanted is not None and wanted > LONGEST_WAIT_S):
            raise error
        self.left -= 1
        wait, self.wait = self.wait, min(2 * self.wait, LONGEST_WAIT_S)
        log.info("%s %s is sent again: %s", self.request.method, self.request.path, error)
        # Clients that met the same busy server do not come back at the same time.
        return max(wanted or 0.0, wait * random.uniform(0.5, 1.0))


def waits() -> Iterator[float]:
    """Wait between looks at a task: first for a moment, later longer."""
    wait = 0.05
    while True:
        yield wait
        wait = min(1.5 * wait, 1.0)


def is_running(answer: Any) -> bool:
    """Whether this is a task that is not finished."""
    return isinstance(answer, dict) and answer.get("status") == "running"


def succeeded(answer: Any) -> Any:
    """Return an answer, or raise the error of a task that failed."""
    if not isinstance(answer, dict) or answer.get("status") not in ("failed", "cancelled"):
        return answer
    error = answer.get("error") or {}
    message = error.get("message") or f"the task {answer['id']} was {answer['status']}"
    raise Error(error.get("code") or f"task_{answer['status']}", message)


class EventReader:
    """Reads server-sent events line by line."""

    def __init__(self) -> None:
        """Begin with a stream."""
        self._data: list[str] = []
        self._bytes = 0

    def feed(self, line: str) -> Iterable[api_types.AgentEvent]:
        """Read a line, and return the event that it ends."""
        if line.startswith("data:"):
            data = line[5:].removeprefix(" ")
            self._bytes += len(data)
            if self._bytes > MAX_EVENT_BYTES:
                message = f"an event of the stream is longer than {MAX_EVENT_BYTES} bytes"
                raise ConnectionFailedError("unreadable_answer", message)
            self._data.append(data)
            return ()
        if line or not self._data:
            # Comments keep the connection; ids count what is here counted anyway.
            return ()
        text, self._data, self._bytes = "\n".join(self._data), [], 0
        try:
            event = json.loads(text)
        except ValueError:
            message = f"an event of the stream is no JSON: {text[:100]!r}"
            raise ConnectionFailedError("unreadable_answer", message) from None
        return (event,)


class Resumption:
    """What was seen of a run, and so what is left of it when the connection is lost."""

    def __init__(self, conversation: str | None) -> None:
        """Begin with the answer to a question."""
        self.conversation = conversation
        self.is_done = False
        self._text = ""
        self._seen: Counter[str] = Counter()

    def seen(self, event: api_types.AgentEvent) -> None:
        """Note an event."""
        if event["type"] == "text":
            self._text += event["content"]
        elif event["type"] in ("tool_search", "tool_call", "plan"):
            # What the model says between calls is not its answer.
            self._text = ""
        self._seen[event["type"]] += 1
        self.is_done = event["type"] == "done"

    def check(self, failure: httpx.TransportError, *, can_resume: bool) -> None:
        """Raise the loss of the connection where the run cannot be found again."""
        if self.is_done or (can_resume and self.conversation):
            return
        message = f"the connection was lost within the answer: {failure}"
        raise ConnectionFailedError("connection_failed", message) from failure

    def turns(self) -> Request[api_types.Conversation]:
        """Read the conversation."""
        return Request("GET", _path("agent", "conversations", self.conversation or ""))

    def events(self, conversation: api_types.Conversation) -> Request[api_types.EventsOfTurn]:
        """Read what is kept of its last turn."""
        number = str(conversation["turns"][-1]["number"])
        path = _path("agent", "conversations", self.conversation or "", "turns", number, "events")
        return Request("GET", path)

    def remaining(
        self, conversation: api_types.Conversation, kept: Any
    ) -> Iterator[api_types.AgentEvent]:
        """Yield what was not seen: steps, the rest of the text, and the end."""
        turn = conversation["turns"][-1]
        skip = Counter(self._seen)
        for event in kept["events"]:
            # Texts are kept in another form: the answer has them.
            if event["type"] in ("text", "thinking", "done"):
                continue
            if skip[event["type"]] > 0:
                skip[event["type"]] -= 1
            else:
                yield event
        answer = turn["answer"]
        rest = answer.removeprefix(self._text)
        if rest:
            yield {"type": "text", "content": rest}
        if turn.get("error") and not self._seen["error"]:
            yield {"type": "error", "content": str(turn.get("error"))}
        yield {
            "type": "done",
            "conversation": conversation["id"],
            "turn": turn["number"],
            "status": turn["status"],
            "figures": turn["figures"],
        }
