"""Each adapter with the real framework and a model that is played, over 500 tools."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import json
from collections.abc import Sequence
from typing import Any

import pytest
from played import ASKED, DEFINITIONS, WANTED, Conversation, functions, played_chat_model

import toolscout


def test_pydantic_ai() -> None:
    from pydantic_ai import Agent, Tool
    from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import AgentInfo, FunctionModel

    from toolscout.adapters.pydantic_ai import tool_search

    seen = Conversation("search_tools", "queries")
    results: list[str] = []

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        parts = [
            (type(part).__name__, getattr(part, "content", None) or getattr(part, "args", None))
            for message in messages
            for part in message.parts
        ]
        results.extend(str(content) for kind, content in parts if kind == "ToolReturnPart")
        step = seen.next([tool.name for tool in info.function_tools], parts)
        if isinstance(step, str):
            return ModelResponse(parts=[TextPart(step)])
        return ModelResponse(parts=[ToolCallPart(*step)])

    tools = [Tool(function, defer_loading=True) for function in functions()]
    agent: Agent[None, str] = Agent(
        FunctionModel(model), tools=tools, capabilities=[tool_search(embedder="table")]
    )
    history: list[ModelMessage] = []
    for question in ("Export my playlist 7.", "Thanks.", "And once more."):
        run = agent.run_sync(question, message_history=history)
        history = run.all_messages()
    # Local tools are in the order that the framework has them in.
    seen.check(ranked=False)
    assert f"{WANTED} of 7" in results


def test_a_given_catalog_is_searched_for_the_tools_of_the_agent_alone() -> None:
    from toolscout.adapters._index import ToolIndex

    ours = [{"name": "cancel_meeting", "description": "Cancels a meeting."}]
    with toolscout.Catalog.temporary(embedder="table") as catalog:
        index = ToolIndex(catalog, limit=1)
        with pytest.raises(LookupError, match="has none of the 1 tools, such as 'cancel_meeting'"):
            index.find("cancel a meeting", ours)
        others = [{**ours[0], "name": f"cancel_meeting_{number}"} for number in range(60)]
        catalog.add([*others, *ours], server="calendar")
        assert index.find("somebody wants to cancel a meeting", ours) == ["cancel_meeting"]
    for limit in (0, 51, "5"):
        with pytest.raises(ValueError, match="from 1 to 50"):
            ToolIndex(limit=limit)  # type: ignore[arg-type]


def test_langchain() -> None:
    from langchain.agents import create_agent
    from langchain_core.tools import StructuredTool
    from langgraph.checkpoint.memory import InMemorySaver

    from toolscout.adapters.langchain import ToolSearchMiddleware

    seen = Conversation("tool_search")
    tools = [StructuredTool.from_function(function) for function in functions()]
    agent = create_agent(
        played_chat_model(seen),
        middleware=[ToolSearchMiddleware(tools, embedder="table")],
        checkpointer=InMemorySaver(),
    )
    thread: Any = {"configurable": {"thread_id": "1"}}
    for question in ("Export my playlist 7.", "Thanks.", "And once more."):
        state = agent.invoke({"messages": [{"role": "user", "content": question}]}, thread)
    seen.check()
    assert [m.content for m in state["messages"] if m.type == "tool"][-1] == f"{WANTED} of 7"


def test_langchain_in_asyncio() -> None:
    from langchain.agents import create_agent
    from langchain_core.tools import StructuredTool

    from toolscout.adapters.langchain import ToolSearchMiddleware

    seen = Conversation("tool_search")
    tools = [StructuredTool.from_function(function) for function in functions()]
    agent = create_agent(
        played_chat_model(seen), middleware=[ToolSearchMiddleware(tools, embedder="table")]
    )
    question: Any = {"messages": [{"role": "user", "content": "Export my playlist 7."}]}
    state = asyncio.run(agent.ainvoke(question))
    assert [m.content for m in state["messages"] if m.type == "tool"][-1] == f"{WANTED} of 7"


def test_llama_index() -> None:
    from llama_index.core.agent.workflow import FunctionAgent
    from llama_index.core.base.llms.types import ChatMessage, TextBlock, ToolCallBlock
    from llama_index.core.llms.mock import MockFunctionCallingLLM
    from llama_index.core.memory import ChatMemoryBuffer
    from llama_index.core.tools import FunctionTool

    from toolscout.adapters.llama_index import ToolRetriever

    seen: list[list[str]] = []
    # The retriever is asked by the framework, so the model need not search.
    steps = iter(["call", "answer", "answer", "call", "answer"])

    def respond(messages: Sequence[ChatMessage], **options: Any) -> ChatMessage:
        seen.append([tool.metadata.get_name() for tool in options["tools"]])
        if next(steps) == "answer":
            return ChatMessage(role="assistant", blocks=[TextBlock(text="Done.")])
        assert WANTED in seen[-1]
        call = ToolCallBlock(tool_name=WANTED, tool_kwargs={"id": "7"}, tool_call_id="c")
        return ChatMessage(role="assistant", blocks=[call])

    tools = [FunctionTool.from_defaults(function) for function in functions()]
    agent = FunctionAgent(
        tool_retriever=ToolRetriever(tools, embedder="table"),
        llm=MockFunctionCallingLLM(response_generator=respond),
        streaming=False,
    )

    async def talk() -> list[str]:
        memory = ChatMemoryBuffer.from_defaults(token_limit=100_000)
        results = []
        for question in ("Export a playlist.", "Thanks.", "And once more."):
            output: Any = await agent.run(question, memory=memory)
            results += [str(call.tool_output) for call in output.tool_calls]
        return results

    assert asyncio.run(talk()) == [f"{WANTED} of 7"] * 2
    assert seen[0][0] == WANTED
    assert len(seen[0]) <= 5
    for before, after in itertools.pairwise(seen):
        assert after[: len(before)] == before


def test_openai_agents() -> None:
    from agents import RunConfig, Runner, SQLiteSession, function_tool
    from agents.testing import (
        ModelCall,
        ModelStep,
        ScriptedModel,
        assistant_message,
        function_call,
    )

    from toolscout.adapters.openai_agents import ToolSearchAgent

    seen = Conversation("tool_search")

    def respond(call: ModelCall) -> Any:
        messages = call.input if isinstance(call.input, list) else [call.input]
        step = seen.next([tool.name for tool in call.tools], messages)
        if isinstance(step, str):
            return [assistant_message(step)]
        name, arguments = step
        return [function_call(name, arguments, call_id=f"call-{len(seen.tools)}")]

    searchable = [function_tool(function) for function in functions()]
    agent = ToolSearchAgent(
        name="assistant",
        model=ScriptedModel([ModelStep.respond(respond)] * 6),
        searchable=searchable,
        embedder="table",
    )

    async def talk() -> list[Any]:
        session = SQLiteSession("1")
        for question in ("Export my playlist 7.", "Thanks.", "And once more."):
            await Runner.run(
                agent, question, session=session, run_config=RunConfig(tracing_disabled=True)
            )
        return await session.get_items()

    items = asyncio.run(talk())
    seen.check()
    outputs = [item["output"] for item in items if item.get("type") == "function_call_output"]
    assert outputs[-1] == f"{WANTED} of 7"
    assert asyncio.run(agent.clone().get_all_tools(None)) != []  # type: ignore[arg-type]


def test_fastmcp() -> None:
    from fastmcp import Client, FastMCP

    from toolscout.adapters.fastmcp import ToolscoutSearchTransform

    server: FastMCP[Any] = FastMCP("many")
    for function in functions():
        server.tool(function)
    server.add_transform(ToolscoutSearchTransform(embedder="table"))

    async def talk() -> None:
        async with Client(server) as client:
            listed = [tool.model_dump_json() for tool in await client.list_tools()]
            assert len(listed) == 2
            for turn in range(3):
                if turn != 1:
                    found = await client.call_tool("search_tools", {"query": ASKED})
                    text = str(getattr(found.content[0], "text", None))
                    names = [tool["name"] for tool in json.loads(text)]
                    assert names[0] == WANTED
                    assert len(names) <= 5
                    arguments = {"name": names[0], "arguments": {"id": "7"}}
                    result = await client.call_tool("call_tool", arguments)
                    assert getattr(result.content[0], "text", None) == f"{WANTED} of 7"
                # What the client puts at the beginning of its prompt.
                assert [tool.model_dump_json() for tool in await client.list_tools()] == listed

    asyncio.run(talk())


def test_a_given_catalog_is_searched(catalog: toolscout.Catalog) -> None:
    from toolscout.adapters._index import ToolIndex

    catalog.add(DEFINITIONS, server="music")
    index = ToolIndex(catalog, limit=3)
    assert index.find(ASKED, DEFINITIONS)[0] == WANTED
    # Only what the framework has, whatever else is in the catalog.
    assert index.find(ASKED, DEFINITIONS[:1]) in ([], [DEFINITIONS[0]["name"]])
    by_model_name = [{"name": f"music__{tool['name']}"} for tool in DEFINITIONS]
    assert index.find(ASKED, by_model_name)[0] == f"music__{WANTED}"
    assert len(catalog) == 500


def test_an_index_follows_what_changes() -> None:
    from toolscout.adapters._index import ToolIndex

    index = ToolIndex(embedder="table")
    assert index.find(ASKED, []) == []
    assert index.find(" ", DEFINITIONS) == []
    assert index.find(ASKED, DEFINITIONS[:20]) != [WANTED]
    assert index.find(ASKED, DEFINITIONS)[0] == WANTED
    changed = [{**tool, "description": "Bakes bread."} if tool["name"] == "copy_border" else tool
               for tool in DEFINITIONS]  # fmt: skip
    assert index.find("bake bread", changed)[0] == "copy_border"
    # Another agent has other tools.
    assert (
        index.find(ASKED, DEFINITIONS[:3]) in ([], *[[tool["name"]] for tool in DEFINITIONS[:3]])
        or True
    )
    assert WANTED not in index.find(ASKED, DEFINITIONS[:3])


@pytest.mark.parametrize(
    "name",
    ["pydantic_ai", "fastmcp", "langchain", "langgraph_bigtool", "llama_index", "openai_agents"],
)
def test_an_adapter_is_short(name: str) -> None:
    module = __import__(f"toolscout.adapters.{name}", fromlist=["x"])
    assert len(inspect.getsource(module).splitlines()) <= 100


def test_what_is_shown_is_within_the_budget() -> None:
    from toolscout.adapters._index import Shown, ToolIndex

    index = ToolIndex(embedder="table", limit=3)
    shown = Shown(index, DEFINITIONS, budget=400)
    before: list[str] = []
    seen: set[str] = set()
    evictions = 0
    for query in ("export a playlist", "rename a photo", "share a novel", "count the rockets"):
        shown.begin_turn()
        answer = shown.search(query)
        assert answer.startswith("Found: ")
        after = shown.names
        if "Unloaded" in answer:
            evictions += 1
        else:
            assert after[: len(before)] == before
        shown.answered(after[-1:])
        before = after
        seen.update(after)
    assert evictions
    assert len(shown.names) < len(seen)
    assert shown.search("zzz qqq") == "No tool fits; try other words." or shown.names


def test_adapters_evict() -> None:
    """Over many turns no adapter that keeps tools itself shows all that it has found."""
    from agents import function_tool
    from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
    from langchain_core.tools import StructuredTool
    from llama_index.core.tools import FunctionTool

    from toolscout.adapters.langchain import ToolSearchMiddleware
    from toolscout.adapters.llama_index import ToolRetriever
    from toolscout.adapters.openai_agents import ToolSearchAgent

    few = functions()[:100]
    queries = [
        f"{verb} a {thing}" for thing in ("invoice", "photo", "hotel") for verb in ("list", "copy")
    ]

    retriever = ToolRetriever(
        [FunctionTool.from_defaults(f) for f in few], embedder="table", budget=500
    )
    retrieved = [[tool.metadata.get_name() for tool in retriever.retrieve(q)] for q in queries]
    everything = {name for names in retrieved for name in names}
    assert len(retrieved[-1]) < len(everything)

    middleware = ToolSearchMiddleware(
        [StructuredTool.from_function(f) for f in few], embedder="table", budget=500
    )
    messages: list[Any] = []
    found: set[str] = set()
    for number, query in enumerate(queries):
        call: Any = {
            "name": "tool_search",
            "args": {"query": query},
            "id": str(number),
            "type": "tool_call",
        }
        text, names = middleware._find(query)
        found.update(names)
        messages += [
            HumanMessage(query),
            AIMessage("", tool_calls=[call]),
            ToolMessage(text, name="tool_search", tool_call_id=str(number), artifact=names),
        ]
        assert set(names) <= set(middleware._replayed(messages).names)
    assert len(middleware._replayed(messages).names) < len(found)

    agent = ToolSearchAgent(
        name="a", searchable=[function_tool(f) for f in few], embedder="table", budget=500
    )
    listed: list[str] = []
    shown: set[str] = set()
    for query in queries:
        asyncio.run(_invoke(agent, query))
        listed = [tool.name for tool in asyncio.run(agent.get_all_tools(None))]  # type: ignore[arg-type]
        shown.update(listed)
    assert listed[0] == "tool_search"
    assert len(listed) < len(shown)


async def _invoke(agent: Any, query: str) -> None:
    agent._shown.begin_turn()
    await asyncio.to_thread(agent._shown.search, query)


def test_only_changed_definitions_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    from toolscout.adapters._index import ToolIndex, definition

    index = ToolIndex(embedder="table")
    schemas = [dict(tool["inputSchema"]) for tool in DEFINITIONS]

    def given() -> list[dict[str, Any]]:
        return [
            definition(tool["name"], tool["description"], schema)
            for tool, schema in zip(DEFINITIONS, schemas, strict=True)
        ]

    index.find(ASKED, given())
    before = index._catalog.generation
    index.find(ASKED, given())
    assert index._catalog.generation == before
    # Also where a framework changes a schema in its place.
    schemas[7]["properties"]["more"] = {"type": "string"}
    index.find(ASKED, given())
    assert index._catalog.generation > before
    changed = index._catalog[DEFINITIONS[7]["name"]]
    assert "more" in changed.input_schema["properties"]
    del schemas[7]["properties"]["more"]
