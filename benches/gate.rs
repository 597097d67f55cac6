//! What the gate costs a call that nobody is asked about, beside the tool itself.
//!
//! `judge`: class, rule, identity, normalising and checking of a call with four arguments, two of
//! which have to be changed, under 20 rules. `tool_alone`: a tool that does nothing, in the task of
//! its own that contains it. `pass`: the judged call let through to that tool. `pass_audited`: that
//! with both of its entries in the audit log on disk. `deny_audited`: a call that is refused and
//! written down. The gate costs what is left without `tool_alone`.
//!
//! `upstream_alone` and `upstream_gated` are calls of an MCP server, a small one in Python, by the
//! pool alone and as the gateway makes them: judged, written down and let through to the pool. The
//! gate before calls of the gateway costs the difference.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use divan::{Bencher, black_box};
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};
use toolscout::gate::approval::RefuseAll;
use toolscout::gate::{
    AuditLog, Call, Caller, Decision, Directory, Gate, Ledger, Passage, Passed, Pattern, Policies,
    Rule,
};
use toolscout::mcp::config::parse_server;
use toolscout::mcp::{CallContext, Pool, PoolConfig, SingleWriterSink};
use toolscout::tools::{Arguments, Callable, Status, ToolFailure, Toolset, execute};
use toolscout_index::{Catalog, DataDir, Options, Tool, ToolId};

/// Rules before the one that fits.
const RULES: usize = 20;

fn main() {
    divan::main();
}

#[divan::bench(sample_count = 1_000)]
fn judge(bencher: Bencher) {
    let bed = Bed::new(Decision::Allow);
    bencher
        .with_inputs(|| bed.arguments())
        .bench_values(|arguments| bed.gate.check(&bed.caller, &bed.tool, arguments));
}

#[divan::bench(sample_count = 1_000)]
fn tool_alone(bencher: Bencher) {
    let bed = Bed::new(Decision::Allow);
    let limit = Duration::from_secs(60);
    bencher.bench(|| {
        bed.runtime
            .block_on(execute(Arc::new(Nothing), Arguments::new(), limit))
    });
}

#[divan::bench(sample_count = 1_000)]
fn pass(bencher: Bencher) {
    let bed = Bed::new(Decision::Allow);
    bencher
        .with_inputs(|| bed.call())
        .bench_values(|call| bed.pass(call));
}

#[divan::bench(sample_count = 1_000)]
fn pass_audited(bencher: Bencher) {
    let (bed, _folder) = Bed::audited(Decision::Allow);
    bencher
        .with_inputs(|| bed.call())
        .bench_values(|call| bed.pass(call));
}

#[divan::bench(sample_count = 1_000)]
fn deny_audited(bencher: Bencher) {
    let (bed, _folder) = Bed::audited(Decision::Deny);
    bencher
        .with_inputs(|| bed.call())
        .bench_values(|call| bed.pass(call));
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
                .bed
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
    };
    bencher.with_inputs(call).bench_values(|call| {
        let passed = upstream.bed.pass_in(&upstream, call);
        assert_eq!(passed.result.status, Status::Ok, "{passed:?}");
    });
}

/// A server, the pool before it, and a gate with an audit log.
struct Upstream {
    bed: Bed,
    pool: Pool,
    catalog: Catalog,
    _folders: [tempfile::TempDir; 2],
}

impl Upstream {
    fn start() -> Self {
        let (bed, log) = Bed::audited(Decision::Allow);
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
        bed.runtime.block_on(async {
            pool.start(Arc::new(SingleWriterSink::new(catalog.clone())));
            pool.settled(Duration::from_secs(60)).await;
        });
        Upstream {
            bed,
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

struct Bed {
    gate: Gate,
    caller: Caller,
    ledger: Ledger,
    tool: Arc<Tool>,
    runtime: Runtime,
}

impl Bed {
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
        Bed {
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
        let bed = Bed::new(decision);
        (
            Bed {
                gate: bed.gate.with_audit(Arc::new(log)),
                ..bed
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
        }
    }

    fn pass(&self, call: Call) {
        black_box(self.pass_in(&Nothing, call));
    }

    fn pass_in(&self, directory: &dyn Directory, call: Call) -> Passed {
        let passage = Passage {
            caller: &self.caller,
            ledger: &self.ledger,
            directory,
            approver: &RefuseAll,
            call_timeout: Duration::from_secs(60),
        };
        self.runtime.block_on(self.gate.pass(passage, call))
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
struct Nothing;

#[async_trait]
impl Callable for Nothing {
    async fn call(&self, _: Arguments) -> Result<Value, ToolFailure> {
        Ok(Value::Null)
    }
}

impl Directory for Nothing {
    fn tool(&self, _: &ToolId) -> Option<Arc<Tool>> {
        None
    }

    fn callable(&self, _: &ToolId) -> Option<Arc<dyn Callable>> {
        Some(Arc::new(Nothing))
    }
}
