// SPDX-License-Identifier: MIT OR Apache-2.0

//! Other processes of this host.

use std::fs;
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, PidfdGetfdFlags, Signal, pidfd_getfd, pidfd_open,
    set_parent_process_death_signal,
};

use crate::environment;

/// A process whose descriptors may be had: the system asks for the rights of a debugger.
#[derive(Debug)]
pub struct Debuggee {
    pidfd: OwnedFd,
}

/// A descriptor of a process, and the device and the number of the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Linked {
    /// The descriptor.
    pub number: RawFd,
    /// The file.
    pub file: (u64, u64),
}

/// Has the process that `command` starts get SIGTERM when the thread that starts it is gone.
pub fn end_with_starter(command: &mut Command) {
    let follow = || Ok(set_parent_process_death_signal(Some(Signal::TERM))?);
    // SAFETY: between fork and exec it makes one system call and allocates nothing.
    unsafe { command.pre_exec(follow) };
}

/// Descriptors of a process (`None`: this one) whose link in `/proc` begins so.
///
/// # Errors
///
/// `EACCES`, `ENOENT`.
pub fn linked(process: Option<u32>, prefix: &str) -> io::Result<Vec<Linked>> {
    let process = process.map_or("self".to_owned(), |process| process.to_string());
    let listed = fs::read_dir(format!("/proc/{process}/fd"))?.flatten();
    let begins = |entry: &fs::DirEntry| {
        fs::read_link(entry.path())
            .is_ok_and(|link| link.to_str().is_some_and(|link| link.starts_with(prefix)))
    };
    let read = |entry: fs::DirEntry| {
        let number = entry.file_name().to_str()?.parse().ok()?;
        let status = fs::metadata(entry.path()).ok()?;
        Some(Linked { number, file: (status.dev(), status.ino()) })
    };
    Ok(listed.filter(begins).filter_map(read).collect())
}

impl Debuggee {
    /// The process of this number, if it is this user's.
    ///
    /// # Errors
    ///
    /// `ESRCH`; `EPERM` where it is another user's; `ENOSYS`.
    pub fn of_user(process: u32, user: u32) -> io::Result<Self> {
        let pid = i32::try_from(process).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
        // valgrind prints five lines where it does not know a call (3.19 does not).
        if environment::is_valgrinds() {
            return Err(Errno::NOSYS.into());
        }
        // First, so that the number stays the process's.
        let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
        if fs::metadata(format!("/proc/{process}"))?.uid() != user {
            return Err(Errno::PERM.into());
        }
        Ok(Self { pidfd })
    }

    /// Another descriptor of the file that it has under this number, whether it runs or is stopped.
    ///
    /// # Errors
    ///
    /// `EPERM` where the system lets this process debug no other (`ptrace_scope`, sandboxes);
    /// `EBADF`; shortages.
    pub fn descriptor(&self, number: RawFd) -> io::Result<OwnedFd> {
        Ok(pidfd_getfd(&self.pidfd, number, PidfdGetfdFlags::empty())?)
    }
}

/// True if a process is stopped, by a signal or a debugger. False where the system does not tell.
pub fn is_stopped(process: u32) -> bool {
    fs::read(format!("/proc/{process}/stat")).is_ok_and(|stat| state(&stat) == Some(true))
}

/// The start time of a process, in ticks since that of the system; the lower half of the number.
/// `None` where no such process runs, or the system does not tell.
pub fn started(process: u32) -> Option<u32> {
    start(&fs::read(format!("/proc/{process}/stat")).ok()?)
}

/// The state stands behind the name, which is in parentheses and may have any character.
fn state(stat: &[u8]) -> Option<bool> {
    Some(matches!(behind_name(stat)?.first()?, b'T' | b't'))
}

/// The 20th word from the state on. `None` for a zombie, which has one, too.
fn start(stat: &[u8]) -> Option<u32> {
    let rest = behind_name(stat).filter(|rest| !rest.starts_with(b"Z"))?;
    let word = rest.split(|octet| *octet == b' ').nth(19)?;
    let number: u64 = std::str::from_utf8(word).ok()?.parse().ok()?;
    Some(number as u32)
}

fn behind_name(stat: &[u8]) -> Option<&[u8]> {
    let name_ends = stat.iter().rposition(|octet| *octet == b')')?;
    stat.get(name_ends + 2..)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of another process: `crates/iwarp/tests/it/share.rs`.
    #[test]
    fn a_descriptor_is_found_by_its_link() {
        use std::os::fd::AsRawFd;

        use crate::register::{LINK, Register};

        let user = rustix::process::geteuid().as_raw();
        let register = Register::create().unwrap();
        register.set_word(1, 5).unwrap();
        let Ok(own) = Debuggee::of_user(std::process::id(), user) else { return };
        let found = linked(Some(std::process::id()), LINK).unwrap();
        assert_eq!(found, linked(None, LINK).unwrap());
        assert!(found.iter().any(|found| found.number == register.as_raw_fd()), "{found:?}");
        let Ok(fd) = own.descriptor(register.as_raw_fd()) else { return };
        assert_eq!(Register::from(fd).word(1).unwrap(), 5);
        assert!(Debuggee::of_user(std::process::id(), user + 1).is_err());
        assert!(Debuggee::of_user(u32::MAX, user).is_err());
    }

    #[test]
    fn the_state_stands_behind_the_name() {
        let lines: [(&[u8], _); 5] = [
            (b"7 (sh) T 1 7", Some(true)),
            (b"7 (sh) t 1 7", Some(true)),
            (b"7 (a) T (b) S 1", Some(false)),
            (b"7 (sh)", None),
            (b"", None),
        ];
        for (line, expected) in lines {
            assert_eq!(state(line), expected);
        }
        assert!(!is_stopped(std::process::id()) && !is_stopped(u32::MAX));
    }

    #[test]
    fn the_start_is_the_twentieth_word() {
        let line = |start: &str| format!("7 (a b) c) S {}{start} 0 0", "1 ".repeat(18));
        assert_eq!(start(line("4711").as_bytes()), Some(4711));
        assert_eq!(start(line("4294967297").as_bytes()), Some(1));
        assert_eq!((start(line("-").as_bytes()), start(b"7 (sh) S 1")), (None, None));
        assert_eq!(start(line("4711").replace(") S", ") Z").as_bytes()), None);
        assert!(started(std::process::id()).is_some() && started(u32::MAX).is_none());
    }
}
