//! Suggestions for misspelt names.

/// Least similarity of a suggestion, 0 to 1 by Jaro-Winkler: the threshold that clap uses for
/// flags.
const MIN_SIMILARITY: f64 = 0.8;
/// Most suggestions.
const MAX_SUGGESTIONS: usize = 3;

/// The names most like this one, best first. The server of an id may be missing or wrong: both
/// `create_issue` and `x/create_issue` suggest `github/create_issue`.
pub fn similar<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let mut similar: Vec<(f64, &str)> = Vec::new();
    for candidate in candidates {
        let similarity = similarity(name, candidate);
        if similarity >= MIN_SIMILARITY {
            similar.push((similarity, candidate));
        }
    }
    similar.sort_by(|(a, first), (b, second)| b.total_cmp(a).then(first.cmp(second)));
    similar.truncate(MAX_SUGGESTIONS);
    let best = similar.into_iter();
    best.map(|(_, candidate)| candidate).collect()
}

/// `did you mean "a" or "b"?`; `None` without similar names.
pub fn did_you_mean<'a>(
    name: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<String> {
    let mut quoted = Vec::new();
    for candidate in similar(name, candidates) {
        quoted.push(format!("{candidate:?}"));
    }
    if quoted.is_empty() {
        return None;
    }
    Some(format!("did you mean {}?", quoted.join(" or ")))
}

fn similarity(name: &str, candidate: &str) -> f64 {
    let (name, candidate) = (name.to_lowercase(), candidate.to_lowercase());
    let (server, name) = split(&name);
    let (candidate_server, candidate_name) = split(&candidate);
    // Ids of one server share a long prefix, so the server must not count as much as the name.
    let servers = match (server, candidate_server) {
        (Some(server), Some(candidate)) => strsim::jaro_winkler(server, candidate),
        (None, None) => 1.0,
        _ => 0.5,
    };
    strsim::jaro_winkler(name, candidate_name) * (0.9 + 0.1 * servers)
}

/// Server, if any, and name.
fn split(id: &str) -> (Option<&str>, &str) {
    match id.rsplit_once('/') {
        Some((server, name)) => (Some(server), name),
        None => (None, id),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similar_names_are_suggested_best_first() {
        let ids = [
            "github/create_issue",
            "linear/create_issue",
            "weather/getForecast",
        ];
        assert_eq!(similar("github/create_isue", ids)[0], "github/create_issue");
        assert_eq!(
            similar("create_issue", ids),
            ["github/create_issue", "linear/create_issue"]
        );
        assert_eq!(similar("x/create_issue", ids).len(), 2);
        assert!(similar("zzz", ids).is_empty() && similar("github/nothing", ids).is_empty());
        assert_eq!(
            did_you_mean("githb", ["github", "mail"]).as_deref(),
            Some("did you mean \"github\"?")
        );
        assert_eq!(did_you_mean("githb", ["mail"]), None);
    }
}
