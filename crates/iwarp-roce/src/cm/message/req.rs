// SPDX-License-Identifier: MIT OR Apache-2.0

//! REQ: request for a connection.

use super::super::field::{Body, Field, block, put_block};
use super::super::service::ServiceId;
use super::super::time::TimeCode;
use super::ids::LOCAL_COMM_ID;
use super::limits;
use crate::wire::{Pkey, Psn};

const VENDOR_ID: Field = Field::new(5, 24);
const SERVICE_ID: Field = Field::new(8, 64);
const LOCAL_CA_GUID: Field = Field::new(16, 64);
const LOCAL_QKEY: Field = Field::new(28, 32);
const LOCAL_QPN: Field = Field::new(32, 24);
const RESPONDER_RESOURCES: Field = Field::new(35, 8);
const LOCAL_EECN: Field = Field::new(36, 24);
const INITIATOR_DEPTH: Field = Field::new(39, 8);
const REMOTE_EECN: Field = Field::new(40, 24);
const REMOTE_RESPONSE_TIMEOUT: Field = Field::new(43, 5);
const TRANSPORT: Field = Field::within(43, 5, 2);
const FLOW_CONTROL: Field = Field::within(43, 7, 1);
const STARTING_PSN: Field = Field::new(44, 24);
const LOCAL_RESPONSE_TIMEOUT: Field = Field::new(47, 5);
const RETRY_COUNT: Field = Field::within(47, 5, 3);
const PKEY: Field = Field::new(48, 16);
const MTU: Field = Field::new(50, 4);
const RDC_EXISTS: Field = Field::within(50, 4, 1);
const RNR_RETRY: Field = Field::within(50, 5, 3);
const MAX_CM_RETRIES: Field = Field::new(51, 4);
const SRQ: Field = Field::within(51, 4, 1);
const EXTENDED_TRANSPORT: Field = Field::within(51, 5, 3);
const PRIMARY: usize = 52;
const ALTERNATE: usize = 96;
const PRIVATE_DATA: usize = 140;

// Fields of a path, from its own start.
const LOCAL_LID: Field = Field::new(0, 16);
const REMOTE_LID: Field = Field::new(2, 16);
const LOCAL_GID: usize = 4;
const REMOTE_GID: usize = 20;
const FLOW_LABEL: Field = Field::new(36, 20);
const PACKET_RATE: Field = Field::within(39, 2, 6);
const TRAFFIC_CLASS: Field = Field::new(40, 8);
const HOP_LIMIT: Field = Field::new(41, 8);
const SERVICE_LEVEL: Field = Field::new(42, 4);
const SUBNET_LOCAL: Field = Field::within(42, 4, 1);
const LOCAL_ACK_TIMEOUT: Field = Field::new(43, 5);
const SAP_SUPPORTED: Field = Field::within(43, 5, 1);

/// Transport service type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TransportType {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Reliable datagram.
    Rd,
    /// The type given by the extended transport type.
    Extended,
}

impl TransportType {
    const fn from_code(code: u8) -> Self {
        match code {
            0 => Self::Rc,
            1 => Self::Uc,
            2 => Self::Rd,
            _ => Self::Extended,
        }
    }
}

/// A path in a REQ. "Local" is the end that sends the REQ.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PathRecord {
    /// Local identifier of InfiniBand; 0xFFFF beyond its subnets.
    pub local_lid: u16,
    /// The other end's.
    pub remote_lid: u16,
    /// Global identifier: the address.
    pub local_gid: [u8; 16],
    /// The other end's.
    pub remote_gid: [u8; 16],
    /// IPv6 flow label; 20 bits.
    pub flow_label: u32,
    /// Packet rate; 6 bits.
    pub packet_rate: u8,
    /// Type of service, or traffic class.
    pub traffic_class: u8,
    /// Time to live, or hop limit.
    pub hop_limit: u8,
    /// Service level; 4 bits.
    pub service_level: u8,
    /// Both ends are in one InfiniBand subnet.
    pub subnet_local: bool,
    /// Local ACK timeout.
    pub local_ack_timeout: TimeCode,
    /// Of the alternate path: the sender takes alternate paths from the other end.
    pub sap_supported: bool,
}

impl PathRecord {
    fn read(body: &Body, at: usize) -> Self {
        let number = |field: Field| field.moved(at).get_u32(body);
        Self {
            local_lid: number(LOCAL_LID) as u16,
            remote_lid: number(REMOTE_LID) as u16,
            local_gid: block(body, at + LOCAL_GID),
            remote_gid: block(body, at + REMOTE_GID),
            flow_label: number(FLOW_LABEL),
            packet_rate: number(PACKET_RATE) as u8,
            traffic_class: number(TRAFFIC_CLASS) as u8,
            hop_limit: number(HOP_LIMIT) as u8,
            service_level: number(SERVICE_LEVEL) as u8,
            subnet_local: number(SUBNET_LOCAL) != 0,
            local_ack_timeout: TimeCode::new(number(LOCAL_ACK_TIMEOUT) as u8),
            sap_supported: number(SAP_SUPPORTED) != 0,
        }
    }

    fn write(&self, body: &mut Body, at: usize) {
        put_block(body, at + LOCAL_GID, &self.local_gid);
        put_block(body, at + REMOTE_GID, &self.remote_gid);
        let mut number = |field: Field, value: u32| field.moved(at).put(body, value);
        number(LOCAL_LID, self.local_lid.into());
        number(REMOTE_LID, self.remote_lid.into());
        number(FLOW_LABEL, self.flow_label);
        number(PACKET_RATE, self.packet_rate.into());
        number(TRAFFIC_CLASS, self.traffic_class.into());
        number(HOP_LIMIT, self.hop_limit.into());
        number(SERVICE_LEVEL, self.service_level.into());
        number(SUBNET_LOCAL, self.subnet_local.into());
        number(LOCAL_ACK_TIMEOUT, self.local_ack_timeout.code().into());
        number(SAP_SUPPORTED, self.sap_supported.into());
    }
}

/// Request for a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Req {
    /// The sender's communication id.
    pub local_comm_id: u32,
    /// The vendor of the options in the datagram's modifier; 24 bits.
    pub vendor_id: u32,
    /// The service that is asked for.
    pub service_id: ServiceId,
    /// GUID of the sender's device.
    pub local_ca_guid: u64,
    /// Q_Key of the sender's queue pair; without a meaning for RC and UC.
    pub local_qkey: u32,
    /// The sender's queue pair; 24 bits.
    pub local_qpn: u32,
    /// Reads and Atomics of the receiver's that the sender serves at a time.
    pub responder_resources: u8,
    /// End-to-end context of reliable datagrams; 24 bits.
    pub local_eecn: u32,
    /// Reads and Atomics that the sender has under way at a time.
    pub initiator_depth: u8,
    /// The receiver's end-to-end context; 24 bits.
    pub remote_eecn: u32,
    /// The time that the sender waits for the receiver's answers.
    pub remote_response_timeout: TimeCode,
    /// Type of the queue pairs.
    pub transport: TransportType,
    /// Set if the sender gives credits.
    pub flow_control: bool,
    /// PSN that the receiver of this message starts with (ROCE-147).
    pub starting_psn: Psn,
    /// The time that the sender takes to answer.
    pub local_response_timeout: TimeCode,
    /// Times that the receiver sends a request again for want of an answer (ROCE-164); 3 bits.
    pub retry_count: u8,
    /// Partition key.
    pub pkey: Pkey,
    /// Path MTU, as its code; 4 bits.
    pub mtu: u8,
    /// A reliable datagram channel exists.
    pub rdc_exists: bool,
    /// Times that the receiver sends again after an RNR NAK; 7 is without end.
    pub rnr_retry: u8,
    /// Times that either end sends its messages again; 4 bits.
    pub max_cm_retries: u8,
    /// The sender's queue pair has a shared receive queue.
    pub srq: bool,
    /// Type of the queue pairs if `transport` is `Extended`; 3 bits, XRC is 1.
    pub extended_transport: u8,
    /// The path.
    pub primary: PathRecord,
    /// Another path; all 0 if there is none.
    pub alternate: PathRecord,
    /// The program's, behind the CMA header (ROCE-150).
    pub private_data: [u8; limits::RAW_REQ],
}

impl Req {
    pub(super) fn read(body: &Body) -> Self {
        let mut primary = PathRecord::read(body, PRIMARY);
        // That bit is reserved in the primary path.
        primary.sap_supported = false;
        Self {
            local_comm_id: LOCAL_COMM_ID.get_u32(body),
            vendor_id: VENDOR_ID.get_u32(body),
            service_id: ServiceId(SERVICE_ID.get(body)),
            local_ca_guid: LOCAL_CA_GUID.get(body),
            local_qkey: LOCAL_QKEY.get_u32(body),
            local_qpn: LOCAL_QPN.get_u32(body),
            responder_resources: RESPONDER_RESOURCES.get_u8(body),
            local_eecn: LOCAL_EECN.get_u32(body),
            initiator_depth: INITIATOR_DEPTH.get_u8(body),
            remote_eecn: REMOTE_EECN.get_u32(body),
            remote_response_timeout: TimeCode::new(REMOTE_RESPONSE_TIMEOUT.get_u8(body)),
            transport: TransportType::from_code(TRANSPORT.get_u8(body)),
            flow_control: FLOW_CONTROL.is_set(body),
            starting_psn: Psn::new(STARTING_PSN.get_u32(body)),
            local_response_timeout: TimeCode::new(LOCAL_RESPONSE_TIMEOUT.get_u8(body)),
            retry_count: RETRY_COUNT.get_u8(body),
            pkey: Pkey(PKEY.get_u16(body)),
            mtu: MTU.get_u8(body),
            rdc_exists: RDC_EXISTS.is_set(body),
            rnr_retry: RNR_RETRY.get_u8(body),
            max_cm_retries: MAX_CM_RETRIES.get_u8(body),
            srq: SRQ.is_set(body),
            extended_transport: EXTENDED_TRANSPORT.get_u8(body),
            primary,
            alternate: PathRecord::read(body, ALTERNATE),
            private_data: block(body, PRIVATE_DATA),
        }
    }

    pub(super) fn write(&self, body: &mut Body) {
        LOCAL_COMM_ID.put(body, self.local_comm_id);
        VENDOR_ID.put(body, self.vendor_id);
        SERVICE_ID.put(body, self.service_id.0);
        LOCAL_CA_GUID.put(body, self.local_ca_guid);
        LOCAL_QKEY.put(body, self.local_qkey);
        LOCAL_QPN.put(body, self.local_qpn);
        RESPONDER_RESOURCES.put(body, self.responder_resources);
        LOCAL_EECN.put(body, self.local_eecn);
        INITIATOR_DEPTH.put(body, self.initiator_depth);
        REMOTE_EECN.put(body, self.remote_eecn);
        REMOTE_RESPONSE_TIMEOUT.put(body, self.remote_response_timeout.code());
        TRANSPORT.put(body, self.transport as u8);
        FLOW_CONTROL.put(body, self.flow_control);
        STARTING_PSN.put(body, self.starting_psn.number());
        LOCAL_RESPONSE_TIMEOUT.put(body, self.local_response_timeout.code());
        RETRY_COUNT.put(body, self.retry_count);
        PKEY.put(body, self.pkey.0);
        MTU.put(body, self.mtu);
        RDC_EXISTS.put(body, self.rdc_exists);
        RNR_RETRY.put(body, self.rnr_retry);
        MAX_CM_RETRIES.put(body, self.max_cm_retries);
        SRQ.put(body, self.srq);
        EXTENDED_TRANSPORT.put(body, self.extended_transport);
        self.primary.write(body, PRIMARY);
        self.alternate.write(body, ALTERNATE);
        put_block(body, PRIVATE_DATA, &self.private_data);
    }
}
