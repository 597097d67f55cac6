//! Arguments brought into the form that a tool's own schema asks for, each change recorded. Pure.
//!
//! What a model means is often clear where what it writes is not valid: `"7,000"` for a number,
//! `buy` for `BUY`. Only what can mean one thing is changed; the rest is left for the schema to
//! refuse.

use serde::Serialize;
use serde_json::{Map, Number, Value};
use utoipa::ToSchema;

use crate::tools::{Arguments, json};

/// References followed in a row before they count as a circle.
const MAX_REFERENCES: usize = 16;
/// Ends of property names whose values name something, so that space around them is never meant.
const NAMING: [&str; 6] = ["id", "email", "symbol", "code", "url", "date"];

/// One change of an argument.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Change {
    /// JSON pointer to the argument.
    pub path: String,
    /// Before; null for one that was not given.
    pub from: Value,
    /// After; null for one that was taken out.
    pub to: Value,
    /// Why.
    pub why: Why,
}

/// Why an argument was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// A number written as text.
    Number,
    /// A text written as a number or a truth value.
    Text,
    /// A truth value written as text.
    Boolean,
    /// An allowed value in another case.
    Enum,
    /// Space around a value.
    Trimmed,
    /// JSON inside a text.
    Json,
    /// The schema's default.
    Default,
    /// Null for an argument that may be left out.
    Null,
    /// The identity of the caller.
    Identity,
}

/// Normalises arguments by an input schema; what is changed is appended to `changes`.
pub fn normalize(
    schema: &Map<String, Value>,
    arguments: &mut Arguments,
    changes: &mut Vec<Change>,
) {
    let root = schema;
    let mut walk = Walk {
        root,
        path: String::new(),
        changes,
    };
    walk.object(schema, arguments);
}

struct Walk<'a> {
    root: &'a Map<String, Value>,
    path: String,
    changes: &'a mut Vec<Change>,
}

impl<'a> Walk<'a> {
    fn object(&mut self, schema: &'a Map<String, Value>, fields: &mut Map<String, Value>) {
        let properties = schema.get("properties").and_then(Value::as_object);
        let others = schema
            .get("additionalProperties")
            .and_then(Value::as_object);
        self.leave_out_nulls(schema, fields);
        for (name, value) in fields.iter_mut() {
            let declared = properties
                .and_then(|all| all.get(name)?.as_object())
                .or(others);
            let Some(declared) = declared else { continue };
            self.inside(name, |walk| walk.value(declared, name, value));
        }
        for (name, declared) in properties.into_iter().flatten() {
            let default = self
                .resolved(declared.as_object())
                .and_then(|schema| schema.get("default"));
            let Some(default) =
                default.filter(|default| !default.is_null() && !fields.contains_key(name))
            else {
                continue;
            };
            fields.insert(name.clone(), default.clone());
            self.inside(name, |walk| {
                walk.record(Value::Null, default.clone(), Why::Default)
            });
        }
    }

    /// Null where null is not allowed and nothing is required means "not given".
    fn leave_out_nulls(&mut self, schema: &Map<String, Value>, fields: &mut Map<String, Value>) {
        let required = schema.get("required").and_then(Value::as_array);
        let is_required =
            |name: &str| required.is_some_and(|all| all.iter().any(|item| item == name));
        let properties = schema.get("properties").and_then(Value::as_object);
        let left_out: Vec<String> = fields
            .iter()
            .filter(|(name, value)| value.is_null() && !is_required(name))
            .filter(|(name, _)| {
                let declared = properties.and_then(|all| all.get(*name)?.as_object());
                self.resolved(declared)
                    .is_some_and(|schema| !Kinds::of(schema).allow("null"))
            })
            .map(|(name, _)| name.clone())
            .collect();
        for name in left_out {
            fields.remove(&name);
            self.inside(&name, |walk| {
                walk.record(Value::Null, Value::Null, Why::Null)
            });
        }
    }

    fn value(&mut self, schema: &'a Map<String, Value>, name: &str, value: &mut Value) {
        let Some(schema) = self.resolved(Some(schema)) else {
            return;
        };
        if let Some((changed, why)) = converted(schema, name, value) {
            let before = std::mem::replace(value, changed);
            self.record(before, value.clone(), why);
        }
        match value {
            Value::Object(fields) => self.object(schema, fields),
            Value::Array(items) => {
                let Some(declared) = schema.get("items").and_then(Value::as_object) else {
                    return;
                };
                for (at, item) in items.iter_mut().enumerate() {
                    self.inside(&at.to_string(), |walk| walk.value(declared, name, item));
                }
            }
            _ => {}
        }
    }

    /// The schema itself, what its `$ref` names, or its only alternative beside null.
    fn resolved(&self, schema: Option<&'a Map<String, Value>>) -> Option<&'a Map<String, Value>> {
        let mut schema = schema?;
        for _ in 0..MAX_REFERENCES {
            if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
                schema = at_pointer(self.root, reference.strip_prefix('#')?)?;
            } else if let Some(only) = only_alternative(schema) {
                schema = only;
            } else {
                return Some(schema);
            }
        }
        None
    }

    fn inside<R>(&mut self, step: &str, work: impl FnOnce(&mut Self) -> R) -> R {
        let before = self.path.len();
        self.path.push('/');
        self.path
            .push_str(&step.replace('~', "~0").replace('/', "~1"));
        let result = work(self);
        self.path.truncate(before);
        result
    }

    fn record(&mut self, from: Value, to: Value, why: Why) {
        self.changes.push(Change {
            path: self.path.clone(),
            from,
            to,
            why,
        });
    }
}

fn at_pointer<'a>(root: &'a Map<String, Value>, pointer: &str) -> Option<&'a Map<String, Value>> {
    if pointer.is_empty() {
        return Some(root);
    }
    let (first, rest) = match pointer.strip_prefix('/')?.split_once('/') {
        Some((first, rest)) => (first, format!("/{rest}")),
        None => (pointer.strip_prefix('/')?, String::new()),
    };
    root.get(&first.replace("~1", "/").replace("~0", "~"))?
        .pointer(&rest)?
        .as_object()
}

/// The one branch of `anyOf`, `oneOf` or `allOf` that is not null.
fn only_alternative(schema: &Map<String, Value>) -> Option<&Map<String, Value>> {
    if schema.contains_key("type") || schema.contains_key("properties") {
        return None;
    }
    let branches = ["anyOf", "oneOf", "allOf"]
        .iter()
        .find_map(|key| schema.get(*key)?.as_array())?;
    let mut real = branches
        .iter()
        .filter_map(Value::as_object)
        .filter(|branch| branch.get("type") != Some(&"null".into()));
    real.next().filter(|_| real.next().is_none())
}

/// The types a schema allows.
struct Kinds<'a>(Vec<&'a str>);

impl<'a> Kinds<'a> {
    fn of(schema: &'a Map<String, Value>) -> Self {
        match schema.get("type") {
            Some(Value::String(kind)) => Kinds(vec![kind]),
            Some(Value::Array(kinds)) => Kinds(kinds.iter().filter_map(Value::as_str).collect()),
            _ => Kinds(Vec::new()),
        }
    }

    /// True when this type is allowed; a schema without types allows every one.
    fn allow(&self, kind: &str) -> bool {
        self.0.is_empty() || self.0.contains(&kind)
    }

    fn ask_for(&self, kind: &str) -> bool {
        self.0.contains(&kind)
    }
}

/// What a value becomes by its schema, unless it stays.
fn converted(schema: &Map<String, Value>, name: &str, value: &Value) -> Option<(Value, Why)> {
    let kinds = Kinds::of(schema);
    match value {
        Value::String(text) => from_text(schema, &kinds, name, text),
        Value::Number(number) if kinds.ask_for("integer") && !kinds.ask_for("number") => {
            whole(number).map(|whole| (whole, Why::Number))
        }
        Value::Number(_) | Value::Bool(_)
            if kinds.ask_for("string") && !kinds.ask_for(kind_of(value)) =>
        {
            let is_number_kind = value.is_number() && kinds.ask_for("integer");
            (!is_number_kind).then(|| {
                (
                    in_enum(schema, &value.to_string()).unwrap_or_else(|| value.to_string().into()),
                    Why::Text,
                )
            })
        }
        _ => None,
    }
}

fn from_text(
    schema: &Map<String, Value>,
    kinds: &Kinds,
    name: &str,
    text: &str,
) -> Option<(Value, Why)> {
    let trimmed = text.trim();
    if kinds.allow("string") {
        return text_as_meant(schema, name, text);
    }
    if kinds.ask_for("integer") || kinds.ask_for("number") {
        let number = number(trimmed, kinds.ask_for("number"))?;
        return Some((number, Why::Number));
    }
    if kinds.ask_for("boolean") {
        let truth = ["true", "false"]
            .iter()
            .position(|word| word.eq_ignore_ascii_case(trimmed))?;
        return Some((Value::Bool(truth == 0), Why::Boolean));
    }
    let parsed = json::unique(trimmed).ok()?;
    let fits = (parsed.is_object() && kinds.ask_for("object"))
        || (parsed.is_array() && kinds.ask_for("array"));
    fits.then_some((parsed, Why::Json))
}

/// A text in the case of the value it names, or without the space around it where space cannot be
/// meant. Other texts stay as they are: the indentation of a line of code is part of it.
fn text_as_meant(schema: &Map<String, Value>, name: &str, text: &str) -> Option<(Value, Why)> {
    if let Some(allowed) = schema.get("enum").and_then(Value::as_array) {
        if allowed.iter().any(|value| value == text) {
            return None;
        }
        return in_enum(schema, text).map(|value| (value, Why::Enum));
    }
    let name = name.to_ascii_lowercase();
    let names_something = NAMING.iter().any(|end| name.ends_with(end));
    let constrained = ["format", "pattern", "const"]
        .iter()
        .any(|key| schema.contains_key(*key));
    let trimmed = text.trim();
    let meant = (names_something || constrained) && trimmed.len() < text.len();
    meant.then(|| (trimmed.into(), Why::Trimmed))
}

/// The only allowed value that differs from this text in case and outer space at most.
fn in_enum(schema: &Map<String, Value>, text: &str) -> Option<Value> {
    let wanted = text.trim().to_lowercase();
    let allowed = schema.get("enum")?.as_array()?;
    let mut alike = allowed.iter().filter(|value| {
        value
            .as_str()
            .is_some_and(|value| value.to_lowercase() == wanted)
    });
    alike.next().filter(|_| alike.next().is_none()).cloned()
}

/// A whole number written with a fraction of zero.
fn whole(number: &Number) -> Option<Value> {
    let float = number
        .as_f64()
        .filter(|_| !number.is_i64() && !number.is_u64())?;
    let exact = float.fract() == 0.0 && float.abs() < 9e15;
    exact.then(|| Value::from(float as i64))
}

/// A number in a text: digits, with thousand separators in their places.
///
/// `7.000` for a whole number is seven to some and seven thousand to others, so it is neither.
fn number(text: &str, fraction_allowed: bool) -> Option<Value> {
    let digits = without_separators(text)?;
    if let Ok(whole) = digits.parse::<i64>() {
        return Some(whole.into());
    }
    if let Ok(whole) = digits.parse::<u64>() {
        return Some(whole.into());
    }
    let float: f64 = digits.parse().ok()?;
    if fraction_allowed {
        return Number::from_f64(float).map(Value::Number);
    }
    let three_digits = digits
        .split_once('.')
        .is_some_and(|(_, fraction)| fraction.len() == 3);
    Number::from_f64(float)
        .filter(|_| !three_digits)
        .and_then(|number| whole(&number))
}

/// Plain digits of a number, with an optional sign, fraction and exponent; `None` for what is no
/// number.
fn without_separators(text: &str) -> Option<String> {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (text, None),
    };
    let unsigned = mantissa.strip_prefix(['+', '-']).unwrap_or(mantissa);
    let (whole, fraction) = match unsigned.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (unsigned, None),
    };
    let is_digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let exponent_fits = exponent
        .is_none_or(|exponent| is_digits(exponent.strip_prefix(['+', '-']).unwrap_or(exponent)));
    if !exponent_fits || !fraction.is_none_or(is_digits) {
        return None;
    }
    let joined = joined_groups(whole)?;
    let sign = if mantissa.starts_with('-') { "-" } else { "" };
    let fraction = fraction
        .map(|digits| format!(".{digits}"))
        .unwrap_or_default();
    let exponent = exponent
        .map(|digits| format!("e{digits}"))
        .unwrap_or_default();
    Some(format!("{sign}{joined}{fraction}{exponent}"))
}

/// `7,000` as `7000`: groups of three after the first, all parted by one and the same separator.
fn joined_groups(whole: &str) -> Option<String> {
    let separator = whole.chars().find(|c| !c.is_ascii_digit());
    let Some(separator) = separator else {
        return (!whole.is_empty()).then(|| whole.to_owned());
    };
    if ![',', '_', ' ', '\'', '\u{a0}', '\u{202f}', '’'].contains(&separator) {
        return None;
    }
    let groups: Vec<&str> = whole.split(separator).collect();
    let in_place = |(at, group): (usize, &&str)| {
        let fits = if at == 0 {
            (1..=3).contains(&group.len())
        } else {
            group.len() == 3
        };
        fits && group.bytes().all(|byte| byte.is_ascii_digit())
    };
    groups
        .iter()
        .enumerate()
        .all(in_place)
        .then(|| groups.concat())
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn normalized(schema: Value, arguments: Value) -> (Value, Vec<Change>) {
        let (mut arguments, mut changes) = (arguments.as_object().unwrap().clone(), Vec::new());
        normalize(schema.as_object().unwrap(), &mut arguments, &mut changes);
        (Value::Object(arguments), changes)
    }

    /// What one argument named `x` becomes.
    fn one(schema: Value, value: Value) -> Value {
        normalized(
            json!({ "properties": { "x": schema } }),
            json!({ "x": value }),
        )
        .0["x"]
            .clone()
    }

    #[test]
    fn numbers_in_texts_become_numbers_and_ambiguous_ones_stay() {
        let integer = json!({ "type": "integer" });
        for (text, expected) in [
            ("7,000", json!(7_000)),
            (" 1,234,567 ", json!(1_234_567)),
            ("7_000", json!(7_000)),
            ("7 000", json!(7_000)),
            ("-12", json!(-12)),
            ("+12", json!(12)),
            ("7.0", json!(7)),
            ("18446744073709551615", json!(u64::MAX)),
            ("7.000", json!("7.000")),
            ("70,00", json!("70,00")),
            ("7,00,000", json!("7,00,000")),
            ("7,000 000", json!("7,000 000")),
            ("seven", json!("seven")),
            ("0x10", json!("0x10")),
            ("1e400", json!("1e400")),
            ("NaN", json!("NaN")),
            ("7.5", json!("7.5")),
            ("", json!("")),
            ("-", json!("-")),
            (",", json!(",")),
        ] {
            assert_eq!(one(integer.clone(), text.into()), expected, "{text:?}");
        }
        for (text, expected) in [
            ("7,000.5", json!(7000.5)),
            ("1e3", json!(1000.0)),
            (".5", json!(".5")),
        ] {
            assert_eq!(
                one(json!({ "type": "number" }), text.into()),
                expected,
                "{text:?}"
            );
        }
        assert_eq!(one(integer.clone(), json!(7.0)), json!(7));
        assert_eq!(one(integer, json!(7.5)), json!(7.5));
    }

    #[test]
    fn texts_and_truth_values_take_the_form_that_is_asked_for() {
        assert_eq!(one(json!({ "type": "string" }), json!(7)), json!("7"));
        assert_eq!(one(json!({ "type": "string" }), json!(true)), json!("true"));
        assert_eq!(
            one(json!({ "type": ["string", "number"] }), json!(7)),
            json!(7)
        );
        assert_eq!(
            one(json!({ "type": ["string", "integer"] }), json!(7)),
            json!(7)
        );
        assert_eq!(
            one(json!({ "type": "boolean" }), json!("True")),
            json!(true)
        );
        assert_eq!(
            one(json!({ "type": "boolean" }), json!("yes")),
            json!("yes")
        );
        assert_eq!(one(json!({}), json!("7")), json!("7"));
    }

    #[test]
    fn enum_values_are_found_in_another_case_when_only_one_fits() {
        let side = json!({ "type": "string", "enum": ["BUY", "SELL"] });
        assert_eq!(one(side.clone(), json!(" buy ")), json!("BUY"));
        assert_eq!(one(side.clone(), json!("hold")), json!("hold"));
        assert_eq!(one(json!({ "enum": ["a", "A"] }), json!("A ")), json!("A "));
        assert_eq!(one(json!({ "enum": ["a", "A"] }), json!("a")), json!("a"));
    }

    #[test]
    fn space_goes_where_it_cannot_be_meant_and_stays_where_it_can() {
        let trim = |name: &str, schema: Value| {
            let schema = json!({ "properties": { name: schema } });
            normalized(schema, json!({ name: "  a " })).0[name].clone()
        };
        assert_eq!(trim("userId", json!({ "type": "string" })), "a");
        assert_eq!(
            trim("day", json!({ "type": "string", "format": "date" })),
            "a"
        );
        assert_eq!(trim("content", json!({ "type": "string" })), "  a ");
    }

    #[test]
    fn defaults_nulls_and_nested_values_are_seen_to_and_each_change_is_recorded() {
        let schema = json!({
            "properties": {
                "order": { "$ref": "#/$defs/order" },
                "tags": { "type": "array", "items": { "type": "integer" } },
                "note": { "type": "string" },
                "limit": { "type": "integer", "default": 10 },
            },
            "$defs": { "order": { "type": "object", "properties": { "quantity": { "anyOf": [{ "type": "integer" }, { "type": "null" }] } } } },
        });
        let (arguments, changes) = normalized(
            schema,
            json!({ "order": "{\"quantity\":\"7,000\"}", "tags": ["1", 2], "note": null, "other": "1" }),
        );
        assert_eq!(
            arguments,
            json!({ "order": { "quantity": 7000 }, "tags": [1, 2], "other": "1", "limit": 10 })
        );
        let told: Vec<(&str, Why)> = changes
            .iter()
            .map(|change| (change.path.as_str(), change.why))
            .collect();
        assert_eq!(
            told,
            [
                ("/note", Why::Null),
                ("/order", Why::Json),
                ("/order/quantity", Why::Number),
                ("/tags/0", Why::Number),
                ("/limit", Why::Default)
            ]
        );
    }

    #[test]
    fn schemas_that_refer_to_themselves_end() {
        let schema = json!({ "properties": { "x": { "$ref": "#/properties/x" } } });
        assert_eq!(
            normalized(schema, json!({ "x": "1" })).0,
            json!({ "x": "1" })
        );
        let tree = json!({ "properties": { "x": { "$ref": "#" }, "n": { "type": "integer" } } });
        assert_eq!(
            normalized(tree, json!({ "x": { "x": { "n": "1" } } })).0,
            json!({ "x": { "x": { "n": 1 } } })
        );
    }
}
