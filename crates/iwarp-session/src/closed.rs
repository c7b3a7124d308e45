// SPDX-License-Identifier: MIT OR Apache-2.0

//! Waiting for the end of a connection.

use std::fmt;
#[cfg(feature = "tokio")]
use std::pin::Pin;
use std::sync::Arc;
#[cfg(feature = "tokio")]
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use iwarp::verbs::Ended;

use crate::Session;
use crate::table::Handle;

/// Waiting for the end of a connection: [`wait`](Self::wait) for it, or `.await` it with the
/// feature `tokio`. It does not keep the connection up, and may outlive the session.
///
/// # Cancel safety
///
/// Dropping it at any moment changes nothing; another one tells the end as well.
#[must_use = "it tells by waiting"]
pub struct Closed {
    handle: Arc<Handle>,
    #[cfg(feature = "tokio")]
    ticket: Option<u64>,
}

impl Closed {
    /// Waits for the end, in this thread. In a forked child the connection is [`Ended::Lost`].
    pub fn wait(self) -> Ended {
        self.wait_until(None).unwrap_or(Ended::Lost)
    }

    /// As [`Self::wait`], at most that long.
    ///
    /// # Errors
    ///
    /// `Self`, when the connection is still up then.
    pub fn wait_timeout(self, timeout: Duration) -> Result<Ended, Self> {
        self.wait_until(Instant::now().checked_add(timeout)).ok_or(self)
    }

    fn wait_until(&self, deadline: Option<Instant>) -> Option<Ended> {
        let Some(core) = self.handle.alive() else { return Some(Ended::Lost) };
        let end = &self.handle.end;
        match core.wait_for_end(deadline, end) {
            Ok(_) => end.why(),
            // It cannot be waited for in this process any more.
            Err(_) => Some(end.why().unwrap_or(Ended::Lost)),
        }
    }
}

#[cfg(feature = "tokio")]
impl Drop for Closed {
    fn drop(&mut self) {
        if let (Some(ticket), Some(_)) = (self.ticket, self.handle.alive()) {
            self.handle.end.forget(ticket);
        }
    }
}

impl fmt::Debug for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Closed").field("ended", &self.handle.ended()).finish_non_exhaustive()
    }
}

#[cfg(feature = "tokio")]
impl Future for Closed {
    type Output = Ended;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Ended> {
        let this = &mut *self;
        let Some(core) = this.handle.alive() else { return Poll::Ready(Ended::Lost) };
        // Before looking: an end that comes between is told.
        this.handle.end.wake_when_over(&mut this.ticket, context.waker());
        // Without a runtime the worker moves the connection, in its own time.
        let _ = core.ensure_driven();
        core.progress();
        this.handle.end.why().map_or(Poll::Pending, Poll::Ready)
    }
}

impl Session {
    /// Waits until the connection has ended, at whichever end, and tells why: in good order, broken
    /// off with a reason in words, or lost.
    ///
    /// ```
    /// # use iwarp::Ended;
    /// # use iwarp_session::{Listener, Session};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let pd = iwarp::Device::open()?.alloc_pd();
    /// # let listener = Listener::bind(&pd, "127.0.0.1:0")?;
    /// # let connecting = Session::connect(&pd, listener.local_addr().ok_or("no address")?);
    /// # let server = Session::accept(listener.accept().wait()?).wait()?;
    /// # let client = connecting.wait()?;
    /// let closed = server.closed();
    /// // No receive is posted there.
    /// let _ = client.send_inline(b"hello");
    /// assert!(matches!(closed.wait(), Ended::Fault(_)));
    /// let Ended::Terminated(why) = client.closed().wait() else { return Err("not told".into()) };
    /// println!("the server broke it off: {why}");
    /// # Ok(())
    /// # }
    /// ```
    pub fn closed(&self) -> Closed {
        Closed {
            handle: Arc::clone(&self.handle),
            #[cfg(feature = "tokio")]
            ticket: None,
        }
    }

    /// The end of the connection; `None` while it is up.
    pub fn ended(&self) -> Option<Ended> {
        self.handle.ended()
    }
}
