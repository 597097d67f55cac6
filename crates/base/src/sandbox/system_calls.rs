//! Which system calls a program in a sandbox may make: a filter for seccomp.
//!
//! The filter names what is refused. System calls that are newer than this list are unknown to it,
//! and answered as a kernel without them would.

use std::collections::BTreeMap;
use std::io;
use std::sync::LazyLock;

use libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, sock_filter,
};

/// The newest system call that was looked at, `mseal`. From 424 on all architectures number them
/// alike; those of the x32 interface begin far above.
const NEWEST_KNOWN: u32 = 462;

/// Refused, whatever the arguments.
const REFUSED: &[c_long] = &[
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_process_mrelease,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    // Mounts, roots and namespaces.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    // What Landlock leaves alone: modes, owners, attributes, and files without a path.
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    libc::SYS_open_by_handle_at,
    libc::SYS_fanotify_init,
    libc::SYS_inotify_init1,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    // Large interfaces of the kernel that programs rarely need.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_userfaultfd,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_lookup_dcookie,
    libc::SYS_nfsservctl,
    // Memory and messages that programs outside share.
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_semctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
    // The machine.
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_syslog,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_vhangup,
];

/// Refused too, where the architecture has them.
#[cfg(target_arch = "x86_64")]
const REFUSED_OLD: &[c_long] = &[
    libc::SYS_chmod,
    libc::SYS_fchmodat2,
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_futimesat,
    libc::SYS_inotify_init,
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_modify_ldt,
    libc::SYS_uselib,
    libc::SYS_ustat,
    libc::SYS_sysfs,
    libc::SYS__sysctl,
];
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_OLD: &[c_long] = &[452];

/// Flags of `clone` that make a namespace; 0x80 is part of the exit signal there.
const NAMESPACES: [i32; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];

/// Requests of `ioctl` that type into a terminal, or change the attributes of a file.
const REQUESTS: [u64; 4] = [
    0x5412,      // TIOCSTI
    0x541c,      // TIOCLINUX
    0x4008_6602, // FS_IOC_SETFLAGS
    0x401c_5820, // FS_IOC_FSSETXATTR
];

/// Restricts this thread and what it starts, for good.
///
/// # Errors
/// The kernel or the architecture has no such filters.
pub fn restrict(has_network: bool) -> io::Result<()> {
    static FILTERS: LazyLock<[Result<BpfProgram, String>; 2]> =
        LazyLock::new(|| [filter(false), filter(true)]);
    let filter = FILTERS[usize::from(has_network)].as_ref();
    let filter = filter.map_err(|reason| io::Error::other(reason.clone()))?;
    for program in [filter.as_slice(), unknown().as_slice()] {
        seccompiler::apply_filter(program).map_err(io::Error::other)?;
    }
    Ok(())
}

/// The filter of what is known.
fn filter(has_network: bool) -> Result<BpfProgram, String> {
    let mut rules: BTreeMap<c_long, Vec<SeccompRule>> = BTreeMap::new();
    for call in REFUSED.iter().chain(REFUSED_OLD) {
        rules.insert(*call, Vec::new());
    }
    // Of other processes, these change limits and the turn at the processor; 0 is the process itself.
    for (call, argument) in [
        (libc::SYS_prlimit64, 0),
        (libc::SYS_sched_setscheduler, 0),
        (libc::SYS_sched_setparam, 0),
        (libc::SYS_sched_setattr, 0),
        (libc::SYS_setpriority, 1),
        (libc::SYS_ioprio_set, 1),
    ] {
        rules.insert(call, vec![rule(&[(argument, SeccompCmpOp::Ne, 0)])?]);
    }
    // Times by a path; by an open file they are those of a file that it may use.
    let by_path = rule_of_pointer(1, SeccompCmpOp::Ne)?;
    rules.insert(libc::SYS_utimensat, vec![by_path]);
    // One rule for each: a call is refused if any rule of it fits.
    let mut namespaces = Vec::new();
    for flag in NAMESPACES {
        let flag = u64::from(flag.cast_unsigned());
        namespaces.push(rule(&[(0, SeccompCmpOp::MaskedEq(flag), flag)])?);
    }
    rules.insert(libc::SYS_clone, namespaces);
    let mut requests = Vec::new();
    for request in REQUESTS {
        requests.push(rule(&[(1, SeccompCmpOp::Eq, request)])?);
    }
    rules.insert(libc::SYS_ioctl, requests);
    rules.insert(libc::SYS_socket, sockets(has_network)?);
    let architecture = std::env::consts::ARCH.try_into();
    let architecture = architecture.map_err(|error| format!("{error}"))?;
    let filter = SeccompFilter::new(
        rules,
        SeccompAction::Allow,
        SeccompAction::Errno(libc::EPERM.cast_unsigned()),
        architecture,
    );
    let program = filter.and_then(BpfProgram::try_from);
    program.map_err(|error| error.to_string())
}

/// Which sockets are refused: all without the network, since those of the machine lead to programs
/// outside; with it all but IPv4, IPv6 and the question which addresses there are.
fn sockets(has_network: bool) -> Result<Vec<SeccompRule>, String> {
    use SeccompCmpOp::{Eq, MaskedEq, Ne};
    const FAMILY: u8 = 0;
    const KIND: u8 = 1;
    const PROTOCOL: u8 = 2;
    if !has_network {
        return Ok(Vec::new());
    }
    let [ipv4, ipv6, netlink] = [libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK]
        .map(|family| u64::from(family.cast_unsigned()));
    let raw = u64::from(libc::SOCK_RAW.cast_unsigned());
    Ok(vec![
        rule(&[
            (FAMILY, Ne, ipv4),
            (FAMILY, Ne, ipv6),
            (FAMILY, Ne, netlink),
        ])?,
        rule(&[(FAMILY, Eq, netlink), (PROTOCOL, Ne, 0)])?,
        rule(&[(FAMILY, Ne, netlink), (KIND, MaskedEq(0xf), raw)])?,
    ])
}

/// A rule for 32 bits of arguments, all of which have to fit.
fn rule(conditions: &[(u8, SeccompCmpOp, u64)]) -> Result<SeccompRule, String> {
    let mut compared = Vec::new();
    for (argument, compare, value) in conditions {
        let length = SeccompCmpArgLen::Dword;
        let condition = SeccompCondition::new(*argument, length, compare.clone(), *value);
        compared.push(condition.map_err(|error| error.to_string())?);
    }
    SeccompRule::new(compared).map_err(|error| error.to_string())
}

/// A rule for a pointer, compared with null.
fn rule_of_pointer(argument: u8, compare: SeccompCmpOp) -> Result<SeccompRule, String> {
    let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Qword, compare, 0);
    let rule = condition.and_then(|condition| SeccompRule::new(vec![condition]));
    rule.map_err(|error| error.to_string())
}

/// Answers `ENOSYS` to system calls that are not known, and to `clone3`: its flags are behind a
/// pointer, where no filter sees them, and the C library then uses `clone`.
fn unknown() -> [sock_filter; 5] {
    const LOAD: u16 = 0x20;
    const JUMP_IF_GREATER: u16 = 0x25;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    const ALLOW: u32 = 0x7fff_0000;
    const ERRNO: u32 = 0x0005_0000;
    let instruction = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    let clone3 = u32::try_from(libc::SYS_clone3).unwrap_or(435);
    [
        // The number of the call is at the beginning of what a filter sees.
        instruction(LOAD, 0, 0, 0),
        instruction(JUMP_IF_GREATER, 2, 0, NEWEST_KNOWN),
        instruction(JUMP_IF_EQUAL, 1, 0, clone3),
        instruction(RETURN, 0, 0, ALLOW),
        instruction(RETURN, 0, 0, ERRNO | libc::ENOSYS.cast_unsigned()),
    ]
}
