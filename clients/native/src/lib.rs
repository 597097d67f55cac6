//! What the native modules of the packages for Python and Node share: opening a catalog, reading
//! tools, measuring with judged queries, the owner's words and the toolbox of a conversation.
//!
//! Nothing here knows a language. The modules convert values and errors, and say when work ends
//! early.

pub mod error;
pub mod opening;
pub mod input;
pub mod evaluation;
pub mod owner;
pub mod toolbox;

pub use error::{Error, Result};
