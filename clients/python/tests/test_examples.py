"""The quick start and the notebook, run as people run them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import adapters
import pytest
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


def test_the_notebook() -> None:
    nbformat = pytest.importorskip("nbformat")
    from nbclient import NotebookClient

    notebook = nbformat.read(EXAMPLES / "quick_start.ipynb", as_version=4)
    NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]

    def shown(number: int, kind: str) -> str:
        outputs: list[Any] = cells[number].outputs
        return str(outputs[0]["data"][kind])

    assert shown(0, "text/plain").startswith("Changes(added=3")
    assert "office/send_email" in shown(1, "text/html")
    assert "<table>" in shown(1, "text/html")
    assert "office__send_email" in shown(3, "text/plain")
    assert "recall@1" in shown(4, "text/html")
