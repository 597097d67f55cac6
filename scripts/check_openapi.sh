#!/usr/bin/env bash
# Checks the OpenAPI document: a validator, two generators of clients and our own importer accept it, and schemathesis
# holds the running server against it: no server errors, every answer as described. Needs Python 3 and Node.js.
#
# usage: scripts/check_openapi.sh [EXAMPLES]     examples for each operation, by default 60
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/serving.sh

examples=${1:-60}
root=$PWD
venv=$root/target/venv-schemathesis
[ -x "$venv/bin/st" ] || python3 -m venv "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check \
  schemathesis==4.32.5 openapi-spec-validator==0.9.0 openapi-python-client==0.29.1
modules=$root/target/openapi-typescript
mkdir -p "$modules"
npm install --silent --no-audit --no-fund --prefix "$modules" openapi-typescript@7.13.0 typescript@5.9.3

# A model that has nothing to say: questions are answered with an error event at once.
: >"$serving_dir/model.jsonl"
serve --llm "script:$serving_dir/model.jsonl"
load_fixtures
# One of the operations creates keys, and from the first one on every request needs one.
key=$("$binary" --data "$serving_dir/data" keys create --scope admin --catalogs '*' 2>/dev/null)

document=$serving_dir/openapi.json
curl --silent --fail "$url/openapi.json" >"$document"
"$venv/bin/openapi-spec-validator" "$document"
"$modules/node_modules/.bin/openapi-typescript" "$document" --output "$serving_dir/openapi.ts" >/dev/null
"$modules/node_modules/.bin/tsc" --noEmit --strict --target es2022 "$serving_dir/openapi.ts"
# Warns of content types other than JSON, for which it generates nothing.
echo 'post_hooks: []' >"$serving_dir/python-client.yaml"
"$venv/bin/openapi-python-client" generate --path "$document" --meta none --output-path "$serving_dir/toolscout_client" \
  --config "$serving_dir/python-client.yaml" >"$serving_dir/python-client.log" || {
  cat "$serving_dir/python-client.log" >&2
  exit 1
}
PYTHONPATH=$serving_dir "$venv/bin/python" -c 'from toolscout_client.api.search import search; search.sync'
"$binary" --data "$serving_dir/own" --embedder none add "$document"

# Not asked for: a 405 for every method that is not described (tests/http/service.rs does), and headers beyond those
# described. Data that looks valid may still name a catalog or a tool that is not there, which is 404 and not 2xx.
# Ids of tools may hold any text, of which many cannot stand in a path: it throws these away, which is no fault of the API.
# It keeps its cache where it runs.
cd target
"$venv/bin/st" --config-file "$root/scripts/schemathesis.toml" run "$url/openapi.json" --header "Authorization: Bearer $key" \
  --checks not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,negative_data_rejection \
  --suppress-health-check=filter_too_much \
  --max-examples "$examples" --seed 1 --workers 1 --phases examples,coverage,fuzzing,stateful --mode all
curl --silent --fail "$url/readyz" >/dev/null
