//! Tools that only texts tell apart, and what a model answers that writes them.

use serde_json::{Value, json};

/// Names that say nothing, and what people call the tools.
pub const TOOLS: [(&str, &str); 12] = [
    ("qx1", "weather forecast for a city"),
    ("qx2", "book a flight"),
    ("qx3", "translate a sentence"),
    ("qx4", "play some music"),
    ("qx5", "order a pizza"),
    ("qx6", "transfer money to a friend"),
    ("qx7", "resize a picture"),
    ("qx8", "find a doctor nearby"),
    ("qx9", "reserve a table at a restaurant"),
    ("qy1", "open the garage door"),
    ("qy2", "renew my passport"),
    ("qy3", "water the garden"),
];

/// The tools, all with one description.
pub fn definitions() -> Vec<Value> {
    TOOLS
        .iter()
        .map(|(name, _)| json!({"server": "s", "name": name, "description": "Runs a job."}))
        .collect()
}

/// Two judged queries for each tool, a line each.
pub fn judged_queries() -> String {
    let mut lines = String::new();
    for (name, meaning) in TOOLS {
        let queries = [format!("please {meaning}"), format!("{meaning} today")];
        for (number, query) in queries.iter().enumerate() {
            let id = format!("{name}-{number}");
            let line = json!({"id": id, "query": query, "relevant": [format!("s/{name}")]});
            lines += &format!("{line}\n");
        }
    }
    lines
}

/// An answer to the questions of `enrich --ask` that says what each tool does.
pub fn texts(questions: &str) -> String {
    let mut lines = String::new();
    for question in questions.lines().filter(|line| line.starts_with('{')) {
        let question: Value = serde_json::from_str(question).unwrap();
        let name = question["id"].as_str().unwrap().trim_start_matches("s/");
        if let Some((_, meaning)) = TOOLS.iter().find(|(tool, _)| *tool == name) {
            let answer = json!({"id": question["id"], "definition": question["definition"], "texts": [meaning]});
            lines += &format!("{answer}\n");
        }
    }
    lines
}

/// A line of a scripted model that answers with this text.
pub fn reply(text: &str) -> Value {
    json!({ "reply": { "text": text, "usage": { "input": 100, "output": 20 } } })
}
