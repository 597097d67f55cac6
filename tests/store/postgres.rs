//! A PostgreSQL server of a test.

use std::fs::File;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, geteuid, kill_process};
use tempfile::TempDir;
use toolscout::config::{StoreAddress, StoreSettings};

use super::ports::free_port;

/// The password of the server's only user.
pub const PASSWORD: &str = "grün-und-geheim";
/// PostgreSQL does not run as root.
pub const NOBODY: u32 = 65534;
const PATIENCE: Duration = Duration::from_secs(60);

/// A running server, ended with its owner.
pub struct Postgres {
    dir: TempDir,
    programs: PathBuf,
    port: u16,
    running: Option<Child>,
}

impl Postgres {
    pub fn start() -> Self {
        Postgres::start_in(std::env::temp_dir())
    }

    /// In a folder of this one.
    pub fn start_in(parent: impl AsRef<Path>) -> Self {
        let mut postgres = Postgres::new(parent);
        let made = postgres
            .unprivileged("initdb")
            .arg("--pgdata")
            .arg(postgres.data())
            .args([
                "--username",
                "tools",
                "--auth",
                "scram-sha-256",
                "--no-sync",
            ])
            .args(["--encoding", "UTF8", "--locale", "C", "--pwfile"])
            .arg(postgres.password_file())
            .stdout(Stdio::null())
            .status()
            .expect("initdb runs");
        assert!(made.success());
        postgres.run();
        postgres.sql("postgres", "CREATE DATABASE tools");
        postgres
    }

    /// A folder for a server that is not there yet.
    fn new(parent: impl AsRef<Path>) -> Self {
        let dir = tempfile::tempdir_in(parent).expect("a temporary folder");
        std::fs::write(dir.path().join("password"), PASSWORD).expect("a file");
        if geteuid().is_root() {
            for path in [dir.path(), &dir.path().join("password")] {
                chown(path, Some(NOBODY), Some(NOBODY)).expect("root may");
            }
        }
        Postgres {
            programs: programs(),
            port: free_port(),
            dir,
            running: None,
        }
    }

    /// A hot standby of this server, which waits for each commit to be there from then on.
    pub fn standby(&self) -> Self {
        let mut standby = Postgres::new(std::env::temp_dir());
        let copied = standby
            .unprivileged("pg_basebackup")
            .args([
                "-h",
                "127.0.0.1",
                "-p",
                &self.port.to_string(),
                "-U",
                "tools",
            ])
            .args([
                "--write-recovery-conf",
                "--checkpoint=fast",
                "--no-sync",
                "-D",
            ])
            .arg(standby.data())
            .env("PGPASSWORD", PASSWORD)
            .status()
            .expect("pg_basebackup runs");
        assert!(copied.success());
        standby.run();
        self.query("ALTER SYSTEM SET synchronous_standby_names = '*'");
        self.query("SELECT pg_reload_conf()");
        let attached = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
        let begun = Instant::now();
        while self.query(attached) != "1" {
            assert!(begun.elapsed() < PATIENCE, "the standby does not follow");
            std::thread::sleep(Duration::from_millis(50));
        }
        standby
    }

    /// Makes a standby the primary.
    pub fn promote(&self) {
        assert_eq!(self.query("SELECT pg_promote()"), "t");
        // A primary that waits for a standby of its own would answer no write.
        self.query("ALTER SYSTEM RESET synchronous_standby_names");
        self.query("SELECT pg_reload_conf()");
    }

    /// The address of several servers.
    pub fn address_of(servers: &[&Postgres]) -> String {
        let hosts: Vec<String> = servers.iter().map(|server| server.host()).collect();
        format!("postgres://tools@{}/tools", hosts.join(","))
    }

    /// Writes the database of the store into a file.
    pub fn dump(&self) -> PathBuf {
        let file = self.dir.path().join("tools.dump");
        let dumped = self
            .program("pg_dump")
            .args(["--format=custom", "--file"])
            .arg(&file)
            .arg("tools")
            .status()
            .expect("pg_dump runs");
        assert!(dumped.success());
        file
    }

    /// Puts back what [`Postgres::dump`] has written.
    pub fn restore(&self, file: &Path) {
        let restored = self
            .program("pg_restore")
            .args([
                "--clean",
                "--if-exists",
                "--single-transaction",
                "--dbname=tools",
            ])
            .arg(file)
            .status()
            .expect("pg_restore runs");
        assert!(restored.success());
    }

    /// A program of PostgreSQL that asks this server.
    fn program(&self, program: &str) -> Command {
        let mut command = Command::new(self.programs.join(program));
        let port = self.port.to_string();
        command
            .args(["-h", "127.0.0.1", "-p", &port, "-U", "tools"])
            .env("PGPASSWORD", PASSWORD);
        command
    }

    /// Host and port.
    pub fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Starts it again after [`Postgres::stop`].
    pub fn run(&mut self) {
        let child = self
            .unprivileged("postgres")
            .arg("-D")
            .arg(self.data())
            .args(["-p", &self.port.to_string()])
            .args(["-c", "listen_addresses=127.0.0.1"])
            .args(["-c", "unix_socket_directories="])
            .args(["-c", "fsync=off"])
            .args(["-c", "shared_buffers=32MB"])
            .args(["-c", "log_min_messages=fatal"])
            .stderr(File::create(self.log()).expect("a file"))
            .spawn()
            .expect("postgres starts");
        self.running = Some(child);
        let begun = Instant::now();
        while !self.answers() {
            if begun.elapsed() > PATIENCE {
                let log = std::fs::read_to_string(self.log()).unwrap_or_default();
                panic!("postgres is not ready: {log}");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Whether it answers.
    pub fn answers(&self) -> bool {
        self.asks("postgres", "SELECT 1").success()
    }

    /// Ends it at once, as a crash would.
    pub fn stop(&mut self) {
        if let Some(mut child) = self.running.take() {
            if let Some(pid) = Pid::from_raw(child.id() as i32) {
                let _ = kill_process(pid, Signal::QUIT);
            }
            let _ = child.wait();
        }
    }

    /// The address of the database without a password.
    pub fn address(&self) -> String {
        Postgres::address_of(&[self])
    }

    pub fn password_file(&self) -> PathBuf {
        self.dir.path().join("password")
    }

    pub fn settings(&self) -> StoreSettings {
        StoreSettings {
            store: Some(StoreAddress::new(self.address())),
            store_password_file: Some(self.password_file()),
            ..StoreSettings::default()
        }
    }

    /// Runs SQL in the database of the store, and returns what it prints.
    pub fn query(&self, sql: &str) -> String {
        self.sql("tools", sql)
    }

    /// Sessions with the database of the store that have ended since this server runs, those of [`Postgres::query`]
    /// among them.
    pub fn ended_sessions(&self) -> u64 {
        let sessions = "SELECT sessions FROM pg_stat_database WHERE datname = 'tools'";
        self.sql("postgres", sessions).parse().unwrap_or_default()
    }

    fn sql(&self, database: &str, sql: &str) -> String {
        let output = self.psql(database, sql).output().expect("psql runs");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{sql}: {error}");
        String::from_utf8(output.stdout)
            .expect("UTF-8")
            .trim()
            .to_owned()
    }

    fn asks(&self, database: &str, sql: &str) -> std::process::ExitStatus {
        let mut psql = self.psql(database, sql);
        psql.stdout(Stdio::null()).stderr(Stdio::null());
        psql.status().expect("psql runs")
    }

    fn psql(&self, database: &str, sql: &str) -> Command {
        let mut psql = self.program("psql");
        psql.args(["-d", database, "-v", "ON_ERROR_STOP=1", "-qAtc", sql]);
        psql
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn log(&self) -> PathBuf {
        self.dir.path().join("log")
    }

    /// A program of PostgreSQL as a user who is not root.
    fn unprivileged(&self, program: &str) -> Command {
        let program = self.programs.join(program);
        if !geteuid().is_root() {
            return Command::new(program);
        }
        let mut command = Command::new("setpriv");
        let nobody = NOBODY.to_string();
        command
            .args(["--reuid", &nobody, "--regid", &nobody, "--clear-groups"])
            .arg(program)
            .current_dir("/");
        command
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The folder of the programs of PostgreSQL.
pub fn programs() -> PathBuf {
    let named = std::env::var_os("TOOLSCOUT_TEST_POSTGRES");
    named
        .expect("TOOLSCOUT_TEST_POSTGRES names the folder that scripts/postgres.sh prints")
        .into()
}

/// A file in the repository.
pub fn fixture(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}
