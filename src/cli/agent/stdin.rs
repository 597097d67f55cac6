//! Lines from standard input for the agent at the terminal.

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::sync::mpsc as std_mpsc;

use rustyline::history::FileHistory;
use rustyline::{Behavior, Config, Editor};
use tokio::sync::mpsc;

/// The prompt of a question to the agent.
pub const PROMPT: &str = "> ";
/// Most questions that the history keeps.
const MAX_HISTORY: usize = 1_000;

/// What is read next.
#[derive(Clone, Copy, Debug)]
enum Wanted {
    /// A question to the agent, edited in place where stdin is a terminal.
    Question,
    /// The answer to a question of the program.
    Answer,
}

/// The lines of stdin, each read on request. Earlier input stays in the terminal's own buffer,
/// which can be discarded.
#[derive(Debug, Default)]
pub struct Input {
    /// The file of earlier questions; `None` where lines are not edited.
    history: Option<PathBuf>,
    /// The channels of requests and lines, once a line was requested.
    reader: Option<(std_mpsc::Sender<Wanted>, mpsc::Receiver<String>)>,
    /// A line was requested and has not arrived.
    is_reading: bool,
}

impl Input {
    /// Lines that are edited in place, with the earlier questions of this file.
    pub fn edited(history: PathBuf) -> Self {
        // What such a terminal shows of an editor are its escape sequences.
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        Input {
            history: (!is_dumb).then_some(history),
            ..Input::default()
        }
    }

    /// Whether the reader prints the prompt of the next question itself. It does not where it still
    /// waits for the answer to another one, which then is the question.
    pub fn has_prompt(&self) -> bool {
        self.history.is_some() && !self.is_reading
    }

    /// The next question; `None` at the end of input. When the future is dropped early, the next
    /// call waits for the same line.
    pub async fn question(&mut self) -> Option<String> {
        self.next(Wanted::Question).await
    }

    /// The next line, as [`Input::question`].
    pub async fn answer(&mut self) -> Option<String> {
        self.next(Wanted::Answer).await
    }

    async fn next(&mut self, wanted: Wanted) -> Option<String> {
        let history = &mut self.history;
        let (ask, lines) = self
            .reader
            .get_or_insert_with(|| line_reader(history.clone()));
        if !self.is_reading {
            // Fails when the reader has ended; `recv` then returns `None`.
            let _ = ask.send(wanted);
            self.is_reading = true;
        }
        let line = lines.recv().await;
        self.is_reading = false;
        line
    }

    /// Discards input that was typed and not read, including an unfinished line.
    pub fn discard(&mut self) {
        #[cfg(unix)]
        // Fails where stdin is not a terminal; nobody is asked there.
        let _ = rustix::termios::tcflush(io::stdin(), rustix::termios::QueueSelector::IFlush);
        if let Some((_, lines)) = &mut self.reader
            && lines.try_recv().is_ok()
        {
            self.is_reading = false;
        }
    }
}

/// Starts a thread that reads one line per request. A thread, because reading a terminal cannot be
/// cancelled.
fn line_reader(history: Option<PathBuf>) -> (std_mpsc::Sender<Wanted>, mpsc::Receiver<String>) {
    let (ask, asked) = std_mpsc::channel();
    let (sender, lines) = mpsc::channel(1);
    std::thread::spawn(move || {
        let mut editor = history.and_then(LineEditor::open);
        while let Ok(wanted) = asked.recv() {
            let line = match (wanted, &mut editor) {
                (Wanted::Question, Some(editor)) => editor.read(),
                _ => plain_line(),
            };
            let Some(line) = line else { return };
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    (ask, lines)
}

/// A terminal delivers one line per read, so nothing is read ahead.
fn plain_line() -> Option<String> {
    let mut line = String::new();
    let read = io::stdin().read_line(&mut line).ok()?;
    let end = line.trim_end_matches(['\r', '\n']).len();
    line.truncate(end);
    (read > 0).then_some(line)
}

/// Reads questions with the keys that shells have, and remembers them.
struct LineEditor {
    editor: Editor<(), FileHistory>,
    file: PathBuf,
}

impl LineEditor {
    /// `None` where the terminal cannot be used.
    fn open(file: PathBuf) -> Option<Self> {
        // The answer goes to stdout, which may be a file.
        let behavior = if io::stdout().is_terminal() {
            Behavior::Stdio
        } else {
            Behavior::PreferTerm
        };
        let config = Config::builder()
            .max_history_size(MAX_HISTORY)
            .ok()?
            .history_ignore_space(true)
            .behavior(behavior)
            .build();
        let earlier = FileHistory::with_config(&config);
        let mut editor = Editor::with_history(config, earlier).ok()?;
        // A first session has no file.
        let _ = editor.load_history(&file);
        Some(LineEditor { editor, file })
    }

    /// The next question; `None` at its end by Ctrl-C or Ctrl-D.
    fn read(&mut self) -> Option<String> {
        let line = self.editor.readline(PROMPT).ok()?;
        if self.editor.add_history_entry(&line).unwrap_or(false) {
            // A history that cannot be written costs typing, not the conversation.
            let _ = self.editor.append_history(&self.file);
        }
        Some(line)
    }
}
