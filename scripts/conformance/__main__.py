"""Runs the official MCP conformance tool against its reference server, directly and through toolscout, and against toolscout as a
client. Prints tables.

usage: python3 scripts/conformance [--reference FOLDER] [--protocol VERSION]... [--side server|client]... [--keep]

FOLDER is a checkout of github.com/modelcontextprotocol/conformance; without it, the script fetches the pinned commit with git.
The tool and Node.js 22 come from npm. Everything is installed below target/conformance. Needs Python 3.11, npm and a program:
target/debug/toolscout, or what TOOLSCOUT names. With --keep, the results of the tool stay in target/conformance/results.

Ends with 1 if a check passes directly and fails through toolscout, or a scenario of clients fails, and `differences.py` does not
say why.
"""

import argparse
import json
import os
import platform
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

sys.dont_write_bytecode = True

from differences import CLIENT_FAILURES, DIFFERENCES

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("TOOLSCOUT", str(ROOT / "target/debug/toolscout"))
INSTALLED = ROOT / "target/conformance"
RESULTS = INSTALLED / "results"
TOOL = "@modelcontextprotocol/conformance@0.2.0-alpha.12"
NODE = "22.23.5"
REPOSITORY = "https://github.com/modelcontextprotocol/conformance"
COMMIT = "c321dd32035556e6769d3724a8ee97d87c3faaac"
SERVER_FOLDER = "examples/servers/typescript"
VERSIONS = ["2025-06-18", "2025-11-25", "2026-07-28"]
# The version without a handshake, for which the entry of the server says so.
STATELESS = "2026-07-28"
START_LIMIT_S = 60
RUN_LIMIT_S = 300
SCENARIO_LIMIT_S = 120
# As in `mcpServers`, and as a prefix of names.
NAME = "reference"
# Nothing here leaves this machine.
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def npm(folder, *packages):
    """Installs packages where they are not yet."""
    folder.mkdir(parents=True, exist_ok=True)
    marker = folder / "installed.json"
    if marker.exists() and json.loads(marker.read_text()) == list(packages):
        return
    if not (folder / "package.json").exists():
        (folder / "package.json").write_text('{"private": true}\n')
    # Without the packages' own scripts.
    command = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--silent", *packages]
    subprocess.run(command, cwd=folder, check=True)
    marker.write_text(json.dumps(list(packages)))


def install(reference):
    """Returns the words that begin a command of the tool, and those that start the reference server."""
    system = {"Linux": "linux", "Darwin": "darwin"}[platform.system()]
    machine = {"x86_64": "x64", "aarch64": "arm64", "arm64": "arm64"}[platform.machine()]
    runtime = f"node-{system}-{machine}"
    npm(INSTALLED / "tool", TOOL, f"{runtime}@{NODE}")
    modules = INSTALLED / "tool/node_modules"
    node = str(modules / runtime / "bin/node")
    source = Path(reference) if reference else fetch()
    server = INSTALLED / "server"
    shutil.copytree(source / SERVER_FOLDER, server, dirs_exist_ok=True)
    # esbuild, which tsx needs, comes as a package for each platform.
    npm(server)
    tool = [node, str(modules / "@modelcontextprotocol/conformance/dist/index.js")]
    return tool, [node, str(server / "node_modules/tsx/dist/cli.mjs"), str(server / "everything-server.ts")]


def fetch():
    """The pinned commit of the repository that has the reference server."""
    folder = INSTALLED / "repository"
    if not (folder / SERVER_FOLDER).exists():
        folder.mkdir(parents=True, exist_ok=True)
        for words in (["init", "--quiet"], ["fetch", "--quiet", "--depth", "1", REPOSITORY, COMMIT]):
            subprocess.run(["git", *words], cwd=folder, check=True)
        subprocess.run(["git", "checkout", "--quiet", "FETCH_HEAD"], cwd=folder, check=True)
    return folder


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Running:
    """A process that listens at a port, until the end of the block."""

    def __init__(self, command, port, log, **options):
        self.port = port
        self.process = subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True, **options
        )

    def __enter__(self):
        deadline = time.monotonic() + START_LIMIT_S
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise SystemExit(f"{self.process.args[0]} ended with {self.process.returncode}; see {RESULTS}/*.log")
            with socket.socket() as connection:
                if connection.connect_ex(("127.0.0.1", self.port)) == 0:
                    return self
            time.sleep(0.05)
        raise SystemExit(f"{self.process.args[0]} did not listen within {START_LIMIT_S} s")

    def __exit__(self, *_):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
        self.process.wait()


def checks(tool, url, version, name):
    """Runs all scenarios of a version; whether each check passed, by scenario and id."""
    results = RESULTS / name
    shutil.rmtree(results, ignore_errors=True)
    command = [*tool, "server", "--url", url, "--suite", "all", "--spec-version", version, "--output-dir", str(results)]
    with open(RESULTS / f"{name}.txt", "w", encoding="utf-8") as log:
        subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, timeout=RUN_LIMIT_S, check=False)
    passed = {}
    for file in sorted(results.glob("*/checks.json")):
        # server-SCENARIO-2026-01-01T00-00-00-000Z
        scenario = file.parent.name.removeprefix("server-")[:-25]
        for check in json.loads(file.read_text()):
            key = (scenario, check["id"])
            if check["status"] in ("SUCCESS", "FAILURE"):
                passed[key] = passed.get(key, (True, ""))
                if check["status"] == "FAILURE":
                    passed[key] = (False, check.get("errorMessage") or "")
    return passed


def through(server_url, version, run):
    """Runs this with the URL of toolscout before the server, whose tools are pinned."""
    with tempfile.TemporaryDirectory() as folder, open(RESULTS / f"toolscout-{version}.log", "w", encoding="utf-8") as log:
        entry = {"type": "http", "url": server_url}
        if version == STATELESS:
            entry["protocol"] = STATELESS
        servers = Path(folder) / "servers.json"
        servers.write_text(json.dumps({"mcpServers": {NAME: entry}}))
        common = [PROGRAM, "--data", str(Path(folder) / "data")]
        subprocess.run([*common, "sync", "--mcp", str(servers)], stdout=log, stderr=log, check=True)
        listed = subprocess.run([*common, "list", "--json"], stdout=subprocess.PIPE, stderr=log, check=True, text=True)
        pins = [word for tool in ids(listed.stdout) for word in ("--mcp-pin", tool)]
        port = free_port()
        serve = [*common, "serve", "--listen", f"127.0.0.1:{port}", "--mcp", str(servers), "--allow", "*", *pins]
        with Running(serve, port, log):
            address = f"http://127.0.0.1:{port}"
            wait_until_connected(address)
            return run(f"{address}/mcp")


def ids(listed):
    """The ids of tools in what `list --json` prints."""
    return [tool["id"] for tool in json.loads(listed) if tool["id"].startswith(f"{NAME}/")]


def wait_until_connected(address):
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline:
        try:
            with OPENER.open(f"{address}/v1/catalogs/default/servers", timeout=5) as answer:
                servers = json.load(answer)["servers"]
            if any(server.get("connection", {}).get("state") == "connected" for server in servers):
                return
        except OSError:
            pass
        time.sleep(0.1)
    raise SystemExit(f"the reference server was not connected within {START_LIMIT_S} s; see {RESULTS}/*.log")


def known(version, scenario, check):
    for (of_version, of_scenario, of_check), reason in DIFFERENCES.items():
        if all(of in ("*", is_) for of, is_ in ((of_version, version), (of_scenario, scenario), (of_check, check))):
            return reason
    return None


def compared(tool, server, versions):
    """Runs the scenarios of servers. The lines to print, and whether all is as expected."""
    rows, explained, unexpected = [], {}, []
    port = free_port()
    with (
        open(RESULTS / "reference.log", "w", encoding="utf-8") as log,
        Running(server, port, log, env={**os.environ, "PORT": str(port)}),
    ):
        url = f"http://127.0.0.1:{port}/mcp"
        for version in versions:
            direct = checks(tool, url, version, f"direct-{version}")
            behind = through(url, version, lambda address: checks(tool, address, version, f"through-{version}"))
            good = [key for key, (is_passed, _) in direct.items() if is_passed]
            lost = [key for key in good if not behind.get(key, (False, ""))[0]]
            for scenario, check in lost:
                reason = known(version, scenario, check)
                message = behind.get((scenario, check), (False, "the check was not reached"))[1]
                if reason:
                    explained.setdefault(reason, []).append(f"{version} {scenario}: {check}")
                else:
                    unexpected.append(f"{version} {scenario}: {check}: {message[:300]}")
            rows.append((version, len(direct), len(good), len(good) - len(lost)))
    lines = ["| protocol | checks | pass direct | of these pass through toolscout |", "|---|---:|---:|---:|"]
    lines += ["| " + " | ".join(map(str, row)) + " |" for row in rows]
    for reason, of in explained.items():
        lines += ["", f"Known difference: {reason}", *(f"  {line}" for line in of)]
    if unexpected:
        lines += ["", "Pass direct and fail through toolscout:", *(f"  {line}" for line in unexpected)]
    return lines, not unexpected


def as_client(tool, versions):
    """Runs the scenarios of clients. The lines to print, and whether all is as expected."""
    lines, explained, unexpected = ["| protocol | scenarios | pass with toolscout as the client |", "|---|---:|---:|"], [], []
    listed = subprocess.run([*tool, "list"], stdout=subprocess.PIPE, check=True, text=True).stdout
    listed = listed.split("Client scenarios", 1)[1].split("Authorization server scenarios", 1)[0]
    scenarios = re.findall(r"- (\S+) \[(.*)\]", listed)
    driver = f"{sys.executable} {Path(__file__).resolve().parent / 'client.py'}"
    for version in versions:
        wanted = [name for name, of in scenarios if version in of.split(",")]
        passed = 0
        for name in wanted:
            command = [*tool, "client", "--command", driver, "--scenario", name, "--spec-version", version]
            log = RESULTS / f"client-{version}-{name.replace('/', '-')}.txt"
            with open(log, "w", encoding="utf-8") as output:
                command += ["--timeout", str(SCENARIO_LIMIT_S * 1_000)]
                limit = SCENARIO_LIMIT_S + 30
                ran = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, timeout=limit, check=False)
            if ran.returncode == 0:
                passed += 1
            elif reason := CLIENT_FAILURES.get(name):
                explained.append(f"{version} {name}: {reason}")
            else:
                unexpected.append(f"{version} {name}: see {log}")
        lines.append(f"| {version} | {len(wanted)} | {passed} |")
    if explained:
        lines += ["", "Known to fail:", *(f"  {line}" for line in explained)]
    if unexpected:
        lines += ["", "Fail with toolscout as the client:", *(f"  {line}" for line in unexpected)]
    return lines, not unexpected


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--reference", metavar="FOLDER")
    arguments.add_argument("--protocol", metavar="VERSION", action="append", choices=VERSIONS)
    arguments.add_argument("--side", action="append", choices=["server", "client"])
    arguments.add_argument("--keep", action="store_true")
    given = arguments.parse_args()
    RESULTS.mkdir(parents=True, exist_ok=True)
    tool, server = install(given.reference)
    versions, sides = given.protocol or VERSIONS, given.side or ["server", "client"]
    is_expected = True
    for side in sides:
        lines, is_good = compared(tool, server, versions) if side == "server" else as_client(tool, versions)
        print("\n".join(lines), end="\n\n", flush=True)
        is_expected = is_expected and is_good
    if is_expected and not given.keep:
        shutil.rmtree(RESULTS)
    return 0 if is_expected else 1


sys.exit(main())
