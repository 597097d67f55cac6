//! A PostgreSQL server of a test.

use std::net::TcpListener;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, geteuid, kill_process};
use tempfile::TempDir;
use toolscout::config::{StoreAddress, StoreSettings};

/// The password of the server's only user.
pub const PASSWORD: &str = "grün-und-geheim";
/// PostgreSQL does not run as root.
const NOBODY: u32 = 65534;
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
        let programs = std::env::var_os("TOOLSCOUT_TEST_POSTGRES")
            .expect("TOOLSCOUT_TEST_POSTGRES names the folder that scripts/postgres.sh prints");
        let dir = tempfile::tempdir().expect("a temporary folder");
        std::fs::write(dir.path().join("password"), PASSWORD).expect("a file");
        if geteuid().is_root() {
            for path in [dir.path(), &dir.path().join("password")] {
                chown(path, Some(NOBODY), Some(NOBODY)).expect("root may");
            }
        }
        let mut postgres = Postgres {
            programs: programs.into(),
            port: free_port(),
            dir,
            running: None,
        };
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
            .stderr(Stdio::null())
            .spawn()
            .expect("postgres starts");
        self.running = Some(child);
        let begun = Instant::now();
        while !self.asks("postgres", "SELECT 1").success() {
            assert!(begun.elapsed() < PATIENCE, "postgres is not ready");
            std::thread::sleep(Duration::from_millis(50));
        }
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
        format!("postgres://tools@127.0.0.1:{}/tools", self.port)
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
        let mut psql = Command::new(self.programs.join("psql"));
        psql.args([
            "-h",
            "127.0.0.1",
            "-p",
            &self.port.to_string(),
            "-U",
            "tools",
        ])
        .args(["-d", database, "-v", "ON_ERROR_STOP=1", "-qAtc", sql])
        .env("PGPASSWORD", PASSWORD);
        psql
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
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

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("an address").port()
}

/// A file in the repository.
pub fn fixture(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}
