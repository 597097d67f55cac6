#!/usr/bin/env bash
# Clients that others wrote before the drop-in endpoint: see run.py, which prints a table. Installs them from npm and PyPI
# at the versions that clients.py names; what cannot be installed is skipped, with the reason. Needs Python 3.10 and
# Node.js 20 or newer.
#
# usage: scripts/clients/check.sh [PART]     given a part of a client's name, runs that client alone
set -euo pipefail
cd "$(dirname "$0")/../.."
program=${TOOLSCOUT:-target/debug/toolscout}
[ -x "$program" ] || cargo build --quiet --locked --bin toolscout
PYTHONDONTWRITEBYTECODE=1 exec python3 scripts/clients/run.py --program "$program" --folder "${CLIENTS_FOLDER:-target/clients}" --only "${1:-}"
