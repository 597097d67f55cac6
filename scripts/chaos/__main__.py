"""Breaks toolscout in every way at hand, and looks whether anything was lost.

usage: python3 scripts/chaos [--minutes M | --rounds N | --short] [--only KIND …] [--seed S]

Rounds of all kinds take turns until the time is over: kills of the server and of commands, a disk that is full, damage
to any file, MCP servers that are slow or lie, overload. Prints rounds, acknowledged writes, losses, panics and hangs of
each kind, and ends with 1 if there was any. The program is target/release/toolscout, or what TOOLSCOUT names.
"""

import argparse
import random
import signal
import sys
import time
import traceback
from typing import NamedTuple

from corruption import Corruption
from full_disk import FullDisk
from kill_command import KillCommand
from kill_server import KillServer
from mcp_servers import McpServers
from overload import Overload
from program import Hang, Refused, binary, kill_what_runs, panics

class Kind(NamedTuple):
    make: type
    # Share of the time. Kills of the server are what most can go wrong with.
    share: float
    # Rounds of the short form: together about two minutes.
    short: int


KINDS = {
    "kill-server": Kind(KillServer, 0.60, 12),
    "kill-command": Kind(KillCommand, 0.12, 24),
    "full-disk": Kind(FullDisk, 0.06, 1),
    "corruption": Kind(Corruption, 0.12, 12),
    "mcp": Kind(McpServers, 0.06, 2),
    "overload": Kind(Overload, 0.04, 1),
}
OVERLOAD_S = 10
SHOWN = 10


class Report:
    """What came of the rounds of one kind."""

    def __init__(self, kind):
        self.kind = kind
        self.rounds = self.writes = 0
        self.seconds = 0.0
        self.losses, self.panics, self.hangs, self.notes, self.skipped = [], [], [], [], None

    def loss(self, what):
        self.losses.append(what)
        self.tell("loss", what)

    def hang(self, what):
        self.hangs.append(what)
        self.tell("hang", what)

    def note(self, what):
        self.notes.append(what)

    def skip(self, why):
        self.skipped = why

    def said(self, text):
        """What a process wrote on its standard error."""
        for line in panics(text):
            self.panics.append(line)
            self.tell("panic", line)

    def end_of(self, server):
        self.said(server.said())
        server.log.close()

    def tell(self, what, detail):
        print(f"{what}, {self.kind}, round {self.rounds + 1}: {detail}", file=sys.stderr, flush=True)

    @property
    def failures(self):
        return len(self.losses) + len(self.panics) + len(self.hangs)


def main():
    arguments = read_arguments()
    # So that what is mounted is unmounted, and what runs is ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if not binary().exists():
        sys.exit(f"{binary()} is not there: cargo build --release, or name another program with TOOLSCOUT")
    print(f"seed {arguments.seed}, {binary()}", flush=True)
    chosen = {kind: KINDS[kind] for kind in arguments.only or KINDS}
    reports = {kind: Report(kind) for kind in chosen}
    running = {}
    try:
        for kind in turns(arguments, chosen, reports):
            if kind not in running:
                options = [overload_seconds(arguments)] if kind == "overload" else []
                running[kind] = chosen[kind].make(random.Random(f"{arguments.seed} {kind}"), reports[kind], *options)
            if not one_round(running[kind], reports[kind]):
                # What it expects is not known any more, so it begins anew.
                running.pop(kind).close()
    finally:
        kill_what_runs()
        for rounds in running.values():
            rounds.close()
        print_table(reports)
    sys.exit(any(report.failures for report in reports.values()))


def read_arguments():
    parser = argparse.ArgumentParser(prog="scripts/chaos", description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60, help="how long, 60 by default")
    parser.add_argument("--rounds", type=int, help="rounds of each kind, instead of a time")
    parser.add_argument("--short", action="store_true", help="a few rounds of each kind")
    parser.add_argument("--only", nargs="+", choices=KINDS, metavar="KIND", help=f"kinds: {', '.join(KINDS)}")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    return parser.parse_args()


def overload_seconds(arguments):
    alone = arguments.only == ["overload"] and arguments.rounds is None and not arguments.short
    return arguments.minutes * 60 if alone else OVERLOAD_S


def turns(arguments, chosen, reports):
    """The kind of each round: whichever has had least of its share of the time."""
    if arguments.short or arguments.rounds is not None:
        for kind in chosen:
            yield from [kind] * (chosen[kind].short if arguments.short else arguments.rounds)
        return
    end = time.monotonic() + arguments.minutes * 60
    while time.monotonic() < end:
        yield min(chosen, key=lambda kind: reports[kind].seconds / chosen[kind].share)


def one_round(rounds, report):
    """True when the round came to its end."""
    begin = time.monotonic()
    ended = False
    try:
        rounds.round()
        ended = True
    except Hang as error:
        report.hang(str(error))
    except Refused as error:
        report.loss(f"the server did not start: {error}")
    except Exception:  # pylint: disable=broad-except
        report.loss(f"the round failed: {traceback.format_exc()}")
    report.rounds += 1
    report.seconds += time.monotonic() - begin
    return ended


def print_table(reports):
    print("| kind | rounds | minutes | acknowledged writes | losses | panics | hangs |")
    print("|---|---|---|---|---|---|---|")
    for report in reports.values():
        figures = [report.rounds, f"{report.seconds / 60:.1f}", report.writes]
        figures += [len(report.losses), len(report.panics), len(report.hangs)]
        print(f"| {report.kind} | {' | '.join(map(str, figures))} |")
    for report in reports.values():
        for note in report.notes[-SHOWN:]:
            print(f"{report.kind}: {note}")
        if report.skipped:
            print(f"{report.kind}: skipped, {report.skipped}")


main()
