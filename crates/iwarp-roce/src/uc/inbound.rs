// SPDX-License-Identifier: MIT OR Apache-2.0

//! Packets that come in.

use iwarp_types::{Access, MAX_MESSAGE, Memory, ReceivePool, RemoteAccess, WcOp, WcStatus};

use super::Uc;
use crate::wire::{Message, Packet, Path, Position, Psn, Reth, SendTail, Transport};
use crate::work::Arrival;

/// The peer's message of which not all packets have come.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Inbound {
    under_way: Option<UnderWay>,
    /// PSN of its next packet.
    expected: Psn,
}

#[derive(Clone, Copy, Debug)]
enum UnderWay {
    /// A Send, of which so many octets are in the receive.
    Send(u32),
    /// A Write, of which so many octets are placed.
    Write(Reth, u32),
}

/// A packet, as the message that it is part of sees it.
#[derive(Clone, Copy, Debug)]
struct Part<'a> {
    is_write: bool,
    position: Position,
    /// The buffer, in the first packet of a Write.
    reth: Option<Reth>,
    immediate: Option<[u8; 4]>,
    solicited: bool,
    payload: &'a [u8],
}

impl<'a> Part<'a> {
    /// The part that a packet is; `None` for operations that UC lacks (ROCE-113).
    fn of(packet: &Packet<'a>) -> Option<Self> {
        let send = |position, immediate| (false, position, None, immediate);
        let (is_write, position, reth, immediate) = match packet.header.message {
            Message::Send { position, tail: SendTail::Plain } => send(position, None),
            Message::Send { position, tail: SendTail::Immediate(data) } => {
                send(position, Some(data))
            }
            Message::WriteBegin { only, reth, immediate } => {
                (true, Position::of(true, only), Some(reth), immediate)
            }
            Message::WriteMore { last, immediate } => {
                (true, Position::of(false, last), None, immediate)
            }
            _ => return None,
        };
        let solicited = packet.header.bth.solicited;
        Some(Self { is_write, position, reth, immediate, solicited, payload: packet.payload })
    }

    const fn len(&self) -> u32 {
        self.payload.len() as u32
    }

    /// True if its length is allowed at its position (ROCE-035).
    fn fits(&self, mtu: u32) -> bool {
        match self.position {
            Position::First | Position::Middle => self.len() == mtu,
            Position::Last => (1..=mtu).contains(&self.len()),
            Position::Only => self.len() <= mtu,
        }
    }

    const fn arrival(&self, op: WcOp, byte_len: u32) -> Arrival {
        let (immediate, solicited) = (self.immediate, self.solicited);
        Arrival { op, byte_len, immediate, solicited, source_qp: None }
    }
}

impl Uc {
    /// True if a packet is for this queue pair (ROCE-005, ROCE-011, ROCE-016); else counts the
    /// reason.
    pub(super) fn admits(&mut self, packet: &Packet<'_>, path: &Path) -> bool {
        let (header, work) = (&packet.header, &mut self.work);
        let (own, its) = (work.attributes.path.address, path.address);
        let is_mine = work.receives()
            && header.transport == Transport::Uc
            && header.bth.dest_qp == work.config.qp.0
            && (own.source, own.destination) == (its.destination, its.source);
        if !is_mine {
            work.drops.stray += 1;
        } else if !work.attributes.pkey.admits(header.bth.pkey) {
            work.drops.pkey += 1;
        } else {
            return true;
        }
        false
    }

    /// Takes a packet of the peer's.
    pub(super) fn take<M: Memory + ?Sized>(
        &mut self,
        packet: &Packet<'_>,
        memory: &M,
        receives: &dyn ReceivePool,
    ) {
        let Some(part) = Part::of(packet) else {
            self.work.drops.stray += 1;
            return;
        };
        let psn = packet.header.bth.psn;
        let message = self.message_of(&part, psn, memory, receives);
        self.inbound.expected = psn.plus(1);
        self.inbound.under_way = message.and_then(|message| {
            let more = match message {
                UnderWay::Send(done) => self.take_send(done, &part, memory),
                UnderWay::Write(reth, done) => {
                    self.take_write(&reth, done, &part, memory, receives)
                }
            };
            if more.is_none() {
                self.give_up(message);
            }
            more
        });
    }

    /// The message that a packet is part of: one that it begins, at any PSN (ROCE-110), or the one
    /// under way, which ends in any other case (ROCE-109).
    fn message_of<M: Memory + ?Sized>(
        &mut self,
        part: &Part<'_>,
        psn: Psn,
        memory: &M,
        receives: &dyn ReceivePool,
    ) -> Option<UnderWay> {
        let before = self.inbound.under_way.take();
        let goes_on = match before {
            _ if part.position.begins() || psn != self.inbound.expected => false,
            Some(UnderWay::Send(_)) => !part.is_write,
            Some(UnderWay::Write(..)) => part.is_write,
            None => false,
        };
        if goes_on {
            return before;
        }
        if let Some(message) = before {
            self.give_up(message);
        }
        match part.reth {
            _ if !part.position.begins() => {
                self.work.drops.sequence += 1;
                None
            }
            Some(reth) => self.may_write(&reth, memory).then_some(UnderWay::Write(reth, 0)),
            None => self.work.hold_receive(receives).then_some(UnderWay::Send(0)),
        }
    }

    /// Ends a message, whole or not. Octets that a Write has placed stay; the next message gets the
    /// receive of a Send, unless that is from a shared queue (ROCE-111).
    fn give_up(&mut self, message: UnderWay) {
        if matches!(message, UnderWay::Send(_)) && self.work.config.shared_receive {
            self.work.end_receive(WcStatus::RemoteInvalidRequest);
        }
    }

    /// True if the peer may do the whole Write; else the message is dropped (ROCE-112).
    fn may_write<M: Memory + ?Sized>(&mut self, reth: &Reth, memory: &M) -> bool {
        let (who, length) = (self.work.accessor(), u64::from(reth.length));
        if length > MAX_MESSAGE {
            self.work.drops.length += 1;
            return false;
        }
        let check = || memory.check_remote(who, reth.rkey, reth.va, length, RemoteAccess::Write);
        let granted =
            self.work.access().contains(Access::REMOTE_WRITE) && (length == 0 || check().is_ok());
        self.work.drops.access += u64::from(!granted);
        granted
    }

    fn take_send<M: Memory + ?Sized>(
        &mut self,
        done: u32,
        part: &Part<'_>,
        memory: &M,
    ) -> Option<UnderWay> {
        let end = u64::from(done) + u64::from(part.len());
        if !part.fits(self.mtu()) || end > MAX_MESSAGE {
            self.work.drops.length += 1;
            return None;
        }
        if end > self.work.capacity() {
            self.work.drops.too_short += 1;
            return None;
        }
        if !self.work.place(u64::from(done), part.payload, memory) {
            return None;
        }
        if !part.position.ends() {
            return Some(UnderWay::Send(end as u32));
        }
        self.work.complete_receive(&part.arrival(WcOp::Recv, end as u32));
        None
    }

    fn take_write<M: Memory + ?Sized>(
        &mut self,
        reth: &Reth,
        done: u32,
        part: &Part<'_>,
        memory: &M,
        receives: &dyn ReceivePool,
    ) -> Option<UnderWay> {
        let (left, ends) = (reth.length - done, part.position.ends());
        let is_due = if ends { part.len() == left } else { part.len() < left };
        if !part.fits(self.mtu()) || !is_due {
            self.work.drops.length += 1;
            return None;
        }
        if part.immediate.is_some() && !self.work.hold_receive(receives) {
            return None;
        }
        let (who, to) = (self.work.accessor(), reth.va.advanced(u64::from(done)));
        if part.len() > 0 && memory.place_remote(who, reth.rkey, to, part.payload).is_err() {
            self.work.drops.access += 1;
            return None;
        }
        if !ends {
            return Some(UnderWay::Write(*reth, done + part.len()));
        }
        if part.immediate.is_some() {
            let arrival = part.arrival(WcOp::RecvWriteImmediate, reth.length);
            self.work.complete_receive(&arrival);
        } else {
            self.work.count_arrival();
        }
        None
    }

    const fn mtu(&self) -> u32 {
        self.work.attributes.mtu.octets() as u32
    }
}
