"""Asks an agent questions of the bundled set in manual mode and counts what a real model makes of them.

usage: ask_real_model.py TOOLSCOUT DATA LLM_URL QUESTIONS
"""

import collections
import json
import pathlib
import subprocess
import sys

FIXTURES = pathlib.Path(__file__).parent.parent / "fixtures"
# Arguments that passed every check: the bundled tools have no server to call.
PASSED = "not_callable"


def questions(count: int) -> list[dict]:
    lines = (FIXTURES / "queries.jsonl").read_text().splitlines()
    single = [query for query in map(json.loads, filter(None, lines)) if len(query["relevant"]) == 1]
    return single[:: max(1, len(single) // count)][:count]


def ask(program: str, data: str, url: str, question: str) -> list[dict]:
    command = [program, "--data", data, "--embedder", "none", "agent", "--llm", url, "--mode", "manual", "--json"]
    command += ["--max-rounds", "4", "--tool-budget", "1500", question]
    ended = subprocess.run(command, capture_output=True, text=True)
    events = [json.loads(line) for line in ended.stdout.splitlines()]
    if not events or events[-1]["type"] != "done":
        sys.exit(f"no terminal event for {question!r}: {ended.stderr}")
    return events


def counted(query: dict, events: list[dict]) -> collections.Counter:
    of = lambda kind: [event for event in events if event["type"] == kind]
    right = query["relevant"][0]
    shown = right.replace("/", "__")
    calls = of("tool_result")
    passed = [call for call in calls if call.get("error_code") == PASSED]
    return collections.Counter(
        {
            "questions": 1,
            f"ended as {events[-1]['status']}": 1,
            "that searched": bool(of("tool_search")),
            "that loaded the right tool": any(right in event["tools"] for event in of("tools_injected")),
            "that called the right tool with valid arguments": any(call["name"] == shown for call in passed),
            "calls": len(calls),
            "calls with valid name and arguments": len(passed),
            "rounds": events[-1]["figures"]["rounds"],
            "prompt tokens": events[-1]["figures"]["tokens_in"],
            "milliseconds": events[-1]["figures"]["total_ms"],
        }
    )


def main() -> None:
    program, data, url, count = sys.argv[1:]
    total = collections.Counter()
    for query in questions(int(count)):
        events = ask(program, data, url, query["query"])
        answer = "".join(event["content"] for event in events if event["type"] == "text")
        print(f"{query['query']}\n  -> {answer[:100]!r}", flush=True)
        total += counted(query, events)
    for what, number in total.items():
        print(f"{number:8} {what}")


if __name__ == "__main__":
    main()
