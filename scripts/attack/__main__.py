#!/usr/bin/env python3
"""Attacks a running program, and counts what gets through.

    python3 scripts/attack [AREA ...] [--short]

The program is $TOOLSCOUT, or target/release/toolscout. Prints a line for each area, and each attempt that got
through. Ends with 1 if any did. --short leaves out the long ones and those of routes but for a sample.
"""

import argparse
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "chaos"))
sys.path.insert(0, str(HERE))

import answers  # noqa: E402
import commands  # noqa: E402
import load  # noqa: E402
import requests_without_rights as rights  # noqa: E402

AREAS = {
    "keys": rights.keys,
    "pages of other sites": rights.pages,
    "hosts": rights.hosts,
    "names and paths": rights.names,
    "bodies": rights.bodies,
    "sessions": rights.sessions,
    "files": commands.files,
    "shell and sandbox": commands.sandbox,
    "shell lists": commands.lists,
    "changed tools": commands.changed_tools,
    "texts of enrichment": commands.enrichment,
    "drop-in endpoint": answers.endpoint,
    "operations": answers.operations,
    "schemas": load.schemas,
    "endless answers": load.endless,
}


class Report:
    """Attempts of one area."""

    def __init__(self):
        self.attempts = 0
        self.through = []
        self.notes = []

    def attempt(self, name, is_refused, what=""):
        self.attempts += 1
        if not is_refused:
            self.through.append(f"{name}: {str(what)[:200]}")

    def note(self, text):
        self.notes.append(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("areas", nargs="*", metavar="AREA", help=f"all by default: {', '.join(AREAS)}")
    parser.add_argument("--short", action="store_true")
    arguments = parser.parse_args()
    unknown = [area for area in arguments.areas if area not in AREAS]
    if unknown:
        parser.error(f"there is no area {unknown[0]!r}; areas are {', '.join(AREAS)}")
    total = through = 0
    for area in arguments.areas or AREAS:
        report, begin = Report(), time.monotonic()
        AREAS[area](report, arguments.short)
        total += report.attempts
        through += len(report.through)
        print(f"{area:22} {report.attempts:5} attempts  {len(report.through):3} through  {time.monotonic() - begin:5.1f} s", flush=True)
        for line in [*report.notes, *(f"THROUGH {line}" for line in report.through)]:
            print(f"    {line}", flush=True)
    print(f"{'all':22} {total:5} attempts  {through:3} through")
    sys.exit(1 if through else 0)


if __name__ == "__main__":
    main()
