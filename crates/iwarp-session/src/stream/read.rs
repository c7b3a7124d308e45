// SPDX-License-Identifier: MIT OR Apache-2.0

//! The reading half of a byte stream.

use std::fmt;
use std::io::{self, BufRead, Read};
use std::ops::Range;
use std::sync::{Arc, MutexGuard, PoisonError};
#[cfg(feature = "tokio")]
use std::task::{Context, Poll, ready};
use std::time::Duration;

use iwarp::verbs::Annex;

use crate::stream::shared::Shared;
use crate::stream::shelf::{Placed, broken};
use crate::{Block, OperationError, Received, Receiver};

/// The half of a [`ByteStream`](super::ByteStream) that reads: messages one after the other, each
/// from the block that it was received in, which [`BufRead`] shows without a copy. The bytes of a
/// message may also lie in memory that the peer shares; then they are copied from there, into the
/// program's buffer if it has one.
///
/// Dropping it does not stop the peer from writing: its bytes fill the blocks, and then it waits
/// until the connection ends.
pub struct ReadHalf {
    shared: Arc<Shared>,
    /// The message that is being read.
    message: Option<Message>,
    /// There once a message has told of bytes there.
    annex: Option<Annex>,
    /// The end of the stream was read.
    over: bool,
    /// The peer has broken a rule: bytes are missing from here on.
    broken: bool,
    timeout: Option<Duration>,
}

/// The rest of a message.
struct Message {
    /// The block that it was received in. The peer's next message can come when it is dropped.
    block: Block,
    /// Bytes of the block that were read.
    at: usize,
    /// Bytes in the peer's annex, behind those of the block.
    placed: Range<usize>,
}

impl Message {
    fn is_empty(&self) -> bool {
        self.ready().is_empty() && self.placed.is_empty()
    }

    /// The bytes that are in the block.
    fn ready(&self) -> &[u8] {
        &self.block[self.at..]
    }
}

/// Room for fewer bytes is filled from a block.
const MIN_ROOM: usize = 1024;

impl ReadHalf {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, message: None, annex: None, over: false, broken: false, timeout: None }
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

    fn take(&mut self, next: Result<Option<Received>, OperationError>) -> io::Result<()> {
        let ended = match next {
            Ok(Some(Received { block, immediate: Some(told), .. })) => {
                let placed = self.placed(told).ok_or_else(|| self.break_off())?;
                self.message = Some(Message { block, at: 0, placed });
                return Ok(());
            }
            Ok(Some(Received { block, .. })) => {
                self.over = block.is_empty();
                self.message = (!self.over).then_some(Message { block, at: 0, placed: 0..0 });
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

    /// The bytes of the annex of which the peer tells.
    fn placed(&mut self, told: [u8; 8]) -> Option<Range<usize>> {
        if self.annex.is_none() {
            self.annex = self.shared.annex();
        }
        let Placed(range) = Placed::parse(told, self.annex.as_ref()?.len())?;
        Some(range)
    }

    #[cold]
    fn break_off(&mut self) -> io::Error {
        self.broken = true;
        self.shared.session.abort();
        broken()
    }

    /// The bytes of the message that are ready, some of which may be copied from the annex for
    /// that; none at the end of the stream.
    pub(super) fn rest(&mut self) -> io::Result<&[u8]> {
        let Some(message) = &mut self.message else { return Ok(&[]) };
        if message.ready().is_empty()
            && let Some(annex) = &self.annex
        {
            let len = message.placed.len().min(message.block.capacity());
            message.block.set_len(len);
            message.at = len;
            annex.fetch(message.placed.start, &mut message.block)?;
            message.at = 0;
            message.placed.start += len;
            self.shared.count_fetched(len);
        }
        Ok(message.ready())
    }

    /// Copies bytes of the message; none at the end of the stream.
    pub(super) fn copy(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if let Some(message) = &mut self.message
            && let Some(annex) = &self.annex
            && message.ready().is_empty()
            && buf.len() >= MIN_ROOM.min(message.placed.len())
        {
            let len = message.placed.len().min(buf.len());
            annex.fetch(message.placed.start, &mut buf[..len])?;
            message.placed.start += len;
            self.shared.count_fetched(len);
            self.consume(0);
            return Ok(len);
        }
        let count = self.rest()?.read(buf)?;
        self.consume(count);
        Ok(count)
    }

    /// Bytes that [`copy`](Self::copy) can copy at most.
    #[cfg(feature = "tokio")]
    pub(super) fn most(&self) -> usize {
        let message = self.message.as_ref();
        message.map_or(0, |message| match message.ready().len() {
            0 => message.placed.len(),
            ready => ready,
        })
    }

    #[cfg(feature = "tokio")]
    pub(super) fn poll_message(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.is_empty() {
            if self.broken {
                return Poll::Ready(Err(broken()));
            }
            let next = ready!(self.receiver().poll_next_message(context));
            self.take(next)?;
        }
        Poll::Ready(Ok(()))
    }

    /// Waits for a message, or the end of the stream, if there is nothing to read.
    fn wait(&mut self) -> io::Result<()> {
        while self.is_empty() {
            if self.broken {
                return Err(broken());
            }
            let next = {
                let mut receiver = self.receiver();
                match self.timeout {
                    Some(timeout) => receiver.recv().wait_timeout(timeout),
                    None => receiver.recv().wait(),
                }
            };
            self.take(next)?;
        }
        Ok(())
    }
}

/// Blocks the thread. Tasks use tokio's trait.
impl BufRead for ReadHalf {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.wait()?;
        self.rest()
    }

    fn consume(&mut self, count: usize) {
        if let Some(message) = &mut self.message {
            message.at = message.block.len().min(message.at + count);
            if message.is_empty() {
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
        self.wait()?;
        self.copy(buf)
    }
}

impl fmt::Debug for ReadHalf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadHalf")
            .field("session", &self.shared.session)
            .field("ready", &self.message.as_ref().map_or(0, |message| message.ready().len()))
            .field("over", &self.over)
            .finish_non_exhaustive()
    }
}
