//! One server for each data directory: two of them would write to the same databases, and each would keep
//! answers, limits and sessions of its own.

use std::fs::{File, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use toolscout_index::database;

/// The file that is locked, in the data directory. It names the process and its address.
const NAME: &str = "server.lock";
/// Longest text that is read of it.
const MAX_BYTES: u64 = 200;

/// Held while the server runs.
#[derive(Debug)]
pub struct ServerLock(File);

impl ServerLock {
    /// Makes this process the only server with this data directory.
    ///
    /// # Errors
    /// If another one has it, with its process and address; and if the file cannot be opened or locked.
    pub fn take(data: &Path) -> Result<Self> {
        let path = data.join(NAME);
        let mut file = open(data, &path).with_context(|| format!("open {}", path.display()))?;
        // The system releases the lock when the process ends, however it ends.
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                let _ = file.take(MAX_BYTES).read_to_string(&mut holder);
                bail!(
                    "{} is the data directory of another server, {}; use that one, stop it, or name another \
                     directory with --data",
                    data.display(),
                    holder.trim()
                );
            }
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("lock {}", path.display()));
            }
        }
        // The file is that of the server before, and is never deleted: others may be opening it.
        file.set_len(0)?;
        write!(file, "process {}", std::process::id())?;
        Ok(ServerLock(file))
    }

    /// Writes where the server listens, for whoever is refused.
    pub fn listens_at(&mut self, address: SocketAddr) -> Result<()> {
        // Over the number of the process, which is the beginning of the new text.
        self.0.rewind()?;
        write!(self.0, "process {} at http://{address}", std::process::id())?;
        Ok(())
    }
}

fn open(data: &Path, path: &Path) -> io::Result<File> {
    database::create_private_dir(data)?;
    database::make_private(path)?;
    File::options().read(true).write(true).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_server_is_told_of_the_first() {
        let folder = tempfile::tempdir().unwrap();
        let mut first = ServerLock::take(folder.path()).unwrap();
        let pid = std::process::id().to_string();
        let refused = || ServerLock::take(folder.path()).unwrap_err().to_string();
        assert!(refused().contains(&pid), "{}", refused());
        first.listens_at("127.0.0.1:7700".parse().unwrap()).unwrap();
        let whole = format!("another server, process {pid} at http://127.0.0.1:7700; ");
        assert!(refused().contains(&whole), "{}", refused());
        drop(first);
        ServerLock::take(folder.path()).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn folder_and_lock_are_their_owners_alone() {
        use std::fs::Permissions;
        use std::os::unix::fs::PermissionsExt as _;

        let folder = tempfile::tempdir().unwrap();
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        let [new, nested, old] = ["new", "a/b", "old"].map(|name| folder.path().join(name));
        std::fs::create_dir(&old).unwrap();
        std::fs::write(old.join(NAME), "1").unwrap();
        std::fs::set_permissions(old.join(NAME), Permissions::from_mode(0o666)).unwrap();
        for data in [&new, &nested, &old] {
            let _held = ServerLock::take(data).unwrap();
            assert_eq!(mode(&data.join(NAME)), 0o600, "{}", data.display());
            assert!(data == &old || mode(data) == 0o700, "{}", data.display());
        }
    }
}
