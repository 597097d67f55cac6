//! Requests with several needs, and misspelt ones.

use serde_json::json;
use toolscout_index::embed::StaticTable;
use toolscout_index::{Catalog, DataDir, Options, Query, Tool};

fn catalog(dir: &tempfile::TempDir, tools: &[Tool]) -> Catalog {
    let options = Options::new(vec![StaticTable::bundled().unwrap()]);
    let catalog = DataDir::new(dir.path())
        .open_or_create("c", options)
        .unwrap();
    let mut writer = catalog.writer().unwrap();
    writer.upsert(tools).unwrap();
    writer.commit().unwrap();
    catalog
}

fn tool(server: &str, name: &str, description: &str) -> Tool {
    serde_json::from_value(json!({"server": server, "name": name, "description": description}))
        .unwrap()
}

#[test]
fn needs_share_the_places_and_hits_say_which_need_they_serve() {
    let dir = tempfile::tempdir().unwrap();
    let mut tools: Vec<Tool> = (0..2)
        .map(|number| {
            let description = format!("Sends an email to Ann from mailbox {number}.");
            tool(&format!("mail{number}"), "send_email_to_ann", &description)
        })
        .collect();
    tools.push(tool(
        "met",
        "get_forecast",
        "The forecast of rain for the coming days.",
    ));
    tools.push(tool("shop", "order_pizza", "Orders a pizza."));
    tools.push(tool(
        "repo",
        "create_issue",
        "Opens an issue in a repository.",
    ));
    let catalog = catalog(&dir, &tools);
    let ask = |text: &str| {
        catalog
            .searcher()
            .search(&Query::new(text).k(3))
            .unwrap()
            .hits
    };
    let hits = ask("Send an email to Ann and check the forecast in Oslo");
    let forecast = hits
        .iter()
        .find(|hit| hit.id.as_str() == "met/get_forecast");
    assert_eq!(
        forecast
            .expect("a place for the second need")
            .serves
            .as_deref(),
        Some("check the forecast in Oslo")
    );
    assert!(
        hits.iter()
            .any(|hit| hit.serves.as_deref() == Some("Send an email to Ann"))
    );
    assert!(hits.is_sorted_by(|a, b| a.score >= b.score) && hits[0].score <= 1.0);
    assert!(
        ask("Send an email to Ann")
            .iter()
            .all(|hit| hit.serves.is_none())
    );
}

#[test]
fn a_misspelt_request_is_embedded_as_corrected() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = catalog(
        &dir,
        &[
            tool("a", "x1", "Books a table for dinner."),
            tool("b", "x2", "Translates a text."),
        ],
    );
    // No tool has "restaurant", so only the embedding can find the table for dinner.
    let cosine = |text: &str| {
        let results = catalog.searcher().search(&Query::new(text)).unwrap();
        results.signals.cosine.unwrap()
    };
    assert_eq!(cosine("restaurant"), cosine("restuarant"));
    assert!(cosine("restaurant") > cosine("Restuarant"));
}

#[test]
fn an_answer_to_nonsense_has_low_confidence() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = catalog(
        &dir,
        &[
            tool("a", "book_table", "Books a table for dinner."),
            tool("b", "translate", "Translates a text."),
        ],
    );
    let confidence = |text: &str| {
        let results = catalog.searcher().search(&Query::new(text)).unwrap();
        results.confidence.unwrap_or_default()
    };
    assert!(confidence("asdfghjkl") < 0.1);
    assert!(confidence("book a table") > 0.5);
}
