//! The pages of simulated agents.

use std::fmt::Write as _;

use super::plot::{Axis, Group, Whisker, whiskers};
use super::{escape, figure, share, small, whole};
use crate::agent::learning::LearningReport;
use crate::agent::{AgentReport, ArmFigures};
use crate::report::marked;

const OF_POLICIES: &str = "success: share of the turns in which every needed tool was called. tokens in: of all rounds; fresh: those that a provider with a prompt cache has to process. Means over the turns.";

/// The page of simulations without a memory.
pub fn agent_page(reports: &[AgentReport]) -> String {
    let names: Vec<&str> = reports.iter().map(|report| report.set.as_str()).collect();
    let sections: String = reports.iter().map(section).collect();
    whole(
        &format!("Simulated agent on {}", names.join(", ")),
        &sections,
    )
}

fn section(report: &AgentReport) -> String {
    let remark = if report.trained_on {
        "<p class=\"remark\">The ranker was trained on this set: figures with it look better than on requests it has not seen.</p>"
    } else {
        ""
    };
    let success: Vec<Group> = report.arms.iter().map(success_row).collect();
    let of_success = "Share of the turns in which every needed tool was called, with its 95% bootstrap interval.";
    let of_tokens = "Prompt tokens of a turn, tools and searches included (dot), and those after the longest common prefix with the request before (start of the line).";
    format!(
        "<section><h2>{}</h2><p>{} tools, {} conversations of {} turns, made of {} queries that need several tools; seed {}, embedder {}, toolscout {}.</p>{}{remark}{}{}{}</section>",
        escape(&marked(&report.set, report.queries)),
        report.tools,
        report.conversations,
        report.turns,
        report.queries,
        report.seed,
        escape(&report.embedder),
        escape(&report.version),
        small(report.queries),
        figure(
            "Success",
            of_success,
            &whiskers(&Axis::to("share of the turns", 1.0), &success)
        ),
        figure("Tokens", of_tokens, &tokens(&report.arms)),
        table(&marked(&report.set, report.queries), &report.arms)
    )
}

fn success_row(arm: &ArmFigures) -> Group {
    let [low, high] = arm.success_ci95.unwrap_or([arm.success; 2]);
    let row = Whisker {
        name: "success".to_owned(),
        value: arm.success,
        low,
        high,
        label: share(arm.success),
    };
    Group {
        name: arm.name(),
        rows: vec![row],
    }
}

fn tokens(arms: &[ArmFigures]) -> String {
    let mut groups = Vec::with_capacity(arms.len());
    // At least 1, so that the axis has a length if no token was counted.
    let mut most = 1.0_f64;
    for arm in arms {
        most = most.max(arm.tokens_in);
        let row = Whisker {
            name: "tokens in".to_owned(),
            value: arm.tokens_in,
            low: arm.tokens_in_fresh.min(arm.tokens_in),
            high: arm.tokens_in,
            label: format!("{:.0}", arm.tokens_in),
        };
        groups.push(Group {
            name: arm.name(),
            rows: vec![row],
        });
    }
    // The labels stand right of the dots.
    whiskers(&Axis::to("tokens of a turn", most * 1.15), &groups)
}

fn table(first: &str, arms: &[ArmFigures]) -> String {
    let mut html = format!(
        "<div class=\"wide\"><table><tr><th>{}</th><th>success</th><th>needs met</th><th>searches</th><th>rounds</th><th>tokens in</th><th>fresh</th><th>tokens out</th><th>loaded</th><th>unloaded</th><th>refused</th></tr>",
        escape(first)
    );
    for arm in arms {
        // Writing to a string cannot fail.
        let _ = write!(
            html,
            "<tr><th>{}</th><td>{}</td><td>{}</td><td>{:.2}</td><td>{:.2}</td><td>{:.0}</td><td>{:.0}</td><td>{:.0}</td><td>{:.2}</td><td>{:.2}</td><td>{}</td></tr>",
            escape(&arm.name()),
            share(arm.success),
            share(arm.needs_met),
            arm.searches,
            arm.rounds,
            arm.tokens_in,
            arm.tokens_in_fresh,
            arm.tokens_out,
            arm.tools_injected,
            arm.tools_evicted,
            arm.calls_refused
        );
    }
    let _ = write!(html, "</table></div><p class=\"note\">{OF_POLICIES}</p>");
    html
}

/// The page of simulations with a usage memory.
pub fn learning_page(reports: &[LearningReport]) -> String {
    let names: Vec<&str> = reports.iter().map(|report| report.set.as_str()).collect();
    let sections: String = reports.iter().map(learned).collect();
    whole(
        &format!("What a memory learns on {}", names.join(", ")),
        &sections,
    )
}

/// A figure without an interval: the report has one of the gain alone.
fn dot(name: &str, value: f64) -> Whisker {
    Whisker {
        name: name.to_owned(),
        value,
        low: value,
        high: value,
        label: share(value),
    }
}

fn learned(report: &LearningReport) -> String {
    let name = marked(&report.set, report.held_out);
    let mut html = format!(
        "<section><h2>{}</h2><p>{} tools; {} conversations of {} turns taught {} pairs of request and tool; {} queries were held out. Seed {}, embedder {}, toolscout {}.</p>{}",
        escape(&name),
        report.tools,
        report.conversations,
        report.turns,
        report.remembered,
        report.held_out,
        report.seed,
        escape(&report.embedder),
        escape(&report.version),
        small(report.held_out)
    );
    let mut groups = Vec::with_capacity(report.searches.len());
    for gain in &report.searches {
        groups.push(Group {
            name: gain.metric.clone(),
            rows: vec![dot("before", gain.before), dot("after", gain.after)],
        });
    }
    html.push_str(&figure(
        "Search of the held-out queries",
        "Before the conversations and after them.",
        &whiskers(&Axis::to("mean", 1.0), &groups),
    ));
    let _ = write!(
        html,
        "<div class=\"wide\"><table><tr><th>{}</th><th>before</th><th>after</th><th>95% of the gain</th><th>p</th></tr>",
        escape(&name)
    );
    for gain in &report.searches {
        let [low, high] = gain.gain_ci95;
        let _ = write!(
            html,
            "<tr><th>{}</th><td>{}</td><td>{}</td><td>{low:+.3} to {high:+.3}</td><td>{:.4}</td></tr>",
            escape(&gain.metric),
            share(gain.before),
            share(gain.after),
            gain.gain_p
        );
    }
    html.push_str("</table></div><h3>Conversations of the held-out queries</h3>");
    // Both have one policy, so its name alone would not tell them apart.
    let arms = [("before", &report.before), ("after", &report.after)];
    let arms = arms.map(|(when, arm)| ArmFigures {
        policy: format!("{}, {when}", arm.policy),
        ..arm.clone()
    });
    html.push_str(&table(&name, &arms));
    html.push_str("</section>");
    html
}
