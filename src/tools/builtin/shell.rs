//! `shell`: programs from an allow-list. There is no shell in it: a program gets its arguments as
//! they are.

mod options;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;
use tokio::time::timeout;
use toolscout_index::Tool;

use crate::printable::excerpt;
use crate::tools::builtin::{BuiltinError, definition};
use crate::tools::{Arguments, Callable, ToolFailure, UserTool};

/// Arguments of a call at most.
const MAX_ARGUMENTS: usize = 256;
/// Bytes of all arguments of a call at most; systems take about this much.
const MAX_ARGUMENT_BYTES: usize = 128 << 10;
/// Characters of a refused call that its refusal repeats.
const ASKED_CHARS: usize = 100;
/// At the end of an entry, what stands for further arguments.
const ANY: &str = "*";

/// What may be run, and its bounds.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShellConfig {
    /// Calls, each as a program by name or path with its arguments: `ls` is `ls` alone. A `*` at
    /// the end of one stands for any further arguments but those by which the program is known to
    /// write a file or start another one.
    pub allow: Vec<String>,
    /// The folder in which programs run.
    #[serde(default = "here")]
    pub dir: PathBuf,
    /// Variables that programs are given beside `PATH` and `LANG`; they get nothing else of this
    /// environment.
    #[serde(default)]
    pub env: Vec<String>,
    /// Seconds.
    #[serde(default = "default_timeout_s")]
    pub timeout_s: u64,
    /// Bytes of either output.
    #[serde(default = "default_output_bytes")]
    pub max_output_bytes: usize,
}

fn here() -> PathBuf {
    PathBuf::from(".")
}

fn default_timeout_s() -> u64 {
    30
}

fn default_output_bytes() -> usize {
    64 << 10
}

/// The tool.
#[derive(Debug)]
pub struct Shell {
    config: ShellConfig,
    allowed: Vec<Allowed>,
    environment: BTreeMap<String, String>,
}

/// An entry of the list.
#[derive(Debug)]
struct Allowed {
    /// The entry as it is written.
    entry: String,
    /// The program and its arguments.
    words: Vec<String>,
    /// More arguments may follow.
    is_open: bool,
    path: PathBuf,
}

impl Shell {
    /// The tool with these programs, found now: what `PATH` says later does not matter.
    ///
    /// # Errors
    /// [`BuiltinError::NoProgram`], [`BuiltinError::OpenInterpreter`].
    pub fn new(config: &ShellConfig) -> Result<Self, BuiltinError> {
        let allowed: Result<Vec<Allowed>, BuiltinError> =
            config.allow.iter().map(|entry| allowed(entry)).collect();
        let passed_on = config.env.iter().map(String::as_str).chain(["PATH"]);
        let mut environment: BTreeMap<String, String> = passed_on
            .filter_map(|name| Some((name.to_owned(), std::env::var(name).ok()?)))
            .collect();
        environment.insert("LANG".into(), "C.UTF-8".into());
        Ok(Shell {
            config: config.clone(),
            allowed: allowed?,
            environment,
        })
    }

    /// The path of the program of an allowed call.
    fn program(&self, words: &[String]) -> Result<&Path, ToolFailure> {
        let mut writing = None;
        for allowed in &self.allowed {
            match allowed.further(words) {
                None => {}
                Some(further) => match options::writing(&allowed.path, further) {
                    None => return Ok(&allowed.path),
                    Some(argument) => writing = writing.or(Some(argument)),
                },
            }
        }
        let known = self.known();
        let asked = excerpt(&words.join(" "), ASKED_CHARS);
        Err(ToolFailure::new(match writing {
            Some(argument) => format!(
                "{:?} is not allowed for {}: it may write a file or start a program; leave it out, give a value of its own \
                 as an argument of its own, or ask the user to allow the whole call",
                excerpt(argument, ASKED_CHARS),
                words[0],
            ),
            None => format!(
                "{asked:?} is not allowed; allowed are {known}, each with exactly these arguments unless it ends in `*`"
            ),
        }))
    }

    /// The entries, for the model to read.
    fn known(&self) -> String {
        self.allowed
            .iter()
            .map(|allowed| allowed.entry.as_str())
            .collect::<Vec<_>>()
            .join(", ")
    }

    async fn run(&self, words: &[String]) -> Result<Value, ToolFailure> {
        let mut command = Command::new(self.program(words)?);
        command
            .args(&words[1..])
            .env_clear()
            .envs(&self.environment)
            .current_dir(&self.config.dir);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        #[cfg(unix)]
        command.process_group(0);
        let mut child = command
            .spawn()
            .map_err(|error| ToolFailure::new(format!("{} does not start: {error}", words[0])))?;
        let group = Group::of(child.id());
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let most = self.config.max_output_bytes;
        let ended = async {
            let status = child.wait().await;
            // What it left behind would keep its output open.
            group.end();
            status
        };
        let (stdout, stderr, status) = tokio::join!(
            bounded(stdout, most, &group),
            bounded(stderr, most, &group),
            ended
        );
        let status =
            status.map_err(|error| ToolFailure::new(format!("{} was lost: {error}", words[0])))?;
        Ok(answer(status, &stdout, &stderr))
    }
}

#[async_trait]
impl Callable for Shell {
    async fn call(&self, arguments: Arguments) -> Result<Value, ToolFailure> {
        let words = words(&arguments)?;
        let seconds = self.config.timeout_s;
        // Dropped, a run takes its whole process group with it.
        timeout(Duration::from_secs(seconds), self.run(&words))
            .await
            .unwrap_or_else(|_| {
                Err(ToolFailure::new(format!(
                    "{} took longer than {seconds} s and was ended",
                    words[0]
                )))
            })
    }
}

impl UserTool for Shell {
    fn definition(&self) -> Tool {
        let description = format!(
            "Runs a program. There is no shell: no pipes, no redirection, no variables. Allowed are exactly: {}. \
            A `*` at the end stands for further arguments.",
            self.known()
        );
        let properties = json!({
            "argv": {
                "type": "array", "items": { "type": "string" }, "minItems": 1,
                "description": "The program, then its arguments, one item each: [\"git\", \"status\"].",
            },
        });
        let mut tool = definition("shell", &description, properties, &["argv"]);
        tool.annotations.read_only_hint = Some(false);
        tool.annotations.destructive_hint = Some(true);
        tool
    }
}

/// One output of a program, up to a bound.
struct Output {
    bytes: Vec<u8>,
    cut: bool,
}

/// Reads up to a bound; a program that writes more is ended.
async fn bounded(from: Option<impl AsyncRead + Unpin>, most: usize, group: &Group) -> Output {
    let mut output = Output {
        bytes: Vec::new(),
        cut: false,
    };
    let Some(mut from) = from else { return output };
    let mut chunk = [0; 8 << 10];
    while let Ok(read @ 1..) = from.read(&mut chunk).await {
        let room = most - output.bytes.len();
        output.bytes.extend_from_slice(&chunk[..read.min(room)]);
        if read > room {
            output.cut = true;
            group.end();
            break;
        }
    }
    output
}

fn answer(status: ExitStatus, stdout: &Output, stderr: &Output) -> Value {
    let mut answer = json!({
        "exit_code": status.code(),
        "stdout": String::from_utf8_lossy(&stdout.bytes),
        "stderr": String::from_utf8_lossy(&stderr.bytes),
    });
    if stdout.cut || stderr.cut {
        answer["note"] =
            "it wrote more than is allowed and was ended; this is the beginning".into();
    }
    answer
}

/// A program and everything it has started. Ended on drop.
struct Group(#[cfg(unix)] Option<rustix::process::Pid>);

impl Group {
    #[cfg(unix)]
    fn of(id: Option<u32>) -> Self {
        Group(id.and_then(|id| rustix::process::Pid::from_raw(id.cast_signed())))
    }

    #[cfg(unix)]
    fn end(&self) {
        if let Some(group) = self.0 {
            // Fails where nobody of it is left, which is as well.
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
    }

    #[cfg(not(unix))]
    fn of(_: Option<u32>) -> Self {
        Group()
    }

    #[cfg(not(unix))]
    fn end(&self) {}
}

impl Drop for Group {
    fn drop(&mut self) {
        self.end();
    }
}

fn words(arguments: &Arguments) -> Result<Vec<String>, ToolFailure> {
    let items = arguments
        .get("argv")
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default();
    let words: Option<Vec<String>> = items
        .iter()
        .map(|item| item.as_str().map(str::to_owned))
        .collect();
    let words = words.filter(|words| !words.is_empty());
    let words =
        words.ok_or_else(|| ToolFailure::new("`argv` is a list of texts, the program first"))?;
    let bytes: usize = words.iter().map(String::len).sum();
    if words.len() > MAX_ARGUMENTS || bytes > MAX_ARGUMENT_BYTES {
        let message = format!(
            "{} arguments of {bytes} bytes are too many; {MAX_ARGUMENTS} of {MAX_ARGUMENT_BYTES} bytes are allowed",
            words.len()
        );
        return Err(ToolFailure::new(message));
    }
    if words.iter().any(|word| word.contains('\0')) {
        return Err(ToolFailure::new(
            "an argument holds a NUL character; leave it out",
        ));
    }
    Ok(words)
}

fn allowed(entry: &str) -> Result<Allowed, BuiltinError> {
    let mut words: Vec<String> = entry.split_whitespace().map(str::to_owned).collect();
    let is_open = words.len() > 1 && words.last().is_some_and(|last| last == ANY);
    if is_open {
        words.pop();
    }
    let program = words.first().cloned().unwrap_or_default();
    let path = found(&program).ok_or(BuiltinError::NoProgram { program })?;
    if is_open && words.len() == 1 && options::is_interpreter(&path) {
        return Err(BuiltinError::OpenInterpreter {
            entry: entry.to_owned(),
        });
    }
    Ok(Allowed {
        entry: entry.to_owned(),
        words,
        is_open,
        path,
    })
}

impl Allowed {
    /// The arguments of a call beyond those of the entry; `None` for a call that is not of this
    /// entry.
    fn further<'a>(&self, words: &'a [String]) -> Option<&'a [String]> {
        words
            .strip_prefix(self.words.as_slice())
            .filter(|further| self.is_open || further.is_empty())
    }
}

/// The program's file: the path itself where it is one, else the first in `PATH`.
fn found(program: &str) -> Option<PathBuf> {
    if program.contains('/') {
        return std::path::absolute(program)
            .ok()
            .filter(|path| path.is_file());
    }
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders)
        .map(|folder| folder.join(program))
        .find(|path| !program.is_empty() && path.is_file())
}
