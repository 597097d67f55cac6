//! `file_read`, `file_write` and `file_list`: access to files in one folder.
//!
//! The folder is opened once, and cap-std resolves every path beneath it step by step: neither `..`
//! nor a symbolic link leads out, even if the link is created meanwhile. The type of a file is
//! checked after opening and before reading or writing, so devices and pipes are refused untouched.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use cap_std::ambient_authority;
use cap_std::fs::{Dir, File, FileType, OpenOptions};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::task::spawn_blocking;
use toolscout_index::Tool;

use crate::tools::builtin::{BuiltinError, definition, number, text};
use crate::tools::{Arguments, Callable, ToolFailure, UserTool};

/// Bytes that are read if the model sets no limit.
const DEFAULT_READ_BYTES: u64 = 64 << 10;
/// Maximum number of bytes that one call reads.
const MAX_READ_BYTES: u64 = 1 << 20;
/// Maximum number of entries in a list.
const MAX_ENTRIES: usize = 1_000;

/// The settings of the file tools.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FilesConfig {
    /// The folder that cannot be left.
    pub root: String,
    /// Enables `file_write`.
    #[serde(default)]
    pub write: bool,
    /// Maximum number of bytes that one call writes.
    #[serde(default = "default_write_bytes")]
    pub max_write_bytes: usize,
}

fn default_write_bytes() -> usize {
    1 << 20
}

/// The opened folder.
#[derive(Clone, Debug)]
pub struct Root {
    dir: Arc<Dir>,
    /// Its absolute path without links, to recognise absolute paths that lead into it.
    path: Arc<Path>,
    max_write_bytes: usize,
}

impl Root {
    /// Opens the folder.
    ///
    /// # Errors
    /// [`BuiltinError::Root`].
    pub fn open(config: &FilesConfig) -> Result<Self, BuiltinError> {
        match opened(&config.root) {
            Ok((dir, path)) => Ok(Root {
                dir: Arc::new(dir),
                path: path.into(),
                max_write_bytes: config.max_write_bytes,
            }),
            Err(source) => Err(BuiltinError::Root {
                root: config.root.clone(),
                source,
            }),
        }
    }

    /// Runs an operation on a blocking thread.
    async fn run_blocking(
        &self,
        operation: impl FnOnce(&Root) -> Result<Value, ToolFailure> + Send + 'static,
    ) -> Result<Value, ToolFailure> {
        let root = self.clone();
        let done = spawn_blocking(move || operation(&root)).await;
        done.unwrap_or_else(|_| Err(ToolFailure::new("the file tool failed")))
    }

    /// The whole content of a file of at most this many bytes.
    ///
    /// # Errors
    /// [`ToolFailure`] for what is no plain file in the folder, and for a longer one.
    pub async fn whole(&self, path: String, max_bytes: usize) -> Result<Vec<u8>, ToolFailure> {
        let root = self.clone();
        let read = spawn_blocking(move || read_whole(&root, &path, max_bytes)).await;
        read.unwrap_or_else(|_| Err(ToolFailure::new("reading the file failed")))
    }

    /// Opens a path if it is a regular file.
    fn open_file(&self, path: &str, options: &mut OpenOptions) -> Result<File, ToolFailure> {
        let failed = |error| io_failure(path, &error);
        let inside = self.inside(path)?;
        nonblocking(options);
        let file = self.dir.open_with(inside, options).map_err(failed)?;
        // The type of what was opened, not of the path, which may have changed meanwhile.
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() {
            return Err(ToolFailure::new(format!(
                "{path} is {}, not a plain file",
                kind(metadata.file_type())
            )));
        }
        Ok(file)
    }
}

impl Root {
    /// The path relative to the root. An absolute path has to lead into the root, by its own name or
    /// through a link to it. This gives clear messages; that nothing leads out is cap-std's doing.
    fn inside(&self, given: &str) -> Result<PathBuf, ToolFailure> {
        if given.is_empty() || given.contains('\0') {
            return Err(ToolFailure::new(format!("{given:?} is not a valid path")));
        }
        let path = Path::new(given);
        match self.relative(path) {
            Some(path) if path.as_os_str().is_empty() => Ok(PathBuf::from(".")),
            Some(path) => Ok(path),
            None => Err(ToolFailure::new(format!(
                "{given:?} is outside: give a path inside the root, as `notes/today.md`"
            ))),
        }
    }

    fn relative(&self, path: &Path) -> Option<PathBuf> {
        if path.is_absolute() {
            return self.below_root(&without_dots(path)?);
        }
        stays_inside(path).then(|| path.to_owned())
    }

    /// The rest of an absolute path after the root. Only folders above the root are looked at, and
    /// nothing outside is told from what does not exist.
    fn below_root(&self, path: &Path) -> Option<PathBuf> {
        // From the disk's root down, so that nothing below the first missing folder is looked at.
        let mut above: Vec<&Path> = path.ancestors().collect();
        above.reverse();
        for folder in above {
            let resolved = std::fs::canonicalize(folder).ok()?;
            if *resolved == *self.path {
                return path.strip_prefix(folder).ok().map(Path::to_owned);
            }
        }
        None
    }
}

/// An absolute path with its `.` and `..` resolved by name; `None` if it goes above the disk's root.
fn without_dots(path: &Path) -> Option<PathBuf> {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                plain.pop().then_some(())?;
            }
            part => plain.push(part),
        }
    }
    Some(plain)
}

/// True for a relative path that does not go above where it starts.
fn stays_inside(path: &Path) -> bool {
    let mut depth = 0_usize;
    for part in path.components() {
        match part {
            Component::Normal(_) => depth += 1,
            Component::CurDir => {}
            Component::ParentDir if depth > 0 => depth -= 1,
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return false,
        }
    }
    true
}

/// Makes opening a pipe return at once instead of waiting for its other end.
#[cfg(unix)]
fn nonblocking(options: &mut OpenOptions) {
    use cap_std::fs::OpenOptionsExt;
    options.custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed());
}

#[cfg(not(unix))]
fn nonblocking(_: &mut OpenOptions) {}

/// Reads a file.
#[derive(Debug)]
pub struct FileRead(pub Root);

#[async_trait]
impl Callable for FileRead {
    async fn call(&self, arguments: Arguments) -> Result<Value, ToolFailure> {
        let path = text(&arguments, "path")?.to_owned();
        let offset = number(&arguments, "offset").unwrap_or(0);
        let most = number(&arguments, "max_bytes")
            .unwrap_or(DEFAULT_READ_BYTES)
            .min(MAX_READ_BYTES);
        let work = move |root: &Root| read(root, &path, offset, most);
        self.0.run_blocking(work).await
    }
}

impl UserTool for FileRead {
    fn definition(&self) -> Tool {
        let properties = json!({
            "path": path_schema(),
            "offset": { "type": "integer", "minimum": 0, "description": "Bytes to skip." },
            "max_bytes": { "type": "integer", "minimum": 1, "description": "65536 if left out, 1048576 at most." },
        });
        let mut tool = definition("file_read", "Reads a text file.", properties, &["path"]);
        tool.annotations.read_only_hint = Some(true);
        tool
    }
}

/// Lists a folder.
#[derive(Debug)]
pub struct FileList(pub Root);

#[async_trait]
impl Callable for FileList {
    async fn call(&self, arguments: Arguments) -> Result<Value, ToolFailure> {
        let path = arguments
            .get("path")
            .and_then(Value::as_str)
            .unwrap_or(".")
            .to_owned();
        self.0.run_blocking(move |root| list(root, &path)).await
    }
}

impl UserTool for FileList {
    fn definition(&self) -> Tool {
        let properties = json!({ "path": path_schema() });
        let mut tool = definition("file_list", "Lists the files in a folder.", properties, &[]);
        tool.annotations.read_only_hint = Some(true);
        tool
    }
}

/// Writes a file.
#[derive(Debug)]
pub struct FileWrite(pub Root);

#[async_trait]
impl Callable for FileWrite {
    async fn call(&self, arguments: Arguments) -> Result<Value, ToolFailure> {
        let path = text(&arguments, "path")?.to_owned();
        let content = text(&arguments, "content")?.to_owned();
        let mode = arguments
            .get("mode")
            .and_then(Value::as_str)
            .unwrap_or("create")
            .to_owned();
        self.0
            .run_blocking(move |root| write(root, &path, &content, &mode))
            .await
    }
}

impl UserTool for FileWrite {
    fn definition(&self) -> Tool {
        let properties = json!({
            "path": path_schema(),
            "content": { "type": "string", "description": "The text." },
            "mode": {
                "type": "string", "enum": ["create", "overwrite", "append"],
                "description": "create refuses a file that is there; create if left out.",
            },
        });
        let mut tool = definition(
            "file_write",
            "Writes a text file.",
            properties,
            &["path", "content"],
        );
        tool.annotations.read_only_hint = Some(false);
        tool.annotations.destructive_hint = Some(true);
        tool
    }
}

fn opened(root: &str) -> io::Result<(Dir, PathBuf)> {
    let dir = Dir::open_ambient_dir(root, ambient_authority())?;
    Ok((dir, std::fs::canonicalize(root)?))
}

fn read(root: &Root, path: &str, offset: u64, most: u64) -> Result<Value, ToolFailure> {
    let failed = |error| io_failure(path, &error);
    let mut file = root.open_file(path, OpenOptions::new().read(true))?;
    let size = file.metadata().map_err(failed)?.len();
    file.seek(SeekFrom::Start(offset)).map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes).map_err(failed)?;
    // The test that grep uses for binary files.
    if bytes.contains(&0) {
        return Err(ToolFailure::new(format!("{path} is not a text file")));
    }
    let end = offset.saturating_add(bytes.len() as u64);
    let mut answer =
        json!({ "path": path, "size_bytes": size, "text": String::from_utf8_lossy(&bytes) });
    if end < size {
        answer["next_offset"] = end.into();
    }
    Ok(answer)
}

fn read_whole(root: &Root, path: &str, max_bytes: usize) -> Result<Vec<u8>, ToolFailure> {
    let file = root.open_file(path, OpenOptions::new().read(true))?;
    let mut bytes = Vec::new();
    // One byte more than is allowed tells a file that is too long.
    file.take(max_bytes as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| io_failure(path, &error))?;
    if bytes.len() > max_bytes {
        return Err(ToolFailure::new(format!(
            "{path} is too long: of the files of one request {max_bytes} bytes are left"
        )));
    }
    Ok(bytes)
}

fn list(root: &Root, path: &str) -> Result<Value, ToolFailure> {
    let inside = root.inside(path)?;
    let failed = |error| io_failure(path, &error);
    let mut entries = Vec::new();
    let all = root.dir.read_dir(inside).map_err(failed)?;
    // One more than is listed, to know whether there are more.
    for entry in all.take(MAX_ENTRIES + 1) {
        let entry = entry.map_err(failed)?;
        // The entry's own metadata: a link is listed as a link, wherever it leads.
        let metadata = entry.metadata().map_err(failed)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        entries.push((name, kind(metadata.file_type()), metadata.len()));
    }
    let more = entries.len() > MAX_ENTRIES;
    entries.truncate(MAX_ENTRIES);
    // File systems give them in any order.
    entries.sort();
    let mut lines = Vec::with_capacity(entries.len());
    for (name, kind, bytes) in entries {
        lines.push(json!({ "name": name, "kind": kind, "size_bytes": bytes }));
    }
    Ok(json!({ "path": path, "entries": lines, "more": more }))
}

fn write(root: &Root, path: &str, content: &str, mode: &str) -> Result<Value, ToolFailure> {
    let most = root.max_write_bytes;
    if content.len() > most {
        return Err(ToolFailure::new(format!(
            "content has {} bytes, {most} are allowed at once",
            content.len()
        )));
    }
    let mut options = OpenOptions::new();
    match mode {
        "overwrite" => options.write(true).create(true),
        "append" => options.append(true).create(true),
        // The safe mode for everything unknown: it cannot change an existing file.
        _ => options.write(true).create_new(true),
    };
    let mut file = root.open_file(path, &mut options)?;
    ensure_single_link(&file, path)?;
    let failed = |error| io_failure(path, &error);
    // Truncated only now, after all checks, and not when the file is opened.
    if mode == "overwrite" {
        file.set_len(0).map_err(failed)?;
    }
    file.write_all(content.as_bytes()).map_err(failed)?;
    Ok(json!({ "path": path, "written_bytes": content.len() }))
}

/// Refuses a file with several hard links: it may be a file outside the root.
#[cfg(unix)]
fn ensure_single_link(file: &File, path: &str) -> Result<(), ToolFailure> {
    use cap_std::fs::MetadataExt;
    let metadata = file.metadata().map_err(|error| io_failure(path, &error))?;
    let links = metadata.nlink();
    if links <= 1 {
        return Ok(());
    }
    Err(ToolFailure::new(format!(
        "{path} has {links} names (hard links), and is not written to for that"
    )))
}

#[cfg(not(unix))]
fn ensure_single_link(_: &File, _: &str) -> Result<(), ToolFailure> {
    Ok(())
}

fn io_failure(path: &str, error: &io::Error) -> ToolFailure {
    let path = toolscout_base::printable::excerpt(path, 200);
    ToolFailure::new(match error.kind() {
        io::ErrorKind::NotFound => format!("there is no {path:?}; `file_list` shows what there is"),
        io::ErrorKind::AlreadyExists => {
            format!("{path:?} already exists; use the mode overwrite or append")
        }
        io::ErrorKind::PermissionDenied => {
            format!("{path:?} leads outside of the root or may not be used: {error}")
        }
        _ => format!("{path:?} cannot be used: {error}"),
    })
}

fn kind(file_type: FileType) -> &'static str {
    if file_type.is_file() {
        "file"
    } else if file_type.is_dir() {
        "folder"
    } else if file_type.is_symlink() {
        "link"
    } else {
        "device or pipe"
    }
}

fn path_schema() -> Value {
    json!({ "type": "string", "description": "A path inside the root, as `notes/today.md`, or an absolute one; `.` is the root itself." })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(root: &Path) -> Root {
        let config = FilesConfig {
            root: root.to_str().unwrap().to_owned(),
            write: true,
            max_write_bytes: 100,
        };
        Root::open(&config).unwrap()
    }

    #[test]
    fn absolute_paths_inside_the_root_are_used_and_others_refused() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        std::fs::create_dir_all(at("home/notes")).unwrap();
        std::fs::create_dir(at("home-other")).unwrap();
        std::fs::write(at("home/today.md"), "today").unwrap();
        std::fs::write(at("home-other/today.md"), "secret").unwrap();
        let root = opened(&at("home"));
        let text = |path: &Path| {
            let answer = read(&root, path.to_str().unwrap(), 0, 100);
            answer
                .map(|answer| answer["text"].clone())
                .map_err(|failure| failure.message)
        };
        for inside in [
            at("home/today.md"),
            at("home/./notes/../today.md"),
            at("home-other/../home/today.md"),
            PathBuf::from("notes/../today.md"),
        ] {
            assert_eq!(text(&inside), Ok("today".into()), "{inside:?}");
        }
        for outside in [
            at("home-other/today.md"),
            at("home/../home-other/today.md"),
            at("home/notes/../../home-other/today.md"),
            at("nothing/today.md"),
            PathBuf::from("../home/today.md"),
            PathBuf::from("/"),
        ] {
            let message = text(&outside).unwrap_err();
            assert!(message.contains("is outside"), "{outside:?}: {message}");
        }
        let listed = list(&root, at("home").to_str().unwrap()).unwrap();
        assert_eq!(listed["entries"].as_array().unwrap().len(), 2);
        write(&root, at("home/new.md").to_str().unwrap(), "new", "create").unwrap();
        assert_eq!(std::fs::read_to_string(at("home/new.md")).unwrap(), "new");
    }

    #[cfg(unix)]
    #[test]
    fn a_link_to_the_root_leads_into_it_and_a_link_out_of_it_does_not_lead_out() {
        use std::os::unix::fs::symlink;

        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        std::fs::create_dir_all(at("real/home")).unwrap();
        std::fs::write(at("real/home/today.md"), "today").unwrap();
        std::fs::write(at("secret.md"), "secret").unwrap();
        symlink(at("real"), at("link")).unwrap();
        symlink(at("secret.md"), at("real/home/out.md")).unwrap();
        for opened_as in ["real/home", "link/home"] {
            let root = opened(&at(opened_as));
            for path in ["real/home/today.md", "link/home/today.md"] {
                let path = at(path);
                let answer = read(&root, path.to_str().unwrap(), 0, 100).unwrap();
                assert_eq!(answer["text"], "today", "{path:?} of {opened_as}");
            }
            let out = at("link/home/out.md");
            let failure = read(&root, out.to_str().unwrap(), 0, 100).unwrap_err();
            assert!(failure.message.contains("leads outside"), "{failure:?}");
        }
    }
}
