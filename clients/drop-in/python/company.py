"""What the examples share: the tools of a company, what calls them, and the questions, from the command line.

    python EXAMPLE.py TOOLS.json QUESTION...
"""

import json
import os
import sys

# Where toolscout serves.
TOOLSCOUT = os.environ.get("TOOLSCOUT_URL", "http://127.0.0.1:7700")

_, _file, *QUESTIONS = sys.argv
with open(_file, encoding="utf-8") as _opened:
    # Each has a name, a description and parameters, by JSON Schema.
    TOOLS = json.load(_opened)


def call(name: str, arguments: dict) -> str:
    """Does what a tool does; here it only repeats what it was given."""
    return f"{name}({', '.join(str(value) for value in arguments.values())})"
