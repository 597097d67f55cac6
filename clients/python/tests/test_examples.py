"""The quick start and the notebook, run as people run them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


def test_the_quick_start() -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLES / "quick_start.py"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    lines = done.stdout.splitlines()
    assert lines[0].startswith("Changes(added=3"), done.stderr
    assert "office/send_email" in lines[1]
    assert lines[3:] == ["office__send_email", lines[4]]
    assert lines[4].startswith("Figure(1.0000")


def test_the_notebook() -> None:
    nbformat = pytest.importorskip("nbformat")
    from nbclient import NotebookClient

    notebook = nbformat.read(EXAMPLES / "quick_start.ipynb", as_version=4)
    NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]

    def shown(number: int, kind: str) -> str:
        outputs: list[Any] = cells[number].outputs
        return str(outputs[0]["data"][kind])

    assert shown(0, "text/plain").startswith("Changes(added=3")
    assert "office/send_email" in shown(1, "text/html")
    assert "<table>" in shown(1, "text/html")
    assert "office__send_email" in shown(3, "text/plain")
    assert "recall@1" in shown(4, "text/html")
