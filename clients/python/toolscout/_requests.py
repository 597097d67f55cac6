"""What both clients share: requests, retries, and the events of a stream. Opens no connection."""

from __future__ import annotations

import json
import random
import urllib.parse
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from toolscout._errors import ApiError, ConnectionFailedError, Error
from toolscout._input import query_lines, to_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import httpx
    from typing_extensions import TypedDict

    from toolscout import api_types

    class SearchParameters(TypedDict, total=False):
        """The body of a search without its query."""

        k: int
        mode: api_types.SearchMode
        fusion: api_types.SearchFusion
        dense_weight: float
        whole: bool
        filter: api_types.SearchFilter
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


def search(
    catalog: str, query: str | list[str], parameters: Mapping[str, Any]
) -> Request[api_types.SearchAnswer]:
    """Make a search."""
    asked = {"query": query} if isinstance(query, str) else {"queries": query}
    return json_request("POST", _path("catalogs", catalog, "search"), {**asked, **parameters})


def _tools(method: str, path: str, tools: Any, params: dict[str, Any]) -> Request[Any]:
    kind = "application/json"
    if isinstance(tools, str | bytes):
        content = tools.encode() if isinstance(tools, str) else tools
        if not content.lstrip().startswith((b"{", b"[")):
            kind = "application/yaml"
    elif isinstance(tools, dict) or hasattr(tools, "model_dump"):
        content = to_json([tools]).encode()
    else:
        content = to_json(list(tools)).encode()
    # Adding a tool twice is as good as adding it once.
    return Request(method, path, params=params, content=content, headers={"content-type": kind})


def add(
    catalog: str, tools: Any, server: str | None, skip_invalid: bool
) -> Request[api_types.UpsertAnswer | api_types.Task]:
    """Add tools."""
    params = {"server": server, "skip_invalid": "true" if skip_invalid else None}
    return _tools("POST", _path("catalogs", catalog, "tools"), tools, params)


def sync(catalog: str, server: str, tools: Any) -> Request[api_types.SyncAnswer | api_types.Task]:
    """Replace the tools of a server."""
    return _tools("PUT", _path("catalogs", catalog, "servers", server, "tools"), tools, {})


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
    """Report what was used."""
    body = {"feedback_token": answer["feedback_token"], "tool": used, **fields}
    path = _path("catalogs", catalog, "feedback")
    return json_request("POST", path, body, repeats=False)


def call(
    catalog: str, called: str, arguments: Mapping[str, Any] | None, fields: Mapping[str, Any]
) -> Request[dict[str, Any]]:
    """Call a tool."""
    body = {"tool": called, "arguments": arguments or {}, **fields}
    return json_request("POST", _path("catalogs", catalog, "calls"), body, repeats=False)


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
    """Read the JSON of an answer."""
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
