//! References to other files: what they name is read and put into the document, under one key, so that
//! everything else knows references within one document only.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::bundled::{FILES_KEY, UNREADABLE};
use super::problem::{DocumentError, FileLimit};
use super::refs::{DATA_KEYWORDS, NAME_KEYWORDS, percent_decode, reference};

/// Files that are read for one document. The largest public set has some 3,000.
const MAX_FILES: usize = 10_000;
/// Bytes of all these files together.
const MAX_BYTES: usize = 256 << 20;
/// Longest chain of files, each of which is named by the one before.
const MAX_CHAIN: usize = 64;
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

/// Reads a file by its path from the folder of the document, or says why it cannot be read. The
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
    /// [`DocumentError`] with the files, if none may be read, or with the first that cannot be.
    pub fn complete(mut self, root: &mut Value) -> Result<(), DocumentError> {
        if names_anchors(root, 0) {
            self.anchors = anchors(root);
        }
        self.look_through(root, "", 0, 0);
        if !self.missing.is_empty() {
            return Err(DocumentError::OtherFiles(self.missing));
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

    fn file(&mut self, name: &str, chain: usize) -> Result<Value, DocumentError> {
        if self.seen.len() > MAX_FILES {
            return Err(too_much(name, FileLimit::Count(MAX_FILES)));
        }
        if chain > MAX_CHAIN {
            return Err(too_much(name, FileLimit::Chain(MAX_CHAIN)));
        }
        let read = self.files.0.as_ref().ok_or(DocumentError::NoFiles)?;
        let bytes = match read(name) {
            Ok(bytes) => bytes,
            // An error only where the file is needed: the reason stands in its place.
            Err(reason) => return Ok(json!({ UNREADABLE: reason })),
        };
        self.bytes += bytes.len();
        if self.bytes > MAX_BYTES {
            return Err(too_much(name, FileLimit::Mebibytes(MAX_BYTES >> 20)));
        }
        match (self.read)(&bytes, name) {
            Ok(value) => Ok(value),
            Err(reason) => Ok(json!({ UNREADABLE: reason })),
        }
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
        // An anchor or an `$id` is one of the document itself.
        if file.is_empty()
            && let Some(pointer) = self.anchors.get(target)
        {
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
}

fn too_much(file: &str, limit: FileLimit) -> DocumentError {
    DocumentError::FileLimit {
        file: file.to_owned(),
        limit,
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
    let name = step_of(file);
    format!("#/{FILES_KEY}/{name}{fragment}")
}

/// A key as a step of a JSON pointer in a fragment, which references decode twice.
fn step_of(key: &str) -> String {
    let step = key.replace('~', "~0").replace('/', "~1");
    step.replace('%', "%25")
}

/// The path of a file from the folder of the document, without `.` and `..`; `None` for one that is
/// not below that folder.
fn resolved(from: &str, name: &str) -> Option<String> {
    if name.contains(':') || name.starts_with(['/', '\\']) {
        return None;
    }
    let folder = match from.rsplit_once('/') {
        Some((folder, _)) => folder,
        None => "",
    };
    let mut steps = Vec::new();
    for step in folder.split('/').chain(name.split('/')) {
        match step {
            "" | "." => {}
            // Without a step to go back, it leads out of the folder.
            ".." => drop(steps.pop()?),
            step => steps.push(step),
        }
    }
    if steps.is_empty() {
        return None;
    }
    Some(steps.join("/"))
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
    if level > MAX_LEVELS {
        return;
    }
    match value {
        Value::Object(fields) => {
            collect_own_anchors(fields, pointer, anchors);
            for (name, child) in fields {
                collect_child_anchors(child, &step_of(name), pointer, anchors, level);
            }
        }
        Value::Array(items) => {
            for (at, child) in items.iter().enumerate() {
                collect_child_anchors(child, &at.to_string(), pointer, anchors, level);
            }
        }
        _ => {}
    }
}

fn collect_child_anchors(
    child: &Value,
    step: &str,
    pointer: &mut String,
    anchors: &mut HashMap<String, String>,
    level: usize,
) {
    let length = pointer.len();
    pointer.push('/');
    pointer.push_str(step);
    collect_anchors(child, pointer, anchors, level + 1);
    pointer.truncate(length);
}

/// Adds what names this object. Of two with one name the first one counts.
fn collect_own_anchors(
    fields: &Map<String, Value>,
    pointer: &str,
    anchors: &mut HashMap<String, String>,
) {
    for keyword in ["$anchor", "$dynamicAnchor"] {
        if let Some(Value::String(name)) = fields.get(keyword) {
            let anchor = anchors.entry(format!("#{name}"));
            anchor.or_insert(pointer.to_owned());
        }
    }
    if let Some(Value::String(id)) = fields.get("$id") {
        anchors.entry(id.clone()).or_insert(pointer.to_owned());
    }
}

/// True for a document with a reference that names an anchor or an `$id`.
fn names_anchors(value: &Value, level: usize) -> bool {
    match value {
        _ if level > MAX_LEVELS => false,
        Value::Object(fields) => {
            // Any other reference than a pointer, or `#` for the whole document.
            matches!(reference(value), Some(name) if !name.starts_with("#/") && name != "#")
                || fields.values().any(|value| names_anchors(value, level + 1))
        }
        Value::Array(items) => items.iter().any(|item| names_anchors(item, level + 1)),
        _ => false,
    }
}
