//! How a model finds tools: search, the budget of visible tools, profiles, and texts that a model writes for tools.

pub mod finder;
pub mod profiles;
pub mod unknown_names;
pub mod enrich;
pub mod shadow;
