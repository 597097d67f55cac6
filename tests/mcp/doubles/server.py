"""An MCP server that misbehaves as it is told, over standard input and output.

    server.py BEHAVIOUR [BEHAVIOUR ...]

With LIFELINE=PORT in the environment it connects to that port of this machine and says its name, so that whoever
listens there learns at once that it runs, and that it has ended. With PAGES=JSON its list has these cursors. With STATE=FILE it offers the tools of that JSON file,
and looks at it anew whenever `list` is asked.
"""

import hashlib
import itertools
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time

BEHAVIOURS = set(sys.argv[1:])
WRITING = threading.Lock()
CANCELLED = {}
ANSWERS = {}
QUESTIONS = itertools.count(1)
LISTS = 0
LEVELS = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
LEVEL = ["info"]
SUBSCRIBED = []


def tool(name, description="Does it.", schema=None):
    return {"name": name, "description": description, "inputSchema": schema or {"type": "object"}}


def send(message):
    with WRITING:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()


def notify(method, params=None):
    send({"jsonrpc": "2.0", "method": method, "params": params or {}})


def attach_lifeline(name):
    port = os.environ.get("LIFELINE")
    if not port:
        return None
    lifeline = socket.create_connection(("127.0.0.1", int(port)))
    lifeline.sendall(name.encode() + b"\n")
    return lifeline


def tools():
    if "STATE" in os.environ:
        with open(os.environ["STATE"], encoding="utf-8") as state:
            return json.load(state)
    if "bad-tools" in BEHAVIOURS:
        return [
            tool("good"),
            tool("good", "A second one of this name."),
            tool("no_object", schema="none"),
            {"name": "no_schema"},
            {"inputSchema": {"type": "object"}},
            tool("fine"),
        ]
    return [
        tool("echo", "Says it again.", {"type": "object", "properties": {"text": {"type": "string"}}}),
        tool("wait", "Waits until it is cancelled."),
        tool("huge", "Answers with 100 MB."),
        tool("garbage", "Answers with what is no JSON."),
        tool("exit", "Ends the server."),
        tool("fail", "Says no."),
        tool("progress", "Takes ten steps."),
        tool("mixed", "Text, an image and a resource."),
    ] + [
        tool(name, description)
        for name, description in [
            ("asks", "Asks the client for a text and its person for an answer."),
            ("inquires", "Asks a person for a name and a model for a greeting."),
            ("lists", "How often its tools were listed."),
            ("page", "Needs a person to visit a page first."),
            ("told", "Answers with what it was told besides the arguments."),
            ("links", "Links to a resource that it does not list."),
            ("raw", "Answers with the result that it is given."),
            ("logs", "Writes a message of the level that it is given to the log."),
            ("updates", "Tells that a resource has changed."),
            ("folders", "Answers with the folders of the client."),
            ("colours", "Asks a person with a form of a later version."),
            ("later", "Answers later."),
            ("needs", "Needs a name before it greets."),
            ("listens", "How often somebody listened for changes of each resource."),
            ("subscribed", "Which subscriptions it was asked for."),
            ("refuses", "Answers with the error that it is given, and no request's id."),
        ]
        if name in BEHAVIOURS or (name == "subscribed" and "updates" in BEHAVIOURS)
    ]


def page_of(cursor):
    """The page after the one that named this cursor. PAGES has what each page names, as JSON."""
    cursors = json.loads(os.environ["PAGES"])
    number = 0 if cursor is None else cursors.index(cursor) + 1
    if cursors[number] == "error":
        raise LookupError("the cursor is invalid")
    name = "t0" if "same-page" in BEHAVIOURS else f"t{number}"
    return {"tools": [tool(name)], "nextCursor": cursors[number]}


def list_tools(params):
    if "PAGES" in os.environ:
        return page_of(params.get("cursor"))
    cursor = int(params.get("cursor") or 0)
    if "many-pages" in BEHAVIOURS:
        page = [tool(f"t{n}", f"Number {n} of many tools.") for n in range(cursor, cursor + 100)]
        more = {"nextCursor": str(cursor + 100)} if cursor + 100 < 10_000 else {}
        return {"tools": page, **more}
    if "endless-pages" in BEHAVIOURS:
        return {"tools": [tool(f"t{cursor}")], "nextCursor": str(cursor + 1)}
    if "circular-pages" in BEHAVIOURS:
        return {"tools": [tool(f"t{cursor}")], "nextCursor": str((cursor + 1) % 3)}
    return {"tools": tools()}


def call(request, params):
    name, arguments = params["name"], params.get("arguments") or {}
    text = lambda words: {"content": [{"type": "text", "text": words}]}
    if name == "echo":
        return text(arguments.get("text", ""))
    if name == "exit":
        os._exit(7)
    if name == "fail":
        return {**text("no, not today"), "isError": True}
    if name == "huge":
        return text("x" * (100 << 20))
    if name == "garbage":
        with WRITING:
            sys.stdout.write('{"jsonrpc": "2.0", "id": oops\n')
            sys.stdout.flush()
        return None
    if name == "progress":
        token = (params.get("_meta") or {}).get("progressToken")
        for step in range(1, 11):
            notify("notifications/progress", {"progressToken": token, "progress": step, "total": 10})
            time.sleep(0.02)
        return text("done")
    if name == "wait":
        cancelled = CANCELLED.setdefault(json.dumps(request), threading.Event())
        cancelled.wait(60)
        os.environ.get("WAITED") and open(os.environ["WAITED"], "w", encoding="utf-8").close()
        return None
    if name == "asks":
        said = [ask("sampling/createMessage", {"messages": [], "maxTokens": 10})]
        form = {"type": "object", "properties": {"password": {"type": "string"}}}
        said.append(ask("elicitation/create", {"message": "Your password?", "requestedSchema": form}))
        return text(json.dumps(said))
    if name == "inquires":
        form = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
        said = [ask("elicitation/create", {"message": "Who are you?", "requestedSchema": form})]
        words = {"role": "user", "content": {"type": "text", "text": "Greet"}}
        said.append(ask("sampling/createMessage", {"messages": [words], "maxTokens": 10}))
        return text(json.dumps(said))
    if name == "page":
        pages = {"elicitations": [{"mode": "url", "elicitationId": "1", "url": "https://x.example", "message": "Agree"}]}
        error = {"code": -32042, "message": "visit the page", "data": pages}
        send({"jsonrpc": "2.0", "id": request, "error": error})
        return None
    if name == "told":
        return text(json.dumps(params.get("_meta")))
    if name == "lists":
        return text(str(LISTS))
    if name == "links":
        notify("notifications/prompts/list_changed")
        notify("notifications/resources/list_changed")
        return {"content": [{"type": "resource_link", "uri": "notes:7", "name": "note"}]}
    if name == "logs":
        # From the level on that it was told.
        if LEVELS.index(arguments["level"]) >= LEVELS.index(LEVEL[0]):
            notify("notifications/message", {"level": arguments["level"], "logger": "worker", "data": arguments})
        return text("written")
    if name == "folders":
        return text(json.dumps(ask("roots/list", {})))
    if name == "colours":
        field = {"type": "colour", "swatches": [["red", 1], {"of": "blue"}]}
        form = {"type": "object", "properties": {"colour": field}}
        return text(json.dumps(ask("elicitation/create", {"message": "Which?", "requestedSchema": form})))
    if name == "later":
        return {"resultType": "task", **TASK}
    if name == "needs":
        if "inputResponses" not in params:
            return QUESTION
        return text(json.dumps([params["inputResponses"], params["requestState"]]))
    if name == "updates":
        updated = {"uri": arguments.get("uri", "memo:all")}
        if listening := LISTENING.get(updated["uri"]):
            updated["_meta"] = {SUBSCRIPTION: listening[-1]}
        notify("notifications/resources/updated", updated)
        return text("told")
    if name == "listens":
        return text(json.dumps({uri: len(listening) for uri, listening in LISTENING.items()}))
    if name == "subscribed":
        return text(json.dumps(SUBSCRIBED))
    if name == "raw":
        return arguments["result"]
    if name == "refuses":
        send({"jsonrpc": "2.0", "error": {"code": -32600, "message": "cannot read that"}, **arguments})
        return None
    if name == "mixed":
        image = {"type": "image", "data": "QUJD", "mimeType": "image/png"}
        resource = {"type": "resource", "resource": {"uri": "r:1", "text": "inside"}}
        return {"content": [{"type": "text", "text": "words"}, image, resource], "structuredContent": {"n": 1}}
    return text(f"{name} was called")


FORM = {"type": "object", "properties": {"name": {"type": "string"}}}
ASKED = {"method": "elicitation/create", "params": {"message": "Who?", "requestedSchema": FORM}}
QUESTION = {"resultType": "input_required", "inputRequests": {"who": ASKED}}
QUESTION["requestState"] = os.environ.get("REQUEST_STATE", "one")
PROMPT = {"name": "greet", "title": "Greeting", "arguments": [{"name": "who", "required": True}]}
RESOURCE = {"uri": "memo:all", "name": "memo", "mimeType": "text/plain", "_meta": {"own": 1}}
TEMPLATE = {"uriTemplate": "memo:{day}/list", "name": "day"}


def who():
    """Asks the client who it is."""
    return ask("elicitation/create", {"message": "Who are you?", "requestedSchema": FORM})["content"]["name"]


def offer(method, params):
    """What a server with prompts and resources answers. SAYS is what its resources begin with."""
    if method == "prompts/list":
        return None if os.path.exists(os.environ.get("FAILS", "")) else {"prompts": [PROMPT]}
    if method == "prompts/get":
        if "needs" in BEHAVIOURS and "inputResponses" not in params:
            return QUESTION
        if "needs" in BEHAVIOURS:
            params["arguments"] = params["inputResponses"]["who"]["content"] | {"who": "you"}
        if "curious" in BEHAVIOURS:
            params["arguments"] = {"who": who()}
        words = {"type": "text", "text": f"Greet {params['arguments'].get('name', params['arguments']['who'])}"}
        return {"messages": [{"role": "user", "content": words}]}
    if method == "skills/list" and "skills" in BEHAVIOURS:
        return {"skills": [SKILL], "ttlMs": 0, "cacheScope": "private"}
    if method == "skills/get" and "skills" in BEHAVIOURS and params["uri"] == SKILL["uri"]:
        return {"skill": SKILL, "ttlMs": 0, "cacheScope": "private"}
    if method == "resources/read" and params["uri"] in SKILL_FILES:
        return {"contents": [{"uri": params["uri"], "text": SKILL_FILES[params["uri"]]}]}
    if method == "resources/list":
        return {"resources": [RESOURCE]}
    if method == "resources/templates/list":
        return {"resourceTemplates": [TEMPLATE]}
    if method == "resources/read":
        text = os.environ.get("SAYS", "") + params["uri"]
        if "curious" in BEHAVIOURS:
            text = f"{text} for {who()}"
        return {"contents": [{"uri": params["uri"], "text": text, "_meta": {"own": 2}}]}
    if method in ("resources/subscribe", "resources/unsubscribe") and "updates" in BEHAVIOURS:
        SUBSCRIBED.append(f"{method.removeprefix('resources/')} {params['uri']}")
        return {}
    if method == "completion/complete":
        return {"completion": {"values": [params["argument"]["value"] + "-done"]}}
    return None


def listen(request, params):
    """Answers `subscriptions/listen`. The first subscription to each resource ends at once."""
    filter = params["notifications"]
    told = {"notifications": filter, "_meta": {SUBSCRIPTION: request}}
    notify("notifications/subscriptions/acknowledged", told)
    is_ended = False
    for uri in filter.get("resourceSubscriptions", []):
        LISTENING.setdefault(uri, []).append(request)
        is_ended = len(LISTENING[uri]) == 1
    if is_ended:
        return {"resultType": "complete", "_meta": {SUBSCRIPTION: request}}
    return None


SKILL_TEXT = "---\nname: report\ndescription: Writes a quarterly report.\ntoolscout_flags: x\n---\nRead [the form](form.md).\n"
SKILL_FILES = {"skill://report/SKILL.md": SKILL_TEXT, "skill://report/form.md": "The form."}
SKILL_FILES["skill://report/SKILL.md"] += os.environ.get("TAMPERED", "")


def manifest(uri, text):
    digest = hashlib.sha256(text.encode()).hexdigest()
    return {"uri": uri, "digest": f"sha256:{digest}", "size": len(text)}


SKILL = {"uri": "skill://report/SKILL.md", "frontmatter": {"name": "report", "description": "Writes a quarterly report."}}
SKILL["resources"] = [manifest("skill://report/SKILL.md", SKILL_TEXT), manifest("skill://report/form.md", "The form.")]
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
LISTENING = {}
TASK = {"taskId": "7", "status": "working", "ttlMs": None}
TASK |= {"createdAt": "2026-11-01T00:00:00Z", "lastUpdatedAt": "2026-11-01T00:00:00Z"}


def ask(method, params):
    """Asks the client, and returns its answer."""
    # Calls may ask at the same time, and one that has ended may still get an answer.
    question = f"question {next(QUESTIONS)}"
    ANSWERS[question] = queue.Queue()
    send({"jsonrpc": "2.0", "id": question, "method": method, "params": params})
    return ANSWERS[question].get(timeout=30)


def announce_changes():
    while True:
        notify("notifications/tools/list_changed")
        time.sleep(0.005)


def answer(message):
    global LISTS
    if "method" not in message:
        return ANSWERS[message["id"]].put(message.get("error") or message.get("result"))
    method, params, request = message.get("method"), message.get("params") or {}, message.get("id")
    if method == "notifications/cancelled":
        CANCELLED.setdefault(json.dumps(params.get("requestId")), threading.Event()).set()
    if request is None:
        return
    if method == "initialize":
        if "mute" in BEHAVIOURS:
            return
        capabilities = {"tools": {"listChanged": True}}
        if "offers" in BEHAVIOURS:
            resources = {"subscribe": True} if "updates" in BEHAVIOURS else {}
            capabilities |= {"prompts": {}, "resources": resources, "completions": {}}
        if "logs" in BEHAVIOURS:
            capabilities["logging"] = {}
        if "skills" in BEHAVIOURS:
            capabilities["extensions"] = {"io.modelcontextprotocol/skills": {}}
        info = {"name": "double", "version": "1"}
        result = {"protocolVersion": "2025-06-18", "capabilities": capabilities, "serverInfo": info}
        if "INSTRUCTIONS" in os.environ:
            result["instructions"] = os.environ["INSTRUCTIONS"]
    elif method == "server/discover" and "modern" in BEHAVIOURS:
        result = {"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
        result |= {"ttlMs": 0, "cacheScope": "private"}
        if "offers" in BEHAVIOURS:
            result["capabilities"] |= {"prompts": {}, "resources": {"subscribe": "listens" in BEHAVIOURS}}
        if "later" in BEHAVIOURS:
            result["capabilities"]["extensions"] = {"io.modelcontextprotocol/tasks": {}}
    elif method == "tasks/get" and params["taskId"] == TASK["taskId"]:
        done = {"content": [{"type": "text", "text": os.environ.get("DONE", "at last")}]}
        result = {"resultType": "complete", **TASK, "status": "completed", "result": done}
    elif method == "tasks/cancel" and params["taskId"] == TASK["taskId"]:
        result = {"resultType": "complete"}
    elif method == "tools/list":
        LISTS += 1
        try:
            result = list_tools(params)
        except LookupError as error:
            return send({"jsonrpc": "2.0", "id": request, "error": {"code": -32602, "message": str(error)}})
    elif method == "logging/setLevel" and "logs" in BEHAVIOURS:
        LEVEL[0], result = params["level"], {}
    elif method == "tools/call":
        result = call(request, params)
    elif method == "subscriptions/listen" and "listens" in BEHAVIOURS:
        result = listen(request, params)
    elif "offers" in BEHAVIOURS and (offered := offer(method, params)) is not None:
        result = offered
    else:
        return send({"jsonrpc": "2.0", "id": request, "error": {"code": -32601, "message": "no such method"}})
    if result is not None or params.get("name") == "raw":
        send({"jsonrpc": "2.0", "id": request, "result": result})


def state_version():
    """Differs for each file that was renamed to the state file, however fast one followed another."""
    state = os.stat(os.environ["STATE"])
    return state.st_ino, state.st_mtime_ns


def watch_state(before):
    """Tells of every change of the state file."""
    while True:
        time.sleep(0.02)
        now = state_version()
        if now != before:
            before = now
            notify("notifications/tools/list_changed")


def main():
    if "stubborn" in BEHAVIOURS:
        # What it starts inherits that.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    lifeline = attach_lifeline("server")
    if "grandchild" in BEHAVIOURS:
        # It ignores that its input ends, as some servers behind package runners do.
        program = "import socket,sys,time\ns=socket.create_connection(('127.0.0.1',int(sys.argv[1])))\n"
        program += "s.sendall(b'grandchild\\n')\ntime.sleep(600)"
        subprocess.Popen([sys.executable, "-c", program, os.environ["LIFELINE"]], stdin=subprocess.DEVNULL)
    if "quit" in BEHAVIOURS:
        sys.exit("a key is missing")
    if "noise" in BEHAVIOURS:
        print("Welcome! This line is no message.", flush=True)
    if "stderr-flood" in BEHAVIOURS:
        flood = lambda: [os.write(2, b"noise " * 10_000) for _ in range(2_000)]
        threading.Thread(target=flood, daemon=True).start()
    if "flood" in BEHAVIOURS:
        threading.Thread(target=announce_changes, daemon=True).start()
    if "STATE" in os.environ:
        # Its first version is read here: the thread may start after a test has changed it.
        threading.Thread(target=watch_state, args=(state_version(),), daemon=True).start()
    for line in sys.stdin:
        threading.Thread(target=answer, args=(json.loads(line),), daemon=True).start()
    while "stubborn" in BEHAVIOURS:
        time.sleep(1)
    del lifeline


main()
