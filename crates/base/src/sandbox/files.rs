//! Which files a program in a sandbox may use: the rules for Landlock.

use std::io;
use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetError, Scope, make_bitflags,
};

use crate::sandbox::SandboxFiles;

/// The newest rights that are asked for; those that the kernel does not know are left out.
const FILE_RIGHTS: ABI = ABI::V5;

/// Where the system's programs and libraries are.
const PROGRAMS: [&str; 9] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/nix/store",
    "/gnu/store",
];
/// What programs read of the system's settings. None of these holds a secret.
const SETTINGS: [&str; 40] = [
    "/etc/alternatives",
    "/etc/bindresvport.blacklist",
    "/etc/ca-certificates",
    "/etc/crypto-policies",
    "/etc/debian_version",
    "/etc/ethertypes",
    "/etc/fonts",
    "/etc/gai.conf",
    "/etc/group",
    "/etc/host.conf",
    "/etc/hostname",
    "/etc/hosts",
    "/etc/inputrc",
    "/etc/issue",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/ld.so.preload",
    "/etc/locale.alias",
    "/etc/locale.conf",
    "/etc/localtime",
    "/etc/lsb-release",
    "/etc/magic",
    "/etc/mime.types",
    "/etc/networks",
    "/etc/nsswitch.conf",
    "/etc/os-release",
    "/etc/passwd",
    "/etc/perl",
    "/etc/pki/ca-trust",
    "/etc/pki/tls/certs",
    "/etc/protocols",
    "/etc/resolv.conf",
    "/etc/rpc",
    "/etc/services",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/terminfo",
    "/etc/timezone",
    "/run/systemd/resolve",
];
/// Devices without state, to read and write.
const DEVICES: [&str; 5] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
];

/// What one program may use.
pub struct Rules<'a> {
    pub settings: &'a SandboxFiles,
    /// The folder of the tool or server.
    pub folder: Option<&'a Path>,
    /// The folder for temporary files.
    pub private: &'a Path,
    /// The program itself, which may lie elsewhere.
    pub program: Option<&'a Path>,
    pub has_network: bool,
}

impl Rules<'_> {
    /// The rules as the kernel takes them. On a kernel without Landlock they do nothing.
    ///
    /// # Errors
    /// The kernel refuses them, or a path of the settings cannot be opened.
    pub fn ruleset(&self) -> io::Result<RulesetCreated> {
        let mut ruleset = empty_ruleset(self.has_network)?;
        let reads = PROGRAMS.into_iter().chain(SETTINGS).map(Path::new);
        // A system has not all of these.
        for path in reads.chain(self.program) {
            ruleset = allow(ruleset, path, reading()).or_else(without_missing)?;
        }
        for path in DEVICES.map(Path::new) {
            ruleset = allow(ruleset, path, using_devices()).or_else(without_missing)?;
        }
        // These were named by a person, so one that is missing is an error.
        for path in &self.settings.read {
            ruleset = allow(ruleset, path, reading()).map_err(|(_, error)| error)?;
        }
        let writes = self.settings.write.iter().map(|path| path.as_path());
        for path in writes.chain(self.folder).chain([self.private]) {
            ruleset = allow(ruleset, path, writing()).map_err(|(_, error)| error)?;
        }
        Ok(ruleset)
    }
}

/// A ruleset that allows nothing.
///
/// # Errors
/// The kernel refuses it.
pub fn empty_ruleset(has_network: bool) -> io::Result<RulesetCreated> {
    restricted(has_network)
        .and_then(Ruleset::create)
        .map_err(io::Error::other)
}

fn restricted(has_network: bool) -> Result<Ruleset, RulesetError> {
    let ruleset = Ruleset::default()
        .handle_access(AccessFs::from_all(FILE_RIGHTS))?
        // Signals to programs outside, and their sockets without a path.
        .scope(Scope::from_all(ABI::V6))?;
    if has_network {
        return Ok(ruleset);
    }
    ruleset.handle_access(AccessNet::from_all(ABI::V4))
}

/// What could not be allowed, with the rules as they were.
type NotAllowed = (RulesetCreated, io::Error);

/// A path that is not there needs no rule.
fn without_missing((ruleset, error): NotAllowed) -> io::Result<RulesetCreated> {
    use io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
    match error.kind() {
        // What this program cannot open, one that it starts cannot open either.
        NotFound | PermissionDenied | NotADirectory => Ok(ruleset),
        _ => Err(error),
    }
}

fn allow(
    mut ruleset: RulesetCreated,
    path: &Path,
    rights: BitFlags<AccessFs>,
) -> Result<RulesetCreated, NotAllowed> {
    let is_folder = match path.metadata() {
        Ok(metadata) => metadata.is_dir(),
        Err(error) => return Err((ruleset, named(path, error))),
    };
    let file = match PathFd::new(path) {
        Ok(file) => file,
        Err(error) => return Err((ruleset, named(path, io::Error::other(error)))),
    };
    // The kernel refuses rights of folders for a file.
    let rights = match is_folder {
        true => rights,
        false => rights & AccessFs::from_file(FILE_RIGHTS),
    };
    match (&mut ruleset).add_rule(PathBeneath::new(file, rights)) {
        Ok(_) => Ok(ruleset),
        Err(error) => Err((ruleset, named(path, io::Error::other(error)))),
    }
}

fn named(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(
        error.kind(),
        format!("the sandbox cannot allow {}: {error}", path.display()),
    )
}

fn reading() -> BitFlags<AccessFs> {
    AccessFs::from_read(FILE_RIGHTS)
}

/// Everything but devices and sockets: root could make a device of the disk, and a socket is one of
/// the network's.
fn writing() -> BitFlags<AccessFs> {
    AccessFs::from_all(FILE_RIGHTS)
        & !make_bitflags!(AccessFs::{MakeChar | MakeBlock | MakeSock | IoctlDev})
}

fn using_devices() -> BitFlags<AccessFs> {
    make_bitflags!(AccessFs::{ReadFile | WriteFile | Truncate})
}
