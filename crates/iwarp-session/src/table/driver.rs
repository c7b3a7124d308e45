// SPDX-License-Identifier: MIT OR Apache-2.0

//! The task that looks after a session's completions.
//!
//! One task per session sleeps on the descriptor of its completion channel, which is ready when
//! the connection is or when another thread has completed something, and completes for all; it is
//! spawned by the first operation that is awaited and holds the session only while it works. The
//! futures themselves hold no descriptor, so dropping one at any moment changes nothing for the
//! others, and they may be awaited on other runtimes than the one that drives: when that ends,
//! they are woken and the next one spawns a driver on its own.
//!
//! The session's stream is in the runtime's own reactor ([`ReactorStream`]). Where the task waits
//! for room, receives or the end of a hold, it sleeps by way of the descriptor. If one turn has
//! completed several operations, the tasks that it has woken will post: `post_send` leaves that to
//! the driver's next turn, which is queued behind them, and it goes out in one system call. Threads
//! and tasks that drive or post collect what completes in their own hands: while somebody collects,
//! a completion raises no event, and the last collector raises the event of what it leaves. The
//! worker is told of a first message as the task is, gives it 2 ms, and then looks every 4 to 32 ms
//! whether it still comes. A task that is late once, because its thread computes, is served at once
//! until it comes again.

use std::future::poll_fn;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker, ready};

use iwarp::drive::{ReactorStream, TaskTurn};
use iwarp::verbs::CompletionChannel;
use tokio::runtime::Handle as Runtime;

use super::Core;
use crate::OperationError;
use crate::readiness::{Readiness, registration};

/// Rounds of work before other tasks get their turn.
const ROUNDS: usize = 32;

impl Core {
    /// Sees to it that a task looks after the session's completions.
    pub(crate) fn ensure_driven(self: &Arc<Self>) -> Result<(), OperationError> {
        if !self.begin_driving() {
            return Ok(());
        }
        // From here on this ends driving when it is dropped, wherever that happens.
        let driver = Driver {
            core: Arc::downgrade(self),
            _channel: self.drive.channel().clone(),
            stream: None,
            bell: None,
            sleeps: false,
            on_stream: false,
            told: true,
            rounds: 0,
        };
        let runtime = Runtime::try_current().map_err(io::Error::other);
        let runtime = runtime.map_err(OperationError::Wait)?;
        let descriptor = self.drive.descriptor().and_then(Readiness::new);
        let readiness = descriptor.map_err(OperationError::Wait)?;
        runtime.spawn(driver.run(readiness));
        Ok(())
    }
}

struct Driver {
    core: Weak<Core>,
    /// It tells of the core's end, too.
    _channel: CompletionChannel,
    /// The connection's, once it is in the reactor of this runtime.
    stream: Option<Weak<dyn ReactorStream>>,
    /// The bell that the channel's readiness wakes.
    bell: Option<Arc<Bell>>,
    /// It has nothing to do until the channel or the stream is ready.
    sleeps: bool,
    /// Its last turn has left it to the stream to tell of what comes there.
    on_stream: bool,
    /// The channel has woken it.
    told: bool,
    rounds: usize,
}

/// The reason why a driver leaves off although it is not to sleep.
enum Break {
    /// Other tasks get their turn.
    Yield,
    /// The woken tasks have their turns first.
    AfterOthers,
    /// The session is no more.
    End,
}

/// Wakes the task that drives, and remembers it: a task that finds that it has not rung is still
/// waited for by the channel's readiness, and need not ask that once more.
struct Bell {
    rung: AtomicBool,
    task: Waker,
}

impl Bell {
    /// It is yet to be hung up, as if it had rung.
    fn new(task: &Waker) -> Arc<Self> {
        Arc::new(Self { rung: AtomicBool::new(true), task: task.clone() })
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.rung.store(true, Ordering::Release);
        self.task.wake_by_ref();
    }
}

impl Driver {
    async fn run(mut self, channel: Readiness) {
        loop {
            match poll_fn(|context| self.work(&channel, context)).await {
                Ok(Break::Yield) => tokio::task::yield_now().await,
                Ok(Break::AfterOthers) => after_others().await,
                Ok(Break::End) => return,
                Err(error) => {
                    tracing::warn!(%error, "completions are looked after no more");
                    return;
                }
            }
        }
    }

    /// Has turns until it is to sleep.
    fn work(&mut self, channel: &Readiness, context: &mut Context<'_>) -> Poll<io::Result<Break>> {
        // Not held while sleeping: a session that was dropped may end.
        let Some(core) = self.core.upgrade() else { return Poll::Ready(Ok(Break::End)) };
        let mut stream = self.stream.as_ref().and_then(Weak::upgrade);
        loop {
            if self.sleeps {
                ready!(self.poll_any(channel, stream.as_deref(), context))?;
                self.sleeps = false;
                self.rounds = 0;
            }
            if stream.is_none() {
                stream = self.find_stream(&core);
            }
            match core.turn(stream.as_deref(), std::mem::take(&mut self.told)) {
                TaskTurn::Next => {
                    self.rounds += 1;
                    if self.rounds.is_multiple_of(ROUNDS) {
                        return Poll::Ready(Ok(Break::Yield));
                    }
                }
                TaskTurn::AfterOthers => return Poll::Ready(Ok(Break::AfterOthers)),
                TaskTurn::Sleep => (self.sleeps, self.on_stream) = (true, false),
                TaskTurn::SleepOnStream => (self.sleeps, self.on_stream) = (true, true),
            }
        }
    }
}

/// To the end of this thread's run queue, where others may take it: `yield_now` keeps a task with
/// its thread until that has nothing else to do.
async fn after_others() {
    let mut woken = false;
    poll_fn(|context| {
        if std::mem::replace(&mut woken, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

impl Driver {
    /// Has the runtime's reactor tell of what comes on the stream, where there is one.
    fn find_stream(&mut self, core: &Core) -> Option<Arc<dyn ReactorStream>> {
        let stream = core.qp.reactor_stream()?;
        // Without a place there, the channel tells.
        if let Err(error) = stream.enter_reactor(&registration) {
            tracing::debug!(%error, "a stream has no place in the reactor");
        }
        self.stream = Some(Arc::downgrade(&stream));
        Some(stream)
    }

    /// Ready when the channel or the stream is.
    fn poll_any(
        &mut self,
        channel: &Readiness,
        stream: Option<&dyn ReactorStream>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(stream) = stream.filter(|_| self.on_stream)
            && let Poll::Ready(result) = stream.poll_input(context)
        {
            return Poll::Ready(result);
        }
        let task = context.waker();
        let bell = match &self.bell {
            Some(bell) if bell.task.will_wake(task) => bell,
            _ => self.bell.insert(Bell::new(task)),
        };
        if !bell.rung.load(Ordering::Acquire) {
            return Poll::Pending;
        }
        bell.rung.store(false, Ordering::Relaxed);
        ready!(channel.poll(&mut Context::from_waker(&Waker::from(Arc::clone(bell)))))?;
        // The readiness has no waker until it is asked again.
        bell.rung.store(true, Ordering::Relaxed);
        self.told = true;
        Poll::Ready(Ok(()))
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if let Some(stream) = self.stream.as_ref().and_then(Weak::upgrade) {
            stream.send_gathered();
            stream.leave_reactor();
        }
        if let Some(core) = self.core.upgrade() {
            core.end_driving();
        }
    }
}
