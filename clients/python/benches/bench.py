"""Measures the engine in Python: what a call costs, other packages beside it, and equality.

    python bench.py speed SET [--engines toolscout,bm25s,ratel,callbus] [--queries 500]
    python bench.py overhead SET [--queries 500]
    python bench.py equality PROGRAM SET [SET ...] [--queries 2000]

SET is a folder with tools.jsonl and queries.jsonl. `speed` needs the packages of
benches/peers/requirements.txt, and measures each engine in a process of its own. `overhead` is the
time of a call less the engine's own (`timings["total_ms"]`). `equality` compares with a server of
PROGRAM: ids, order and scores.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import toolscout

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "benches/peers"))
import peers  # type: ignore[import-not-found]

if TYPE_CHECKING:
    from collections.abc import Callable

LIMIT = 10
WARM_UP = 20
# For some moments after a commit each search looks for another one: the time of a file is not
# exact.
SETTLE_S = 3


def lines(path: Path) -> list[dict[str, Any]]:
    """Read a file of JSON lines."""
    with path.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()]


def queries_of(folder: Path, count: int) -> list[str]:
    """Take queries at equal distances."""
    texts = [query["query"] for query in lines(folder / "queries.jsonl")]
    step = max(1, len(texts) // count)
    return texts[::step][:count]


def with_toolscout(tools: Path, hits: int) -> Callable[[str], Any]:
    """Index with this package and its default embedders."""
    catalog = toolscout.Catalog.temporary()
    catalog.add(tools)
    return lambda query: catalog.search(query, limit=hits)


def with_table(tools: Path, hits: int) -> Callable[[str], Any]:
    """Index with this package and the built-in tables alone."""
    catalog = toolscout.Catalog.temporary(embedder="table")
    catalog.add(tools)
    return lambda query: catalog.search(query, limit=hits)


ENGINES = {
    "toolscout": with_toolscout,
    "toolscout-table": with_table,
    **peers.ENGINES,
}


def resident() -> float:
    """Read the memory of this process, in MB."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def percentile(values: list[float], share: float) -> float:
    """Take a percentile by nearest rank."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def measure(engine: str, folder: Path, count: int) -> dict[str, float]:
    """Measure one engine in this process."""
    texts = queries_of(folder, count)
    before, start = resident(), time.perf_counter()
    search = ENGINES[engine](folder / "tools.jsonl", LIMIT)
    search(texts[0])
    indexed = time.perf_counter() - start
    for text in texts[:WARM_UP]:
        search(text)
    times = []
    for text in texts:
        start = time.perf_counter()
        search(text)
        times.append((time.perf_counter() - start) * 1e3)
    return {
        "index_s": indexed,
        "p50_ms": statistics.median(times),
        "p95_ms": percentile(times, 0.95),
        "memory_mb": resident() - before,
    }


def speed(folder: Path, engines: list[str], count: int) -> None:
    """Measure each engine in a process of its own."""
    print("| package | index s | p50 ms | p95 ms | memory MB |\n|---|---|---|---|---|")
    for engine in engines:
        command = [sys.executable, __file__, "one", str(folder)]
        command += ["--engines", engine, "--queries", str(count)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"| {engine} | {done.stderr.strip().splitlines()[-1]} | | | |")
            continue
        figures = json.loads(done.stdout.splitlines()[-1])
        row = [f"{figures['index_s']:.2f}", f"{figures['p50_ms']:.3f}"]
        row += [f"{figures['p95_ms']:.3f}", f"{figures['memory_mb']:.0f}"]
        print(f"| {engine} | {' | '.join(row)} |")


def overhead(folder: Path, count: int) -> None:
    """Print what a call from Python takes beyond the engine's own time."""
    texts = queries_of(folder, count)
    with toolscout.Catalog.temporary(embedder="table") as catalog:
        catalog.add(folder / "tools.jsonl")
        time.sleep(SETTLE_S)
        for text in texts[:WARM_UP]:
            catalog.search(text)
        for name, use in (
            ("search", lambda results: results),
            ("search, ids and scores read", lambda results: [(h.id, h.score) for h in results]),
            ("search, tools for a model", lambda results: results.tools("openai")),
        ):
            extra, total = [], []
            for text in texts:
                start = time.perf_counter()
                results = catalog.search(text, limit=5)
                use(results)
                took = (time.perf_counter() - start) * 1e3
                total.append(took)
                extra.append((took - results.timings["total_ms"]) * 1e3)
            print(
                f"{name}: {statistics.median(extra):.1f} µs beyond the engine's "
                f"{statistics.median(total):.3f} ms (p95 {percentile(extra, 0.95):.1f} µs)"
            )


def equality(program: Path, folders: list[Path], count: int) -> None:
    """Compare answers with those of a server of the program."""
    of_each = -(-count // len(folders))
    compared = different = 0
    for folder in folders:
        with tempfile.TemporaryDirectory() as data, toolscout.Catalog.open(data) as catalog:
            catalog.add(folder / "tools.jsonl")
            url, process = serve(program, data)
            try:
                for text in queries_of(folder, of_each):
                    ours = [(hit.id, hit.score) for hit in catalog.search(text, limit=LIMIT)]
                    theirs = ask(url, text)
                    compared += 1
                    if ours != theirs:
                        different += 1
                        print(f"{folder.name}: {text!r}\n  {ours}\n  {theirs}")
            finally:
                process.terminate()
                process.wait()
        print(f"{folder.name}: {compared} requests so far, {different} answered differently")
    sys.exit(1 if different else 0)


def serve(program: Path, data: str) -> tuple[str, subprocess.Popen[str]]:
    """Start a server."""
    command = [str(program), "--data", data, "serve", "--listen", "127.0.0.1:0", "--log", "warn"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("listening on "):
            return line.removeprefix("listening on ").strip(), process
    raise SystemExit("the server did not start")


def ask(url: str, text: str) -> list[tuple[str, float]]:
    """Search over HTTP."""
    body = json.dumps({"query": text, "k": LIMIT}).encode()
    request = urllib.request.Request(
        f"{url}/v1/search", body, headers={"content-type": "application/json"}
    )
    for attempt in range(100):
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return [(hit["id"], hit["score"]) for hit in json.load(answer)["hits"]]
        except urllib.error.HTTPError:  # noqa: PERF203 (it is asked again)
            # The catalog is being opened.
            time.sleep(0.1 * (attempt + 1))
    raise SystemExit("the server does not answer")


def main() -> None:
    """Read the command line."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("what", choices=["speed", "overhead", "equality", "one"])
    options.add_argument("paths", type=Path, nargs="+")
    options.add_argument("--engines", default=",".join(ENGINES))
    options.add_argument("--queries", type=int, default=None)
    given = options.parse_args()
    if given.what == "equality":
        equality(given.paths[0], given.paths[1:], given.queries or 2000)
    elif given.what == "overhead":
        overhead(given.paths[0], given.queries or 500)
    elif given.what == "speed":
        speed(given.paths[0], given.engines.split(","), given.queries or 500)
    else:
        print(json.dumps(measure(given.engines, given.paths[0], given.queries or 500)))


if __name__ == "__main__":
    main()
