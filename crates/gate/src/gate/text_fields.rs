//! Texts whose form follows from the argument's name: amounts without separators, symbols in upper
//! case. The owner sets the names in the table `[gate.normalize]`. Pure.

use std::collections::BTreeMap;

use serde::Deserialize;
use toolscout_index::ToolId;

use crate::gate::pattern::Pattern;

/// Names of amounts, unless the owner sets others.
const AMOUNTS: [&str; 8] = [
    "amount", "price", "quantity", "qty", "size", "volume", "total", "cost",
];
/// Names of texts in upper case, unless the owner sets others.
const UPPER_CASE: [&str; 3] = ["symbol", "currency", "ticker"];

/// The table `[gate.normalize]`: which arguments of tools that change something have a usual form.
/// It concerns arguments whose schema is a string without a `pattern`, `enum`, `const` or `format`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TextFields {
    /// Names of amounts. They lose thousands separators and outer white space.
    pub amounts: Vec<FieldName>,
    /// Names of codes that are written in upper case.
    pub upper_case: Vec<FieldName>,
    /// Names of codes that are written in lower case. A name of both lists is in upper case.
    pub lower_case: Vec<FieldName>,
    /// Other lists for some tools. The most specific pattern that has a list counts.
    pub tools: BTreeMap<Pattern, ToolTextFields>,
}

/// The lists of some tools. A list that is left out is that of all tools.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ToolTextFields {
    /// Names of amounts.
    pub amounts: Option<Vec<FieldName>>,
    /// Names of codes that are written in upper case.
    pub upper_case: Option<Vec<FieldName>>,
    /// Names of codes that are written in lower case.
    pub lower_case: Option<Vec<FieldName>>,
}

impl Default for TextFields {
    fn default() -> Self {
        TextFields {
            amounts: AMOUNTS.map(FieldName::of).into(),
            upper_case: UPPER_CASE.map(FieldName::of).into(),
            // Which codes a service wants in lower case differs too much for a default.
            lower_case: Vec::new(),
            tools: BTreeMap::new(),
        }
    }
}

impl TextFields {
    /// The lists for a tool.
    pub fn of(&self, id: &ToolId) -> ToolFields<'_> {
        let mut matching: Vec<(&Pattern, &ToolTextFields)> = self.tools.iter().collect();
        matching.retain(|(pattern, _)| pattern.matches(id.as_str()));
        // The least specific first, so that a more specific one replaces its lists.
        matching.sort_by_key(|(pattern, _)| pattern.literal_chars());
        let mut fields = ToolFields {
            amounts: &self.amounts,
            upper_case: &self.upper_case,
            lower_case: &self.lower_case,
        };
        for (_, lists) in matching {
            fields.amounts = lists.amounts.as_deref().unwrap_or(fields.amounts);
            fields.upper_case = lists.upper_case.as_deref().unwrap_or(fields.upper_case);
            fields.lower_case = lists.lower_case.as_deref().unwrap_or(fields.lower_case);
        }
        fields
    }
}

/// The lists that apply to one tool.
#[derive(Clone, Copy, Debug)]
pub struct ToolFields<'a> {
    amounts: &'a [FieldName],
    upper_case: &'a [FieldName],
    lower_case: &'a [FieldName],
}

/// The usual form of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextForm {
    /// A number without separators of thousands.
    Amount,
    /// A code in upper case.
    UpperCase,
    /// A code in lower case.
    LowerCase,
}

impl ToolFields<'_> {
    /// The form of texts in arguments of this name; `None` if they have none.
    pub fn form_of(&self, name: &str) -> Option<TextForm> {
        let words = words_of(name);
        // The first list that has the name counts.
        for (names, form) in [
            (self.amounts, TextForm::Amount),
            (self.upper_case, TextForm::UpperCase),
            (self.lower_case, TextForm::LowerCase),
        ] {
            if names.iter().any(|listed| listed.covers(&words)) {
                return Some(form);
            }
        }
        None
    }
}

/// The name of an argument, as words in lower case. It covers all spellings of the name and each
/// name that ends in it: `price` covers `Price`, `limitPrice`, `unit_price` and `prices`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct FieldName(Vec<String>);

impl TryFrom<String> for FieldName {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        let parsed = FieldName::of(&name);
        if parsed.0.is_empty() {
            return Err(format!(
                "{name:?} has no letter or digit, so it names no argument; remove it"
            ));
        }
        Ok(parsed)
    }
}

impl FieldName {
    fn of(name: &str) -> Self {
        FieldName(words_of(name))
    }

    fn covers(&self, words: &[String]) -> bool {
        let Some(start) = words.len().checked_sub(self.0.len()) else {
            return false;
        };
        let ending = &words[start..];
        let (Some((wanted, before)), Some((last, others))) =
            (self.0.split_last(), ending.split_last())
        else {
            return false;
        };
        before == others && (wanted == last || is_plural(last, wanted))
    }
}

/// True for the plural of a word, as lists are named: `prices`, `currencies`.
fn is_plural(plural: &str, word: &str) -> bool {
    if plural.strip_suffix('s') == Some(word) {
        return true;
    }
    match (word.strip_suffix('y'), plural.strip_suffix("ies")) {
        (Some(stem), Some(stem_of_plural)) => stem == stem_of_plural,
        _ => false,
    }
}

/// The words of a name in lower case: `limitPrice` and `limit_price` are both `limit`, `price`.
fn words_of(name: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut before = None;
    let mut chars = name.chars().peekable();
    while let Some(c) = chars.next() {
        // `unitPrice` and `USDPrice` both have a word that begins with `P`.
        let after_word = before.is_some_and(|b: char| b.is_lowercase() || b.is_numeric());
        let before_word = chars.peek().is_some_and(|next| next.is_lowercase());
        let begins = c.is_uppercase() && (after_word || before_word);
        if (begins || !c.is_alphanumeric()) && !word.is_empty() {
            words.push(std::mem::take(&mut word));
        }
        if c.is_alphanumeric() {
            word.extend(c.to_lowercase());
        }
        before = Some(c);
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(fields: &TextFields, tool: &str, name: &str) -> Option<TextForm> {
        fields.of(&ToolId::parse(tool).unwrap()).form_of(name)
    }

    #[test]
    fn a_name_covers_its_spellings_its_plural_and_names_that_end_in_it() {
        let fields = TextFields::default();
        for name in [
            "price",
            "Price",
            "PRICE",
            "limitPrice",
            "unit_price",
            "USDPrice",
            "max-price",
            "prices",
            "order2Qty",
            "quantities",
        ] {
            assert_eq!(form(&fields, "s/t", name), Some(TextForm::Amount), "{name}");
        }
        for name in ["priceId", "resize", "id", "note", ""] {
            assert_eq!(form(&fields, "s/t", name), None, "{name}");
        }
        for name in ["symbol", "baseCurrency", "tickers"] {
            let expected = Some(TextForm::UpperCase);
            assert_eq!(form(&fields, "s/t", name), expected, "{name}");
        }
    }

    #[test]
    fn the_owner_sets_the_lists_for_all_tools_and_for_some() {
        let fields: TextFields = toml::from_str(
            "amounts = [\"金额\"]\nlower_case = [\"network\"]\n\
             [tools.\"pay/*\"]\namounts = [\"fee\"]\nupper_case = []\n\
             [tools.\"pay/refund\"]\namounts = []",
        )
        .unwrap();
        for (tool, name, expected) in [
            ("x/t", "金额", Some(TextForm::Amount)),
            ("x/t", "price", None),
            ("x/t", "symbol", Some(TextForm::UpperCase)),
            ("x/t", "network", Some(TextForm::LowerCase)),
            ("pay/send", "fee", Some(TextForm::Amount)),
            ("pay/send", "symbol", None),
            ("pay/send", "network", Some(TextForm::LowerCase)),
            ("pay/refund", "fee", None),
        ] {
            assert_eq!(form(&fields, tool, name), expected, "{tool} {name}");
        }
    }

    #[test]
    fn the_page_shows_the_defaults() {
        let page = include_str!("../../../../docs/gate.md");
        let (_, after) = page.split_once("[gate.normalize]").unwrap();
        let (_, lists) = after.split_once('\n').unwrap();
        let (lists, _) = lists.split_once("\n[").unwrap();
        let shown: TextFields = toml::from_str(lists).unwrap();
        assert_eq!(shown, TextFields::default());
    }

    #[test]
    fn mistakes_in_the_lists_are_named() {
        for (text, expected) in [
            ("amounts = [\"_\"]", "\"_\" has no letter or digit"),
            ("amount = []", "unknown field `amount`"),
            ("[tools.\"a/*\"]\nupper = []", "unknown field `upper`"),
        ] {
            let message = toml::from_str::<TextFields>(text).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
    }
}
