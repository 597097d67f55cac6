#!/usr/bin/env bash
# Measures the HTTP API on loopback with wrk: requests a second and latency by mode and number of connections; what
# overload does to answers and memory; what a bulk load does to searches. One line of JSON for each measurement.
#
# usage: benches/load/run.sh [TOOLS QUERIES]
#   TOOLS    a file in any accepted format, by default every file of fixtures/tools
#   QUERIES  JSONL with a "query" in each line, by default fixtures/queries.jsonl
#
# SECONDS_EACH (10) and WARM_UP (3) are the length of each measurement. EMBEDDER=none leaves out the hybrid ones. DATA is
# a data directory whose default catalog has the tools and their vectors already; it is copied, and TOOLS is not read.
# Give it the machine: load generator and server share the cores, so figures are a lower bound and only comparable on
# one machine, in one run.
set -euo pipefail
cd "$(dirname "$0")/../.."
TOOLSCOUT=${TOOLSCOUT:-target/release/toolscout}
EMBEDDER=${EMBEDDER:-minilm}
[ -x "$TOOLSCOUT" ] || cargo build --release --quiet
. scripts/serving.sh

tools=${1:-}
export QUERIES=${2:-fixtures/queries.jsonl}
length=${SECONDS_EACH:-10}
warm_up=${WARM_UP:-3}
json='Content-Type: application/json'

load() {
  if [ -n "${DATA:-}" ]; then return; fi
  if [ -z "$tools" ]; then load_fixtures; return; fi
  # As NDJSON or as a task, a load may be of any size; a task is waited for.
  local task
  task=$(curl --silent --fail --show-error --header "$json" --header 'Prefer: respond-async' --data-binary "@$tools" \
    "$url/v1/catalogs/default/tools" | sed -n 's/.*"id":"\([^"]*\)".*/\1/p')
  until curl --silent "$url/v1/tasks/$task" | grep -qv '"status":"running"'; do sleep 0.2; done
}

embedded() {
  until curl --silent "$url/v1/catalogs/default" | grep -q '"pending_embeddings":0'; do sleep 0.5; done
}

# measure NAME CONNECTIONS [SECONDS]
measure() {
  local threads=1
  [ "$2" -lt 2 ] || threads=2
  wrk --threads "$threads" --connections "$2" --duration "${3:-$length}s" --script benches/load/search.lua "$url" |
    sed -n "s/^{/{\"what\":\"$1\",\"connections\":$2,/p"
}

resident_kb() { sed -n 's/^VmRSS:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$serving_pid/status"; }

# searches NAME MODE FRESH DISTINCT
searches() {
  local name=$1 connections
  export MODE=$2 FRESH=$3 DISTINCT=$4
  measure warm-up 8 "$warm_up" >/dev/null
  for connections in 1 8 64; do measure "$name" "$connections"; done
}

prepare() { [ -z "${DATA:-}" ] || cp -r "$DATA" "$serving_dir/data"; }

prepare
serve
load
searches lexical lexical 0 100000
if [ "$EMBEDDER" != none ]; then
  embedded
  searches "hybrid, repeated queries" hybrid 0 32
  searches "hybrid, fresh queries" hybrid 1 100000
fi

echo "{\"what\":\"while 5000 tools are loaded: idle first\"}"
export MODE=lexical FRESH=0 DISTINCT=100000
measure idle 8
seq 5000 | sed 's|.*|{"server":"load","name":"tool_&","description":"Does thing number & of the load.","inputSchema":{}}|' |
  curl --silent --header 'Content-Type: application/x-ndjson' --data-binary @- "$url/v1/catalogs/default/tools" |
  tail -n 1 >"$serving_dir/loaded" &
loading=$!
measure "while loading" 8
wait "$loading" && cat "$serving_dir/loaded"
kill "$serving_pid" && wait "$serving_pid"
rm -rf "$serving_dir/data"

# Overload: a short line, and four times the connections that fit into it and the threads.
cores=$(nproc)
line=$((6 * cores))
prepare
serve --search-queue "$line"
load
export MODE=lexical
# Flat memory is no growth after the first time: threads and their caches come with the first.
echo "{\"what\":\"overload\",\"resident_kb\":$(resident_kb)}"
for _ in 1 2 3; do
  measure overload $((4 * (line + 2 * cores)))
  echo "{\"what\":\"overload\",\"resident_kb\":$(resident_kb)}"
done
