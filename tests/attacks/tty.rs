//! The program at a terminal: a pseudo-terminal with a person who types.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// Longest wait for something to be shown; only a test that fails waits for it.
const PATIENCE: Duration = Duration::from_secs(60);
/// Columns of the terminal.
pub const WIDTH: u16 = 80;

/// A program whose input and outputs are one terminal. Ended on drop.
pub struct Tty {
    child: Child,
    keyboard: File,
    screen: Arc<Screen>,
}

#[derive(Default)]
struct Screen {
    text: Mutex<String>,
    more: Condvar,
}

/// A pseudo-terminal: the side of the person, and the side of the program.
fn pair() -> (OwnedFd, OwnedFd) {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a pseudo-terminal");
    grantpt(&master).expect("granted");
    unlockpt(&master).expect("unlocked");
    let name = ptsname(&master, Vec::new()).expect("a name");
    let slave = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty())
        .expect("its other side");
    tcsetwinsize(
        &master,
        Winsize {
            ws_row: 24,
            ws_col: WIDTH,
            ws_xpixel: 0,
            ws_ypixel: 0,
        },
    )
    .expect("a size");
    (master, slave)
}

impl Tty {
    /// Starts the program; `typed` stands at the terminal before it runs.
    pub fn start(mut command: Command, typed: &str) -> Self {
        let (master, slave) = pair();
        let side = || Stdio::from(slave.try_clone().expect("a copy"));
        let mut keyboard = File::from(master);
        keyboard.write_all(typed.as_bytes()).expect("typed");
        let child = command
            .stdin(side())
            .stdout(side())
            .stderr(side())
            .spawn()
            .expect("the program starts");
        let screen = Arc::<Screen>::default();
        let (mut source, shown) = (keyboard.try_clone().expect("a copy"), screen.clone());
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // Ends with an error once nobody has the other side open.
            while let Ok(read @ 1..) = source.read(&mut bytes) {
                shown
                    .text
                    .lock()
                    .unwrap()
                    .push_str(&String::from_utf8_lossy(&bytes[..read]));
                shown.more.notify_all();
            }
        });
        Tty {
            child,
            keyboard,
            screen,
        }
    }

    /// Types.
    pub fn type_in(&mut self, text: &str) {
        self.keyboard.write_all(text.as_bytes()).expect("typed");
    }

    /// Waits until this is shown, and gives everything shown so far.
    pub fn until(&self, expected: &str) -> String {
        self.until_it(expected, |text| text.contains(expected))
    }

    /// Waits until this is the last that is shown.
    pub fn until_end(&self, expected: &str) -> String {
        self.until_it(expected, |text| {
            let shown = without_escapes(text);
            // An editor moves the cursor to where it is already.
            shown.trim_end_matches('\r').ends_with(expected)
        })
    }

    fn until_it(&self, expected: &str, is_shown: impl Fn(&str) -> bool) -> String {
        let text = self.screen.text.lock().unwrap();
        let waiting = |text: &mut String| !is_shown(text);
        let (text, late) = self
            .screen
            .more
            .wait_timeout_while(text, PATIENCE, waiting)
            .unwrap();
        assert!(!late.timed_out(), "{expected:?} was not shown, but\n{text}");
        text.clone()
    }

    /// Waits for the end of the program.
    pub fn end(&mut self) -> ExitStatus {
        self.child.wait().expect("the program ends")
    }
}

/// The text without the sequences that move the cursor and change modes.
fn without_escapes(text: &str) -> String {
    let mut parts = text.split("\x1b[");
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|c: char| c.is_ascii_alphabetic());
        shown.push_str(end.map_or("", |end| &part[end + 1..]));
    }
    shown
}

impl Drop for Tty {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
