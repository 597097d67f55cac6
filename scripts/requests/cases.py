"""Calls of real documents, each with the same call by a client that others made.

A case is the operation's id, the arguments of our call, and what calls the client. Where the client names an argument
otherwise than the document, that is its business: only the requests are compared.
"""

import asyncio
import io

TOKEN = "test-token"
FILE = "aGVsbG8="  # hello


def named(text, name):
    """A file for a client."""
    file = io.BytesIO(text.encode())
    file.name = name
    return file


def stripe(address):
    """The vendor's own client of Stripe."""
    import stripe as sdk

    urls = {"api": address, "files": address, "connect": address, "meter_events": address}
    return sdk.StripeClient(TOKEN, base_addresses=urls, max_network_retries=0).v1


def openai(address):
    """The vendor's own client of OpenAI."""
    from openai import OpenAI

    return OpenAI(api_key=TOKEN, base_url=f"{address}/v1", max_retries=0)


def slack(address):
    """The vendor's own client of Slack."""
    # The other one of the two asks for everything with POST.
    from slack_sdk.web.async_client import AsyncWebClient

    return AsyncWebClient(token=TOKEN, base_url=f"{address}/api/")


def github(address):
    """The client of GitHub that most Python programs use."""
    from github import Auth, Github

    client = Github(base_url=address, auth=Auth.Token(TOKEN), retry=None, seconds_between_writes=0,
                    seconds_between_requests=0)
    return client.get_repo("octo/repo", lazy=True)


def in_slack(client, name, verb, arguments):
    """A call of a method of Slack."""
    place = "data" if verb == "POST" else "params"
    asyncio.run(client.api_call(name.replace("_", "."), http_verb=verb, **{place: arguments}))


REPO = {"owner": "octo", "repo": "repo"}
LIST = {"object": "list", "data": [], "has_more": False}

STRIPE = [
    ("PostCustomers", {"name": "Ada L", "email": "a+b@x.test", "metadata": {"a": "1", "b": "x y&z"}},
     lambda c, a: c.customers.create(params=a)),
    ("PostCustomers", {"address": {"line1": "1 Main St", "city": "Köln"}, "expand": ["tax", "sources"]},
     lambda c, a: c.customers.create(params=a)),
    ("PostCustomersCustomer", {"customer": "cus_1", "description": "new", "balance": 0},
     lambda c, a: c.customers.update("cus_1", params=without(a, "customer"))),
    ("GetCustomers", {"limit": 3, "created": {"gte": 1, "lt": 9}, "email": "a@x.test"},
     lambda c, a: c.customers.list(params=a), LIST),
    ("GetCustomersCustomer", {"customer": "cus_1", "expand": ["subscriptions"]},
     lambda c, a: c.customers.retrieve("cus_1", params=without(a, "customer"))),
    ("DeleteCustomersCustomer", {"customer": "cus_1"}, lambda c, a: c.customers.delete("cus_1")),
    ("PostPaymentIntents", {"amount": 500, "currency": "eur", "payment_method_types": ["card", "ideal"],
                            "metadata": {"order": "7"}}, lambda c, a: c.payment_intents.create(params=a)),
    ("PostPaymentIntentsIntentConfirm", {"intent": "pi_1", "payment_method": "pm_1"},
     lambda c, a: c.payment_intents.confirm("pi_1", params=without(a, "intent"))),
    ("PostSubscriptions", {"customer": "cus_1", "items": [{"price": "price_1", "quantity": 2}, {"price": "price_2"}]},
     lambda c, a: c.subscriptions.create(params=a)),
    ("PostInvoices", {"customer": "cus_1", "auto_advance": True}, lambda c, a: c.invoices.create(params=a)),
    ("PostPrices", {"currency": "eur", "unit_amount": 100, "product_data": {"name": "Tea"},
                    "recurring": {"interval": "month"}}, lambda c, a: c.prices.create(params=a)),
    ("PostProducts", {"name": "Tea", "images": ["https://x.test/a.png?b=c"], "metadata": {"k": "v"}},
     lambda c, a: c.products.create(params=a)),
    ("GetCharges", {"limit": 2, "customer": "cus_1"}, lambda c, a: c.charges.list(params=a), LIST),
    ("PostRefunds", {"charge": "ch_1", "amount": 5, "reason": "duplicate"}, lambda c, a: c.refunds.create(params=a)),
    ("PostCheckoutSessions", {"mode": "payment", "success_url": "https://x.test/?s={CHECKOUT_SESSION_ID}", "cancel_url": "https://x.test",
                              "line_items": [{"price": "price_1", "quantity": 1}]},
     lambda c, a: c.checkout.sessions.create(params=a)),
    ("GetPricesSearch", {"query": "active:'true' AND metadata['k']:'v'"},
     lambda c, a: c.prices.search(params=a), {**LIST, "object": "search_result"}),
    ("PostCoupons", {"percent_off": 25.5, "duration": "once"}, lambda c, a: c.coupons.create(params=a)),
    ("PostSetupIntents", {"payment_method_types": ["card"], "customer": "cus_1"},
     lambda c, a: c.setup_intents.create(params=a)),
    ("GetInvoices", {"status": "open", "created": {"gte": 1}}, lambda c, a: c.invoices.list(params=a), LIST),
    ("PostFiles", {"purpose": "dispute_evidence", "file": {"base64": FILE, "filename": "a.txt"},
                   "file_link_data": {"create": True}},
     lambda c, a: c.files.create(params={**a, "file": named("hello", "a.txt")})),
]

OPENAI = [
    ("createChatCompletion", {"model": "gpt-4o", "messages": [{"role": "user", "content": "Hi"}], "stop": None},
     lambda c, a: c.chat.completions.create(**a)),
    ("createChatCompletion", {"model": "gpt-4o", "messages": [{"role": "system", "content": "Be brief"}], "temperature": 0,
                              "metadata": {"a": "b"}},
     lambda c, a: c.chat.completions.create(**a)),
    ("createResponse", {"model": "gpt-4o", "input": "Hi", "max_output_tokens": None},
     lambda c, a: c.responses.create(**a)),
    ("createEmbedding", {"model": "text-embedding-3-small", "input": ["a", "b"], "encoding_format": "float"},
     lambda c, a: c.embeddings.create(**a)),
    ("createModeration", {"input": "x"}, lambda c, a: c.moderations.create(**a)),
    ("createImage", {"prompt": "a cat", "n": 1}, lambda c, a: c.images.generate(**a)),
    ("createImageVariation", {"image": {"base64": FILE, "filename": "a.png"}, "n": 2},
     lambda c, a: c.images.create_variation(image=named("hello", "a.png"), n=2)),
    ("listModels", {}, lambda c, a: c.models.list(), LIST),
    ("retrieveModel", {"model": "a b/c"}, lambda c, a: c.models.retrieve("a b/c")),
    ("deleteModel", {"model": "ft:1"}, lambda c, a: c.models.delete("ft:1")),
    ("createFile", {"purpose": "batch", "file": {"base64": FILE, "filename": "a.jsonl"}},
     lambda c, a: c.files.create(purpose="batch", file=named("hello", "a.jsonl"))),
    ("listFiles", {"purpose": "batch", "limit": 3}, lambda c, a: c.files.list(**a), LIST),
    ("retrieveFile", {"file_id": "file-1"}, lambda c, a: c.files.retrieve("file-1")),
    ("deleteFile", {"file_id": "file-1"}, lambda c, a: c.files.delete("file-1")),
    ("createTranscription", {"model": "whisper-1", "language": "de", "file": {"base64": FILE, "filename": "a.mp3"}},
     lambda c, a: c.audio.transcriptions.create(**{**a, "file": named("hello", "a.mp3")})),
    ("createFineTuningJob", {"model": "gpt-4o-mini", "training_file": "file-1", "seed": 7},
     lambda c, a: c.fine_tuning.jobs.create(**a)),
    ("listPaginatedFineTuningJobs", {"limit": 2}, lambda c, a: c.fine_tuning.jobs.list(**a), LIST),
    ("cancelFineTuningJob", {"fine_tuning_job_id": "ft-1"}, lambda c, a: c.fine_tuning.jobs.cancel("ft-1")),
    ("createVectorStore", {"name": "v", "file_ids": ["file-1"]}, lambda c, a: c.vector_stores.create(**a)),
    ("createBatch", {"completion_window": "24h", "endpoint": "/v1/responses", "input_file_id": "file-1"},
     lambda c, a: c.batches.create(**a)),
]

# The client asks for some things with POST where the document says GET; both are served. It is told to use GET.
SLACK = [
    (name, arguments, lambda c, a, name=name, verb=verb: in_slack(c, name, verb, a))
    for verb, name, arguments in [
        ("POST", "conversations_archive", {"channel": "C1"}),
        ("POST", "conversations_create", {"name": "a-b"}),
        ("GET", "conversations_history", {"channel": "C1", "limit": 5, "oldest": "1.5"}),
        ("GET", "conversations_info", {"channel": "C1"}),
        ("POST", "conversations_invite", {"channel": "C1", "users": "U1,U2"}),
        ("POST", "conversations_join", {"channel": "C1"}),
        ("POST", "conversations_kick", {"channel": "C1", "user": "U1"}),
        ("POST", "conversations_leave", {"channel": "C1"}),
        ("GET", "conversations_list", {"types": "public_channel,private_channel", "limit": 9}),
        ("POST", "conversations_mark", {"channel": "C1", "ts": "1234.5678"}),
        ("GET", "conversations_members", {"channel": "C1", "cursor": "dXNlcjpVMDYxTkZUVDI="}),
        ("POST", "conversations_open", {"users": "U1"}),
        ("POST", "conversations_rename", {"channel": "C1", "name": "new name"}),
        ("GET", "conversations_replies", {"channel": "C1", "ts": "1234.5678"}),
        ("POST", "conversations_setTopic", {"channel": "C1", "topic": "Tea & Äpfel = 100%"}),
        ("POST", "pins_add", {"channel": "C1", "timestamp": "1234.5678"}),
        ("POST", "reactions_add", {"channel": "C1", "name": "tea", "timestamp": "1234.5678"}),
        ("GET", "users_info", {"user": "U1"}),
        ("GET", "users_list", {"limit": 2}),
        ("GET", "users_lookupByEmail", {"email": "a+b@x.test"}),
    ]
]

GITHUB = [
    ("issues/create", {**REPO, "title": "T", "body": "B", "labels": ["a", "b"]},
     lambda c, a: c.create_issue("T", body="B", labels=["a", "b"])),
    ("issues/create-label", {**REPO, "name": "n", "color": "ff0000"}, lambda c, a: c.create_label("n", "ff0000")),
    ("issues/list-for-repo", {**REPO, "state": "open", "labels": "a,b"},
     lambda c, a: list(c.get_issues(state="open", labels=["a", "b"])), []),
    ("issues/get-label", {**REPO, "name": "a b"}, lambda c, a: c.get_label("a b").color),
    ("repos/update", {**REPO, "name": "repo", "description": "new"}, lambda c, a: c.edit(name="repo", description="new")),
    ("repos/create-or-update-file-contents",
     {**REPO, "path": "a.txt", "message": "m", "content": FILE, "branch": "main"},
     lambda c, a: c.create_file("a.txt", "m", "hello", branch="main")),
    ("repos/create-release", {**REPO, "tag_name": "v1", "name": "One", "body": "B", "draft": False, "prerelease": False,
                              "generate_release_notes": False, "make_latest": "true"},
     lambda c, a: c.create_git_release("v1", "One", "B")),
    ("repos/get-branch", {**REPO, "branch": "main"}, lambda c, a: c.get_branch("main")),
    ("git/get-commit", {**REPO, "commit_sha": "abc"}, lambda c, a: c.get_git_commit("abc").message),
    ("repos/replace-all-topics", {**REPO, "names": ["a", "b"]}, lambda c, a: c.replace_topics(["a", "b"])),
    ("repos/merge", {**REPO, "base": "main", "head": "x"}, lambda c, a: c.merge("main", "x")),
    ("repos/add-collaborator", {**REPO, "username": "ada", "permission": "pull"},
     lambda c, a: c.add_to_collaborators("ada", permission="pull")),
    ("repos/create-webhook", {**REPO, "name": "web", "config": {"url": "https://x.test"}, "events": ["push"],
                              "active": True},
     lambda c, a: c.create_hook("web", {"url": "https://x.test"}, ["push"], active=True)),
    ("repos/delete", REPO, lambda c, a: c.delete()),
    ("pulls/create", {**REPO, "title": "T", "body": "B", "base": "main", "head": "x", "draft": False},
     lambda c, a: c.create_pull("main", "x", title="T", body="B", draft=False)),
    ("pulls/list", {**REPO, "state": "closed", "sort": "updated", "direction": "desc"},
     lambda c, a: list(c.get_pulls(state="closed", sort="updated", direction="desc")), []),
    ("git/create-ref", {**REPO, "ref": "refs/heads/x", "sha": "abc"}, lambda c, a: c.create_git_ref("refs/heads/x", "abc")),
    ("git/create-blob", {**REPO, "content": "hello", "encoding": "utf-8"}, lambda c, a: c.create_git_blob("hello", "utf-8")),
    ("git/get-tree", {**REPO, "tree_sha": "abc", "recursive": "1"}, lambda c, a: c.get_git_tree("abc", recursive=True)),
    ("issues/create-milestone", {**REPO, "title": "T", "state": "open"}, lambda c, a: c.create_milestone("T", state="open")),
]


def without(arguments, *names):
    """The arguments but these."""
    return {name: value for name, value in arguments.items() if name not in names}


# Server, its document, the path below which it is called, the word before the token, what makes its client, its cases.
DOCUMENTS = [
    ("stripe", "stripe.json", "", "Bearer", stripe, STRIPE),
    ("openai", "openai.json", "/v1", "Bearer", openai, OPENAI),
    ("slack", "slack.json", "/api", "Bearer", slack, SLACK),
    ("github", "github.json", "", "token", github, GITHUB),
]
