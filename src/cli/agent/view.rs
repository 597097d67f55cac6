//! The events of a run as text on the terminal.

use std::io::{self, IsTerminal};
use std::mem;

use serde_json::{Map, Value};
use toolscout_index::ToolId;

use super::approve::describe_change;
use crate::agent::Event;
use crate::agent::event::CompactionReason;
use crate::cli::output::colour_wanted;
use crate::gate::{Answer, Change, Class, Decision};
use crate::plan::PlannedStep;
use crate::printable::{self, MARK, Margin, counted, excerpt};
use crate::session::{Figures, Reference, TurnStatus};
use crate::tools::{Status, text_of};

/// Columns of a terminal that does not report its size.
const DEFAULT_COLUMNS: usize = 80;
/// Most characters of a call's arguments and results.
const SHOWN_CHARS: usize = 160;
/// Most characters of a step's result, where it stands in place of an answer.
const STEP_CHARS: usize = 4_000;

/// The stream that a text is written to: answers go to stdout, everything else to stderr.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    Stdout,
    Stderr,
}

/// Turns events into text, and keeps track of unfinished lines.
pub struct View {
    /// How text of the model's thinking is styled.
    thinking_style: ThinkingStyle,
    /// The stream with an unfinished line of an answer or of thinking.
    open: Option<Stream>,
    /// The margin of the answer; `None` where stdout is not a terminal.
    answer: Option<Margin>,
    /// The margin of thinking.
    thinking: Margin,
    /// Columns of stderr, if it is a terminal.
    columns: Option<usize>,
    /// The results of a plan, until an answer tells them.
    results: Option<Map<String, Value>>,
}

/// How text of the model's thinking is styled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ThinkingStyle {
    /// Without escape sequences.
    Plain,
    /// Dimmed, on terminals that show colours.
    Dimmed,
}

impl View {
    /// A view for stdout and stderr of this process.
    pub fn at_terminal() -> Self {
        let thinking_style = if colour_wanted() {
            ThinkingStyle::Dimmed
        } else {
            ThinkingStyle::Plain
        };
        View::new(thinking_style, columns(io::stdout()), columns(io::stderr()))
    }

    /// A view for streams with these numbers of columns, `None` for one that is not a terminal.
    /// Every line of the model's text starts with a mark, so that it cannot imitate a line of the
    /// program. An answer that goes to another program has no marks.
    fn new(thinking_style: ThinkingStyle, stdout: Option<usize>, stderr: Option<usize>) -> Self {
        let answer = stdout.map(|columns| Margin::new(MARK, columns));
        // In a file no line is too long.
        let thinking = Margin::new(MARK, stderr.unwrap_or(usize::MAX));
        View {
            thinking_style,
            open: None,
            answer,
            thinking,
            columns: stderr,
            results: None,
        }
    }

    /// The texts to write for an event, in order.
    pub fn show(&mut self, event: &Event) -> Vec<(Stream, String)> {
        match event {
            Event::Text { content } => {
                // The answer tells them.
                self.results = None;
                self.model_text(Stream::Stdout, content)
            }
            Event::Thinking { content } => self.model_text(Stream::Stderr, content),
            other => {
                let mut shown = self.unreported_results(other);
                shown.extend(self.close(None));
                for line in describe_event(other) {
                    shown.push((Stream::Stderr, format!("{}\n", self.wrapped(&line))));
                }
                shown
            }
        }
    }

    /// At the end of a run, the results of its plan, if no answer has told them: the model may have
    /// failed after the steps were done.
    fn unreported_results(&mut self, event: &Event) -> Vec<(Stream, String)> {
        match event {
            Event::PlanOutcome { steps } => {
                self.results = Some(steps.clone());
                Vec::new()
            }
            Event::Done { .. } => match self.results.take() {
                Some(steps) => self.model_text(Stream::Stdout, &describe_results(&steps)),
                None => Vec::new(),
            },
            _ => Vec::new(),
        }
    }

    /// Text of the program, wrapped to the width of the terminal.
    pub fn wrapped(&self, lines: &str) -> String {
        match self.columns {
            Some(columns) => printable::hanging(lines, columns),
            None => lines.to_owned(),
        }
    }

    fn model_text(&mut self, stream: Stream, content: &str) -> Vec<(Stream, String)> {
        let mut shown = self.close(Some(stream));
        let content = printable::prose(content);
        let margin = if stream == Stream::Stdout {
            self.answer.as_mut()
        } else {
            Some(&mut self.thinking)
        };
        let content = match margin {
            Some(margin) => margin.write(&content),
            None => content,
        };
        // After the margin, which would count the escape sequences as columns.
        let content = match self.thinking_style {
            ThinkingStyle::Dimmed if stream == Stream::Stderr => {
                format!("\x1b[2m{content}\x1b[0m")
            }
            _ => content,
        };
        shown.push((stream, content));
        shown
    }

    /// Ends an unfinished line, unless the next text continues it.
    fn close(&mut self, next: Option<Stream>) -> Vec<(Stream, String)> {
        let unfinished = mem::replace(&mut self.open, next);
        let Some(stream) = unfinished else {
            return Vec::new();
        };
        if next == unfinished {
            return Vec::new();
        }
        match (stream, &mut self.answer) {
            (Stream::Stdout, Some(margin)) => margin.restart(),
            (Stream::Stdout, None) => {}
            (Stream::Stderr, _) => self.thinking.restart(),
        }
        vec![(stream, "\n".to_owned())]
    }
}

/// The columns of a terminal; `None` where there is none.
#[cfg(unix)]
fn columns(output: impl IsTerminal + std::os::fd::AsFd) -> Option<usize> {
    if !output.is_terminal() {
        return None;
    }
    Some(match rustix::termios::tcgetwinsize(output) {
        // A pseudo-terminal that nobody has sized has 0 columns.
        Ok(size) if size.ws_col > 0 => usize::from(size.ws_col),
        _ => DEFAULT_COLUMNS,
    })
}

/// The columns of a terminal; `None` where there is none.
#[cfg(not(unix))]
fn columns(output: impl IsTerminal) -> Option<usize> {
    output.is_terminal().then_some(DEFAULT_COLUMNS)
}

/// The lines that describe an event; none for one that is printed elsewhere. Texts of models, tools
/// and servers go through `printable`, so that none can move the cursor or colour the terminal.
fn describe_event(event: &Event) -> Vec<String> {
    match event {
        Event::Text { .. } | Event::Thinking { .. } => Vec::new(),
        Event::ToolSearch {
            queries,
            select,
            hits,
            no_match,
            ..
        } => vec![describe_search(queries, select, hits, no_match.as_deref())],
        Event::ToolsInjected { tools, tokens, .. } => {
            let tokens = counted(*tokens, "token");
            vec![format!("[loaded] {} ({tokens})", names(tools))]
        }
        Event::ToolsEvicted { tools, .. } => vec![format!("[unloaded] {}", names(tools))],
        Event::ContextCompacted {
            reason,
            tokens_before,
            tokens,
            limit,
        } => {
            let why = match reason {
                CompactionReason::Limit => format!("the limit is {limit}"),
                CompactionReason::Refused => "the model refused the prompt as too long".to_owned(),
            };
            vec![format!(
                "[compacted] the prompt, from {tokens_before} to {tokens} tokens: {why}"
            )]
        }
        Event::ToolCall {
            name, arguments, ..
        } => {
            let (name, arguments) = (printable::name(name), shown(&arguments.to_string()));
            vec![format!("[call] {name} {arguments}")]
        }
        Event::Plan { steps, problems } => describe_plan(steps, problems),
        Event::PlanOutcome { steps } => describe_outcomes(steps),
        // The user gets the whole question, or it is answered at once.
        Event::ApprovalRequired { .. } => Vec::new(),
        // A call that passes as it is needs no line of its own.
        Event::Gate {
            decision: Decision::Allow,
            changes,
            warnings,
            ..
        } if changes.is_empty() && warnings.is_empty() => Vec::new(),
        Event::Gate {
            tool,
            decision,
            rule,
            changes,
            answer,
            warnings,
            ..
        } => {
            let mut lines = describe_decision(tool.as_str(), *decision, rule, changes, answer);
            lines.extend(lines_of("  warning: ", warnings));
            lines
        }
        Event::ToolResult {
            name,
            status,
            content,
            took_ms,
            ..
        } => {
            let label = match status {
                Status::Ok => "result",
                _ => "failed",
            };
            let (name, content) = (printable::name(name), shown(content));
            vec![format!("[{label}] {name} ({took_ms} ms) {content}")]
        }
        Event::Reference { content, .. } => describe_references(content),
        Event::Recommend { content, .. } => lines_of("[next] ", content),
        Event::Error { content } => vec![format!("error: {}", printable::line(content))],
        Event::Done {
            conversation,
            status,
            figures,
            ..
        } => {
            // A run that failed before the model's first answer has no figures.
            if *status == TurnStatus::Failed && figures.rounds == 0 {
                return Vec::new();
            }
            vec![describe_run(conversation, *status, figures)]
        }
    }
}

/// A line for each text, after a label.
fn lines_of(label: &str, texts: &[String]) -> Vec<String> {
    let mut lines = Vec::with_capacity(texts.len());
    for text in texts {
        lines.push(format!("{label}{}", printable::line(text)));
    }
    lines
}

/// The beginning of arguments or of a result, in one line.
fn shown(text: &str) -> String {
    printable::line(&excerpt(text, SHOWN_CHARS))
}

fn describe_search(
    queries: &[String],
    select: &[String],
    hits: &[ToolId],
    no_match: Option<&str>,
) -> String {
    let asked = [queries, select].concat().join(" | ");
    let found = match no_match {
        Some(reason) if hits.is_empty() => reason.to_owned(),
        _ => names(hits),
    };
    format!(
        "[search] {} -> {}",
        printable::line(&asked),
        printable::line(&found)
    )
}

fn describe_plan(steps: &[PlannedStep], problems: &[String]) -> Vec<String> {
    let mut lines: Vec<String> = steps.iter().map(describe_step).collect();
    lines.extend(lines_of("[problem] ", problems));
    lines
}

fn describe_outcomes(steps: &Map<String, Value>) -> Vec<String> {
    let mut lines = Vec::with_capacity(steps.len());
    for (step, result) in steps {
        let ok = match result["error_message"] {
            Value::Null => "ok ",
            _ => "",
        };
        let (step, text) = (printable::name(step), shown(&result_text(result)));
        lines.push(format!("[outcome] {step}: {ok}{text}"));
    }
    lines
}

fn describe_references(references: &[Reference]) -> Vec<String> {
    let mut lines = Vec::with_capacity(references.len());
    for (index, reference) in references.iter().enumerate() {
        let (title, url) = (
            printable::line(&reference.title),
            printable::line(&reference.url),
        );
        lines.push(format!("[{}] {title} {url}", index + 1));
    }
    lines
}

/// The results of a plan's steps, one after the other.
fn describe_results(steps: &Map<String, Value>) -> String {
    let mut lines = Vec::with_capacity(steps.len());
    for (step, result) in steps {
        let text = excerpt(&result_text(result), STEP_CHARS);
        lines.push(format!("{}: {text}", printable::name(step)));
    }
    lines.join("\n")
}

/// What a step returned, or why it failed.
fn result_text(result: &Value) -> String {
    let said = match &result["error_message"] {
        Value::Null => &result["data"],
        message => message,
    };
    text_of(said)
}

fn names(ids: &[ToolId]) -> String {
    let names: Vec<String> = ids.iter().map(|id| printable::name(id.as_str())).collect();
    names.join(", ")
}

fn describe_step(step: &PlannedStep) -> String {
    let class = step.class.map_or("unknown", Class::name);
    let arguments = shown(&step.arguments.to_string());
    let (key, tool) = (printable::name(&step.step), printable::name(&step.tool));
    format!("[plan] {key}. {tool} ({class}) {arguments}")
}

fn describe_decision(
    tool: &str,
    decision: Decision,
    rule: &str,
    changes: &[Change],
    answer: &Option<Answer>,
) -> Vec<String> {
    let result = match (decision, answer) {
        (Decision::Allow, _) => "allowed",
        (Decision::Ask, Some(Answer::Approved { .. })) => "approved",
        (Decision::Ask, Some(Answer::Expired { .. })) => "refused, because the question expired",
        (Decision::Ask, _) => "refused",
        (Decision::DryRun, _) => "dry run",
        (Decision::Deny, _) => "denied",
    };
    let head = format!(
        "[gate] {}: {result} ({})",
        printable::name(tool),
        printable::line(rule)
    );
    let mut lines = vec![head];
    lines.extend(changes.iter().map(describe_change));
    lines
}

fn describe_run(conversation: &str, status: TurnStatus, figures: &Figures) -> String {
    let about = if figures.tokens_estimated {
        "about "
    } else {
        ""
    };
    let first_words = match figures.first_token_ms {
        Some(ms) => format!(" (first words after {ms} ms)"),
        None => String::new(),
    };
    // In a catalog of a few tools, search costs more tokens than it saves. The JSON has the
    // negative figure; a person is told of savings only.
    let saved = match figures.tokens_saved {
        saved if saved > 0 => format!(
            "; {} tokens saved against showing every tool",
            grouped(saved.unsigned_abs())
        ),
        _ => String::new(),
    };
    format!(
        "[{}] {}, {}, {} ms{first_words}, {about}{} in and {} out{saved}; --conversation {}",
        status.name(),
        counted(figures.rounds, "round"),
        counted(figures.searches, "search"),
        figures.total_ms,
        counted(figures.tokens_in, "token"),
        figures.tokens_out,
        printable::line(conversation),
    )
}

/// A number with commas between thousands.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::event::ToolBudget;

    #[test]
    fn answers_go_to_stdout_and_everything_else_to_stderr() {
        let events = [
            Event::Thinking {
                content: "hm".into(),
            },
            Event::ToolsInjected {
                tools: vec![ToolId::parse("mail/send").unwrap()],
                tokens: 40,
                tokens_by_tool: Vec::new(),
                budget: ToolBudget {
                    used: 40,
                    limit: None,
                },
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
        let mut view = View::new(ThinkingStyle::Dimmed, None, None);
        let shown: Vec<(Stream, String)> =
            events.iter().flat_map(|event| view.show(event)).collect();
        let shown: Vec<(Stream, &str)> = shown
            .iter()
            .map(|(stream, text)| (*stream, text.as_str()))
            .collect();
        assert_eq!(
            shown,
            [
                (Stream::Stderr, "\x1b[2m│ hm\x1b[0m"),
                (Stream::Stderr, "\n"),
                (Stream::Stderr, "[loaded] mail/send (40 tokens)\n"),
                (Stream::Stdout, "so "),
                (Stream::Stdout, "it [31m is"),
                (Stream::Stdout, "\n"),
                (Stream::Stderr, "error: broken off\n"),
            ]
        );
    }

    #[test]
    fn results_of_a_plan_without_a_report_go_to_stdout() {
        let steps = serde_json::json!({
            "1": { "status": "ok", "data": { "place": "Oslo" } },
            "2": { "status": "error", "data": null, "error_message": "no tool is called \"x\"" },
        });
        let outcome = Event::PlanOutcome {
            steps: steps.as_object().unwrap().clone(),
        };
        let done = Event::Done {
            conversation: "c".into(),
            turn: 1,
            status: TurnStatus::Failed,
            figures: Box::default(),
        };
        let text = Event::Text {
            content: "Told.".into(),
        };
        let stdout = |events: &[&Event]| {
            let mut view = View::new(ThinkingStyle::Plain, None, None);
            let shown = events.iter().flat_map(|event| view.show(event));
            let stdout = shown.filter(|(stream, _)| *stream == Stream::Stdout);
            stdout.map(|(_, text)| text).collect::<String>()
        };
        assert_eq!(
            stdout(&[&outcome, &done]),
            "1: {\"place\":\"Oslo\"}\n2: no tool is called \"x\"\n"
        );
        assert_eq!(stdout(&[&outcome, &text, &done]), "Told.\n");
        assert_eq!(
            describe_event(&outcome)[0],
            "[outcome] 1: ok {\"place\":\"Oslo\"}"
        );
    }

    #[test]
    fn a_run_names_saved_tokens_only_if_there_are_any() {
        let run = |tokens_saved| {
            let figures = Figures {
                rounds: 1,
                searches: 2,
                tokens_in: 1,
                tokens_saved,
                ..Figures::default()
            };
            describe_run("c", TurnStatus::Answered, &figures)
        };
        for saved in [-40, 0] {
            let line = run(saved);
            assert!(line.contains(" 1 token in and 0 out; --con"), "{line}");
        }
        let line = run(184_775);
        assert!(line.contains("1 round, 2 searches, "), "{line}");
        let saved = " out; 184,775 tokens saved against showing every tool; --con";
        assert!(line.contains(saved), "{line}");
    }

    #[test]
    fn a_run_that_failed_before_its_first_round_has_no_figures() {
        let lines = |rounds| {
            let figures = Figures {
                rounds,
                ..Figures::default()
            };
            describe_event(&Event::Done {
                conversation: "c".into(),
                turn: 1,
                status: TurnStatus::Failed,
                figures: Box::new(figures),
            })
        };
        assert_eq!(lines(0), Vec::<String>::new());
        assert_eq!(lines(1).len(), 1);
    }

    #[test]
    fn plain_thinking_has_no_escape_sequences() {
        let shown = View::new(ThinkingStyle::Plain, None, None).show(&Event::Thinking {
            content: "hm".into(),
        });
        assert_eq!(shown, [(Stream::Stderr, "│ hm".to_owned())]);
    }
}
