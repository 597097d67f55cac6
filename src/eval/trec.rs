//! TREC run files and qrels, for comparison with other programs.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::dataset::{EvalSet, ToolIndex, escape, unescape};
use super::error::{EvalError, Result, read_text, write};
use super::run::ArmRun;

/// Writes one run file per arm, and the judgements. `runs.trec` becomes `runs.SET.ARM.trec` and
/// `runs.SET.qrels`. Returns the paths.
///
/// White space and `%` in ids are percent-encoded, so that an id is one column.
///
/// # Errors
/// [`EvalError::Io`].
pub fn write_all(path: &Path, set: &EvalSet, runs: &[ArmRun]) -> Result<Vec<PathBuf>> {
    let stem = path
        .file_stem()
        .map_or_else(|| "run".into(), |stem| stem.to_string_lossy().into_owned());
    let extension = path.extension().map_or_else(
        || "trec".into(),
        |extension| extension.to_string_lossy().into_owned(),
    );
    let set_name = escape(&set.name);
    let mut files = vec![(
        path.with_file_name(format!("{stem}.{set_name}.qrels")),
        qrels(set),
    )];
    for run in runs {
        files.push((
            path.with_file_name(format!("{stem}.{set_name}.{}.{extension}", run.name)),
            run_file(set, run),
        ));
    }
    for (file, text) in &files {
        write(file, text)?;
    }
    Ok(files.into_iter().map(|(file, _)| file).collect())
}

/// Reads a run file as a further arm with the name of the file.
///
/// Hits are ranked by score, ties in the order of the file. Queries outside the set are ignored; a
/// query of the set without lines has no hits.
///
/// # Errors
/// [`EvalError::Malformed`] for a line that is not a hit or names an unknown tool, [`EvalError::Io`].
pub fn read_run(path: &Path, set: &EvalSet) -> Result<ArmRun> {
    let rows: HashMap<&str, usize> = set
        .queries
        .iter()
        .enumerate()
        .map(|(row, query)| (query.id.as_str(), row))
        .collect();
    let mut hits: Vec<Vec<(f64, ToolIndex)>> = vec![Vec::new(); set.queries.len()];
    for (index, line) in read_text(path)?
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
    {
        let (query, tool, score) = read_hit(path, index + 1, line)?;
        let Some(&row) = rows.get(query.as_str()) else {
            continue;
        };
        let tool = set.judged_position(&tool).ok_or_else(|| {
            EvalError::malformed(
                path,
                index + 1,
                format!(
                    "the set {} has no tool {tool:?}; is this a run of another set?",
                    set.name
                ),
            )
        })?;
        hits[row].push((score, tool));
    }
    Ok(ArmRun {
        name: run_name(path),
        rankings: hits.into_iter().map(by_score).collect(),
        degraded: 0,
        abstained: 0,
    })
}

/// The name of the arm of a run file.
pub fn run_name(path: &Path) -> String {
    path.file_stem()
        .map_or_else(|| "run".into(), |stem| stem.to_string_lossy().into_owned())
}

fn read_hit(path: &Path, line: usize, text: &str) -> Result<(String, String, f64)> {
    let fields: Vec<&str> = text.split_whitespace().collect();
    let [query, _, tool, _, score, _] = fields.as_slice() else {
        let reason = format!(
            "{} columns; a hit of a TREC run has `query Q0 tool rank score name`",
            fields.len()
        );
        return Err(EvalError::malformed(path, line, reason));
    };
    match score.parse::<f64>() {
        Ok(number) if number.is_finite() => Ok((unescape(query), unescape(tool), number)),
        _ => Err(EvalError::malformed(
            path,
            line,
            format!("the score {score:?} is not a number"),
        )),
    }
}

fn by_score(mut hits: Vec<(f64, ToolIndex)>) -> Vec<ToolIndex> {
    // A stable sort, which keeps ties in the order of the file.
    hits.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut seen = std::collections::HashSet::new();
    hits.into_iter()
        .map(|(_, tool)| tool)
        .filter(|tool| seen.insert(*tool))
        .collect()
}

/// Scores count down with the rank. Programs that read runs sort by score and break ties in their
/// own ways, and the order of the engine must be kept.
fn run_file(set: &EvalSet, run: &ArmRun) -> String {
    let mut text = String::new();
    for (query, ranking) in set.queries.iter().zip(&run.rankings) {
        for (index, &tool) in ranking.iter().enumerate() {
            let (query, tool, score) = (
                escape(&query.id),
                escape(set.tool(tool).id.as_str()),
                ranking.len() - index,
            );
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{query} Q0 {tool} {} {score} {}", index + 1, run.name);
        }
    }
    text
}

fn qrels(set: &EvalSet) -> String {
    let judged = set
        .queries
        .iter()
        .flat_map(|query| query.relevant.iter().map(move |&tool| (query, tool)));
    judged
        .map(|(query, tool)| {
            format!(
                "{} 0 {} 1\n",
                escape(&query.id),
                escape(set.tool(tool).id.as_str())
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eval::dataset::testing::set;

    fn made() -> (EvalSet, ArmRun) {
        let set = set(
            &[("Trends Hub/two words", "x"), ("b", "y"), ("c", "z")],
            &[
                ("q 1", "x", &["Trends Hub/two words"]),
                ("q2", "y", &["b", "c"]),
            ],
        );
        (
            set,
            ArmRun {
                name: "hybrid".into(),
                rankings: vec![vec![2, 0, 1], vec![]],
                degraded: 0,
                abstained: 0,
            },
        )
    }

    #[test]
    fn written_runs_are_read_back() {
        let (set, run) = made();
        let folder = tempfile::tempdir().unwrap();
        let files = write_all(
            &folder.path().join("out.trec"),
            &set,
            std::slice::from_ref(&run),
        )
        .unwrap();
        let names: Vec<_> = files
            .iter()
            .map(|file| file.file_name().unwrap().to_str().unwrap())
            .collect();
        assert_eq!(names, ["out.up.qrels", "out.up.hybrid.trec"]);
        let text = std::fs::read_to_string(&files[1]).unwrap();
        assert_eq!(
            text.lines().nth(1),
            Some("q%201 Q0 Trends%20Hub/two%20words 2 2 hybrid")
        );
        assert_eq!(
            std::fs::read_to_string(&files[0]).unwrap().lines().count(),
            3
        );
        let back = read_run(&files[1], &set).unwrap();
        assert_eq!(
            (back.rankings, back.name.as_str()),
            (run.rankings, "out.up.hybrid")
        );
    }

    #[test]
    fn runs_of_other_programs_are_sorted_by_score() {
        let (set, _) = made();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("other.run");
        std::fs::write(
            &path,
            "q2 Q0 b 1 .25 x\nq2 Q0 c 2 0.5 x\nelse Q0 nothing 1 1 x\n",
        )
        .unwrap();
        assert_eq!(
            read_run(&path, &set).unwrap().rankings,
            [vec![], vec![2, 1]]
        );
        for (text, expected) in [
            ("q2 Q0 nothing 1 1 x", "no tool \"nothing\""),
            ("q2 b 1", "3 columns"),
            ("q2 Q0 b 1 high x", "\"high\" is not a number"),
        ] {
            std::fs::write(&path, text).unwrap();
            let message = read_run(&path, &set).unwrap_err().to_string();
            assert!(
                message.contains(expected) && message.contains("other.run:1"),
                "{message}"
            );
        }
    }
}
