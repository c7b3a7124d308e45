// SPDX-License-Identifier: MIT OR Apache-2.0

//! Bytes in both directions, as over TCP, for programs and libraries that know no messages.
//!
//! A [`ByteStream`] is [`Read`] and [`Write`], and with the feature `tokio` also `AsyncRead` and
//! `AsyncWrite` of `tokio::io`: all that works on a TCP stream by these traits works on it as well,
//! such as codecs, HTTP libraries, TLS libraries, and `tokio::io::copy_bidirectional`. A module
//! that imports the traits of both std and tokio has to name the one that it means
//! (`Read::read_to_end(&mut stream, ..)`).
//!
//! ```
//! use std::io::{Read, Write};
//!
//! use iwarp::Device;
//! use iwarp_session::{ByteStream, Listener};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = Device::open()?;
//! let listener = Listener::bind(&device.alloc_pd(), "127.0.0.1:0")?;
//! let addr = listener.local_addr().ok_or("no address")?;
//!
//! let server = std::thread::spawn(move || -> std::io::Result<()> {
//!     let mut stream = ByteStream::accept(listener.accept().wait()?).wait()?;
//!     let mut question = String::new();
//!     stream.read_to_string(&mut question)?; // up to the client's end of stream
//!     stream.write_all(question.to_uppercase().as_bytes())?;
//!     stream.finish()
//! });
//!
//! let mut stream = ByteStream::connect(&device.alloc_pd(), addr).wait()?;
//! stream.write_all(b"hello")?;
//! stream.finish()?; // this direction; the other one goes on
//! let mut answer = String::new();
//! stream.read_to_string(&mut answer)?;
//! assert_eq!(answer, "HELLO");
//! # server.join().unwrap()?;
//! # Ok(())
//! # }
//! ```
//!
//! An example in tasks:
//!
#![cfg_attr(feature = "tokio", doc = "```")]
#![cfg_attr(not(feature = "tokio"), doc = "```ignore")]
//! use iwarp_session::{ByteStream, Listener};
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let pd = iwarp::Device::open()?.alloc_pd();
//! # let listener = Listener::bind(&pd, "127.0.0.1:0")?;
//! # let addr = listener.local_addr().ok_or("no address")?;
//! # let client = tokio::spawn(async move {
//! #     let pd = iwarp::Device::open().unwrap().alloc_pd();
//! #     let mut stream = ByteStream::connect(&pd, addr).await?;
//! #     stream.write_all(b"hello").await?;
//! #     stream.shutdown().await?;
//! #     let mut answer = Vec::new();
//! #     stream.read_to_end(&mut answer).await?;
//! #     std::io::Result::Ok(answer)
//! # });
//! let stream = ByteStream::accept(listener.accept().await?).await?;
//! // An echo: each half may as well belong to a task of its own.
//! let (mut read, mut write) = stream.into_split();
//! tokio::io::copy(&mut read, &mut write).await?;
//! write.shutdown().await?;
//! # assert_eq!(client.await??, b"hello");
//! # Ok(())
//! # }
//! ```
//!
//! # Writing and flushing
//!
//! Bytes that were written are on their way when the call returns, however few they are. So
//! flushing has nothing to do, and nothing waits for more bytes to come (as Nagle's algorithm
//! does). A write waits for what one message takes, and takes more bytes if there are blocks for
//! them at once: they are posted together, in messages of a block ([`Config::block_len`]), half of
//! the blocks at most. `write_all` goes on until all bytes are written. Programs with many tiny
//! writes do better with a [`BufWriter`](std::io::BufWriter) or a vectored write, which makes one
//! message of its slices.
//!
//! A write waits while the peer's blocks are full of bytes that its program has not read, and while
//! all own blocks are on their way: a slow reader holds the writer up and never ends the
//! connection, and a stream uses no more memory than its [`Config`] says.
//!
//! Between two processes of one host whose connection has moved to shared memory
//! ([`Options::local`](iwarp::Options::local)) and has no CRCs there, bytes of a write of 4 KiB or
//! more are copied twice, as over TCP: into shared memory, and from there to where the reader wants
//! them. Then there may be more of them on their way than blocks have room for:
//! [`Config::shared`] says how many.
//!
//! A write that a task gives up (whose future is dropped before it is ready) has sent nothing, and
//! a read that is given up has taken nothing. `write_all` and the like say by themselves what is
//! lost then: how far they have come.
//!
//! # How a stream ends
//!
//! [`finish`](ByteStream::finish), `shutdown` in tasks, or dropping the [`WriteHalf`] ends one
//! direction: the peer reads the bytes up to there, and then 0 bytes, the end of the stream. The
//! other direction goes on. The connection is closed when both halves are dropped.
//!
//! A connection that ends without that never looks like the end of the stream. The peer reads the
//! bytes that came before, and then gets an error: `UnexpectedEof` when the connection was closed
//! (as the system does for a process that was killed), `ConnectionReset` when it broke or was
//! aborted, `ConnectionAborted` when an end broke it off with a reason, which is in the error. A
//! thread that panics drops its stream without the end. Writing then fails with `BrokenPipe` or one
//! of these kinds.
//!
//! # What is on the wire
//!
//! The two ends, both this library's, speak version 1 of this protocol:
//!
//! 1. The private data of the MPA Request, and of the Reply, are `iwarp stream` (12 bytes) and
//!    then, 4 bytes each in network order, the version, the bytes that a message to this end may
//!    have, the number D of messages that may be sent to it at first, 2 or more, and the bytes that
//!    may lie in shared memory for it (the fourth point below), none where that is left out. Bytes
//!    beyond these are ignored. An end that does not know what the other one says rejects the
//!    Request, or closes the connection.
//! 2. Bytes are the payload of Sends, in order. The bounds of the Sends mean nothing.
//! 3. A Send of 0 bytes is the end of the stream in its direction.
//! 4. On a connection that has moved to shared memory and has no CRCs there, Immediate Data (8
//!    bytes) stand for a Send whose payload lies in the sender's annex (`iwarp_os::local`): the
//!    first 4 bytes, in network order, say where, and the last 4 how many bytes there are, 1 or
//!    more. They stay there until the end that fetches them has posted the receive of this message
//!    again.
//! 5. A Send with Immediate of 0 bytes says how many messages this end takes: its 4 bytes, in
//!    network order, are the number modulo 2^32 that the other end may have sent in all since the
//!    beginning. It goes out when the connection is made, and then when the number has grown by D /
//!    2, rounded up, or the other end has used up all that it knows of. These Sends do not count
//!    themselves: each end has two receives more than D for them.
//!
//! [`Read`]: std::io::Read
//! [`Write`]: std::io::Write

mod hello;
mod read;
mod setup;
mod shared;
mod shelf;
#[cfg(feature = "tokio")]
mod task;
mod write;

use std::fmt;
use std::io::{self, BufRead, IoSlice, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

pub use hello::HelloError;
pub use read::ReadHalf;
pub use setup::{Config, Opening};
pub use write::WriteHalf;

use crate::Session;

/// Bytes to and from a peer: see the [module](self).
///
/// Its two halves may be used apart, by [`halves`](Self::halves) or, in different threads or tasks,
/// after [`into_split`](Self::into_split).
pub struct ByteStream {
    read: ReadHalf,
    write: WriteHalf,
}

impl ByteStream {
    /// The two halves, for use side by side.
    pub fn halves(&mut self) -> (&mut ReadHalf, &mut WriteHalf) {
        (&mut self.read, &mut self.write)
    }

    /// The two halves, for use in different threads or tasks. The connection is closed when both
    /// are dropped; dropping the writing half alone ends that direction.
    pub fn into_split(self) -> (ReadHalf, WriteHalf) {
        (self.read, self.write)
    }

    /// The stream that two halves are of.
    ///
    /// # Errors
    ///
    /// The halves, when they are of two streams.
    #[allow(clippy::result_large_err, reason = "they go back as they came")]
    pub fn reunite(read: ReadHalf, write: WriteHalf) -> Result<Self, (ReadHalf, WriteHalf)> {
        match Arc::ptr_eq(read.shared(), write.shared()) {
            true => Ok(Self { read, write }),
            false => Err((read, write)),
        }
    }

    /// As [`WriteHalf::finish`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn finish(&mut self) -> io::Result<()> {
        self.write.finish()
    }

    /// Breaks the connection off: what was written and not handed to the transport is lost, and
    /// both ends get errors.
    pub fn abort(&self) {
        self.session().abort();
    }

    /// As [`ReadHalf::set_read_timeout`].
    pub fn set_read_timeout(&mut self, timeout: Option<Duration>) {
        self.read.set_read_timeout(timeout);
    }

    /// As [`WriteHalf::set_write_timeout`].
    pub fn set_write_timeout(&mut self, timeout: Option<Duration>) {
        self.write.set_write_timeout(timeout);
    }

    /// The local address.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.session().local_addr()
    }

    /// The peer's address.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.session().peer_addr()
    }

    /// The session below, for waiting for its end, and for Reads, Writes and atomic operations
    /// beside the stream. Messages are the stream's: one that the program sends or receives itself
    /// breaks it.
    pub fn session(&self) -> &Session {
        &self.read.shared().session
    }
}

impl Read for ByteStream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.read.read(buf)
    }
}

impl BufRead for ByteStream {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.read.fill_buf()
    }

    fn consume(&mut self, count: usize) {
        self.read.consume(count);
    }
}

impl Write for ByteStream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.write.write(buf)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.write.write_vectored(bufs)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.write.flush()
    }
}

impl fmt::Debug for ByteStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ByteStream").field("read", &self.read).field("write", &self.write).finish()
    }
}
