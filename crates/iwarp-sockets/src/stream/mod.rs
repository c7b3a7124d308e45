// SPDX-License-Identifier: MIT OR Apache-2.0

//! A stream: the state machine of one connected rsocket.
//!
//! The driver owns the queue pair and three pieces of memory: the send buffer, the receive ring,
//! and the table behind `target_sgl`. This core sees none of the stream's octets, only ranges in
//! the first two, so the driver copies from the program once and to the program once.
//!
//! ```text
//!   Config -> conn_data   private data, before there is a stream
//!   Stream::new           with the peer's
//!
//!   send_space, sent      the program writes: where to, and how many octets it was
//!   receive_space, taken  the program reads
//!   shutdown, close, map, unmap, write_space, wrote
//!   received              a message of the peer's came
//!   completed             the transport has taken a request, and all before it
//!   lost                  the connection is gone
//!
//!   poll                  after any of these, until it has no more: what to post
//!   deadline              when to poll again if nothing happens
//!   wakes, readiness      what to tell the program
//! ```
//!
//! Messages are taken in the order in which they arrive, requests posted in the order in which they
//! come out. A peer that does not keep to the protocol ends the connection with a [`Violation`].

mod action;
mod config;
mod credit;
mod ending;
mod error;
mod form;
mod iomap;
mod outbox;
mod pump;
mod queue;
mod readiness;
mod remote;
mod ring;
mod span;

use alloc::collections::VecDeque;

use iwarp_types::Time;

pub use self::action::{Action, Arrival, Inline, Operation, Request, Source};
pub use self::config::{Config, Memory};
pub use self::ending::Shutdown;
pub use self::error::{Failure, MapError, SendError, Unusable, Violation};
pub use self::form::{Form, Wire};
pub use self::readiness::{Condition, Connected, Readiness};
pub use self::span::Spans;

use self::credit::{Grants, SendCredit};
use self::ending::Ending;
use self::iomap::{OwnMaps, PeerMaps};
use self::outbox::{Outbox, Target};
use self::queue::SendQueue;
use self::remote::RemoteRing;
use self::ring::ReceiveRing;
use crate::wire::{
    ByteOrder, ConnData, Control, Entry, Extensions, IOMAP_ENTRY_LEN, IomapEntry, Message,
    SGL_ENTRIES, SGL_ENTRY_LEN,
};

/// Requests for control messages that are posted and not taken, at most: an announcement with its
/// message is two in the form of Sends (RS-FLOW-08).
const CONTROL_REQUESTS: usize = 4;

/// The memory behind `target_sgl`, which the peer writes. Each entry is copied once, and the copy
/// checked (RS-SEC-03).
pub trait Table {
    /// Copies SGL entry `index` and overwrites it with zeros, so that the next announcement shows.
    fn take_sgl_entry(&mut self, index: u32) -> [u8; SGL_ENTRY_LEN];

    /// Copies iomap entry `index`, which is below the size that was configured.
    fn iomap_entry(&mut self, index: u32) -> [u8; IOMAP_ENTRY_LEN];
}

/// News for those who wait, since they were asked for last.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Wakes {
    /// Data came, or there will be no more.
    pub reader: bool,
    /// There is room again after a send that found less than it asked for, or sending is over.
    pub writer: bool,
}

/// One connected rsocket.
#[derive(Clone, Debug)]
pub struct Stream {
    config: Config,
    peer_order: ByteOrder,
    peer_sgl: Entry,
    extensions: Extensions,
    form: Form,

    outbox: Outbox,
    queue: SendQueue,
    credit: SendCredit,
    remote: RemoteRing,
    own_maps: OwnMaps,

    ring: ReceiveRing,
    grants: Grants,
    peer_maps: PeerMaps,
    /// Receives that messages have used up.
    receives: u32,

    ending: Ending,
    /// The request of this end's last word, or of one that may be.
    last_word: Option<u64>,
    is_disconnected: bool,
    failure: Option<Failure>,
    /// The connection is lost, or broken by the peer.
    is_gone: bool,

    /// Actions decided on.
    actions: VecDeque<Action>,
    wakes: Wakes,
    /// A send found less room than it asked for.
    wants_room: bool,
    /// Something was sent or received since the last poll.
    is_active: bool,
    idle_since: Time,
}

impl Stream {
    /// The stream of a connection, from the settings whose [`conn_data`](Config::conn_data) the
    /// peer has, and the peer's.
    ///
    /// # Panics
    ///
    /// If the settings are below the least that they say.
    pub fn new(config: Config, peer: &ConnData, now: Time) -> Result<Self, Unusable> {
        assert!(
            config.receive_queue > 0
                && config.send_queue >= Config::MIN_SEND_QUEUE
                && config.send_buffer > 0
                && config.half > 0,
            "no stream works with {config:?}"
        );
        check(peer)?;
        let form = Form::choose(config.wire, peer.extensions, config.immediates);
        let is_tight = form == Form::Send && !peer.extensions.contains(Extensions::SPARE_RECEIVES);
        Ok(Self {
            peer_order: peer.order,
            peer_sgl: peer.sgl,
            extensions: peer.extensions,
            form,
            outbox: Outbox::new(config.send_buffer, config.send_queue),
            queue: SendQueue::new(config.send_queue, config.send_buffer),
            credit: SendCredit::new(peer.credits, is_tight),
            remote: RemoteRing::new(peer.ring),
            own_maps: OwnMaps::new(peer.iomap_entries()),
            ring: ReceiveRing::new(config.half),
            grants: Grants::new(config.receive_queue),
            peer_maps: PeerMaps::new(config.iomap.entries()),
            receives: 0,
            ending: Ending::default(),
            last_word: None,
            is_disconnected: false,
            failure: None,
            is_gone: false,
            actions: VecDeque::new(),
            wakes: Wakes::default(),
            wants_room: false,
            is_active: false,
            idle_since: now,
            config,
        })
    }

    /// The form in which this end sends its messages.
    pub fn form(&self) -> Form {
        self.form
    }

    /// The place in the send buffer for the next octets of the stream, `max` at most; empty if
    /// there is no room, in which case [`wakes`](Self::wakes) tells when there is.
    pub fn send_space(&mut self, max: usize) -> Result<Spans, SendError> {
        self.check_sending()?;
        Ok(self.space(max))
    }

    /// The first `octets` of [`send_space`](Self::send_space) were filled.
    pub fn sent(&mut self, octets: usize) -> Result<(), SendError> {
        self.check_sending()?;
        self.outbox.fill(Target::Stream, octets);
        Ok(())
    }

    /// The place in the send buffer for octets that go to `offset` in a region of the peer's, as
    /// many as it has from there on, `max` at most (`riowrite`).
    pub fn write_space(&mut self, offset: u64, max: usize) -> Result<Spans, SendError> {
        self.check_sending()?;
        let (_, _, left) = self.peer_maps.find(offset).ok_or(SendError::Unmapped)?;
        Ok(self.space(max.min(left as usize)))
    }

    /// The first `octets` of [`write_space`](Self::write_space) at that offset were filled. They go
    /// out in order with the stream's.
    pub fn wrote(&mut self, offset: u64, octets: usize) -> Result<(), SendError> {
        self.check_sending()?;
        let (addr, key, left) = self.peer_maps.find(offset).ok_or(SendError::Unmapped)?;
        self.outbox.fill(Target::Mapped { addr, key }, octets.min(left as usize));
        Ok(())
    }

    /// The place in the receive ring of the next octets of the stream, `max` at most.
    pub fn receive_space(&self, max: usize) -> Spans {
        self.ring.peek(max)
    }

    /// Octets that wait to be received.
    pub fn readable(&self) -> usize {
        self.ring.readable()
    }

    /// The program has the first `octets` of [`receive_space`](Self::receive_space).
    pub fn taken(&mut self, octets: usize) {
        self.ring.take(octets);
    }

    /// True if no octets follow those that wait: the peer writes no more, this end reads no more,
    /// or the connection is gone.
    pub fn is_read_over(&self) -> bool {
        self.ending.is_read_over() || self.ending.read_shut || self.is_gone
    }

    /// The error of the connection, the first time.
    pub fn take_error(&mut self) -> Option<Failure> {
        self.failure.take()
    }

    /// Shuts directions down. Octets that wait to be sent go out before the peer is told.
    pub fn shutdown(&mut self, how: Shutdown) {
        self.ending.shut(how);
        self.wakes = Wakes { reader: true, writer: true };
    }

    /// Lets go of the socket: octets that wait to be sent go out, those that are received are
    /// thrown away (RS-CLOSE-04). [`maps`](Self::maps) are to be deregistered after
    /// [`Disconnect`](Action::Disconnect) (RS-CLOSE-07).
    pub fn close(&mut self) {
        self.ending.close();
        self.drain();
        self.wakes = Wakes { reader: true, writer: true };
    }

    /// Maps a region for the peer, which is told before the next data (RS-IO-02).
    pub fn map(&mut self, region: IomapEntry) -> Result<(), MapError> {
        if self.is_gone || self.ending.is_over() {
            return Err(MapError::NotConnected);
        }
        self.own_maps.map(region)
    }

    /// Gives up the region with exactly these bounds; `None` if there is none: `EINVAL`
    /// (RS-IO-04).
    pub fn unmap(&mut self, addr: u64, length: u32) -> Option<IomapEntry> {
        self.own_maps.unmap(addr, length)
    }

    /// The regions that are mapped for the peer.
    pub fn maps(&self) -> impl Iterator<Item = &IomapEntry> {
        self.own_maps.iter()
    }

    /// A message of the peer's came, and has used up a receive. An error has ended the connection;
    /// [`take_error`](Self::take_error) tells it, too.
    pub fn received(
        &mut self,
        arrival: Arrival<'_>,
        table: &mut impl Table,
    ) -> Result<(), Violation> {
        self.is_active = true;
        self.receives += 1;
        if self.is_gone || self.ending.is_closed_by_peer() {
            return Ok(());
        }
        self.take_in(arrival, table).inspect_err(|violation| self.fail(Some((*violation).into())))
    }

    fn take_in(&mut self, arrival: Arrival<'_>, table: &mut impl Table) -> Result<(), Violation> {
        let (message, seen) = match arrival {
            Arrival::Immediate(octets) => (Message::from_immediate(octets), Form::Immediate),
            Arrival::Send(octets) => {
                let message = octets.try_into().map_err(|_| Violation::MessageLen(octets.len()))?;
                (Message::from_send(message, self.peer_order), Form::Send)
            }
        };
        let message = message?;
        self.form = self.form.learn(seen, self.extensions, self.config.immediates);
        match message {
            Message::Data(octets) => {
                self.grants.consume()?;
                if self.ending.is_read_over() {
                    return Err(Violation::DataAfterEnd);
                }
                self.ring.write(octets)?;
                self.wakes.reader = true;
                self.drain();
            }
            Message::Credits(limit) => {
                self.credit.raise(limit)?;
                if let Some(index) = self.remote.expected() {
                    self.remote.announce(&table.take_sgl_entry(index), self.config.order)?;
                }
            }
            Message::Iomap(index) => {
                self.grants.consume()?;
                self.peer_maps.check(index)?;
                self.peer_maps.learn(index, &table.iomap_entry(index), self.config.order)?;
            }
            Message::Control(control) => {
                self.ending.hear(control);
                self.wakes.reader = true;
                if control == Control::Disconnect {
                    self.outbox.discard();
                    self.wakes.writer = true;
                }
            }
        }
        Ok(())
    }

    /// The transport has taken the octets of request `id`, and of all before it. With an error
    /// instead, call [`lost`](Self::lost).
    pub fn completed(&mut self, id: u64) {
        let freed = self.queue.complete(id);
        self.outbox.free(freed);
        if self.wants_room && self.outbox.room() > 0 {
            self.wants_room = false;
            self.wakes.writer = true;
        }
    }

    /// The connection is gone: a request failed, or the connection manager says so. Messages that
    /// have come before have to be taken first.
    pub fn lost(&mut self) {
        if self.is_gone || self.ending.is_over() {
            return;
        }
        // A stream whose end the peer has said is whole.
        let is_whole = self.ending.is_read_over();
        self.fail((!is_whole).then_some(Failure::Reset));
    }

    /// News since the last call.
    pub fn wakes(&mut self) -> Wakes {
        core::mem::take(&mut self.wakes)
    }

    /// The state of the connection, in the terms of readiness.
    pub fn condition(&self) -> Condition {
        if self.is_gone {
            return Condition::Gone { untold: self.failure.is_some() };
        }
        Condition::Connected(Connected {
            data: self.ring.readable() > 0,
            room: self.outbox.room() > 0,
            read_shut: self.ending.read_shut,
            write_shut: self.ending.write_shut,
            read_over: self.ending.is_read_over(),
            peer_closed: self.ending.is_closed_by_peer(),
        })
    }

    /// Octets that fit the send buffer.
    pub fn room(&self) -> usize {
        self.outbox.room()
    }

    /// True once the program's octets, and the end of them if it wanted one, were posted.
    pub fn is_flushed(&self) -> bool {
        self.is_gone
            || self.ending.is_over()
            || self.outbox.is_posted() && self.ending.due().is_none()
    }

    fn space(&mut self, max: usize) -> Spans {
        let spans = self.outbox.space(max);
        self.wants_room |= spans.len() < max;
        spans
    }

    fn check_sending(&self) -> Result<(), SendError> {
        if self.ending.write_shut {
            Err(SendError::ShutDown)
        } else if self.is_gone {
            Err(SendError::Lost)
        } else if self.ending.is_closed_by_peer() {
            Err(SendError::PeerClosed)
        } else {
            Ok(())
        }
    }

    /// No program reads any more: octets of the peer's must not keep it from reading itself.
    fn drain(&mut self) {
        if self.ending.closed {
            self.ring.take(self.ring.readable());
        }
    }

    fn fail(&mut self, failure: Option<Failure>) {
        self.is_gone = true;
        self.failure = failure;
        self.outbox.discard();
        self.wakes = Wakes { reader: true, writer: true };
    }
}

/// Refuses private data with which nothing can be sent.
fn check(peer: &ConnData) -> Result<(), Unusable> {
    if peer.credits == 0 {
        return Err(Unusable::NoCredits);
    }
    if peer.sgl.length < SGL_ENTRIES {
        return Err(Unusable::SglEntries(peer.sgl.length));
    }
    if peer.ring.length == 0 {
        return Err(Unusable::NoRing);
    }
    peer.ring.check()?;
    let table =
        SGL_ENTRIES as usize * SGL_ENTRY_LEN + peer.iomap_entries() as usize * IOMAP_ENTRY_LEN;
    Entry { length: table as u32, ..peer.sgl }.check()?;
    Ok(())
}
