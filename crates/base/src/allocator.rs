//! The allocator of the process.

#[cfg(all(target_os = "linux", target_env = "gnu"))]
use std::num::NonZero;

/// Tools from which on it is worth giving freed memory back: all arenas are locked in turn for it.
pub const MANY_TOOLS: usize = 1_000;

/// Bytes from which on an allocation is a mapping of its own, which the system gets back when it is
/// freed. That takes long enough for searches not to do it: one of half a million tools has no larger one.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const MAPPED_BYTES: i32 = 4 << 20;
/// Freed bytes at the end of a heap that are kept for later. With much less, searches of hundreds of
/// thousands of tools give memory back and take it again, each.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const KEPT_BYTES: i32 = 64 << 20;
/// With one arena, threads wait for each other.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const FEWEST_ARENAS: usize = 2;

/// Makes glibc keep less freed memory; call it before other threads begin.
///
/// It fixes the size of allocations that are mapped: glibc raises it to that of the largest that was
/// freed, and the vectors of a catalog would then leave holes in the heap. And it allows one arena a
/// core instead of eight, since each arena keeps what a write once needed.
pub fn keep_less_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        let arenas = cores.max(FEWEST_ARENAS).try_into().unwrap_or(i32::MAX);
        // SAFETY: the function may be called at any time; a value that it refuses changes nothing.
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES);
            libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_BYTES);
            libc::mallopt(libc::M_ARENA_MAX, arenas);
        }
    }
}

/// Gives memory that was freed back to the system. What a large change needed would stay with the
/// process otherwise, since glibc keeps most of it for later.
pub fn release_freed() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: the function may be called at any time, by any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}
