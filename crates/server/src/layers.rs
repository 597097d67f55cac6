//! The layers around all routes.

pub mod envelope;
pub mod guard;
pub mod mask;
mod unread_body;
