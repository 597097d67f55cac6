//! Binding the address, and serving until the shutdown.

mod connection;
mod lifecycle;

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use tokio::net::TcpListener;
use tokio::task::spawn_blocking;

use crate::access::Exposure;
use crate::process::shutdown::Shutdown;
use crate::router::router;
use crate::state::{App, Parts};
use toolscout_state::keys::{KeyError, KeyStore};

/// Binds the address, unless that would open a server without keys to a network. `keys` opens the
/// keys, where they decide.
///
/// # Errors
/// When the address cannot be bound, or is not a loopback address while there are no keys and
/// [`Exposure::Loopback`] is set.
pub async fn bind(
    address: SocketAddr,
    exposure: Exposure,
    keys: impl FnOnce() -> Result<KeyStore, KeyError>,
) -> anyhow::Result<TcpListener> {
    if !address.ip().is_loopback() && exposure == Exposure::Loopback {
        let keys = keys()?;
        let is_in_use = spawn_blocking(move || keys.is_in_use()).await?;
        if !is_in_use? {
            bail!(
                "{address} can be reached from other machines and there are no API keys; create one with `toolscout \
                 keys create`, or start with --insecure-no-keys to let everyone in"
            );
        }
    }
    TcpListener::bind(address)
        .await
        .with_context(|| format!("cannot listen on {address}"))
}

/// Serves the API until the shutdown. Then open requests are answered, tasks and changes finished,
/// and streams ended.
///
/// # Errors
/// When the data directory cannot be used.
pub async fn serve(listener: TcpListener, parts: Parts, shutdown: Shutdown) -> anyhow::Result<()> {
    let app = App::new(parts, shutdown.clone())?;
    let connections = connection::serve(
        listener,
        router(app.clone()),
        &app.limits,
        Arc::clone(&app.metrics),
        shutdown.clone(),
    );
    // Connections are accepted meanwhile, so that /livez and /readyz answer from the start.
    let opening = async {
        let opened = lifecycle::open_catalogs(&app).await;
        // Without this the server would accept connections and never become ready.
        if opened.is_err() {
            shutdown.trigger();
        }
        opened
    };
    let ((), opened) = tokio::join!(connections, opening);
    // Only after the last request, since its changes may still be queued.
    lifecycle::close(&app).await;
    opened
}
