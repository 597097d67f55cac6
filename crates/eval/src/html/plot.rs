//! Plots as SVG text. Colours are CSS variables of the page, so that a plot is readable in light
//! and dark.

use std::fmt::Write as _;

use super::escape;
use toolscout_base::printable::counted;

const WIDTH: f64 = 640.0;
const LEFT: f64 = 140.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 44.0;
/// Height of a row in a plot with one row per item.
const ROW: f64 = 20.0;
/// Space between groups of rows.
const GAP: f64 = 14.0;
/// Number of colours that the page defines, from `--c0`.
const COLOURS: usize = 6;

/// A named line through points.
pub(super) struct Curve {
    pub(super) name: String,
    pub(super) points: Vec<(f64, f64)>,
    pub(super) shape: Shape,
}

/// How a line goes from point to point.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Straight,
    /// Along, then up or down: between two points nothing is known of what lies between them.
    Steps,
}

/// A figure with what lies around it, in one row.
pub(super) struct Whisker {
    pub(super) name: String,
    pub(super) value: f64,
    pub(super) low: f64,
    pub(super) high: f64,
    /// Written at the end of the row.
    pub(super) label: String,
}

/// Rows under a common heading.
pub(super) struct Group {
    pub(super) name: String,
    pub(super) rows: Vec<Whisker>,
}

/// A value axis: its title and its ends.
#[derive(Clone, Copy)]
pub(super) struct Axis<'a> {
    pub(super) title: &'a str,
    pub(super) start: f64,
    pub(super) end: f64,
}

impl<'a> Axis<'a> {
    /// The axis from 0 to this end.
    pub(super) fn to(title: &'a str, end: f64) -> Self {
        Axis {
            title,
            start: 0.0,
            end,
        }
    }

    /// Where a value lies, from 0 to 1.
    fn share(&self, value: f64) -> f64 {
        // What is beyond an end is drawn at the end, and not outside of the picture.
        ((value - self.start) / (self.end - self.start)).clamp(0.0, 1.0)
    }
}

/// Lines over two axes, with a legend. `mark` is one point of its own, with its name.
pub(super) fn lines(
    x: &Axis<'_>,
    y: &Axis<'_>,
    lines: &[Curve],
    mark: Option<(&str, f64, f64)>,
) -> String {
    let frame = Frame {
        x: *x,
        y: *y,
        height: 330.0,
    };
    let mut svg = frame.open(&format!("{} by {}", y.title, x.title));
    frame.x_axis(&mut svg);
    frame.y_axis(&mut svg);
    for (index, line) in lines.iter().enumerate() {
        let points = frame.path(line);
        let _ = write!(
            svg,
            r#"<polyline fill="none" stroke="{}" stroke-width="2" points="{}"/>"#,
            colour(index),
            points.join(" ")
        );
    }
    if let Some((_, px, py)) = mark {
        let _ = write!(
            svg,
            r#"<circle cx="{:.1}" cy="{:.1}" r="5" class="mark"/>"#,
            frame.x(px),
            frame.y(py)
        );
    }
    svg.push_str("</svg>");
    let marked =
        mark.map(|(name, ..)| format!(r#"<span><i class="mark"></i>{}</span>"#, escape(name)));
    format!(
        "{svg}{}",
        legend(lines.iter().map(|line| line.name.as_str()), marked)
    )
}

/// Points with how often each occurs, and the line on which both values are equal.
pub(super) fn scatter(x: &Axis<'_>, y: &Axis<'_>, points: &[(f64, f64, usize)]) -> String {
    let frame = Frame {
        x: *x,
        y: *y,
        height: 420.0,
    };
    let mut svg = frame.open(&format!("{} against {}", y.title, x.title));
    frame.x_axis(&mut svg);
    frame.y_axis(&mut svg);
    let (low, high) = (x.start.max(y.start), x.end.min(y.end));
    let _ = write!(
        svg,
        r#"<line x1="{:.1}" y1="{:.1}" x2="{:.1}" y2="{:.1}" class="equal"/>"#,
        frame.x(low),
        frame.y(low),
        frame.x(high),
        frame.y(high)
    );
    let most = points.iter().map(|point| point.2).max().unwrap_or(1);
    for &(px, py, count) in points {
        // The area stands for the number of queries.
        let radius = 3.5 + 12.5 * ((count - 1) as f64 / most as f64).sqrt();
        let _ = write!(
            svg,
            r#"<circle cx="{:.1}" cy="{:.1}" r="{radius:.1}" fill="{}" fill-opacity=".45"><title>{}</title></circle>"#,
            frame.x(px),
            frame.y(py),
            colour(0),
            counted(count, "query")
        );
    }
    svg.push_str("</svg>");
    svg
}

/// A dot and its whisker a row, in groups; the same name has the same colour in every group.
pub(super) fn whiskers(x: &Axis<'_>, groups: &[Group]) -> String {
    let rows: usize = groups.iter().map(|group| group.rows.len()).sum();
    let height = TOP + BOTTOM + rows as f64 * ROW + groups.len() as f64 * GAP;
    let frame = Frame {
        x: *x,
        y: Axis::to("", 1.0),
        height,
    };
    let mut svg = frame.open(x.title);
    frame.x_axis(&mut svg);
    let mut names: Vec<&str> = Vec::new();
    let mut top = TOP;
    for group in groups {
        let middle = top + (group.rows.len() as f64 * ROW + GAP) / 2.0;
        text(&mut svg, (LEFT - 10.0, middle + 4.0), "end", &group.name);
        for (index, row) in group.rows.iter().enumerate() {
            let known = names.iter().position(|name| *name == row.name);
            let colour_index = known.unwrap_or(names.len());
            if known.is_none() {
                names.push(&row.name);
            }
            let y = top + GAP / 2.0 + (index as f64 + 0.5) * ROW;
            whisker(&mut svg, &frame, row, y, colour_index);
        }
        top += group.rows.len() as f64 * ROW + GAP;
    }
    svg.push_str("</svg>");
    format!("{svg}{}", legend(names.into_iter(), None))
}

fn whisker(svg: &mut String, frame: &Frame, row: &Whisker, y: f64, index: usize) {
    let (low, value, high) = (frame.x(row.low), frame.x(row.value), frame.x(row.high));
    let colour = colour(index);
    // Writing to a string cannot fail.
    let _ = write!(
        svg,
        r#"<line x1="{low:.1}" x2="{high:.1}" y1="{y:.1}" y2="{y:.1}" stroke="{colour}" stroke-width="3" stroke-opacity=".45"/><circle cx="{value:.1}" cy="{y:.1}" r="5" fill="{colour}"/>"#
    );
    // A label that would not fit at the right end stands left of its whisker.
    let (x, anchor) = if high + 90.0 > WIDTH {
        (low - 8.0, "end")
    } else {
        (high + 8.0, "start")
    };
    text(svg, (x, y + 4.0), anchor, &row.label);
}

/// Maps values to places in the picture.
struct Frame<'a> {
    x: Axis<'a>,
    y: Axis<'a>,
    height: f64,
}

impl Frame<'_> {
    /// The points of a line in the picture.
    fn path(&self, line: &Curve) -> Vec<String> {
        let mut path = Vec::with_capacity(line.points.len());
        let mut last_y = None;
        for &(px, py) in &line.points {
            let (x, y) = (self.x(px), self.y(py));
            if line.shape == Shape::Steps
                && let Some(last_y) = last_y
            {
                path.push(format!("{x:.1},{last_y:.1}"));
            }
            path.push(format!("{x:.1},{y:.1}"));
            last_y = Some(y);
        }
        path
    }

    fn open(&self, title: &str) -> String {
        format!(
            r#"<svg viewBox="0 0 {WIDTH} {}" role="img" aria-label="{}">"#,
            self.height,
            escape(title)
        )
    }

    fn x(&self, value: f64) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * self.x.share(value)
    }

    fn y(&self, value: f64) -> f64 {
        self.bottom() - (self.bottom() - TOP) * self.y.share(value)
    }

    fn bottom(&self) -> f64 {
        self.height - BOTTOM
    }

    fn x_axis(&self, svg: &mut String) {
        for tick in ticks(self.x.start, self.x.end) {
            let x = self.x(tick);
            let _ = write!(
                svg,
                r#"<line x1="{x:.1}" x2="{x:.1}" y1="{TOP}" y2="{:.1}" class="grid"/>"#,
                self.bottom()
            );
            text(svg, (x, self.bottom() + 16.0), "middle", &number(tick));
        }
        text(
            svg,
            ((LEFT + WIDTH - RIGHT) / 2.0, self.height - 8.0),
            "middle",
            self.x.title,
        );
    }

    fn y_axis(&self, svg: &mut String) {
        for tick in ticks(self.y.start, self.y.end) {
            let y = self.y(tick);
            let _ = write!(
                svg,
                r#"<line x1="{LEFT}" x2="{:.1}" y1="{y:.1}" y2="{y:.1}" class="grid"/>"#,
                WIDTH - RIGHT
            );
            text(svg, (LEFT - 8.0, y + 4.0), "end", &number(tick));
        }
        let middle = (TOP + self.bottom()) / 2.0;
        let _ = write!(
            svg,
            r#"<text transform="translate({:.1} {middle:.1}) rotate(-90)" text-anchor="middle">{}</text>"#,
            LEFT - 56.0,
            escape(self.y.title)
        );
    }
}

/// Round steps, four to ten of them, between two ends.
fn ticks(start: f64, end: f64) -> Vec<f64> {
    let span = end - start;
    let magnitude = 10f64.powf(span.log10().floor());
    let steps = [0.1, 0.2, 0.5, 1.0].map(|step| step * magnitude);
    let step = steps.into_iter().find(|step| span / step <= 10.0);
    let step = step.unwrap_or(magnitude);
    // With a tolerance, so that an end that is a multiple of the step gets its tick.
    let first = (start / step - 1e-9).ceil();
    let mut ticks = Vec::new();
    for index in 0..=10 {
        let tick = (first + f64::from(index)) * step;
        if tick > end + step * 1e-9 {
            break;
        }
        ticks.push(tick);
    }
    ticks
}

fn number(value: f64) -> String {
    // Rounded first: a multiple of a step may be nearly 0, which is not written as -0.
    let rounded = (value * 1e3).round() / 1e3 + 0.0;
    rounded.to_string()
}

fn text(svg: &mut String, (x, y): (f64, f64), anchor: &str, text: &str) {
    let _ = write!(
        svg,
        r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{}</text>"#,
        escape(text)
    );
}

fn legend<'a>(names: impl Iterator<Item = &'a str>, more: Option<String>) -> String {
    let mut entries = String::new();
    for (index, name) in names.enumerate() {
        let (colour, name) = (colour(index), escape(name));
        let _ = write!(
            entries,
            r#"<span><i style="background:{colour}"></i>{name}</span>"#
        );
    }
    entries.extend(more);
    format!(r#"<p class="legend">{entries}</p>"#)
}

fn colour(index: usize) -> String {
    format!("var(--c{})", index % COLOURS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_reach_the_end() {
        assert_eq!(ticks(0.0, 50.0).len(), 11);
        assert_eq!(ticks(0.0, 50.0).last(), Some(&50.0));
        assert_eq!(
            ticks(0.0, 3.0)
                .iter()
                .map(|tick| number(*tick))
                .collect::<Vec<_>>(),
            ["0", "0.5", "1", "1.5", "2", "2.5", "3"]
        );
        for end in [0.07, 0.4, 1.0, 9.3, 120.0, 4_000.0] {
            let ticks = ticks(0.0, end);
            assert!(
                (4..=11).contains(&ticks.len())
                    && ticks.iter().all(|tick| *tick <= end * 1.000_001),
                "{end}: {ticks:?}"
            );
        }
    }

    #[test]
    fn values_are_drawn_on_the_scale_of_their_axes() {
        let frame = Frame {
            x: Axis::to("x", 1.0),
            y: Axis::to("y", 1.0),
            height: 330.0,
        };
        assert_eq!(
            (frame.x(0.0), frame.x(1.0), frame.y(0.0), frame.y(1.0)),
            (LEFT, WIDTH - RIGHT, 330.0 - BOTTOM, TOP)
        );
        assert_eq!(frame.x(7.0), WIDTH - RIGHT, "nothing is drawn outside");
    }

    #[test]
    fn steps_go_along_first_and_axes_may_start_below_0() {
        let axes = (Axis::to("x", 1.0), Axis::to("y", 1.0));
        let line = |shape| Curve {
            name: "roc".into(),
            points: vec![(0.0, 0.0), (1.0, 1.0)],
            shape,
        };
        let drawn = |shape| lines(&axes.0, &axes.1, &[line(shape)], None);
        let corner = format!("{:.1},{:.1}", WIDTH - RIGHT, 330.0 - BOTTOM);
        assert!(drawn(Shape::Steps).contains(&corner) && !drawn(Shape::Straight).contains(&corner));
        let below: Vec<String> = ticks(-0.4, 0.4).into_iter().map(number).collect();
        assert_eq!(
            below,
            [
                "-0.4", "-0.3", "-0.2", "-0.1", "0", "0.1", "0.2", "0.3", "0.4"
            ]
        );
        assert_eq!(ticks(12.0, 16.0).first(), Some(&12.0));
    }

    #[test]
    fn points_that_occur_often_are_larger() {
        let axis = Axis::to("a", 1.0);
        let svg = scatter(&axis, &axis, &[(0.0, 1.0, 1), (1.0, 1.0, 40)]);
        assert!(svg.contains(r#"r="3.5""#) && svg.contains("40 queries") && svg.contains("equal"));
    }

    #[test]
    fn names_are_escaped() {
        let line = Curve {
            name: "<b>".into(),
            points: vec![(0.0, 0.0)],
            shape: Shape::Straight,
        };
        let axes = (Axis::to("x & y", 1.0), Axis::to("y", 1.0));
        let svg = lines(&axes.0, &axes.1, &[line], None);
        assert!(svg.contains("&lt;b&gt;") && svg.contains("x &amp; y") && !svg.contains("<b>"));
    }
}
