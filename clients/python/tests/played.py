"""A conversation with a model that is played, over 500 tools."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from conftest import many

DEFINITIONS = many(500)
WANTED = "export_playlist"
ASKED = "export a playlist"


def calls_of(name: str) -> Callable[[str], str]:
    """Make the function of a tool."""

    def function(id: str) -> str:
        return f"{name} of {id}"

    return function


def functions() -> list[Callable[[str], str]]:
    """Make the 500 functions."""
    made = []
    for definition in DEFINITIONS:
        function = calls_of(definition["name"])
        function.__name__ = definition["name"]
        function.__doc__ = definition["description"]
        made.append(function)
    return made


class Conversation:
    """What a played model saw at each step, and what it does.

    It searches, calls what it has found, and answers. In the second turn it answers at once, and in
    the third it calls the tool again without a search.
    """

    def __init__(self, search: str, argument: str = "query") -> None:
        self.search = search
        self.argument = argument
        self.tools: list[list[str]] = []
        self.messages: list[list[str]] = []
        self.steps = iter(["search", "call", "answer", "answer", "call", "answer"])

    def next(
        self, tools: Sequence[str], messages: Sequence[Any]
    ) -> tuple[str, dict[str, Any]] | str:
        """Note what is seen, and say what to do: a call, or a text."""
        self.tools.append(list(tools))
        self.messages.append([repr(message) for message in messages])
        step = next(self.steps)
        if step == "search":
            query: Any = [ASKED] if self.argument == "queries" else ASKED
            return self.search, {self.argument: query}
        if step == "call":
            assert WANTED in tools
            return WANTED, {"id": "7"}
        return "Done."

    def check(self, *, ranked: bool = True) -> None:
        """Check what was injected, and that the beginning of the prompt stayed."""
        assert next(self.steps, None) is None
        first, second = self.tools[:2]
        assert first == [self.search]
        assert second[0] == self.search or not ranked
        found = [name for name in second if name != self.search]
        assert found[0] == WANTED or (WANTED in found and not ranked)
        assert 1 <= len(found) <= 5
        # Where the framework puts what was found before its search, the list changes once.
        steps = self.tools if ranked else self.tools[1:]
        for before, after in itertools.pairwise(steps):
            assert after[: len(before)] == before, "the tools of the prompt's beginning"
        for before, after in itertools.pairwise(self.messages):
            assert after[: len(before)] == before, "the messages of the prompt's beginning"


def played_chat_model(seen: Conversation) -> Any:
    """Make a chat model of LangChain that plays."""
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage
    from langchain_core.outputs import ChatGeneration, ChatResult
    from langchain_core.utils.function_calling import convert_to_openai_tool

    class Played(BaseChatModel):
        names: list[str] = []

        @property
        def _llm_type(self) -> str:
            return "played"

        def bind_tools(self, tools: Sequence[Any], **_: Any) -> Any:
            names = [convert_to_openai_tool(tool)["function"]["name"] for tool in tools]
            return Played(names=names)

        def _generate(self, messages: list[Any], *_: Any, **__: Any) -> ChatResult:
            step = seen.next(self.names, [(m.type, m.content) for m in messages])
            message = AIMessage(content=step if isinstance(step, str) else "")
            if not isinstance(step, str):
                name, arguments = step
                number = f"call-{len(seen.tools)}"
                message.tool_calls = [
                    {"name": name, "args": arguments, "id": number, "type": "tool_call"}
                ]
            return ChatResult(generations=[ChatGeneration(message=message)])

    return Played()
