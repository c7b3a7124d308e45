// SPDX-License-Identifier: MIT OR Apache-2.0

//! Checking what kind of message a segment belongs to (RFC 5040 §7.2, RFC 7306 §8.2).

use iwarp_types::Stag;

use crate::ddp::error::DdpError;
use crate::ddp::wire::{Header, Untagged};
use crate::rdmap::error::RdmapError;
use crate::rdmap::wire::{Opcode, split_control, version_is_known};
use crate::types::Qn;

/// The reason why a segment belongs to no message that may arrive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rejected {
    /// DDP's business: the queue does not exist, or is not this message's.
    Ddp(DdpError),
    /// RDMAP's business: version or opcode.
    Rdmap(RdmapError),
}

/// The opcode of a segment whose version, opcode, tagged flag and queue agree.
///
/// The RFCs give no code for a known queue that is not the opcode's; it is reported as an invalid
/// QN, and a wrong tagged flag as an unexpected opcode. Numbers above `highest` belong to
/// extensions that are not in use on this stream: they are unexpected on any queue.
#[inline]
pub fn opcode(header: &Header, highest: Opcode) -> Result<Opcode, Rejected> {
    let control = match header {
        Header::Tagged(h) => h.rsvd_ulp,
        Header::Untagged(h) => {
            if h.qn.0 > Qn::ATOMIC_RESPONSE.0 {
                return Err(Rejected::Ddp(DdpError::InvalidQn));
            }
            h.rsvd_ulp[0]
        }
    };
    let (version, number) = split_control(control);
    if !version_is_known(version) {
        return Err(Rejected::Rdmap(RdmapError::Version));
    }
    let unexpected = Rejected::Rdmap(RdmapError::UnexpectedOpcode(number));
    let opcode = Opcode::from_number(number).filter(|_| number <= highest as u8);
    let opcode = opcode.ok_or(unexpected)?;
    match (header, opcode.queue()) {
        (Header::Tagged(_), None) => Ok(opcode),
        (Header::Untagged(h), Some(queue)) if h.qn == queue => Ok(opcode),
        (Header::Untagged(_), Some(_)) => Err(Rejected::Ddp(DdpError::InvalidQn)),
        _ => Err(unexpected),
    }
}

/// True if bytes look like the head of a ULPDU, for one who seeks where a unit begins: known
/// versions, reserved bits 0, and an opcode up to `highest` that fits the kind of segment and the
/// queue.
pub fn is_plausible(ulpdu: &[u8], highest: Opcode) -> bool {
    let Ok(header) = Header::parse(ulpdu) else { return false };
    let [ddp, rdmap, ..] = ulpdu else { return false };
    ddp & 0x3c == 0 && rdmap & 0x30 == 0 && opcode(&header, highest).is_ok()
}

/// The STag that a Send with Invalidate names.
pub const fn invalidate_stag(header: &Untagged) -> Stag {
    Stag(u32::from_be_bytes(immediate(header)))
}

/// The four octets that a Send with Immediate carries.
pub const fn immediate(header: &Untagged) -> [u8; 4] {
    let [_, data @ ..] = header.rsvd_ulp;
    data
}
