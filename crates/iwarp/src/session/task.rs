// SPDX-License-Identifier: MIT OR Apache-2.0

//! Waiting in tokio tasks.
//!
//! One task per session sleeps on the descriptor of its completion channel, which is ready when
//! the connection is or when another thread has completed something, and completes for all; it is
//! spawned by the first operation that is awaited and holds the session only while it works. The
//! futures themselves hold no descriptor, so dropping one at any moment changes nothing for the
//! others, and they may be awaited on other runtimes than the one that drives: when that ends,
//! they are woken and the next one spawns a driver on its own.

use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use std::time::Instant;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle as Runtime;
use tokio::time::Sleep;

use crate::cm::ConnectError;
use crate::engine::channel::ChannelCore;
use crate::engine::link::Link;
use crate::session::table::{Core, Turn};
use crate::session::{
    Accepting, Closing, Connecting, Failure, OperationError, Outcome, Pending, Request, Session,
};

/// Rounds of work before other tasks get their turn.
const ROUNDS: usize = 32;

/// A descriptor that a future of its own waits for.
#[derive(Debug)]
pub(super) struct Readiness(AsyncFd<OwnedFd>);

impl Readiness {
    /// A duplicate, so that it belongs to this runtime alone.
    #[allow(
        deprecated,
        reason = "its danger is an object that changes its descriptor; OwnedFd \
                                  does not, and what replaces it is unsafe"
    )]
    fn new(fd: BorrowedFd<'_>) -> io::Result<Self> {
        let fd = fd.try_clone_to_owned()?;
        Runtime::try_current().map_err(io::Error::other)?;
        AsyncFd::with_interest(fd, Interest::READABLE).map(Self)
    }

    /// Ready when something may have happened since the last time.
    fn poll(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.0.poll_read_ready(context))?.clear_ready();
        Poll::Ready(Ok(()))
    }
}

/// Sees to it that a task looks after the session's completions.
pub(super) fn ensure_driven(core: &Arc<Core>) -> Result<(), OperationError> {
    if !core.begin_driving() {
        return Ok(());
    }
    // From here on this ends driving when it is dropped, wherever that happens.
    let driver = Driver {
        core: Arc::downgrade(core),
        channel: Arc::clone(core.channel()),
        stream: Weak::new(),
    };
    let runtime = Runtime::try_current().map_err(io::Error::other).map_err(OperationError::Wait)?;
    let readiness = Readiness::new(driver.channel.readiness()).map_err(OperationError::Wait)?;
    runtime.spawn(driver.run(readiness));
    Ok(())
}

struct Driver {
    core: Weak<Core>,
    /// It tells of the core's end, too.
    channel: Arc<ChannelCore>,
    /// The connection's, once it is in the reactor of this runtime.
    stream: Weak<Link>,
}

impl Driver {
    async fn run(mut self, channel: Readiness) {
        let mut rounds = 0;
        loop {
            let turn = {
                // Not held while sleeping: a session that was dropped may end.
                let Some(core) = self.core.upgrade() else { return };
                self.find_stream(&core);
                core.turn(self.stream.upgrade().as_ref())
            };
            match turn {
                Turn::Next => {
                    rounds += 1;
                    if rounds % ROUNDS == 0 {
                        tokio::task::yield_now().await;
                    }
                }
                Turn::AfterOthers => after_others().await,
                Turn::Sleep => {
                    rounds = 0;
                    if let Err(error) = poll_fn(|context| self.poll_any(&channel, context)).await {
                        tracing::warn!(%error, "completions are looked after no more");
                        return;
                    }
                }
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
    fn find_stream(&mut self, core: &Core) {
        if self.stream.strong_count() > 0 {
            return;
        }
        if let Some(stream) = core.stream() {
            // Without a place there, the channel tells.
            if let Err(error) = stream.enter_reactor() {
                tracing::debug!(%error, "a stream has no place in the reactor");
            }
            self.stream = Arc::downgrade(&stream);
        }
    }

    /// Ready when the channel or the stream is.
    fn poll_any(&self, channel: &Readiness, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Poll::Ready(result) = channel.poll(context) {
            return Poll::Ready(result);
        }
        match self.stream.upgrade() {
            Some(stream) => stream.poll_input(context),
            None => Poll::Pending,
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if let Some(stream) = self.stream.upgrade() {
            stream.send_gathered();
            stream.leave_reactor();
        }
        if let Some(core) = self.core.upgrade() {
            core.end_driving();
        }
    }
}

impl<T: Outcome> Future for Pending<T> {
    type Output = Result<T, Failure>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.ensure_posted();
        let begun = self.core().and_then(|core| {
            if let (Some(core), Some(id)) = (core, self.id())
                && core.wake_when_done(id, context.waker())
            {
                ensure_driven(core)?;
                // Most sends are done when they are posted.
                core.collect();
            }
            Ok(())
        });
        if let Err(error) = begun {
            self.leave();
            return Poll::Ready(Err(Failure::new(error, None)));
        }
        self.take().map_or(Poll::Pending, Poll::Ready)
    }
}

impl Future for Connecting {
    type Output = Result<Session, ConnectError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        loop {
            if let Some(result) = this.advance() {
                return Poll::Ready(result);
            }
            if this.readiness.is_none()
                && let Some(channel) = this.channel()
            {
                channel.check()?;
                this.readiness = Some(Readiness::new(channel.as_fd())?);
            }
            let Some(readiness) = &this.readiness else { return Poll::Pending };
            ready!(readiness.poll(context))?;
        }
    }
}

impl Future for Accepting<'_> {
    type Output = io::Result<Request>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        loop {
            if let Some(request) = this.listener.next() {
                return Poll::Ready(Ok(request));
            }
            if this.readiness.is_none() {
                let channel = this.listener.channel();
                channel.check()?;
                this.readiness = Some(Readiness::new(channel.as_fd())?);
            }
            let Some(readiness) = &this.readiness else { return Poll::Pending };
            ready!(readiness.poll(context))?;
        }
    }
}

/// [`Closing`] in a task.
///
/// # Cancel safety
///
/// Dropping it lets the session end in the background.
#[must_use = "wait for it, or drop the session instead"]
#[derive(Debug)]
pub struct ClosingFuture {
    closing: Closing,
    deadline: Pin<Box<Sleep>>,
}

impl IntoFuture for Closing {
    type Output = Result<(), OperationError>;
    type IntoFuture = ClosingFuture;

    /// # Panics
    ///
    /// Outside a tokio runtime, or in one without timers.
    fn into_future(self) -> ClosingFuture {
        let left = self.deadline.saturating_duration_since(Instant::now());
        ClosingFuture { closing: self, deadline: Box::pin(tokio::time::sleep(left)) }
    }
}

impl Future for ClosingFuture {
    type Output = Result<(), OperationError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let core = Arc::clone(self.closing.handle.check().map_err(OperationError::Wait)?);
        core.progress();
        if !core.wake_when_idle(context.waker()) {
            return Poll::Ready(Ok(()));
        }
        ensure_driven(&core)?;
        // Armed now, and once more looked at.
        core.progress();
        if !core.wake_when_idle(context.waker()) {
            return Poll::Ready(Ok(()));
        }
        ready!(self.deadline.as_mut().poll(context));
        Poll::Ready(Closing::give_up(&core))
    }
}
