//! Several agents behind one server: they share conversations, and a question chooses one by name.

use crate::Agent;

/// An agent of a server.
#[derive(Clone)]
pub struct ServedAgent {
    /// The agent, which has the name.
    pub agent: Agent,
    /// What it is for.
    pub description: String,
    /// What it needs and does not have, each with how to get it. Empty when it is ready.
    pub missing: Vec<String>,
}

/// The agents of a server. Cheap to clone.
#[derive(Clone)]
pub struct Agents {
    default: ServedAgent,
    others: Vec<ServedAgent>,
}

impl Agents {
    /// An agent for questions that choose none, and others.
    pub fn new(default: ServedAgent, others: Vec<ServedAgent>) -> Self {
        Agents { default, others }
    }

    /// The agent of questions that choose none.
    pub fn default_agent(&self) -> &Agent {
        &self.default.agent
    }

    /// The agent with this name.
    pub fn named(&self, name: &str) -> Option<&Agent> {
        let named = self.iter().find(|served| served.agent.name() == name);
        named.map(|served| &served.agent)
    }

    /// All agents, the default one first.
    pub fn iter(&self) -> impl Iterator<Item = &ServedAgent> {
        std::iter::once(&self.default).chain(&self.others)
    }

    /// Their names, for messages.
    pub fn names(&self) -> String {
        let names: Vec<&str> = self.iter().map(|served| served.agent.name()).collect();
        names.join(", ")
    }
}

impl From<Agent> for Agents {
    fn from(agent: Agent) -> Self {
        let served = ServedAgent {
            agent,
            description: String::new(),
            missing: Vec::new(),
        };
        Agents::new(served, Vec::new())
    }
}
