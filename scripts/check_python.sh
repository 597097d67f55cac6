#!/usr/bin/env bash
# The Python package: builds the wheel in the target folder of the workspace, and tests what was installed of it: engine,
# program, client, adapters with the frameworks at pinned versions from PyPI, quick start and notebook; then types and style.
# Needs Python 3.10 or newer. Arguments go to pytest.
#
# usage: scripts/check_python.sh [TEST…]     TOOLSCOUT_PYTHON_PROFILE=release: the wheel as it is published
set -euo pipefail
cd "$(dirname "$0")/.."
export CARGO_TARGET_DIR=$PWD/target PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONDONTWRITEBYTECODE=1
unset "${!TOOLSCOUT_TEST_@}"

# environment FOLDER REQUIREMENTS: an environment of Python with these packages, made anew where they have changed.
environment() {
  cmp --silent "$2" "$1/installed.txt" && return
  python3 -m venv --clear "$1"
  "$1/bin/pip" install --quiet --requirement "$2"
  cp "$2" "$1/installed.txt"
}

package=clients/python
venv=$PWD/target/venv-python
TOOLSCOUT=$venv/bin/toolscout
. scripts/serving.sh
environment "$venv" $package/tests/requirements.txt
bigtool=$PWD/target/venv-python-bigtool
environment "$bigtool" $package/tests/requirements-bigtool.txt

# The same versions as the program's: other ones could give other answers.
python3 - Cargo.lock $package/Cargo.lock <<'PYTHON'
import re, sys
def versions(path):
    text = open(path).read()
    return set(re.findall(r'name = "([^"]+)"\nversion = "([^"]+)"', text))
program, package = map(versions, sys.argv[1:])
names = {name for name, _ in program}
other = sorted(found for found in package - program if found[0] in names)
if other:
    sys.exit(f"{sys.argv[2]} has other versions than {sys.argv[1]}: {other}; cargo update --precise brings them together")
PYTHON

wheels=target/wheels
rm -rf "$wheels"
profile=${TOOLSCOUT_PYTHON_PROFILE:-dev}
(cd $package && "$venv/bin/maturin" build --quiet --locked --profile "$profile" --interpreter python3 --out "../../$wheels")
if [ "$profile" = dev ]; then
  (cd $package && cargo clippy --quiet --locked --workspace -- -D warnings &&
    cargo fmt --check --package toolscout-python --package toolscout-native)
fi
for python in "$venv" "$bigtool"; do
  "$python/bin/pip" install --quiet --no-deps --force-reinstall "$wheels"/*.whl
done

# Nothing but the wheel.
fresh=$PWD/target/venv-python-fresh
python3 -m venv --clear "$fresh"
"$fresh/bin/pip" install --quiet --no-index "$wheels"/*.whl
"$fresh/bin/python" $package/examples/quick_start.py
"$fresh/bin/toolscout" --version

# Nothing but loopback: no traces, no version checks, no proxy.
export LANGSMITH_TRACING=false OPENAI_AGENTS_DISABLE_TRACING=1 FASTMCP_CHECK_FOR_UPDATES=off NO_PROXY=127.0.0.1
export IPYTHONDIR=$PWD/target/ipython
# Not in the folder of the package, which Python would import in place of what was installed.
cd $package/tests
"$venv/bin/pytest" -p no:cacheprovider "$@"
[ $# -gt 0 ] && exit
"$bigtool/bin/pytest" -p no:cacheprovider test_bigtool.py

cd ..
"$venv/bin/ruff" check --no-cache .
"$venv/bin/ruff" format --no-cache --check .
"$venv/bin/mypy" --cache-dir ../../target/mypy --python-executable "$venv/bin/python"
"$venv/bin/pyright" --pythonpath "$venv/bin/python"

# The types of the HTTP API are those of the server.
serve
PATH=$venv/bin:$PATH ./generate_types.sh "$url" "$serving_dir/api_types.py"
if ! diff --brief toolscout/api_types.py "$serving_dir/api_types.py"; then
  echo "the HTTP API has changed: $package/generate_types.sh URL writes its types anew" >&2
  exit 1
fi
