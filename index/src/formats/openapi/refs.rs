//! Follows and expands `$ref`, with bounds so that a small document cannot become a huge schema.

use std::collections::BTreeSet;

use percent_encoding::percent_decode_str;
use serde_json::{Map, Value, json};

use super::bundled;
use super::problem::DocumentError;
use crate::schema;

/// Longest chain of references to references.
const MAX_HOPS: usize = 32;
/// Depth to which references are expanded; below [`crate::tool::MAX_SCHEMA_DEPTH`], to leave room
/// for the levels around a schema.
const MAX_EXPANSION_DEPTH: usize = 40;
/// Nodes that references may add to one operation. A larger schema would not fit any model's
/// context.
const MAX_NODES_PER_OPERATION: usize = 5_000;
/// Nodes that references may add to all operations of a document, divided evenly: about 200 MB.
const MAX_NODES_PER_DOCUMENT: usize = 2_000_000;
/// Text bytes that count as one node.
const BYTES_PER_NODE: usize = 64;
/// Keywords whose value is data and not a schema.
pub(super) const DATA_KEYWORDS: [&str; 5] = ["example", "examples", "default", "enum", "const"];
/// Keywords whose value maps names to schemas, so that its keys are no keywords.
pub(super) const NAME_KEYWORDS: [&str; 5] = [
    "properties",
    "patternProperties",
    "$defs",
    "definitions",
    "dependentSchemas",
];

/// The value itself, or the target of its chain of local references.
///
/// # Errors
/// [`DocumentError`] for a reference that is missing, circular, or outside the document.
pub(super) fn follow<'a>(
    root: &'a Value,
    mut value: &'a Value,
) -> Result<&'a Value, DocumentError> {
    // Counting finds circles without a set of the references seen.
    for _ in 0..MAX_HOPS {
        let Some(reference) = reference(value) else {
            return Ok(value);
        };
        value = target_of(root, reference)?;
    }
    Err(DocumentError::Circle { most: MAX_HOPS })
}

/// The place that a reference names.
fn target_of<'a>(root: &'a Value, reference: &str) -> Result<&'a Value, DocumentError> {
    let Some(pointer) = pointer(reference) else {
        return Err(DocumentError::Outside(reference.to_owned()));
    };
    match at(root, root, &pointer, 0) {
        Some(target) => Ok(target),
        None => Err(dangling(root, reference)),
    }
}

/// A document whose operations share one budget.
pub(super) struct Document<'a> {
    root: &'a Value,
    /// Nodes that references may add to each operation.
    share: usize,
    /// Nodes left for the whole document, including those outside references: many paths can share
    /// one path item.
    left: usize,
}

impl<'a> Document<'a> {
    pub fn new(root: &'a Value, operations: usize) -> Self {
        let share = (MAX_NODES_PER_DOCUMENT / operations.max(1)).min(MAX_NODES_PER_OPERATION);
        Document {
            root,
            share,
            // Twice, which leaves as much for what is outside references.
            left: 2 * MAX_NODES_PER_DOCUMENT,
        }
    }

    /// Starts on one operation.
    pub fn expansion<'d>(&'d mut self) -> Expansion<'d, 'a> {
        let share = self.share;
        Expansion {
            document: self,
            share,
            open: Vec::new(),
            cut: BTreeSet::new(),
        }
    }
}

/// Expands the schemas of one operation.
pub(super) struct Expansion<'d, 'a> {
    document: &'d mut Document<'a>,
    share: usize,
    /// The references being expanded, outermost first.
    open: Vec<String>,
    /// References left out: recursive, too deep, or beyond the budget.
    pub cut: BTreeSet<String>,
}

impl<'a> Expansion<'_, 'a> {
    /// A copy in JSON Schema 2020-12, in which every reference is replaced by its target, or by a
    /// placeholder that explains why it is not.
    ///
    /// # Errors
    /// [`DocumentError`] for a missing reference, and for a document that is too large.
    pub fn expand(&mut self, schema: &Value) -> Result<Value, DocumentError> {
        let expanded = self.schema(schema, 0)?;
        Ok(schema::modern_value(&expanded))
    }

    fn schema(&mut self, schema: &Value, depth: usize) -> Result<Value, DocumentError> {
        self.spend(schema)?;
        match schema {
            Value::Object(fields) => match reference(schema) {
                Some(reference) => self.reference(reference, fields, depth),
                None => self.keywords(fields, depth),
            },
            Value::Array(items) => {
                let mut expanded = Vec::with_capacity(items.len());
                for item in items {
                    expanded.push(self.schema(item, depth + 1)?);
                }
                Ok(expanded.into())
            }
            scalar => Ok(scalar.clone()),
        }
    }

    fn keywords(
        &mut self,
        fields: &Map<String, Value>,
        depth: usize,
    ) -> Result<Value, DocumentError> {
        let mut expanded = Map::new();
        for (keyword, value) in fields {
            expanded.insert(keyword.clone(), self.keyword(keyword, value, depth + 1)?);
        }
        Ok(expanded.into())
    }

    fn keyword(
        &mut self,
        keyword: &str,
        value: &Value,
        depth: usize,
    ) -> Result<Value, DocumentError> {
        if DATA_KEYWORDS.contains(&keyword) || keyword.starts_with("x-") {
            self.spend_all(value)?;
            return Ok(value.clone());
        }
        match value {
            Value::Object(named) if NAME_KEYWORDS.contains(&keyword) => self.named(named, depth),
            _ => self.schema(value, depth),
        }
    }

    fn named(
        &mut self,
        schemas: &Map<String, Value>,
        depth: usize,
    ) -> Result<Value, DocumentError> {
        // A schema is never a text, so this `$ref` names where the schemas are.
        if let Some(Value::String(reference)) = schemas.get("$ref") {
            let target = self.target(reference)?;
            return match target {
                Value::Object(schemas) if depth < MAX_EXPANSION_DEPTH => {
                    self.named(schemas, depth + 1)
                }
                _ => Ok(json!({})),
            };
        }
        let mut expanded = Map::new();
        for (name, schema) in schemas {
            expanded.insert(name.clone(), self.schema(schema, depth + 1)?);
        }
        Ok(expanded.into())
    }

    /// Counts a value that is copied unchanged.
    ///
    /// # Errors
    /// [`DocumentError::TooLarge`].
    pub fn spend_all(&mut self, value: &Value) -> Result<(), DocumentError> {
        self.spend(value)?;
        match value {
            Value::Object(fields) => {
                for field in fields.values() {
                    self.spend_all(field)?;
                }
            }
            Value::Array(items) => {
                for item in items {
                    self.spend_all(item)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn reference(
        &mut self,
        reference: &str,
        fields: &Map<String, Value>,
        depth: usize,
    ) -> Result<Value, DocumentError> {
        let target = self.target(reference)?;
        let pointer = pointer(reference).unwrap_or_default();
        if self.share == 0 || depth >= MAX_EXPANSION_DEPTH || self.open.contains(&pointer) {
            // A placeholder and no error: the tool can still be called, and its metadata names what
            // is missing.
            let declared = bundled::as_declared(reference);
            let placeholder = placeholder(&declared, target);
            self.cut.insert(declared);
            return Ok(placeholder);
        }
        self.open.push(pointer);
        // The same depth: a target takes the place of its reference.
        let expanded = self.schema(target, depth);
        self.open.pop();
        let mut expanded = expanded?;
        if let Value::Object(into) = &mut expanded {
            // Since OpenAPI 3.1 keywords beside a reference count; earlier documents have
            // descriptions there.
            for (key, value) in fields {
                if key != "$ref" {
                    into.insert(key.clone(), value.clone());
                }
            }
        }
        Ok(expanded)
    }

    fn target(&self, reference: &str) -> Result<&'a Value, DocumentError> {
        target_of(self.document.root, reference)
    }

    fn spend(&mut self, value: &Value) -> Result<(), DocumentError> {
        let cost = 1 + value.as_str().map_or(0, str::len) / BYTES_PER_NODE;
        // What is outside references is bounded by the length of the document, so it is not charged
        // to the operation.
        if !self.open.is_empty() {
            self.share = self.share.saturating_sub(cost);
        }
        let Some(left) = self.document.left.checked_sub(cost) else {
            return Err(DocumentError::TooLarge {
                most: 2 * MAX_NODES_PER_DOCUMENT,
            });
        };
        self.document.left = left;
        Ok(())
    }
}

/// The value at a pointer from another value. A reference on the way is followed: `components` may have
/// its parts in other files.
fn at<'a>(root: &'a Value, from: &'a Value, path: &str, hops: usize) -> Option<&'a Value> {
    if let Some(value) = from.pointer(path) {
        // A file that cannot be read stands in the bundle as the reason why.
        let is_readable = value.get(bundled::UNREADABLE).is_none();
        return is_readable.then_some(value);
    }
    // The pointer leads nowhere as it is, so the walk stops at the first reference on the way.
    let mut value = from;
    let mut rest = path;
    while let Some(step) = rest.strip_prefix('/') {
        let end = step.find('/').unwrap_or(step.len());
        let Some(inner) = value.pointer(&rest[..=end]) else {
            break;
        };
        (value, rest) = (inner, &step[end..]);
    }
    // References on the way may go in a circle.
    if hops >= MAX_HOPS {
        return None;
    }
    let pointer = pointer(reference(value)?)?;
    let target = at(root, root, &pointer, hops + 1)?;
    at(root, target, rest, hops + 1)
}

/// A schema of the same type as the reference's target that accepts everything.
fn placeholder(reference: &str, target: &Value) -> Value {
    let mut schema = Map::new();
    if let Some(Value::String(kind)) = target.get("type") {
        schema.insert("type".into(), kind.as_str().into());
    }
    let description = format!("not expanded: {reference}");
    schema.insert("description".into(), description.into());
    schema.into()
}

pub(super) fn reference(value: &Value) -> Option<&str> {
    value.get("$ref")?.as_str()
}

/// The JSON pointer of a reference into its own document.
fn pointer(reference: &str) -> Option<String> {
    let fragment = reference.strip_prefix('#')?;
    if !fragment.starts_with('/') {
        return None;
    }
    Some(percent_decode(fragment))
}

pub(super) fn percent_decode(text: &str) -> String {
    // A JSON pointer in a fragment is percent-encoded (RFC 6901, section 6).
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

fn dangling(root: &Value, reference: &str) -> DocumentError {
    let declared = bundled::as_declared(reference);
    match bundled::unreadable(root, reference) {
        Some(reason) => DocumentError::Unreadable {
            reference: declared,
            reason: reason.to_owned(),
        },
        None => DocumentError::Missing(declared),
    }
}
