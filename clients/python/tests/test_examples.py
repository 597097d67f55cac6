"""The quick start and the notebook, run as people run them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import adapters
import pytest
import scripted
from played import Conversation, functions, played_chat_model

EXAMPLES = Path(__file__).parent.parent / "examples"


def test_the_quick_start() -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLES / "quick_start.py"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    lines = done.stdout.splitlines()
    assert lines[0].startswith("Changes(added=3"), done.stderr
    assert "office/send_email" in lines[1]
    assert lines[3:] == ["office__send_email", lines[4]]
    assert lines[4].startswith("Figure(1.0000")


def test_the_agent() -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLES / "agent.py"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    lines = done.stdout.splitlines()
    assert lines[:3] == [
        "2002 tools",
        "Done: sent 'Hello' to ada@example.com",
        "Done: {'id': '7', 'status': 'shipped'}",
    ], done.stderr
    assert lines[3].startswith("Toolbox(tools=")
    # The whole agent, without the played model.
    text = (EXAMPLES / "agent.py").read_text()
    start = text.index("def ask(")
    assert len(text[start : text.index("def played(")].splitlines()) <= 40


def test_the_tutorial() -> None:
    cells = run_notebook("agent.ipynb")
    assert shown(cells[1], "text/plain") == "2002"
    assert "The address of the recipient." in shown(cells[2], "text/plain")
    answers = [shown(cell, "text/plain") for cell in cells[5:7]]
    assert "sent" in answers[0]
    assert "shipped" in answers[1]
    names = shown(cells[7], "text/plain")
    assert names.startswith("['tool_search',")
    assert "shop__showOrder" in names
    assert shown(cells[8], "text/plain").startswith("Toolbox(tools=")


def test_the_doubles() -> None:
    scripted.test_best_tool()


def test_the_client(server: str) -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLES / "http_client.py", server],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout.splitlines()[0] == "office/send_email", done.stderr
    assert done.stdout.splitlines()[-2:] == ["The mail is on its way.", "answered"], done.stdout


@pytest.mark.parametrize(
    "name", ["pydantic_ai", "langchain", "llama_index", "openai_agents", "fastmcp"]
)
def test_agents_of_frameworks(name: str) -> None:
    make = getattr(adapters, name)
    few = functions()[:20]
    if name == "pydantic_ai":
        agent = make("test", few)
        assert "Done" not in agent.run_sync("Export a playlist.").output
    elif name == "langchain":
        from langchain_core.tools import StructuredTool

        tools = [StructuredTool.from_function(function) for function in few]
        assert make(played_chat_model(Conversation("tool_search")), tools).nodes
    elif name == "llama_index":
        from llama_index.core.llms.mock import MockFunctionCallingLLM
        from llama_index.core.tools import FunctionTool

        found = [FunctionTool.from_defaults(function) for function in few]
        retriever = make(MockFunctionCallingLLM(), found).tool_retriever
        assert retriever.retrieve("copy an invoice")[0].metadata.name == "copy_invoice"
    elif name == "openai_agents":
        from agents import function_tool

        agent = make(None, [function_tool(function) for function in few])
        assert [tool.name for tool in asyncio.run(agent.get_all_tools(None))] == ["tool_search"]
    else:
        listed = asyncio.run(make(few).list_tools())
        assert {tool.name for tool in listed} == {"search_tools", "call_tool"}


def run_notebook(name: str) -> list[Any]:
    """Run a notebook, and return its cells of code."""
    nbformat = pytest.importorskip("nbformat")
    from nbclient import NotebookClient

    notebook = nbformat.read(EXAMPLES / name, as_version=4)
    NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def shown(cell: Any, kind: str) -> str:
    """Return what a cell shows."""
    return str(cell.outputs[0]["data"][kind])


def test_the_notebook() -> None:
    cells = run_notebook("quick_start.ipynb")
    assert shown(cells[0], "text/plain").startswith("Changes(added=3")
    assert "office/send_email" in shown(cells[1], "text/html")
    assert "<table>" in shown(cells[1], "text/html")
    assert "office__send_email" in shown(cells[3], "text/plain")
    assert "recall@1" in shown(cells[4], "text/html")
