//! The overhead of the gate for calls without approval.
//!
//! `check`: class, rule, identity, normalization and validation of a call with four arguments, two
//! of which have to be changed, under 20 rules. `tool_alone`: a tool that does nothing, in its own
//! task. `pass`: the checked call, passed on to that tool. `pass_audited`: the same with both
//! entries in the audit log on disk. `deny_audited`: a call that is refused and logged. The overhead
//! is the difference to `tool_alone`.
//!
//! `upstream_alone` and `upstream_gated` are calls of a small MCP server in Python, by the pool
//! alone and as the gateway makes them: checked, logged and passed on to the pool. The overhead of
//! the gateway's gate is the difference.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use divan::{Bencher, black_box};
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};
use toolscout::gate::approval::RefuseAll;
use toolscout::gate::{
    AuditLog, Call, CallOutcome, Caller, Decision, Directory, Gate, GateContext, Ledger, Pattern,
    Policies, Rule,
};
use toolscout::mcp::config::parse_server;
use toolscout::mcp::{CallContext, Pool, PoolConfig, SingleWriterSink};
use toolscout::tools::{Arguments, Callable, Status, ToolFailure, Toolset, execute};
use toolscout_index::{Catalog, DataDir, Options, Tool, ToolId};

/// Rules before the one that matches.
const RULES: usize = 20;

fn main() {
    divan::main();
}

#[divan::bench(sample_count = 1_000)]
fn check(bencher: Bencher) {
    let fixture = Fixture::new(Decision::Allow);
    bencher
        .with_inputs(|| fixture.arguments())
        .bench_values(|arguments| {
            fixture
                .gate
                .check(&fixture.caller, &fixture.tool, arguments)
        });
}

#[divan::bench(sample_count = 1_000)]
fn tool_alone(bencher: Bencher) {
    let fixture = Fixture::new(Decision::Allow);
    let limit = Duration::from_secs(60);
    bencher.bench(|| {
        fixture
            .runtime
            .block_on(execute(Arc::new(NoopTool), Arguments::new(), limit))
    });
}

#[divan::bench(sample_count = 1_000)]
fn pass(bencher: Bencher) {
    let fixture = Fixture::new(Decision::Allow);
    bencher
        .with_inputs(|| fixture.call())
        .bench_values(|call| fixture.pass(call));
}

#[divan::bench(sample_count = 1_000)]
fn pass_audited(bencher: Bencher) {
    let (fixture, _folder) = Fixture::audited(Decision::Allow);
    bencher
        .with_inputs(|| fixture.call())
        .bench_values(|call| fixture.pass(call));
}

#[divan::bench(sample_count = 1_000)]
fn deny_audited(bencher: Bencher) {
    let (fixture, _folder) = Fixture::audited(Decision::Deny);
    bencher
        .with_inputs(|| fixture.call())
        .bench_values(|call| fixture.pass(call));
}

#[divan::bench(sample_count = 500)]
fn upstream_alone(bencher: Bencher) {
    let upstream = Upstream::start();
    let id = ToolId::parse("s/echo").expect("an id");
    bencher
        .with_inputs(Upstream::arguments)
        .bench_values(|arguments| {
            let calling = CallContext::default();
            let called = upstream
                .fixture
                .runtime
                .block_on(upstream.pool.call(&id, arguments, &calling));
            assert!(called.is_ok(), "{called:?}");
        });
}

#[divan::bench(sample_count = 500)]
fn upstream_gated(bencher: Bencher) {
    let upstream = Upstream::start();
    let tool = upstream
        .tool(&ToolId::parse("s/echo").expect("an id"))
        .expect("is offered");
    let call = || Call {
        id: "1".into(),
        tool: Arc::clone(&tool),
        arguments: Upstream::arguments(),
        is_plan_step: false,
    };
    bencher.with_inputs(call).bench_values(|call| {
        let passed = upstream.fixture.pass_in(&upstream, call);
        assert_eq!(passed.result.status, Status::Ok, "{:?}", passed.result);
    });
}

/// A server, the pool before it, and a gate with an audit log.
struct Upstream {
    fixture: Fixture,
    pool: Pool,
    catalog: Catalog,
    _folders: [tempfile::TempDir; 2],
}

impl Upstream {
    fn start() -> Self {
        let (fixture, log) = Fixture::audited(Decision::Allow);
        let folder = tempfile::tempdir().expect("a temporary folder");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mcp/doubles/server.py");
        let server = parse_server(&format!("s=python3 '{}'", script.display()), &|_| None)
            .expect("a command line");
        let catalog = DataDir::new(folder.path())
            .open_or_create("c", Options::default())
            .expect("a catalog");
        let pool = Pool::new(PoolConfig {
            servers: vec![server],
            ..PoolConfig::default()
        });
        fixture.runtime.block_on(async {
            pool.start(Arc::new(SingleWriterSink::new(catalog.clone())));
            pool.settled(Duration::from_secs(60)).await;
        });
        Upstream {
            fixture,
            pool,
            catalog,
            _folders: [log, folder],
        }
    }

    fn arguments() -> Arguments {
        if let Value::Object(arguments) = json!({ "text": "hello" }) {
            arguments
        } else {
            Arguments::new()
        }
    }
}

impl Directory for Upstream {
    fn tool(&self, id: &ToolId) -> Option<Arc<Tool>> {
        self.catalog.searcher().tool(id)
    }

    fn callable(&self, id: &ToolId) -> Option<Arc<dyn Callable>> {
        self.pool.find(id)
    }
}

struct Fixture {
    gate: Gate,
    caller: Caller,
    ledger: Ledger,
    tool: Arc<Tool>,
    runtime: Runtime,
}

impl Fixture {
    fn new(decision: Decision) -> Self {
        let mut policies = Policies::permissive();
        let others = (0..RULES).map(|number| Pattern::new(format!("other{number}/*")));
        policies.rules = others
            .map(|pattern| Rule::of_tools(pattern, Decision::Deny))
            .collect();
        policies
            .rules
            .push(Rule::of_tools(Pattern::new("trading/*"), decision));
        policies.bind.insert("userId".into(), "$identity".into());
        let caller = Caller {
            who: "bench".into(),
            identity: Some("ada".into()),
            conversation: "c".into(),
            ..Caller::default()
        };
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        Fixture {
            gate: Gate::new(policies),
            caller,
            ledger: Ledger::default(),
            tool: Arc::new(tool()),
            runtime,
        }
    }

    fn audited(decision: Decision) -> (Self, tempfile::TempDir) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let log = AuditLog::open(&folder.path().join("audit.db")).expect("a log");
        let fixture = Fixture::new(decision);
        (
            Fixture {
                gate: fixture.gate.with_audit(Arc::new(log)),
                ..fixture
            },
            folder,
        )
    }

    fn arguments(&self) -> Arguments {
        let arguments =
            json!({ "side": "buy", "quantity": "7,000", "price": 7.5, "userId": "ada" });
        if let Value::Object(arguments) = arguments {
            arguments
        } else {
            Arguments::new()
        }
    }

    fn call(&self) -> Call {
        Call {
            id: "c1".into(),
            tool: self.tool.clone(),
            arguments: self.arguments(),
            is_plan_step: false,
        }
    }

    fn pass(&self, call: Call) {
        black_box(self.pass_in(&NoopTool, call));
    }

    fn pass_in(&self, directory: &dyn Directory, call: Call) -> CallOutcome {
        let context = GateContext {
            caller: &self.caller,
            ledger: &self.ledger,
            directory,
            approver: &RefuseAll,
            call_timeout: Duration::from_secs(60),
        };
        self.runtime.block_on(self.gate.pass(context, call))
    }
}

fn tool() -> Tool {
    let mut tool = Tool::new("trading", "place_order").expect("a valid name");
    let schema = json!({
        "type": "object",
        "required": ["userId", "side", "quantity", "price"],
        "properties": {
            "userId": { "type": "string" },
            "side": { "type": "string", "enum": ["BUY", "SELL"] },
            "quantity": { "type": "integer", "minimum": 1 },
            "price": { "type": "number" },
        },
    });
    if let Value::Object(schema) = schema {
        tool.input_schema = schema;
    }
    tool
}

/// A tool that does nothing.
struct NoopTool;

#[async_trait]
impl Callable for NoopTool {
    async fn call(&self, _: Arguments) -> Result<Value, ToolFailure> {
        Ok(Value::Null)
    }
}

impl Directory for NoopTool {
    fn tool(&self, _: &ToolId) -> Option<Arc<Tool>> {
        None
    }

    fn callable(&self, _: &ToolId) -> Option<Arc<dyn Callable>> {
        Some(Arc::new(NoopTool))
    }
}
