// SPDX-License-Identifier: MIT OR Apache-2.0

//! Messages one after another, as a sink.

use std::collections::VecDeque;
use std::fmt;
use std::future::IntoFuture;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use futures_sink::Sink;
use tokio::runtime::Handle as Runtime;

use crate::table::Handle;
use crate::{
    Block, Blocks, Closing, ClosingFuture, Credit, Crediting, Credits, OperationError, Pending,
    Permit, Reserving, Session,
};

/// Sends what is put into it, each as one message: the [`Sink`] that goes with the
/// [`Receiver`](crate::Receiver), which is a `Stream`. `B` is a [`Block`] or several
/// ([`Blocks`]).
///
/// - It is ready when the send queue has a place, and, made by [`Credits::sender`], the peer a
///   receive as well. So it waits where [`Session::send`] would be refused, or end the connection.
/// - Flushing waits until all messages were handed to the transport, and their blocks are back with
///   their pools. They are on their way without that, too.
/// - Closing flushes and then ends the connection in good order, as [`Session::close`] does: what
///   is under way beside ends first, receives end with
///   [`Disconnected`](OperationError::Disconnected). Dropping the sink ends nothing.
///
/// A message that fails is told by the next call of the sink, of any kind; the block of one that is
/// refused goes back to its pool.
///
/// ```
/// # use futures_util::{SinkExt, StreamExt, TryStreamExt};
/// # use iwarp_session::{BlockPool, Config, Listener, OperationError, Session};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let pd = iwarp::Device::open()?.alloc_pd();
/// # let listener = Listener::bind(&pd, "127.0.0.1:0")?;
/// # let addr = listener.local_addr().ok_or("no address")?;
/// # let client = tokio::spawn(async move {
/// #     let pd = iwarp::Device::open()?.alloc_pd();
/// #     let pool = BlockPool::new(&pd, 64, 6)?;
/// #     let prepared = Config::default().prepare(&pd)?;
/// #     let (credits, mut receiver) = prepared.credited(&pool, 4)?;
/// #     let session = prepared.connect(addr).await?;
/// #     for _ in 0..100 {
/// #         credits.reserve().await?.send_inline(b"hello").await?;
/// #         assert_eq!(*receiver.recv().await?.ok_or("closed")?.block, *b"hello");
/// #     }
/// #     session.close().await?;
/// #     Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
/// # });
/// let pool = BlockPool::new(&pd, 64, 6)?;
/// let prepared = Config::default().prepare(&pd)?;
/// let (credits, receiver) = prepared.credited(&pool, 4)?;
/// let session = prepared.accept(listener.accept().await?).await?;
/// // All that comes goes back, and the connection is closed when the client has closed it.
/// receiver.map_ok(|message| message.block).forward(credits.sender()).await?;
/// # client.await?.map_err(|error| error.to_string())?;
/// # drop(session);
/// # Ok(())
/// # }
/// ```
///
/// # Cancel safety
///
/// Giving up waiting until it is ready, flushed or closed loses nothing: a place that it was given
/// is kept for the next message, and waiting may be begun again.
pub struct Sender<B = Block> {
    handle: Arc<Handle>,
    /// Present if the peer tells of its receives.
    credits: Option<Credits>,
    waiting: Option<Waiting>,
    ready: Option<Right>,
    /// The messages that were sent, as far as their fate is not known.
    sent: VecDeque<Pending<B>>,
    closing: Option<ClosingFuture>,
    closed: Closed,
}

/// The result of closing.
enum Closed {
    NotYet,
    /// A message failed before, which is to be told at the end.
    Failed(OperationError),
    Over,
}

enum Waiting {
    Place(Reserving),
    Credit(Crediting),
}

/// The right by which the next message is sent.
enum Right {
    Place(Permit),
    Credit(Credit),
}

impl<B: Blocks> Sender<B> {
    fn new(handle: &Arc<Handle>, credits: Option<Credits>) -> Self {
        Self {
            handle: Arc::clone(handle),
            credits,
            waiting: None,
            ready: None,
            sent: VecDeque::new(),
            closing: None,
            closed: Closed::NotYet,
        }
    }

    /// Takes note of the messages that are done already.
    fn reap(&mut self) -> Result<(), OperationError> {
        while let Some(done) = self.sent.front_mut().and_then(Pending::take) {
            self.sent.pop_front();
            // Its blocks go back to their pools.
            done?;
        }
        Ok(())
    }

    fn is_open(&self) -> bool {
        self.closing.is_none() && matches!(self.closed, Closed::NotYet)
    }

    fn poll_right(&mut self, context: &mut Context<'_>) -> Poll<Result<Right, OperationError>> {
        let (handle, credits) = (&self.handle, &self.credits);
        let waiting = self.waiting.get_or_insert_with(|| match credits {
            Some(credits) => Waiting::Credit(credits.reserve()),
            None => Waiting::Place(Reserving::of(handle)),
        });
        let right = match waiting {
            Waiting::Place(place) => ready!(Pin::new(place).poll(context)).map(Right::Place),
            Waiting::Credit(credit) => ready!(Pin::new(credit).poll(context)).map(Right::Credit),
        };
        self.waiting = None;
        Poll::Ready(right)
    }

    fn poll_sent(&mut self, context: &mut Context<'_>) -> Poll<Result<(), OperationError>> {
        while let Some(sent) = self.sent.front_mut() {
            let done = ready!(Pin::new(sent).poll(context));
            self.sent.pop_front();
            done?;
        }
        Poll::Ready(Ok(()))
    }
}

impl<B: Blocks> Sink<B> for Sender<B> {
    type Error = OperationError;

    fn poll_ready(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), OperationError>> {
        let this = &mut *self;
        if !this.is_open() {
            return Poll::Ready(Err(OperationError::Disconnected));
        }
        this.reap()?;
        if this.ready.is_none() {
            this.ready = Some(ready!(this.poll_right(context))?);
        }
        Poll::Ready(Ok(()))
    }

    /// # Errors
    ///
    /// [`OperationError::QueueFull`] when the sink has not said that it is ready; those of sending.
    fn start_send(mut self: Pin<&mut Self>, blocks: B) -> Result<(), OperationError> {
        if !self.is_open() {
            return Err(OperationError::Disconnected);
        }
        let mut sent = match self.ready.take() {
            Some(Right::Place(permit)) => permit.send(blocks),
            Some(Right::Credit(credit)) => credit.send(blocks),
            None => return Err(OperationError::QueueFull),
        };
        match sent.refusal() {
            Some(failure) => Err(failure.error),
            None => {
                self.sent.push_back(sent);
                Ok(())
            }
        }
    }

    fn poll_flush(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), OperationError>> {
        self.poll_sent(context)
    }

    fn poll_close(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), OperationError>> {
        let this = &mut *self;
        if matches!(this.closed, Closed::Over) {
            return Poll::Ready(Ok(()));
        }
        if this.closing.is_none() {
            while let Err(error) = ready!(this.poll_sent(context)) {
                // The connection is closed nevertheless; the first of them is told.
                if matches!(this.closed, Closed::NotYet) {
                    this.closed = Closed::Failed(error);
                }
            }
            // A runtime without timers cannot wait for the end.
            Runtime::try_current().map_err(io::Error::other).map_err(OperationError::Wait)?;
            (this.waiting, this.ready) = (None, None);
            let deadline = match this.handle.alive() {
                Some(core) => {
                    core.qp.disconnect();
                    Instant::now() + core.pd.linger() * 2
                }
                None => Instant::now(),
            };
            let closing = Closing { handle: Arc::clone(&this.handle), deadline };
            this.closing = Some(closing.into_future());
        }
        let closing = this.closing.as_mut().unwrap_or_else(|| unreachable!("just made"));
        let closed = ready!(Pin::new(closing).poll(context));
        match std::mem::replace(&mut this.closed, Closed::Over) {
            Closed::Failed(error) => Poll::Ready(Err(error)),
            Closed::NotYet | Closed::Over => Poll::Ready(closed),
        }
    }
}

impl<B> fmt::Debug for Sender<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender")
            .field("credits", &self.credits)
            .field("sent", &self.sent.len())
            .finish_non_exhaustive()
    }
}

impl Session {
    /// A sink whose items are sent as messages. Any number of them may be in use, beside all other
    /// operations.
    pub fn sender<B: Blocks>(&self) -> Sender<B> {
        Sender::new(&self.handle, None)
    }
}

impl Credits {
    /// A sink whose items are sent as messages, as the peer has receives for them.
    pub fn sender<B: Blocks>(&self) -> Sender<B> {
        Sender::new(self.handle(), Some(self.clone()))
    }
}
