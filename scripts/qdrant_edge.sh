#!/usr/bin/env bash
# Installs Qdrant's engine for devices from PyPI at a pinned version into target/qdrant, and answers requests of Qdrant's
# REST API from it until it is ended. Prints the address for TOOLSCOUT_TEST_QDRANT. Needs Python 3.10 or newer with pip.
set -euo pipefail
cd "$(dirname "$0")/.."

wanted=qdrant-edge-py==0.9.0
folder=${CARGO_TARGET_DIR:-target}/qdrant
if [ "$(cat "$folder/.installed" 2>/dev/null)" != "$wanted" ]; then
  rm -rf "$folder"
  python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --no-deps --target "$folder" \
    "$wanted" >&2
  echo "$wanted" > "$folder/.installed"
fi
PYTHONPATH="$folder" exec python3 scripts/qdrant_edge_server.py
