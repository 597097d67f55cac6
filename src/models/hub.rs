//! Downloads the model from the hub, with fastembed.
//!
//! fastembed has no timeouts, and it panics when it cannot load the runtime. It therefore runs in a
//! process of its own, which is killed when its files stop growing.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use fastembed::{EmbeddingModel, TextEmbedding, TextInitOptions};

use super::model::REPOSITORY;
use super::scratch::{self, Scratch};
use super::{OnTransfer, Transfer};

/// Timeout of the first byte: a reachable hub responds within a second or two.
const FIRST_BYTE: Duration = Duration::from_secs(8);
/// Longest pause after the first byte.
const STALL: Duration = Duration::from_secs(60);
const TICK: Duration = Duration::from_millis(100);
/// Most bytes of the process's output that are read for an error message.
const OUTPUT_BYTES: u64 = 16 << 10;

/// Downloads the newest revision and replaces the one in a hub cache. Returns the name of the
/// model.
pub fn fetch(
    mut fetcher: Command,
    runtime: Option<&Path>,
    cache: &Path,
    on_transfer: OnTransfer<'_>,
) -> Result<String> {
    // A separate cache, because the download treats an existing revision as the newest one.
    let scratch = Scratch::within(cache)?;
    fetcher.arg(scratch.path()).env("HF_HOME", scratch.path());
    if let Some(library) = runtime {
        fetcher.env("ORT_DYLIB_PATH", library);
    }
    fetcher
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let child = fetcher
        .spawn()
        .context("start the download from the model hub")?;
    watch(child, scratch.path(), on_transfer)?;
    replace(&cache.join(REPOSITORY), &scratch)?;
    Ok(format!("{} (hub)", super::MODEL_NAME))
}

/// Downloads into a hub cache, in this process and without a timeout, and then loads the model to
/// verify it.
///
/// # Errors
/// The hub cannot be reached, or the download cannot be loaded.
pub fn fetch_here(cache: &Path) -> Result<()> {
    let options =
        TextInitOptions::new(EmbeddingModel::AllMiniLML6V2).with_cache_dir(cache.to_owned());
    TextEmbedding::try_new(options.with_show_download_progress(false))?;
    Ok(())
}

/// Replaces the repository with the downloaded one.
fn replace(repository: &Path, scratch: &Scratch) -> Result<()> {
    let fetched = scratch.path().join(REPOSITORY);
    let old = scratch.path().join("old");
    let moved_away = if repository.exists() {
        std::fs::rename(repository, old)
    } else {
        Ok(())
    };
    moved_away
        .and_then(|()| std::fs::rename(fetched, repository))
        .with_context(|| format!("write {}", repository.display()))
}

fn watch(mut child: Child, cache: &Path, on_transfer: OnTransfer<'_>) -> Result<()> {
    let start = scratch::bytes_under(cache);
    let (mut seen, mut last_growth) = (start, Instant::now());
    loop {
        if let Some(status) = child.try_wait()? {
            if status.success() {
                return Ok(());
            }
            bail!(
                "the download from the model hub failed: {}",
                last_line(&mut child)
            );
        }
        let now = scratch::bytes_under(cache);
        if now > seen {
            (seen, last_growth) = (now, Instant::now());
        }
        let timeout = if seen > start { STALL } else { FIRST_BYTE };
        if last_growth.elapsed() > timeout {
            child.kill()?;
            child.wait()?;
            bail!(
                "the model hub sent nothing for {} s; check the network or use --from pypi",
                timeout.as_secs()
            );
        }
        on_transfer(Transfer {
            what: "the model from the hub",
            done: seen - start,
            total: None,
        });
        std::thread::sleep(TICK);
    }
}

/// The last line of a process that has ended.
fn last_line(child: &mut Child) -> String {
    let mut text = Vec::new();
    let read = child
        .stderr
        .take()
        .map(|stderr| stderr.take(OUTPUT_BYTES).read_to_end(&mut text));
    let text = String::from_utf8_lossy(&text);
    match (
        read,
        text.lines().rev().find(|line| !line.trim().is_empty()),
    ) {
        (Some(Ok(_)), Some(line)) => line.trim_start_matches("error: ").to_owned(),
        _ => "it printed no message".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Command {
        let mut shell = Command::new("sh");
        shell.args(["-c", script, "fetcher"]);
        shell
    }

    #[test]
    fn a_download_replaces_the_old_files() {
        let cache = tempfile::tempdir().unwrap();
        let repository = cache.path().join(REPOSITORY);
        std::fs::create_dir(&repository).unwrap();
        std::fs::write(repository.join("old"), "x").unwrap();
        let fetcher = sh(&format!(
            "mkdir $1/{REPOSITORY} && echo new > $1/{REPOSITORY}/new"
        ));
        fetch(fetcher, None, cache.path(), &|_| {}).unwrap();
        let left: Vec<_> = std::fs::read_dir(&repository)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(left, ["new"]);
        assert_eq!(std::fs::read_dir(cache.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_failed_download_reports_its_reason() {
        let cache = tempfile::tempdir().unwrap();
        let fetcher = sh("echo error: no route to the hub >&2; exit 1");
        let message = fetch(fetcher, None, cache.path(), &|_| {})
            .unwrap_err()
            .to_string();
        assert_eq!(
            message,
            "the download from the model hub failed: no route to the hub"
        );
    }
}
