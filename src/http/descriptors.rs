//! File descriptors: how many the process may have, and how many it has.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// More than the bounds by default ever need. Not all that the system allows, since the processes
/// of MCP servers inherit it, and some programs close every descriptor up to the limit when they
/// start.
const ENOUGH: u64 = 65_536;
/// What some systems allow although they name no limit.
const USUAL_HARD_LIMIT: u64 = 10_240;

/// Raises the soft limit of descriptors to the hard one, or to what is enough, and gives what it is
/// then; `None` without a limit.
///
/// The soft limit is 1,024 almost everywhere for the sake of programs that use `select`, which this
/// one does not.
pub fn raise_descriptor_limit() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    for wanted in [ENOUGH, USUAL_HARD_LIMIT] {
        let wanted = limit.maximum.map_or(wanted, |maximum| maximum.min(wanted));
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

/// True when nine tenths of so many descriptors are open. False where the system does not show
/// them.
pub fn are_nearly_used(limit: u64) -> bool {
    let Ok(open) = std::fs::read_dir("/dev/fd") else {
        return false;
    };
    // Reading the folder takes one too.
    let open = open.count().saturating_sub(1) as u64;
    open >= limit - limit / 10
}
