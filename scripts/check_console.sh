#!/usr/bin/env bash
# The console in a real browser, against the program with its bundled catalog. Needs Node.js 20, and Chromium, which it
# installs. Pictures of the screens are left in target/console. Given a part of a check's name, runs that check alone.
set -euo pipefail
cd "$(dirname "$0")/.."

TOOLSCOUT=$(realpath "${TOOLSCOUT:-target/debug/toolscout}")
[ -x "$TOOLSCOUT" ] || cargo build --quiet --locked --bin toolscout
TOOLSCOUT_TEST_CHROMIUM=${TOOLSCOUT_TEST_CHROMIUM:-$(scripts/chromium.sh)}
TOOLSCOUT_FIXTURES=$PWD/fixtures/tools
CONSOLE_PICTURES=$PWD/target/console
export TOOLSCOUT TOOLSCOUT_TEST_CHROMIUM TOOLSCOUT_FIXTURES CONSOLE_PICTURES

modules=target/console-tests
mkdir -p "$modules"
cp tests/console/*.json tests/console/*.mjs "$modules"
(cd "$modules" && npm ci --silent --no-audit --no-fund --ignore-scripts && node run.mjs "${1:-}")
