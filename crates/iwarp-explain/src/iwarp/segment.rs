// SPDX-License-Identifier: MIT OR Apache-2.0

//! A ULPDU as a segment of DDP (RFC 5041) with the header of RDMAP (RFC 5040).

use iwarp_proto::ddp::wire::Header;
use iwarp_proto::rdmap::hello::OwnFrame;
use iwarp_proto::rdmap::wire::{
    AtomicRequest, IMMEDIATE_LEN, Opcode, ReadRequest, split_control, version_is_known,
};

use super::fpdu::Fpdu;

/// A segment whose headers are right.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    pub(super) opcode: Opcode,
    pub(super) header: Header,
    /// Bytes of payload.
    pub(super) length: u64,
    /// The bytes of payload that are known.
    pub(super) payload: Vec<u8>,
    pub(super) last: bool,
    /// A frame that this project's ends send one another.
    pub(super) own: Option<OwnFrame>,
}

/// A rule that the headers break.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Broken {
    pub(super) kind: &'static str,
    pub(super) text: String,
}

/// The outcome of reading a ULPDU.
#[derive(Debug)]
pub(super) enum Read {
    Segment(Segment),
    Broken(Broken),
    /// A snap length has cut the headers.
    Cut,
}

fn broken(kind: &'static str, text: impl Into<String>) -> Read {
    Read::Broken(Broken { kind, text: text.into() })
}

/// Reads a ULPDU.
pub(super) fn read(fpdu: &Fpdu) -> Read {
    let ulpdu = &fpdu.ulpdu;
    let cut = ulpdu.len() < fpdu.length;
    let Some(&control) = ulpdu.first() else {
        return match cut {
            true => Read::Cut,
            false => broken("short-segment", "an FPDU without a DDP header"),
        };
    };
    let tagged = control & 0x80 != 0;
    if control & 0x03 != 1 {
        let version = control & 0x03;
        let text = format!("a DDP segment of version {version}, where RFC 5041 has version 1");
        return broken("ddp-version", text);
    }
    let Ok(header) = Header::parse(ulpdu) else {
        return match cut {
            true => Read::Cut,
            false => broken("short-segment", "an FPDU too short for its DDP header"),
        };
    };
    // The control octet of RDMAP lies in the part of the header that DDP leaves to it.
    let rdmap = ulpdu.get(1).copied().unwrap_or_default();
    let (version, number) = split_control(rdmap);
    if !version_is_known(version) {
        let text = format!("an RDMAP message of version {version}, where RFC 5040 has version 1");
        return broken("rdmap-version", text);
    }
    let Some(opcode) = Opcode::from_number(number) else {
        let text = format!("a message with the reserved RDMAP opcode {number:#x}");
        return broken("reserved-opcode", text);
    };
    match (header, opcode.queue()) {
        (Header::Tagged(_), Some(_)) => {
            let text = format!("the opcode of a {} in a tagged segment", name(opcode));
            return broken("unexpected-opcode", text);
        }
        (Header::Untagged(_), None) => {
            let text = format!("the opcode of a {} in an untagged segment", name(opcode));
            return broken("unexpected-opcode", text);
        }
        (Header::Untagged(header), Some(queue)) if header.qn != queue => {
            let (found, right) = (header.qn.0, queue.0);
            let text = format!("a {} on queue {found}; its queue is {right}", name(opcode));
            return broken("wrong-queue", text);
        }
        _ => {}
    }
    let length = (fpdu.length - header.wire_len()) as u64;
    let payload = ulpdu.get(header.wire_len()..).unwrap_or_default().to_vec();
    let own = match header {
        Header::Tagged(header) if tagged && opcode == Opcode::Write && length == 0 => {
            OwnFrame::of(header.stag, header.to)
        }
        _ => None,
    };
    Read::Segment(Segment { opcode, header, length, payload, last: header.last(), own })
}

/// The name of a message type.
pub(super) const fn name(opcode: Opcode) -> &'static str {
    match opcode {
        Opcode::Write => "RDMA Write",
        Opcode::ReadRequest => "RDMA Read Request",
        Opcode::ReadResponse => "RDMA Read Response",
        Opcode::Send => "Send",
        Opcode::SendInvalidate => "Send with Invalidate",
        Opcode::SendSolicited => "Send with Solicited Event",
        Opcode::SendSolicitedInvalidate => "Send with Solicited Event and Invalidate",
        Opcode::Terminate => "Terminate",
        Opcode::Immediate => "Immediate Data",
        Opcode::ImmediateSolicited => "Immediate Data with Solicited Event",
        Opcode::AtomicRequest => "Atomic Request",
        Opcode::AtomicResponse => "Atomic Response",
        Opcode::SendImmediate => "Send with Immediate (a private opcode)",
        Opcode::SendImmediateSolicited => {
            "Send with Immediate and Solicited Event (a private opcode)"
        }
    }
}

impl Segment {
    /// The name of its message.
    pub(super) const fn kind(&self) -> &'static str {
        match self.own {
            Some(OwnFrame::Hello(_)) => "private Write of nothing (hello)",
            Some(_) => "private Write of nothing",
            None => name(self.opcode),
        }
    }

    /// The bytes that a request asks for or changes, or that its answer gives.
    pub(super) fn asked(&self) -> Option<u64> {
        match self.opcode {
            Opcode::ReadRequest => {
                // A size that is cut counts nothing.
                Some(ReadRequest::parse(&self.payload).map_or(0, |read| u64::from(read.size)))
            }
            Opcode::AtomicRequest | Opcode::AtomicResponse => Some(8),
            _ => None,
        }
    }

    /// The message of a kind that has a header of a fixed length, if the length is another.
    pub(super) fn wrong_length(&self) -> Option<(usize, usize)> {
        let right = match self.opcode {
            Opcode::ReadRequest => iwarp_proto::rdmap::wire::READ_REQUEST_LEN,
            Opcode::AtomicRequest => iwarp_proto::rdmap::wire::ATOMIC_REQUEST_LEN,
            Opcode::AtomicResponse => iwarp_proto::rdmap::wire::ATOMIC_RESPONSE_LEN,
            Opcode::Immediate | Opcode::ImmediateSolicited => IMMEDIATE_LEN,
            _ => return None,
        };
        (self.length != right as u64).then_some((self.length as usize, right))
    }

    /// One line about it.
    pub(super) fn line(&self) -> String {
        let kind = self.kind();
        let more = if self.last { "" } else { ", more follows" };
        let length = self.length;
        match (self.opcode, self.header) {
            (Opcode::ReadRequest, Header::Untagged(header)) => {
                let msn = header.msn.0;
                match ReadRequest::parse(&self.payload) {
                    Some(read) => format!(
                        "{kind} MSN {msn}: {} bytes from STag {:#010x} TO {:#x} to STag {:#010x} TO \
                         {:#x}",
                        read.size,
                        read.source_stag.0,
                        read.source_to.0,
                        read.sink_stag.0,
                        read.sink_to.0
                    ),
                    None => format!("{kind} MSN {msn}"),
                }
            }
            (Opcode::AtomicRequest, Header::Untagged(header)) => {
                let msn = header.msn.0;
                match AtomicRequest::parse(&self.payload) {
                    Some(atomic) => format!(
                        "{kind} MSN {msn}: STag {:#010x} TO {:#x}",
                        atomic.stag.0, atomic.to.0
                    ),
                    None => format!("{kind} MSN {msn}"),
                }
            }
            (_, Header::Untagged(header)) => {
                let (msn, mo) = (header.msn.0, header.mo.0);
                format!("{kind} MSN {msn} MO {mo}: {length} bytes{more}")
            }
            (_, Header::Tagged(header)) => {
                let (stag, to) = (header.stag.0, header.to.0);
                format!("{kind} STag {stag:#010x} TO {to:#x}: {length} bytes{more}")
            }
        }
    }
}
