//! Items of several kinds in one index: what a search finds of them, and that tools are found as ever.

use toolscout_index::embed::StaticTable;
use toolscout_index::{
    Catalog, DataDir, Filter, Kind, NoMatchReason, Options, Query, Results, Tool, ToolId,
};

fn item(kind: Kind, server: &str, name: &str, description: &str) -> Tool {
    let item = Tool::new(server, &kind.item_name(name)).unwrap();
    item.of_kind(kind).with_description(description)
}

fn tools() -> Vec<Tool> {
    let tool = |server, name, description| item(Kind::Tool, server, name, description);
    vec![
        tool("mail", "send_mail", "Send an e-mail to one or more people"),
        tool("mail", "search_mail", "Search the mailbox by words"),
        tool("docs", "write_report", "Write a report as a document"),
        tool("docs", "list_reports", "List the reports of a team"),
    ]
}

fn others() -> Vec<Tool> {
    vec![
        item(
            Kind::Prompt,
            "docs",
            "weekly_report",
            "Write the weekly report of a team",
        ),
        item(
            Kind::Resource,
            "docs",
            "file:///reports/2026.md",
            "The weekly reports of the year",
        ),
        item(
            Kind::Skill,
            "",
            "weekly-report",
            "How to write the weekly report, with its sources and tone",
        ),
        item(
            Kind::Agent,
            "",
            "Reporter",
            "Writes weekly reports for other agents",
        ),
    ]
}

fn catalog(dir: &tempfile::TempDir, items: &[Tool]) -> Catalog {
    let catalog = DataDir::new(dir.path())
        .open_or_create("c", Options::new(vec![StaticTable::bundled().unwrap()]))
        .unwrap();
    let mut writer = catalog.writer().unwrap();
    writer.upsert(items).unwrap();
    writer.commit().unwrap();
    catalog
}

fn mixed(dir: &tempfile::TempDir) -> Catalog {
    catalog(dir, &[tools(), others()].concat())
}

fn ask(catalog: &Catalog, query: &str, kinds: &[Kind]) -> Results {
    let filter: Filter = kinds.iter().copied().collect();
    let query = Query::new(query).k(10).filter(filter);
    catalog.searcher().search(&query).unwrap()
}

fn ids(results: &Results) -> Vec<&str> {
    results.hits.iter().map(|hit| hit.id.as_str()).collect()
}

#[test]
fn a_search_finds_tools_alone_unless_it_names_other_kinds() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = mixed(&dir);
    let request = "write the weekly report";
    let by_default = ask(&catalog, request, &[]);
    assert!(by_default.hits.iter().all(|hit| hit.kind == Kind::Tool));
    assert_eq!(ids(&by_default)[0], "docs/write_report");
    assert_eq!(by_default.better_hidden, 0, "nobody asked for other kinds");
    assert_eq!(
        ids(&ask(&catalog, request, &[Kind::Tool])),
        ids(&by_default)
    );
    for (kind, id) in [
        (Kind::Prompt, "docs/prompt:weekly_report"),
        (Kind::Resource, "docs/resource:file:///reports/2026.md"),
        (Kind::Skill, "skill:weekly-report"),
        (Kind::Agent, "agent:Reporter"),
    ] {
        let found = ask(&catalog, request, &[kind]);
        assert_eq!(ids(&found), [id], "{kind}");
        assert_eq!(found.hits[0].kind, kind);
    }
    // One ranking over all of them.
    let all = ask(&catalog, request, &Kind::ALL);
    let kinds: std::collections::BTreeSet<Kind> = all.hits.iter().map(|hit| hit.kind).collect();
    assert!(kinds.len() >= 4, "{:?}", ids(&all));
    assert!(all.hits.is_sorted_by(|one, next| one.score >= next.score));
    let skill_and_prompt = ask(&catalog, request, &[Kind::Skill, Kind::Prompt]);
    let of_all = ids(&all).into_iter();
    let of_both = of_all.filter(|id| id.contains("skill:") || id.contains("prompt:"));
    assert_eq!(ids(&skill_and_prompt), of_both.collect::<Vec<_>>());
}

#[test]
fn the_kind_is_no_word_of_a_name_and_other_filters_hold_too() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = mixed(&dir);
    let mut filter: Filter = Kind::ALL.into_iter().collect();
    filter.servers.insert("docs".into());
    let query = Query::new("weekly report").k(10).filter(filter.clone());
    let found = catalog.searcher().search(&query).unwrap();
    assert!(found.hits.iter().all(|hit| hit.id.server() == "docs"));
    let by_id = ask(&catalog, "docs/prompt:weekly_report", &Kind::ALL);
    assert_eq!(by_id.hits[0].kind, Kind::Prompt);
    let explained = ask(&catalog, "prompt", &[Kind::Prompt]);
    assert!(explained.hits.is_empty(), "{:?}", ids(&explained));
    let searcher = catalog.searcher();
    let passing: Vec<&ToolId> = searcher.ids_passing(&filter).collect();
    assert_eq!(passing.len(), 4);
    assert_eq!(searcher.count_by_kind()[&Kind::Tool], 4);
    assert_eq!((searcher.tools().count(), searcher.items().count()), (4, 8));
}

#[test]
fn a_catalog_without_the_kind_says_what_it_has() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = catalog(&dir, &others());
    let answer = ask(&catalog, "write the weekly report", &[]);
    let no_match = answer.no_match.unwrap();
    let NoMatchReason::Kinds { present } = &no_match.reason else {
        panic!("{no_match:?}")
    };
    assert_eq!(present.len(), 4);
    let reason = no_match.reason.to_string();
    assert!(
        reason.ends_with("ask for prompt or resource or skill or agent"),
        "{reason}"
    );
}

#[test]
fn answers_about_tools_alone_are_those_of_a_catalog_that_has_always_had_tools_alone() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let (plain, once_mixed) = (catalog(&dirs[0], &tools()), mixed(&dirs[1]));
    let mut writer = once_mixed.writer().unwrap();
    let gone: Vec<ToolId> = others().into_iter().map(|item| item.id).collect();
    writer.remove(&gone).unwrap();
    writer.commit().unwrap();
    for request in ["write the weekly report", "send_mail", "reports of a team"] {
        let scores = |catalog: &Catalog| {
            let found = ask(catalog, request, &[]);
            let hits = found.hits.iter();
            let scores: Vec<_> = hits.map(|hit| (hit.id.clone(), hit.score)).collect();
            (scores, found.confidence)
        };
        assert_eq!(scores(&plain), scores(&once_mixed), "{request}");
    }
}

#[test]
fn tools_are_stored_and_embedded_as_before_there_were_kinds() {
    let mut tool = item(Kind::Tool, "mail", "send_mail", "Send an e-mail");
    tool.tags = vec!["office".into()];
    let stored = r#"{"server":"mail","name":"send_mail","description":"Send an e-mail","inputSchema":{"type":"object","properties":{}},"tags":["office"]}"#;
    assert_eq!(serde_json::to_string(&tool).unwrap(), stored);
    let read: Tool = serde_json::from_str(stored).unwrap();
    assert_eq!((read.kind, &read), (Kind::Tool, &tool));
    let views = toolscout_index::views(&tool);
    assert_eq!(views[0], "mail send mail: Send an e-mail");
    // A tool may be called as other kinds are, and stays what it is.
    let odd = item(Kind::Tool, "mail", "prompt:review", "Reviews.");
    assert_eq!(toolscout_index::views(&odd)[1], "mail prompt:review");
    let prompt = item(Kind::Prompt, "mail", "review", "Reviews.");
    assert_eq!(toolscout_index::views(&prompt)[1], "mail review");
    let bare = Tool::new("mail", "review").unwrap().of_kind(Kind::Prompt);
    let error = bare.validate().unwrap_err().to_string();
    assert!(error.contains("must begin with `prompt:`"), "{error}");
}

#[test]
fn a_catalog_opened_anew_has_the_same_kinds() {
    let dir = tempfile::tempdir().unwrap();
    drop(mixed(&dir));
    let data = DataDir::new(dir.path());
    let catalog = data
        .open("c", Options::new(vec![StaticTable::bundled().unwrap()]))
        .unwrap();
    let found = ask(&catalog, "weekly report", &[Kind::Skill]);
    assert_eq!(ids(&found), ["skill:weekly-report"]);
    let id = ToolId::parse("agent:Reporter").unwrap();
    assert_eq!(catalog.searcher().kind(&id), Some(Kind::Agent));
}
