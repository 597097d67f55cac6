"""Tools from what people have: functions, types, and the tool objects of agent frameworks.

No framework is imported: an object is known by its attributes.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
import re
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from toolscout import _docstring, _schema
from toolscout._toolscout import read_tools

ACCEPTED = (
    "a dict, a function, a pydantic model class, a dataclass or TypedDict, or a tool of LangChain, "
    "LlamaIndex, CrewAI, OpenAI Agents, pydantic-ai, FastMCP or the MCP SDK"
)
_JSON = (dict, list, tuple, str, int, float, bool, type(None))
_FUNCTIONS = (
    types.FunctionType,
    types.MethodType,
    types.BuiltinFunctionType,
    types.BuiltinMethodType,
    functools.partial,
)
_CONTAINERS = (
    "inputSchema", "input_schema", "parameters", "function", "functionDeclarations",
    "function_declarations", "tools", "toolSpec", "tool_spec", "openapi", "swagger", "paths",
)  # fmt: skip
"""Fields of a dumped model that say that it is a tool or has tools."""
_CREW_TEXT = re.compile(r"^Tool Name:.*?\bTool Description:\s*(.*)$", re.DOTALL)


def items_of(tools: Any) -> Iterable[Any]:
    """Return the tools one by one: those of an iterable, or the one that this is.

    Raises `TypeError` for what is neither.
    """
    if isinstance(tools, Mapping):
        return _of_mapping(tools)
    if isinstance(tools, type) or _is_function(tools) or is_tool_object(tools):
        return [tools]
    held = getattr(tools, "get_tools", None)
    if callable(held) and not inspect.iscoroutinefunction(held):
        # A toolkit of LangChain.
        return _checked_iterable(held())
    # A model of pydantic can be iterated over, by its fields.
    if hasattr(tools, "model_dump"):
        return [tools]
    return _with_files_read(_checked_iterable(tools))


def _with_files_read(tools: Iterable[Any]) -> Iterator[Any]:
    """Replace each path among these by the tools of the file."""
    for item in tools:
        if isinstance(item, os.PathLike):
            yield from json.loads(read_tools(item, None, [], []))
        else:
            yield item


def _checked_iterable(tools: Any) -> Iterable[Any]:
    if isinstance(tools, Iterable):
        return tools
    raise TypeError(
        f"tools must be {ACCEPTED}; an iterable of these; JSON, YAML or NDJSON text; or the path "
        f"or the URL of a file, not {_name_of(type(tools))}"
    )


def _of_mapping(tools: Mapping[Any, Any]) -> Iterable[Any]:
    """Tell a registry, which has tools by name, from one definition."""
    values = list(tools.values())
    is_registry = bool(values) and all(
        _is_function(value) or is_tool_object(value) or hasattr(value, "model_dump")
        for value in values
    )
    is_registry = is_registry and not any(key in _CONTAINERS for key in tools)
    if not is_registry:
        return [tools if isinstance(tools, dict) else dict(tools)]
    return [{**definition_of(value), "name": str(name)} for name, value in tools.items()]


def is_tool_object(value: Any) -> bool:
    """Whether this is the tool object of a framework, by its attributes."""
    if isinstance(value, (*_JSON, type)):
        return False
    return any(matches(value) for matches, _ in _READERS)


def _is_function(value: Any) -> bool:
    """Whether this is a function, or one that was wrapped, as `functools.cache` does."""
    if isinstance(value, _FUNCTIONS):
        return True
    wrapped = _read(value, "__wrapped__")
    return inspect.isfunction(wrapped) and callable(value) and not is_tool_object(value)


def definition_of(value: Any, place: str = "the tool") -> Any:
    """Write a tool in the form of MCP. A value of JSON is returned as it is.

    Raises `TypeError` that names the type of what is no tool.
    """
    if isinstance(value, _JSON):
        return value
    if isinstance(value, Mapping):
        return dict(value)
    if _is_function(value):
        return _of_function(value, place)
    if isinstance(value, type):
        return _of_class(value, place)
    for matches, read in _READERS:
        if matches(value):
            return _without_nothing(read(value))
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return _of_dump(value, dump, place)
    raise _unknown(value, place)


def _unknown(value: Any, place: str, hint: str = "") -> TypeError:
    name = _name_of(value if isinstance(value, type) else type(value))
    what = f"the class {name}" if isinstance(value, type) else name
    hint = hint or (
        "write its definition as a dict with name, description and inputSchema"
        if not callable(value)
        else "pass the function itself, or a dict with name, description and inputSchema"
    )
    return TypeError(f"{place} is {what}, and a tool is {ACCEPTED}; {hint}")


def _name_of(kind: type) -> str:
    is_plain = kind.__module__ in ("builtins", "__main__")
    return kind.__qualname__ if is_plain else f"{kind.__module__}.{kind.__qualname__}"


# Functions and classes.


def _of_function(function: Any, place: str) -> dict[str, Any]:
    bound: set[str] = set()
    inner = function
    while isinstance(inner, functools.partial):
        bound.update(inner.keywords)
        inner = inner.func
    name = getattr(inner, "__name__", "")
    if not name.isidentifier():
        what = "a lambda" if name == "<lambda>" else f"a function called {name!r}"
        raise TypeError(
            f"{place} is {what}, which has no name for a tool; define it with def, or pass a dict "
            "with name, description and inputSchema"
        )
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        raise TypeError(
            f"{place} is the function {name!r}, which tells no signature; call it from a function "
            "with typed parameters"
        ) from None
    kept = [p for p in signature.parameters.values() if p.name not in bound]
    _refuse_unbound(inner, kept, place)
    signature = signature.replace(parameters=kept)
    try:
        schema = _schema.of_signature(inner, signature)
    except _schema.UnknownTypeError as unknown:
        raise TypeError(f"{place} is the function {name!r}: {unknown}") from None
    return {
        "name": name,
        "description": _docstring.read(inspect.getdoc(inner)).description,
        "inputSchema": schema,
    }


def _refuse_unbound(function: Any, kept: list[inspect.Parameter], place: str) -> None:
    """Refuse a function of a class, whose first parameter nobody could give."""
    scope = getattr(function, "__qualname__", "").rpartition(".")[0]
    is_of_class = scope and not scope.endswith("<locals>") and not inspect.ismethod(function)
    if is_of_class and kept and kept[0].name in ("self", "cls"):
        raise TypeError(
            f"{place} is the method {function.__qualname__!r} without an object; pass it of one, "
            f"as in {scope}().{function.__name__}"
        )


def _of_class(kind: Any, place: str) -> dict[str, Any]:
    if _schema.is_model(kind):
        schema = _schema.resolved(_schema.of_model(kind))
        # The text of the schema is that of the class, and not one that it inherits.
        description = schema.pop("description", "")
    elif _schema.is_structure(kind):
        schema, description = _schema.resolved(_schema.of_type(kind)), _schema.own_text(kind)
    else:
        raise _unknown(kind, place, "make an object of it, or pass a function")
    return {
        "name": kind.__name__,
        "description": _docstring.read(description).description,
        "inputSchema": schema,
    }


# Objects of frameworks.


def _schema_of(value: Any) -> Any:
    """Read a schema: a dict, or a class of pydantic."""
    if _schema.is_model(value):
        value = _schema.of_model(value)
    if not isinstance(value, Mapping):
        return {"type": "object", "properties": {}}
    # Its text is that of the tool.
    return {
        key: part
        for key, part in _schema.resolved(_schema.without_titles(dict(value))).items()
        if key != "description"
    }


def _with_texts(definition: dict[str, Any]) -> dict[str, Any]:
    """Move what a description says of the parameters, as a docstring does, to where they are."""
    docstring = _docstring.read(definition["description"])
    if not docstring.parameters:
        return definition
    properties = dict(definition["inputSchema"].get("properties", {}))
    for name, text in docstring.parameters.items():
        if name in properties and "description" not in properties[name]:
            properties[name] = {**properties[name], "description": text}
    schema = {**definition["inputSchema"], "properties": properties}
    return {**definition, "description": docstring.description, "inputSchema": schema}


def _read(value: Any, name: str) -> Any:
    try:
        return getattr(value, name, None)
    except Exception:
        return None


def _is_own(value: Any) -> bool:
    return type(value).__module__ == "toolscout" and type(value).__name__ in ("Tool", "Hit")


def _of_own(value: Any) -> dict[str, Any]:
    tool = value.tool if type(value).__name__ == "Hit" else value
    definition = {
        "name": tool.name,
        "title": tool.title,
        "description": tool.description,
        "inputSchema": tool.input_schema,
        "outputSchema": tool.output_schema,
        "annotations": tool.annotations or None,
        "tags": tool.tags or None,
        "server": tool.server or None,
    }
    return {**tool.metadata, **definition}


def _of_langchain(value: Any) -> dict[str, Any]:
    if value.args_schema is None and list(value.args) == ["tool_input"]:
        # A function of one text, which tells no schema.
        schema = {"type": "object", "properties": value.args, "required": ["tool_input"]}
    else:
        schema = _schema_of(value.tool_call_schema)
    definition = {"name": value.name, "description": value.description, "inputSchema": schema}
    return {**_with_texts(definition), "tags": value.tags or None}


def _of_llama_index(value: Any) -> dict[str, Any]:
    metadata = value.metadata
    return _with_texts(
        {
            "name": metadata.get_name(),
            "description": metadata.description,
            "inputSchema": _schema_of(metadata.get_parameters_dict()),
        }
    )


def _of_args_schema(value: Any) -> dict[str, Any]:
    # CrewAI writes name and arguments into the description.
    text = value.description or ""
    inner = _CREW_TEXT.match(text)
    return {
        "name": re.sub(r"[^\w.-]+", "_", value.name).strip("_"),
        "description": inner[1].strip() if inner else text,
        "inputSchema": _schema_of(value.args_schema),
    }


def _of_pydantic_ai(value: Any) -> dict[str, Any]:
    return {
        "name": value.name,
        "description": value.description,
        "inputSchema": _schema_of(value.function_schema.json_schema),
    }


def _of_fastmcp(value: Any) -> Any:
    written = value.to_mcp_tool().model_dump(mode="json", by_alias=True, exclude_none=True)
    meta = {key: part for key, part in written.pop("_meta", {}).items() if "fastmcp" not in key}
    return {**written, "_meta": meta or None, "tags": sorted(value.tags) or None}


def _with_schema_in(attribute: str) -> Any:
    def read(value: Any) -> dict[str, Any]:
        return {
            "name": value.name,
            "description": _read(value, "description"),
            "inputSchema": _schema_of(getattr(value, attribute)),
        }

    return read


def _has_schema_in(attribute: str) -> Any:
    def matches(value: Any) -> bool:
        schema = _read(value, attribute)
        has_schema = isinstance(schema, Mapping) or _schema.is_model(schema)
        return has_schema and isinstance(_read(value, "name"), str)

    return matches


def _is_dict_in(attribute: str) -> Any:
    return lambda value: isinstance(_read(value, attribute), Mapping)


def _of_smolagents(value: Any) -> dict[str, Any]:
    inputs = value.inputs
    required = [name for name, schema in inputs.items() if not schema.get("nullable")]
    schema = {"type": "object", "properties": dict(inputs), "required": required}
    return {"name": value.name, "description": value.description, "inputSchema": schema}


def _of_spec(value: Any) -> dict[str, Any]:
    spec = dict(value.tool_spec)
    schema = spec.get("inputSchema", {})
    # Strands has the schema one level deeper.
    return {**spec, "inputSchema": schema["json"]} if "json" in schema else spec


_READERS: list[tuple[Any, Any]] = [
    (_is_own, _of_own),
    (lambda value: hasattr(type(value), "tool_call_schema"), _of_langchain),
    (
        lambda value: callable(_read(_read(value, "metadata"), "get_parameters_dict")),
        _of_llama_index,
    ),
    (lambda value: callable(_read(value, "to_mcp_tool")), _of_fastmcp),
    (_has_schema_in("args_schema"), _of_args_schema),
    (lambda value: _is_dict_in("json_schema")(_read(value, "function_schema")), _of_pydantic_ai),
    *(
        (_has_schema_in(attribute), _with_schema_in(attribute))
        for attribute in (
            # OpenAI Agents, pydantic-ai's definitions, the MCP SDK, Haystack.
            "params_json_schema",
            "parameters_json_schema",
        )
    ),
    # Strands, Haystack and Autogen have the whole definition in one attribute.
    (_is_dict_in("tool_spec"), _of_spec),
    (
        lambda value: _is_dict_in("schema")(value) and "name" in value.schema,
        lambda value: dict(value.schema),
    ),
    # Models of pydantic are dumped, which keeps all their fields.
    (
        lambda value: not hasattr(value, "model_dump") and _has_schema_in("parameters")(value),
        _with_schema_in("parameters"),
    ),
    (
        lambda value: not hasattr(value, "model_dump") and _has_schema_in("inputSchema")(value),
        _with_schema_in("inputSchema"),
    ),
    (
        lambda value: not hasattr(value, "model_dump") and _has_schema_in("input_schema")(value),
        _with_schema_in("input_schema"),
    ),
    (
        lambda value: _is_dict_in("inputs")(value) and isinstance(_read(value, "output_type"), str),
        _of_smolagents,
    ),
]
"""How each kind of object is known, and how it is read. The first that fits counts."""


def _without_nothing(definition: Any) -> Any:
    return {key: value for key, value in definition.items() if value is not None}


def _of_dump(value: Any, dump: Any, place: str) -> dict[str, Any]:
    try:
        dumped = dump(mode="json", by_alias=True, exclude_none=True)
    except Exception as failure:
        raise _unknown(value, place, f"it cannot be written as JSON: {failure}") from None
    is_tool = isinstance(dumped, dict) and any(key in dumped for key in _CONTAINERS)
    if not is_tool and not ("name" in dumped and "description" in dumped):
        raise _unknown(value, place)
    return dict(dumped)


def is_location(text: str) -> bool:
    """Whether a text is a path or a URL: it is one line, and no JSON."""
    line = text.strip()
    return bool(line) and not line.startswith(("{", "[")) and "\n" not in line
