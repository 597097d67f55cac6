"""Adds real API documents and counts, apart from the program, what should have come of them.

    python3 scripts/documents FOLDER --toolscout target/debug/toolscout [--before OTHER]

FOLDER has a document a file, or a folder with a document of several files, whose first is named in
MAIN_FILES. The operations and parameters are counted from the raw document. Schemas are checked by the
meta-schema of JSON Schema 2020-12 (`jsonschema`) and must have an object at the root.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml
from jsonschema import Draft202012Validator

METHODS = ["get", "put", "post", "delete", "options", "head", "patch", "trace", "query"]
MAIN_FILES = {"digitalocean": "specification/DigitalOcean-public.v2.yaml"}
# Headers that a client sets itself, and so are no parameters of a tool.
CLIENTS_HEADERS = {
    "accept", "accept-encoding", "authorization", "connection", "content-length", "content-type",
    "host", "proxy-authorization", "te", "transfer-encoding", "upgrade",
}
HASH = re.compile(r"_[0-9a-f]{12}$")
PROVIDER_NAME = re.compile(r"^[a-zA-Z0-9_-]{1,64}$")


class Loader(yaml.CSafeLoader if hasattr(yaml, "CSafeLoader") else yaml.SafeLoader):
    """YAML 1.2 as far as documents need it: dates and `yes` are texts."""


Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith((":timestamp", ":bool"))]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(?:true|false)$", re.I), list("tTfF"))


class Document:
    """A document with the files that it refers to."""

    def __init__(self, path):
        self.path = path
        self.files = {}
        self.root = self.load(path)

    def load(self, path):
        if path not in self.files:
            text = path.read_text(encoding="utf-8")
            self.files[path] = json.loads(text) if path.suffix == ".json" else yaml.load(text, Loader)
        return self.files[path]

    def follow(self, value, path):
        """The target of a chain of references, and its file."""
        for _ in range(50):
            if not isinstance(value, dict) or not isinstance(value.get("$ref"), str):
                return value, path
            name, _, pointer = value["$ref"].partition("#")
            path = (path.parent / name).resolve() if name else path
            value = self.load(path)
            for step in filter(None, pointer.split("/")):
                step = step.replace("%7B", "{").replace("%7D", "}")
                value = value[step.replace("~1", "/").replace("~0", "~")]
        raise ValueError("references in a circle")

    def operations(self):
        """Method, path and the parameters of each operation, by place and name."""
        for path, declared in (self.root.get("paths") or {}).items():
            if not path.startswith("/"):
                continue
            item, item_file = self.follow(declared, self.path)
            for method, operation in item.items():
                if method in METHODS:
                    operation, file = self.follow(operation, item_file)
                    yield method, path, self.parameters(path, (item, item_file), (operation, file))

    def parameters(self, path, item, operation):
        found = {("path", name) for name in re.findall(r"{([^{}]+)}", path)}
        for owner, file in (item, operation):
            for declared in owner.get("parameters") or []:
                parameter, _ = self.follow(declared, file)
                place, name = parameter["in"], parameter["name"]
                if place == "header":
                    name = name.lower()
                    if name in CLIENTS_HEADERS:
                        continue
                if place != "body":
                    found.add((place, name))
        return found


def run(program, data, *arguments):
    command = [program, "--data", data, "--embedder", "none", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def tools_of(program, path):
    """The tools that the program makes of a document, and what it says where it makes none."""
    with tempfile.TemporaryDirectory() as data:
        arguments = ["add", str(path), "--no-embed", "--json"]
        added = run(program, data, *arguments, "--follow-refs")
        if "--follow-refs" in added.stderr and "unexpected argument" in added.stderr:
            added = run(program, data, *arguments)
        if added.returncode:
            return [], added.stderr.strip().splitlines()[0][:160]
        exported = run(program, data, "export", "--format", "mcp")
        return json.loads(exported.stdout)["tools"], ""


def lost_parameters(document, tools):
    """Parameters of the raw document that no argument of a tool stands for."""
    by_operation = {}
    for tool in tools:
        call = tool["_meta"]["toolscout"]["metadata"]["openapi"]
        names = set()
        for target in (call.get("parameters") or {}).values():
            name = target["name"].lower() if target["in"] == "header" else target["name"]
            names.add((target["in"], name))
        by_operation[call["method"].lower(), call["path"]] = names
    lost, total, operations = 0, 0, 0
    for method, path, parameters in document.operations():
        operations += 1
        total += len(parameters)
        lost += len(parameters - by_operation.get((method, path), set()))
    return operations, total, lost


VALIDATOR = Draft202012Validator(Draft202012Validator.META_SCHEMA)


def is_valid(schema):
    return schema.get("type") == "object" and VALIDATOR.is_valid(schema)


def is_taken_by_providers(schema):
    """Anthropic and OpenAI refuse a request with one schema that is not so."""
    return is_valid(schema) and not any(key in schema for key in ("anyOf", "oneOf", "allOf", "not", "enum", "$ref"))


def figures(program, path):
    document = Document(path)
    tools, problem = tools_of(program, path)
    operations, parameters, lost = lost_parameters(document, tools)
    invalid = sum(not is_taken_by_providers(tool["inputSchema"]) for tool in tools)
    invalid += sum(not is_valid(tool["outputSchema"]) for tool in tools if "outputSchema" in tool)
    names = [tool["name"] for tool in tools]
    refused = sum(not PROVIDER_NAME.match(name) for name in names) + len(names) - len(set(names))
    return {
        "document": "digitalocean" if path.parent.name == "specification" else path.name,
        "operations": operations,
        "tools": len(tools),
        "parameters": parameters,
        "lost": lost,
        "invalid": invalid,
        "hashed": sum(bool(HASH.search(name)) for name in names),
        "refused": refused,
        "problem": problem,
    }


def documents(folder):
    for path in sorted(folder.iterdir()):
        if path.is_dir() and path.name in MAIN_FILES:
            yield (path / MAIN_FILES[path.name]).resolve()
        elif path.suffix in (".json", ".yaml", ".yml"):
            yield path.resolve()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--toolscout", default="target/debug/toolscout")
    parser.add_argument("--before", help="an earlier program to compare with")
    arguments = parser.parse_args()
    columns = ["operations", "tools", "parameters", "lost", "invalid", "hashed"]
    print("| document | " + " | ".join(columns) + " |")
    print("|---" * (len(columns) + 1) + "|")
    is_whole = True
    for path in documents(arguments.folder):
        now = figures(arguments.toolscout, path)
        before = figures(arguments.before, path) if arguments.before else None
        cells = [
            str(now[column]) if not before or before[column] == now[column] else f"{before[column]} → {now[column]}"
            for column in columns
        ]
        print(f"| {now['document']} | " + " | ".join(cells) + " |", flush=True)
        for figure in filter(None, [before, now]):
            if figure["problem"]:
                print(f"    {'before' if figure is before else 'now'}: {figure['problem']}", file=sys.stderr)
        is_whole &= now["operations"] == now["tools"] and not (now["lost"] or now["invalid"] or now["refused"])
    return 0 if is_whole else 1


if __name__ == "__main__":
    sys.exit(main())
