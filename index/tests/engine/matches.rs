//! How well an answer serves a request, and the words of the request that nothing matched.

use std::sync::Arc;

use toolscout_index::embed::StaticTable;
use toolscout_index::{
    Catalog, DataDir, Embedder, Match, Options, OwnerWords, Query, Results, Tool,
};

fn catalog(dir: &tempfile::TempDir, embedders: Vec<Arc<dyn Embedder>>) -> Catalog {
    let tools = [
        ("mail", "send_mail", "Send an e-mail to one or more people"),
        (
            "mail",
            "search_mail",
            "Search the mailbox by words or sender",
        ),
        (
            "weather",
            "get_forecast",
            "Weather forecast of a city for the next days",
        ),
        (
            "bank",
            "transfer_money",
            "Transfer money from an account to another one",
        ),
        ("home", "switch_light", "Turn a light in a room on or off"),
        (
            "travel",
            "search_flights",
            "Find flights between two airports",
        ),
    ];
    let tools: Vec<Tool> = tools
        .iter()
        .map(|(server, name, description)| {
            let tool = Tool::new(server, name).unwrap();
            tool.with_description(*description)
        })
        .collect();
    let catalog = DataDir::new(dir.path())
        .open_or_create("c", Options::new(embedders))
        .unwrap();
    let mut writer = catalog.writer().unwrap();
    writer.upsert(&tools).unwrap();
    writer.commit().unwrap();
    drop(writer);
    catalog
}

fn with_table(dir: &tempfile::TempDir) -> Catalog {
    catalog(dir, vec![StaticTable::bundled().unwrap()])
}

fn ask(catalog: &Catalog, query: &str) -> Results {
    catalog.searcher().search(&Query::new(query)).unwrap()
}

#[test]
fn a_match_is_good_possible_or_none() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = with_table(&dir);
    for (query, expected) in [
        ("send an e-mail to several people", Match::Good),
        ("bank/transfer_money", Match::Good),
        ("knit me a woollen scarf", Match::None),
        ("asdf ghjkl qwer", Match::None),
        ("what about my room", Match::Possible),
    ] {
        let results = ask(&catalog, query);
        assert_eq!(
            results.matched, expected,
            "{query}: {:?}",
            results.confidence
        );
    }
    assert!(ask(&catalog, "asdf ghjkl qwer").hits.is_empty());
}

#[test]
fn several_queries_are_served_well_only_if_each_is() {
    let dir = tempfile::tempdir().unwrap();
    let searcher = with_table(&dir).searcher();
    let matched = |queries: [&str; 2]| searcher.search(&Query::any_of(queries)).unwrap().matched;
    let (mail, scarf) = (
        "send an e-mail to several people",
        "knit me a woollen scarf",
    );
    assert_eq!(matched([mail, "weather forecast for Porto"]), Match::Good);
    assert_eq!(matched([mail, scarf]), Match::Possible);
    assert_eq!(matched([scarf, "asdf ghjkl qwer"]), Match::None);
}

#[test]
fn a_tool_that_the_filter_leaves_out_makes_no_match_good() {
    let dir = tempfile::tempdir().unwrap();
    let searcher = with_table(&dir).searcher();
    let asked = |servers: &[&str], query: &str| {
        let filter = toolscout_index::Filter {
            servers: servers.iter().map(|server| (*server).to_owned()).collect(),
            ..Default::default()
        };
        searcher.search(&Query::new(query).filter(filter)).unwrap()
    };
    for query in ["mail/send_mail", "send an e-mail to several people"] {
        assert_eq!(asked(&["mail"], query).matched, Match::Good, "{query}");
        let elsewhere = asked(&["home", "bank"], query);
        assert_ne!(elsewhere.matched, Match::Good, "{query}");
        assert!(elsewhere.better_hidden > 0, "{query}");
        assert!(
            elsewhere.advice().contains("leave out its filter"),
            "{query}"
        );
    }
}

#[test]
fn words_alone_say_too_little_for_more_than_possible() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = catalog(&dir, Vec::new());
    let results = ask(&catalog, "send an e-mail to several people");
    assert_eq!(
        (results.matched, results.confidence),
        (Match::Possible, None)
    );
    assert_eq!(ask(&catalog, "zygote").matched, Match::None, "no hit");
}

#[test]
fn a_filter_that_lets_nothing_pass_is_none() {
    let dir = tempfile::tempdir().unwrap();
    let filter = toolscout_index::Filter {
        servers: ["elsewhere".to_owned()].into(),
        ..Default::default()
    };
    let query = Query::new("send an e-mail").filter(filter);
    let results = with_table(&dir).searcher().search(&query).unwrap();
    assert_eq!(results.matched, Match::None);
}

#[test]
fn words_that_no_hit_has_anything_to_do_with_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = with_table(&dir);
    let unmatched = |query: &str| ask(&catalog, query).unmatched;
    assert_eq!(
        unmatched("transfer the boarding pass to my printer tomorrow at 9"),
        ["boarding pass", "printer"]
    );
    // A similar word is enough, and so is a word with a mistake.
    assert_eq!(
        unmatched("transfer the fligths to my plane"),
        Vec::<String>::new()
    );
    // Where the hits are good, such a word is most often a value.
    assert_eq!(
        unmatched("print the boarding pass of my flights"),
        Vec::<String>::new()
    );
    assert!(unmatched("asdf ghjkl qwer").is_empty(), "there are no hits");
}

#[test]
fn the_words_of_the_owner_explain_a_request() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = with_table(&dir);
    assert_eq!(
        ask(&catalog, "zorbify the gleeb").unmatched,
        Vec::<String>::new(),
        "nonsense"
    );
    assert_eq!(
        ask(&catalog, "where is my boarding pass").unmatched,
        ["boarding pass"]
    );
    let words = serde_json::json!({ "synonyms": { "pass": { "from": "boarding pass", "words": ["flights"] } } });
    let words: OwnerWords = serde_json::from_value(words).unwrap();
    let mut writer = catalog.writer().unwrap();
    writer.set_owner_words(&words).unwrap();
    writer.commit().unwrap();
    drop(writer);
    assert!(
        ask(&catalog, "where is my boarding pass")
            .unmatched
            .is_empty()
    );
}

#[test]
fn better_tools_that_the_filter_leaves_out_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let searcher = with_table(&dir).searcher();
    let hidden = |servers: &[&str], query: &str| {
        let filter = toolscout_index::Filter {
            servers: servers.iter().map(|server| (*server).to_owned()).collect(),
            ..Default::default()
        };
        let results = searcher.search(&Query::new(query).filter(filter));
        results.unwrap().better_hidden
    };
    assert_eq!(hidden(&["home", "bank"], "weather forecast for Porto"), 1);
    assert_eq!(
        hidden(&["weather", "bank"], "weather forecast for Porto"),
        0
    );
    assert_eq!(hidden(&[], "weather forecast for Porto"), 0);
}
