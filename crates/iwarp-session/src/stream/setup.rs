// SPDX-License-Identifier: MIT OR Apache-2.0

//! Making byte streams.

use std::fmt;
use std::io;
#[cfg(feature = "tokio")]
use std::pin::Pin;
use std::sync::Arc;
#[cfg(feature = "tokio")]
use std::task::{Context, Poll, ready};
use std::time::Duration;

use iwarp::cm::{Addresses, ConnectError, ConnectParams};
use iwarp::verbs::ProtectionDomain;
use iwarp_types::setters;

use crate::balance::SPARE;
use crate::stream::hello::Hello;
use crate::stream::shared::Shared;
use crate::stream::shelf::Shelf;
use crate::stream::{ReadHalf, WriteHalf};
use crate::{
    BlockPool, ByteStream, Connecting, Credits, OperationError, Receiver, Request, Session,
    Unconnected,
};

impl ByteStream {
    /// Connects to a program that [accepts](Self::accept) byte streams, with default sizes.
    ///
    /// [`Config`] has other sizes.
    pub fn connect(pd: &ProtectionDomain, addr: impl Into<Addresses>) -> Opening {
        Config::default().connect(pd, addr)
    }

    /// Accepts a request of a [`Listener`](crate::Listener), with default sizes; rejects
    /// it if its peer is no byte stream ([`Request::is_byte_stream`]).
    pub fn accept(request: Request) -> Opening {
        Config::default().accept(request)
    }
}

/// The settings of a byte stream: the defaults, and by chained setters what differs from them. The
/// two ends may differ.
///
/// A stream has `blocks` blocks for what it sends and as many for what it receives, and three more
/// for what the ends tell each other: 35 blocks of 32 KiB by default. Long writes take `shared`
/// bytes in each direction besides, where the connection has moved to shared memory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// Bytes of a block: the most that one message carries. The smaller one of the two ends counts.
    pub block_len: usize,
    /// Blocks in each direction, up to 65,535: messages that the peer may have sent and the program
    /// has not read, and messages of this end that are not handed to the transport yet.
    pub blocks: usize,
    /// Bytes in each direction that may lie in shared memory until the peer's program reads them,
    /// where the connection has moved there: 2 MiB by default, which is the most; 0 for none. The
    /// smaller one of the two ends counts. It is not used where a block's share of it, of 64 blocks
    /// at most, is less than the block or 4 KiB.
    pub shared: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self { block_len: 32 * 1024, blocks: 16, shared: 2 << 20 }
    }
}

impl Config {
    /// 16 blocks of 32 KiB in each direction, and 2 MiB in shared memory.
    pub fn new() -> Self {
        Self::default()
    }

    setters! {
        block_len: usize,
        blocks: usize,
        shared: usize,
    }

    /// As [`ByteStream::connect`].
    pub fn connect(&self, pd: &ProtectionDomain, addr: impl Into<Addresses>) -> Opening {
        let begun = self.hello().and_then(|hello| {
            let (prepared, parts) = self.prepare(pd, hello)?;
            Ok((prepared.connect(addr), parts))
        });
        Opening { begun: Some(begun) }
    }

    /// As [`ByteStream::accept`].
    pub fn accept(&self, request: Request) -> Opening {
        let begun = self.hello().and_then(|hello| {
            if let Err(error) = Hello::parse(request.private_data()) {
                // So the peer learns what it has met, if it is still there.
                let _ = request.reject(&hello.to_octets());
                return Err(error.into());
            }
            let (prepared, parts) = self.prepare(request.pd(), hello)?;
            Ok((prepared.accept(request), parts))
        });
        Opening { begun: Some(begun) }
    }

    fn hello(&self) -> io::Result<Hello> {
        let block_len = u32::try_from(self.block_len).ok().filter(|len| *len > 0);
        let blocks = u16::try_from(self.blocks).ok().filter(|blocks| *blocks > 0);
        let Some((block_len, blocks)) = block_len.zip(blocks) else {
            let error = "a byte stream has 1 to 65535 blocks of at least 1 byte";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, error));
        };
        // One more message: the end of the stream.
        let shared = u32::try_from(self.shared).unwrap_or(u32::MAX);
        Ok(Hello { block_len, depth: u32::from(blocks) + 1, shared })
    }

    /// A session whose receives are there before the peer can send.
    fn prepare(&self, pd: &ProtectionDomain, hello: Hello) -> io::Result<(Unconnected, Parts)> {
        let pool =
            |count| BlockPool::new(pd, self.block_len, count).map_err(OperationError::Memory);
        let depth = self.blocks + 1;
        let (sends, receives) = (pool(self.blocks)?, pool(depth + SPARE)?);
        let config = crate::Config::new()
            .max_sends(depth)
            .max_recvs(depth + SPARE)
            .params(ConnectParams::new().private_data(hello.to_octets()));
        let prepared = config.prepare(pd)?;
        if self.shared > 0 {
            prepared.keep_annex();
        }
        let (credits, receiver) = prepared.credited_later(&receives, depth)?;
        Ok((prepared, Parts { hello, credits, receiver, sends }))
    }
}

/// The parts that become a byte stream when there is a connection.
struct Parts {
    /// The greeting of this end.
    hello: Hello,
    credits: Credits,
    receiver: Receiver,
    /// For messages to the peer.
    sends: BlockPool,
}

/// A byte stream on its way: [`wait`](Self::wait) for it, or `.await` it with the feature `tokio`.
///
/// # Cancel safety
///
/// Dropping it gives the connection up, as with [`Connecting`]. To go on waiting later, wait for it
/// by reference (`&mut opening`).
#[must_use = "dropping it gives the connection up"]
pub struct Opening {
    /// Until it was told how it ended.
    begun: Option<io::Result<(Connecting, Parts)>>,
}

impl Opening {
    /// Waits until the stream is there. The device's options bound how long that takes.
    ///
    /// # Errors
    ///
    /// `InvalidData` with a [`HelloError`](super::HelloError) when the peer is no byte stream;
    /// `ConnectionRefused` when it rejected the connection; `InvalidInput` for a [`Config`] that no
    /// stream can have; those of making sessions.
    pub fn wait(self) -> io::Result<ByteStream> {
        self.wait_by(Connecting::wait)
    }

    /// As [`Self::wait`], and gives up after `timeout`.
    ///
    /// # Errors
    ///
    /// `TimedOut`; as [`Self::wait`].
    pub fn wait_timeout(self, timeout: Duration) -> io::Result<ByteStream> {
        self.wait_by(|connecting| connecting.wait_timeout(timeout))
    }

    fn wait_by(
        mut self,
        wait: impl FnOnce(Connecting) -> Result<Session, ConnectError>,
    ) -> io::Result<ByteStream> {
        let (connecting, parts) = self.take()?;
        open(wait(connecting), parts)
    }

    fn take(&mut self) -> io::Result<(Connecting, Parts)> {
        self.begun.take().unwrap_or_else(|| Err(io::ErrorKind::NotConnected.into()))
    }
}

/// Looks at what the peer is, and begins.
fn open(connected: Result<Session, ConnectError>, parts: Parts) -> io::Result<ByteStream> {
    let session = connected.map_err(|error| match error {
        rejected @ ConnectError::Rejected { .. } => {
            io::Error::new(io::ErrorKind::ConnectionRefused, rejected)
        }
        error => error.into(),
    })?;
    let theirs = Hello::parse(session.private_data())?;
    parts.credits.begin(&parts.receiver, theirs.depth);
    let message_len = theirs.block_len.min(parts.hello.block_len);
    let Parts { credits, receiver, sends, .. } = parts;
    let shared_len = theirs.shared.min(parts.hello.shared);
    let shelf = Shelf::new(theirs.depth, message_len as usize, shared_len);
    let shared = Arc::new(Shared::new(session, receiver));
    let read = ReadHalf::new(Arc::clone(&shared));
    let write = WriteHalf::new(shared, credits, sends, message_len as usize, shelf);
    Ok(ByteStream { read, write })
}

impl fmt::Debug for Opening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let begun = self.begun.as_ref().map(|begun| begun.as_ref().map(|(begun, _)| begun));
        f.debug_struct("Opening").field("begun", &begun).finish()
    }
}

#[cfg(feature = "tokio")]
impl Future for Opening {
    type Output = io::Result<ByteStream>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let connected = match &mut self.begun {
            Some(Ok((connecting, _))) => ready!(Pin::new(connecting).poll(context)),
            // Told below.
            Some(Err(_)) | None => Err(ConnectError::Timeout),
        };
        Poll::Ready(self.take().and_then(|(_, parts)| open(connected, parts)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hello_has_room_for_the_end_of_the_stream() {
        let hello = Config::new().block_len(1).blocks(65_535).hello().unwrap();
        assert_eq!((hello.block_len, hello.depth), (1, 65_536));
    }

    #[test]
    fn sizes_that_a_hello_cannot_say_are_refused() {
        let config = Config::new();
        for wrong in [
            config.clone().block_len(0),
            config.clone().block_len(1 << 32),
            config.clone().blocks(0),
            config.blocks(65_536),
        ] {
            let error = wrong.hello().map(drop).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{wrong:?}");
        }
    }
}
