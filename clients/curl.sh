#!/bin/sh
# Registers a tool, finds it, and says that it was used. usage: curl.sh [URL]
set -eu
api=${1:-http://127.0.0.1:7700}/v1/catalogs/default
json='Content-Type: application/json'

curl --silent --show-error --fail-with-body --output /dev/null -H "$json" "$api/tools?server=office" --data '[
  {"name": "send_email", "description": "Sends an email to one or more recipients.",
   "inputSchema": {"type": "object", "properties": {"to": {"type": "string"}}}},
  {"name": "create_event", "description": "Creates an event in a calendar."}
]'
curl --silent --show-error --fail-with-body -H "$json" "$api/search" \
  --data '{"query": "write a mail to Ada", "k": 1, "format": "mcp", "max_tokens": 2000}'
