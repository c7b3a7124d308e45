// SPDX-License-Identifier: MIT OR Apache-2.0

//! The reading half of a byte stream.

use std::fmt;
use std::io::{self, BufRead, Read};
use std::sync::{Arc, MutexGuard, PoisonError};
#[cfg(feature = "tokio")]
use std::task::{Context, Poll, ready};
use std::time::Duration;

use crate::stream::shared::Shared;
use crate::{Block, OperationError, Received, Receiver};

/// The half of a [`ByteStream`](super::ByteStream) that reads: messages one after the other, each
/// from the block that it was received in, which [`BufRead`] shows without a copy.
///
/// Dropping it does not stop the peer from writing: its bytes fill the blocks, and then it waits
/// until the connection ends.
pub struct ReadHalf {
    shared: Arc<Shared>,
    /// The message that is being read, up to there.
    message: Option<(Block, usize)>,
    /// The end of the stream was read.
    over: bool,
    timeout: Option<Duration>,
}

impl ReadHalf {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, message: None, over: false, timeout: None }
    }

    pub(super) const fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Sets how long a read in a thread may wait; `None`, the default, is for ever. It then fails
    /// with `TimedOut`, and nothing is lost.
    pub fn set_read_timeout(&mut self, timeout: Option<Duration>) {
        self.timeout = timeout;
    }

    fn receiver(&self) -> MutexGuard<'_, Receiver> {
        self.shared.receiver.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if all bytes that have come were read.
    const fn is_empty(&self) -> bool {
        self.message.is_none() && !self.over
    }

    /// The rest of the message; nothing at the end of the stream.
    fn rest(&self) -> &[u8] {
        self.message.as_ref().map_or(&[], |(block, at)| &block[*at..])
    }

    fn take(&mut self, next: Result<Option<Received>, OperationError>) -> io::Result<()> {
        let ended = match next {
            Ok(Some(Received { block, .. })) => {
                self.over = block.is_empty();
                self.message = (!self.over).then_some((block, 0));
                return Ok(());
            }
            Ok(None) => None,
            Err(error) => Some(io::Error::from(error)),
        };
        Err(ended.filter(|error| error.kind() != io::ErrorKind::NotConnected).unwrap_or_else(
            || {
                let error = "the connection was closed before the end of the stream";
                io::Error::new(io::ErrorKind::UnexpectedEof, error)
            },
        ))
    }

    #[cfg(feature = "tokio")]
    pub(super) fn poll_rest(&mut self, context: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        while self.is_empty() {
            let next = ready!(self.receiver().poll_next_message(context));
            self.take(next)?;
        }
        Poll::Ready(Ok(self.rest()))
    }
}

/// Blocks the thread. Tasks use tokio's trait.
impl BufRead for ReadHalf {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.is_empty() {
            let next = {
                let mut receiver = self.receiver();
                match self.timeout {
                    Some(timeout) => receiver.recv().wait_timeout(timeout),
                    None => receiver.recv().wait(),
                }
            };
            self.take(next)?;
        }
        Ok(self.rest())
    }

    fn consume(&mut self, count: usize) {
        if let Some((block, at)) = &mut self.message {
            *at = block.len().min(*at + count);
            if *at == block.len() {
                // Its block is posted again now, for the peer's next bytes.
                self.message = None;
            }
        }
    }
}

impl Read for ReadHalf {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        let count = self.fill_buf()?.read(buf)?;
        self.consume(count);
        Ok(count)
    }
}

impl fmt::Debug for ReadHalf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadHalf")
            .field("session", &self.shared.session)
            .field("ready", &self.rest().len())
            .field("over", &self.over)
            .finish_non_exhaustive()
    }
}
