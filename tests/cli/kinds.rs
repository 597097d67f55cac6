//! Skills, agents and other items that are no tools, on the command line.

use serde_json::{Value, json};

use super::run::{World, four_tools, says};

/// A catalog with four tools, two skills and an agent.
fn mixed() -> World {
    let world = World::with_tools(&four_tools());
    let report = "---\nname: weekly-report\ndescription: How to write the weekly report\n---\n# Weekly report\n\
                  Fill in [the form](form.md).\n";
    world.file("skills/report/SKILL.md", report);
    world.file("skills/report/form.md", "Numbers first.");
    let review = "---\nname: review\ndescription: How to review an issue\n---\nRead it twice.\n";
    world.file("skills/review/SKILL.md", review);
    let card = json!({
        "name": "Travel planner", "description": "Plans journeys.", "version": "1", "capabilities": {},
        "url": "https://travel.example/a2a",
        "skills": [{ "id": "t", "name": "Trains", "description": "Finds trains.", "tags": ["rail"] }],
    });
    world.file("agents/agent-card.json", card.to_string());
    let added = world.ok(&["add", "skills", "agents"]);
    assert!(added.contains("3 added"), "{added}");
    world
}

fn hits(world: &World, args: &[&str]) -> Vec<String> {
    let answer = world.json(&[&["search"], args].concat());
    let hits = answer["hits"].as_array().unwrap().iter();
    hits.map(|hit| hit["id"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn folders_of_skills_and_agent_cards_are_added_and_found_by_kind() {
    let world = mixed();
    assert_eq!(
        hits(&world, &["--kind", "skill", "write the report"]),
        ["skill:weekly-report"]
    );
    let found = hits(
        &world,
        &["--kind", "skill,agent", "plan a journey by train"],
    );
    assert_eq!(found[0], "agent:Travel planner");
    let by_default = hits(&world, &["review an issue"]);
    assert!(
        by_default.iter().all(|id| !id.starts_with("skill:")),
        "{by_default:?}"
    );
    let all = hits(&world, &["--kind", "all", "review an issue"]);
    assert!(all.contains(&"skill:review".to_owned()), "{all:?}");
    // A single folder with its own SKILL.md is a skill too.
    let again = world.ok(&["add", "skills/report"]);
    assert!(again.contains("1 unchanged"), "{again}");
    let plain = world.run(&["search", "--kind", "skill", "review"]);
    says(&plain.stdout, "[skill] How to review");
    assert!(
        plain.stderr.starts_with("1 of 2 skills"),
        "{}",
        plain.stderr
    );
    world.fails(
        2,
        &["search", "--kind", "skills", "x"],
        &["skills", "skill or agent"],
    );
}

#[test]
fn list_show_and_export_have_all_kinds_and_formats_for_models_tools_alone() {
    let world = mixed();
    assert_eq!(world.ids().len(), 7);
    let listed = world.ok(&["list"]);
    says(&listed, "agent:Travel planner\t[agent] Plans journeys.");
    assert!(!listed.contains("[tool]"), "{listed}");
    let skills = world.json(&["list", "--kind", "skill"]);
    assert_eq!(skills.as_array().unwrap().len(), 2);
    assert_eq!(skills[0]["kind"], "skill");
    let shown = world.ok(&["show", "skill:weekly-report", "agent:Travel planner"]);
    for line in [
        "  kind: skill",
        "  file: form.md",
        "  | # Weekly report",
        "  kind: agent",
        "  address: https://travel.example/a2a",
    ] {
        assert!(shown.lines().any(|shown| shown == line), "{line}: {shown}");
    }
    let openai = world.ok(&["export", "--format", "openai"]);
    let openai: Value = serde_json::from_str(&openai).unwrap();
    assert_eq!(openai.as_array().unwrap().len(), 4);
    let backup = world.file("backup.ndjson", world.ok(&["export"]));
    let copy = World::new();
    copy.ok(&["add", backup.to_str().unwrap()]);
    assert_eq!(copy.ok(&["export"]), world.ok(&["export"]));
}

#[test]
fn broken_front_matter_is_named_with_file_and_line_and_nothing_is_added() {
    let world = World::new();
    world.file("skills/a/SKILL.md", "---\nname: a\ndescription: ''\n---\n");
    world.fails(
        1,
        &["add", "skills"],
        &["SKILL.md:3", "`description` is empty"],
    );
    world.file(
        "skills/a/SKILL.md",
        "---\nname: a\ndescription: b\n---\n[x](gone.md)\n",
    );
    let added = world.run(&["add", "skills"]);
    assert_eq!(added.code, 0, "{}", added.stderr);
    says(&added.stderr, "line 5 refers to \"gone.md\"");
}

#[test]
fn a_sync_of_skills_removes_those_that_are_gone() {
    let world = World::new();
    for name in ["a", "b"] {
        let text = format!("---\nname: {name}\ndescription: Does {name}\n---\n");
        world.file(&format!("skills/{name}/SKILL.md"), text);
    }
    world.ok(&["sync", "skills", "--server", "team"]);
    assert_eq!(world.ids(), ["team/skill:a", "team/skill:b"]);
    std::fs::remove_dir_all(world.path("skills/b")).unwrap();
    let synced = world.ok(&["sync", "skills", "--server", "team"]);
    assert!(synced.contains("- team/skill:b"), "{synced}");
    world.ok(&["remove", "--server", "team"]);
    assert!(world.ids().is_empty());
}
