//! The pages of a server's lists, put together.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

use rmcp::model::{
    ClientRequest, CustomRequest, ListPromptsRequest, ListResourceTemplatesRequest,
    ListResourcesRequest, ListSkillsRequest, ListToolsRequest, PaginatedRequestParams,
    ServerCapabilities,
};
use serde_json::{Value, json};

use super::ListError;
use crate::Limits;
use toolscout_base::printable::excerpt;

/// Most characters of a cursor in a message.
const CURSOR_CHARS: usize = 60;

/// The list of a server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ListedTools {
    /// Every tool, as the server describes it.
    pub entries: Vec<Value>,
    /// Why there may be more, where the pages did not end as they should.
    pub incomplete: Option<String>,
}

/// What a server lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Its tools.
    Tools,
    /// Its prompts.
    Prompts,
    /// Its resources.
    Resources,
    /// The templates of its resources.
    ResourceTemplates,
    /// Its skills.
    Skills,
}

impl Kind {
    /// Whether a server with these capabilities has such a list.
    pub fn is_offered(self, capabilities: &ServerCapabilities) -> bool {
        match self {
            Kind::Tools => capabilities.tools.is_some(),
            Kind::Prompts => capabilities.prompts.is_some(),
            Kind::Resources | Kind::ResourceTemplates => capabilities.resources.is_some(),
            Kind::Skills => capabilities.supports_skills(),
        }
    }

    /// The field of a page that has the entries.
    fn field(self) -> &'static str {
        match self {
            Kind::Tools => "tools",
            Kind::Prompts => "prompts",
            Kind::Resources => "resources",
            Kind::ResourceTemplates => "resourceTemplates",
            Kind::Skills => "skills",
        }
    }

    /// The request for the page at this cursor. The SDK has text for cursors; any other goes back to its
    /// server as it came.
    pub fn request(self, cursor: Option<Value>) -> ClientRequest {
        let mut params = PaginatedRequestParams::default();
        params.cursor = match cursor {
            None => None,
            Some(Value::String(text)) => Some(text),
            Some(other) => {
                let method = match self {
                    Kind::Tools => "tools/list",
                    Kind::Prompts => "prompts/list",
                    Kind::Resources => "resources/list",
                    Kind::ResourceTemplates => "resources/templates/list",
                    Kind::Skills => "skills/list",
                };
                let params = json!({ "cursor": other });
                return ClientRequest::CustomRequest(CustomRequest::new(method, Some(params)));
            }
        };
        match self {
            Kind::Tools => ClientRequest::ListToolsRequest(ListToolsRequest::with_param(params)),
            Kind::Prompts => {
                ClientRequest::ListPromptsRequest(ListPromptsRequest::with_param(params))
            }
            Kind::Resources => {
                ClientRequest::ListResourcesRequest(ListResourcesRequest::with_param(params))
            }
            Kind::ResourceTemplates => ClientRequest::ListResourceTemplatesRequest(
                ListResourceTemplatesRequest::with_param(params),
            ),
            Kind::Skills => ClientRequest::ListSkillsRequest(ListSkillsRequest::with_param(params)),
        }
    }
}

/// A page of a list.
pub struct Page {
    entries: Vec<Value>,
    /// Where the next page begins. Servers write numbers and objects as well as text; each gets back
    /// what it has written.
    next: Option<Value>,
}

impl Page {
    /// Reads the result of a request for a page; `None` where it has no such list.
    pub fn read(mut result: Value, kind: Kind) -> Option<Self> {
        let next = result.get_mut("nextCursor").map(Value::take);
        let Some(Value::Array(entries)) = result.get_mut(kind.field()).map(Value::take) else {
            return None;
        };
        Some(Page {
            entries,
            next: next.filter(|next| !is_end(next)),
        })
    }
}

/// Whether this cursor stands for no further page, as several servers write it on their last one.
fn is_end(cursor: &Value) -> bool {
    match cursor {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        _ => false,
    }
}

/// The pages that have come so far.
pub struct Pages {
    limits: Limits,
    entries: Vec<Value>,
    /// Hashes of the entries, to recognise a page that came before.
    seen: HashSet<u64>,
    hasher: RandomState,
    cursors: HashSet<String>,
    bytes: usize,
    number: usize,
}

impl Pages {
    /// No page yet.
    pub fn new(limits: Limits) -> Self {
        Pages {
            limits,
            entries: Vec::new(),
            seen: HashSet::new(),
            // With random keys, so that no server can make the hashes of its entries equal.
            hasher: RandomState::new(),
            cursors: HashSet::new(),
            bytes: 0,
            number: 0,
        }
    }

    /// Adds a page, and returns the cursor of the next one, or the reason why the list ends without
    /// having ended.
    ///
    /// # Errors
    /// [`ListError::Endless`] for a list beyond the limits.
    pub fn add(&mut self, page: Page) -> Result<Next, ListError> {
        self.number += 1;
        let (had_entries, before) = (!page.entries.is_empty(), self.entries.len());
        for entry in page.entries {
            let text = entry.to_string();
            // Those that came before count too: they were sent and read.
            self.bytes += text.len();
            if self.seen.insert(self.hasher.hash_one(&text)) {
                self.entries.push(entry);
            }
        }
        self.check_limits()?;
        let Some(next) = page.next else {
            return Ok(Next::End);
        };
        // Either would list the same pages for ever.
        let shown = excerpt(&next.to_string(), CURSOR_CHARS);
        if !self.cursors.insert(next.to_string()) {
            return Ok(Next::Broken(format!("comes back to its page {shown}")));
        }
        if had_entries && self.entries.len() == before {
            return Ok(Next::Broken(format!(
                "repeats its tools on the page before {shown}"
            )));
        }
        if self.number == self.limits.pages {
            let most = self.limits.pages;
            return Err(ListError::Endless(format!("has more than {most} pages")));
        }
        Ok(Next::At(next))
    }

    fn check_limits(&self) -> Result<(), ListError> {
        let (tools, bytes) = (self.limits.tools, self.limits.list_bytes);
        let exceeded = match () {
            () if self.entries.len() > tools => format!("has more than {tools} entries"),
            () if self.bytes > bytes => format!("has more than {bytes} bytes"),
            () => return Ok(()),
        };
        Err(ListError::Endless(exceeded))
    }

    /// Whether any page has come.
    pub fn is_empty(&self) -> bool {
        self.number == 0
    }

    /// The list, with the reason why it may lack tools.
    pub fn into_list(self, broken: Option<&str>) -> ListedTools {
        let number = self.entries.len();
        let incomplete = broken.map(|reason| {
            format!("its list of tools {reason}; the {number} tools before that are used, and there may be more")
        });
        ListedTools {
            entries: self.entries,
            incomplete,
        }
    }
}

/// How a list goes on.
#[derive(Debug, PartialEq)]
pub enum Next {
    /// With the page of this cursor.
    At(Value),
    /// It has ended.
    End,
    /// It would never end, for this reason.
    Broken(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(pages: &mut Pages, names: &[&str], next: Value) -> Next {
        let tools: Vec<Value> = names.iter().map(|name| json!({ "name": name })).collect();
        let page = Page::read(json!({ "tools": tools, "nextCursor": next }), Kind::Tools).unwrap();
        pages.add(page).unwrap()
    }

    #[test]
    fn a_cursor_that_stands_for_nothing_ends_the_list() {
        for end in [json!(""), json!(null), json!(false)] {
            let mut pages = Pages::new(Limits::default());
            assert_eq!(add(&mut pages, &["a"], json!("2")), Next::At(json!("2")));
            assert_eq!(add(&mut pages, &["b"], end), Next::End);
            assert_eq!(pages.into_list(None).entries.len(), 2);
        }
    }

    #[test]
    fn a_cursor_is_given_back_as_it_came() {
        for cursor in [
            json!(2),
            json!("2"),
            json!(0),
            json!({ "page": 2 }),
            json!(1.5),
        ] {
            let mut pages = Pages::new(Limits::default());
            assert_eq!(add(&mut pages, &["a"], cursor.clone()), Next::At(cursor));
        }
    }

    #[test]
    fn pages_that_come_back_are_left_and_what_came_is_kept() {
        for (second, third, expected) in [
            ((["b"], json!("1")), None, "comes back to its page \"1\""),
            ((["b"], json!(2)), Some((["c"], json!(2))), "its page 2"),
            // The cursor is another one each time, and the page the same.
            ((["a"], json!("2")), None, "repeats its tools"),
        ] {
            let mut pages = Pages::new(Limits::default());
            add(&mut pages, &["a"], json!("1"));
            let mut next = add(&mut pages, &second.0, second.1);
            let mut kept = if second.0 == ["a"] { 1 } else { 2 };
            if let Some((names, cursor)) = third {
                next = add(&mut pages, &names, cursor);
                kept += 1;
            }
            let Next::Broken(reason) = next else {
                panic!("{next:?}")
            };
            let list = pages.into_list(Some(&reason));
            assert_eq!(list.entries.len(), kept);
            let incomplete = list.incomplete.unwrap();
            assert!(
                incomplete.contains(expected)
                    && incomplete.contains(&format!("the {kept} tools before that are used")),
                "{incomplete}"
            );
        }
    }

    #[test]
    fn an_empty_page_in_between_is_none_that_comes_back() {
        let mut pages = Pages::new(Limits::default());
        add(&mut pages, &["a"], json!("2"));
        assert_eq!(add(&mut pages, &[], json!("3")), Next::At(json!("3")));
        assert_eq!(add(&mut pages, &["b"], json!(null)), Next::End);
    }
}
