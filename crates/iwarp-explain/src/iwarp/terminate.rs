// SPDX-License-Identifier: MIT OR Apache-2.0

//! Terminates in words: the RFCs' name, the meaning, the end at fault and what to do.

use iwarp_proto::ddp::wire::Header;
use iwarp_proto::rdmap::wire::{Terminate, TerminateCode};

/// The end at which a cause lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Cause {
    /// The end that received the Terminate: it had sent what was wrong.
    Receiver,
    /// The end that sent the Terminate.
    Sender,
    /// Either, or the network between.
    Unknown,
}

/// The meaning of a code.
#[derive(Clone, Copy, Debug)]
pub(super) struct Meaning {
    pub(super) cause: Cause,
    pub(super) text: &'static str,
    pub(super) advice: &'static str,
}

const fn meaning(cause: Cause, text: &'static str, advice: &'static str) -> Meaning {
    Meaning { cause, text, advice }
}

const VERSION: Meaning = meaning(
    Cause::Receiver,
    "a header had a version that does not exist",
    "Look for a stack that writes wrong headers, or bytes damaged on the way with CRC off.",
);

/// The meaning of the code of a Terminate.
pub(super) const fn explain(code: TerminateCode) -> Meaning {
    match (code.layer, code.etype, code.code) {
        (0, 1, 0x00) => meaning(
            Cause::Receiver,
            "a Read or Atomic named memory by an STag that does not exist there",
            "Compare the rkey with that of the peer's registration: it may be stale, deregistered, \
             in the wrong byte order, or of another connection.",
        ),
        (1, 1, 0x00) => meaning(
            Cause::Receiver,
            "a Write (or the answer to a Read) named memory by an STag that does not exist there, or \
             that grants no such access",
            "Compare the rkey with that of the peer's registration, and look for \
             IBV_ACCESS_REMOTE_WRITE there; the region may be deregistered already.",
        ),
        (0, 1, 0x01) | (1, 1, 0x01) => meaning(
            Cause::Receiver,
            "an access began before its region or reached beyond the end",
            "Compare address and length of the request with the region that the peer registered.",
        ),
        (0, 1, 0x02) => meaning(
            Cause::Receiver,
            "the region does not grant the access that was asked for",
            "Register the region with IBV_ACCESS_REMOTE_READ, _WRITE or _ATOMIC, and give the queue \
             pair these rights.",
        ),
        (0, 1, 0x03) | (1, 1, 0x02) => meaning(
            Cause::Receiver,
            "the STag belongs to another protection domain or connection",
            "Register the region in the domain of the queue pair that the peer uses.",
        ),
        (0, 1, 0x04) | (1, 1, 0x03) => meaning(
            Cause::Receiver,
            "address plus length is beyond 2^64",
            "Look at the remote address of the request: it may be uninitialised.",
        ),
        (0, 1 | 2, 0x09) => meaning(
            Cause::Receiver,
            "a Send with Invalidate named an STag that cannot be invalidated",
            "Name the STag that the peer has sent for this purpose, and each only once.",
        ),
        (0, 1, _) => meaning(
            Cause::Receiver,
            "a Read or Atomic was not allowed",
            "Look at the rkey, address and length of the request.",
        ),
        (0, 2, 0x05) | (1, 1, 0x04) | (1, 2, 0x06) => VERSION,
        (0, 2, 0x06) => meaning(
            Cause::Receiver,
            "it received a message type that it does not know, or not in that place",
            "Atomics and Immediate Data are extensions (RFC 7306): many stacks and cards lack them.",
        ),
        (0, 2, 0x07 | 0x08) => meaning(
            Cause::Unknown,
            "it could not go on with this stream",
            "Look at what came just before; a peer that closes with work pending also causes this.",
        ),
        (0, 0, _) | (1, 0, _) | (2, 0, 0x05) => meaning(
            Cause::Sender,
            "it failed by itself, not because of something received",
            "Look at the log of the end that sent the Terminate.",
        ),
        (1, 2, 0x01) => meaning(
            Cause::Receiver,
            "a segment named a queue that does not exist",
            "The sending stack is at fault; report it with this capture.",
        ),
        (1, 2, 0x02) => meaning(
            Cause::Sender,
            "a Send came and no receive was posted for it",
            "Post receives before the peer sends, or agree on credits: iWARP does not wait for \
             them (InfiniBand's RNR retries).",
        ),
        (1, 2, 0x03) => meaning(
            Cause::Receiver,
            "a message had a number (MSN) out of turn, or more were sent than receives were posted",
            "Post more receives, or agree on credits; else the sending stack is at fault.",
        ),
        (1, 2, 0x04) => meaning(
            Cause::Receiver,
            "a segment's message offset (MO) was not where the segment before it ended",
            "The sending stack is at fault; report it with this capture.",
        ),
        (1, 2, 0x05) => meaning(
            Cause::Receiver,
            "a Send was longer than the receive that was posted for it",
            "Post larger receives, or send less.",
        ),
        (2, 0, 0x01) => meaning(
            Cause::Unknown,
            "TCP closed the connection, or lost it",
            "Look at the end of the TCP connection above.",
        ),
        (2, 0, 0x02) => meaning(
            Cause::Unknown,
            "the CRC32c of an FPDU did not match its bytes",
            "Bytes were damaged behind the sender's CRC: memory that changed while it was sent, a \
             middlebox that rewrites the stream, or a faulty card.",
        ),
        (2, 0, 0x03) => meaning(
            Cause::Receiver,
            "a marker did not point to the FPDU around it",
            "The two stacks count markers differently; switch markers off if both allow it.",
        ),
        (2, 0, 0x04) => meaning(
            Cause::Receiver,
            "the start-up frame was not a valid MPA Request or Reply",
            "The other end may not speak iWARP on this port.",
        ),
        (2, 0, 0x06) => meaning(
            Cause::Receiver,
            "the peer offers fewer Reads at a time (IRD) than this end needs",
            "Ask for fewer outstanding Reads (initiator_depth), or let the peer take more \
             (responder_resources).",
        ),
        (2, 0, 0x07) => meaning(
            Cause::Unknown,
            "the ends have no kind of ready-to-receive frame (RTR) in common",
            "Set the peer-to-peer mode of both ends alike.",
        ),
        _ => meaning(Cause::Unknown, "the RFCs do not list this code", ""),
    }
}

/// The segment that a Terminate quotes, in words.
pub(super) fn segment(terminate: &Terminate) -> Option<String> {
    let segment = terminate.segment?;
    let text = match Header::parse(&segment.ddp_header).ok()? {
        Header::Tagged(header) => {
            format!("a tagged segment to STag {:#010x}, TO {:#x}", header.stag.0, header.to.0)
        }
        Header::Untagged(header) => {
            format!("message {} of queue {}, offset {}", header.msn.0, header.qn.0, header.mo.0)
        }
    };
    let read = segment.rdma_header.and_then(|octets| {
        let read = iwarp_proto::rdmap::wire::ReadRequest::parse(&octets)?;
        let (stag, to, size) = (read.source_stag.0, read.source_to.0, read.size);
        Some(format!(", a Read of {size} bytes from STag {stag:#010x}, TO {to:#x}"))
    });
    Some(text + &read.unwrap_or_default())
}
