"""Agents of six frameworks that search their tools: each takes the framework's model and tools.

pip install "toolscout[langchain]"
"""

from __future__ import annotations

from typing import Any


def pydantic_ai(model: Any, functions: list[Any]) -> Any:
    """Pydantic AI: deferred tools, and the strategy that finds them."""
    from pydantic_ai import Agent, Tool

    from toolscout.adapters.pydantic_ai import tool_search

    tools = [Tool(function, defer_loading=True) for function in functions]
    return Agent(model, tools=tools, capabilities=[tool_search(limit=5)])


def langchain(model: Any, tools: list[Any]) -> Any:
    """LangChain: a middleware, which has the tools."""
    from langchain.agents import create_agent

    from toolscout.adapters.langchain import ToolSearchMiddleware

    return create_agent(model, middleware=[ToolSearchMiddleware(tools, limit=5)])


def langgraph_bigtool(model: Any, registry: dict[str, Any]) -> Any:
    """langgraph-bigtool: the function that retrieves tools of the registry."""
    from langgraph_bigtool import create_agent  # type: ignore[import-not-found]

    from toolscout.adapters.langgraph_bigtool import retrieve_tools_function

    retrieve = retrieve_tools_function(registry, limit=5)
    return create_agent(model, registry, retrieve_tools_function=retrieve).compile()


def llama_index(model: Any, tools: list[Any]) -> Any:
    """LlamaIndex: the retriever of tools, one for each conversation."""
    from llama_index.core.agent.workflow import FunctionAgent

    from toolscout.adapters.llama_index import ToolRetriever

    return FunctionAgent(llm=model, tool_retriever=ToolRetriever(tools, limit=5))


def openai_agents(model: Any, tools: list[Any]) -> Any:
    """OpenAI Agents: an agent with tools to search, one for each conversation."""
    from toolscout.adapters.openai_agents import ToolSearchAgent

    return ToolSearchAgent(name="assistant", model=model, searchable=tools, limit=5)


def fastmcp(functions: list[Any]) -> Any:
    """FastMCP: a transform of the server."""
    from fastmcp import FastMCP

    from toolscout.adapters.fastmcp import ToolscoutSearchTransform

    server: FastMCP[Any] = FastMCP("many tools")
    for function in functions:
        server.tool(function)
    server.add_transform(ToolscoutSearchTransform(max_results=5))
    return server
