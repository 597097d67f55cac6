//! The engine's tests, in one program: each one more costs 110 MB and the linking.
#![allow(
    clippy::print_stdout,
    reason = "a test says its seed and what it skips"
)]

mod child;
mod world;

mod changes;
mod companions;
mod damage;
mod durability;
mod enrichment;
mod everyday;
mod flagged;
mod following;
mod formats;
mod graph;
#[cfg(unix)]
mod kill;
mod kinds;
mod languages;
mod matches;
mod memory;
mod needs;
mod owner_words;
mod properties;
mod queries;
mod ranker;
mod saved;
mod short_requests;
mod table;
mod variants;
