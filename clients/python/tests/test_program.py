"""The program that the package installs is the program."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from conftest import OFFICE, SCRIPT

import toolscout


def run(*arguments: str | Path, data: Path, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SCRIPT, "--data", data, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        **options,
    )


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    (tmp_path / "tools.json").write_text(json.dumps(OFFICE))
    done = run(
        "--embedder", "table", "add", tmp_path / "tools.json", "--server", "office", data=folder
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_it_is_the_program(data: Path) -> None:
    done = run("--version", data=data)
    assert (done.returncode, done.stdout.strip()) == (0, f"toolscout {toolscout.__version__}")
    found = run("search", "report a bug", "--json", data=data)
    hits = json.loads(found.stdout)["hits"]
    assert hits[0]["id"] == "office/create_issue"
    with toolscout.Catalog.open(data) as catalog:
        results = catalog.search("report a bug")
        assert [(hit.id, hit.score) for hit in results] == [
            (hit["id"], hit["score"]) for hit in hits
        ]
    module = subprocess.run(
        [sys.executable, "-m", "toolscout", "--data", data, "list", "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert len(json.loads(module.stdout)) == 3


def test_exit_codes_and_streams_are_those_of_the_program(data: Path) -> None:
    assert run("search", data=data).returncode == 2
    assert run("no-such-verb", data=data).returncode == 2
    missing = run("--catalog", "nothing", "stats", data=data)
    assert (missing.returncode, missing.stdout) == (1, "")
    assert missing.stderr.startswith('error: no catalog "nothing"')
    added = run("add", "-", data=data, input=json.dumps({"name": "from_stdin"}))
    assert added.returncode == 0, added.stderr
    # A reader that goes away is no error, and nothing is printed about it.
    command = f"'{SCRIPT}' --data '{data}' list --json | true; echo ${{PIPESTATUS[0]}}"
    piped = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert (piped.stdout, piped.stderr) == ("0\n", "")


def test_ctrl_c_ends_it_as_it_ends_the_program(data: Path) -> None:
    # It waits for standard input, with no handler for Ctrl-C yet.
    with subprocess.Popen(
        [SCRIPT, "--data", data, "add", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as waiting:
        time.sleep(1.5)
        waiting.send_signal(signal.SIGINT)
        assert waiting.wait(20) == -signal.SIGINT


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_server_ends_gracefully(data: Path, sent: signal.Signals) -> None:
    port = free_port()
    with subprocess.Popen(
        [SCRIPT, "--data", data, "serve", "--listen", f"127.0.0.1:{port}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as server:
        for _ in range(200):
            try:
                with urllib.request.urlopen(
                    f"http://127.0.0.1:{port}/healthz", timeout=2
                ) as answer:
                    assert answer.status == 200
                break
            except OSError:
                time.sleep(0.1)
        server.send_signal(sent)
        _, log = server.communicate(timeout=60)
        assert server.returncode == 0, log


def test_mcp_speaks_over_standard_streams(data: Path) -> None:
    hello = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        },
    }
    lines = [hello, {"jsonrpc": "2.0", "method": "notifications/initialized"}]
    lines.append({"jsonrpc": "2.0", "id": 2, "method": "tools/list"})
    with subprocess.Popen(
        [SCRIPT, "--data", data, "mcp"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as gateway:
        assert gateway.stdin is not None
        assert gateway.stdout is not None
        for line in lines:
            gateway.stdin.write(json.dumps(line) + "\n")
            gateway.stdin.flush()
        answers = [json.loads(gateway.stdout.readline()) for _ in range(2)]
        names = {tool["name"] for tool in answers[1]["result"]["tools"]}
        assert "tool_search" in names
        gateway.stdin.close()
        assert gateway.wait(60) == 0


def test_clients_are_told_the_script(data: Path, tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    done = run("mcp", "install", "--client", "cursor", "--dry-run", data=data, env=home)
    assert done.returncode == 0, done.stderr
    assert json.dumps(str(SCRIPT)) in done.stdout
