#!/usr/bin/env bash
# The npm packages of this machine's platform: builds the native module in the target folder of the workspace and the scripts,
# and packs both. Needs Rust and Node 20 or newer.
#
# usage: scripts/pack_typescript.sh PROFILE FOLDER     the profile of Cargo: dev or release
set -euo pipefail
profile=$1
mkdir -p "$2"
archives=$(cd "$2" && pwd)
cd "$(dirname "$0")/../clients/typescript"
target=${CARGO_TARGET_DIR:-$PWD/../../target}
work=$target/typescript
export CARGO_TARGET_DIR=$target NAPI_TYPE_DEF_TMP_FOLDER=$work/types
export npm_config_audit=false npm_config_fund=false npm_config_update_notifier=false npm_config_loglevel=error

# Not `npm ci`, which wants packages of all platforms in the lock file.
if [ ! -d node_modules ] || ! cmp --silent package-lock.json "$work/installed.json"; then
  npm install --ignore-scripts --no-save
fi
mkdir -p "$work/types" && cp package-lock.json "$work/installed.json"
# The types are written while the module is compiled.
[ -n "$(ls -A "$work/types")" ] || touch src/lib.rs
cargo build --quiet --locked --profile "$profile"
node generate_types.mjs binding "$work/types" >"$work/binding.d.ts"
if ! diff --brief toolscout/binding.d.ts "$work/binding.d.ts"; then
  echo "the native module has changed: generate_types.mjs writes its types anew" >&2
  exit 1
fi
rm -rf dist
npm run build
module=$target/${profile/dev/debug}/libtoolscout_node
[ -f "$module.so" ] && module=$module.so || module=$module.dylib
node make_packages.mjs "$module" "$work/packages"

for made in "$work"/packages/*; do
  # Those of other platforms have no module here.
  [ "${made##*/}" = toolscout ] || [ -f "$made/toolscout.node" ] || continue
  npm pack --silent --pack-destination "$archives" "$made" >/dev/null
done
