// SPDX-License-Identifier: MIT OR Apache-2.0

//! Movers as their endpoint sees them: a stream of one queue pair, or a datagram port of many.
//!
//! An endpoint calls them and does not know of which wire they are; they name the endpoint, and it
//! names only these traits. Poll groups see the same objects as [`Member`](super::group::Member)s.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::ops::Range;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use iwarp_types::{AtomicOp, Payload, Sge, Stag, TaggedOffset};

use crate::port::Vitals;
use crate::report::Object;

/// A Read that is to be carried out at once: from the peer's memory into elements of this end's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DirectRead<'a> {
    pub(crate) stag: Stag,
    pub(crate) to: TaggedOffset,
    pub(crate) room: &'a [Sge],
    /// The program has few others under way.
    pub(crate) is_alone: bool,
}

/// Bytes of a Write that are to be placed at once in the peer's memory.
#[derive(Clone, Debug)]
pub(crate) struct DirectWrite<'a> {
    pub(crate) stag: Stag,
    /// The place of the first byte of the payload.
    pub(crate) to: TaggedOffset,
    pub(crate) payload: Payload<'a>,
    /// The bytes of it.
    pub(crate) range: Range<u64>,
}

/// An Atomic that is to be carried out at once in the peer's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DirectAtomic<'a> {
    pub(crate) stag: Stag,
    pub(crate) to: TaggedOffset,
    pub(crate) op: AtomicOp,
    /// For the value before.
    pub(crate) room: &'a [Sge],
}

/// The outcome of a Write or Atomic that was to be carried out at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AtOnce {
    Done,
    /// It is to be posted.
    No,
    /// The peer may have it or not.
    Lost,
}

/// Moves the bytes of one stream, for the one endpoint that it belongs to.
pub(crate) trait StreamMover: fmt::Debug + Send + Sync {
    /// Sends what can be sent.
    fn transmit(&self);
    /// Takes in what has come, and what waits for receives; sends and ends what follows.
    fn deliver(&self);
    /// Does what follows from a change of the queue pair's state: goes on reading a stream that
    /// stood still, sends, and closes the stream once both directions are over.
    fn carry_on(&self);
    /// Sends nothing until the next call that drives the stream, or the next [`Self::transmit`].
    fn hold(&self);
    /// True if what was posted may be left to a task, which sends it soon. To be asked after the
    /// post.
    fn gathers(&self) -> bool;
    /// True while bytes go out whose work requests have not completed yet.
    fn is_writing(&self) -> bool;
    /// True once the stream is not used any more.
    fn is_closed(&self) -> bool;
    /// True if what is sent goes by memory that the other end shares.
    fn has_moved(&self) -> bool;
    /// True if what is sent from now on goes there.
    fn moves(&self) -> bool;
    /// True if that has no CRCs, so that bytes may also lie beside it.
    fn moves_without_crc(&self) -> bool;
    /// True if the peer's address is one of this host.
    fn is_within_host(&self) -> bool;
    /// Carries out a Read at once, if the memory is that of another process which this one reads,
    /// all that was sent has arrived there, and this end has room for the bytes. False where it is
    /// to be posted; some of the room may hold bytes already.
    fn read_at_once(&self, read: &DirectRead<'_>) -> bool;
    /// Places bytes of a Write at once, if the memory is that of another process which this one
    /// maps, and all that was sent before has arrived there. Where the Write is to be posted, some
    /// of the bytes may have been placed, but not the last.
    fn write_at_once(&self, write: &DirectWrite<'_>) -> AtOnce;
    /// Carries out an Atomic at once, likewise.
    fn update_at_once(&self, atomic: &DirectAtomic<'_>) -> AtOnce;
    /// A request was carried out so, and is reported: so many bytes were read, or written. To be
    /// called with the core locked.
    fn was_done_at_once(&self, read: u64, written: u64);
    /// The Reads that were carried out so.
    fn direct_reads(&self) -> u64;
    /// The Writes and Atomics that were carried out so.
    fn direct_writes(&self) -> u64;
    /// The peer reads nothing by itself any more, until it has asked again.
    fn show_nothing(&self);
    /// The port has gone down, so that nothing passes in either direction, or is up again.
    fn cable(&self, is_pulled: bool);
    /// Waits a moment for the thread that is receiving.
    fn settle_receiving(&self);
    /// Sets the time that the peer may be silent while something is expected of it; `None`: as long
    /// as the system likes.
    fn set_patience(&self, patience: Option<Duration>);
    /// A capture of the process has begun. To be called by a thread that moves no stream at this
    /// moment.
    fn have_capture(&self);
    /// Lets go of the stream at once, with a reset.
    fn break_off(&self);
    /// Describes the stream: its ends, its way, and what it waits for.
    fn describe(&self, to: &mut Object);
    /// The peer's name, for the log.
    fn peer(&self) -> String;
    /// The state of affairs between the ends, where it is known.
    fn vitals(&self) -> Option<Vitals>;
    /// The stream, for a task that drives it in the reactor of an async runtime.
    fn in_reactor(self: Arc<Self>) -> Arc<dyn ReactorStream>;
}

/// A stream that the reactor of an async runtime tells a task of.
pub trait ReactorStream: fmt::Debug + Send + Sync {
    /// Takes the place that `enter` makes in a reactor for the stream's descriptor, and leaves the
    /// one before. Does nothing to a stream that is none of the system's, or is over.
    ///
    /// # Errors
    ///
    /// As `enter`.
    fn enter_reactor(&self, enter: Enter<'_>) -> io::Result<()>;
    /// Gives up the place in the reactor.
    fn leave_reactor(&self);
    /// Has requests that several woken tasks are about to post wait for the next turn of the task
    /// that drives, which ends this by [`Self::send_gathered`]. False where the stream is in no
    /// reactor.
    fn gather(&self) -> bool;
    /// Ends [`Self::gather`].
    fn send_gathered(&self);
    /// True if the reactor tells of all that comes from now on and concerns this stream: nothing
    /// else is awaited, and the last read left nothing.
    fn is_told_by_reactor(&self) -> bool;
    /// Ready when something has come since the last time, or the place was given up. To be asked
    /// where [`Self::is_told_by_reactor`] was true, even if it is so no more: another thread that
    /// reads at this moment may take what has come, and a task that was not registered here then
    /// would not be told of what comes next.
    ///
    /// # Errors
    ///
    /// As [`ReactorPlace::poll_input`].
    fn poll_input(&self, context: &mut Context<'_>) -> Poll<io::Result<()>>;
}

/// Makes a place in a reactor for a descriptor, which stays open for as long as the place is kept.
pub type Enter<'a> = &'a dyn Fn(RawFd) -> io::Result<Box<dyn ReactorPlace>>;

/// A descriptor's place in the reactor of an async runtime, which tells of what *comes* there.
pub trait ReactorPlace: fmt::Debug + Send + Sync {
    /// Ready when something has come since the last time that it was.
    ///
    /// # Errors
    ///
    /// Errors of the reactor, such as that it is no more.
    fn poll_input(&self, context: &mut Context<'_>) -> Poll<io::Result<()>>;
}

/// Moves the packets of all endpoints `E` that it serves, by one datagram port.
pub(crate) trait PacketMover<E>: fmt::Debug + Send + Sync {
    /// Hands packets for the endpoint's number to it from now on.
    fn serve(&self, endpoint: &Arc<E>) -> io::Result<()>;
    /// Ends [`Self::serve`].
    fn forget(&self, endpoint: &E);
    /// Sends what the endpoint has to send, now or when there is room.
    fn transmit(&self, endpoint: &Arc<E>);
    /// Receives what has come, unless a thread is at it.
    fn catch_up(&self);
    /// Hands packets to the multicast group to the endpoint from now on.
    fn attach(&self, group: IpAddr, endpoint: &Arc<E>) -> io::Result<()>;
    /// Ends that, for this group or all (`None`).
    fn detach(&self, group: Option<IpAddr>, endpoint: &E);
}
