// SPDX-License-Identifier: MIT OR Apache-2.0

//! The readiness of a socket in each state, as Linux shows it for TCP (RS-POLL-02).

/// Events of `poll(2)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Readiness {
    /// `POLLIN`
    pub readable: bool,
    /// `POLLOUT`
    pub writable: bool,
    /// `POLLRDHUP`
    pub read_closed: bool,
    /// `POLLHUP`
    pub hangup: bool,
    /// `POLLERR`
    pub error: bool,
}

/// The state of a socket, in the terms of readiness.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Condition {
    /// Neither connected nor listening.
    Unconnected,
    /// Listening.
    Listening {
        /// A connection waits to be accepted.
        waiting: bool,
    },
    /// A connection is being made.
    Connecting,
    /// The connection could not be made, or is lost.
    Gone {
        /// The program has not been told yet.
        untold: bool,
    },
    /// Connected.
    Connected(Connected),
}

/// The state of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Connected {
    /// Data wait.
    pub data: bool,
    /// The send buffer has room.
    pub room: bool,
    /// The program has shut reading down.
    pub read_shut: bool,
    /// The program has shut writing down.
    pub write_shut: bool,
    /// The peer writes no more.
    pub read_over: bool,
    /// The peer reads no more, as it has closed.
    pub peer_closed: bool,
}

impl Condition {
    /// The events that `poll(2)` reports.
    pub fn readiness(self) -> Readiness {
        match self {
            Self::Unconnected => Readiness { writable: true, hangup: true, ..Readiness::default() },
            Self::Listening { waiting } => Readiness { readable: waiting, ..Readiness::default() },
            Self::Connecting => Readiness::default(),
            Self::Gone { untold } => Readiness {
                readable: true,
                writable: true,
                read_closed: true,
                hangup: true,
                error: untold,
            },
            Self::Connected(connected) => connected.readiness(),
        }
    }
}

impl Connected {
    fn readiness(self) -> Readiness {
        let Self { data, room, read_shut, write_shut, read_over, peer_closed } = self;
        let read_closed = read_shut || read_over;
        Readiness {
            readable: data || read_closed,
            // A write that fails at once does not block.
            writable: room || write_shut || peer_closed,
            read_closed,
            // While the program has not closed its own direction this is no hang-up, as TCP's peer
            // cannot say that it reads no more.
            hangup: read_closed && write_shut,
            error: false,
        }
    }
}
