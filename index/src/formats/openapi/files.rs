//! References to other files: what they name is read and put into the document, under one key, so that
//! everything else knows references within one document only.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::bundled::{FILES_KEY, UNREADABLE};
use super::refs::{DATA_KEYWORDS, NAME_KEYWORDS, percent_decode, reference};

/// Files that are read for one document. The largest public set has some 3,000.
const MAX_FILES: usize = 10_000;
/// Bytes of all these files together.
const MAX_BYTES: usize = 256 << 20;
/// Longest chain of files, each of which is named by the one before.
const MAX_CHAIN: usize = 64;
/// Files that a message lists.
const MAX_LISTED: usize = 10;
/// Levels of a document that are looked through; the parser refuses deeper ones.
const MAX_LEVELS: usize = 130;
/// Keys whose value has no part in a request.
const UNUSED: [&str; 6] = [
    "callbacks",
    "links",
    "webhooks",
    "info",
    "tags",
    "externalDocs",
];
/// Keys of a document whose value has names, of which none is a keyword.
const NAMES: [&str; 11] = [
    "paths",
    "responses",
    "parameters",
    "schemas",
    "requestBodies",
    "headers",
    "securitySchemes",
    "securityDefinitions",
    "content",
    "pathItems",
    "mediaTypes",
];

/// Reads a file by its path from the folder of the document, or says why it cannot be read. For the
/// engine does no I/O itself.
pub type OtherFile = dyn Fn(&str) -> Result<Vec<u8>, String> + Send + Sync;

/// What reads the files that a document refers to. None by default, and then such a document is
/// refused.
#[derive(Clone, Default)]
pub struct OtherFiles(Option<Arc<OtherFile>>);

impl OtherFiles {
    /// Reads files beside the document, or below its folder: the path has no `..`.
    pub fn by(read: impl Fn(&str) -> Result<Vec<u8>, String> + Send + Sync + 'static) -> Self {
        OtherFiles(Some(Arc::new(read)))
    }
}

impl fmt::Debug for OtherFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "read" } else { "none" })
    }
}

/// Reads the bytes of another file, which has this name, into a value.
pub(in super::super) type Read<'a> = dyn FnMut(&[u8], &str) -> Result<Value, String> + 'a;

/// Puts the files that a document refers to into it.
pub(in super::super) struct Bundle<'a> {
    files: &'a OtherFiles,
    read: &'a mut Read<'a>,
    /// Files to read, with the length of the chain that led to each.
    waiting: VecDeque<(String, usize)>,
    seen: BTreeSet<String>,
    /// The files without which a request cannot be known, where none is read.
    missing: BTreeSet<String>,
    /// The places of the document's anchors and ids.
    anchors: HashMap<String, String>,
    bytes: usize,
}

impl<'a> Bundle<'a> {
    pub fn new(files: &'a OtherFiles, read: &'a mut Read<'a>) -> Self {
        Bundle {
            files,
            read,
            waiting: VecDeque::new(),
            seen: BTreeSet::new(),
            missing: BTreeSet::new(),
            anchors: HashMap::new(),
            bytes: 0,
        }
    }

    /// Puts what is referred to into the document, and points the references there.
    ///
    /// # Errors
    /// A message with the files, where none may be read, or with the first that cannot be.
    pub fn complete(mut self, root: &mut Value) -> Result<(), String> {
        if names_anchors(root, 0) {
            self.anchors = anchors(root);
        }
        self.look_through(root, "", 0, 0);
        if !self.missing.is_empty() {
            return Err(self.refused());
        }
        let mut files = Map::new();
        while let Some((name, chain)) = self.waiting.pop_front() {
            let mut value = self.file(&name, chain)?;
            self.look_through(&mut value, &name, chain, 0);
            files.insert(name, value);
        }
        if let (Value::Object(root), false) = (root, files.is_empty()) {
            root.insert(FILES_KEY.into(), files.into());
        }
        Ok(())
    }

    fn file(&mut self, name: &str, chain: usize) -> Result<Value, String> {
        let refused = |reason: &str| {
            format!(
                "it refers to the file {name:?}, and {reason}; bundle what is needed into one file"
            )
        };
        if self.seen.len() > MAX_FILES {
            return Err(refused(&format!("to more than {MAX_FILES} files in all")));
        }
        if chain > MAX_CHAIN {
            return Err(refused(&format!(
                "more than {MAX_CHAIN} files name each other in a row"
            )));
        }
        let read = self.files.0.as_ref().ok_or("no files are read here")?;
        let bytes = match read(name) {
            Ok(bytes) => bytes,
            Err(reason) => return Ok(json!({ UNREADABLE: reason })),
        };
        self.bytes += bytes.len();
        if self.bytes > MAX_BYTES {
            let limit = MAX_BYTES >> 20;
            return Err(refused(&format!(
                "its files have more than {limit} MiB together"
            )));
        }
        Ok((self.read)(&bytes, name).unwrap_or_else(|reason| json!({ UNREADABLE: reason })))
    }

    /// Points the references of a value in this file (empty for the document itself) into the bundle,
    /// and lists the files that they name.
    fn look_through(&mut self, value: &mut Value, file: &str, chain: usize, level: usize) {
        if level > MAX_LEVELS {
            return;
        }
        match value {
            Value::Array(items) => {
                for item in items {
                    self.look_through(item, file, chain, level + 1);
                }
            }
            Value::Object(fields) => self.look_through_fields(fields, file, chain, level),
            _ => {}
        }
    }

    fn look_through_fields(
        &mut self,
        fields: &mut Map<String, Value>,
        file: &str,
        chain: usize,
        level: usize,
    ) {
        if let Some(Value::String(target)) = fields.get_mut("$ref") {
            self.point(target, file, chain);
        }
        for (keyword, value) in fields {
            // Without responses tools can be called, so their files are not missed.
            let is_unread = keyword == "responses" && self.files.0.is_none();
            // The parts of another file may have any names.
            let is_keyword = level > 0 || file.is_empty();
            let is_skipped = is_data(keyword) || UNUSED.contains(&keyword.as_str());
            if is_unread || (is_keyword && is_skipped) {
                continue;
            }
            match value {
                Value::Object(named) if has_names(keyword) => {
                    if let Some(Value::String(target)) = named.get_mut("$ref") {
                        self.point(target, file, chain);
                    }
                    for (_, value) in named {
                        self.look_through(value, file, chain, level + 2);
                    }
                }
                value => self.look_through(value, file, chain, level + 1),
            }
        }
    }

    /// Points one reference into the bundle.
    fn point(&mut self, target: &mut String, file: &str, chain: usize) {
        if let Some(pointer) = self.anchors.get(target).filter(|_| file.is_empty()) {
            *target = format!("#{pointer}");
            return;
        }
        let (name, fragment) = target.split_once('#').unwrap_or((target, ""));
        if name.is_empty() {
            if !file.is_empty() && (fragment.is_empty() || fragment.starts_with('/')) {
                *target = within(file, fragment);
            }
            return;
        }
        let Some(path) = resolved(file, &percent_decode(name)) else {
            // Outside the folder nothing is read; the reference is reported where it is needed.
            if self.files.0.is_none() {
                self.missing.insert(name.to_owned());
            }
            return;
        };
        if self.files.0.is_none() {
            self.missing.insert(path);
            return;
        }
        let pointed = within(&path, fragment);
        if self.seen.insert(path.clone()) {
            self.waiting.push_back((path, chain + 1));
        }
        *target = pointed;
    }

    fn refused(&self) -> String {
        let count = self.missing.len();
        let listed: Vec<&str> = self
            .missing
            .iter()
            .take(MAX_LISTED)
            .map(String::as_str)
            .collect();
        let more = match count.saturating_sub(MAX_LISTED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let noun = if count == 1 {
            "another file"
        } else {
            "other files"
        };
        format!(
            "it refers to {noun}, without which its tools are not whole: {}{more}; `toolscout add --follow-refs` reads \
             files beside the document and below its folder, or bundle them into one",
            listed.join(", ")
        )
    }
}

fn is_data(keyword: &str) -> bool {
    (DATA_KEYWORDS.contains(&keyword) && keyword != "default") || keyword.starts_with("x-")
}

fn has_names(keyword: &str) -> bool {
    NAMES.contains(&keyword) || NAME_KEYWORDS.contains(&keyword)
}

/// A reference into a file of the bundle.
fn within(file: &str, fragment: &str) -> String {
    let name = file
        .replace('~', "~0")
        .replace('/', "~1")
        .replace('%', "%25");
    format!("#/{FILES_KEY}/{name}{fragment}")
}

/// The path of a file from the folder of the document, without `.` and `..`; `None` for one that is
/// not below that folder.
fn resolved(from: &str, name: &str) -> Option<String> {
    if name.contains(':') || name.starts_with(['/', '\\']) {
        return None;
    }
    let folder = from.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut steps: Vec<&str> = folder.split('/').filter(|step| !step.is_empty()).collect();
    for step in name.split('/') {
        match step {
            "" | "." => {}
            ".." => drop(steps.pop()?),
            step => steps.push(step),
        }
    }
    (!steps.is_empty()).then(|| steps.join("/"))
}

/// The places of the texts `$anchor` and `$id` that a document's references may name.
fn anchors(root: &Value) -> HashMap<String, String> {
    let mut anchors = HashMap::new();
    collect_anchors(root, &mut String::new(), &mut anchors, 0);
    anchors
}

fn collect_anchors(
    value: &Value,
    pointer: &mut String,
    anchors: &mut HashMap<String, String>,
    level: usize,
) {
    let length = pointer.len();
    let children: Box<dyn Iterator<Item = (String, &Value)>> = match value {
        _ if level > MAX_LEVELS => return,
        Value::Object(fields) => {
            for keyword in ["$anchor", "$dynamicAnchor"] {
                if let Some(Value::String(name)) = fields.get(keyword) {
                    anchors
                        .entry(format!("#{name}"))
                        .or_insert_with(|| pointer.clone());
                }
            }
            if let Some(Value::String(id)) = fields.get("$id") {
                anchors.entry(id.clone()).or_insert_with(|| pointer.clone());
            }
            let escaped = |name: &String| name.replace('~', "~0").replace('/', "~1");
            Box::new(
                fields
                    .iter()
                    .map(move |(name, value)| (escaped(name), value)),
            )
        }
        Value::Array(items) => {
            let numbered = items.iter().enumerate();
            Box::new(numbered.map(|(at, item)| (at.to_string(), item)))
        }
        _ => return,
    };
    for (step, child) in children {
        pointer.push('/');
        pointer.push_str(&step);
        collect_anchors(child, pointer, anchors, level + 1);
        pointer.truncate(length);
    }
}

/// True for a document with a reference that names an anchor or an `$id`.
fn names_anchors(value: &Value, level: usize) -> bool {
    let is_name = |name: &str| !name.starts_with("#/") && name != "#";
    match value {
        _ if level > MAX_LEVELS => false,
        Value::Object(fields) => {
            reference(value).is_some_and(is_name)
                || fields.values().any(|value| names_anchors(value, level + 1))
        }
        Value::Array(items) => items.iter().any(|item| names_anchors(item, level + 1)),
        _ => false,
    }
}
