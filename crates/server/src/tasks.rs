//! Tasks: large loads and evaluations, which continue after their request was answered, with
//! progress, a result and cancellation.

mod shared;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use utoipa::ToSchema;
use uuid::Uuid;

use super::access::Grant;
use crate::access::key_watch::Begun;
use crate::request::error::{ApiError, ApiResult, store_unavailable};
use crate::request::extract::{Json, Path};
use crate::request::wire::{ChangeCounts, ItemError, ItemResult, ToolWarning};
use toolscout_state::shared::{SharedStore, StoredTask};

/// Most stored tasks. A new one replaces the oldest that has ended.
const MAX_STORED: usize = 1000;
/// Most running tasks.
pub const MAX_RUNNING: usize = 32;
/// How long a server waits for the store to learn of a task.
const LAST_REPORT_LIMIT: Duration = Duration::from_secs(5);
/// Most failed items that a task lists; all of them are counted.
pub const MAX_LISTED_FAILURES: usize = 1000;

/// The state of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum TaskStatus {
    /// It is running.
    Running,
    /// Everything was committed.
    Succeeded,
    /// It ended early; `error` has the reason, and `result` what was committed before.
    Failed,
    /// It was cancelled; `result` has what was committed before.
    Cancelled,
}

/// A task.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Task)]
pub struct TaskBody {
    /// Its id.
    pub id: String,
    /// The catalog that it writes to, or evaluates.
    pub catalog: String,
    /// Its state.
    pub status: TaskStatus,
    /// Number of tools processed so far; of searches, for an evaluation.
    pub done: usize,
    /// Number of tools to process, or of searches.
    pub total: usize,
    /// What was committed so far.
    pub result: ChangeCounts,
    /// The first 1000 failed items.
    pub failures: Vec<ItemResult>,
    /// What of the valid tools is left out or will not work.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<ToolWarning>,
    /// The reason of a failure.
    pub error: Option<ItemError>,
    /// The evaluation that it makes, which is there once it has succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evaluation: Option<String>,
}

/// A task and its cancellation.
pub struct Task {
    body: Mutex<TaskBody>,
    cancel: CancellationToken,
    /// Cancelled once it has ended.
    ended: CancellationToken,
}

impl Task {
    /// Its id.
    pub fn id(&self) -> String {
        self.body.lock().id.clone()
    }

    /// Whether it should end.
    pub fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }

    /// Updates what clients see.
    pub fn update(&self, change: impl FnOnce(&mut TaskBody)) {
        change(&mut self.body.lock());
    }

    fn end(&self, outcome: &ApiResult<()>) {
        let cancelled = self.is_cancelled();
        self.update(|body| match outcome {
            Err(error) => {
                body.status = TaskStatus::Failed;
                body.error = Some(error.into());
            }
            // A cancellation that came too late does not undo success.
            Ok(()) if cancelled && body.done < body.total => body.status = TaskStatus::Cancelled,
            Ok(()) => body.status = TaskStatus::Succeeded,
        });
        self.ended.cancel();
    }

    /// Its id, its catalog, what clients see, and whether it is running.
    fn report(&self) -> (String, String, Value, bool) {
        let body = self.body.lock();
        let is_running = body.status == TaskStatus::Running;
        // A struct of strings and numbers always serialises.
        let shown = serde_json::to_value(&*body).unwrap_or_default();
        (body.id.clone(), body.catalog.clone(), shown, is_running)
    }

    fn is_running(&self) -> bool {
        self.body.lock().status == TaskStatus::Running
    }
}

/// The tasks of this server, in memory: what they committed survives a restart, their reports do
/// not, unless there is a store that several nodes share.
pub struct Tasks {
    stored: Mutex<VecDeque<Arc<Task>>>,
    /// Number of running tasks.
    running: watch::Sender<usize>,
    /// Where all nodes report their tasks.
    store: Option<Arc<dyn SharedStore>>,
}

impl Default for Tasks {
    fn default() -> Self {
        Tasks {
            stored: Mutex::default(),
            running: watch::Sender::new(0),
            store: None,
        }
    }
}

impl Tasks {
    /// Tasks that other nodes see too, where there is a store.
    pub fn over(store: Option<Arc<dyn SharedStore>>) -> Self {
        Tasks {
            store,
            ..Tasks::default()
        }
    }

    /// Starts a task over `total` tools or searches of a catalog.
    ///
    /// # Errors
    /// 429 when too many are running.
    pub fn start<F, W>(
        self: &Arc<Self>,
        catalog: &str,
        total: usize,
        work: W,
    ) -> ApiResult<Arc<Task>>
    where
        F: Future<Output = ApiResult<()>> + Send + 'static,
        W: FnOnce(Arc<Task>) -> F,
    {
        let task = self.add(catalog, total)?;
        let future = work(Arc::clone(&task));
        let (tasks, started) = (Arc::clone(self), Arc::clone(&task));
        let reporting = self.store.clone().map(|store| {
            let reported = Arc::clone(&task);
            tokio::spawn(shared::report(reported, store))
        });
        tokio::spawn(async move {
            // Spawned separately, so that a panic makes the task fail.
            let outcome = match tokio::spawn(future).await {
                Ok(outcome) => outcome,
                Err(error) => Err(ApiError::internal(error)),
            };
            if let Err(ApiError {
                detail: Some(detail),
                ..
            }) = &outcome
            {
                tracing::error!(task = started.id(), detail, "task failed");
            }
            started.end(&outcome);
            // Still counts as running here, so that a server that ends waits for the report.
            if let Some(reporting) = reporting {
                let _ = timeout(LAST_REPORT_LIMIT, reporting).await;
            }
            tasks.running.send_modify(|running| *running -= 1);
        });
        Ok(task)
    }

    /// The task with this id.
    pub fn find(&self, id: &str) -> Option<Arc<Task>> {
        self.stored
            .lock()
            .iter()
            .find(|task| task.body.lock().id == id)
            .cloned()
    }

    /// Number of running tasks.
    pub fn running(&self) -> usize {
        *self.running.borrow()
    }

    /// Waits until no task is running.
    pub async fn finished(&self) {
        // It fails only without a sender, which lives as long as `self`.
        let _ = self
            .running
            .subscribe()
            .wait_for(|running| *running == 0)
            .await;
    }

    /// Cancels all tasks; each ends after the change in progress.
    pub fn cancel_all(&self) {
        for task in self.stored.lock().iter() {
            task.cancel.cancel();
        }
    }

    /// The answer to a request that became a task. Other nodes know of it from then on, unless the store
    /// is away.
    pub async fn accepted(&self, task: &Task) -> Response {
        let (id, catalog, body, is_running) = task.report();
        // A task that has ended has reported itself already.
        if let Some(store) = &self.store
            && is_running
        {
            let saved = store.save_task(&id, &catalog, &body, is_running);
            if let Ok(Err(error)) = timeout(LAST_REPORT_LIMIT, saved).await {
                tracing::warn!(task = id, %error, "other nodes do not know of a task yet");
            }
        }
        let mut answer = with_location(&id, task.body.lock().clone());
        // Tells the key watch to cancel the task if its key is revoked.
        answer.extensions_mut().insert(Begun {
            over: task.ended.clone(),
            stop: task.cancel.clone(),
        });
        answer
    }

    /// The task with this id. To a key of another catalog, a task does not exist.
    ///
    /// # Errors
    /// 404 for an unknown task, 403 for a key that may not write to its catalog.
    async fn find_allowed(&self, grant: &Grant, id: &str) -> ApiResult<Found> {
        let (found, catalog) = if let Some(task) = self.find(id) {
            let catalog = task.body.lock().catalog.clone();
            (Found::Here(task), catalog)
        } else {
            let Some(store) = &self.store else {
                return Err(unknown_task(id));
            };
            let stored = store.find_task(id).await.map_err(store_unavailable)?;
            let Some(stored) = stored else {
                return Err(unknown_task(id));
            };
            let catalog = stored.catalog.clone();
            (Found::Elsewhere(stored, Arc::clone(store)), catalog)
        };
        // The same answer as for an unknown task, so that ids reveal nothing of other catalogs.
        if !grant.sees(&catalog) {
            return Err(unknown_task(id));
        }
        grant.writes(&catalog)?;
        Ok(found)
    }

    fn add(&self, catalog: &str, total: usize) -> ApiResult<Arc<Task>> {
        let mut stored = self.stored.lock();
        if *self.running.borrow() >= MAX_RUNNING {
            let message =
                format!("{MAX_RUNNING} tasks are running, the maximum; wait for one to end");
            return Err(ApiError::busy(
                StatusCode::TOO_MANY_REQUESTS,
                "too_many_tasks",
                message,
            ));
        }
        if stored.len() >= MAX_STORED
            && let Some(oldest) = stored.iter().position(|task| !task.is_running())
        {
            stored.remove(oldest);
        }
        let task = Arc::new(Task {
            body: Mutex::new(TaskBody {
                id: Uuid::now_v7().to_string(),
                catalog: catalog.to_owned(),
                status: TaskStatus::Running,
                done: 0,
                total,
                result: ChangeCounts::default(),
                failures: Vec::new(),
                warnings: Vec::new(),
                error: None,
                evaluation: None,
            }),
            cancel: CancellationToken::new(),
            ended: CancellationToken::new(),
        });
        stored.push_back(Arc::clone(&task));
        self.running.send_modify(|running| *running += 1);
        Ok(task)
    }
}

fn unknown_task(id: &str) -> ApiError {
    let message = format!("no task {id:?}; a restart of the server deletes tasks");
    ApiError::not_found("unknown_task", message)
}

fn with_location(id: &str, body: impl Serialize) -> Response {
    let location = [(header::LOCATION, format!("/v1/tasks/{id}"))];
    (StatusCode::ACCEPTED, location, Json(body)).into_response()
}

/// Shows a task.
#[utoipa::path(
    get, path = "/v1/tasks/{id}", operation_id = "show_task", tag = "tasks",
    params(("id" = String, Path, description = "The task's id")),
    responses((status = 200, body = TaskBody, description = "The task"))
)]
pub async fn show(
    grant: Grant,
    State(tasks): State<Arc<Tasks>>,
    Path(id): Path<String>,
) -> ApiResult<Response> {
    Ok(match tasks.find_allowed(&grant, &id).await? {
        Found::Here(task) => {
            let body = task.body.lock().clone();
            Json(body).into_response()
        }
        Found::Elsewhere(stored, _) => Json(shared::body_of(stored)).into_response(),
    })
}

/// Cancels a task. It ends after the change in progress, and what was committed stays.
#[utoipa::path(
    delete, path = "/v1/tasks/{id}", operation_id = "cancel_task", tag = "tasks",
    params(("id" = String, Path, description = "The task's id")),
    responses((status = 202, body = TaskBody, description = "The task, which ends soon"))
)]
pub async fn cancel(
    grant: Grant,
    State(tasks): State<Arc<Tasks>>,
    Path(id): Path<String>,
) -> ApiResult<Response> {
    match tasks.find_allowed(&grant, &id).await? {
        Found::Here(task) => {
            task.cancel.cancel();
            let body = task.body.lock().clone();
            Ok(with_location(&id, body))
        }
        Found::Elsewhere(stored, store) => {
            store.cancel_task(&id).await.map_err(store_unavailable)?;
            Ok(with_location(&id, shared::body_of(stored)))
        }
    }
}

/// A task of this node, or what another one has said of its own in the store.
enum Found {
    Here(Arc<Task>),
    Elsewhere(StoredTask, Arc<dyn SharedStore>),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_ends_with_its_outcome() {
        let tasks = Arc::new(Tasks::default());
        let good = tasks
            .start("c", 1, |task| async move {
                task.update(|body| body.done = 1);
                Ok(())
            })
            .unwrap();
        let bad = tasks
            .start("c", 1, |_| async { Err(ApiError::internal("secret")) })
            .unwrap();
        let panics = tasks.start("c", 1, |_| async { panic!("secret") }).unwrap();
        tasks.finished().await;
        assert_eq!(good.body.lock().status, TaskStatus::Succeeded);
        for failed in [bad, panics] {
            assert_eq!(failed.body.lock().status, TaskStatus::Failed);
            assert!(
                !failed
                    .body
                    .lock()
                    .error
                    .as_ref()
                    .unwrap()
                    .message
                    .contains("secret")
            );
        }
    }

    #[tokio::test]
    async fn a_cancelled_task_says_so_and_active_ones_are_bounded() {
        let tasks = Arc::new(Tasks::default());
        let wait = |task: Arc<Task>| async move {
            task.cancel.cancelled().await;
            Ok(())
        };
        let started: Vec<_> = (0..MAX_RUNNING)
            .map(|_| tasks.start("c", 5, wait).unwrap())
            .collect();
        assert_eq!(
            tasks.start("c", 5, wait).err().unwrap().code,
            "too_many_tasks"
        );
        tasks.cancel_all();
        tasks.finished().await;
        assert!(
            started
                .iter()
                .all(|task| task.body.lock().status == TaskStatus::Cancelled)
        );
        tasks.start("c", 5, wait).unwrap();
    }
}
