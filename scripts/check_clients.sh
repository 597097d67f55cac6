#!/usr/bin/env bash
# Runs the examples of clients/ against a real server, as people copy them.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/serving.sh

venv=target/venv-clients
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check --requirement clients/python/requirements.txt
modules=target/client-typescript
mkdir -p "$modules"
cp clients/typescript/fetch/* "$modules"
(cd "$modules" && npm ci --silent --no-audit --no-fund && npm run --silent build)

failed=0
# Each prints the tool it found; a server of its own keeps them apart.
check() {
  serve
  local printed
  printed=$("$@" "$url")
  case $printed in
    *office/send_email*) echo "ok: $*" ;;
    *) echo "failed: $*: $printed" >&2; failed=1 ;;
  esac
  kill "$serving_pid" && wait "$serving_pid"
  serving_pid=
  rm -rf "$serving_dir/data"
}
check sh clients/curl.sh
check "$venv/bin/python" clients/python/search_tools.py
check node "$modules/search_tools.js"
exit "$failed"
