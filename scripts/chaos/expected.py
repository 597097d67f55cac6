"""What a catalog has to hold: every acknowledged write, and of a write in flight all or nothing."""


class Expected:
    """The tools of one server of one catalog, each by name with its description. One writer changes them."""

    def __init__(self):
        self.tools = {}
        self.in_flight = None
        self.acknowledged = 0

    def begin(self, change):
        """`change` makes the new tools from the old ones."""
        self.in_flight = change(dict(self.tools))

    def acknowledge(self):
        self.tools, self.in_flight = self.in_flight, None
        self.acknowledged += 1

    def refuse(self):
        """The write was answered with an error, so nothing of it may be there."""
        self.in_flight = None

    def compare(self, found):
        """What is wrong with what was found, or None. Takes over what became of the write in flight."""
        if found == self.tools or found == self.in_flight:
            self.tools, self.in_flight = found, None
            return None
        missing = sorted(set(self.tools) - set(found))[:3]
        extra = sorted(set(found) - set(self.tools))[:3]
        changed = [name for name in found if name in self.tools and found[name] != self.tools[name]][:3]
        problem = f"of {len(self.tools)} tools: missing {missing}, not written {extra}, other text {changed}"
        self.tools, self.in_flight = found, None
        return problem


def random_change(random, name_of, most=30):
    """A change to some tools of a server: its kind, the names it is about, and how it changes them."""
    number = random.randrange(1_000_000)
    kind = random.choice(["put", "bulk", "bulk", "delete", "sync"])
    count = 1 if kind in ("put", "delete") else random.randint(1, most)
    names = sorted({name_of(random.randrange(60)) for _ in range(count)})
    texts = {name: f"Does {name} in the way number {number}." for name in names}

    def change(tools):
        if kind == "delete":
            tools.pop(names[0], None)
            return tools
        return texts if kind == "sync" else tools | texts

    return kind, texts, change


def tool(name, description):
    return {"name": name, "description": description, "inputSchema": {"type": "object"}}
