#!/usr/bin/env bash
# What a search over MCP costs a client's model with signatures and with schemas, over sets of tools and requests (a folder
# each: tools.jsonl, queries.jsonl, as `toolscout eval` reads them), and how many of the right tools it is shown. The model is
# played: it searches once, with the request's own words; with signatures it then has the right ones described. Tokens are those of
# o200k_base over the answers' texts. Prints a table. Needs what scripts/check_dropin.sh installs.
#
# usage: scripts/gateway_tokens.sh [--queries N] [--limit N] FOLDER...
#        at most N requests a set, by default 200; how many tools a search is to find, by default 5
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/dropin_modules.sh
exec node target/dropin/gateway_tokens.mjs "$@"
