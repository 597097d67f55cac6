//! Tasks of all nodes that share a store: each reports its own, and shows those of others.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::time::sleep;

use super::{Task, TaskStatus};
use toolscout_state::shared::{SharedStore, StoredTask};

/// How long the end of a task is tried to be reported while the store is away, and the pauses between.
const LAST_REPORT_PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_secs(1);

/// Reports a task until it has ended, and cancels it where another node was asked to.
pub(super) async fn report(task: Arc<Task>, store: Arc<dyn SharedStore>) {
    let mut reported = Value::Null;
    let mut ended: Option<Instant> = None;
    loop {
        let (id, catalog, body, is_running) = task.report();
        if !is_running {
            ended.get_or_insert_with(Instant::now);
        }
        match store.save_task(&id, &catalog, &body, is_running).await {
            Ok(_) if !is_running => {
                // Nobody waits for it.
                let _ = store.forget_tasks().await;
                return;
            }
            Ok(is_cancelled) => {
                // A request to another node has cancelled it.
                if is_cancelled {
                    task.cancel.cancel();
                }
                reported = body;
            }
            Err(error) if ended.is_some_and(|ended| ended.elapsed() > LAST_REPORT_PATIENCE) => {
                tracing::warn!(task = id, %error, "other nodes do not learn how a task ended");
                return;
            }
            // The store is away. The task goes on and is reported once the store is back.
            Err(_) => {}
        }
        if ended.is_some() {
            sleep(PAUSE).await;
        } else if task.report().2 == reported {
            tokio::select! {
                () = store.report_due(&id) => {}
                () = task.ended.cancelled() => {}
            }
        } else {
            sleep(PAUSE).await;
        }
    }
}

/// The body of a task of another node.
pub(super) fn body_of(stored: StoredTask) -> Value {
    let mut body = stored.body;
    // The node is gone without reporting the end, so its last report still says that the task runs.
    if stored.is_lost && body["status"] == json!(TaskStatus::Running) {
        body["status"] = json!(TaskStatus::Failed);
        body["error"] = json!({
            "code": "node_lost",
            "message": "the server that ran the task is gone; `result` is what it had committed when it last said so, \
                        send what is missing again",
        });
    }
    body
}
