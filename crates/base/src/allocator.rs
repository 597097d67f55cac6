//! The allocator of the process.

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

/// Fixes the size of allocations that are mapped. glibc raises it to that of the largest that was
/// freed, and the vectors of a catalog would then leave holes in the heap.
pub fn map_large_allocations() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: the function may be called at any time; a value that it refuses changes nothing.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES);
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_BYTES);
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
