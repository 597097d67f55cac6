//! What the system knows of this process.

use std::fs;

/// Resident memory in bytes, where the system tells it (Linux).
pub fn resident_bytes() -> Option<u64> {
    status_bytes("VmRSS:")
}

/// Peak resident memory in bytes, where the system tells it (Linux).
pub fn peak_resident_bytes() -> Option<u64> {
    status_bytes("VmHWM:")
}

/// Memory that this process may use in bytes: that of the machine, or of its control group where that
/// has less. Where the system tells it (Linux).
pub fn memory_limit_bytes() -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo").ok()?;
    let machine = kib_of(&machine, "MemTotal:")? << 10;
    // Version 2 of control groups, and version 1. Without a limit the first is `max`.
    let groups = [
        "/sys/fs/cgroup/memory.max",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
    ];
    let mut least = machine;
    for path in groups {
        let Ok(text) = fs::read_to_string(path) else {
            continue;
        };
        // Version 1 says a number near the largest one where there is no limit.
        if let Ok(limit) = text.trim().parse() {
            least = least.min(limit);
        }
    }
    Some(least)
}

fn status_bytes(key: &str) -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    kib_of(&status, key).map(|kib| kib << 10)
}

/// The value of a line as `VmRSS:    2048 kB`.
fn kib_of(status: &str, key: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(key))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_from_the_status_file() {
        assert_eq!(
            kib_of("VmPeak:\t  10 kB\nVmHWM:\t  2048 kB\n", "VmHWM:"),
            Some(2048)
        );
        assert_eq!(kib_of("Name: x\n", "VmHWM:"), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_process_has_memory() {
        assert!(resident_bytes().is_some_and(|bytes| bytes > 1 << 20));
    }
}
