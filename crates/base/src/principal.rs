//! Who may reach what others own.

/// Whose conversations a caller may see, stop and delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnerScope {
    /// Only those of this owner.
    Own(String),
    /// All, including those without an owner.
    All,
}

impl OwnerScope {
    /// True when the conversations of this owner are within the scope.
    pub fn covers(&self, owner: &str) -> bool {
        match self {
            OwnerScope::Own(own) => own == owner,
            OwnerScope::All => true,
        }
    }

    /// The only owner within the scope; `None` for all.
    pub fn owner(&self) -> Option<&str> {
        match self {
            OwnerScope::Own(owner) => Some(owner),
            OwnerScope::All => None,
        }
    }
}
