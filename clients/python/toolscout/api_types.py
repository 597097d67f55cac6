"""The JSON of the HTTP API. Generated from its description by generate_types.sh."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from typing_extensions import NotRequired, TypedDict


class AgentEntry(TypedDict):
    description: str
    missing: list[str]
    model: NotRequired[str | None]
    name: str
    ready: bool


class AgentEvent1(TypedDict):
    content: str
    type: Literal["text"]


class AgentEvent2(TypedDict):
    content: str
    type: Literal["thinking"]


class AgentEvent3(TypedDict):
    hits: list[str]
    id: str
    match: NotRequired[str | None]
    no_match: NotRequired[str | None]
    queries: list[str]
    select: NotRequired[list[str]]
    type: Literal["tool_search"]


class AgentEvent7(TypedDict):
    arguments: Any
    id: str
    name: str
    type: Literal["tool_call"]


class AgentEvent9(TypedDict):
    steps: dict[str, Any]
    type: Literal["plan_outcome"]


class AgentEvent14(TypedDict):
    content: list[str]
    count: int
    type: Literal["recommend"]


class AgentEvent15(TypedDict):
    content: str
    type: Literal["error"]


class AgentInfo(TypedDict):
    available: bool
    model: NotRequired[str | None]
    tool_budget_tokens: NotRequired[int | None]


class AgentList(TypedDict):
    agents: list[AgentEntry]


class Answer1(TypedDict):
    answer: Literal["approved"]
    by: str


class Answer2(TypedDict):
    answer: Literal["refused"]
    by: str
    reason: str


class Answer3(TypedDict):
    after_ms: int
    answer: Literal["expired"]


Answer: TypeAlias = Answer1 | Answer2 | Answer3


class AnswerBefore(TypedDict):
    first_changed: bool
    hits: list[str]
    overlap: float
    ranks: list[int | None]
    score: NotRequired[float | None]


class ApprovalDecision(TypedDict):
    approve: bool
    reason: NotRequired[str]


class ApproveRequest(TypedDict):
    approve: bool
    id: str
    reason: NotRequired[str]


class Approved(TypedDict):
    approved: bool


class AuditEntry(TypedDict):
    hash: str
    node: NotRequired[str | None]
    seq: int


class AuditOfNode(TypedDict):
    entries: int
    head: str
    node: str


class AuditPage(TypedDict):
    entries: list[AuditEntry]
    next_cursor: NotRequired[str | None]
    total: int


BlockedBy: TypeAlias = Literal["setting", "person"]


class Boosts(TypedDict):
    servers: NotRequired[dict[str, float]]
    tags: NotRequired[dict[str, float]]
    tools: NotRequired[dict[str, float]]


class Bucket(TypedDict):
    count: int
    up_to_ms: NotRequired[float | None]


class BudgetReport(TypedDict):
    omitted: list[str]
    shortened: int
    tokens: int
    whole: int


class CacheStats(TypedDict):
    hits: int
    misses: int


CallErrorCode: TypeAlias = Literal[
    "unknown_tool",
    "not_callable",
    "invalid_arguments",
    "failed",
    "timeout",
    "panicked",
    "cancelled",
    "limit",
    "denied",
    "precondition",
    "skipped",
]


CallOutcome: TypeAlias = Literal["called", "refused", "needs_approval", "dry_run"]


class CallRequest(TypedDict):
    approve: NotRequired[str | None]
    arguments: NotRequired[dict[str, Any]]
    dry_run: NotRequired[bool]
    identity: NotRequired[str | None]
    tool: str


CallStatus: TypeAlias = Literal["ok", "error"]


class CatalogsStats(TypedDict):
    open: int
    open_bytes: int
    open_bytes_limit: int
    open_limit: int
    pending_embeddings: int
    tools: int


class ChangeCounts(TypedDict):
    added: int
    changed: int
    failed: int
    removed: int
    unchanged: int


ChangeKind: TypeAlias = Literal["new", "changed", "removed"]


ChangeReason: TypeAlias = Literal[
    "number",
    "text",
    "boolean",
    "enum",
    "trimmed",
    "amount",
    "case",
    "json",
    "default",
    "null",
    "identity",
    "precondition",
    "owner",
]


class ChatRequest(TypedDict):
    agent: NotRequired[str | None]
    conversation: NotRequired[str | None]
    detached: NotRequired[bool]
    identity: NotRequired[str | None]
    query: str


CheckStatus: TypeAlias = Literal["never", "running", "verified", "failed"]


Class: TypeAlias = Literal["read_only", "state_changing", "destructive"]


CompactionReason: TypeAlias = Literal["limit", "refused"]


class CompanionOf(TypedDict):
    id: str
    parameter: str
    reason: str


class CompanionTool(TypedDict):
    id: str
    parameter: str
    reason: str


class CompanionsAnswer(TypedDict):
    companions: list[CompanionTool]


ConnectionState: TypeAlias = Literal[
    "connecting", "connected", "reconnecting", "needs_login", "idle"
]


class ConversationSummary(TypedDict):
    agent: str
    created_ms: int
    id: str
    title: str
    turns: int
    updated_ms: int


class Conversations(TypedDict):
    conversations: list[ConversationSummary]


class Count(TypedDict):
    count: int
    name: str


class CountedNodes(TypedDict):
    nodes: NotRequired[int | None]
    only_this_node: NotRequired[str | None]


class DecidedApproval(TypedDict):
    approved: bool


Decision: TypeAlias = Literal["allow", "ask", "dry_run", "deny"]


class DegradedReport(TypedDict):
    code: str
    pending_embeddings: int
    reason: str


class DeleteAnswer(TypedDict):
    generation: int
    removed: list[str]


class DifferenceBody(TypedDict):
    ci95: list[float]
    difference: float
    metric: str
    p: NotRequired[float | None]


class Disagreement(TypedDict):
    a: float
    b: float
    query: str
    tool: str


class EnrichEstimate(TypedDict):
    requests: int
    tokens_in: int
    tokens_out: int
    tools: int


class EnrichRequest(TypedDict):
    dry_run: NotRequired[bool]
    languages: NotRequired[list[str]]
    limit: NotRequired[int | None]
    servers: NotRequired[list[str]]
    texts: NotRequired[int | None]


ErrorType: TypeAlias = Literal["invalid_request", "auth", "internal", "system"]


class EvaluationComparison(TypedDict):
    a: str
    b: str
    ci95: list[float]
    difference: float
    metric: str
    p: float
    p_holm: NotRequired[float]


class EvaluationCost(TypedDict):
    disk_mb: float
    embed_s: NotRequired[float | None]
    embed_tools_per_s: NotRequired[float | None]
    index_s: float
    index_tools_per_s: float
    open_s: float
    rss_mb: NotRequired[float | None]


class EvaluationCurvePoint(TypedDict):
    accuracy: float
    false_no_match: float
    threshold: float


class EvaluationExplainedHit(TypedDict):
    id: str
    relevant: bool
    score: float
    why: str


class EvaluationFigure(TypedDict):
    ci95: list[float]
    mean: float
    metric: str


class EvaluationFormatTokens(TypedDict):
    answer: float
    catalog: int


class EvaluationHit(TypedDict):
    id: str
    score: NotRequired[float | None]


class EvaluationLeftOut(TypedDict):
    contradicting_queries: NotRequired[int]
    judged_irrelevant: NotRequired[int]
    queries_without_known_tool: NotRequired[int]
    unjudged_queries: NotRequired[int]
    unknown_queries: NotRequired[int]
    unknown_tools: NotRequired[int]


EvaluationMemory = TypedDict(
    "EvaluationMemory",
    {
        "asked": int,
        "gain_ci95": list[float],
        "gain_p": float,
        "known": float,
        "remembered": int,
        "with": float,
        "without": float,
    },
)


EvaluationOrigin: TypeAlias = Literal["server", "sent"]


class EvaluationPercentiles(TypedDict):
    p50: float
    p95: float
    p99: float


class EvaluationQueryOfArm(TypedDict):
    hits: list[EvaluationHit]
    ranks: NotRequired[dict[str, int]]
    values: dict[str, float | None]


class EvaluationQueryReport(TypedDict):
    arms: dict[str, EvaluationQueryOfArm]
    groups: NotRequired[list[list[str]]]
    id: str
    judged: dict[str, float]
    order: NotRequired[list[str]]
    query: str
    source: NotRequired[str | None]


class EvaluationRelevantTool(TypedDict):
    description: str
    id: str
    rank: NotRequired[int | None]


Depth: TypeAlias = int


class EvaluationRunFile(TypedDict):
    deepest: NotRequired[int]
    duplicates: NotRequired[int]
    missing_queries: NotRequired[int]
    other_ranks: NotRequired[int]
    shallowest: NotRequired[int]
    ties: NotRequired[int]
    unknown_queries: NotRequired[int]


class EvaluationSignal(TypedDict):
    accuracy_at_10_percent_false: float
    auc: float
    curve: list[EvaluationCurvePoint]


class EvaluationSource(TypedDict):
    arms: dict[str, dict[str, float]]
    queries: int
    source: str


class EvaluationTokens(TypedDict):
    answer: float
    answer_hits: int
    catalog: int
    formats: dict[str, EvaluationFormatTokens]
    tokenizer: str


class EvaluationWorstQuery(TypedDict):
    hits: list[EvaluationExplainedHit]
    id: str
    relevant: list[EvaluationRelevantTool]
    score: float
    text: str


EvictionReason: TypeAlias = Literal["budget", "idle"]


class FarTool(TypedDict):
    first: NotRequired[str | None]
    id: str
    place: NotRequired[int | None]
    text: str


class FeedbackAnswer(TypedDict):
    recorded: bool
    remembered: bool


FindingKind: TypeAlias = Literal[
    "instruction", "secrets", "hidden_characters", "encoded_text", "other_tools", "look_alike"
]


class Forgotten(TypedDict):
    forgotten: int


class ForgottenRequests(TypedDict):
    forgotten: int


class ForgottenTexts(TypedDict):
    forgotten: int
    generation: int


class Health(TypedDict):
    damaged_catalogs: NotRequired[int | None]
    status: str
    store: NotRequired[str | None]


class HeldText(TypedDict):
    id: str
    speaks_of: str
    text: str


class InjectedTool(TypedDict):
    tokens: int
    tool: str


class ItemError(TypedDict):
    code: str
    message: str


ItemKind: TypeAlias = Literal["tool", "prompt", "resource", "skill", "agent"]


ItemStatus: TypeAlias = Literal["added", "changed", "unchanged", "failed"]


class JudgeProgress(TypedDict):
    grades: int
    judge: str
    judged: int
    next: NotRequired[int | None]
    skipped: int


class JudgeProgressList(TypedDict):
    judges: list[JudgeProgress]


class JudgingHead(TypedDict):
    by: str
    created_at_ms: int
    depth: int
    id: str
    name: str
    queries: int


KeyScope: TypeAlias = Literal["search", "call", "approve", "llm", "admin"]


class Latency(TypedDict):
    count: int
    mean_ms: NotRequired[float | None]
    p50_ms: NotRequired[float | None]
    p95_ms: NotRequired[float | None]
    p99_ms: NotRequired[float | None]


class MemoryEntry(TypedDict):
    at_ms: int
    query: str
    taught_by: list[str]
    times: int
    tool: str


class MemoryPage(TypedDict):
    enabled: bool
    entries: list[MemoryEntry]
    next_cursor: NotRequired[str | None]
    total: int


class MemorySwitch(TypedDict):
    enabled: bool


class MissedGroup(TypedDict):
    examples: list[str]
    last_ms: int
    nearest: NotRequired[str | None]
    none: int
    not_called: int
    possible: int
    request: str
    texts: int
    times: int


class NewJudgement(TypedDict):
    done: NotRequired[bool]
    id: str
    judge: NotRequired[str | None]
    query: NotRequired[str | None]
    relevant: dict[str, float]


class NewJudgements(TypedDict):
    judge: NotRequired[str | None]
    judgements: list[NewJudgement]


class NewJudging(TypedDict):
    depth: NotRequired[int | None]
    name: NotRequired[str | None]
    queries: str


class NewTexts(TypedDict):
    model: NotRequired[str | None]
    reviewed: NotRequired[bool]
    texts: list[str]


class NoMatchReport(TypedDict):
    nearest: list[str]
    reason: str


Outcome: TypeAlias = Literal["used", "helpful", "not_helpful"]


class OwnKey(TypedDict):
    catalogs: list[str]
    id: NotRequired[str | None]
    operates: bool
    profiles: list[str]
    scopes: list[KeyScope]


class Period(TypedDict):
    degraded: int
    errors: int
    memory_bytes: NotRequired[int | None]
    no_match: int
    p50_ms: NotRequired[float | None]
    p95_ms: NotRequired[float | None]
    requests: int
    saved_tokens: int
    searches: int
    start_ms: int


class Pin(TypedDict):
    hide: NotRequired[bool | None]
    match: NotRequired[str | None]
    place: NotRequired[int | None]
    query: str
    tool: str


class PooledTool(TypedDict):
    description: str
    id: str
    signature: str


class PutAnswer(TypedDict):
    generation: int
    id: str
    status: ItemStatus


class QueryAnswer(TypedDict):
    before: NotRequired[AnswerBefore | None]
    degraded: bool
    hits: list[str]
    no_match: bool
    ranks: list[int | None]
    score: NotRequired[float | None]


class QueryCounts(TypedDict):
    judged: int
    no_tool: int
    total: int
    unjudged: int


class QueryRow(TypedDict):
    arms: list[QueryAnswer]
    id: str
    number: int
    query: str
    relevant: NotRequired[list[str] | None]


class QueueStats(TypedDict):
    name: str
    running: NotRequired[int | None]
    running_limit: NotRequired[int | None]
    waiting: NotRequired[int | None]
    waiting_limit: NotRequired[int | None]


class Reference(TypedDict):
    content: str
    title: str
    url: str


class RefusedText(TypedDict):
    id: str
    reason: str


class ReviewAnswer(TypedDict):
    accepted: list[str]
    blocked: list[str]
    generation: int


class RouteStats(TypedDict):
    by_class: dict[str, int]
    latency: Latency
    method: str
    route: str
    total: int


class SavedTokens(TypedDict):
    answered_tokens: int
    answers: int
    catalog_tokens: int


class SearchFilter(TypedDict):
    destructive: NotRequired[bool | None]
    ids: NotRequired[list[str]]
    kinds: NotRequired[list[ItemKind]]
    read_only: NotRequired[bool | None]
    servers: NotRequired[list[str]]
    tags: NotRequired[list[str]]


SearchFusion: TypeAlias = Literal["convex", "rrf"]


class SearchHit(TypedDict):
    also_on: NotRequired[list[str]]
    companion_of: NotRequired[CompanionOf | None]
    description: str
    explain: NotRequired[dict[str, Any]]
    flagged: NotRequired[list[str]]
    id: str
    kind: NotRequired[ItemKind | None]
    matched_queries: list[int]
    name: str
    score: float
    server: str
    serves: NotRequired[str | None]


SearchMatch: TypeAlias = Literal["none", "possible", "good"]


SearchMode: TypeAlias = Literal["lexical", "dense", "hybrid", "auto"]


SearchVariant: TypeAlias = Literal["full", "instant", "whole", "lexical"]


class SentReport(TypedDict):
    by: str
    remarks: list[str]
    set: str


class ServerConnection(TypedDict):
    reason: NotRequired[str | None]
    since_ms: int
    state: ConnectionState
    synced_ms: NotRequired[int | None]


class ServerSentEvent(TypedDict):
    data: str
    id: NotRequired[str | None]


class ShadowDay(TypedDict):
    calls: int
    day: str
    live_first: int
    searches: int
    shadow_first: int


class ShadowEstimate(TypedDict):
    mean: float
    plus_minus: float


class ShadowNow(TypedDict):
    cpu_ms: int
    dropped: int
    generation: NotRequired[int | None]
    problem: NotRequired[str | None]
    state: str
    waiting: int


ShadowVerdict: TypeAlias = Literal["gains", "loses", "chance", "too_little"]


class StageLatency(TypedDict):
    p50: float
    p95: float
    p99: float
    stage: str


class StageStats(TypedDict):
    latency: Latency
    stage: str


Step: TypeAlias = Literal["minute", "hour", "day"]


class StopRequest(TypedDict):
    conversation: str


class Stopped(TypedDict):
    stopped: bool


class StoreStats(TypedDict):
    away: NotRequired[str | None]
    catalogs_behind: int
    connection_limit: int
    connections: int
    failovers: int
    failures: int
    idle_connections: int
    in_flight: int
    lag_generations: int
    latency: Latency
    reconnects: int


Synonyms = TypedDict(
    "Synonyms",
    {
        "from": NotRequired[str | None],
        "words": list[str],
    },
)


class TagList(TypedDict):
    tags: list[Count]
    total: int


class TakenTexts(TypedDict):
    answers: int
    generation: int
    held: list[HeldText]
    kept: list[str]
    left: int
    problem: NotRequired[str | None]
    refused: list[RefusedText]
    refused_texts: list[RefusedText]
    stale: list[str]
    stored: int
    unknown: list[str]


TaskStatus: TypeAlias = Literal["running", "succeeded", "failed", "cancelled"]


class TokenBody(TypedDict):
    token: str


class TokenStats(TypedDict):
    agent: SavedTokens
    left_out: int
    mcp: SavedTokens
    search: SavedTokens


class TookMs(TypedDict):
    dense: float
    embed: float
    fuse: float
    lexical: float
    rank: float
    total: float


class ToolBody(TypedDict):
    aliases: NotRequired[list[str]]
    annotations: dict[str, Any]
    description: str
    id: str
    inputSchema: dict[str, Any]
    kind: NotRequired[ItemKind | None]
    metadata: dict[str, Any]
    name: str
    outputSchema: NotRequired[dict[str, Any]]
    server: str
    shownDescription: NotRequired[str | None]
    tags: list[str]
    title: NotRequired[str | None]
    uncheckedSchema: NotRequired[bool]


class ToolBudget(TypedDict):
    limit: NotRequired[int | None]
    used: int


ToolFormat: TypeAlias = Literal[
    "openai", "openai_responses", "anthropic", "anthropic_reference", "mcp", "names", "signature"
]


class ToolName(TypedDict):
    id: str
    name: str


class ToolPage(TypedDict):
    generation: int
    next_cursor: NotRequired[str | None]
    tools: list[ToolBody]
    total: int


class ToolTexts(TypedDict):
    definition: str
    id: str
    model: NotRequired[str | None]
    texts: list[str]


class ToolUse(TypedDict):
    calls: int
    definition_tokens: int
    errors: dict[str, int]
    first: int
    first_used_ms: NotRequired[int | None]
    injections: int
    last_used_ms: NotRequired[int | None]
    mean_place: NotRequired[float | None]
    more: int
    p50_ms: NotRequired[float | None]
    p95_ms: NotRequired[float | None]
    result_tokens: int
    searches: int
    successes: int
    tool: NotRequired[str | None]


class ToolWarning(TypedDict):
    reason: str
    tool: str


class TurnFigures(TypedDict):
    first_token_ms: NotRequired[int | None]
    recommended: NotRequired[list[str]]
    references: NotRequired[list[Reference]]
    rounds: NotRequired[int]
    searches: NotRequired[int]
    tokens_estimated: NotRequired[bool]
    tokens_in: NotRequired[int]
    tokens_out: NotRequired[int]
    tokens_saved: NotRequired[int]
    tools_evicted: NotRequired[int]
    tools_injected: NotRequired[int]
    tools_used: NotRequired[list[str]]
    total_ms: NotRequired[int]


TurnStatus: TypeAlias = Literal[
    "running", "answered", "stopped", "expired", "failed", "interrupted"
]


class UnusedOfServer(TypedDict):
    definition_tokens: int
    server: str
    tools: int
    unused: int


class UnusedTool(TypedDict):
    definition_tokens: int
    tool: str


class UseCounts(TypedDict):
    calls: int
    errors: int
    good: int
    none: int
    possible: int
    searches: int


class UseOfCaller(UseCounts):
    caller: str
    catalog: str
    profile: NotRequired[str | None]


class UseOfCatalog(UseCounts):
    catalog: str


class UseOfDay(UseCounts):
    day: str


UseOrder: TypeAlias = Literal["calls", "searches", "errors", "tokens"]


class UsePeriod(TypedDict):
    recorded_days: int
    recorded_since: NotRequired[str | None]
    since: str


class UseRecord(UsePeriod, CountedNodes):
    dropped: int
    enabled: bool


Verdict: TypeAlias = Literal["accept", "block"]


class Version(TypedDict):
    name: str
    version: str


class Words(TypedDict):
    aliases: NotRequired[dict[str, list[str]]]
    boosts: NotRequired[Boosts | None]
    descriptions: NotRequired[dict[str, str]]
    pins: NotRequired[dict[str, Pin]]
    synonyms: NotRequired[dict[str, Synonyms]]


class WordsAnswer(TypedDict):
    generation: int
    without_tool: NotRequired[list[str] | None]
    words: Words


class AgentEvent4(TypedDict):
    budget: ToolBudget
    tokens: int
    tokens_by_tool: list[InjectedTool]
    tools: list[str]
    type: Literal["tools_injected"]


class AgentEvent5(TypedDict):
    budget: ToolBudget
    reason: EvictionReason
    tools: list[str]
    type: Literal["tools_evicted"]


class AgentEvent6(TypedDict):
    limit: int
    reason: CompactionReason
    tokens: int
    tokens_before: int
    type: Literal["context_compacted"]


class AgentEvent12(TypedDict):
    content: str
    error_code: NotRequired[CallErrorCode | None]
    id: str
    name: str
    status: CallStatus
    took_ms: int
    truncated_from_bytes: NotRequired[int | None]
    type: Literal["tool_result"]


class AgentEvent13(TypedDict):
    content: list[Reference]
    count: int
    type: Literal["reference"]


class AgentEvent16(TypedDict):
    conversation: str
    figures: TurnFigures
    status: TurnStatus
    turn: int
    type: Literal["done"]


class Agreement(TypedDict):
    disagreements: list[Disagreement]
    kappa: NotRequired[float | None]
    kappa_relevance: NotRequired[float | None]
    left_out: int
    pairs: int
    queries: int
    same_grade: float
    same_relevance: float


class ApiKey(TypedDict):
    catalogs: list[str]
    created_at: int
    expires_at: NotRequired[int | None]
    id: str
    is_own: bool
    last_used_at: NotRequired[int | None]
    name: NotRequired[str | None]
    profiles: list[str]
    revoked_at: NotRequired[int | None]
    scopes: list[KeyScope]
    state: str


class ArmSettings(TypedDict):
    budget_ms: NotRequired[float | None]
    companions: NotRequired[bool | None]
    dense_weight: NotRequired[float | None]
    filter: NotRequired[SearchFilter]
    fusion: NotRequired[SearchFusion | None]
    min_confidence: NotRequired[float | None]
    min_score: NotRequired[float | None]
    mode: NotRequired[SearchMode | None]
    ranker: NotRequired[bool | None]
    whole: NotRequired[bool]


class AuditCheckBody(TypedDict):
    anchored: NotRequired[int | None]
    entries: NotRequired[int | None]
    error: NotRequired[ItemError | None]
    head: NotRequired[str | None]
    nodes: NotRequired[list[AuditOfNode]]
    started_at_ms: NotRequired[int | None]
    status: CheckStatus
    took_ms: NotRequired[int | None]


class CallResult(TypedDict):
    content: str
    error_code: NotRequired[CallErrorCode | None]
    status: CallStatus
    took_ms: int
    truncated_from_bytes: NotRequired[int | None]


class CatalogSettings(TypedDict):
    companions: NotRequired[bool | None]
    dense_weight: NotRequired[float | None]
    description: NotRequired[str]
    fold_duplicates: NotRequired[bool | None]
    fusion: NotRequired[SearchFusion | None]
    graph_min_vectors: NotRequired[int | None]
    k: NotRequired[int | None]
    min_confidence: NotRequired[float | None]
    min_score: NotRequired[float | None]
    mode: NotRequired[SearchMode | None]


class CatalogStats(TypedDict):
    disk_bytes: int
    generation: int
    pending_embeddings: int
    servers: list[Count]
    tools: int
    vectors: list[Count]


Change = TypedDict(
    "Change",
    {
        "from": Any,
        "path": str,
        "to": Any,
        "why": ChangeReason,
    },
)


class ChangeBody(TypedDict):
    better: int
    differences: list[DifferenceBody]
    first_changed: int
    hits_changed: int
    judged: int
    overlap: float
    queries: int
    worse: int


class CreateRequest(TypedDict):
    name: str
    settings: NotRequired[CatalogSettings]


class CreatedKeyBody(ApiKey):
    key: str
    unknown_catalogs: NotRequired[list[str]]
    unknown_profiles: NotRequired[list[str]]


class DecisionBody(TypedDict):
    decision: Verdict
    id: str
    version: NotRequired[str | None]


class EnrichMeasure(TypedDict):
    first_with_texts: int
    first_without_texts: int
    found_within: int
    tools: int
    with_texts: int
    without_texts: int
    worst: list[FarTool]


class EnrichState(TypedDict):
    held: int
    held_texts: list[HeldText]
    mode: str
    model: NotRequired[str | None]
    pending_embeddings: int
    tokens_a_day: NotRequired[int | None]
    tokens_today: int
    tools: int
    with_texts: int


class EvaluationLatency(TypedDict):
    dense_ms: EvaluationPercentiles
    embed_ms: EvaluationPercentiles
    fuse_ms: EvaluationPercentiles
    lexical_ms: EvaluationPercentiles
    queries: int
    rank_ms: EvaluationPercentiles
    total_ms: EvaluationPercentiles


class EvaluationNoMatch(TypedDict):
    accuracy: float
    answerable: int
    arm: str
    false_no_match: float
    signals: dict[str, EvaluationSignal]
    unanswerable: int


class EvaluationRequest(TypedDict):
    compare: NotRequired[ArmSettings | None]
    depths: NotRequired[list[Depth]]
    name: NotRequired[str | None]
    qrels: NotRequired[str | None]
    queries: str
    search: NotRequired[ArmSettings]


class EvaluationSize(TypedDict):
    cost: EvaluationCost
    grown: int
    latency: dict[str, EvaluationLatency]
    tools: int


class FeedbackRequest(TypedDict):
    feedback_token: str
    outcome: NotRequired[Outcome]
    query: NotRequired[str | None]
    tool: str


class Finding(TypedDict):
    kind: FindingKind
    path: str
    text: str


class History(TypedDict):
    most_periods: int
    periods: list[Period]
    step: Step
    step_s: int


class ItemResult(TypedDict):
    error: NotRequired[ItemError | None]
    id: NotRequired[str | None]
    item: int
    status: ItemStatus


class Judging(JudgingHead):
    judges: list[JudgeProgress]


class JudgingList(TypedDict):
    judgings: list[Judging]


class KeyPage(TypedDict):
    in_use: bool
    keys: list[ApiKey]
    next_cursor: NotRequired[str | None]
    total: int


class KeyRequest(TypedDict):
    catalogs: NotRequired[list[str] | None]
    expires_in_s: NotRequired[int | None]
    name: NotRequired[str | None]
    profiles: NotRequired[list[str]]
    scopes: list[KeyScope]


class MissedPage(TypedDict):
    advice: NotRequired[str | None]
    groups: list[MissedGroup]
    left_out: int
    next_cursor: NotRequired[str | None]
    record: UseRecord
    requests: int
    stores_queries: bool
    total: int


PlannedStep = TypedDict(
    "PlannedStep",
    {
        "arguments": Any,
        "changes": NotRequired[list[Change]],
        "class": NotRequired[Class | None],
        "decision": NotRequired[Decision | None],
        "needs": NotRequired[list[str]],
        "problem": NotRequired[str | None],
        "step": str,
        "tool": str,
    },
)


class PooledQuery(TypedDict):
    done: bool
    id: str
    number: int
    query: str
    relevant: dict[str, int]
    tools: list[PooledTool]


class QueryPage(TypedDict):
    against: NotRequired[str | None]
    next_cursor: NotRequired[str | None]
    queries: list[QueryRow]
    total: int


class RequestStats(TypedDict):
    buckets: list[Bucket]
    by_class: dict[str, int]
    in_flight: int
    latency: Latency
    routes: list[RouteStats]
    total: int


class ReviewRequest(TypedDict):
    accept_all: NotRequired[list[str]]
    decisions: NotRequired[list[DecisionBody]]


class SearchAnswer(TypedDict):
    advice: str
    better_hidden: int
    budget: NotRequired[BudgetReport | None]
    confidence: NotRequired[float | None]
    degraded: NotRequired[DegradedReport | None]
    embedders: list[str]
    feedback_token: str
    generation: int
    hits: list[SearchHit]
    match: SearchMatch
    mode: SearchMode
    no_match: NotRequired[NoMatchReport | None]
    request_id: str
    took_ms: TookMs
    tool_names: NotRequired[list[ToolName]]
    tools: NotRequired[Any]
    unmatched: list[str]
    variant: SearchVariant


class SearchRequest(TypedDict):
    budget_ms: NotRequired[float | None]
    call_id: NotRequired[str | None]
    companions: NotRequired[bool | None]
    dense_weight: NotRequired[float | None]
    explain: NotRequired[bool]
    filter: NotRequired[SearchFilter]
    fold_duplicates: NotRequired[bool | None]
    format: NotRequired[ToolFormat | None]
    fusion: NotRequired[SearchFusion | None]
    k: NotRequired[int | None]
    max_tokens: NotRequired[int | None]
    min_confidence: NotRequired[float | None]
    min_generation: NotRequired[int | None]
    min_score: NotRequired[float | None]
    mode: NotRequired[SearchMode | None]
    queries: NotRequired[list[str]]
    query: NotRequired[str | None]
    ranker: NotRequired[bool | None]
    trial: NotRequired[bool]
    whole: NotRequired[bool]


class SearchStats(TypedDict):
    buckets: list[Bucket]
    by_mode: dict[str, int]
    degraded: dict[str, int]
    latency: Latency
    no_match: int
    stages: list[StageStats]
    total: int


class Server(TypedDict):
    blocked: int
    changes: int
    connection: NotRequired[ServerConnection | None]
    name: str
    tools: int


class ServerList(TypedDict):
    servers: list[Server]


class ServerStats(TypedDict):
    catalogs: CatalogsStats
    embedding_cache: CacheStats
    feedback: int
    memory_bytes: NotRequired[int | None]
    queues: list[QueueStats]
    refused: dict[str, int]
    requests: RequestStats
    searches: SearchStats
    started_at_ms: int
    store: NotRequired[StoreStats | None]
    tokens: TokenStats
    uptime_s: float
    version: str


class ShadowComparedFigure(TypedDict):
    gain: ShadowEstimate
    live: float
    shadow: float


class ShadowReport(TypedDict):
    absent: int
    calls: int
    days: list[ShadowDay]
    differences: list[str]
    first_place: NotRequired[ShadowComparedFigure | None]
    overlap_at_5: NotRequired[ShadowEstimate | None]
    reciprocal_place: NotRequired[ShadowComparedFigure | None]
    same_first_hit: NotRequired[float | None]
    searches: int
    shadow: str
    share: float
    summary: str
    verdict: ShadowVerdict


class SyncAnswer(TypedDict):
    added: list[str]
    changed: list[str]
    generation: int
    removed: list[str]
    unchanged: int
    warnings: NotRequired[list[ToolWarning]]


class Task(TypedDict):
    catalog: str
    done: int
    error: NotRequired[ItemError | None]
    evaluation: NotRequired[str | None]
    failures: list[ItemResult]
    id: str
    result: ChangeCounts
    status: TaskStatus
    total: int
    warnings: NotRequired[list[ToolWarning]]


class TextsPage(TypedDict):
    next_cursor: NotRequired[str | None]
    tools: list[ToolTexts]


class ToolChange(TypedDict):
    after: NotRequired[ToolBody | None]
    before: NotRequired[ToolBody | None]
    blocked_by: NotRequired[BlockedBy | None]
    findings: list[Finding]
    id: str
    kind: ChangeKind
    parts: list[str]
    since_ms: int
    version: str


class Turn(TypedDict):
    answer: str
    created_ms: int
    error: NotRequired[str | None]
    figures: TurnFigures
    number: int
    question: str
    status: TurnStatus


class UnusedPage(TypedDict):
    all_tools: int
    definition_tokens: int
    next_cursor: NotRequired[str | None]
    record: UseRecord
    servers: list[UnusedOfServer]
    tokens_estimated: bool
    tools: list[UnusedTool]
    total: int


class UpsertAnswer(TypedDict):
    generation: int
    items: list[ItemResult]
    result: ChangeCounts
    warnings: NotRequired[list[ToolWarning]]


class UsageOverview(TypedDict):
    callers: list[UseOfCaller]
    catalogs: list[UseOfCatalog]
    days: list[UseOfDay]
    record: UseRecord
    total_callers: int
    totals: UseCounts


class UsagePage(TypedDict):
    has_shadow: bool
    next_cursor: NotRequired[str | None]
    record: UseRecord
    tools: list[ToolUse]
    total: int
    totals: ToolUse


class AgentEvent8(TypedDict):
    problems: NotRequired[list[str]]
    steps: list[PlannedStep]
    type: Literal["plan"]


AgentEvent11 = TypedDict(
    "AgentEvent11",
    {
        "answer": NotRequired[Answer | None],
        "changes": NotRequired[list[Change]],
        "class": Class,
        "decision": Decision,
        "id": str,
        "rule": str,
        "tool": str,
        "type": Literal["gate"],
        "warnings": NotRequired[list[str]],
    },
)


ApprovalRequest = TypedDict(
    "ApprovalRequest",
    {
        "arguments": Any,
        "call": str,
        "changes": NotRequired[list[Change]],
        "class": Class,
        "description": str,
        "rule": str,
        "tool": str,
    },
)


class ArmChange(ChangeBody):
    arm: str
    other: str


class ArmFigures(TypedDict):
    abstained: int
    degraded: int
    figures: list[EvaluationFigure]
    latency: list[StageLatency]
    name: str
    no_tool_abstained: int
    search: NotRequired[ArmSettings | None]


CallAnswer = TypedDict(
    "CallAnswer",
    {
        "approval": NotRequired[str | None],
        "arguments": dict[str, Any],
        "callable": bool,
        "changes": list[Change],
        "class": Class,
        "decision": Decision,
        "outcome": CallOutcome,
        "result": NotRequired[CallResult | None],
        "rule": str,
        "tool": str,
        "warnings": NotRequired[list[str]],
    },
)


class Catalog(TypedDict):
    damaged: NotRequired[str | None]
    generation: int
    name: str
    pending_embeddings: NotRequired[int | None]
    settings: CatalogSettings
    tools: int


class CatalogList(TypedDict):
    catalogs: list[Catalog]
    next_cursor: NotRequired[str | None]


class ChangePage(TypedDict):
    blocked: int
    changes: list[ToolChange]
    next_cursor: NotRequired[str | None]
    total: int


class ErrorFields(TypedDict):
    code: str
    items: NotRequired[list[ItemResult]]
    message: str
    request_id: str
    type: ErrorType


class Evaluation(TypedDict):
    arms: list[ArmFigures]
    changed_meanwhile: bool
    created_at_ms: int
    depths: list[int]
    embedder: NotRequired[str]
    fingerprint: str
    generation: int
    id: str
    main_metric: str
    name: str
    pending_embeddings: int
    queries: QueryCounts
    sent: NotRequired[SentReport | None]
    set_fingerprint: NotRequired[str]
    source: NotRequired[EvaluationOrigin]
    tools: int
    trained_on: NotRequired[bool]
    tuned_on: NotRequired[bool]
    version: str


class EvaluationArm(TypedDict):
    abstained: NotRequired[int]
    ci95: NotRequired[dict[str, list[float]]]
    condensed: NotRequired[dict[str, float]]
    degraded: NotRequired[int]
    duplicate_tolerant: NotRequired[dict[str, float]]
    latency: NotRequired[EvaluationLatency | None]
    p50_ms: NotRequired[float | None]
    p95_ms: NotRequired[float | None]
    p99_ms: NotRequired[float | None]
    run_file: NotRequired[EvaluationRunFile | None]


class EvaluationList(TypedDict):
    current_generation: int
    evaluations: list[Evaluation]


class EvaluationReport(TypedDict):
    arms: dict[str, EvaluationArm]
    cost: NotRequired[EvaluationCost | None]
    embedder: str
    fingerprint: NotRequired[str]
    graded: NotRequired[bool]
    left_out: NotRequired[EvaluationLeftOut]
    main_arm: NotRequired[str]
    memory: NotRequired[EvaluationMemory | None]
    no_match: NotRequired[EvaluationNoMatch | None]
    per_query: NotRequired[list[EvaluationQueryReport]]
    queries: int
    queries_in_set: NotRequired[int]
    relevant_from: NotRequired[float]
    scale: NotRequired[list[EvaluationSize]]
    seed: NotRequired[int]
    set: str
    significance: NotRequired[list[EvaluationComparison]]
    sources: NotRequired[list[EvaluationSource]]
    tokens: NotRequired[EvaluationTokens | None]
    tools: int
    trained_on: NotRequired[bool]
    tuned_on: NotRequired[bool]
    unfinished: NotRequired[str | None]
    version: NotRequired[str]
    worst: NotRequired[list[EvaluationWorstQuery]]


class EvaluationReportFile(TypedDict):
    format: NotRequired[int]
    sets: list[EvaluationReport]
    version: NotRequired[str]


class OpenApproval(ApprovalRequest):
    expires_in_ms: int
    id: str


class ShadowAnswer(ShadowReport):
    now: ShadowNow
    record: UseRecord


class WaitingApproval(OpenApproval):
    client: NotRequired[str | None]
    conversation: str
    owner: str


class WaitingApprovals(TypedDict):
    approvals: list[WaitingApproval]


class AgainstBody(TypedDict):
    arms: list[ArmChange]
    evaluation: Evaluation


class AgentEvent10(ApprovalRequest):
    expires_in_ms: int
    id: str
    type: Literal["approval_required"]


AgentEvent: TypeAlias = (
    AgentEvent1
    | AgentEvent2
    | AgentEvent3
    | AgentEvent4
    | AgentEvent5
    | AgentEvent6
    | AgentEvent7
    | AgentEvent8
    | AgentEvent9
    | AgentEvent10
    | AgentEvent11
    | AgentEvent12
    | AgentEvent13
    | AgentEvent14
    | AgentEvent15
    | AgentEvent16
)


class Conversation(TypedDict):
    agent: str
    approvals: list[OpenApproval]
    id: str
    running: bool
    turns: list[Turn]


class Error(TypedDict):
    error: ErrorFields


class EvaluationBody(TypedDict):
    against: NotRequired[AgainstBody | None]
    b_against_a: NotRequired[ChangeBody | None]
    current_generation: int
    evaluation: Evaluation


class EventsOfTurn(TypedDict):
    events: list[AgentEvent]
    truncated: bool
