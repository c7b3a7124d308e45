// SPDX-License-Identifier: MIT OR Apache-2.0

//! Management datagrams of the connection manager's class, and the packets that carry them.

use thiserror::Error;

use super::message::Message;
use crate::wire::{
    Bth, Deth, GSI_QP, Header, Message as PacketMessage, Packet, Pkey, Position, Psn, SendTail,
    Transport,
};

/// Octets of a management datagram (ROCE-144).
pub const MAD_LEN: usize = 256;
/// Octets of its header.
pub const MAD_HEADER_LEN: usize = 24;
/// Octets behind its header.
pub(super) const BODY_LEN: usize = MAD_LEN - MAD_HEADER_LEN;
/// Q_Key of the general services interface (ROCE-144).
pub const GSI_QKEY: u32 = 0x8001_0000;

const BASE_VERSION: u8 = 1;
const CLASS: u8 = 7;
const CLASS_VERSION: u8 = 2;
const METHOD_SEND: u8 = 3;

/// A management datagram of the connection manager.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mad {
    /// Transaction id: an answer carries that of its request.
    pub tid: u64,
    /// Attribute modifier: options of a vendor in a REQ and a REP, 0 elsewhere.
    pub modifier: u32,
    /// The message that it carries.
    pub message: Message,
}

/// The reason that octets are no message of the connection manager. No answer is sent (ROCE-145).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Malformed {
    /// Not 256 octets.
    #[error("a management datagram has 256 octets")]
    Length,
    /// Another base version.
    #[error("unknown version of management datagrams")]
    BaseVersion,
    /// Of another management class.
    #[error("not a message of the connection manager")]
    Class,
    /// Another version of the class.
    #[error("unknown version of the connection manager")]
    ClassVersion,
    /// Not the method Send.
    #[error("unknown method")]
    Method,
    /// No message has that attribute.
    #[error("unknown message")]
    Attribute,
}

impl Mad {
    /// Reads one.
    ///
    /// # Errors
    ///
    /// [`Malformed`]; such a datagram is dropped.
    pub fn parse(octets: &[u8]) -> Result<Self, Malformed> {
        let octets: &[u8; MAD_LEN] = octets.try_into().map_err(|_| Malformed::Length)?;
        let (header, body) = octets.split_at(MAD_HEADER_LEN);
        let at = |index: usize| header.get(index).copied().unwrap_or_default();
        if at(0) != BASE_VERSION {
            return Err(Malformed::BaseVersion);
        }
        if at(1) != CLASS {
            return Err(Malformed::Class);
        }
        if at(2) != CLASS_VERSION {
            return Err(Malformed::ClassVersion);
        }
        if at(3) != METHOD_SEND {
            return Err(Malformed::Method);
        }
        let number = |from: usize, len: usize| {
            (from..from + len).fold(0, |value, index| value << 8 | u64::from(at(index)))
        };
        let body: &[u8; BODY_LEN] = body.try_into().map_err(|_| Malformed::Length)?;
        let message = Message::read(number(16, 2) as u16, body).ok_or(Malformed::Attribute)?;
        Ok(Self { tid: number(8, 8), modifier: number(20, 4) as u32, message })
    }

    /// Its octets.
    pub fn write(&self) -> [u8; MAD_LEN] {
        let mut octets = [0; MAD_LEN];
        octets[..4].copy_from_slice(&[BASE_VERSION, CLASS, CLASS_VERSION, METHOD_SEND]);
        octets[8..16].copy_from_slice(&self.tid.to_be_bytes());
        octets[16..18].copy_from_slice(&self.message.attribute().to_be_bytes());
        octets[20..24].copy_from_slice(&self.modifier.to_be_bytes());
        octets[MAD_HEADER_LEN..].copy_from_slice(&self.message.body());
        octets
    }
}

/// The headers of the packet that carries a management datagram.
///
/// Management datagrams have PSNs of their own, which no receiver checks (ROCE-114).
pub fn gsi_header(psn: Psn) -> Header {
    Header {
        bth: Bth {
            solicited: false,
            migrated: true,
            pkey: Pkey::DEFAULT,
            fecn: false,
            becn: false,
            dest_qp: GSI_QP,
            ack_req: false,
            psn,
        },
        transport: Transport::Ud,
        deth: Some(Deth { qkey: GSI_QKEY, source_qp: GSI_QP }),
        message: PacketMessage::Send { position: Position::Only, tail: SendTail::Plain },
    }
}

/// The management datagram in a packet that has come: a UD Send of 256 octets to queue pair 1 with
/// its Q_Key. `None` for all others, which are dropped (ROCE-145).
pub fn gsi_payload<'a>(packet: &Packet<'a>) -> Option<&'a [u8; MAD_LEN]> {
    let Header { bth, transport, deth, message } = packet.header;
    let only = matches!(message, PacketMessage::Send { position: Position::Only, .. });
    let admitted = only
        && transport == Transport::Ud
        && bth.dest_qp == GSI_QP
        && Pkey::DEFAULT.admits(bth.pkey)
        && deth.is_some_and(|deth| deth.qkey == GSI_QKEY && deth.source_qp == GSI_QP);
    if admitted { packet.payload.try_into().ok() } else { None }
}
