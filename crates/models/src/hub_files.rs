//! Downloads a model's files from the hub, by revision, and checks them before they are used.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use reqwest::StatusCode;
use reqwest::blocking::{Client, Response};
use serde::Deserialize;

use hf_hub::Cache;
use hf_hub::api::sync::ApiBuilder;

use super::hub_cache::{self, OnHub, is_commit};
use super::manifest::Manifest;
use super::scratch::Scratch;
use super::{OnTransfer, Transfer, pins};
use toolscout_base::config::{Settings, masked};

/// Longest wait for a connection, and for the list of files: a hub that can be reached answers
/// within a second or two.
const FIRST_BYTE: Duration = Duration::from_secs(8);
/// Longest pause within a file.
const STALL: Duration = Duration::from_secs(60);
/// Bytes between two reports of progress.
const STEP: u64 = 1 << 20;
/// Most bytes of a list of files.
const MAX_LIST_BYTES: u64 = 16 << 20;
/// Most bytes of one file: several times the largest known model.
const MAX_FILE_BYTES: u64 = 32 << 30;

/// The address of the hub: that of `HF_ENDPOINT`, else the one that the hub's own client uses.
///
/// # Errors
/// When that client cannot be set up.
pub fn address(settings: &Settings) -> Result<String> {
    if let Some(hub) = &settings.places.hub {
        return Ok(hub.clone());
    }
    let cache = Cache::new(settings.cache.clone());
    let api = ApiBuilder::from_cache(cache)
        .build()
        .context("find the model hub")?;
    // The base of any address that it would ask.
    let url = api.model("a/b".to_owned()).url("c");
    let base = url.split("/a/b/").next().unwrap_or_default();
    Ok(base.to_owned())
}

/// Asks the hub for a model, downloads these files into a hub cache, and returns the revision.
///
/// # Errors
/// A hub that cannot be reached or does not know the model, a file that is not what the hub said, a
/// cache that cannot be written. The files of before stay.
pub fn fetch(
    wanted: OnHub<'_>,
    files: &[&str],
    hub: &str,
    home: &Path,
    on_transfer: OnTransfer<'_>,
) -> Result<String> {
    let hub = Hub::new(hub)?;
    let listed = hub.list(wanted)?;
    let repository = home.join(wanted.repository());
    let scratch = Scratch::within(&repository)?;
    let mut manifest = Manifest::default();
    for name in files {
        let file = listed.file(name, wanted)?;
        let sum = hub.download(wanted, &listed.sha, file, scratch.path(), on_transfer)?;
        manifest.add(name, sum.0, sum.1);
    }
    manifest
        .write(scratch.path())
        .with_context(|| format!("write {}", scratch.path().display()))?;
    let folder = repository.join("snapshots").join(&listed.sha);
    replace(&folder, scratch.path()).with_context(|| format!("write {}", folder.display()))?;
    // Last, so that no name stands for an incomplete revision. A name stays with the revision that it
    // stood for when it was fetched; a number is its own name.
    let name = wanted.revision.unwrap_or("main");
    if name != listed.sha {
        hub_cache::name_revision(&repository.join("refs"), name, &listed.sha)?;
    }
    Ok(listed.sha)
}

/// Puts the files of the scratch folder in the place of a folder.
fn replace(folder: &Path, scratch: &Path) -> io::Result<()> {
    if let Some(parent) = folder.parent() {
        std::fs::create_dir_all(parent)?;
    }
    // All at once: a folder of a revision is complete from the start.
    let complete = scratch.join(".complete");
    std::fs::create_dir_all(&complete)?;
    for entry in std::fs::read_dir(scratch)? {
        let entry = entry?;
        let name = entry.file_name();
        if name != ".complete" && name != ".old" {
            std::fs::rename(entry.path(), complete.join(name))?;
        }
    }
    let old = scratch.join(".old");
    let replaces = folder.exists();
    if replaces {
        std::fs::rename(folder, &old)?;
    }
    let renamed = std::fs::rename(&complete, folder);
    if renamed.is_err() && replaces {
        // The files of before go back, since the scratch folder and all in it is deleted.
        let _ = std::fs::rename(&old, folder);
    }
    renamed
}

/// A model hub.
struct Hub {
    base: String,
    client: Client,
}

/// The files of a revision.
#[derive(Deserialize)]
struct Listed {
    sha: String,
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
struct Sibling {
    rfilename: String,
    size: Option<u64>,
    lfs: Option<Lfs>,
}

/// How the hub stores large files.
#[derive(Deserialize)]
struct Lfs {
    sha256: String,
    size: u64,
}

impl Listed {
    fn file(&self, name: &str, wanted: OnHub<'_>) -> Result<&Sibling> {
        let mut files = self.siblings.iter();
        let found = files.find(|file| file.rfilename == name);
        found.with_context(|| {
            format!(
                "{} has no {name} in revision {}; choose another revision with NAME@REVISION",
                wanted.id, self.sha
            )
        })
    }
}

impl Hub {
    fn new(base: &str) -> Result<Self> {
        let client = toolscout_base::tls::blocking_client()
            .connect_timeout(FIRST_BYTE)
            .timeout(STALL)
            .build()
            .context("prepare the download")?;
        Ok(Hub {
            base: base.trim_end_matches('/').to_owned(),
            client,
        })
    }

    fn list(&self, wanted: OnHub<'_>) -> Result<Listed> {
        let id = wanted.id;
        let revision = wanted.revision.unwrap_or("main");
        let url = format!(
            "{}/api/models/{id}/revision/{}?blobs=true",
            self.base,
            // The slashes of a reference are no parts of the path.
            revision.replace('/', "%2F")
        );
        let sent = self.client.get(url).timeout(FIRST_BYTE).send();
        let response = sent.map_err(|error| self.unreachable(&error))?;
        let response = self.accepted(response, &format!("{id}, revision {revision}"))?;
        let mut bytes = Vec::new();
        response
            .take(MAX_LIST_BYTES)
            .read_to_end(&mut bytes)
            .with_context(|| format!("read what {} says of {id}", self.shown()))?;
        let listed: Listed = serde_json::from_slice(&bytes)
            .with_context(|| format!("what {} says of {id} is no list of files", self.shown()))?;
        // A hub that ignores the revision would give other weights than were asked for.
        let is_another = is_commit(revision) && listed.sha != revision;
        if !hub_cache::is_revision(&listed.sha) || is_another {
            bail!(
                "asked for {id}, revision {revision}, {} answers with the revision {:?}; nothing was replaced",
                self.shown(),
                listed.sha
            );
        }
        Ok(listed)
    }

    /// Downloads a file below a folder. Returns its size and checksum.
    fn download(
        &self,
        wanted: OnHub<'_>,
        revision: &str,
        file: &Sibling,
        folder: &Path,
        on_transfer: OnTransfer<'_>,
    ) -> Result<(u64, String)> {
        let (id, name) = (wanted.id, &file.rfilename);
        let url = format!("{}/{id}/resolve/{revision}/{name}", self.base);
        let sent = self.client.get(url).send();
        let response = sent.map_err(|error| self.unreachable(&error))?;
        let response = self.accepted(response, &format!("{id}/{name}"))?;
        // Where the hub says no size, the file is bounded and its length is not checked.
        let expected = match &file.lfs {
            Some(lfs) => Some(lfs.size),
            None => file.size,
        };
        let path = folder.join(name);
        let what = format!("{}/{name}", wanted.name);
        let total = expected.or(response.content_length());
        let mut counted = Counted {
            // One byte more, so that a longer file is noticed.
            inner: response.take(expected.unwrap_or(MAX_FILE_BYTES).saturating_add(1)),
            done: 0,
            reported: 0,
            report: &|done| {
                on_transfer(Transfer {
                    what: &what,
                    done,
                    total,
                });
            },
        };
        let sum = write(&mut counted, &path).map_err(|error| {
            anyhow!("{id}/{name} did not arrive whole: {error}; nothing was replaced, try again")
        })?;
        let done = counted.done;
        if let Some(expected) = expected
            && done != expected
        {
            bail!(
                "{id}/{name} did not arrive whole: {done} bytes where the hub says {expected}; nothing was replaced, \
                 try again"
            );
        }
        if let Some(lfs) = &file.lfs
            && sum != lfs.sha256
        {
            bail!(
                "{id}/{name} has another checksum than the hub says; nothing was replaced, try again"
            );
        }
        // No file of a model is empty, and this one would pass for a valid one later.
        if done == 0 {
            bail!("{id}/{name} is empty; nothing was replaced");
        }
        Ok((done, sum))
    }

    /// The address for messages: that of a mirror may hold a password.
    fn shown(&self) -> String {
        masked(&self.base)
    }

    fn accepted(&self, response: Response, what: &str) -> Result<Response> {
        match response.status() {
            status if status.is_success() => Ok(response),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => bail!(
                "{} does not give out {what} without an account; download it with the hub's own program, and name \
                 the folder in `models_dir`",
                self.shown()
            ),
            StatusCode::NOT_FOUND => bail!("{} has no {what}", self.shown()),
            status => bail!("{} answered {} for {what}", self.shown(), status.as_u16()),
        }
    }

    fn unreachable(&self, error: &reqwest::Error) -> anyhow::Error {
        // The outer errors only say that a request was sent, with the address once more.
        let mut cause: &dyn std::error::Error = error;
        while let Some(source) = cause.source() {
            cause = source;
        }
        anyhow!(
            "the model hub {} cannot be reached ({cause}); check the network, or put the model's files into a folder \
             in the hub's layout and name it in `models_dir`",
            self.shown()
        )
    }
}

/// Writes a file, and returns its checksum.
fn write(from: &mut impl Read, path: &Path) -> io::Result<String> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    let mut out = File::create(path)?;
    let sum = pins::copy_summed(from, &mut out)?;
    out.flush()?;
    // A renamed file whose content is not on the disk would be empty after a power cut.
    out.sync_all()?;
    Ok(sum)
}

/// Reports how much was read.
struct Counted<'a, R> {
    inner: R,
    done: u64,
    reported: u64,
    report: &'a dyn Fn(u64),
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.done += read as u64;
        if self.done - self.reported >= STEP || read == 0 {
            self.reported = self.done;
            (self.report)(self.done);
        }
        Ok(read)
    }
}
