"""What passes directly and may fail through toolscout: (protocol, scenario, check) with `*` for any, and the reason."""

DIFFERENCES = {
    (
        "*",
        "json-schema-2020-12",
        "*",
    ): "names of tools begin with the name of their server, and the scenario looks for a name without it",
}

# Scenarios of clients that fail, and the reason.
CLIENT_FAILURES = {}
