// SPDX-License-Identifier: MIT OR Apache-2.0

//! The settings of a queue pair, and the attributes that the program sets later.

use core::time::Duration;

use iwarp_types::{Access, Accessor, AddressVector, Limits, PdId, QpId, QpType};

use crate::wire::{Mtu, Path, Pkey, Psn, RnrTimer};

/// The settings with which a queue pair is made.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Its number; 24 bits.
    pub qp: QpId,
    /// Its type.
    pub qp_type: QpType,
    /// Its protection domain.
    pub pd: PdId,
    /// Send work requests that may be outstanding.
    pub max_send_wr: usize,
    /// Receive work requests that may be outstanding.
    pub max_recv_wr: usize,
    /// Elements and inline bytes of a send work request.
    pub limits: Limits,
    /// Elements of a receive work request.
    pub max_recv_sge: usize,
    /// Receives come from a shared receive queue.
    pub shared_receive: bool,
    /// The protection domain of receives' memory, where it is another: the shared receive queue's.
    pub receive_pd: Option<PdId>,
    /// Time after which the owner is told, once, that a message of the peer's finds no receive
    /// ([`Event::NoReceive`](iwarp_types::Event::NoReceive)).
    pub tell_no_receive: Option<Duration>,
}

impl Config {
    /// The accessor for the memory of receives.
    pub(crate) fn receiver(&self) -> Accessor {
        Accessor { pd: self.receive_pd.unwrap_or(self.pd), qp: self.qp }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            qp: QpId(0),
            qp_type: QpType::Rc,
            pd: PdId(0),
            max_send_wr: 128,
            max_recv_wr: 128,
            limits: Limits { max_send_sge: 4, max_inline: 256 },
            max_recv_sge: 4,
            shared_receive: false,
            receive_pd: None,
            tell_no_receive: None,
        }
    }
}

/// The attributes that the program, or the connection manager, sets on the way to RTR and RTS, as
/// `ibv_modify_qp` has it.
#[derive(Clone, Copy, Debug)]
pub struct Attributes {
    /// The way to the peer (RC, UC). UD uses only its ports.
    pub path: Path,
    /// The peer's queue pair (RC, UC).
    pub dest_qp: u32,
    /// Partition key.
    pub pkey: Pkey,
    /// Path MTU.
    pub mtu: Mtu,
    /// PSN of the first packet that is sent (ROCE-043).
    pub sq_psn: Psn,
    /// PSN of the first packet that is expected (ROCE-075).
    pub rq_psn: Psn,
    /// Local ACK timeout code: 4.096 us x 2^code; 1 to 9 count as 10 (4.2 ms), 0 waits for ever
    /// (ROCE-061).
    pub timeout: u8,
    /// Times that a request is sent again for want of an answer, or after a sequence error: 0..7
    /// (ROCE-062).
    pub retry_count: u8,
    /// Times that a request is sent again after an RNR NAK: 0..6; 7 is without end (ROCE-058).
    pub rnr_retry: u8,
    /// Time that this end's RNR NAKs ask for (ROCE-087).
    pub min_rnr_timer: RnrTimer,
    /// Reads and Atomics of this end's that may be under way (ROCE-067).
    pub max_rd_atomic: u8,
    /// Reads and Atomics of the peer's that may be under way; the next power of two is granted.
    pub max_dest_rd_atomic: u8,
    /// The rights of the peer.
    pub access: Access,
    /// Q_Key (UD).
    pub qkey: u32,
}

impl Default for Attributes {
    fn default() -> Self {
        let unset = core::net::IpAddr::V4(core::net::Ipv4Addr::UNSPECIFIED);
        Self {
            path: Path::new(AddressVector::new(unset, unset), 0xc000),
            dest_qp: 0,
            pkey: Pkey::DEFAULT,
            mtu: Mtu::default(),
            sq_psn: Psn::default(),
            rq_psn: Psn::default(),
            timeout: 0,
            retry_count: 0,
            rnr_retry: 0,
            min_rnr_timer: RnrTimer::default(),
            max_rd_atomic: 0,
            max_dest_rd_atomic: 0,
            access: Access::empty(),
            qkey: 0,
        }
    }
}
