#!/usr/bin/env bash
# Installs the Chromium that a test of pages of other sites runs, from Debian's packages, and prints where it is. Needs root
# the first time; quick when it is there already.
set -euo pipefail

if ! command -v chromium >/dev/null; then
  apt-get update >&2
  DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends chromium >&2
fi
command -v chromium
