// SPDX-License-Identifier: MIT OR Apache-2.0

//! The messages that requests of this side are: Write, Send, Read Request, Atomic Request.

use iwarp_types::{AtomicOp, Stag, TaggedOffset};

use crate::ddp::tx::Message;
use crate::rdmap::hello;
use crate::rdmap::tx;
use crate::rdmap::wire::{AOP_COMPARE_SWAP, AOP_FETCH_ADD, AtomicRequest, Opcode};
use crate::types::Msn;

/// A Write (RFC 5040 §5.1). A zero-length one names no buffer: if the program's STag and TO make it
/// look like a frame of our own, they are replaced.
#[inline]
pub(crate) fn write(stag: Stag, to: TaggedOffset, length: u32) -> Message {
    let own = length == 0 && hello::is_own(stag, to);
    let (stag, to) = if own { (Stag(0), TaggedOffset(0)) } else { (stag, to) };
    tx::tagged(Opcode::Write, stag, to, length)
}

/// A Send, in its four kinds (RFC 5040 §5.3).
#[inline]
pub(crate) fn send(solicited: bool, invalidate: Option<Stag>, msn: Msn, length: u32) -> Message {
    let opcode = match (solicited, invalidate.is_some()) {
        (false, false) => Opcode::Send,
        (false, true) => Opcode::SendInvalidate,
        (true, false) => Opcode::SendSolicited,
        (true, true) => Opcode::SendSolicitedInvalidate,
    };
    tx::untagged(opcode, msn, invalidate.unwrap_or_default(), length)
}

/// A Send with Immediate, which only ends of this project know.
pub(crate) fn send_immediate(solicited: bool, data: [u8; 4], msn: Msn, length: u32) -> Message {
    let opcode = if solicited { Opcode::SendImmediateSolicited } else { Opcode::SendImmediate };
    tx::untagged(opcode, msn, Stag(u32::from_be_bytes(data)), length)
}

/// The opcode of Immediate Data (RFC 7306 §6).
pub(crate) const fn immediate(solicited: bool) -> Opcode {
    if solicited { Opcode::ImmediateSolicited } else { Opcode::Immediate }
}

/// The operation for which the peer asks by an Atomic Request; `None` where the operation is not
/// known.
pub(crate) const fn atomic_op(request: &AtomicRequest) -> Option<AtomicOp> {
    match request.operation {
        AOP_FETCH_ADD => {
            Some(AtomicOp::FetchAdd { add: request.add_or_swap, mask: request.add_or_swap_mask })
        }
        AOP_COMPARE_SWAP => Some(AtomicOp::CompareSwap {
            compare: request.compare,
            compare_mask: request.compare_mask,
            swap: request.add_or_swap,
            swap_mask: request.add_or_swap_mask,
        }),
        _ => None,
    }
}
