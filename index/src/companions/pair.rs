//! How likely one tool gives what a parameter of another one needs.

use std::collections::HashSet;

use super::interface::{Interface, Kind};
use super::needs::{Need, Sign, Thing};
use super::words::words;

/// A tool that needs something, and one that may give it.
pub struct Pair<'a> {
    /// The tool that needs something.
    pub needing: &'a Interface,
    /// What it needs.
    pub need: &'a Need,
    /// The tool that may give it.
    pub giving: &'a Interface,
    /// True where the description of the parameter names the tool that may give it.
    pub is_named: bool,
    /// The words of the server's name, which say nothing within the server.
    pub server_words: &'a HashSet<String>,
}

/// How well the nouns of a tool fit a thing.
#[derive(Clone, Copy)]
struct Fit {
    by_name: f32,
    by_description: f32,
}

/// True for a need without which there is no call, unless its name alone speaks for it.
fn is_identifier(need: &Need) -> bool {
    need.is_required && need.sign != Sign::BareName
}

impl Pair<'_> {
    /// How likely it is; `None` where it is not.
    pub fn score(&self) -> Option<f32> {
        let is_of_no_use = match self.giving.kind {
            Kind::Writes => true,
            Kind::Unknown => !self.is_named && !self.has_field() && !self.lists_collection(),
            _ => false,
        };
        if is_of_no_use || self.needs_the_same() {
            return None;
        }
        let named = if self.is_named { 2.0 } else { 0.0 };
        let field = if self.has_field() { 1.0 } else { 0.0 };
        let fit = match &self.need.thing {
            _ if self.lists_collection() => 6.0,
            Thing::Resource(path) => self.score_of_resource(path)?,
            Thing::Named(noun) => self.score_of_noun(noun)?,
        };
        Some(fit + named + field)
    }

    /// True where the result of the tool has a field with the parameter's name, unless that is as
    /// common as `id`.
    fn has_field(&self) -> bool {
        let parameter = &self.need.parameter;
        self.giving.fields.contains(parameter) && words(parameter).len() > 1
    }

    /// True where the tool reads the path that the parameter is a part of: `/people` for
    /// `/people/{person_id}`.
    fn lists_collection(&self) -> bool {
        self.need.collection.is_some() && self.giving.reads_path == self.need.collection
    }

    /// True where the tool itself needs what it should give.
    fn needs_the_same(&self) -> bool {
        let Pair { need, giving, .. } = self;
        if let Thing::Resource(_) = need.thing {
            return false;
        }
        if giving.required.contains(&need.parameter) {
            return true;
        }
        for other in &giving.needs {
            if other.is_required && other.sign != Sign::OwnObject && other.thing == need.thing {
                return true;
            }
        }
        false
    }

    /// A method that lists what lies at this path.
    fn score_of_resource(&self, path: &[String]) -> Option<f32> {
        let (method, lies_at) = self.giving.segments.as_ref()?.split_last()?;
        if !["list", "search", "aggregatedList"]
            .iter()
            .any(|lists| method.starts_with(lists))
        {
            return None;
        }
        let fit = match lies_at {
            _ if lies_at == path => 5.0,
            // The same under another parent.
            _ if lies_at.last() == path.last() => 3.2,
            _ => return None,
        };
        Some(fit - if method == "list" { 0.0 } else { 0.3 })
    }

    fn score_of_noun(&self, noun: &[String]) -> Option<f32> {
        let fit = Fit {
            by_name: self.fit_of_name(noun),
            by_description: self.fit_of_description(noun),
        };
        let fits = match (fit.by_name > 0.0, fit.by_description > 0.0) {
            (true, true) => fit.by_name.max(fit.by_description) + 0.5,
            (false, false) if self.is_named => 4.0,
            (false, false) if self.has_field() => 2.5,
            (false, false) => return None,
            _ => fit.by_name.max(fit.by_description),
        };
        let of_something_else = self.is_described_as_something_else(noun, fit);
        Some(
            fits - 1.1 * self.surplus(noun, fit).min(3) as f32
                - if of_something_else { 0.3 } else { 0.0 }
                + self.context(noun)
                + self.worth_of_kind()
                - self.cost_of_call(),
        )
    }

    fn fit_of_name(&self, noun: &[String]) -> f32 {
        let nouns = &self.giving.nouns;
        let joined = noun.concat();
        // The one may have in one word what the other has in two.
        let is_joined = nouns.last() == Some(&joined)
            || matches!(nouns.last_chunk::<2>(), Some(last) if last.concat() == joined);
        if nouns.ends_with(noun) || is_joined {
            4.0
        } else if nouns.last() == noun.last() && !self.differs(noun) {
            3.4
        } else if noun.iter().all(|word| nouns.contains(word)) {
            3.0
        } else {
            0.0
        }
    }

    /// True where the tool is about another kind of the thing: ticket types, and not types of objects.
    fn differs(&self, noun: &[String]) -> bool {
        let nouns = &self.giving.nouns;
        let has_all = noun.iter().all(|word| nouns.contains(word));
        !has_all && self.unknown(nouns, noun) > 0
    }

    /// How many of the words are neither of the thing, nor of the tool in need, nor of the server.
    fn unknown(&self, words: &[String], noun: &[String]) -> usize {
        let mut unknown = 0;
        for word in words {
            let is_known = noun.contains(word)
                || self.needing.nouns.contains(word)
                || self.server_words.contains(word);
            unknown += usize::from(!is_known);
        }
        unknown
    }

    fn fit_of_description(&self, noun: &[String]) -> f32 {
        let described = &self.giving.described;
        let Some(last) = noun.last() else {
            return 0.0;
        };
        match self.giving.kind {
            Kind::PluralOnly | Kind::Unknown => 0.0,
            _ if described.ends_with(noun) => 3.4,
            _ if described.last() == Some(last) => 2.8,
            _ if described.contains(last) => 1.5,
            _ => 0.0,
        }
    }

    /// True where the name of the tool fits, and its description speaks of something else.
    fn is_described_as_something_else(&self, noun: &[String], fit: Fit) -> bool {
        let described = &self.giving.described;
        fit.by_name > 0.0
            && fit.by_description == 0.0
            && !described.is_empty()
            && !described.iter().any(|word| noun.contains(word))
    }

    /// The number of words of the tool that neither the thing nor the tool in need has.
    fn surplus(&self, noun: &[String], fit: Fit) -> usize {
        match (&self.giving.segments, fit.by_name > 0.0) {
            (Some(segments), _) => {
                let known = self.needing.segments.as_deref().unwrap_or_default();
                let before = &segments[..segments.len().saturating_sub(2)];
                let in_path = before.iter().filter(|segment| !known.contains(segment));
                let described = match fit.by_name > 0.0 {
                    true => 0,
                    false => self.unknown(&self.giving.described, noun),
                };
                in_path.count() + described
            }
            (None, true) => self.unknown(&self.giving.nouns, noun),
            (None, false) => self.unknown(&self.giving.described, noun),
        }
    }

    /// What the two tools have in common beside the thing: the users of a room are looked for among the
    /// users of rooms. Not where one is added, since it is not there yet.
    fn context(&self, noun: &[String]) -> f32 {
        if self.needing.adds {
            return 0.0;
        }
        let mut shared = HashSet::new();
        for word in &self.giving.nouns {
            if self.needing.nouns.contains(word)
                && !noun.contains(word)
                && !self.server_words.contains(word)
            {
                shared.insert(word);
            }
        }
        0.2 * shared.len().min(2) as f32
    }

    fn worth_of_kind(&self) -> f32 {
        let giving = self.giving;
        let of_resource = match giving.segments.as_deref() {
            Some([.., method]) if method == "list" => 0.3,
            _ => 0.0,
        };
        let of_kind = match giving.kind {
            Kind::Lists => 1.0,
            Kind::GetsSeveral => 0.5,
            Kind::GetsOne if giving.needs.iter().any(is_identifier) => -1.7,
            Kind::GetsOne => -0.2,
            Kind::PluralOnly => 0.6,
            Kind::Unknown | Kind::Writes => -0.5,
        };
        of_kind + of_resource
    }

    /// What it needs itself that the tool in need does not need as well.
    fn cost_of_call(&self) -> f32 {
        let mut new = 0;
        for need in &self.giving.needs {
            if is_identifier(need) && !self.needing.parameters.contains(&need.parameter) {
                new += 1;
            }
        }
        0.4 * new as f32
    }

    /// Why the tool is thought to give what is needed, in one sentence.
    pub fn reason(&self) -> String {
        let parameter = &self.need.parameter;
        if self.is_named {
            return format!("the description of `{parameter}` names this tool");
        }
        if self.has_field() {
            return format!("its result has `{parameter}`");
        }
        if self.lists_collection() {
            let path = self.giving.reads_path.as_deref().unwrap_or_default();
            return format!("`{parameter}` is a part of the path `{path}`, which this tool reads");
        }
        let thing = match &self.need.thing {
            Thing::Named(noun) => noun.join(" "),
            Thing::Resource(path) => match path.last() {
                Some(last) => words(last).join(" "),
                None => String::new(),
            },
        };
        let does = match self.giving.kind {
            Kind::Lists | Kind::PluralOnly => "lists",
            _ => "gets",
        };
        format!("`{parameter}` identifies {thing:?}, which this tool {does}")
    }
}
