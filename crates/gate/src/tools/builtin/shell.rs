//! `shell`: runs programs of an allow-list. No shell is involved: a program gets its arguments
//! unchanged.

mod programs;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::time::timeout;
use toolscout_index::Tool;

use crate::tools::builtin::{BuiltinError, definition};
use crate::tools::{Arguments, Callable, ToolFailure, UserTool};
use toolscout_base::printable::excerpt;
use toolscout_base::program_file::find_program;
use toolscout_base::sandbox::{self, PrivateFolder, Sandbox, SandboxSettings};

/// Maximum number of arguments of a call.
const MAX_ARGUMENTS: usize = 256;
/// Maximum number of bytes of all arguments of a call; systems allow about as many.
const MAX_ARGUMENT_BYTES: usize = 128 << 10;
/// Characters of a call that its refusal quotes.
const QUOTED_CHARS: usize = 100;
/// The word of an entry that allows further arguments.
const ANY_ARGUMENTS: &str = "*";

/// What every program gets, besides `PATH`: `git` reads no files of settings but those of the
/// repository.
const ENVIRONMENT: [(&str, &str); 5] = [
    ("LANG", "C.UTF-8"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_ASKPASS", "false"),
];
/// Settings of `git` that win over the repository's, which name programs to run.
const GIT_SETTINGS: [(&str, &str); 13] = [
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("protocol.ext.allow", "never"),
    ("core.pager", "cat"),
    ("core.editor", "false"),
    ("sequence.editor", "false"),
    ("core.sshCommand", "false"),
    ("core.alternateRefsCommand", "true"),
    ("credential.helper", ""),
    ("log.showSignature", "false"),
    ("gpg.program", "false"),
    ("gpg.ssh.program", "false"),
    ("gpg.x509.program", "false"),
];
/// Options for those commands of `git` that show contents: without them the repository's settings
/// and attributes name programs that show a difference or a file.
const GIT_SHOWS: [(&str, &[&str]); 9] = [
    ("diff", &["--no-ext-diff", "--no-textconv"]),
    ("diff-files", &["--no-ext-diff", "--no-textconv"]),
    ("diff-index", &["--no-ext-diff", "--no-textconv"]),
    ("diff-tree", &["--no-ext-diff", "--no-textconv"]),
    ("log", &["--no-ext-diff", "--no-textconv"]),
    ("show", &["--no-ext-diff", "--no-textconv"]),
    ("whatchanged", &["--no-ext-diff", "--no-textconv"]),
    ("grep", &["--no-textconv"]),
    ("blame", &["--no-textconv"]),
];

/// The settings of the shell: what may run, and its limits.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShellConfig {
    /// The allowed calls: a program by name or path, with its arguments. `ls` allows only `ls`
    /// without arguments. A `*` allows further arguments that are not options. The options that are
    /// allowed among them follow it: `git log * --oneline --since=` allows these two, the second with
    /// any value.
    pub allow: Vec<String>,
    /// The working directory of programs.
    #[serde(default = "default_dir")]
    pub dir: PathBuf,
    /// Environment variables that programs get in addition to `PATH` and `LANG`. All others are
    /// removed.
    #[serde(default)]
    pub env: Vec<String>,
    /// Time limit in seconds.
    #[serde(default = "default_timeout_s")]
    pub timeout_s: u64,
    /// Maximum number of bytes of stdout and of stderr.
    #[serde(default = "default_output_bytes")]
    pub max_output_bytes: usize,
    /// What programs may use besides `dir`; none for no sandbox.
    #[serde(default = "default_sandbox", deserialize_with = "sandbox::from_switch")]
    pub sandbox: Option<SandboxSettings>,
}

fn default_dir() -> PathBuf {
    PathBuf::from(".")
}

fn default_timeout_s() -> u64 {
    30
}

fn default_output_bytes() -> usize {
    64 << 10
}

#[expect(clippy::unnecessary_wraps, reason = "it is the default of an option")]
fn default_sandbox() -> Option<SandboxSettings> {
    Some(SandboxSettings::default())
}

/// The tool `shell`.
#[derive(Debug)]
pub struct Shell {
    config: ShellConfig,
    allowed: Vec<Allowed>,
    environment: BTreeMap<String, String>,
    sandbox: Option<Sandbox>,
}

/// An entry of the allow-list.
#[derive(Debug)]
struct Allowed {
    /// The entry as written in the settings.
    entry: String,
    /// The program and its arguments.
    words: Vec<String>,
    /// Further arguments are allowed.
    is_open: bool,
    /// The options that are allowed among them; one that ends in `=` with any value.
    options: Vec<String>,
    path: PathBuf,
}

impl Shell {
    /// The tool with these settings. Programs are looked up now, so that a later change of `PATH`
    /// has no effect.
    ///
    /// # Errors
    /// [`BuiltinError::NoProgram`], [`BuiltinError::OpenInterpreter`], [`BuiltinError::Sandbox`].
    pub fn new(config: &ShellConfig) -> Result<Self, BuiltinError> {
        let mut allowed = Vec::with_capacity(config.allow.len());
        for entry in &config.allow {
            allowed.push(Allowed::parse(entry)?);
        }
        let sandbox = match &config.sandbox {
            Some(settings) => Some(Sandbox::new(settings, Some(&config.dir))?),
            None => None,
        };
        Ok(Shell {
            config: config.clone(),
            allowed,
            environment: environment(config),
            sandbox,
        })
    }

    /// The path of an allowed call's program.
    fn program(&self, words: &[String]) -> Result<&Path, ToolFailure> {
        let mut refused = None;
        for allowed in &self.allowed {
            let Some(further) = allowed.further_arguments(words) else {
                continue;
            };
            // Another entry may allow the whole call, so a refused argument does not end the loop.
            match further.iter().find(|argument| !allowed.allows(argument)) {
                None => return Ok(&allowed.path),
                Some(argument) => refused = refused.or(Some(argument)),
            }
        }
        Err(ToolFailure::new(match refused {
            Some(argument) => format!(
                "{:?} is an option, and not allowed for {}: `*` stands for arguments that are no options, and the \
                 allowed ones follow it; leave it out, or ask the user to allow it",
                excerpt(argument, QUOTED_CHARS),
                words[0],
            ),
            None => format!(
                "{:?} is not allowed; allowed are {}, each with exactly these arguments unless it ends in `*`",
                excerpt(&words.join(" "), QUOTED_CHARS),
                self.entries()
            ),
        }))
    }

    /// The entries of the allow-list, for the model.
    fn entries(&self) -> String {
        let entries = self.allowed.iter().map(|allowed| allowed.entry.as_str());
        entries.collect::<Vec<_>>().join(", ")
    }

    async fn run(&self, words: &[String]) -> Result<Value, ToolFailure> {
        let program = self.program(words)?;
        let mut command = Command::new(program);
        command
            .args(arguments(program, &words[1..]))
            // The environment of this program may hold keys of models and services.
            .env_clear()
            .envs(&self.environment)
            .current_dir(&self.config.dir);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        #[cfg(unix)]
        // So that what the program starts can be killed with it.
        command.process_group(0);
        // Its folder for temporary files is deleted at the end of this call.
        let (mut child, _private) = match self.start(&mut command) {
            Ok(started) => started,
            Err(error) => {
                let message = format!("{} does not start: {error}", words[0]);
                return Err(ToolFailure::new(message));
            }
        };
        let group = ProcessGroup::of(child.id());
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let max_bytes = self.config.max_output_bytes;
        let ended = async {
            let status = child.wait().await;
            // Children that outlive the program would keep its output open.
            group.kill();
            status
        };
        // Both outputs are read while the program runs: a full pipe would block it.
        let (stdout, stderr, status) = tokio::join!(
            read_bounded(stdout, max_bytes, &group),
            read_bounded(stderr, max_bytes, &group),
            ended
        );
        match status {
            Ok(status) => Ok(answer(status, &stdout, &stderr)),
            Err(error) => Err(ToolFailure::new(format!("{} was lost: {error}", words[0]))),
        }
    }

    fn start(&self, command: &mut Command) -> io::Result<(Child, Option<PrivateFolder>)> {
        match &self.sandbox {
            Some(sandbox) => {
                let (child, folder) = sandbox.start(command)?;
                Ok((child, Some(folder)))
            }
            None => Ok((command.spawn()?, None)),
        }
    }
}

#[async_trait]
impl Callable for Shell {
    async fn call(&self, arguments: Arguments) -> Result<Value, ToolFailure> {
        let words = words(&arguments)?;
        let seconds = self.config.timeout_s;
        // When the future is dropped at the timeout, its process group is killed.
        match timeout(Duration::from_secs(seconds), self.run(&words)).await {
            Ok(result) => result,
            Err(_) => Err(ToolFailure::new(format!(
                "{} took longer than {seconds} s and was ended",
                words[0]
            ))),
        }
    }

    /// By its own `timeout_s`.
    fn limits_itself(&self) -> bool {
        true
    }
}

impl UserTool for Shell {
    fn definition(&self) -> Tool {
        let description = format!(
            "Runs a program. There is no shell: no pipes, no redirection, no variables. Allowed are exactly: {}. \
            A `*` stands for further arguments that are no options; the options after it may be among them.",
            self.entries()
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

/// One output of a program, cut at the limit.
struct Output {
    bytes: Vec<u8>,
    cut: bool,
}

/// Reads an output up to the limit. A program that writes more is killed.
async fn read_bounded(
    from: Option<impl AsyncRead + Unpin>,
    max_bytes: usize,
    group: &ProcessGroup,
) -> Output {
    let mut output = Output {
        bytes: Vec::new(),
        cut: false,
    };
    let Some(mut from) = from else { return output };
    let mut chunk = [0; 8 << 10];
    while let Ok(read @ 1..) = from.read(&mut chunk).await {
        let room = max_bytes - output.bytes.len();
        output.bytes.extend_from_slice(&chunk[..read.min(room)]);
        if read > room {
            output.cut = true;
            group.kill();
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

/// A program and all processes that it started. Killed on drop.
struct ProcessGroup(#[cfg(unix)] Option<rustix::process::Pid>);

impl ProcessGroup {
    #[cfg(unix)]
    fn of(id: Option<u32>) -> Self {
        ProcessGroup(id.and_then(|id| rustix::process::Pid::from_raw(id.cast_signed())))
    }

    #[cfg(unix)]
    fn kill(&self) {
        if let Some(group) = self.0 {
            // Fails if no process of the group is left, which is fine.
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
    }

    #[cfg(not(unix))]
    fn of(_: Option<u32>) -> Self {
        ProcessGroup()
    }

    #[cfg(not(unix))]
    fn kill(&self) {}
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.kill();
    }
}

fn argv(arguments: &Arguments) -> Option<Vec<String>> {
    let items = arguments.get("argv")?.as_array()?;
    let mut words = Vec::with_capacity(items.len());
    for item in items {
        words.push(item.as_str()?.to_owned());
    }
    (!words.is_empty()).then_some(words)
}

fn words(arguments: &Arguments) -> Result<Vec<String>, ToolFailure> {
    let Some(words) = argv(arguments) else {
        let message = "`argv` is a list of texts, the program first";
        return Err(ToolFailure::new(message));
    };
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

impl Allowed {
    fn parse(entry: &str) -> Result<Self, BuiltinError> {
        let mut words: Vec<String> = entry.split_whitespace().map(str::to_owned).collect();
        let star = words.iter().skip(1).position(|word| word == ANY_ARGUMENTS);
        let (mut is_open, mut options) = (false, Vec::new());
        if let Some(before) = star {
            let after = &words[before + 2..];
            // With anything else after it, a `*` is an argument as any other.
            if after.iter().all(|option| is_option(option)) {
                (is_open, options) = (true, after.to_vec());
                words.truncate(before + 1);
            }
        }
        let program = words.first().cloned().unwrap_or_default();
        let path = find_program(&program).ok_or(BuiltinError::NoProgram { program })?;
        // An interpreter is safe only with its script as part of the entry, and others with the command.
        if is_open && programs::is_too_open(&path, &words[1..]) {
            return Err(BuiltinError::OpenInterpreter {
                entry: entry.to_owned(),
            });
        }
        Ok(Allowed {
            entry: entry.to_owned(),
            words,
            is_open,
            options,
            path,
        })
    }

    /// Whether a further argument is no option, or one that the entry names.
    fn allows(&self, argument: &str) -> bool {
        if !is_option(argument) {
            return true;
        }
        for option in &self.options {
            let is_named = match option.ends_with('=') {
                true => argument.starts_with(option.as_str()),
                false => argument == option,
            };
            if is_named {
                return true;
            }
        }
        false
    }

    /// The arguments of a call beyond those of the entry; `None` if the entry does not match.
    fn further_arguments<'a>(&self, words: &'a [String]) -> Option<&'a [String]> {
        let further = words.strip_prefix(self.words.as_slice())?;
        (self.is_open || further.is_empty()).then_some(further)
    }
}

fn environment(config: &ShellConfig) -> BTreeMap<String, String> {
    let mut environment = BTreeMap::new();
    for (name, value) in ENVIRONMENT {
        environment.insert(name.to_owned(), value.to_owned());
    }
    add_git_settings(&mut environment);
    // Last, so that the settings of this tool may replace any of the others.
    for name in config.env.iter().map(String::as_str).chain(["PATH"]) {
        if let Ok(value) = std::env::var(name) {
            environment.insert(name.to_owned(), value);
        }
    }
    environment
}

/// Adds the settings of `git` as variables, which win over all of its files of settings.
fn add_git_settings(environment: &mut BTreeMap<String, String>) {
    for (number, (key, value)) in GIT_SETTINGS.iter().enumerate() {
        environment.insert(format!("GIT_CONFIG_KEY_{number}"), (*key).to_owned());
        environment.insert(format!("GIT_CONFIG_VALUE_{number}"), (*value).to_owned());
    }
    let count = GIT_SETTINGS.len().to_string();
    environment.insert("GIT_CONFIG_COUNT".to_owned(), count);
}

/// The arguments as they are written; commands of `git` get options that keep them from running
/// programs.
fn arguments(program: &Path, words: &[String]) -> Vec<String> {
    let mut arguments = words.to_vec();
    let is_git = program.file_stem().is_some_and(|name| name == "git");
    let command = words.iter().position(|word| !word.starts_with("--"));
    if is_git
        && let Some(place) = command
        && let Some((_, options)) = GIT_SHOWS.iter().find(|(name, _)| *name == words[place])
    {
        // Right after the command: after a `--` they would be names of files.
        let options = options.iter().map(|option| (*option).to_owned());
        arguments.splice(place + 1..=place, options);
    }
    arguments
}

/// Whether a program may take an argument as an option.
fn is_option(argument: &str) -> bool {
    argument.starts_with('-') && !matches!(argument, "-" | "--")
}
