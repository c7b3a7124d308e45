// SPDX-License-Identifier: MIT OR Apache-2.0

//! The attributes of a queue pair over packets, between the names of the verbs and the protocol.

use std::net::{IpAddr, Ipv4Addr};

use iwarp_roce::Attributes;
use iwarp_roce::wire::{Mtu, PORT, Path, Pkey, Psn, RnrTimer};
use iwarp_types::AddressVector;

use crate::connect::DatagramAttributes;

/// As the protocol has them.
pub(super) fn of_protocol(named: &DatagramAttributes) -> Attributes {
    let unset = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let address = named.address.unwrap_or(AddressVector::new(unset, unset));
    Attributes {
        path: Path::new(address, PORT),
        dest_qp: named.dest_qp,
        pkey: Pkey(named.pkey),
        mtu: Mtu::largest_within(named.path_mtu as usize),
        sq_psn: Psn::new(named.sq_psn),
        rq_psn: Psn::new(named.rq_psn),
        timeout: named.timeout,
        retry_count: named.retry_count,
        rnr_retry: named.rnr_retry,
        min_rnr_timer: RnrTimer::new(named.min_rnr_timer),
        max_rd_atomic: named.max_rd_atomic,
        max_dest_rd_atomic: named.max_dest_rd_atomic,
        access: named.access,
        qkey: named.qkey,
    }
}

/// As a program sets them that makes a queue pair of its own for a connection; `min_rnr_timer` is
/// 0 = 655 ms.
pub(super) fn named(attributes: &Attributes) -> DatagramAttributes {
    DatagramAttributes::default()
        .address(attributes.path.address)
        .dest_qp(attributes.dest_qp)
        .pkey(attributes.pkey.0)
        .path_mtu(attributes.mtu.octets() as u32)
        .sq_psn(attributes.sq_psn.number())
        .rq_psn(attributes.rq_psn.number())
        .timeout(attributes.timeout)
        .retry_count(attributes.retry_count)
        .rnr_retry(attributes.rnr_retry)
        .min_rnr_timer(0)
        .max_rd_atomic(attributes.max_rd_atomic)
        .max_dest_rd_atomic(attributes.max_dest_rd_atomic)
        .access(attributes.access)
}
