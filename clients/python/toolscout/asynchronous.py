"""Catalogs for asyncio: the calls of `Catalog` in threads, where the engine needs no Python lock.

>>> async with await toolscout.AsyncCatalog.open("folder") as catalog:  # doctest: +SKIP
...     results = await catalog.search("report a bug")
"""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING, Any, TypeVar

from toolscout._toolscout import Catalog

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
    from pathlib import Path
    from types import TracebackType
    from typing import Concatenate

    from typing_extensions import ParamSpec, Self

    from toolscout._toolscout import Tool

    Given = ParamSpec("Given")

Answer = TypeVar("Answer")
PAGE = 256
"""Tools that are read at a time."""


def _in_thread(
    method: Callable[Concatenate[Catalog, Given], Answer],
) -> Callable[Concatenate[AsyncCatalog, Given], Coroutine[Any, Any, Answer]]:
    async def call(self: AsyncCatalog, /, *args: Given.args, **options: Given.kwargs) -> Answer:
        return await asyncio.to_thread(method, self.catalog, *args, **options)

    functools.update_wrapper(call, method)
    return call


class AsyncCatalog:
    """As `Catalog`, for asyncio. `catalog` is the catalog itself. A `Toolbox` takes both."""

    def __init__(self, catalog: Catalog) -> None:
        """Wrap an open catalog."""
        self.catalog = catalog

    @classmethod
    async def open(
        cls,
        path: str | os.PathLike[str] | None = None,
        *,
        name: str | None = None,
        embedder: str | None = None,
        config: str | os.PathLike[str] | None = None,
        create: bool = True,
    ) -> Self:
        """Open a catalog, as `Catalog.open` does."""
        opened = functools.partial(Catalog.open, path, name=name, embedder=embedder)
        return cls(await asyncio.to_thread(opened, config=config, create=create))

    @classmethod
    async def temporary(
        cls, *, embedder: str | None = None, config: str | os.PathLike[str] | None = None
    ) -> Self:
        """Open an empty catalog in a folder of its own, which is deleted with it."""
        return cls(await asyncio.to_thread(Catalog.temporary, embedder=embedder, config=config))

    @property
    def name(self) -> str:
        """The catalog's name."""
        return self.catalog.name

    @property
    def path(self) -> Path:
        """The catalog's folder."""
        return self.catalog.path

    @property
    def closed(self) -> bool:
        """Whether the catalog was closed."""
        return self.catalog.closed

    add = _in_thread(Catalog.add)
    sync = _in_thread(Catalog.sync)
    remove = _in_thread(Catalog.remove)
    embed = _in_thread(Catalog.embed)
    search = _in_thread(Catalog.search)
    evaluate = _in_thread(Catalog.evaluate)
    get = _in_thread(Catalog.get)
    stats = _in_thread(Catalog.stats)
    servers = _in_thread(Catalog.servers)
    feedback = _in_thread(Catalog.feedback)
    memory = _in_thread(Catalog.memory)
    set_memory = _in_thread(Catalog.set_memory)
    forget = _in_thread(Catalog.forget)
    words = _in_thread(Catalog.words)
    set_words = _in_thread(Catalog.set_words)
    patch_words = _in_thread(Catalog.patch_words)
    settings = _in_thread(Catalog.settings)
    set_settings = _in_thread(Catalog.set_settings)
    close = _in_thread(Catalog.close)

    async def tools(
        self,
        *,
        servers: str | Sequence[str] | None = None,
        tags: str | Sequence[str] | None = None,
    ) -> AsyncIterator[Tool]:
        """Iterate over the tools, in the order of their ids, as the catalog is now."""
        iterator = await asyncio.to_thread(self.catalog.tools, servers=servers, tags=tags)

        def page() -> list[Tool]:
            return [tool for _, tool in zip(range(PAGE), iterator, strict=False)]

        while tools := await asyncio.to_thread(page):
            for tool in tools:
                yield tool

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"Async{self.catalog!r}"
