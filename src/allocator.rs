//! The allocator of the process.

/// Tools from which on it is worth giving freed memory back: all arenas are locked in turn for it.
pub const MANY_TOOLS: usize = 1_000;

/// Gives memory that was freed back to the system. What a large change needed would stay with the
/// process otherwise, since glibc keeps most of it for later.
pub fn release_freed() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: the function may be called at any time, by any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}
