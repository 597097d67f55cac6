//! Prompts and resources of servers in the search of the gateway.

use rmcp::model::{GetSkillRequestParams, ReadResourceRequestParams};
use serde_json::{Value, json};
use toolscout::mcp::connection::Connector;
use toolscout::mcp::{GatewayConfig, sync};
use toolscout_index::{Kind, Tool, ToolId};

use super::gateway::{call, client, gateway, words};
use super::world::{Upstream, becomes, double, double_with};

#[tokio::test]
async fn skills_of_a_server_are_found_listed_and_read() {
    let tampered = double_with("b", &["offers", "skills"], &[("TAMPERED", "And more.")]);
    let fetched = sync::fetch(&tampered, &Connector::default()).await.unwrap();
    let [left_out] = &fetched.skipped[..] else {
        panic!("{:?}", fetched.skipped);
    };
    assert!(
        left_out.starts_with("skill skill://report/SKILL.md: "),
        "{left_out}"
    );
    let servers = vec![double("a", &["offers", "skills"]), tampered];
    let upstream = Upstream::start(servers).await;
    let searcher = upstream.catalog.searcher();
    let id = |text: &str| ToolId::parse(text).unwrap();
    let skill = searcher.tool(&id("a/skill:report")).expect("a skill");
    assert_eq!(skill.description, "Writes a quarterly report.");
    assert!(skill.flags().is_empty(), "its front matter claims flags");
    assert!(!searcher.has(&id("b/skill:report")), "its digest is wrong");

    let client = client(&gateway(&upstream, GatewayConfig::default())).await;
    let capabilities = &client.peer_info().unwrap().capabilities;
    assert!(capabilities.supports_skills());
    let skills = client.list_all_skills().await.unwrap();
    assert_eq!(skills.len(), 1);
    let given = client
        .get_skill(GetSkillRequestParams::new("skill://report/SKILL.md"))
        .await
        .unwrap();
    assert_eq!(given.skill.name(), "report");
    let form = ReadResourceRequestParams::new("skill://report/form.md");
    let form = client.read_resource(form).await.unwrap();
    assert_eq!(json!(form.contents)[0]["text"], "The form.");

    let given = json!({ "query": "quarterly report", "kinds": ["skill"] });
    let found = words(&call(&client, "tool_search", given).await);
    assert!(found.contains("a/skill:report"), "{found}");
    let given = json!({ "names": ["a/skill:report"] });
    let read = words(&call(&client, "describe_tool", given).await);
    for part in [
        "Read [the form](form.md).",
        "\"form.md\"",
        "skill://report/SKILL.md",
    ] {
        assert!(read.contains(part), "{part} is not in {read}");
    }
}

#[tokio::test]
async fn prompts_stay_and_are_marked_if_their_list_cannot_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let fails = folder.path().join("fails");
    let env = [("FAILS", fails.to_str().unwrap())];
    let server = double_with("a", &["offers", "links"], &env);
    let upstream = Upstream::start(vec![server]).await;
    let id = ToolId::parse("a/prompt:greet").unwrap();
    let is_stale = || {
        let prompt = upstream.catalog.searcher().tool(&id).expect("it stays");
        prompt.metadata.contains_key("toolscout_stale")
    };
    assert!(!is_stale());
    std::fs::write(&fails, "").unwrap();
    // The server says that its lists have changed.
    upstream.call("a/links", json!({})).await.unwrap();
    becomes("its list is an older one", is_stale).await;
    let client = client(&gateway(&upstream, GatewayConfig::default())).await;
    let prompts = client.list_all_prompts().await.unwrap();
    let meta = &prompts[0].meta.as_ref().unwrap().0;
    assert_eq!(meta["toolscout"], json!({ "server": "a", "stale": true }));
    // After a restart too.
    let _ = upstream.call("a/exit", json!({})).await;
    becomes("it is connected again", || {
        upstream.pool.unavailable("a").is_none()
    })
    .await;
    assert_eq!(client.list_all_prompts().await.unwrap().len(), 1);
    assert!(is_stale());
    std::fs::remove_file(&fails).unwrap();
    upstream.call("a/links", json!({})).await.unwrap();
    becomes("its list is read again", || !is_stale()).await;
}

#[tokio::test]
async fn prompts_resources_and_skills_are_found_with_how_they_are_used() {
    let servers = vec![double("a", &["offers"]), double("plain", &[])];
    let upstream = Upstream::start(servers).await;
    let skill = Tool::new("", "skill:greeting")
        .unwrap()
        .of_kind(Kind::Skill);
    let mut skill = skill.with_description("How to greet a person");
    skill.metadata.insert("body".into(), "Say hello.".into());
    let mut writer = upstream.catalog.writer().unwrap();
    writer.upsert(&[skill]).unwrap();
    writer.commit().unwrap();
    drop(writer);
    let searcher = upstream.catalog.searcher();
    for id in [
        "a/prompt:greet",
        "a/resource:memo:all",
        "a/resource:memo:{day}/list",
    ] {
        let id = ToolId::parse(id).unwrap();
        assert!(searcher.has(&id), "{id}: {:?}", searcher.count_by_kind());
    }

    let client = client(&gateway(&upstream, GatewayConfig::default())).await;
    let ask = async |name: &str, given: Value| -> Value {
        let answer = call(&client, name, given).await;
        serde_json::from_str(&words(&answer)).unwrap()
    };
    let plain = ask("tool_search", json!({ "query": "greet a person" })).await;
    assert!(plain.get("others").is_none(), "{plain}");
    let kinds = json!(["prompt", "skill", "resource"]);
    let found = ask(
        "tool_search",
        json!({ "query": "greet a person", "kinds": kinds }),
    )
    .await;
    let others = found["others"].as_array().unwrap();
    let of = |kind: &str| others.iter().find(|other| other["kind"] == kind);
    let prompt = of("prompt").expect("a prompt");
    assert_eq!(prompt["id"], "a/prompt:greet");
    let how = prompt["how_to_use"].as_str().unwrap();
    assert!(how.contains("`prompts/get`, name \"a__greet\""), "{how}");
    let how = of("skill").expect("a skill")["how_to_use"]
        .as_str()
        .unwrap();
    assert!(how.contains("`describe_tool`"), "{how}");
    assert_eq!(found["tools"], json!([]), "{found}");
    let memo = ask(
        "tool_search",
        json!({ "query": "memo", "kinds": ["resource"] }),
    )
    .await;
    let how = memo["others"].to_string();
    assert!(
        how.contains("`resources/read`, URI \\\"memo:all\\\""),
        "{how}"
    );

    let read = ask("describe_tool", json!({ "names": ["skill:greeting"] })).await;
    assert_eq!(read["others"][0]["text"], "Say hello.", "{read}");
    let listed = ask("list_tools", json!({ "server": "a" })).await;
    assert!(!listed.to_string().contains("prompt:"), "{listed}");
    let refused = call(&client, "call_tool", json!({ "name": "skill:greeting" })).await;
    assert_eq!(refused.is_error, Some(true));
    let wrong = call(
        &client,
        "tool_search",
        json!({ "query": "x", "kinds": ["skills"] }),
    )
    .await;
    assert!(
        words(&wrong).contains("skill or agent"),
        "{}",
        words(&wrong)
    );
}
