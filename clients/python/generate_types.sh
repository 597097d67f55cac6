#!/usr/bin/env bash
# Writes toolscout/api_types.py: the JSON of the HTTP API as types, from the description of a running server.
#
# usage: generate_types.sh URL [FILE]     needs datamodel-code-generator and ruff on the PATH
set -euo pipefail
cd "$(dirname "$0")"
file=${2:-toolscout/api_types.py}
description=$(mktemp --suffix .json)
trap 'rm -f "$description"' EXIT
curl --silent --show-error --fail --max-time 30 "$1/openapi.json" >"$description"
datamodel-codegen --input "$description" --input-file-type openapi --output "$file" --output-model-type typing.TypedDict \
  --target-python-version 3.10 --use-union-operator --enum-field-as-literal all --disable-timestamp \
  --formatters builtin --custom-file-header '"""The JSON of the HTTP API. Generated from its description by generate_types.sh."""'
# Objects that take no other fields than these: type checkers do not know the mark yet.
sed -i 's/, closed=True//' "$file"
ruff check --quiet --config pyproject.toml --select I,UP --fix "$file"
ruff format --quiet --config pyproject.toml "$file"
