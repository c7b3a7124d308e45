// SPDX-License-Identifier: MIT OR Apache-2.0

//! Waiting in tokio tasks: the futures, for which the session's driver completes.

use std::future::Future;
use std::io;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use iwarp::cm::ConnectError;
use tokio::time::Sleep;

use crate::readiness::Readiness;
use crate::{
    Accepting, Closing, Connecting, Failure, OperationError, Outcome, Pending, Request, Session,
};

impl<T: Outcome> Future for Pending<T> {
    type Output = Result<T, Failure>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.ensure_posted();
        if let Some(outcome) = self.take_or_wake(Some(context.waker())) {
            return Poll::Ready(outcome);
        }
        let collected = self.core().and_then(|core| {
            let Some(core) = core else { return Ok(0) };
            core.ensure_driven()?;
            // It may have come between.
            Ok(core.collect())
        });
        match collected {
            Ok(0) => Poll::Pending,
            Ok(_) => self.take().map_or(Poll::Pending, Poll::Ready),
            Err(error) => {
                self.leave();
                Poll::Ready(Err(Failure::new(error, None)))
            }
        }
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
        core.ensure_driven()?;
        // Armed now, and once more looked at.
        core.progress();
        if !core.wake_when_idle(context.waker()) {
            return Poll::Ready(Ok(()));
        }
        ready!(self.deadline.as_mut().poll(context));
        Poll::Ready(Closing::give_up(&core))
    }
}
