//! Writes TREC run files and qrels, for comparison with other programs.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::dataset::{EvalSet, escape};
use super::error::{Result, write};
use super::run::ArmRun;
use super::run_file::run_name;

/// Writes one run file per arm, and the judgements. `runs.trec` becomes `runs.SET.ARM.trec` and
/// `runs.SET.qrels`. Returns the paths.
///
/// White space, control characters and `%` in ids are percent-encoded, so that an id is one column.
///
/// # Errors
/// [`super::error::EvalError::Io`].
pub fn write_all(path: &Path, set: &EvalSet, runs: &[ArmRun]) -> Result<Vec<PathBuf>> {
    let stem = run_name(path);
    let extension = match path.extension() {
        Some(extension) => extension.to_string_lossy(),
        None => "trec".into(),
    };
    let set_name = escape(&set.name);
    let mut files = vec![(
        path.with_file_name(format!("{stem}.{set_name}.qrels")),
        qrels(set),
    )];
    for run in runs {
        files.push((
            path.with_file_name(format!(
                "{stem}.{set_name}.{}.{extension}",
                file_name(&run.name)
            )),
            run_file(set, run),
        ));
    }
    let mut written = Vec::with_capacity(files.len());
    for (file, text) in files {
        write(&file, &text)?;
        written.push(file);
    }
    Ok(written)
}

/// The name of an arm in the name of a file.
fn file_name(arm: &str) -> String {
    let fits = |c: char| c.is_alphanumeric() || "-_.=+,".contains(c);
    arm.chars().map(|c| if fits(c) { c } else { '_' }).collect()
}

/// The hits with the scores of the engine. Programs that read runs sort by score and break ties in
/// their own ways. Where the engine's order does not follow from the scores, as with pins and ties,
/// a score is lowered just below the one before it.
fn run_file(set: &EvalSet, run: &ArmRun) -> String {
    let mut text = String::new();
    let name = escape(&run.name);
    let rows = set.queries.iter().zip(&run.rankings).zip(&run.scores);
    for ((query, ranking), scores) in rows {
        let query = escape(&query.id);
        let mut before = f32::INFINITY;
        for (index, (&tool, score)) in ranking.iter().zip(scores).enumerate() {
            // In single precision, as trec_eval reads it: a smaller step would be a tie.
            let score = (*score as f32).min(before.next_down());
            before = score;
            let tool = escape(set.tool(tool).id.as_str());
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{query} Q0 {tool} {} {score} {name}", index + 1);
        }
    }
    text
}

fn qrels(set: &EvalSet) -> String {
    let mut text = String::new();
    for query in &set.queries {
        for (&tool, grade) in query.judged.iter().zip(&query.judgements.grades) {
            let (id, tool) = (escape(&query.id), escape(set.tool(tool).id.as_str()));
            let _ = writeln!(text, "{id} 0 {tool} {grade}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::testing::set;
    use crate::run_file::{RunOrder, read_run};

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
                // The second is pinned above a higher score, the third ties.
                scores: vec![vec![0.5, 0.75, 0.5], vec![]],
                degraded: 0,
                abstained: 0,
                file: None,
            },
        )
    }

    #[test]
    fn written_runs_are_read_back_in_the_order_of_the_engine() {
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
            text.lines().next(),
            Some("q%201 Q0 c 1 0.5 hybrid"),
            "the score of the engine"
        );
        assert_eq!(
            text.lines().nth(1),
            Some("q%201 Q0 Trends%20Hub/two%20words 2 0.49999997 hybrid")
        );
        assert_eq!(
            std::fs::read_to_string(&files[0]).unwrap().lines().count(),
            3
        );
        let back = read_run(&files[1], &set, RunOrder::Score).unwrap();
        assert_eq!(
            (back.rankings, back.name.as_str()),
            (run.rankings, "out.up.hybrid")
        );
    }
}
