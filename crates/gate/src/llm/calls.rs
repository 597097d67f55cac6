//! Puts the fragments of a model's calls together, for the agent and for the drop-in endpoint.
//! Servers number and name fragments in many ways.

use crate::llm::CallFragment;

/// Longest accepted arguments of a call, in bytes. A model that writes more is looping or pasting a file.
pub const MAX_ARGUMENT_BYTES: usize = 1 << 20;

/// A call as far as it has come, unchecked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RawCall {
    /// The call's id, if the model gave one.
    pub id: Option<String>,
    /// The tool's name; empty if the model gave none.
    pub name: String,
    /// The text of the arguments, cut at the limit of [`CallAssembler`].
    pub arguments: String,
    /// Bytes of the arguments before the cut.
    pub argument_bytes: usize,
}

/// Puts calls together, fragment by fragment.
#[derive(Debug)]
pub struct CallAssembler {
    calls: Vec<RawCall>,
    /// The index of each call, if its fragments have one.
    indices: Vec<Option<usize>>,
    most_calls: usize,
    most_argument_bytes: usize,
}

impl CallAssembler {
    /// An assembler that keeps at most this many calls, and this many bytes of the arguments of each.
    pub fn new(most_calls: usize, most_argument_bytes: usize) -> Self {
        CallAssembler {
            calls: Vec::new(),
            indices: Vec::new(),
            most_calls,
            most_argument_bytes,
        }
    }

    /// The calls, in the order of their first fragments.
    pub fn calls(&self) -> &[RawCall] {
        &self.calls
    }

    /// The calls themselves.
    pub fn into_calls(self) -> Vec<RawCall> {
        self.calls
    }

    /// Takes a fragment and returns the position of its call; `None` when there are too many calls.
    pub fn push(&mut self, fragment: CallFragment) -> Option<usize> {
        let position = match self.continued_by(&fragment) {
            Some(position) => position,
            None if self.calls.len() < self.most_calls => {
                self.calls.push(RawCall::default());
                self.indices.push(None);
                self.calls.len() - 1
            }
            None => return None,
        };
        self.indices[position] = self.indices[position].or(fragment.index);
        let call = &mut self.calls[position];
        call.id = call.id.take().or(fragment.id);
        if let Some(name) = fragment.name {
            merge_name(call, &name);
        }
        let arguments = fragment.arguments.unwrap_or_default();
        call.argument_bytes += arguments.len();
        // Never negative: the cut below keeps the arguments at the limit.
        let free_bytes = self.most_argument_bytes - call.arguments.len();
        call.arguments
            .push_str(&arguments[..arguments.floor_char_boundary(free_bytes)]);
        Some(position)
    }

    /// The position of the call that a fragment continues; `None` where it begins one.
    ///
    /// The index decides, then the id, then the order. Some servers send every call with index 0, and
    /// others a new id with every fragment: of these the name and the arguments so far tell whether
    /// another call begins.
    fn continued_by(&self, fragment: &CallFragment) -> Option<usize> {
        let mut latest = None;
        for (at, call) in self.calls.iter().enumerate().rev() {
            if fragment.index.is_some() && self.indices[at] != fragment.index {
                continue;
            }
            if has_id_of(call, fragment) && !names_another(call, fragment) {
                return Some(at);
            }
            latest = latest.or(Some(at));
        }
        // No call has the id, so the fragment can continue none but the latest.
        let latest = latest?;
        (!begins_another(&self.calls[latest], fragment)).then_some(latest)
    }
}

fn has_id_of(call: &RawCall, fragment: &CallFragment) -> bool {
    fragment.id.is_some() && call.id == fragment.id
}

/// Whether a fragment that may belong to this call begins another one instead. What names no tool
/// continues a call.
fn begins_another(last: &RawCall, fragment: &CallFragment) -> bool {
    let Some(name) = &fragment.name else {
        return false;
    };
    if last.name.is_empty() {
        return false;
    }
    let arguments = fragment.arguments.as_deref().unwrap_or_default();
    if last.arguments.is_empty() {
        let has_other_id = last.id.is_some() && fragment.id.is_some() && last.id != fragment.id;
        let is_anonymous = fragment.index.is_none() && fragment.id.is_none();
        return has_other_id || (is_anonymous && (*name != last.name || arguments.is_empty()));
    }
    // A name that is repeated in each fragment, with an id that may be new each time.
    let repeats = *name == last.name && !is_whole(&last.arguments) && !begins_object(arguments);
    !repeats
}

/// Whether a fragment with the id of a finished call names another tool.
fn names_another(call: &RawCall, fragment: &CallFragment) -> bool {
    match &fragment.name {
        Some(name) => *name != call.name && is_whole(&call.arguments),
        None => false,
    }
}

fn begins_object(arguments: &str) -> bool {
    arguments.trim_start().starts_with("{\"") || arguments.trim() == "{}"
}

fn is_whole(arguments: &str) -> bool {
    // Most arguments are not, and their end shows it without reading them whole at each fragment.
    arguments.trim_end().ends_with(['}', ']'])
        && serde_json::from_str::<serde::de::IgnoredAny>(arguments).is_ok()
}

/// Adds to a call's name. Names come whole, in parts before the arguments, or repeated in every
/// fragment.
fn merge_name(call: &mut RawCall, name: &str) {
    if call.name.is_empty() {
        name.clone_into(&mut call.name);
    } else if call.arguments.is_empty() && call.name != name {
        call.name.push_str(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Index, id, name and arguments of a fragment.
    type Fragment<'a> = (Option<usize>, Option<&'a str>, Option<&'a str>, &'a str);

    const MOST_BYTES: usize = 1 << 20;

    fn assembled(fragments: &[Fragment<'_>]) -> Vec<RawCall> {
        let mut assembler = CallAssembler::new(8, MOST_BYTES);
        for (index, id, name, arguments) in fragments {
            assembler.push(CallFragment {
                index: *index,
                id: id.map(str::to_owned),
                name: name.map(str::to_owned),
                arguments: Some((*arguments).to_owned()),
            });
        }
        assembler.into_calls()
    }

    fn shape(calls: &[RawCall]) -> Vec<(&str, &str)> {
        calls
            .iter()
            .map(|call| (call.name.as_str(), call.arguments.as_str()))
            .collect()
    }

    #[test]
    fn fragments_are_assigned_by_index_id_or_order() {
        let (zero, one) = (Some(0), Some(1));
        let by_index = assembled(&[
            (zero, Some("a"), Some("f"), "{"),
            (one, Some("b"), Some("g"), "["),
            (zero, None, None, "}"),
            (one, None, None, "]"),
        ]);
        assert_eq!(shape(&by_index), [("f", "{}"), ("g", "[]")]);
        let by_id = assembled(&[
            (None, Some("a"), Some("f"), "{"),
            (None, Some("b"), Some("g"), "["),
            (None, Some("a"), None, "}"),
        ]);
        assert_eq!(shape(&by_id), [("f", "{}"), ("g", "[")]);
        let all_zero = assembled(&[
            (zero, Some("a"), Some("f"), "{}"),
            (zero, Some("b"), Some("g"), "[]"),
        ]);
        assert_eq!(shape(&all_zero), [("f", "{}"), ("g", "[]")]);
        let neither = assembled(&[
            (None, None, Some("f"), "{"),
            (None, None, None, "}"),
            (None, None, Some("f"), "{}"),
        ]);
        assert_eq!(shape(&neither), [("f", "{}"), ("f", "{}")]);
        let same_id = assembled(&[
            (zero, Some("a"), Some("f"), "{}"),
            (one, Some("a"), Some("g"), "[]"),
        ]);
        assert_eq!(shape(&same_id), [("f", "{}"), ("g", "[]")]);
    }

    #[test]
    fn names_may_come_in_parts_or_repeated() {
        let zero = Some(0);
        assert_eq!(
            shape(&assembled(&[
                (zero, None, Some("get_"), ""),
                (zero, None, Some("it"), "{}")
            ])),
            [("get_it", "{}")]
        );
        assert_eq!(
            shape(&assembled(&[
                (zero, None, Some("f"), "{"),
                (zero, None, Some("f"), "}")
            ])),
            [("f", "{}")]
        );
    }

    #[test]
    fn ten_megabytes_of_arguments_are_counted_but_not_kept() {
        let megabyte = "x".repeat(1 << 20);
        let mut fragments = vec![(Some(0), None, Some("f"), megabyte.as_str())];
        fragments.extend(std::iter::repeat_n(
            (Some(0), None, None, megabyte.as_str()),
            9,
        ));
        let calls = assembled(&fragments);
        assert_eq!(
            (calls[0].arguments.len(), calls[0].argument_bytes),
            (MOST_BYTES, 10 << 20)
        );
    }

    #[test]
    fn what_servers_repeat_or_renumber_stays_one_call() {
        let zero = Some(0);
        let expected = [("f", r#"{"a":{"b":1}}"#)];
        let repeats_all = [
            (zero, Some("a"), Some("f"), r#"{"a":"#),
            (zero, Some("a"), Some("f"), r#"{"b""#),
            (zero, Some("a"), Some("f"), ":1}}"),
        ];
        let new_ids = [
            (zero, Some("a"), Some("f"), ""),
            (zero, Some("b"), None, r#"{"a":{"b""#),
            (zero, Some("c"), None, ":1}}"),
        ];
        let new_ids_and_names = [
            (zero, Some("a"), Some("f"), r#"{"a":"#),
            (zero, Some("b"), Some("f"), r#" {"#),
            (zero, Some("c"), Some("f"), r#""b":1}}"#),
        ];
        let names_alone = [
            (None, None, Some("f"), ""),
            (None, None, Some("f"), r#"{"a":{"b""#),
            (None, None, Some("f"), ":1}}"),
        ];
        for fragments in [repeats_all, new_ids, new_ids_and_names, names_alone] {
            let calls = assembled(&fragments);
            let written = calls[0].arguments.replace(' ', "");
            assert_eq!(
                (calls.len(), written.as_str()),
                (1, expected[0].1),
                "{fragments:?}"
            );
        }
    }

    #[test]
    fn several_calls_of_one_number_stay_apart() {
        let zero = Some(0);
        let without_ids = [(zero, None, Some("f"), "{}"), (zero, None, Some("g"), "{}")];
        let one_id = [
            (zero, Some("a"), Some("f"), "{}"),
            (zero, Some("a"), Some("g"), "{}"),
        ];
        for fragments in [without_ids, one_id] {
            let calls = assembled(&fragments);
            assert_eq!(shape(&calls), [("f", "{}"), ("g", "{}")], "{fragments:?}");
        }
        let same_tool = assembled(&[
            (zero, None, Some("f"), r#"{"a":1}"#),
            (zero, None, Some("f"), r#"{"a":2}"#),
        ]);
        assert_eq!(same_tool.len(), 2);
    }

    #[test]
    fn calls_beyond_the_most_are_left_out() {
        let mut assembler = CallAssembler::new(1, MOST_BYTES);
        let fragment = |id: &str| CallFragment {
            id: Some(id.to_owned()),
            name: Some("f".to_owned()),
            ..CallFragment::default()
        };
        assert_eq!(assembler.push(fragment("a")), Some(0));
        assert_eq!(assembler.push(fragment("b")), None);
        assert_eq!(assembler.calls().len(), 1);
    }
}
