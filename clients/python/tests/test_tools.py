"""Tools from what people have: each becomes a definition with its real schema, or is refused."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import functools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import pytest
from conftest import tool
from pydantic import BaseModel, Field

import toolscout


class Unit(enum.Enum):
    CELSIUS = "c"
    FAHRENHEIT = "f"


@dataclasses.dataclass
class Place:
    """A place on earth.

    Attributes:
        lat: Its latitude.
    """

    lat: float
    lon: float
    names: list[str] = dataclasses.field(default_factory=list)


class Window(TypedDict, total=False):
    """A time window."""

    start: Annotated[str, "When it begins."]
    end: str


class Pair(NamedTuple):
    """Two numbers."""

    left: int
    right: int = 2


class Node(BaseModel):
    """A node of a tree."""

    value: int = Field(description="Its value.", ge=0)
    children: list[Node] = []
    title: str = "node"


@dataclasses.dataclass
class Chain:
    """A chain."""

    weight: float
    next: Chain | None = None


def google(city: str, days: int = 3, *, unit: Unit = Unit.CELSIUS) -> str:
    """Tells the weather of a city.

    It rains often.

    Args:
        city (str): The name of the city,
            in any language.
        days: Number of days.
        unit: Of the temperatures.

    Returns:
        A text.

    Raises:
        ValueError: Never.
    """
    return f"{city} {days} {unit}"


def numpy(city: str, days: int = 3, *, unit: Unit = Unit.CELSIUS) -> str:
    """Tells the weather of a city.

    It rains often.

    Parameters
    ----------
    city : str
        The name of the city,
        in any language.
    days : int, optional
        Number of days.
    unit
        Of the temperatures.

    Returns
    -------
    str
        A text.
    """
    return google(city, days, unit=unit)


def sphinx(city: str, days: int = 3, *, unit: Unit = Unit.CELSIUS) -> str:
    """Tells the weather of a city.

    It rains often.

    :param str city: The name of the city,
        in any language.
    :param days: Number of days.
    :type days: int
    :param unit: Of the temperatures.
    :returns: A text.
    :raises ValueError: Never.
    """
    return google(city, days, unit=unit)


async def annotated(
    city: Annotated[str, "The name of the city, in any language."],
    days: Annotated[int, Field(description="Number of days.")] = 3,
    *,
    unit: Unit = Field(default=Unit.CELSIUS, description="Of the temperatures."),  # noqa: B008
) -> str:
    """Tells the weather of a city.

    It rains often.
    """
    return google(city, days, unit=unit)


WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "description": "The name of the city, in any language."},
        "days": {"type": "integer", "description": "Number of days.", "default": 3},
        "unit": {
            "type": "string",
            "enum": ["c", "f"],
            "description": "Of the temperatures.",
            "default": "c",
        },
    },
    "required": ["city"],
}


@pytest.mark.parametrize("function", [google, numpy, sphinx, annotated])
def test_functions_of_every_style(catalog: toolscout.Catalog, function: Callable[..., Any]) -> None:
    name = function.__name__
    assert catalog.add(function).added == [name]
    assert catalog[name].description == "Tells the weather of a city.\n\nIt rains often."
    assert catalog[name].input_schema == WEATHER
    assert catalog.search("weather of a city").ids == [name]


@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        (str, {"type": "string"}),
        (bool, {"type": "boolean"}),
        (Any, {}),
        (None, {"type": "null"}),
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (Literal["a", 1], {"enum": ["a", 1]}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (Sequence[str], {"type": "array", "items": {"type": "string"}}),
        (set[str], {"type": "array", "items": {"type": "string"}, "uniqueItems": True}),
        (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
        (
            tuple[int, str],
            {
                "type": "array",
                "prefixItems": [{"type": "integer"}, {"type": "string"}],
                "minItems": 2,
                "maxItems": 2,
            },
        ),
        (dict[str, float], {"type": "object", "additionalProperties": {"type": "number"}}),
        (datetime.date, {"type": "string", "format": "date"}),
        (Path, {"type": "string", "format": "path"}),
        (Annotated[int, Field(ge=1, lt=9)],
         {"type": "integer", "minimum": 1, "exclusiveMaximum": 9}),
        (Annotated[str, Field(max_length=5)], {"type": "string", "maxLength": 5}),
        (Annotated[list[str], Field(min_length=1)],
         {"type": "array", "items": {"type": "string"}, "minItems": 1}),
        (Window, {
            "type": "object",
            "properties": {
                "start": {"type": "string", "description": "When it begins."},
                "end": {"type": "string"},
            },
        }),
        (Place, {
            "type": "object",
            "properties": {
                "lat": {"type": "number", "description": "Its latitude."},
                "lon": {"type": "number"},
                "names": {"type": "array", "items": {"type": "string"}, "default": []},
            },
            "required": ["lat", "lon"],
        }),
    ],
)  # fmt: skip
def test_types_are_schemas(catalog: toolscout.Catalog, hint: Any, schema: dict[str, Any]) -> None:
    def function(value: Any) -> None:
        """Do something."""

    function.__annotations__["value"] = hint
    catalog.add(function)
    assert catalog["function"].input_schema["properties"]["value"] == schema
    assert catalog["function"].input_schema["required"] == ["value"]


def test_classes_are_tools(catalog: toolscout.Catalog) -> None:
    added = catalog.add([Node, Place, Window, Pair, Chain]).added
    assert added == ["Chain", "Node", "Pair", "Place", "Window"]
    assert catalog["Node"].description == "A node of a tree."
    assert "minimum" in json.dumps(catalog["Node"].input_schema)
    assert "title" in json.dumps(catalog["Node"].input_schema)
    assert catalog["Place"].description == "A place on earth."
    assert catalog["Place"].input_schema["required"] == ["lat", "lon"]
    assert catalog["Pair"].input_schema["properties"]["right"] == {"type": "integer", "default": 2}
    assert catalog["Chain"].input_schema["properties"]["next"]["anyOf"][0] == {
        "$ref": "#/$defs/Chain"
    }
    assert catalog["Window"].input_schema.get("required") is None


def test_methods_and_partials_are_tools_without_what_is_bound(catalog: toolscout.Catalog) -> None:
    class Mail:
        def send(self, to: str, text: str = "") -> None:
            """Sends a mail."""

        @classmethod
        def count(cls, folder: str) -> int:
            """Counts mails."""
            return len(folder)

        @staticmethod
        def drop(folder: str, *more: str, **options: str) -> None:
            """Drops mails."""

    def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return call

    catalog.add([Mail().send, Mail.count, Mail.drop, functools.partial(google, days=1)])
    assert list(catalog["send"].input_schema["properties"]) == ["to", "text"]
    assert catalog["send"].input_schema["required"] == ["to"]
    assert list(catalog["count"].input_schema["properties"]) == ["folder"]
    assert catalog["drop"].input_schema["additionalProperties"] is True
    assert list(catalog["drop"].input_schema["properties"]) == ["folder"]
    assert list(catalog["google"].input_schema["properties"]) == ["city", "unit"]
    catalog.add([wrapped(numpy), functools.lru_cache(sphinx)])
    assert catalog["sphinx"].input_schema == WEATHER
    assert catalog["numpy"].input_schema == WEATHER


@pytest.mark.parametrize(
    ("text", "description", "parameters"),
    [
        ("Does it.\n\nNote:\n    On Mondays.\n\nArgs:\n    a: An a.\n\nReturns:\n    x",
         "Does it.\n\nNote:\n    On Mondays.", {"a": "An a."}),
        ("Does it.\n\nParameters\n----------\na, b : int\n    Both.\n\nNotes\n-----\nSlow.",
         "Does it.\n\nNotes\n-----\nSlow.", {"a": "Both.", "b": "Both."}),
        (":param a: An a\n    of two lines.\n:returns: x\n", "", {"a": "An a of two lines."}),
        ("Does it.\nArgs:\n    a (dict[str, int], optional): first: of all\n    *b:\n      Others.",
         "Does it.", {"a": "first: of all", "b": "Others."}),
        ("Compare: a text.\n\n:func:`x` too.", "Compare: a text.\n\n:func:`x` too.", {}),
        (None, "", {}),
    ],
)  # fmt: skip
def test_docstrings_are_read(
    text: str | None, description: str, parameters: dict[str, str]
) -> None:
    from toolscout import _docstring

    assert _docstring.read(text) == _docstring.Docstring(description, parameters)


def test_what_a_framework_gives_is_not_asked_of_the_model(catalog: toolscout.Catalog) -> None:
    from agents import RunContextWrapper
    from fastmcp import Context
    from langchain_core.tools import InjectedToolArg
    from pydantic_ai import RunContext

    def one(ctx: RunContext[int], a: str) -> None: ...
    def two(ctx: RunContextWrapper[Any], a: str) -> None: ...
    def three(a: str, ctx: Context | None = None) -> None: ...
    def four(a: str, user: Annotated[str, InjectedToolArg]) -> None: ...

    for function, kind in ((one, RunContext[int]), (two, RunContextWrapper[Any])):
        function.__annotations__["ctx"] = kind
    three.__annotations__["ctx"] = Context | None
    four.__annotations__["user"] = Annotated[str, InjectedToolArg]
    catalog.add([one, two, three, four])
    for name in ("one", "two", "three", "four"):
        assert list(catalog[name].input_schema["properties"]) == ["a"]


def _crew_tool() -> Any:
    """The shape of a tool of CrewAI, which is too large to install for a test."""

    class Arguments(BaseModel):
        city: str = Field(description="The city.")

    class BaseTool(BaseModel):
        name: str = "Weather report"
        description: str = (
            "Tool Name: weather_report\nTool Arguments: {'city': {}}\n"
            "Tool Description: Tells the weather."
        )
        args_schema: Any = Arguments
        func: Any = None

    return BaseTool(func=google)


def framework_tools() -> dict[str, Any]:
    """Make the same tool with each framework."""
    from agents import function_tool
    from fastmcp.tools import Tool as FastMcpTool
    from langchain_core.tools import StructuredTool
    from llama_index.core.tools import FunctionTool
    from mcp.types import Tool as McpTool
    from pydantic_ai import Tool

    def weather(city: str, days: int = 3) -> str:
        """Tells the weather.

        Args:
            city: The city.
        """
        return f"{city} {days}"

    weather.__annotations__ = {"city": str, "days": int, "return": str}
    schema = {"properties": {"city": {"type": "string", "description": "The city."}}}
    return {
        "langchain": StructuredTool.from_function(weather),
        "langchain dict": StructuredTool(
            name="weather",
            description="Tells the weather.",
            args_schema={**schema, "type": "object"},
        ),
        "llama_index": FunctionTool.from_defaults(weather),
        "openai_agents": function_tool(weather),
        "pydantic_ai": Tool(weather),
        "pydantic_ai definition": Tool(weather).tool_def,
        "fastmcp": FastMcpTool.from_function(weather),
        "mcp": McpTool.model_validate(
            {"name": "weather", "description": "Tells the weather.",
             "inputSchema": {**schema, "type": "object"}}
        ),
        "crewai": _crew_tool(),
    }  # fmt: skip


def test_tools_of_frameworks_have_their_schemas(catalog: toolscout.Catalog) -> None:
    for framework, made in framework_tools().items():
        for given in (made, [made], (item for item in [made]), {"weather": made}):
            assert catalog.sync(framework, given).generation
            (listed,) = catalog.tools(servers=framework)
            assert "Tells the weather." in listed.description, framework
            assert "Args" not in listed.description or framework == "llama_index"
            city = listed.input_schema["properties"]["city"]
            assert city["type"] == "string", framework
            assert city.get("description") == "The city." or framework == "llama_index", framework
            text = json.dumps(listed.to("mcp"))
            assert " at 0x" not in text, framework
            assert "object at" not in text, framework


def test_tools_of_other_shapes(catalog: toolscout.Catalog) -> None:
    from langchain_core.tools import BaseToolkit
    from langchain_core.tools import Tool as TextTool

    schema = {"type": "object", "properties": {"a": {"type": "string"}}}

    class Haystack:
        name, description, parameters = "haystack", "Does it.", schema

        def __call__(self) -> None: ...

    class HaystackNow(Haystack):
        name = "haystack_now"
        tool_spec = {"name": "haystack_now", "description": "Does it.", "parameters": schema}

    class Strands:
        tool_spec = {"name": "strands", "description": "Does it.", "inputSchema": {"json": schema}}

    class Smol:
        name, description, output_type = "smol", "Does it.", "string"
        inputs = {"a": {"type": "string", "description": "An a."}}

    class Toolkit(BaseToolkit):
        def get_tools(self) -> list[Any]:
            return [TextTool(name="text", func=str, description="Does it.")]

    catalog.add([Haystack(), HaystackNow(), Strands(), Smol()])
    catalog.add(Toolkit())
    for name in ("haystack", "haystack_now", "strands", "smol"):
        assert catalog[name].input_schema["properties"]["a"]["type"] == "string", name
    assert list(catalog["text"].input_schema["properties"]) == ["tool_input"]


def test_tools_of_another_catalog_are_added(
    catalog: toolscout.Catalog, office: toolscout.Catalog
) -> None:
    with toolscout.Catalog.temporary(embedder="none") as other:
        assert len(other.add(office).added) == 3
        assert other["office/send_email"] == office["office/send_email"]
        assert other.add(office.search("email")).unchanged >= 1
        assert other.add(office["office/send_email"]).unchanged == 1


def test_several_files_are_added(catalog: toolscout.Catalog, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.json").write_text(json.dumps([tool(f"{name}_1"), tool(f"{name}_2")]))
    files = [tmp_path / "a.json", tmp_path / "b.json"]
    assert catalog.add([*files, google], server="s").added == [
        "s/a_1", "s/a_2", "s/b_1", "s/b_2", "s/google",
    ]  # fmt: skip
    with pytest.raises(toolscout.Error, match=r"nothing\.json: no such file"):
        catalog.add([files[0], tmp_path / "nothing.json"])
    catalog.add(tmp_path)
    assert {item.name for item in catalog.tools()} == {"a_1", "a_2", "b_1", "b_2", "google"}


class Odd:
    """An object of nobody."""


class User(BaseModel):
    """A model that is no tool."""

    name: str


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Odd(), "test_tools.Odd"),
        (Odd, "the class test_tools.Odd"),
        (Odd.__init__, "wrapper_descriptor"),
        (object(), "object"),
        (lambda: 1, "a lambda"),
        (User(name="Ada"), "test_tools.User"),
        (3j, "complex"),
        ({1: 2}.keys, ""),
        (json, "module"),
    ],
)
def test_unknown_objects_are_refused_by_type(
    office: toolscout.Catalog, value: Any, text: str
) -> None:
    for given in (value, [tool("a"), value]):
        with pytest.raises(TypeError) as raised:
            office.add(given)
        assert text in str(raised.value)
        assert " at 0x" not in str(raised.value)
    assert len(office) == 3


def test_a_type_without_a_schema_is_named(catalog: toolscout.Catalog) -> None:
    def function(frame: Odd) -> None: ...

    def other(frame: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    class Unbound:
        def send(self, to: str) -> None: ...

    with pytest.raises(
        TypeError,
        match=r"item 2, is the function 'function': the parameter 'frame'.*test_tools\.Odd",
    ):
        catalog.add([google, function])
    with pytest.raises(TypeError, match="the annotation 'Missing'"):
        catalog.add(other)
    with pytest.raises(TypeError, match=r"the method '.*Unbound\.send' without an object"):
        catalog.add(Unbound.send)
    assert len(catalog) == 0


SHOP = {
    "openapi": "3.1.0",
    "info": {"title": "shop", "version": "1"},
    "servers": [{"url": "https://shop.test"}],
    "paths": {
        "/pets": {
            "get": {"operationId": "listPets", "tags": ["pets"], "summary": "Lists pets."},
            "post": {"operationId": "addPet", "tags": ["pets", "admin"], "summary": "Adds a pet."},
        },
        "/pets/{id}": {"get": {"operationId": "showPet", "tags": ["pets"], "parameters": [
            {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}]}},
        "/orders": {"get": {"operationId": "listOrders", "tags": ["orders"]}},
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({}, ["addPet", "listOrders", "listPets", "showPet"]),
        ({"include": "listPets"}, ["listPets"]),
        ({"include": ["listPets", "orders"]}, ["listOrders", "listPets"]),
        ({"include": "pets", "exclude": "admin"}, ["listPets", "showPet"]),
        ({"include": "/pets/*"}, ["showPet"]),
        ({"include": "/pets"}, ["addPet", "listPets", "showPet"]),
        ({"exclude": ["/orders", "addPet"]}, ["listPets", "showPet"]),
    ],
)
def test_operations_are_selected(
    catalog: toolscout.Catalog, tmp_path: Path, options: dict[str, Any], names: list[str]
) -> None:
    file = tmp_path / "shop.json"
    file.write_text(json.dumps(SHOP))
    for document in (SHOP, [SHOP], json.dumps(SHOP), file, str(file)):
        changes = catalog.sync("shop", document, **options)
        assert changes.generation
        assert [tool.name for tool in catalog.tools()] == names
    catalog.sync("shop", [])
    catalog.add(file, **options)
    assert [tool.name for tool in catalog.tools()] == names


def test_a_selection_that_names_nothing_is_refused(catalog: toolscout.Catalog) -> None:
    selections: list[dict[str, Any]] = [
        {"include": ["listPets", "nothing"]},
        {"exclude": "nothing"},
    ]
    for options in selections:
        with pytest.raises(toolscout.Error, match='"nothing"') as raised:
            catalog.add(SHOP, **options)
        assert raised.value.code == "invalid_selection"
    assert len(catalog) == 0
