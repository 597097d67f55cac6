# For other scripts: a server of their own, on a free port, that ends with them. Leaves its address in $url.

binary=${TOOLSCOUT:-target/debug/toolscout}
serving_dir=$(mktemp -d)
serving_pid=

serve() {
  [ -x "$binary" ] || cargo build --quiet
  # The address is the first line of its output.
  : >"$serving_dir/address"
  "$binary" --data "$serving_dir/data" --embedder "${EMBEDDER:-none}" serve --listen 127.0.0.1:0 --log warn "$@" \
    >"$serving_dir/address" &
  serving_pid=$!
  until grep -q listening "$serving_dir/address"; do
    kill -0 "$serving_pid" || exit 1
    sleep 0.05
  done
  url=$(sed -n 's/^listening on //p' "$serving_dir/address")
  until curl --silent --fail "$url/readyz" >/dev/null; do sleep 0.05; done
}

load_fixtures() {
  local file
  for file in fixtures/tools/*.json; do
    curl --silent --fail --show-error --header 'Content-Type: application/json' --data-binary "@$file" \
      "$url/v1/catalogs/default/tools?default_server=$(basename "$file" .json)" >/dev/null
  done
}

end_serving() {
  [ -z "$serving_pid" ] || kill "$serving_pid" 2>/dev/null || true
  [ -z "$serving_pid" ] || wait "$serving_pid" || true
  rm -rf "$serving_dir"
}
trap end_serving EXIT
