#!/usr/bin/env bash
# Holds the running server against its own description with schemathesis: no server errors, every answer as described.
#
# usage: scripts/check_openapi.sh [EXAMPLES]     examples for each operation, by default 60
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/serving.sh

examples=${1:-60}
root=$PWD
venv=$root/target/venv-schemathesis
[ -x "$venv/bin/st" ] || python3 -m venv "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check schemathesis==4.32.5

# A model that has nothing to say: questions are answered with an error event at once.
: >"$serving_dir/model.jsonl"
serve --llm "script:$serving_dir/model.jsonl"
load_fixtures
# Not asked for: a 405 for every method that is not described (tests/http/service.rs does), and headers beyond those
# described. Data that looks valid may still name a catalog or a tool that is not there, which is 404 and not 2xx.
# It keeps its cache where it runs.
cd target
"$venv/bin/st" --config-file "$root/scripts/schemathesis.toml" run "$url/openapi.json" \
  --checks not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,negative_data_rejection \
  --max-examples "$examples" --seed 1 --workers 1 --phases examples,coverage,fuzzing,stateful --mode all
curl --silent --fail "$url/readyz" >/dev/null
