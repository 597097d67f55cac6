"""Registers two tools, finds the right one, and says that it was used.

pip install httpx
python search_tools.py [URL]
"""

import os
import sys

import httpx

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "send_email",
            "description": "Sends an email to one or more recipients.",
            "parameters": {
                "type": "object",
                "properties": {"to": {"type": "string"}, "text": {"type": "string"}},
                "required": ["to", "text"],
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": "create_event",
            "description": "Creates an event in a calendar.",
            "parameters": {"type": "object", "properties": {"title": {"type": "string"}}},
        },
    },
]


def main() -> None:
    """Register, search and report."""
    url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:7700"
    key = os.environ.get("TOOLSCOUT_KEY")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    with httpx.Client(base_url=f"{url}/v1/catalogs/default", headers=headers, timeout=30) as api:
        api.post("/tools", params={"server": "office"}, json=TOOLS).raise_for_status()

        request = {"query": "write a mail to Ada", "k": 1, "format": "openai", "max_tokens": 2000}
        answer = api.post("/search", json=request).raise_for_status().json()
        if answer["no_match"]:
            sys.exit(answer["no_match"]["reason"])
        # answer["tools"] goes into the model's `tools` as it is.
        print(answer["hits"][0]["id"], answer["tools"][0]["function"]["name"])

        used = {"feedback_token": answer["feedback_token"], "tool": answer["hits"][0]["id"]}
        api.post("/feedback", json=used).raise_for_status()


if __name__ == "__main__":
    main()
