//! Companions: which tool finds what another needs, and their places among the hits.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use serde_json::{Value, json};
use toolscout_index::embed::StaticTable;
use toolscout_index::{
    Catalog, DataDir, Embedder, Filter, Fusion, Options, OwnerWords, Query, SearchOptions,
    Settings, Tool, ToolId,
};

use crate::world::{filled, object, plain};

/// A tool with these parameters, all of them required, each with its description.
fn needing(server: &str, name: &str, description: &str, parameters: &[(&str, &str)]) -> Tool {
    let properties = parameters.iter().map(|(name, description)| {
        let schema = json!({ "type": "string", "description": description });
        ((*name).to_owned(), schema)
    });
    let required: Vec<&str> = parameters.iter().map(|(name, _)| *name).collect();
    let mut tool = plain(server, name, description);
    tool.input_schema = object(json!({
        "type": "object",
        "properties": properties.collect::<serde_json::Map<String, Value>>(),
        "required": required,
    }));
    tool
}

fn operation(name: &str, method: &str, path: &str, parameters: &[(&str, &str)]) -> Tool {
    let mut tool = needing("shop", name, "", parameters);
    let call = json!({ "method": method, "path": path });
    tool.metadata.insert("openapi".into(), call);
    tool
}

fn catalog(folder: &tempfile::TempDir, tools: &[Tool]) -> Catalog {
    filled(&DataDir::new(folder.path()), "c", Options::default(), tools)
}

/// The companions of a tool, as pairs of parameter and id.
fn companions(catalog: &Catalog, id: &str) -> Vec<(String, String)> {
    let companions = catalog.searcher().companions(&ToolId::parse(id).unwrap());
    let pairs = companions.into_iter().map(|companion| {
        assert!(
            companion.reason.contains(&companion.parameter),
            "{companion:?}"
        );
        (companion.parameter, companion.id.to_string())
    });
    pairs.collect()
}

#[test]
fn a_tool_that_finds_what_another_needs_is_its_companion() {
    let mut with_result = plain("files", "browse", "Browses the store.");
    with_result.output_schema = Some(object(json!({
        "type": "object",
        "properties": { "blobs": { "type": "array", "items": { "properties": { "blob_id": {} } } } },
    })));
    let mut destructive = plain("crm", "list_people_and_drop_them", "");
    destructive.annotations.destructive_hint = Some(true);
    let tools = [
        needing(
            "crm",
            "update_person",
            "Changes a person.",
            &[("person_id", ""), ("name", "")],
        ),
        needing("crm", "get_person", "", &[("person_id", "")]),
        plain("crm", "search_people", "Searches people by name."),
        plain("crm", "search_companies", "Searches companies by name."),
        plain("crm", "create_person", "Creates a person."),
        destructive,
        // The same tool of another server knows other people.
        plain("hr", "search_people", "Searches people by name."),
        needing(
            "chat",
            "chat_post",
            "Posts a message.",
            &[("channel", "Channel ID"), ("text", "")],
        ),
        plain(
            "chat",
            "conversations_list",
            "Lists all channels in a team.",
        ),
        plain("chat", "users_list", "Lists all users in a team."),
        needing(
            "cal",
            "cal.events.patch",
            "",
            &[("calendarId", ""), ("eventId", "")],
        ),
        needing("cal", "cal.events.list", "", &[("calendarId", "")]),
        plain(
            "cal",
            "cal.calendarList.list",
            "Returns the calendars of the user.",
        ),
        needing(
            "gtm",
            "gtm.accounts.tags.update",
            "",
            &[("path", "The tag's path.")],
        ),
        needing(
            "gtm",
            "gtm.accounts.tags.list",
            "",
            &[("parent", "The account's path.")],
        ),
        plain("gtm", "gtm.accounts.list", ""),
        needing(
            "llm",
            "get_llm_txt",
            "",
            &[("id", "Must be obtained first by the catalog_index command.")],
        ),
        plain("llm", "catalog_index", ""),
        needing("files", "open_blob", "", &[("blob_id", "")]),
        plain("files", "list_blob_formats", "Lists formats."),
        with_result,
        operation("amend", "PATCH", "/orders/{order}", &[("order", "")]),
        operation("everything", "GET", "/orders", &[]),
        operation("others", "GET", "/carts", &[]),
    ];
    let folder = tempfile::tempdir().unwrap();
    let catalog = catalog(&folder, &tools);
    for (id, expected) in [
        (
            "crm/update_person",
            &[("person_id", "crm/search_people")][..],
        ),
        ("crm/get_person", &[("person_id", "crm/search_people")]),
        ("chat/chat_post", &[("channel", "chat/conversations_list")]),
        (
            "cal/cal.events.patch",
            &[
                ("eventId", "cal/cal.events.list"),
                ("calendarId", "cal/cal.calendarList.list"),
            ],
        ),
        (
            "gtm/gtm.accounts.tags.update",
            &[("path", "gtm/gtm.accounts.tags.list")],
        ),
        (
            "gtm/gtm.accounts.tags.list",
            &[("parent", "gtm/gtm.accounts.list")],
        ),
        ("llm/get_llm_txt", &[("id", "llm/catalog_index")]),
        ("files/open_blob", &[("blob_id", "files/browse")]),
        ("shop/amend", &[("order", "shop/everything")]),
        // These need nothing, or nothing that another tool finds.
        ("crm/search_people", &[]),
        ("crm/create_person", &[]),
        ("hr/search_people", &[]),
        ("cal/cal.calendarList.list", &[]),
        ("nowhere/nothing", &[]),
    ] {
        let expected: BTreeSet<(String, String)> = expected
            .iter()
            .map(|(parameter, id)| ((*parameter).to_owned(), (*id).to_owned()))
            .collect();
        let found: BTreeSet<_> = companions(&catalog, id).into_iter().collect();
        assert_eq!(found, expected, "{id}");
    }
}

#[test]
fn companions_follow_the_tools() {
    let needs = needing("crm", "update_person", "", &[("person_id", "")]);
    let folder = tempfile::tempdir().unwrap();
    let catalog = catalog(&folder, std::slice::from_ref(&needs));
    assert!(companions(&catalog, "crm/update_person").is_empty());
    let mut writer = catalog.writer().unwrap();
    writer.upsert(&[plain("crm", "list_people", "")]).unwrap();
    writer.commit().unwrap();
    let found = |catalog: &Catalog| companions(catalog, "crm/update_person");
    let expected = [("person_id".to_owned(), "crm/list_people".to_owned())];
    assert_eq!(found(&catalog), expected);
    writer
        .upsert(&[plain("crm", "search_people", "Searches people.")])
        .unwrap();
    writer
        .remove(&[ToolId::parse("crm/list_people").unwrap()])
        .unwrap();
    writer.commit().unwrap();
    let expected = [("person_id".to_owned(), "crm/search_people".to_owned())];
    assert_eq!(found(&catalog), expected);
}

/// Enough tools that every answer is full.
fn crm() -> Vec<Tool> {
    let mut tools = vec![
        needing(
            "crm",
            "update_person",
            "Changes a person of the company.",
            &[("person_id", "")],
        ),
        needing(
            "crm",
            "update_ticket",
            "Changes a ticket of a person.",
            &[("ticket_id", "")],
        ),
        plain("crm", "fetch_people", "Lists people."),
        plain("crm", "fetch_tickets", "Lists tickets."),
    ];
    tools.extend((0..8).map(|number| {
        let name = format!(
            "update_person_{}",
            [
                "photo", "name", "phone", "team", "mail", "role", "desk", "car"
            ][number]
        );
        plain("crm", &name, "Changes a person of the company.")
    }));
    tools
}

fn crm_with_table(folder: &tempfile::TempDir) -> Catalog {
    let table: Arc<dyn Embedder> = StaticTable::bundled().unwrap();
    filled(
        &DataDir::new(folder.path()),
        "c",
        Options::new(vec![table]),
        &crm(),
    )
}

fn ids(catalog: &Catalog, query: &Query) -> Vec<String> {
    let results = catalog.searcher().search(query).unwrap();
    results.hits.iter().map(|hit| hit.id.to_string()).collect()
}

#[test]
fn a_companion_takes_a_place_behind_its_hit_within_the_same_number_of_hits() {
    let folder = tempfile::tempdir().unwrap();
    let catalog = crm_with_table(&folder);
    // A tool that is asked for by name has a confidence of 1.
    let query = || Query::new("update_person").k(5);
    let without = ids(&catalog, &query().companions(false));
    let results = catalog.searcher().search(&query()).unwrap();
    let hits = &results.hits;
    assert_eq!((hits.len(), without.len()), (5, 5));
    assert_eq!(hits[0].id.as_str(), "crm/update_person");
    assert_eq!(
        hits[1].id.as_str(),
        without[1],
        "the first two keep their places"
    );
    let companion = &hits[2];
    assert_eq!(companion.id.as_str(), "crm/fetch_people");
    let companion_of = companion.companion_of.as_ref().unwrap();
    assert_eq!(companion_of.id.as_str(), "crm/update_person");
    assert_eq!(companion_of.parameter, "person_id");
    assert_eq!(
        companion_of.reason,
        "`person_id` identifies \"person\", which this tool lists"
    );
    let others: Vec<&str> = hits[3..].iter().map(|hit| hit.id.as_str()).collect();
    assert_eq!(others, without[2..4], "the others move down");
    assert!(hits.iter().filter(|hit| hit.companion_of.is_some()).count() == 1);
    assert!(hits.is_sorted_by(|one, other| one.score >= other.score));
}

#[test]
fn no_companion_is_put_where_it_would_be_of_no_use() {
    let folder = tempfile::tempdir().unwrap();
    let catalog = crm_with_table(&folder);
    let marked = |query: &Query| {
        let results = catalog.searcher().search(query).unwrap();
        results
            .hits
            .iter()
            .filter(|hit| hit.companion_of.is_some())
            .count()
    };
    assert_eq!(marked(&Query::new("update_person").k(5)), 1);
    let only_person = |id: &ToolId| id.name().starts_with("update_person");
    let filter: Filter = crm()
        .into_iter()
        .map(|tool| tool.id)
        .filter(only_person)
        .collect();
    for (why, query) in [
        (
            "the first two hits keep their places",
            Query::new("update_person").k(2),
        ),
        (
            "the filter leaves it out",
            Query::new("update_person").k(5).filter(filter),
        ),
        (
            "it is a hit already",
            Query::any_of(["update_person", "fetch_people"]).k(5),
        ),
        (
            "it is switched off",
            Query::new("update_person").k(5).companions(false),
        ),
        ("the hit needs nothing", Query::new("fetch_tickets").k(5)),
        (
            "nothing says that the hits are right",
            Query::new("changes a ticket of somebody")
                .k(5)
                .fusion(Fusion::Rrf),
        ),
    ] {
        assert_eq!(marked(&query), 0, "{why}");
    }
}

#[test]
fn a_request_that_gives_an_identifier_needs_no_companion() {
    let folder = tempfile::tempdir().unwrap();
    let tools = [
        needing(
            "crm",
            "update_person",
            "Changes a person.",
            &[("person_id", "")],
        ),
        plain("crm", "fetch_everyone", "Lists people."),
    ];
    // All tools are hits, and the answer has free places.
    let catalog = catalog(&folder, &tools);
    let marked = |text: &str| {
        let results = catalog.searcher().search(&Query::new(text).k(5)).unwrap();
        results.hits.iter().any(|hit| hit.companion_of.is_some())
    };
    assert!(marked("changes Anna"), "a free place needs no confidence");
    for text in [
        "changes 4711",
        "changes #7",
        "changes PER-12",
        "changes per_9f3a2",
    ] {
        assert!(!marked(text), "{text}");
    }
}

#[test]
fn the_settings_of_a_catalog_and_its_owner_switch_companions_off() {
    let folder = tempfile::tempdir().unwrap();
    let catalog = crm_with_table(&folder);
    let marked = |query: &Query| {
        let results = catalog.searcher().search(query).unwrap();
        results.hits.iter().any(|hit| hit.companion_of.is_some())
    };
    let query = || Query::new("update_person").k(5);
    let mut writer = catalog.writer().unwrap();
    let settings = Settings {
        search: SearchOptions {
            companions: Some(false),
            ..SearchOptions::default()
        },
        ..Settings::default()
    };
    writer.set_settings(&settings).unwrap();
    writer.commit().unwrap();
    assert!(!marked(&query()));
    assert!(
        marked(&query().companions(true)),
        "a query overrides the catalog"
    );
    writer.set_settings(&Settings::default()).unwrap();
    let hidden =
        r#"{"pins": {"p": {"query": "update_person", "tool": "crm/fetch_people", "hide": true}}}"#;
    let words: OwnerWords = serde_json::from_str(hidden).unwrap();
    writer.set_owner_words(&words).unwrap();
    writer.commit().unwrap();
    assert!(!marked(&query()), "what the owner hides stays hidden");
}

/// Prints what the first and later questions about one large server take.
#[test]
#[ignore = "prints times"]
fn what_companions_cost() {
    let things = [
        "person", "order", "ticket", "invoice", "contract", "device", "room", "team",
    ];
    let tools: Vec<Tool> = (0..20_000)
        .map(|number| {
            let thing = things[number % things.len()];
            let part = format!("part{}", number / 16);
            match number % 16 < 8 {
                true => needing(
                    "big",
                    &format!("update_{thing}_{part}"),
                    "Changes it.",
                    &[(&format!("{thing}_id"), "")],
                ),
                false => plain("big", &format!("list_{thing}s_{part}"), "Lists them."),
            }
        })
        .collect();
    let folder = tempfile::tempdir().unwrap();
    let catalog = catalog(&folder, &tools);
    let searcher = catalog.searcher();
    for id in [
        "big/update_person_part0",
        "big/update_person_part1",
        "big/update_person_part1",
    ] {
        let clock = Instant::now();
        let found = searcher.companions(&ToolId::parse(id).unwrap()).len();
        println!(
            "{id}: {found} in {:.2} ms",
            clock.elapsed().as_secs_f64() * 1e3
        );
    }
}

/// A judged request of a set: which tools serve it, and which ones people say have to come first.
#[derive(serde::Deserialize)]
struct Judged {
    query: String,
    relevant: Vec<String>,
    #[serde(default)]
    prepares: Vec<String>,
}

/// Sums over requests, and their number.
#[derive(Default)]
struct Mean(f64, usize);

impl Mean {
    fn add(&mut self, value: f64) {
        self.0 += value;
        self.1 += 1;
    }

    fn of(&self) -> f64 {
        self.0 / self.1.max(1) as f64
    }
}

fn ndcg(hits: &[String], right: &BTreeSet<String>) -> f64 {
    let gain = |place: usize| 1.0 / (place as f64 + 2.0).log2();
    let hits = hits.iter().take(10).enumerate();
    let gained: f64 = hits
        .filter(|(_, id)| right.contains(*id))
        .map(|(place, _)| gain(place))
        .sum();
    gained / (0..right.len().min(10)).map(gain).sum::<f64>()
}

fn recall(hits: &[String], right: &BTreeSet<String>) -> f64 {
    let found = hits.iter().take(5).filter(|id| right.contains(*id)).count();
    found as f64 / right.len() as f64
}

/// Of the folders with `tools.jsonl` and `queries.jsonl` in `TOOLSCOUT_SETS`: which companions there
/// are, the share of `prepares` among them, and what they do to nDCG@10 and recall@5.
#[test]
#[ignore = "needs judged sets"]
fn how_well_companions_are_found() {
    let sets = std::env::var("TOOLSCOUT_SETS").expect("TOOLSCOUT_SETS");
    let lists = std::env::var_os("TOOLSCOUT_LISTED").is_some();
    let figures = ["relevant", "with prepares"];
    let mut all: Vec<[Mean; 4]> = vec![Default::default(), Default::default()];
    let (mut said, mut asked, mut found) = (0, 0, 0);
    for set in std::env::split_paths(&sets) {
        let read = |name: &str| std::fs::read_to_string(set.join(name)).unwrap();
        let tools: Vec<Tool> = read("tools.jsonl")
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let judged: Vec<Judged> = read("queries.jsonl")
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let folder = tempfile::tempdir().unwrap();
        let table: Arc<dyn Embedder> = StaticTable::bundled().unwrap();
        let catalog = filled(
            &DataDir::new(folder.path()),
            "c",
            Options::new(vec![table]),
            &tools,
        );
        let searcher = catalog.searcher();
        let companions = |id: &str| searcher.companions(&ToolId::parse(id).unwrap());
        if lists {
            for tool in &tools {
                for companion in companions(tool.id.as_str()) {
                    println!(
                        "{}\t{}\t{}\t{}",
                        tool.id, companion.parameter, companion.id, companion.reason
                    );
                }
            }
        }
        for Judged {
            query,
            relevant,
            prepares,
        } in judged
        {
            let right: BTreeSet<String> = relevant.iter().cloned().collect();
            let with_prepares: BTreeSet<String> = right.iter().chain(&prepares).cloned().collect();
            for (number, with) in [(0, false), (1, true)] {
                let of = |k: usize| ids(&catalog, &Query::new(&query).k(k).companions(with));
                let (ten, five) = (of(10), of(5));
                all[0][2 * number].add(ndcg(&ten, &right));
                all[0][2 * number + 1].add(recall(&five, &right));
                if !prepares.is_empty() {
                    all[1][2 * number].add(ndcg(&ten, &with_prepares));
                    all[1][2 * number + 1].add(recall(&five, &with_prepares));
                }
            }
            if prepares.is_empty() {
                continue;
            }
            let suggested: BTreeSet<String> = relevant
                .iter()
                .flat_map(|id| companions(id).into_iter().take(2))
                .map(|companion| companion.id.to_string())
                .filter(|id| !right.contains(id))
                .collect();
            said += suggested.len();
            asked += prepares.len();
            found += prepares.iter().filter(|id| suggested.contains(*id)).count();
        }
    }
    println!("prepares: {found} of {asked} found, among {said} suggestions");
    for (name, [ndcg_without, recall_without, ndcg_with, recall_with]) in figures.iter().zip(&all) {
        println!(
            "{name}: nDCG@10 {:.4} to {:.4}, recall@5 {:.4} to {:.4}, {} requests",
            ndcg_without.of(),
            ndcg_with.of(),
            recall_without.of(),
            recall_with.of(),
            ndcg_with.1,
        );
    }
}
