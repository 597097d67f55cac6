"""Catalogs and tools that tests share."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import toolscout

# Settings of whoever runs the tests do not count.
for variable in list(os.environ):
    if variable.startswith("TOOLSCOUT_"):
        del os.environ[variable]
os.environ["TOOLSCOUT_CONFIG"] = os.devnull


@pytest.fixture
def catalog() -> Iterator[toolscout.Catalog]:
    with toolscout.Catalog.temporary(embedder="table") as catalog:
        yield catalog


@pytest.fixture
def office(catalog: toolscout.Catalog) -> toolscout.Catalog:
    catalog.add(OFFICE, server="office")
    return catalog


def tool(name: str, description: str = "", **parameters: str) -> dict[str, Any]:
    """Make an MCP tool."""
    properties = {key: {"type": kind} for key, kind in parameters.items()}
    return {
        "name": name,
        "description": description,
        "inputSchema": {"type": "object", "properties": properties},
    }


OFFICE = [
    tool("send_email", "Sends an email to one or more recipients.", to="string"),
    tool("create_event", "Creates an event in a calendar.", title="string"),
    tool("create_issue", "Opens an issue in a repository, such as a bug.", title="string"),
]

VERBS = [
    "create",
    "delete",
    "list",
    "update",
    "archive",
    "export",
    "rename",
    "share",
    "count",
    "copy",
]
THINGS = [
    "invoice", "customer", "ticket", "photo", "playlist", "recipe", "flight", "hotel", "server",
    "database", "branch", "contract", "employee", "shipment", "coupon", "meeting", "survey",
    "sensor", "garden", "podcast", "library", "parcel", "budget", "ledger", "course", "exam",
    "patient", "vaccine", "bridge", "tunnel", "satellite", "rocket", "tractor", "harvest",
    "museum", "painting", "statue", "novel", "poem", "opera", "violin", "drum", "stadium",
    "referee", "tournament", "medal", "passport", "visa", "embassy", "border",
]  # fmt: skip


def many(count: int) -> list[dict[str, Any]]:
    """Make tools with different names."""
    tools: list[dict[str, Any]] = []
    for number in range(count):
        verb = VERBS[number % len(VERBS)]
        thing = THINGS[number // len(VERBS) % len(THINGS)]
        series = number // (len(VERBS) * len(THINGS))
        name = f"{verb}_{thing}" + (f"_{series}" if series else "")
        tools.append(tool(name, f"{verb.capitalize()}s a {thing} of series {series}.", id="string"))
    return tools


def run_python(
    code: str, *, timeout: float = 120, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run code in a new interpreter."""
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        cwd=Path(__file__).parent,
        **options,
    )
