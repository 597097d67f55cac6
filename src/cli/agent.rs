//! `toolscout agent`: answers questions with the catalog's tools, in the terminal.

mod approve;

use std::io::{self, BufRead, IsTerminal, Write};
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc as std_mpsc};
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use toolscout_index::{Catalog, database};

use super::context::{Context, Legs};
use super::output::{colour_wanted, tell};
use super::policy::PolicyArgs;
use super::upstream::McpArgs;
use super::{Outcome, Usage};
use crate::agent::plan::PlannedStep;
use crate::agent::profile::Profile;
use crate::agent::skills::Skills;
use crate::agent::{Agent, AgentConfig, Event, Protocol, Question, RunStream};
use crate::finder::Style;
use crate::gate::audit;
use crate::gate::{Answer, AuditLog, Change, Class, Decision};
use crate::http::AgentSource;
use crate::llm::openai::OpenAiConfig;
use crate::llm::script::Script;
use crate::llm::{ChatModel, OpenAi, ScriptedModel};
use crate::mcp::{Pool, SingleWriterSink};
use crate::printable::excerpt;
use crate::printable::{self, MARK, Margin};
use crate::session::{ConversationId, Figures, Sessions, TurnStatus};
use crate::tools::operation::Operations;
use crate::tools::{ScriptedTools, Status};
use approve::{Questions, changed};

/// Where local models listen unless told otherwise: Ollama's address.
const DEFAULT_LLM: &str = "http://127.0.0.1:11434/v1";
/// The conversations, in the data directory.
const SESSIONS_FILE: &str = "agent.db";
/// How long the first question waits for MCP servers; those that take longer are there for later
/// ones.
const MCP_PATIENCE: Duration = Duration::from_secs(20);
/// Columns of a terminal that does not say.
const DEFAULT_COLUMNS: usize = 80;
/// Characters of a call's arguments and results on the terminal.
const SHOWN_CHARS: usize = 160;

/// Answers a question, or holds a conversation when none is given. The answer goes to stdout,
/// everything else to stderr.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The question; left out, questions are read from stdin line by line
    #[arg(value_name = "QUESTION")]
    words: Vec<String>,
    #[command(flatten)]
    agent: AgentArgs,
    /// The conversation to go on with; a new one by default
    #[arg(long, value_name = "ID")]
    conversation: Option<String>,
    /// The user on whose behalf tools are called; arguments that the profile binds may name nobody
    /// else
    #[arg(long, value_name = "USER")]
    identity: Option<String>,
}

/// The flags that describe an agent, the same for the terminal and the server.
#[derive(clap::Args, Clone, Debug)]
pub struct AgentArgs {
    /// The model: the base URL of an OpenAI-compatible API, or `script:FILE`
    #[arg(long, value_name = "URL", env = "TOOLSCOUT_LLM", default_value = DEFAULT_LLM)]
    llm: String,
    /// The model's name at that API
    #[arg(
        long,
        value_name = "NAME",
        env = "TOOLSCOUT_MODEL",
        default_value = "default"
    )]
    model: String,
    /// The API's key
    #[arg(
        long,
        value_name = "KEY",
        env = "TOOLSCOUT_LLM_KEY",
        hide_env_values = true
    )]
    llm_key: Option<String>,
    /// How the model calls tools: native (function calling), manual (a JSON answer) or plan (all of
    /// them at once, checked and shown before they are made)
    #[arg(long, value_parser = protocol)]
    mode: Option<Protocol>,
    /// How found tools come into its hands: inject (they join its list) or dispatch (the list
    /// stays)
    #[arg(long, value_parser = style)]
    style: Option<Style>,
    /// Answers of the model per question [default: 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    max_rounds: Option<u32>,
    /// Tokens of all visible tools [default: 8000]
    #[arg(long, value_name = "TOKENS")]
    tool_budget: Option<usize>,
    /// A tool that is always visible (repeatable)
    #[arg(long, value_name = "ID")]
    pin: Vec<String>,
    /// A folder of skills: Markdown files with front matter (name, description), found and called
    /// like tools
    #[arg(long, value_name = "FOLDER", env = "TOOLSCOUT_SKILLS")]
    skills: Option<PathBuf>,
    /// Ask for no recommended questions
    #[arg(long)]
    no_recommend: bool,
    #[command(flatten)]
    policy: PolicyArgs,
    #[command(flatten)]
    mcp: McpArgs,
}

impl Args {
    /// Asks and prints, question by question.
    pub fn run(self, context: &Context) -> Result<Outcome> {
        let pool = self.agent.pool()?;
        let source = self.agent.source(context, pool.clone())?;
        // After the source, which may have made the catalog for its skills.
        let catalog = self.agent.open(context)?;
        let agent = source(Arc::new(catalog.clone()))?;
        let conversation = match self.conversation {
            Some(id) => {
                let conversation = ConversationId::new(id)?;
                // One from before conversations had owners.
                agent.sessions().adopt(&conversation, &person())?;
                conversation
            }
            None => ConversationId::fresh(),
        };
        let question = (!self.words.is_empty()).then(|| self.words.join(" "));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .context("start the runtime")?;
        let outcome = runtime.block_on(async {
            pool.start(Arc::new(SingleWriterSink::new(catalog)));
            pool.settled(MCP_PATIENCE).await;
            let mut terminal = Terminal::new(agent, conversation, context.printer.is_json());
            terminal.identity = self.identity;
            let outcome = match question {
                Some(question) => terminal.answer(question).await,
                None => terminal.converse().await,
            };
            pool.close().await;
            outcome
        });
        // A thread that waits for a line on stdin would keep the runtime from ending.
        runtime.shutdown_background();
        outcome
    }
}

impl AgentArgs {
    /// The catalog in question; made when there are MCP servers to fill it.
    pub fn open(&self, context: &Context) -> Result<Catalog> {
        if self.mcp.is_empty() {
            context.open(Legs::All)
        } else {
            context.open_or_create(Legs::All)
        }
    }

    /// The MCP servers, none of them connected yet.
    pub fn pool(&self) -> Result<Pool> {
        Ok(Pool::new(self.mcp.config()?))
    }

    /// What makes the agent once there is a catalog, calling the tools of these servers and keeping
    /// its conversations in the data directory. Everything that can be wrong with the flags is told
    /// now.
    pub fn source(&self, context: &Context, pool: Pool) -> Result<AgentSource> {
        let mut profile = self.policy.profile()?;
        let skills = self.skills(&profile, context)?;
        let (builtins, services) = (
            mem::take(&mut profile.tools),
            mem::take(&mut profile.operations),
        );
        let config = self.config(profile);
        let (model, tools) = self.model()?;
        let data = context.settings.data.clone();
        let builtins = builtins.registry()?;
        let environment = |name: &str| std::env::var(name).ok();
        // What is wrong with a service is told now as well.
        Operations::new(&services, environment, Arc::new(|_| None))?;
        Ok(Box::new(move |catalog| {
            database::create_private_dir(&data)
                .with_context(|| format!("create {}", data.display()))?;
            let sessions = Arc::new(Sessions::open(&sessions_file(&data))?);
            let audit = Arc::new(AuditLog::open(&data.join(audit::FILE_NAME))?);
            let operations = {
                let catalog = catalog.clone();
                Operations::new(&services, environment, Arc::new(move |id| catalog.tool(id)))?
            };
            let builder = Agent::builder()
                .shared_llm(model.clone())
                .shared_catalog(catalog)
                .sessions(sessions);
            let builder = builder
                .audit(audit)
                .config(config.clone())
                .registry(builtins.clone());
            let builder = builder
                .tools(tools.clone())
                .tools(skills.clone())
                .tools(operations)
                .tools(pool.clone());
            Ok(builder.build()?)
        }))
    }

    /// The skills of the folder that the flags name, else the profile, put into the catalog.
    fn skills(&self, profile: &Profile, context: &Context) -> Result<Skills> {
        let Some(folder) = self.skills.as_ref().or(profile.skills.as_ref()) else {
            return Ok(Skills::default());
        };
        let skills = Skills::load(folder)?;
        skills
            .publish(&context.open_or_create(Legs::All)?)
            .context("put the skills into the catalog")?;
        Ok(skills)
    }

    fn config(&self, profile: Profile) -> AgentConfig {
        let mut config = profile.applied_to(AgentConfig::default());
        config.run.protocol = self.mode.unwrap_or(config.run.protocol);
        config.run.style = self.style.unwrap_or(config.run.style);
        config.run.max_rounds = self.max_rounds.unwrap_or(config.run.max_rounds);
        config.toolbox.budget_tokens = self.tool_budget.unwrap_or(config.toolbox.budget_tokens);
        config.pins.extend(self.pin.iter().cloned());
        self.policy.apply_to(&mut config.policies);
        config.recommend_within = config.recommend_within.filter(|_| !self.no_recommend);
        config
    }

    /// The model, and the tools that come with a scripted one.
    fn model(&self) -> Result<(Arc<dyn ChatModel>, ScriptedTools)> {
        if let Some(script) = self.llm.strip_prefix("script:") {
            let Script { turns, tools } = Script::load(Path::new(script))?;
            return Ok((
                Arc::new(ScriptedModel::new(script, turns)),
                ScriptedTools::new(tools),
            ));
        }
        let mut config = OpenAiConfig::new(&self.llm, &self.model);
        config.api_key = self.llm_key.clone();
        Ok((Arc::new(OpenAi::new(config)?), ScriptedTools::default()))
    }
}

/// Where a data directory keeps its conversations.
pub fn sessions_file(data: &Path) -> PathBuf {
    data.join(SESSIONS_FILE)
}

fn protocol(text: &str) -> Result<Protocol, String> {
    match text {
        "native" => Ok(Protocol::Native),
        "manual" => Ok(Protocol::Manual),
        "plan" => Ok(Protocol::Plan),
        _ => Err("use native, manual or plan".into()),
    }
}

/// Reads a style.
pub fn style(text: &str) -> Result<Style, String> {
    match text {
        "inject" => Ok(Style::Inject),
        "dispatch" => Ok(Style::Dispatch),
        _ => Err("use inject or dispatch".into()),
    }
}

/// Asks the agent and shows what happens.
struct Terminal {
    agent: Agent,
    conversation: ConversationId,
    identity: Option<String>,
    json: bool,
    view: View,
    questions: Questions,
    input: Input,
    /// A person sits at stdin: only then is a line an answer to a question whether to make a call.
    attended: bool,
}

impl Terminal {
    fn new(agent: Agent, conversation: ConversationId, json: bool) -> Self {
        Terminal {
            agent,
            conversation,
            identity: None,
            json,
            view: View::at_terminal(),
            questions: Questions::default(),
            input: Input::default(),
            attended: io::stdin().is_terminal(),
        }
    }

    /// Answers one question. Ctrl-C stops the run, a second one the program.
    async fn answer(&mut self, question: String) -> Result<Outcome> {
        let mut question = Question::new(question)
            .in_conversation(self.conversation.clone())
            .asked_by(person());
        if let Some(identity) = &self.identity {
            question = question.on_behalf_of(identity.clone());
        }
        let mut stream = self
            .agent
            .start(question)
            .map_err(|error| Usage(error.to_string()))?;
        let mut status = TurnStatus::Failed;
        let mut interrupted = false;
        loop {
            let asks = self.questions.is_waiting();
            let next = tokio::select! {
                next = stream.next() => next,
                line = self.input.next(), if asks => {
                    self.decide(&line.unwrap_or_default())?;
                    continue;
                }
                _ = tokio::signal::ctrl_c() => {
                    self.interrupt(&mut interrupted, &stream);
                    continue;
                }
            };
            let Some((id, event)) = next else { break };
            if let Event::Done { status: ended, .. } = &event {
                status = *ended;
            }
            self.show(id, &event)?;
            self.hear(&event)?;
        }
        Ok(if status == TurnStatus::Answered {
            Outcome::Done
        } else {
            Outcome::Amiss
        })
    }

    /// Puts a call's question to the person, or says no where there is none.
    fn hear(&mut self, event: &Event) -> Result<()> {
        if self.questions.note(event) {
            self.ask()?;
        }
        while !self.attended && self.questions.is_waiting() {
            self.decide("stdin is no terminal, so there is nobody to ask; --allow PATTERN allows it beforehand")?;
        }
        Ok(())
    }

    /// Puts the first question that waits. What was typed before it is no answer to it.
    fn ask(&mut self) -> Result<()> {
        if !self.attended || !self.questions.is_waiting() {
            return Ok(());
        }
        self.input.discard();
        Ok(write!(
            io::stderr(),
            "{}",
            self.view.fitted(self.questions.prompt())
        )?)
    }

    /// Passes on the person's answer and puts the next question.
    fn decide(&mut self, line: &str) -> Result<()> {
        let Some((id, answer)) = self.questions.answer(line, &person()) else {
            return Ok(());
        };
        let refused = !matches!(answer, Answer::Approved { .. });
        if !self.agent.answer_approval(&id, answer) && !refused {
            tell("[approve] too late: the call was refused when its time was up");
        }
        self.ask()
    }

    /// Answers the lines of stdin, one after the other. Ctrl-C between two questions ends the
    /// conversation.
    async fn converse(&mut self) -> Result<Outcome> {
        let prompts = io::stdin().is_terminal();
        let mut outcome = Outcome::Done;
        loop {
            if prompts {
                write!(io::stderr(), "> ")?;
            }
            let line = tokio::select! {
                line = self.input.next() => line,
                _ = tokio::signal::ctrl_c() => None,
            };
            let Some(line) = line else { return Ok(outcome) };
            if line.trim().is_empty() {
                continue;
            }
            outcome = self.answer(line).await?;
        }
    }

    fn interrupt(&self, interrupted: &mut bool, stream: &RunStream) {
        if mem::replace(interrupted, true) {
            std::process::exit(130);
        }
        self.agent.stop(stream.conversation());
    }

    fn show(&mut self, id: u64, event: &Event) -> Result<()> {
        let mut stdout = io::stdout();
        if self.json {
            let mut line = serde_json::to_value(event)?;
            // Events have ids of their own: those of calls and of questions.
            line["seq"] = json!(id);
            return Ok(writeln!(stdout, "{}", printable::json(&line.to_string()))?);
        }
        for (place, text) in self.view.show(event) {
            match place {
                Place::Stdout => {
                    write!(stdout, "{text}")?;
                    stdout.flush()?;
                }
                Place::Stderr => write!(io::stderr(), "{text}")?,
            }
        }
        Ok(())
    }
}

/// Who sits here, for the audit log.
fn person() -> String {
    let name = ["USER", "LOGNAME"]
        .iter()
        .find_map(|variable| std::env::var(variable).ok());
    format!("terminal:{}", name.unwrap_or_else(|| "unknown".into()))
}

/// The lines of stdin, each read when it is wanted. What is typed before that stays with the
/// terminal, which can be told to forget it.
#[derive(Debug, Default)]
struct Input {
    /// Once a line was wanted: where to ask for the next one, and where lines come.
    reader: Option<(std_mpsc::Sender<()>, mpsc::Receiver<String>)>,
    /// A line was asked for and has not come.
    is_reading: bool,
}

impl Input {
    /// The next line; `None` at the end. When this is dropped before the line is there, the next
    /// call waits for it.
    async fn next(&mut self) -> Option<String> {
        let (ask, lines) = self.reader.get_or_insert_with(line_reader);
        if !self.is_reading {
            // Fails at the end of stdin, when there are no lines either.
            let _ = ask.send(());
            self.is_reading = true;
        }
        let line = lines.recv().await;
        self.is_reading = false;
        line
    }

    /// Forgets what was typed and not read, half a line included.
    fn discard(&mut self) {
        #[cfg(unix)]
        // Fails where stdin is no terminal; then nobody is asked.
        let _ = rustix::termios::tcflush(io::stdin(), rustix::termios::QueueSelector::IFlush);
        if let Some((_, lines)) = &mut self.reader
            && lines.try_recv().is_ok()
        {
            self.is_reading = false;
        }
    }
}

/// A thread that reads a line whenever it is asked: reading a terminal cannot be cancelled.
fn line_reader() -> (std_mpsc::Sender<()>, mpsc::Receiver<String>) {
    let (ask, asked) = std_mpsc::channel();
    let (sender, lines) = mpsc::channel(1);
    std::thread::spawn(move || {
        // A terminal gives one line at a time, so that nothing is read ahead.
        let mut read = io::stdin().lock().lines().map_while(Result::ok);
        while asked.recv().is_ok() {
            let Some(line) = read.next() else { return };
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    (ask, lines)
}

/// Where a text goes: the answer to stdout, the rest to stderr.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Stdout,
    Stderr,
}

/// Turns events into text; remembers whether a line is unfinished.
struct View {
    dims: bool,
    /// Where words stand on an unfinished line: those of an answer, or of thinking.
    open: Option<Place>,
    /// The margin of the answer, where it goes to a terminal.
    answer: Option<Margin>,
    /// The margin of thinking.
    thinking: Margin,
    /// Columns of the terminal that the rest goes to, if it is one.
    columns: Option<usize>,
}

impl View {
    /// A view for where stdout and stderr go.
    fn at_terminal() -> Self {
        let (stdout, stderr) = (columns(io::stdout()), columns(io::stderr()));
        View::new(colour_wanted(), stdout, stderr)
    }

    /// A view for outputs of so many columns, `None` for one that is no terminal. What a model says
    /// is marked at the beginning of each line, so that it looks like nothing that the program
    /// says; where the answer goes to another program it is left as it is.
    fn new(dims: bool, stdout: Option<usize>, stderr: Option<usize>) -> Self {
        let answer = stdout.map(|columns| Margin::new(MARK, columns));
        let thinking = Margin::new(MARK, stderr.unwrap_or(usize::MAX));
        View {
            dims,
            open: None,
            answer,
            thinking,
            columns: stderr,
        }
    }

    /// What to write, in order.
    fn show(&mut self, event: &Event) -> Vec<(Place, String)> {
        match event {
            Event::Text { content } => self.words(Place::Stdout, content),
            Event::Thinking { content } => self.words(Place::Stderr, content),
            other => {
                let mut shown = self.close(None);
                for line in told(other) {
                    shown.push((Place::Stderr, format!("{}\n", self.fitted(&line))));
                }
                shown
            }
        }
    }

    /// Lines of the program's own, of which none is wider than the terminal.
    fn fitted(&self, lines: &str) -> String {
        self.columns.map_or_else(
            || lines.to_owned(),
            |columns| printable::hanging(lines, columns),
        )
    }

    fn words(&mut self, place: Place, content: &str) -> Vec<(Place, String)> {
        let mut shown = self.close(Some(place));
        let content = printable::prose(content);
        let margin = if place == Place::Stdout {
            self.answer.as_mut()
        } else {
            Some(&mut self.thinking)
        };
        let content = margin.map_or_else(|| content.clone(), |margin| margin.write(&content));
        let dimmed = self.dims && place == Place::Stderr;
        shown.push((
            place,
            if dimmed {
                format!("\x1b[2m{content}\x1b[0m")
            } else {
                content
            },
        ));
        shown
    }

    /// Ends an unfinished line unless the next words go on with it.
    fn close(&mut self, next: Option<Place>) -> Vec<(Place, String)> {
        let unfinished = mem::replace(&mut self.open, next);
        let Some(place) = unfinished.filter(|place| Some(*place) != next) else {
            return Vec::new();
        };
        match (place, &mut self.answer) {
            (Place::Stdout, Some(margin)) => margin.restart(),
            (Place::Stdout, None) => {}
            (Place::Stderr, _) => self.thinking.restart(),
        }
        vec![(place, "\n".to_owned())]
    }
}

/// The columns of a terminal; `None` where there is none.
#[cfg(unix)]
fn columns(output: impl IsTerminal + std::os::fd::AsFd) -> Option<usize> {
    if !output.is_terminal() {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(output)
        .ok()
        .filter(|size| size.ws_col > 0);
    Some(size.map_or(DEFAULT_COLUMNS, |size| usize::from(size.ws_col)))
}

/// The columns of a terminal; `None` where there is none.
#[cfg(not(unix))]
fn columns(output: impl IsTerminal) -> Option<usize> {
    output.is_terminal().then_some(DEFAULT_COLUMNS)
}

/// The lines that tell an event.
fn told(event: &Event) -> Vec<String> {
    let list = |ids: &[toolscout_index::ToolId]| -> String {
        ids.iter()
            .map(|id| printable::name(id.as_str()))
            .collect::<Vec<_>>()
            .join(", ")
    };
    match event {
        Event::Text { .. } | Event::Thinking { .. } => Vec::new(),
        Event::ToolSearch {
            queries,
            select,
            hits,
            no_match,
            ..
        } => {
            let asked: Vec<&str> = queries.iter().chain(select).map(String::as_str).collect();
            let found = no_match
                .as_ref()
                .filter(|_| hits.is_empty())
                .cloned()
                .unwrap_or_else(|| list(hits));
            vec![format!(
                "[search] {} -> {}",
                printable::line(&asked.join(" | ")),
                printable::line(&found)
            )]
        }
        Event::ToolsInjected { tools, tokens } => {
            vec![format!("[loaded] {} ({tokens} tokens)", list(tools))]
        }
        Event::ToolsEvicted { tools, .. } => vec![format!("[unloaded] {}", list(tools))],
        Event::ToolCall {
            name, arguments, ..
        } => {
            vec![format!(
                "[call] {} {}",
                printable::name(name),
                printable::line(&excerpt(&arguments.to_string(), SHOWN_CHARS))
            )]
        }
        Event::Plan { steps, problems } => {
            let steps = steps.iter().map(planned);
            steps
                .chain(
                    problems
                        .iter()
                        .map(|problem| format!("[problem] {}", printable::line(problem))),
                )
                .collect()
        }
        Event::PlanOutcome { steps } => {
            let line = |(step, result): (&String, &Value)| {
                let message = result["error_message"].as_str().unwrap_or("ok");
                format!(
                    "[outcome] {}: {}",
                    printable::name(step),
                    printable::line(&excerpt(message, SHOWN_CHARS))
                )
            };
            steps.iter().map(line).collect()
        }
        // The person is shown it whole, or it is answered at once.
        Event::ApprovalRequired { .. } => Vec::new(),
        Event::Gate {
            tool,
            decision,
            rule,
            changes,
            answer,
            ..
        } => gated(tool.as_str(), *decision, rule, changes, answer),
        Event::ToolResult {
            name,
            status,
            content,
            took_ms,
            ..
        } => {
            let how = if *status == Status::Ok {
                "result"
            } else {
                "failed"
            };
            vec![format!(
                "[{how}] {} ({took_ms} ms) {}",
                printable::name(name),
                printable::line(&excerpt(content, SHOWN_CHARS))
            )]
        }
        Event::Reference { content, .. } => {
            let line = |(at, reference): (usize, &crate::session::Reference)| {
                format!(
                    "[{}] {} {}",
                    at + 1,
                    printable::line(&reference.title),
                    printable::line(&reference.url)
                )
            };
            content.iter().enumerate().map(line).collect()
        }
        Event::Recommend { content, .. } => content
            .iter()
            .map(|question| format!("[next] {}", printable::line(question)))
            .collect(),
        Event::Error { content } => vec![format!("error: {}", printable::line(content))],
        Event::Done {
            conversation,
            status,
            figures,
            ..
        } => vec![summary(conversation, *status, figures)],
    }
}

fn planned(step: &PlannedStep) -> String {
    let class = step.class.map_or("unknown", Class::name);
    let arguments = excerpt(&step.arguments.to_string(), SHOWN_CHARS);
    let (key, tool) = (printable::name(&step.step), printable::name(&step.tool));
    format!(
        "[plan] {key}. {tool} ({class}) {}",
        printable::line(&arguments)
    )
}

fn gated(
    tool: &str,
    decision: Decision,
    rule: &str,
    changes: &[Change],
    answer: &Option<Answer>,
) -> Vec<String> {
    let what = match (decision, answer) {
        (Decision::Allow, _) => "allowed",
        (Decision::Ask, Some(Answer::Approved { .. })) => "approved",
        (Decision::Ask, Some(Answer::Expired { .. })) => "refused, since nobody answered in time",
        (Decision::Ask, _) => "refused",
        (Decision::DryRun, _) => "dry run",
        (Decision::Deny, _) => "denied",
    };
    let head = format!(
        "[gate] {}: {what} ({})",
        printable::name(tool),
        printable::line(rule)
    );
    std::iter::once(head)
        .chain(changes.iter().map(changed))
        .collect()
}

fn summary(conversation: &str, status: TurnStatus, figures: &Figures) -> String {
    let about = if figures.tokens_estimated {
        "about "
    } else {
        ""
    };
    format!(
        "[{}] {} rounds, {} searches, {} ms (first words after {} ms), {about}{} tokens in and {} out, {} saved; --conversation {}",
        status.name(),
        figures.rounds,
        figures.searches,
        figures.total_ms,
        figures
            .first_token_ms
            .map_or("-".to_owned(), |ms| ms.to_string()),
        figures.tokens_in,
        figures.tokens_out,
        figures.tokens_saved,
        printable::line(conversation),
    )
}

#[cfg(test)]
mod tests {
    use toolscout_index::ToolId;

    use super::*;

    #[test]
    fn answers_go_to_stdout_and_the_rest_to_stderr() {
        let events = [
            Event::Thinking {
                content: "hm".into(),
            },
            Event::ToolsInjected {
                tools: vec![ToolId::parse("mail/send").unwrap()],
                tokens: 40,
            },
            Event::Text {
                content: "so ".into(),
            },
            Event::Text {
                content: "it\x1b[31m is".into(),
            },
            Event::Error {
                content: "broken\noff".into(),
            },
        ];
        let mut view = View::new(true, None, None);
        let shown: Vec<(Place, String)> =
            events.iter().flat_map(|event| view.show(event)).collect();
        let shown: Vec<(Place, &str)> = shown
            .iter()
            .map(|(place, text)| (*place, text.as_str()))
            .collect();
        assert_eq!(
            shown,
            [
                (Place::Stderr, "\x1b[2m│ hm\x1b[0m"),
                (Place::Stderr, "\n"),
                (Place::Stderr, "[loaded] mail/send (40 tokens)\n"),
                (Place::Stdout, "so "),
                (Place::Stdout, "it [31m is"),
                (Place::Stdout, "\n"),
                (Place::Stderr, "error: broken off\n"),
            ]
        );
    }

    #[test]
    fn without_a_terminal_there_are_no_escapes() {
        let shown = View::new(false, None, None).show(&Event::Thinking {
            content: "hm".into(),
        });
        assert_eq!(shown, [(Place::Stderr, "│ hm".to_owned())]);
    }
}
