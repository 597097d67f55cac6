use std::collections::HashMap;

use super::*;
use crate::catalog::{Catalog, DataDir};
use crate::embed::StaticTable;
use crate::query::Mode;
use crate::settings::Options;

const REQUESTS: [&str; 10] = [
    "send a message to a friend",
    "delete_report",
    "mail delete report",
    "sned a mesage",
    "spin up a box and then tell the team about it",
    "forecast for tomorrow",
    "xqzw",
    "update invoice",
    "list all calender events, archive the old ones and share the rest",
    "report",
];

fn tools() -> Vec<Tool> {
    let actions = [
        ("send", "Sends"),
        ("delete", "Deletes"),
        ("list", "Lists"),
        ("update", "Changes"),
        ("archive", "Moves to the archive"),
        ("create", "Makes"),
    ];
    let things = [
        "message", "report", "invoice", "event", "instance", "forecast",
    ];
    let servers = ["mail", "calendar", "weather", "cloud"];
    let mut tools = Vec::new();
    for (number, server) in servers.iter().enumerate() {
        for (action, does) in actions {
            for thing in things {
                let about = format!("{does} one {thing} of the {server}, number {number}.");
                let tool = Tool::new(server, &format!("{action}_{thing}")).unwrap();
                tools.push(tool.with_description(about));
            }
        }
    }
    tools
}

fn catalog(folder: &std::path::Path, name: &str, tools: &[Tool]) -> Catalog {
    let options = Options::new(vec![StaticTable::bundled().unwrap()]);
    let catalog = DataDir::new(folder).open_or_create(name, options).unwrap();
    let mut writer = catalog.writer().unwrap();
    writer.upsert(tools).unwrap();
    writer.commit().unwrap();
    catalog
}

/// Counted from all tools.
fn statistics(tools: &[Tool], near: &[&str]) -> CatalogStatistics {
    let mut counted = CatalogStatistics {
        tools: tools.len() as u64,
        languages: vec![Language::English],
        ..CatalogStatistics::default()
    };
    for tool in tools {
        let footprint = Footprint::of(tool, &Weights::default());
        counted.length += footprint.analysis.length;
        for term in footprint.analysis.terms.into_keys() {
            *counted.frequencies.entry(term).or_default() += 1;
        }
        for word in near {
            let is_in_name = footprint
                .analysis
                .name_words
                .iter()
                .any(|name| name == word);
            let is_elsewhere = footprint.analysis.words.iter().any(|other| other == word);
            if is_in_name || is_elsewhere {
                counted.near_words.push(NearWord {
                    word: (*word).to_owned(),
                    is_in_name,
                    is_elsewhere,
                });
            }
        }
    }
    counted
}

fn part(tools: &[Tool]) -> Part {
    part_with(tools, &[])
}

/// The same with some that stand for the others.
fn part_with(found: &[Tool], sample: &[Tool]) -> Part {
    part_of(found, sample, &HashMap::new())
}

/// The same with what was written about tools.
fn part_of(found: &[Tool], sample: &[Tool], written: &HashMap<ToolId, Enrichment>) -> Part {
    let found = found.iter().map(|tool| part_tool(tool, false, written));
    let sample = sample.iter().map(|tool| part_tool(tool, true, written));
    Part::new(found.chain(sample).collect(), &Weights::default())
}

fn hits(searcher: &Searcher, query: &Query) -> Vec<(String, f32)> {
    let results = searcher.search(query).unwrap();
    let hits = results.hits.iter();
    hits.map(|hit| (hit.id.to_string(), hit.score)).collect()
}

fn part_tool(tool: &Tool, is_sample: bool, written: &HashMap<ToolId, Enrichment>) -> PartTool {
    PartTool {
        json: serde_json::to_string(tool).unwrap(),
        tool: tool.clone(),
        enrichment: written.get(&tool.id).cloned(),
        is_sample,
    }
}

/// Texts about every `step`th tool.
fn written(tools: &[Tool], step: usize) -> HashMap<ToolId, Enrichment> {
    let of = |tool: &Tool| {
        let name = tool.id.name().replace('_', " the ");
        let texts = [format!("could you {name}"), format!("{name} asap")];
        (tool.id.clone(), Enrichment::new(texts, "m").unwrap())
    };
    tools.iter().step_by(step).map(of).collect()
}

#[test]
fn tools_with_texts_score_as_they_do_in_the_whole_catalog() {
    let folder = tempfile::tempdir().unwrap();
    let tools = tools();
    let base = catalog(folder.path(), "base", &[]).searcher();
    for step in [1, 2, 20] {
        let written = written(&tools, step);
        let whole = catalog(folder.path(), &format!("whole-{step}"), &tools);
        let mut writer = whole.writer().unwrap();
        for tool in &tools {
            if let Some(enrichment) = written.get(&tool.id) {
                assert!(writer.set_enrichment(tool, enrichment).unwrap());
            }
        }
        writer.commit().unwrap();
        let whole = whole.searcher();
        let statistics = CatalogStatistics {
            enriched: written.len() as u64,
            ..statistics(&tools, &["send", "message", "calendar"])
        };
        let all = part_of(&tools, &[], &written);
        let all = all
            .searcher(&base, statistics.clone(), &HashMap::new(), 7)
            .unwrap();
        // Where tools without texts are not among the candidates, those with texts score the same.
        let some: Vec<Tool> = tools
            .iter()
            .filter(|tool| written.contains_key(&tool.id))
            .cloned()
            .collect();
        let some = part_of(&some, &[], &written);
        let some = some
            .searcher(&base, statistics, &HashMap::new(), 7)
            .unwrap();
        for request in REQUESTS {
            let query = Query::new(request).mode(Mode::Dense).k(10).explain();
            assert_eq!(hits(&all, &query), hits(&whole, &query), "{request} {step}");
            let cosines = |searcher: &Searcher| -> HashMap<ToolId, f32> {
                let hits = searcher.search(&query).unwrap().hits;
                let cosine = |hit: &crate::Hit| Some(hit.explain.as_ref()?.dense.first()?.1.raw);
                hits.iter()
                    .filter_map(|hit| Some((hit.id.clone(), cosine(hit)?)))
                    .collect()
            };
            let whole = cosines(&whole);
            for (id, cosine) in cosines(&some) {
                let same = whole.get(&id).is_none_or(|other| *other == cosine);
                assert!(same, "{request} {step}: {id} {cosine}");
            }
        }
    }
}

#[test]
fn tools_that_are_only_read_have_their_texts() {
    let folder = tempfile::tempdir().unwrap();
    let base = catalog(folder.path(), "base", &[]).searcher();
    let tools = &tools()[..6];
    let written = written(tools, 2);
    let parts = tools.iter().map(|tool| part_tool(tool, false, &written));
    let read = to_be_read(parts.collect(), &base);
    let ids: Vec<&ToolId> = read.ids_after(None).collect();
    assert_eq!(ids.len(), 6);
    let with_texts = ids.iter().filter(|id| read.enrichment(id).is_some());
    assert_eq!(with_texts.count(), 3);
    assert!(read.search(&Query::new("send")).unwrap().hits.is_empty());
    assert!(read.tool(ids[0]).is_some());
}

#[test]
fn all_tools_of_a_catalog_score_as_they_do_in_it() {
    let folder = tempfile::tempdir().unwrap();
    let tools = tools();
    let whole = catalog(folder.path(), "whole", &tools).searcher();
    let base = catalog(folder.path(), "base", &[]).searcher();
    let statistics = statistics(&tools, &["send", "message", "calendar"]);
    let all = part(&tools)
        .searcher(&base, statistics, &HashMap::new(), 7)
        .unwrap();
    for request in REQUESTS {
        for mode in [Mode::Hybrid, Mode::Lexical, Mode::Dense] {
            let query = Query::new(request).mode(mode).k(10).explain();
            assert_eq!(hits(&all, &query), hits(&whole, &query), "{request} {mode}");
            let (one, other) = (all.search(&query).unwrap(), whole.search(&query).unwrap());
            assert_eq!(one.confidence, other.confidence, "{request} {mode}");
            assert_eq!(
                format!("{:?}", one.hits.first().map(|hit| &hit.explain)),
                format!("{:?}", other.hits.first().map(|hit| &hit.explain)),
                "{request} {mode}"
            );
        }
    }
}

#[test]
fn some_tools_get_the_words_scores_that_they_have_among_all() {
    let folder = tempfile::tempdir().unwrap();
    let tools = tools();
    let whole = catalog(folder.path(), "whole", &tools).searcher();
    let base = catalog(folder.path(), "base", &[]).searcher();
    let statistics = statistics(&tools, &[]);
    let some: Vec<Tool> = tools
        .iter()
        .filter(|tool| tool.id.name().ends_with("report"))
        .cloned()
        .collect();
    let few = part(&some)
        .searcher(&base, statistics, &HashMap::new(), 7)
        .unwrap();
    assert_eq!((few.len(), few.catalog_len()), (24, 144));
    let query = Query::new("delete the report of the mail")
        .mode(Mode::Lexical)
        .k(5)
        .explain();
    let raw = |searcher: &Searcher| {
        let hits = searcher.search(&query).unwrap().hits;
        let raw = hits.iter().map(|hit| {
            let lexical = hit
                .explain
                .as_ref()
                .and_then(|explain| explain.lexical.as_ref());
            (hit.id.to_string(), lexical.map(|score| score.raw))
        });
        raw.collect::<Vec<_>>()
    };
    assert_eq!(raw(&few)[..3], raw(&whole)[..3]);
}

#[test]
fn a_probe_has_the_terms_the_vectors_and_the_name_of_a_request() {
    let folder = tempfile::tempdir().unwrap();
    let tools = tools();
    let base = catalog(folder.path(), "base", &[]).searcher();
    let counted = statistics(&tools, &["message", "messages"]);
    let query = Query::new("mail/delete_mesage");
    let wanted = base.query_terms(&query);
    assert_eq!(counted.misspelt(&wanted[0].own), ["mesage"]);
    let probe = base.probe(&query, &Arc::new(counted)).unwrap();
    let terms: Vec<&str> = probe.texts[0]
        .iter()
        .map(|term| term.term.as_str())
        .collect();
    assert!(
        terms.contains(&"delet") && terms.contains(&"messag"),
        "{terms:?}"
    );
    assert!(probe.texts[0].is_sorted_by(|one, next| one.gain >= next.gain));
    assert_eq!(probe.vectors.len(), 1);
    assert_eq!(probe.names[0].key, "maildeletemesage");
    let invalid = Query::new("mail").k(0);
    assert!(base.probe(&invalid, &Arc::default()).is_err());
}

#[test]
fn a_sample_stands_for_the_others_in_the_confidence() {
    let folder = tempfile::tempdir().unwrap();
    let tools = tools();
    let whole = catalog(folder.path(), "whole", &tools).searcher();
    let base = catalog(folder.path(), "base", &[]).searcher();
    let counted = statistics(&tools, &[]);
    let (mut with, mut without) = (0.0, 0.0);
    for thing in ["report", "invoice", "event", "instance"] {
        let is_found = |tool: &&Tool| tool.id.name().ends_with(thing);
        let (found, others): (Vec<&Tool>, Vec<&Tool>) = tools.iter().partition(is_found);
        let found: Vec<Tool> = found.into_iter().cloned().collect();
        let sample: Vec<Tool> = others.into_iter().step_by(3).cloned().collect();
        let query = Query::new(format!("remove the {thing}"));
        let confidence = |searcher: &Searcher| searcher.search(&query).unwrap().confidence.unwrap();
        let of = |part: Part| {
            let none = HashMap::new();
            let searcher = part.searcher(&base, counted.clone(), &none, 7).unwrap();
            (confidence(&searcher) - confidence(&whole)).abs()
        };
        with += of(part_with(&found, &sample));
        without += of(part(&found));
    }
    assert!(with < 0.2 && with < without, "{with} {without}");
}
