//! Logs of the short-lived verbs; `serve` has flags of its own for this.

use tracing_subscriber::EnvFilter;

use super::output::colour_wanted;
use crate::telemetry;

/// Sends logs to stderr at the level of `TOOLSCOUT_LOG`, by default warnings. Of the ONNX Runtime
/// only errors are logged: its warnings concern its own build, and no user can act on them.
pub fn start() {
    let filter = EnvFilter::try_from_env("TOOLSCOUT_LOG")
        .unwrap_or_else(|_| EnvFilter::new("warn,ort=error"));
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(telemetry::without_sdk_noise(filter))
        .with_writer(telemetry::stderr);
    // Fails only where a test or an embedding program has set up logging before; that one stays.
    let _ = subscriber.with_ansi(colour_wanted()).try_init();
}
