"""The client before a real server, and before one that is played and fails."""

from __future__ import annotations

import asyncio
import inspect
import json
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
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
    answer: Any = client.search("report a bug", limit=2, explain=True, format="openai")
    assert answer["hits"][0]["id"] == "office/create_issue"
    assert answer["tools"][0]["function"]["name"] == "office__create_issue"
    client.feedback(answer, "office/create_issue")
    several = client.search(["send mail", "add an event"], servers="office")
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


def test_the_former_names_of_options_still_work(client: toolscout.Client) -> None:
    uses: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"k": 1}, {"limit": 1}),
        ({"filter": {"servers": ["office"]}}, {"servers": ["office"]}),
        (
            {"filter": {"ids": ["office/send_email"], "read_only": False}},
            {"ids": "office/send_email"},
        ),
    ]
    for former, now in uses:
        with pytest.warns(DeprecationWarning, match="is now"):
            before = client.search("mail", **former)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            after = client.search("mail", **now)
        assert [hit["id"] for hit in before["hits"]] == [hit["id"] for hit in after["hits"]]


def test_tools_of_every_form_are_added_as_by_the_engine(
    client: toolscout.Client, catalog: toolscout.Catalog, tmp_path: Path
) -> None:
    def forecast(city: str, days: int = 3) -> str:
        """Tells the weather.

        Args:
            city: The city.
        """
        return f"{city} {days}"

    forecast.__annotations__ = {"city": str, "days": int}
    file = tmp_path / "tools.json"
    file.write_text(json.dumps([tool("one", "First."), tool("two", "Second.")]))
    shop = {
        "openapi": "3.1.0",
        "info": {"title": "shop", "version": "1"},
        "servers": [{"url": "https://shop.test"}],
        "paths": {"/a": {"get": {"operationId": "a"}}, "/b": {"get": {"operationId": "b"}}},
    }
    inputs: list[tuple[Any, dict[str, Any]]] = [
        (forecast, {}),
        ([forecast, tool("three")], {}),
        ({"weather": forecast}, {}),
        (file, {}),
        (str(file), {}),
        (json.dumps(tool("four")), {}),
        (shop, {"include": "/b"}),
        (json.dumps(shop), {"exclude": ["b"]}),
    ]
    for given, options in inputs:
        client.sync("forms", given, **options)
        catalog.sync("forms", given, **options)
        listed = [
            (tool["id"], tool["description"], tool["inputSchema"])
            for tool in client.tools(server="forms")
        ]
        assert listed == [
            (tool.id, tool.description, tool.input_schema) for tool in catalog.tools()
        ]
        assert listed
    for refused in (object(), [object()], 7):
        with pytest.raises(TypeError):
            client.add(refused)
    with pytest.raises(toolscout.Error, match="no such file") as raised:
        client.add("nothing.json")
    assert raised.value.code == "unreadable_tools"
    client.sync("forms", [])


def test_tools_are_removed_one_or_several(
    client: toolscout.Client, office: toolscout.Catalog
) -> None:
    assert client.remove("office/send_email") == {"removed": ["office/send_email"]}
    assert office.remove("office/send_email").removed == ["office/send_email"]
    ids = ["office/create_event", "office/nothing"]
    assert client.remove(ids) == {"removed": ["office/create_event"]}
    assert office.remove(ids).removed == ["office/create_event"]
    assert client.remove("office/nothing") == {"removed": []}
    assert office.remove("office/nothing").removed == []


def test_queries_of_every_form_are_evaluated(
    client: toolscout.Client, office: toolscout.Catalog, tmp_path: Path
) -> None:
    queries = [{"id": "1", "query": "report a bug", "relevant": ["office/create_issue"]}]
    line = json.dumps(queries[0])
    file = tmp_path / "queries.jsonl"
    file.write_text(line + "\n")
    for given in (queries, line, line.encode(), file, str(file)):
        body = client.evaluate(given)
        figures = {f["metric"]: f["mean"] for f in body["evaluation"]["arms"][0]["figures"]}
        assert figures["recall@1"] == office.evaluate(given)["recall@1"].mean == 1
    with pytest.warns(DeprecationWarning, match=r"Catalog\.evaluate"):
        office.eval(queries)


def test_feedback_teaches(
    client: toolscout.Client, office: toolscout.Catalog, caplog: pytest.LogCaptureFixture
) -> None:
    asked = "jot down what is broken"
    answer = client.search(asked)
    assert client.feedback(answer, "office/create_issue") == {
        "recorded": True,
        "remembered": False,
    }
    assert client.set_memory(True) == {"enabled": True}
    several = client.search(["send a mail", asked])
    uses: list[tuple[Any, dict[str, Any], bool]] = [
        (answer, {}, True),
        (several, {"outcome": "helpful"}, True),
        (answer, {"query": None}, False),
    ]
    for given, options, remembered in uses:
        answered = client.feedback(given, "office/create_issue", **options)
        assert answered["remembered"] is remembered
    entries = list(client.memory())
    assert {entry["tool"] for entry in entries} == {"office/create_issue"}
    assert asked in [entry["query"] for entry in entries]
    assert client.search(asked)["hits"][0]["id"] == "office/create_issue"
    other = _requests.Asked()
    with pytest.MonkeyPatch.context() as patch, caplog.at_level("WARNING", logger="toolscout"):
        patch.setattr(_requests, "ASKED", other)
        assert client.feedback(answer, "office/create_issue")["remembered"] is False
    assert "give it as `query`" in caplog.text
    assert client.forget(query=asked)["forgotten"] == 1
    assert client.forget()["forgotten"] >= 0
    client.set_memory(False)
    # The same in the engine.
    results = office.search(asked, limit=3)
    assert office.feedback(results, "office/create_issue")["remembered"] is False
    assert office.set_memory(True) == {"enabled": True}
    assert office.feedback(results, "office/create_issue")["remembered"] is True
    assert [entry["query"] for entry in office.memory()] == [asked]
    assert office.search(asked).ids[0] == "office/create_issue"
    with pytest.raises(toolscout.Error, match='"office/nothing" is not among') as raised:
        office.feedback(results, "office/nothing")
    assert raised.value.code == "tool_not_in_answer"
    assert office.forget(tool="office/create_issue") == {"forgotten": 1}


def test_words_and_settings_are_those_of_the_engine(
    client: toolscout.Client, office: toolscout.Catalog
) -> None:
    words: Any = {"aliases": {"office/send_email": ["postbote"]}}
    patch = {"synonyms": {"bug": {"words": ["bug", "kaputt"]}}}
    settings: Any = {"k": 2, "description": "An office.", "min_score": 0.1}
    for catalog in (client, office):
        set_by: Any = catalog
        written = set_by.set_words(words)
        assert written["words"]["aliases"] == words["aliases"]
        assert set_by.patch_words(patch)["words"]["synonyms"]["bug"]["words"] == ["bug", "kaputt"]
        assert set_by.words()["words"]["aliases"] == words["aliases"]
        assert set_by.patch_words({"aliases": None})["words"].get("aliases", {}) == {}
        assert set_by.set_settings(settings)["k"] == 2
        with pytest.raises(toolscout.Error, match="500"):
            set_by.set_settings({"k": 500})
        with pytest.raises(toolscout.Error):
            set_by.set_words({"alias": {}})
    assert client.settings() == office.settings()
    assert len(client.search("office")["hits"]) <= 2
    client.set_settings({})
    client.set_words({})


def test_what_only_a_server_has(client: toolscout.Client) -> None:
    assert client.stats()["tools"] == 3
    assert {server["name"]: server["tools"] for server in client.servers()}["office"] == 3
    assert list(client.changes()) == []
    with pytest.raises(toolscout.ApiError) as raised:
        client.review()
    assert raised.value.code == "invalid_value"
    assert list(client.keys()) == []
    with pytest.raises(toolscout.ApiError) as raised:
        client.key("nothing")
    assert raised.value.status == 404
    usage = client.usage()
    assert usage["searches"]
    assert usage["tokens"] is not None
    body = client.evaluate([{"query": "report a bug", "relevant": ["office/create_issue"]}])
    number = body["evaluation"]["id"]
    assert number in [evaluation["id"] for evaluation in client.evaluations()]
    assert client.evaluation(number)["evaluation"]["id"] == number
    assert [row["query"] for row in client.evaluation_queries(number)] == ["report a bug"]
    client.delete_evaluation(number)
    assert number not in [evaluation["id"] for evaluation in client.evaluations()]


def test_texts_of_tools_are_written_read_and_passed_on(client: toolscout.Client) -> None:
    send = "office/send_email"
    assert client.texts_of(send)["texts"] == []
    written = client.set_texts(send, ["tell Ada by post"], model="us")
    assert (written["texts"], written.get("model")) == (["tell Ada by post"], "us")
    assert [tool["id"] for tool in client.texts(server="office")] == [send]
    state = client.enrich_state()
    assert (state["with_texts"], state["mode"]) == (1, "ask")
    questions = client.questions(limit=1, languages=["de", "zh"])
    assert "German, Chinese" in questions
    question = json.loads(next(line for line in questions.splitlines() if '"tool"' in line))
    answer = {**question, "texts": ["somebody wants the third thing", "another way"]}
    del answer["tool"], answer["description"]
    taken = client.take_texts(json.dumps(answer))
    assert (taken["answers"], taken["stored"]) == (1, 1)
    assert client.measure_texts()["found_within"] == 5
    assert client.estimate_enrich(limit=1)["tools"] == 1
    task = client.enrich(limit=1)
    assert (task["status"], task["done"]) == ("succeeded", 1)
    wrong: Any = "one text"
    with pytest.raises(TypeError, match="one text"):
        client.set_texts(send, wrong)
    for written_of in [send, question["id"]]:
        client.delete_texts(written_of)
    with pytest.raises(toolscout.ApiError) as raised:
        client.delete_texts(send)
    assert raised.value.code == "no_texts"


def test_both_clients_have_the_same_methods() -> None:
    from toolscout.client import AsyncClient, Client

    def public(kind: type) -> dict[str, list[str]]:
        return {
            name: list(inspect.signature(value).parameters)
            for name, value in vars(kind).items()
            if not name.startswith("_") and callable(value)
        }

    assert public(Client) == public(AsyncClient)
    ours = {name for name in vars(toolscout.Catalog) if not name.startswith("_")}
    shared = {
        "add", "sync", "remove", "search", "evaluate", "tools", "get", "stats", "feedback",
        "memory", "set_memory", "forget", "words", "set_words", "patch_words", "settings",
        "set_settings", "servers", "close",
    }  # fmt: skip
    assert shared <= ours
    assert shared <= set(public(Client))


def test_a_client_shows_where_it_is_and_no_key() -> None:
    client = toolscout.Client("http://played:1", key="secret", catalog="team")
    assert repr(client) == "Client('http://played:1', catalog='team')"
    assert "secret" not in repr(toolscout.AsyncClient("http://played", key="secret"))


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
    called: Any = toolscout.Client("http://played", transport=transport).call("a")
    assert called == {"outcome": "done"}
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
