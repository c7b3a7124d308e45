// SPDX-License-Identifier: MIT OR Apache-2.0

//! A connection and what can be done on it.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use iwarp::LocalPath;
use iwarp::cm::{EventChannel, Id};
use iwarp::drive::ConnectionObserver;
use iwarp::verbs::Ended;
use iwarp::verbs::ProtectionDomain;
use iwarp_mem::RegisterError;
use iwarp_types::{Access, AtomicOp};

use crate::metrics::StreamMetrics;
use crate::post::{self, Post};
use crate::table::{Core, Handle};
use crate::{
    Blocks, Exposed, Metrics, OperationError, Pending, Received, RemoteGrant, Room, SendFlags,
};

/// A connection to a peer: a connected queue pair with its completion queue.
///
/// Operations are posted by the call, complete in the order of posting (sends among themselves,
/// receives among themselves) and may be posted and awaited from any thread or task. Dropping the
/// session ends the connection in good order, in the background.
pub struct Session {
    pub(super) handle: Arc<Handle>,
    /// Takes the id's events, which are not looked at.
    _channel: EventChannel,
    id: Id,
    private_data: Vec<u8>,
}

impl Session {
    pub(super) fn new(
        handle: Arc<Handle>,
        channel: EventChannel,
        id: Id,
        private_data: Vec<u8>,
    ) -> Self {
        Self { handle, _channel: channel, id, private_data }
    }

    fn post(&self) -> Post<'_> {
        Post::with(&self.handle, None)
    }

    /// Sends the bytes of a block, or of several, as one message. Done when they were handed to the
    /// transport.
    pub fn send<B: Blocks>(&self, blocks: B) -> Pending<B> {
        self.send_with(blocks, SendFlags::default())
    }

    /// As [`Self::send`], with more to say.
    pub fn send_with<B: Blocks>(&self, blocks: B, flags: SendFlags) -> Pending<B> {
        self.post().send(blocks, flags)
    }

    /// Sends a small message that is copied at once, up to
    /// [`Config::max_inline`](crate::Config::max_inline) bytes.
    pub fn send_inline(&self, octets: &[u8]) -> Pending<()> {
        self.post().send_inline(octets)
    }

    /// Sends 8 bytes that arrive in the peer's completion (Immediate Data), behind what was
    /// written before. They take one of its receives.
    pub fn immediate(&self, data: [u8; 8]) -> Pending<()> {
        self.post().immediate(data)
    }

    /// Receives a message into a block, or into several one after the other ([`Room`]), which need
    /// a capacity for it: the peer's message is refused, and the connection ends, where there is no
    /// receive or too small a one.
    ///
    /// ```
    /// # use iwarp_session::{Block, Listener, Session};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let pd = iwarp::Device::open()?.alloc_pd();
    /// # let listener = Listener::bind(&pd, "127.0.0.1:0")?;
    /// # let connecting = Session::connect(&pd, listener.local_addr().ok_or("no address")?);
    /// # let peer = Session::accept(listener.accept().wait()?).wait()?;
    /// # let session = connecting.wait()?;
    /// let receive = session.recv([Block::new(&pd, 8)?, Block::new(&pd, 4096)?]);
    /// # peer.send_inline(b"8 bytes.and a body").wait()?;
    /// let [header, body] = receive.wait()?.block;
    /// assert_eq!((&*header, &*body), (&b"8 bytes."[..], &b"and a body"[..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Dropping the [`Pending`] leaves the receive posted, and the message that comes there is
    /// lost. [`Self::receiver`] loses none.
    pub fn recv<B: Room>(&self, blocks: B) -> Pending<Received<B>> {
        Pending::new(&self.handle, self.handle.post_recv(blocks.into_cargo(), &[]))
    }

    /// Writes the bytes of a block, or of several one behind the other, at `offset` of what the
    /// peer granted. Done when they were handed to the transport; they are in place before any
    /// message that is sent later arrives.
    ///
    /// ```no_run
    /// # use iwarp_session::{Block, Failure, RemoteGrant, Session};
    /// # fn example(session: &Session, to: &RemoteGrant, header: Block, mut body: Block)
    /// # -> Result<(), Failure> {
    /// body.set_range(512..1024);
    /// let [header, body] = session.write([header, body], to, 0).wait()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn write<B: Blocks>(&self, blocks: B, to: &RemoteGrant, offset: u64) -> Pending<B> {
        self.post().write(blocks, to, offset)
    }

    /// As [`Self::write`], for few bytes that are copied at once, up to
    /// [`Config::max_inline`](crate::Config::max_inline).
    pub fn write_inline(&self, octets: &[u8], to: &RemoteGrant, offset: u64) -> Pending<()> {
        self.post().write_inline(octets, to, offset)
    }

    /// As [`Self::write`], and tells the peer: `data` arrives in its completion
    /// ([`Received::immediate`], the first four bytes) when all of the blocks' bytes are in place,
    /// and takes one of its receives. Beside [`Credits`](crate::Credits) it is
    /// [`Credit::write_immediate`](crate::Credit::write_immediate).
    pub fn write_immediate<B: Blocks>(
        &self,
        blocks: B,
        to: &RemoteGrant,
        offset: u64,
        data: [u8; 4],
    ) -> Pending<B> {
        self.post().write_immediate(blocks, to, offset, data)
    }

    /// Fills a block, or several one after the other, with what is at `offset` of what the peer
    /// granted: as many bytes as they have.
    pub fn read<B: Blocks>(&self, from: &RemoteGrant, offset: u64, blocks: B) -> Pending<B> {
        self.post().read(from, offset, blocks)
    }

    /// Adds to the 8 bytes at `offset` of what the peer granted, in its host's order, and returns
    /// what they were (RFC 7306 §5.1.1). Their address there must be a multiple of 8: the peer
    /// ends the connection otherwise.
    pub fn fetch_add(&self, at: &RemoteGrant, offset: u64, add: u64) -> Pending<u64> {
        self.atomic(at, offset, post::fetch_add(add))
    }

    /// Replaces the 8 bytes at `offset` of what the peer granted by `swap` if they are `compare`,
    /// and returns what they were (RFC 7306 §5.1.2). Alignment as for [`Self::fetch_add`].
    pub fn compare_swap(
        &self,
        at: &RemoteGrant,
        offset: u64,
        compare: u64,
        swap: u64,
    ) -> Pending<u64> {
        self.atomic(at, offset, post::compare_swap(compare, swap))
    }

    /// Any atomic operation on the 8 bytes at `offset` of what the peer granted, masked ones among
    /// them (RFC 7306 §5.1), and returns what they were. Alignment as for [`Self::fetch_add`].
    pub fn atomic(&self, at: &RemoteGrant, offset: u64, op: AtomicOp) -> Pending<u64> {
        self.post().atomic(at, offset, op)
    }

    /// Allocates memory that this peer alone may reach, as [`Exposed::new`] does. It can give its
    /// grant up ([`SendFlags::invalidate`]), and has it no longer when the session is gone.
    ///
    /// # Errors
    ///
    /// [`RegisterError`] when no STag can be had.
    pub fn expose(&self, len: usize, access: Access) -> Result<Exposed, RegisterError> {
        self.handle.expose(len, access)
    }

    /// True if the connection is up.
    pub fn is_connected(&self) -> bool {
        self.handle.alive().is_some_and(|core| core.qp.is_connected())
    }

    /// The private data of the peer when connecting.
    pub fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    /// The local address.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.id.local_addr()
    }

    /// The peer's address.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.id.peer_addr()
    }

    /// The domain whose blocks its operations take.
    pub fn pd(&self) -> &ProtectionDomain {
        &self.handle.pd
    }

    /// The numbers of the session so far, and the state of its connection. The numbers of the
    /// operations stay when the connection ends. In a forked child there are none.
    ///
    /// This asks the system, and takes some microseconds.
    pub fn metrics(&self) -> Metrics {
        let Some(core) = self.handle.alive() else { return Metrics::default() };
        let tcp = core.qp.vitals().map(StreamMetrics::from);
        let counters = core.qp.counters().unwrap_or_default();
        let metrics = Metrics::of(counters, core.beside(), tcp);
        core.meters.sample(&metrics);
        metrics
    }

    /// The way of its connection, if that is up and both ends are on this host.
    #[doc(hidden)]
    pub fn path_within_host(&self) -> Option<LocalPath> {
        self.handle.alive()?.qp.path_within_host()
    }

    /// Ends the connection in good order: Sends and Writes that were accepted go out, the rest
    /// ends with [`OperationError::Disconnected`]. Done when nothing is under way any more.
    pub fn close(self) -> Closing {
        let linger = self.handle.alive().map_or(Duration::ZERO, |core| {
            core.qp.disconnect();
            core.pd.linger()
        });
        // The engine bounds the end of a connection; this is for when that fails.
        let deadline = Instant::now() + linger * 2;
        Closing { handle: Arc::clone(&self.handle), deadline }
    }

    /// Ends the connection with a reset: nothing that was accepted needs to go out.
    pub fn abort(&self) {
        if let Some(core) = self.handle.alive() {
            core.qp.abort();
        }
    }
}

impl post::sealed::Posts for &Session {
    fn post_by<T>(self, what: impl FnOnce(Post<'_>) -> Pending<T>) -> Pending<T> {
        what(self.post())
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("qp", &self.handle.alive().map(|core| core.qp.number()))
            .field("peer", &self.peer_addr())
            .finish_non_exhaustive()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(core) = self.handle.alive() {
            core.qp.disconnect();
            // No event reports the end any more.
            self.handle.end.disconnected(Ended::Closed);
        }
    }
}

/// A session that is ending: [`wait`](Self::wait) until it has, or `.await` it with the feature
/// `tokio`.
///
/// # Cancel safety
///
/// Dropping it, or the future that it becomes, lets the session end in the background: what was
/// accepted still goes out.
#[must_use = "wait for it, or drop the session instead"]
pub struct Closing {
    pub(super) handle: Arc<Handle>,
    pub(super) deadline: Instant,
}

impl Closing {
    /// Waits until nothing is under way any more: all that was accepted was handed to the
    /// transport, and all blocks are back or can be had from their [`Pending`].
    ///
    /// # Errors
    ///
    /// `Disconnected` when the peer did not take it in time, and the connection was reset.
    pub fn wait(self) -> Result<(), OperationError> {
        let core = self.handle.check().map_err(OperationError::Wait)?;
        if core.wait_idle(self.deadline)? {
            return Ok(());
        }
        Self::give_up(core)
    }

    pub(super) fn give_up(core: &Core) -> Result<(), OperationError> {
        core.qp.abort();
        core.progress();
        Err(OperationError::Disconnected)
    }
}

impl fmt::Debug for Closing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Closing").finish_non_exhaustive()
    }
}
