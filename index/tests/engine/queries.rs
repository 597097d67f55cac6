//! Queries: names in every spelling, and queries that are empty, huge or malformed.
//!
//! `TOOLSCOUT_SETS=DIR` also tries the names of real catalogs, one folder with a `tools.jsonl`
//! each.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::world::{Chance, filled, fresh, hashing, plain};
use toolscout_index::formats::{self, ReadOptions};
use toolscout_index::{
    Catalog, DataDir, Error, Mode, NoMatchReason, Options, Query, SearchOptions, Searcher,
    Settings, Tool, ToolId,
};

const SAMPLED: usize = 200;

/// The words of an identifier, by separators and capitals. Independent of the engine's analyzer,
/// which is under test.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut previous = ' ';
    for c in name.chars() {
        if c.is_uppercase() && previous.is_lowercase() || !c.is_alphanumeric() {
            words.push(String::new());
        }
        if c.is_alphanumeric() {
            words.last_mut().unwrap().extend(c.to_lowercase());
        }
        previous = c;
    }
    words.retain(|word| !word.is_empty());
    words
}

fn camel(words: &[String]) -> String {
    let humped = |word: &String| {
        let mut letters = word.chars();
        letters.next().map_or(String::new(), |first| {
            first.to_uppercase().collect::<String>() + letters.as_str()
        })
    };
    words[0].clone() + &words[1..].iter().map(humped).collect::<String>()
}

/// The spellings of a tool's name that people and models use.
fn forms(tool: &Tool) -> Vec<String> {
    let (server, name) = (tool.id.server(), tool.id.name());
    let words = words(name);
    let mut forms = vec![
        name.to_owned(),
        words.join("_"),
        camel(&words),
        words.join(" "),
        tool.id.to_string(),
    ];
    if !server.is_empty() {
        forms.push(format!("mcp__{server}__{name}"));
    }
    forms
}

/// A name without case and separators.
fn key(name: &str) -> String {
    name.chars()
        .filter(|c| c.is_alphanumeric())
        .flat_map(char::to_lowercase)
        .collect()
}

/// The tools whose names no other tool has, neither as its name nor as its server and name.
fn uniquely_named(tools: &[Tool]) -> Vec<&Tool> {
    let mut uses: HashMap<String, usize> = HashMap::new();
    for tool in tools {
        *uses.entry(key(tool.id.name())).or_default() += 1;
        if !tool.id.server().is_empty() {
            *uses.entry(key(tool.id.as_str())).or_default() += 1;
        }
    }
    let unique = |tool: &&Tool| !key(tool.id.name()).is_empty() && uses[&key(tool.id.name())] == 1;
    tools.iter().filter(unique).collect()
}

/// The spellings that did not find their tool first, with what came first.
fn misses(searcher: &Searcher, tools: &[&Tool], mode: Mode) -> Vec<String> {
    let mut misses = Vec::new();
    for tool in tools {
        for form in forms(tool) {
            let hits = searcher
                .search(&Query::new(&form).mode(mode).k(1))
                .unwrap()
                .hits;
            if hits.first().is_none_or(|hit| hit.id != tool.id) {
                let first = hits
                    .first()
                    .map(|hit| hit.id.to_string())
                    .unwrap_or_default();
                misses.push(format!("{form:?} is {} and gave {first:?}", tool.id));
            }
        }
    }
    misses
}

fn read(path: &Path, default_server: &str) -> Vec<Tool> {
    let options = ReadOptions {
        source_name: path.display().to_string(),
        default_server: Some(default_server.to_owned()),
        ..ReadOptions::default()
    };
    let parsed = formats::parse(&std::fs::read(path).unwrap(), &options).unwrap();
    assert!(
        parsed.skipped.len() <= parsed.tools.len() / 100,
        "{}: {} skipped",
        path.display(),
        parsed.skipped.len()
    );
    parsed.tools
}

fn fixtures() -> Vec<Tool> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/tools");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    files.sort();
    files
        .iter()
        .flat_map(|file| read(file, file.file_stem().unwrap().to_str().unwrap()))
        .collect()
}

#[test]
fn a_unique_name_in_any_form_ranks_its_tool_first() {
    let dir = tempfile::tempdir().unwrap();
    let tools = fixtures();
    let catalog = fresh(&DataDir::new(dir.path()), "fixtures", &tools);
    let mut unique = uniquely_named(&tools);
    assert!(unique.len() >= SAMPLED, "{} unique names", unique.len());
    let chance = &mut Chance::new(1);
    while unique.len() > 60 {
        unique.swap_remove(chance.below(unique.len()));
    }
    for mode in [Mode::Lexical, Mode::Hybrid] {
        let misses = misses(&catalog.searcher(), &unique, mode);
        assert!(misses.is_empty(), "{mode}: {misses:#?}");
    }
}

#[test]
fn a_unique_name_in_any_form_ranks_its_tool_first_in_real_sets() {
    let Some(sets) = std::env::var_os("TOOLSCOUT_SETS") else {
        println!("skipped: TOOLSCOUT_SETS is not set");
        return;
    };
    let mut folders: Vec<PathBuf> = std::fs::read_dir(sets)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    folders.retain(|folder| folder.join("tools.jsonl").exists());
    folders.sort();
    let mut missed = 0;
    for folder in folders {
        let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
        let tools = read(&folder.join("tools.jsonl"), "");
        let dir = tempfile::tempdir().unwrap();
        let catalog = lexical(&dir, &tools);
        let mut unique = uniquely_named(&tools);
        let unique_names = unique.len();
        let chance = &mut Chance::new(1);
        while unique.len() > SAMPLED {
            unique.swap_remove(chance.below(unique.len()));
        }
        let misses = misses(&catalog.searcher(), &unique, Mode::Lexical);
        let asked: usize = unique.iter().map(|tool| forms(tool).len()).sum();
        println!(
            "{name}: {} tools, {unique_names} unique, {asked} asked, {} missed",
            tools.len(),
            misses.len()
        );
        for miss in &misses {
            println!("    {miss}");
        }
        missed += misses.len();
    }
    assert_eq!(missed, 0);
}

fn lexical(dir: &tempfile::TempDir, tools: &[Tool]) -> Catalog {
    filled(&DataDir::new(dir.path()), "c", Options::default(), tools)
}

/// Of names that share a key, the one that was written comes first.
#[test]
fn names_that_differ_in_case_or_separators_only_are_matched_as_written() {
    let dir = tempfile::tempdir().unwrap();
    let names = [
        "findSymbol",
        "find_symbol",
        "find-symbol",
        "c++",
        "c#",
        "查询_天气",
        "naïve.name",
        "a/b c",
    ];
    let tools: Vec<Tool> = names
        .iter()
        .map(|name| plain("io.example/srv", name, "Does a thing."))
        .collect();
    let searcher = fresh(&DataDir::new(dir.path()), "c", &tools).searcher();
    for tool in &tools {
        for asked in [
            tool.id.name().to_owned(),
            tool.id.to_string(),
            format!("  {} ", tool.id.name()),
        ] {
            for mode in [Mode::Lexical, Mode::Dense, Mode::Hybrid] {
                let hits = searcher
                    .search(&Query::new(&asked).mode(mode))
                    .unwrap()
                    .hits;
                assert_eq!(
                    hits.first().map(|hit| &hit.id),
                    Some(&tool.id),
                    "{asked:?}, {mode}"
                );
            }
        }
    }
}

/// Huge, malformed and meaningless queries.
fn odd_queries() -> Vec<(&'static str, String)> {
    let emoji = "👩‍👩‍👧‍👦🏳️‍🌈é️\u{200d}".repeat(20);
    vec![
        (
            "100 kB of words",
            "create an issue about the calendar ".repeat(3000),
        ),
        ("100 kB without a space", "x".repeat(100_000)),
        ("100 kB of one CJK run", "天气预报".repeat(9000)),
        (
            "100 kB of different words",
            (0..14_000).map(|n| format!("wd{n} ")).collect(),
        ),
        ("100 kB of humps", "aB".repeat(50_000)),
        (
            "100 kB of combining accents",
            format!("e{}", "\u{301}".repeat(50_000)),
        ),
        ("stop-words only", "can you please do it for me".into()),
        (
            "punctuation only",
            "?!... --- ()[]{}\"'` *** ~~~ \\/".into(),
        ),
        (
            "query syntax",
            "name:create AND (id:* OR -x^2~) \"unclosed".into(),
        ),
        ("emoji", emoji),
        (
            "mixed scripts",
            "создать issue 查询 カレンダー יצירה تقويم ปฏิทิน".into(),
        ),
        ("two hundred clauses", "send the first report; ".repeat(200)),
        (
            "two hundred clauses in words",
            "list the issues and then ".repeat(200),
        ),
        ("NUL", "create\0issue\0".into()),
        (
            "control characters",
            "create\u{1b}[31m issue\r\n\t\u{7f}\u{85}".into(),
        ),
        (
            "direction marks",
            "\u{202e}eussi etaerc\u{202c} \u{feff}create\u{2028}issue".into(),
        ),
        (
            "private and unassigned",
            "\u{e000}\u{f8ff}\u{10ffff}\u{fffe} issue".into(),
        ),
        ("numbers", "1 2 3 1e308 -0 0x7f 99999999999999999999".into()),
        ("a path", "../../../etc/passwd".into()),
        ("one letter", "a".into()),
    ]
}

#[test]
fn odd_queries_are_answered_within_bounds() {
    const PATIENCE: Duration = Duration::from_secs(5);
    let dir = tempfile::tempdir().unwrap();
    let tools = fixtures();
    let searcher = fresh(&DataDir::new(dir.path()), "c", &tools).searcher();
    for (what, text) in odd_queries() {
        for mode in [Mode::Lexical, Mode::Dense, Mode::Hybrid] {
            let clock = Instant::now();
            let results = searcher
                .search(&Query::new(&text).mode(mode).k(50).explain())
                .unwrap();
            assert!(
                clock.elapsed() < PATIENCE,
                "{what}, {mode}: {:?}",
                clock.elapsed()
            );
            assert!(results.hits.len() <= 50, "{what}, {mode}");
            assert!(
                results.hits.iter().all(|hit| hit.score.is_finite()),
                "{what}, {mode}"
            );
            assert_eq!(
                results.hits.is_empty(),
                results.no_match.is_some(),
                "{what}, {mode}"
            );
            // JSON has no infinities.
            serde_json::to_string(&results).unwrap();
        }
    }
}

#[test]
fn punctuation_and_invisible_characters_do_not_change_the_hits() {
    let dir = tempfile::tempdir().unwrap();
    let searcher = fresh(&DataDir::new(dir.path()), "c", &fixtures()).searcher();
    let found = |text: &str| crate::world::found(&searcher, text, Mode::Lexical);
    let plain = found("weather forecast");
    assert!(!plain.is_empty());
    for dressed in [
        "weather\0forecast",
        "\u{feff}weather\u{200b} forecast",
        "weather:forecast",
        "🌦 weather (forecast)?!",
    ] {
        assert_eq!(found(dressed), plain, "{dressed:?}");
    }
    assert_eq!(
        found(&format!("weather forecast{}", " ".repeat(100_000))),
        plain
    );
}

#[test]
fn stop_words_alone_match_nothing_by_words() {
    let dir = tempfile::tempdir().unwrap();
    let searcher = fresh(&DataDir::new(dir.path()), "c", &fixtures()).searcher();
    for text in ["can you please do it for me", "?!... --- ()", "👩‍👩‍👧‍👦", "\0\0"]
    {
        let results = searcher
            .search(&Query::new(text).mode(Mode::Lexical))
            .unwrap();
        assert!(
            results.hits.is_empty(),
            "{text:?} found {:?}",
            results.hits[0].id
        );
        assert!(!results.no_match.unwrap().reason.to_string().is_empty());
    }
}

#[test]
fn queries_out_of_bounds_are_errors_that_name_the_value() {
    let dir = tempfile::tempdir().unwrap();
    let searcher = fresh(&DataDir::new(dir.path()), "c", &fixtures()[..3]).searcher();
    let many = Query::any_of(vec!["text"; 1000]);
    for (query, expected) in [
        (Query::new(""), "empty"),
        (Query::new(" \t\n\u{3000}"), "empty"),
        (Query::any_of(Vec::<String>::new()), "empty"),
        (many, "1000"),
        (Query::new("x").k(0), "k is 0"),
        (Query::new("x").k(51), "k is 51"),
        (Query::new("x").k(usize::MAX), &usize::MAX.to_string()),
        (Query::new("x").dense_weight(1.5), "1.5"),
        (Query::new("x").dense_weight(f32::NAN), "NaN"),
        (Query::new("x").min_score(f32::NAN), "min_score"),
    ] {
        let error = searcher
            .search(&query)
            .err()
            .unwrap_or_else(|| panic!("{query:?} was answered"));
        assert!(matches!(error, Error::InvalidQuery { .. }), "{error:?}");
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn nearest_names_are_listed_once() {
    let dir = tempfile::tempdir().unwrap();
    let tools = [
        plain("s", "alpha", "sends mail to a person and pays an invoice"),
        plain("s", "omega", "mail of a person"),
    ];
    let searcher = fresh(&DataDir::new(dir.path()), "c", &tools).searcher();
    // Alpha is the best for the first text and the second for the other; omega is between them.
    let query = Query::any_of(["invoice", "mail person"])
        .mode(Mode::Lexical)
        .min_score(9.0);
    let no_match = searcher.search(&query).unwrap().no_match.unwrap();
    assert_eq!(no_match.reason, NoMatchReason::Score { min_score: 9.0 });
    let nearest: Vec<&str> = no_match.nearest.iter().map(ToolId::as_str).collect();
    assert_eq!(nearest, ["s/alpha", "s/omega"]);
}

#[test]
fn the_tools_after_the_hits_are_the_next_hits_of_a_longer_answer() {
    let dir = tempfile::tempdir().unwrap();
    let searcher = fresh(&DataDir::new(dir.path()), "c", &fixtures()).searcher();
    for query in ["create an issue", "list files and then mail them to Ann"] {
        let query = |k| Query::new(query).k(k).companions(false);
        let ids = |results: &toolscout_index::Results| -> Vec<ToolId> {
            results.hits.iter().map(|hit| hit.id.clone()).collect()
        };
        let found = searcher.search(&query(5).near(4)).unwrap();
        assert_eq!(ids(&found), ids(&searcher.search(&query(5)).unwrap()));
        assert_eq!(found.near.len(), 4);
        let longer = searcher.search(&query(20)).unwrap();
        for near in &found.near {
            assert!(ids(&longer).contains(&near.id), "{}", near.id);
            assert!(!ids(&found).contains(&near.id), "{}", near.id);
            assert_eq!(near.tool.id, near.id);
        }
    }
    let none = Query::new("create an issue").min_score(2.0).near(4);
    assert!(searcher.search(&none).unwrap().near.is_empty());
    let silent = searcher.search(&Query::new("create an issue")).unwrap();
    assert!(silent.near.is_empty());
}

#[test]
fn an_empty_catalog_is_reported_as_such() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = DataDir::new(dir.path())
        .open_or_create("c", hashing())
        .unwrap();
    for mode in [Mode::Lexical, Mode::Dense, Mode::Hybrid, Mode::Auto] {
        let results = catalog
            .searcher()
            .search(&Query::new("send mail").mode(mode))
            .unwrap();
        assert!(results.hits.is_empty());
        let reason = results.no_match.unwrap().reason;
        assert_eq!(reason, NoMatchReason::EmptyCatalog);
    }
}

#[test]
fn blank_texts_beside_a_real_one_do_not_change_its_first_hit() {
    let dir = tempfile::tempdir().unwrap();
    let searcher = fresh(&DataDir::new(dir.path()), "c", &fixtures()).searcher();
    for mode in [Mode::Lexical, Mode::Hybrid] {
        let results = searcher
            .search(&Query::any_of(["", "weather forecast", "?"]).mode(mode))
            .unwrap();
        let alone = searcher
            .search(&Query::new("weather forecast").mode(mode))
            .unwrap();
        assert_eq!(results.hits[0].id, alone.hits[0].id, "{mode}");
        assert!(results.hits[0].matched_queries.contains(&1), "{mode}");
    }
}

#[test]
fn defaults_of_the_catalog_apply_where_a_query_is_silent() {
    let dir = tempfile::tempdir().unwrap();
    let data = DataDir::new(dir.path());
    let catalog = fresh(
        &data,
        "c",
        &["send", "read", "sort"].map(|name| plain("mail", name, "")),
    );
    let mut writer = catalog.writer().unwrap();
    let search = SearchOptions {
        k: Some(1),
        min_score: Some(0.0),
        ..SearchOptions::default()
    };
    writer
        .set_settings(&Settings {
            search,
            ..Settings::default()
        })
        .unwrap();
    writer.commit().unwrap();
    drop(writer);
    let hits = |query: Query| catalog.searcher().search(&query).unwrap().hits.len();
    assert_eq!(hits(Query::new("mail")), 1);
    assert_eq!(hits(Query::new("mail").k(3)), 3);
    assert_eq!(hits(Query::new("mail").min_score(9.0)), 0);
    let reopened = data.open("c", Options::default()).unwrap();
    assert_eq!(reopened.searcher().settings().search, search);
    let bad = SearchOptions {
        min_confidence: Some(2.0),
        ..search
    };
    let mut writer = reopened.writer().unwrap();
    let refused = writer.set_settings(&Settings {
        search: bad,
        ..Settings::default()
    });
    assert_eq!(
        refused.unwrap_err().to_string(),
        "invalid settings: min_confidence is 2, it must be from 0 to 1"
    );
}

#[test]
fn tags_are_counted_for_each_snapshot() {
    let dir = tempfile::tempdir().unwrap();
    let tagged = |name: &str, tags: &[&str]| {
        let mut tool = Tool::new("s", name).unwrap();
        tool.tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
        tool
    };
    let catalog = lexical(
        &dir,
        &[tagged("a", &["mail", "out"]), tagged("b", &["mail"])],
    );
    let before = catalog.searcher();
    let counted = |expected: &[(&str, usize)]| -> Vec<(String, usize)> {
        let owned = expected
            .iter()
            .map(|(tag, number)| ((*tag).to_owned(), *number));
        owned.collect()
    };
    assert_eq!(before.tags(), counted(&[("mail", 2), ("out", 1)]));
    let mut writer = catalog.writer().unwrap();
    writer
        .upsert(&[tagged("b", &["in", "out"]), tagged("c", &["天气"])])
        .unwrap();
    writer.commit().unwrap();
    let after = counted(&[("out", 2), ("in", 1), ("mail", 1), ("天气", 1)]);
    assert_eq!(catalog.searcher().tags(), after);
    assert_eq!(before.tags(), counted(&[("mail", 2), ("out", 1)]));
    writer.remove(&[ToolId::new("s", "a").unwrap()]).unwrap();
    writer.commit().unwrap();
    let after = counted(&[("in", 1), ("out", 1), ("天气", 1)]);
    assert_eq!(catalog.searcher().tags(), after);
}
