//! Items of several kinds over HTTP.

use serde_json::{Value, json};

use super::server::{Server, ids, tool};

fn mixed() -> Vec<Value> {
    vec![
        tool("docs", "write_report", "Writes a report."),
        tool("docs", "list_reports", "Lists the reports of a team."),
        json!({
            "kind": "prompt", "server": "docs", "name": "prompt:weekly_report",
            "description": "Writes the weekly report of a team.", "tags": [],
        }),
        json!({
            "kind": "skill", "name": "skill:report", "description": "How to write the weekly report.",
            "metadata": { "body": "# Report" },
        }),
    ]
}

#[tokio::test]
async fn a_search_finds_other_kinds_only_if_it_names_them() {
    let server = Server::with_tools(&mixed()).await;
    let path = "/v1/catalogs/default/search";
    let plain = server
        .post(path, &json!({ "query": "weekly report" }))
        .await;
    assert!(ids(&plain).iter().all(|id| !id.contains(':')), "{plain:?}");
    assert!(plain.body["hits"][0].get("kind").is_none(), "{plain:?}");
    let filter = json!({ "kinds": ["skill", "prompt"] });
    let body = json!({ "query": "weekly report", "filter": filter, "format": "openai" });
    let found = server.post(path, &body).await;
    let mut kinds: Vec<&str> = found.body["hits"]
        .as_array()
        .unwrap()
        .iter()
        .map(|hit| hit["kind"].as_str().unwrap())
        .collect();
    kinds.sort_unstable();
    assert_eq!(kinds, ["prompt", "skill"], "{found:?}");
    assert_eq!(found.body["tools"], json!([]), "a model can call neither");
    let by_query = server
        .get(&format!("{path}?q=weekly+report&kind=prompt,skill"))
        .await;
    assert_eq!(ids(&by_query), ids(&found));
    let wrong = json!({ "query": "x", "filter": { "kinds": ["skills"] } });
    let refused = server.post(path, &wrong).await;
    assert_eq!(refused.status.as_u16(), 422, "{refused:?}");
    let refused = server.get(&format!("{path}?q=x&kind=skills")).await;
    let message = refused.body["error"]["message"].as_str().unwrap();
    assert!(message.contains("skills"), "{message}");
}

#[tokio::test]
async fn lists_have_tools_alone_unless_they_name_kinds_and_a_server_is_removed_whole() {
    let server = Server::with_tools(&mixed()).await;
    let path = "/v1/catalogs/default/tools";
    let listed = server.get(path).await;
    assert_eq!(listed.body["total"], 2, "{listed:?}");
    assert!(listed.body["tools"][0].get("kind").is_none());
    let skills = server.get(&format!("{path}?kind=skill")).await;
    assert_eq!(skills.body["total"], 1, "{skills:?}");
    assert_eq!(skills.body["tools"][0]["id"], "skill:report");
    assert_eq!(skills.body["tools"][0]["kind"], "skill");
    let shown = server.get(&format!("{path}/skill:report")).await;
    assert_eq!(shown.body["metadata"]["body"], "# Report");
    let url = format!("{path}?server=docs");
    let removed = server.request(reqwest::Method::DELETE, &url).send().await;
    let removed: Value = removed.unwrap().json().await.unwrap();
    assert_eq!(removed["removed"].as_array().unwrap().len(), 3, "{removed}");
}
