"""A test of code that uses a catalog, without the engine.

pip install toolscout
python scripted.py
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolscout.testing import ScriptedCatalog

if TYPE_CHECKING:
    import toolscout


def best_tool(catalog: toolscout.Catalog | ScriptedCatalog, request: str) -> str:
    """Stand for the code that is tested."""
    return catalog.search(request, limit=1).ids[0]


def test_best_tool() -> None:
    """Test it."""
    catalog = ScriptedCatalog({"write to Ada": ["mail/send", "chat/send"]})
    assert best_tool(catalog, "write to Ada") == "mail/send"
    assert catalog.calls[0].arguments == {"query": "write to Ada", "limit": 1}


if __name__ == "__main__":
    test_best_tool()
