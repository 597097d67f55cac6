"""The tools of the examples: 33, as a small company has them, and what they return."""

import json

WEATHER = "晴, 25°C"


def tool(name, description, properties="", required=None, reads=True):
    """A tool whose parameters are all texts, named in `properties`."""
    names = properties.split()
    schema = {"type": "object", "properties": {name: {"type": "string"} for name in names}}
    schema["required"] = names if required is None else required.split()
    hints = {"readOnlyHint": reads, "destructiveHint": False}
    return {"name": name, "description": description, "inputSchema": schema, "annotations": hints}


ALL = [
    tool("get_weather", "Returns the current weather of a city.", "city"),
    tool("send_mail", "Sends an e-mail to a recipient.", "to subject body", "to body", reads=False),
    tool("place_order", "Places an order at the exchange.", "symbol quantity price", reads=False),
    tool("check_user", "Tells whether a user is registered.", "userId"),
    tool("register_user", "Registers a new user.", "userId", reads=False),
    tool("run_simulation", "Runs a trading simulation for a user.", "userId scenario", "userId", reads=False),
    tool("get_clock", "Returns the current time"),
    tool("create_invoice", "Creates an invoice for a customer.", "customer amount", reads=False),
    tool("list_invoices", "Lists the invoices of a customer.", "customer"),
    tool("translate_text", "Translates a text into another language.", "text language"),
    tool("summarize_document", "Summarises a document.", "document"),
    tool("search_flights", "Searches for flights between two airports.", "origin destination"),
    tool("book_hotel", "Books a hotel room.", "hotel guest", reads=False),
    tool("get_stock_price", "Returns the price of a share.", "ticker"),
    tool("convert_currency", "Converts an amount into another currency.", "amount source target"),
    tool("create_ticket", "Opens a ticket in the issue tracker.", "title body", reads=False),
    tool("close_ticket", "Closes a ticket of the issue tracker.", "ticket", reads=False),
    tool("list_repositories", "Lists the repositories of an organisation.", "organisation"),
    tool("merge_branch", "Merges a branch into another one.", "branch", reads=False),
    tool("play_music", "Plays a song.", "song", reads=False),
    tool("set_thermostat", "Sets the temperature of a room.", "room degrees", reads=False),
    tool("lock_door", "Locks a door of the building.", "door", reads=False),
    tool("track_parcel", "Shows where a parcel is.", "number"),
    tool("find_recipe", "Finds a recipe for ingredients.", "ingredients"),
    tool("count_calories", "Counts the calories of a meal.", "meal"),
    tool("resize_image", "Resizes a picture.", "file width height"),
    tool("transcribe_audio", "Writes down what is said in a recording.", "file"),
    tool("query_database", "Runs a query on the database.", "sql"),
    tool("add_contact", "Adds a person to the address book.", "person phone", reads=False),
    tool("find_contact", "Finds a person in the address book.", "person"),
    tool("plan_route", "Plans a route between two addresses.", "origin destination"),
    tool("measure_distance", "Measures the distance between two points.", "origin destination"),
    tool("restart_service", "Restarts a service of the cluster.", "service", reads=False),
]

# How services say that a user is not there: a text, an object, nothing.
UNKNOWN_USERS = {"text": "false", "object": json.dumps({"exists": False}), "blank": "  "}


def call(name, arguments):
    """What a call returns, as text."""
    match name:
        case "get_weather":
            return f"{arguments['city']}: {WEATHER}"
        case "check_user":
            return UNKNOWN_USERS.get(arguments["userId"], "true")
        case "get_clock":
            return "12:34"
        case _:
            return f"{name} is done"
