"""What passes directly and may fail through toolscout, and which scenarios of clients fail, each with the reason."""

NAMES = (
    "the scenario looks for a tool in the list, where toolscout puts the name of the server before it, and writes schemas "
    "for models"
)
ROOTS = "`toolscout serve` asks no client for its folders, because servers could open them to other clients"

# (protocol, scenario, check), with `*` for any.
DIFFERENCES = {
    ("*", "json-schema-2020-12", "*"): NAMES,
    (
        "2025-11-25",
        "server-sse-polling",
        "server-sse-disconnect-resume",
    ): "the server ends its stream and asks clients to come back after 5 s, as toolscout does; by then it has lost the result",
    ("2026-07-28", "input-required-result-basic-list-roots", "*"): ROOTS,
    ("2026-07-28", "input-required-result-multiple-input-requests", "*"): ROOTS,
    (
        "2026-07-28",
        "completion-complete",
        "completion-complete",
    ): "the server completes arguments without the capability in `server/discover`, and toolscout goes by the capability",
    (
        "2026-07-28",
        "server-stateless",
        "sep-2575-server-sends-prompts-list-changed-on-subscription",
    ): "the scenario calls a tool that the server does not list",
    (
        "2026-07-28",
        "server-stateless",
        "sep-2575-server-sends-tools-list-changed-on-subscription",
    ): "the tools of a client of toolscout are its own list, which does not change with those of servers",
}

# Scenarios of clients that fail.
CLIENT_FAILURES = {
    "json-schema-2020-12-preservation": "toolscout lists schemas as the models of all providers take them, and checks calls by "
    "the whole schema",
    "auth/basic-cimd": "toolscout registers itself at the login; it has no document about itself on the web",
}
