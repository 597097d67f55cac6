"""The doubles for tests of others."""

from __future__ import annotations

import asyncio

import pytest

import toolscout
from toolscout.testing import Call, ScriptedCatalog, ScriptedServer


def send_mail(to: str) -> None:
    """Sends a mail."""


def find_tool(catalog: toolscout.Catalog | ScriptedCatalog, query: str) -> str:
    """Stand for the code of a user."""
    return catalog.search(query, limit=1).ids[0]


def test_a_scripted_catalog_answers_as_told() -> None:
    answers = {"write to Ada": ["send_mail", "other"], "*": ["other"]}
    with ScriptedCatalog(answers, [send_mail]) as catalog:
        assert find_tool(catalog, "write to Ada") == "send_mail"
        assert find_tool(catalog, "anything") == "other"
        assert catalog.calls == [
            Call("search", {"query": "write to Ada", "limit": 1}),
            Call("search", {"query": "anything", "limit": 1}),
        ]
        results = catalog.search(["write to Ada", "anything"])
        assert results.ids == ["send_mail", "other"]
        assert results[0].score > results[1].score
        assert results.tools("openai")[0]["function"]["parameters"]["required"] == ["to"]
        assert results.tools("names") == ["send_mail", "other"]
        assert catalog.feedback(results, "send_mail")["remembered"]
        assert catalog.add({"name": "x"}, server="s") == ["s/x"]
        assert catalog.get("s/x") == next(tool for tool in catalog.tools() if tool.server == "s")
        assert repr(catalog) == "ScriptedCatalog(answers=2, tools=2)"


def test_what_is_not_scripted_fails_with_what_is() -> None:
    failing = ScriptedCatalog({"a": toolscout.Error("embedder_failed", "No.")})
    with pytest.raises(toolscout.Error, match="No"):
        failing.search("a")
    with pytest.raises(AssertionError, match=r"no.* answer to 'b'; there is 'a'"):
        failing.search("b")
    with pytest.raises(AssertionError, match="GET /v1/stats"):
        ScriptedServer().client().usage()


def test_a_scripted_server_has_real_clients() -> None:
    server = ScriptedServer({"write to Ada": ["mail/send_mail"]})
    server.answers_to("GET", "/v1/stats", {"uptime_s": 1})
    server.answers_to(
        "GET",
        "/v1/catalogs/default/tools/x",
        {"error": {"code": "unknown_tool", "message": "No."}},
        status=404,
    )
    with server.client() as client:
        answer = client.search("write to Ada", limit=1)
        assert answer["hits"][0]["id"] == "mail/send_mail"
        assert client.feedback(answer, "mail/send_mail")["remembered"] is True
        assert client.usage()["uptime_s"] == 1
        with pytest.raises(toolscout.ApiError, match="No") as raised:
            client.get("x")
        assert raised.value.status == 404
    assert server.calls[0] == Call(
        "POST /v1/catalogs/default/search", {"query": "write to Ada", "k": 1}
    )

    async def talk() -> list[str]:
        async with server.async_client() as other:
            found = await other.search("write to Ada")
            return [hit["id"] for hit in found["hits"]]

    assert asyncio.run(talk()) == ["mail/send_mail"]
