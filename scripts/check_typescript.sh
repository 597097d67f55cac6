#!/usr/bin/env bash
# The npm package: builds the native module in the target folder of the workspace, packs it, and tests what was installed
# of it: engine, program, client, adapters with the frameworks at pinned versions, quick start; then types and style.
# Needs Node 20 or newer. Arguments are files of tests, such as catalog.
#
# usage: scripts/check_typescript.sh [TEST…]     TOOLSCOUT_NODE_PROFILE=release: the module as it is published
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
package=$root/clients/typescript
work=$root/target/typescript
export CARGO_TARGET_DIR=$root/target
export npm_config_audit=false npm_config_fund=false npm_config_update_notifier=false npm_config_loglevel=error
unset "${!TOOLSCOUT_TEST_@}"

# The same versions as the program's: other ones could give other answers.
node - Cargo.lock "$package/Cargo.lock" <<'JS'
const [program, own] = process.argv.slice(2).map((file) =>
  [...require("fs").readFileSync(file, "utf8").matchAll(/name = "([^"]+)"\nversion = "([^"]+)"/g)].map((found) => found.slice(1, 3)));
const names = new Set(program.map(([name]) => name));
const versions = new Set(program.map(String));
const other = own.filter((found) => names.has(found[0]) && !versions.has(String(found)));
if (other.length > 0) {
  console.error(`${process.argv[3]} has other versions than ${process.argv[2]}: ${other.join(" ")}; cargo update --precise brings them together`);
  process.exit(1);
}
JS

# Nothing but the packages.
archives=$work/archives fresh=$work/fresh
rm -rf "$archives" "$fresh" && mkdir -p "$fresh"
profile=${TOOLSCOUT_NODE_PROFILE:-dev}
scripts/pack_typescript.sh "$profile" "$archives"
cd "$fresh"
npm init --yes >/dev/null
npm install --offline "$archives"/*.tgz
npx --offline toolscout --version

# The tests use what was installed, with the frameworks beside it.
project=$work/project
rm -rf "$project" && mkdir "$project"
cp -al "$package/node_modules" "$project/node_modules"
rm -rf "$project/node_modules/toolscout" "$project/node_modules/@toolscout"
cp -a node_modules/toolscout node_modules/@toolscout "$project/node_modules/"
ln -s ../toolscout/dist/program.js "$project/node_modules/.bin/toolscout"
cp -r "$package/tests" "$package/examples" "$project/"
cd "$project"
echo '{ "private": true, "type": "module" }' >package.json
npx tsc --project tests
node built/examples/quick_start.js
if [ $# -gt 0 ]; then
  tests=("${@/#/built/tests/}")
  exec node --test --test-reporter spec "${tests[@]/%/.test.js}"
fi
NO_PROXY=127.0.0.1 node --test --test-reporter spec built/tests/*.test.js

cd "$package"
npm run lint
if [ "$profile" = dev ]; then
  cargo fmt --check
  cargo clippy --quiet --locked -- -D warnings
fi

# The types of the HTTP API are those of the server.
cd "$root"
TOOLSCOUT=$project/node_modules/.bin/toolscout
. scripts/serving.sh
serve
cd "$package"
node generate_types.mjs api "$url" >"$work/api_types.ts"
if ! diff --brief toolscout/api_types.ts "$work/api_types.ts"; then
  echo "the HTTP API has changed: generate_types.mjs writes its types anew" >&2
  exit 1
fi
