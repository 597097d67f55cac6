"""Adds tools to a catalog, finds the right one, and measures how well that works.

pip install toolscout
python quick_start.py
"""

import toolscout

TOOLS = [
    {
        "name": "send_email",
        "description": "Sends an email to one or more recipients.",
        "inputSchema": {
            "type": "object",
            "properties": {"to": {"type": "string"}, "text": {"type": "string"}},
            "required": ["to", "text"],
        },
    },
    {"name": "create_event", "description": "Creates an event in a calendar."},
    {"name": "create_issue", "description": "Opens an issue in a repository."},
]


def main() -> None:
    """Show the engine at work."""
    # `Catalog.open("folder")` has one that stays.
    with toolscout.Catalog.temporary() as catalog:
        print(catalog.add(TOOLS, server="office"))

        results = catalog.search("write a mail to Ada", limit=2)
        for hit in results:
            print(f"{hit.score:.3f}  {hit.id}  {hit.description}")
        # This goes into a request to a model as it is.
        print(results.tools("openai")[0]["function"]["name"])

        queries = [
            {"query": "report a bug", "relevant": ["office/create_issue"]},
            {"query": "block Friday afternoon", "relevant": ["office/create_event"]},
        ]
        print(catalog.evaluate(queries)["recall@1"])


if __name__ == "__main__":
    main()
