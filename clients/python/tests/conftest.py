"""Catalogs and tools that tests share."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
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
# A shell's job in the background ignores SIGINT, and so would the programs that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def catalog() -> Iterator[toolscout.Catalog]:
    with toolscout.Catalog.temporary(embedder="table") as catalog:
        yield catalog


@pytest.fixture
def office(catalog: toolscout.Catalog) -> toolscout.Catalog:
    catalog.add(OFFICE, server="office")
    return catalog


SCRIPT = Path(sys.executable).with_name("toolscout")


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


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("server")
    script = folder / "model.jsonl"
    script.write_text(MODEL)
    log = folder / "log"
    with log.open("w") as stderr:
        arguments = ["--embedder", "table", "--data", str(folder / "data"), "serve"]
        arguments += ["--listen", "127.0.0.1:0", "--llm", f"script:{script}"]
        process = subprocess.Popen([SCRIPT, *arguments], stderr=stderr, stdout=stderr)
        try:
            yield address(log, process)
        finally:
            process.terminate()
            assert process.wait(60) == 0


# One line for each question.
MODEL = '{"reply": {"text": "The mail is on its way."}}\n' * 2


def address(log: Path, process: subprocess.Popen[bytes]) -> str:
    for _ in range(300):
        for word in log.read_text().split():
            if word.startswith("http://127.0.0.1:"):
                return word.rstrip(".,;\"'")
        assert process.poll() is None, log.read_text()
        time.sleep(0.1)
    raise AssertionError(log.read_text())
