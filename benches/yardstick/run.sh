#!/usr/bin/env bash
# Our server beside a minimal Python one (FastAPI with bm25s) on the same tools, the same queries, in one run: requests a
# second and p99, and the ratio. Lexical search, since that is what both do.
#
# usage: benches/yardstick/run.sh [CONNECTIONS]     by default 8; SECONDS_EACH (10) is the length of each measurement
set -euo pipefail
cd "$(dirname "$0")/../.."
TOOLSCOUT=${TOOLSCOUT:-target/release/toolscout}
[ -x "$TOOLSCOUT" ] || cargo build --release --quiet
. scripts/serving.sh

connections=${1:-8}
length=${SECONDS_EACH:-10}
export QUERIES=${QUERIES:-fixtures/queries.jsonl} MODE=lexical
venv=target/venv-yardstick
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check --requirement benches/yardstick/requirements.txt

# measure URL
measure() {
  local run=(wrk --threads 2 --connections "$connections" --script benches/load/search.lua)
  "${run[@]}" --duration 3s "$1" >/dev/null
  "${run[@]}" --duration "${length}s" "$1" | grep '^{'
}

serve
load_fixtures
cursor=
: >"$serving_dir/tools.ndjson"
while :; do
  curl --silent --fail "$url/v1/catalogs/default/tools?limit=1000$cursor" >"$serving_dir/page"
  python3 -c 'import json, sys
page = json.load(open(sys.argv[1]))
print(*(json.dumps(tool) for tool in page["tools"]), sep="\n", file=open(sys.argv[2], "a"))
print("&cursor=" + page["next_cursor"] if "next_cursor" in page else "")' "$serving_dir/page" \
    "$serving_dir/tools.ndjson" >"$serving_dir/cursor"
  cursor=$(cat "$serving_dir/cursor")
  [ -n "$cursor" ] || break
done

measure "$url" >"$serving_dir/ours"
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
"$venv/bin/python" benches/yardstick/server.py "$serving_dir/tools.ndjson" "$port" &
yardstick=$!
trap 'kill "$yardstick" 2>/dev/null || true; end_serving' EXIT
until curl --silent --output /dev/null "http://127.0.0.1:$port/docs"; do
  kill -0 "$yardstick"
  sleep 0.1
done
measure "http://127.0.0.1:$port" >"$serving_dir/theirs"

python3 -c 'import json, sys
ours, theirs = (json.load(open(path)) for path in sys.argv[1:3])
tools = sum(1 for _ in open(sys.argv[3]))
print(json.dumps({"tools": tools, "toolscout": ours, "fastapi_bm25s": theirs,
    "requests_per_s_ratio": round(ours["requests_per_s"] / theirs["requests_per_s"], 2),
    "p99_ratio": round(theirs["p99_ms"] / max(ours["p99_ms"], 0.001), 2)}, indent=1))' \
  "$serving_dir/ours" "$serving_dir/theirs" "$serving_dir/tools.ndjson"
