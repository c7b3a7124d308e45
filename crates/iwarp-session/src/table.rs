// SPDX-License-Identifier: MIT OR Apache-2.0

//! The operations of a session that are under way: who has which block, and who waits.
//!
//! The number of a work request is the key of its operation. A key that was removed finds nothing,
//! so a completion never meets another operation. A thread or task that polls the completion queue
//! completes what it finds, for all: its own operation, those of other threads and tasks, and those
//! whose owner has stopped waiting. A blocked thread waits on the completion channel, one per
//! session; the others wait for it.

#[cfg(feature = "tokio")]
mod driver;
mod end;
mod handle;
mod places;
mod state;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Waker;
use std::thread;
use std::time::{Duration, Instant};

use iwarp_mem::{RegisterError, Scope};
use iwarp_os::bell::Bell;
use iwarp_types::{
    Access, Payload, PostError, QpId, RecvRequest, SendOp, SendRequest, Sge, WorkCompletion,
};

use self::end::End;
pub(super) use self::handle::{Handle, WhenConnected};
pub(super) use self::places::Place;
pub(super) use self::state::Finished;
use self::state::{Queue, Stage, State};
use crate::block::{Borrower, Lent};
use crate::cargo::Cargo;
use crate::meters::Meters;
use crate::metrics::Way;
use crate::work::Work;
use crate::{Block, BlockPool, Config, Exposed, Failure, OperationError};
use iwarp::drive::{Background, Collecting, Drive};
#[cfg(feature = "tokio")]
use iwarp::drive::{ReactorStream, TaskTurn};
use iwarp::verbs::{ProtectionDomain, QueuePair, QueuePairAttributes};

/// Places in the send queue beyond those of the program, for what the session itself has to say.
const WORDS: usize = 4;

/// A queue pair and its operations.
pub(super) struct Core {
    pub(super) qp: QueuePair,
    drive: Drive,
    pub(super) background: Background,
    pub(super) pd: ProtectionDomain,
    /// Memory for the old values of atomic operations.
    pub(super) words: BlockPool,
    limits: [usize; 3],
    pub(super) meters: Meters,
    /// Bytes of messages that went beside them, out and in.
    beside: [AtomicU64; 2],
    state: Mutex<State>,
    /// Told whenever something completes.
    changed: Bell,
    /// A task sleeps on the descriptor of the channel and relies on being told.
    driven: AtomicBool,
}

impl Core {
    fn new(pd: &ProtectionDomain, config: &Config) -> Result<Self, OperationError> {
        // Never full: at most this many operations are under way.
        let depth = config.max_sends + WORDS + config.max_recvs;
        let drive = Drive::new(pd, depth).map_err(OperationError::Wait)?;
        let attributes = QueuePairAttributes::new(drive.cq(), drive.cq())
            .max_send_wr(config.max_sends + WORDS)
            .max_recv_wr(config.max_recvs)
            .max_send_sge(config.max_blocks.max(1))
            .max_recv_sge(config.max_blocks.max(1))
            .max_inline(config.max_inline)
            .counted(true);
        let qp = pd.create_qp(&attributes).map_err(OperationError::Wait)?;
        Ok(Self {
            qp,
            background: drive.background().ok_or(RegisterError::Exhausted)?,
            drive,
            pd: pd.clone(),
            words: BlockPool::new(pd, 8, 0)?,
            limits: [config.max_sends, config.max_recvs, WORDS],
            meters: Meters::new(),
            beside: Default::default(),
            state: Mutex::default(),
            changed: Bell::new(),
            driven: AtomicBool::new(false),
        })
    }

    /// A message went, and so many of its bytes beside it.
    pub(super) fn passed_beside(&self, way: Way, octets: usize) {
        self.beside[way as usize].fetch_add(octets as u64, Ordering::Relaxed);
        self.meters.passed_beside(way, octets);
    }

    /// Bytes that went beside messages, out and in.
    pub(super) fn beside(&self) -> [u64; 2] {
        self.beside.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a slot, if the queue has room.
    fn admit(&self, queue: Queue, cargo: Cargo<Lent>) -> Result<u64, Cargo<Lent>> {
        for attempt in 0..2 {
            let mut state = self.lock();
            if state.has_room(queue, 1, self.limits[queue as usize]) {
                return Ok(state.insert(queue, cargo));
            }
            drop(state);
            if attempt == 0 {
                self.progress();
            }
        }
        Err(cargo)
    }

    fn post_send(&self, work: Work<'_>, place: Option<Place>) -> Result<u64, Failure> {
        let Work { op, fence, cargo, other } = work;
        let lent = cargo.lend(&self.pd)?;
        let (one, several);
        let payload = match &lent {
            Cargo::None => other,
            Cargo::One(lent) => {
                one = [lent.sge(false)];
                Payload::Sges(&one)
            }
            Cargo::Several(lent) => {
                several = lent.iter().map(|lent| lent.sge(false)).collect::<Vec<_>>();
                Payload::Sges(&several)
            }
        };
        let wr_id = self.take_send_slot(lent, place)?;
        let mut request = SendRequest::new(wr_id, op, payload).signaled();
        request.fence = fence;
        let request = std::slice::from_ref(&request);
        let collecting = self.collecting(request);
        let posted = self.qp.post_sends(request);
        posted.map_err(|(_, error)| self.refuse(wr_id, error))?;
        self.meters.posted_send(&op);
        if collecting.is_some() {
            self.collect();
        }
        Ok(wr_id)
    }

    /// Most sends are done when they are posted: the task that drives need not wake for them, as
    /// the caller collects what is done meanwhile.
    pub(super) fn collecting(&self, requests: &[SendRequest<'_>]) -> Option<Collecting<'_>> {
        let waits_for_peer = |request: &SendRequest<'_>| {
            matches!(request.op, SendOp::Read { .. } | SendOp::Atomic { .. })
        };
        let collects = self.driven.load(Ordering::SeqCst) && !requests.iter().all(waits_for_peer);
        if collects { self.drive.collecting() } else { None }
    }

    /// Posts the requests of a list, whose operations have their slots.
    pub(super) fn post_list(&self, list: &[SendRequest<'_>]) -> Result<(), (usize, PostError)> {
        let posted = self.qp.post_sends(list);
        let taken = posted.map_or_else(|(taken, _)| taken, |()| list.len());
        list[..taken].iter().for_each(|request| self.meters.posted_send(&request.op));
        posted
    }

    /// Gives an operation its slot: a reserved place, or a free one.
    pub(super) fn take_send_slot(
        &self,
        lent: Cargo<Lent>,
        place: Option<Place>,
    ) -> Result<u64, Failure> {
        match place {
            Some(place) => Ok(self.use_place(place, lent)),
            None => self.take_slot(Queue::Send, lent),
        }
    }

    /// Sends a few bytes that bring nothing but a completion. `done` is woken when others may
    /// follow, if they are refused for a full queue now.
    pub(super) fn post_word(&self, data: [u8; 4], done: &Waker) -> Result<(), OperationError> {
        let slot = self.take_slot(Queue::Word, Cargo::None);
        let wr_id = slot.map_err(|failure| failure.error)?;
        self.wake_when_done(wr_id, done);
        let op = SendOp::SendImmediate { solicited: false, data };
        let request = SendRequest::new(wr_id, op, Payload::NONE).signaled().internal();
        self.qp.post_send(&request).map_err(|error| self.refuse(wr_id, error).error)?;
        let mut state = self.lock();
        match state.stage(wr_id) {
            Some(Stage::UnderWay { left_behind, .. }) => {
                *left_behind = true;
                state.left_behind += 1;
            }
            Some(Stage::Done { .. }) => _ = state.remove(wr_id),
            None => {}
        }
        Ok(())
    }

    /// Posts a receive for all bytes of its blocks, or for `other` bytes.
    pub(super) fn post_recv(&self, cargo: Cargo<Block>, other: &[Sge]) -> Result<u64, Failure> {
        let lent = cargo.lend(&self.pd)?;
        let (one, several);
        let sges = match &lent {
            Cargo::None => other,
            Cargo::One(lent) => {
                one = [lent.sge(true)];
                &one
            }
            Cargo::Several(lent) => {
                several = lent.iter().map(|lent| lent.sge(true)).collect::<Vec<_>>();
                several.as_slice()
            }
        };
        let wr_id = self.take_slot(Queue::Receive, lent)?;
        let posted = self.qp.post_recv(&RecvRequest::new(wr_id, sges));
        posted.map_err(|error| self.refuse(wr_id, error))?;
        self.meters.posted_receive();
        Ok(wr_id)
    }

    fn take_slot(&self, queue: Queue, lent: Cargo<Lent>) -> Result<u64, Failure> {
        self.admit(queue, lent)
            .map_err(|lent| Failure::with(OperationError::QueueFull, lent.take_back()))
    }

    fn refuse(&self, id: u64, error: impl Into<OperationError>) -> Failure {
        let stage = self.change(|state| state.remove(id));
        let cargo = match stage {
            Some(Stage::UnderWay { cargo, .. }) => cargo.take_back(),
            Some(Stage::Done { .. }) | None => Cargo::None,
        };
        Failure::with(error, cargo)
    }

    /// Completes what is done; says how many operations that were.
    pub(super) fn progress(&self) -> usize {
        let mut done = self.poll();
        if self.driven.load(Ordering::SeqCst) {
            // Arm, then look again: what came in between raises no event.
            self.drive.cq().request_notify(false);
            done += self.poll();
        }
        done
    }

    fn poll(&self) -> usize {
        match self.collect() {
            0 => {
                self.drive.advance();
                self.collect()
            }
            done => done,
        }
    }

    /// Completes what is in the queue already.
    pub(super) fn collect(&self) -> usize {
        let mut done = 0;
        while let Some(completion) = self.drive.take() {
            self.finish(completion.wr_id, Ok(completion));
            done += 1;
        }
        done
    }

    /// The task that drives has its turn: it moves the connection, and completes what is done.
    /// `stream`: the connection's, if its reactor tells the task. `told`: the channel has woken it.
    #[cfg(feature = "tokio")]
    fn turn(&self, stream: Option<&dyn ReactorStream>, told: bool) -> TaskTurn {
        if told {
            self.drain_events();
        }
        self.drive.turn_of_task(stream, |one| self.finish(one.wr_id, Ok(one)))
    }

    /// Ends an operation that was not posted.
    pub(super) fn fail(&self, id: u64, error: OperationError) {
        self.finish(id, Err(error));
    }

    fn finish(&self, id: u64, end: Result<WorkCompletion, OperationError>) {
        let woken: Option<Waker>;
        let mut idle = Vec::new();
        let mut left = None;
        // An operation that was not posted is reported nowhere.
        let mut ended = end.as_ref().ok().copied();
        let leader = {
            let mut state = self.lock();
            match state.stage(id) {
                Some(Stage::UnderWay { left_behind: true, queue, waker, .. }) => {
                    ended = ended.filter(|_| *queue != Queue::Word);
                    woken = waker.take();
                    left = state.remove(id);
                }
                Some(stage) => {
                    // A work request completes once.
                    let Stage::UnderWay { queue, cargo, waker, .. } = stage else { return };
                    let queue = *queue;
                    ended = ended.filter(|_| queue != Queue::Word);
                    woken = waker.take();
                    *stage = Stage::Done { cargo: cargo.take(), end };
                    state.under_way[queue as usize] -= 1;
                }
                None => return,
            }
            if state.is_idle() {
                idle.append(&mut state.idle);
            }
            state.serve(self.limits[Queue::Send as usize], &mut idle);
            self.changed.ring();
            state.leader
        };
        if leader.is_some_and(|leader| leader != thread::current().id()) {
            self.drive.wake();
        }
        // Outside the lock: these may do much.
        if let Some(completion) = &ended {
            self.meters.ended(completion);
        }
        drop(left);
        if let Some(woken) = woken {
            woken.wake();
        }
        // Mostly there are none.
        if !idle.is_empty() {
            idle.into_iter().for_each(Waker::wake);
        }
    }

    /// Blocks until `done` says so. False at the deadline.
    pub(super) fn wait_until(
        &self,
        deadline: Option<Instant>,
        mut done: impl FnMut(&mut State) -> bool,
    ) -> Result<bool, OperationError> {
        loop {
            if self.driven.load(Ordering::SeqCst) {
                // It has to be armed for the task, whose event this thread may have taken.
                self.progress();
            } else {
                self.collect();
            }
            let mut state = self.lock();
            if done(&mut state) {
                return Ok(true);
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                drop(state);
                self.progress();
                return Ok(done(&mut self.lock()));
            }
            if state.leader.is_some() {
                drop(match left {
                    Some(left) => self.changed.wait_timeout(state, left),
                    None => self.changed.wait(state),
                });
                continue;
            }
            state.leader = Some(thread::current().id());
            drop(state);
            let waited = match self.drive.may_sleep(|one| self.finish(one.wr_id, Ok(one))) {
                true => self.drive.channel().wait(left).map(drop),
                false => Ok(()),
            };
            let mut state = self.lock();
            state.leader = None;
            self.changed.ring();
            drop(state);
            waited.map_err(OperationError::Wait)?;
        }
    }

    /// Blocks until the operation is done. False at the deadline.
    pub(super) fn wait_for(
        &self,
        id: u64,
        deadline: Option<Instant>,
    ) -> Result<bool, OperationError> {
        self.wait_until(deadline, |state| !state.is_under_way(id))
    }

    /// Blocks until the operation is done, and takes its result. `None` at the deadline.
    pub(super) fn wait_and_take(
        &self,
        id: u64,
        deadline: Option<Instant>,
    ) -> Result<Option<Finished>, OperationError> {
        let mut taken = None;
        self.wait_until(deadline, |state| match state.stage(id) {
            Some(Stage::UnderWay { .. }) => false,
            Some(Stage::Done { .. }) => {
                taken = state.remove(id);
                true
            }
            None => true,
        })?;
        Ok(taken.and_then(Stage::into_result))
    }

    /// Blocks until none of these operations is under way, however long that takes.
    pub(super) fn wait_for_all(&self, ids: &[u64]) -> Result<(), OperationError> {
        for &id in ids {
            self.wait_for(id, None)?;
        }
        Ok(())
    }

    /// Blocks until nothing is under way. False at the deadline.
    pub(super) fn wait_idle(&self, deadline: Instant) -> Result<bool, OperationError> {
        self.wait_until(Some(deadline), |state| state.is_idle())
    }

    /// Changes what may make room, and passes the room on.
    fn change<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let mut woken = Vec::new();
        let mut state = self.lock();
        let before = state.reserved;
        let result = change(&mut state);
        state.serve(self.limits[Queue::Send as usize], &mut woken);
        let served = state.reserved > before;
        drop(state);
        if served {
            self.nudge();
        }
        woken.into_iter().for_each(Waker::wake);
        result
    }

    /// Has the threads that are blocked here look again.
    pub(super) fn nudge(&self) {
        let state = self.lock();
        self.changed.ring();
        let leader = state.leader;
        drop(state);
        if leader.is_some() {
            self.drive.wake();
        }
    }

    /// Blocks until the connection has ended. False at the deadline.
    pub(super) fn wait_for_end(
        &self,
        deadline: Option<Instant>,
        end: &End,
    ) -> Result<bool, OperationError> {
        self.wait_until(deadline, |_| end.why().is_some())
    }

    /// The result of a finished operation; `None` while it is under way.
    pub(super) fn take(&self, id: u64) -> Option<Finished> {
        self.take_or_wake(id, None)
    }

    /// As [`Self::take`]; `by` is woken when it is done, if it is not.
    pub(super) fn take_or_wake(&self, id: u64, by: Option<&Waker>) -> Option<Finished> {
        let stage = {
            let mut state = self.lock();
            match state.stage(id) {
                Some(Stage::Done { .. }) => state.remove(id),
                Some(stage) => {
                    if let Some(by) = by {
                        stage.wake(by);
                    }
                    return None;
                }
                None => return None,
            }
        };
        stage?.into_result()
    }

    pub(super) fn is_done(&self, id: u64) -> bool {
        !self.lock().is_under_way(id)
    }

    fn expose(&self, len: usize, access: Access) -> Result<Exposed, RegisterError> {
        Exposed::scoped(&self.pd, len, access, Scope::Stream(QpId(self.qp.number())))
    }

    /// The program has dropped the operation's result.
    pub(super) fn leave(self: &Arc<Self>, id: u64) {
        let mut state = self.lock();
        match state.stage(id) {
            Some(Stage::UnderWay { left_behind, waker, cargo, .. }) => {
                *left_behind = true;
                let waker = waker.take();
                let lent = cargo.as_slice().iter();
                let borrower = || Arc::downgrade(self) as Weak<dyn Borrower>;
                let sources = lent.filter_map(|lent| lent.leave_to_source(borrower()));
                let sources = sources.collect::<Vec<_>>();
                state.left_behind += 1;
                drop(state);
                drop(waker);
                sources.iter().for_each(|source| source.look_again());
            }
            Some(Stage::Done { .. }) => {
                let done = state.remove(id);
                drop(state);
                drop(done);
            }
            None => {}
        }
    }

    /// Has `waker` woken when the operation is done. False when it is done already.
    pub(super) fn wake_when_done(&self, id: u64, by: &Waker) -> bool {
        self.lock().stage(id).is_some_and(|stage| stage.wake(by))
    }

    /// Has `waker` woken when nothing is under way. False when nothing is.
    #[cfg(feature = "tokio")]
    pub(super) fn wake_when_idle(&self, by: &Waker) -> bool {
        let mut state = self.lock();
        if state.is_idle() {
            return false;
        }
        state.idle.retain(|waker| !waker.will_wake(by));
        state.idle.push(by.clone());
        true
    }

    /// True if the caller is to look after the channel's descriptor from now on, as no task does.
    #[cfg(feature = "tokio")]
    fn begin_driving(&self) -> bool {
        // A swap takes the memory from other CPUs, and nearly always there is a task.
        !self.is_driven() && !self.driven.swap(true, Ordering::SeqCst)
    }

    /// No task looks after the descriptor any more: one that waits has to.
    #[cfg(feature = "tokio")]
    fn end_driving(&self) {
        self.driven.store(false, Ordering::SeqCst);
        self.drive.end_turns();
        let mut sources = Vec::new();
        let woken: Vec<Waker> = {
            let mut state = self.lock();
            let mut woken = std::mem::take(&mut state.idle);
            woken.extend(state.line.waiting().cloned());
            for stage in state.operations.values_mut() {
                if let Stage::UnderWay { waker, left_behind, cargo, .. } = stage {
                    woken.extend(waker.take());
                    let lent = if *left_behind { cargo.as_slice() } else { &[] };
                    sources.extend(lent.iter().filter_map(Lent::source));
                }
            }
            woken
        };
        woken.into_iter().for_each(Waker::wake);
        // Waiters for the block of an operation whose result was dropped.
        sources.into_iter().for_each(|source| source.look_again());
    }

    /// True if a task looks after the descriptor.
    #[cfg(feature = "tokio")]
    pub(super) fn is_driven(&self) -> bool {
        self.driven.load(Ordering::SeqCst)
    }

    /// Takes the events that have woken the driver. Events that a blocked thread waits for are left
    /// to it.
    #[cfg(feature = "tokio")]
    fn drain_events(&self) {
        let state = self.lock();
        if state.leader.is_none() {
            while self.drive.channel().try_next().is_some() {}
        }
        // Locked up to here: a thread that blocks from now on looks at the queue once more first.
        drop(state);
    }
}

impl Borrower for Core {
    fn progress(&self) {
        self.progress();
    }

    fn has_left_behind(&self) -> bool {
        self.lock().left_behind > 0
    }

    #[cfg(feature = "tokio")]
    fn ensure_driven(self: Arc<Self>) -> Result<(), OperationError> {
        Self::ensure_driven(&self)
    }
}
