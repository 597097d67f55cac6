"""Other engines that find tools, as `scripts/bench --peers` and `scripts/field` run them.

An engine is a command that is called with TOOLS QUERIES WARM_UP HITS. TOOLS is JSONL as `toolscout export` writes it, with an "id"
in each line; QUERIES is JSONL with a "query" in each line, of which the first WARM_UP are not timed. The command prints one line
of JSON: {"build_s": seconds to read and index TOOLS, "search_ms": median of a search, "hits": [ids of at most HITS tools, best
first, for each query]}.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import namedtuple
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PEERS = ROOT / "benches/peers"

Run = namedtuple("Run", "seconds peak_mb printed")
Answered = namedtuple("Answered", "build_s search_ms peak_mb hits")


def run(command):
    """Runs a command to its end."""
    start = time.perf_counter()
    with tempfile.TemporaryFile("w+") as errors:
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        printed = child.stdout.read()
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            errors.seek(0)
            raise SystemExit(f"{' '.join(map(str, command))} failed:\n{errors.read()}")
    return Run(time.perf_counter() - start, usage.ru_maxrss / 1024, printed)


def lines_of(path, key):
    """The JSON objects of a file that has one in each line."""
    objects = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip():
            continue
        try:
            read = json.loads(line)
        except ValueError:
            read = None
        if not isinstance(read, dict) or not isinstance(read.get(key), str):
            raise SystemExit(f'{path}:{number}: {line[:80]!r} is no JSON object with a "{key}"')
        objects.append(read)
    return objects


def installed():
    """{name: command} of the engines from PyPI and crates.io, which it installs below target/."""
    print(f"installing and building other engines in {ROOT / 'target'}, where that was not done before", file=sys.stderr)
    requirements = PEERS / "requirements.txt"
    environment = ROOT / "target/venv-peers"
    done = environment / "installed.txt"
    if not done.exists() or done.read_text() != requirements.read_text():
        run(["python3", "-m", "venv", "--clear", environment])
        run([environment / "bin/pip", "install", "--quiet", "--disable-pip-version-check", "--requirement", requirements])
        shutil.copy(requirements, done)
    built = ROOT / "target/peers"
    cargo = os.environ.get("CARGO", "cargo")
    run([cargo, "build", "--release", "--locked", "--manifest-path", PEERS / "Cargo.toml", "--target-dir", built])
    in_python = [environment / "bin/python", PEERS / "peers.py"]
    return {
        "ratel-ai, words": [*in_python, "ratel"],
        "bm25s": [*in_python, "bm25s"],
        "callbus, words": [*in_python, "callbus"],
        "FastMCP, BM25 transform": [*in_python, "fastmcp"],
        "Codex-style (crate bm25)": [built / "release/toolscout-peers"],
    }


def write_tools(program, tools, data, target):
    """Writes tools as a toolscout program has understood them, for other engines. DATA is a folder for its catalog."""
    command = [program, "--data", data, "--embedder", "none"]
    run([*command, "add", tools])
    with target.open("w") as file:
        for line in run([*command, "export"]).printed.splitlines():
            tool = json.loads(line)
            # The export leaves out an id that is made of these.
            tool.setdefault("id", f"{tool['server']}/{tool['name']}" if "server" in tool else tool["name"])
            file.write(json.dumps(tool) + "\n")


def answer(command, tools, queries, warm_up, hits):
    """What an engine finds, and what it takes."""
    done = run([*command, tools, queries, str(warm_up), str(hits)])
    name = " ".join(map(str, command))
    try:
        printed = json.loads(done.printed)
        answered = Answered(printed["build_s"], printed["search_ms"], done.peak_mb, printed["hits"])
    except (ValueError, KeyError, TypeError) as error:
        raise SystemExit(f'{name}: printed {done.printed[:80]!r}, and not {{"build_s", "search_ms", "hits"}}: {error!r}') from error
    if not any(answered.hits):
        raise SystemExit(f"{name} found nothing")
    return answered
