"""Batches of requests and tools: some that are told apart with difficulty, some at random, in the forms that real
requests take."""

import random
import re
from collections import defaultdict
from dataclasses import dataclass

from evaluate import views

PAIRS, JOINED = 64, 8
# Pairs of each batch: neighbours of so many groups, people's requests by kind, and the rest from documentation.
GROUPS, OF_A_GROUP = 2, 10
SHARES = {"thingpedia": 8, "home_assistant": 2, "tool_alpaca": 3, "api_bench": 2}
# One of these a batch, since all have a tool for the weather, alarms or music.
INTENTS, OF_INTENTS = ("clinc", "clinc", "banking", "hwu", "hwu", "snips"), 14
SPOKEN = set(SHARES) | set(INTENTS)
# How often documentation of a kind is drawn.
WEIGHTS = {"powershell": 1.0, "tldr": 1.2, "protobuf": 0.8, "openapi": 2.0, "openapi_files": 1.5, "api_zoo": 0.8}

OPENINGS = (
    "Can you {}?",
    "Could you please {}?",
    "Please {}.",
    "I need to {}.",
    "I want to {}.",
    "I'd like to {}.",
    "How do I {}?",
    "Help me {}.",
    "Hi, can you {} for me?",
    "{}, please.",
    "I have to {} today.",
    "We need to {}.",
    "Is there a way to {}?",
    "What do I use to {}?",
    "My boss asked me to {}.",
    "I'm trying to {}.",
    "Time to {}.",
    "{}",
    "{}",
    "{}",
)
BEFORE = (
    "I'm working on a report for my team.",
    "I have a meeting in an hour.",
    "We are preparing for a trip next month.",
    "I just started a new job.",
    "My friend and I were talking about this yesterday.",
    "I'm building a small application.",
    "Our customers keep asking about it.",
    "I'm planning a surprise party for my sister.",
    "I'm a teacher and my class starts soon.",
    "I am new to this.",
    "We had a problem last night.",
    "I run a small company in Berlin.",
    "It's for a school project.",
    "I'm writing an article.",
    "My account number is 48213.",
    "I have the ID a81f-22 here.",
    "I am doing research on this subject.",
    "My computer was set up last week.",
    "I'm organizing an event on 12 May 2024.",
    "The deadline is on Friday.",
    "I have been looking for this everywhere.",
    "Let's say I'm a consultant with a new client.",
)
AFTER = (
    "Then tell me the result.",
    "Thanks!",
    "Give me a short summary.",
    "It would be great to have all details.",
    "I need it before tomorrow.",
    "Please be precise.",
    "Also let me know if anything goes wrong.",
    "Make it quick.",
    "The name is John Doe.",
    "Send me what you find.",
    "This will help me to decide.",
    "I'd like to show it to my colleagues.",
    "Only the most recent ones, please.",
    "Use the default settings.",
)
# Verbs of interfaces and what people say instead.
SYNONYMS = {
    "create": ("create", "make", "set up", "add", "start", "spin up"),
    "delete": ("delete", "remove", "get rid of", "drop"),
    "list": ("list", "show", "show me", "see", "get all"),
    "get": ("get", "show", "look up", "fetch", "find", "check"),
    "update": ("update", "change", "edit", "modify"),
    "retrieve": ("retrieve", "get", "fetch", "look up"),
    "returns": ("return", "give me"),
    "remove": ("remove", "delete", "take away"),
    "modify": ("modify", "change"),
    "describe": ("describe", "show details of"),
    "enable": ("enable", "turn on", "activate"),
    "disable": ("disable", "turn off", "deactivate"),
    "display": ("display", "show", "print"),
    "start": ("start", "launch", "run"),
    "stop": ("stop", "halt", "shut down"),
    "return": ("return", "give me", "get"),
}


@dataclass
class Batch:
    requests: list
    tools: list
    # A request that needs two of the tools, and which.
    joined: list
    needs: list


def imperative(text):
    """`Gets the state of a job.` as `get the state of a job`."""
    text = re.sub(
        r"^(This|The) ([\w-]+ )?(cmdlet|command|method|endpoint|API|operation) (is used to |allows you to |will |can )?",
        "",
        text.strip().rstrip("."),
    )
    text = re.sub(r"^To (?=\w)", "", text)
    first, _, rest = text.partition(" ")
    if re.fullmatch(r"[A-Z]?[a-z]+s", first) and not first.endswith("ss") and rest:
        first = re.sub(r"(?<=ch|sh|ss)es$|(?<=x)es$|s$", "", first)
        first = re.sub(r"ie$", "y", first)
    if first[1:].islower():
        first = first.lower()
    return f"{first} {rest}".strip()


class Source:
    """Draws pairs from tools; the same seed gives the same batches."""

    def __init__(self, tools, seed):
        self.draw = random.Random(seed)
        self.tools = [tool for tool in tools if tool["requests"] or tool["kind"] not in SPOKEN]
        by_kind, by_group = defaultdict(list), defaultdict(list)
        for i, tool in enumerate(self.tools):
            by_kind[tool["kind"]].append(i)
            by_group[tool["group"]].append(i)
        self.spoken = {kind: found for kind, found in by_kind.items() if kind in SPOKEN}
        documented = [(i, WEIGHTS[kind]) for kind, found in by_kind.items() if kind not in SPOKEN for i in found]
        self.documented, self.weights = zip(*documented)
        groups = {
            group: found
            for group, found in by_group.items()
            if len(found) >= 5 and self.tools[found[0]]["kind"] not in SPOKEN
        }
        self.groups = list(groups.values())
        self.group_weights = [len(found) ** 0.7 for found in self.groups]

    def batch(self):
        chosen, names = [], set()

        def add(candidates, most):
            for i in candidates:
                if most == 0 or len(chosen) == PAIRS:
                    break
                name = self.tools[i]["name"].lower()
                if name not in names:
                    names.add(name)
                    chosen.append(i)
                    most -= 1

        intents = self.spoken.get(self.draw.choice(INTENTS), [])
        add(self.draw.sample(intents, len(intents)), OF_INTENTS)
        for kind, share in SHARES.items():
            add(self.draw.choices(self.spoken.get(kind) or [0], k=2 * share), share)
        for group in self.draw.choices(self.groups, self.group_weights, k=GROUPS):
            add(self.draw.sample(group, len(group)), OF_A_GROUP)
        while len(chosen) < PAIRS:
            add(self.draw.choices(self.documented, self.weights, k=PAIRS), -1)
        pairs = [self.pair(self.tools[i]) for i in chosen]
        needs = [self.draw.sample(range(PAIRS), 2) for _ in range(JOINED)]
        said = [self.said_plainly(self.tools[i]) for i in chosen]
        return Batch(
            [request for request, _ in pairs],
            [tool for _, tool in pairs],
            [self.join(said[a], said[b]) for a, b in needs],
            needs,
        )

    def pair(self, tool):
        server = tool["server"] if self.draw.random() < 0.75 else ""
        everything, name = views(server, tool["name"], tool["description"], tool["parameters"])
        request = self.draw.choice(tool["requests"]) if tool["requests"] and self.draw.random() < 0.85 else None
        if tool["kind"] in SPOKEN:
            return self.in_context(request or self.draw.choice(tool["requests"])), self.text(name, everything)
        if request:
            return self.chat(request), self.text(name, everything)
        # The description is the request, so the tool must not be told by the same words.
        if tool["details"] and self.draw.random() < 0.5:
            others = views(server, tool["name"], tool["details"], tool["parameters"])[0]
            return self.chat(tool["description"]), self.text(name, others)
        return self.chat(tool["description"]), self.text(name, f"{name}: {' '.join(tool['parameters'])}", everything)

    def text(self, name, *others):
        return name if self.draw.random() < 0.2 else self.draw.choice(others)

    def said_plainly(self, tool):
        asked = tool["requests"]
        return (self.draw.choice(asked) if asked else imperative(tool["description"])).strip().rstrip(".?! ")

    def join(self, one, other):
        between = self.draw.choice(
            (" and ", ", then ", ". Then ", ". Also, ", " and after that ", "; ", ". I also want to know: ", ", and ")
        )
        return self.in_context(f"{one}{between}{other[:1].lower() + other[1:]}")

    def chat(self, documentation):
        """A command's description as a person might ask for it."""
        asked = imperative(documentation)
        verb, _, rest = asked.partition(" ")
        if verb in SYNONYMS and self.draw.random() < 0.5:
            asked = f"{self.draw.choice(SYNONYMS[verb])} {rest}"
        if self.draw.random() < 0.6:
            asked = self.draw.choice(OPENINGS).format(asked)
        return self.in_context(asked)

    def in_context(self, request):
        """With a sentence before or after, as in long requests."""
        if self.draw.random() < 0.25:
            request = f"{self.draw.choice(BEFORE)} {request}"
        if self.draw.random() < 0.2:
            stop = "" if request.endswith((".", "?", "!")) else "."
            request = f"{request}{stop} {self.draw.choice(AFTER)}"
        return request
