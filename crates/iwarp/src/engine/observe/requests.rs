// SPDX-License-Identifier: MIT OR Apache-2.0

//! The send work requests of an observed queue pair that are under way.
//!
//! Requests of a send queue end in the order in which they were posted, so a list of them is enough
//! to know which one ended. Requests without a completion are told of by their number, and only
//! before the next completion; the core knows earlier how many are outstanding, and a look at the
//! counters goes by that.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use iwarp_mem::OutOfMemory;
use iwarp_os::clock;
use iwarp_types::{RecvRequest, SendRequest, WcStatus, WorkCompletion};

use super::counters::{Counters, Kind};
use super::times::Times;
use super::{Observer, SomeObserver};

/// A queue pair whose requests are counted, or told to an observer. Its endpoint's lock keeps it.
#[derive(Debug)]
pub(crate) struct Observed {
    qp: u32,
    counters: Counters,
    /// Send work requests under way, oldest first.
    sends: VecDeque<Posted>,
    /// Requests that were taken from `sends` before the core has told that they ended.
    ahead: u32,
    /// Receives under way, of a queue of its own.
    receives: u64,
    observer: Option<Arc<dyn Observer>>,
    /// It is here only for those who watch: what was posted before is not counted.
    joined: bool,
    /// There while somebody watches.
    times: Option<Box<Times>>,
}

#[derive(Clone, Copy, Debug)]
struct Posted {
    wr_id: u64,
    octets: u32,
    /// `None`: the library's own, or posted before it was counted.
    kind: Option<Kind>,
    /// The time of its post, while somebody watches.
    at: Option<Duration>,
}

impl Observed {
    /// For a queue pair whose send queue has `depth` places.
    ///
    /// # Errors
    ///
    /// When there is no memory for a list of that length.
    pub(crate) fn new(
        qp: u32,
        depth: usize,
        observer: Option<SomeObserver>,
    ) -> Result<Box<Self>, OutOfMemory> {
        let mut sends = VecDeque::new();
        sends.try_reserve_exact(depth).map_err(|_| OutOfMemory)?;
        let observer = observer.map(|SomeObserver(observer)| observer);
        Ok(Box::new(Self {
            qp,
            counters: Counters::default(),
            sends,
            ahead: 0,
            receives: 0,
            observer,
            joined: false,
            times: None,
        }))
    }

    /// For one that has posted already: so many requests have not ended, and of so many the end
    /// was not told yet.
    ///
    /// # Errors
    ///
    /// As [`Self::new`].
    pub(crate) fn join(
        qp: u32,
        depth: usize,
        outstanding: usize,
        untold: u32,
    ) -> Result<Box<Self>, OutOfMemory> {
        let mut this = Self::new(qp, depth.max(outstanding), None)?;
        let unknown = Posted { wr_id: 0, octets: 0, kind: None, at: None };
        this.sends.resize(outstanding, unknown);
        this.ahead = untold.saturating_sub(outstanding as u32);
        this.joined = true;
        Ok(this)
    }

    /// Somebody watches until then.
    ///
    /// # Errors
    ///
    /// When there is no memory for the times.
    pub(crate) fn watch(&mut self, until: Duration) -> Result<(), OutOfMemory> {
        match &mut self.times {
            Some(times) => times.extend(until),
            None => self.times = Some(Times::new(until)?),
        }
        Ok(())
    }

    /// The times of requests since somebody watches.
    pub(crate) fn times(&self) -> Option<&Times> {
        self.times.as_deref()
    }

    /// It was here for those who watch, and none does any more.
    pub(crate) const fn is_over(&self) -> bool {
        self.joined && self.times.is_none()
    }

    /// A request is carried out, and is posted then.
    pub(crate) fn begins(&mut self) {
        if let Some(times) = &mut self.times {
            times.begins(clock::now());
        }
    }

    /// It is not posted.
    pub(crate) fn is_refused(&mut self) {
        if let Some(times) = &mut self.times {
            times.forget_begun();
        }
    }

    /// The time of a post, if somebody watches.
    #[cold]
    fn time_of_post(&mut self) -> Option<Duration> {
        let (times, now) = (self.times.as_mut()?, clock::now());
        if times.is_over(now) {
            self.times = None;
            return None;
        }
        Some(times.posted(now))
    }

    /// A request was posted, with which so many have not ended as far as the core knows; `None` if
    /// it has ends that were not told yet.
    #[inline]
    pub(crate) fn posted(
        &mut self,
        request: &SendRequest<'_>,
        outstanding: impl FnOnce() -> Option<usize>,
    ) {
        if self.sends.len() == self.sends.capacity() {
            self.make_room(outstanding());
        }
        let at = if self.times.is_some() { self.time_of_post() } else { None };
        let kind = (!request.internal).then(|| Kind::of(&request.op));
        // Messages have 2^32 - 1 octets at most.
        let octets = request.payload.len() as u32;
        self.sends.push_back(Posted { wr_id: request.wr_id, octets, kind, at });
        if let Some(kind) = kind {
            self.counters.posted(kind);
            if let Some(observer) = &self.observer {
                observer.posted_send(self.qp, request);
            }
        }
    }

    /// Either no request of a whole queue was signalled, or more ends than it has places wait to be
    /// told.
    #[cold]
    fn make_room(&mut self, outstanding: Option<usize>) {
        if let Some(outstanding) = outstanding {
            self.catch_up(outstanding.saturating_sub(1));
        }
        if self.sends.len() == self.sends.capacity() && self.sends.try_reserve(1).is_err() {
            // Better a count too few than none at all.
            self.sends.pop_front();
        }
    }

    /// A receive was posted to the queue pair's own queue.
    #[inline]
    pub(crate) fn posted_receive(&mut self, request: &RecvRequest<'_>) {
        self.counters.receives.posted += 1;
        self.receives += 1;
        if let Some(observer) = &self.observer {
            observer.posted_receive(self.qp, request);
        }
    }

    /// So many requests have ended well without a completion.
    pub(crate) fn ended_silently(&mut self, count: u32) {
        // The requests that are ahead are among them.
        let new = count.wrapping_sub(std::mem::take(&mut self.ahead));
        self.end_silently(new as usize);
    }

    fn end_silently(&mut self, count: usize) {
        let count = count.min(self.sends.len());
        for Posted { wr_id, octets, kind, .. } in self.sends.drain(..count) {
            let Some(kind) = kind else { continue };
            self.counters.ended(kind, true, octets);
            if let Some(observer) = &self.observer {
                observer.completed_silently(self.qp, wr_id);
            }
        }
    }

    /// All but so many requests have ended, as far as the core knows, and all completions of them
    /// were told.
    pub(crate) fn catch_up(&mut self, outstanding: usize) {
        let ended = self.sends.len().saturating_sub(outstanding);
        self.end_silently(ended);
        self.ahead = self.ahead.wrapping_add(ended as u32);
    }

    /// A send work request has a completion.
    #[inline]
    pub(crate) fn completed(&mut self, completion: &WorkCompletion) {
        let Some(Posted { octets, kind, at, .. }) = self.sends.pop_front() else { return };
        let Some(kind) = kind else { return };
        let is_good = completion.status == WcStatus::Success;
        if let (Some(at), Some(times), true) = (at, &mut self.times, is_good) {
            times.ended(clock::now().saturating_sub(at));
        }
        self.counters.ended(kind, is_good, octets);
        self.tell(completion);
    }

    /// A receive has one.
    #[inline]
    pub(crate) fn received(&mut self, completion: &WorkCompletion) {
        self.receives = self.receives.saturating_sub(1);
        self.counters.received(completion);
        self.tell(completion);
    }

    #[inline]
    fn tell(&self, completion: &WorkCompletion) {
        if let Some(observer) = &self.observer {
            observer.completed(completion);
        }
    }

    /// The queue pair is as new: what was under way ends without a completion, and not well.
    pub(crate) fn reset(&mut self) {
        for kind in self.sends.drain(..).filter_map(|posted| posted.kind) {
            self.counters.ended(kind, false, 0);
        }
        self.counters.receives.failed += std::mem::take(&mut self.receives);
        self.ahead = 0;
    }

    /// `None` where it does not know all requests since the queue pair was made.
    pub(crate) fn counters(&self) -> Option<Counters> {
        (!self.joined).then_some(self.counters)
    }
}

#[cfg(test)]
mod tests {
    use iwarp_types::{Payload, QpId, SendOp, Stag, TaggedOffset, WcOp};

    use super::*;
    use crate::engine::observe::Operations;

    const DEPTH: usize = 4;

    fn observed() -> Box<Observed> {
        Observed::new(7, DEPTH, None).unwrap()
    }

    fn write(wr_id: u64) -> SendRequest<'static> {
        SendRequest::write(wr_id, Payload::Inline(b"12345"), Stag(1), TaggedOffset(0))
    }

    fn completion(op: WcOp, status: WcStatus) -> WorkCompletion {
        WorkCompletion::new(1, QpId(7), op, status)
    }

    fn counts(of: Operations) -> [u64; 4] {
        [of.posted, of.completed, of.failed, of.bytes]
    }

    #[test]
    fn requests_end_in_the_order_of_their_posts() {
        let mut observed = observed();
        observed.posted(&SendRequest::send(1, Payload::Inline(b"abc")), || Some(1));
        observed.posted(&write(2), || Some(2));
        observed.posted(&SendRequest::send(3, Payload::NONE), || Some(3));
        observed.ended_silently(1);
        observed.completed(&completion(WcOp::Write, WcStatus::Success));
        observed.completed(&completion(WcOp::Send, WcStatus::Flushed));
        let Counters { sends, writes, .. } = observed.counters().unwrap();
        assert_eq!((counts(sends), counts(writes)), ([2, 1, 1, 3], [1, 1, 0, 5]));
    }

    #[test]
    fn counters_of_unsignalled_requests_need_no_completion() {
        let mut observed = observed();
        (0..3).for_each(|n| observed.posted(&write(n), || Some(n as usize + 1)));
        observed.catch_up(1);
        assert_eq!(counts(observed.counters().unwrap().writes), [3, 2, 0, 10]);
        // The core tells of these two later, before the completion of the third.
        observed.ended_silently(2);
        observed.completed(&completion(WcOp::Write, WcStatus::Success));
        assert_eq!(counts(observed.counters().unwrap().writes), [3, 3, 0, 15]);
    }

    #[test]
    fn a_queue_that_signals_nothing_needs_no_longer_list() {
        let mut observed = observed();
        let capacity = observed.sends.capacity();
        (0..1000).for_each(|n| observed.posted(&write(n), || Some(1)));
        assert_eq!(observed.sends.capacity(), capacity);
        observed.catch_up(0);
        assert_eq!(counts(observed.counters().unwrap().writes), [1000, 1000, 0, 5000]);
    }

    #[test]
    fn requests_of_the_library_count_nowhere_but_keep_their_place() {
        let mut observed = observed();
        observed.posted(&SendRequest::new(1, SendOp::SEND, Payload::NONE).internal(), || Some(1));
        observed.posted(&write(2), || Some(2));
        observed.completed(&completion(WcOp::Send, WcStatus::Success));
        observed.completed(&completion(WcOp::Write, WcStatus::Success));
        let Counters { sends, writes, .. } = observed.counters().unwrap();
        assert_eq!((counts(sends), counts(writes)), ([0; 4], [1, 1, 0, 5]));
    }

    #[test]
    fn a_reset_fails_all_that_is_under_way() {
        let mut observed = observed();
        observed.posted(&write(1), || Some(1));
        observed.posted_receive(&RecvRequest::new(2, &[]));
        observed.catch_up(0);
        observed.posted(&write(3), || Some(1));
        observed.reset();
        let Counters { writes, receives, .. } = observed.counters().unwrap();
        assert_eq!((counts(writes), counts(receives)), ([2, 1, 1, 5], [1, 0, 1, 0]));
        // No end of before the reset is told of the requests behind it.
        observed.posted(&write(4), || Some(1));
        observed.ended_silently(1);
        assert_eq!(counts(observed.counters().unwrap().writes), [3, 2, 1, 10]);
    }

    #[test]
    fn bytes_received_are_those_of_messages() {
        let mut observed = observed();
        let received = |op| {
            let mut completion = completion(op, WcStatus::Success);
            completion.byte_len = 9;
            completion
        };
        let ops = [WcOp::Recv, WcOp::RecvImmediate, WcOp::RecvWriteImmediate];
        ops.iter().for_each(|op| observed.received(&received(*op)));
        observed.received(&completion(WcOp::Recv, WcStatus::Flushed));
        assert_eq!(counts(observed.counters().unwrap().receives), [0, 3, 1, 9]);
    }

    fn timed(observed: &Observed) -> u64 {
        observed.times().map_or(0, |times| times.counts().map(|(_, count)| count).sum())
    }

    #[test]
    fn a_watch_sees_requests_that_are_posted_from_then_on() {
        // Of five requests the last has a completion; three have ended, which was not told yet.
        let mut observed = Observed::join(7, DEPTH, 2, 5).unwrap();
        observed.watch(clock::now() + Duration::from_secs(60)).unwrap();
        observed.posted(&write(6), || Some(3));
        observed.ended_silently(4);
        observed.completed(&completion(WcOp::Write, WcStatus::Success));
        assert_eq!((timed(&observed), observed.sends.len()), (0, 1));
        observed.completed(&completion(WcOp::Write, WcStatus::Success));
        assert_eq!((timed(&observed), observed.sends.len()), (1, 0));
        assert_eq!(observed.counters(), None);
        assert!(!observed.is_over());
    }

    #[test]
    fn requests_that_fail_or_have_no_completion_have_no_time() {
        let mut observed = observed();
        observed.watch(clock::now() + Duration::from_secs(60)).unwrap();
        (0..3).for_each(|n| observed.posted(&write(n), || Some(n as usize + 1)));
        observed.ended_silently(1);
        observed.completed(&completion(WcOp::Write, WcStatus::Success));
        observed.completed(&completion(WcOp::Write, WcStatus::Flushed));
        assert_eq!(timed(&observed), 1);
    }

    #[test]
    fn the_end_of_a_watch_is_seen_by_a_post() {
        for mut observed in [observed(), Observed::join(7, DEPTH, 0, 0).unwrap()] {
            observed.watch(clock::now()).unwrap();
            observed.posted(&write(1), || Some(1));
            assert_eq!((observed.is_over(), observed.times().is_none()), (observed.joined, true));
        }
    }

    #[test]
    fn a_list_grows_while_ends_wait_to_be_told() {
        let mut observed = observed();
        let many = observed.sends.capacity() as u64 + 2;
        (0..many).for_each(|n| observed.posted(&write(n), || None));
        for _ in 0..many {
            observed.completed(&completion(WcOp::Write, WcStatus::Flushed));
        }
        assert_eq!(counts(observed.counters().unwrap().writes), [many, 0, many, 0]);
    }
}
