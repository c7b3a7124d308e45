// SPDX-License-Identifier: MIT OR Apache-2.0

//! A datagram as a packet of RoCE v2.

use std::net::IpAddr;

use iwarp_roce::wire::icrc::{self, Identification};
use iwarp_roce::wire::{
    BTH_LEN, Header, ICRC_LEN, Malformed, Message, Operation, Packet, Path, Position, Tail,
};
use iwarp_types::AddressVector;

use crate::ip;

/// UDP header.
const UDP_LEN: usize = 8;

/// The judgement on an ICRC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Icrc {
    Good,
    Bad,
    /// The packet is cut, or a part that the ICRC covers is not known.
    Unverified,
    /// Four bytes of zeros: a card fills them in behind the capture.
    Empty,
}

/// A packet.
#[derive(Clone, Debug)]
pub(super) struct Decoded {
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    pub(super) header: Header,
    /// Bytes of payload, without the pad.
    pub(super) length: u64,
    /// The whole payload, if it was kept.
    pub(super) payload: Option<Vec<u8>>,
    pub(super) icrc: Icrc,
    pub(super) congested: bool,
}

/// The outcome of reading a datagram.
#[derive(Debug)]
pub(super) enum Read {
    Packet(Box<Decoded>),
    /// A congestion notification to a queue pair.
    Congestion(u32),
    /// A packet whose extended headers are cut.
    Hidden(Header),
    /// No packet.
    Strange,
}

/// Reads the UDP payload of an IP packet: `kept` of `length` bytes behind the UDP header.
pub(super) fn read(packet: &ip::Packet<'_>, source_port: u16, kept: &[u8], length: usize) -> Read {
    let Some(covered) = length.checked_sub(ICRC_LEN) else { return Read::Strange };
    if covered < BTH_LEN {
        return Read::Strange;
    }
    // Zeros stand for what a snap length has cut; headers must be there.
    let mut octets = kept[..kept.len().min(covered)].to_vec();
    let whole = octets.len() == covered;
    let held = octets.len();
    octets.resize(covered, 0);
    let parsed = match Packet::parse(&octets) {
        Ok(parsed) => parsed,
        Err(Malformed::Congestion(queue_pair)) => return Read::Congestion(queue_pair),
        Err(_) => return Read::Strange,
    };
    let headers = parsed.header.write(0, &mut [0; Header::MAX_LEN]);
    if headers > held {
        return if held < BTH_LEN { Read::Strange } else { Read::Hidden(parsed.header) };
    }
    let icrc = match (whole, kept.get(covered..length)) {
        (true, Some([0, 0, 0, 0])) => Icrc::Empty,
        (true, Some(icrc)) => judge(packet, source_port, &octets, icrc),
        _ => Icrc::Unverified,
    };
    Read::Packet(Box::new(Decoded {
        source: packet.source,
        destination: packet.destination,
        header: parsed.header,
        length: parsed.payload.len() as u64,
        payload: whole.then(|| parsed.payload.to_vec()),
        icrc,
        congested: packet.congested,
    }))
}

fn judge(packet: &ip::Packet<'_>, source_port: u16, octets: &[u8], found: &[u8]) -> Icrc {
    if packet.options || octets.len() > usize::from(u16::MAX) - 40 - UDP_LEN {
        return Icrc::Unverified;
    }
    let path = Path::new(AddressVector::new(packet.source, packet.destination), source_port);
    let (number, may_fragment) = packet.identification.unwrap_or_default();
    let identification = Identification { number, may_fragment };
    match icrc::of(&path, identification, octets) == found {
        true => Icrc::Good,
        false => Icrc::Bad,
    }
}

/// The name of the message that a packet belongs to.
pub(super) const fn kind(message: &Message) -> &'static str {
    match message.operation() {
        Operation::Send(_, Tail::Plain) => "SEND",
        Operation::Send(_, Tail::Immediate) => "SEND with Immediate",
        Operation::Send(_, Tail::Invalidate) => "SEND with Invalidate",
        Operation::Write(_, Tail::Immediate) => "RDMA WRITE with Immediate",
        Operation::Write(..) => "RDMA WRITE",
        Operation::ReadRequest => "RDMA READ",
        Operation::ReadResponse(_) => "RDMA READ response",
        Operation::Acknowledge => "Acknowledge",
        Operation::AtomicAcknowledge => "Atomic Acknowledge",
        Operation::CompareSwap => "CmpSwap",
        Operation::FetchAdd => "FetchAdd",
    }
}

/// The place of a packet in its message.
pub(super) const fn position(message: &Message) -> Position {
    match message.operation() {
        Operation::Send(position, _)
        | Operation::Write(position, _)
        | Operation::ReadResponse(position) => position,
        _ => Position::Only,
    }
}

/// One line about a packet.
pub(super) fn line(packet: &Decoded) -> String {
    use iwarp_roce::wire::Syndrome;
    let header = &packet.header;
    let (kind, psn, queue_pair) =
        (kind(&header.message), header.bth.psn.number(), header.bth.dest_qp);
    let part = match position(&header.message) {
        Position::First => " first",
        Position::Middle => " middle",
        Position::Last => " last",
        Position::Only => "",
    };
    let more = match header.message {
        Message::Acknowledge(aeth) => match aeth.syndrome {
            Syndrome::Ack { .. } => format!(", MSN {}", aeth.msn),
            Syndrome::RnrNak(timer) => format!(": RNR NAK, timer {:?}", timer.duration()),
            Syndrome::Nak(code) => format!(": NAK, {}", super::requester::nak(code)),
            Syndrome::Reserved(octet) => format!(", reserved syndrome {octet:#04x}"),
        },
        Message::ReadRequest(reth) => {
            format!(": {} bytes from R_Key {:#010x} VA {:#x}", reth.length, reth.rkey.0, reth.va.0)
        }
        Message::WriteBegin { reth, .. } => format!(
            ": {} bytes of {} to R_Key {:#010x} VA {:#x}",
            packet.length, reth.length, reth.rkey.0, reth.va.0
        ),
        _ => format!(": {} bytes", packet.length),
    };
    let asks = if header.bth.ack_req { ", asks for ACK" } else { "" };
    format!("{kind}{part} to QP {queue_pair:#08x} PSN {psn}{more}{asks}")
}
