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
//! use serde_json::json;
//! use toolscout::agent::{Agent, Event, Question};
//! use toolscout::llm::ScriptedModel;
//! use toolscout::llm::script::Reply;
//! use toolscout::tools::Registry;
//! use toolscout_index::{DataDir, Options};
//!
//! /// Returns the weather forecast of a city.
//! #[toolscout::tool(class = "read_only")]
//! async fn get_forecast(
//!     /// Name of the city, in any language.
//!     city: String,
//! ) -> String {
//!     format!("Rain in {city}.")
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let folder = folder.path();
//! let catalog = DataDir::new(folder).open_or_create("default", Options::default())?;
//! // `llm::Endpoint` speaks with a real model.
//! let model = ScriptedModel::new(
//!     "example",
//!     [
//!         Reply::text("").call("get_forecast", json!({ "city": "Bergen" })),
//!         Reply::text("Take an umbrella."),
//!     ],
//! );
//! let agent = Agent::builder()
//!     .llm(model)
//!     .catalog(catalog)
//!     .registry(Registry::collect()?)
//!     .build()?;
//!
//! let mut events = agent.start(Question::new("Will it rain in Bergen?"))?;
//! let mut answer = String::new();
//! while let Some((_, event)) = events.next().await {
//!     match event {
//!         Event::ToolResult { content, .. } => assert_eq!(content, "Rain in Bergen."),
//!         Event::Text { content } => answer += &content,
//!         _ => {}
//!     }
//! }
//! assert_eq!(answer, "Take an umbrella.");
//! # Ok(())
//! # }
//! ```
//!
//! A tool is a function with the attribute [`tool`], and
//! [`Registry::collect`](tools::Registry::collect) finds all tools of the program.
//!
//! The modules are listed in the order in which they may use one another: a module knows those
//! above it and none below.

/// Makes a tool of a function: of its name, its doc comment and its parameters.
///
/// [`Registry::collect`](tools::Registry::collect) finds all tools of the program. The function
/// stays what it is, and can be called as before.
///
/// ```
/// use serde::Serialize;
/// use toolscout::tools::Registry;
///
/// #[derive(Serialize)]
/// struct Forecast { city: String, rain_mm: f64 }
///
/// /// Returns the weather forecast of a city.
/// #[toolscout::tool(server = "weather", class = "read_only")]
/// async fn get_forecast(
///     /// Name of the city, in any language.
///     city: String,
///     /// Days from now; today if it is left out.
///     days: Option<u8>,
/// ) -> Result<Forecast, std::io::Error> {
///     # let _ = days;
///     Ok(Forecast { city, rain_mm: 8.0 })
/// }
///
/// let tools = Registry::collect()?;
/// let mut definitions = tools.definitions();
/// let forecast = definitions.find(|tool| tool.id.as_str() == "weather/get_forecast").unwrap();
/// assert_eq!(forecast.description, "Returns the weather forecast of a city.");
/// assert_eq!(forecast.input_schema["required"], serde_json::json!(["city"]));
/// # Ok::<(), toolscout::tools::CollectError>(())
/// ```
///
/// | option | meaning |
/// |---|---|
/// | `name` | its name; by default that of the function |
/// | `server` | the first part of its id, `server/name`; by default none |
/// | `description` | what it does; by default the doc comment of the function |
/// | `class` | `"read_only"`, `"state_changing"` or `"destructive"`: what [the gate](gate) judges its calls by; by default it counts as state-changing |
///
/// - **Parameters** are the properties of the schema, and their doc comments its descriptions. A
///   parameter of type `Option` may be left out. `#[serde(...)]` and `#[schemars(...)]` on a
///   parameter mean what they mean on a field, as `#[schemars(range(min = 1))]`. Or one parameter
///   of type [`Parameters<T>`](tools::Parameters) takes all arguments, of a type with
///   `Deserialize` and `JsonSchema`.
/// - **The result** is anything that serde can write, or a `Result` with such a value. Its error is
///   shown to the model as text.
/// - **A function that is not async** runs on a thread where it may block.
///
/// A tool that keeps state of its own, as a connection, is made by [`tools::typed()`].
pub use toolscout_macros::tool;

pub use toolscout_agent as agent;
pub use toolscout_base::{
    allocator, budget, clock, config, cpu_pool, embed_cache, known_models, known_secrets,
    media_type, principal, printable, program_file, regular_file, sandbox, telemetry, tls,
};
pub use toolscout_dropin as dropin;
pub use toolscout_eval as eval;
pub use toolscout_external as external;
pub use toolscout_finder::{enrich, finder, profiles, shadow};
pub use toolscout_gate::{gate, llm, plan, tools, usage};
pub use toolscout_mcp as mcp;
pub use toolscout_models as models;
pub use toolscout_postgres as store;
pub use toolscout_server as http;
pub use toolscout_server::{hints, samples, shutdown};
pub use toolscout_state::{
    approved, catalog_writer, feedback, keys, profile_versions, session, shared,
};

pub mod assembly;
pub mod cli;

/// Makes the README's example a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;

/// Makes the example of the page on the agent a test.
#[cfg(doctest)]
#[doc = include_str!("../docs/agent.md")]
pub struct AgentPage;
