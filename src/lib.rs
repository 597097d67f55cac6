//! Everything around the engine: where settings and models come from, the agent, and the command
//! line.
//!
//! Retrieval itself is in [`toolscout_index`]; start there to use tool search as a library. This
//! crate is what the `toolscout` program is made of:
//!
//! - [`agent::Agent`]: answers questions with tools that it finds in a catalog.
//! - [`gate::Gate`]: decides on every call by policies, asks a person, and keeps an audit log.
//! - [`mcp::Pool`]: the connections to MCP servers, whose tools it brings into a catalog.
//! - [`http::serve`]: the HTTP API, with search, catalogs, agent and MCP gateway.
//!
//! ```
//! use toolscout::agent::{Agent, Event, Question};
//! use toolscout::llm::ScriptedModel;
//! use toolscout::llm::script::Reply;
//! use toolscout_index::{DataDir, Options};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let folder = folder.path();
//! let catalog = DataDir::new(folder).open_or_create("default", Options::default())?;
//! // `llm::Endpoint` speaks with a real model.
//! let model = ScriptedModel::new("example", [Reply::text("Hello!")]);
//! let agent = Agent::builder().llm(model).catalog(catalog).build()?;
//!
//! let mut events = agent.start(Question::new("Who are you?"))?;
//! while let Some((_, event)) = events.next().await {
//!     if let Event::Text { content } = event {
//!         assert_eq!(content, "Hello!");
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! The modules are listed in the order in which they may use one another: a module knows those
//! above it and none below.

pub mod allocator;
pub mod printable;
pub mod tls;

pub mod known_models;
pub mod config;
pub mod models;

pub mod clock;
pub mod shutdown;

pub mod hints;

pub mod budget;
pub mod embed_cache;
pub mod feedback;
pub mod keys;
pub mod telemetry;
pub mod catalog_writer;

pub mod llm;
pub mod session;
pub mod tools;
pub mod gate;

pub mod finder;
pub mod profiles;

pub mod agent;

pub mod enrich;

pub mod mcp;

pub mod store;

pub mod eval;

pub mod proxy;

pub mod http;

pub mod cli;

/// Makes the README's example a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
