#!/usr/bin/env bash
# Starts PostgreSQL with pgvector, as scripts/postgres.sh installs it, on a port of this machine, and runs it until it is
# ended. Prints the address of a database for TOOLSCOUT_TEST_PGVECTOR. The user and the password are `tools`.
set -euo pipefail
cd "$(dirname "$0")/.."

programs=$(scripts/postgres.sh | tail -1)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
echo tools > "$folder/password"
as=()
# PostgreSQL does not run as root.
if [ "$(id -u)" = 0 ]; then
  chown -R nobody "$folder"
  as=(setpriv --reuid nobody --clear-groups)
fi
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
"${as[@]}" "$programs/initdb" --pgdata "$folder/data" --username tools --auth scram-sha-256 --no-sync --encoding UTF8 \
  --locale C --pwfile "$folder/password" > /dev/null
"${as[@]}" "$programs/postgres" -D "$folder/data" -p "$port" -c listen_addresses=127.0.0.1 \
  -c unix_socket_directories="$folder" > "$folder/log" 2>&1 &
server=$!
trap 'kill -INT $server; wait $server || true; rm -rf "$folder"' EXIT
trap 'exit 0' INT TERM
export PGPASSWORD=tools
until "$programs/psql" -h 127.0.0.1 -p "$port" -U tools postgres -qc 'CREATE DATABASE tools' 2> /dev/null; do
  kill -0 $server
  sleep 0.2
done
"$programs/psql" -h 127.0.0.1 -p "$port" -U tools tools -qc 'CREATE EXTENSION vector'
echo "pgvector+plain://127.0.0.1:$port/tools"
wait $server
