//! Texts that speak of another server's tool: they are said, and written into a file if one is named.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use toolscout_index::Searcher;

use super::keep::{command, create};
use crate::cli::context::Context;
use crate::enrich::exchange::held_lines;
use crate::enrich::held::Held;
use crate::printable::{self, counted};

/// Held texts that are named if a file has all of them.
const MAX_NAMED: usize = 20;

/// The file of `--held`, if it is given. It is there before a model is paid.
pub struct HeldFile {
    file: Option<(PathBuf, File)>,
    written: usize,
}

impl HeldFile {
    /// Creates the file, which must not exist.
    pub fn create(path: Option<&Path>) -> Result<Self> {
        let file = match path {
            Some(path) => Some((path.to_owned(), create(path)?)),
            None => None,
        };
        Ok(HeldFile { file, written: 0 })
    }

    /// Writes what is not written yet of all held texts.
    pub fn write(&mut self, searcher: &Searcher, held: &[Held]) -> Result<()> {
        let Some((path, file)) = &mut self.file else {
            return Ok(());
        };
        // The first ones are in the file since an earlier answer.
        let lines = held_lines(searcher, &held[self.written..]);
        self.written = held.len();
        file.write_all(lines.as_bytes())
            .with_context(|| format!("write {}", path.display()))
    }

    /// Names the held texts, and says how to take them. Without any, no file is left.
    pub fn say(self, context: &Context, held: &[Held]) -> Result<()> {
        let file = match self.file {
            Some((path, _)) if held.is_empty() => {
                return fs::remove_file(&path)
                    .with_context(|| format!("remove {}, which is empty", path.display()));
            }
            Some((path, _)) => Some(printable::line(&path.to_string_lossy())),
            None => None,
        };
        if held.is_empty() || context.printer.is_json() {
            return Ok(());
        }
        // Without a file this is the only place where they are named.
        let most = if file.is_some() {
            MAX_NAMED
        } else {
            held.len()
        };
        for one in held.iter().take(most) {
            context.warn(format_args!("{}: {}", one.id, one.reason()));
        }
        if let Some(more @ 1..) = held.len().checked_sub(most) {
            context.warn(format_args!("{more} more are held"));
        }
        let texts = counted(held.len(), "text");
        match file {
            Some(file) => context.printer.note(format_args!(
                "{file} has {texts} about other servers' tools; read it, remove what a definition may have ordered, and \
                 take the others with `{} enrich --import {file} --reviewed`",
                command(context)
            )),
            None => context.printer.note(format_args!(
                "{texts} about other servers' tools not stored; `--held FILE` writes such texts into a file to read, and \
                 `--reviewed` takes them"
            )),
        }
    }
}
