"""Tools and requests for them, read from the snapshots that sources.toml names.

Each function reads one kind of source and yields tools. Nothing is unpacked: files are read from the commit."""

import csv
import json
import random
import re
import subprocess
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from pathlib import Path

import yaml

# Requests kept for one tool, so that few tools with thousands of requests do not outweigh thousands with two.
MOST_REQUESTS = 60


@dataclass
class Tool:
    """`group` names tools that are told apart with difficulty: a module, a service, an app."""

    group: str
    server: str
    name: str
    description: str
    parameters: list = field(default_factory=list)
    details: str = ""
    requests: list = field(default_factory=list)


class Snapshot:
    """The files of a repository at a commit; the folder is a git directory or holds one."""

    def __init__(self, folder, commit):
        found = [
            path
            for path in (folder / "repo" / ".git", folder / "repo", folder / ".git", folder)
            if (path / "HEAD").exists()
        ]
        if not found:
            raise SystemExit(f"{folder}: no git directory; clone the repository that sources.toml names into it")
        self.git = ["git", f"--git-dir={found[0]}"]
        self.commit = commit

    def run(self, *arguments, **options):
        return subprocess.run([*self.git, *arguments], capture_output=True, check=True, **options).stdout

    def paths(self, pattern):
        listed = self.run("ls-tree", "-r", "--name-only", self.commit).decode().splitlines()
        return [path for path in listed if re.search(pattern, path)]

    def read(self, paths):
        """{path: text}, without those that the snapshot lists but lacks."""
        asked = "".join(f"{self.commit}:{path}\n" for path in paths).encode()
        answer, texts, at = self.run("cat-file", "--batch", input=asked), {}, 0
        for path in paths:
            end = answer.index(b"\n", at)
            head, at = answer[at:end].split(), end + 1
            if head[-1] == b"missing":
                continue
            texts[path] = answer[at : at + int(head[2])].decode("utf8", "ignore")
            at += int(head[2]) + 1
        return texts

    def files(self, pattern):
        return self.read(self.paths(pattern)).items()

    def json(self, pattern):
        """Parsed files; a file that is no JSON is left out and named."""
        for path, text in self.files(pattern):
            try:
                yield path, json.loads(text)
            except json.JSONDecodeError as error:
                print(f"left out: {path}: {error}", flush=True)


def plain(markdown):
    """Text without code blocks, links, emphasis and line breaks."""
    text = re.sub(r"```.*?```", " ", markdown, flags=re.S)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"<[^>]+>|\{\{[^}]*\}\}|[`\\]|\*\*", " ", text)
    return re.sub(r"\s+", " ", text).strip()


def sentences(text):
    return [part.strip() for part in re.split(r"(?<=[.!?])\s+(?=[A-Z])", text) if len(part.strip()) > 3]


def summary_and_details(text, most=400):
    parts = sentences(plain(text)[:2000])
    return (parts[0][:most], " ".join(parts[1:])[:most]) if parts else ("", "")


# Command documentation ------------------------------------------------------------------------------------------------

OFFICE = ("ExchangePowerShell", "SkypeForBusiness", "MicrosoftTeams")


def powershell(snapshot, paths):
    for path, text in snapshot.files(paths):
        section = lambda name: next(iter(re.findall(rf"^## {name}\s*\n(.*?)(?=^## |\Z)", text, re.S | re.M | re.I)), "")
        paragraphs = [plain(part) for part in section("SYNOPSIS").split("\n\n")]
        # Exchange says first in which editions a command exists.
        synopsis = next(
            (part for part in paragraphs if part and not re.search(r"only available|on-premises", part)), ""
        )
        description = plain(section("DESCRIPTION").split("\n\n")[0])
        module, command = path.split("/")[-2], Path(path).stem
        synopsis = re.sub(r"^Use (the|this) ([\w-]+ )?cmdlets? to ", "", synopsis)
        # Modules of thousands of commands are divided by the first word of the noun.
        group = f"{module} {re.findall(r'-([A-Z]+[a-z]*)', command)[:1]}" if module in OFFICE else module
        if synopsis:
            yield Tool(
                group,
                module,
                command,
                synopsis[:300],
                re.findall(r"^### -(\w+)", text, re.M)[:12],
                description[:400],
                [title for title in map(example_title(command), examples(section("EXAMPLES?"))) if len(title) > 12],
            )


def examples(section):
    for title, body in re.findall(r"^### (.*?)\n(.*?)(?=^### |\Z)", section, re.S | re.M):
        title = re.sub(r"^-*\s*EXAMPLE\s*\d*\s*[:\-–]*\s*", "", plain(title), flags=re.I).strip(" -:#")
        said = [
            part for part in map(plain, re.sub(r"```.*?```", "\n\n", body, flags=re.S).split("\n\n")) if len(part) > 20
        ]
        yield title if len(title) > 12 else (sentences(said[0]) or [""])[0] if said else ""


def example_title(command):
    opening = re.compile(
        rf"^(The )?{command}( cmdlet)? |^(This|The)( first)? (example|command|cmdlet)s?( shows how to| gets?)? ", re.I
    )
    return lambda title: opening.sub("", title)[:200]


def tldr(snapshot, paths):
    # The requests of a benchmark set come from the pages of aws; those of az are kept apart too.
    for path, text in snapshot.files(paths):
        title, said, asked = (re.findall(pattern, text, re.M) for pattern in (r"^# (.+)", r"^> (.+)", r"^- (.+):$"))
        program = title[0].split()[0] if title else ""
        if not said or not asked or program in ("aws", "az", "azure") or "alias of" in said[0]:
            continue
        server, _, name = title[0].partition(" ")
        requests = [re.sub(r"[\[\]`]", "", request) for request in asked]
        summary = plain(re.sub(r"[\[\]]", "", said[0]))
        yield Tool(
            "tldr " + Path(path).stem.split("-")[0], server if name else "", name or server, summary, [], "", requests
        )


# Application interfaces ------------------------------------------------------------------------------------------------


def protobuf(snapshot, paths):
    """Services of protocol buffers: the comment of each call, of the newest version of each package."""
    newest = {}
    for path in snapshot.paths(paths):
        package = re.sub(r"/v\d+\w*/", "/", path)
        newest[package] = max(
            newest.get(package, ""), path, key=lambda path: ("beta" not in path and "alpha" not in path, path)
        )
    message = re.compile(r"^message (\w+Request) \{\n(.*?)^\}", re.S | re.M)
    for path, text in snapshot.read(sorted(newest.values())).items():
        parameters = {
            name: re.findall(r"^  (?:repeated )?[\w.]+ (\w+) = ", body, re.M) for name, body in message.findall(text)
        }
        service = " ".join(part for part in path.split("/")[1:-1] if not re.fullmatch(r"v\d\w*|cloud|admin|type", part))
        for comment, name, request in re.findall(
            r"((?:^  //.*\n)+)  rpc (\w+)\(\s*(?:stream )?([\w.]+)\s*\)", text, re.M
        ):
            summary, details = summary_and_details(
                re.sub(
                    r"\[([\w.]+)\](\[[\w.]*\])?",
                    lambda m: m[1].split(".")[-1],
                    re.sub(r"^  // ?", "", comment, flags=re.M),
                )
            )
            if len(summary) > 15:
                yield Tool("google " + service, service, name, summary, parameters.get(request, [])[:10], details)


def openapi(snapshot, paths):
    """One description of all operations, in one file."""
    for path, text in snapshot.files(paths):
        described = json.loads(text)
        server = described["info"]["title"].replace("API", "").strip()
        for route in described["paths"].values():
            for operation in route.values():
                if isinstance(operation, dict) and operation.get("operationId"):
                    yield from operation_tool(server, operation)


def openapi_files(snapshot, paths):
    """One file for each operation."""
    for path, text in snapshot.files(paths):
        operation = yaml.safe_load(text)
        if isinstance(operation, dict) and operation.get("operationId"):
            yield from operation_tool("digitalocean " + path.split("/")[-2], operation)


def operation_tool(server, operation):
    title, text = plain(operation.get("summary") or ""), operation.get("description") or ""
    text = re.sub(r"^(To [^\n]+?),? send a [A-Z`]+ request to \S+( \.)?", r"\1.", text)
    summary, details = summary_and_details(text or title)
    parameters = [one["name"] for one in operation.get("parameters", []) if "name" in one]
    group = f"{server} {(operation.get('tags') or [''])[0]}"
    if summary:
        name = re.sub(r"^(get|post|put|delete)_(?=\w+_id)", "", operation["operationId"])
        yield Tool(
            group,
            server,
            name,
            summary,
            parameters[:10],
            details,
            [title] if len(title) > 12 and title != summary else [],
        )


def api_zoo(snapshot, paths):
    for path, entries in snapshot.json(paths):
        for entry in entries:
            text, full_name = entry.get("functionality"), entry.get("api_name")
            if not isinstance(text, str) or not isinstance(full_name, str):
                continue
            server, _, name = full_name.rpartition(" - ")
            summary, details = summary_and_details(text)
            parameters = entry.get("api_arguments")
            parameters = (
                [part for part in parameters if re.fullmatch(r"[\w.-]+", part)][:10]
                if isinstance(parameters, dict)
                else []
            )
            if len(summary) > 12 and name:
                yield Tool(
                    "zoo " + (server or Path(path).stem),
                    server or Path(path).stem.replace("_", " "),
                    name,
                    summary,
                    parameters,
                    details,
                )


def api_bench(snapshot, paths):
    """Requests for models of hubs."""
    tools = {}
    for path, text in snapshot.files(paths):
        for line in text.splitlines():
            entry = json.loads(line)
            api, asked = (
                entry["api_data"],
                re.search(r"[Ii]nstruction'?\"?: (.+?)(?:\n###|,? '?[Oo]utput|\n)", entry["code"] + "\n"),
            )
            if not asked or not api.get("functionality"):
                continue
            functionality = (
                " ".join(api["functionality"]) if isinstance(api["functionality"], list) else api["functionality"]
            )
            description = summary_and_details(str(api.get("description") or functionality))[0]
            provider, name = Path(path).stem.split("_")[0], str(api.get("api_name", "")).split("/")[-1]
            tool = Tool("model " + functionality, provider, name, f"{functionality}: {description}")
            tool = tools.setdefault(str(api["api_call"]), tool)
            tool.requests.append(asked[1].strip(" '\"\\n"))
    yield from tools.values()


# Requests as people say them --------------------------------------------------------------------------------------------


def tool_alpaca(snapshot, paths):
    for path, apis in snapshot.json(paths):
        for api in apis:
            tools = {}
            document = json.loads(api["Documentation"])
            for route in document["paths"].values():
                for operation in route.values():
                    if isinstance(operation, dict) and (operation.get("operationId")):
                        made = list(operation_tool(api["Name"], operation))
                        tools.update({re.sub(r"\W", "", operation["operationId"]).lower(): tool for tool in made})
            for asked, answers in zip(api["Instructions"], api["Golden_Answers"]):
                used = {re.sub(r"\W", "", answer["Action"]).lower() for answer in answers}
                if len(used) == 1 and used <= tools.keys():
                    tools[used.pop()].requests.append(asked)
            for tool in tools.values():
                tool.group = "alpaca " + api["Name"]
            yield from tools.values()


def thingpedia(snapshot, paths):
    manifests = dict(snapshot.files(paths.replace("dataset", "manifest")))
    for path, text in snapshot.files(paths):
        manifest, device = manifests.get(path.replace("dataset", "manifest"), ""), path.split("/")[1]
        if "spotify" in device:
            continue
        asked = defaultdict(list)
        for program, listed in re.findall(r"=([^;]*?)#_\[utterances=\[(.*?)\]\]", text, re.S):
            used = set(re.findall(rf"@{re.escape(device)}\.(\w+)\(", program))
            if len(used) == 1:
                asked[used.pop()] += [utterance(said) for said in re.findall(r'"([^"]*)"', listed)]
        name = next(iter(re.findall(r'thingpedia_name="([^"]*)"', manifest)), device.split(".")[-1])
        for function, description in functions(manifest):
            if asked[function]:
                yield Tool(
                    "thingpedia " + device,
                    name,
                    function,
                    description,
                    [],
                    "",
                    [said for said in asked[function] if len(said) > 8],
                )


def utterance(said):
    return re.sub(r"\$\{?p_?(\w+?)(:[\w-]+)?\}?(?=\W|$)", r"\1", said).replace("_", " ").lstrip(", ")


def functions(manifest):
    found = list(re.finditer(r"^\s*(?:monitorable |list )*(?:query|action)\s+(\w+)\s*\(", manifest, re.M))
    for this, after in zip(found, found[1:] + [None]):
        body = manifest[this.end() : after.start() if after else None]
        said = re.findall(r'#_\[confirmation="([^"]*)"\]', body)
        called = re.findall(r'^\s*#_\[canonical=\[?"([^"]*)"', body, re.M)
        said = [re.sub(r"\s+", " ", re.sub(r"\$\{?[\w.]+\}?", "", one)).strip() for one in said[-1:]]
        description = max(said + called[-1:], key=len, default="")
        if len(description) > 3:
            yield this[1], description


FILLERS = {
    "name": ["bedroom lamp", "ceiling fan", "front door", "coffee machine", "TV", "heating"],
    "area": ["kitchen", "bedroom", "office", "garage"],
    "floor": ["first floor", "basement", "upstairs"],
    "item": ["apples", "milk", "call the plumber"],
    "brightness": ["40%", "full"],
    "color": ["red", "blue", "warm white"],
    "temperature": ["21 degrees", "70"],
    "message": ["dinner is ready"],
    "volume": ["30%"],
    "percentage": ["50%"],
    "position": ["half"],
    "search_query": ["the Beatles"],
    "response": ["hello"],
}


def home_assistant(snapshot, paths):
    intents = yaml.safe_load(snapshot.read(["intents.yaml"])["intents.yaml"])
    asked, draw = defaultdict(list), random.Random(0)
    for path, text in snapshot.files(paths):
        for block in yaml.safe_load(text).get("data") or []:
            said = [one for one in block.get("sentences", []) if "<" not in one]
            asked[path.split("/")[2]] += [filled(one, draw) for one in said for _ in range(3)]
    for intent, requests in sorted(asked.items()):
        known = intents.get(intent) or {}
        if known.get("description") and requests:
            name = intent.removeprefix("Hass")
            yield Tool(
                "home assistant",
                known.get("domain", ""),
                name,
                known["description"],
                list(known.get("slots") or {}),
                "",
                sorted(set(requests)),
            )


def filled(template, draw):
    """One of the sentences that a template stands for."""
    choice = lambda match: draw.choice(match[1].split("|"))
    before = None
    while before != template:
        before = template
        template = re.sub(r"\[([^\[\]()]*)\]", lambda match: choice(match) if draw.random() < 0.6 else "", template)
        template = re.sub(r"\(([^\[\]()]*)\)", choice, template)
    slot = lambda match: draw.choice(FILLERS.get(match[1].split(":")[-1], [draw.choice(["five", "ten", "twenty"])]))
    return re.sub(r"\s+", " ", re.sub(r"\{([^}]*)\}", slot, template)).strip()


def described(source):
    """Tools written by hand for the intents of a set, and their intents."""
    with open(Path(__file__).with_name("intents.tsv"), encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines, delimiter="\t"):
            if row["source"] == source:
                yield (
                    row["intent"],
                    Tool(source, row["server"], row["name"], row["description"], row["parameters"].split()),
                )


def with_requests(source, asked):
    for intent, tool in described(source):
        tool.requests = asked.get(intent, [])
        yield tool


def clinc(snapshot, paths):
    asked = defaultdict(list)
    for _, data in snapshot.json(paths):
        for request, intent in data["train"]:
            asked[intent].append(request)
    return with_requests("clinc", asked)


def banking(snapshot, paths):
    asked = defaultdict(list)
    for _, text in snapshot.files(paths):
        for row in csv.DictReader(text.splitlines()):
            asked[row["category"]].append(row["text"])
    return with_requests("banking", asked)


def hwu(snapshot, paths):
    asked = defaultdict(list)
    for path, text in snapshot.files(paths):
        asked[Path(path).stem] += [
            row["answer_from_user"] or row["answer_from_anno"]
            for row in csv.DictReader(text.splitlines(), delimiter=";")
        ]
    return with_requests("hwu", asked)


def snips(snapshot, paths):
    asked = defaultdict(list)
    for _, data in snapshot.json(paths):
        for intent, said in data.items():
            asked[intent] += ["".join(part["text"] for part in one["data"]).strip() for one in said]
    return with_requests("snips", asked)


KINDS = {
    function.__name__: function
    for function in (
        powershell,
        tldr,
        protobuf,
        openapi,
        openapi_files,
        api_zoo,
        api_bench,
        tool_alpaca,
        thingpedia,
        home_assistant,
        clinc,
        banking,
        hwu,
        snips,
    )
}


def tools_of(snapshots, source):
    """Tools of a source as dictionaries, with at most MOST_REQUESTS distinct requests each."""
    snapshot = Snapshot(snapshots / source["name"].replace("/", "+"), source["commit"])
    draw, found = random.Random(0), {}
    for tool in KINDS[source["kind"]](snapshot, source["paths"]):
        requests = sorted({request for request in tool.requests if 8 <= len(request) <= 400})
        tool.requests = draw.sample(requests, min(len(requests), MOST_REQUESTS))
        if tool.requests or tool.description:
            found.setdefault((tool.server, tool.name), dict(asdict(tool), kind=source["kind"]))
    return list(found.values())
