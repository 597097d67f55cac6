"""The client before a real server, and before one that is played and fails."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from conftest import OFFICE, many, tool

import toolscout
from toolscout import _requests


@pytest.fixture
def client(server: str) -> Iterator[toolscout.Client]:
    with toolscout.Client(server) as client:
        for listed in list(client.tools()):
            client.remove(listed["id"])
        client.add(OFFICE, server="office")
        yield client


def test_tools_are_written_and_found(client: toolscout.Client) -> None:
    answer: Any = client.search("report a bug", k=2, explain=True, format="openai")
    assert answer["hits"][0]["id"] == "office/create_issue"
    assert answer["tools"][0]["function"]["name"] == "office__create_issue"
    client.feedback(answer, "office/create_issue")
    several = client.search(["send mail", "add an event"], filter={"servers": ["office"]})
    assert {hit["id"] for hit in several["hits"][:2]} == {
        "office/send_email",
        "office/create_event",
    }
    assert client.get("office/send_email")["name"] == "send_email"
    added: Any = client.add(json.dumps(tool("x")), server="a/b c")
    assert added["result"]["added"] == 1
    assert client.get("a/b c/x")["id"] == "a/b c/x"
    client.remove("a/b c/x")
    synced = client.sync("office", OFFICE[:2])
    assert synced.get("removed") == ["office/create_issue"]
    with pytest.raises(toolscout.ApiError) as raised:
        client.get("office/create_issue")
    assert (raised.value.code, raised.value.status) == ("unknown_tool", 404)
    assert raised.value.request_id
    # Of a list the valid ones are kept.
    mixed: Any = client.add([tool("y"), {"nome": "z"}], server="mixed")
    assert (mixed["result"]["added"], mixed["result"]["failed"]) == (1, 1)
    with pytest.raises(toolscout.ApiError, match="items") as raised:
        client.add([{"nome": "z"}])
    assert "name" in str(raised.value.items[0]["error"])
    client.sync("mixed", [])


def test_catalogs_are_created_listed_and_deleted(server: str, client: toolscout.Client) -> None:
    assert client.create_catalog("team-a")["tools"] == 0
    with toolscout.Client(server, catalog="team-a") as team:
        team.add(OFFICE[:2])
        assert team.search("send a mail")["hits"]
    # Creating it again changes nothing.
    assert client.create_catalog("team-a")["tools"] == 2
    assert {catalog["name"] for catalog in client.catalogs()} >= {"default", "team-a"}
    client.delete_catalog("team-a")
    assert "team-a" not in {catalog["name"] for catalog in client.catalogs()}
    with pytest.raises(toolscout.ApiError) as raised:
        client.delete_catalog("team-a")
    assert (raised.value.code, raised.value.status) == ("unknown_catalog", 404)


def test_an_address_has_a_scheme() -> None:
    for address in ("127.0.0.1:7700", "localhost:7700"):
        with pytest.raises(ValueError, match="http://"):
            toolscout.Client(address)


def test_a_large_load_is_waited_for(client: toolscout.Client) -> None:
    tools = many(1200)
    done: Any = client.add(tools, server="many")
    assert done["status"] == "succeeded"
    assert sum(1 for _ in client.tools(server="many")) == 1200
    client.sync("many", [])


def test_an_evaluation_is_waited_for(client: toolscout.Client) -> None:
    queries = [{"id": "1", "query": "report a bug", "relevant": ["office/create_issue"]}]
    body = client.evaluate(queries)
    figures = {
        figure["metric"]: figure["mean"] for figure in body["evaluation"]["arms"][0]["figures"]
    }
    assert figures["recall@1"] == 1


def test_answers_are_those_of_the_engine(client: toolscout.Client) -> None:
    with toolscout.Catalog.temporary(embedder="table") as catalog:
        catalog.add(OFFICE, server="office")
        for text in ("report a bug", "send", "enter a date", "nothing of it"):
            over_http = [(hit["id"], hit["score"]) for hit in client.search(text)["hits"]]
            assert over_http == [(hit.id, hit.score) for hit in catalog.search(text)]


def test_events_of_the_agent(client: toolscout.Client) -> None:
    events = list(client.ask("Send a mail."))
    assert events[-1]["type"] == "done"
    assert events[-1]["status"] == "answered"
    assert "".join(event["content"] for event in events if event["type"] == "text")


def test_the_same_in_asyncio(server: str) -> None:
    async def talk() -> None:
        async with toolscout.AsyncClient(server) as client:
            await client.add(OFFICE, server="office")
            answers = await asyncio.gather(*(client.search("report a bug") for _ in range(8)))
            assert {answer["hits"][0]["id"] for answer in answers} == {"office/create_issue"}
            assert (await client.get("office/send_email"))["name"] == "send_email"
            assert "office/send_email" in [tool["id"] async for tool in client.tools()]
            events = [event async for event in client.ask("Send a mail.")]
            assert {event["type"] for event in events} == {"text", "done"}
            with pytest.raises(toolscout.ApiError):
                await client.get("office/nothing")
            await client.create_catalog("team-b")
            assert "team-b" in [catalog["name"] async for catalog in client.catalogs()]
            await client.delete_catalog("team-b")

    asyncio.run(talk())


class Played(httpx.BaseTransport):
    """A server that answers in turn."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.requests: list[httpx.Request] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer: Any = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, httpx.Response):
            return answer
        response: httpx.Response = answer(request)
        return response


def failed(status: int, code: str, **headers: str) -> httpx.Response:
    body = {"error": {"code": code, "message": "No.", "type": "system", "request_id": "r"}}
    return httpx.Response(
        status, json=body, headers={k.replace("_", "-"): v for k, v in headers.items()}
    )


HITS = httpx.Response(200, json={"hits": []})


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    waited: list[float] = []
    monkeypatch.setattr(time, "sleep", waited.append)
    return waited


def test_what_is_busy_is_asked_again(waits: list[float]) -> None:
    transport = Played(
        failed(503, "overloaded", retry_after="2"), httpx.ConnectError("refused"), HITS
    )
    client = toolscout.Client("http://played", transport=transport, key="secret")
    assert client.search("x")["hits"] == []
    assert len(transport.requests) == 3
    assert waits[0] >= 2
    assert waits[1] < 1
    assert transport.requests[0].headers["authorization"] == "Bearer secret"


def test_it_is_not_asked_for_ever(waits: list[float]) -> None:
    transport = Played(*[failed(503, "overloaded")] * 3)
    client = toolscout.Client("http://played", transport=transport, retries=2)
    with pytest.raises(toolscout.ApiError, match="No") as raised:
        client.search("x")
    assert (raised.value.code, raised.value.kind, len(waits)) == ("overloaded", "system", 2)
    transport = Played(failed(429, "too_many", retry_after="3600"))
    with pytest.raises(toolscout.ApiError) as raised:
        toolscout.Client("http://played", transport=transport).search("x")
    assert raised.value.retry_after == 3600
    transport = Played(*[httpx.ConnectError("refused")] * 4)
    with pytest.raises(toolscout.ConnectionFailedError, match="refused") as lost:
        toolscout.Client("http://played", transport=transport).search("x")
    assert lost.value.code == "connection_failed"


def test_a_call_is_not_repeated(waits: list[float]) -> None:
    for failure in (httpx.ReadError("lost"), failed(503, "overloaded")):
        transport = Played(failure)
        with pytest.raises(toolscout.Error):
            toolscout.Client("http://played", transport=transport).call("a", {})
    # Unless it was not even received.
    transport = Played(httpx.ConnectError("refused"), httpx.Response(200, json={"outcome": "done"}))
    assert toolscout.Client("http://played", transport=transport).call("a") == {"outcome": "done"}
    assert waits


def test_other_servers_are_told_apart() -> None:
    transport = Played(httpx.Response(200, text="<html>"), httpx.Response(404, text="<html>"))
    client = toolscout.Client("http://played", transport=transport)
    with pytest.raises(toolscout.ConnectionFailedError, match="is it a toolscout server"):
        client.search("x")
    with pytest.raises(toolscout.ApiError, match="<html>"):
        client.search("x")
    with pytest.raises(toolscout.Error, match="no JSON"):
        list(_requests.EventReader().feed("data: {") or _ended("data: {"))


def _ended(line: str) -> Any:
    reader = _requests.EventReader()
    reader.feed(line)
    return reader.feed("")


class Cut(httpx.SyncByteStream):
    """A stream that is lost after some events."""

    def __init__(self, *events: dict[str, Any]) -> None:
        self.events = events

    def __iter__(self) -> Iterator[bytes]:
        for number, event in enumerate(self.events, 1):
            yield f"id: {number}\ndata: {json.dumps(event)}\n\n: beat\n\n".encode()
        raise httpx.ReadError("lost")


def test_a_lost_stream_goes_on(waits: list[float]) -> None:
    search = {"type": "tool_search", "id": "1", "queries": ["mail"], "hits": ["a"]}
    call = {"type": "tool_call", "id": "2", "name": "a", "arguments": {}}
    result = {"type": "tool_result", "id": "2", "content": "sent"}
    conversation = {
        "id": "c",
        "running": False,
        "approvals": [],
        "turns": [
            {
                "number": 2,
                "question": "q",
                "answer": "It is sent.",
                "status": "answered",
                "figures": {},
            }
        ],
    }

    def stream(request: httpx.Request) -> httpx.Response:
        assert json.loads(request.content)["detached"] is True
        seen = Cut(
            {"type": "text", "content": "Let me look. "},
            search,
            {"type": "text", "content": "It is"},
        )
        return httpx.Response(200, stream=seen, headers={"x-conversation-id": "c"})

    transport = Played(
        stream,
        httpx.Response(200, json={**conversation, "running": True}),
        httpx.Response(200, json=conversation),
        httpx.Response(200, json={"events": [search, call, result], "truncated": False}),
    )
    events: list[Any] = list(toolscout.Client("http://played", transport=transport).ask("q"))
    assert [event["type"] for event in events] == [
        "text", "tool_search", "text", "tool_call", "tool_result", "text", "done",
    ]  # fmt: skip
    assert events[-2]["content"] == " sent."
    assert events[-1]["status"] == "answered"
    assert transport.requests[-1].url.path == "/v1/agent/conversations/c/turns/2/events"
    assert len(waits) == 1
    transport = Played(httpx.Response(200, stream=Cut(search)))
    with pytest.raises(toolscout.ConnectionFailedError, match="lost"):
        list(toolscout.Client("http://played", transport=transport).ask("q", resume=False))


def test_threads_share_a_client(client: toolscout.Client) -> None:
    found: list[str] = []
    work: Callable[[], None] = lambda: found.append(client.search("mail")["hits"][0]["id"])  # noqa: E731
    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == ["office/send_email"] * 8


def test_without_httpx_it_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['httpx'] = None\n"
        "import toolscout\n"
        "try:\n    toolscout.Client()\n"
        "except ImportError as error:\n    print(error)\n"
        "toolscout.Catalog.temporary(embedder='none').close()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install toolscout[client]" in done.stdout
