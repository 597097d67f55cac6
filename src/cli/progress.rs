//! Progress bars on stderr.

mod lines;

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use indicatif::style::ProgressTracker;
use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use super::output::print_stderr;
use crate::printable;
use lines::Lines;

/// A bar that counts items and shows their rate and the time left. It takes what the texts leave of
/// the terminal's width.
pub const ITEMS: &str = "{msg} [{wide_bar}] {pos}/{len} {speed}";
/// The time between two lines where stderr is no terminal.
const PAUSE: Duration = Duration::from_secs(10);
/// How far back the rate looks.
const WINDOW: Duration = Duration::from_secs(5);

/// A progress bar in a template of indicatif. Where stderr is no terminal, a line every ten seconds.
pub fn bar(message: impl Into<String>, template: &str) -> ProgressBar {
    // Hidden at first, so that it is not drawn before its length is known.
    let bar = ProgressBar::hidden();
    bar.set_message(printable::line(&message.into()));
    if io::stderr().is_terminal() {
        bar.set_style(style(template));
        bar.set_draw_target(ProgressDrawTarget::stderr());
    } else {
        // In a log file a bar is only noise.
        bar.set_style(style(&template.replace("[{wide_bar}] ", "")));
        let lines = Lines::new(PAUSE, Box::new(|line| print_stderr(line)));
        bar.set_draw_target(ProgressDrawTarget::term_like_with_hz(Box::new(lines), 1));
    }
    bar
}

/// A spinner with the time that has passed, for a step whose length is unknown.
pub fn spinner(message: &'static str) -> ProgressBar {
    let spinner = bar(message, "{spinner} {msg} {elapsed}");
    spinner.enable_steady_tick(Duration::from_millis(100));
    spinner
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ")
        .with_key("speed", Speed::default())
}

/// Rate and time left over the last seconds, as `120/s, 9 seconds left`. indicatif's own estimate
/// remembers too long for work whose pace changes.
#[derive(Clone, Debug, Default)]
struct Speed {
    /// Times and positions within the window, oldest first.
    samples: VecDeque<(Instant, u64)>,
}

impl Speed {
    fn add(&mut self, now: Instant, position: u64) {
        self.samples.push_back((now, position));
        // The newest sample outside the window stays: the rate is measured from there.
        while let Some((at, _)) = self.samples.get(1)
            && now.duration_since(*at) >= WINDOW
        {
            self.samples.pop_front();
        }
    }

    /// Items a second; `None` before anything has moved.
    fn per_second(&self) -> Option<f64> {
        let (start, first) = self.samples.front()?;
        let (end, last) = self.samples.back()?;
        let seconds = end.duration_since(*start).as_secs_f64();
        let moved = last.saturating_sub(*first);
        if seconds <= 0.0 || moved == 0 {
            return None;
        }
        Some(moved as f64 / seconds)
    }

    fn text(&self, position: u64, length: u64) -> Option<String> {
        let rate = self.per_second()?;
        let seconds = length.saturating_sub(position) as f64 / rate;
        let left = HumanDuration(Duration::from_secs(seconds.ceil() as u64));
        Some(format!("{rate:.0}/s, {left:#} left"))
    }
}

impl ProgressTracker for Speed {
    fn clone_box(&self) -> Box<dyn ProgressTracker> {
        Box::new(self.clone())
    }

    fn tick(&mut self, state: &ProgressState, now: Instant) {
        self.add(now, state.pos());
    }

    fn reset(&mut self, _: &ProgressState, _: Instant) {
        self.samples.clear();
    }

    fn write(&self, state: &ProgressState, w: &mut dyn fmt::Write) {
        if let Some(text) = self.text(state.pos(), state.len().unwrap_or_default()) {
            // A failed write to the bar's own buffer leaves the bar shorter, nothing else.
            let _ = w.write_str(&text);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use indicatif::TermLike;
    use parking_lot::Mutex;

    use super::*;

    #[test]
    fn without_a_terminal_a_long_step_prints_lines() {
        let printed = Arc::new(Mutex::new(Vec::new()));
        let keep = {
            let printed = Arc::clone(&printed);
            Box::new(move |line: &str| printed.lock().push(line.to_owned()))
        };
        let lines = Lines::new(Duration::ZERO, keep);
        let bar = ProgressBar::with_draw_target(
            Some(18_917),
            ProgressDrawTarget::term_like_with_hz(Box::new(lines), 255),
        );
        bar.set_style(style(&ITEMS.replace("[{wide_bar}] ", "")));
        bar.set_message("embedding");
        bar.set_position(4_000);
        bar.tick();
        bar.finish_and_clear();
        let printed = printed.lock().clone();
        let last = printed.last().unwrap();
        assert!(last.starts_with("embedding 4000/18917"), "{printed:?}");
    }

    #[test]
    fn the_rate_is_whole_and_follows_the_last_seconds() {
        let start = Instant::now();
        let mut speed = Speed::default();
        assert_eq!(speed.text(0, 10), None);
        // A slow start of 10 a second, then 1,000 a second.
        for second in 0..10 {
            speed.add(start + Duration::from_secs(second), second * 10);
        }
        assert_eq!(speed.text(90, 190).as_deref(), Some("10/s, 10s left"));
        for second in 10..20 {
            speed.add(
                start + Duration::from_secs(second),
                90 + (second - 9) * 1_000,
            );
        }
        assert_eq!(speed.per_second().map(f64::round), Some(1_000.0));
        assert_eq!(
            speed.text(10_090, 70_090).as_deref(),
            Some("1000/s, 60s left")
        );
    }

    /// A terminal of 60 columns that keeps what is written.
    #[derive(Clone, Debug, Default)]
    struct Narrow(Arc<Mutex<String>>);

    impl TermLike for Narrow {
        fn width(&self) -> u16 {
            60
        }
        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn write_line(&self, text: &str) -> io::Result<()> {
            self.write_str(text)?;
            self.write_str("\n")
        }
        fn write_str(&self, text: &str) -> io::Result<()> {
            self.0.lock().push_str(text);
            Ok(())
        }
        fn clear_line(&self) -> io::Result<()> {
            self.write_str("\n")
        }
        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_bar_fits_sixty_columns() {
        let terminal = Narrow::default();
        let bar = ProgressBar::with_draw_target(
            Some(18_917),
            ProgressDrawTarget::term_like(Box::new(terminal.clone())),
        );
        bar.set_style(style(ITEMS));
        bar.set_message("embedding");
        bar.set_position(1);
        bar.set_position(12_345);
        // Draws it however shortly after the last time.
        bar.abandon();
        let drawn = terminal.0.lock().clone();
        let last = drawn.lines().rfind(|line| line.contains("12345/18917"));
        let last = last.unwrap_or_else(|| panic!("{drawn:?}"));
        assert!(last.trim_end().chars().count() <= 60, "{last:?}");
        assert!(last.contains('[') && last.contains("/s, "), "{last:?}");
    }
}
