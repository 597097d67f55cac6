//! What clients do not see of their conversations, and providers must see again.

pub mod kept_conversations;
pub mod conversation;
pub mod found;
