// SPDX-License-Identifier: MIT OR Apache-2.0

//! REJ: refusal of a message.

use super::super::field::{Body, Field, block, put_block};
use super::super::reason::RejectReason;
use super::ids::{LOCAL_COMM_ID, REMOTE_COMM_ID};
use super::limits;

const MESSAGE: Field = Field::new(8, 2);
const INFO_LEN: Field = Field::new(9, 7);
const REASON: Field = Field::new(10, 16);
const INFO: usize = 12;
const PRIVATE_DATA: usize = 84;

/// The message that is refused, or received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rejected {
    /// A REQ.
    Req,
    /// A REP.
    Rep,
    /// Another message, or none.
    Other,
    /// Without a meaning.
    Reserved,
}

impl Rejected {
    pub(super) const fn from_code(code: u8) -> Self {
        match code {
            0 => Self::Req,
            1 => Self::Rep,
            2 => Self::Other,
            _ => Self::Reserved,
        }
    }

    pub(super) const fn code(self) -> u8 {
        self as u8
    }
}

/// Refusal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rej {
    /// The sender's communication id; 0 if it has none.
    pub local_comm_id: u32,
    /// The receiver's communication id; 0 if the sender does not know it.
    pub remote_comm_id: u32,
    /// The message that is refused.
    pub rejected: Rejected,
    /// Octets of `info` that count; 7 bits.
    pub info_len: u8,
    /// The reason.
    pub reason: RejectReason,
    /// More about the reason: the GUID of a sender that gave up waiting.
    pub info: [u8; 72],
    /// The program's.
    pub private_data: [u8; limits::REJ],
}

impl Rej {
    pub(super) fn read(body: &Body) -> Self {
        Self {
            local_comm_id: LOCAL_COMM_ID.get_u32(body),
            remote_comm_id: REMOTE_COMM_ID.get_u32(body),
            rejected: Rejected::from_code(MESSAGE.get_u8(body)),
            info_len: INFO_LEN.get_u8(body),
            reason: RejectReason::from_code(REASON.get_u16(body)),
            info: block(body, INFO),
            private_data: block(body, PRIVATE_DATA),
        }
    }

    pub(super) fn write(&self, body: &mut Body) {
        LOCAL_COMM_ID.put(body, self.local_comm_id);
        REMOTE_COMM_ID.put(body, self.remote_comm_id);
        MESSAGE.put(body, self.rejected.code());
        INFO_LEN.put(body, self.info_len);
        REASON.put(body, self.reason.code());
        put_block(body, INFO, &self.info);
        put_block(body, PRIVATE_DATA, &self.private_data);
    }

    /// The GUID of the sender that gave up waiting.
    pub fn guid(&self) -> u64 {
        u64::from_be_bytes(core::array::from_fn(|index| self.info[index]))
    }
}
