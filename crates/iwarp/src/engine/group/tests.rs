// SPDX-License-Identifier: MIT OR Apache-2.0

//! Members that move, and channels that tell of them.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use iwarp_os::local::Marks;
use iwarp_os::{EventFd, EventFdKind, FdPlace, Interest, Ready, poll};

use super::{Group, Member, MemberWaker, Memberships};
use crate::engine::poll_set::By;
use crate::engine::worker::Worker;
use crate::port::local::Channel;
use crate::port::{Clock, Descriptors, Wake, Waker, WakerSlot};

/// A member that its descriptor reports until it is woken by what comes past that.
#[derive(Debug)]
struct Moving {
    fd: EventFd,
    woken: AtomicBool,
    waker: Arc<MemberWaker>,
    memberships: Memberships,
}

impl Moving {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            fd: EventFd::new(EventFdKind::Counter, FdPlace::Internal).unwrap(),
            woken: AtomicBool::new(false),
            waker: Arc::default(),
            memberships: Memberships::default(),
        })
    }

    fn join(self: &Arc<Self>, group: &Arc<Group>) {
        let member = Arc::clone(self) as Arc<dyn Member>;
        self.memberships.join(group, &member, || false).unwrap();
    }
}

impl Member for Moving {
    fn descriptors(&self) -> Descriptors<'_> {
        Descriptors::one(self.fd.as_fd())
    }

    fn waker(&self) -> Option<&Arc<MemberWaker>> {
        self.woken.load(Ordering::SeqCst).then_some(&self.waker)
    }

    fn looks_itself(&self) -> bool {
        true
    }

    fn interest(&self) -> Interest {
        Interest::READ
    }

    fn readiness(&self, _: u64) -> Option<Ready> {
        None
    }

    fn ready(&self, _: Ready, _: By) {}

    fn can_be_tried(&self) -> bool {
        true
    }

    fn attempt(&self, _: By) -> bool {
        false
    }

    fn awaits_in_vain(&self) -> bool {
        false
    }

    fn update_interest(&self) {}

    fn memberships(&self) -> &Memberships {
        &self.memberships
    }
}

/// A group that only the test drives.
fn group() -> Arc<Group> {
    Group::new(&Worker::without_thread(Clock::system()).unwrap(), Default::default())
}

/// A channel, and its end in the other process.
fn channel() -> (Arc<Channel>, Marks) {
    let (marks, fds) = Marks::create().unwrap();
    let [memory, peers, own]: [OwnedFd; 3] =
        fds.passed().map(|fd| fd.try_clone_to_owned().unwrap());
    (Channel::new(marks), Marks::join(memory, peers, own).unwrap())
}

#[test]
fn a_member_leaves_as_it_has_joined() {
    for joins_woken in [false, true] {
        let (group, member) = (group(), Moving::new());
        member.woken.store(joins_woken, Ordering::SeqCst);
        member.join(&group);
        assert_eq!(group.woken.is_used(), joins_woken);
        // It moves while it leaves.
        member.woken.store(!joins_woken, Ordering::SeqCst);
        member.memberships.leave(&*member);
        assert!(!group.woken.is_used(), "counted wrongly");
    }
}

#[test]
fn a_group_that_has_ended_has_no_bell_rung() {
    let (group, (channel, peer)) = (group(), channel());
    group.add_channel(&channel).unwrap();
    drop(group);
    // One that it had asked for.
    peer.mark(0).unwrap();
    channel.look();
    assert!(!peer.mark(0).unwrap(), "rung on behalf of a group that is gone");
}

#[test]
fn a_caller_that_naps_is_woken_once_by_one_mark() {
    let (group, (channel, peer), member) = (group(), channel(), Moving::new());
    member.woken.store(true, Ordering::SeqCst);
    let slot = Arc::new(WakerSlot::default());
    slot.set(Waker::new(Arc::clone(&member.waker) as Arc<dyn Wake>));
    assert!(channel.set_slot(0, &slot));
    group.add_channel(&channel).unwrap();
    member.join(&group);
    group.note_change();
    while group.drive(By::Caller) {}
    peer.mark(0).unwrap();
    assert!(group.sleep(Duration::from_secs(20)));
    group.drive(By::Caller);
    let epoll = group.epoll.get().unwrap();
    let ready = poll::wait_readable([epoll.as_fd()], Some(Duration::ZERO)).unwrap();
    assert_eq!(ready, [false], "the bell ends the next nap as well");
}

#[test]
fn channels_of_processes_that_are_gone_are_forgotten() {
    let (group, (gone, peer), (channel, _)) = (group(), channel(), channel());
    group.add_channel(&gone).unwrap();
    gone.end();
    group.add_channel(&channel).unwrap();
    // Another process has a duplicate of its bell.
    peer.mark(0).unwrap();
    let epoll = group.epoll.get().unwrap();
    let ready = poll::wait_readable([epoll.as_fd()], Some(Duration::ZERO)).unwrap();
    assert_eq!(ready, [false], "rung by a process that is forgotten");
}

#[test]
fn a_channel_that_ends_leaves_the_groups_that_hear_its_bell() {
    let (channel, _peer) = channel();
    let groups = [group(), group()];
    for group in &groups {
        group.add_channel(&channel).unwrap();
    }
    channel.end();
    for (left, group) in groups.iter().enumerate() {
        assert_eq!(Arc::strong_count(&channel), groups.len() + 1 - left);
        while group.drive(By::Worker) {}
        let epoll = group.epoll.get().unwrap();
        let ready = poll::wait_readable([epoll.as_fd()], Some(Duration::ZERO)).unwrap();
        assert_eq!(ready, [false], "it goes on ringing");
    }
    assert_eq!(Arc::strong_count(&channel), 1);
}

#[test]
fn a_member_is_heard_by_its_descriptor_after_its_channel_has_ended() {
    let (group, (channel, _peer), member) = (group(), channel(), Moving::new());
    member.woken.store(true, Ordering::SeqCst);
    group.add_channel(&channel).unwrap();
    member.join(&group);
    channel.end();
    while group.drive(By::Worker) {}
    member.fd.signal().unwrap();
    assert!(group.drive(By::Worker), "the epoll is not asked any more");
    let _ = member.fd.drain();
    member.memberships.leave(&*member);
    assert!(!group.woken.has_described());
}
