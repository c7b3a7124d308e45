// SPDX-License-Identifier: MIT OR Apache-2.0

//! The sets that callers drive while they are there, and the worker otherwise: the poll group of a
//! completion queue, the accept set of a listener.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use iwarp_os::{Epoll, Interest, poll};

pub(crate) use crate::engine::attend::Served;
use crate::engine::attend::{self, Attended};
use crate::engine::handover::Handover;
use crate::port::Clock;

/// The thread that moves what is ready, and its reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum By {
    /// The worker, as no caller does.
    Worker,
    /// A caller that polls or is blocked.
    Caller,
    /// A caller that has posted and awaits an answer.
    Post,
}

/// A level-triggered epoll and what is in it. Its [`Handover`] says whether callers or the worker
/// look after it.
pub(crate) trait PollSet: Send + Sync + fmt::Debug {
    /// Its number, by which the worker knows it.
    fn id(&self) -> u64;
    /// Made if it is not there yet.
    fn epoll(&self) -> io::Result<&Epoll>;
    fn handover(&self) -> &Handover;
    /// The clock of its hand-over.
    fn clock(&self) -> &Clock;
    /// See [`Attended::report_once`].
    fn report_once(&self);
    /// See [`Attended::look_again`].
    fn look_again(&self, at: u64);
    /// Has the epoll report all there is, before a thread waits for it: its bell may be hushed
    /// while callers poll. That thread has told the hand-over before.
    fn listen(&self);
    /// Moves all that is ready. False when nothing was, or another thread drives.
    fn drive(&self, by: By) -> bool;
    /// A caller thread that finds nothing in its own queue moves what is ready here. False when
    /// nothing was, or a caller blocked here will.
    fn help(&self) -> bool {
        false
    }
    /// The number of times that other processes have signalled the channel's descriptor for what
    /// they have sent, of which they tell the program that waits and not the worker, or are about
    /// to, since this was asked.
    fn alerts(&self) -> u64 {
        0
    }
    /// True if [`Self::alerts`] counts some.
    fn is_alerted(&self) -> bool {
        false
    }
    /// A caller moves what such a process has sent. If another thread drives, which may have looked
    /// before that came, the epoll reports it.
    fn answer_alert(&self) {
        self.drive(By::Caller);
    }
    /// True if other processes may do so.
    fn may_be_alerted(&self) -> bool {
        false
    }
    /// The worker moves all that is ready.
    fn serve(&self) -> Served {
        Served { moved: self.drive(By::Worker), left: false }
    }
}

impl Attended for dyn PollSet + '_ {
    fn handover(&self) -> &Handover {
        PollSet::handover(self)
    }

    fn nanos(&self) -> u64 {
        self.clock().nanos()
    }

    fn listen(&self) {
        PollSet::listen(self);
    }

    fn report_once(&self) {
        PollSet::report_once(self);
    }

    fn look_again(&self, at: u64) {
        PollSet::look_again(self, at);
    }

    fn serve(&self) -> Served {
        PollSet::serve(self)
    }
}

/// A caller that is blocked, until this is dropped.
#[derive(Debug)]
pub(crate) struct Waiting(Arc<dyn PollSet>);

impl Waiting {
    pub(crate) fn on(set: Arc<dyn PollSet>) -> Self {
        attend::enter(&*set);
        Self(set)
    }

    pub(crate) fn set(&self) -> &dyn PollSet {
        &*self.0
    }

    fn epoll(&self) -> io::Result<&Epoll> {
        self.0.epoll()
    }

    /// Moves what is ready.
    pub(crate) fn drive(&self) {
        if !self.0.drive(By::Caller) {
            // The thread that drives may need this CPU.
            self.0.clock().yield_now();
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        attend::leave(&*self.0);
    }
}

/// Blocks until `fd` has what is of interest, something of what `waiting` names (two at most) is
/// ready, a signal came, or `timeout` has passed.
pub(crate) fn wait_beside(
    waiting: &[Waiting],
    fd: BorrowedFd<'_>,
    interest: Interest,
    timeout: Option<Duration>,
) -> io::Result<Woken> {
    let own = (fd, interest);
    let of = |waiting| -> io::Result<_> { Ok((Waiting::epoll(waiting)?.as_fd(), Interest::READ)) };
    let ready = match waiting {
        [] => poll::wait_ready([own], timeout).map(|[own]| [own, false, false]),
        [one] => poll::wait_ready([own, of(one)?], timeout).map(|[own, one]| [own, one, false]),
        [one, two, ..] => poll::wait_ready([own, of(one)?, of(two)?], timeout),
    };
    match ready {
        Ok([own, set @ ..]) => Ok(Woken { own, set }),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(Woken::default()),
        Err(error) => Err(error),
    }
}

/// The reason for which [`wait_beside`] returned.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Woken {
    /// The descriptor is ready.
    pub(crate) own: bool,
    set: [bool; 2],
}

impl Woken {
    /// Moves what is ready of what was waited for.
    pub(crate) fn drive(self, waiting: &[Waiting]) {
        for (waiting, ready) in waiting.iter().zip(self.set) {
            if ready {
                waiting.drive();
            }
        }
    }
}
