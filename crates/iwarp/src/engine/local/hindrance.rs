// SPDX-License-Identifier: MIT OR Apache-2.0

//! The reasons for which a connection within the host stays with TCP, in words for users.

use std::io;

use iwarp_os::socket::{is_shortage, wants_descriptors};

/// The thing that is missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Cause {
    /// The hello frame of the peer does not say that it would move.
    PeerUnwilling = 1,
    /// The peer has sent no hello frame.
    PeerForeign = 2,
    /// This end sends no hello frame.
    NoHello = 3,
    /// The port is not the system's own.
    Wrapped = 4,
    OtherUser = 5,
    /// The ends see other addresses.
    Relay = 6,
    /// There is no process of the name that the peer has offered.
    Unreachable = 7,
    Descriptors = 8,
    Memory = 9,
    /// Every slot of the two processes, or every offer of the responder, is taken.
    Full = 10,
    /// The system refuses a call that is needed.
    Refused = 11,
    /// The other process has ended the agreement, or does not keep to the rules.
    BrokenOff = 12,
    /// The agreement was not reached in time.
    Late = 13,
    /// The connection has ended before.
    Ended = 14,
    /// Other users have the number of this one here.
    UnknownUsers = 15,
}

/// A cause, and the end at which it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Hindrance {
    pub(crate) cause: Cause,
    at_peer: bool,
    /// The number of the system's error, where there was one.
    number: Option<i32>,
}

/// The reason for which a process is not joined.
pub(super) enum Cannot {
    /// Too many wait for it.
    Yet,
    AtAll(Hindrance),
}

impl From<Hindrance> for Cannot {
    fn from(why: Hindrance) -> Self {
        Self::AtAll(why)
    }
}

/// The lines of a cause: at this end, and at the peer; each alone, and behind the demand.
macro_rules! lines {
    ($here:literal, $there:literal) => {
        [
            [$here, $there],
            [
                concat!("IWARP_LOCAL=require, but ", $here),
                concat!("IWARP_LOCAL=require, but ", $there),
            ],
        ]
    };
    ($line:literal) => {
        lines!($line, $line)
    };
}

impl Cause {
    const ALL: [Self; 15] = [
        Self::PeerUnwilling,
        Self::PeerForeign,
        Self::NoHello,
        Self::Wrapped,
        Self::OtherUser,
        Self::Relay,
        Self::Unreachable,
        Self::Descriptors,
        Self::Memory,
        Self::Full,
        Self::Refused,
        Self::BrokenOff,
        Self::Late,
        Self::Ended,
        Self::UnknownUsers,
    ];

    /// The words for what is missing, and for what to do about it.
    const fn lines(self) -> [[&'static str; 2]; 2] {
        match self {
            Self::PeerUnwilling => lines!(
                "the peer does not use shared memory: set IWARP_LOCAL=auto there, and use this \
                 version of the library at both ends"
            ),
            Self::PeerForeign => lines!(
                "the peer does not say that it runs this library: use it at both ends, with \
                 IWARP_EXTENSIONS=ask"
            ),
            Self::NoHello => lines!(
                "IWARP_EXTENSIONS keeps this end from telling the peer that it runs this library: \
                 set it to ask"
            ),
            Self::Wrapped => lines!(
                "something other than the system's TCP carries the connection here (IWARP_FAULTS, \
                 a recorder, a transport of the program): do without it",
                "something other than the system's TCP carries the connection at the peer \
                 (IWARP_FAULTS, a recorder, a transport of the program): do without it"
            ),
            Self::OtherUser => lines!(
                "the peer's process belongs to another user: run both as one user, or set \
                 IWARP_LOCAL=auto"
            ),
            Self::Relay => lines!(
                "a relay, a proxy or a NAT is between the two ends: connect to the address at \
                 which the peer listens"
            ),
            Self::Unreachable => lines!(
                "the peer's process is in another network namespace, behind a relay, or has \
                 ended: run both in one network namespace"
            ),
            Self::Descriptors => lines!(
                "no file descriptors are left in this process: raise its limit (ulimit -n)",
                "no file descriptors are left in the peer's process: raise its limit (ulimit -n)"
            ),
            Self::Memory => lines!(
                "no memory is left for it here: raise the limit of the process or its container",
                "no memory is left for it at the peer: raise the limit of its process or container"
            ),
            Self::Full => lines!(
                "the two processes have as many connections in shared memory as they can: use \
                 fewer, or more processes"
            ),
            Self::Refused => lines!(
                "the system refuses this process memfd_create, an abstract Unix socket, or \
                 another call that shared memory needs: allow it in the sandbox",
                "the system refuses the peer's process memfd_create, an abstract Unix socket, or \
                 another call that shared memory needs: allow it in the sandbox"
            ),
            Self::BrokenOff => lines!(
                "the peer's process has broken off the agreement: see its log with IWARP_LOG=info"
            ),
            Self::Late => lines!(
                "the ends have not agreed on shared memory in time: see whether the peer's \
                 process is stopped, and its log with IWARP_LOG=info"
            ),
            Self::Ended => lines!("the connection has ended before"),
            Self::UnknownUsers => lines!(
                "this user namespace shows other users under the number of this one: map the \
                 user's own number in it, or set IWARP_LOCAL=auto",
                "the peer's user namespace shows other users under the number of its own: map the \
                 user's number in it, or set IWARP_LOCAL=auto"
            ),
        }
    }
}

impl Hindrance {
    /// At this end, or between the two.
    pub(crate) const fn new(cause: Cause) -> Self {
        Self { cause, at_peer: false, number: None }
    }

    /// The one that the peer has told by this number.
    pub(crate) fn at_peer(code: u8) -> Self {
        let cause = Cause::ALL.into_iter().find(|cause| *cause as u8 == code);
        Self { cause: cause.unwrap_or(Cause::BrokenOff), at_peer: true, number: None }
    }

    /// True if a peer that ends in good order looks so too.
    pub(crate) const fn may_be_an_end(self) -> bool {
        !self.at_peer && matches!(self.cause, Cause::Unreachable | Cause::BrokenOff)
    }

    /// True if it is known only where both processes are of one host.
    pub(crate) const fn is_of_neighbours(self) -> bool {
        !matches!(
            self.cause,
            Cause::PeerUnwilling
                | Cause::PeerForeign
                | Cause::NoHello
                | Cause::Wrapped
                | Cause::Unreachable
                | Cause::Late
        )
    }

    /// The number by which the peer is told.
    pub(crate) const fn code(self) -> u8 {
        self.cause as u8
    }

    /// The line that tells a user.
    pub(crate) const fn line(self) -> &'static str {
        self.cause.lines()[0][self.at_peer as usize]
    }

    /// The line for a connection that was to move.
    pub(crate) const fn line_of_demand(self) -> &'static str {
        self.cause.lines()[1][self.at_peer as usize]
    }

    /// The system's error, where there was one.
    pub(crate) fn error(self) -> Option<io::Error> {
        self.number.map(io::Error::from_raw_os_error)
    }
}

impl From<Cause> for Hindrance {
    fn from(cause: Cause) -> Self {
        Self::new(cause)
    }
}

/// An error of the calls by which shared memory is made and passed.
impl From<io::Error> for Hindrance {
    fn from(error: io::Error) -> Self {
        use io::ErrorKind as Kind;
        let cause = match error.kind() {
            _ if wants_descriptors(&error) => Cause::Descriptors,
            Kind::OutOfMemory | Kind::StorageFull => Cause::Memory,
            _ if is_shortage(&error) => Cause::Memory,
            Kind::NotConnected => Cause::Ended,
            Kind::ConnectionReset
            | Kind::BrokenPipe
            | Kind::UnexpectedEof
            | Kind::InvalidData
            | Kind::AlreadyExists => Cause::BrokenOff,
            _ => Cause::Refused,
        };
        Self { cause, at_peer: false, number: error.raw_os_error() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_told_each_cause() {
        for cause in Cause::ALL {
            let told = Hindrance::at_peer(Hindrance::new(cause).code());
            assert_eq!(told.cause, cause);
            assert!(told.line_of_demand().ends_with(told.line()));
        }
        for code in [0, 16, 255] {
            assert_eq!(Hindrance::at_peer(code).cause, Cause::BrokenOff);
        }
    }

    #[test]
    fn errors_of_the_system_have_causes() {
        use rustix::io::Errno;
        for (errno, cause) in [
            (Errno::MFILE, Cause::Descriptors),
            (Errno::NFILE, Cause::Descriptors),
            (Errno::TOOMANYREFS, Cause::Descriptors),
            (Errno::NOMEM, Cause::Memory),
            (Errno::NOBUFS, Cause::Memory),
            (Errno::NOSPC, Cause::Memory),
            (Errno::PERM, Cause::Refused),
            (Errno::NOSYS, Cause::Refused),
            (Errno::PIPE, Cause::BrokenOff),
        ] {
            let hindrance = Hindrance::from(io::Error::from(errno));
            assert_eq!(hindrance.cause, cause, "{errno:?}");
            assert_eq!(hindrance.error().unwrap().raw_os_error(), Some(errno.raw_os_error()));
        }
    }
}
