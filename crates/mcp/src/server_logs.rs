//! What servers write to their standard error, in files of the data directory.
//!
//! Each server has a file that only its owner can read, with known secrets masked. At its bound the
//! file becomes the older one of two, and a new one begins.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use toolscout_base::clock;
use toolscout_base::known_secrets::StreamMask;

use crate::config::safe_name;

/// The folder in the data directory.
const FOLDER: &str = "mcp-logs";
/// Bytes after which a file becomes the older one.
const MAX_BYTES: u64 = 1 << 20;
/// Held while a file is replaced: several processes may write to it.
const LOCK: &str = "replacing.lock";
/// Characters of a name that file systems or terminals take for something else, and the one that
/// stands before their codes.
const UNSAFE: [char; 9] = ['\\', ':', '*', '?', '"', '<', '>', '|', '%'];

/// The folder with the logs of servers; none if nothing is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerLogs(Option<PathBuf>);

impl ServerLogs {
    /// The logs of a data directory.
    pub fn in_data_dir(data: &Path) -> Self {
        ServerLogs(Some(data.join(FOLDER)))
    }

    /// The file of a server.
    pub fn file(&self, server: &str) -> Option<LogFile> {
        let name = file_name(&safe_name(server));
        let folder = self.0.as_ref()?;
        Some(LogFile {
            path: folder.join(format!("{name}.log")),
        })
    }

    /// The names of the servers that have a file, in order.
    pub fn names(&self) -> Vec<String> {
        let Some(folder) = &self.0 else {
            return Vec::new();
        };
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let mut names = Vec::new();
        for entry in entries {
            let name = entry.file_name();
            if let Some(name) = name.to_str().and_then(|name| name.strip_suffix(".log")) {
                names.push(server_name(name));
            }
        }
        names.sort();
        names
    }
}

/// The name of a server as a part of a file's name: no other server has the same.
fn file_name(server: &str) -> String {
    let mut name = String::new();
    for letter in server.chars() {
        match UNSAFE.contains(&letter) {
            true => name.push_str(&format!("%{:02X}", u32::from(letter))),
            false => name.push(letter),
        }
    }
    name
}

/// The server whose file has this name.
fn server_name(file: &str) -> String {
    let mut server = file.to_owned();
    // The sign before the codes comes last, since it may stand before what looks like one.
    for letter in UNSAFE {
        server = server.replace(&format!("%{:02X}", u32::from(letter)), &letter.to_string());
    }
    server
}

/// The log of one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFile {
    path: PathBuf,
}

impl LogFile {
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends bytes. Several processes may write to one file.
    ///
    /// # Errors
    /// Those of the system.
    pub fn append(&self, bytes: &[u8]) -> io::Result<()> {
        if let Some(folder) = self.path.parent() {
            create_private(folder)?;
        }
        let mut file = self.open()?;
        if file.metadata()?.len() >= MAX_BYTES {
            drop(file);
            self.replace()?;
            file = self.open()?;
        }
        file.write_all(bytes)
    }

    /// Makes the file the older one, unless another process just has.
    fn replace(&self) -> io::Result<()> {
        let lock = private_file(&self.path.with_file_name(LOCK))?;
        // Ends with the file.
        lock.lock()?;
        match fs::metadata(&self.path) {
            Ok(metadata) if metadata.len() >= MAX_BYTES => fs::rename(&self.path, self.older()),
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The last lines of both files.
    ///
    /// # Errors
    /// Those of the system. A file that is missing has no lines.
    pub fn last_lines(&self, lines: usize) -> io::Result<Tail> {
        let (mut text, _) = read_from(&self.older(), 0)?;
        let (newest, end) = read_from(&self.path, 0)?;
        text.push_str(&newest);
        let all: Vec<&str> = text.lines().collect();
        let shown = &all[all.len().saturating_sub(lines)..];
        Ok(Tail {
            lines: shown.iter().map(|line| (*line).to_owned()).collect(),
            end,
        })
    }

    /// The lines after a place, and those of a new file if one was begun.
    ///
    /// # Errors
    /// Those of the system.
    pub fn lines_after(&self, end: u64) -> io::Result<Tail> {
        let length = fs::metadata(&self.path).map_or(0, |metadata| metadata.len());
        let (mut text, mut from) = (String::new(), end);
        if length < end {
            text = read_from(&self.older(), end)?.0;
            from = 0;
        }
        let (newest, end) = read_from(&self.path, from)?;
        text.push_str(&newest);
        Ok(Tail {
            lines: text.lines().map(str::to_owned).collect(),
            end,
        })
    }

    fn older(&self) -> PathBuf {
        self.path.with_extension("log.1")
    }

    fn open(&self) -> io::Result<File> {
        private_file(&self.path)
    }
}

/// Lines of a log, and where they end in the newest file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tail {
    /// The lines, oldest first.
    pub lines: Vec<String>,
    /// The bytes of the newest file that were read.
    pub end: u64,
}

/// What a server writes, on its way into the file: with secrets masked, and with marks of its start
/// and its end.
pub struct LogWriter {
    file: LogFile,
    masker: StreamMask,
    has_failed: bool,
    ends_a_line: bool,
}

impl LogWriter {
    /// Begins with the mark of a start.
    pub fn begin(file: LogFile) -> Self {
        let mut writer = LogWriter {
            file,
            masker: StreamMask::default(),
            has_failed: false,
            ends_a_line: true,
        };
        writer.append(mark("started").as_bytes());
        writer
    }

    /// Writes what the server wrote. Blocks.
    pub fn write(&mut self, part: &[u8]) {
        let masked = self.masker.next(part);
        self.append(&masked);
    }

    /// Ends with the mark of an end. Blocks.
    pub fn end(mut self) {
        let rest = self.masker.end();
        self.append(&rest);
        let newline = if self.ends_a_line { "" } else { "\n" };
        let end = format!("{newline}{}", mark("ended"));
        self.append(end.as_bytes());
    }

    fn append(&mut self, bytes: &[u8]) {
        if bytes.is_empty() || self.has_failed {
            return;
        }
        self.ends_a_line = bytes.ends_with(b"\n");
        // The server works without its log, so this is said once.
        if let Err(error) = self.file.append(bytes) {
            let path = self.file.path.display();
            tracing::warn!(%path, %error, "the log of an MCP server cannot be written");
            self.has_failed = true;
        }
    }
}

/// A line of this program among those of the server.
fn mark(what: &str) -> String {
    format!("--- {what} {}\n", clock::utc_now())
}

fn read_from(path: &Path, from: u64) -> io::Result<(String, u64)> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((String::new(), 0)),
        Err(error) => return Err(error),
    };
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    // A chunk may pass the bound before the file is replaced.
    let read = file.take(2 * MAX_BYTES).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    Ok((text, from + u64::try_from(read).unwrap_or_default()))
}

/// Opens a file that only its owner can read, to append to it.
fn private_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

fn create_private(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(folder: &tempfile::TempDir, server: &str) -> LogFile {
        ServerLogs::in_data_dir(folder.path()).file(server).unwrap()
    }

    #[test]
    fn a_log_has_two_bounded_files_that_only_their_owner_reads() {
        let folder = tempfile::tempdir().unwrap();
        let file = log(&folder, "a/b:c");
        assert!(file.path().ends_with("mcp-logs/a-b%3Ac.log"));
        let line = format!("{}\n", "x".repeat(65_535));
        for _ in 0..50 {
            file.append(line.as_bytes()).unwrap();
        }
        file.append(b"last\n").unwrap();
        let mut bytes = 0;
        for path in [file.path().to_owned(), file.older()] {
            let metadata = fs::metadata(path).unwrap();
            bytes += metadata.len();
            #[cfg(unix)]
            {
                let mode = std::os::unix::fs::PermissionsExt::mode(&metadata.permissions());
                assert_eq!(mode & 0o777, 0o600);
            }
        }
        assert!(bytes <= 2 * MAX_BYTES + 65_536, "{bytes}");
        let tail = file.last_lines(2).unwrap();
        assert_eq!(tail.lines, [line.trim_end(), "last"]);
        file.append(b"more\n").unwrap();
        assert_eq!(file.lines_after(tail.end).unwrap().lines, ["more"]);
        let names = ServerLogs::in_data_dir(folder.path()).names();
        assert_eq!(names, ["a-b:c"]);
    }

    #[test]
    fn a_reader_that_follows_misses_nothing_of_a_file_that_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let file = log(&folder, "s");
        file.append(&vec![b'x'; usize::try_from(MAX_BYTES).unwrap() - 6])
            .unwrap();
        let end = file.last_lines(0).unwrap().end;
        for line in ["\nold\nb\n", "new\n"] {
            file.append(line.as_bytes()).unwrap();
        }
        let tail = file.lines_after(end).unwrap();
        assert_eq!(tail.lines, ["", "old", "b", "new"]);
        assert_eq!(tail.end, 4);
    }

    #[test]
    fn each_server_has_a_file_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let servers = ["a_b", "a:b", "a%3Ab", "a%b"];
        for server in servers {
            let line = format!("{server}\n");
            log(&folder, server).append(line.as_bytes()).unwrap();
        }
        for server in servers {
            assert_eq!(log(&folder, server).last_lines(9).unwrap().lines, [server]);
        }
        let mut names = servers.map(str::to_owned);
        names.sort();
        assert_eq!(ServerLogs::in_data_dir(folder.path()).names(), names);
    }

    #[test]
    fn a_file_that_another_process_has_just_replaced_stays() {
        let folder = tempfile::tempdir().unwrap();
        let file = log(&folder, "s");
        let mut long = vec![b'x'; usize::try_from(MAX_BYTES).unwrap() - 1];
        long.push(b'\n');
        file.append(&long).unwrap();
        // Both have seen that the file is full.
        file.replace().unwrap();
        file.append(b"new\n").unwrap();
        file.replace().unwrap();
        assert_eq!(fs::metadata(file.older()).unwrap().len(), MAX_BYTES);
        assert_eq!(file.last_lines(1).unwrap().lines, ["new"]);
    }

    #[test]
    fn secrets_are_masked_also_across_parts() {
        toolscout_base::known_secrets::add("s3cret-of-a-log-9471");
        let folder = tempfile::tempdir().unwrap();
        let mut writer = LogWriter::begin(log(&folder, "s"));
        writer.write(b"key s3cret-of-");
        writer.write(b"a-log-9471 is wrong");
        writer.end();
        let lines = log(&folder, "s").last_lines(9).unwrap().lines;
        assert!(lines[0].starts_with("--- started 20"), "{lines:?}");
        assert!(lines[1].starts_with("key [redacted]") && !lines[1].contains("9471"));
        assert!(lines[2].starts_with("--- ended 20"), "{lines:?}");
    }

    #[test]
    fn nothing_is_kept_without_a_folder() {
        assert_eq!(ServerLogs::default().file("s"), None);
        let missing = log(&tempfile::tempdir().unwrap(), "s");
        assert_eq!(missing.last_lines(5).unwrap(), Tail::default());
    }
}
