// SPDX-License-Identifier: MIT OR Apache-2.0

//! Messages with little more than communication ids: RTU, DREQ, DREP.

use super::super::field::{Body, Field, block, put_block};
use super::limits;

pub(super) const LOCAL_COMM_ID: Field = Field::new(0, 32);
pub(super) const REMOTE_COMM_ID: Field = Field::new(4, 32);
const REMOTE_QPN: Field = Field::new(8, 24);

/// Ready to use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rtu {
    /// The sender's communication id.
    pub local_comm_id: u32,
    /// The receiver's communication id.
    pub remote_comm_id: u32,
    /// The program's.
    pub private_data: [u8; limits::RTU],
}

/// Request to disconnect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dreq {
    /// The sender's communication id.
    pub local_comm_id: u32,
    /// The receiver's communication id.
    pub remote_comm_id: u32,
    /// The receiver's queue pair; 24 bits.
    pub remote_qpn: u32,
    /// The program's.
    pub private_data: [u8; limits::DREQ],
}

/// Answer to a DREQ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Drep {
    /// The sender's communication id.
    pub local_comm_id: u32,
    /// The receiver's communication id.
    pub remote_comm_id: u32,
    /// The program's.
    pub private_data: [u8; limits::DREP],
}

impl Rtu {
    pub(super) fn read(body: &Body) -> Self {
        Self {
            local_comm_id: LOCAL_COMM_ID.get_u32(body),
            remote_comm_id: REMOTE_COMM_ID.get_u32(body),
            private_data: block(body, 8),
        }
    }

    pub(super) fn write(&self, body: &mut Body) {
        LOCAL_COMM_ID.put(body, self.local_comm_id);
        REMOTE_COMM_ID.put(body, self.remote_comm_id);
        put_block(body, 8, &self.private_data);
    }
}

impl Dreq {
    pub(super) fn read(body: &Body) -> Self {
        Self {
            local_comm_id: LOCAL_COMM_ID.get_u32(body),
            remote_comm_id: REMOTE_COMM_ID.get_u32(body),
            remote_qpn: REMOTE_QPN.get_u32(body),
            private_data: block(body, 12),
        }
    }

    pub(super) fn write(&self, body: &mut Body) {
        LOCAL_COMM_ID.put(body, self.local_comm_id);
        REMOTE_COMM_ID.put(body, self.remote_comm_id);
        REMOTE_QPN.put(body, self.remote_qpn);
        put_block(body, 12, &self.private_data);
    }
}

impl Drep {
    pub(super) fn read(body: &Body) -> Self {
        let Rtu { local_comm_id, remote_comm_id, private_data } = Rtu::read(body);
        Self { local_comm_id, remote_comm_id, private_data }
    }

    pub(super) fn write(&self, body: &mut Body) {
        let Self { local_comm_id, remote_comm_id, private_data } = *self;
        Rtu { local_comm_id, remote_comm_id, private_data }.write(body);
    }
}
