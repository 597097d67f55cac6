//! Programs that try to leave the sandbox of the shell tool.
//!
//! The program is this file itself: the ignored test `attempts` finds out what the sandbox lets
//! through, and writes a line about each attempt.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd as _, FromRawFd as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::symlink;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use libc::{c_int, c_long};
use serde_json::{Value, json};
use toolscout::sandbox::{FileProtection, Parts};
use toolscout::tools::Callable;
use toolscout::tools::builtin::shell::{Shell, ShellConfig};

use super::table::Table;

/// What the attempts need to know, a file in the folder of the tool.
const TARGETS: &str = "targets.json";
/// This program as a test that makes the attempts.
const ATTEMPTS: &str = "attacks::sandbox::attempts";

/// Every attempt, and the error that refuses it.
const EXPECTED: &[(&str, &str)] = &[
    ("read a key of the user's", "EACCES"),
    ("read /etc/shadow", "EACCES"),
    ("list a folder outside", "EACCES"),
    ("write a new file outside", "EACCES"),
    ("overwrite a file outside", "EACCES"),
    ("append to a file outside", "EACCES"),
    ("empty a file outside by its path", "EACCES"),
    ("delete a file outside", "EACCES"),
    ("make a folder outside", "EACCES"),
    ("read through a link to outside", "EACCES"),
    ("write through a link to outside", "EACCES"),
    ("bring a file in by a hard link", "EXDEV"),
    ("bring a file in by renaming it", "EACCES"),
    ("bring a file out by renaming it", "EACCES"),
    ("change a mode outside", "EPERM"),
    ("change an owner outside", "EPERM"),
    ("change a time outside", "EPERM"),
    ("set an attribute outside", "EPERM"),
    ("run a program outside", "EACCES"),
    ("make a device in the folder", "EACCES"),
    ("write to the shared memory of the system", "EACCES"),
    ("open the terminal", "EACCES"),
    ("read the memory of the process outside", "EACCES"),
    ("read the environment of the process outside", "EACCES"),
    ("read the command line of the process outside", "EACCES"),
    ("change how the kernel writes dumps", "EACCES"),
    ("write to a file that was left open", "EBADF"),
    ("trace the process outside", "EPERM"),
    ("read its memory by a system call", "EPERM"),
    ("take its open files", "EPERM"),
    ("send it a signal", "EPERM"),
    ("change its limits", "EPERM"),
    ("change its priority", "EPERM"),
    ("connect over TCP", "EPERM"),
    ("listen on a TCP port", "EPERM"),
    ("send over UDP", "EPERM"),
    ("connect to an abstract socket", "EPERM"),
    ("connect to a socket with a path", "EPERM"),
    ("open a raw socket", "EPERM"),
    ("open a netlink socket", "EPERM"),
    ("open a socket to the host of a virtual machine", "EPERM"),
    ("mount", "EPERM"),
    ("unmount", "EPERM"),
    ("make a namespace of users", "EPERM"),
    ("make a namespace of mounts", "EPERM"),
    ("make a namespace by clone", "EPERM"),
    ("make a namespace by clone3", "ENOSYS"),
    ("enter the namespace of another process", "EPERM"),
    ("change the root", "EPERM"),
    ("use the keys of the kernel", "EPERM"),
    ("load a program into the kernel", "EPERM"),
    ("use io_uring", "EPERM"),
    ("watch the performance of others", "EPERM"),
    ("handle page faults", "EPERM"),
    ("open a file by its handle", "EPERM"),
    ("watch files outside", "EPERM"),
    ("attach shared memory", "EPERM"),
    ("open a queue of messages", "EPERM"),
    ("type into the terminal", "EPERM"),
    ("make a file unchangeable", "EPERM"),
    ("read the log of the kernel", "EPERM"),
    ("set the clock", "EPERM"),
    ("use the system calls of another interface", "ENOSYS"),
    ("use a system call that nobody has looked at", "ENOSYS"),
    ("gain rights from a program", "EPERM"),
];

// The attempts, inside

/// Makes a system call with whole numbers and pointers that are null.
fn call(number: c_long, arguments: &[c_long]) -> io::Result<c_long> {
    let at = |place: usize| arguments.get(place).copied().unwrap_or(0);
    // SAFETY: the arguments are numbers, null, or addresses of values that outlive the call.
    let result = unsafe { libc::syscall(number, at(0), at(1), at(2), at(3), at(4), at(5)) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}

fn address<T: ?Sized>(value: &T) -> c_long {
    std::ptr::from_ref(value).cast::<u8>() as c_long
}

fn socket(family: c_int, kind: c_int, protocol: c_int) -> io::Result<()> {
    call(
        libc::SYS_socket,
        &[family.into(), kind.into(), protocol.into()],
    )
    .map(drop)
}

type Attempt = (&'static str, Box<dyn Fn(&Targets) -> io::Result<()>>);

/// What is outside.
struct Targets(Value);

impl Targets {
    fn path(&self, name: &str) -> PathBuf {
        self.0[name].as_str().unwrap_or_default().into()
    }

    fn number(&self, name: &str) -> c_long {
        self.0[name].as_i64().unwrap_or_default()
    }

    fn of_process(&self, file: &str) -> PathBuf {
        format!("/proc/{}/{file}", self.number("process")).into()
    }
}

fn attempt(name: &'static str, made: impl Fn(&Targets) -> io::Result<()> + 'static) -> Attempt {
    (name, Box::new(made))
}

fn on_files() -> Vec<Attempt> {
    let append = |path: PathBuf| OpenOptions::new().append(true).open(path).map(drop);
    vec![
        attempt("read a key of the user's", |at| {
            fs::read(at.path("key")).map(drop)
        }),
        attempt("read /etc/shadow", |_| fs::read("/etc/shadow").map(drop)),
        attempt("list a folder outside", |at| {
            fs::read_dir(at.path("outside")).map(drop)
        }),
        attempt("write a new file outside", |at| {
            fs::write(at.path("outside").join("new"), "x")
        }),
        attempt("overwrite a file outside", |at| {
            fs::write(at.path("file"), "x")
        }),
        attempt("append to a file outside", move |at| {
            append(at.path("file"))
        }),
        attempt("empty a file outside by its path", |at| {
            let path = format!("{}\0", at.path("file").display());
            call(libc::SYS_truncate, &[address(path.as_str()), 0]).map(drop)
        }),
        attempt("delete a file outside", |at| {
            fs::remove_file(at.path("file"))
        }),
        attempt("make a folder outside", |at| {
            fs::create_dir(at.path("outside").join("f"))
        }),
        attempt("read through a link to outside", |at| {
            symlink(at.path("key"), "link")?;
            fs::read("link").map(drop)
        }),
        attempt("write through a link to outside", |at| {
            symlink(at.path("outside").join("new"), "link-to-new")?;
            fs::write("link-to-new", "x")
        }),
        attempt("bring a file in by a hard link", |at| {
            fs::hard_link(at.path("key"), "hard")
        }),
        attempt("bring a file in by renaming it", |at| {
            fs::rename(at.path("file"), "renamed")
        }),
        attempt("bring a file out by renaming it", |at| {
            fs::write("mine", "x")?;
            fs::rename("mine", at.path("outside").join("mine"))
        }),
    ]
}

fn on_attributes() -> Vec<Attempt> {
    vec![
        attempt("change a mode outside", |at| {
            use std::os::unix::fs::PermissionsExt as _;
            fs::set_permissions(at.path("key"), fs::Permissions::from_mode(0o666))
        }),
        attempt("change an owner outside", |at| {
            std::os::unix::fs::chown(at.path("key"), None, None)
        }),
        attempt("change a time outside", |at| {
            let path = format!("{}\0", at.path("key").display());
            let here = c_long::from(libc::AT_FDCWD);
            call(libc::SYS_utimensat, &[here, address(path.as_str()), 0, 0]).map(drop)
        }),
        attempt("set an attribute outside", |at| {
            let path = format!("{}\0", at.path("key").display());
            let (name, value) = ("user.x\0", "1");
            let arguments = [address(path.as_str()), address(name), address(value), 1, 0];
            call(libc::SYS_setxattr, &arguments).map(drop)
        }),
        attempt("make a file unchangeable", |_| {
            let file = File::create("unchangeable")?;
            let flags: c_int = 0;
            call(
                libc::SYS_ioctl,
                &[file.as_raw_fd().into(), 0x4008_6602, address(&flags)],
            )
            .map(drop)
        }),
        attempt("run a program outside", |at| {
            Command::new(at.path("program")).status().map(drop)
        }),
        attempt("make a device in the folder", |_| {
            let device = c_long::try_from(libc::makedev(1, 5)).unwrap();
            let here = c_long::from(libc::AT_FDCWD);
            let mode = c_long::from(libc::S_IFCHR | 0o600);
            call(
                libc::SYS_mknodat,
                &[here, address("device\0"), mode, device],
            )
            .map(drop)
        }),
        attempt("write to the shared memory of the system", |_| {
            fs::write("/dev/shm/toolscout-attack", "x")
        }),
        attempt("open the terminal", |_| File::open("/dev/tty").map(drop)),
        attempt("type into the terminal", |_| {
            call(libc::SYS_ioctl, &[0, 0x5412, address("x")]).map(drop)
        }),
        attempt("write to a file that was left open", |at| {
            let number = c_int::try_from(at.number("left_open")).unwrap();
            let mut buffer = [0; 64];
            let arguments = [number.into(), buffer.as_mut_ptr() as c_long, 0];
            call(libc::SYS_write, &arguments).map(drop)
        }),
    ]
}

fn on_processes() -> Vec<Attempt> {
    vec![
        attempt("read the memory of the process outside", |at| {
            File::open(at.of_process("mem")).map(drop)
        }),
        attempt("read the environment of the process outside", |at| {
            fs::read(at.of_process("environ")).map(drop)
        }),
        attempt("read the command line of the process outside", |at| {
            fs::read(at.of_process("cmdline")).map(drop)
        }),
        attempt("change how the kernel writes dumps", |_| {
            fs::write("/proc/sys/kernel/core_pattern", "x")
        }),
        attempt("trace the process outside", |at| {
            let attach = c_long::from(libc::PTRACE_SEIZE);
            call(libc::SYS_ptrace, &[attach, at.number("process"), 0, 0]).map(drop)
        }),
        attempt("read its memory by a system call", |at| {
            call(
                libc::SYS_process_vm_readv,
                &[at.number("process"), 0, 0, 0, 0, 0],
            )
            .map(drop)
        }),
        attempt("take its open files", |at| {
            let process = call(libc::SYS_pidfd_open, &[at.number("process"), 0])?;
            call(libc::SYS_pidfd_getfd, &[process, 1, 0]).map(drop)
        }),
        attempt("send it a signal", |at| {
            call(libc::SYS_kill, &[at.number("process"), 0]).map(drop)
        }),
        attempt("change its limits", |at| {
            let kind = c_long::from(libc::RLIMIT_CORE);
            call(libc::SYS_prlimit64, &[at.number("process"), kind, 0, 0]).map(drop)
        }),
        attempt("change its priority", |at| {
            let kind = c_long::from(libc::PRIO_PROCESS);
            call(libc::SYS_setpriority, &[kind, at.number("process"), 1]).map(drop)
        }),
        attempt("attach shared memory", |_| {
            let mode = c_long::from(libc::IPC_CREAT | 0o600);
            call(libc::SYS_shmget, &[0, 4096, mode]).map(drop)
        }),
        attempt("open a queue of messages", |_| {
            let flags = c_long::from(libc::O_CREAT | libc::O_RDWR);
            call(libc::SYS_mq_open, &[address("attack\0"), flags, 0o600, 0]).map(drop)
        }),
        attempt("gain rights from a program", |_| {
            // 1 is the answer where no program that is started gains any.
            match call(libc::SYS_prctl, &[c_long::from(libc::PR_GET_NO_NEW_PRIVS)])? {
                1 => Err(io::Error::from_raw_os_error(libc::EPERM)),
                _ => Ok(()),
            }
        }),
    ]
}

fn on_the_network() -> Vec<Attempt> {
    vec![
        attempt("connect over TCP", |at| {
            let port = u16::try_from(at.number("tcp")).unwrap();
            TcpStream::connect(("127.0.0.1", port)).map(drop)
        }),
        attempt("listen on a TCP port", |_| {
            TcpListener::bind("127.0.0.1:0").map(drop)
        }),
        attempt("send over UDP", |at| {
            let port = u16::try_from(at.number("tcp")).unwrap();
            let socket = UdpSocket::bind("127.0.0.1:0")?;
            socket.send_to(b"x", ("127.0.0.1", port)).map(drop)
        }),
        attempt("connect to an abstract socket", |at| {
            let name = at.path("abstract");
            let name = SocketAddr::from_abstract_name(name.to_string_lossy().as_bytes())?;
            UnixStream::connect_addr(&name).map(drop)
        }),
        attempt("connect to a socket with a path", |at| {
            UnixStream::connect(at.path("socket")).map(drop)
        }),
        attempt("open a raw socket", |_| {
            socket(libc::AF_INET, libc::SOCK_RAW, 1)
        }),
        attempt("open a netlink socket", |_| {
            socket(libc::AF_NETLINK, libc::SOCK_RAW, 0)
        }),
        attempt("open a socket to the host of a virtual machine", |_| {
            socket(libc::AF_VSOCK, libc::SOCK_STREAM, 0)
        }),
    ]
}

fn on_the_kernel() -> Vec<Attempt> {
    let number = |call_number: c_long, arguments: &'static [c_long]| {
        move |_: &Targets| call(call_number, arguments).map(drop)
    };
    let flag = |flag: c_int| move |_: &Targets| call(libc::SYS_unshare, &[flag.into()]).map(drop);
    let new_user = libc::CLONE_NEWUSER | libc::SIGCHLD;
    vec![
        attempt("mount", |_| {
            let (kind, place) = ("tmpfs\0", ".\0");
            let arguments = [address(kind), address(place), address(kind), 0, 0];
            call(libc::SYS_mount, &arguments).map(drop)
        }),
        attempt("unmount", |_| {
            call(libc::SYS_umount2, &[address("/proc\0"), 0]).map(drop)
        }),
        attempt("make a namespace of users", flag(libc::CLONE_NEWUSER)),
        attempt("make a namespace of mounts", flag(libc::CLONE_NEWNS)),
        attempt("make a namespace by clone", move |_| {
            match call(libc::SYS_clone, &[new_user.into()])? {
                // SAFETY: the child of the clone does nothing more.
                0 => unsafe { libc::_exit(0) },
                _ => Ok(()),
            }
        }),
        attempt(
            "make a namespace by clone3",
            number(libc::SYS_clone3, &[0, 0]),
        ),
        attempt(
            "enter the namespace of another process",
            number(libc::SYS_setns, &[0, 0]),
        ),
        attempt("change the root", |_| {
            call(libc::SYS_chroot, &[address(".\0")]).map(drop)
        }),
        attempt(
            "use the keys of the kernel",
            number(libc::SYS_keyctl, &[0, -3, 0]),
        ),
        attempt(
            "load a program into the kernel",
            number(libc::SYS_bpf, &[0, 0, 0]),
        ),
        attempt("use io_uring", number(libc::SYS_io_uring_setup, &[1, 0])),
        attempt(
            "watch the performance of others",
            number(libc::SYS_perf_event_open, &[0]),
        ),
        attempt("handle page faults", number(libc::SYS_userfaultfd, &[0])),
        attempt(
            "open a file by its handle",
            number(libc::SYS_open_by_handle_at, &[0, 0, 0]),
        ),
        attempt("watch files outside", number(libc::SYS_inotify_init1, &[0])),
        attempt(
            "read the log of the kernel",
            number(libc::SYS_syslog, &[10, 0, 0]),
        ),
        attempt("set the clock", number(libc::SYS_clock_settime, &[0, 0])),
        attempt(
            "use the system calls of another interface",
            number(libc::SYS_getpid | 0x4000_0000, &[]),
        ),
        attempt(
            "use a system call that nobody has looked at",
            number(500, &[]),
        ),
    ]
}

/// The name of an error.
fn name_of(error: &io::Error) -> String {
    let known = [
        (libc::EPERM, "EPERM"),
        (libc::EACCES, "EACCES"),
        (libc::EXDEV, "EXDEV"),
        (libc::EBADF, "EBADF"),
        (libc::ENOSYS, "ENOSYS"),
    ];
    let code = error.raw_os_error();
    let name = known.iter().find(|(known, _)| Some(*known) == code);
    name.map_or_else(|| error.to_string(), |(_, name)| (*name).to_owned())
}

#[test]
#[ignore = "the program that the test of the sandbox runs in it"]
fn attempts() {
    // Without the file it was started by hand, and makes no attempts.
    let Ok(targets) = fs::read_to_string(TARGETS) else {
        return;
    };
    let targets = Targets(serde_json::from_str(&targets).unwrap());
    let groups = [
        on_files(),
        on_attributes(),
        on_processes(),
        on_the_network(),
        on_the_kernel(),
    ];
    for (name, made) in groups.into_iter().flatten() {
        let came_of_it = match made(&targets) {
            Ok(()) => "got through".to_owned(),
            Err(error) => name_of(&error),
        };
        writeln!(io::stderr(), "ATTEMPT\t{name}\t{came_of_it}").unwrap();
    }
}

// Outside

/// What the attempts are about: a folder outside with files, sockets and a process.
struct Outside {
    folder: tempfile::TempDir,
    tool: tempfile::TempDir,
    left_open: File,
    _sockets: (TcpListener, UnixListener, UnixListener),
}

impl Outside {
    fn new() -> Self {
        let (folder, tool) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let at = |path: &str| folder.path().join(path);
        fs::create_dir(at(".ssh")).unwrap();
        fs::write(at(".ssh/id_ed25519"), "SECRET").unwrap();
        fs::write(at("file"), "file").unwrap();
        fs::copy("/bin/true", at("program")).unwrap();
        let name = format!("toolscout-attack-{}", std::process::id());
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let unix = UnixListener::bind(at("socket")).unwrap();
        let abstract_name = SocketAddr::from_abstract_name(name.as_bytes()).unwrap();
        let abstract_socket = UnixListener::bind_addr(&abstract_name).unwrap();
        // Without the flag that closes it when a program is started.
        let path = std::ffi::CString::new(at("left").to_str().unwrap()).unwrap();
        // SAFETY: the path ends in a NUL, and the number is that of a file that is open.
        let left_open = unsafe {
            let number = libc::open(path.as_ptr(), libc::O_CREAT | libc::O_WRONLY, 0o600);
            File::from_raw_fd(number)
        };
        let targets = json!({
            "outside": folder.path(), "key": at(".ssh/id_ed25519"), "file": at("file"),
            "program": at("program"), "socket": at("socket"), "abstract": name,
            "tcp": tcp.local_addr().unwrap().port(), "process": std::process::id(),
            "left_open": left_open.as_raw_fd(),
        });
        fs::write(tool.path().join(TARGETS), targets.to_string()).unwrap();
        Outside {
            folder,
            tool,
            left_open,
            _sockets: (tcp, unix, abstract_socket),
        }
    }

    /// What came of every attempt.
    async fn attempts(&self, sandbox: Value) -> BTreeMap<String, String> {
        let program = std::env::current_exe().unwrap();
        let words = [
            program.to_str().unwrap(),
            "--exact",
            ATTEMPTS,
            "--ignored",
            "--nocapture",
        ];
        let tool = shell(&[&words.join(" ")], self.tool.path(), &sandbox);
        let answer = run(&tool, &words).await;
        let lines = answer["stderr"].as_str().unwrap().lines();
        let attempts = lines.filter_map(|line| {
            let (name, came_of_it) = line.strip_prefix("ATTEMPT\t")?.split_once('\t')?;
            Some((name.to_owned(), came_of_it.to_owned()))
        });
        let attempts: BTreeMap<String, String> = attempts.collect();
        assert!(!attempts.is_empty(), "{answer}");
        attempts
    }
}

fn shell(allow: &[&str], dir: &Path, sandbox: &Value) -> Shell {
    let config = json!({ "allow": allow, "dir": dir, "sandbox": sandbox });
    Shell::new(&serde_json::from_value::<ShellConfig>(config).unwrap()).unwrap()
}

async fn run(tool: &Shell, words: &[&str]) -> Value {
    let arguments = json!({ "argv": words }).as_object().unwrap().clone();
    let answer = tool.call(arguments).await;
    answer.unwrap_or_else(|failure| panic!("{words:?}: {}", failure.message))
}

/// Whether this system has every part of the sandbox; without one there is nothing to try.
fn has_sandbox() -> bool {
    let parts = Parts::of_this_system();
    let is_whole = parts.files == FileProtection::Full && parts.system_calls;
    if !is_whole {
        let _ = writeln!(io::stderr(), "not tried: {:?}", parts.missing());
    }
    is_whole
}

#[tokio::test]
async fn programs_cannot_leave_the_sandbox() {
    if !has_sandbox() {
        return;
    }
    let outside = Outside::new();
    let came_of_it = outside.attempts(json!(true)).await;
    let mut table = Table::new("Against the sandbox", "programs_cannot_leave_the_sandbox");
    for (name, expected) in EXPECTED {
        let outcome = came_of_it
            .get(*name)
            .map_or("was not tried", String::as_str);
        let outcome = match outcome {
            "got through" => Ok(json!("it got through")),
            refused => Err(refused.to_owned()),
        };
        table.refused(name, outcome, expected);
    }
    assert_eq!(came_of_it.len(), EXPECTED.len(), "{came_of_it:?}");
    table.check(65);
    let read = |path: &str| fs::read_to_string(outside.folder.path().join(path)).unwrap();
    assert_eq!((read("file"), read("left")), ("file".into(), String::new()));
    assert!(outside.left_open.metadata().is_ok());
}

#[tokio::test]
async fn without_the_sandbox_programs_do_all_that() {
    let outside = Outside::new();
    let came_of_it = outside.attempts(json!(false)).await;
    for name in [
        "read a key of the user's",
        "list a folder outside",
        "write a new file outside",
        "change a mode outside",
        "read the environment of the process outside",
        "connect over TCP",
        "send over UDP",
        "connect to an abstract socket",
        "connect to a socket with a path",
        "run a program outside",
    ] {
        assert_eq!(came_of_it[name], "got through", "{name}");
    }
}

#[tokio::test]
async fn what_the_settings_allow_is_allowed_and_no_more() {
    if !has_sandbox() {
        return;
    }
    let outside = Outside::new();
    let folder = outside.folder.path();
    let came_of_it = outside
        .attempts(json!({ "network": true, "files": { "read": [folder] } }))
        .await;
    for (name, expected) in [
        ("read a key of the user's", "got through"),
        ("list a folder outside", "got through"),
        ("run a program outside", "got through"),
        ("connect over TCP", "got through"),
        ("send over UDP", "got through"),
        ("write a new file outside", "EACCES"),
        ("overwrite a file outside", "EACCES"),
        ("change a mode outside", "EPERM"),
        ("delete a file outside", "EACCES"),
        ("read /etc/shadow", "EACCES"),
        ("connect to an abstract socket", "EPERM"),
        ("connect to a socket with a path", "EPERM"),
        ("open a raw socket", "EPERM"),
        ("open a socket to the host of a virtual machine", "EPERM"),
    ] {
        assert_eq!(came_of_it[name], expected, "{name}");
    }
    let came_of_it = outside
        .attempts(json!({ "files": { "write": [folder] } }))
        .await;
    for (name, expected) in [
        ("write a new file outside", "got through"),
        ("append to a file outside", "got through"),
        ("connect over TCP", "EPERM"),
        ("change a mode outside", "EPERM"),
    ] {
        assert_eq!(came_of_it[name], expected, "{name}");
    }
}

#[tokio::test]
async fn ordinary_programs_work_in_the_sandbox() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("notes.txt"), "one\ntwo\n").unwrap();
    let script = "set -e; echo hi > made; cat made; echo x > \"$TMPDIR/t\"; cat \"$TMPDIR/t\"; touch made; ls -l made >/dev/null; date >/dev/null";
    fs::write(folder.path().join("script.sh"), script).unwrap();
    let git = |words: &[&str]| {
        let mut command = Command::new("git");
        command
            .args(["-c", "user.name=a", "-c", "user.email=a@b"])
            .args(words);
        assert!(
            command
                .current_dir(folder.path())
                .output()
                .unwrap()
                .status
                .success()
        );
    };
    git(&["init", "-q"]);
    git(&["add", "notes.txt"]);
    git(&["commit", "-q", "-m", "first"]);
    let allow = [
        "git log *",
        "git status",
        "git diff",
        "ls * -l",
        "cat *",
        "grep *",
        "sort *",
        "wc *",
        "sh script.sh",
    ];
    let tool = shell(&allow, folder.path(), &json!(true));
    for (words, expected) in [
        (&["git", "log"][..], "first"),
        (&["git", "status"], "script.sh"),
        (&["git", "diff"], ""),
        (&["ls", "."], "notes.txt"),
        (&["ls", ".", "-l"], "notes.txt"),
        (&["cat", "notes.txt"], "one\ntwo"),
        (&["cat", "/etc/passwd"], "root"),
        (&["grep", "two", "notes.txt"], "two"),
        (&["sort", "notes.txt"], "one"),
        (&["wc", "notes.txt"], "2"),
        (&["sh", "script.sh"], "hi\nx\n"),
    ] {
        let answer = run(&tool, words).await;
        let output = answer["stdout"].as_str().unwrap();
        assert!(
            answer["exit_code"] == 0 && output.contains(expected),
            "{words:?}: {answer}"
        );
    }
}

/// What the sandbox adds to the start of a program; run it by hand.
#[tokio::test]
#[ignore = "prints a measurement"]
async fn what_a_start_costs() {
    let folder = tempfile::tempdir().unwrap();
    for sandbox in [json!(false), json!(true), json!({ "network": true })] {
        let tool = shell(&["true"], folder.path(), &sandbox);
        let mut times = Vec::new();
        for _ in 0..50 {
            let from = Instant::now();
            run(&tool, &["true"]).await;
            times.push(from.elapsed());
        }
        times.sort_unstable();
        let median: Duration = times[times.len() / 2];
        writeln!(io::stderr(), "sandbox {sandbox}: median {median:?}").unwrap();
    }
}
