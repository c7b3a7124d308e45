// SPDX-License-Identifier: MIT OR Apache-2.0

//! Judges packets that go out: UC and UD send each message once, in order, and say nothing else.

use iwarp_roce::wire::{Message, Packet, Path, Position, SendTail, Transport};
use iwarp_types::SendOp;

use super::end::{End, Posted, Simulated};
use super::net::Tag;

impl<C: Simulated> End<C> {
    /// The message, and part of it, that a packet of this end's has to be.
    pub(super) fn judge_packet(
        &mut self,
        e: usize,
        packet: &Packet<'_>,
        path: &Path,
    ) -> Result<Tag, String> {
        let (message, part) = self.going;
        let wrong = |what: &str| Err(format!("part {part} of message {message}: {what}"));
        let Some(posted) = self.posted.get(message) else {
            return Err("a packet of no message".to_owned());
        };
        if posted.fails.is_some() {
            return wrong("it may not go out");
        }
        let mtu = self.attributes.mtu.octets();
        let parts = posted.parts(mtu);
        let (begins, ends) = (part == 0, part + 1 == parts);
        let from = part * mtu;
        let len = mtu.min(posted.len - from);
        let header = &packet.header;
        if packet.payload != self.stock(posted.from + from, len) {
            return wrong("wrong octets");
        }
        if header.message != posted.says(begins, ends) {
            return wrong("wrong operation");
        }
        if header.bth.psn != self.psn || header.bth.ack_req {
            return wrong("wrong PSN, or an acknowledgement is asked for");
        }
        if header.bth.solicited != (posted.solicited() && ends) {
            return wrong("wrong solicited event");
        }
        let own = self.attributes.qkey;
        let is_right = match posted.destination {
            Some(to) => {
                let key = if to.qkey >> 31 == 1 { own } else { to.qkey };
                header.transport == Transport::Ud
                    && header.bth.dest_qp == to.qp
                    && path.address == to.address
                    && header
                        .deth
                        .is_some_and(|deth| (deth.qkey, deth.source_qp) == (key, self.config.qp.0))
            }
            None => {
                header.transport == Transport::Uc
                    && header.bth.dest_qp == self.attributes.dest_qp
                    && *path == self.attributes.path
            }
        };
        if !is_right {
            return wrong("wrong destination, source or Q_Key");
        }
        self.psn = self.psn.plus(1);
        self.going = if ends { (message + 1, 0) } else { (message, part + 1) };
        Ok(Tag { from: e, message, part, parts })
    }
}

impl Posted {
    /// The message of a packet of it.
    fn says(&self, begins: bool, ends: bool) -> Message {
        use iwarp_roce::wire::Reth;
        let immediate = self.immediate().filter(|_| ends);
        match self.op {
            SendOp::Write { stag, to } | SendOp::WriteImmediate { stag, to, .. } if begins => {
                let reth = Reth { va: to, rkey: stag, length: self.len as u32 };
                Message::WriteBegin { only: ends, reth, immediate }
            }
            SendOp::Write { .. } | SendOp::WriteImmediate { .. } => {
                Message::WriteMore { last: ends, immediate }
            }
            _ => Message::Send {
                position: Position::of(begins, ends),
                tail: immediate.map_or(SendTail::Plain, SendTail::Immediate),
            },
        }
    }
}
