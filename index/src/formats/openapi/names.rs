//! The names of a document's tools. Made by us or repeated by the document, none of them refuses it.

use std::collections::HashMap;

use crate::tool::ToolId;

/// Longest name made of a path, in bytes. Paths may be as long as they like.
const MAX_MADE_BYTES: usize = 200;
/// Longest name of a server made of a title, in letters: models read it before each name of a tool.
const MAX_SERVER_CHARS: usize = 20;

/// The name that an operation wants.
pub(super) struct Wanted {
    /// Its operationId, if it has one.
    pub id: Option<String>,
    /// The name made of its method and path.
    pub made: String,
}

/// The name that an operation gets, and what is to be said of it.
pub(super) struct Given {
    pub name: String,
    pub warning: Option<String>,
}

/// Different names for all operations. The ids of the document come first, whatever the order: a name
/// that we made gives way.
pub(super) fn assign(server: &str, wanted: Vec<Wanted>) -> Vec<Given> {
    let mut taken = Taken::default();
    let mut given = Vec::with_capacity(wanted.len());
    for wanted in &wanted {
        given.push(of_id(server, wanted, &mut taken));
    }
    for (given, wanted) in given.iter_mut().zip(wanted) {
        if given.is_none() {
            *given = Some(of_made(wanted, &mut taken));
        }
    }
    given.into_iter().flatten().collect()
}

/// The operation's own name; `None` if it has none that can name a tool.
fn of_id(server: &str, wanted: &Wanted, taken: &mut Taken) -> Option<Given> {
    let id = wanted.id.as_ref()?;
    // An id with control characters, or an endless one, can name no tool.
    ToolId::new(server, id).ok()?;
    let name = taken.free(id);
    let mut warning = None;
    if name != *id {
        warning = Some(format!(
            "its operationId {id:?} is also that of an operation above, so the tool is called {name:?}"
        ));
    }
    Some(Given { name, warning })
}

fn of_made(wanted: Wanted, taken: &mut Taken) -> Given {
    let name = taken.free(&wanted.made);
    let warning = match wanted.id {
        Some(id) => Some(format!(
            "its operationId {:?} can name no tool, so the tool is called {name:?}",
            super::super::cut(&id, 80)
        )),
        None if name != wanted.made => Some(format!(
            "the name {:?} made of its path is taken, so the tool is called {name:?}; an operationId names it",
            wanted.made
        )),
        None => None,
    };
    Given { name, warning }
}

/// The names given so far, and the number that the next tool of that name tries first.
#[derive(Default)]
struct Taken(HashMap<String, usize>);

impl Taken {
    /// The name, or the name with a number.
    fn free(&mut self, name: &str) -> String {
        let Some(&first) = self.0.get(name) else {
            self.0.insert(name.to_owned(), 2);
            return name.to_owned();
        };
        // Another tool may have such a name of its own.
        let mut number = first;
        let mut free = format!("{name}_{number}");
        while self.0.contains_key(&free) {
            number += 1;
            free = format!("{name}_{number}");
        }
        self.0.insert(name.to_owned(), number + 1);
        self.0.insert(free.clone(), 2);
        free
    }
}

/// The method and the words of the path: `get_users_by_id`.
pub(super) fn made_of(method: &str, path: &str) -> String {
    let mut words = vec![method.to_lowercase()];
    for segment in path.split('/') {
        add_words(segment, &mut words);
    }
    let mut name = words.join("_");
    if name.len() > MAX_MADE_BYTES {
        name.truncate(name.floor_char_boundary(MAX_MADE_BYTES));
    }
    name
}

/// The words of one segment: its texts, and `by_` before the name of a parameter.
fn add_words(segment: &str, words: &mut Vec<String>) {
    let mut rest = segment;
    while let Some((before, after)) = rest.split_once('{') {
        let Some((parameter, after)) = after.split_once('}') else {
            break;
        };
        add_text(before, words);
        words.push(format!("by_{}", as_word(parameter)));
        rest = after;
    }
    add_text(rest, words);
}

fn add_text(text: &str, words: &mut Vec<String>) {
    // Between two parameters there may be only `.` or `...`, which is no word.
    if text.chars().any(char::is_alphanumeric) {
        words.push(as_word(text.trim_matches('.')));
    }
}

fn as_word(text: &str) -> String {
    text.replace(|c: char| !c.is_alphanumeric() && c != '_', "_")
}

/// A parameter that a path names in braces.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Placeholder<'a> {
    pub name: &'a str,
    /// `path`, or `query` for `{?name}`.
    pub place: &'static str,
    /// True in the query of a path, where a parameter of the query may be meant: `?kind={kind}`.
    pub is_in_query: bool,
}

/// The parameters in braces of a path. A fragment is never sent, so there are none in it.
pub(super) fn parameters(path: &str) -> Vec<Placeholder<'_>> {
    let mut found = Vec::new();
    let mut is_in_query = false;
    let mut rest = path;
    while let Some(at) = rest.find(['{', '?', '#']) {
        let (mark, after) = rest[at..].split_at(1);
        rest = after;
        match mark {
            "#" => break,
            "?" => is_in_query = true,
            _ => {
                let Some((inner, after)) = rest.split_once('}') else {
                    break;
                };
                rest = after;
                found.extend(placeholders(inner, is_in_query));
            }
        }
    }
    found
}

/// What stands between two braces: a name, or names of the query as URI templates have them.
fn placeholders(inner: &str, is_in_query: bool) -> Vec<Placeholder<'_>> {
    let (names, place) = match inner.strip_prefix(['?', '&']) {
        Some(names) => (names, "query"),
        None if inner.starts_with('#') => ("", "path"),
        None => (inner, "path"),
    };
    // The name of a parameter of the path may have commas.
    let separator = if place == "query" { ',' } else { '\0' };
    let mut found = Vec::new();
    for name in names.split(separator) {
        // A star only says how a list is written.
        let name = name.trim_end_matches('*');
        if !name.is_empty() {
            found.push(Placeholder {
                name,
                place,
                is_in_query: is_in_query || place == "query",
            });
        }
    }
    found
}

/// Lower-case letters and digits of any script, joined by `-`.
pub(super) fn slug(title: &str) -> String {
    let words = title
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty());
    words.map(str::to_lowercase).collect::<Vec<_>>().join("-")
}

/// The first words of a title, at most 20 letters of them.
pub(super) fn short(title: &str) -> String {
    let mut short = String::new();
    // An apostrophe does not end a word.
    let title = title.replace(['\'', '’'], "");
    for word in slug(&title).split('-') {
        let letters = short.chars().count() + 1 + word.chars().count();
        if !short.is_empty() && letters > MAX_SERVER_CHARS {
            break;
        }
        if !short.is_empty() {
            short.push('-');
        }
        short.extend(word.chars().take(MAX_SERVER_CHARS));
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_made_of_paths_are_readable() {
        let long = format!("/{}", "a".repeat(600));
        for (method, path, name) in [
            ("get", "/users/{id}", "get_users_by_id"),
            ("get", "/f/{a}.{b}", "get_f_by_a_by_b"),
            ("get", "/Accounts/{Sid}.json", "get_Accounts_by_Sid_json"),
            ("post", "/a-b/", "post_a_b"),
            ("COPY", "/files/{id}:move", "copy_files_by_id__move"),
            ("get", "/files/{id}#share", "get_files_by_id__share"),
            ("get", "/a/{open", "get_a__open"),
            ("get", "/", "get"),
            ("get", &long, &format!("get_{}", "a".repeat(196))),
        ] {
            assert_eq!(made_of(method, path), name);
        }
    }

    #[test]
    fn names_that_are_taken_get_numbers_and_ids_come_first() {
        let wanted = |id: Option<&str>, made: &str| Wanted {
            id: id.map(str::to_owned),
            made: made.to_owned(),
        };
        let given = assign(
            "s",
            vec![
                wanted(None, "list"),
                wanted(Some("list"), "get_a"),
                wanted(Some("list"), "get_b"),
                wanted(Some("List"), "get_c"),
                wanted(Some("list_2"), "get_d"),
                wanted(Some("a\nb"), "get_e"),
            ],
        );
        let names: Vec<&str> = given.iter().map(|given| given.name.as_str()).collect();
        assert_eq!(
            names,
            ["list_3", "list", "list_2", "List", "list_2_2", "get_e"]
        );
        let warned: Vec<bool> = given.iter().map(|given| given.warning.is_some()).collect();
        assert_eq!(warned, [true, false, true, false, true, true]);
    }

    #[test]
    fn a_server_is_named_by_the_first_words_of_the_title() {
        for (title, name) in [
            (
                "GitHub's official OpenAPI spec + Octokit extension",
                "githubs-official",
            ),
            ("Swagger Petstore", "swagger-petstore"),
            ("OpenAPI Petstore for everyone", "openapi-petstore-for"),
            ("Averyveryveryverylongword API", "averyveryveryverylon"),
            ("气象服务", "气象服务"),
            ("", ""),
        ] {
            assert_eq!(short(title), name);
            assert!(short(title).chars().count() <= MAX_SERVER_CHARS);
        }
    }
}
