//! The program itself in a process of its own, which a test may end by a signal.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use super::server::PATIENCE;
use super::shared_store;

/// The running program, ended with its owner.
pub struct Program {
    pub url: String,
    child: Child,
}

impl Program {
    /// Without a model, with these arguments more.
    pub async fn start(data: &Path, arguments: &[&str]) -> Self {
        Program::start_by(
            Command::new(env!("CARGO_BIN_EXE_toolscout")),
            data,
            arguments,
        )
        .await
    }

    /// As [`Program::start`], by a command that ends in the program.
    pub async fn start_by(mut command: Command, data: &Path, arguments: &[&str]) -> Self {
        shared_store::configure(&mut command, data);
        let mut child = command
            .args([
                "serve",
                "--listen",
                "127.0.0.1:0",
                "--embedder",
                "none",
                "--data",
            ])
            .arg(data)
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("it is piped");
        BufReader::new(stdout)
            .read_line(&mut line)
            .expect("a first line");
        let url = line
            .trim()
            .strip_prefix("listening on ")
            .expect("the address")
            .to_owned();
        let program = Program { url, child };
        tokio::time::timeout(PATIENCE, program.ready())
            .await
            .expect("it becomes ready");
        program
    }

    async fn ready(&self) {
        let client = toolscout::tls::client().build().unwrap();
        let ready = || client.get(format!("{}/readyz", self.url)).send();
        while !ready()
            .await
            .is_ok_and(|answer| answer.status().is_success())
        {
            tokio::task::yield_now().await;
        }
    }

    /// Sends it a signal, as `-TERM`.
    pub fn signal(&self, signal: &str) {
        let sent = Command::new("kill")
            .args([signal, &self.child.id().to_string()])
            .status()
            .expect("kill runs");
        assert!(sent.success());
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> ExitStatus {
        self.child.wait().expect("it ends")
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
