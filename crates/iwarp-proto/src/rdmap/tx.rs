// SPDX-License-Identifier: MIT OR Apache-2.0

//! Making messages: the DDP header and the RDMAP header of each type.

use iwarp_types::{Stag, TaggedOffset};

use crate::ddp::tx::Message;
use crate::ddp::wire::{Tagged, Untagged};
use crate::rdmap::wire::Opcode;
use crate::types::{Mo, Msn};

/// An RDMA Write or Read Response of `length` octets to `to` of `stag`.
pub const fn tagged(opcode: Opcode, stag: Stag, to: TaggedOffset, length: u32) -> Message {
    Message::tagged(Tagged { last: false, rsvd_ulp: opcode.control(), stag, to }, length)
}

/// An untagged message of `length` octets. `word` is the Invalidate STag, which all but the Sends
/// with Invalidate send as zero (RFC 5040 §4.1), or the immediate data of a Send that has some.
#[inline(always)]
pub fn untagged(opcode: Opcode, msn: Msn, word: Stag, length: u32) -> Message {
    let carries = opcode.invalidates() || opcode.carries_immediate();
    let stag = if carries { word.0.to_be_bytes() } else { [0; 4] };
    let qn = opcode.queue().expect("untagged opcodes have a queue");
    let rsvd_ulp = [opcode.control(), stag[0], stag[1], stag[2], stag[3]];
    Message::untagged(Untagged { last: false, rsvd_ulp, qn, msn, mo: Mo(0) }, length)
}
