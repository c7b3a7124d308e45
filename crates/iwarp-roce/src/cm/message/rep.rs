// SPDX-License-Identifier: MIT OR Apache-2.0

//! REP: the request is accepted (ROCE-155).

use super::super::field::{Body, Field, block, put_block};
use super::super::time::TimeCode;
use super::ids::{LOCAL_COMM_ID, REMOTE_COMM_ID};
use super::limits;
use crate::wire::Psn;

const LOCAL_QKEY: Field = Field::new(8, 32);
const LOCAL_QPN: Field = Field::new(12, 24);
const LOCAL_EECN: Field = Field::new(16, 24);
const STARTING_PSN: Field = Field::new(20, 24);
/// Most significant octet first.
const VENDOR_ID: [Field; 3] = [Field::new(15, 8), Field::new(19, 8), Field::new(23, 8)];
const RESPONDER_RESOURCES: Field = Field::new(24, 8);
const INITIATOR_DEPTH: Field = Field::new(25, 8);
const TARGET_ACK_DELAY: Field = Field::new(26, 5);
const FAILOVER_ACCEPTED: Field = Field::within(26, 5, 2);
const FLOW_CONTROL: Field = Field::within(26, 7, 1);
const RNR_RETRY: Field = Field::new(27, 3);
const SRQ: Field = Field::within(27, 3, 1);
const LOCAL_CA_GUID: Field = Field::new(28, 64);
const PRIVATE_DATA: usize = 36;

/// The request is accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rep {
    /// The sender's communication id.
    pub local_comm_id: u32,
    /// The receiver's communication id.
    pub remote_comm_id: u32,
    /// Q_Key of the sender's queue pair; without a meaning for RC and UC.
    pub local_qkey: u32,
    /// The sender's queue pair; 24 bits.
    pub local_qpn: u32,
    /// The vendor of the options in the datagram's modifier; 24 bits.
    pub vendor_id: u32,
    /// End-to-end context of reliable datagrams; 24 bits.
    pub local_eecn: u32,
    /// PSN that the receiver of this message starts with (ROCE-147).
    pub starting_psn: Psn,
    /// Reads and Atomics of the receiver's that the sender serves at a time.
    pub responder_resources: u8,
    /// Reads and Atomics that the sender has under way at a time.
    pub initiator_depth: u8,
    /// The time that the sender takes to acknowledge.
    pub target_ack_delay: TimeCode,
    /// Outcome of the alternate path; 2 bits.
    pub failover_accepted: u8,
    /// Set if the sender gives credits.
    pub flow_control: bool,
    /// Times that the receiver of this message sends again after an RNR NAK (ROCE-164); 7 is
    /// without end.
    pub rnr_retry: u8,
    /// Set if the sender's queue pair has a shared receive queue.
    pub srq: bool,
    /// GUID of the sender's device.
    pub local_ca_guid: u64,
    /// The program's.
    pub private_data: [u8; limits::REP],
}

impl Rep {
    pub(super) fn read(body: &Body) -> Self {
        let octet = |vendor: u32, field: &Field| vendor << 8 | field.get_u32(body);
        Self {
            local_comm_id: LOCAL_COMM_ID.get_u32(body),
            remote_comm_id: REMOTE_COMM_ID.get_u32(body),
            local_qkey: LOCAL_QKEY.get_u32(body),
            local_qpn: LOCAL_QPN.get_u32(body),
            vendor_id: VENDOR_ID.iter().fold(0, octet),
            local_eecn: LOCAL_EECN.get_u32(body),
            starting_psn: Psn::new(STARTING_PSN.get_u32(body)),
            responder_resources: RESPONDER_RESOURCES.get_u8(body),
            initiator_depth: INITIATOR_DEPTH.get_u8(body),
            target_ack_delay: TimeCode::new(TARGET_ACK_DELAY.get_u8(body)),
            failover_accepted: FAILOVER_ACCEPTED.get_u8(body),
            flow_control: FLOW_CONTROL.is_set(body),
            rnr_retry: RNR_RETRY.get_u8(body),
            srq: SRQ.is_set(body),
            local_ca_guid: LOCAL_CA_GUID.get(body),
            private_data: block(body, PRIVATE_DATA),
        }
    }

    pub(super) fn write(&self, body: &mut Body) {
        LOCAL_COMM_ID.put(body, self.local_comm_id);
        REMOTE_COMM_ID.put(body, self.remote_comm_id);
        LOCAL_QKEY.put(body, self.local_qkey);
        LOCAL_QPN.put(body, self.local_qpn);
        for (field, shift) in VENDOR_ID.into_iter().zip([16, 8, 0]) {
            field.put(body, self.vendor_id >> shift);
        }
        LOCAL_EECN.put(body, self.local_eecn);
        STARTING_PSN.put(body, self.starting_psn.number());
        RESPONDER_RESOURCES.put(body, self.responder_resources);
        INITIATOR_DEPTH.put(body, self.initiator_depth);
        TARGET_ACK_DELAY.put(body, self.target_ack_delay.code());
        FAILOVER_ACCEPTED.put(body, self.failover_accepted);
        FLOW_CONTROL.put(body, self.flow_control);
        RNR_RETRY.put(body, self.rnr_retry);
        SRQ.put(body, self.srq);
        LOCAL_CA_GUID.put(body, self.local_ca_guid);
        put_block(body, PRIVATE_DATA, &self.private_data);
    }
}
