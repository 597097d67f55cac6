"""The native part of the package."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NoReturn, TypedDict, final, overload

from typing_extensions import Self

Mode = Literal["lexical", "dense", "hybrid", "auto"]
Fusion = Literal["convex", "rrf"]
ToolFormat = Literal[
    "openai",
    "openai_responses",
    "anthropic",
    "anthropic_reference",
    "mcp",
    "names",
    "signature",
]
Progress = Callable[[int, int], object]

class Degraded(TypedDict):
    code: str
    reason: str
    pending_embeddings: int

class NoMatch(TypedDict):
    code: str
    reason: str
    nearest: list[str]

class Stats(TypedDict):
    tools: int
    servers: dict[str, int]
    generation: int
    vectors: dict[str, int]
    pending_embeddings: int
    disk_bytes: int

class Answer(TypedDict):
    hits: list[str]
    ranks: list[int | None]
    no_match: bool
    degraded: bool

class AnsweredQuery(TypedDict):
    id: str
    text: str
    relevant: list[str] | None
    answers: list[Answer]

class Percentiles(TypedDict):
    p50: float
    p95: float
    p99: float

__VERSION__: str

def run_program(arguments: list[str], program: str | None) -> NoReturn: ...

@final
class Tool:
    """The definition of a tool."""

    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def server(self) -> str: ...
    @property
    def model_name(self) -> str: ...
    @property
    def title(self) -> str | None: ...
    @property
    def description(self) -> str: ...
    @property
    def input_schema(self) -> dict[str, Any]: ...
    @property
    def output_schema(self) -> dict[str, Any] | None: ...
    @property
    def annotations(self) -> dict[str, bool]: ...
    @property
    def tags(self) -> list[str]: ...
    @property
    def metadata(self) -> dict[str, Any]: ...
    @overload
    def to(self, format: Literal["names", "signature"]) -> str: ...
    @overload
    def to(
        self,
        format: Literal["openai", "openai_responses", "anthropic", "anthropic_reference", "mcp"],
    ) -> dict[str, Any]: ...
    def __eq__(self, other: object) -> bool: ...
    def __hash__(self) -> int: ...

@final
class ToolIterator:
    """The tools of a catalog one by one."""

    def __iter__(self) -> Self: ...
    def __next__(self) -> Tool: ...

@final
class Hit:
    """One found tool."""

    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def server(self) -> str: ...
    @property
    def model_name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def score(self) -> float: ...
    @property
    def matched_queries(self) -> list[int]: ...
    @property
    def serves(self) -> str | None: ...
    @property
    def also_on(self) -> list[str]: ...
    @property
    def companion_of(self) -> dict[str, str] | None: ...
    @property
    def explain(self) -> dict[str, Any] | None: ...
    @property
    def tool(self) -> Tool: ...
    def to_dict(self) -> dict[str, Any]: ...

@final
class Results:
    """The answer to a search."""

    @property
    def hits(self) -> tuple[Hit, ...]: ...
    @property
    def ids(self) -> list[str]: ...
    @property
    def queries(self) -> list[str]: ...
    @property
    def mode(self) -> Literal["lexical", "dense", "hybrid"]: ...
    @property
    def variant(self) -> str: ...
    @property
    def embedders(self) -> list[str]: ...
    @property
    def degraded(self) -> Degraded | None: ...
    @property
    def no_match(self) -> NoMatch | None: ...
    @property
    def confidence(self) -> float | None: ...
    @property
    def signals(self) -> dict[str, float]: ...
    @property
    def timings(self) -> dict[str, float]: ...
    @property
    def generation(self) -> int: ...
    @overload
    def tools(
        self, format: Literal["names", "signature"], *, max_tokens: int | None = None
    ) -> list[str]: ...
    @overload
    def tools(
        self, format: Literal["mcp"], *, max_tokens: int | None = None
    ) -> dict[str, list[dict[str, Any]]]: ...
    @overload
    def tools(
        self,
        format: Literal["openai", "openai_responses", "anthropic", "anthropic_reference"],
        *,
        max_tokens: int | None = None,
    ) -> list[dict[str, Any]]: ...
    def to_dict(self) -> dict[str, Any]: ...
    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, index: int) -> Hit: ...
    @overload
    def __getitem__(self, index: slice) -> list[Hit]: ...
    def __iter__(self) -> Iterator[Hit]: ...

@final
class Skipped:
    """An item that is no valid tool, and was left out."""

    @property
    def position(self) -> int | None: ...
    @property
    def name(self) -> str | None: ...
    @property
    def error(self) -> str: ...

@final
class Changes:
    """The effect of a write."""

    @property
    def added(self) -> list[str]: ...
    @property
    def changed(self) -> list[str]: ...
    @property
    def removed(self) -> list[str]: ...
    @property
    def unchanged(self) -> int: ...
    @property
    def skipped(self) -> list[Skipped]: ...
    @property
    def embedded(self) -> int: ...
    @property
    def generation(self) -> int: ...

@final
class Figure:
    """A metric over all judged queries."""

    @property
    def mean(self) -> float: ...
    @property
    def low(self) -> float: ...
    @property
    def high(self) -> float: ...
    def __float__(self) -> float: ...

@final
class Evaluation:
    """How well a catalog answers judged queries."""

    @property
    def metrics(self) -> dict[str, Figure]: ...
    @property
    def queries(self) -> list[AnsweredQuery]: ...
    @property
    def latency(self) -> dict[str, Any]: ...
    def __getitem__(self, metric: str) -> Figure: ...

@final
class Catalog:
    """An open catalog: tools on disk, and search in them."""

    @staticmethod
    def open(
        path: str | os.PathLike[str] | None = None,
        *,
        name: str | None = None,
        embedder: str | None = None,
        config: str | os.PathLike[str] | None = None,
        create: bool = True,
    ) -> Catalog: ...
    @staticmethod
    def temporary(
        *, embedder: str | None = None, config: str | os.PathLike[str] | None = None
    ) -> Catalog: ...
    @property
    def name(self) -> str: ...
    @property
    def path(self) -> Path: ...
    @property
    def closed(self) -> bool: ...
    @property
    def generation(self) -> int: ...
    @property
    def pending_embeddings(self) -> int: ...
    def close(self) -> None: ...
    def add(
        self,
        tools: str | bytes | os.PathLike[str] | Mapping[str, Any] | Iterable[Any],
        *,
        server: str | None = None,
        skip_invalid: bool = False,
        embed: bool = True,
        progress: Progress | None = None,
    ) -> Changes: ...
    def sync(
        self,
        server: str,
        tools: str | bytes | os.PathLike[str] | Mapping[str, Any] | Iterable[Any],
        *,
        embed: bool = True,
        progress: Progress | None = None,
    ) -> Changes: ...
    def remove(self, ids: str | Sequence[str]) -> Changes: ...
    def embed(self, progress: Progress | None = None) -> int: ...
    def search(
        self,
        query: str | Sequence[str],
        *,
        limit: int | None = None,
        mode: Mode | None = None,
        servers: str | Sequence[str] | None = None,
        tags: str | Sequence[str] | None = None,
        ids: str | Sequence[str] | None = None,
        read_only: bool | None = None,
        destructive: bool | None = None,
        explain: bool = False,
        fold_duplicates: bool = False,
        whole: bool = False,
        ranker: bool = True,
        budget_ms: float | None = None,
        min_confidence: float | None = None,
        min_score: float | None = None,
        fusion: Fusion | None = None,
        dense_weight: float | None = None,
        companions: bool | None = None,
    ) -> Results: ...
    def eval(
        self,
        queries: str | bytes | os.PathLike[str] | Iterable[Mapping[str, Any]],
        *,
        mode: Mode | None = None,
        ranker: bool = True,
    ) -> Evaluation: ...
    def tools(
        self,
        *,
        servers: str | Sequence[str] | None = None,
        tags: str | Sequence[str] | None = None,
    ) -> ToolIterator: ...
    def get(self, id: str) -> Tool | None: ...
    def stats(self) -> Stats: ...
    def __getitem__(self, id: str) -> Tool: ...
    def __contains__(self, id: object) -> bool: ...
    def __iter__(self) -> ToolIterator: ...
    def __len__(self) -> int: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None: ...
