"""Adds tools to a server, searches, and asks its agent.

pip install "toolscout[client]"
toolscout serve --llm ollama --model qwen3
python http_client.py [URL]
"""

import sys

import toolscout

TOOLS = [
    {"name": "send_email", "description": "Sends an email to one or more recipients."},
    {"name": "create_event", "description": "Creates an event in a calendar."},
]


def main() -> None:
    """Show the client at work."""
    url = sys.argv[1] if len(sys.argv) > 1 else None
    with toolscout.Client(url, catalog="default") as client:
        client.add(TOOLS, server="office")
        answer = client.search("write a mail to Ada", limit=3, format="openai")
        print(answer["hits"][0]["id"])
        client.feedback(answer, "office/send_email")

        for event in client.ask("Send Ada the minutes, please."):
            if event["type"] == "text":
                print(event["content"], end="")
            elif event["type"] == "done":
                print(f"\n{event['status']}")


if __name__ == "__main__":
    main()
