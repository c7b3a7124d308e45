// SPDX-License-Identifier: MIT OR Apache-2.0

//! MRA: a message has been received, its answer takes longer.

use super::super::field::{Body, Field, block, put_block};
use super::super::time::TimeCode;
use super::ids::{LOCAL_COMM_ID, REMOTE_COMM_ID};
use super::limits;
use super::rej::Rejected;

const MESSAGE: Field = Field::new(8, 2);
const SERVICE_TIMEOUT: Field = Field::new(9, 5);

/// A message has been received, its answer takes longer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mra {
    /// The sender's communication id.
    pub local_comm_id: u32,
    /// The receiver's communication id.
    pub remote_comm_id: u32,
    /// The message that was received.
    pub received: Rejected,
    /// The time that the answer may take from now on (ROCE-163).
    pub service_timeout: TimeCode,
    /// The program's.
    pub private_data: [u8; limits::MRA],
}

impl Mra {
    pub(super) fn read(body: &Body) -> Self {
        Self {
            local_comm_id: LOCAL_COMM_ID.get_u32(body),
            remote_comm_id: REMOTE_COMM_ID.get_u32(body),
            received: Rejected::from_code(MESSAGE.get_u8(body)),
            service_timeout: TimeCode::new(SERVICE_TIMEOUT.get_u8(body)),
            private_data: block(body, 10),
        }
    }

    pub(super) fn write(&self, body: &mut Body) {
        LOCAL_COMM_ID.put(body, self.local_comm_id);
        REMOTE_COMM_ID.put(body, self.remote_comm_id);
        MESSAGE.put(body, self.received.code());
        SERVICE_TIMEOUT.put(body, self.service_timeout.code());
        put_block(body, 10, &self.private_data);
    }
}
