// SPDX-License-Identifier: MIT OR Apache-2.0

//! The members that a poll group moves, and the poll groups that it is in.

use std::io;
use std::sync::{Arc, Weak};

use iwarp_os::{Interest, Ready};

use super::Group;
use crate::engine::link::{Link, LinkWaker};
use crate::engine::mux::Mux;
use crate::engine::poll_set::By;
use crate::engine::sync::Mutex;
use crate::port::Descriptors;

/// A member that a poll group waits for.
pub(crate) trait Awaited {
    /// The descriptors that report it ready.
    fn descriptors(&self) -> Descriptors<'_>;
    /// The waker of the groups, where it has no descriptor.
    fn waker(&self) -> Option<&LinkWaker>;
    /// The readiness that is of interest now.
    fn interest(&self) -> Interest;
    /// Whether a task may be asleep that is told of input by other means than poll groups.
    fn has_other_sleeper(&self) -> bool {
        false
    }
}

/// A stream of one queue pair, or the datagrams of many.
#[derive(Clone, Debug)]
pub(crate) enum Member {
    Stream(Arc<Link>),
    Datagrams(Arc<Mux>),
}

/// A match, so that a stream is called statically.
macro_rules! each {
    ($member:expr, $it:ident => $call:expr) => {
        match $member {
            Self::Stream($it) => $call,
            Self::Datagrams($it) => $call,
        }
    };
}

impl Awaited for Member {
    fn descriptors(&self) -> Descriptors<'_> {
        each!(self, it => it.descriptors())
    }

    fn waker(&self) -> Option<&LinkWaker> {
        each!(self, it => it.waker())
    }

    fn interest(&self) -> Interest {
        each!(self, it => it.interest())
    }

    fn has_other_sleeper(&self) -> bool {
        each!(self, it => it.has_other_sleeper())
    }
}

impl Member {
    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Stream(one), Self::Stream(other)) => Arc::ptr_eq(one, other),
            (Self::Datagrams(one), Self::Datagrams(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    /// Something is ready.
    pub(super) fn ready(&self, ready: Ready, by: By) {
        each!(self, it => it.ready(ready, by));
    }

    /// The readiness that is of interest and there, where it has no descriptor; `None`: nothing.
    pub(super) fn readiness(&self, token: u64) -> Option<Ready> {
        match self {
            Self::Stream(link) => link.readiness(token),
            Self::Datagrams(mux) => mux.readiness(token),
        }
    }

    /// Sends what waits and receives what is there, without knowing whether that can be. False
    /// when it cannot.
    #[inline]
    pub(super) fn attempt(&self, by: By) -> bool {
        match self {
            Self::Stream(link) => link.try_stream(by),
            Self::Datagrams(mux) => mux.attempt(by),
        }
    }

    /// Whether an attempt finds out all that the epoll would report, at no greater cost.
    #[inline]
    pub(super) fn can_be_tried(&self) -> bool {
        match self {
            Self::Stream(link) => link.can_be_tried(),
            Self::Datagrams(mux) => mux.can_be_tried(),
        }
    }

    /// The epoll reports room to send, and nobody wants to know.
    #[inline]
    pub(super) fn awaits_in_vain(&self) -> bool {
        match self {
            Self::Stream(link) => link.awaits_in_vain(),
            Self::Datagrams(mux) => mux.awaits_in_vain(),
        }
    }

    /// Tells the poll groups what to wait for.
    pub(super) fn update_interest(&self) {
        each!(self, it => it.update_interest());
    }

    /// Whether callers of another group that it is in look after it.
    pub(super) fn is_leased_beside(&self, group: &Group) -> bool {
        each!(self, it => it.memberships().is_leased_beside(group))
    }

    /// It can be waited for no more.
    pub(super) fn lose(&self, error: &io::Error) {
        match self {
            Self::Stream(link) => link.lose(error),
            Self::Datagrams(_) => tracing::error!(%error, "cannot wait for datagrams"),
        }
    }
}

/// The poll groups that a member is in, each with the token that names it there.
#[derive(Debug, Default)]
pub(crate) struct Memberships(Mutex<Vec<(Weak<Group>, u64)>>);

impl Memberships {
    /// Joins a group, unless it is in it already. Not where `is_closed` says, under the lock under
    /// which it leaves its groups, that it has been closed.
    pub(crate) fn join(
        &self,
        group: &Arc<Group>,
        member: &Member,
        is_closed: impl FnOnce() -> bool,
    ) -> io::Result<()> {
        let mut groups = self.0.lock();
        if is_closed() || groups.iter().any(|(other, _)| other.as_ptr() == Arc::as_ptr(group)) {
            return Ok(());
        }
        let token = group.add(member)?;
        groups.push((Arc::downgrade(group), token));
        drop(groups);
        group.note_change();
        Ok(())
    }

    /// Leaves all groups.
    pub(crate) fn leave(&self, member: &impl Awaited) {
        let groups = std::mem::take(&mut *self.0.lock());
        for (group, token) in groups {
            if let Some(group) = group.upgrade() {
                group.remove(member, token);
            }
        }
    }

    /// Leaves one group.
    pub(crate) fn leave_one(&self, group: &Arc<Group>, member: &impl Awaited) {
        let mut left = None;
        self.0.lock().retain(|(other, token)| {
            let is_it = other.as_ptr() == Arc::as_ptr(group);
            if is_it {
                left = Some(*token);
            }
            !is_it
        });
        if let Some(token) = left {
            group.remove(member, token);
        }
    }

    /// Tells the groups what to wait for. `first` is called under the lock.
    pub(crate) fn update(&self, member: &impl Awaited, first: impl FnOnce()) {
        let groups = self.0.lock();
        first();
        for (group, token) in groups.iter() {
            if let Some(group) = group.upgrade() {
                group.update(member, *token);
            }
        }
    }

    /// Whether callers of another group than this one look after it.
    fn is_leased_beside(&self, group: &Group) -> bool {
        let groups = self.0.lock();
        let mut others = groups.iter().filter(|(other, _)| !std::ptr::eq(other.as_ptr(), group));
        others.any(|(other, _)| {
            other.upgrade().is_some_and(|other| other.handover.is_leased(other.clock().nanos()))
        })
    }
}
