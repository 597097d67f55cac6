//! Why none of a request's tools are deferred.

/// A request that passes as it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotDeferred {
    /// Why.
    pub reason: Reason,
    /// Number of its tools; 0 where they cannot be read.
    pub tools: usize,
}

/// Why a request passes as it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Its body is no JSON object. The provider says what is wrong with it.
    UnreadableBody,
    /// It has no tools.
    NoTools,
    /// Its tools are no list.
    UnreadableTools,
    /// Its conversation has a form that is not known.
    UnreadableConversation,
    /// It says so itself, in a header.
    SwitchedOff,
    /// Its answer cannot have hidden rounds: it is one of several, or asked for later.
    NoHiddenRounds,
    /// The provider itself searches among its tools.
    ProviderSearches,
    /// The client itself searches among its tools.
    ClientSearches,
    /// Two of its tools have one name.
    SameName,
    /// No tool is marked, and they are within the tokens.
    ShortList,
    /// It has more tools than are searched, and is refused.
    TooManyTools,
}

impl Reason {
    /// Its name in the log.
    pub fn name(self) -> &'static str {
        match self {
            Reason::UnreadableBody => "unreadable_body",
            Reason::NoTools => "no_tools",
            Reason::UnreadableTools => "unreadable_tools",
            Reason::UnreadableConversation => "unreadable_conversation",
            Reason::SwitchedOff => "switched_off",
            Reason::NoHiddenRounds => "no_hidden_rounds",
            Reason::ProviderSearches => "provider_searches",
            Reason::ClientSearches => "client_searches",
            Reason::SameName => "same_name",
            Reason::ShortList => "short_list",
            Reason::TooManyTools => "too_many_tools",
        }
    }

    /// This reason, for a request with this number of tools.
    pub fn with_tools(self, tools: usize) -> NotDeferred {
        NotDeferred {
            reason: self,
            tools,
        }
    }
}
