#!/usr/bin/env bash
# Runs the tests of the HTTP API and of MCP, and the attacks on both, with their servers over a PostgreSQL, which it
# installs and starts as a user who is not root: each data directory has a database, copied from one with the tables.
# Arguments are parts of the names of tests; without any it runs all but those in tests/embedded_store.txt.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}
programs=$(scripts/postgres.sh)

folder=$(mktemp -d)
as_user() {
    if [ "$(id -u)" = 0 ]; then
        (cd / && exec setpriv --reuid 65534 --regid 65534 --clear-groups "$@")
    else
        "$@"
    fi
}
stop() {
    as_user "$programs/pg_ctl" --pgdata "$folder/data" --mode immediate stop >/dev/null 2>&1 || true
    rm -rf "$folder"
}
trap stop EXIT
[ "$(id -u)" != 0 ] || chown 65534:65534 "$folder"

port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
as_user "$programs/initdb" --pgdata "$folder/data" --username tools --auth trust --no-sync --encoding UTF8 --locale C \
    >/dev/null
# Nothing of it has to survive, so it waits for no disk.
options="-p $port -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off -c full_page_writes=off"
options+=" -c max_connections=300 -c shared_buffers=64MB -c max_wal_size=128MB"
as_user "$programs/pg_ctl" --pgdata "$folder/data" --log "$folder/log" --wait --options "$options" start >/dev/null
export TOOLSCOUT_TEST_STORE=postgres://tools@127.0.0.1:$port
"$programs/createdb" --host 127.0.0.1 --port "$port" --username tools template_of_tests
TOOLSCOUT_STORE=$TOOLSCOUT_TEST_STORE/template_of_tests "$cargo" run --locked --quiet --bin toolscout -- store migrate

left_out=()
while read -r name reason; do
    case $name in
    '#'*) ;;
    *)
        left_out+=(--skip "$name")
        echo "left out: $name: $reason"
        ;;
    esac
done < tests/embedded_store.txt
if "$cargo" nextest --version >/dev/null 2>&1; then
    "$cargo" nextest run --locked --no-fail-fast --test-threads 4 --test http --test mcp --test attacks -- "${left_out[@]}" "$@"
else
    "$cargo" test --locked --no-fail-fast --test http --test mcp --test attacks -- --test-threads 4 "${left_out[@]}" "$@"
fi
