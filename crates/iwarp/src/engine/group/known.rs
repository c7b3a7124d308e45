// SPDX-License-Identifier: MIT OR Apache-2.0

//! The processes that know a completion queue, and see when it is armed.

use std::sync::Arc;

use iwarp_os::EventFd;

use crate::engine::sync::{AtomicBool, Mutex, Ordering};
use crate::port::local::{Channel, KnownQueue};

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Known {
    is_any: AtomicBool,
    queues: Mutex<Vec<KnownQueue>>,
}

impl Known {
    /// Has the process at the other end of the channel know the queue, and calls `tell` with the
    /// queue as that process is to know it. Does nothing where it knows too many, or for want of
    /// memory: then the worker is woken for what it sends.
    pub(crate) fn by(&self, channel: &Arc<Channel>, tell: impl FnOnce(&KnownQueue)) {
        let mut queues = self.queues.lock();
        queues.retain(|queue| !queue.is_over());
        let there = queues.iter().position(|queue| queue.is_known_by(channel));
        let at = there.or_else(|| {
            queues.try_reserve(1).ok()?;
            queues.push(KnownQueue::new(channel)?);
            Some(queues.len() - 1)
        });
        if let Some(queue) = at.and_then(|at| queues.get(at)) {
            self.is_any.store(true, Ordering::Release);
            tell(queue);
        }
    }

    /// True if some process knows the queue.
    #[inline]
    pub(crate) fn is_any(&self) -> bool {
        self.is_any.load(Ordering::Acquire)
    }

    /// The queue is armed: what others send that completes there, or has a solicited event, is to
    /// signal the descriptor.
    pub(crate) fn arm(&self, events: &Arc<EventFd>, solicited_only: bool) {
        self.queues.lock().iter().for_each(|queue| queue.arm(events, solicited_only));
    }

    /// It is armed no more.
    pub(crate) fn disarm(&self) {
        self.queues.lock().iter().for_each(KnownQueue::disarm);
    }

    /// The number of times that processes have signalled the descriptor for what they have sent, or
    /// are about to, since this was asked.
    pub(crate) fn alerts(&self) -> u64 {
        if !self.is_any() {
            return 0;
        }
        self.queues.lock().iter().map(KnownQueue::alerts).sum()
    }

    /// True if [`Self::alerts`] counts some.
    pub(crate) fn is_alerted(&self) -> bool {
        self.is_any() && self.queues.lock().iter().any(KnownQueue::is_alerted)
    }
}

#[cfg(all(test, not(model)))]
mod tests {
    use std::os::fd::{AsFd, OwnedFd};
    use std::time::Duration;

    use iwarp_os::local::{Alert, Marks};
    use iwarp_os::poll;
    use iwarp_types::{QpId, WcOp, WcStatus, WorkCompletion};

    use crate::Device;
    use crate::engine::channel::ChannelCore;
    use crate::engine::cq::CqCore;
    use crate::port::local::Passing;

    use super::*;

    /// A queue whose events a program awaits, and a process that knows it by this number.
    struct Case {
        cq: Arc<CqCore>,
        events: Arc<ChannelCore>,
        channel: Arc<Channel>,
        peer: Arc<Channel>,
        queue: u16,
        device: Device,
    }

    fn set_nonblocking(events: &ChannelCore, on: bool) {
        let fd = events.event_fd().as_fd();
        let mut flags = rustix::fs::fcntl_getfl(fd).unwrap();
        flags.set(rustix::fs::OFlags::NONBLOCK, on);
        rustix::fs::fcntl_setfl(fd, flags).unwrap();
    }

    impl Case {
        fn new() -> Self {
            let device = Device::open().unwrap();
            let pd = device.alloc_pd();
            let core = pd.core.check().unwrap();
            let events = ChannelCore::new().unwrap();
            set_nonblocking(&events, true);
            let of_device = Arc::clone(&core.events);
            let cq = CqCore::new(&core.engine, 8, Some(Arc::clone(&events)), of_device).unwrap();
            let (marks, fds) = Marks::create().unwrap();
            let [memory, peers, own]: [OwnedFd; 3] =
                fds.passed().map(|fd| fd.try_clone_to_owned().unwrap());
            let peer = Channel::new(Marks::join(memory, peers, own).unwrap());
            let channel = Channel::new(marks);
            let passed = Arc::clone(&peer);
            channel.pass_by(move |what| {
                if let Passing::Events(number, events) = what {
                    let dup = |events: &EventFd| events.as_fd().try_clone_to_owned().unwrap();
                    passed.set_alert(number, events.map(|fd| Alert::from_peer(dup(fd)).unwrap()));
                }
                true
            });
            // The worker may sleep.
            channel.listen();
            let mut queue = None;
            cq.become_known(&channel, |known| queue = Some(known.number()));
            Self { cq, events, channel, peer, queue: queue.unwrap(), device }
        }

        /// A second queue of the channel, and its number.
        fn another_queue(&self) -> (Arc<CqCore>, u16) {
            let pd = self.device.alloc_pd();
            let core = pd.core.check().unwrap();
            let (events, of_device) = (Arc::clone(&self.events), Arc::clone(&core.events));
            let cq = CqCore::new(&core.engine, 8, Some(events), of_device).unwrap();
            let mut queue = None;
            cq.become_known(&self.channel, |known| queue = Some(known.number()));
            (cq, queue.unwrap())
        }

        /// The process sends something that completes in the queue. True if the program was woken.
        fn send(&self, is_solicited: bool) -> bool {
            self.peer.mark_completion(3, self.queue, is_solicited)
        }

        fn complete(&self) {
            let completion = WorkCompletion::new(1, QpId(1), WcOp::Recv, WcStatus::Success);
            assert!(self.cq.push(completion, 0, 0));
        }

        fn has_no_event(&self) {
            assert_eq!((self.events.take_ready(), self.is_readable()), (None, false));
        }

        fn is_readable(&self) -> bool {
            let fd = self.events.event_fd().as_fd();
            poll::wait_readable([fd], Some(Duration::ZERO)).unwrap() == [true]
        }
    }

    #[test]
    fn a_program_that_waits_is_woken_by_the_sender() {
        let case = Case::new();
        assert!(!case.send(false), "it is not armed");
        case.cq.request_notify(false);
        assert!(case.send(false) && case.is_readable());
        assert!(!case.send(false), "it is armed once");
        // The completion comes as the program looks.
        case.complete();
        assert_eq!(case.events.take_ready(), Some(case.cq.number()));
        case.has_no_event();
        case.cq.request_notify(false);
        assert!(case.send(false), "it is armed again");
    }

    #[test]
    fn a_readable_descriptor_has_an_event() {
        let case = Case::new();
        case.cq.request_notify(false);
        assert!(case.send(false) && case.is_readable());
        // The message completes elsewhere, or finds no receive.
        assert_eq!(case.events.take_ready(), Some(case.cq.number()));
        case.has_no_event();
        // The queue is armed still, on behalf of the worker.
        case.complete();
        assert_eq!(case.events.take_ready(), Some(case.cq.number()));
    }

    #[test]
    fn the_event_is_of_the_queue_for_which_the_program_was_woken() {
        let case = Case::new();
        case.cq.request_notify(false);
        let (other, queue) = case.another_queue();
        other.request_notify(false);
        assert!(case.peer.mark_completion(3, queue, false));
        other.request_notify(false);
        assert_eq!(case.events.take_ready(), Some(other.number()));
        case.has_no_event();
    }

    #[test]
    fn a_caller_that_takes_an_event_leaves_the_descriptor_to_tell_of_a_message() {
        let case = Case::new();
        case.cq.request_notify(false);
        let (other, queue) = case.another_queue();
        other.request_notify(false);
        case.complete();
        assert!(case.peer.mark_completion(3, queue, false));
        assert_eq!(case.events.wake().take(), Some(case.cq.number()));
        assert!(case.is_readable());
        assert_eq!(case.events.take_ready(), Some(other.number()));
    }

    #[test]
    fn a_signal_that_comes_after_its_event_has_one_of_its_own() {
        let case = Case::new();
        case.cq.request_notify(false);
        assert!(case.send(false));
        // It comes late.
        case.events.event_fd().drain().unwrap();
        case.complete();
        assert_eq!(case.events.take_ready(), Some(case.cq.number()));
        assert_eq!(case.events.take_ready(), None);
        case.events.event_fd().signal().unwrap();
        assert_eq!(case.events.take_ready(), Some(case.cq.number()));
        case.has_no_event();
    }

    #[test]
    fn a_process_that_signals_without_need_is_heard_in_the_end() {
        let case = Case::new();
        case.cq.request_notify(false);
        case.events.event_fd().signal().unwrap();
        let heard = (0..100).find_map(|_| case.events.take_ready());
        assert_eq!((heard, case.is_readable()), (Some(case.cq.number()), false));
    }

    #[test]
    fn an_event_that_came_otherwise_takes_back_the_arming() {
        let case = Case::new();
        case.cq.request_notify(false);
        case.complete();
        assert!(!case.send(false));
        assert_eq!(case.events.take_ready(), Some(case.cq.number()));
        case.has_no_event();
    }

    #[test]
    fn only_a_solicited_message_wakes_a_program_that_asked_for_those() {
        let case = Case::new();
        case.cq.request_notify(true);
        assert!(!case.send(false) && !case.is_readable());
        assert!(case.send(true) && case.is_readable());
        // The wider request wins, in either order.
        for widens in [[true, false], [false, true]] {
            let case = Case::new();
            widens.into_iter().for_each(|solicited_only| case.cq.request_notify(solicited_only));
            assert!(case.send(false));
        }
    }

    #[test]
    fn a_queue_that_is_gone_is_known_no_more() {
        let case = Case::new();
        case.cq.request_notify(false);
        let Case { cq, events, peer, queue, channel: _channel, device: _device } = case;
        drop(cq);
        assert!(!peer.mark_completion(3, queue, false));
        let fd = events.event_fd().as_fd();
        assert_eq!(poll::wait_readable([fd], Some(Duration::ZERO)).unwrap(), [false]);
    }

    #[test]
    fn a_program_whose_calls_wait_is_woken_by_its_worker() {
        let case = Case::new();
        set_nonblocking(&case.events, false);
        case.cq.request_notify(false);
        assert!(!case.send(false) && !case.is_readable());
        set_nonblocking(&case.events, true);
        case.cq.request_notify(false);
        assert!(case.send(false) && case.is_readable());
    }

    #[test]
    fn a_channel_that_is_over_is_not_kept() {
        let Case { cq, events, channel, .. } = Case::new();
        cq.request_notify(false);
        let gone = Arc::downgrade(&channel);
        drop(channel);
        assert!(gone.upgrade().is_none(), "its descriptors stay open");
        // A process that has died may have taken the queue's word before.
        cq.request_notify(false);
        assert_eq!(events.take_ready(), None);
    }

    #[test]
    fn a_caller_that_blocks_hears_of_it_too() {
        let case = Case::new();
        case.cq.request_notify(false);
        assert!(case.send(false));
        let event = case.events.wait(Some(Duration::from_secs(20))).unwrap();
        assert_eq!(event, Some(case.cq.number()), "its descriptor was readable");
    }
}
