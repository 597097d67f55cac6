//! Plays conversations with the real agent, turn by turn.

use std::sync::Arc;

use tokio::runtime::{Builder, Runtime};
use toolscout_index::Tool;

use super::conversations::Conversation;
use super::few::{Few, Obliging};
use super::oracle::{Oracle, Task};
use super::{Policy, counting};
use crate::dataset::EvalSet;
use crate::error::{EvalError, Result};
use crate::random::Random;
use toolscout_agent::prompt::Fence;
use toolscout_agent::{Agent, AgentConfig, Event, Question};
use toolscout_finder::finder::{ToolSearch, ToolboxConfig};
use toolscout_gate::gate::Policies;
use toolscout_gate::tools::Status;
use toolscout_state::session::{ConversationId, Figures, Sessions, TurnStatus};

/// The marker around results; fixed, because a random one varies in tokens.
const MARKER: &str = "0f1e2d3c4b5a6978";
/// The environment in the prompt; fixed, so that token counts are reproducible.
const ENVIRONMENT: &str = "Date: 2025-01-31 (UTC)";

/// The result of one turn.
#[derive(Clone, Debug)]
pub struct TurnFigures {
    /// Number of tools that the query needs.
    pub needs: usize,
    /// How many of them were called.
    pub met: usize,
    /// The figures of the agent.
    pub figures: Figures,
    /// Prompt tokens that no provider could take from its cache.
    pub fresh_tokens: usize,
    /// Calls that failed: arguments that could not be generated, or too many searches in a row.
    pub refused: usize,
}

/// A set, its conversations, and its catalog.
pub struct Stage<'a> {
    set: &'a EvalSet,
    conversations: &'a [Conversation],
    seed: u64,
    tools: Vec<Arc<Tool>>,
    catalog: Arc<dyn ToolSearch>,
    runtime: Runtime,
}

impl<'a> Stage<'a> {
    /// Prepares the simulation of these conversations on this catalog.
    ///
    /// # Errors
    /// [`EvalError::Io`] when the runtime cannot be started.
    pub fn new(
        set: &'a EvalSet,
        conversations: &'a [Conversation],
        seed: u64,
        catalog: Arc<dyn ToolSearch>,
    ) -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(EvalError::failed_to("start a runtime for", &set.path))?;
        let tools = set.tools.iter().cloned().map(Arc::new).collect();
        Ok(Stage {
            set,
            conversations,
            seed,
            tools,
            catalog,
            runtime,
        })
    }

    /// Simulates every conversation under a policy. Calls `on_turn` after each turn.
    ///
    /// # Errors
    /// [`EvalError::Play`] with the query at which the agent failed.
    pub fn play(&self, policy: Policy, on_turn: &dyn Fn()) -> Result<Vec<TurnFigures>> {
        let oracle = Arc::new(Oracle::default());
        let failed = |reason: String| EvalError::Play {
            set: self.set.name.clone(),
            query: String::new(),
            reason,
        };
        let sessions = Arc::new(Sessions::in_memory().map_err(|error| failed(error.to_string()))?);
        let cast = Cast {
            policy,
            oracle,
            sessions,
        };
        let whole = cast.agent(self.catalog.clone()).map_err(failed)?;
        let mut turns = Vec::new();
        for (number, conversation) in self.conversations.iter().enumerate() {
            cast.oracle.begin_conversation();
            for (place, &query) in conversation.iter().enumerate() {
                // A stream for each turn, so that one policy's searches do not change the words of
                // another's.
                let mut random = Random::new(self.seed, &format!("oracle {number} {place}"));
                cast.oracle
                    .begin_turn(Task::of(self.set, query, &mut random));
                match self.turn(&cast, &whole, number, query) {
                    Ok(turn) => turns.push(turn),
                    Err(reason) => return Err(self.failed(query, reason)),
                }
                on_turn();
            }
        }
        Ok(turns)
    }

    fn failed(&self, query: usize, reason: String) -> EvalError {
        EvalError::Play {
            set: self.set.name.clone(),
            query: self.set.queries[query].id.clone(),
            reason,
        }
    }

    fn turn(
        &self,
        cast: &Cast,
        whole: &Agent,
        conversation: usize,
        query: usize,
    ) -> Result<TurnFigures, String> {
        let asked = &self.set.queries[query];
        let agent = match cast.policy {
            // An agent of its own: its catalog has the tools of this turn alone.
            Policy::Relevant => {
                let relevant = asked.relevant.iter();
                let relevant = relevant.map(|&tool| self.tools[tool as usize].clone());
                cast.agent(Arc::new(Few(relevant.collect())))?
            }
            Policy::Search { .. } | Policy::All => whole.clone(),
        };
        let id = ConversationId::new(format!("conversation {conversation}"))
            .map_err(|error| error.to_string())?;
        let question = Question::new(&asked.text).in_conversation(id);
        let (figures, refused) = self.runtime.block_on(answered(&agent, question))?;
        let mut met = 0;
        for group in &asked.groups {
            let mut ids = group.iter().map(|tool| self.set.id_of(*tool));
            met += usize::from(ids.any(|id| figures.tools_used.contains(&id)));
        }
        Ok(TurnFigures {
            needs: asked.groups.len(),
            met,
            figures,
            fresh_tokens: cast.oracle.fresh_tokens(),
            refused,
        })
    }
}

/// The agent of one policy.
struct Cast {
    policy: Policy,
    oracle: Arc<Oracle>,
    sessions: Arc<Sessions>,
}

impl Cast {
    fn agent(&self, catalog: Arc<dyn ToolSearch>) -> Result<Agent, String> {
        let mut config = AgentConfig {
            recommend_within: None,
            count_tokens: counting::tokens,
            ..AgentConfig::default()
        };
        config.run.environment = ENVIRONMENT.into();
        // A random marker would vary in tokens.
        config.run.fence = Some(Fence::with_marker(MARKER));
        // These tools have no effect, and no user can approve calls.
        config.policies = Policies::permissive();
        match self.policy {
            Policy::Search {
                eviction,
                budget_tokens,
            } => {
                config.search_from_tools = 0;
                config.toolbox = ToolboxConfig {
                    eviction,
                    budget_tokens,
                    ..config.toolbox
                };
            }
            // The threshold of search is out of reach, so that every tool is visible.
            Policy::All | Policy::Relevant => config.search_from_tools = usize::MAX,
        }
        let builder = Agent::builder()
            .shared_llm(self.oracle.clone())
            .shared_catalog(catalog)
            .tools(Obliging);
        builder
            .sessions(self.sessions.clone())
            .config(config)
            .build()
            .map_err(|error| error.to_string())
    }
}

/// Runs one question to its end. Returns the figures, and the number of failed calls.
async fn answered(agent: &Agent, question: Question) -> Result<(Figures, usize), String> {
    let mut stream = agent.start(question).map_err(|error| error.to_string())?;
    let (mut refused, mut error) = (0, String::from("it ended without a word"));
    while let Some((_, event)) = stream.next().await {
        match event {
            Event::ToolResult {
                status: Status::Error,
                ..
            } => refused += 1,
            Event::Error { content } => error = content,
            Event::Done {
                status: TurnStatus::Answered,
                figures,
                ..
            } => return Ok((*figures, refused)),
            _ => {}
        }
    }
    Err(error)
}
