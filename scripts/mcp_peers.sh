#!/usr/bin/env bash
# Installs the MCP servers and clients of others that the tests speak to, at pinned versions, into target/mcp-peers.
# Needs Node 20 and Python 3.10 or newer. Quick when they are there already.
set -euo pipefail
cd "$(dirname "$0")/.."

peers=target/mcp-peers
mkdir -p "$peers"
if ! cmp --silent tests/mcp/peers/package-lock.json "$peers/node_modules/.installed-lock.json"; then
  cp tests/mcp/peers/package.json tests/mcp/peers/package-lock.json "$peers"
  (cd "$peers" && npm ci --silent --no-audit --no-fund --ignore-scripts)
  cp tests/mcp/peers/package-lock.json "$peers/node_modules/.installed-lock.json"
fi
if ! cmp --silent tests/mcp/peers/requirements.txt "$peers/venv/installed.txt"; then
  [ -x "$peers/venv/bin/python" ] || python3 -m venv "$peers/venv"
  "$peers/venv/bin/pip" install --quiet --disable-pip-version-check --requirement tests/mcp/peers/requirements.txt
  cp tests/mcp/peers/requirements.txt "$peers/venv/installed.txt"
fi
