// SPDX-License-Identifier: MIT OR Apache-2.0

//! Multicast groups, as `rdma_join_multicast` describes them (ROCE-133).

use core::net::{IpAddr, Ipv4Addr};

use thiserror::Error;

use crate::wire::{MULTICAST_QP, Pkey};

/// Q_Key of `RDMA_PS_UDP`, and of groups joined without a Q_Key of the program's (ROCE-133).
pub const UDP_QKEY: u32 = 0x0123_4567;

/// A group that a program has joined: `RDMA_CM_EVENT_MULTICAST_JOIN`. It needs no message; the host
/// joins by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Group {
    /// The group's address.
    pub address: Ipv4Addr,
    /// Its global identifier, that of the address (ROCE-127).
    pub gid: [u8; 16],
    /// Destination queue pair of datagrams to the group.
    pub qp: u32,
    /// Q_Key of datagrams to the group.
    pub qkey: u32,
    /// Partition key.
    pub pkey: Pkey,
    /// Hop limit of datagrams to the group.
    pub hop_limit: u8,
}

/// The reason that a program cannot join.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum JoinError {
    /// Not the address of a group.
    #[error("not a multicast address")]
    NotMulticast,
    /// A group of IPv6; Linux does not let RoCE v2 join them either.
    #[error("groups of IPv6 are not supported")]
    Family,
}

impl Group {
    /// The group of an address, with the program's Q_Key if it has set one.
    ///
    /// # Errors
    ///
    /// [`JoinError`]
    pub fn new(address: IpAddr, qkey: Option<u32>) -> Result<Self, JoinError> {
        let address = match address.to_canonical() {
            address if !address.is_multicast() => return Err(JoinError::NotMulticast),
            IpAddr::V4(address) => address,
            IpAddr::V6(_) => return Err(JoinError::Family),
        };
        Ok(Self {
            address,
            gid: super::message::gid(address.into()),
            qp: MULTICAST_QP,
            qkey: qkey.unwrap_or(UDP_QKEY),
            pkey: Pkey::DEFAULT,
            hop_limit: 64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Covers: ROCE-133
    #[test]
    fn a_group_is_described_as_linux_does() {
        let join = |text: &str, qkey| Group::new(text.parse().unwrap(), qkey);
        let group = join("239.1.2.3", None).unwrap();
        let gid = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 1, 2, 3];
        assert_eq!((group.gid, group.qp, group.qkey), (gid, 0xff_ffff, 0x0123_4567));
        assert_eq!((group.pkey.0, group.hop_limit), (0xffff, 64));
        assert_eq!(join("::ffff:239.1.2.3", Some(5)).unwrap().qkey, 5);
        assert_eq!(join("192.0.2.1", None), Err(JoinError::NotMulticast));
        assert_eq!(join("ff02::1", None), Err(JoinError::Family));
    }
}
