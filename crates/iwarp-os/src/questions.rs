// SPDX-License-Identifier: MIT OR Apache-2.0

//! Questions that processes of a user ask each other, and the answers.
//!
//! A process that answers listens under an abstract AF_UNIX name that says its user and its number.
//! Names prove nothing, as every user can take them: either end asks the system who the other is.
//! The answer, a text of any length, lies in memory that is passed, so that no end waits for the
//! other to read.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process;
use std::time::Duration;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, memfd_create};
use rustix::process::geteuid;

use crate::fd::PassedFd;
use crate::poll::wait_readable;
use crate::unix::{SeqListener, SeqSocket, names};

const PREFIX: &str = "iwarp-control.";
/// Names of one process: of several devices, or of processes of different PID namespaces.
const NAMES: u32 = 4;
/// Bytes of a question at most.
const QUESTION: usize = 4096;
/// Bytes of an answer at most.
const ANSWER: u64 = 256 << 20;
/// The memory of an answer changes no more.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::WRITE);
/// Connections that may wait.
const BACKLOG: u16 = 16;

/// The place where others ask this process.
#[derive(Debug)]
pub struct Questioned {
    listener: SeqListener,
}

/// One that asks, or may.
#[derive(Debug)]
pub struct Asker {
    socket: SeqSocket,
}

impl Questioned {
    /// Takes a name that others find.
    ///
    /// # Errors
    ///
    /// `AddrInUse` where all names of the process are taken; shortages.
    pub fn listen() -> io::Result<Self> {
        let (user, process) = (geteuid().as_raw(), process::id());
        for number in 0..NAMES {
            let name = format!("{PREFIX}{user}.{process}.{number}");
            match SeqListener::bind(name.as_bytes()) {
                Ok(listener) => {
                    listener.listen(BACKLOG)?;
                    return Ok(Self { listener });
                }
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::AddrInUse.into())
    }

    /// Takes one that has come, if it is this user's or root's; others are sent away.
    ///
    /// # Errors
    ///
    /// `WouldBlock` where none waits; shortages.
    pub fn accept(&self) -> io::Result<Option<Asker>> {
        let socket = self.listener.accept()?;
        let user = socket.peer_user()?;
        let is_welcome = user == geteuid().as_raw() || user == 0;
        Ok(is_welcome.then_some(Asker { socket }))
    }
}

impl AsFd for Questioned {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Asker {
    /// The question.
    ///
    /// # Errors
    ///
    /// `WouldBlock` where it has not come; `UnexpectedEof` where none comes; `InvalidData` where it
    /// is no text.
    pub fn question(&self) -> io::Result<String> {
        let mut room = vec![0; QUESTION];
        match self.socket.recv(&mut room)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            len => {
                room.truncate(len);
                String::from_utf8(room).map_err(|_| io::ErrorKind::InvalidData.into())
            }
        }
    }

    /// Answers it.
    ///
    /// # Errors
    ///
    /// Shortages; `BrokenPipe` where it has gone.
    pub fn answer(&self, text: &str) -> io::Result<()> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let memory = PassedFd::from(memfd_create(c"iwarp-answer", flags)?);
        let mut left = text.as_bytes();
        while !left.is_empty() {
            let written = rustix::io::retry_on_intr(|| rustix::io::write(&memory, left))?;
            left = left.get(written..).unwrap_or_default();
        }
        fcntl_add_seals(&memory, SEALS)?;
        self.socket.send(&[0], &[memory.as_fd()])
    }
}

impl AsFd for Asker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A process that can be asked.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Answering {
    /// Its number.
    pub process: u32,
    /// Its user.
    pub user: u32,
}

/// The processes that can be asked by this one: of its user, or all if that is root.
pub fn answering() -> BTreeSet<Answering> {
    let own = geteuid();
    let parse = |name: Vec<u8>| {
        let name = String::from_utf8(name).ok()?;
        let mut words = name.strip_prefix(PREFIX)?.split('.');
        let user = words.next()?.parse().ok()?;
        let process = words.next()?.parse().ok()?;
        Some(Answering { process, user })
    };
    let may = |one: &Answering| own.is_root() || one.user == own.as_raw();
    names(PREFIX.as_bytes()).into_iter().filter_map(parse).filter(may).collect()
}

/// Asks a process, and waits for the answer for `patience` at most.
///
/// # Errors
///
/// `NotFound` where there is no such process, or it has no device; `PermissionDenied` where it is
/// another user's, or another has taken its name; `TimedOut`.
pub fn ask(whom: Answering, question: &str, patience: Duration) -> io::Result<String> {
    let Answering { process, user } = whom;
    let mut refused = None;
    for number in 0..NAMES {
        let name = format!("{PREFIX}{user}.{process}.{number}");
        let socket = match SeqSocket::connect(name.as_bytes()) {
            Ok(socket) => socket,
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => continue,
            // Others ask it, or one that has taken its name does not answer.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                refused = Some(io::ErrorKind::TimedOut);
                continue;
            }
            Err(error) => return Err(error),
        };
        let is_its = socket.peer_process() == Some(process) && socket.peer_user()? == user;
        if !is_its {
            refused = Some(io::ErrorKind::PermissionDenied);
            continue;
        }
        // One that is not welcome finds the connection closed.
        if socket.send(question.as_bytes(), &[]).is_err() {
            refused = Some(io::ErrorKind::PermissionDenied);
            continue;
        }
        if wait_readable([socket.as_fd()], Some(patience))? != [true] {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let (len, passed) = socket.recv_passed(&mut [0]).unwrap_or_default();
        let Some(answer) = passed.into_iter().next().filter(|_| len > 0) else {
            refused = Some(io::ErrorKind::PermissionDenied);
            continue;
        };
        return text_of(answer);
    }
    Err(refused.unwrap_or(io::ErrorKind::NotFound).into())
}

/// The text in memory that was passed. A file of another kind might never give it.
fn text_of(answer: OwnedFd) -> io::Result<String> {
    if !fcntl_get_seals(&answer).is_ok_and(|seals| seals.contains(SEALS)) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let size = u64::try_from(fstat(&answer)?.st_size).unwrap_or(u64::MAX);
    if size > ANSWER {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let mut answer = File::from(answer);
    answer.rewind()?;
    let mut text = String::new();
    answer.take(size).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// The tests share the names of their process, where they run in one.
    static NAMES_TAKEN: Mutex<()> = Mutex::new(());

    fn own() -> Answering {
        own_of(geteuid().as_raw())
    }

    #[test]
    fn a_question_is_answered() {
        let _alone = NAMES_TAKEN.lock().expect("no panic");
        let questioned = Questioned::listen().expect("a name");
        assert!(answering().contains(&own()));
        let long = "words ".repeat(100_000);
        let answer = std::thread::scope(|scope| {
            let asked = scope.spawn(|| ask(own(), "how many?", Duration::from_secs(10)));
            wait_readable([questioned.as_fd()], None).expect("one comes");
            let asker = questioned.accept().expect("a connection").expect("it is this user");
            wait_readable([asker.as_fd()], None).expect("it asks");
            assert_eq!(asker.question().expect("a question"), "how many?");
            asker.answer(&long).expect("it is there");
            asked.join().expect("no panic")
        });
        assert_eq!(answer.expect("an answer"), long);
    }

    /// Only root can be another user for a moment.
    #[test]
    fn another_user_is_sent_away() {
        if !geteuid().is_root() {
            return;
        }
        let _alone = NAMES_TAKEN.lock().expect("no panic");
        let questioned = Questioned::listen().expect("a name");
        let asked = std::thread::scope(|scope| {
            let asked = scope.spawn(|| {
                let nobody: libc::uid_t = 65_534;
                let same = libc::uid_t::MAX;
                // SAFETY: the user of this thread alone changes, which ends soon.
                let changed = unsafe { libc::syscall(libc::SYS_setresuid, same, nobody, same) };
                assert_eq!((changed, geteuid().as_raw()), (0, nobody));
                ask(own_of(0), "how many?", Duration::from_secs(10))
            });
            wait_readable([questioned.as_fd()], None).expect("one comes");
            assert!(questioned.accept().expect("a connection").is_none());
            asked.join().expect("no panic")
        });
        assert_eq!(asked.expect_err("no answer").kind(), io::ErrorKind::PermissionDenied);
    }

    fn own_of(user: u32) -> Answering {
        Answering { process: process::id(), user }
    }

    #[test]
    fn strangers_are_not_there() {
        let nobody = Answering { process: u32::MAX, user: 0 };
        let error = ask(nobody, "who?", Duration::ZERO).expect_err("there is none");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
