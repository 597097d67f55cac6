"""The command line: the program itself, in this process."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from typing import NoReturn

from toolscout._toolscout import run_program


def main() -> NoReturn:
    """Run `toolscout` with the arguments of this process."""
    # The program has its own ideas of signals: without a handler of its own, Ctrl-C ends it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if hasattr(signal, "SIGXFSZ"):
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    run_program(["toolscout", *sys.argv[1:]], _script())


def _script() -> str | None:
    """Find the script that starts the program again; `python -m toolscout` is none."""
    started = os.path.abspath(sys.argv[0])
    if os.path.basename(started).startswith("toolscout"):
        return started
    return shutil.which("toolscout", path=os.path.dirname(os.path.abspath(sys.executable)))
