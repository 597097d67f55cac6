"""The adapter for langgraph-bigtool, which needs earlier versions of LangGraph than LangChain."""

from __future__ import annotations

from typing import Any

import pytest
from played import WANTED, Conversation, functions, played_chat_model

pytest.importorskip("langgraph_bigtool")


def test_langgraph_bigtool() -> None:
    from langchain_core.tools import StructuredTool
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph_bigtool import create_agent  # type: ignore[import-not-found]

    from toolscout.adapters.langgraph_bigtool import retrieve_tools_function

    seen = Conversation("retrieve_tools")
    registry = {
        f"tool-{number}": StructuredTool.from_function(function)
        for number, function in enumerate(functions())
    }
    retrieve = retrieve_tools_function(registry, embedder="table")
    graph = create_agent(
        played_chat_model(seen), registry, retrieve_tools_function=retrieve
    ).compile(checkpointer=InMemorySaver())
    thread: Any = {"configurable": {"thread_id": "1"}}
    for question in ("Export my playlist 7.", "Thanks.", "And once more."):
        state = graph.invoke({"messages": [{"role": "user", "content": question}]}, thread)
    seen.check()
    assert [m.content for m in state["messages"] if m.type == "tool"][-1] == f"{WANTED} of 7"


def test_the_example() -> None:
    from adapters import langgraph_bigtool
    from langchain_core.tools import StructuredTool

    registry = {
        function.__name__: StructuredTool.from_function(function) for function in functions()[:20]
    }
    agent = langgraph_bigtool(played_chat_model(Conversation("retrieve_tools")), registry)
    assert "select_tools" in agent.nodes
