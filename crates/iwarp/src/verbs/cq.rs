//! Completion queues.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use iwarp_proto::qp::{WcStatus, WorkCompletion};

use crate::engine::group::{By, Group, clock};
use crate::engine::sync::{AtomicBool, AtomicU32, Mutex, Ordering};
use crate::engine::{Engine, keep_inherited};
use crate::verbs::channel::ChannelCore;
use crate::verbs::event::{AsyncEvent, AsyncQueue};
use crate::verbs::patience::{POLLS_BEFORE_YIELD, Patience, Rest};

/// A completion queue.
#[derive(Debug)]
pub(crate) struct CqCore {
    number: u64,
    queue: Mutex<Queue>,
    /// Completions that wait, so that a look costs no lock.
    len: AtomicU32,
    empty_polls: AtomicU32,
    /// The last poll found nothing.
    in_a_row: AtomicBool,
    /// The program may sleep on the channel's descriptor: the worker is responsible.
    asleep: AtomicBool,
    patience: Patience,
    group: Arc<Group>,
    channel: Option<Arc<ChannelCore>>,
    events: Arc<AsyncQueue>,
}

#[derive(Debug)]
struct Queue {
    completions: VecDeque<WorkCompletion>,
    depth: usize,
    notify: Notify,
    overrun: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Notify {
    Off,
    Solicited,
    Next,
}

impl CqCore {
    pub(crate) fn new(
        engine: &Arc<Engine>,
        depth: usize,
        channel: Option<Arc<ChannelCore>>,
        events: Arc<AsyncQueue>,
    ) -> io::Result<Arc<Self>> {
        let group = Group::new(engine.group_worker())?;
        if let Some(channel) = &channel {
            channel.attach(&group)?;
        }
        Ok(Arc::new(Self {
            number: group.id(),
            queue: Mutex::new(Queue {
                completions: VecDeque::with_capacity(depth.min(4096)),
                depth,
                notify: Notify::Off,
                overrun: false,
            }),
            len: AtomicU32::new(0),
            empty_polls: AtomicU32::new(0),
            in_a_row: AtomicBool::new(false),
            asleep: AtomicBool::new(false),
            patience: Patience::new(),
            group,
            channel,
            events,
        }))
    }

    pub(crate) const fn group(&self) -> &Arc<Group> {
        &self.group
    }

    /// Whether the program may sleep until the worker completes something.
    pub(crate) fn is_asleep(&self) -> bool {
        self.asleep.load(Ordering::Relaxed)
    }

    pub(crate) const fn number(&self) -> u64 {
        self.number
    }

    /// Adds a completion. False when the queue is full: it is lost then.
    pub(crate) fn push(self: &CqCore, completion: WorkCompletion) -> bool {
        let mut queue = self.queue.lock();
        if queue.completions.len() >= queue.depth {
            if !std::mem::replace(&mut queue.overrun, true) {
                self.events.push(AsyncEvent::CqError { cq: self.number });
            }
            return false;
        }
        let solicited = completion.solicited || completion.status != WcStatus::Success;
        queue.completions.push_back(completion);
        self.len.store(queue.completions.len() as u32, Ordering::Release);
        let due = match queue.notify {
            Notify::Off => false,
            Notify::Solicited => solicited,
            Notify::Next => true,
        };
        if due {
            queue.notify = Notify::Off;
            self.asleep.store(false, Ordering::Relaxed);
            if let Some(channel) = &self.channel {
                channel.push(self.number);
            }
        }
        true
    }

    fn take(&self, out: &mut Vec<WorkCompletion>, max: usize) -> usize {
        if self.len.load(Ordering::Acquire) == 0 {
            return 0;
        }
        let mut queue = self.queue.lock();
        let n = max.min(queue.completions.len());
        out.extend(queue.completions.drain(..n));
        self.len.store(queue.completions.len() as u32, Ordering::Release);
        n
    }

    fn take_each(&self, max: usize, mut f: impl FnMut(WorkCompletion)) -> usize {
        if self.len.load(Ordering::Acquire) == 0 {
            return 0;
        }
        let mut queue = self.queue.lock();
        let n = max.min(queue.completions.len());
        queue.completions.drain(..n).for_each(&mut f);
        self.len.store(queue.completions.len() as u32, Ordering::Release);
        n
    }

    /// Takes the oldest completion there is, and moves nothing.
    pub(crate) fn take_one(&self) -> Option<WorkCompletion> {
        if self.len.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut queue = self.queue.lock();
        let completion = queue.completions.pop_front();
        self.len.store(queue.completions.len() as u32, Ordering::Release);
        completion
    }

    pub(crate) fn poll(&self, out: &mut Vec<WorkCompletion>, max: usize) -> usize {
        self.poll_by(|cq| cq.take(out, max))
    }

    fn poll_by(&self, mut take: impl FnMut(&Self) -> usize) -> usize {
        if self.group.process.forked() {
            return 0;
        }
        let holds = self.group.note_poll();
        let n = take(self);
        if n > 0 {
            if holds {
                self.group.drive(By::Caller);
            }
            self.has_found();
            return n;
        }
        let _calling = self.group.handover.calling();
        // The last look before going to sleep is not the beginning of a lease.
        let last_look = self.asleep.load(Ordering::Relaxed)
            && self.empty_polls.load(Ordering::Relaxed) < POLLS_BEFORE_YIELD;
        let again = self.in_a_row.load(Ordering::Relaxed);
        let moved = if last_look { self.group.drive(By::Caller) } else { self.group.poll(again) };
        let n = take(self);
        if n > 0 || moved {
            self.has_found();
            self.empty_polls.store(0, Ordering::Relaxed);
        } else if last_look {
            self.empty_polls.fetch_add(1, Ordering::Relaxed);
        } else {
            self.in_a_row.store(true, Ordering::Relaxed);
            self.yield_after_a_while();
        }
        n
    }

    /// A poll has found something: what the program does next is not known.
    fn has_found(&self) {
        self.in_a_row.store(false, Ordering::Relaxed);
        self.patience.is_rewarded();
        self.group.handover.found();
    }

    /// A program that polls an empty queue must not keep the CPU from its peer.
    fn yield_after_a_while(&self) {
        let empty = self.empty_polls.fetch_add(1, Ordering::Relaxed);
        let over = self.patience.is_over(empty);
        let mut others = None;
        if over || empty >= POLLS_BEFORE_YIELD {
            others = self.group.lend_a_hand();
        }
        if !over || others == Some(true) {
            return;
        }
        match self.patience.rest() {
            // What the others wait for would not wake it.
            Rest::Sleep(time) if others.is_none() => {
                self.patience.has_slept(self.group.sleep(time));
            }
            _ => {
                let before = clock();
                iwarp_os::clock::yield_now();
                self.patience.learn(clock() - before);
            }
        }
    }

    fn request_notify(&self, solicited_only: bool) {
        if self.group.process.forked() {
            return;
        }
        let sleeps = self.channel.as_ref().is_some_and(|channel| !channel.is_driven());
        {
            let mut queue = self.queue.lock();
            // The wider request wins, as with ibv_req_notify_cq.
            if !solicited_only {
                queue.notify = Notify::Next;
            } else if queue.notify == Notify::Off {
                queue.notify = Notify::Solicited;
            }
            self.asleep.store(sleeps, Ordering::Relaxed);
        }
        if sleeps {
            self.empty_polls.store(0, Ordering::Relaxed);
            self.group.leave_to_worker();
        }
    }
}

impl Drop for CqCore {
    fn drop(&mut self) {
        if let Some(channel) = &self.channel {
            channel.detach(&self.group);
        }
    }
}

/// A completion queue: where work requests end.
#[derive(Clone, Debug)]
pub struct CompletionQueue {
    pub(crate) core: Arc<CqCore>,
}

impl CompletionQueue {
    /// Its number, as events name it.
    pub fn number(&self) -> u64 {
        self.core.number()
    }

    /// Completions it can hold.
    pub fn depth(&self) -> usize {
        if self.core.group.process.forked() { 0 } else { self.core.queue.lock().depth }
    }

    /// Takes up to `max` completions, oldest first, and appends them to `out`; returns how many.
    /// Where there are none it moves the connections that complete here, in this thread.
    ///
    /// Without `max` room in `out` this allocates; with it, never.
    pub fn poll(&self, out: &mut Vec<WorkCompletion>, max: usize) -> usize {
        self.core.poll(out, max)
    }

    /// As [`Self::poll`], but hands each completion to `f`, which is called with the queue locked
    /// and must do no more than take a copy.
    pub fn poll_each(&self, max: usize, mut f: impl FnMut(WorkCompletion)) -> usize {
        self.core.poll_by(|cq| cq.take_each(max, &mut f))
    }

    /// Takes the oldest completion.
    pub fn poll_one(&self) -> Option<WorkCompletion> {
        thread_local! {
            static ONE: std::cell::RefCell<Vec<WorkCompletion>> = const {
                std::cell::RefCell::new(Vec::new())
            };
        }
        ONE.with_borrow_mut(|one| {
            self.core.poll(one, 1);
            one.pop()
        })
    }

    /// Has the next completion raise an event on the queue's channel, once: any completion, or
    /// only one that was received with Solicited Event or has failed. What came before does not
    /// count: poll again after this call, then wait.
    pub fn request_notify(&self, solicited_only: bool) {
        self.core.request_notify(solicited_only);
    }

    /// Drops the completions of the queue pair with this number, which nobody wants any more.
    pub fn discard(&self, qp: u32) {
        if self.core.group.process.forked() {
            return;
        }
        let mut queue = self.core.queue.lock();
        queue.completions.retain(|completion| completion.qp.0 != qp);
        self.core.len.store(queue.completions.len() as u32, Ordering::Release);
    }

    /// Changes how many completions it can hold.
    ///
    /// # Errors
    ///
    /// `InvalidInput` when more than that wait; `ENODEV` in a forked child.
    pub fn resize(&self, depth: usize) -> io::Result<()> {
        self.core.group.process.check()?;
        let mut queue = self.core.queue.lock();
        if depth == 0 || queue.completions.len() > depth {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        queue.depth = depth;
        Ok(())
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        keep_inherited(self.core.group.process, &self.core);
    }
}
