"""The 250 tools of a played office, the same for MCP clients and for SDKs."""

NOUNS = [
    "account",
    "agenda",
    "asset",
    "booking",
    "budget",
    "campaign",
    "claim",
    "contract",
    "coupon",
    "customer",
    "delivery",
    "document",
    "employee",
    "expense",
    "invoice",
    "lead",
    "license",
    "meeting",
    "order",
    "payment",
    "project",
    "refund",
    "shipment",
    "ticket",
    "vendor",
]
VERBS = {
    "create": "Creates a new {noun}",
    "show": "Shows one {noun} with all of its fields",
    "list": "Lists every {noun} that fits the filters",
    "update": "Changes fields of one {noun}",
    "archive": "Archives one {noun} so that lists leave it out",
    "restore": "Restores an archived {noun}",
    "assign": "Assigns one {noun} to a person of the team",
    "comment": "Adds a comment to one {noun}",
    "export": "Exports one {noun} as a file",
    "cancel": "Cancels one {noun} and tells everybody concerned",
}


def tools():
    """Definitions as an MCP server lists them."""
    return [tool(noun, verb, text) for noun in NOUNS for verb, text in VERBS.items()]


def tool(noun, verb, text):
    described = text.format(noun=noun)
    return {
        "name": f"{noun}_{verb}",
        "description": (
            f"{described}. The {noun} is named by its number, as `{noun}_list` shows it. The answer says what was "
            f"done, and who may see it. Needs the right to {verb} in the office's register of {noun} entries."
        ),
        "inputSchema": {
            "type": "object",
            "properties": {
                "id": {"type": "string", "description": f"The number of the {noun}, such as 7"},
                "note": {"type": "string", "description": "A note for the register, at most 200 letters"},
            },
            "required": ["id"],
        },
    }
