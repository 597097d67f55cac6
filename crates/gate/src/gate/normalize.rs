//! Converts arguments to the types that a tool's schema declares, and records each change. Pure.
//!
//! Models often write invalid values whose meaning is clear: `"7,000"` for a number, `buy` for
//! `BUY`. Only unambiguous values are converted; the schema check refuses the others.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value};
use utoipa::ToSchema;

use crate::gate::declared::Schemas;
use crate::gate::text_fields::{TextForm, ToolFields};
use crate::tools::{Arguments, json};

/// Suffixes of property names whose values are identifiers, where outer whitespace is never meant.
const IDENTIFIER_SUFFIXES: [&str; 6] = ["id", "email", "symbol", "code", "url", "date"];
/// Keywords by which a schema says itself which form a text has.
const FORM_KEYWORDS: [&str; 4] = ["pattern", "enum", "const", "format"];
/// Longest text whose case is changed: a code or an address, not a sentence.
const MAX_CODE_BYTES: usize = 64;

/// One change of an argument.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Change {
    /// JSON pointer to the argument.
    pub path: String,
    /// The value before; null if the argument was not given.
    pub from: Value,
    /// The value after; null if the argument was removed.
    pub to: Value,
    /// The reason for the change.
    pub why: ChangeReason,
}

/// The reason why an argument was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChangeReason {
    /// A number was given as a string.
    Number,
    /// A string was given as a number or a boolean.
    Text,
    /// A boolean was given as a string.
    Boolean,
    /// An allowed value was given in another case.
    Enum,
    /// Whitespace around the value was removed.
    Trimmed,
    /// Separators of thousands, or whitespace around an amount, were removed from a text.
    Amount,
    /// A code was written in the case of its kind.
    Case,
    /// JSON was given inside a string.
    Json,
    /// A safe default was filled into a step of a plan that only reads.
    Default,
    /// Null was given where it cannot be sent, and was left out.
    Null,
    /// The caller's identity was filled in.
    Identity,
    /// A precondition of the call gave the value.
    Precondition,
    /// The owner of the tool's server has set the value.
    Owner,
}

/// Normalizes arguments by an input schema and appends each change to `changes`. `fields` says which
/// texts have a usual form, for tools that change something.
pub fn normalize(
    schema: &Map<String, Value>,
    fields: Option<ToolFields>,
    arguments: &mut Arguments,
    changes: &mut Vec<Change>,
) {
    let mut normalizer = Normalizer {
        schemas: Schemas::of(schema),
        fields,
        path: String::new(),
        changes,
    };
    normalizer.object(schema, arguments);
}

/// Removes an argument that is null, and says so.
pub fn remove_null(name: &str, arguments: &mut Arguments, changes: &mut Vec<Change>) {
    arguments.remove(name);
    changes.push(Change {
        path: format!("/{}", json::pointer_step(name)),
        from: Value::Null,
        to: Value::Null,
        why: ChangeReason::Null,
    });
}

/// Walks schema and arguments together.
struct Normalizer<'a> {
    schemas: Schemas<'a>,
    fields: Option<ToolFields<'a>>,
    /// JSON pointer to the current value.
    path: String,
    changes: &'a mut Vec<Change>,
}

impl<'a> Normalizer<'a> {
    fn object(&mut self, schema: &'a Map<String, Value>, fields: &mut Map<String, Value>) {
        let properties = schema.get("properties").and_then(Value::as_object);
        let additional = schema.get("additionalProperties");
        let additional = additional.and_then(Value::as_object);
        self.remove_nulls(schema, fields);
        for (name, value) in fields.iter_mut() {
            if let Some(declared) = declared_in(properties, name).or(additional) {
                self.at(name, |this| this.value(declared, name, value));
            }
        }
    }

    /// Removes optional arguments that are null where null is not allowed: models write null for
    /// "not given".
    fn remove_nulls(&mut self, schema: &'a Map<String, Value>, fields: &mut Map<String, Value>) {
        let required = schema.get("required").and_then(Value::as_array);
        let properties = schema.get("properties").and_then(Value::as_object);
        let mut removed = Vec::new();
        for (name, value) in fields.iter() {
            let mut required = required.into_iter().flatten();
            if !value.is_null() || required.any(|item| item == name) {
                continue;
            }
            if let Some(declared) = declared_in(properties, name)
                && !self.schemas.allows_null(declared)
            {
                removed.push(name.clone());
            }
        }
        for name in removed {
            fields.remove(&name);
            self.at(&name, |this| {
                this.record(Value::Null, Value::Null, ChangeReason::Null)
            });
        }
    }

    fn value(&mut self, declared: &'a Map<String, Value>, name: &str, value: &mut Value) {
        let Some(schema) = self.schemas.resolve(Some(declared)) else {
            return;
        };
        // The form by the name comes first, since it trims the text too.
        let changed = match self.usual_form(declared, schema, name, value) {
            None => converted(schema, name, value),
            usual => usual,
        };
        if let Some((changed, why)) = changed {
            let before = std::mem::replace(value, changed);
            self.record(before, value.clone(), why);
        }
        // After the conversion, since JSON inside a string may have become an object or an array.
        match value {
            Value::Object(fields) => self.object(schema, fields),
            Value::Array(items) => {
                let Some(declared) = schema.get("items").and_then(Value::as_object) else {
                    return;
                };
                for (at, item) in items.iter_mut().enumerate() {
                    self.at(&at.to_string(), |this| this.value(declared, name, item));
                }
            }
            _ => {}
        }
    }

    /// The form that a text has by its name, where its schema is a string and leaves the form open.
    fn usual_form(
        &self,
        declared: &'a Map<String, Value>,
        schema: &'a Map<String, Value>,
        name: &str,
        value: &Value,
    ) -> Option<(Value, ChangeReason)> {
        let fields = self.fields?;
        let text = value.as_str()?;
        if states_a_form(declared) || !self.is_open_string(schema) {
            return None;
        }
        in_form(fields.form_of(name)?, text)
    }

    /// True for the schema of a string, or of one alternative that is, whose form is left open.
    fn is_open_string(&self, schema: &'a Map<String, Value>) -> bool {
        if states_a_form(schema) {
            return false;
        }
        if schema.contains_key("type") {
            return Types::of(schema).declare("string");
        }
        let mut lists = ["anyOf", "oneOf"].iter().filter_map(|key| schema.get(*key));
        let branches = lists.find_map(Value::as_array);
        let mut has_string = false;
        for branch in branches.into_iter().flatten() {
            let Some(branch) = self.schemas.resolve(branch.as_object()) else {
                continue;
            };
            if !Types::of(branch).declare("string") {
                continue;
            }
            if states_a_form(branch) {
                return false;
            }
            has_string = true;
        }
        has_string
    }

    /// Runs `work` with the path extended by one step.
    fn at(&mut self, step: &str, work: impl FnOnce(&mut Self)) {
        let before = self.path.len();
        self.path.push('/');
        self.path.push_str(&json::pointer_step(step));
        work(self);
        self.path.truncate(before);
    }

    fn record(&mut self, from: Value, to: Value, why: ChangeReason) {
        self.changes.push(Change {
            path: self.path.clone(),
            from,
            to,
            why,
        });
    }
}

fn declared_in<'a>(
    properties: Option<&'a Map<String, Value>>,
    name: &str,
) -> Option<&'a Map<String, Value>> {
    properties?.get(name)?.as_object()
}

fn states_a_form(schema: &Map<String, Value>) -> bool {
    FORM_KEYWORDS.iter().any(|key| schema.contains_key(*key))
}

/// A text in the form that its name asks for; `None` if it has that form, or is not of that kind.
fn in_form(form: TextForm, text: &str) -> Option<(Value, ChangeReason)> {
    let trimmed = text.trim();
    let (written, why) = match form {
        TextForm::Amount => (plain_amount(trimmed)?, ChangeReason::Amount),
        _ if !is_code(trimmed) => return None,
        TextForm::UpperCase => (trimmed.to_ascii_uppercase(), ChangeReason::Case),
        TextForm::LowerCase => (trimmed.to_ascii_lowercase(), ChangeReason::Case),
    };
    (written != text).then_some((written.into(), why))
}

/// One word of ASCII that is no URL.
fn is_code(text: &str) -> bool {
    (1..=MAX_CODE_BYTES).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_graphic())
        && !text.contains("//")
}

/// An amount as plain text: digits, sign and fraction without separators; `None` if the text is no
/// amount.
///
/// A space does not separate thousands here, unlike in a number: `640 480` may be two.
fn plain_amount(text: &str) -> Option<String> {
    if text.contains([' ', 'e', 'E']) {
        return None;
    }
    let plus = if text.starts_with('+') { "+" } else { "" };
    Some(format!("{plus}{}", without_separators(text)?))
}

/// The types that a schema declares.
struct Types<'a>(Vec<&'a str>);

impl<'a> Types<'a> {
    fn of(schema: &'a Map<String, Value>) -> Self {
        match schema.get("type") {
            Some(Value::String(name)) => Types(vec![name]),
            Some(Value::Array(names)) => Types(names.iter().filter_map(Value::as_str).collect()),
            _ => Types(Vec::new()),
        }
    }

    /// True when this type is allowed; a schema without types allows every type.
    fn allow(&self, name: &str) -> bool {
        self.0.is_empty() || self.declare(name)
    }

    fn declare(&self, name: &str) -> bool {
        self.0.contains(&name)
    }
}

/// Converts a value to its schema's type; `None` if it stays as it is.
fn converted(
    schema: &Map<String, Value>,
    name: &str,
    value: &Value,
) -> Option<(Value, ChangeReason)> {
    let types = Types::of(schema);
    match value {
        Value::String(text) => from_string(schema, &types, name, text),
        Value::Number(number) if types.declare("integer") && !types.declare("number") => {
            Some((whole(number)?, ChangeReason::Number))
        }
        Value::Number(_) if !types.declare("number") => to_string(schema, &types, value),
        Value::Bool(_) if !types.declare("boolean") => to_string(schema, &types, value),
        _ => None,
    }
}

fn to_string(
    schema: &Map<String, Value>,
    types: &Types,
    value: &Value,
) -> Option<(Value, ChangeReason)> {
    if !types.declare("string") {
        return None;
    }
    let text = value.to_string();
    let converted = in_enum(schema, &text).unwrap_or(text.into());
    Some((converted, ChangeReason::Text))
}

fn from_string(
    schema: &Map<String, Value>,
    types: &Types,
    name: &str,
    text: &str,
) -> Option<(Value, ChangeReason)> {
    let trimmed = text.trim();
    // Where a string is allowed, `"7"` may be meant as one.
    if types.allow("string") {
        return cleaned_string(schema, name, text);
    }
    if types.declare("number") {
        return Some((parse_number(trimmed)?, ChangeReason::Number));
    }
    if types.declare("integer") {
        return Some((parse_integer(trimmed)?, ChangeReason::Number));
    }
    if types.declare("boolean") {
        let value = if trimmed.eq_ignore_ascii_case("true") {
            true
        } else if trimmed.eq_ignore_ascii_case("false") {
            false
        } else {
            return None;
        };
        return Some((value.into(), ChangeReason::Boolean));
    }
    // Of a duplicate key it is not clear which value is meant, so such JSON is not converted.
    let parsed = json::unique(trimmed).ok()?;
    let fits = (parsed.is_object() && types.declare("object"))
        || (parsed.is_array() && types.declare("array"));
    fits.then_some((parsed, ChangeReason::Json))
}

/// A string in the spelling of its enum value, or trimmed where whitespace cannot be meant. Other
/// strings stay as they are: the indentation of a line of code is part of it.
fn cleaned_string(
    schema: &Map<String, Value>,
    name: &str,
    text: &str,
) -> Option<(Value, ChangeReason)> {
    if let Some(allowed) = schema.get("enum").and_then(Value::as_array) {
        if allowed.iter().any(|value| value == text) {
            return None;
        }
        return Some((in_enum(schema, text)?, ChangeReason::Enum));
    }
    let name = name.to_ascii_lowercase();
    let mut suffixes = IDENTIFIER_SUFFIXES.iter();
    let is_identifier = suffixes.any(|suffix| name.ends_with(suffix));
    let trimmed = text.trim();
    if trimmed.len() == text.len() || !(is_identifier || states_a_form(schema)) {
        return None;
    }
    Some((trimmed.into(), ChangeReason::Trimmed))
}

/// The only allowed value that equals this text up to case and outer whitespace.
fn in_enum(schema: &Map<String, Value>, text: &str) -> Option<Value> {
    let wanted = text.trim().to_lowercase();
    let allowed = schema.get("enum")?.as_array()?;
    let mut only = None;
    for value in allowed {
        if value.as_str().map(str::to_lowercase).as_ref() != Some(&wanted) {
            continue;
        }
        if only.is_some() {
            return None;
        }
        only = Some(value);
    }
    only.cloned()
}

/// The integer of a float whose fraction is zero, if it is exact.
fn whole(number: &Number) -> Option<Value> {
    if number.is_i64() || number.is_u64() {
        return None;
    }
    let float = number.as_f64()?;
    // Above 2^53, about 9.007e15, not every integer is a float, and the value would change.
    let exact = float.fract() == 0.0 && float.abs() < 9e15;
    exact.then_some(Value::from(float as i64))
}

/// Parses a number with optional thousands separators.
fn parse_number(text: &str) -> Option<Value> {
    let digits = without_separators(text)?;
    if let Some(integer) = plain_integer(&digits) {
        return Some(integer);
    }
    Number::from_f64(digits.parse().ok()?).map(Value::Number)
}

/// Parses an integer with optional thousands separators, or with a fraction of zero.
///
/// `7.000` is seven to some and seven thousand to others, so it is not converted.
fn parse_integer(text: &str) -> Option<Value> {
    let digits = without_separators(text)?;
    if let Some(integer) = plain_integer(&digits) {
        return Some(integer);
    }
    if let Some((_, fraction)) = digits.split_once('.')
        && fraction.len() == 3
    {
        return None;
    }
    whole(&Number::from_f64(digits.parse().ok()?)?)
}

fn plain_integer(digits: &str) -> Option<Value> {
    if let Ok(signed) = digits.parse::<i64>() {
        return Some(signed.into());
    }
    // Integers above `i64::MAX`.
    Some(digits.parse::<u64>().ok()?.into())
}

/// The number without separators, with its sign, fraction and exponent; `None` if it is not a
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
    let sign = if mantissa.starts_with('-') { "-" } else { "" };
    let mut plain = format!("{sign}{}", joined_groups(whole)?);
    if let Some(fraction) = fraction {
        if !is_digits(fraction) {
            return None;
        }
        plain.push('.');
        plain.push_str(fraction);
    }
    if let Some(exponent) = exponent {
        if !is_digits(exponent.strip_prefix(['+', '-']).unwrap_or(exponent)) {
            return None;
        }
        plain.push('e');
        plain.push_str(exponent);
    }
    Some(plain)
}

fn is_digits(part: &str) -> bool {
    !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit())
}

/// `7,000` as `7000`: groups of three digits after the first, all with the same separator. `0,500` is
/// half of one with a decimal comma, since no group of thousands begins a number with 0.
fn joined_groups(whole: &str) -> Option<String> {
    let Some(separator) = whole.chars().find(|letter| !letter.is_ascii_digit()) else {
        return (!whole.is_empty()).then(|| whole.to_owned());
    };
    // The last one is the comma of Chinese and Japanese keyboards.
    if ![',', '_', ' ', '\'', '\u{a0}', '\u{202f}', '’', '，'].contains(&separator) {
        return None;
    }
    if whole.starts_with('0') {
        return None;
    }
    let mut joined = String::with_capacity(whole.len());
    for (at, group) in whole.split(separator).enumerate() {
        // Only the first group may have fewer than three digits.
        let shortest = if at == 0 { 1 } else { 3 };
        if !(shortest..=3).contains(&group.len()) || !is_digits(group) {
            return None;
        }
        joined.push_str(group);
    }
    Some(joined)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use toolscout_index::ToolId;

    use super::*;
    use crate::gate::text_fields::TextFields;

    fn normalized(schema: Value, arguments: Value) -> (Value, Vec<Change>) {
        let (mut arguments, mut changes) = (arguments.as_object().unwrap().clone(), Vec::new());
        let fields = TextFields::default();
        let id = ToolId::parse("s/t").unwrap();
        normalize(
            schema.as_object().unwrap(),
            Some(fields.of(&id)),
            &mut arguments,
            &mut changes,
        );
        (Value::Object(arguments), changes)
    }

    /// Normalizes one argument named `x`.
    fn one(schema: Value, value: Value) -> Value {
        normalized(
            json!({ "properties": { "x": schema } }),
            json!({ "x": value }),
        )
        .0["x"]
            .clone()
    }

    #[test]
    fn numeric_strings_become_numbers_and_ambiguous_ones_stay() {
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
    fn strings_and_booleans_are_converted_to_the_declared_type() {
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
    fn enum_values_are_matched_in_another_case_when_only_one_matches() {
        let side = json!({ "type": "string", "enum": ["BUY", "SELL"] });
        assert_eq!(one(side.clone(), json!(" buy ")), json!("BUY"));
        assert_eq!(one(side.clone(), json!("hold")), json!("hold"));
        assert_eq!(one(json!({ "enum": ["a", "A"] }), json!("A ")), json!("A "));
        assert_eq!(one(json!({ "enum": ["a", "A"] }), json!("a")), json!("a"));
    }

    #[test]
    fn whitespace_is_trimmed_only_where_it_cannot_be_meant() {
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
    fn nested_values_are_normalized_and_each_change_is_recorded() {
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
            json!({ "order": { "quantity": 7000 }, "tags": [1, 2], "other": "1" })
        );
        let recorded: Vec<(&str, ChangeReason)> = changes
            .iter()
            .map(|change| (change.path.as_str(), change.why))
            .collect();
        assert_eq!(
            recorded,
            [
                ("/note", ChangeReason::Null),
                ("/order", ChangeReason::Json),
                ("/order/quantity", ChangeReason::Number),
                ("/tags/0", ChangeReason::Number)
            ]
        );
    }

    #[test]
    fn a_default_that_nobody_gave_is_not_sent() {
        let schema = json!({
            "properties": {
                "private": { "type": "boolean", "default": false },
                "page": { "anyOf": [{ "type": "integer" }, { "type": "null" }], "default": 1 },
                "options": { "type": "object", "properties": { "deep": { "type": "string", "default": "d" } } },
                "rows": { "type": "array", "items": { "$ref": "#/$defs/row" } },
                "body": { "$ref": "#/$defs/row", "default": { "n": 1 } },
            },
            "$defs": { "row": { "type": "object", "properties": { "n": { "type": "integer", "default": 0 } } } },
        });
        for given in [
            json!({}),
            json!({ "options": {} }),
            json!({ "rows": [{}, { "n": 2 }] }),
            json!({ "private": false, "page": 1 }),
        ] {
            assert_eq!(
                normalized(schema.clone(), given.clone()),
                (given, Vec::new())
            );
        }
    }

    #[test]
    fn a_null_is_removed_only_where_no_branch_allows_it() {
        let schema = json!({ "properties": {
            "owner": { "anyOf": [{ "type": "string" }, { "type": "null" }] },
            "limit": { "type": ["integer", "null"], "default": 10 },
            "kind": { "nullable": true, "enum": ["a", "b"] },
            "who": { "nullable": true, "allOf": [{ "type": "object" }] },
            "note": { "type": "string" },
            "count": { "type": "integer", "default": 3 },
            "inner": { "type": "object", "properties": {
                "due": { "oneOf": [{ "type": "string" }, { "type": "null" }] },
                "note": { "anyOf": [{ "type": "string" }, { "type": "integer" }] },
            } },
            "rows": { "type": "array", "items": { "$ref": "#/properties/inner" } },
        } });
        let inner = || json!({ "due": null, "note": null });
        let (arguments, changes) = normalized(
            schema,
            json!({ "owner": null, "limit": null, "kind": null, "who": null, "note": null, "count": null,
                    "inner": inner(), "rows": [inner(), null] }),
        );
        assert_eq!(
            arguments,
            json!({ "owner": null, "limit": null, "kind": null, "who": null,
                    "inner": { "due": null }, "rows": [{ "due": null }, null] })
        );
        assert!(
            changes
                .iter()
                .all(|change| change.why == ChangeReason::Null)
        );
        let mut paths: Vec<&str> = changes.iter().map(|change| change.path.as_str()).collect();
        paths.sort_unstable();
        assert_eq!(paths, ["/count", "/inner/note", "/note", "/rows/0/note"]);
    }

    #[test]
    fn only_amounts_with_separators_or_white_space_are_rewritten() {
        for (text, expected) in [
            ("7,000", "7000"),
            (" 1,500 ", "1500"),
            ("1,234.50", "1234.50"),
            ("1'234'567", "1234567"),
            ("7\u{a0}000", "7000"),
            ("7，000", "7000"),
            ("+7,000", "+7000"),
            ("-7,000.10", "-7000.10"),
            (" 7 ", "7"),
            ("0007", "0007"),
            ("1,5", "1,5"),
            ("7,00", "7,00"),
            ("7.000,00", "7.000,00"),
            ("640 480", "640 480"),
            ("7,000 kWh", "7,000 kWh"),
            ("$7,000", "$7,000"),
            ("1,000e3", "1,000e3"),
            ("all of it", "all of it"),
            ("", ""),
        ] {
            let changed = in_form(TextForm::Amount, text);
            let form = changed.map_or(json!(text), |(form, _)| form);
            assert_eq!(form, expected, "{text:?}");
        }
    }

    #[test]
    fn only_codes_change_their_case() {
        for (text, expected) in [
            ("btc-usdt", "BTC-USDT"),
            (" eth ", "ETH"),
            ("BTC", "BTC"),
            ("US dollar", "US dollar"),
            ("比特币", "比特币"),
            ("https://x.example/btc.svg", "https://x.example/btc.svg"),
        ] {
            let changed = in_form(TextForm::UpperCase, text);
            let form = changed.map_or(json!(text), |(form, _)| form);
            assert_eq!(form, expected, "{text:?}");
        }
        let (form, why) = in_form(TextForm::LowerCase, "Ada@Example.org").unwrap();
        assert_eq!((form, why), (json!("ada@example.org"), ChangeReason::Case));
    }

    #[test]
    fn amounts_and_codes_in_text_get_their_usual_form_and_the_schema_wins() {
        let text = || json!({ "type": "string" });
        let schema = json!({
            "properties": {
                "amount": text(),
                "price": { "type": ["string", "null"] },
                "limitPrice": { "anyOf": [{ "type": "number" }, { "type": "string" }] },
                "orders": { "type": "array", "items": { "type": "object", "properties": { "qty": text(), "symbol": text() } } },
                "sizes": { "type": "array", "items": text() },
                "note": text(),
                "total": { "type": "string", "pattern": "^\\d{1,3}(,\\d{3})*$" },
                "cost": { "anyOf": [{ "type": "number" }, { "type": "string", "pattern": "," }] },
                "currency": { "type": "string", "enum": ["usd", "eur"] },
                "volume": { "$ref": "#/$defs/volume" },
                "id": text(),
            },
            "$defs": { "volume": { "type": "string", "format": "decimal" } },
        });
        let (arguments, changes) = normalized(
            schema,
            json!({
                "amount": "7,000",
                "price": " 1,500 ",
                "limitPrice": "1,234.50",
                "orders": [{ "qty": "7,000", "symbol": "btc" }],
                "sizes": ["1,000", "1,5", "0,500", "-0,125", "00,500"],
                "note": "7,000",
                "total": "7,000",
                "cost": "7,000",
                "currency": "USD",
                "volume": "7,000",
                "id": "7,000",
            }),
        );
        assert_eq!(
            arguments,
            json!({
                "amount": "7000",
                "price": "1500",
                "limitPrice": "1234.50",
                "orders": [{ "qty": "7000", "symbol": "BTC" }],
                "sizes": ["1000", "1,5", "0,500", "-0,125", "00,500"],
                "note": "7,000",
                "total": "7,000",
                "cost": "7,000",
                "currency": "usd",
                "volume": "7,000",
                "id": "7,000",
            })
        );
        let recorded: Vec<(&str, ChangeReason)> = changes
            .iter()
            .map(|change| (change.path.as_str(), change.why))
            .collect();
        for expected in [
            ("/amount", ChangeReason::Amount),
            ("/price", ChangeReason::Amount),
            ("/limitPrice", ChangeReason::Amount),
            ("/orders/0/qty", ChangeReason::Amount),
            ("/orders/0/symbol", ChangeReason::Case),
            ("/sizes/0", ChangeReason::Amount),
            ("/currency", ChangeReason::Enum),
        ] {
            assert!(recorded.contains(&expected), "{expected:?} of {recorded:?}");
        }
        assert_eq!(recorded.len(), 7, "{recorded:?}");
    }

    #[test]
    fn circular_schemas_terminate() {
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
