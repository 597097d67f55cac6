//! Large loads: work that goes on after its request was answered, with progress, a result and a way
//! to end it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use utoipa::ToSchema;
use uuid::Uuid;

use super::App;
use super::access::Grant;
use super::error::{ApiError, ApiResult};
use super::extract::{Json, Path};
use super::wire::{ChangeCounts, ItemError, ItemResult};

/// Tasks that are remembered. The oldest that has ended makes room for a new one.
const MAX_KEPT: usize = 1000;
/// Tasks that run or wait at one time.
const MAX_ACTIVE: usize = 32;
/// Failed items that a task's result lists; all of them are counted.
pub const MAX_LISTED_FAILURES: usize = 1000;

/// Where a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum TaskStatus {
    /// At work.
    Running,
    /// Everything was committed.
    Succeeded,
    /// It ended early; `error` says why and `result` what was committed before.
    Failed,
    /// It was cancelled; `result` says what was committed before.
    Cancelled,
}

/// A task as it is shown.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Task)]
pub struct TaskBody {
    /// Its id.
    pub id: String,
    /// The catalog it works on.
    pub catalog: String,
    /// Where it is.
    pub status: TaskStatus,
    /// Tools done so far.
    pub done: usize,
    /// Tools in all.
    pub total: usize,
    /// What was committed so far.
    pub result: ChangeCounts,
    /// The first failed items.
    pub failures: Vec<ItemResult>,
    /// Why it failed.
    pub error: Option<ItemError>,
}

/// A task at work.
pub struct Task {
    body: Mutex<TaskBody>,
    cancel: CancellationToken,
}

impl Task {
    /// Its id.
    pub fn id(&self) -> String {
        self.lock().id.clone()
    }

    /// True once it should end.
    pub fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }

    /// Changes what is shown.
    pub fn update(&self, change: impl FnOnce(&mut TaskBody)) {
        change(&mut self.lock());
    }

    fn end(&self, outcome: &ApiResult<()>) {
        let cancelled = self.is_cancelled();
        self.update(|body| match outcome {
            Err(error) => {
                body.status = TaskStatus::Failed;
                body.error = Some(error.into());
            }
            Ok(()) if cancelled && body.done < body.total => body.status = TaskStatus::Cancelled,
            Ok(()) => body.status = TaskStatus::Succeeded,
        });
    }

    fn is_active(&self) -> bool {
        self.lock().status == TaskStatus::Running
    }

    fn lock(&self) -> MutexGuard<'_, TaskBody> {
        self.body.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The tasks of this server. They are kept in memory: what they committed outlives the process,
/// their reports do not.
pub struct Tasks {
    kept: Mutex<VecDeque<Arc<Task>>>,
    /// Tasks at work, for whoever waits for the last one.
    active: watch::Sender<usize>,
}

impl Default for Tasks {
    fn default() -> Self {
        Tasks {
            kept: Mutex::default(),
            active: watch::Sender::new(0),
        }
    }
}

impl Tasks {
    /// Starts a task over `total` tools of a catalog.
    ///
    /// # Errors
    /// 429 when too many are at work.
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
        let (tasks, running) = (Arc::clone(self), Arc::clone(&task));
        tokio::spawn(async move {
            // In a task of its own, so that a panic ends it as failed.
            let outcome = tokio::spawn(future)
                .await
                .unwrap_or_else(|error| Err(ApiError::internal(error)));
            if let Err(ApiError {
                detail: Some(detail),
                ..
            }) = &outcome
            {
                tracing::error!(task = running.id(), detail, "task failed");
            }
            running.end(&outcome);
            tasks.active.send_modify(|active| *active -= 1);
        });
        Ok(task)
    }

    /// The task of this id.
    pub fn find(&self, id: &str) -> Option<Arc<Task>> {
        self.lock()
            .iter()
            .find(|task| task.lock().id == id)
            .cloned()
    }

    /// Waits until none is at work.
    pub async fn ended(&self) {
        // The sender lives as long as `self`.
        let _ = self
            .active
            .subscribe()
            .wait_for(|active| *active == 0)
            .await;
    }

    /// Asks all to end after the change they are at.
    pub fn cancel_all(&self) {
        self.lock().iter().for_each(|task| task.cancel.cancel());
    }

    fn add(&self, catalog: &str, total: usize) -> ApiResult<Arc<Task>> {
        let mut kept = self.lock();
        if *self.active.borrow() >= MAX_ACTIVE {
            let message = format!(
                "{MAX_ACTIVE} tasks are at work, the most there may be; wait for one to end"
            );
            return Err(ApiError::busy(
                StatusCode::TOO_MANY_REQUESTS,
                "too_many_tasks",
                message,
            ));
        }
        if kept.len() >= MAX_KEPT
            && let Some(oldest) = kept.iter().position(|task| !task.is_active())
        {
            kept.remove(oldest);
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
                error: None,
            }),
            cancel: CancellationToken::new(),
        });
        kept.push_back(Arc::clone(&task));
        self.active.send_modify(|active| *active += 1);
        Ok(task)
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Arc<Task>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The answer to a request that became a task.
pub fn accepted(task: &Task) -> Response {
    let body = task.lock().clone();
    let location = HeaderValue::from_str(&format!("/v1/tasks/{}", body.id));
    let mut response = (StatusCode::ACCEPTED, Json(body)).into_response();
    if let Ok(location) = location {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}

/// Shows a task.
#[utoipa::path(
    get, path = "/v1/tasks/{id}", operation_id = "show_task", tag = "tasks",
    params(("id" = String, Path, description = "The task's id")),
    responses((status = 200, body = TaskBody))
)]
pub async fn show(
    grant: Grant,
    State(app): State<App>,
    Path(id): Path<String>,
) -> ApiResult<Json<TaskBody>> {
    let task = find_allowed(&app, &grant, &id)?;
    let body = task.lock().clone();
    Ok(Json(body))
}

/// Cancels a task: it ends after the change it is at, and what was committed stays.
#[utoipa::path(
    delete, path = "/v1/tasks/{id}", operation_id = "cancel_task", tag = "tasks",
    params(("id" = String, Path, description = "The task's id")),
    responses((status = 202, body = TaskBody))
)]
pub async fn cancel(
    grant: Grant,
    State(app): State<App>,
    Path(id): Path<String>,
) -> ApiResult<Response> {
    let task = find_allowed(&app, &grant, &id)?;
    task.cancel.cancel();
    Ok(accepted(&task))
}

/// A task of another tenant is as unknown as one that never was.
fn find_allowed(app: &App, grant: &Grant, id: &str) -> ApiResult<Arc<Task>> {
    let unknown = || {
        ApiError::not_found(
            "unknown_task",
            format!("no task {id:?}; tasks are forgotten when the server restarts"),
        )
    };
    let task = app.tasks.find(id).ok_or_else(unknown)?;
    let catalog = task.lock().catalog.clone();
    if !grant.sees(&catalog) {
        return Err(unknown());
    }
    grant.writes(&catalog)?;
    Ok(task)
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
        tasks.ended().await;
        assert_eq!(good.lock().status, TaskStatus::Succeeded);
        for failed in [bad, panics] {
            assert_eq!(failed.lock().status, TaskStatus::Failed);
            assert!(
                !failed
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
        let started: Vec<_> = (0..MAX_ACTIVE)
            .map(|_| tasks.start("c", 5, wait).unwrap())
            .collect();
        assert_eq!(
            tasks.start("c", 5, wait).err().unwrap().code,
            "too_many_tasks"
        );
        tasks.cancel_all();
        tasks.ended().await;
        assert!(
            started
                .iter()
                .all(|task| task.lock().status == TaskStatus::Cancelled)
        );
        tasks.start("c", 5, wait).unwrap();
    }
}
