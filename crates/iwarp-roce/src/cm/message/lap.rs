// SPDX-License-Identifier: MIT OR Apache-2.0

//! LAP and APR: alternate paths, which RoCE does not have.

use super::super::field::{Body, Field, block, put_block};
use super::ids::{LOCAL_COMM_ID, REMOTE_COMM_ID};

const INFO_LEN: Field = Field::new(8, 8);
const STATUS: Field = Field::new(9, 8);
const INFO: usize = 12;
const REST: usize = 8;

/// Status of an APR: alternate paths are not supported (ROCE-169).
pub const APR_UNSUPPORTED: u8 = 2;

/// Load alternate path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lap {
    /// The sender's communication id.
    pub local_comm_id: u32,
    /// The receiver's communication id.
    pub remote_comm_id: u32,
    /// The path, which is not looked at.
    pub rest: [u8; 224],
}

/// Answer to a LAP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Apr {
    /// The sender's communication id.
    pub local_comm_id: u32,
    /// The receiver's communication id.
    pub remote_comm_id: u32,
    /// Octets of the information that count.
    pub info_len: u8,
    /// The outcome of the LAP.
    pub status: u8,
    /// Information and private data.
    pub rest: [u8; 220],
}

impl Lap {
    pub(super) fn read(body: &Body) -> Self {
        Self {
            local_comm_id: LOCAL_COMM_ID.get_u32(body),
            remote_comm_id: REMOTE_COMM_ID.get_u32(body),
            rest: block(body, REST),
        }
    }

    pub(super) fn write(&self, body: &mut Body) {
        LOCAL_COMM_ID.put(body, self.local_comm_id);
        REMOTE_COMM_ID.put(body, self.remote_comm_id);
        put_block(body, REST, &self.rest);
    }
}

impl Apr {
    pub(super) fn read(body: &Body) -> Self {
        Self {
            local_comm_id: LOCAL_COMM_ID.get_u32(body),
            remote_comm_id: REMOTE_COMM_ID.get_u32(body),
            info_len: INFO_LEN.get_u8(body),
            status: STATUS.get_u8(body),
            rest: block(body, INFO),
        }
    }

    pub(super) fn write(&self, body: &mut Body) {
        LOCAL_COMM_ID.put(body, self.local_comm_id);
        REMOTE_COMM_ID.put(body, self.remote_comm_id);
        INFO_LEN.put(body, self.info_len);
        STATUS.put(body, self.status);
        put_block(body, INFO, &self.rest);
    }
}
