/* The JSON of the HTTP API. Generated from its description by generate_types.mjs. */

export type paths = Record<string, never>;
export type webhooks = Record<string, never>;
export interface components {
    schemas: {
        /** @description The comparison with another evaluation. */
        AgainstBody: {
            /**
             * @description The differences of each arm that is compared, in their order. Arms of the same name in a report are
             *     compared; without one, those in the same place of two evaluations of this server, or the only ones.
             */
            arms: components["schemas"]["ArmChange"][];
            /** @description The other one. */
            evaluation: components["schemas"]["Evaluation"];
        };
        /** @description An agent that a question may choose. */
        AgentEntry: {
            /** @description What it is for. */
            description: string;
            /** @description What it needs and does not have, each with how to get it. */
            missing: string[];
            /** @description The name of the model; `null` where nobody chose one. */
            model?: string | null;
            /** @description The name by which a question chooses it. */
            name: string;
            /** @description Whether it has everything that it needs. */
            ready: boolean;
        };
        /**
         * @description One event of a run. A run ends with exactly one [`Event::Done`], after an [`Event::Error`] when
         *     it failed.
         */
        AgentEvent: {
            /** @description The next part. */
            content: string;
            /** @enum {string} */
            type: "text";
        } | {
            /** @description The next part. */
            content: string;
            /** @enum {string} */
            type: "thinking";
        } | {
            /** @description The tools found, best first. */
            hits: string[];
            /** @description The call's id. */
            id: string;
            /**
             * @description How well the hits serve the queries: good, possible or none; absent if tools were selected by
             *     name only.
             */
            match?: string | null;
            /** @description Why a requested tool was not found. */
            no_match?: string | null;
            /** @description The queries. */
            queries: string[];
            /** @description Tools selected by name. */
            select?: string[];
            /** @enum {string} */
            type: "tool_search";
        } | {
            /** @description The token budget with them. */
            budget: components["schemas"]["ToolBudget"];
            /** @description Tokens they add. */
            tokens: number;
            /** @description Tokens of each of them, in the same order. */
            tokens_by_tool: components["schemas"]["InjectedTool"][];
            /** @description In the order of their injection. */
            tools: string[];
            /** @enum {string} */
            type: "tools_injected";
        } | {
            /** @description The token budget without them. */
            budget: components["schemas"]["ToolBudget"];
            /** @description Why they were evicted. */
            reason: components["schemas"]["EvictionReason"];
            /** @description In the order of their eviction. */
            tools: string[];
            /** @enum {string} */
            type: "tools_evicted";
        } | {
            /** @description Most tokens that a prompt may have. */
            limit: number;
            /** @description Why. */
            reason: components["schemas"]["CompactionReason"];
            /** @description Tokens of the prompt now. */
            tokens: number;
            /** @description Tokens of the prompt before, the tools included. */
            tokens_before: number;
            /** @enum {string} */
            type: "context_compacted";
        } | {
            /** @description The arguments, or their text if they are not valid JSON. */
            arguments: unknown;
            /** @description The call's id. */
            id: string;
            /** @description The tool's name as the model wrote it. */
            name: string;
            /** @enum {string} */
            type: "tool_call";
        } | {
            /** @description What is wrong with the plan. */
            problems?: string[];
            /** @description Its steps, in order. */
            steps: components["schemas"]["PlannedStep"][];
            /** @enum {string} */
            type: "plan";
        } | {
            /** @description By step. */
            steps: {
                [key: string]: unknown;
            };
            /** @enum {string} */
            type: "plan_outcome";
        } | (components["schemas"]["ApprovalRequest"] & {
            /**
             * Format: int64
             * @description Milliseconds left to answer.
             */
            expires_in_ms: number;
            /** @description The id under which the request is answered. */
            id: string;
        } & {
            /** @enum {string} */
            type: "approval_required";
        }) | {
            answer?: components["schemas"]["Answer"] | null;
            /** @description Changes made to the arguments. */
            changes?: components["schemas"]["Change"][];
            /** @description How much harm the tool can do. */
            class: components["schemas"]["Class"];
            /** @description What happens to the call. */
            decision: components["schemas"]["Decision"];
            /** @description The call's id. */
            id: string;
            /** @description The rule that made the decision. */
            rule: string;
            /** @description The tool's id. */
            tool: string;
            /** @enum {string} */
            type: "gate";
            /** @description Checks that failed before the call, which was made nevertheless. */
            warnings?: string[];
        } | {
            /** @description The beginning of the text that the model gets. */
            content: string;
            error_code?: components["schemas"]["CallErrorCode"] | null;
            /** @description The call's id. */
            id: string;
            /** @description The tool's name as the model wrote it. */
            name: string;
            /** @description Whether the call succeeded. */
            status: components["schemas"]["CallStatus"];
            /**
             * Format: int64
             * @description Duration in milliseconds.
             */
            took_ms: number;
            /** @description Length of the whole result in bytes, if the model gets only its beginning. */
            truncated_from_bytes?: number | null;
            /** @enum {string} */
            type: "tool_result";
        } | {
            /** @description The references, each once. */
            content: components["schemas"]["Reference"][];
            /** @description Their number. */
            count: number;
            /** @enum {string} */
            type: "reference";
        } | {
            /** @description The questions. */
            content: string[];
            /** @description Their number. */
            count: number;
            /** @enum {string} */
            type: "recommend";
        } | {
            /** @description A message for the user, with the next step. */
            content: string;
            /** @enum {string} */
            type: "error";
        } | {
            /** @description The conversation's id, for the next question. */
            conversation: string;
            /** @description The turn's figures. */
            figures: components["schemas"]["TurnFigures"];
            /** @description How the turn ended. */
            status: components["schemas"]["TurnStatus"];
            /**
             * Format: int64
             * @description The turn's number within it, from 1.
             */
            turn: number;
            /** @enum {string} */
            type: "done";
        };
        /** @description What answers questions here. */
        AgentInfo: {
            /** @description Whether questions are taken at all. */
            available: boolean;
            /** @description The name of the model; `null` where nobody chose one. */
            model?: string | null;
            /** @description Most tokens of all tools that the model sees; `null` where found tools are not in its list. */
            tool_budget_tokens?: number | null;
        };
        /** @description The agents of a server. */
        AgentList: {
            /** @description The agents; that of questions that choose none is the first. */
            agents: components["schemas"]["AgentEntry"][];
        };
        /** @description How far two judges agree. */
        Agreement: {
            /** @description Pairs with other grades, the largest differences first. */
            disagreements: components["schemas"]["Disagreement"][];
            /**
             * Format: double
             * @description Cohen's kappa of the grades; null if chance alone would make them agree.
             */
            kappa?: number | null;
            /**
             * Format: double
             * @description Cohen's kappa of relevant or not.
             */
            kappa_relevance?: number | null;
            /** @description Pairs that only one of them has judged. */
            left_out: number;
            /** @description Pairs of query and tool that both have judged. */
            pairs: number;
            /** @description Queries of these pairs. */
            queries: number;
            /**
             * Format: double
             * @description Share of the pairs with the same grade.
             */
            same_grade: number;
            /**
             * Format: double
             * @description Share of the pairs that both find relevant, or both not.
             */
            same_relevance: number;
        };
        /** @description The outcome of a request for approval. */
        Answer: {
            /** @enum {string} */
            answer: "approved";
            /** @description Who approved it. */
            by: string;
        } | {
            /** @enum {string} */
            answer: "refused";
            /** @description Who refused it. */
            by: string;
            /** @description Why, for the model; may be empty. */
            reason: string;
        } | {
            /**
             * Format: int64
             * @description Milliseconds waited for an answer.
             */
            after_ms: number;
            /** @enum {string} */
            answer: "expired";
        };
        /** @description The answer that another one is compared with. */
        AnswerBefore: {
            /** @description Whether the first hit was another one. */
            first_changed: boolean;
            /** @description The ids of its first ten hits. */
            hits: string[];
            /**
             * Format: double
             * @description The share of the first ten hits that both have.
             */
            overlap: number;
            /** @description The ranks that the relevant tools had there, in the order of its own judgement. */
            ranks: (number | null)[];
            /**
             * Format: double
             * @description Its main metric.
             */
            score?: number | null;
        };
        /** @description A key without its secret. */
        ApiKey: {
            /** @description The catalogs that it is for; `["*"]` for all. */
            catalogs: string[];
            /**
             * Format: int64
             * @description When it was created, in seconds since 1970.
             */
            created_at: number;
            /**
             * Format: int64
             * @description When it expires, in seconds since 1970; null if it does not.
             */
            expires_at?: number | null;
            /** @description Its public id, the part of the key between `tsk_` and the next `_`. */
            id: string;
            /** @description Whether this request was sent with it. */
            is_own: boolean;
            /**
             * Format: int64
             * @description When it was last used, in seconds since 1970, up to a minute late; null if it never was.
             */
            last_used_at?: number | null;
            /** @description What its owner calls it; null if it has no name. */
            name?: string | null;
            /** @description The profiles that it is bound to; empty for a key that is bound to none. */
            profiles: string[];
            /**
             * Format: int64
             * @description When it was revoked, in seconds since 1970; null if it was not.
             */
            revoked_at?: number | null;
            /** @description What it allows. */
            scopes: components["schemas"]["KeyScope"][];
            /** @description `valid`, `expired` or `revoked`. */
            state: string;
        };
        /** @description A decision about a call. */
        ApprovalDecision: {
            /** @description Whether to make the call. */
            approve: boolean;
            /** @description The reason of a refusal, for the model. */
            reason?: string;
        };
        /** @description A call that waits for a person's approval. */
        ApprovalRequest: {
            /** @description The arguments exactly as they will be sent. */
            arguments: unknown;
            /** @description The call's id. */
            call: string;
            /** @description How they differ from the arguments that the model wrote. */
            changes?: components["schemas"]["Change"][];
            /** @description How much harm the tool can do. */
            class: components["schemas"]["Class"];
            /** @description The tool's own description. */
            description: string;
            /** @description The rule that requires approval. */
            rule: string;
            /** @description The tool's id. */
            tool: string;
        };
        /** @description The decision that was recorded. */
        Approved: {
            approved: boolean;
        };
        /** @description The answer to an `approval_required` event. */
        ApproveRequest: {
            /** @description Whether to make the call. */
            approve: boolean;
            /** @description The event's `id`. */
            id: string;
            /** @description The reason of a refusal, for the model. */
            reason?: string;
        };
        /** @description What differs between two arms of two evaluations. */
        ArmChange: components["schemas"]["ChangeBody"] & {
            /** @description The name of the arm. */
            arm: string;
            /** @description The name of the arm of the other evaluation. */
            other: string;
        };
        /** @description What was measured for an arm. */
        ArmFigures: {
            /** @description Judged queries that were answered with "no match". */
            abstained: number;
            /** @description Queries with a degraded answer. */
            degraded: number;
            /** @description Every metric over the judged queries; none without them. */
            figures: components["schemas"]["EvaluationFigure"][];
            /**
             * @description Milliseconds by stage, of searches made one after the other beside the server's others; empty if it was
             *     not measured.
             */
            latency: components["schemas"]["StageLatency"][];
            /** @description `a` or `b`, or its name in the report that was sent. */
            name: string;
            /** @description Queries that no tool can serve and that were answered with "no match". */
            no_tool_abstained: number;
            search?: components["schemas"]["ArmSettings"] | null;
        };
        /** @description How an arm searches: fields of the body of a search. 50 hits are asked for. */
        ArmSettings: {
            /**
             * Format: double
             * @description Runs as much of the pipeline as fits into about this many milliseconds.
             * @default null
             */
            budget_ms?: number | null;
            /**
             * @description Whether a tool that finds what a hit needs is put behind that hit.
             * @default null
             */
            companions?: boolean | null;
            /**
             * Format: float
             * @description The share of the dense legs in the score.
             * @default null
             */
            dense_weight?: number | null;
            /**
             * @description Which tools may be hits.
             * @default {
             *       "kinds": [],
             *       "servers": [],
             *       "tags": [],
             *       "ids": [],
             *       "read_only": null,
             *       "destructive": null
             *     }
             */
            filter?: components["schemas"]["SearchFilter"];
            /** @default null */
            fusion?: components["schemas"]["SearchFusion"] | null;
            /**
             * Format: float
             * @description Answers "no match" below this confidence.
             * @default null
             */
            min_confidence?: number | null;
            /**
             * Format: float
             * @description Omits hits below this score.
             * @default null
             */
            min_score?: number | null;
            /** @default null */
            mode?: components["schemas"]["SearchMode"] | null;
            /**
             * @description Whether the learned ranker reorders the hits.
             * @default null
             */
            ranker?: boolean | null;
            /**
             * @description Takes each query as one need, never split into several.
             * @default false
             */
            whole?: boolean;
        };
        /** @description The newest verification since the server was started. */
        AuditCheckBody: {
            /**
             * Format: int64
             * @description Number of entries that the anchor covers.
             */
            anchored?: number | null;
            /**
             * Format: int64
             * @description Number of entries that are verified; while it runs, so far.
             */
            entries?: number | null;
            error?: components["schemas"]["ItemError"] | null;
            /**
             * @description The hash of the last entry in hexadecimal. Stored elsewhere, it reveals later whether entries
             *     were cut off.
             */
            head?: string | null;
            /** @description The logs of all servers, as the store has them, where several share one. */
            nodes?: components["schemas"]["AuditOfNode"][];
            /**
             * Format: int64
             * @description When it began, in milliseconds since 1970.
             */
            started_at_ms?: number | null;
            /** @description Its state. */
            status: components["schemas"]["CheckStatus"];
            /**
             * Format: int64
             * @description How long it took, in milliseconds.
             */
            took_ms?: number | null;
        };
        /** @description An entry, as a line of `toolscout audit export`. */
        AuditEntry: {
            /** @description Its hash in hexadecimal. */
            hash: string;
            /** @description The name of the server whose log it is in, where several share a store. */
            node?: string | null;
            /**
             * Format: int64
             * @description Its number in that log, from 1.
             */
            seq: number;
        } & {
            [key: string]: unknown;
        };
        /** @description The verified log of a server, as the store has it. */
        AuditOfNode: {
            /**
             * Format: int64
             * @description Number of entries.
             */
            entries: number;
            /** @description The hash of the last one in hexadecimal. */
            head: string;
            /** @description The server's name. */
            node: string;
        };
        /** @description A page of the audit log. */
        AuditPage: {
            /**
             * @description The entries, newest first. A page may have fewer than asked for, where few entries pass the
             *     filters.
             */
            entries: components["schemas"]["AuditEntry"][];
            /** @description The cursor of the next page; absent on the last one. */
            next_cursor?: string | null;
            /**
             * Format: int64
             * @description Number of all entries, without the filters.
             */
            total: number;
        };
        /**
         * @description Who keeps a tool out of the catalog.
         * @enum {string}
         */
        BlockedBy: "setting" | "person";
        /** @description Factors of scores, from 0.1 to 10, or 0 to switch off. */
        Boosts: {
            /**
             * @description By the server.
             * @example {
             *       "legacy": 0.5
             *     }
             */
            servers?: {
                [key: string]: number;
            } | null;
            /** @description By the tag. */
            tags?: {
                [key: string]: number;
            } | null;
            /** @description By the tool's id. */
            tools?: {
                [key: string]: number;
            } | null;
        };
        /** @description A bucket of a histogram. */
        Bucket: {
            /**
             * Format: int64
             * @description How many are in it, and in none before it.
             */
            count: number;
            /**
             * Format: double
             * @description Its upper bound in milliseconds; null for what is above every bound.
             */
            up_to_ms?: number | null;
        };
        /** @description How the tools were fitted into a token budget. */
        BudgetReport: {
            /** @description The ids of the tools that did not fit. */
            omitted: string[];
            /** @description Number of tools with a shortened description and schema. */
            shortened: number;
            /** @description Tokens of the tools as compact JSON, by the o200k encoding. */
            tokens: number;
            /** @description Number of tools with their whole definition; they come first. */
            whole: number;
        };
        /** @description A cache. */
        CacheStats: {
            /**
             * Format: int64
             * @description What was found in it.
             */
            hits: number;
            /**
             * Format: int64
             * @description What was not.
             */
            misses: number;
        };
        /** @description The answer to a call. */
        CallAnswer: {
            /** @description Names the call that waits for approval. */
            approval?: string | null;
            /** @description The arguments as they are sent. */
            arguments: Record<string, never>;
            /**
             * @description Whether this server can call the tool: whether it is of a connected MCP server, or has an address. A tool
             *     of another catalog than the default one, or from a file, can only be found.
             */
            callable: boolean;
            /** @description How they differ from the given ones. */
            changes: components["schemas"]["Change"][];
            /** @description How much harm the tool can do. */
            class: components["schemas"]["Class"];
            /** @description What the policies say about the call. */
            decision: components["schemas"]["Decision"];
            /** @description What came of it. */
            outcome: components["schemas"]["CallOutcome"];
            result?: components["schemas"]["CallResult"] | null;
            /** @description The rule that decided. */
            rule: string;
            /** @description The tool's id. */
            tool: string;
            /** @description Checks that failed before the call, which was made nevertheless. */
            warnings?: string[];
        };
        /**
         * @description Why a call has no data.
         * @enum {string}
         */
        CallErrorCode: "unknown_tool" | "not_callable" | "invalid_arguments" | "failed" | "timeout" | "panicked" | "cancelled" | "limit" | "denied" | "precondition" | "skipped";
        /**
         * @description What came of a call.
         * @enum {string}
         */
        CallOutcome: "called" | "refused" | "needs_approval" | "dry_run";
        /** @description A call of one tool. */
        CallRequest: {
            /**
             * @description The `approval` of an answer with the outcome `needs_approval`: approves the call that it was
             *     about. Needs the scope `approve`.
             */
            approve?: string | null;
            /** @description Its arguments. */
            arguments?: Record<string, never>;
            /** @description Only says what the gate would decide, and what would be sent. */
            dry_run?: boolean;
            /** @description The user on whose behalf the tool is called. The holder of the key is responsible for it. */
            identity?: string | null;
            /**
             * @description The tool's id.
             * @example notes/search_notes
             */
            tool: string;
        };
        /** @description The result of a call. */
        CallResult: {
            /** @description The text that a model would read. */
            content: string;
            error_code?: components["schemas"]["CallErrorCode"] | null;
            /** @description Whether it succeeded. */
            status: components["schemas"]["CallStatus"];
            /**
             * Format: int64
             * @description Milliseconds from call to result.
             */
            took_ms: number;
            /** @description Length of the whole result in bytes, if `content` is its beginning. */
            truncated_from_bytes?: number | null;
        };
        /**
         * @description Whether a call succeeded.
         * @enum {string}
         */
        CallStatus: "ok" | "error";
        /** @description A catalog. */
        Catalog: {
            /** @description Why it cannot be opened; its numbers are then 0. */
            damaged?: string | null;
            /**
             * Format: int64
             * @description The number of its last commit.
             */
            generation: number;
            /** @description Its name. */
            name: string;
            /** @description Tools that have no vectors yet; absent in a list while the catalog is closed. */
            pending_embeddings?: number | null;
            /** @description The defaults of its searches. */
            settings: components["schemas"]["CatalogSettings"];
            /** @description Number of tools. */
            tools: number;
        };
        /** @description A page of the catalogs that the key is for. */
        CatalogList: {
            /** @description The catalogs, sorted by name. */
            catalogs: components["schemas"]["Catalog"][];
            /** @description The cursor of the next page; absent on the last one. */
            next_cursor?: string | null;
        };
        /**
         * @description The settings of a catalog: defaults of its searches, which a request overrides. Every interface
         *     obeys them.
         */
        CatalogSettings: {
            /**
             * @description Whether a tool that finds what a hit needs is put behind that hit; true when not set.
             * @default null
             */
            companions?: boolean | null;
            /**
             * Format: float
             * @description The share of the dense legs in the score; the engine's default when not set.
             * @default null
             */
            dense_weight?: number | null;
            /**
             * @description What the catalog is for.
             * @default
             */
            description?: string;
            /**
             * @description Whether near-duplicates of a tool on several servers are folded into one hit; false when not set.
             * @default null
             */
            fold_duplicates?: boolean | null;
            /** @default null */
            fusion?: components["schemas"]["SearchFusion"] | null;
            /**
             * @description From how many vectors on searches use a graph instead of a scan; what was measured for each
             *     embedder when not set.
             * @default null
             */
            graph_min_vectors?: number | null;
            /**
             * @description Most hits of a search.
             * @default null
             */
            k?: number | null;
            /**
             * Format: float
             * @description Answers `no_match` below this confidence.
             * @default null
             */
            min_confidence?: number | null;
            /**
             * Format: float
             * @description Omits hits below this score.
             * @default null
             */
            min_score?: number | null;
            /** @default null */
            mode?: components["schemas"]["SearchMode"] | null;
        };
        /** @description Catalogs. */
        CatalogsStats: {
            /**
             * Format: int64
             * @description How many are open.
             */
            open: number;
            /**
             * Format: int64
             * @description Bytes that the open ones take in memory, about.
             */
            open_bytes: number;
            /**
             * Format: int64
             * @description How many bytes they may take.
             */
            open_bytes_limit: number;
            /**
             * Format: int64
             * @description How many may be open at a time.
             */
            open_limit: number;
            /**
             * Format: int64
             * @description Tools in the open ones that have no vectors yet.
             */
            pending_embeddings: number;
            /**
             * Format: int64
             * @description Tools in the open ones.
             */
            tools: number;
        };
        /** @description Statistics of a catalog. */
        CatalogStats: {
            /**
             * Format: int64
             * @description Bytes on disk.
             */
            disk_bytes: number;
            /**
             * Format: int64
             * @description The number of its last commit.
             */
            generation: number;
            /** @description Tools that have no vectors yet. */
            pending_embeddings: number;
            /** @description The number of tools of each server. */
            servers: components["schemas"]["Count"][];
            /** @description Number of tools. */
            tools: number;
            /** @description The number of vectors of each embedding model. */
            vectors: components["schemas"]["Count"][];
        };
        /** @description One change of an argument. */
        Change: {
            /** @description The value before; null if the argument was not given. */
            from: unknown;
            /** @description JSON pointer to the argument. */
            path: string;
            /** @description The value after; null if the argument was removed. */
            to: unknown;
            /** @description The reason for the change. */
            why: components["schemas"]["ChangeReason"];
        };
        /** @description What differs between two answers to the same queries. */
        ChangeBody: {
            /** @description Judged queries whose main metric rose. */
            better: number;
            /** @description By metric, now minus before; empty without judged queries. */
            differences: components["schemas"]["DifferenceBody"][];
            /** @description Queries whose first hit is another one. */
            first_changed: number;
            /** @description Queries whose first ten hits are not the same. */
            hits_changed: number;
            /** @description Those of them with relevant tools. */
            judged: number;
            /**
             * Format: double
             * @description The mean share of the first ten hits that both have.
             */
            overlap: number;
            /** @description Compared queries. */
            queries: number;
            /** @description Judged queries whose main metric fell. */
            worse: number;
        };
        /** @description The number of tools by outcome. */
        ChangeCounts: {
            /** @description New tools. */
            added: number;
            /** @description Tools that replaced one with the same id. */
            changed: number;
            /** @description Skipped items. */
            failed: number;
            /** @description Removed tools. */
            removed: number;
            /** @description Tools that were stored already, exactly as they are. */
            unchanged: number;
        };
        /**
         * @description What became of a tool since it was approved.
         * @enum {string}
         */
        ChangeKind: "new" | "changed" | "removed";
        /** @description A page of changes that no person has accepted, and of blocked tools. */
        ChangePage: {
            /** @description How many of these tools are blocked. */
            blocked: number;
            /** @description The changes, sorted by id. */
            changes: components["schemas"]["ToolChange"][];
            /** @description The cursor of the next page; absent on the last one. */
            next_cursor?: string | null;
            /** @description Number of changes in the list. */
            total: number;
        };
        /**
         * @description The reason why an argument was changed.
         * @enum {string}
         */
        ChangeReason: "number" | "text" | "boolean" | "enum" | "trimmed" | "amount" | "case" | "json" | "default" | "null" | "identity" | "precondition" | "owner";
        /** @description A question. */
        ChatRequest: {
            /** @description The agent that answers, of those of `GET /v1/agents`; that of the conversation by default. */
            agent?: string | null;
            /** @description The conversation to continue; a new one by default. */
            conversation?: string | null;
            /** @description Continue the run even when the client disconnects. */
            detached?: boolean;
            /** @description The user on whose behalf tools are called. The holder of the key is responsible for it. */
            identity?: string | null;
            /**
             * @description The question.
             * @example Will it rain in Bergen tomorrow?
             */
            query: string;
        };
        /**
         * @description The state of a verification.
         * @enum {string}
         */
        CheckStatus: "never" | "running" | "verified" | "failed";
        /**
         * @description How much harm a call may do, least first.
         * @enum {string}
         */
        Class: "read_only" | "state_changing" | "destructive";
        /**
         * @description Why a prompt was made shorter.
         * @enum {string}
         */
        CompactionReason: "limit" | "refused";
        /** @description The hit that a tool finds something for. */
        CompanionOf: {
            /** @description The id of the hit. */
            id: string;
            /**
             * @description The parameter of the hit that the tool finds a value for.
             * @example person_id
             */
            parameter: string;
            /** @description Why it is thought to. */
            reason: string;
        };
        /** @description The tools that find what a tool needs. */
        CompanionsAnswer: {
            /** @description The most needed first; empty where the tool needs nothing that another tool of its server finds. */
            companions: components["schemas"]["CompanionTool"][];
        };
        /** @description A tool that finds what another tool needs. */
        CompanionTool: {
            /**
             * @description The id of the tool that finds it.
             * @example crm/search_people
             */
            id: string;
            /**
             * @description The parameter of the other tool that it finds a value for.
             * @example person_id
             */
            parameter: string;
            /** @description Why it is thought to. */
            reason: string;
        };
        /**
         * @description How a server is connected.
         * @enum {string}
         */
        ConnectionState: "connecting" | "connected" | "reconnecting" | "needs_login" | "idle";
        /** @description A stored conversation. */
        Conversation: {
            /** @description The agent that answers in it. */
            agent: string;
            /** @description The calls of its run that wait for approval; empty unless the key is the one that asked. */
            approvals: components["schemas"]["OpenApproval"][];
            id: string;
            /**
             * @description True while this server answers a question in it, or another one that shares its store. A turn
             *     with the status `running` that no server answers was left by a process that ended.
             */
            running: boolean;
            /** @description Its turns, oldest first. */
            turns: components["schemas"]["Turn"][];
        };
        /** @description Stored conversations, the most recently used first. */
        Conversations: {
            conversations: components["schemas"]["ConversationSummary"][];
        };
        /** @description A conversation in a list. */
        ConversationSummary: {
            /** @description The agent that answers in it. */
            agent: string;
            /**
             * Format: int64
             * @description When it began, in Unix milliseconds.
             */
            created_ms: number;
            /** @description Its id. */
            id: string;
            /** @description The beginning of its first question. */
            title: string;
            /**
             * Format: int64
             * @description Number of turns.
             */
            turns: number;
            /**
             * Format: int64
             * @description When it was last added to, in Unix milliseconds.
             */
            updated_ms: number;
        };
        /** @description A number of things under one name. */
        Count: {
            /** @description The number. */
            count: number;
            /** @description The name. */
            name: string;
        };
        /** @description Whose use is counted. */
        CountedNodes: {
            /** @description With a store, the number of nodes that recorded use in that time; they are counted together. */
            nodes?: number | null;
            /** @description Why only the record of the node that answers is counted, where others may have some. */
            only_this_node?: string | null;
        };
        /** @description A new key with its secret. */
        CreatedKeyBody: components["schemas"]["ApiKey"] & {
            /** @description The key to send. It is not stored and cannot be shown again. */
            key: string;
            /** @description Catalogs of the key that do not exist yet. */
            unknown_catalogs?: string[];
            /** @description Profiles of the key that this server does not have. */
            unknown_profiles?: string[];
        };
        /** @description A catalog to create. */
        CreateRequest: {
            /**
             * @description 1 to 64 letters, digits, `-`, `_` or `.`, starting with a letter or digit.
             * @example team-a
             */
            name: string;
            /** @description The defaults of its searches. */
            settings?: components["schemas"]["CatalogSettings"];
        };
        /** @description The decision that was recorded. */
        DecidedApproval: {
            approved: boolean;
        };
        /**
         * @description What happens to a call, least strict first.
         * @enum {string}
         */
        Decision: "allow" | "ask" | "dry_run" | "deny";
        /** @description A decision about one tool. */
        DecisionBody: {
            /** @description What is to become of it. */
            decision: components["schemas"]["Verdict"];
            /**
             * @description The tool's id.
             * @example notes/search_notes
             */
            id: string;
            /**
             * @description The `version` that was looked at. The decision is refused with 409 when the tool has another
             *     by now; without it, it holds for whatever is offered.
             */
            version?: string | null;
        };
        /** @description Why an answer is less than what was requested. */
        DegradedReport: {
            /**
             * @description The cause, for programs: `embedder_not_loaded`, `embedder_failed`, `no_embedder`,
             *     `not_embedded`, `partly_embedded`, `damaged_vectors`, `candidates`, `ranker`, `memory`,
             *     `budget_exceeded`, `store_unreachable`.
             */
            code: string;
            /** @description Tools that have no vectors yet. */
            pending_embeddings: number;
            /** @description What is missing. */
            reason: string;
        };
        /** @description The result of a delete. */
        DeleteAnswer: {
            /**
             * Format: int64
             * @description The generation of the catalog that holds the change.
             */
            generation: number;
            /** @description The ids of the deleted tools. */
            removed: string[];
        };
        /** @description The difference of a metric. */
        DifferenceBody: {
            /** @description Its 95% interval, paired by query. */
            ci95: number[];
            /**
             * Format: double
             * @description The mean of now minus before.
             */
            difference: number;
            /** @description Its name. */
            metric: string;
            /**
             * Format: double
             * @description The two-sided p-value of a randomisation test; for the main metric alone.
             */
            p?: number | null;
        };
        /** @description A pair with two grades. */
        Disagreement: {
            /**
             * Format: double
             * @description The grade of the first judge.
             */
            a: number;
            /**
             * Format: double
             * @description The grade of the second judge.
             */
            b: number;
            /** @description The text of the query. */
            query: string;
            /** @description The id of the tool. */
            tool: string;
        };
        /** @description What writing texts would take. */
        EnrichEstimate: {
            /** @description Requests to the model. */
            requests: number;
            /** @description Tokens sent, by the o200k encoding. */
            tokens_in: number;
            /** @description Tokens of the answers, estimated; models that think take more. */
            tokens_out: number;
            /** @description Tools without texts. */
            tools: number;
        };
        /** @description What texts are worth: one text of each tool with texts is kept aside and searched for. */
        EnrichMeasure: {
            /** @description Tools that were the first hit, with all other texts. */
            first_with_texts: number;
            /** @description Tools that were the first hit, without any text. */
            first_without_texts: number;
            /** @description Hits that count as found. */
            found_within: number;
            /** @description Tools that were measured: at most 1,000, and as many as 30 seconds allow. */
            tools: number;
            /** @description Tools that were found, with all other texts. */
            with_texts: number;
            /** @description Tools that were found without any text. */
            without_texts: number;
            /** @description The tools that are farthest from what people would say, the farthest first. */
            worst: components["schemas"]["FarTool"][];
        };
        /** @description Which tools texts are written for. */
        EnrichRequest: {
            /**
             * @description True answers with what it would take, and sends nothing.
             * @default false
             */
            dry_run?: boolean;
            /**
             * @description The languages of the texts, as codes or names; those of the settings where it is empty, else English.
             * @default []
             * @example [
             *       "en",
             *       "de"
             *     ]
             */
            languages?: string[];
            /**
             * @description Most tools; 20,000 at most.
             * @default null
             */
            limit?: number | null;
            /**
             * @description Only tools of these servers; all where it is empty.
             * @default []
             */
            servers?: string[];
            /**
             * @description Texts of each tool, in each language; 3, or as many as fit.
             * @default null
             */
            texts?: number | null;
        };
        /** @description How far the texts of a catalog are. */
        EnrichState: {
            /**
             * @description Texts that the model wrote since the catalog was opened, that speak of other servers' tools, and that nobody has
             *     read. They are not stored.
             */
            held: number;
            /** @description The first of them, at most 20. */
            held_texts: components["schemas"]["HeldText"][];
            /**
             * @description `off`, `ask` or `auto`: when this server's model writes texts.
             * @example ask
             */
            mode: string;
            /** @description The model that writes; absent where the server has none. */
            model?: string | null;
            /** @description Texts that dense search does not use yet, and other texts that are not embedded. */
            pending_embeddings: number;
            /**
             * Format: int64
             * @description Tokens that this server, or all nodes of its store, may spend in a day; absent where there is no bound.
             */
            tokens_a_day?: number | null;
            /** @description Tokens that were spent since midnight, UTC. */
            tokens_today: number;
            /** @description Tools of the catalog. */
            tools: number;
            /** @description Tools with texts for their present definitions. */
            with_texts: number;
        };
        /** @description The body of an error answer. */
        Error: {
            /** @description The error. */
            error: components["schemas"]["ErrorFields"];
        };
        /** @description An error. */
        ErrorFields: {
            /**
             * @description A stable code for programs.
             * @example unknown_catalog
             */
            code: string;
            /** @description The failed items of a bulk request that was refused as a whole. */
            items?: components["schemas"]["ItemResult"][];
            /** @description An explanation for people: what is wrong, where, and what to do. */
            message: string;
            /** @description The id of the request, as in the `X-Request-Id` header and in the server's log. */
            request_id: string;
            /** @description The cause. */
            type: components["schemas"]["ErrorType"];
        };
        /**
         * @description The cause of an error.
         * @enum {string}
         */
        ErrorType: "invalid_request" | "auth" | "internal" | "system";
        /** @description A kept evaluation. */
        Evaluation: {
            /**
             * @description What was measured for each arm: `a`, and `b` where two were compared; those of a report that was sent
             *     have its names.
             */
            arms: components["schemas"]["ArmFigures"][];
            /** @description Whether the catalog was changed while it was searched. All searches were of `generation`. */
            changed_meanwhile: boolean;
            /**
             * Format: int64
             * @description When it was started, or sent, in milliseconds since 1970.
             */
            created_at_ms: number;
            /** @description The cut-offs of the metrics. */
            depths: number[];
            /** @description The embedders; `none` without, and empty for an evaluation of an earlier version. */
            embedder?: string;
            /** @description The same for the same queries with the same judgements. */
            fingerprint: string;
            /**
             * Format: int64
             * @description The generation of the catalog that was searched; for a report that was sent, the one at that time.
             */
            generation: number;
            /** @description Its id. Later ones are greater. */
            id: string;
            /** @description The metric by which queries are better or worse. */
            main_metric: string;
            /** @description A name for people; empty without one. */
            name: string;
            /** @description Tools that had no vectors yet. */
            pending_embeddings: number;
            /** @description The numbers of queries. */
            queries: components["schemas"]["QueryCounts"];
            sent?: components["schemas"]["SentReport"] | null;
            /**
             * @description Digest of the tools, the judged queries and their judgements, as the command line computes it;
             *     empty without judged queries, and for an evaluation of an earlier version.
             */
            set_fingerprint?: string;
            /** @description Whether this server made it, or a client sent it. */
            source?: components["schemas"]["EvaluationOrigin"];
            /** @description Number of tools. */
            tools: number;
            /**
             * @description True if the ranker that took part was trained on these queries, or on some of them: the
             *     figures look better than they are.
             */
            trained_on?: boolean;
            /**
             * @description True if the settings or the ranker of the catalog were tuned to these queries, or to some of
             *     them: the figures are in-sample.
             */
            tuned_on?: boolean;
            /** @description The version of the program that measured. */
            version: string;
        };
        /** @description The results of one arm. Beside these fields it has every metric, by its name. */
        EvaluationArm: {
            /**
             * @description Queries answered with "no match", which counts as no hits.
             * @default 0
             */
            abstained?: number;
            /**
             * @description 95% bootstrap interval of every metric.
             * @default {}
             */
            ci95?: {
                [key: string]: number[];
            };
            /**
             * @description The same metrics without hits that are not judged, if some tools are judged as not relevant.
             * @default null
             */
            condensed?: {
                [key: string]: number;
            } | null;
            /**
             * @description Queries with a degraded answer.
             * @default 0
             */
            degraded?: number;
            /**
             * @description The same metrics with near-identical tools counted, if requested.
             * @default null
             */
            duplicate_tolerant?: {
                [key: string]: number;
            } | null;
            /** @default null */
            latency?: components["schemas"]["EvaluationLatency"] | null;
            /**
             * Format: double
             * @description Median latency; null for a run from a file or without timing.
             * @default null
             */
            p50_ms?: number | null;
            /**
             * Format: double
             * @description 95th percentile of latency.
             * @default null
             */
            p95_ms?: number | null;
            /**
             * Format: double
             * @description 99th percentile of latency.
             * @default null
             */
            p99_ms?: number | null;
            /** @default null */
            run_file?: components["schemas"]["EvaluationRunFile"] | null;
        };
        /** @description An evaluation with its figures, compared. */
        EvaluationBody: {
            against?: components["schemas"]["AgainstBody"] | null;
            b_against_a?: components["schemas"]["ChangeBody"] | null;
            /**
             * Format: int64
             * @description The generation of the catalog now: another one than that of the evaluation where the catalog
             *     was changed since.
             */
            current_generation: number;
            /** @description The evaluation. */
            evaluation: components["schemas"]["Evaluation"];
        };
        /** @description A paired comparison of two arms. */
        EvaluationComparison: {
            /** @description The first arm. */
            a: string;
            /** @description The second arm. */
            b: string;
            /** @description Its 95% interval. */
            ci95: number[];
            /**
             * Format: double
             * @description Mean of a minus b.
             */
            difference: number;
            /** @description The metric. */
            metric: string;
            /**
             * Format: double
             * @description Two-sided p-value of the randomisation test.
             */
            p: number;
            /**
             * Format: double
             * @description The same, corrected by Holm for all pairs of arms.
             */
            p_holm?: number;
        };
        /** @description The cost of one set's index. */
        EvaluationCost: {
            /**
             * Format: double
             * @description Disk, in MiB.
             */
            disk_mb: number;
            /**
             * Format: double
             * @description Seconds to embed every tool, measured when the vectors were computed; null when they were
             *     computed in several passes.
             */
            embed_s?: number | null;
            /**
             * Format: double
             * @description Tools per second of that.
             */
            embed_tools_per_s?: number | null;
            /**
             * Format: double
             * @description Seconds to store every tool in an empty catalog and index it lexically.
             */
            index_s: number;
            /**
             * Format: double
             * @description Tools per second of that.
             */
            index_tools_per_s: number;
            /**
             * Format: double
             * @description Seconds to open the catalog until it can answer.
             */
            open_s: number;
            /**
             * Format: double
             * @description Peak memory of the process while this set was prepared and searched, in MiB; null where the
             *     system does not report it.
             */
            rss_mb?: number | null;
        };
        /** @description The effect of answering "no match" below a threshold. */
        EvaluationCurvePoint: {
            /**
             * Format: double
             * @description Share of the unanswerable queries recognised.
             */
            accuracy: number;
            /**
             * Format: double
             * @description Share of the other queries lost.
             */
            false_no_match: number;
            /**
             * Format: double
             * @description Answers with a lower signal are "no match".
             */
            threshold: number;
        };
        /** @description A hit. */
        EvaluationExplainedHit: {
            /** @description Its id. */
            id: string;
            /** @description Whether it is relevant. */
            relevant: boolean;
            /**
             * Format: float
             * @description The fused score.
             */
            score: number;
            /** @description Why it has its rank, in words. */
            why: string;
        };
        /** @description A metric over all judged queries. */
        EvaluationFigure: {
            /** @description The 95% bootstrap interval of the mean. */
            ci95: number[];
            /**
             * Format: double
             * @description Its mean.
             */
            mean: number;
            /**
             * @description Its name.
             * @example ndcg@10
             */
            metric: string;
        };
        /** @description Tokens in one format. */
        EvaluationFormatTokens: {
            /**
             * Format: double
             * @description The mean search result.
             */
            answer: number;
            /** @description The whole catalog. */
            catalog: number;
        };
        /** @description A hit. */
        EvaluationHit: {
            /** @description The id of the tool. */
            id: string;
            /**
             * Format: double
             * @description Its score; null if an earlier version of the server kept the hit.
             */
            score?: number | null;
        };
        /** @description The latency of a search by stage. */
        EvaluationLatency: {
            /** @description The dense legs without embedding. */
            dense_ms: components["schemas"]["EvaluationPercentiles"];
            /** @description Embedding the query, without a cache. */
            embed_ms: components["schemas"]["EvaluationPercentiles"];
            /** @description Fusion, ordering, explanation. */
            fuse_ms: components["schemas"]["EvaluationPercentiles"];
            /** @description The lexical leg. */
            lexical_ms: components["schemas"]["EvaluationPercentiles"];
            /** @description Queries timed. */
            queries: number;
            /** @description The ranker and confidence. */
            rank_ms: components["schemas"]["EvaluationPercentiles"];
            /** @description The whole call. */
            total_ms: components["schemas"]["EvaluationPercentiles"];
        };
        /** @description What was left out of a set, or read in a way that one would want to know. */
        EvaluationLeftOut: {
            /**
             * @description Queries whose `relevant` and qrels differ; `relevant` counts.
             * @default 0
             */
            contradicting_queries?: number;
            /**
             * @description Queries judged with grades of 0 only. They are not left out: no tool serves them.
             * @default 0
             */
            judged_irrelevant?: number;
            /**
             * @description Queries that lost all their relevant tools in this way.
             * @default 0
             */
            queries_without_known_tool?: number;
            /**
             * @description Queries about which nothing is judged.
             * @default 0
             */
            unjudged_queries?: number;
            /**
             * @description Queries of the judgements that the set does not have.
             * @default 0
             */
            unknown_queries?: number;
            /**
             * @description Judgements about tools that the set does not have.
             * @default 0
             */
            unknown_tools?: number;
        };
        /** @description The kept evaluations of a catalog. */
        EvaluationList: {
            /**
             * Format: int64
             * @description The generation of the catalog now.
             */
            current_generation: number;
            /** @description Newest first. */
            evaluations: components["schemas"]["Evaluation"][];
        };
        /** @description The gain of a memory with half of the queries on the other half. */
        EvaluationMemory: {
            /** @description Queries searched. */
            asked: number;
            /** @description 95% interval of the gain. */
            gain_ci95: number[];
            /**
             * Format: double
             * @description p-value of the gain.
             */
            gain_p: number;
            /**
             * Format: double
             * @description Share of the searched queries with a relevant tool that is also remembered.
             */
            known: number;
            /** @description Queries remembered. */
            remembered: number;
            /**
             * Format: double
             * @description Mean nDCG@10 with the memory switched on.
             */
            with: number;
            /**
             * Format: double
             * @description Mean nDCG@10 with the memory switched off.
             */
            without: number;
        };
        /** @description How well unanswerable queries are separated from the others. */
        EvaluationNoMatch: {
            /**
             * Format: double
             * @description Share of the unanswerable queries that the engine answered with "no match", with its
             *     settings.
             */
            accuracy: number;
            /** @description Number of the others. */
            answerable: number;
            /** @description The arm. */
            arm: string;
            /**
             * Format: double
             * @description Share of the other queries that it answered with "no match".
             */
            false_no_match: number;
            /** @description The result of each signal, by name. */
            signals: {
                [key: string]: components["schemas"]["EvaluationSignal"];
            };
            /** @description Number of unanswerable queries. */
            unanswerable: number;
        };
        /**
         * @description Where an evaluation came from.
         * @enum {string}
         */
        EvaluationOrigin: "server" | "sent";
        /** @description Percentiles over queries, in milliseconds. */
        EvaluationPercentiles: {
            /**
             * Format: double
             * @description Median.
             */
            p50: number;
            /**
             * Format: double
             * @description 95th percentile.
             */
            p95: number;
            /**
             * Format: double
             * @description 99th percentile.
             */
            p99: number;
        };
        /** @description What an arm made of a query. */
        EvaluationQueryOfArm: {
            /** @description The first hits, best first. */
            hits: components["schemas"]["EvaluationHit"][];
            /** @description The rank of each judged tool that was found. */
            ranks?: {
                [key: string]: number;
            };
            /** @description The value of each metric; null where it has none for this query. */
            values: {
                [key: string]: number | null;
            };
        };
        /** @description A query with its judgement, and what each arm made of it. */
        EvaluationQueryReport: {
            /** @description By the name of the arm. */
            arms: {
                [key: string]: components["schemas"]["EvaluationQueryOfArm"];
            };
            /** @description Groups of alternatives, if there are any. */
            groups?: string[][];
            /** @description Unique within its set. */
            id: string;
            /** @description The grade of each judged tool. */
            judged: {
                [key: string]: number;
            };
            /** @description The tools in the order in which they are to be called, if it is judged. */
            order?: string[];
            /** @description The text of the query. */
            query: string;
            /** @description Where query and judgement came from, if the set says so. */
            source?: string | null;
        };
        /** @description A relevant tool. */
        EvaluationRelevantTool: {
            /** @description Its description. */
            description: string;
            /** @description Its id. */
            id: string;
            /** @description Its 1-based rank among the hits. */
            rank?: number | null;
        };
        /** @description The results of one set. Quality metrics are means over the queries, from 0 to 1. */
        EvaluationReport: {
            /** @description The results of each arm by its name, in the order of the plan. */
            arms: {
                [key: string]: components["schemas"]["EvaluationArm"];
            };
            cost?: components["schemas"]["EvaluationCost"] | null;
            /** @description The embedders; `none` without. */
            embedder: string;
            /**
             * @description Digest of the tools, the measured queries and their judgements; empty if another program wrote
             *     the report.
             */
            fingerprint?: string;
            /** @description Whether tools have other grades than 1 and 0. */
            graded?: boolean;
            /** @description What the files of the set have and this report leaves out. */
            left_out?: components["schemas"]["EvaluationLeftOut"];
            /** @description The arm whose worst queries and tokens are reported. */
            main_arm?: string;
            memory?: components["schemas"]["EvaluationMemory"] | null;
            no_match?: components["schemas"]["EvaluationNoMatch"] | null;
            /** @description Every query with its judgement, the values and the first hits of each arm. */
            per_query?: components["schemas"]["EvaluationQueryReport"][];
            /** @description Queries measured. */
            queries: number;
            /** @description Queries in the file. */
            queries_in_set?: number;
            /**
             * Format: double
             * @description The grade that relevance starts from; 0 for every grade above 0.
             */
            relevant_from?: number;
            /** @description Cost and latency at the sizes of the plan. */
            scale?: components["schemas"]["EvaluationSize"][];
            /**
             * Format: int64
             * @description The seed of the sample, the held-out tools and the resampling.
             */
            seed?: number;
            /** @description The name of the set. */
            set: string;
            /** @description Paired comparisons of all arms. */
            significance?: components["schemas"]["EvaluationComparison"][];
            /** @description The figures by source, if the set says where queries came from. */
            sources?: components["schemas"]["EvaluationSource"][];
            tokens?: components["schemas"]["EvaluationTokens"] | null;
            /** @description Tools in the catalog. */
            tools: number;
            /**
             * @description True if the ranker that took part was trained on these queries, or on some of them: the
             *     figures look better than they are.
             */
            trained_on?: boolean;
            /**
             * @description True if the settings or the ranker of the catalog were tuned to these queries, or to some of
             *     them: the figures are in-sample.
             */
            tuned_on?: boolean;
            /** @description Why arms or parts are missing. */
            unfinished?: string | null;
            /** @description Version of this program. */
            version?: string;
            /** @description The queries with the lowest values in this arm, with the reason. */
            worst?: components["schemas"]["EvaluationWorstQuery"][];
        };
        /** @description A file of reports: one shape for one set and for several. */
        EvaluationReportFile: {
            /**
             * Format: int32
             * @description Version of the shape of the reports: 1, also without it.
             */
            format?: number;
            /** @description The reports. */
            sets: components["schemas"]["EvaluationReport"][];
            /** @description Version of the program that wrote it. */
            version?: string;
        };
        /** @description An evaluation to make. */
        EvaluationRequest: {
            compare?: components["schemas"]["ArmSettings"] | null;
            /** @description The cut-offs of the metrics; 1, 3, 5 and 10 by default, as far as the number of tools allows. */
            depths?: number[];
            /**
             * @description A name for people, of at most 200 characters.
             * @example after the new descriptions
             */
            name?: string | null;
            /**
             * @description Judgements of the queries that have none themselves, in the format of TREC (`query 0 tool
             *     grade`) or BEIR (`query tool grade`).
             */
            qrels?: string | null;
            /**
             * @description The queries, one a line, at most 5000: as objects of a `queries.jsonl`
             *     (`{"id","query","relevant":[tool ids]}`, with `"relevant":[],"kind":"none"` where no tool
             *     fits), or as plain text, with the ids of relevant tools after tabs. Without relevant tools a
             *     query is searched for and not judged.
             * @example {"id":"q1","query":"send a mail to Ann","relevant":["gmail/send_email"]}
             */
            queries: string;
            /** @description How the queries are searched for: arm `a`. */
            search?: components["schemas"]["ArmSettings"];
        };
        /** @description What a run file has, and what of it counts. */
        EvaluationRunFile: {
            /**
             * @description The most hits of a query.
             * @default 0
             */
            deepest?: number;
            /**
             * @description Hits that a query has twice; the first in the order counts.
             * @default 0
             */
            duplicates?: number;
            /**
             * @description Queries of the set without hits; they count as 0.
             * @default 0
             */
            missing_queries?: number;
            /**
             * @description Queries whose column of ranks has another order than their scores.
             * @default 0
             */
            other_ranks?: number;
            /**
             * @description The fewest hits of a query that has some.
             * @default 0
             */
            shallowest?: number;
            /**
             * @description Hits with the score of another hit of their query.
             * @default 0
             */
            ties?: number;
            /**
             * @description Queries that the set does not have; they are left out.
             * @default 0
             */
            unknown_queries?: number;
        };
        /** @description The quality of a signal over all thresholds. */
        EvaluationSignal: {
            /**
             * Format: double
             * @description Accuracy at the highest threshold with at most a tenth of false no-matches.
             */
            accuracy_at_10_percent_false: number;
            /**
             * Format: double
             * @description Probability that an answerable query has the higher signal; .5 is chance.
             */
            auc: number;
            /** @description From answering everything to answering nothing. */
            curve: components["schemas"]["EvaluationCurvePoint"][];
        };
        /** @description Cost and speed at one catalog size. */
        EvaluationSize: {
            /** @description The index. */
            cost: components["schemas"]["EvaluationCost"];
            /** @description How many of them are generated variations of others. */
            grown: number;
            /** @description The latency of each arm, by name. */
            latency: {
                [key: string]: components["schemas"]["EvaluationLatency"];
            };
            /** @description Tools in the catalog. */
            tools: number;
        };
        /** @description The figures of the queries of one source. */
        EvaluationSource: {
            /** @description The means of each arm. */
            arms: {
                [key: string]: {
                    [key: string]: number;
                };
            };
            /** @description Their number. */
            queries: number;
            /** @description Where these queries came from. */
            source: string;
        };
        /** @description Tokens of the whole catalog and of a search result. */
        EvaluationTokens: {
            /**
             * Format: double
             * @description The mean search result in the same format.
             */
            answer: number;
            /** @description Hits per search result. */
            answer_hits: number;
            /** @description The whole catalog as OpenAI chat tools. */
            catalog: number;
            /** @description The same for each format. */
            formats: {
                [key: string]: components["schemas"]["EvaluationFormatTokens"];
            };
            /** @description The tokenizer. */
            tokenizer: string;
        };
        /** @description A query with a low score. */
        EvaluationWorstQuery: {
            /** @description The first hits. */
            hits: components["schemas"]["EvaluationExplainedHit"][];
            /** @description Its id. */
            id: string;
            /** @description The relevant tools. */
            relevant: components["schemas"]["EvaluationRelevantTool"][];
            /**
             * Format: double
             * @description nDCG at the deepest cut-off.
             */
            score: number;
            /** @description The text of the query. */
            text: string;
        };
        /** @description What happened in a turn, as far as it is kept. */
        EventsOfTurn: {
            /** @description In their order. */
            events: components["schemas"]["AgentEvent"][];
            /** @description True when the turn had more events, or longer texts, than are kept. */
            truncated: boolean;
        };
        /**
         * @description Why tools were evicted.
         * @enum {string}
         */
        EvictionReason: "budget" | "idle";
        /** @description A tool that its text does not find. */
        FarTool: {
            /** @description The id of the first hit. */
            first?: string | null;
            /** @description The tool's id. */
            id: string;
            /** @description Its place among the hits, from 1; absent beyond the first 50. */
            place?: number | null;
            /** @description What was searched for. */
            text: string;
        };
        /** @description The answer to feedback. */
        FeedbackAnswer: {
            /** @description Always true; feedback that is not stored is an error. */
            recorded: boolean;
            /**
             * @description Whether the usage memory of the catalog stored it too: the memory is on, and the feedback
             *     has the query.
             */
            remembered: boolean;
        };
        /** @description Feedback on a search. */
        FeedbackRequest: {
            /**
             * @description `feedback_token` of the answer to the search. Valid for seven days, for the key that
             *     searched.
             */
            feedback_token: string;
            /** @description How useful it was. */
            outcome?: components["schemas"]["Outcome"];
            /**
             * @description The query of the search, unchanged. Searches themselves do not store their queries; with
             *     this the query is stored.
             */
            query?: string | null;
            /**
             * @description The id of the tool, one of the hits.
             * @example github/create_issue
             */
            tool: string;
        };
        /** @description Something suspicious in a tool's definition. */
        Finding: {
            /** @description What is suspicious. */
            kind: components["schemas"]["FindingKind"];
            /**
             * @description The JSON pointer to the text in the definition, as the protocol names its parts.
             * @example /description
             */
            path: string;
            /** @description The words themselves; for a look-alike the id of the other tool. */
            text: string;
        };
        /**
         * @description What is suspicious about a text.
         * @enum {string}
         */
        FindingKind: "instruction" | "secrets" | "hidden_characters" | "encoded_text" | "other_tools" | "look_alike";
        /** @description The result of a deletion. */
        Forgotten: {
            /** @description Number of deleted entries. */
            forgotten: number;
        };
        /** @description The result of a deletion. */
        ForgottenRequests: {
            /** @description Number of deleted requests. */
            forgotten: number;
        };
        /** @description The result of deleting texts. */
        ForgottenTexts: {
            /** @description Number of tools that had texts. */
            forgotten: number;
            /**
             * Format: int64
             * @description The generation of the catalog that holds the change.
             */
            generation: number;
        };
        /** @description The health of the service. */
        Health: {
            /** @description Number of catalogs that cannot be opened, if any; `GET /v1/catalogs` lists them. */
            damaged_catalogs?: number | null;
            /** @description `ok`. */
            status: string;
            /** @description `away` while the store of the catalogs cannot be reached: searches go on, writes do not. */
            store?: string | null;
        };
        /** @description A text that is not stored before a person has read it. */
        HeldText: {
            /** @description The id of the tool that it was written for. */
            id: string;
            /**
             * @description The id of the other server's tool, which it is nearer to.
             * @example bank/pay
             */
            speaks_of: string;
            /** @description The text. */
            text: string;
        };
        /** @description What the server did, period by period. */
        History: {
            /**
             * Format: int32
             * @description Most periods that are kept.
             */
            most_periods: number;
            /** @description The periods, the oldest first; the last one is not over yet. Those in which the server did not run are absent. */
            periods: components["schemas"]["Period"][];
            /** @description The length of a period. */
            step: components["schemas"]["Step"];
            /**
             * Format: int64
             * @description The length of a period in seconds.
             */
            step_s: number;
        };
        /** @description An injected tool. */
        InjectedTool: {
            /** @description The tokens of its definition. */
            tokens: number;
            /** @description Its id. */
            tool: string;
        };
        /** @description Why one item failed. */
        ItemError: {
            /** @description A stable code for programs. */
            code: string;
            /** @description An explanation for people. */
            message: string;
        };
        /**
         * @description What an item of a catalog is.
         * @enum {string}
         */
        ItemKind: "tool" | "prompt" | "resource" | "skill" | "agent";
        /** @description The outcome of one item of a bulk request. */
        ItemResult: {
            error?: components["schemas"]["ItemError"] | null;
            /** @description The tool's id. For a failed item its name, if it has one. */
            id?: string | null;
            /** @description Its position in the request, from 1; in NDJSON, its line number. */
            item: number;
            /** @description The outcome. */
            status: components["schemas"]["ItemStatus"];
        };
        /**
         * @description The outcome of one item.
         * @enum {string}
         */
        ItemStatus: "added" | "changed" | "unchanged" | "failed";
        /** @description How far a judge is. */
        JudgeProgress: {
            /** @description Graded pairs of query and tool. */
            grades: number;
            /** @description The judge's name. */
            judge: string;
            /** @description Queries whose tools the judge has graded. */
            judged: number;
            /** @description The number of the first query that is neither judged nor skipped; null after the last one. */
            next?: number | null;
            /** @description Queries that the judge has skipped. */
            skipped: number;
        };
        /** @description How far the judges of these judgements are. */
        JudgeProgressList: {
            /** @description By name. */
            judges: components["schemas"]["JudgeProgress"][];
        };
        /** @description Queries whose hits people judge. */
        Judging: components["schemas"]["JudgingHead"] & {
            /** @description Who has judged, by name. */
            judges: components["schemas"]["JudgeProgress"][];
        };
        /** @description What is known of a judging from the start. */
        JudgingHead: {
            /** @description Who began it: `key:ID`, or `http` for a server without keys. */
            by: string;
            /**
             * Format: int64
             * @description When it was begun, in milliseconds since 1970.
             */
            created_at_ms: number;
            /** @description First hits of each setting that are judged. */
            depth: number;
            /** @description Its id. Later ones are greater. */
            id: string;
            /** @description A name for people; empty without one. */
            name: string;
            /** @description The number of its queries. */
            queries: number;
        };
        /** @description The judgings of a catalog. */
        JudgingList: {
            /** @description Newest first. */
            judgings: components["schemas"]["Judging"][];
        };
        /** @description A page of keys. */
        KeyPage: {
            /** @description Whether requests need a key: since the first one was created. */
            in_use: boolean;
            /** @description The keys, newest first, revoked and expired ones too. */
            keys: components["schemas"]["ApiKey"][];
            /** @description The cursor of the next page; absent on the last one. */
            next_cursor?: string | null;
            /** @description Number of all keys. */
            total: number;
        };
        /** @description A new key. */
        KeyRequest: {
            /**
             * @description The catalogs that it is for; `["*"]` for all, future ones included. May be left out of a key with
             *     profiles.
             * @example [
             *       "default"
             *     ]
             */
            catalogs?: string[] | null;
            /**
             * Format: int64
             * @description Seconds until it expires; without it, it is valid until it is revoked.
             * @example 2592000
             */
            expires_in_s?: number | null;
            /**
             * @description What you call it: one line, to tell it from others in the list.
             * @example build server
             */
            name?: string | null;
            /** @description The profiles that it is bound to: with such a key only their tools can be seen and called. */
            profiles?: string[];
            /** @description What it allows. Every key may search, and `admin` includes the others. */
            scopes: components["schemas"]["KeyScope"][];
        };
        /**
         * @description A permission of a key. Every key may search.
         * @enum {string}
         */
        KeyScope: "search" | "call" | "approve" | "llm" | "admin";
        /** @description Latencies. Percentiles are estimated within the buckets of a histogram. */
        Latency: {
            /**
             * Format: int64
             * @description How many there are.
             */
            count: number;
            /**
             * Format: double
             * @description Their mean in milliseconds; null without any.
             */
            mean_ms?: number | null;
            /**
             * Format: double
             * @description Half of them took no longer, in milliseconds.
             */
            p50_ms?: number | null;
            /**
             * Format: double
             * @description 95 of 100 took no longer.
             */
            p95_ms?: number | null;
            /**
             * Format: double
             * @description 99 of 100 took no longer.
             */
            p99_ms?: number | null;
        };
        /** @description A request and the tool that was called for it. */
        MemoryEntry: {
            /**
             * Format: int64
             * @description When it was last reported, in milliseconds since 1970.
             */
            at_ms: number;
            /** @description The request. */
            query: string;
            /**
             * @description The senders of the feedback: `cli`, `http` for a server without keys, `admin:ID` or `key:ID`
             *     for a key, `unknown` for entries of an earlier version. Three different keys together count
             *     as much as any other sender.
             */
            taught_by: string[];
            /**
             * Format: int64
             * @description How often it was reported.
             */
            times: number;
            /** @description The tool's id. */
            tool: string;
        };
        /** @description A page of a usage memory. */
        MemoryPage: {
            /** @description Whether the memory is on. */
            enabled: boolean;
            /** @description The entries, sorted by request and tool. */
            entries: components["schemas"]["MemoryEntry"][];
            /** @description The cursor of the next page; absent on the last one. */
            next_cursor?: string | null;
            /** @description Number of all entries. */
            total: number;
        };
        /** @description The switch of a usage memory. */
        MemorySwitch: {
            /** @description True stores feedback in the memory and uses the memory in searches. */
            enabled: boolean;
        };
        /** @description Requests of one meaning. */
        MissedGroup: {
            /** @description Some of the other texts, at most 5. */
            examples: string[];
            /**
             * Format: int64
             * @description When the last one was, in milliseconds since 1970.
             */
            last_ms: number;
            /** @description The tool that was nearest most often; absent if there never was one. */
            nearest?: string | null;
            /**
             * Format: int64
             * @description Those of them for which there was probably no tool.
             */
            none: number;
            /**
             * Format: int64
             * @description Those with a good match, where none of the tools that were shown was called.
             */
            not_called: number;
            /**
             * Format: int64
             * @description Those with a possible match; where calls are known, without a call.
             */
            possible: number;
            /** @description The text that was requested most often. */
            request: string;
            /** @description Number of different texts. */
            texts: number;
            /**
             * Format: int64
             * @description Number of requests.
             */
            times: number;
        };
        /** @description A page of the requests that no tool served, in groups of one meaning. */
        MissedPage: {
            /** @description What to do to have a list, where the server stores no texts. */
            advice?: string | null;
            /** @description The groups, those with most requests first. */
            groups: components["schemas"]["MissedGroup"][];
            /** @description Requests that are in no group, because there are 1,000 groups. */
            left_out: number;
            /** @description The cursor of the next page; absent on the last one. */
            next_cursor?: string | null;
            /** @description Whether and since when use is recorded. */
            record: components["schemas"]["UseRecord"];
            /** @description Number of requests in that time. The newest 10,000 of a catalog are kept, of each node and in the store. */
            requests: number;
            /**
             * @description Whether the server stores the texts of requests that no tool served. If not, the list ends when it
             *     was switched off.
             */
            stores_queries: boolean;
            /** @description Number of all groups. */
            total: number;
        };
        /** @description A judgement of a query. It takes the place of the judge's earlier one. */
        NewJudgement: {
            /**
             * @description False while tools are left to judge. Without grades, false takes the judgement back.
             * @default true
             */
            done?: boolean;
            /** @description The id of the query. */
            id: string;
            /** @description Who judged. */
            judge?: string | null;
            /** @description The text of the query, to check that it is the one of this id. */
            query?: string | null;
            /** @description The grades by tool, 0 to 3: at most 200. Without any, a query that is done was skipped. */
            relevant: {
                [key: string]: number;
            };
        };
        /** @description Judgements to keep. */
        NewJudgements: {
            /**
             * @description Who judged, of at most 100 characters; lines with a `judge` of their own do not need it.
             * @example Ann
             */
            judge?: string | null;
            /** @description At most 2000: lines of `eval judge` are such. */
            judgements: components["schemas"]["NewJudgement"][];
        };
        /** @description A judging to begin. */
        NewJudging: {
            /** @description First hits of each setting that are judged; 5 by default. */
            depth?: number | null;
            /**
             * @description A name for people, of at most 200 characters.
             * @example requests of May
             */
            name?: string | null;
            /**
             * @description The queries, one a line, at most 2000, in the forms of an evaluation. Tools that a line judges are
             *     pooled too.
             * @example send a mail to Ann
             */
            queries: string;
        };
        /** @description New texts of a tool. */
        NewTexts: {
            /** @description Who wrote them; `person` without it. */
            model?: string | null;
            /** @description True once a person has read them: texts that speak of another server's tool are then stored too. */
            reviewed?: boolean;
            /** @description At most 8, of at most 200 characters each. */
            texts: string[];
        };
        /** @description Why no tool matched well enough. */
        NoMatchReport: {
            /** @description The ids nearest to the request; hints, not hits. */
            nearest: string[];
            /** @description What was missing. */
            reason: string;
        };
        /** @description An open request, as its owner sees it. */
        OpenApproval: components["schemas"]["ApprovalRequest"] & {
            /**
             * Format: int64
             * @description Milliseconds left to answer.
             */
            expires_in_ms: number;
            /** @description The id under which the request is answered. */
            id: string;
        };
        /**
         * @description The outcome of a found tool.
         * @enum {string}
         */
        Outcome: "used" | "helpful" | "not_helpful";
        /** @description What a request with this key may do. */
        OwnKey: {
            /** @description The catalogs that it is for; `["*"]` for all. */
            catalogs: string[];
            /** @description The public id of the key; null on a server without keys. */
            id?: string | null;
            /** @description Whether it may see and manage what belongs to no catalog: keys, the audit log, figures. */
            operates: boolean;
            /** @description The profiles that it is bound to; empty for a key that is bound to none. */
            profiles: string[];
            /** @description What it allows, with the scopes that `admin` includes. */
            scopes: components["schemas"]["KeyScope"][];
        };
        /** @description What the server did in a minute, an hour or a day. */
        Period: {
            /**
             * Format: int64
             * @description Those that lacked something.
             */
            degraded: number;
            /**
             * Format: int64
             * @description Those that the server answered with an error of its own (5xx).
             */
            errors: number;
            /**
             * Format: int64
             * @description The most memory that the process had, in bytes; null if the system does not tell it.
             */
            memory_bytes?: number | null;
            /**
             * Format: int64
             * @description Those without a good enough match.
             */
            no_match: number;
            /**
             * Format: double
             * @description Half of the searches took no longer, in milliseconds; null without any.
             */
            p50_ms?: number | null;
            /**
             * Format: double
             * @description 95 of 100 searches took no longer.
             */
            p95_ms?: number | null;
            /**
             * Format: int64
             * @description Number of requests over HTTP.
             */
            requests: number;
            /**
             * Format: int64
             * @description Tokens of tool definitions that search saved.
             */
            saved_tokens: number;
            /**
             * Format: int64
             * @description Number of searches.
             */
            searches: number;
            /**
             * Format: int64
             * @description When it began, in milliseconds since 1970.
             */
            start_ms: number;
        };
        /** @description Puts a tool at a place among the hits of a query, or hides it from them. */
        Pin: {
            /** @description Hides the tool instead. */
            hide?: boolean | null;
            /** @description `exact`, the default: the query is these words; `contains`: it has them, one after another. */
            match?: string | null;
            /** @description The place, 1 by default. */
            place?: number | null;
            /** @description The words of the query; case and punctuation do not count. */
            query: string;
            /** @description The tool's id. */
            tool: string;
        };
        /** @description A step as it is shown before the plan runs. */
        PlannedStep: {
            /** @description The arguments, normalized as far as they are known. */
            arguments: unknown;
            /** @description Changes made to the arguments. */
            changes?: components["schemas"]["Change"][];
            class?: components["schemas"]["Class"] | null;
            decision?: components["schemas"]["Decision"] | null;
            /** @description Steps that must succeed first. */
            needs?: string[];
            /** @description What is wrong with the step. */
            problem?: string | null;
            /** @description The key by which other steps refer to it. */
            step: string;
            /** @description The tool's id, or the unknown name. */
            tool: string;
        };
        /** @description A query with the tools to judge. */
        PooledQuery: {
            /** @description Whether the judge has judged or skipped it. */
            done: boolean;
            /** @description Its id. */
            id: string;
            /** @description Its position among the queries, from 1. */
            number: number;
            /** @description Its text. */
            query: string;
            /** @description The judge's grades, by tool. */
            relevant: {
                [key: string]: number;
            };
            /**
             * @description The first hits of search by words, by meaning and by both, and the tools that its line judges. They come
             *     by id: their order tells a judge nothing.
             */
            tools: components["schemas"]["PooledTool"][];
        };
        /** @description A tool to judge. */
        PooledTool: {
            /** @description The start of its description. */
            description: string;
            /** @description Its id. */
            id: string;
            /** @description Its id with its parameters. */
            signature: string;
        };
        /** @description The result of a change to one tool. */
        PutAnswer: {
            /**
             * Format: int64
             * @description The generation of the catalog that holds the change.
             */
            generation: number;
            /** @description The tool's id. */
            id: string;
            /** @description The outcome. */
            status: components["schemas"]["ItemStatus"];
        };
        /** @description An answer to a query. */
        QueryAnswer: {
            before?: components["schemas"]["AnswerBefore"] | null;
            /** @description Whether the answer was degraded. */
            degraded: boolean;
            /** @description The ids of the first ten hits. */
            hits: string[];
            /** @description Whether it was answered with "no match". */
            no_match: boolean;
            /** @description The ranks of the relevant tools, in their order; null for one that is not among 50 hits. */
            ranks: (number | null)[];
            /**
             * Format: double
             * @description The main metric; null for a query without relevant tools.
             */
            score?: number | null;
        };
        /** @description The numbers of queries. */
        QueryCounts: {
            /** @description With relevant tools. */
            judged: number;
            /** @description That no tool can serve. */
            no_tool: number;
            /** @description All of them. */
            total: number;
            /** @description Without a judgement. */
            unjudged: number;
        };
        /** @description A page of the queries of an evaluation. */
        QueryPage: {
            /** @description The id of the evaluation that they are compared with; null without one. */
            against?: string | null;
            /** @description The cursor of the next page; absent on the last one. */
            next_cursor?: string | null;
            /** @description The queries. */
            queries: components["schemas"]["QueryRow"][];
            /** @description Number of queries that pass the filter. */
            total: number;
        };
        /** @description A query of an evaluation. */
        QueryRow: {
            /** @description The answer of each arm, in their order. */
            arms: components["schemas"]["QueryAnswer"][];
            /** @description Its id; its text, for one without an id. */
            id: string;
            /** @description Its position among the queries, from 1. */
            number: number;
            /** @description The query. */
            query: string;
            /** @description The ids of its relevant tools; empty if no tool can serve it, null without a judgement. */
            relevant?: string[] | null;
        };
        /** @description Work of one kind. */
        QueueStats: {
            /**
             * @description `requests`, `connections`, `searches`, `writes`, `tasks`, `loads`, `agent_runs` or
             *     `embeddings`.
             */
            name: string;
            /**
             * Format: int64
             * @description How much is running; null where it is not counted.
             */
            running?: number | null;
            /**
             * Format: int64
             * @description How much may run at a time; null without a limit.
             */
            running_limit?: number | null;
            /**
             * Format: int64
             * @description How much is waiting; null where nothing waits.
             */
            waiting?: number | null;
            /**
             * Format: int64
             * @description How much may wait, more is refused; null without a limit. Of `writes`, for one catalog.
             */
            waiting_limit?: number | null;
        };
        /** @description A web page that a tool quoted. */
        Reference: {
            /** @description The beginning of its text. */
            content: string;
            /** @description Its title; empty if there is none. */
            title: string;
            /** @description Its URL. */
            url: string;
        };
        /** @description What is refused of a tool's texts. */
        RefusedText: {
            /** @description The tool's id. */
            id: string;
            /** @description The reason. */
            reason: string;
        };
        /** @description Requests. */
        RequestStats: {
            /** @description How many took how long, for percentiles over a time between two reads. */
            buckets: components["schemas"]["Bucket"][];
            /** @description Number of answers by the class of their status: `2xx`, `3xx`, `4xx`, `5xx`. */
            by_class: {
                [key: string]: number;
            };
            /**
             * Format: int64
             * @description Requests that are being answered.
             */
            in_flight: number;
            /** @description Time to the beginning of the answer. */
            latency: components["schemas"]["Latency"];
            /** @description By method and route, most requests first. */
            routes: components["schemas"]["RouteStats"][];
            /**
             * Format: int64
             * @description Number of answered requests.
             */
            total: number;
        };
        /** @description What was decided. */
        ReviewAnswer: {
            /** @description The tools that are accepted from now on. */
            accepted: string[];
            /** @description The tools that are blocked from now on. */
            blocked: string[];
            /**
             * Format: int64
             * @description The generation of the catalog that holds the change.
             */
            generation: number;
        };
        /** @description Decisions about tools. All of them are stored, or none. */
        ReviewRequest: {
            /** @description Servers of which every change is accepted. Tools that a person has blocked stay so. */
            accept_all?: string[];
            /** @description Decisions about single tools, each tool once. */
            decisions?: components["schemas"]["DecisionBody"][];
        };
        /** @description Requests of one route. */
        RouteStats: {
            /** @description Number of answers by the class of their status. */
            by_class: {
                [key: string]: number;
            };
            /** @description Time to the beginning of the answer. */
            latency: components["schemas"]["Latency"];
            /** @description The method. */
            method: string;
            /** @description The pattern of the route. */
            route: string;
            /**
             * Format: int64
             * @description Number of answered requests.
             */
            total: number;
        };
        /** @description Tokens of tool definitions. */
        SavedTokens: {
            /**
             * Format: int64
             * @description Tokens of the tools that were answered.
             */
            answered_tokens: number;
            /**
             * Format: int64
             * @description Number of answers; for the agent, of turns.
             */
            answers: number;
            /**
             * Format: int64
             * @description Tokens, if each answer had been all tools of the catalog.
             */
            catalog_tokens: number;
        };
        /** @description The answer to a search. */
        SearchAnswer: {
            /** @description The same in one sentence, for a model. */
            advice: string;
            /** @description The number of tools that match better by every leg than any hit, and that the filter leaves out. */
            better_hidden: number;
            budget?: components["schemas"]["BudgetReport"] | null;
            /**
             * Format: float
             * @description The probability, from 0 to 1, that one of the first five hits is right; null for legs that
             *     the ranker was not trained for.
             */
            confidence?: number | null;
            degraded?: components["schemas"]["DegradedReport"] | null;
            /** @description The ids of the embedders that contributed to the scores. */
            embedders: string[];
            /** @description Identifies this answer in feedback on it. */
            feedback_token: string;
            /**
             * Format: int64
             * @description The generation of the catalog that was searched.
             */
            generation: number;
            /** @description Best first. */
            hits: components["schemas"]["SearchHit"][];
            /**
             * @description How well the hits serve the request: `good`, `possible`, or `none` if probably no tool does
             *     what was asked for. With `none` the hits, if there are any, are the nearest tools.
             */
            match: components["schemas"]["SearchMatch"];
            /** @description The legs that answered. */
            mode: components["schemas"]["SearchMode"];
            no_match?: components["schemas"]["NoMatchReport"] | null;
            /** @description The id of the request, as in the server's log. */
            request_id: string;
            /** @description Milliseconds by stage. */
            took_ms: components["schemas"]["TookMs"];
            /** @description The id of each tool in `tools`, in the same order, with the name it has there. */
            tool_names?: components["schemas"]["ToolName"][];
            /**
             * @description The found tools in the requested format, in the order of `hits`: an array; for `mcp` an
             *     object with `tools`; with a `call_id` the answer to a client-side tool search.
             */
            tools?: unknown;
            /**
             * @description The words of the request that are in no hit and that no hit has a similar word for; for requests in
             *     English whose match is not good.
             */
            unmatched: string[];
            /** @description The parts of the pipeline that ran. */
            variant: components["schemas"]["SearchVariant"];
        };
        /**
         * @description Which tools may be hits. An empty field does not restrict; a tool has to pass every field. Items of other
         *     kinds are hits only if `kinds` names them.
         */
        SearchFilter: {
            /**
             * @description Only tools with this destructive hint; an absent hint counts as `true` unless the tool is
             *     read-only.
             * @default null
             */
            destructive?: boolean | null;
            /**
             * @description Only these ids.
             * @default []
             */
            ids?: string[];
            /**
             * @description The kinds of items that may be hits; tools alone if it is empty.
             * @default []
             */
            kinds?: components["schemas"]["ItemKind"][];
            /**
             * @description Only tools with this read-only hint; an absent hint counts as `false`.
             * @default null
             */
            read_only?: boolean | null;
            /**
             * @description Only tools of these servers.
             * @default []
             */
            servers?: string[];
            /**
             * @description Only tools with at least one of these tags.
             * @default []
             */
            tags?: string[];
        };
        /**
         * @description How the legs' scores are joined.
         * @enum {string}
         */
        SearchFusion: "convex" | "rrf";
        /** @description A found tool. */
        SearchHit: {
            /** @description The ids of its near-duplicates on other servers, with `fold_duplicates`. */
            also_on?: string[];
            companion_of?: components["schemas"]["CompanionOf"] | null;
            /** @description What it does. */
            description: string;
            /** @description The explanation of its score. */
            explain?: Record<string, never>;
            /**
             * @description What is suspicious about its definition, where no person has decided on that. Such a tool is
             *     behind all others that match.
             */
            flagged?: string[];
            /** @description `server/name`, or the name alone. */
            id: string;
            kind?: components["schemas"]["ItemKind"] | null;
            /** @description The positions of the queries that found it. */
            matched_queries: number[];
            /** @description Its name within the server. */
            name: string;
            /**
             * Format: float
             * @description Comparable within one answer only. A plain match reaches at most 1; an exact name is above
             *     that.
             */
            score: number;
            /** @description The server it comes from; empty for a tool without a server. */
            server: string;
            /** @description The part of the request that it serves, where the request has several needs. */
            serves?: string | null;
        };
        /**
         * @description How well an answer serves its request.
         * @enum {string}
         */
        SearchMatch: "none" | "possible" | "good";
        /**
         * @description The retrieval legs of a search.
         * @enum {string}
         */
        SearchMode: "lexical" | "dense" | "hybrid" | "auto";
        /** @description A search. */
        SearchRequest: {
            /**
             * Format: double
             * @description Runs as much of the pipeline as fits into about this many milliseconds; `variant` of the
             *     answer names it.
             * @default null
             */
            budget_ms?: number | null;
            /**
             * @description With `openai_responses`, the `call_id` of the `tool_search_call` to answer.
             * @default null
             */
            call_id?: string | null;
            /**
             * @description Whether a tool that finds what a hit needs is put behind that hit; `companion_of` marks it.
             *     True by default.
             * @default null
             */
            companions?: boolean | null;
            /**
             * Format: float
             * @description The share of the dense legs in the score.
             * @default null
             */
            dense_weight?: number | null;
            /**
             * @description Explains the score of each hit.
             * @default false
             */
            explain?: boolean;
            /**
             * @description Which tools may be hits.
             * @default {
             *       "kinds": [],
             *       "servers": [],
             *       "tags": [],
             *       "ids": [],
             *       "read_only": null,
             *       "destructive": null
             *     }
             */
            filter?: components["schemas"]["SearchFilter"];
            /**
             * @description Whether near-duplicates of a tool on several servers are folded into one hit; its `also_on` names
             *     the others. False by default.
             * @default null
             */
            fold_duplicates?: boolean | null;
            /** @default null */
            format?: components["schemas"]["ToolFormat"] | null;
            /** @default null */
            fusion?: components["schemas"]["SearchFusion"] | null;
            /**
             * @description Most hits.
             * @default null
             */
            k?: number | null;
            /**
             * @description Most tokens (o200k) of `tools`: whole schemas for the first tools, shortened ones below.
             *     Needs `format`.
             * @default null
             */
            max_tokens?: number | null;
            /**
             * Format: float
             * @description Answers `no_match` below this confidence; 0, the default, never does.
             * @default null
             */
            min_confidence?: number | null;
            /**
             * Format: int64
             * @description Searches this generation of the catalog or a later one, as the answer to a write names it: the
             *     search waits until the server has it, at most five seconds, and is else answered 503 with
             *     `generation_not_reached`.
             * @default null
             */
            min_generation?: number | null;
            /**
             * Format: float
             * @description Omits hits below this score.
             * @default null
             */
            min_score?: number | null;
            /** @default null */
            mode?: components["schemas"]["SearchMode"] | null;
            /**
             * @description Further queries, whose hits are merged into one list. Up to 16 with `query`.
             * @default []
             */
            queries?: string[];
            /**
             * @description What the tool should do, in a few words; or its name. `q` is taken as well.
             * @default null
             * @example send an email
             */
            query?: string | null;
            /**
             * @description Whether the learned ranker reorders the hits.
             * @default true
             */
            ranker?: boolean | null;
            /**
             * @description True for a search that a person tries out: it counts in the metrics, and not in the record of use,
             *     in a shadow or as tokens saved.
             * @default false
             */
            trial?: boolean;
            /**
             * @description Takes the request as one need, never split into several.
             * @default false
             */
            whole?: boolean;
        };
        /** @description Searches. */
        SearchStats: {
            /** @description How many took how long, for percentiles over a time between two reads. */
            buckets: components["schemas"]["Bucket"][];
            /** @description Those by the mode that they were answered with. */
            by_mode: {
                [key: string]: number;
            };
            /** @description Those that lacked something, by the code of the cause. */
            degraded: {
                [key: string]: number;
            };
            /** @description Time of a search. */
            latency: components["schemas"]["Latency"];
            /**
             * Format: int64
             * @description Those without a good enough match.
             */
            no_match: number;
            /** @description Time of each stage, in the order of the stages. */
            stages: components["schemas"]["StageStats"][];
            /**
             * Format: int64
             * @description Number of answered searches.
             */
            total: number;
        };
        /**
         * @description How much of the pipeline runs, the most expensive first. An answer names the one that ran.
         * @enum {string}
         */
        SearchVariant: "full" | "instant" | "whole" | "lexical";
        /** @description What is known of a report that was sent. */
        SentReport: {
            /** @description Who sent it: `key:ID`, or `http` for a server without keys. */
            by: string;
            /** @description How the catalog differed, when the report was sent, from what was measured; a sentence each. */
            remarks: string[];
            /** @description The name of its set. */
            set: string;
        };
        /** @description A server. */
        Server: {
            /** @description Number of its tools that are blocked. */
            blocked: number;
            /** @description Number of its tools that changed since they were approved. */
            changes: number;
            connection?: components["schemas"]["ServerConnection"] | null;
            /** @description Its name; empty for tools without a server. */
            name: string;
            /** @description Number of its tools in the catalog. */
            tools: number;
        };
        /** @description The connection to an MCP server. */
        ServerConnection: {
            /** @description Why its tools cannot be called. */
            reason?: string | null;
            /**
             * Format: int64
             * @description Since when, in Unix milliseconds.
             */
            since_ms: number;
            /** @description How it is connected. */
            state: components["schemas"]["ConnectionState"];
            /**
             * Format: int64
             * @description When its list of tools was last written to the catalog, in Unix milliseconds.
             */
            synced_ms?: number | null;
        };
        /** @description The servers of a catalog. */
        ServerList: {
            /** @description The servers, sorted by name. */
            servers: components["schemas"]["Server"][];
        };
        /** @description An event of a stream. */
        ServerSentEvent: {
            /** @description An `AgentEvent` as JSON, or an AG-UI event. */
            data: string;
            /** @description The number of the event, from 1. */
            id?: string | null;
        };
        /** @description The figures of a server since it was started. */
        ServerStats: {
            /** @description Open catalogs. */
            catalogs: components["schemas"]["CatalogsStats"];
            /** @description Texts of searches whose vectors were cached, and that were embedded. */
            embedding_cache: components["schemas"]["CacheStats"];
            /**
             * Format: int64
             * @description Records of feedback that were stored.
             */
            feedback: number;
            /**
             * Format: int64
             * @description Resident memory of the process in bytes; null where the system does not tell it.
             */
            memory_bytes?: number | null;
            /** @description What runs and waits, and how much of it may. */
            queues: components["schemas"]["QueueStats"][];
            /** @description Work that was refused because a limit was reached, by limit. */
            refused: {
                [key: string]: number;
            };
            /** @description Requests over HTTP, of every route. */
            requests: components["schemas"]["RequestStats"];
            /** @description Searches of the API. */
            searches: components["schemas"]["SearchStats"];
            /**
             * Format: int64
             * @description When it was started, in milliseconds since 1970.
             */
            started_at_ms: number;
            store?: components["schemas"]["StoreStats"] | null;
            /** @description Tokens of tool definitions that search saved. */
            tokens: components["schemas"]["TokenStats"];
            /**
             * Format: double
             * @description Seconds since then.
             */
            uptime_s: number;
            /** @description The version of the program. */
            version: string;
        };
        /** @description What switching to the shadow of a catalog would change. */
        ShadowAnswer: components["schemas"]["ShadowReport"] & {
            /** @description How far the shadow is. */
            now: components["schemas"]["ShadowNow"];
            /** @description Whether and since when use is recorded. */
            record: components["schemas"]["UseRecord"];
        };
        /** @description A figure of called tools in both answers. */
        ShadowComparedFigure: {
            /** @description What switching gains, with the interval of the differences of pairs. */
            gain: components["schemas"]["ShadowEstimate"];
            /**
             * Format: double
             * @description Its mean in live answers.
             */
            live: number;
            /**
             * Format: double
             * @description Its mean in second answers.
             */
            shadow: number;
        };
        /** @description The figures of one day. */
        ShadowDay: {
            /**
             * Format: int64
             * @description Those of them after which a tool was called that they had shown.
             */
            calls: number;
            /** @description The day (UTC). */
            day: string;
            /**
             * Format: int64
             * @description Those whose tool the live answer had first.
             */
            live_first: number;
            /**
             * Format: int64
             * @description Searches that got a second answer.
             */
            searches: number;
            /**
             * Format: int64
             * @description Those whose tool the second answer has first.
             */
            shadow_first: number;
        };
        /** @description A mean with its 95% interval. */
        ShadowEstimate: {
            /**
             * Format: double
             * @description The mean.
             */
            mean: number;
            /**
             * Format: double
             * @description Half of its 95% interval.
             */
            plus_minus: number;
        };
        /** @description How far a shadow is. */
        ShadowNow: {
            /**
             * Format: int64
             * @description CPU time that it took since the start, in milliseconds.
             */
            cpu_ms: number;
            /**
             * Format: int64
             * @description Searches and calls since the start that were not compared, because they came too fast.
             */
            dropped: number;
            /**
             * Format: int64
             * @description The generation of the catalog that it has; null until it was made.
             */
            generation?: number | null;
            /** @description Why it failed; it is tried again after some seconds. */
            problem?: string | null;
            /** @description `waiting` for the catalog to be opened, `making` or updating it, `ready`, or `failed`. */
            state: string;
            /**
             * Format: int64
             * @description Searches that wait for a second answer, at most 1,280.
             */
            waiting: number;
        };
        /** @description What switching to a shadow would change. */
        ShadowReport: {
            /**
             * Format: int64
             * @description Those of them whose tool the second answer does not show.
             */
            absent: number;
            /**
             * Format: int64
             * @description Searches after which a tool was called that they had shown.
             */
            calls: number;
            /** @description By day, the newest first. */
            days: components["schemas"]["ShadowDay"][];
            /** @description What differs. */
            differences: string[];
            first_place?: components["schemas"]["ShadowComparedFigure"] | null;
            overlap_at_5?: components["schemas"]["ShadowEstimate"] | null;
            reciprocal_place?: components["schemas"]["ShadowComparedFigure"] | null;
            /**
             * Format: double
             * @description The share of the searches with the same first hit in both answers; null without a search.
             */
            same_first_hit?: number | null;
            /**
             * Format: int64
             * @description Searches that got a second answer.
             */
            searches: number;
            /** @description The hash of all that differs: another one begins anew. */
            shadow: string;
            /**
             * Format: double
             * @description The share of the searches that get a second answer.
             */
            share: number;
            /** @description The same in a sentence. */
            summary: string;
            /** @description What the figures say. */
            verdict: components["schemas"]["ShadowVerdict"];
        };
        /**
         * @description What the figures say about switching.
         * @enum {string}
         */
        ShadowVerdict: "gains" | "loses" | "chance" | "too_little";
        /** @description Percentiles of a stage, in milliseconds. */
        StageLatency: {
            /**
             * Format: double
             * @description The median.
             */
            p50: number;
            /**
             * Format: double
             * @description The 95th percentile.
             */
            p95: number;
            /**
             * Format: double
             * @description The 99th percentile.
             */
            p99: number;
            /** @description `embed`, `lexical`, `dense`, `fuse`, `rank` or `total`. */
            stage: string;
        };
        /** @description A stage of searches. */
        StageStats: {
            /** @description Its time. */
            latency: components["schemas"]["Latency"];
            /** @description Its name. */
            stage: string;
        };
        /**
         * @description The length of a period.
         * @enum {string}
         */
        Step: "minute" | "hour" | "day";
        /** @description Whether a run was stopped. */
        Stopped: {
            stopped: boolean;
        };
        /** @description A conversation to stop. */
        StopRequest: {
            /** @description Its id. */
            conversation: string;
        };
        /** @description The store as this node sees it. */
        StoreStats: {
            /** @description Why it counts as away; null while it answers. */
            away?: string | null;
            /**
             * Format: int64
             * @description Open catalogs that are behind it.
             */
            catalogs_behind: number;
            /**
             * Format: int64
             * @description How many connections there may be.
             */
            connection_limit: number;
            /**
             * Format: int64
             * @description Connections to the server that takes writes.
             */
            connections: number;
            /**
             * Format: int64
             * @description How often another server became the one for writes.
             */
            failovers: number;
            /**
             * Format: int64
             * @description Questions and writes that it did not answer, or refused.
             */
            failures: number;
            /**
             * Format: int64
             * @description Those of them that nobody uses.
             */
            idle_connections: number;
            /**
             * Format: int64
             * @description Questions and writes that are under way; those beyond the connections wait for one.
             */
            in_flight: number;
            /**
             * Format: int64
             * @description By how many generations the one that is farthest behind is.
             */
            lag_generations: number;
            /** @description Time of questions and writes, waiting for a connection included. */
            latency: components["schemas"]["Latency"];
            /**
             * Format: int64
             * @description How often listening to it began anew.
             */
            reconnects: number;
        };
        /** @description What a sync changed. */
        SyncAnswer: {
            /** @description The ids of new tools. */
            added: string[];
            /** @description The ids of tools that replaced one with the same id. */
            changed: string[];
            /**
             * Format: int64
             * @description The generation of the catalog that holds the change.
             */
            generation: number;
            /** @description The ids of removed tools. */
            removed: string[];
            /** @description Number of tools that were stored already, exactly as they are. */
            unchanged: number;
            /** @description What of the tools is left out or will not work. */
            warnings?: components["schemas"]["ToolWarning"][];
        };
        /** @description Words that mean the same. */
        Synonyms: {
            /** @description Where it is given, only this one stands for the words, and they do not stand for it. */
            from?: string | null;
            /** @description The words, each of one word or a few; at least two without `from`. */
            words: string[];
        };
        /** @description The tags of a catalog. */
        TagList: {
            /** @description The tags with the number of their tools: the most frequent first, equal ones by name. */
            tags: components["schemas"]["Count"][];
            /** @description Number of different tags in the catalog. */
            total: number;
        };
        /** @description What came of answers. */
        TakenTexts: {
            /** @description Answers in the body. */
            answers: number;
            /**
             * Format: int64
             * @description The generation of the catalog that holds the texts.
             */
            generation: number;
            /** @description Texts that are not stored before a person has read them, since they speak of another server's tool. */
            held: components["schemas"]["HeldText"][];
            /** @description Tools that have texts already, which stay. */
            kept: string[];
            /** @description Tools that still have no texts. */
            left: number;
            /** @description What of the body was not read, and why. */
            problem?: string | null;
            /** @description Answers that are refused. */
            refused: components["schemas"]["RefusedText"][];
            /** @description Single texts that are refused, of answers whose other texts are stored. */
            refused_texts: components["schemas"]["RefusedText"][];
            /** @description Tools whose definition is another one by now. */
            stale: string[];
            /** @description Number of tools whose texts are stored. */
            stored: number;
            /** @description Tools that the catalog does not have. */
            unknown: string[];
        };
        /** @description A task. */
        Task: {
            /** @description The catalog that it writes to, or evaluates. */
            catalog: string;
            /** @description Number of tools processed so far; of searches, for an evaluation. */
            done: number;
            error?: components["schemas"]["ItemError"] | null;
            /** @description The evaluation that it makes, which is there once it has succeeded. */
            evaluation?: string | null;
            /** @description The first 1000 failed items. */
            failures: components["schemas"]["ItemResult"][];
            /** @description Its id. */
            id: string;
            /** @description What was committed so far. */
            result: components["schemas"]["ChangeCounts"];
            /** @description Its state. */
            status: components["schemas"]["TaskStatus"];
            /** @description Number of tools to process, or of searches. */
            total: number;
            /** @description What of the valid tools is left out or will not work. */
            warnings?: components["schemas"]["ToolWarning"][];
        };
        /**
         * @description The state of a task.
         * @enum {string}
         */
        TaskStatus: "running" | "succeeded" | "failed" | "cancelled";
        /** @description A page of texts. */
        TextsPage: {
            /** @description The cursor of the next page; absent on the last one. */
            next_cursor?: string | null;
            /** @description The texts, by the ids of their tools. */
            tools: components["schemas"]["ToolTexts"][];
        };
        /** @description The token for questions by GET. */
        TokenBody: {
            /** @description For the query string of `/agent/chat/stream`; valid until the server restarts. */
            token: string;
        };
        /** @description Tokens of tool definitions (o200k): `catalog_tokens` less `answered_tokens` were saved. */
        TokenStats: {
            /** @description Turns of the agent. As if the model had been shown all tools of the catalog in every round. */
            agent: components["schemas"]["SavedTokens"];
            /**
             * Format: int64
             * @description Answers that are not among these, because they came faster than they could be counted.
             */
            left_out: number;
            /** @description Searches of MCP clients. As if every one had been answered with all tools of the catalog. */
            mcp: components["schemas"]["SavedTokens"];
            /**
             * @description Searches of the API that asked for a format with definitions. As if every one had been
             *     answered with all tools of the catalog in that format.
             */
            search: components["schemas"]["SavedTokens"];
        };
        /** @description Milliseconds by stage. */
        TookMs: {
            /**
             * Format: double
             * @description The dense legs without embedding.
             */
            dense: number;
            /**
             * Format: double
             * @description Embedding the query.
             */
            embed: number;
            /**
             * Format: double
             * @description Fusion, ordering and explanation.
             */
            fuse: number;
            /**
             * Format: double
             * @description The lexical leg.
             */
            lexical: number;
            /**
             * Format: double
             * @description The learned ranker and confidence.
             */
            rank: number;
            /**
             * Format: double
             * @description The whole search, without the wait for a thread.
             */
            total: number;
        };
        /** @description A stored tool: the shape of MCP with id, server, tags and metadata. */
        ToolBody: {
            /** @description Other names that the owner gave it. */
            aliases?: string[];
            /** @description The hints of MCP about its effects. */
            annotations: Record<string, never>;
            /** @description What it does. */
            description: string;
            /** @description `server/name`, or the name alone. */
            id: string;
            /** @description The JSON Schema of its arguments. */
            inputSchema: Record<string, never>;
            kind?: components["schemas"]["ItemKind"] | null;
            /** @description All other fields that it was registered with. */
            metadata: Record<string, never>;
            /** @description Its name within the server. */
            name: string;
            /** @description The JSON Schema of its structured result. */
            outputSchema?: Record<string, never>;
            /** @description The server it comes from; empty for a tool without a server. */
            server: string;
            /** @description What the owner of the catalog has searched and shown in place of `description`. */
            shownDescription?: string | null;
            /** @description Labels. */
            tags: string[];
            /** @description A display name. */
            title?: string | null;
            /** @description Whether the schema stands for so many schemas that arguments are checked at the top alone. */
            uncheckedSchema?: boolean;
        };
        /** @description The token budget of the visible tools. */
        ToolBudget: {
            /** @description Most tokens of them. `null` where found tools are not part of the list of tools. */
            limit?: number | null;
            /** @description Tokens of all visible tools, the pinned ones included. */
            used: number;
        };
        /** @description A change of a tool since it was approved. */
        ToolChange: {
            after?: components["schemas"]["ToolBody"] | null;
            before?: components["schemas"]["ToolBody"] | null;
            blocked_by?: components["schemas"]["BlockedBy"] | null;
            /** @description What is suspicious about the definition that is to be decided on. */
            findings: components["schemas"]["Finding"][];
            /** @description The tool's id. */
            id: string;
            /** @description What became of it. */
            kind: components["schemas"]["ChangeKind"];
            /** @description The parts of its definition that changed. */
            parts: string[];
            /**
             * Format: int64
             * @description When the change was first seen, in Unix milliseconds.
             */
            since_ms: number;
            /** @description Names that definition. */
            version: string;
        };
        /**
         * @description The formats in which tools are written, for models and programs.
         * @enum {string}
         */
        ToolFormat: "openai" | "openai_responses" | "anthropic" | "anthropic_reference" | "mcp" | "names" | "signature";
        /** @description The name of a tool for a model, and its id. */
        ToolName: {
            /**
             * @description The id in the catalog.
             * @example github/create_issue
             */
            id: string;
            /**
             * @description The name in `tools`, which a model calls.
             * @example github__create_issue
             */
            name: string;
        };
        /** @description A page of tools. */
        ToolPage: {
            /**
             * Format: int64
             * @description The generation of the catalog that the page shows.
             */
            generation: number;
            /** @description The cursor of the next page; absent on the last one. */
            next_cursor?: string | null;
            /** @description The tools, sorted by id. */
            tools: components["schemas"]["ToolBody"][];
            /** @description Number of tools in the catalog, or of items of the listed kinds. */
            total: number;
        };
        /** @description The texts of a tool. */
        ToolTexts: {
            /** @description The hash of the tool's definition, which the texts belong to. */
            definition: string;
            /**
             * @description The tool's id.
             * @example outlook/RecallMessage
             */
            id: string;
            /** @description The name of the model that wrote them, or `person`; absent without texts. */
            model?: string | null;
            /**
             * @description What people say when they need the tool; empty where nobody wrote any for its present definition.
             * @example [
             *       "I mailed the wrong person, undo it"
             *     ]
             */
            texts: string[];
        };
        /** @description The use of a tool, or of several together. */
        ToolUse: {
            /**
             * Format: int64
             * @description Calls that were made or refused, without dry runs.
             */
            calls: number;
            /**
             * Format: int64
             * @description Tokens of its definition that were sent to models, about.
             */
            definition_tokens: number;
            /** @description The others by the code of their error, as in the audit log. */
            errors: {
                [key: string]: number;
            };
            /**
             * Format: int64
             * @description Searches in which it was the first hit.
             */
            first: number;
            /**
             * Format: int64
             * @description The first use in that time, in milliseconds since 1970; null without any.
             */
            first_used_ms?: number | null;
            /**
             * Format: int64
             * @description How often it was loaded for a model: into the list of an agent, an MCP client or a model's request.
             */
            injections: number;
            /**
             * Format: int64
             * @description The last use.
             */
            last_used_ms?: number | null;
            /**
             * Format: double
             * @description Its mean place among the hits, from 1; null without a search.
             */
            mean_place?: number | null;
            /**
             * Format: int64
             * @description Searches that named it in a line after the hits.
             */
            more: number;
            /**
             * Format: double
             * @description Half of the calls that reached it took no longer, in milliseconds; estimated within the buckets of
             *     a histogram, and null without a call.
             */
            p50_ms?: number | null;
            /**
             * Format: double
             * @description 95 of 100 took no longer.
             */
            p95_ms?: number | null;
            /**
             * Format: int64
             * @description Tokens of the results of its calls, about.
             */
            result_tokens: number;
            /**
             * Format: int64
             * @description Searches that had it among their hits. A total counts a search once for each of its hits.
             */
            searches: number;
            /**
             * Format: int64
             * @description Those of them that succeeded.
             */
            successes: number;
            /** @description The tool's id; absent in a total. */
            tool?: string | null;
        };
        /** @description What of a valid tool is left out or will not work. */
        ToolWarning: {
            /** @description What it is, and why. */
            reason: string;
            /** @description The tool's id. */
            tool: string;
        };
        /** @description A stored turn. */
        Turn: {
            /** @description The answer; empty while the turn runs, or if it failed before the first text. */
            answer: string;
            /**
             * Format: int64
             * @description When it began, in Unix milliseconds.
             */
            created_ms: number;
            /** @description Why it failed. */
            error?: string | null;
            /** @description Times, tokens and tools of the turn. */
            figures: components["schemas"]["TurnFigures"];
            /**
             * Format: int64
             * @description Its number within the conversation, from 1.
             */
            number: number;
            /** @description The question. */
            question: string;
            /** @description How it ended. */
            status: components["schemas"]["TurnStatus"];
        };
        /** @description The figures of a turn. */
        TurnFigures: {
            /**
             * Format: int64
             * @description Milliseconds to the first text or thinking.
             * @default null
             */
            first_token_ms?: number | null;
            /**
             * @description The recommended questions.
             * @default []
             */
            recommended?: string[];
            /**
             * @description The web pages that the tools quoted.
             * @default []
             */
            references?: components["schemas"]["Reference"][];
            /**
             * Format: int32
             * @description Number of the model's answers.
             * @default 0
             */
            rounds?: number;
            /**
             * Format: int32
             * @description Number of searches.
             * @default 0
             */
            searches?: number;
            /**
             * @description True when the provider sent no usage for a round and this program counted the tokens.
             * @default false
             */
            tokens_estimated?: boolean;
            /**
             * Format: int64
             * @description Prompt tokens of all rounds.
             * @default 0
             */
            tokens_in?: number;
            /**
             * Format: int64
             * @description Answer tokens of all rounds.
             * @default 0
             */
            tokens_out?: number;
            /**
             * Format: int64
             * @description Tool tokens saved compared to showing the whole catalog in every round. Negative if that
             *     would have cost less.
             * @default 0
             */
            tokens_saved?: number;
            /**
             * @description Number of evicted tools.
             * @default 0
             */
            tools_evicted?: number;
            /**
             * @description Number of injected tools.
             * @default 0
             */
            tools_injected?: number;
            /**
             * @description Ids of the called tools, each once, in order.
             * @default []
             */
            tools_used?: string[];
            /**
             * Format: int64
             * @description Milliseconds in total.
             * @default 0
             */
            total_ms?: number;
        };
        /**
         * @description Whether a turn is running, or how it ended.
         * @enum {string}
         */
        TurnStatus: "running" | "answered" | "stopped" | "expired" | "failed" | "interrupted";
        /** @description The unused tools of a server. */
        UnusedOfServer: {
            /**
             * Format: int64
             * @description Tokens of their definitions.
             */
            definition_tokens: number;
            /** @description The server; empty for tools without one. */
            server: string;
            /** @description Number of its tools. */
            tools: number;
            /** @description Number of those that nobody used. If it is `tools`, nothing of the server was used. */
            unused: number;
        };
        /** @description A page of tools that nobody used. */
        UnusedPage: {
            /** @description Number of all tools that were looked at. */
            all_tools: number;
            /**
             * Format: int64
             * @description Tokens of the definitions of all unused tools.
             */
            definition_tokens: number;
            /** @description The cursor of the next page; absent on the last one. */
            next_cursor?: string | null;
            /** @description Whether and since when use is recorded: a tool is unused as far as that goes. */
            record: components["schemas"]["UseRecord"];
            /** @description The servers that have unused tools. */
            servers: components["schemas"]["UnusedOfServer"][];
            /** @description True where there are so many that tokens are estimated by length. */
            tokens_estimated: boolean;
            /** @description The tools that no search showed and nobody called, by their ids. */
            tools: components["schemas"]["UnusedTool"][];
            /** @description Number of all of them. */
            total: number;
        };
        /** @description A tool that no search showed and nobody called. */
        UnusedTool: {
            /** @description Tokens of its definition. */
            definition_tokens: number;
            /** @description The tool's id. */
            tool: string;
        };
        /** @description The result of a bulk upsert. */
        UpsertAnswer: {
            /**
             * Format: int64
             * @description The generation of the catalog that holds the change.
             */
            generation: number;
            /** @description The outcome of each item, in the order of the request. */
            items: components["schemas"]["ItemResult"][];
            /** @description The number of tools by outcome. */
            result: components["schemas"]["ChangeCounts"];
            /** @description What of the valid tools is left out or will not work. */
            warnings?: components["schemas"]["ToolWarning"][];
        };
        /** @description The use of all catalogs. */
        UsageOverview: {
            /** @description By catalog, profile and caller, most searches and calls first; the first 1,000. */
            callers: components["schemas"]["UseOfCaller"][];
            /** @description By catalog, most searches and calls first. */
            catalogs: components["schemas"]["UseOfCatalog"][];
            /** @description By day, the newest first. A day without any use is left out. */
            days: components["schemas"]["UseOfDay"][];
            /** @description Whether and since when use is recorded. */
            record: components["schemas"]["UseRecord"];
            /** @description Number of all callers. */
            total_callers: number;
            /** @description All of them together. */
            totals: components["schemas"]["UseCounts"];
        };
        /** @description A page of tools by their use. */
        UsagePage: {
            /** @description Whether searches of the catalog get second answers; `usage/shadow` says what these are worth. */
            has_shadow: boolean;
            /** @description The cursor of the next page; absent on the last one. */
            next_cursor?: string | null;
            /** @description Whether and since when use is recorded. */
            record: components["schemas"]["UseRecord"];
            /** @description The tools that were used, in the order of `sort`. A tool may have been removed since. */
            tools: components["schemas"]["ToolUse"][];
            /** @description Number of all of them. */
            total: number;
            /** @description All of them together. */
            totals: components["schemas"]["ToolUse"];
        };
        /** @description Searches and calls. */
        UseCounts: {
            /**
             * Format: int64
             * @description Calls that were made or refused, without dry runs.
             */
            calls: number;
            /**
             * Format: int64
             * @description Those of them that failed or were refused.
             */
            errors: number;
            /**
             * Format: int64
             * @description Searches by how well their hits serve the request: good.
             */
            good: number;
            /**
             * Format: int64
             * @description None.
             */
            none: number;
            /**
             * Format: int64
             * @description Possible.
             */
            possible: number;
            /**
             * Format: int64
             * @description Searches.
             */
            searches: number;
        };
        /** @description The use by a caller. */
        UseOfCaller: components["schemas"]["UseCounts"] & {
            /**
             * @description The caller as the audit log names it: `key:ID`, `http` on a server without keys, or a person at
             *     the terminal; `others` for callers beyond 2,000 on a day.
             */
            caller: string;
            /** @description The catalog. */
            catalog: string;
            /** @description The profile; absent without one. */
            profile?: string | null;
        };
        /** @description The use of a catalog. */
        UseOfCatalog: components["schemas"]["UseCounts"] & {
            /** @description The catalog. */
            catalog: string;
        };
        /** @description The use on a day. */
        UseOfDay: components["schemas"]["UseCounts"] & {
            /** @description The day (UTC). */
            day: string;
        };
        /**
         * @description What tools are ordered by, most first.
         * @enum {string}
         */
        UseOrder: "calls" | "searches" | "errors" | "tokens";
        /** @description The time that a report is about. */
        UsePeriod: {
            /**
             * Format: int64
             * @description The number of days since then on which use was recorded. A server that was off records nothing.
             */
            recorded_days: number;
            /** @description The first day since then on which use was recorded; null if it never was. */
            recorded_since?: string | null;
            /** @description The first day (UTC). */
            since: string;
        };
        /** @description Whether and since when use is recorded. */
        UseRecord: components["schemas"]["UsePeriod"] & components["schemas"]["CountedNodes"] & {
            /**
             * Format: int64
             * @description Uses since the server was started that were not recorded, because they came too fast.
             */
            dropped: number;
            /** @description False where the settings switch recording off, or the database cannot be used. */
            enabled: boolean;
        };
        /**
         * @description A decision about a tool.
         * @enum {string}
         */
        Verdict: "accept" | "block";
        /** @description The running program. */
        Version: {
            /** @description Its name. */
            name: string;
            /** @description Its version. */
            version: string;
        };
        /** @description An open request, as somebody sees it who may decide about those of others. */
        WaitingApproval: components["schemas"]["OpenApproval"] & {
            /** @description The MCP client, as it names itself. */
            client?: string | null;
            /** @description The conversation, or the session of an MCP client. */
            conversation: string;
            /** @description Who makes the call: a key, or `http` on a server without keys. */
            owner: string;
        };
        /** @description Calls that wait for a person. */
        WaitingApprovals: {
            /** @description The calls, the one whose time ends first leading. */
            approvals: components["schemas"]["WaitingApproval"][];
        };
        /** @description The document of a catalog's words. */
        Words: {
            /**
             * @description Other names of tools, by the tool's id: at most 16 a tool.
             * @example {
             *       "github/create_pull_request": [
             *         "gh pr"
             *       ]
             *     }
             */
            aliases?: {
                [key: string]: string[];
            } | null;
            boosts?: components["schemas"]["Boosts"] | null;
            /**
             * @description What is searched and shown in place of a tool's description, by the tool's id: at most 4,000
             *     characters. Calls and their policies go by the server's definition.
             * @example {
             *       "ci/rollback": "Undoes the last release."
             *     }
             */
            descriptions?: {
                [key: string]: string;
            } | null;
            /**
             * @description Tools that are put at a place or hidden for a query, by any name.
             * @example {
             *       "deploy": {
             *         "query": "deploy",
             *         "match": "contains",
             *         "tool": "ci/deploy"
             *       }
             *     }
             */
            pins?: {
                [key: string]: components["schemas"]["Pin"];
            } | null;
            /**
             * @description Words that mean the same, by any name.
             * @example {
             *       "leave": {
             *         "words": [
             *           "pto",
             *           "vacation"
             *         ]
             *       },
             *       "k8s": {
             *         "from": "k8s",
             *         "words": [
             *           "kubernetes"
             *         ]
             *       }
             *     }
             */
            synonyms?: {
                [key: string]: components["schemas"]["Synonyms"];
            } | null;
        };
        /** @description The words of a catalog. */
        WordsAnswer: {
            /**
             * Format: int64
             * @description The generation of the catalog that has them.
             */
            generation: number;
            /**
             * @description The places of entries for tools that the catalog does not have, such as `aliases.github/create_issue`.
             *     They take effect once it has them. Absent where the tools are in the store of several nodes alone.
             */
            without_tool?: string[] | null;
            /** @description The document, as PUT takes it. */
            words: components["schemas"]["Words"];
        };
    };
    responses: never;
    parameters: never;
    requestBodies: never;
    headers: never;
    pathItems: never;
}
export type $defs = Record<string, never>;
export type operations = Record<string, never>;
