//! TLS of every HTTP client: rustls with ring, which is a small part of the build beside AWS-LC.

use std::sync::Once;

use rustls::crypto::ring;

/// Builds HTTP clients.
#[expect(clippy::disallowed_methods, reason = "the provider is set")]
pub fn client() -> reqwest::ClientBuilder {
    provide();
    reqwest::Client::builder()
}

/// Builds HTTP clients that block.
#[expect(clippy::disallowed_methods, reason = "the provider is set")]
pub fn blocking_client() -> reqwest::blocking::ClientBuilder {
    provide();
    reqwest::blocking::Client::builder()
}

/// Sets the provider of cryptography, which reqwest does not choose itself, unless the program that
/// this library is part of has set one.
pub fn provide() {
    static PROVIDED: Once = Once::new();
    PROVIDED.call_once(|| {
        // An error says that there is one.
        let _ = ring::default_provider().install_default();
    });
}

/// Whether a server is on this machine.
pub fn is_loopback(url: &reqwest::Url) -> bool {
    matches!(url.host_str(), Some("localhost" | "127.0.0.1" | "[::1]"))
}

/// The innermost cause of an HTTP client's error; the outer ones repeat the URL.
pub fn root_cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
