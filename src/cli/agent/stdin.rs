//! Lines from standard input for the agent at the terminal.

use std::io::{self, BufRead};
use std::sync::mpsc as std_mpsc;

use tokio::sync::mpsc;

/// The lines of stdin, each read on request. Earlier input stays in the terminal's own buffer,
/// which can be discarded.
#[derive(Debug, Default)]
pub struct Input {
    /// The channels of requests and lines, once a line was requested.
    reader: Option<(std_mpsc::Sender<()>, mpsc::Receiver<String>)>,
    /// A line was requested and has not arrived.
    is_reading: bool,
}

impl Input {
    /// The next line; `None` at the end of input. When the future is dropped early, the next call
    /// waits for the same line.
    pub async fn next(&mut self) -> Option<String> {
        let (ask, lines) = self.reader.get_or_insert_with(line_reader);
        if !self.is_reading {
            // Fails when the reader has ended; `recv` then returns `None`.
            let _ = ask.send(());
            self.is_reading = true;
        }
        let line = lines.recv().await;
        self.is_reading = false;
        line
    }

    /// Discards input that was typed and not read, including an unfinished line.
    pub fn discard(&mut self) {
        #[cfg(unix)]
        // Fails where stdin is not a terminal; nobody is asked there.
        let _ = rustix::termios::tcflush(io::stdin(), rustix::termios::QueueSelector::IFlush);
        if let Some((_, lines)) = &mut self.reader
            && lines.try_recv().is_ok()
        {
            self.is_reading = false;
        }
    }
}

/// Starts a thread that reads one line per request. A thread, because reading a terminal cannot be
/// cancelled.
fn line_reader() -> (std_mpsc::Sender<()>, mpsc::Receiver<String>) {
    let (ask, asked) = std_mpsc::channel();
    let (sender, lines) = mpsc::channel(1);
    std::thread::spawn(move || {
        // A terminal delivers one line per read, so nothing is read ahead.
        let mut read = io::stdin().lock().lines().map_while(Result::ok);
        while asked.recv().is_ok() {
            let Some(line) = read.next() else { return };
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    (ask, lines)
}
