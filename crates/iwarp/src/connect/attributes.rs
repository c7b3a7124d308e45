// SPDX-License-Identifier: MIT OR Apache-2.0

//! The attributes that a program sets on a queue pair over packets.

use iwarp_types::{Access, AddressVector, setters};

/// The attributes of a queue pair over datagrams on its way to RTR and RTS, with the names of
/// `struct ibv_qp_attr`. A UD queue pair needs only its Q_Key.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct DatagramAttributes {
    /// The Q_Key that datagrams to it must carry (UD).
    pub qkey: u32,
    /// The way to the peer (RC, UC).
    pub address: Option<AddressVector>,
    /// The peer's queue pair; 24 bits (RC, UC).
    pub dest_qp: u32,
    /// Partition key.
    pub pkey: u16,
    /// Largest payload of a packet in bytes: 256, 512, 1024, 2048 or 4096; any other number is
    /// rounded down.
    pub path_mtu: u32,
    /// PSN of the first packet to send; 24 bits.
    pub sq_psn: u32,
    /// PSN of the first packet to expect; 24 bits (RC, UC).
    pub rq_psn: u32,
    /// Local ACK timeout code, 4.096 µs · 2^code; 0 waits for ever, 1 to 9 count as 10, 4.2 ms
    /// (RC).
    pub timeout: u8,
    /// Number of times that a request is sent again for want of an answer: 0 to 7 (RC).
    pub retry_count: u8,
    /// Number of times that a request is sent again because the peer had no receive: 0 to 6; 7
    /// means without limit (RC).
    pub rnr_retry: u8,
    /// Code of the time for which a peer is asked to wait when there is no receive (RC).
    pub min_rnr_timer: u8,
    /// Number of this end's Reads and Atomics that may be under way (RC).
    pub max_rd_atomic: u8,
    /// Number of the peer's Reads and Atomics that may be under way (RC).
    pub max_dest_rd_atomic: u8,
    /// The peer's rights over datagrams, unless
    /// [`QueuePair::set_remote_access`](crate::QueuePair::set_remote_access) says them.
    pub access: Access,
}

/// The partition that every port is a full member of.
const DEFAULT_PKEY: u16 = 0xFFFF;

impl Default for DatagramAttributes {
    fn default() -> Self {
        Self {
            qkey: 0,
            address: None,
            dest_qp: 0,
            pkey: DEFAULT_PKEY,
            path_mtu: 1024,
            sq_psn: 0,
            rq_psn: 0,
            timeout: 14,
            retry_count: 7,
            rnr_retry: 7,
            min_rnr_timer: 12,
            max_rd_atomic: 1,
            max_dest_rd_atomic: 1,
            access: Access::empty(),
        }
    }
}

impl DatagramAttributes {
    /// Attributes of a UD queue pair with that Q_Key.
    pub fn with_qkey(qkey: u32) -> Self {
        Self { qkey, ..Self::default() }
    }

    setters! {
        qkey: u32,
        into address: Option<AddressVector>,
        dest_qp: u32,
        pkey: u16,
        path_mtu: u32,
        sq_psn: u32,
        rq_psn: u32,
        timeout: u8,
        retry_count: u8,
        rnr_retry: u8,
        min_rnr_timer: u8,
        max_rd_atomic: u8,
        max_dest_rd_atomic: u8,
        access: Access,
    }
}
