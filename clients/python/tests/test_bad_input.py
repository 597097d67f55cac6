"""What is wrong is named, and nothing else happens."""

from __future__ import annotations

import itertools
import json
import math
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import OFFICE, many, run_python, tool

import toolscout


def code_of(raised: pytest.ExceptionInfo[toolscout.Error]) -> str:
    return raised.value.code


@pytest.mark.parametrize(
    ("tools", "code", "text"),
    [
        ([{"description": "no name"}], "invalid_tool", "item 1"),
        ([tool("a"), {"name": ""}], "invalid_tool", "item 2"),
        ([tool("a"), tool("a")], "invalid_tool", "a"),
        ([tool("a"), 7], "invalid_tool", "item 2"),
        ([["a"]], "invalid_tool", "item 1"),
        ("{", "unreadable_tools", "tools"),
        ("", "unreadable_tools", "empty"),
        ("no/such/file.json", "unreadable_tools", "no such file"),
        ([{"name": "a", "description": math.nan}], "unreadable_tools", "items 1 to 1"),
        ({"name": "a" * 600}, "invalid_tool", "512"),
        ({"mcpServers": {"files": {"command": "x"}}}, "unreadable_tools", "files"),
        ([{"name": "a\ud800"}], "invalid_tool", "item 1"),
    ],
)  # fmt: skip
def test_tools_that_are_none_are_named(
    office: toolscout.Catalog, tools: Any, code: str, text: str
) -> None:
    with pytest.raises(toolscout.Error) as raised:
        office.add(tools)
    assert (code_of(raised), text in str(raised.value)) == (code, True), str(raised.value)
    assert len(office) == 3
    office.add(tool("later"))


@pytest.mark.parametrize("tools", [None, 7, 1.5, object(), [object()], [{"name": {1, 2}}], [b"x"]])
def test_wrong_types_are_type_errors(office: toolscout.Catalog, tools: Any) -> None:
    with pytest.raises(TypeError):
        office.add(tools)
    assert len(office) == 3


def test_invalid_items_can_be_left_out(catalog: toolscout.Catalog) -> None:
    changes = catalog.add([tool("a"), {"nome": "b"}, tool("c")], skip_invalid=True)
    assert changes.added == ["a", "c"]
    assert [skipped.position for skipped in changes.skipped] == [2]
    assert "item 2" in changes.skipped[0].error
    assert "Skipped(position=2" in repr(changes.skipped[0])


def test_a_file_that_is_not_there_is_no_invalid_item(catalog: toolscout.Catalog) -> None:
    for skip_invalid in (False, True):
        with pytest.raises(toolscout.Error, match=r"nope.json: no such file") as raised:
            catalog.add("nope.json", skip_invalid=skip_invalid)
        assert code_of(raised) == "unreadable_tools"


def test_a_relative_folder_stays_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with toolscout.Catalog.open("here", embedder="none") as catalog:
        monkeypatch.chdir("/")
        catalog.add([tool("a")])
        assert catalog.search("a").ids == ["a"]
        assert catalog.path.is_absolute()


def test_positions_and_ids_are_those_of_the_whole_input(catalog: toolscout.Catalog) -> None:
    tools = many(1500)
    with pytest.raises(toolscout.Error, match="item 1251:") as raised:
        catalog.add([*tools[:1250], {"nome": "x"}, *tools[1250:]])
    assert code_of(raised) == "invalid_tool"
    with pytest.raises(toolscout.Error, match="occurs twice") as raised:
        catalog.add([*tools, tools[0]])
    assert code_of(raised) == "invalid_tool"
    assert len(catalog) == 0


def test_an_endless_list_is_refused_in_bounded_memory() -> None:
    code = """
import itertools, resource, toolscout
with toolscout.Catalog.temporary(embedder="none") as catalog:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        catalog.add(itertools.repeat(None, 10_000_000))
    except toolscout.Error as error:
        print(error.code, len(catalog))
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print((after - before) // 1024 < 100)
"""
    done = run_python(code)
    assert done.stdout.split() == ["invalid_tool", "0", "True"], done.stderr


def test_a_list_that_raises_adds_nothing(catalog: toolscout.Catalog) -> None:
    def tools() -> Iterator[dict[str, Any]]:
        yield from many(1200)
        raise LookupError("the source ended")

    with pytest.raises(LookupError, match="the source ended"):
        catalog.add(tools())
    assert len(catalog) == 0
    cycle: dict[str, Any] = tool("cycle")
    cycle["inputSchema"]["properties"]["self"] = cycle
    with pytest.raises(toolscout.Error, match="Circular"):
        catalog.add(cycle)
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"properties": deep}
    with pytest.raises(RecursionError):
        catalog.add({"name": "deep", "inputSchema": deep})
    while deep:
        deep = deep["properties"]


def test_a_write_within_a_write_is_an_error(catalog: toolscout.Catalog) -> None:
    def tools() -> Iterator[dict[str, Any]]:
        yield tool("a")
        catalog.add(tool("b"))

    with pytest.raises(toolscout.Error, match="already") as raised:
        catalog.add(tools())
    assert code_of(raised) == "catalog_locked"
    catalog.add(tool("c"))


@pytest.mark.parametrize(
    ("query", "options", "text"),
    [
        ("", {}, "empty"),
        (["", " "], {}, "empty"),
        ([], {}, "empty"),
        (["x"] * 17, {}, "16"),
        ("x", {"limit": 0}, "limit is 0, it must be from 1 to 50"),
        ("x", {"limit": -1}, "limit is -1"),
        ("x", {"limit": 51}, "limit is 51"),
        ("x", {"mode": "fast"}, 'unknown mode "fast"'),
        ("x", {"fusion": "sum"}, "unknown fusion"),
        ("x", {"budget_ms": 0}, "above 0"),
        ("x", {"budget_ms": math.inf}, "above 0"),
        ("x", {"dense_weight": 2}, "from 0 to 1"),
        ("x", {"min_confidence": math.nan}, "from 0 to 1"),
        ("x", {"min_score": math.nan}, "a number"),
    ],
)
def test_queries_that_are_none_are_named(
    office: toolscout.Catalog, query: Any, options: dict[str, Any], text: str
) -> None:
    with pytest.raises(toolscout.Error) as raised:
        office.search(query, **options)
    assert code_of(raised) == "invalid_query"
    assert text in str(raised.value)


@pytest.mark.parametrize(
    ("query", "options"),
    [
        (7, {}),
        (None, {}),
        ({"q": "x"}, {}),
        (["x", 7], {}),
        ("x", {"limit": "5"}),
        ("x", {"limit": 1.5}),
        ("x", {"servers": 7}),
        ("x", {"read_only": "yes"}),
        ("x", {"mode": 7}),
        ("x", {"k": 5}),
    ],
)
def test_wrong_types_of_a_query_are_type_errors(
    office: toolscout.Catalog, query: Any, options: dict[str, Any]
) -> None:
    name = next(iter(options), "query")
    with pytest.raises(TypeError) as raised:
        office.search(query, **options)
    # The notes of an exception are not in its text, and Python 3.10 has none.
    assert name in str(raised.value)


def test_arguments_of_wrong_types_are_named(office: toolscout.Catalog, tmp_path: Path) -> None:
    catalog: Any = office
    open_catalog: Any = toolscout.Catalog.open
    results: Any = office.search("email")
    evaluation: Any = office.evaluate([{"query": "email", "relevant": ["office/send_email"]}])
    uses: list[tuple[Callable[[], object], str]] = [
        (lambda: open_catalog(7), "path must be a str or os.PathLike, not int"),
        (lambda: open_catalog(tmp_path, name=7), "name must be a str, not int"),
        (lambda: open_catalog(tmp_path, embedder=7), "embedder must be a str, not int"),
        (lambda: open_catalog(tmp_path, config=7), "config must be a str or os.PathLike, not int"),
        (lambda: open_catalog(tmp_path, create=7), "create must be a bool, not int"),
        (lambda: catalog.add([], server=7), "server must be a str, not int"),
        (lambda: catalog.add([], skip_invalid=7), "skip_invalid must be a bool, not int"),
        (lambda: catalog.add([], embed="no"), "embed must be a bool, not str"),
        (
            lambda: catalog.add([], progress=7),
            "progress must be callable with (done, total), not int",
        ),
        (lambda: catalog.sync(7, []), "server must be a str, not int"),
        (lambda: catalog.sync("office", 7), "tools must be a dict,"),
        (lambda: catalog.remove(7), "ids must be a str or a list of str, not int"),
        (lambda: catalog.search("x", limit=1.5), "limit must be an int, not float: 1.5"),
        (lambda: catalog.search("x", limit="5"), "limit must be an int, not str: '5'"),
        (lambda: catalog.search("x", budget_ms="5"), "budget_ms must be a float, not str"),
        (lambda: catalog.search("x", fusion=7), "fusion must be a str, not int"),
        (lambda: catalog.evaluate([], mode=7), "mode must be a str, not int"),
        (lambda: catalog.tools(tags=7), "tags must be a str or a list of str, not int"),
        (lambda: catalog.get(7), "id must be a str, not int"),
        (lambda: catalog[7], "id must be a str, not int"),
        (lambda: results.tools(7), "format must be a str, not int"),
        (lambda: results.tools("mcp", max_tokens="5"), "max_tokens must be an int, not str"),
        (lambda: results[0].tool.to(7), "format must be a str, not int"),
        (lambda: evaluation[7], "metric must be a str, not int"),
    ]
    for use, text in uses:
        with pytest.raises(TypeError) as raised:
            use()
        assert str(raised.value).startswith(text)


def test_long_queries_and_odd_texts_are_searched(office: toolscout.Catalog) -> None:
    for text in ("mail " * 100_000, "\0", "\u202e", "📧", "a" * 100_000):
        assert office.search(text).mode == "hybrid"
    with pytest.raises(UnicodeEncodeError):
        office.search("\ud800")
    with pytest.raises(toolscout.Error) as raised:
        office.search("email").tools("xml")  # type: ignore[call-overload]
    assert code_of(raised) == "invalid_query"
    with pytest.raises(toolscout.Error, match="max_tokens is 1"):
        office.search("email").tools("openai", max_tokens=1)


def test_a_closed_catalog_says_so(office: toolscout.Catalog) -> None:
    iterator = iter(office)
    office.close()
    office.close()
    uses: list[Callable[[], object]] = [
        lambda: office.search("x"),
        lambda: office.add(OFFICE),
        lambda: len(office),
        lambda: office.stats(),
        lambda: iter(office),
        lambda: office.embed(),
        lambda: office.__enter__(),
    ]
    for use in uses:
        with pytest.raises(toolscout.Error, match="closed") as raised:
            use()
        assert code_of(raised) == "catalog_closed"
    assert repr(office).endswith(", closed)")
    # What was begun before has what it needs.
    assert len(list(iterator)) == 3


def test_settings_that_are_wrong_are_named(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("[search]\nk = 500\n")
    with pytest.raises(toolscout.Error, match=r"search\.k is 500") as raised:
        toolscout.Catalog.open(tmp_path / "data", config=file)
    assert code_of(raised) == "invalid_settings"
    with pytest.raises(toolscout.Error, match='unknown embedder "nothing"'):
        toolscout.Catalog.open(tmp_path / "data", embedder="nothing")
    with pytest.raises(toolscout.Error) as raised:
        toolscout.Catalog.open(tmp_path / "data", name="../x")
    assert code_of(raised) == "invalid_catalog_name"
    with pytest.raises(TypeError):
        toolscout.Catalog.open(7)  # type: ignore[arg-type]
    make: Any = toolscout.Catalog
    with pytest.raises(TypeError):
        make()
    not_a_folder = tmp_path / "file"
    not_a_folder.write_text("")
    with pytest.raises(toolscout.Error) as raised:
        toolscout.Catalog.open(not_a_folder)
    assert code_of(raised) == "io_failed"


def test_a_damaged_catalog_is_named(tmp_path: Path) -> None:
    with toolscout.Catalog.open(tmp_path, embedder="table") as catalog:
        catalog.add(OFFICE)
        database = Path(catalog.path) / "tools.db"
    database.write_bytes(b"not a database" * 1000)
    with pytest.raises(toolscout.Error, match=r"tools\.db cannot be used") as raised:
        toolscout.Catalog.open(tmp_path)
    assert code_of(raised) == "store_unusable"


def test_catalogs_are_not_pickled_and_errors_are(office: toolscout.Catalog) -> None:
    with pytest.raises(TypeError):
        pickle.dumps(office)
    error = pickle.loads(pickle.dumps(toolscout.Error("a", "b")))
    assert (error.code, str(error)) == ("a", "b")
    answer = toolscout.ApiError("a", "b", status=404, request_id="r")
    again = pickle.loads(pickle.dumps(answer))
    assert (again.code, again.status, again.request_id) == ("a", 404, "r")


def test_a_forked_process_is_told_what_to_do() -> None:
    code = """
import os, toolscout
catalog = toolscout.Catalog.temporary(embedder="table")
catalog.add({"name": "a", "description": "b"})
path = catalog.path
child = os.fork()
if child == 0:
    uses = lambda: catalog.search("b"), lambda: len(catalog), toolscout.Catalog.temporary
    for use in uses:
        try:
            use()
            print("no error")
        except toolscout.Error as error:
            print(error.code, "spawn" in str(error))
    del catalog
    raise SystemExit(0)
print(os.waitpid(child, 0)[1], flush=True)
print(catalog.search("b").ids, path.exists())
"""
    done = run_python(code)
    assert done.stdout.splitlines() == [*["forked True"] * 3, "0", "['a'] True"], done.stderr


def test_a_worker_that_is_spawned_opens_its_own(tmp_path: Path) -> None:
    with toolscout.Catalog.open(tmp_path, embedder="table") as catalog:
        catalog.add(OFFICE)
        script = tmp_path / "script.py"
        script.write_text(
            "import multiprocessing, sys, toolscout\n"
            "def find(query):\n"
            "    with toolscout.Catalog.open(sys.argv[1], embedder='table') as catalog:\n"
            "        return catalog.search(query).ids[0]\n"
            "if __name__ == '__main__':\n"
            "    with multiprocessing.get_context('spawn').Pool(2) as pool:\n"
            "        print(pool.map(find, ['send mail', 'open an issue']))\n"
        )
        done = subprocess.run(
            [sys.executable, script, tmp_path],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.stdout.strip() == "['send_email', 'create_issue']", done.stderr


def test_ctrl_c_ends_embedding_and_keeps_what_was_embedded() -> None:
    code = """
import os, signal, sys, toolscout
sys.path.insert(0, ".")
from conftest import many
with toolscout.Catalog.temporary() as catalog:
    catalog.add(many(400), embed=False)
    all = []
    def progress(done, total):
        all.append(total)
        if done:
            os.kill(os.getpid(), signal.SIGINT)
    try:
        catalog.embed(progress)
        print("not interrupted")
    except KeyboardInterrupt:
        print("interrupted", 0 < catalog.embed() < all[0])
    print(len(catalog), catalog.search("create an invoice").ids[0])
"""
    done = run_python(code)
    assert done.stdout.splitlines() == ["interrupted True", "400 create_invoice"], done.stderr


def test_ctrl_c_while_adding_adds_nothing() -> None:
    code = """
import os, signal, sys, toolscout
sys.path.insert(0, ".")
from conftest import many
def tools():
    for number, tool in enumerate(many(3000)):
        if number == 2500:
            os.kill(os.getpid(), signal.SIGINT)
        yield tool
with toolscout.Catalog.temporary(embedder="none") as catalog:
    try:
        catalog.add(tools())
        print("not interrupted")
    except KeyboardInterrupt:
        print("interrupted", len(catalog))
"""
    done = run_python(code)
    assert done.stdout.split() == ["interrupted", "0"], done.stderr


@pytest.mark.parametrize("ends", ["", "sys.exit(3)", "raise SystemExit(3)"])
def test_an_interpreter_ends_while_searches_run(ends: str) -> None:
    code = f"""
import sys, threading, time, toolscout
sys.path.insert(0, ".")
from conftest import many
catalog = toolscout.Catalog.temporary(embedder="table")
catalog.add(many(500))
def search():
    while True:
        catalog.search("create an invoice", limit=20)
for _ in range(4):
    threading.Thread(target=search, daemon=True).start()
time.sleep(0.2)
{ends}
"""
    done = run_python(code)
    assert (done.returncode, done.stderr) == (3 if ends else 0, "")


def test_threads_search_while_another_writes(catalog: toolscout.Catalog) -> None:
    catalog.add(many(200))
    problems: list[BaseException] = []

    def work(action: Any) -> None:
        try:
            for number in range(20):
                action(number)
        except BaseException as problem:
            problems.append(problem)

    actions = [
        lambda _: catalog.search("delete a playlist"),
        lambda _: catalog.search("delete a playlist", explain=True).to_dict(),
        lambda number: catalog.add(tool(f"one_{number}")),
        lambda number: catalog.add(tool(f"other_{number}")),
        lambda _: list(catalog),
    ]
    threads = [threading.Thread(target=work, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert len(catalog) == 240


def test_searches_do_not_keep_memory(office: toolscout.Catalog) -> None:
    searches = int(os.environ.get("TOOLSCOUT_PYTHON_SEARCHES", "2000"))
    texts = itertools.cycle(["send a mail", "report a bug", "enter a date", "nothing of this"])

    def resident() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def work(count: int) -> None:
        for text in itertools.islice(texts, count):
            results = office.search(text, explain=True)
            results.to_dict()
            results.tools("openai")
            repr(results)
            with pytest.raises(toolscout.Error):
                office.search("")

    work(500)
    before = resident()
    work(searches)
    grown = resident() - before
    assert grown < 8 << 20, f"{grown} bytes more after {searches} searches"


def test_json_of_answers_has_no_artefacts(office: toolscout.Catalog) -> None:
    answer = office.search("report a bug", explain=True).to_dict()
    text = json.dumps(answer)
    assert json.loads(text) == answer
    # Single floats are written as such: 0.35 and not 0.3499999940395355.
    assert len(str(answer["hits"][0]["score"])) <= 12
    assert office.search("report a bug")[0].score == answer["hits"][0]["score"]
