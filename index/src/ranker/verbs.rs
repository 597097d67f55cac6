//! What a tool does and what a request asks for, by classes of verbs.
//!
//! A tool does what the first verb of its name says, `list` for `list_deleted_files`. A request may
//! ask for several things, and each of its words may belong to several classes.

use std::sync::LazyLock;

use crate::text::{self, ByTerm};
use crate::tool::Tool;

/// Words of a title or a description that are searched for a verb, if the name has none.
const WORDS_TO_ACT: usize = 8;

/// Classes of verbs, a bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verbs(u16);

impl Verbs {
    const CREATE: Verbs = Verbs(1);
    const READ: Verbs = Verbs(1 << 1);
    const SEARCH: Verbs = Verbs(1 << 2);
    const UPDATE: Verbs = Verbs(1 << 3);
    const DELETE: Verbs = Verbs(1 << 4);
    const SEND: Verbs = Verbs(1 << 5);
    const RUN: Verbs = Verbs(1 << 6);
    const STOP: Verbs = Verbs(1 << 7);
    const CONVERT: Verbs = Verbs(1 << 8);
    const TRANSFER: Verbs = Verbs(1 << 9);
    const ALLOW: Verbs = Verbs(1 << 10);
    const DENY: Verbs = Verbs(1 << 11);
    const BUY: Verbs = Verbs(1 << 12);
    /// A request for any of these may be served by a tool that deletes.
    const ENDING: Verbs = Verbs(Verbs::DELETE.0 | Verbs::STOP.0 | Verbs::DENY.0);
    /// What a question asks for.
    const ASKING: Verbs = Verbs(Verbs::READ.0 | Verbs::SEARCH.0);

    /// The classes of the term with this [`text::term_hash`].
    pub fn of_term(hash: u32) -> Verbs {
        BY_STEM.get(&hash).copied().unwrap_or_default()
    }

    /// The classes of all of these terms.
    fn of_terms(terms: impl Iterator<Item = u32>) -> Verbs {
        let mut all = Verbs::default();
        for term in terms {
            all = all.and(Verbs::of_term(term));
        }
        all
    }

    /// Those of the first verb; none without a verb.
    fn of_first(terms: &[u32]) -> Verbs {
        for &term in terms {
            let verbs = Verbs::of_term(term);
            if !verbs.is_none() {
                return verbs;
            }
        }
        Verbs::default()
    }

    fn and(self, other: Verbs) -> Verbs {
        Verbs(self.0 | other.0)
    }

    /// True without any class.
    pub fn is_none(self) -> bool {
        self.0 == 0
    }

    fn shares(self, other: Verbs) -> bool {
        self.0 & other.0 != 0
    }

    /// 1 if both have a class in common, -1 if not, 0 if one has none.
    fn agreement(self, other: Verbs) -> f32 {
        match (self.is_none() || other.is_none(), self.shares(other)) {
            (true, _) => 0.0,
            (false, true) => 1.0,
            (false, false) => -1.0,
        }
    }
}

/// Verbs by class. A verb may be in several.
// Stemmed on first use, as the terms that they are looked up by are stems.
static BY_STEM: LazyLock<ByTerm<Verbs>> = LazyLock::new(|| {
    let mut by_stem: ByTerm<Verbs> = ByTerm::default();
    for (verbs, words) in CLASSES {
        for word in words.split_whitespace() {
            let stem = text::term_hash(&text::stem(word));
            let known = by_stem.entry(stem).or_default();
            *known = known.and(*verbs);
        }
    }
    by_stem
});

const CLASSES: &[(Verbs, &str)] = &[
    (
        Verbs::CREATE,
        "create add new insert make generate register build open book reserve schedule compose draft \
         write provision launch allocate put upsert append init initialize import start post \
         save store upload deploy publish",
    ),
    (
        Verbs::READ,
        "get list show describe view fetch retrieve read check lookup look tell what display count query \
         give load pull download export find see watch monitor inspect preview open",
    ),
    (
        Verbs::SEARCH,
        "search find query lookup look filter discover browse locate recommend suggest explore get list \
         match scan show",
    ),
    (
        Verbs::UPDATE,
        "update edit modify change set rename replace configure adjust put patch move tag assign upsert \
         switch toggle turn increase decrease scale resize mark format upgrade sort untag \
         unassign unpin",
    ),
    (
        Verbs::DELETE,
        "delete remove drop clear terminate destroy purge revoke erase wipe truncate uninstall \
         deregister flush discard unsubscribe kill trash expunge cancel prune",
    ),
    (
        Verbs::SEND,
        "send post share mail message notify publish email tweet reply forward text call submit respond \
         comment announce",
    ),
    (
        Verbs::RUN,
        "run start execute invoke launch trigger resume play restart reboot submit deploy enable \
         activate turn perform retry rerun",
    ),
    (
        Verbs::STOP,
        "stop pause suspend disable close cancel terminate abort mute shutdown deactivate end halt turn",
    ),
    (
        Verbs::CONVERT,
        "calculate compute estimate convert predict analyze translate evaluate summarize transcribe \
         detect parse extract compare validate verify solve generate transform classify check zip unzip \
         compress decompress archive render",
    ),
    (
        Verbs::TRANSFER,
        "upload download copy move export import transfer backup restore merge migrate sync clone \
         duplicate save",
    ),
    (
        Verbs::ALLOW,
        "grant allow authorize attach enable invite associate connect link assign add approve accept \
         share subscribe",
    ),
    (
        Verbs::DENY,
        "revoke deny detach disassociate disable block ban reject lock restrict disconnect unlink leave \
         untag unassign unpin unfollow",
    ),
    (
        Verbs::BUY,
        "buy purchase order pay checkout book reserve charge refund bill",
    ),
];

/// Words that begin a question. Sorted.
const QUESTION_WORDS: &[&str] = &[
    "are", "did", "do", "does", "has", "have", "how", "is", "was", "were", "what", "when", "where",
    "which", "who", "whose", "why",
];

/// What a tool does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ToolVerbs {
    verbs: Verbs,
    deletes: bool,
}

impl ToolVerbs {
    /// By the terms of its name, then those of title and description, each by its [`text::term_hash`].
    pub fn new(tool: &Tool, name: &[u32], description: &[u32]) -> Self {
        let named = Verbs::of_first(name);
        let verbs = if named.is_none() {
            let beginning = &description[..description.len().min(WORDS_TO_ACT)];
            Verbs::of_first(beginning)
        } else {
            named
        };
        let hint = tool.annotations.destructive_hint == Some(true);
        ToolVerbs {
            verbs,
            // Many servers give the hint for every tool that writes, so a verb tells more.
            deletes: verbs.shares(Verbs::DELETE) || (verbs.is_none() && hint),
        }
    }
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestVerbs {
    all: Verbs,
    /// Those of the first verb of the request and of each clause.
    first: Verbs,
}

impl RequestVerbs {
    /// By its text and clauses, and terms that stand for words of it: corrections, and what tools say
    /// instead of everyday phrases.
    pub fn new<'a>(
        request: &str,
        clauses: &[String],
        others: impl Iterator<Item = &'a str>,
    ) -> Self {
        let terms = text::term_hashes(request);
        let mut all = Verbs::of_terms(terms.iter().copied());
        all = all.and(Verbs::of_terms(others.map(text::term_hash)));
        let mut first = Verbs::of_first(&terms);
        for clause in clauses {
            first = first.and(Verbs::of_first(&text::term_hashes(clause)));
        }
        if is_question(request) {
            (all, first) = (all.and(Verbs::ASKING), first.and(Verbs::ASKING));
        }
        RequestVerbs { all, first }
    }

    /// 1 if the tool does anything that the request has a verb for, -1 if it does something else, 0
    /// if one has no verb.
    pub fn agreement(self, tool: ToolVerbs) -> f32 {
        self.all.agreement(tool.verbs)
    }

    /// The same for the first verb of the request and of each clause.
    pub fn first_agreement(self, tool: ToolVerbs) -> f32 {
        self.first.agreement(tool.verbs)
    }

    /// -1 if the tool deletes and the request has no word for that, otherwise 0.
    pub fn harmlessness(self, tool: ToolVerbs) -> f32 {
        if tool.deletes && !self.all.shares(Verbs::ENDING) {
            -1.0
        } else {
            0.0
        }
    }
}

fn is_question(request: &str) -> bool {
    let first = request.split(|c: char| !c.is_ascii_alphabetic()).next();
    let first = first.unwrap_or_default().to_ascii_lowercase();
    QUESTION_WORDS.binary_search(&first.as_str()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Field;
    use crate::ranker::head;

    fn verbs(name: &str, description: &str) -> ToolVerbs {
        let tool = Tool::new("", name).unwrap().with_description(description);
        let [name, description] =
            [Field::Name, Field::Description].map(|field| text::term_hashes(&head(&tool, field)));
        ToolVerbs::new(&tool, &name, &description)
    }

    fn asked(request: &str) -> RequestVerbs {
        RequestVerbs::new(request, &[], std::iter::empty())
    }

    #[test]
    fn a_tool_that_deletes_is_harmless_only_to_those_who_ask_for_it() {
        let drop = verbs("drop_table", "");
        assert_eq!(asked("book me a table for two").harmlessness(drop), -1.0);
        assert_eq!(asked("remove the table").harmlessness(drop), 0.0);
        let added = ["delet"];
        let everyday = RequestVerbs::new("get rid of it", &[], added.into_iter());
        assert_eq!(everyday.harmlessness(drop), 0.0);
        for harmless in [
            verbs("list_deleted_files", ""),
            verbs("files", "Lists what was deleted."),
            verbs("files", ""),
        ] {
            assert_eq!(asked("show my files").harmlessness(harmless), 0.0);
        }
        let mut hinted = Tool::new("", "table").unwrap();
        hinted.annotations.destructive_hint = Some(true);
        let hinted = ToolVerbs::new(&hinted, &[], &[]);
        assert_eq!(asked("book a table").harmlessness(hinted), -1.0);
    }

    #[test]
    fn verbs_agree_by_their_class() {
        let create = verbs("create_issue", "");
        let request = asked("open a ticket and delete the old one");
        assert_eq!(request.agreement(create), 1.0);
        assert_eq!(request.first_agreement(verbs("delete_issue", "")), -1.0);
        assert_eq!(asked("send a mail").agreement(create), -1.0);
        assert_eq!(asked("the issue").agreement(create), 0.0);
        assert_eq!(asked("Where is it?").agreement(verbs("track", "")), 0.0);
        assert_eq!(
            asked("Where is it?").agreement(verbs("get_status", "")),
            1.0
        );
    }

    #[test]
    fn the_question_words_are_sorted() {
        assert!(QUESTION_WORDS.is_sorted());
    }
}
