// SPDX-License-Identifier: MIT OR Apache-2.0

//! The writing half of a byte stream.

use std::fmt;
use std::io::{self, IoSlice, Write};
use std::mem;
use std::ops::Range;
#[cfg(feature = "tokio")]
use std::pin::Pin;
use std::sync::Arc;
#[cfg(feature = "tokio")]
use std::task::{Context, Poll, ready};
use std::thread;
use std::time::{Duration, Instant};

use iwarp::verbs::{Annex, Ended};

use crate::stream::shared::Shared;
use crate::stream::shelf::{MIN_PLACED, Placed, Shelf};
use crate::{Block, BlockPool, Credit, Credits, Failure, OperationError, Pending};
#[cfg(feature = "tokio")]
use crate::{Crediting, Taking};

/// The time that the last message of a stream that was dropped goes without a look, at first and at
/// most.
const FIRST_LOOK: Duration = Duration::from_millis(1);
const LAST_LOOK: Duration = Duration::from_millis(100);

/// The half of a [`ByteStream`](super::ByteStream) that writes.
///
/// Dropping it ends its direction of the stream, as [`finish`](Self::finish) does, in the
/// background: the connection stays up until that is on its way, or the device's `linger` has
/// passed. A thread that panics drops it without that.
pub struct WriteHalf {
    shared: Arc<Shared>,
    needs: Needs,
    /// Bytes that a message may have.
    message_len: usize,
    /// Messages that one write posts at most: half of the blocks, so that the peer empties some
    /// while this end fills others.
    most: usize,
    /// There if the peer looks for bytes in shared memory.
    shelf: Option<Shelf>,
    last: Last,
    timeout: Option<Duration>,
}

/// The message that ends the stream.
enum Last {
    /// Its credit is put aside from the beginning, so that it never waits for the peer's program to
    /// read. There is none where the connection had ended by then.
    Kept(Option<Credit>),
    Sent(Pending<()>),
    /// It was handed to the transport, and all before it, or the connection has ended.
    Done,
}

impl WriteHalf {
    pub(super) fn new(
        shared: Arc<Shared>,
        credits: Credits,
        pool: BlockPool,
        message_len: usize,
        shelf: Option<Shelf>,
    ) -> Self {
        let last = Last::Kept(credits.try_reserve());
        let most = pool.count().div_ceil(2);
        let needs = Needs::new(credits, pool);
        Self { shared, needs, message_len, most, shelf, last, timeout: None }
    }

    pub(super) const fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Sets how long a write, or [`finish`](Self::finish), may wait in a thread; `None`, the
    /// default, is for ever. It then fails with `TimedOut`, and nothing of that write was sent.
    pub fn set_write_timeout(&mut self, timeout: Option<Duration>) {
        self.timeout = timeout;
    }

    /// Says that no more bytes come: behind those that were written, the peer reads the end of the
    /// stream. Waits, in this thread, until all of it was handed to the transport, after which the
    /// process may end; not until the peer has read it. In tasks, `shutdown` does that.
    ///
    /// Succeeds as well if the peer has closed the connection: whether it had read everything is
    /// not known.
    ///
    /// # Errors
    ///
    /// As for writing. After `TimedOut` it may be called again.
    pub fn finish(&mut self) -> io::Result<()> {
        let deadline = self.deadline();
        match self.send_last() {
            Last::Sent(sent) => {
                let done = sent.wait_until(deadline).ok_or(OperationError::Timeout)?;
                self.finished(done)
            }
            Last::Kept(_) | Last::Done => Ok(()),
        }
    }

    fn deadline(&self) -> Option<Instant> {
        self.timeout.and_then(|timeout| Instant::now().checked_add(timeout))
    }

    fn send_last(&mut self) -> &mut Last {
        if let Last::Kept(credit) = &mut self.last {
            self.last = Last::Sent(match credit.take() {
                Some(credit) => credit.send_inline(&[]),
                None => {
                    let over = Failure::new(OperationError::Disconnected, None);
                    Pending::new(&self.shared.session.handle, Err(over))
                }
            });
        }
        &mut self.last
    }

    fn finished(&mut self, done: Result<(), Failure>) -> io::Result<()> {
        self.last = Last::Done;
        match done {
            Err(_) if self.shared.session.ended() == Some(Ended::Closed) => Ok(()),
            done => done.map_err(|failure| self.error(failure.error)),
        }
    }

    /// True if there are bytes to write.
    fn has_any(&self, bufs: &[IoSlice<'_>]) -> io::Result<bool> {
        match self.last {
            Last::Kept(_) => Ok(bufs.iter().any(|buf| !buf.is_empty())),
            Last::Sent(_) | Last::Done => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// Sends as many of the bytes as the first message takes, and then as many as more messages
    /// take for which nothing has to be waited; says how many.
    fn send(&mut self, first: (Credit, Block), bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut rest = Rest { bufs, at: 0 };
        let (credit, mut block) = match self.leave(first, &mut rest)? {
            Sent::Some(count) => return Ok(count),
            Sent::None(first) => first,
        };
        let count = rest.fill(&mut block, self.message_len);
        if rest.is_empty() || self.most == 1 {
            self.count_whole(1);
            // Its result is dropped: its block goes back to the pool when it is done.
            return match credit.send(block).refusal() {
                Some(failure) => Err(self.error(failure.error)),
                None => Ok(count),
            };
        }
        let mut batch = self.shared.session.batch();
        let mut sent = Vec::with_capacity(self.most);
        let mut next = Some((credit, block, count));
        while let Some((credit, block, count)) = next {
            if batch.add_credit(credit).is_err() {
                unreachable!("of this session");
            }
            sent.push((batch.send(block), count));
            next = match sent.len() < self.most && !rest.is_empty() {
                true => self.needs.more().map(|(credit, mut block)| {
                    let count = rest.fill(&mut block, self.message_len);
                    (credit, block, count)
                }),
                false => None,
            };
        }
        let posted = batch.post();
        self.count_whole(sent.len());
        let Err(error) = posted else {
            return Ok(sent.iter().map(|(_, count)| count).sum());
        };
        // Memory may run out on the way: those before were sent.
        let posted = sent.iter_mut().map_while(|(message, count)| match message.take() {
            Some(Err(_)) => None,
            Some(Ok(_)) | None => Some(*count),
        });
        match posted.sum() {
            0 => Err(self.error(error)),
            count => Ok(count),
        }
    }

    /// Leaves bytes in shared memory, and tells the peer of each part of them at once. The needs of
    /// the first message come back if there is no place for it, or too little to put there.
    fn leave(&mut self, first: (Credit, Block), rest: &mut Rest<'_, '_>) -> io::Result<Sent> {
        let Some(shelf) = self.shelf.as_mut().filter(|_| rest.len() >= MIN_PLACED) else {
            return Ok(Sent::None(first));
        };
        let Some(annex) = shelf.annex(|| self.shared.annex_to_leave()).cloned() else {
            return Ok(Sent::None(first));
        };
        let (mut credit, block) = first;
        let mut count = 0;
        let mut messages = 0;
        loop {
            let place = shelf.place(self.needs.credits.granted());
            let Some(Ok(placed)) = place.map(|place| rest.leave(&annex, place)) else {
                // Short of places, or of memory.
                if count == 0 {
                    return Ok(Sent::None((credit, block)));
                }
                self.needs.credit = Some(credit);
                break;
            };
            if let Some(failure) = credit.immediate(placed.to_octets()).refusal() {
                match count {
                    0 => return Err(self.error(failure.error)),
                    _ => break,
                }
            }
            shelf.sent_placed();
            self.shared.count_left(&annex, placed.len());
            count += placed.len();
            messages += 1;
            if rest.is_empty() || messages == self.most {
                break;
            }
            credit = match self.needs.credits.try_reserve() {
                Some(credit) => credit,
                None => break,
            };
        }
        // For the next write.
        self.needs.block = Some(block);
        Ok(Sent::Some(count))
    }

    /// So many messages were sent with their bytes, or some of them were refused.
    const fn count_whole(&mut self, messages: usize) {
        if let Some(shelf) = &mut self.shelf {
            shelf.sent_whole(messages);
        }
    }

    fn error(&self, error: OperationError) -> io::Error {
        let error = io::Error::from(match (error, self.shared.session.ended()) {
            (OperationError::Disconnected, Some(why)) => OperationError::Ended(why),
            (error, _) => error,
        });
        match error.kind() {
            io::ErrorKind::NotConnected => io::Error::new(io::ErrorKind::BrokenPipe, error),
            _ => error,
        }
    }

    #[cfg(feature = "tokio")]
    pub(super) fn poll_write_bytes(
        &mut self,
        context: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if !self.has_any(bufs)? {
            return Poll::Ready(Ok(0));
        }
        let ready = ready!(self.needs.poll(context));
        let first = ready.map_err(|error| self.error(error))?;
        Poll::Ready(self.send(first, bufs))
    }

    #[cfg(feature = "tokio")]
    pub(super) fn poll_finish(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.send_last() {
            Last::Sent(sent) => {
                let done = ready!(Pin::new(sent).poll(context));
                Poll::Ready(self.finished(done))
            }
            Last::Kept(_) | Last::Done => Poll::Ready(Ok(())),
        }
    }
}

/// Blocks the thread. Tasks use tokio's trait.
impl Write for WriteHalf {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(buf)])
    }

    /// As if the slices were one: short ones are one message together.
    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        if !self.has_any(bufs)? {
            return Ok(0);
        }
        let ready = self.needs.wait(self.deadline());
        let first = ready.map_err(|error| self.error(error))?;
        self.send(first, bufs)
    }

    /// Does nothing: written bytes are on their way.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for WriteHalf {
    fn drop(&mut self) {
        if thread::panicking() {
            return;
        }
        self.send_last();
        if let Last::Sent(sent) = mem::replace(&mut self.last, Last::Done) {
            let left = self.shared.session.pd().linger();
            see_off(Arc::clone(&self.shared), sent, FIRST_LOOK, left);
        }
    }
}

/// Keeps the session until its last message was handed to the transport, on the worker's thread:
/// when it is closed at once, a message is lost that the first one of the peer has to come before
/// (RFC 5044 §7.1.2). Delays after that are the engine's matter.
fn see_off(shared: Arc<Shared>, sent: Pending<()>, wait: Duration, left: Duration) {
    let Some(core) = shared.session.handle.alive().cloned() else { return };
    let wait = wait.min(left);
    if !sent.is_done() && !wait.is_zero() {
        let again = (wait * 2).min(LAST_LOOK);
        let look = move || see_off(shared, sent, again, left - wait);
        core.background.after(wait, Box::new(look));
    }
}

impl fmt::Debug for WriteHalf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteHalf")
            .field("session", &self.shared.session)
            .field("over", &!matches!(self.last, Last::Kept(_)))
            .finish_non_exhaustive()
    }
}

/// The needs of a message: a receive of the peer with a place in the send queue, and a block. A
/// write that is given up leaves here what it has, for the next one.
struct Needs {
    credits: Credits,
    pool: BlockPool,
    credit: Option<Credit>,
    block: Option<Block>,
    #[cfg(feature = "tokio")]
    crediting: Option<Crediting>,
    #[cfg(feature = "tokio")]
    taking: Option<Taking>,
}

impl Needs {
    const fn new(credits: Credits, pool: BlockPool) -> Self {
        Self {
            credits,
            pool,
            credit: None,
            block: None,
            #[cfg(feature = "tokio")]
            crediting: None,
            #[cfg(feature = "tokio")]
            taking: None,
        }
    }

    fn wait(&mut self, deadline: Option<Instant>) -> Result<(Credit, Block), OperationError> {
        #[cfg(feature = "tokio")]
        {
            // They would wake a task, and not this thread.
            self.crediting = None;
            self.taking = None;
        }
        if self.credit.is_none() {
            self.credit = Some(self.credits.reserve().wait_until(deadline)?);
        }
        if self.block.is_none() {
            self.block = Some(self.pool.take().wait_until(deadline)?);
        }
        Ok(self.take())
    }

    /// Another message's, if it is there at once.
    fn more(&mut self) -> Option<(Credit, Block)> {
        let credit = self.credits.try_reserve()?;
        let Some(block) = self.pool.try_take() else {
            // For the next write.
            self.credit = Some(credit);
            return None;
        };
        Some((credit, block))
    }

    #[cfg(feature = "tokio")]
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<(Credit, Block), OperationError>> {
        if self.credit.is_none() {
            let crediting = self.crediting.get_or_insert_with(|| self.credits.reserve());
            let credit = ready!(Pin::new(crediting).poll(context));
            self.crediting = None;
            self.credit = Some(credit?);
        }
        if self.block.is_none() {
            let taking = self.taking.get_or_insert_with(|| self.pool.take());
            let block = ready!(Pin::new(taking).poll(context));
            self.taking = None;
            self.block = Some(block?);
        }
        Poll::Ready(Ok(self.take()))
    }

    fn take(&mut self) -> (Credit, Block) {
        let both = self.credit.take().zip(self.block.take());
        both.unwrap_or_else(|| unreachable!("just seen"))
    }
}

/// The part of a write that is sent.
enum Sent {
    Some(usize),
    /// The needs of a message come back.
    None((Credit, Block)),
}

/// The bytes of a write that are in no message yet.
struct Rest<'a, 'b> {
    bufs: &'a [IoSlice<'b>],
    /// Bytes of the first one that are.
    at: usize,
}

impl Rest<'_, '_> {
    fn len(&self) -> usize {
        self.bufs.iter().map(|buf| buf.len()).sum::<usize>() - self.at
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Hands on as many of them as there are, up to `len`, with the place of each piece among them;
    /// says how many.
    fn take(&mut self, len: usize, mut piece: impl FnMut(usize, &[u8])) -> usize {
        let mut taken = 0;
        while let Some(buf) = self.bufs.first()
            && taken < len
        {
            let count = (buf.len() - self.at).min(len - taken);
            piece(taken, &buf[self.at..self.at + count]);
            taken += count;
            self.at += count;
            if self.at == buf.len() {
                self.bufs = &self.bufs[1..];
                self.at = 0;
            }
        }
        taken
    }

    /// Leaves as many of them as there are in `place`, and says where they lie. On an error none
    /// is taken.
    fn leave(&mut self, annex: &Annex, place: Range<usize>) -> io::Result<Placed> {
        let (bufs, at) = (self.bufs, self.at);
        let mut result = Ok(());
        let count = self.take(place.len(), |offset, octets| {
            if result.is_ok() {
                result = annex.leave(place.start + offset, octets);
            }
        });
        if let Err(error) = result {
            (self.bufs, self.at) = (bufs, at);
            return Err(error);
        }
        Ok(Placed(place.start..place.start + count))
    }

    /// Makes as many of them as there are, up to `len`, the content of the block; says how many.
    fn fill(&mut self, block: &mut Block, len: usize) -> usize {
        block.set_len(len);
        let filled = self.take(len, |at, octets| {
            block[at..at + octets.len()].copy_from_slice(octets);
        });
        block.set_len(filled);
        filled
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::domain;

    /// The messages that the slices become.
    fn messages(slices: &[&[u8]], len: usize) -> Vec<Vec<u8>> {
        let bufs: Vec<_> = slices.iter().map(|slice| IoSlice::new(slice)).collect();
        let mut rest = Rest { bufs: &bufs, at: 0 };
        let mut block = Block::new(&domain(), 8).unwrap();
        let mut messages = Vec::new();
        while !rest.is_empty() {
            assert_eq!(rest.fill(&mut block, len), block.len());
            messages.push(block.to_vec());
        }
        messages
    }

    #[test]
    fn slices_are_cut_into_full_messages() {
        let slices = [&b"ab"[..], b"", b"cdefg", b"h"];
        assert_eq!(messages(&slices, 3), [&b"abc"[..], b"def", b"gh"]);
        assert_eq!(messages(&slices, 8), [b"abcdefgh"]);
        assert_eq!(messages(&slices, 1).concat(), b"abcdefgh");
    }

    /// Each message would be the end of the stream.
    #[test]
    fn empty_slices_become_no_message() {
        assert_eq!(messages(&[b"", b""], 3), [b""; 0]);
        assert_eq!(messages(&[b"", b"abc", b""], 3), [b"abc"]);
    }

    /// Bytes of an earlier write are still behind the end of the block.
    #[test]
    fn a_short_message_hides_older_bytes() {
        let mut block = Block::new(&domain(), 8).unwrap();
        for (text, expected) in [(&b"longer"[..], 6), (b"no", 2)] {
            let bufs = [IoSlice::new(text)];
            assert_eq!(Rest { bufs: &bufs, at: 0 }.fill(&mut block, 8), expected);
            assert_eq!(&*block, text);
        }
    }
}
