//! Ports for servers that a test ends and starts again.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};

/// Below the ports that Linux and macOS give to connections and to servers that ask for any.
const FIRST: u16 = 20_000;
const COUNT: u32 = 12_000;

/// A port that nothing listens on, and that the system gives to nobody while its server is down.
pub fn free_port() -> u16 {
    static TRIED: AtomicU32 = AtomicU32::new(0);
    // Tests run in processes of their own at the same time, so each begins elsewhere.
    let begin = std::process::id().wrapping_mul(97);
    loop {
        let tried = TRIED.fetch_add(1, Ordering::Relaxed);
        assert!(
            tried < COUNT,
            "no port of {FIRST} and the {COUNT} after it is free"
        );
        let port = FIRST + (begin.wrapping_add(tried) % COUNT) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
