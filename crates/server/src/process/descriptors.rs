//! File descriptors: raising the limit, and checking how many are in use.

#[cfg(unix)]
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// More than the default limits ever need. Not the most that the system allows: MCP servers inherit
/// the limit, and some programs close every descriptor up to it when they start.
#[cfg(unix)]
const ENOUGH: u64 = 65_536;
/// What some systems allow although they report no limit.
#[cfg(unix)]
const USUAL_HARD_LIMIT: u64 = 10_240;

/// Raises the soft limit to the hard limit, or to 65,536, and returns the new soft limit;
/// `None` for no limit.
///
/// The soft limit is 1,024 almost everywhere, for programs that use `select`. This one does not.
#[cfg(unix)]
pub fn raise_descriptor_limit() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    for wanted in [ENOUGH, USUAL_HARD_LIMIT] {
        let wanted = match limit.maximum {
            Some(maximum) => maximum.min(wanted),
            None => wanted,
        };
        // The limit is never lowered: it may have been raised on purpose.
        let is_more = limit.current.is_some_and(|current| current < wanted);
        let raised = Rlimit {
            current: Some(wanted),
            maximum: limit.maximum,
        };
        if !is_more || setrlimit(Resource::Nofile, raised).is_ok() {
            break;
        }
    }
    getrlimit(Resource::Nofile).current
}

/// Windows has no such limit.
#[cfg(not(unix))]
pub fn raise_descriptor_limit() -> Option<u64> {
    None
}

/// Whether nine tenths of the limit are in use. False on systems that do not list open descriptors.
pub fn are_nearly_used(limit: u64) -> bool {
    let Ok(open) = std::fs::read_dir("/dev/fd") else {
        return false;
    };
    // Reading the directory uses one too.
    let open = open.count().saturating_sub(1) as u64;
    open >= limit - limit / 10
}
