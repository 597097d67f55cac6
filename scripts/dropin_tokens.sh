#!/usr/bin/env bash
# What a model is shown of a request's tools with the program in between and without, over sets of tools and requests
# (a folder each: tools.jsonl, queries.jsonl, as `toolscout eval` reads them). The model is played: it searches with the
# request's own words, once, and calls those of the right tools that it is shown then. Tokens are those of o200k_base
# over the JSON of the tools. Prints a table. Needs what scripts/check_dropin.sh installs.
#
# usage: scripts/dropin_tokens.sh [--queries N] [--limit N] FOLDER...
#        at most N requests a set, by default 200; how many tools a search is to find, by default as many as it does
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/dropin_modules.sh
exec node target/dropin/tokens.mjs "$@"
