// SPDX-License-Identifier: MIT OR Apache-2.0

//! Packets that go out.

use iwarp_types::{Memory, SendOp, WcStatus};

use crate::config::Attributes;
use crate::wire::{Bth, Burst, Header, Message, Position, Reth, SendTail, Transport};
use crate::work::{Done, Turn};

/// Sends the next packet of a request, or performs a local operation.
pub(super) fn send<M: Memory + ?Sized>(
    turn: &mut Turn<'_>,
    burst: &mut Burst,
    attributes: &Attributes,
    memory: &M,
) -> Done {
    if let Some(done) = turn.perform(memory) {
        return done;
    }
    let (length, sent) = (turn.wqe.length, turn.sent);
    let len = (length - sent).min(attributes.mtu.octets() as u32);
    let position = Position::of(sent == 0, sent + len == length);
    let Some((message, solicited)) = message(&turn.wqe.op, position, length) else {
        return Done::Failed(WcStatus::LocalQpOperation);
    };
    let bth = Bth { pkey: attributes.pkey, ..Bth::new(attributes.dest_qp, turn.psn) };
    let header = Header {
        bth: bth.soliciting(solicited && position.ends()),
        transport: Transport::Uc,
        deth: None,
        message,
    };
    turn.push(burst, &attributes.path, &header, len, memory)
}

/// The message of a packet at that position; true if its last packet solicits an event (ROCE-014).
fn message(op: &SendOp, position: Position, length: u32) -> Option<(Message, bool)> {
    let at_end = |data: [u8; 4]| position.ends().then_some(data);
    let send = |tail: SendTail| Message::Send { position, tail };
    let write = |rkey, va, immediate| {
        if position.begins() {
            let reth = Reth { va, rkey, length };
            Message::WriteBegin { only: position.ends(), reth, immediate }
        } else {
            Message::WriteMore { last: position.ends(), immediate }
        }
    };
    Some(match *op {
        SendOp::Send { solicited, .. } => (send(SendTail::Plain), solicited),
        SendOp::SendImmediate { solicited, data } => {
            (send(at_end(data).map_or(SendTail::Plain, SendTail::Immediate)), solicited)
        }
        SendOp::Write { stag, to } => (write(stag, to, None), false),
        SendOp::WriteImmediate { stag, to, solicited, data } => {
            (write(stag, to, at_end(data)), solicited)
        }
        _ => return None,
    })
}
