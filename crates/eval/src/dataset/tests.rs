use super::*;
use tempfile::TempDir;

const TOOLS: &str = r#"{"name":"send_mail","description":"Sends mail","inputSchema":{"type":"object"},"server":"post","id":"post/send_mail"}
{"name":"read_mail","description":"Reads mail","inputSchema":{"type":"object"},"server":"post"}
{"name":"weather","description":"Tells the weather","inputSchema":{"type":"object"},"server":null}
"#;

fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    folder
}

fn load(files: &[(&str, &str)]) -> Result<EvalSet> {
    EvalSet::load(folder(files).path())
}

fn message(files: &[(&str, &str)]) -> String {
    load(files).unwrap_err().to_string()
}

fn ids(set: &EvalSet, query: usize) -> Vec<&str> {
    set.queries[query]
        .relevant
        .iter()
        .map(|&tool| set.tool(tool).id.as_str())
        .collect()
}

#[test]
fn a_set_of_two_files_is_read_and_unknown_fields_are_ignored() {
    let queries = r#"
{"id":"q1","query":"mail it","relevant":["post/send_mail"],"lang":"en"}
{"id":7,"query":"mails, and the weather","relevant":["weather","post/read_mail","weather"]}
"#;
    let set = load(&[("tools.jsonl", TOOLS), ("queries.jsonl", queries)]).unwrap();
    assert_eq!((set.tools.len(), set.queries.len()), (3, 2));
    assert_eq!(
        (set.queries[0].id.as_str(), set.queries[1].id.as_str()),
        ("q1", "7")
    );
    assert_eq!(ids(&set, 1), ["post/read_mail", "weather"]);
}

#[test]
fn files_of_a_folder_name_the_server_of_their_tools() {
    let post =
        r#"{"tools":[{"name":"send","description":"Sends","inputSchema":{"type":"object"}}]}"#;
    let sky = r#"[{"name":"weather","description":"Tells","input_schema":{"type":"object"}}]"#;
    let queries = r#"{"id":"a","query":"send","relevant":["post/send"]}
{"id":"b","query":"rain","relevant":["sky/weather"]}"#;
    let set = load(&[
        ("tools/post.json", post),
        ("tools/sky.json", sky),
        ("queries.jsonl", queries),
    ])
    .unwrap();
    assert_eq!(
        set.tools
            .iter()
            .map(|tool| tool.id.as_str())
            .collect::<Vec<_>>(),
        ["post/send", "sky/weather"]
    );
}

#[test]
fn a_beir_folder_is_read_with_its_test_judgements() {
    let set = load(&[
        (
            "corpus.jsonl",
            "{\"_id\":\"d1\",\"title\":\"Mail\",\"text\":\"Sends mail\"}\n{\"_id\":\"d2\",\"text\":\"Weather\"}",
        ),
        ("queries.jsonl", "{\"_id\":\"q1\",\"text\":\"mail\"}\n{\"_id\":\"q2\",\"text\":\"only for training\"}"),
        ("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq1\td1\t2\nq1\td2\t0\n"),
        ("qrels/train.tsv", "query-id\tcorpus-id\tscore\nq2\td2\t1\n"),
    ])
    .unwrap();
    assert_eq!((set.queries.len(), ids(&set, 0)), (1, vec!["d1"]));
    assert_eq!(
        (
            set.tools[0].title.as_deref(),
            set.tools[0].description.as_str()
        ),
        (Some("Mail"), "Sends mail")
    );
}

#[test]
fn trec_judgements_are_read_with_escaped_ids() {
    let tools = r#"{"name":"two words","description":"x","inputSchema":{"type":"object"},"server":"Trends Hub"}"#;
    let set = load(&[
        ("tools.jsonl", tools),
        ("queries.jsonl", r#"{"id":"q 1","query":"x"}"#),
        ("qrels.txt", "q%201 0 Trends%20Hub/two%20words 1\n"),
    ])
    .unwrap();
    assert_eq!(ids(&set, 0), ["Trends Hub/two words"]);
}

#[test]
fn a_server_name_may_contain_a_slash() {
    let tools =
        r#"{"name":"lookup","description":"x","inputSchema":{"type":"object"},"server":"BIN/IIN"}"#;
    let queries = r#"{"id":"q","query":"x","relevant":["BIN/IIN/lookup"]}"#;
    let set = load(&[("tools.jsonl", tools), ("queries.jsonl", queries)]).unwrap();
    assert_eq!(ids(&set, 0), ["BIN/IIN/lookup"]);
}

#[test]
fn an_unknown_relevant_id_is_named_with_its_query_and_a_suggestion() {
    let queries = r#"{"id":"q9","query":"x","relevant":["mailer/send_mail"]}"#;
    let message = message(&[("tools.jsonl", TOOLS), ("queries.jsonl", queries)]);
    for expected in [
        "\"q9\"",
        "\"mailer/send_mail\"",
        "queries.jsonl",
        "did you mean \"post/send_mail\"?",
    ] {
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn judgements_may_use_the_ids_of_the_file() {
    // The `id` of each tool is the name of the other.
    let tools = r#"{"id":"b","name":"a","description":"x","inputSchema":{"type":"object"}}
{"id":"a","name":"b","description":"y","inputSchema":{"type":"object"}}
{"id":7,"name":"c","description":"z","inputSchema":{"type":"object"},"server":"s"}
"#;
    let judged = |relevant: &str| {
        let queries = format!(r#"{{"id":"q","query":"x","relevant":{relevant}}}"#);
        load(&[("tools.jsonl", tools), ("queries.jsonl", &queries)])
    };
    for (relevant, expected, ids_used) in [
        (r#"["a"]"#, vec!["b"], RelevantIds::Field),
        ("[7]", vec!["s/c"], RelevantIds::Field),
        (r#"["a","s/c"]"#, vec!["a", "s/c"], RelevantIds::ServerName),
        (r#"[7,"s/c"]"#, vec!["s/c"], RelevantIds::Mixed),
    ] {
        let set = judged(relevant).unwrap();
        assert_eq!(ids(&set, 0), expected, "{relevant}");
        assert_eq!(set.relevant_ids, Some(ids_used), "{relevant}");
    }
    assert!(judged(r#"["d"]"#).is_err());
    let array = r#"[{"id":"x1","name":"a","inputSchema":{"type":"object"}}]"#;
    let queries = r#"{"id":"q","query":"x","relevant":["x1"]}"#;
    let set = load(&[("tools.json", array), ("queries.jsonl", queries)]).unwrap();
    assert_eq!(ids(&set, 0), ["a"]);
    let set = load(&[
        ("tools.jsonl", TOOLS),
        ("queries.jsonl", &queries.replace("x1", "weather")),
    ]);
    assert_eq!(set.unwrap().relevant_ids, None);
}

#[test]
fn an_id_of_two_tools_is_an_error_where_it_is_judged() {
    let tools = r#"[{"id":"x","name":"a","inputSchema":{"type":"object"}},{"id":"x","name":"b","inputSchema":{"type":"object"}}]"#;
    let judged = |id: &str| {
        let queries = format!(r#"{{"id":"q","query":"x","relevant":["{id}"]}}"#);
        load(&[("tools.json", tools), ("queries.jsonl", &queries)])
    };
    assert_eq!(ids(&judged("a").unwrap(), 0), ["a"]);
    assert!(
        judged("x")
            .unwrap_err()
            .to_string()
            .contains("occurs twice")
    );
}

#[test]
fn anything_that_would_make_figures_wrong_is_a_named_error() {
    let judged = r#"{"id":"q1","query":"mail","relevant":["weather"]}"#;
    let twice = format!("{judged}\n\n{judged}");
    for (queries, expected) in [
        (
            r#"{"id":"q1","query":"mail","relevant":[]}"#,
            "query \"q1\"",
        ),
        (
            twice.as_str(),
            "queries.jsonl:3: query id \"q1\" was already used in line 1",
        ),
        ("", "has no queries"),
        ("{\"id\":\"q1\",\"query\":\"mail\"", "queries.jsonl:1: "),
        (r#"{"query":"mail"}"#, "no `id`"),
        (r#"{"id":"q1","relevant":["weather"]}"#, "no `query`"),
        (
            r#"{"id":"q1","query":"  ","relevant":["weather"]}"#,
            "is empty",
        ),
        (
            r#"{"id":"q1","query":"mail","relevant":"weather"}"#,
            "`relevant` must be a list of tool ids",
        ),
        (r#"{"id":"q1","query":"mail"}"#, "no judgements"),
    ] {
        let message = message(&[("tools.jsonl", TOOLS), ("queries.jsonl", queries)]);
        assert!(message.contains(expected), "{queries}: {message}");
    }
}

#[test]
fn missing_files_empty_catalogs_and_repeated_tools_are_named() {
    let judged = r#"{"id":"q1","query":"mail","relevant":["weather"]}"#;
    assert!(message(&[("queries.jsonl", judged)]).contains("no tools.jsonl"));
    assert!(message(&[("tools.jsonl", TOOLS)]).contains("no queries.jsonl"));
    let twice = format!("{TOOLS}{TOOLS}");
    let repeated = message(&[("tools.jsonl", &twice), ("queries.jsonl", judged)]);
    assert!(repeated.contains("post/send_mail"), "{repeated}");
    assert!(
        EvalSet::load(Path::new("/nowhere/at/all"))
            .unwrap_err()
            .to_string()
            .contains("/nowhere/at/all")
    );
}

#[test]
fn groups_list_alternatives() {
    let queries = r#"{"id":"q1","query":"mail","relevant":["weather","post/send_mail","post/read_mail"],"groups":[["post/read_mail","post/send_mail"],["weather"]]}
{"id":"q2","query":"mail","relevant":["weather","post/send_mail"]}"#;
    let set = load(&[("tools.jsonl", TOOLS), ("queries.jsonl", queries)]).unwrap();
    assert_eq!(
        (set.queries[0].relevant.len(), &set.queries[0].groups),
        (3, &vec![vec![1, 0], vec![2]])
    );
    assert_eq!(set.queries[1].groups, [vec![0], vec![2]]);
    let grouped = |groups: &str| {
        let queries =
            format!(r#"{{"id":"q","query":"x","relevant":["weather"],"groups":{groups}}}"#);
        load(&[("tools.jsonl", TOOLS), ("queries.jsonl", &queries)])
    };
    assert!(
        grouped(r#"[["nothing"]]"#)
            .unwrap_err()
            .to_string()
            .contains("\"nothing\"")
    );
    for own in [r#""a, b""#, r#"["weather"]"#, "[[]]"] {
        assert_eq!(grouped(own).unwrap().queries[0].groups, [vec![2]], "{own}");
    }
}

#[test]
fn unanswerable_queries_are_kept_apart() {
    let queries = r#"{"id":"q1","query":"mail","relevant":["weather"]}
{"id":"q2","query":"tune my guitar","relevant":[],"kind":"none"}"#;
    let set = load(&[("tools.jsonl", TOOLS), ("queries.jsonl", queries)]).unwrap();
    assert_eq!(
        (set.queries.len(), set.unanswerable[0].id.as_str()),
        (1, "q2")
    );
    let contradiction = r#"{"id":"q2","query":"x","relevant":["weather"],"kind":"none"}"#;
    let message = message(&[("tools.jsonl", TOOLS), ("queries.jsonl", contradiction)]);
    assert!(
        message.contains("\"none\" and names relevant tools"),
        "{message}"
    );
}

#[test]
fn a_sample_keeps_the_order_and_has_its_own_fingerprint() {
    let queries: String = (0..40)
        .map(|n| {
            format!("{{\"id\":\"q{n:02}\",\"query\":\"mail {n}\",\"relevant\":[\"weather\"]}}\n")
        })
        .collect();
    let whole = load(&[("tools.jsonl", TOOLS), ("queries.jsonl", &queries)]).unwrap();
    let sample = whole.clone().sampled(10, 3);
    assert_eq!(sample.queries.len(), 10);
    assert!(sample.queries.is_sorted_by(|a, b| a.id < b.id));
    assert_eq!(
        sample.fingerprint(),
        whole.clone().sampled(10, 3).fingerprint()
    );
    assert_ne!(
        sample.fingerprint(),
        whole.clone().sampled(10, 4).fingerprint()
    );
    assert_eq!(
        whole.clone().sampled(99, 3).fingerprint(),
        whole.fingerprint()
    );
}

#[test]
fn grades_are_read_from_queries_and_from_qrels() {
    let of_queries =
        r#"{"id":"q","query":"x","relevant":{"weather":2,"post/send_mail":1,"post/read_mail":0}}"#;
    let bare = r#"{"id":"q","query":"x"}"#;
    let qrels = "q 0 weather 2\nq 0 post/send_mail 1\nq 0 post/read_mail 0\n";
    let negative = qrels.replace("read_mail 0", "read_mail -1");
    for files in [
        vec![("queries.jsonl", of_queries)],
        vec![("queries.jsonl", bare), ("qrels.txt", qrels)],
        vec![("queries.jsonl", bare), ("qrels.txt", &negative)],
    ] {
        let files = [vec![("tools.jsonl", TOOLS)], files].concat();
        let set = load(&files).unwrap();
        assert_eq!(ids(&set, 0), ["post/send_mail", "weather"]);
        let query = &set.queries[0];
        assert_eq!(query.judged, [0, 1, 2]);
        assert_eq!(
            (query.judgements.grades[0], query.judgements.grades[2]),
            (1.0, 2.0)
        );
        assert!(set.is_graded() && set.has_irrelevant() && !set.has_order());
        let from_two = Load {
            relevant_from: 2.0,
            ..Load::default()
        };
        let set = EvalSet::load_with(folder(&files).path(), &from_two).unwrap();
        assert_eq!(ids(&set, 0), ["weather"]);
        assert_eq!(set.queries[0].groups, [vec![2]]);
    }
    let wrong = r#"{"id":"q","query":"x","relevant":{"weather":"high"}}"#;
    let message = message(&[("tools.jsonl", TOOLS), ("queries.jsonl", wrong)]);
    assert!(
        message.contains("an object of tool ids with grades"),
        "{message}"
    );
}

#[test]
fn a_query_judged_with_0_only_is_one_that_nothing_serves() {
    let judged = r#"{"id":"a","query":"x","relevant":["weather"]}"#;
    for (queries, qrels) in [
        (
            format!(
                "{judged}\n{}",
                r#"{"id":"z","query":"y","relevant":{"weather":0}}"#
            ),
            "",
        ),
        (
            format!("{judged}\n{}", r#"{"id":"z","query":"y"}"#),
            "z 0 weather 0\nz 0 post/send_mail 0",
        ),
        (
            format!(
                "{judged}\n{}",
                r#"{"id":"z","query":"y","kind":"none","relevant":{"weather":0}}"#
            ),
            "",
        ),
    ] {
        let set = load(&[
            ("tools.jsonl", TOOLS),
            ("queries.jsonl", &queries),
            ("qrels.txt", qrels),
        ])
        .unwrap();
        assert_eq!(
            (set.queries.len(), set.unanswerable.len()),
            (1, 1),
            "{queries}"
        );
        assert_eq!(set.unanswerable[0].id, "z");
    }
}

#[test]
fn what_is_left_out_is_counted() {
    let queries = r#"{"id":"a","query":"x","relevant":["weather"]}
{"id":"b","query":"x","relevant":["weather"]}
{"id":"c","query":"x"}
{"id":"d","query":"x"}"#;
    let qrels = "a 0 weather 1\nb 0 post/send_mail 1\nc 0 weather 1\nc 0 gone 0\nz 0 weather 1\n";
    let set = load(&[
        ("tools.jsonl", TOOLS),
        ("queries.jsonl", queries),
        ("qrels.txt", qrels),
    ])
    .unwrap();
    assert_eq!(set.queries.len(), 3);
    assert_eq!(
        set.left_out,
        LeftOut {
            unjudged_queries: 1,
            unknown_queries: 1,
            contradicting_queries: 1,
            unknown_tools: 1,
            ..LeftOut::default()
        }
    );
    assert_eq!(set.left_out.lines().len(), 4);
    assert_eq!(ids(&set, 1), ["weather"], "`relevant` counts");
}

#[test]
fn unknown_tools_are_left_out_only_on_request() {
    let queries = r#"{"id":"a","query":"x","relevant":["weather","gone"]}
{"id":"b","query":"x","relevant":["gone"]}
{"id":"c","query":"x","relevant":["weather"],"groups":[["weather","gone"],["gone"]]}"#;
    let files = [("tools.jsonl", TOOLS), ("queries.jsonl", queries)];
    let message = message(&files);
    assert!(
        message.contains("\"gone\"") && message.contains("--skip-unknown"),
        "{message}"
    );
    let skip = Load {
        skip_unknown: true,
        ..Load::default()
    };
    let set = EvalSet::load_with(folder(&files).path(), &skip).unwrap();
    assert_eq!(set.queries.len(), 2);
    assert_eq!(
        (
            set.left_out.unknown_tools,
            set.left_out.queries_without_known_tool
        ),
        (4, 1)
    );
    assert_eq!(set.queries[1].groups, [vec![2]]);
}

#[test]
fn the_order_of_tools_is_read() {
    for (fields, order) in [
        (
            r#""relevant":["weather","post/send_mail"],"order":true"#,
            vec![1, 0],
        ),
        (
            r#""relevant":["post/send_mail","weather"],"order":["weather","post/send_mail","weather"]"#,
            vec![1, 0],
        ),
        (
            r#""relevant":["weather"],"order":["post/read_mail","weather"]"#,
            vec![0, 1],
        ),
        (r#""relevant":["weather"],"order":"first""#, vec![]),
        (r#""relevant":["weather"]"#, vec![]),
    ] {
        let queries = format!(r#"{{"id":"q","query":"x",{fields}}}"#);
        let set = load(&[("tools.jsonl", TOOLS), ("queries.jsonl", &queries)]).unwrap();
        assert_eq!(set.queries[0].judgements.order, order, "{fields}");
        assert_eq!(set.has_order(), !order.is_empty());
    }
}

#[test]
fn the_fingerprint_has_grades_groups_and_order_and_is_the_earlier_one_without() {
    let of = |fields: &str| {
        let queries = format!(r#"{{"id":"q","query":"x",{fields}}}"#);
        let set = load(&[("tools.jsonl", TOOLS), ("queries.jsonl", &queries)]).unwrap();
        set.fingerprint()
    };
    let plain = of(r#""relevant":["weather","post/send_mail"]"#);
    assert_eq!(plain, of(r#""relevant":{"weather":1,"post/send_mail":1}"#));
    for other in [
        r#""relevant":{"weather":2,"post/send_mail":1}"#,
        r#""relevant":{"weather":1,"post/send_mail":1,"post/read_mail":0}"#,
        r#""relevant":["weather","post/send_mail"],"groups":[["weather","post/send_mail"]]"#,
        r#""relevant":["weather","post/send_mail"],"order":true"#,
    ] {
        assert_ne!(plain, of(other), "{other}");
    }
}

#[test]
fn ids_with_percents_and_spaces_are_found_however_they_are_written() {
    let tool = |name: &str| format!(r#"{{"name":"{name}","description":"x"}}"#);
    let tools = [tool("a b"), tool("a%20b"), tool("100%"), tool("c%20d")].join("\n");
    let judged = |qrels: &str| {
        let set = load(&[
            ("tools.jsonl", &tools),
            ("queries.jsonl", r#"{"id":"q","query":"x"}"#),
            ("qrels.txt", qrels),
        ]);
        ids(&set.unwrap(), 0)[0].to_owned()
    };
    for (written, id) in [
        ("q 0 a%20b 1", "a b"),
        ("q 0 a%2520b 1", "a%20b"),
        ("q\t0\ta b\t1", "a b"),
        ("q 0 100%25 1", "100%"),
        ("q 0 100% 1", "100%"),
        // Not an escape: no tool is called "c d".
        ("q 0 c%20d 1", "c%20d"),
    ] {
        assert_eq!(judged(written), id, "{written}");
    }
}
