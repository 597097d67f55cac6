"""The JSON Schema of types and signatures of Python."""

from __future__ import annotations

import collections.abc
import dataclasses
import datetime
import decimal
import enum
import inspect
import json
import pathlib
import sys
import types
import typing
import uuid
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union

from toolscout import _docstring

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Schema = dict[str, Any]

_SIMPLE: dict[Any, Schema] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
    None: {"type": "null"},
    bytes: {"type": "string", "format": "binary"},
    complex: {"type": "string"},
    Any: {},
    object: {},
    inspect.Parameter.empty: {},
    dict: {"type": "object"},
    list: {"type": "array"},
    tuple: {"type": "array"},
    set: {"type": "array", "uniqueItems": True},
    frozenset: {"type": "array", "uniqueItems": True},
    datetime.datetime: {"type": "string", "format": "date-time"},
    datetime.date: {"type": "string", "format": "date"},
    datetime.time: {"type": "string", "format": "time"},
    datetime.timedelta: {"type": "string", "format": "duration"},
    uuid.UUID: {"type": "string", "format": "uuid"},
    decimal.Decimal: {"anyOf": [{"type": "number"}, {"type": "string"}]},
}
_ARRAYS = (
    list, set, frozenset, collections.abc.Sequence, collections.abc.MutableSequence,
    collections.abc.Iterable, collections.abc.Iterator, collections.abc.Collection,
    collections.abc.Set, collections.abc.MutableSet, collections.deque,
)  # fmt: skip
_SETS = (set, frozenset, collections.abc.Set, collections.abc.MutableSet)
_OBJECTS = (
    dict, collections.abc.Mapping, collections.abc.MutableMapping, collections.OrderedDict,
    collections.defaultdict,
)  # fmt: skip
_LIMITS = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
    "multiple_of": "multipleOf",
    "pattern": "pattern",
}
_INJECTED = frozenset(
    {
        "RunContext", "RunContextWrapper", "ToolContext", "ToolRuntime", "Context",
        "RunnableConfig", "InjectedToolArg", "InjectedToolCallId", "InjectedState",
        "InjectedStore", "Depends", "CallbackManagerForToolRun", "AsyncCallbackManagerForToolRun",
    }
)  # fmt: skip
"""Types that a framework fills in itself. The model does not see such a parameter."""
_FRAMEWORKS = (
    "langchain", "langgraph", "pydantic_ai", "agents", "fastmcp", "mcp", "llama_index", "crewai",
)  # fmt: skip
_MISSING = object()


class UnknownTypeError(TypeError):
    """A type that has no JSON Schema."""


def of_signature(function: Callable[..., Any], signature: inspect.Signature) -> Schema:
    """Write the parameters of a function as the schema of an object."""
    hints = hints_of(function)
    texts = _docstring.read(inspect.getdoc(function)).parameters
    writer = _Writer()
    properties: dict[str, Schema] = {}
    required: list[str] = []
    additional = False
    for parameter in signature.parameters.values():
        hint = hints.get(parameter.name, parameter.annotation)
        if parameter.kind is parameter.VAR_POSITIONAL or _is_injected(hint, parameter.default):
            continue
        if parameter.kind is parameter.VAR_KEYWORD:
            additional = True
            continue
        try:
            schema, is_required = writer.member(hint, parameter.default, texts.get(parameter.name))
        except UnknownTypeError as unknown:
            raise UnknownTypeError(f"the parameter {parameter.name!r} has {unknown}") from None
        properties[parameter.name] = schema
        if is_required:
            required.append(parameter.name)
    return writer.finished(_object(properties, required, additional=additional))


def of_type(type_: Any) -> Schema:
    """Write a type as a schema."""
    writer = _Writer()
    return writer.finished(writer.type(type_))


def of_model(model: Any) -> Schema:
    """Write a class of pydantic, version 1 or 2, as a schema, without the titles it makes up."""
    write = getattr(model, "model_json_schema", None) or model.schema
    schema: Schema = without_titles(write())
    return schema


def without_titles(schema: Any, *, is_names: bool = False) -> Any:
    """Leave out titles. In an object of properties `title` is a property."""
    if isinstance(schema, list):
        return [without_titles(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: value
        if key in ("default", "const", "enum", "examples") and not is_names
        else without_titles(value, is_names=key in ("properties", "$defs", "definitions"))
        for key, value in schema.items()
        if is_names or not (key == "title" and isinstance(value, str))
    }


def resolved(schema: Schema) -> Schema:
    """Write the schema of a class that contains itself as the object that it is."""
    reference = schema.get("$ref")
    definitions = schema.get("$defs", {})
    name = reference.rpartition("/")[2] if isinstance(reference, str) else None
    return {**definitions[name], "$defs": definitions} if name in definitions else schema


def is_model(value: Any) -> bool:
    """Whether this is a class of pydantic."""
    return isinstance(value, type) and (
        hasattr(value, "model_json_schema")
        or (hasattr(value, "schema") and hasattr(value, "__fields__"))
    )


def is_structure(value: Any) -> bool:
    """Whether this is a class with typed fields: a dataclass, a TypedDict or a NamedTuple."""
    return isinstance(value, type) and (
        dataclasses.is_dataclass(value) or _is_typed_dict(value) or _is_named_tuple(value)
    )


def _is_typed_dict(value: Any) -> bool:
    return hasattr(value, "__total__") and hasattr(value, "__required_keys__")


def _is_named_tuple(value: Any) -> bool:
    return issubclass(value, tuple) and hasattr(value, "_fields")


def hints_of(owner: Any) -> dict[str, Any]:
    """Resolve annotations; one that names what is not there stays a text."""
    while hasattr(owner, "__wrapped__"):
        owner = owner.__wrapped__
    owner = getattr(owner, "__func__", owner)
    try:
        return typing.get_type_hints(owner, include_extras=True)
    except Exception:
        pass
    hints: dict[str, Any] = {}
    names = getattr(owner, "__globals__", None) or vars(sys.modules[owner.__module__])
    for name, hint in getattr(owner, "__annotations__", {}).items():
        hints[name] = hint
        if isinstance(hint, str):
            try:
                hints[name] = eval(hint, dict(names))
            except Exception:
                continue
    return hints


def _is_injected(hint: Any, default: Any) -> bool:
    if typing.get_origin(hint) is typing.Annotated:
        base, *metadata = typing.get_args(hint)
        return _is_injected(base, default) or any(_is_of_framework(item) for item in metadata)
    arguments = typing.get_args(hint)
    if _is_union(hint):
        return any(_is_of_framework(item) for item in arguments)
    return _is_of_framework(typing.get_origin(hint) or hint) or _is_of_framework(default)


def _is_of_framework(value: Any) -> bool:
    kind = value if isinstance(value, type) else type(value)
    module = getattr(kind, "__module__", "").split(".")[0]
    return kind.__name__ in _INJECTED and (
        module.startswith(_FRAMEWORKS) or kind.__name__ == "Depends"
    )


def _simple(hint: Any) -> Schema | None:
    try:
        return dict(_SIMPLE[hint])
    except (KeyError, TypeError):
        # `TypeError` for what has no hash, such as an annotation with a list.
        return None


def _is_union(hint: Any) -> bool:
    return typing.get_origin(hint) in (Union, types.UnionType)


def _object(properties: dict[str, Schema], required: list[str], *, additional: bool) -> Schema:
    schema: Schema = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required
    if additional:
        schema["additionalProperties"] = True
    return schema


class _Writer:
    """Writes types; those that contain themselves become definitions."""

    def __init__(self) -> None:
        self.open: list[Any] = []
        self.recursive: dict[str, Any] = {}
        self.definitions: dict[str, Schema] = {}

    def finished(self, schema: Schema) -> Schema:
        return {**schema, "$defs": self.definitions} if self.definitions else schema

    def member(self, hint: Any, default: Any, text: str | None) -> tuple[Schema, bool]:
        """Write a parameter or a field, and say whether it is required."""
        schema = dict(self.type(hint))
        field_of = _field(default)
        if field_of is not None:
            _annotate(schema, default)
            default = field_of
        elif typing.get_origin(hint) is typing.Annotated:
            for item in typing.get_args(hint)[1:]:
                value = _field(item)
                if default is inspect.Parameter.empty and value is not None:
                    default = value
        if text and "description" not in schema:
            schema["description"] = text
        is_required = default is inspect.Parameter.empty or default is ...
        if not is_required:
            value = _plain_value(default)
            if value is not _MISSING:
                schema["default"] = value
        return schema, is_required

    def type(self, hint: Any) -> Schema:
        """Write a type."""
        if isinstance(hint, str | typing.ForwardRef):
            name = hint if isinstance(hint, str) else hint.__forward_arg__
            return self._reference_to(name)
        if (simple := _simple(hint)) is not None:
            return simple
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
        if origin is typing.Annotated:
            return self._annotated(arguments)
        if _is_union(hint):
            return self._union(arguments)
        if origin is Literal:
            return _enumeration(list(arguments))
        if getattr(origin, "_name", "") in ("Required", "NotRequired", "ReadOnly"):
            return self.type(arguments[0])
        if isinstance(hint, TypeVar):
            return self._variable(hint)
        if hasattr(hint, "__supertype__"):
            return self.type(hint.__supertype__)
        if hasattr(hint, "__value__"):
            return self.type(hint.__value__)
        if origin is not None and hasattr(origin, "__value__"):
            return self.type(origin.__value__)
        return self._container(hint, origin, arguments) or self._class(origin or hint)

    def _annotated(self, arguments: tuple[Any, ...]) -> Schema:
        base, *metadata = arguments
        schema = self.type(base)
        for item in metadata:
            _annotate(schema, item)
        return schema

    def _union(self, arguments: tuple[Any, ...]) -> Schema:
        options: list[Schema] = []
        for argument in arguments:
            schema = self.type(argument)
            if schema not in options:
                options.append(schema)
        return options[0] if len(options) == 1 else {"anyOf": options}

    def _variable(self, variable: Any) -> Schema:
        if variable.__constraints__:
            return self._union(variable.__constraints__)
        return self.type(variable.__bound__) if variable.__bound__ else {}

    def _container(self, hint: Any, origin: Any, arguments: tuple[Any, ...]) -> Schema | None:
        kind = origin or hint
        if kind is tuple:
            return self._tuple(arguments)
        if kind in _ARRAYS:
            schema: Schema = {"type": "array"}
            if arguments and arguments[0] is not Any:
                schema["items"] = self.type(arguments[0])
            if kind in _SETS:
                schema["uniqueItems"] = True
            return schema
        if kind in _OBJECTS:
            schema = {"type": "object"}
            if len(arguments) == 2 and arguments[1] is not Any:
                schema["additionalProperties"] = self.type(arguments[1])
            return schema
        return None

    def _tuple(self, arguments: tuple[Any, ...]) -> Schema:
        if len(arguments) == 2 and arguments[1] is ...:
            return {"type": "array", "items": self.type(arguments[0])}
        items = [self.type(argument) for argument in arguments if argument != ()]
        length = len(items)
        return {"type": "array", "prefixItems": items, "minItems": length, "maxItems": length}

    def _class(self, kind: Any) -> Schema:
        if not isinstance(kind, type):
            raise UnknownTypeError(f"the type {kind!r}, which has no JSON Schema; {_HINT}")
        if issubclass(kind, enum.Enum):
            return _enumeration([member.value for member in kind])
        if is_model(kind):
            return self._of_pydantic(of_model(kind))
        if is_structure(kind):
            return self._structure(kind)
        adapter = getattr(sys.modules.get("pydantic"), "TypeAdapter", None)
        if adapter and hasattr(kind, "__get_pydantic_core_schema__"):
            return self._of_pydantic(without_titles(adapter(kind).json_schema()))
        if issubclass(kind, pathlib.PurePath):
            return {"type": "string", "format": "path"}
        for base, schema in _SIMPLE.items():
            # A subclass of str, int or a date.
            if (
                isinstance(base, type)
                and base not in (object, type(None))
                and issubclass(kind, base)
            ):
                return dict(schema)
        name = f"{kind.__module__}.{kind.__qualname__}"
        raise UnknownTypeError(f"the type {name}, which has no JSON Schema; {_HINT}")

    def _of_pydantic(self, schema: Schema) -> Schema:
        """Bring the definitions of a schema up to where all are."""
        schema = dict(schema)
        self.definitions.update(schema.pop("$defs", {}))
        return schema

    def _reference_to(self, name: str) -> Schema:
        for kind in reversed(self.open):
            if kind.__name__ == name:
                return self._recursion(kind)
        raise UnknownTypeError(
            f"the annotation {name!r}, which names nothing in its module; import what it names"
        )

    def _recursion(self, kind: Any) -> Schema:
        self.recursive[kind.__name__] = kind
        return {"$ref": f"#/$defs/{kind.__name__}"}

    def _structure(self, kind: Any) -> Schema:
        if kind in self.open:
            return self._recursion(kind)
        self.open.append(kind)
        schema = self._fields(kind)
        self.open.pop()
        name: str = kind.__name__
        if self.recursive.get(name) is not kind:
            return schema
        self.definitions[name] = schema
        return {"$ref": f"#/$defs/{name}"}

    def _fields(self, kind: Any) -> Schema:
        hints = hints_of(kind)
        defaults: Mapping[str, Any] = {}
        names: Any = list(hints)
        if hasattr(kind, "__dataclass_fields__"):
            fields = [item for item in dataclasses.fields(kind) if item.init]
            names = [item.name for item in fields]
            defaults = {item.name: _default_of(item) for item in fields}
        elif not _is_typed_dict(kind):
            names, defaults = kind._fields, kind._field_defaults
        optional: frozenset[str] = getattr(kind, "__optional_keys__", frozenset())
        texts = _docstring.read(own_text(kind)).parameters
        properties: dict[str, Schema] = {}
        required: list[str] = []
        for name in names:
            default = defaults.get(name, inspect.Parameter.empty)
            try:
                properties[name], is_required = self.member(hints[name], default, texts.get(name))
            except UnknownTypeError as unknown:
                raise UnknownTypeError(
                    f"the field {name!r} of {kind.__name__} has {unknown}"
                ) from None
            if is_required and name not in optional:
                required.append(name)
        return _object(properties, required, additional=False)


_HINT = "annotate it with a type that JSON can hold, or bind it with functools.partial"


def own_text(kind: Any) -> str:
    """Return the docstring of a class, unless a dataclass or a NamedTuple made it up."""
    text: str = kind.__doc__ or ""
    return "" if text.startswith(f"{kind.__name__}(") else text


def _default_of(item: dataclasses.Field[Any]) -> Any:
    if item.default is not dataclasses.MISSING:
        return item.default
    if item.default_factory is not dataclasses.MISSING:
        return item.default_factory()
    return inspect.Parameter.empty


def _field(value: Any) -> Any:
    """Return the default of pydantic's `Field(…)`, `...` without one; `None` for other values."""
    if type(value).__name__ != "FieldInfo":
        return None
    if getattr(value, "default_factory", None) is not None:
        try:
            return value.default_factory()
        except TypeError:
            return _NO_VALUE
    default = value.default
    return ... if type(default).__name__ in ("PydanticUndefinedType", "UndefinedType") else default


_NO_VALUE = object()


def _annotate(schema: Schema, item: Any) -> None:
    """Add what an item of `Annotated` says: a text, or limits by the names of annotated_types."""
    if isinstance(item, str):
        schema["description"] = item
        return
    text = getattr(item, "description", None) or getattr(item, "documentation", None)
    if isinstance(text, str):
        schema["description"] = text
    for attribute, keyword in _LIMITS.items():
        limit = getattr(item, attribute, None)
        if isinstance(limit, int | float | str):
            schema[keyword] = limit
    ends = ("Items", "Length") if schema.get("type") == "array" else ("Length", "Length")
    for attribute in ("min_length", "max_length"):
        limit = getattr(item, attribute, None)
        if isinstance(limit, int):
            schema[attribute.split("_")[0] + ends[0]] = limit
    examples = getattr(item, "examples", None)
    if isinstance(examples, list):
        schema["examples"] = examples
    # Those of `Field(…)` are in its metadata.
    for inner in getattr(item, "metadata", None) or ():
        _annotate(schema, inner)


def _enumeration(values: list[Any]) -> Schema:
    values = [value.value if isinstance(value, enum.Enum) else value for value in values]
    kinds = {type(value) for value in values}
    schema: Schema = {"enum": values}
    if len(kinds) == 1 and (simple := _SIMPLE.get(kinds.pop())):
        schema = {**simple, **schema}
    if any(_plain_value(value) is _MISSING for value in values):
        raise UnknownTypeError(f"the values {values!r}, which JSON does not have; {_HINT}")
    return schema


def _plain_value(value: Any) -> Any:
    """Return a default as JSON has it, or `_MISSING`."""
    if isinstance(value, enum.Enum):
        value = value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = dataclasses.asdict(value)
    dump = getattr(value, "model_dump", None)
    if callable(dump) and not isinstance(value, type):
        value = dump(mode="json")
    if isinstance(value, set | frozenset | tuple):
        value = list(value)
    if isinstance(value, pathlib.PurePath | uuid.UUID | decimal.Decimal):
        value = str(value)
    if isinstance(value, datetime.date | datetime.time):
        value = value.isoformat()
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError):
        return _MISSING
