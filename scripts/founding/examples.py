"""The examples, each with what it has to show."""

import json
import threading

import tools
from provider import PATIENCE_S, RECOMMENDED, calls, says, text_of, tools_of
from scout import answer_of, injected, of_kind, side_by_side

SEARCH = "tool_search"
WEATHER, MAIL, ORDER = "demo__get_weather", "demo__send_mail", "demo__place_order"
SIMULATION = "demo__run_simulation"
# Everything may be called without a question.
ALLOWED = "[gate.defaults]\nstate_changing = \"allow\"\n"

ALL = {}


def example(title):
    """Adds an example under its title."""

    def add(function):
        ALL[title] = function
        return function

    return add


@example("weather in Beijing")
def weather(stage, expect):
    model = stage.model(
        calls((SEARCH, {"query": "weather of a city"})),
        calls((WEATHER, {"city": "北京"})),
        says("北京今天晴，25°C。"),
    )
    events = stage.ask(model, "北京今天天气怎么样？", *stage.with_tools())
    shown = [tools_of(request) for request in model.requests]
    expect("the model sees only tool_search at first", shown[0] == [SEARCH], shown[0])
    expect("its search injects get_weather", "demo/get_weather" in injected(events), injected(events))
    expect("the next request shows get_weather, after tool_search", is_before(SEARCH, WEATHER, shown[1]), shown[1])
    expect("the call reaches the tool", stage.called() == [["get_weather", {"city": "北京"}]], stage.called())
    expect("the model reads the result", tools.WEATHER in text_of(model.requests[2]), text_of(model.requests[2]))
    expect("the answer is printed", answer_of(events) == "北京今天晴，25°C。", answer_of(events))
    expect("the run ends with an answer", events[-1]["status"] == "answered", events[-1])


@example("weather, then a mail")
def weather_then_mail(stage, expect):
    model = stage.model(
        calls((SEARCH, {"query": "weather of a city"})),
        calls((WEATHER, {"city": "上海"})),
        calls((SEARCH, {"query": "send an e-mail"})),
        calls((MAIL, {"to": "anna@example.com", "subject": "天气", "body": "晴, 25°C"})),
        says("已发送。"),
    )
    server = stage.serve(model, *stage.with_tools())
    stream = server.chat("查一下上海的天气，然后发邮件给Anna")
    asked = stream.until("approval_required")
    shown = [tools_of(request) for request in model.requests]
    expect("no tool but tool_search is shown at first", shown[0] == [SEARCH], shown[0])
    expect("the second search injects send_mail", "demo/send_mail" in injected(stream.seen), injected(stream.seen))
    expect("both tools are shown then", is_before(WEATHER, MAIL, shown[3]), shown[3])
    expect("the gate asks before the mail", asked and asked["tool"] == "demo/send_mail", stream.seen[-1])
    expect("as a state-changing call", asked and asked["class"] == "state_changing", asked)
    expect("nothing is sent before the answer", stage.called("send_mail") == [], stage.called())
    status, answer = server.request("POST", "/v1/agent/approve", {"id": asked["id"], "approve": True})
    expect("the approval is taken", status == 200 and answer["approved"], answer)
    events = stream.rest()
    sent = stage.called("send_mail")
    expect("the mail is sent once, as approved", [mail["to"] for mail in sent] == ["anna@example.com"], sent)
    expect("the answer comes", answer_of(events) == "已发送。", answer_of(events))


@example("an order for \"7,000\"")
def order(stage, expect):
    profile = stage.write("allowed.toml", ALLOWED)
    placed = {"symbol": "gas", "quantity": "7,000", "price": " 1,500 "}
    script = [calls((SEARCH, {"query": "place an order"})), calls((ORDER, placed)), says("Done.")]
    events = stage.ask(stage.model(*script), "Buy 7,000 gas", "--profile", profile, *stage.with_tools())
    sent = (stage.called("place_order") or [{}])[0]
    expect("an amount in a text loses its separators", sent.get("quantity") == "7000", sent)
    expect("and its outer white space", sent.get("price") == "1500", sent)
    expect("the symbol is in upper case", sent.get("symbol") == "GAS", sent)
    changes = [change for event in of_kind(events, "gate") for change in event.get("changes", [])]
    paths = sorted(change["path"] for change in changes)
    expect("the event of the gate names each change", paths == ["/price", "/quantity", "/symbol"], changes)

    command = ["agent", "--llm", stage.model(*script).url, "--model", "scripted", "--dry-run"]
    dry = stage.run(*command, *stage.with_tools(), "Buy 7,000 gas")
    printed = dry.stdout + dry.stderr
    for name, before, after in [("quantity", "7,000", "7000"), ("price", " 1,500 ", "1500"), ("symbol", "gas", "GAS")]:
        is_printed = any(all(part in line for part in (name, f'"{before}"', f'"{after}"')) for line in printed.splitlines())
        expect(f"a dry run prints the change of the {name}", is_printed, printed)
    expect("a dry run calls nothing", len(stage.called("place_order")) == 1, stage.called())


@example("a simulation by an unknown user")
def simulation(stage, expect):
    precondition = """
[[gate.preconditions]]
before = "demo/run_simulation"
check = { tool = "demo/check_user", arguments = { userId = "$userId" } }
otherwise = { tool = "demo/register_user", arguments = { userId = "$userId" } }
"""
    profile = stage.write("simulation.toml", ALLOWED + precondition)
    users = [*tools.UNKNOWN_USERS, "ada"]
    simulations = [calls((SIMULATION, {"userId": user})) for user in users]
    model = stage.model(calls((SEARCH, {"query": "run a simulation"})), *simulations, says("Done."))
    flags = ["--profile", profile, "--max-rounds", "9"]
    stage.ask(model, "Run the simulations", *flags, *stage.with_tools())
    for user, answer in tools.UNKNOWN_USERS.items():
        steps = [name for name, arguments in stage.called() if arguments.get("userId") == user]
        wanted = ["check_user", "register_user", "run_simulation"]
        expect(f"a user is registered if the check says {answer!r}", steps == wanted, steps)
    steps = [name for name, arguments in stage.called() if arguments.get("userId") == "ada"]
    expect("a known user is not registered again", steps == ["check_user", "run_simulation"], steps)


PLAN_QUESTION = "Look up the weather of Beijing, launch a rocket, and tell the current time"
ACTIONS = [
    {"action": WEATHER, "arguments": {"city": "北京"}},
    {"action": "launch_rocket", "arguments": {"to": "Mars"}},
    {"action": "demo__get_clock", "arguments": {}},
]


def plan_of(*actions):
    """A reply: a plan."""
    return says(json.dumps({"actions": actions, "final_answer": None}, ensure_ascii=False))


def planning(stage, on_invalid_step):
    """The flags of an agent that plans."""
    profile = stage.write("plan.toml", f'on_invalid_step = "{on_invalid_step}"\n{ALLOWED}')
    return ["--mode", "plan", "--profile", profile, *stage.with_tools()]


@example("a plan with an unknown action, skipped")
def plan_skips(stage, expect):
    model = stage.model(plan_of(*ACTIONS), says("The rocket was not launched."))
    events = stage.ask(model, PLAN_QUESTION, *planning(stage, "skip"))
    names = [name for name, _ in stage.called()]
    expect("the other steps run", names == ["get_weather", "get_clock"], names)
    outcome = next((event["steps"] for event in of_kind(events, "plan_outcome")), {})
    codes = [result.get("error_code") for result in outcome.values()]
    expect("the result of the wrong step says that its tool is unknown", codes == [None, "unknown_tool", None], outcome)
    report = text_of(model.requests[-1])
    expect("the model reads all three results", tools.WEATHER in report and "12:34" in report, report)
    expect("and that the tool is unknown", "launch_rocket" in report and "unknown_tool" in report, report)
    expect("its report is printed", answer_of(events) == "The rocket was not launched.", answer_of(events))


@example("a plan with an unknown action, refused")
def plan_refuses(stage, expect):
    model = stage.model(plan_of(*ACTIONS), says('{"actions": [], "final_answer": "There is no rocket."}'))
    events = stage.ask(model, PLAN_QUESTION, *planning(stage, "refuse"))
    expect("nothing runs", stage.called() == [], stage.called())
    problems = [problem for event in of_kind(events, "plan") for problem in event.get("problems", [])]
    expect("the plan names the unknown tool", any("launch_rocket" in problem for problem in problems), problems)
    expect("and so does what the model reads", "launch_rocket" in text_of(model.requests[-1]))
    expect("its answer is printed", answer_of(events) == "There is no rocket.", answer_of(events))


@example("a plan without a report")
def plan_without_report(stage, expect):
    weather_action, _, clock_action = ACTIONS
    model = stage.model(plan_of(weather_action, clock_action), *[{"status": 400}] * 3)
    flags = ["--mode", "plan", *stage.with_tools()]
    command = ["agent", "--llm", model.url, "--model", "scripted", *flags, PLAN_QUESTION]
    printed = stage.run(*command).stdout
    has_results = tools.WEATHER in printed and "12:34" in printed
    expect("the terminal prints the results if the model fails to report", has_results, printed)


@example("web search with references")
def web_search(stage, expect):
    query = f"潮汐 {stage.folder.name}"
    pages = [{"url": f"https://pages.example/{n}", "title": f"Page {n}", "content": "潮汐由月球引起。"} for n in (1, 2)]
    stage.provider.results[query] = pages
    replies = [calls(("web_search", {"query": query})), says("月球引起潮汐。")]
    model = stage.model(*replies, *replies)
    flags = ["--profile", "web-search", *stage.with_tools()]
    server = stage.serve(model, *flags, environment={"SEARXNG_URL": stage.provider.url})
    events = server.compatible_chat("潮汐是怎么来的？").rest()
    thought = "".join(event["content"] for event in of_kind(events, "thinking"))
    expect("the search is asked for what the model wants to know", query in stage.provider.searches)
    expect("a thinking event announces the search", f"🔍 正在搜索信息: {query}" in thought, thought)
    expect("the model reads what was found", "潮汐由月球引起" in text_of(model.requests[1]), text_of(model.requests[1]))
    references = content_of(events, "reference")
    urls = [reference["url"] for reference in references or []]
    expect("references are a JSON string with their count", urls == [page["url"] for page in pages], events[-5:])
    questions = content_of(events, "recommend")
    expect("recommended questions too, without a flag", questions == RECOMMENDED, events[-3:])

    events = server.chat("潮汐是怎么来的？").rest()
    lists = [event["content"] for kind in ("reference", "recommend") for event in of_kind(events, kind)]
    expect("the routes of /v1 keep arrays", len(lists) == 2 and all(isinstance(l, list) for l in lists), lists)


@example("files in a folder")
def files(stage, expect):
    root, outside = stage.folder / "work", stage.write("secret.txt", "秘密")
    root.mkdir()
    profile = stage.write("files.toml", f'[tools.files]\nroot = "{root}"\nwrite = true\n')
    written, stolen = root / "note.md", stage.folder / "stolen.md"
    model = stage.model(
        calls(("file_write", {"path": str(written), "content": "# 笔记"})),
        calls(("file_read", {"path": str(written)})),
        calls(("file_read", {"path": str(outside)}), ("file_read", {"path": str(root / ".." / "secret.txt")})),
        calls(("file_write", {"path": str(stolen), "content": "x"})),
        says("Done."),
    )
    flags = ["--profile", profile, "--allow", "file_write", "--max-rounds", "9"]
    events = stage.ask(model, "Write a note and read it", *flags, *stage.with_tools())
    results = of_kind(events, "tool_result")
    text = written.read_text() if written.exists() else None
    expect("an absolute path inside the root is written", text == "# 笔记", results[0])
    expect("and read", results[1]["status"] == "ok" and "笔记" in results[1]["content"], results[1])
    refused = [result["status"] for result in results[2:4]]
    expect("a path outside is not read, by no spelling", refused == ["error", "error"], results[2:4])
    expect("what is outside does not reach the model", "秘密" not in text_of(model.requests[-1]))
    expect("a path outside is not written", results[4]["status"] == "error" and not stolen.exists(), results[4])


@example("two conversations at once")
def two_conversations(stage, expect):
    # No reply comes before both have asked, so their runs overlap from the first request to the last.
    both = threading.Barrier(2)
    cities = ["北京", "上海"]

    def city_of(request):
        return next(city for city in cities if city in text_of(request))

    def call(request):
        both.wait(PATIENCE_S)
        return calls((WEATHER, {"city": city_of(request)}))

    def tell(request):
        both.wait(PATIENCE_S)
        return says(f"{city_of(request)}: 晴")

    model = stage.model(call, call, tell, tell, says("同上。"))
    server = stage.serve(model, "--pin", "demo/get_weather", *stage.with_tools())
    ask = [lambda city=city: server.chat(f"{city}天气", conversation=f"c-{city}").rest() for city in cities]
    answers = [answer_of(events or []) for events in side_by_side(*ask)]
    expect("each stream has its own answer", answers == [f"{city}: 晴" for city in cities], answers)
    told = [[city for city in cities if city in text_of(request)] for request in model.requests]
    expect("no request has both conversations", all(len(of) == 1 for of in told) and len(told) == 4, told)
    cities_called = sorted(call["city"] for call in stage.called("get_weather"))
    expect("each call is made once", cities_called == sorted(cities), stage.called())
    server.chat("还有呢？", conversation="c-北京").rest()
    again = text_of(model.requests[-1])
    expect("a later turn knows its own conversation alone", "北京" in again and "上海" not in again, again)
    status, kept = server.request("GET", "/v1/agent/conversations/c-%E4%B8%8A%E6%B5%B7")
    kept_questions = [turn["question"] for turn in kept.get("turns", [])]
    expect("and the other one has one turn", status == 200 and kept_questions == ["上海天气"], kept)


@example("stop")
def stop(stage, expect):
    released = threading.Event()
    model = stage.model({"text": "从前有一座山，", "until": released}, says("好的。"))
    server = stage.serve(model, *stage.with_tools())
    try:
        stream = server.chat("讲一个很长的故事", conversation="story")
        stream.until("text")
        status, answer = server.request("POST", "/v1/agent/stop", {"conversation": "story"})
        expect("the API stops the run", status == 200 and answer == {"stopped": True}, answer)
        events = stream.rest()
    finally:
        released.set()
    expect("the stream ends with done, as stopped", events[-1].get("status") == "stopped", events[-1])
    _, kept = server.request("GET", "/v1/agent/conversations/story")
    turn = kept["turns"][0]
    is_saved = turn["status"] == "stopped" and turn["answer"].startswith("从前")
    expect("the turn is saved with what was answered so far", is_saved, turn)
    answer = answer_of(server.chat("继续", conversation="story").rest())
    expect("the conversation goes on", answer == "好的。", answer)


@example("the clock")
def clock(stage, expect):
    for what, change in [("", {}), (", without a description", {"description": ""})]:
        changed = [tool | change if tool["name"] == "get_clock" else tool for tool in tools.ALL]
        # Its answer to "time" must come from its name then.
        file, data = stage.write("clock.json", json.dumps(changed)), f"clock{len(change)}"
        stage.run("add", file, data=data, embedder="auto")
        found = stage.run("--output", "json", "search", "我想看下时间", data=data, embedder="auto")
        hits = [hit["id"] for hit in json.loads(found.stdout)["hits"]] if found.stdout else found.stderr
        expect(f"我想看下时间 finds get_clock first{what}", hits[:1] == ["get_clock"], hits)


@example("the manual protocol")
def manual(stage, expect):
    forms = {
        "beside the name": {"city": "北京"},
        "in `arguments`": {"arguments": {"city": "北京"}},
        "in `args`": {"args": {"city": "北京"}},
        "in `parameters`": {"parameters": {"city": "北京"}},
        "in `action_input`": {"action_input": {"city": "北京"}},
        "in a string of JSON": {"arguments": '{"city": "北京"}'},
    }
    written = [json.dumps({"tool": "get_weather", **fields}, ensure_ascii=False) for fields in forms.values()]
    replies = [reply for text in written for reply in (says(text), says('{"final_answer": "晴"}'))]
    flags = ["--mode", "manual", "--pin", "demo/get_weather", *stage.with_tools()]
    server = stage.serve(stage.model(*replies), *flags)
    for form in forms:
        before = len(stage.called())
        answer = answer_of(server.chat("北京天气").rest())
        reached = stage.called()[before:]
        expect(f"arguments {form} reach the tool", reached == [["get_weather", {"city": "北京"}]], reached)
        expect("and the answer comes", answer == "晴", answer)


@example("facts after a refresh")
def facts(stage, expect):
    cities = "北京 上海 广州 深圳 杭州 南京 成都 重庆 武汉 西安 天津 苏州 长沙 青岛".split()
    asked = [calls((WEATHER, {"city": city})) for city in cities]
    model = stage.model(calls((SEARCH, {"query": "weather of a city"})), *asked, says("都是晴天。"))
    flags = ["--profile", "plan-and-execute", *stage.with_tools()]
    events = stage.ask(model, "这十四个城市的天气怎么样？", *flags)
    expect("all fourteen are asked", len(stage.called("get_weather")) == len(cities), stage.called())
    lost = {}
    # The request after the call of a city is the first that can know it.
    for number, request in enumerate(model.requests[2:], 1):
        text = text_of(request)
        missing = [city for city in cities[:number] if f"{city}: {tools.WEATHER}" not in text]
        if missing:
            lost[number + 2] = missing
    expect("every request has what was found before it", not lost, f"missing, by request: {lost}")
    questions = ["这十四个城市" in text_of(request) for request in model.requests]
    expect("and the question", all(questions), questions)
    last = text_of(model.requests[-1])
    known = [city for city in cities if f"{city}: {tools.WEATHER}" in last]
    expect("at the end the model knows all fourteen", known == cities, known)
    expect("the run ends with an answer", events[-1]["status"] == "answered", events[-1])


def is_before(first, second, names):
    return first in names and second in names[names.index(first) :]


def content_of(events, kind):
    """What the content of an event says, if it is a JSON string of a list with its count beside it."""
    event = next(iter(of_kind(events, kind)), {})
    if not isinstance(event.get("content"), str):
        return None
    content = json.loads(event["content"])
    return content if event.get("count") == len(content) else None
