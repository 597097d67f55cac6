//! `toolscout eval judge` and `eval agreement`: judgements of pooled hits, and how far two judges agree.

use std::collections::{BTreeMap, HashSet};
use std::fs::OpenOptions;
use std::io::{self, BufRead as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::json;
use toolscout_index::{Searcher, Tool, ToolId};

use super::super::Outcome;
use super::super::context::{Context, Legs};
use super::super::exit::UsageError;
use super::super::llm::LlmArgs;
use super::super::output::print_stderr;
use super::make::Asker;
use super::outputs::check_output;
use crate::eval::dataset::pasted::{self, PastedQuery};
use crate::eval::judged_line::JudgedLine;
use crate::eval::pool::{self, GRADES, MAX_GRADE, SHOWN_CHARS};
use crate::printable::{self, counted, excerpt};
use crate::regular_file;

/// Answers in a row without a grade that end a run.
const MAX_FAILURES_IN_A_ROW: usize = 3;

/// Who judges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Judge {
    /// You, in this terminal
    Person,
    /// The model of --llm
    Model,
}

/// Judge the pooled hits of search by words, by meaning and by both: by a person in the terminal, or by
/// a model. Each judged query is written at once, and another run goes on with the rest
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  toolscout eval judge queries.jsonl --out judged.jsonl\n  toolscout eval judge queries.jsonl --by model --llm ollama --model qwen3:8b --yes --out by-model.jsonl\n  toolscout eval agreement judged.jsonl by-model.jsonl"
)]
pub struct JudgeArgs {
    /// Queries, judged or not: lines {"id","query"}, or one text a line
    #[arg(value_name = "FILE")]
    queries: PathBuf,
    /// File of the judgements, which is added to
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Who judges
    #[arg(long, value_enum, default_value_t = Judge::Person, value_name = "JUDGE")]
    by: Judge,
    /// First hits of each setting that are judged
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=50))]
    depth: u16,
    /// Name of the judge in the file [default: person, or the name of the model]
    #[arg(long, value_name = "NAME")]
    judge: Option<String>,
    /// Send queries and definitions to the model without being asked
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    llm: LlmArgs,
}

/// The grades of one query, or an end.
enum Graded {
    Grades(Vec<Option<u8>>),
    End,
}

impl JudgeArgs {
    /// Judges query after query.
    pub(super) fn run(&self, context: &Context) -> Result<Outcome> {
        check_output(&self.out)
            .with_context(|| format!("--out {} cannot be written", self.out.display()))?;
        let text = regular_file::read_to_string(&self.queries)
            .with_context(|| format!("read {}", self.queries.display()))?;
        let searcher = context.open(Legs::All)?.searcher();
        let ids: Vec<ToolId> = searcher.ids_after(None).cloned().collect();
        let queries = pasted::read(&text, None, &ids)?;
        let mut done = HashSet::new();
        if self.out.exists() {
            for line in read_lines(&self.out)? {
                done.insert(line.id);
            }
        }
        let asker = match self.by {
            Judge::Person => None,
            Judge::Model => {
                let what = format!(
                    "{} with definitions of tools",
                    counted(queries.len(), "query")
                );
                Some(Asker::new(&self.llm, self.yes, &what)?)
            }
        };
        let judge = match (&self.judge, &asker) {
            (Some(name), _) => name.clone(),
            (None, Some(asker)) => asker.model.name().to_owned(),
            (None, None) => "person".to_owned(),
        };
        let mut left: Vec<&PastedQuery> = queries.iter().collect();
        // An earlier run may have judged some of them.
        left.retain(|query| !done.contains(&query.id));
        let progress = self.each(&left, &searcher, asker.as_ref(), &judge)?;
        self.report(context, &progress, left.len())
    }

    /// Judges these queries, up to an end that somebody wants, or too many useless answers.
    fn each(
        &self,
        queries: &[&PastedQuery],
        searcher: &Searcher,
        asker: Option<&Asker>,
        judge: &str,
    ) -> Result<Progress> {
        let arms = pool::arms(searcher)?;
        let mut progress = Progress::default();
        for (number, query) in queries.iter().enumerate() {
            // What was judged before is judged too, whether it is found or not.
            let judged = query.relevant.iter().flatten();
            let pooled = pool::tools(searcher, &arms, &query.text, self.depth.into(), judged)?;
            let tools: Vec<&Tool> = pooled.iter().map(AsRef::as_ref).collect();
            if tools.is_empty() {
                print_stderr(format_args!(
                    "{}: nothing is found, so nothing can be judged",
                    query.id
                ));
                continue;
            }
            let graded = match asker {
                Some(asker) => by_model(asker, query, &tools),
                None => by_person(query, &tools, (number + 1, queries.len()))?,
            };
            let Graded::Grades(grades) = graded else {
                break;
            };
            let mut relevant = BTreeMap::new();
            for (tool, grade) in tools.iter().zip(grades) {
                if let Some(grade) = grade {
                    relevant.insert(tool.id.to_string(), f64::from(grade));
                }
            }
            if relevant.is_empty() {
                progress.skipped += 1;
                progress.in_a_row += 1;
                // A person may skip as many as they like.
                if asker.is_some() && progress.in_a_row == MAX_FAILURES_IN_A_ROW {
                    print_stderr(format_args!(
                        "{MAX_FAILURES_IN_A_ROW} answers in a row gave no grade; no further query is sent"
                    ));
                    break;
                }
                continue;
            }
            progress.in_a_row = 0;
            progress.judged += 1;
            progress.pairs += relevant.len();
            progress.ungraded += tools.len() - relevant.len();
            // At once: a run of many queries may end at any of them.
            self.add(&JudgedLine {
                times: None,
                id: query.id.clone(),
                query: query.text.clone(),
                relevant,
                source: query.source.clone(),
                judge: Some(judge.to_owned()),
            })?;
        }
        Ok(progress)
    }

    fn add(&self, line: &JudgedLine) -> Result<()> {
        let file = OpenOptions::new().append(true).create(true).open(&self.out);
        file.and_then(|mut file| file.write_all(line.line().as_bytes()))
            .with_context(|| format!("write {}", self.out.display()))
    }

    fn report(&self, context: &Context, progress: &Progress, queries: usize) -> Result<Outcome> {
        let left = queries - progress.judged;
        if context.printer.is_json() {
            context.printer.json(&json!({
                "file": self.out, "judged": progress.judged, "pairs": progress.pairs,
                "without_grade": progress.ungraded, "left": left,
            }))?;
        } else {
            context.printer.text(format!(
                "{}: {} judged, {} graded, {} without a grade; {} left, with which another run goes on",
                self.out.display(),
                counted(progress.judged, "query"),
                counted(progress.pairs, "hit"),
                progress.ungraded,
                counted(left, "query"),
            ))?;
        }
        Ok(if progress.skipped == 0 {
            Outcome::Success
        } else {
            Outcome::Failure
        })
    }
}

#[derive(Default)]
struct Progress {
    judged: usize,
    pairs: usize,
    ungraded: usize,
    skipped: usize,
    in_a_row: usize,
}

fn by_model(asker: &Asker, query: &PastedQuery, tools: &[&Tool]) -> Graded {
    if asker.interrupt.is_raised() {
        return Graded::End;
    }
    let answer = match asker.ask(pool::request(&query.text, tools)) {
        Ok(answer) => answer,
        Err(error) => {
            print_stderr(format_args!("{}: {error:#}", query.id));
            // Counts as an answer without grades, of which only a few in a row end the run.
            String::new()
        }
    };
    Graded::Grades(pool::grades_of(&answer, tools.len()))
}

/// Asks the person at the terminal about each tool.
fn by_person(query: &PastedQuery, tools: &[&Tool], (number, of): (usize, usize)) -> Result<Graded> {
    print_stderr(format_args!(
        "\n[{number} of {of}] {}\n{GRADES}; s: skip, q: end",
        printable::line(&query.text)
    ));
    let mut grades = Vec::with_capacity(tools.len());
    for (place, tool) in tools.iter().enumerate() {
        print_stderr(format_args!(
            "({} of {}) {}: {}",
            place + 1,
            tools.len(),
            printable::line(tool.id.as_str()),
            printable::line(&excerpt(tool.description.trim(), SHOWN_CHARS))
        ));
        let Some(grade) = grade_of_person()? else {
            return Ok(Graded::End);
        };
        grades.push(grade);
    }
    Ok(Graded::Grades(grades))
}

/// A grade, or none for a skipped tool; `None` for the end.
fn grade_of_person() -> Result<Option<Option<u8>>> {
    loop {
        write!(io::stderr(), "grade [0-{MAX_GRADE}, s, q]: ")?;
        let mut line = String::new();
        // The end of the input.
        if io::stdin().lock().read_line(&mut line)? == 0 {
            return Ok(None);
        }
        match line.trim() {
            "q" => return Ok(None),
            "s" => return Ok(Some(None)),
            text => match text.parse() {
                Ok(grade) if grade <= MAX_GRADE => return Ok(Some(Some(grade))),
                _ => print_stderr(format_args!("{GRADES}; s: skip, q: end")),
            },
        }
    }
}

/// A figure that is not defined for every pair of judges.
fn figure(kappa: Option<f64>) -> String {
    match kappa {
        Some(kappa) => format!("{kappa:.3}"),
        None => "-".to_owned(),
    }
}

/// The judgements of a file.
fn read_lines(path: &Path) -> Result<Vec<JudgedLine>> {
    let text =
        regular_file::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    let mut lines = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        let line: JudgedLine = serde_json::from_str(line).with_context(|| {
            format!(
                "{}:{}: a line is {{\"id\",\"query\",\"relevant\":{{tool id: grade}}}}, as `eval judge` writes it",
                path.display(),
                number + 1
            )
        })?;
        lines.push(line);
    }
    Ok(lines)
}

/// Say how far two judges agree: the share of equal grades, and Cohen's kappa
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  toolscout eval agreement ann.jsonl by-model.jsonl\n  toolscout --json eval agreement ann.jsonl by-model.jsonl"
)]
pub struct AgreementArgs {
    /// Judgements, as `eval judge` writes them
    #[arg(value_name = "A")]
    a: PathBuf,
    /// Judgements of the same queries by another judge
    #[arg(value_name = "B")]
    b: PathBuf,
}

impl AgreementArgs {
    /// Prints the agreement.
    pub(super) fn run(&self, context: &Context) -> Result<Outcome> {
        let found = pool::agreement(&read_lines(&self.a)?, &read_lines(&self.b)?);
        if found.pairs == 0 {
            let message = format!(
                "{} and {} have no pair of query and tool in common; judge the same file of queries",
                self.a.display(),
                self.b.display()
            );
            return Err(UsageError(message).into());
        }
        if context.printer.is_json() {
            context.printer.json(&found)?;
            return Ok(Outcome::Success);
        }
        let rows = vec![
            vec![
                "grades".to_owned(),
                format!("{:.3}", found.same_grade),
                figure(found.kappa),
            ],
            vec![
                "relevant or not".to_owned(),
                format!("{:.3}", found.same_relevance),
                figure(found.kappa_relevance),
            ],
        ];
        context.printer.rows(&["of", "same", "kappa"], rows)?;
        context.printer.note(format_args!(
            "{} of {}; {} that only one file has",
            counted(found.pairs, "pair"),
            counted(found.queries, "query"),
            counted(found.left_out, "judgement")
        ))?;
        for pair in &found.disagreements {
            context.printer.note(format_args!(
                "{} and {}: {} for {}",
                pair.a,
                pair.b,
                printable::line(&pair.tool),
                printable::line(&excerpt(&pair.query, SHOWN_CHARS))
            ))?;
        }
        Ok(Outcome::Success)
    }
}
