"""Requests that somebody without the right to them sends."""

import http.client
import json
import re
from urllib.parse import quote, urlsplit

from program import JSON, ROOT, Scratch, Server, run

SHORT_ROUTES = 12


def send(url, method, path, body=None, headers=None):
    """The status and the body, of one connection, with exactly these headers."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
    try:
        headers = dict(headers or {})
        connection.putrequest(method, path, skip_host="Host" in headers, skip_accept_encoding=True)
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        if data is not None:
            headers.setdefault("Content-Type", "application/json")
            headers["Content-Length"] = str(len(data))
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders(data)
        answer = connection.getresponse()
        return answer.status, answer.read(1 << 20)
    except (OSError, http.client.HTTPException, ValueError) as error:
        return 0, str(error).encode()
    finally:
        connection.close()


def routes(url, is_short):
    """Every route of the description, with values for its parameters."""
    _, text = send(url, "GET", "/openapi.json")
    values = {"catalog": "default", "server": "x", "number": "1"}
    found = []
    for path, methods in json.loads(text)["paths"].items():
        for method in methods:
            if method in ("get", "post", "put", "patch", "delete"):
                # The id of a tool has two parts.
                parts = {**values, "id": "x/y" if "/tools/" in path or "/companions/" in path else "x"}
                filled = re.sub(r"\{\*?(\w+)\}", lambda name, parts=parts: parts.get(name[1], "x"), path)
                found.append((method.upper(), filled))
    return found[:: max(1, len(found) // SHORT_ROUTES)] if is_short else found


def body_of(method):
    return {} if method in ("POST", "PUT", "PATCH") else None


def key(data, *arguments):
    code, out, said = run(data, "keys", "create", *arguments)
    assert code == 0, said
    return out.decode().strip()


PUBLIC = ("/livez", "/readyz", "/healthz", "/version")


def keys(report, is_short):
    """Every route without a key, with one that is none, and with one for another catalog."""
    with Scratch() as data:
        run(data, "add", str(ROOT / "fixtures/tools"))
        admin = key(data, "--scope", "admin", "--catalogs", "*")
        other = key(data, "--scope", "admin", "--catalogs", "other")
        owner = key(data, "--scope", "admin,call,approve", "--catalogs", "default")
        search = key(data, "--scope", "search", "--catalogs", "default")
        revoked = key(data, "--scope", "admin", "--catalogs", "*")
        assert run(data, "keys", "revoke", revoked.split("_")[1])[0] == 0
        server = Server(data).wait_until_ready()
        wrong = {
            "none": {},
            "empty": {"Authorization": "Bearer "},
            "another scheme": {"Authorization": f"Basic {admin}"},
            "cut off": {"Authorization": f"Bearer {admin[:-1]}"},
            "too long": {"Authorization": f"Bearer {admin}x"},
            "other case": {"Authorization": f"Bearer {admin.swapcase()}"},
            "revoked": {"Authorization": f"Bearer {revoked}"},
            "revoked in the other header": {"X-API-Key": revoked},
            "its id alone": {"X-API-Key": admin.split("_")[1]},
        }
        for method, path in routes(server.url, is_short):
            if path in PUBLIC:
                continue
            for name, headers in wrong.items():
                status, answer = send(server.url, method, path, body_of(method), headers)
                report.attempt(f"{name}: {method} {path}", status in (401, 403), (status, answer[:80]))
            status, answer = send(server.url, method, f"{path}?key={admin}&api_key={admin}", body_of(method))
            report.attempt(f"in the address: {method} {path}", status in (401, 403), (status, answer[:80]))
        limited(report, server.url, search, other)
        model(report, server.url, {"search": search, "admin of another catalog": other, "admin of the catalog": owner})
        status, _ = send(server.url, "GET", "/v1/keys", headers={"Authorization": f"Bearer {admin}"})
        assert status == 200, "the right key works"
        server.stop()


def limited(report, url, search, other):
    """What keys may not do that are valid for less."""
    for method, path in [
        ("GET", "/v1/keys"), ("DELETE", "/v1/keys/x"), ("GET", "/v1/audit"), ("GET", "/v1/stats"),
        ("GET", "/metrics"), ("PUT", "/v1/catalogs/new"), ("POST", "/v1/audit/check"),
        ("DELETE", "/v1/catalogs/default"), ("POST", "/v1/catalogs/default/tools"), ("PUT", "/v1/catalogs/default/tools/a/b"),
        ("DELETE", "/v1/catalogs/default/tools"), ("PUT", "/v1/catalogs/default/settings"), ("PUT", "/v1/catalogs/default/words"),
        ("PATCH", "/v1/catalogs/default/words"), ("GET", "/v1/catalogs/default/memory"), ("DELETE", "/v1/catalogs/default/memory"),
        ("PUT", "/v1/catalogs/default/memory"), ("POST", "/v1/catalogs/default/evaluations"), ("POST", "/v1/catalogs/default/evaluations/reports"),
        ("POST", "/v1/catalogs/default/judgings"), ("DELETE", "/v1/catalogs/default/judgings/x"), ("POST", "/v1/catalogs/default/changes"),
        ("PUT", "/v1/catalogs/default/servers/a/tools"),
    ]:
        for name, value in (("search", search), ("another catalog", other)):
            status, answer = send(url, method, path, body_of(method), {"Authorization": f"Bearer {value}"})
            is_refused = status in (401, 403, 404)
            report.attempt(f"key for {name}: {method} {path}", is_refused, (status, answer[:80]))
    for body, path in [
        ({"scopes": ["admin"], "catalogs": ["*"]}, "/v1/keys"), ({"name": "new"}, "/v1/catalogs"),
    ]:
        status, answer = send(url, "POST", path, body, {"Authorization": f"Bearer {search}"})
        report.attempt(f"key for search: POST {path}", status in (401, 403), (status, answer[:80]))


def model(report, url, keys_without):
    """Requests that cost the operator what its model costs."""
    messages = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
    for base in ("/v1", "", "/v1/v1"):
        for method, path, body in [
            ("POST", "/chat/completions", messages), ("POST", "/messages", messages), ("POST", "/messages/count_tokens", messages),
            ("POST", "/responses", {"model": "m", "input": "x"}), ("POST", "/responses/input_tokens", {"model": "m", "input": "x"}),
            ("POST", "/chat/completions", {**messages, "model": "toolscout/agent"}), ("GET", "/models", None),
        ]:
            for name, value in keys_without.items():
                status, answer = send(url, method, base + path, body, {"Authorization": f"Bearer {value}"})
                report.attempt(f"key for {name}: {method} {base}{path}", status in (401, 403), (status, answer[:80]))


def pages(report, is_short):
    """Every route as a page of another site reaches it."""
    with Scratch() as data:
        server = Server(data).wait_until_ready()
        sites = {
            "cross-site": {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"},
            "same site": {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"},
            "an origin": {"Origin": "https://evil.example"},
            "no origin": {"Origin": "null"},
            "another port": {"Origin": "http://127.0.0.1:1"},
            "an origin that begins alike": {"Origin": server.url + ".evil.example"},
            "a frame": {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"},
            "a link": {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"},
        }
        for method, path in routes(server.url, is_short):
            for name, headers in sites.items():
                status, answer = send(server.url, method, path, body_of(method), headers)
                report.attempt(f"{name}: {method} {path}", status in (401, 403), (status, answer[:80]))
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/json"):
            for path in ("/v1/agent/chat", "/v1/keys", "/v1/search", "/v1/catalogs", "/v1/agent/approve"):
                status, answer = send(server.url, "POST", path, b'{"query": "x"}', {"Content-Type": kind})
                report.attempt(f"a form of {kind}: {path}", status >= 400, (status, answer[:80]))
        server.stop()


def hosts(report, _is_short):
    """Names that lead to this address, as in DNS rebinding."""
    with Scratch() as data:
        server = Server(data).wait_until_ready()
        port = urlsplit(server.url).port
        for host in [
            "evil.example", "evil.example:80", "localhost.evil.example", "127.0.0.1.evil.example", "evil.example.",
            "localhost@evil.example", "evil.example#localhost", "evil.example/localhost", "127.0.0.1.nip.io", "[::1].evil.example",
            "127.0.0.1 evil.example", "", "*", "evil\u00e9.example".encode().decode("latin-1"), "2130706433.example",
            "localhost\\.evil.example", "metadata.google.internal", "a" * 300,
        ]:
            for path in ("/v1/catalogs", "/v1/search", "/", "/mcp", "/openapi.json"):
                for name in (host, f"{host}:{port}"):
                    status, answer = send(server.url, "GET", path, headers={"Host": name})
                    report.attempt(f"{name!r} {path}", status == 0 or status >= 400, (status, answer[:80]))
        server.stop()


NAMES = [
    "..", "../x", "../../x", "..%2fx", "%2e%2e", "%2e%2e%2fx", "..\\x", "a/../b", "/etc", "//x", "a\0b", ".", ".hidden", "CON", "a:b",
    "~", "~root", "$HOME", "a\nb", "a\rb", " ", "a b", "\u202eabc", "a" * 300, "%00", "%252e%252e%252fx", "\uff0e\uff0e/x", "-rf", "keys.db",
    "\u2024\u2024", "a%2fb", "..;/x", "....//x", "tools.db", "\ufeff",
]


def names(report, _is_short):
    """Names of catalogs, tools and conversations that lead elsewhere."""
    with Scratch() as data:
        run(data, "add", str(ROOT / "fixtures/tools"))
        server = Server(data).wait_until_ready()
        before = {str(path) for path in data.parent.glob("*")}
        outside = {str(path.relative_to(data)) for path in data.rglob("*")}
        for name in NAMES:
            for encoded in {quote(name, safe=""), quote(name, safe="/")}:
                for method, path in [
                    ("PUT", f"/v1/catalogs/{encoded}"), ("GET", f"/v1/catalogs/{encoded}"), ("DELETE", f"/v1/catalogs/{encoded}"),
                    ("GET", f"/v1/agent/conversations/{encoded}"), ("DELETE", f"/v1/agent/conversations/{encoded}"),
                    ("GET", f"/console/{encoded}"), ("GET", f"/v1/tasks/{encoded}"),
                ]:
                    status, answer = send(server.url, method, path, body_of(method))
                    is_refused = b"root:" not in answer and status < 500
                    report.attempt(f"{method} {path!r}", is_refused, (status, answer[:80]))
        made = {str(path.relative_to(data)) for path in data.rglob("*")} - outside
        strange = [path for path in made if ".." in path or path.count("/") > 6]
        report.attempt("files outside of the data directory", {str(path) for path in data.parent.glob("*")} <= before | {str(data)} or not strange, strange)
        status, _ = send(server.url, "GET", "/v1/catalogs/default")
        report.attempt("the catalog is still there", status == 200, status)
        server.stop()


def bodies(report, _is_short):
    """Bodies that are meant to be read for ever, or to take the process down."""
    deep = b"[" * 100_000 + b"]" * 100_000
    rows = [
        ("deep JSON", deep), ("deep objects", b'{"a":' * 50_000 + b"1" + b"}" * 50_000), ("no JSON", b"{"), ("NUL", b"\0"),
        ("a number without end", b'{"query":"x","k":' + b"9" * 100_000 + b"}"), ("an exponent", b'{"query":"x","k":1e999999999}'),
        ("a text that is not Unicode", b'{"query":"\xff\xfe"}'), ("half of a pair", b'{"query":"\\ud800"}'),
        ("a long query", json.dumps({"query": "x" * 1_000_000}).encode()), ("many queries", json.dumps({"queries": ["x"] * 10_000}).encode()),
        ("a key twice", b'{"query":"a","query":"b"}'), ("an endless k", b'{"query":"x","k":18446744073709551616}'), ("less than nothing", b'{"query":"x","k":-1}'),
        ("a list", b"[]"), ("null", b"null"), ("a text", b'"x"'), ("nothing", b""), ("a byte order mark", b"\xef\xbb\xbf{}"), ("an unknown field", b'{"query":"x","shell":"id"}'),
    ]
    with Scratch() as data:
        run(data, "add", str(ROOT / "fixtures/tools"))
        server = Server(data).wait_until_ready()
        for path in ("/v1/search", "/v1/catalogs/default/tools", "/v1/catalogs/default/words", "/v1/catalogs/default/feedback", "/v1/keys", "/mcp", "/v1/catalogs/default/calls"):
            for name, body in rows:
                method = "PUT" if path.endswith("words") else "POST"
                status, answer = send(server.url, method, path, body)
                report.attempt(f"{name}: {path}", status < 500, (status, answer[:80]))
        status, _ = send(server.url, "GET", "/livez")
        report.attempt("the server is alive", status == 200, status)
        server.stop()


def sessions(report, is_short):
    """One key takes as many sessions as it can; another one still gets one."""
    start = {
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "attack", "version": "1"}},
    }
    with Scratch() as data:
        greedy, other = (key(data, "--scope", "search", "--catalogs", "*") for _ in range(2))
        server = Server(data).wait_until_ready()
        accept = {"Accept": "application/json, text/event-stream", **JSON}
        ask = lambda held: send(server.url, "POST", "/mcp", start, {"Authorization": f"Bearer {held}", **accept})  # noqa: E731
        for number in range(160 if is_short else 1_100):
            status, answer = ask(greedy)
            if number % 10 == 0:
                status, answer = ask(other)
                report.attempt(f"another key after {number}", status == 200, (status, answer[:80]))
        for name in ("x", "../x", "a" * 5_000, "%00", "1", "00000000-0000-0000-0000-000000000000"):
            headers = {"Authorization": f"Bearer {other}", "Mcp-Session-Id": name, **accept}
            status, answer = send(server.url, "POST", "/mcp", {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}, headers)
            report.attempt(f"the session {name[:20]!r}", status in (400, 404, 431), (status, answer[:80]))
        report.note(f"memory {server.resident_mib():.0f} MiB")
        server.stop()


