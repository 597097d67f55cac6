//! What figures of second answers say about switching.

use serde::Serialize;
use toolscout_base::clock::date;
use toolscout_base::printable::counted;
use utoipa::ToSchema;

use super::{Identity, ShadowFigures};

/// Nothing is said about switching with fewer calls.
pub const LEAST_CALLS: u64 = 20;
/// Standard errors in half a 95% interval.
const HALF_WIDTH: f64 = 1.96;

/// A mean with its 95% interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = ShadowEstimate)]
pub struct Estimate {
    /// The mean.
    pub mean: f64,
    /// Half of its 95% interval.
    pub plus_minus: f64,
}

impl Estimate {
    /// Of so many values, by their sum and that of their squares.
    fn of(sum: f64, squares: f64, count: u64) -> Option<Self> {
        if count == 0 {
            return None;
        }
        let n = count as f64;
        let mean = sum / n;
        // Rounding may make a variance of nearly 0 negative.
        let variance = (squares - n * mean * mean).max(0.0) / (n - 1.0).max(1.0);
        // Without a difference among n values, up to 3 in n may differ (the rule of three).
        let plus_minus = (HALF_WIDTH * (variance / n).sqrt()).max((3.0 / n).min(1.0));
        Some(Estimate {
            mean: rounded(mean),
            plus_minus: rounded(plus_minus),
        })
    }

    fn is_beyond_chance(&self) -> bool {
        self.mean.abs() > self.plus_minus
    }
}

fn rounded(number: f64) -> f64 {
    (number * 1e4).round() / 1e4
}

/// A figure of called tools in both answers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = ShadowComparedFigure)]
pub struct ComparedFigure {
    /// Its mean in live answers.
    pub live: f64,
    /// Its mean in second answers.
    pub shadow: f64,
    /// What switching gains, with the interval of the differences of pairs.
    pub gain: Estimate,
}

/// What the figures say about switching.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = ShadowVerdict)]
pub enum Verdict {
    /// Called tools are first more often.
    Gains,
    /// Called tools are first less often.
    Loses,
    /// The difference may be chance.
    Chance,
    /// There are too few calls.
    TooLittle,
}

/// The figures of one day.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = ShadowDay)]
pub struct ShadowDay {
    /// The day (UTC).
    pub day: String,
    /// Searches that got a second answer.
    pub searches: u64,
    /// Those of them after which a tool was called that they had shown.
    pub calls: u64,
    /// Those whose tool the live answer had first.
    pub live_first: u64,
    /// Those whose tool the second answer has first.
    pub shadow_first: u64,
}

/// What switching to a shadow would change.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct ShadowReport {
    /// The hash of all that differs: another one begins anew.
    pub shadow: String,
    /// What differs.
    pub differences: Vec<String>,
    /// The share of the searches that get a second answer.
    pub share: f64,
    /// What the figures say.
    pub verdict: Verdict,
    /// The same in a sentence.
    pub summary: String,
    /// Searches that got a second answer.
    pub searches: u64,
    /// The share of the first five hits that both answers have; null without a search.
    pub overlap_at_5: Option<Estimate>,
    /// The share of the searches with the same first hit in both answers; null without a search.
    pub same_first_hit: Option<f64>,
    /// Searches after which a tool was called that they had shown.
    pub calls: u64,
    /// Those of them whose tool the second answer does not show.
    pub absent: u64,
    /// How often called tools are first; null without a call.
    pub first_place: Option<ComparedFigure>,
    /// The reciprocal of the place of called tools, 0 for an absent one; null without a call.
    pub reciprocal_place: Option<ComparedFigure>,
    /// By day, the newest first.
    pub days: Vec<ShadowDay>,
}

impl ShadowReport {
    /// The report on these days, each with its figures.
    pub fn of(identity: &Identity, days: &[(i64, ShadowFigures)]) -> Self {
        let mut all = ShadowFigures::default();
        for (_, figures) in days {
            all.add(figures);
        }
        let overlap_at_5 = Estimate::of(all.overlap, all.overlap_squares, all.searches);
        let first_place = compared(
            [all.live_first as f64, all.second_first as f64],
            all.first_moved as f64,
            all.calls,
        );
        let reciprocal_place = compared(
            [all.live_reciprocal, all.second_reciprocal],
            all.reciprocal_squares,
            all.calls,
        );
        let same_first = all.same_first as f64 / all.searches as f64;
        let verdict = verdict(first_place, all.calls);
        ShadowReport {
            shadow: identity.id.clone(),
            differences: identity.differences.clone(),
            share: identity.share,
            verdict,
            summary: summary(verdict, first_place, &all),
            searches: all.searches,
            overlap_at_5,
            same_first_hit: (all.searches > 0).then(|| rounded(same_first)),
            calls: all.calls,
            absent: all.absent,
            first_place,
            reciprocal_place,
            days: days.iter().rev().map(day).collect(),
        }
    }
}

fn compared([live, second]: [f64; 2], squares: f64, calls: u64) -> Option<ComparedFigure> {
    Some(ComparedFigure {
        gain: Estimate::of(second - live, squares, calls)?,
        live: rounded(live / calls as f64),
        shadow: rounded(second / calls as f64),
    })
}

fn verdict(first_place: Option<ComparedFigure>, calls: u64) -> Verdict {
    match first_place {
        Some(first) if calls >= LEAST_CALLS => match first.gain {
            gain if !gain.is_beyond_chance() => Verdict::Chance,
            gain if gain.mean > 0.0 => Verdict::Gains,
            _ => Verdict::Loses,
        },
        _ => Verdict::TooLittle,
    }
}

fn summary(verdict: Verdict, first_place: Option<ComparedFigure>, all: &ShadowFigures) -> String {
    let of = format!(
        "({}, {} compared)",
        grouped(&counted(all.calls, "call")),
        grouped(&counted(all.searches, "search"))
    );
    let (mean, plus_minus) = match first_place {
        Some(ComparedFigure { gain, .. }) => (gain.mean, gain.plus_minus),
        None => (0.0, 0.0),
    };
    let (size, interval) = (short(mean.abs(), plus_minus), short(plus_minus, plus_minus));
    let what = "in first place of called tools";
    match verdict {
        Verdict::Gains => format!("switching gains {size} ± {interval} {what} {of}"),
        Verdict::Loses => format!("switching loses {size} ± {interval} {what} {of}"),
        Verdict::Chance => {
            let sign = if mean < 0.0 { "-" } else { "+" };
            format!("switching changes {sign}{size} ± {interval} {what}, which may be chance {of}")
        }
        Verdict::TooLittle => {
            format!(
                "too little is known: it takes {LEAST_CALLS} calls of tools that were found {of}"
            )
        }
    }
}

/// Without a zero before the point, and as many digits as the interval leaves any sense.
fn short(number: f64, interval: f64) -> String {
    let digits = match interval {
        wide if wide >= 0.005 => 2,
        wide if wide >= 0.0005 => 3,
        _ => 4,
    };
    let text = format!("{number:.digits$}");
    match text.strip_prefix('0') {
        Some(short) => short.to_owned(),
        None => text,
    }
}

/// The number that a text begins with, with its thousands apart.
fn grouped(text: &str) -> String {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let mut grouped = String::with_capacity(text.len() + digits / 3);
    for (index, c) in text.chars().enumerate() {
        if index > 0 && index < digits && (digits - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(c);
    }
    grouped
}

fn day((day, figures): &(i64, ShadowFigures)) -> ShadowDay {
    ShadowDay {
        day: date(*day),
        searches: figures.searches,
        calls: figures.calls,
        live_first: figures.live_first,
        shadow_first: figures.second_first,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(searches: u64, calls: u64, gained: u64, lost: u64) -> ShadowReport {
        let figures = ShadowFigures {
            searches,
            overlap: searches as f64,
            overlap_squares: searches as f64,
            calls,
            live_first: lost,
            second_first: gained,
            first_moved: gained + lost,
            ..ShadowFigures::default()
        };
        ShadowReport::of(&Identity::default(), &[(1, figures)])
    }

    #[test]
    fn the_summary_says_what_switching_changes_and_how_sure_that_is() {
        for (figures, verdict, summary) in [
            (
                report(2_910, 312, 14, 2),
                Verdict::Gains,
                "switching gains .04 ± .02 in first place of called tools (312 calls, 2,910 searches compared)",
            ),
            (
                report(40, 20, 0, 20),
                Verdict::Loses,
                "switching loses 1.00 ± .15 in first place of called tools (20 calls, 40 searches compared)",
            ),
            (
                report(40, 30, 3, 4),
                Verdict::Chance,
                "switching changes -.03 ± .18 in first place of called tools, which may be chance (30 calls, 40 \
                 searches compared)",
            ),
            (
                report(40, 30, 0, 0),
                Verdict::Chance,
                "switching changes +.00 ± .10 in first place of called tools, which may be chance (30 calls, 40 \
                 searches compared)",
            ),
            (
                report(1, 19, 19, 0),
                Verdict::TooLittle,
                "too little is known: it takes 20 calls of tools that were found (19 calls, 1 search compared)",
            ),
            (
                report(0, 0, 0, 0),
                Verdict::TooLittle,
                "too little is known: it takes 20 calls of tools that were found (0 calls, 0 searches compared)",
            ),
            (
                report(1_000_000, 1_000_000, 1_500, 500),
                Verdict::Gains,
                "switching gains .0010 ± .0001 in first place of called tools (1,000,000 calls, 1,000,000 searches \
                 compared)",
            ),
        ] {
            assert_eq!(figures.summary, summary);
            assert_eq!(figures.verdict, verdict, "{summary}");
        }
    }

    #[test]
    fn an_interval_is_that_of_the_mean_of_paired_differences() {
        // 60 of +1 and 20 of -1 among 400: mean .1, variance (80 - 4) / 399.
        let estimate = Estimate::of(40.0, 80.0, 400).unwrap();
        let half = 1.96 * (76.0_f64 / 399.0 / 400.0).sqrt();
        assert_eq!(estimate.mean, 0.1);
        assert!((estimate.plus_minus - half).abs() < 1e-4, "{estimate:?}");
        assert_eq!(Estimate::of(0.0, 0.0, 0), None);
        let equal = Estimate::of(300.0, 300.0, 300).unwrap();
        assert_eq!((equal.mean, equal.plus_minus), (1.0, 0.01));
    }

    #[test]
    fn days_come_newest_first() {
        let day = |day| (day, ShadowFigures::default());
        let report = ShadowReport::of(&Identity::default(), &[day(0), day(1)]);
        let days = report.days.iter().map(|day| day.day.as_str());
        assert_eq!(days.collect::<Vec<_>>(), ["1970-01-02", "1970-01-01"]);
        assert_eq!((report.overlap_at_5, report.same_first_hit), (None, None));
    }
}
