#!/usr/bin/env bash
# Runs the suite of external engines against Qdrant's engine for devices and against PostgreSQL with pgvector, which it
# installs from PyPI and starts. Needs Python 3.10 or newer. Arguments are parts of the names of tests.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}

folder=$(mktemp -d)
stop() {
  kill "$qdrant" "$pgvector" 2> /dev/null || true
  wait "$qdrant" "$pgvector" 2> /dev/null || true
  rm -rf "$folder"
}
scripts/qdrant_edge.sh > "$folder/qdrant" &
qdrant=$!
scripts/pgvector.sh > "$folder/pgvector" &
pgvector=$!
trap stop EXIT
until [ -s "$folder/qdrant" ] && [ -s "$folder/pgvector" ]; do
  kill -0 "$qdrant" && kill -0 "$pgvector"
  sleep 0.2
done
TOOLSCOUT_TEST_QDRANT=$(cat "$folder/qdrant")
TOOLSCOUT_TEST_PGVECTOR=$(cat "$folder/pgvector")
export TOOLSCOUT_TEST_QDRANT TOOLSCOUT_TEST_PGVECTOR
# With the features of the workspace, so that nothing is built twice.
[ $# -gt 0 ] || set -- tests::qdrant tests::pgvector tests::what_fits_into_the_candidates tests::the_best_of_many
"$cargo" test --locked --workspace --lib -- "$@"
