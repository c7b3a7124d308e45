// SPDX-License-Identifier: MIT OR Apache-2.0

//! Types and states of a queue pair, as the verbs name them.

use core::fmt;

use thiserror::Error;

/// Type of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum QpType {
    /// Reliable connected: messages arrive once each, in order.
    #[default]
    Rc,
    /// Unreliable connected: messages of any length between two queue pairs, which may be lost.
    Uc,
    /// Unreliable datagram: messages of one packet between any queue pairs, which may be lost.
    Ud,
}

/// QpState of a queue pair. A reliable connected one never is in [`QpState::Sqe`]: every local
/// error leads to [`QpState::Err`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum QpState {
    /// No work request may be posted.
    #[default]
    Reset,
    /// Receives may be posted.
    Init,
    /// Ready to receive.
    Rtr,
    /// Ready to send.
    Rts,
    /// Send queue drained: what was started goes on, nothing new is.
    Sqd,
    /// Send queue error: a send failed (UC, UD), and those behind it are flushed. Receives go on.
    Sqe,
    /// Everything is flushed.
    Err,
}

/// As the verbs name it.
impl fmt::Display for QpState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reset => "RESET",
            Self::Init => "INIT",
            Self::Rtr => "RTR",
            Self::Rts => "RTS",
            Self::Sqd => "SQD",
            Self::Sqe => "SQE",
            Self::Err => "ERR",
        })
    }
}

/// The queue pair cannot go from one state to the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("queue pair cannot go from {from} to {to}")]
pub struct TransitionError {
    /// The state that it is in.
    pub from: QpState,
    /// The state that was asked for.
    pub to: QpState,
}

impl QpState {
    /// True if the verbs allow this change. Every state may go to Reset and Err.
    pub const fn may_become(self, to: Self) -> bool {
        matches!(
            (self, to),
            (_, Self::Reset | Self::Err)
                | (Self::Reset | Self::Init, Self::Init)
                | (Self::Init, Self::Rtr)
                | (Self::Rtr | Self::Rts | Self::Sqd | Self::Sqe, Self::Rts)
                | (Self::Rts | Self::Sqd, Self::Sqd)
        )
    }

    /// True if send work requests may be posted (in Sqe and Err they are flushed).
    pub const fn takes_sends(self) -> bool {
        matches!(self, Self::Rts | Self::Sqd | Self::Sqe | Self::Err)
    }

    /// True if receive work requests may be posted (in Err they are flushed).
    pub const fn takes_receives(self) -> bool {
        !matches!(self, Self::Reset)
    }
}

#[cfg(test)]
mod tests {
    use super::QpState::{self, Err, Init, Reset, Rtr, Rts, Sqd, Sqe};

    const ALL: [QpState; 7] = [Reset, Init, Rtr, Rts, Sqd, Sqe, Err];

    /// Covers: VERBS-hilland-6.2-01, VERBS-hilland-6.2.2-01, VERBS-hilland-6.2.4-02
    #[test]
    fn only_the_defined_transitions_are_allowed() {
        let allowed = [
            (Reset, Init),
            (Init, Init),
            (Init, Rtr),
            (Rtr, Rts),
            (Rts, Rts),
            (Rts, Sqd),
            (Sqd, Sqd),
            (Sqd, Rts),
            (Sqe, Rts),
        ];
        for from in ALL {
            for to in ALL {
                let expected = matches!(to, Reset | Err) || allowed.contains(&(from, to));
                assert_eq!(from.may_become(to), expected, "{from:?} -> {to:?}");
            }
        }
    }
}
