"""The clients: how each is installed, and which lines make it speak with the endpoint, as docs/clients.md has them."""

import json
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
PROMPT = "Run the command, then archive invoice 7 and cancel shipment 7."
NODE_SDKS = [
    "ai@7.0.173",
    "@ai-sdk/openai-compatible@3.0.92",
    "@ai-sdk/openai@4.0.118",
    "@ai-sdk/anthropic@4.0.105",
    "zod@4.6.7",
]


@dataclass
class Client:
    """A client from npm or PyPI."""

    name: str
    packages: list
    # Writes its settings into a home and returns the command, relative to where its packages are.
    command: object
    registry: str = "npm"
    environment: dict = field(default_factory=dict)
    # Why it cannot be tried here.
    skipped: str = ""
    # Whether it has tools of its own, and so runs the command.
    has_own_tools: bool = True

    @property
    def title(self):
        """Its name with the version of its first package."""
        version = re.search(r"(?:==|.@)([0-9.]+)$", self.packages[0])
        return f"{self.name}, {version[1]}" if version else self.name


def office(calls):
    """The MCP server as most clients are told of it."""
    return {"command": sys.executable, "args": [str(HERE / "office_server.py")], "env": {"OFFICE_CALLS": str(calls)}}


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text if isinstance(text, str) else json.dumps(text, indent=2), encoding="utf-8")


def claude_code(url, home, calls, search="false"):
    write(home / "mcp.json", {"mcpServers": {"office": office(calls)}})
    environment = {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "key",
        "ENABLE_TOOL_SEARCH": search,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
    }
    arguments = [
        "-p",
        PROMPT,
        "--model",
        "claude-sonnet-4-5",
        "--mcp-config",
        str(home / "mcp.json"),
        "--strict-mcp-config",
        "--allowedTools",
        "Bash,mcp__office",
    ]
    return ["node_modules/.bin/claude", *arguments], environment


def claude_code_searching(url, home, calls):
    return claude_code(url, home, calls, search="true")


def codex(url, home, calls):
    server = office(calls)
    write(
        home / ".codex/config.toml",
        f"""model = "gpt-5.4-mini"
model_provider = "toolscout"

[model_providers.toolscout]
name = "toolscout"
base_url = "{url}/v1"
env_key = "OPENAI_API_KEY"
wire_api = "responses"

[mcp_servers.office]
command = {json.dumps(server["command"])}
args = {json.dumps(server["args"])}
env = {{ OFFICE_CALLS = {json.dumps(str(calls))} }}
""",
    )
    arguments = ["exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", PROMPT]
    return ["node_modules/.bin/codex", *arguments], {"OPENAI_API_KEY": "key", "CODEX_HOME": str(home / ".codex")}


def opencode(url, home, calls):
    server = office(calls)
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "toolscout",
        "options": {"baseURL": f"{url}/v1", "apiKey": "key"},
        "models": {"gpt-5.4-mini": {}},
    }
    write(
        home / ".config/opencode/opencode.json",
        {
            "autoupdate": False,
            "share": "disabled",
            "provider": {"toolscout": provider},
            "mcp": {
                "office": {
                    "type": "local",
                    "command": [server["command"], *server["args"]],
                    "environment": server["env"],
                }
            },
        },
    )
    return ["node_modules/.bin/opencode", "run", "--auto", "--model", "toolscout/gpt-5.4-mini", PROMPT], {
        "OPENCODE_DISABLE_MODELS_FETCH": "1"
    }


def qwen_code(url, home, calls):
    write(
        home / ".qwen/settings.json",
        {
            "mcpServers": {"office": office(calls)},
            "privacy": {"usageStatisticsEnabled": False},
            "telemetry": {"enabled": False},
            "general": {"disableAutoUpdate": True},
        },
    )
    environment = {
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_API_KEY": "key",
        "OPENAI_MODEL": "gpt-5.4-mini",
        "QWEN_SANDBOX": "false",
    }
    return ["node_modules/.bin/qwen", "--auth-type", "openai", "--approval-mode", "yolo", PROMPT], environment


def continue_cli(url, home, calls):
    server = office(calls)
    write(
        home / "config.yaml",
        f"""name: toolscout
version: 0.0.1
schema: v1
models:
  - name: scripted
    provider: openai
    model: gpt-5.4-mini
    apiBase: {url}/v1
    apiKey: key
    capabilities: [tool_use]
    roles: [chat]
mcpServers:
  - name: office
    command: {json.dumps(server["command"])}
    args: {json.dumps(server["args"])}
    env:
      OFFICE_CALLS: {json.dumps(str(calls))}
""",
    )
    return ["node_modules/.bin/cn", "-p", PROMPT, "--auto", "--config", str(home / "config.yaml")], {
        "CONTINUE_TELEMETRY_ENABLED": "0"
    }


def crush(url, home, calls):
    provider = {
        "type": "openai-compat",
        "base_url": f"{url}/v1",
        "api_key": "key",
        "models": [{"id": "gpt-5.4-mini", "name": "scripted", "context_window": 200000, "default_max_tokens": 5000}],
    }
    write(
        home / ".config/crush/crush.json",
        {
            "options": {"disable_metrics": True, "disable_provider_auto_update": True},
            "providers": {"toolscout": provider},
            "models": {size: {"model": "gpt-5.4-mini", "provider": "toolscout"} for size in ("large", "small")},
            "mcp": {"office": {"type": "stdio", **office(calls)}},
        },
    )
    return ["node_modules/.bin/crush", "run", "--quiet", PROMPT], {"CRUSH_DISABLE_METRICS": "1"}


def cline(url, home, calls):
    write(home / ".cline/mcp.json", {"mcpServers": {"office": office(calls)}})
    write(home / ".cline/data/settings/cline_mcp_settings.json", {"mcpServers": {"office": office(calls)}})
    setup = [
        "node_modules/.bin/cline",
        "auth",
        "openai-compatible",
        "--apikey",
        "key",
        "--baseurl",
        f"{url}/v1",
        "--modelid",
        "gpt-5.4-mini",
    ]
    return [
        setup,
        [
            "node_modules/.bin/cline",
            "--provider",
            "openai-compatible",
            "--model",
            "gpt-5.4-mini",
            "--auto-approve",
            "true",
            "--json",
            PROMPT,
        ],
    ], {"CLINE_TELEMETRY_DISABLED": "1"}


def copilot(wire):
    def command(url, home, calls):
        write(
            home / ".copilot/mcp-config.json",
            {"mcpServers": {"office": {"type": "local", "tools": ["*"], **office(calls)}}},
        )
        kind = "anthropic" if wire == "messages" else "openai"
        environment = {
            "COPILOT_PROVIDER_BASE_URL": url if kind == "anthropic" else f"{url}/v1",
            "COPILOT_PROVIDER_TYPE": kind,
            "COPILOT_PROVIDER_API_KEY": "key",
            "COPILOT_MODEL": "gpt-5.4-mini",
            "COPILOT_OFFLINE": "true",
        }
        if kind == "openai":
            environment["COPILOT_PROVIDER_WIRE_API"] = wire
        return ["node_modules/.bin/copilot", "-p", PROMPT, "--allow-all-tools"], environment

    return command


def gemini(_url, _home, _calls):
    return [], {}


def python_sdk(script, *arguments):
    def command(url, _home, calls):
        return ["venv/bin/python", str(HERE / "sdks" / script), url, str(calls), *arguments], {
            "OPENAI_API_KEY": "key",
            "ANTHROPIC_API_KEY": "key",
            "OPENAI_AGENTS_DISABLE_TRACING": "1",
            "LANGSMITH_TRACING": "false",
            "PYTHONPATH": str(HERE),
        }

    return command


def vercel(provider):
    def command(url, home, calls):
        import tools

        write(home / "tools.json", tools.tools())
        return ["node", "vercel_ai.mjs", url, str(calls), provider, str(home / "tools.json")], {
            "AI_SDK_LOG_WARNINGS": "false"
        }

    return command


def mastra(url, home, calls):
    import tools

    write(home / "tools.json", tools.tools())
    return ["node", "mastra.mjs", url, str(calls), str(home / "tools.json")], {"MASTRA_TELEMETRY_DISABLED": "1"}


CLIENTS = [
    Client("Claude Code", ["@anthropic-ai/claude-code@2.1.197"], claude_code),
    Client("Claude Code with ENABLE_TOOL_SEARCH", ["@anthropic-ai/claude-code@2.1.197"], claude_code_searching),
    Client("Codex", ["@openai/codex@0.171.0"], codex),
    Client("opencode", ["opencode-ai@1.18.33"], opencode),
    Client("qwen-code", ["@qwen-code/qwen-code@0.15.10"], qwen_code),
    Client("Continue", ["@continuedev/cli@1.5.47"], continue_cli),
    Client("Crush", ["@charmland/crush@0.96.1"], crush),
    Client("Cline", ["cline@3.0.65"], cline),
    Client("Copilot CLI (completions)", ["@github/copilot@1.0.102"], copilot("completions")),
    Client("Copilot CLI (responses)", ["@github/copilot@1.0.102"], copilot("responses")),
    Client("Copilot CLI (messages)", ["@github/copilot@1.0.102"], copilot("messages")),
    Client(
        "Gemini CLI",
        ["@google/gemini-cli"],
        gemini,
        skipped="it speaks Gemini's own API alone, which the endpoint does not serve",
    ),
    Client(
        "LangGraph",
        ["langgraph==1.2.24", "langchain-openai==1.7.4"],
        python_sdk("langgraph_agent.py"),
        registry="pypi",
        has_own_tools=False,
    ),
    Client(
        "pydantic-ai",
        ["pydantic-ai-slim[openai]==2.68.0"],
        python_sdk("pydantic_ai_agent.py"),
        registry="pypi",
        has_own_tools=False,
    ),
    Client(
        "openai-agents (responses)",
        ["openai-agents==0.24.0"],
        python_sdk("openai_agents_sdk.py", "responses"),
        registry="pypi",
        has_own_tools=False,
    ),
    Client(
        "openai-agents (completions)",
        ["openai-agents==0.24.0"],
        python_sdk("openai_agents_sdk.py", "completions"),
        registry="pypi",
        has_own_tools=False,
    ),
    Client(
        "smolagents",
        ["smolagents[openai]==1.26.0"],
        python_sdk("smolagents_agent.py"),
        registry="pypi",
        has_own_tools=False,
    ),
    Client("Mastra", ["@mastra/core@1.71.0", "zod@4.6.7"], mastra, has_own_tools=False),
    Client("Vercel AI SDK (compatible)", NODE_SDKS, vercel("compatible"), has_own_tools=False),
    Client("Vercel AI SDK (responses)", NODE_SDKS, vercel("responses"), has_own_tools=False),
    Client("Vercel AI SDK (messages)", NODE_SDKS, vercel("messages"), has_own_tools=False),
]
