// SPDX-License-Identifier: MIT OR Apache-2.0

//! Events: what a core tells the engine.

use core::fmt;

use crate::{Reason, WorkCompletion};

/// An event that a core tells the engine, in the words of the verbs.
///
/// `T` is the peer's reason for breaking off and `F` the fault that this side found, in the core's
/// own types where it has some; the engine needs no more of them than [`Reason`] and [`Cause`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event<T = Reason, F = Reason> {
    /// A send work request ended.
    SendCompleted(WorkCompletion),
    /// So many send work requests, not signalled, ended well before the one of which the next
    /// event tells.
    SilentSends(u32),
    /// A receive work request ended.
    ReceiveCompleted(WorkCompletion),
    /// The peer's first message unit was validated: a responder may send from now on.
    FirstHeard,
    /// The peer has connected and said nothing since, so a responder's work waits.
    HeldBack,
    /// A message of the peer's has waited long for its receive.
    NoReceive,
    /// Programs see an RNIC at one end and a device like InfiniBand's at the other.
    OtherDevice,
    /// The peer closed its side with nothing pending: the stream ended well.
    Disconnected,
    /// The peer broke off, and said why.
    Terminated(T),
    /// A fault ended the stream; the peer is told if it still can be.
    Fault(F),
    /// The stream broke (reset, timeout).
    Lost,
    /// The send queue is drained: everything that was started has completed.
    SendQueueDrained,
    /// No receive of the shared receive queue will be consumed any more.
    LastReceiveReached,
}

impl<T: Into<Reason>, F: Cause> Event<T, F> {
    /// The event with its reasons in the words of the verbs, as a
    /// [`BoxedCore`](crate::BoxedCore) tells it.
    pub fn into_words(self) -> Event {
        match self {
            Self::SendCompleted(completion) => Event::SendCompleted(completion),
            Self::SilentSends(count) => Event::SilentSends(count),
            Self::ReceiveCompleted(completion) => Event::ReceiveCompleted(completion),
            Self::FirstHeard => Event::FirstHeard,
            Self::HeldBack => Event::HeldBack,
            Self::NoReceive => Event::NoReceive,
            Self::OtherDevice => Event::OtherDevice,
            Self::Disconnected => Event::Disconnected,
            Self::Terminated(reason) => Event::Terminated(reason.into()),
            Self::Fault(fault) => Event::Fault(fault.reason()),
            Self::Lost => Event::Lost,
            Self::SendQueueDrained => Event::SendQueueDrained,
            Self::LastReceiveReached => Event::LastReceiveReached,
        }
    }
}

/// A fault as a core found it; shown, it says in which detail.
pub trait Cause: fmt::Display {
    /// The reason that the peer is told.
    fn reason(&self) -> Reason;

    /// The address that could not be accessed, and whether the access was the peer's, where the
    /// program had taken registered memory away.
    fn bad_address(&self) -> Option<(u64, bool)> {
        None
    }
}

impl Cause for Reason {
    fn reason(&self) -> Reason {
        *self
    }
}
