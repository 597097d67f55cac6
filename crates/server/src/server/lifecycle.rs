//! What a server does besides answering requests: it opens its catalogs, looks after them in the background, and
//! closes them.

use std::time::Duration;

use anyhow::bail;
use tokio::time::timeout;

use crate::catalogs::enrich::write_by_itself;
use crate::dropin::warn_of_missing_keys;
use crate::request::error::ApiResult;
use crate::request::threads::blocking;
use crate::state::App;
use toolscout_agent::Agents;

/// How long a cancelled task may take for its next step, one commit of at most 500 tools.
const LAST_STEP_TIMEOUT: Duration = Duration::from_secs(30);

/// How often copies of catalogs are looked for that other nodes have deleted.
const SWEEP: Duration = Duration::from_secs(2);

/// Opens every catalog and creates the default one. The server is ready from then on.
///
/// # Errors
/// When the data directory cannot be read or the default catalog cannot be opened.
pub async fn open_catalogs(app: &App) -> anyhow::Result<()> {
    if let Some(store) = &app.store {
        store
            .clone()
            .follow(app.audit_logs.path(), app.usage.local());
    }
    let default = app.default_catalog.name();
    let opened = match app.catalogs.create(default).await {
        Ok((catalog, _)) => {
            app.default_catalog.open(catalog);
            app.catalogs.open_all(default).await
        }
        // A damaged default catalog does not keep the others from being served. Its own routes
        // answer with what is wrong.
        Err(_) if app.catalogs.damage(default).is_some() => app.catalogs.open_all(default).await,
        Err(error) => Err(error),
    };
    if let Err(error) = opened {
        bail!("{}", error.detail.unwrap_or(error.message));
    }
    warn_of_missing_keys(app.dropin.provider.as_ref(), &app.keys).await;
    app.access.become_ready();
    // Until the shutdown.
    app.background.spawn(look_at_names(app.clone()));
    app.background.spawn(look_at_keys(app.clone()));
    let writing = write_by_itself(app.text_writer.clone(), app.cpu_pool.clone());
    app.background.spawn(writing);
    let keeper = app.figure_keeper.clone();
    app.background.spawn(keeper.run(app.shutdown.clone()));
    if app.store.is_some() {
        app.background.spawn(sweep(app.clone()));
    }
    Ok(())
}

/// Ends what keys have begun that are no longer valid, until the shutdown.
async fn look_at_keys(app: App) {
    let looking = app.key_watch.look(&app.keys);
    app.shutdown.token().run_until_cancelled(looking).await;
}

/// Gives up what the store no longer has, until the shutdown.
async fn sweep(app: App) {
    let sweeping = async {
        loop {
            tokio::time::sleep(SWEEP).await;
            if let Err(error) = forget_deleted(&app).await {
                let reason = error.detail.unwrap_or(error.message);
                tracing::warn!(reason, "copies of deleted catalogs stay for now");
            }
        }
    };
    app.shutdown.token().run_until_cancelled(sweeping).await;
}

/// Gives up copies of catalogs that other nodes have deleted, and what is recorded of their use here.
async fn forget_deleted(app: &App) -> ApiResult<()> {
    let deleted = app.catalogs.sweep().await?;
    if deleted.is_empty() {
        return Ok(());
    }
    let usage = app.usage.clone();
    let forget = move || {
        for name in &deleted {
            usage.forget(name);
        }
    };
    blocking(forget).await
}

/// Looks for names in flags and profiles that no tool has, once the MCP servers are connected, until
/// the shutdown.
async fn look_at_names(app: App) {
    let looking = async {
        app.mcp.settled().await;
        let agent = app.default_catalog.agents().map(Agents::default_agent);
        let pins = agent.map_or_else(Vec::new, |agent| agent.config().pins.clone());
        app.mcp.warn_of_unknown_names(pins).await;
        app.profiles.warn_of_mistakes().await;
    };
    app.shutdown.token().run_until_cancelled(looking).await;
}

/// Waits for runs of the agent, tasks and streamed loads up to the grace period, ends the MCP
/// servers, and writes every queued change.
pub async fn close(app: &App) {
    // Runs end first, since they call tools of the servers.
    if let Some(agent) = app.default_catalog.agent() {
        agent.close(app.limits.grace).await;
    }
    // The servers end next, since they must not write to catalogs that are being closed.
    app.default_catalog.mcp_pool().close().await;
    let loads = async { tokio::join!(app.tasks.finished(), app.streams.finished()) };
    tokio::pin!(loads);
    if timeout(app.limits.grace, &mut loads).await.is_err() {
        tracing::warn!(
            "loads were still running at the end of the grace period; they stop after their next step"
        );
        app.tasks.cancel_all();
        if timeout(LAST_STEP_TIMEOUT, loads).await.is_err() {
            tracing::error!("loads did not end after their next step; what they committed stays");
        }
    }
    if let Some(provider) = &app.dropin.provider {
        provider.close().await;
    }
    // They end with the shutdown, and must not use catalogs or the store while these close.
    app.background.close();
    if timeout(LAST_STEP_TIMEOUT, app.background.wait())
        .await
        .is_err()
    {
        tracing::error!("work in the background did not end with the shutdown");
    }
    // Only after the last call and the last search, since it records their use.
    let usage = app.usage.clone();
    if let Err(error) = blocking(move || usage.end()).await {
        tracing::error!(detail = error.detail, "use of tools was not written");
    }
    app.figure_keeper.keep().await;
    if let Err(error) = app.catalogs.close().await {
        tracing::error!(detail = error.detail, "catalogs were not closed");
    }
    // The store comes last, since queued changes are committed to it.
    if let Some(store) = &app.store {
        store.close().await;
    }
}
