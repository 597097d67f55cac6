//! `toolscout agent`: answers questions with the catalog's tools, in the terminal.

mod approve;
mod commands;
mod settings;
mod stdin;
mod view;

use std::collections::BTreeSet;
use std::io::{self, IsTerminal, Write};
use std::mem;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::json;
use toolscout_index::Catalog;

use super::Outcome;
use super::apis;
use super::applied_profiles;
use super::context::{Context, Legs};
use super::exit::UsageError;
use super::llm::LlmArgs;
use super::mcp_args::{CallLimitArgs, McpArgs};
use super::more_tools::{self, MoreToolArgs};
use super::output::{Printer, print_stderr};
use super::policy::{PolicyArgs, warn_of_mistakes, warn_of_unknown_names};
use crate::agent::profile::AgentProfile;
use crate::agent::skills::Skills;
use crate::agent::{Agent, AgentConfig, Event, Protocol, Question, QuestionTools, RunStream};
use crate::assembly::{self, AgentParts, AgentPlan, AgentPlans};
use crate::config::{AgentSettings, Limits, ModelParameters, Settings};
use crate::finder::Style;
use crate::finder::meta_tools::MoreTools;
use crate::finder::toolbox::ToolboxState;
use crate::gate::{Answer, Gate};
use crate::llm::ChatModel;
use crate::mcp::{Pool, SingleWriterSink};
use crate::models::Patience;
use crate::plan::OnInvalidStep;
use crate::principal::OwnerScope;
use crate::printable::{self, counted};
use crate::profiles::{ProfiledSearch, ToolProfile};
use crate::session::{ConversationId, DEFAULT_AGENT, TurnStatus};
use crate::shutdown::EXIT_INTERRUPTED;
use crate::tools::{CallTimes, ScriptedTools};
use approve::{Answered, Questions};
use commands::{Command, HELP, STOP, allow_in_profile};
use settings::SettingArgs;
use stdin::{Input, PROMPT};
use toolscout_finder::unknown_names::unknown_names;
use view::{Stream, View};

/// The questions typed at the terminal, in the data directory.
const HISTORY_FILE: &str = "agent_history";
/// What an agent without a profile is for.
const DEFAULT_DESCRIPTION: &str = "Answers questions with the tools of the catalog.";
/// What a profile with web search misses where nothing searches.
const NO_WEB_SEARCH: &str =
    "web_search is off: set TAVILY_API_KEY, or SEARXNG_URL to the address of a SearXNG server";
/// How long the first question waits for MCP servers. Slower ones are available to later questions.
const MCP_START_TIMEOUT: Duration = Duration::from_secs(20);

/// Answers a question, or starts a conversation when none is given. The answer goes to stdout,
/// everything else to stderr.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  toolscout agent what is the weather in Berlin\n  toolscout agent --mcp servers.json --allow \"weather/*\""
)]
pub struct Args {
    /// The question; without one, questions are read from stdin, one per line
    #[arg(value_name = "QUESTION")]
    words: Vec<String>,
    #[command(flatten)]
    agent: AgentArgs,
    /// The conversation to continue [default: a new one]
    #[arg(long, value_name = "ID")]
    conversation: Option<String>,
    /// The user on whose behalf tools are called; arguments that the profile binds may name no
    /// other user
    #[arg(long, value_name = "USER")]
    identity: Option<String>,
}

/// The flags of an agent, shared by `agent` and `serve`.
#[derive(clap::Args, Clone, Debug)]
pub struct AgentArgs {
    #[command(flatten)]
    llm: LlmArgs,
    /// How the model calls tools: native (function calling), manual (JSON in its answer) or plan
    /// (all calls at once, checked and printed before the first)
    #[arg(long, value_parser = protocol)]
    mode: Option<Protocol>,
    /// How the model calls found tools: inject (they are added to its tool list) or dispatch
    /// (through call_tool)
    #[arg(long, value_parser = style)]
    style: Option<Style>,
    /// If a step of a plan is invalid: refuse the plan, or skip the step [default: refuse]
    #[arg(long, value_name = "refuse|skip", value_parser = OnInvalidStep::parse)]
    on_invalid_step: Option<OnInvalidStep>,
    /// Most answers of the model per question [default: 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    max_rounds: Option<u32>,
    /// Most tokens of all visible tools [default: 8000]
    #[arg(long, value_name = "TOKENS")]
    tool_budget: Option<usize>,
    /// A tool that is always visible (repeatable)
    #[arg(long, value_name = "ID")]
    pin: Vec<String>,
    /// A folder of skills: Markdown files with front matter (name, description), found and called
    /// like tools
    #[arg(long, value_name = "FOLDER", env = "TOOLSCOUT_SKILLS")]
    skills: Option<PathBuf>,
    #[command(flatten)]
    settings: SettingArgs,
    #[command(flatten)]
    policy: PolicyArgs,
    #[command(flatten)]
    call_limits: CallLimitArgs,
    #[command(flatten)]
    more_tools: MoreToolArgs,
    #[command(flatten)]
    mcp: McpArgs,
}

impl Args {
    /// Answers the question, or the questions of stdin.
    pub fn run(self, mut context: Context) -> Result<Outcome> {
        let profile = self.agent.policy.tool_profile(&context.settings)?;
        applied_profiles::applied(&context, profile.as_slice());
        if let Some(catalog) = profile.as_ref().and_then(ToolProfile::catalog) {
            context.use_catalog(&catalog);
        }
        context.check_catalog()?;
        self.agent.llm.check()?;
        let pool = self.agent.pool(&context)?;
        let plans = self.agent.plans(&context, &[])?;
        // Opened after the skills were added, which creates the catalog.
        let catalog = self.agent.open(&context)?;
        let audit = assembly::audit_log(&context.settings.data)?;
        let usage = context.recorder(&catalog)?;
        let gate = assembly::gate(Some(&plans), &audit, usage.clone());
        let agents = plans.build(&AgentParts {
            data: &context.settings.data,
            store: None,
            audit: &audit,
            gate: &gate,
            search: Arc::new(catalog.clone()),
            pool: &pool,
        })?;
        let agent = agents.default_agent().clone();
        let tools = profile.map(|profile| question_tools(profile, &catalog, &gate));
        let conversation = conversation(self.conversation, &agent)?;
        let question = match self.words.as_slice() {
            [] => None,
            words => Some(words.join(" ")),
        };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .context("start the runtime")?;
        let outcome = runtime.block_on(async {
            pool.start(Arc::new(SingleWriterSink::new(catalog.clone())));
            pool.settled(MCP_START_TIMEOUT).await;
            // After the servers have settled: they may have brought the tools that rules name.
            let pins = &agent.config().pins;
            warn_of_unknown_names(&unknown_names(&catalog, gate.policies(), pins));
            if let Some(tools) = &tools {
                warn_of_mistakes(&tools.profile, &catalog.searcher(), gate.policies());
            }
            let count = match &tools {
                Some(tools) => tools.search.count(),
                None => catalog.searcher().tool_count(),
            };
            let search_from = agent.config().search_from_tools;
            let are_all_shown = count < search_from;
            if are_all_shown {
                print_stderr(format!(
                    "fewer than {}: the model sees all of them; --search-from-tools 0 makes it search",
                    counted(search_from, "tool")
                ));
            }
            let mut terminal = Terminal::new(agent, conversation, context.printer);
            terminal.are_all_shown = are_all_shown;
            terminal.identity = self.identity;
            terminal.profile = self.agent.policy.profile_file();
            terminal.tools = tools;
            let outcome = match question {
                Some(question) => terminal.answer(question).await,
                None => {
                    if terminal.is_attended {
                        terminal.input = Input::edited(context.settings.data.join(HISTORY_FILE));
                        print_stderr(banner(&self.agent.llm, count));
                    }
                    terminal.converse().await
                }
            };
            pool.close().await;
            outcome
        });
        usage.end();
        // A thread that waits for stdin would block an orderly shutdown.
        runtime.shutdown_background();
        outcome
    }
}

/// The conversation with this id, or a new one.
fn conversation(id: Option<String>, agent: &Agent) -> Result<ConversationId> {
    let Some(id) = id else {
        return Ok(ConversationId::fresh());
    };
    let conversation = ConversationId::new(id)?;
    // Conversations of earlier versions have no owner.
    agent.sessions().adopt(&conversation, &user())?;
    Ok(conversation)
}

impl AgentArgs {
    /// Opens the catalog of the settings; creates it when MCP servers will fill it.
    pub fn open(&self, context: &Context) -> Result<Catalog> {
        context.set_patience(Patience::of_server());
        if self.mcp.is_empty() {
            context.open(Legs::All)
        } else {
            context.open_or_create(Legs::All)
        }
    }

    /// The MCP servers, none of them connected yet.
    pub fn pool(&self, context: &Context) -> Result<Pool> {
        let mut config = self.mcp.config(&context.settings.data)?;
        config.limits.call = self.call_times(context)?;
        Ok(Pool::new(config))
    }

    /// How long calls may take.
    pub fn call_times(&self, context: &Context) -> Result<CallTimes> {
        Ok(CallTimes::of(&self.limits(context)?))
    }

    /// The tools after the hits that a search names.
    pub fn more_tools(&self, context: &Context) -> Result<MoreTools> {
        Ok(more_tools::of_limits(&self.limits(context)?))
    }

    /// The limits of the agent, which hold for other faces too.
    pub fn limits(&self, context: &Context) -> Result<Limits> {
        let profile = self.policy.preset(&context.settings)?;
        let settings = self.settings_over(&profile, &context.settings.agent);
        Ok(settings.limits)
    }

    /// Fails where --profile names a profile of the settings: a server offers all of them.
    pub fn refuse_tool_profile(&self, settings: &Settings) -> Result<()> {
        let Some(profile) = self.policy.tool_profile(settings)? else {
            return Ok(());
        };
        let name = profile.name();
        let message = format!(
            "--profile {name} is a profile of the settings, and a server offers all of those: at /mcp/p/{name}, and to \
             requests with X-Toolscout-Profile; give a preset or a file here"
        );
        Err(UsageError(message).into())
    }

    /// The flags of the model.
    pub fn llm(&self) -> &LlmArgs {
        &self.llm
    }

    /// The pinned tools, and most tokens of all visible tools.
    pub fn toolbox(&self) -> (&[String], Option<usize>) {
        (&self.pin, self.tool_budget)
    }

    /// The agents: that of --profile, and one for each of `others`, which are presets or files. Prints
    /// what they miss.
    pub fn plans(&self, context: &Context, others: &[String]) -> Result<AgentPlans> {
        let mut profiles = vec![NamedProfile {
            name: DEFAULT_AGENT.to_owned(),
            profile: self.policy.preset(&context.settings)?,
        }];
        for other in others {
            let named = NamedProfile::load(other)?;
            if profiles.iter().any(|known| known.name == named.name) {
                let message = format!(
                    "--agent-profile {other}: there are two agents {:?}; rename the file",
                    named.name
                );
                return Err(UsageError(message).into());
            }
            profiles.push(named);
        }
        let skills = self.skills(&profiles, context)?;
        // A script is played back once, whichever agent asks for its next line.
        let script = match self.llm.script() {
            Some(_) => Some(self.llm.model(&ModelParameters::default())?),
            None => None,
        };
        let mut plans = Vec::new();
        for profile in profiles {
            let mut plan = self.plan(profile, &context.settings.agent, script.clone())?;
            plan.builder = plan.builder.tools(skills.clone());
            plans.push(plan);
        }
        // That of --profile was put first.
        Ok(AgentPlans {
            default: plans.remove(0),
            others: plans,
        })
    }

    /// An agent without its skills. Prints what it misses.
    fn plan(
        &self,
        NamedProfile { name, mut profile }: NamedProfile,
        settings: &AgentSettings,
        script: Option<(Arc<dyn ChatModel>, ScriptedTools)>,
    ) -> Result<AgentPlan> {
        let environment = |name: &str| std::env::var(name).ok();
        let folders = std::env::var_os("PATH").unwrap_or_default();
        let folders: Vec<PathBuf> = std::env::split_paths(&folders).collect();
        let mut missing = profile.leave_out_missing(&folders);
        let operations = apis::operations(&profile)?;
        let builtins = mem::take(&mut profile.tools);
        let wants_search = builtins.web_search.is_some();
        let builtins = builtins.registry(environment)?;
        // A search without a provider is left out of the registry, which is no error there.
        let has_search = builtins
            .definitions()
            .any(|tool| tool.id.name() == "web_search");
        if wants_search && !has_search {
            missing.push(NO_WEB_SEARCH.to_owned());
        }
        if let Some(folder) = self.missing_skills(&name, &profile) {
            missing.push(format!(
                "there is no folder {} with skills: make it, or name another with --skills",
                folder.display()
            ));
        }
        for missing in &missing {
            print_stderr(match name.as_str() {
                DEFAULT_AGENT => missing.clone(),
                name => format!("{name}: {missing}"),
            });
        }
        let settings = self.settings_over(&profile, settings);
        let (model, script_tools) = match script {
            Some(script) => script,
            None => self.llm.model(&settings.model)?,
        };
        let description = match profile.description.as_str() {
            "" => DEFAULT_DESCRIPTION.to_owned(),
            description => description.to_owned(),
        };
        let mut config = self.config(profile, &settings);
        config.name = name;
        Ok(AgentPlan {
            // Where several offer a tool, the first is called: built-in tools, then those of a script.
            builder: Agent::builder()
                .shared_llm(model)
                .registry(builtins)
                .tools(script_tools),
            config,
            operations,
            description,
            missing,
        })
    }

    /// The skills of the folder of --skills, else of the profiles, added to the catalog.
    fn skills(&self, profiles: &[NamedProfile], context: &Context) -> Result<Skills> {
        let mut folders: Vec<&PathBuf> = Vec::from_iter(&self.skills);
        if folders.is_empty() {
            for NamedProfile { name, profile } in profiles {
                if self.missing_skills(name, profile).is_none() {
                    folders.extend(&profile.skills);
                }
            }
        }
        // Profiles often share a folder.
        folders.dedup();
        if let [first, second, ..] = folders[..] {
            let message = format!(
                "the agents have skills in {} and in {}, and a catalog has those of one folder; name it with --skills",
                first.display(),
                second.display()
            );
            return Err(UsageError(message).into());
        }
        let Some(folder) = folders.first() else {
            return Ok(Skills::default());
        };
        let skills = Skills::load(folder)?;
        skills
            .publish(&context.open_or_create(Legs::All)?)
            .context("add the skills to the catalog")?;
        Ok(skills)
    }

    /// The folder of skills of an agent beside the default one, if it does not exist. That of --profile
    /// has to exist.
    fn missing_skills<'a>(&self, name: &str, profile: &'a AgentProfile) -> Option<&'a PathBuf> {
        if self.skills.is_some() || name == DEFAULT_AGENT {
            return None;
        }
        profile.skills.as_ref().filter(|folder| !folder.is_dir())
    }

    /// What the flags say, then the profile, then the settings of the program.
    fn settings_over(&self, profile: &AgentProfile, settings: &AgentSettings) -> AgentSettings {
        let mut flags = self.settings.settings();
        flags.limits.max_rounds = self.max_rounds;
        flags.limits.tool_budget_tokens = self.tool_budget;
        let flags = flags
            .or(self.call_limits.settings())
            .or(self.more_tools.settings());
        flags.or(profile.settings()).or(settings.clone())
    }

    fn config(&self, profile: AgentProfile, settings: &AgentSettings) -> AgentConfig {
        let mut config = profile.applied_to(AgentConfig::default());
        config.set(settings);
        config.run.protocol = self.mode.unwrap_or(config.run.protocol);
        config.run.style = self.style.unwrap_or(config.run.style);
        config.run.on_invalid_step = self.on_invalid_step.unwrap_or(config.run.on_invalid_step);
        config.pins.extend(self.pin.iter().cloned());
        config.model_is_chosen = self.llm.is_chosen();
        self.policy.apply_to(&mut config.policies);
        config
    }
}

/// A profile and the name of its agent.
struct NamedProfile {
    name: String,
    profile: AgentProfile,
}

impl NamedProfile {
    /// The preset or file of an `--agent-profile`. The agent of a file has its name without the ending.
    fn load(named: &str) -> Result<Self> {
        let stem = Path::new(named).file_stem().unwrap_or_default();
        let name = stem.to_string_lossy().into_owned();
        let legal = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_');
        if name.is_empty() || !name.chars().all(legal) || name == DEFAULT_AGENT {
            let message = format!(
                "--agent-profile {named}: {name:?} cannot be the name of an agent; rename the file, with letters, digits, \
                 `-` and `_`, and not {DEFAULT_AGENT:?}"
            );
            return Err(UsageError(message).into());
        }
        Ok(NamedProfile {
            profile: AgentProfile::load(named)?,
            name,
        })
    }
}

fn question_tools(profile: ToolProfile, catalog: &Catalog, gate: &Arc<Gate>) -> QuestionTools {
    let (catalog, profile) = (Arc::new(catalog.clone()), Arc::new(profile));
    let search = ProfiledSearch::new(catalog, Arc::clone(&profile), Arc::clone(gate));
    QuestionTools {
        profile,
        search: Arc::new(search),
        other_catalog: None,
    }
}

/// What is asked here, in one line.
fn banner(llm: &LlmArgs, tools: usize) -> String {
    let model = match llm.chosen_model() {
        Some(model) => format!("{model} of {}", llm.named()),
        None => llm.named().to_owned(),
    };
    let tools = counted(tools, "tool");
    format!("{}, {tools}; /help lists commands", printable::line(&model))
}

fn protocol(text: &str) -> Result<Protocol, String> {
    match text {
        "native" => Ok(Protocol::Native),
        "manual" => Ok(Protocol::Manual),
        "plan" => Ok(Protocol::Plan),
        _ => Err("use native, manual or plan".into()),
    }
}

/// Parses a style.
pub fn style(text: &str) -> Result<Style, String> {
    match text {
        "inject" => Ok(Style::Inject),
        "dispatch" => Ok(Style::Dispatch),
        _ => Err("use inject or dispatch".into()),
    }
}

/// Runs questions and prints their events.
struct Terminal {
    agent: Agent,
    conversation: ConversationId,
    identity: Option<String>,
    tools: Option<QuestionTools>,
    /// The file of the profile, which rules are added to.
    profile: Option<PathBuf>,
    /// Tools whose calls the user approves without being asked again.
    always: BTreeSet<String>,
    printer: Printer,
    view: View,
    questions: Questions,
    input: Input,
    /// Stdin is a terminal: only then can its lines approve calls.
    is_attended: bool,
    /// The model sees every tool of the catalog, without a search.
    are_all_shown: bool,
}

impl Terminal {
    fn new(agent: Agent, conversation: ConversationId, printer: Printer) -> Self {
        Terminal {
            agent,
            conversation,
            identity: None,
            tools: None,
            profile: None,
            always: BTreeSet::new(),
            printer,
            view: View::at_terminal(),
            questions: Questions::default(),
            input: Input::default(),
            is_attended: io::stdin().is_terminal(),
            are_all_shown: false,
        }
    }

    /// Answers one question. Ctrl-C stops the run, a second Ctrl-C the program.
    async fn answer(&mut self, question: String) -> Result<Outcome> {
        let mut question = Question::new(question)
            .in_conversation(self.conversation.clone())
            .asked_by(user())
            .limited_to(self.tools.clone());
        if let Some(identity) = &self.identity {
            question = question.on_behalf_of(identity.clone());
        }
        let mut stream = self
            .agent
            .start(question)
            .map_err(|error| UsageError(error.to_string()))?;
        let mut status = TurnStatus::Failed;
        let (mut interrupted, mut is_stopping) = (false, false);
        // One listener for the whole run, from its first poll on: a press while an event is shown is not lost.
        let mut pressed = pin!(tokio::signal::ctrl_c());
        if futures_util::poll!(pressed.as_mut()).is_ready() {
            pressed.set(tokio::signal::ctrl_c());
        }
        loop {
            let is_asking = self.questions.is_waiting() && !is_stopping;
            let next = tokio::select! {
                next = stream.next() => next,
                // The end of stdin refuses the call, as an empty line does.
                line = self.input.answer(), if is_asking => {
                    let line = line.unwrap_or_default();
                    if line.trim() == STOP {
                        // The end of its call ends the question too.
                        is_stopping = true;
                        self.agent.stop(&OwnerScope::All, stream.conversation());
                    } else if Command::parse(&line).is_some() {
                        print_stderr("answer the question first; /stop refuses the call and stops");
                        self.ask()?;
                    } else {
                        self.answer_question(&line)?;
                    }
                    continue;
                }
                _ = &mut pressed => {
                    pressed.set(tokio::signal::ctrl_c());
                    self.interrupt(&mut interrupted, &stream);
                    continue;
                }
            };
            let Some((id, event)) = next else { break };
            if let Event::Done { status: ended, .. } = &event {
                status = *ended;
            }
            self.show(id, &event)?;
            self.handle_approval(&event)?;
        }
        Ok(if status == TurnStatus::Answered {
            Outcome::Success
        } else {
            Outcome::Failure
        })
    }

    /// Asks the user about a call that needs approval, or refuses it where stdin is not a terminal.
    fn handle_approval(&mut self, event: &Event) -> Result<()> {
        if let Event::ApprovalRequired { id, request, .. } = event
            && self.always.contains(&request.tool)
        {
            let answer = Answer::Approved { by: user() };
            self.agent.answer_approval(&OwnerScope::All, id, answer);
            return Ok(());
        }
        if self.questions.update(event) {
            self.ask()?;
        }
        // A refusal may bring the next question up, which nobody can answer either.
        while !self.is_attended && self.questions.is_waiting() {
            self.answer_question(
                "stdin is not a terminal, so nobody can approve the call; --allow PATTERN allows it in advance",
            )?;
        }
        Ok(())
    }

    /// Prints the first open question.
    fn ask(&mut self) -> Result<()> {
        if !self.is_attended || !self.questions.is_waiting() {
            return Ok(());
        }
        // What was typed before the question was shown does not answer it.
        self.input.discard();
        Ok(write!(
            io::stderr(),
            "{}",
            self.view.wrapped(self.questions.prompt())
        )?)
    }

    /// Sends an answer to the first question to the agent, and prints the next question.
    fn answer_question(&mut self, line: &str) -> Result<()> {
        let Some(Answered { id, answer, always }) = self.questions.answer(line, &user()) else {
            return Ok(());
        };
        if let Some(tool) = always {
            self.allow_always(tool);
        }
        let is_approved = matches!(answer, Answer::Approved { .. });
        if !self.agent.answer_approval(&OwnerScope::All, &id, answer) && is_approved {
            print_stderr("[approve] too late: the question expired and the call was refused");
        }
        self.ask()
    }

    /// Approves further calls of a tool, in this session and, where there is a profile, in later
    /// ones.
    fn allow_always(&mut self, tool: String) {
        let shown = printable::name(&tool);
        print_stderr(match &self.profile {
            None => format!(
                "[approve] {shown} is not asked about again until the end; a profile (--profile FILE) would keep that"
            ),
            Some(file) => match allow_in_profile(file, &tool) {
                Ok(()) => format!("[approve] {shown} is allowed by {}", file.display()),
                Err(error) => {
                    format!("[approve] {shown} is not asked about again until the end: {error:#}")
                }
            },
        });
        self.always.insert(tool);
    }

    /// Answers the questions of stdin in order. Ctrl-C between two questions ends the conversation.
    async fn converse(&mut self) -> Result<Outcome> {
        let mut outcome = Outcome::Success;
        loop {
            if self.is_attended && !self.input.has_prompt() {
                write!(io::stderr(), "{PROMPT}")?;
            }
            let line = tokio::select! {
                line = self.input.question() => line,
                _ = tokio::signal::ctrl_c() => None,
            };
            let Some(line) = line else { return Ok(outcome) };
            if line.trim().is_empty() {
                continue;
            }
            // Lines of a file are all questions.
            if self.is_attended
                && let Some(command) = Command::parse(&line)
            {
                if self.carry_out(command)?.is_break() {
                    return Ok(outcome);
                }
                continue;
            }
            outcome = self.answer(line).await?;
        }
    }

    /// Breaks where the program is to end.
    fn carry_out(&mut self, command: Command) -> Result<ControlFlow<()>> {
        match command {
            Command::Quit => return Ok(ControlFlow::Break(())),
            Command::Help => print_stderr(HELP),
            Command::Unknown => print_stderr("there is no such command; /help lists them"),
            Command::New => {
                self.conversation = ConversationId::fresh();
                print_stderr(format!("conversation {}", self.conversation));
            }
            Command::Tools => {
                let loaded = self.loaded_tools()?;
                if self.are_all_shown {
                    print_stderr("all tools of the catalog: they are few");
                } else if loaded.is_empty() {
                    print_stderr("none yet; a search loads those it finds");
                }
                for tool in loaded {
                    print_stderr(printable::name(&tool));
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// The ids of the tools that the conversation has loaded.
    fn loaded_tools(&self) -> Result<Vec<String>> {
        let Some(state) = self.agent.sessions().toolbox(&self.conversation)? else {
            return Ok(Vec::new());
        };
        // A state that cannot be read counts as none.
        let state: ToolboxState = serde_json::from_value(state).unwrap_or_default();
        Ok(state.loaded().map(str::to_owned).collect())
    }

    #[expect(clippy::disallowed_methods, reason = "somebody has asked twice")]
    fn interrupt(&self, interrupted: &mut bool, stream: &RunStream) {
        // The first press lets the run end in order, which may take as long as a call does.
        if mem::replace(interrupted, true) {
            std::process::exit(EXIT_INTERRUPTED);
        }
        self.agent.stop(&OwnerScope::All, stream.conversation());
    }

    fn show(&mut self, id: u64, event: &Event) -> Result<()> {
        let mut stdout = io::stdout();
        if self.printer.is_json() {
            let mut line = serde_json::to_value(event)?;
            // The field `id` of an event is the id of its call or question.
            line["seq"] = json!(id);
            return Ok(writeln!(stdout, "{}", printable::json(&line.to_string()))?);
        }
        for (stream, text) in self.view.show(event) {
            match stream {
                Stream::Stdout => {
                    write!(stdout, "{text}")?;
                    stdout.flush()?;
                }
                Stream::Stderr => write!(io::stderr(), "{text}")?,
            }
        }
        Ok(())
    }
}

/// The user at the terminal, for the audit log.
pub fn user() -> String {
    for variable in ["USER", "LOGNAME"] {
        if let Ok(name) = std::env::var(variable) {
            return format!("terminal:{name}");
        }
    }
    "terminal:unknown".to_owned()
}
