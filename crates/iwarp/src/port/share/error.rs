// SPDX-License-Identifier: MIT OR Apache-2.0

//! The reasons for which a process gets no share of the port.

use std::io;
use std::net::SocketAddr;

use iwarp_os::socket::is_shortage;
use thiserror::Error;

use super::home::too_many_passed;

/// The reason for which a process cannot share the port. It then has no UD, no UC, and no RC over
/// RoCE v2.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ShareError {
    /// The port belongs to a socket that does not share it.
    #[error("UDP port {addr} is in use by {}: stop it, or use another network namespace", owner(*.user))]
    Taken {
        /// Address and port.
        addr: SocketAddr,
        /// The user of the socket, as our user namespace knows it, if the system tells.
        user: Option<u32>,
    },
    /// Processes share the port, or pretend to, and none of them answers.
    #[error("{} manages UDP port {addr} and does not answer{}", whose(*.process), remedy(*.process))]
    Silent {
        /// Address and port.
        addr: SocketAddr,
        /// The process that was asked, if it has a number in our PID namespace.
        process: Option<u32>,
    },
    /// The number of processes has reached its limit.
    #[error(
        "the largest possible number of processes (usually 1,071) share UDP port {addr}: end one, or \
         use another network namespace"
    )]
    Full {
        /// Address and port.
        addr: SocketAddr,
    },
    /// The processes that share the port use another version of the members' protocol.
    #[error("the processes that share UDP port {addr} use another version of this library")]
    Version {
        /// Address and port.
        addr: SocketAddr,
    },
    /// The address cannot be shared: multicast, port 0.
    #[error("{addr} cannot be shared")]
    Address {
        /// Address and port.
        addr: SocketAddr,
    },
    /// Descriptors or memory are short: here, with the broker, or of what the user may have on
    /// its way between processes.
    #[error("not enough descriptors or memory to share UDP port {addr}")]
    Shortage {
        /// Address and port.
        addr: SocketAddr,
        /// The error of the system, if it was this process's.
        source: Option<io::Error>,
    },
    /// The system refuses: the address does not exist, or a sandbox forbids a call.
    #[error("UDP port {addr} cannot be shared: {source}")]
    System {
        /// Address and port.
        addr: SocketAddr,
        /// The error of the system.
        source: io::Error,
    },
}

fn owner(user: Option<u32>) -> String {
    match user {
        Some(user) if iwarp_os::owner::own_users()[0] == user => {
            "a program of this user that does not share it".into()
        }
        Some(user) => format!("a process of user {user}"),
        None => {
            "another user, by a program that does not share it, or by the kernel's RoCE driver \
                 (rxe)"
                .into()
        }
    }
}

fn whose(process: Option<u32>) -> String {
    process.map_or("a process of this user".into(), |process| format!("process {process}"))
}

fn remedy(process: Option<u32>) -> String {
    let process = process.filter(|process| iwarp_os::process::is_stopped(*process));
    process.map_or("; it may be stopped: continue or end it".into(), |process| {
        format!(", because it is stopped: continue it (kill -CONT {process}) or end it")
    })
}

/// With the error's text, and the kind that a program gets as an errno.
impl From<ShareError> for io::Error {
    fn from(error: ShareError) -> Self {
        let kind = match &error {
            ShareError::Taken { .. } | ShareError::Version { .. } => io::ErrorKind::AddrInUse,
            ShareError::Silent { .. } => io::ErrorKind::TimedOut,
            ShareError::Full { .. } => io::ErrorKind::WouldBlock,
            ShareError::Address { .. } => io::ErrorKind::InvalidInput,
            ShareError::Shortage { .. } => io::ErrorKind::OutOfMemory,
            ShareError::System { source, .. } => source.kind(),
        };
        Self::new(kind, error)
    }
}

impl ShareError {
    pub(super) fn of(addr: SocketAddr, error: io::Error) -> Self {
        if is_shortage(&error) || too_many_passed(&error) {
            Self::Shortage { addr, source: Some(error) }
        } else if error.kind() == io::ErrorKind::AddrInUse {
            Self::Taken { addr, user: None }
        } else {
            Self::System { addr, source: error }
        }
    }
}
