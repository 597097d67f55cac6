//! The progress of a call, on its way to the client.

use std::time::Duration;

use rmcp::model::ProgressNotificationParam;
use rmcp::service::{RequestContext, RoleServer};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::connection::Progress;

/// Progress notifications that wait for a slow client; more are dropped.
const PROGRESS_QUEUE: usize = 16;
/// How long a result waits for a slow client to receive the progress before it.
const PROGRESS_PATIENCE: Duration = Duration::from_secs(1);

/// Starts to forward the progress of a call to the client, with the client's own token. The task
/// ends when the sender is dropped. `None` for a client that did not ask for progress.
pub(super) fn start_forwarding_progress(
    context: &RequestContext<RoleServer>,
) -> Option<(mpsc::Sender<Progress>, JoinHandle<()>)> {
    let (peer, token) = (context.peer.clone(), context.meta.get_progress_token()?);
    let (sender, mut steps) = mpsc::channel::<Progress>(PROGRESS_QUEUE);
    let task = tokio::spawn(async move {
        while let Some(Progress {
            done,
            total,
            message,
        }) = steps.recv().await
        {
            let mut step = ProgressNotificationParam::new(token.clone(), done);
            (step.total, step.message) = (total, message);
            if peer.notify_progress(step).await.is_err() {
                return;
            }
        }
    });
    Some((sender, task))
}

/// Waits until what belongs to a call was sent, which is before its result.
pub(super) async fn finish(forwarding: Option<JoinHandle<()>>) {
    if let Some(forwarding) = forwarding {
        let _ = timeout(PROGRESS_PATIENCE, forwarding).await;
    }
}
