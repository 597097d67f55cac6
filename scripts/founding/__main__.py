"""Plays the examples that toolscout was founded on, from end to end, and says of each expectation whether it holds.

usage: python3 scripts/founding [PART]     PART: a part of an example's title; all are played by default

The program is real, and so are its processes and sockets. The model is a server on loopback that speaks OpenAI's chat
completions and replies by a script, so that what a model sees is checked too; so is the web search. Ends with 1 if an
expectation does not hold. The program is target/debug/toolscout, or what TOOLSCOUT names.
"""

import signal
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.append(str(Path(__file__).resolve().parents[1] / "chaos"))

import examples
from provider import Provider
from scout import Stage, binary
from program import kill_what_runs

# Most of an example is waiting for processes that start.
AT_ONCE = 4


class Outcome:
    """What came of one example: its expectations, each with what was found if it does not hold."""

    def __init__(self, title):
        self.title = title
        self.expectations = []
        self.seconds = 0.0

    def expect(self, what, holds, found=""):
        self.expectations.append((what, bool(holds), found))

    @property
    def failed(self):
        return sum(not holds for _, holds, _ in self.expectations)

    def print(self):
        print(f"{self.title} ({self.seconds:.1f} s)")
        for what, holds, found in self.expectations:
            print(f"  {'ok' if holds else 'FAILED':6}  {what}")
            if not holds:
                print(f"          found: {shortened(found)}")
        sys.stdout.flush()


def shortened(found):
    text = str(found)
    return text if len(text) <= 600 else f"{text[:400]} … {text[-200:]}"


def play(title, example, provider):
    outcome, begin = Outcome(title), time.monotonic()
    with Stage(provider) as stage:
        try:
            example(stage, outcome.expect)
        except Exception as error:  # pylint: disable=broad-except
            where = traceback.extract_tb(error.__traceback__)[-1]
            outcome.expect("it is played to its end", False, f"{error!r} in {where.name}, line {where.lineno}")
    outcome.seconds = time.monotonic() - begin
    return outcome


def main():
    # So that nothing is left running.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if not binary().exists():
        sys.exit(f"{binary()} is not there: cargo build, or name another program with TOOLSCOUT")
    part = sys.argv[1] if len(sys.argv) > 1 else ""
    chosen = [(title, example) for title, example in examples.ALL.items() if part in title]
    if not chosen:
        sys.exit(f"no example has {part!r} in its title; there are {', '.join(examples.ALL)}")
    begin = time.monotonic()
    outcomes = []
    try:
        with Provider() as provider, ThreadPoolExecutor(AT_ONCE) as pool:
            playing = [pool.submit(play, title, example, provider) for title, example in chosen]
            for played in playing:
                outcomes.append(played.result())
                outcomes[-1].print()
    finally:
        kill_what_runs()
    expectations = sum(len(outcome.expectations) for outcome in outcomes)
    failed = sum(outcome.failed for outcome in outcomes)
    seconds = time.monotonic() - begin
    print(f"{len(outcomes)} examples, {expectations} expectations, {failed} failed, {seconds:.0f} s")
    sys.exit(failed > 0)


main()
