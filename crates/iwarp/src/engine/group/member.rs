// SPDX-License-Identifier: MIT OR Apache-2.0

//! The members of a poll group, and the poll groups of a member.

use std::sync::{Arc, Weak};
use std::{fmt, io};

use iwarp_os::{Interest, Ready};

use super::{Group, MemberWaker};
use crate::engine::poll_set::By;
use crate::engine::sync::Mutex;
use crate::port::Descriptors;

/// Moves the bytes of one stream, or the packets of a port that many queue pairs share. A poll
/// group drives it without knowing which of them it is.
pub(crate) trait Member: fmt::Debug + Send + Sync {
    /// The descriptors that report it ready.
    fn descriptors(&self) -> Descriptors<'_>;
    /// The waker of the groups, where it has no descriptor, or one that tells of its end alone.
    fn waker(&self) -> Option<&Arc<MemberWaker>>;
    /// True if an attempt finds what has come although no descriptor tells of it, and costs next to
    /// nothing if nothing has.
    fn looks_itself(&self) -> bool {
        false
    }
    /// The readiness that its descriptors are to report.
    fn interest_of_descriptors(&self) -> Interest {
        self.interest()
    }
    /// A descriptor was reported ready: [`Self::ready`] follows.
    fn reported(&self) {}
    /// The readiness that is of interest now.
    fn interest(&self) -> Interest;
    /// The readiness that is of interest and there, where it has no descriptor; `None`: nothing.
    fn readiness(&self, token: u64) -> Option<Ready>;
    /// Moves what is ready.
    fn ready(&self, ready: Ready, by: By);
    /// True if an attempt finds out all that the epoll would report, at no greater cost. A full
    /// socket that were tried would be filled in small pieces.
    fn can_be_tried(&self) -> bool;
    /// Sends what waits and receives what is there, without a report that something is ready. False
    /// when nothing moved.
    fn attempt(&self, by: By) -> bool;
    /// True if the epoll reports room to send, for which nothing waits.
    fn awaits_in_vain(&self) -> bool;
    /// Tells the poll groups what to wait for.
    fn update_interest(&self);
    /// The poll groups that it is in.
    fn memberships(&self) -> &Memberships;
}

/// The poll groups that a member is in, each with the token that names it there.
#[derive(Debug, Default)]
pub(crate) struct Memberships(Mutex<Vec<(Weak<Group>, u64)>>);

impl Memberships {
    /// Joins a group, unless it is in it already or `is_closed` says that it has been closed; that
    /// is asked under the lock under which it leaves its groups.
    pub(crate) fn join(
        &self,
        group: &Arc<Group>,
        member: &Arc<dyn Member>,
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
    pub(crate) fn leave(&self, member: &dyn Member) {
        let groups = std::mem::take(&mut *self.0.lock());
        for (group, token) in groups {
            if let Some(group) = group.upgrade() {
                group.remove(member, token);
            }
        }
    }

    /// Leaves one group.
    pub(crate) fn leave_one(&self, group: &Arc<Group>, member: &dyn Member) {
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
    pub(crate) fn update(&self, member: &dyn Member, first: impl FnOnce()) {
        let groups = self.0.lock();
        first();
        for (group, token) in groups.iter() {
            if let Some(group) = group.upgrade() {
                group.update(member, *token);
            }
        }
    }

    /// True if callers of another group than this one look after it.
    pub(super) fn is_leased_beside(&self, group: &Group) -> bool {
        let groups = self.0.lock();
        let mut others = groups.iter().filter(|(other, _)| !std::ptr::eq(other.as_ptr(), group));
        others.any(|(other, _)| {
            other.upgrade().is_some_and(|other| other.handover.is_leased(other.clock().nanos()))
        })
    }
}
