//! What the nodes of a server share: conversations, keys, feedback, approved definitions, and the writers of catalogs.

pub mod feedback;
pub mod kept_figures;
pub mod keys;
pub mod session;
pub mod approved;
pub mod profile_versions;
pub mod catalog_writer;
pub mod shared;
pub mod usage;
