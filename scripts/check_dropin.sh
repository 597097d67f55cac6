#!/usr/bin/env bash
# The drop-in endpoint before clients that others wrote: SDKs and agent frameworks of Python and TypeScript, at pinned
# versions from PyPI and npm, unmodified but for the base URL, before a provider that is played. Needs Python 3.10 and
# Node.js 20 or newer. Given a part of a check's name, runs that check alone; `clouds` are Google, AWS and Azure.
#
# usage: scripts/check_dropin.sh [PART]     DROPIN_SOAK_S: how long clients come and go, by default 20 s
#                                           DROPIN_DIRECT=1: the clients speak with the provider itself
set -euo pipefail
cd "$(dirname "$0")/.."

if [ -z "${DROPIN_DIRECT:-}" ]; then
  program=${TOOLSCOUT:-target/debug/toolscout}
  [ -x "$program" ] || cargo build --quiet --locked --bin toolscout
  TOOLSCOUT=$(realpath "$program")
  export TOOLSCOUT
else
  unset TOOLSCOUT
fi

clients=$PWD/target/dropin
mkdir -p "$clients"
if ! cmp --silent tests/dropin/requirements.txt "$clients/venv/installed.txt"; then
  [ -x "$clients/venv/bin/python" ] || python3 -m venv "$clients/venv"
  "$clients/venv/bin/pip" install --quiet --disable-pip-version-check --requirement tests/dropin/requirements.txt
  cp tests/dropin/requirements.txt "$clients/venv/installed.txt"
fi
cp tests/dropin/*.json tests/dropin/*.mjs clients/drop-in/typescript/* "$clients"
if ! cmp --silent tests/dropin/package-lock.json "$clients/node_modules/.installed-lock.json"; then
  (cd "$clients" && npm ci --silent --no-audit --no-fund --ignore-scripts)
  cp tests/dropin/package-lock.json "$clients/node_modules/.installed-lock.json"
fi

export DROPIN_PYTHON=$clients/venv/bin/python DROPIN_EXAMPLES=$PWD/clients/drop-in DROPIN_TESTS=$PWD/tests/dropin
# Nothing but loopback: no traces, no version checks, no proxy.
export LANGSMITH_TRACING=false AI_SDK_LOG_WARNINGS=false NO_PROXY=127.0.0.1 PYTHONDONTWRITEBYTECODE=1
(cd "$clients" && node_modules/.bin/tsc)
# The SDKs of Google, AWS and Azure have a provider of their own.
if [ -n "${TOOLSCOUT:-}" ] && [[ "clouds" == *"${1:-}"* ]]; then
  NODE_FOLDER=$clients EXAMPLES=$DROPIN_EXAMPLES "$DROPIN_PYTHON" tests/dropin/clouds.py "$TOOLSCOUT"
  [ -z "${1:-}" ] || exit 0
fi
cd "$clients"
exec node run.mjs "${1:-}"
