"""The exceptions."""

from __future__ import annotations

from typing import Any


class Error(Exception):
    """What the engine, a server, or a client of it reports.

    `code` names the kind of error for programs, such as `unknown_catalog`; the text is for people.
    """

    code: str
    message: str

    def __init__(self, code: str, message: str) -> None:
        """Make an error with this code and text."""
        super().__init__(code, message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return self.message

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.code!r}, {self.message!r})"


class ApiError(Error):
    """An error answer of a server."""

    status: int
    """The HTTP status."""
    kind: str
    """`invalid_request`, `auth`, `internal` or `system`."""
    request_id: str | None
    """The id of the request in the server's log."""
    retry_after: float | None
    """Seconds after which the server wants the request again."""
    items: list[dict[str, Any]]
    """Where a bulk request was refused as a whole: each item with its error."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        status: int,
        kind: str = "internal",
        request_id: str | None = None,
        retry_after: float | None = None,
        items: list[dict[str, Any]] | None = None,
    ) -> None:
        """Make an error with the fields of the answer."""
        super().__init__(code, message)
        self.status = status
        self.kind = kind
        self.request_id = request_id
        self.retry_after = retry_after
        self.items = items or []

    def __reduce__(self) -> tuple[object, ...]:
        """Keep the fields when the exception goes to another process."""
        return _api_error, (self.code, self.message, vars(self))


def _api_error(code: str, message: str, fields: dict[str, object]) -> ApiError:
    error = ApiError(code, message, status=0)
    vars(error).update(fields)
    return error


class ConnectionFailedError(Error):
    """No answer of the server, however often it was asked."""
