"""The arguments of a model as the objects that a function's annotations name.

pydantic makes the objects, if it is installed. Without it they stay as JSON has them.
"""

from __future__ import annotations

import functools
import inspect
import types
import typing
from typing import TYPE_CHECKING, Any, Literal, Union

from toolscout import _schema
from toolscout._errors import Error

if TYPE_CHECKING:
    from collections.abc import Callable

    Reader = Callable[[Any], Any]

_JSON = (str, int, float, bool, type(None), None, Any, object, dict, list)


def of_function(function: Callable[..., Any], keywords: dict[str, Any]) -> dict[str, Any]:
    """Make the objects; `invalid_arguments` with a text for the model if one cannot be made."""
    readers = _readers(function)
    read: dict[str, Any] = {}
    for name, value in keywords.items():
        reader = readers.get(name)
        try:
            read[name] = value if reader is None else reader(value)
        except ValueError as failure:
            # pydantic's error is a ValueError.
            raise Error("invalid_arguments", f"the argument {name!r}: {failure}") from failure
    return read


def _readers(function: Callable[..., Any]) -> dict[str, Reader]:
    """Return what makes the objects, for the parameters whose annotation is more than JSON."""
    try:
        from pydantic import TypeAdapter
        from pydantic.errors import PydanticUserError
    except ImportError:
        return {}
    readers: dict[str, Reader] = {}
    for name, hint in _schema.hints_of(_inner(function)).items():
        if name == "return" or _is_json(hint):
            continue
        try:
            readers[name] = TypeAdapter(hint).validate_python
        except (PydanticUserError, NameError):
            # A type that pydantic does not know: its value stays as JSON has it.
            continue
    return readers


def _inner(function: Any) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.isroutine(function) or not callable(function):
        return function
    # An object that can be called.
    return type(function).__call__


def _is_json(hint: Any) -> bool:
    """Whether every value of this annotation is as JSON has it."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return _is_json(arguments[0])
    if origin is Literal:
        return all(isinstance(value, str | int | bool | None) for value in arguments)
    if origin in (Union, types.UnionType, dict, list):
        return all(_is_json(argument) for argument in arguments)
    return isinstance(hint, str) or any(hint is kind for kind in _JSON)
