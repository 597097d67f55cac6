"""Catalogs: writing, searching, reading."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from conftest import OFFICE, many, tool

import toolscout


def test_tools_of_every_form_are_added(catalog: toolscout.Catalog, tmp_path: Path) -> None:
    assert catalog.add(tool("one")).added == ["one"]
    assert catalog.add([tool("two"), tool("three")], server="s").added == ["s/three", "s/two"]
    assert catalog.add(tool(name) for name in ("four", "five")).added == ["five", "four"]
    assert catalog.add(json.dumps({"tools": [tool("six")]})).added == ["six"]
    assert catalog.add(json.dumps(tool("seven")).encode()).added == ["seven"]
    lines = "\n".join(json.dumps(tool(name)) for name in ("eight", "nine"))
    assert catalog.add(lines).added == ["eight", "nine"]
    file = tmp_path / "tools.json"
    file.write_text(json.dumps([tool("ten")]))
    assert catalog.add(file).added == ["ten"]
    assert catalog.add(str(file)).unchanged == 1
    openai = {"type": "function", "function": {"name": "eleven", "description": "x"}}
    anthropic = {"name": "twelve", "input_schema": {"type": "object"}}
    assert catalog.add([openai, anthropic]).added == ["eleven", "twelve"]
    yaml = """\
openapi: 3.1.0
info: {title: t, version: '1'}
paths:
  /pets:
    get:
      operationId: pets
"""
    added = catalog.add(yaml).added
    assert [added_id.split("/")[-1] for added_id in added] == ["pets"]
    assert len(catalog) == 13


def test_models_with_model_dump_are_added(catalog: toolscout.Catalog) -> None:
    from mcp.types import Tool

    sdk = Tool.model_validate(tool("sdk", "From the MCP SDK.", a="string"))
    assert catalog.add(sdk).added == ["sdk"]
    assert catalog.add([sdk]).unchanged == 1
    assert catalog["sdk"].input_schema["properties"] == {"a": {"type": "string"}}


def test_a_search_finds_and_explains(office: toolscout.Catalog) -> None:
    results = office.search("report a bug", limit=2, explain=True)
    assert results.ids[0] == "office/create_issue"
    assert (results.mode, results.queries, len(results)) == ("hybrid", ["report a bug"], 2)
    first = results[0]
    assert (first.id, first.name, first.server) == ("office/create_issue", "create_issue", "office")
    assert first.model_name == "office__create_issue"
    assert first.explain is not None
    assert first.explain["fused"] > 0
    assert results[-1].score < first.score <= 1
    assert [hit.id for hit in results[:1]] == [first.id]
    assert list(results) == list(results.hits)
    assert results.degraded is None
    assert results.no_match is None
    assert 0 <= (results.confidence or 0) <= 1
    assert results.timings["total_ms"] > 0
    assert office.search("report a bug").hits[0].explain is None


def test_tools_are_written_for_a_model(office: toolscout.Catalog) -> None:
    results = office.search("write a mail to Ada", limit=1)
    function = results.tools("openai")[0]["function"]
    assert function["name"] == "office__send_email"
    assert results.tools("anthropic")[0]["input_schema"]["properties"] == {"to": {"type": "string"}}
    assert results.tools("names") == ["office__send_email"]
    assert results.tools("mcp")["tools"][0]["name"] == "office__send_email"
    assert results.tools("openai", max_tokens=100)[0]["function"]["name"] == "office__send_email"
    assert results[0].tool.to("signature").startswith("office/send_email")


def test_filters_restrict_hits(office: toolscout.Catalog) -> None:
    office.add(
        {
            **tool("read_mail", "Reads an email."),
            "annotations": {"readOnlyHint": True},
            "tags": ["mail"],
        },
        server="inbox",
    )
    assert office.search("email", servers="inbox").ids == ["inbox/read_mail"]
    assert office.search("email", servers=["inbox"]).ids == ["inbox/read_mail"]
    assert office.search("email", tags="mail").ids == ["inbox/read_mail"]
    assert office.search("email", ids=["office/send_email"]).ids == ["office/send_email"]
    assert office.search("email", read_only=True).ids == ["inbox/read_mail"]
    assert "inbox/read_mail" not in office.search("email", destructive=True).ids
    assert [tool.id for tool in office.tools(servers="inbox")] == ["inbox/read_mail"]
    assert [tool.id for tool in office.tools(tags=["mail"])] == ["inbox/read_mail"]


def test_several_queries_are_one_search(office: toolscout.Catalog) -> None:
    results = office.search(["send an email", "add an event"], limit=2)
    assert sorted(results.ids) == ["office/create_event", "office/send_email"]
    by_id = {hit.id: hit.matched_queries for hit in results}
    assert 0 in by_id["office/send_email"]
    assert 1 in by_id["office/create_event"]


def test_a_catalog_reads_like_a_mapping(office: toolscout.Catalog) -> None:
    assert len(office) == 3
    assert office
    assert "office/send_email" in office
    assert "office/nothing" not in office
    assert 7 not in office
    assert office["office/send_email"].title is None
    assert office.get("office/nothing") is None
    with pytest.raises(KeyError, match="office/nothing"):
        office["office/nothing"]
    ids = [tool.id for tool in office]
    assert ids == ["office/create_event", "office/create_issue", "office/send_email"]
    iterator = iter(office)
    office.remove(ids)
    # The iteration has the catalog as it was.
    assert [tool.id for tool in iterator] == ids
    assert list(iterator) == []
    assert list(office) == []


def test_changes_say_what_changed(office: toolscout.Catalog) -> None:
    changes = office.add(
        [OFFICE[0] | {"description": "New."}, tool("new"), OFFICE[1]], server="office"
    )
    assert (changes.added, changes.changed, changes.unchanged) == (
        ["office/new"],
        ["office/send_email"],
        1,
    )
    assert changes.generation == office.generation
    removed = office.remove(["office/new", "office/nothing"])
    assert (removed.removed, removed.added) == (["office/new"], [])
    synced = office.sync("office", [OFFICE[0]])
    assert (synced.removed, synced.changed) == (
        ["office/create_event", "office/create_issue"],
        ["office/send_email"],
    )


def test_stats_count(office: toolscout.Catalog) -> None:
    stats = office.stats()
    assert (stats["tools"], stats["servers"]) == (3, {"office": 3})
    assert stats["generation"] == office.generation
    assert stats["disk_bytes"] > 0
    assert stats["pending_embeddings"] == 0
    assert all(count > 0 for count in stats["vectors"].values())


def test_embedding_reports_progress_and_ends_when_it_is_told() -> None:
    with toolscout.Catalog.temporary() as catalog:
        seen: list[tuple[int, int]] = []
        changes = catalog.add(many(150), embed=False)
        assert changes.embedded == 0
        pending = catalog.pending_embeddings
        assert pending > 0

        def stop(done: int, total: int) -> None:
            seen.append((done, total))
            if done > 0:
                raise RuntimeError("enough")

        with pytest.raises(RuntimeError, match="enough"):
            catalog.embed(stop)
        assert seen[0] == (0, seen[0][1])
        # What was embedded is kept.
        assert 0 < catalog.embed() < seen[0][1]
        assert catalog.pending_embeddings == 0
        assert catalog.search("create an invoice").degraded is None
        with pytest.raises(TypeError, match="progress must be callable"):
            catalog.embed(7)  # type: ignore[arg-type]


def test_an_evaluation_has_figures(office: toolscout.Catalog, tmp_path: Path) -> None:
    queries = [
        {"id": "1", "query": "report a bug", "relevant": ["office/create_issue"]},
        {"id": "2", "query": "write a mail", "relevant": ["office/send_email"]},
        {"id": "3", "query": "enter a date", "relevant": ["office/create_event"]},
    ]
    evaluation = office.evaluate(queries)
    assert evaluation["recall@3"].mean == 1
    assert 0 < float(evaluation["ndcg@1"]) <= 1
    assert evaluation.metrics["ndcg@1"].low <= evaluation["ndcg@1"].mean
    assert evaluation.queries[0]["answers"][0]["hits"][0] == "office/create_issue"
    assert evaluation.latency["queries"] == 3
    assert "ndcg@1" in repr(evaluation)
    assert "<table>" in evaluation._repr_html_()  # type: ignore[attr-defined]
    file = tmp_path / "queries.jsonl"
    file.write_text("\n".join(json.dumps(query) for query in queries))
    again = office.evaluate(file)
    assert again["ndcg@3"].mean == evaluation["ndcg@3"].mean
    assert office.evaluate(str(file), mode="lexical").queries[0]["relevant"] == [
        "office/create_issue"
    ]
    with pytest.raises(toolscout.Error, match="office/nothing") as raised:
        office.evaluate([{"query": "x", "relevant": ["office/nothing"]}])
    assert raised.value.code == "invalid_queries"
    with pytest.raises(KeyError):
        evaluation["ndcg@7"]


def test_objects_show_well(office: toolscout.Catalog) -> None:
    results = office.search("<b>mail</b>", limit=1)
    assert repr(results[0]).startswith("Hit(id='office/send_email', score=")
    assert repr(results).startswith("Results('<b>mail</b>': [Hit(")
    html = results._repr_html_()  # type: ignore[attr-defined]
    assert "office/send_email" in html
    assert "<b>" not in html
    assert repr(office["office/send_email"]).startswith(
        "Tool(id='office/send_email', description='"
    )
    assert ", tools=3)" in repr(office)
    assert repr(office.add(OFFICE[0], server="office")).startswith("Changes(added=0, changed=0")
    assert office["office/send_email"] == results[0].tool
    assert len({office["office/send_email"], results[0].tool}) == 1


def test_the_same_in_asyncio(tmp_path: Path) -> None:
    async def work() -> None:
        async with await toolscout.AsyncCatalog.open(tmp_path, embedder="table") as catalog:
            changes = await catalog.add(many(600), server="many")
            assert len(changes.added) == 600
            answers = await asyncio.gather(*(catalog.search("create an invoice") for _ in range(8)))
            assert {answer.ids[0] for answer in answers} == {"many/create_invoice"}
            listed = [tool.id async for tool in catalog.tools(servers="many")]
            assert listed == sorted(listed)
            assert len(listed) == 600
            assert (await catalog.stats())["tools"] == 600
            assert await catalog.get("many/nothing") is None
            assert repr(catalog).startswith("AsyncCatalog(")
            assert toolscout.Toolbox(catalog).names == []
        assert catalog.closed
        async with await toolscout.AsyncCatalog.temporary(embedder="none") as other:
            await other.add(OFFICE)
            assert (await other.remove("send_email")).removed == ["send_email"]
            with pytest.raises(toolscout.Error, match="closed"):
                await catalog.stats()

    asyncio.run(work())
    sync = {name for name in vars(toolscout.Catalog) if not name.startswith("_")}
    left = sync - {name for name in vars(toolscout.AsyncCatalog) if not name.startswith("_")}
    assert left == {"eval", "generation", "pending_embeddings"}


def test_a_catalog_stays(tmp_path: Path) -> None:
    with toolscout.Catalog.open(tmp_path, name="work", embedder="table") as catalog:
        catalog.add(OFFICE)
        generation = catalog.generation
        assert catalog.name == "work"
        assert Path(catalog.path) == tmp_path / "catalogs" / "work"
    with toolscout.Catalog.open(tmp_path, name="work", create=False) as catalog:
        assert (len(catalog), catalog.generation) == (3, generation)
    with pytest.raises(toolscout.Error, match='no catalog "nothing"') as raised:
        toolscout.Catalog.open(tmp_path, name="nothing", create=False)
    assert raised.value.code == "unknown_catalog"


def test_a_catalog_opened_twice_has_one_state(tmp_path: Path) -> None:
    with (
        toolscout.Catalog.open(tmp_path, embedder="table") as one,
        toolscout.Catalog.open(tmp_path, embedder="table") as other,
    ):
        one.add(OFFICE)
        assert len(other) == 3
        other.add(tool("another"))
        assert "another" in one.search("another").ids


def test_a_temporary_catalog_leaves_nothing() -> None:
    with toolscout.Catalog.temporary(embedder="none") as catalog:
        catalog.add(OFFICE)
        path = Path(catalog.path)
        assert path.is_dir()
        assert catalog.search("email").mode == "lexical"
        assert catalog.search("email").degraded is None
    assert not path.exists()
    assert catalog.closed
