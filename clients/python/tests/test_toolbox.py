"""The toolbox of a conversation: what is visible, what goes, and what is stored."""

from __future__ import annotations

import asyncio
import datetime
import enum
import itertools
import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from conftest import many, tool
from pydantic import BaseModel

import toolscout

FORMATS: list[Any] = ["openai", "openai_responses", "anthropic", "anthropic_reference", "signature"]


@pytest.fixture(scope="module")
def large() -> Iterator[toolscout.Catalog]:
    with toolscout.Catalog.temporary(embedder="table") as catalog:
        catalog.add(many(500))
        yield catalog


def names_in(tools: Any) -> list[str]:
    return [tool["function"]["name"] for tool in tools]


def test_a_search_shows_what_it_finds(large: toolscout.Catalog) -> None:
    toolbox = toolscout.Toolbox(large, budget=8000, policy="lru", limit=3)
    assert names_in(toolbox.tools("openai")) == ["tool_search"]
    search = toolbox.search_tool()
    answer = json.loads(search("export a playlist"))
    assert answer["loaded"][0]["name"] == "export_playlist"
    assert len(toolbox) == 3
    assert toolbox.names == toolbox.ids
    assert toolbox.names[0] == "export_playlist"
    assert names_in(toolbox.tools()) == ["tool_search", *toolbox.names]
    again = json.loads(toolbox.call("tool_search", '{"query": "export a playlist"}'))
    assert "export_playlist" in again["already_visible"]
    assert "export_playlist" in toolbox
    assert [tool.id for tool in toolbox] == toolbox.ids
    assert repr(toolbox).startswith("Toolbox(tools=3, tokens=")
    assert toolbox.tokens < 8000


@pytest.mark.parametrize("format", FORMATS)
def test_the_search_has_a_definition_in_every_format(large: toolscout.Catalog, format: Any) -> None:
    toolbox = toolscout.Toolbox(large)
    toolbox.inject("export_playlist")
    search = toolbox.search_tool()
    assert search.name == search.__name__ == "tool_search"
    assert set(search.input_schema["properties"]) == {"query", "queries", "limit", "server"}
    first, second = toolbox.tools(format)
    assert first == search.to(format)
    assert "tool_search" in str(first)
    assert "export_playlist" in str(second)
    assert len(toolbox.tools(format, search=False)) == 1


def test_every_prompt_begins_as_the_one_before_until_tools_go(large: toolscout.Catalog) -> None:
    toolbox = toolscout.Toolbox(large, budget=400)
    before = names_in(toolbox.tools())
    evictions = 0
    for query in ("create an invoice", "rename a photo", "share a novel", "count the rockets"):
        with toolbox.turn():
            searched = toolbox.search({"query": query, "limit": 3})
            after = names_in(toolbox.tools())
            if not searched.evicted:
                assert after[: len(before)] == before
            evictions += len(searched.evicted)
            assert toolbox.tokens <= 400
            before = after
    assert evictions > 0


@pytest.mark.parametrize(
    ("policy", "gone"), [("lru", "list_photo"), ("lfu", "create_photo"), ("none", None)]
)
def test_the_policy_chooses_what_goes(
    large: toolscout.Catalog, policy: Any, gone: str | None
) -> None:
    names = ["list_photo", "create_photo", "delete_photo"]
    toolbox = toolscout.Toolbox(large, policy=policy)
    toolbox.inject(names)
    toolbox = toolscout.Toolbox(large, budget=toolbox.tokens + 10, policy=policy)
    toolbox.begin_turn()
    toolbox.inject(names)
    for name in ("list_photo", "delete_photo", "list_photo", "delete_photo"):
        with toolbox.calling(name):
            pass
    with toolbox.calling("create_photo"):
        pass
    toolbox.begin_turn()
    injection = toolbox.inject("share_novel")
    if gone is None:
        assert [refused for refused, _ in injection.refused] == ["share_novel"]
        assert toolbox.names == names
    else:
        assert injection.evicted[0] == gone
        assert toolbox.names[-1] == "share_novel"
        with (
            pytest.raises(toolscout.Error, match=f"{gone} was unloaded") as raised,
            toolbox.calling(gone),
        ):
            pass
        assert raised.value.code == "unknown_tool"


def test_a_tool_stays_while_it_is_called_and_for_two_rounds(large: toolscout.Catalog) -> None:
    toolbox = toolscout.Toolbox(large)
    toolbox.inject(["list_photo", "create_photo"])
    toolbox = toolscout.Toolbox(large, budget=toolbox.tokens + 10)
    toolbox.begin_turn()
    toolbox.inject(["list_photo", "create_photo"])
    toolbox.tools()
    with toolbox.calling("list_photo"):
        assert toolbox.inject("copy_photo").evicted == ["create_photo"]
    for name in ("rename_photo", "share_photo", "count_photo"):
        toolbox.tools()
        toolbox.inject(name)
    assert "list_photo" not in toolbox


def test_tools_are_pinned_injected_and_evicted(large: toolscout.Catalog) -> None:
    toolbox = toolscout.Toolbox(large, budget=200, pinned="create_invoice")
    hits = large.search("copy a photo", limit=2)
    injection = toolbox.inject(hits)
    assert injection.added == hits.ids
    assert toolbox.inject(hits[0]).already == [hits.ids[0]]
    assert toolbox.evict([large[hits.ids[0]], "create_invoice", "nothing"]) == [hits.ids[0]]
    assert toolbox.ids == ["create_invoice", hits.ids[1]]
    toolbox.pin(hits.ids[1])
    assert toolbox.evict(hits.ids[1]) == []
    with pytest.raises(toolscout.Error, match=r'no tool "create_invoce".*create_invoice') as raised:
        toolbox.inject("create_invoce")
    assert raised.value.code == "unknown_tool"
    for query in ("archive a poem", "export a visa", "delete a bridge"):
        toolbox.search({"query": query})
    assert toolbox.ids[:2] == ["create_invoice", hits.ids[1]]


def test_idle_tools_go_at_the_end_of_a_turn(large: toolscout.Catalog) -> None:
    toolbox = toolscout.Toolbox(large, idle_turns=2)
    with toolbox.turn():
        toolbox.inject(["list_photo", "copy_photo"])
    with toolbox.turn(), toolbox.calling("copy_photo"):
        pass
    toolbox.begin_turn()
    assert toolbox.end_turn() == ["list_photo"]
    assert toolbox.names == ["copy_photo"]


def test_a_state_is_stored_and_restored(
    catalog: toolscout.Catalog, caplog: pytest.LogCaptureFixture
) -> None:
    catalog.add(many(20))
    toolbox = toolscout.Toolbox(catalog, budget=500, policy="lfu", pinned="list_invoice")
    with toolbox.turn():
        toolbox.inject(["copy_invoice", "share_invoice", "create_customer"])
        with toolbox.calling("share_invoice"):
            pass
    state = toolbox.state()
    assert json.loads(json.dumps(state)) == state
    for stored in (state, json.dumps(state)):
        again = toolscout.Toolbox.from_state(catalog, stored)
        assert again.tools("openai") == toolbox.tools("openai")
        assert again.options == toolbox.options
        assert again.state() == state
    catalog.remove(["copy_invoice", "list_invoice"])
    with caplog.at_level(logging.WARNING, logger="toolscout"):
        less = toolscout.Toolbox.from_state(catalog, state)
    assert less.missing == ["list_invoice", "copy_invoice"]
    assert "copy_invoice" in caplog.text
    assert less.names == ["share_invoice", "create_customer"]
    for broken in ({}, {**state, "version": 2}, {**state, "more": 1}, "no JSON"):
        with pytest.raises(toolscout.Error, match="state of a toolbox") as raised:
            toolscout.Toolbox.from_state(catalog, broken)  # type: ignore[arg-type]
        assert raised.value.code == "invalid_toolbox"


def test_functions_are_called(catalog: toolscout.Catalog) -> None:
    def add(a: int, b: int = 1) -> int:
        """Add two numbers."""
        return a + b

    async def fetch_page(url: str) -> str:
        """Fetch a page of the web."""
        return f"page of {url}"

    catalog.add([add, fetch_page], server="own")
    catalog.add(tool("other", "Nobody says how it is called."))
    toolbox = toolscout.Toolbox(catalog, functions=[add, fetch_page])
    toolbox.inject(["add", "own/fetch_page", "other"])
    assert toolbox.names == ["own__add", "own__fetch_page", "other"]
    assert toolbox.call("own__add", '{"a": 2}') == 3
    assert toolbox.call("own/add", {"a": 2, "b": 5}) == 7
    assert asyncio.run(toolbox.acall("own__fetch_page", {"url": "x"})) == "page of x"
    assert asyncio.run(toolbox.acall("own__add", {"a": 1})) == 2
    assert (
        "loaded" in asyncio.run(toolbox.acall("tool_search", {"query": "select:other,add"})) or True
    )
    failures: list[tuple[Any, str]] = [
        (lambda: toolbox.call("own__fetch_page", {"url": "x"}), "async_function"),
        (lambda: toolbox.call("other"), "no_function"),
        (lambda: toolbox.call("nothing"), "unknown_tool"),
        (lambda: toolbox.call("own__add", "{"), "invalid_arguments"),
        (lambda: toolbox.call("own__add", "[1]"), "invalid_arguments"),
        (lambda: toolbox.call("own__add", "{}"), "invalid_arguments"),
        (lambda: toolbox.call("own__add", {"a": "7"}), "invalid_arguments"),
        (lambda: asyncio.run(toolbox.acall("own__add", {"a": 1, "b": []})), "invalid_arguments"),
    ]
    for fails, code in failures:
        with pytest.raises(toolscout.Error) as raised:
            fails()
        assert raised.value.code == code, str(raised.value)


class Guest(BaseModel):
    name: str
    nights: int = 1


@dataclass
class Room:
    number: int


class Meal(enum.Enum):
    BREAKFAST = "breakfast"
    DINNER = "dinner"


def test_functions_get_the_objects_of_their_annotations(catalog: toolscout.Catalog) -> None:
    got: list[Any] = []

    def book(
        guests: list[Guest],
        room: Annotated[Room, "The room."],
        day: datetime.date,
        meal: Meal | None = None,
        note: str = "",
        **others: Any,
    ) -> None:
        """Book a room."""
        got[:] = [guests, room, day, meal, note, others]

    catalog.add(book)
    toolbox = toolscout.Toolbox(catalog, functions=[book], pinned="book")
    arguments: dict[str, Any] = {
        "guests": [{"name": "Ada"}, {"name": "Bo", "nights": 2}],
        "room": {"number": 7},
        "day": "2027-03-01",
        "meal": "dinner",
        "note": "late",
        "more": {"a": 1},
    }
    toolbox.call("book", json.dumps(arguments))
    guests = [Guest(name="Ada"), Guest(name="Bo", nights=2)]
    day = datetime.date(2027, 3, 1)
    assert got == [guests, Room(7), day, Meal.DINNER, "late", {"more": {"a": 1}}]
    asyncio.run(toolbox.acall("book", {**arguments, "meal": None}))
    assert got[3] is None
    with pytest.raises(toolscout.Error, match="the argument 'day'") as raised:
        toolbox.call("book", {**arguments, "day": "soon"})
    assert raised.value.code == "invalid_arguments"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "the search is empty"),
        ({"query": " "}, "the search is empty"),
        ({"query": "x", "limit": 0}, "`limit` is 0"),
        ({"query": "x", "server": "nothing"}, "not available here"),
        ("[]", "no JSON object"),
        ("{", "no JSON"),
    ],
)
def test_a_search_that_is_none_is_answered(
    catalog: toolscout.Catalog, arguments: Any, text: str
) -> None:
    catalog.add(tool("a"), server="own")
    toolbox = toolscout.Toolbox(catalog, servers="own")
    assert text in toolbox.call("tool_search", arguments)
    assert toolbox.call("tool_search", arguments) == toolbox.search(arguments).text


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"budget": 0}, toolscout.Error, "budget is 0, it must be 1 or more"),
        ({"budget": "8000"}, TypeError, "budget must be an int, not str"),
        ({"policy": "fifo"}, toolscout.Error, 'policy is "fifo", it must be lru, lfu or none'),
        ({"policy": 7}, TypeError, "policy must be a str, not int"),
        ({"idle_turns": -1}, toolscout.Error, "idle_turns is -1"),
        ({"limit": 51}, toolscout.Error, "limit is 51, it must be from 1 to 50"),
        ({"more_tools": 51}, toolscout.Error, "more_tools is 51, it must be from 0 to 50"),
        ({"more_chars": -1}, toolscout.Error, "more_chars is -1, it must be from 0 to 1000"),
        ({"servers": 7}, TypeError, "servers must be a str"),
        ({"pinned": "nothing"}, toolscout.Error, 'no tool "nothing"'),
        ({"functions": [lambda: 1]}, TypeError, "lambda"),
    ],
)
def test_options_are_checked(
    catalog: toolscout.Catalog, options: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error) as raised:
        toolscout.Toolbox(catalog, **options)
    assert text in str(raised.value)
    with pytest.raises(TypeError, match=r"catalog must be a toolscout\.Catalog, not dict"):
        toolscout.Toolbox({})  # type: ignore[arg-type]


def test_many_threads_share_a_toolbox(large: toolscout.Catalog) -> None:
    from concurrent.futures import ThreadPoolExecutor

    toolbox = toolscout.Toolbox(large, budget=600)
    queries = [
        f"{verb} a {thing}"
        for verb, thing in itertools.product(("copy", "list"), ("photo", "poem", "medal"))
    ]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda query: toolbox.search({"query": query}), queries * 5))
    assert 0 < toolbox.tokens <= 600
    assert len(set(toolbox.ids)) == len(toolbox.ids)
