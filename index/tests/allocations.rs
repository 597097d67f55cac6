//! Bounds the memory that reading tools takes, counted by the allocator of this test binary.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use toolscout_index::Error;
use toolscout_index::formats::{self, Parsed, ReadOptions};

const MIB: usize = 1 << 20;

struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
/// Tests run one after the other, since the counts are of the whole process.
static MEASURING: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    MEASURING.lock().unwrap_or_else(PoisonError::into_inner)
}

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(now, Ordering::Relaxed);
        // SAFETY: the caller keeps `alloc`'s contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps `dealloc`'s contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Reads an input; returns also the most bytes in use at any time, without the input itself.
fn read(input: &str) -> (Result<Parsed, Error>, usize) {
    let before = NOW.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let parsed = formats::parse(input.as_bytes(), &ReadOptions::default());
    (parsed, PEAK.load(Ordering::Relaxed) - before)
}

/// The memory that reading may take: 24 times the input and 64 MiB, and half as much again while a
/// list grows.
fn bound(input: &str) -> usize {
    (24 * input.len() + 64 * MIB) * 3 / 2
}

/// About this many bytes of units, between head and tail.
fn filled(bytes: usize, head: &str, unit: &str, tail: &str) -> String {
    let times = bytes / unit.len();
    let body = unit.repeat(times);
    format!("{head}{}{tail}", body.trim_end_matches(','))
}

#[test]
fn a_list_without_tools_takes_no_memory_and_reading_stops_early() {
    let _alone = alone();
    for unit in ["0,", "{},", "\"\",", "{\"a\":0},", "[0],"] {
        for (head, tail) in [
            ("[", "]"),
            ("{\"tools\":[", "]}"),
            ("{\"result\":{\"tools\":[", "]}}"),
            ("[[[", "]]]"),
        ] {
            let input = filled(MIB, head, unit, tail);
            let (parsed, peak) = read(&input);
            let message = parsed.expect_err("nothing of it is a tool").to_string();
            assert!(
                message.contains("1000") || message.contains("no known tool format"),
                "{head}{unit}: {message}"
            );
            assert!(
                peak < input.len(),
                "{head}{unit}: {peak} bytes for {}",
                input.len()
            );
        }
    }
}

#[test]
fn lines_without_tools_take_no_memory_and_reading_stops_early() {
    let _alone = alone();
    for unit in ["[0]\n", "{}\n", "{\"a\":\n"] {
        let input = filled(MIB, "{\"name\":\"a\"}\n", unit, "");
        let (parsed, peak) = read(&input);
        let message = parsed
            .expect_err("too many of them are no tools")
            .to_string();
        assert!(message.contains("1000"), "{unit}: {message}");
        assert!(
            peak < input.len(),
            "{unit}: {peak} bytes for {}",
            input.len()
        );
    }
}

#[test]
fn memory_of_dense_values_in_a_tool_is_bounded_by_their_length() {
    let _alone = alone();
    let schema = |inner: &str| {
        (
            format!("{{\"name\":\"a\",\"inputSchema\":{{\"enum\":{inner}"),
            "}}",
        )
    };
    for (inner, unit, close) in [("[", "0,", "]"), ("[", "{\"\":0},", "]")] {
        let (head, tail) = schema(inner);
        let input = filled(8 * MIB, &head, unit, &format!("{close}{tail}"));
        let (parsed, peak) = read(&input);
        let message = parsed.expect_err("far more memory than text").to_string();
        assert!(message.contains("memory"), "{unit}: {message}");
        assert!(
            peak < bound(&input),
            "{unit}: {peak} bytes for {}",
            input.len()
        );
    }
}

#[test]
fn memory_of_many_small_tools_is_bounded_by_their_length() {
    let _alone = alone();
    let names: String = (0..300_000)
        .map(|number| format!("{{\"name\":\"{number}\"}},"))
        .collect();
    let input = format!("[{}]", names.trim_end_matches(','));
    let (parsed, peak) = read(&input);
    let message = parsed.expect_err("far more memory than text").to_string();
    assert!(message.contains("memory"), "{message}");
    assert!(peak < bound(&input), "{peak} bytes for {}", input.len());
}

#[test]
fn memory_of_yaml_is_bounded_like_that_of_json() {
    let _alone = alone();
    for (head, unit, tail) in [("a: [", "0,", "]"), ("tools:\n", "- 0\n", "")] {
        let input = filled(4 * MIB, head, unit, tail);
        let (parsed, peak) = read(&input);
        assert!(parsed.is_err(), "{unit}");
        // The parser's own list grows by doubling.
        assert!(
            peak < 2 * bound(&input),
            "{unit}: {peak} bytes for {}",
            input.len()
        );
    }
}

#[test]
fn memory_of_an_openapi_document_with_shared_parts_is_bounded() {
    let _alone = alone();
    let security = "{\"key\":[]},".repeat(500);
    let security = security.trim_end_matches(',');
    let description = "word ".repeat(4_000);
    let shared = format!(
        "\"description\":\"{description}\",\"tags\":[\"{description}\"],\"servers\":[{{\"url\":\"https://{description}\"}}]"
    );
    let paths: String = (0..5_000)
        .map(|path| format!("\"/{path}\":{{\"$ref\":\"#/shared\"}},"))
        .collect();
    let paths = paths.trim_end_matches(',');
    let input = format!(
        "{{\"openapi\":\"3.1.0\",\"security\":[{security}],\"shared\":{{\"get\":{{{shared}}}}},\"paths\":{{{paths}}}}}"
    );
    let (parsed, peak) = read(&input);
    let message = parsed
        .map(|parsed| parsed.tools.len())
        .expect_err("it says the same for each path")
        .to_string();
    assert!(message.contains("memory"), "{message}");
    assert!(peak < bound(&input), "{peak} bytes for {}", input.len());
}

#[test]
fn a_server_url_whose_variables_multiply_is_not_filled_in() {
    let _alone = alone();
    let url = "{a}".repeat(2_000);
    let default = "x".repeat(6_000);
    let server =
        format!("{{\"url\":\"{url}\",\"variables\":{{\"a\":{{\"default\":\"{default}\"}}}}}}");
    let input = format!(
        "{{\"openapi\":\"3.1.0\",\"servers\":[{server}],\"paths\":{{\"/a\":{{\"get\":{{}}}}}}}}"
    );
    let (parsed, peak) = read(&input);
    assert_eq!(parsed.unwrap().tools.len(), 1);
    assert!(peak < 1 << 20, "{peak} bytes for {}", input.len());
}
