// SPDX-License-Identifier: MIT OR Apache-2.0

//! SIDR_REQ and SIDR_REP: the queue pair of a datagram service (ROCE-170).

use super::super::field::{Body, Field, block, put_block};
use super::super::service::ServiceId;
use super::limits;
use crate::wire::Pkey;

const REQUEST_ID: Field = Field::new(0, 32);
const PKEY: Field = Field::new(4, 16);
const REQ_SERVICE_ID: Field = Field::new(8, 64);
const REQ_PRIVATE_DATA: usize = 16;
const STATUS: Field = Field::new(4, 8);
const INFO_LEN: Field = Field::new(5, 8);
const QPN: Field = Field::new(8, 24);
const REP_SERVICE_ID: Field = Field::new(12, 64);
const QKEY: Field = Field::new(20, 32);
const INFO: usize = 24;
const REP_PRIVATE_DATA: usize = 96;

/// Asks for the queue pair of a datagram service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SidrReq {
    /// Repeated in the answer.
    pub request_id: u32,
    /// Partition key.
    pub pkey: Pkey,
    /// The service.
    pub service_id: ServiceId,
    /// The program's, behind the CMA header (ROCE-171).
    pub private_data: [u8; limits::RAW_SIDR_REQ],
}

/// The outcome of a SIDR_REQ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SidrStatus {
    /// The service exists.
    Valid,
    /// No such service.
    NoService,
    /// The program refused.
    Refused,
    /// No queue pair is left.
    NoQueuePair,
    /// The service is elsewhere.
    Redirected,
    /// Another version of the connection manager.
    Version,
    /// A status without a name here.
    Other(u8),
}

impl SidrStatus {
    /// The status of a code.
    pub const fn from_code(code: u8) -> Self {
        match code {
            0 => Self::Valid,
            1 => Self::NoService,
            2 => Self::Refused,
            3 => Self::NoQueuePair,
            4 => Self::Redirected,
            5 => Self::Version,
            other => Self::Other(other),
        }
    }

    /// Its code; the status of `RDMA_CM_EVENT_UNREACHABLE`.
    pub const fn code(self) -> u8 {
        match self {
            Self::Valid => 0,
            Self::NoService => 1,
            Self::Refused => 2,
            Self::NoQueuePair => 3,
            Self::Redirected => 4,
            Self::Version => 5,
            Self::Other(other) => other,
        }
    }
}

/// The answer to a SIDR_REQ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SidrRep {
    /// Request id of the SIDR_REQ.
    pub request_id: u32,
    /// The outcome.
    pub status: SidrStatus,
    /// Octets of `info` that count.
    pub info_len: u8,
    /// The queue pair of the service; 24 bits.
    pub qpn: u32,
    /// The service.
    pub service_id: ServiceId,
    /// Q_Key of its queue pair.
    pub qkey: u32,
    /// More about the outcome.
    pub info: [u8; 72],
    /// The program's.
    pub private_data: [u8; limits::SIDR_REP],
}

impl SidrReq {
    pub(super) fn read(body: &Body) -> Self {
        Self {
            request_id: REQUEST_ID.get_u32(body),
            pkey: Pkey(PKEY.get_u16(body)),
            service_id: ServiceId(REQ_SERVICE_ID.get(body)),
            private_data: block(body, REQ_PRIVATE_DATA),
        }
    }

    pub(super) fn write(&self, body: &mut Body) {
        REQUEST_ID.put(body, self.request_id);
        PKEY.put(body, self.pkey.0);
        REQ_SERVICE_ID.put(body, self.service_id.0);
        put_block(body, REQ_PRIVATE_DATA, &self.private_data);
    }
}

impl SidrRep {
    pub(super) fn read(body: &Body) -> Self {
        Self {
            request_id: REQUEST_ID.get_u32(body),
            status: SidrStatus::from_code(STATUS.get_u8(body)),
            info_len: INFO_LEN.get_u8(body),
            qpn: QPN.get_u32(body),
            service_id: ServiceId(REP_SERVICE_ID.get(body)),
            qkey: QKEY.get_u32(body),
            info: block(body, INFO),
            private_data: block(body, REP_PRIVATE_DATA),
        }
    }

    pub(super) fn write(&self, body: &mut Body) {
        REQUEST_ID.put(body, self.request_id);
        STATUS.put(body, self.status.code());
        INFO_LEN.put(body, self.info_len);
        QPN.put(body, self.qpn);
        REP_SERVICE_ID.put(body, self.service_id.0);
        QKEY.put(body, self.qkey);
        put_block(body, INFO, &self.info);
        put_block(body, REP_PRIVATE_DATA, &self.private_data);
    }
}
