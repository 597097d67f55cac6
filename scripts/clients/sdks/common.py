"""What the agents of Python share: the tools, each with a function that says that it was called."""

import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).parent.parent))

from tools import tools  # noqa: E402

URL, CALLS = sys.argv[1], sys.argv[2]
PROMPT = "Archive invoice 7 and cancel shipment 7."
TOOLS = tools()


def called(name):
    """Notes a call and returns its result."""
    with open(CALLS, "a", encoding="utf-8") as calls:
        calls.write(f"{name}\n")
    return f"the office has done {name}"
