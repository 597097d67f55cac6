//! Progress in lines, for a file or another program.

use std::fmt;
use std::io;
use std::time::{Duration, Instant};

use indicatif::TermLike;
use parking_lot::Mutex;

/// Longer lines are cut, and shorter ones filled with spaces, which are not printed.
const WIDTH: u16 = 120;

type Print = Box<dyn Fn(&str) + Send + Sync>;

/// A terminal of indicatif that prints the line drawn last, with a pause between two lines. The first
/// one comes after a pause too, so a short step prints nothing.
pub struct Lines {
    pause: Duration,
    print: Print,
    state: Mutex<LastLine>,
}

struct LastLine {
    printed: Instant,
    drawn: String,
}

impl Lines {
    pub fn new(pause: Duration, print: Print) -> Self {
        let state = LastLine {
            printed: Instant::now(),
            drawn: String::new(),
        };
        Lines {
            pause,
            print,
            state: Mutex::new(state),
        }
    }
}

impl fmt::Debug for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lines").finish_non_exhaustive()
    }
}

impl TermLike for Lines {
    fn width(&self) -> u16 {
        WIDTH
    }

    // A file has no cursor, so these do nothing.
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
        self.write_str(text)
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        let mut state = self.state.lock();
        state.drawn.push_str(text);
        Ok(())
    }

    fn clear_line(&self) -> io::Result<()> {
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        // What is not printed now is out of date by the next time.
        let drawn = std::mem::take(&mut state.drawn);
        let line = drawn.trim();
        if !line.is_empty() && state.printed.elapsed() >= self.pause {
            state.printed = Instant::now();
            (self.print)(line);
        }
        Ok(())
    }
}
