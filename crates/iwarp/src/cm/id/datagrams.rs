// SPDX-License-Identifier: MIT OR Apache-2.0

//! Ids for datagram services (`RDMA_PS_UDP`).

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use iwarp_types::AddressVector;

use super::{Id, Phase};
use crate::connect::{By, Question};
use crate::verbs::QueuePair;
use crate::wire::choice::joined;

impl Id {
    /// Asks for the queue pair of the datagram service at the peer's address. Ends in
    /// [`EventKind::ServiceFound`](crate::cm::EventKind::ServiceFound),
    /// [`EventKind::ServiceRefused`](crate::cm::EventKind::ServiceRefused) or
    /// [`EventKind::Unreachable`](crate::cm::EventKind::Unreachable). The peer's program gets
    /// `private_data`, 180 bytes at most.
    ///
    /// # Errors
    ///
    /// `InvalidInput` before the address is resolved, when the id is in use or for connections, or
    /// when there is too much private data; those of opening UDP port 4791.
    pub fn ask(&self, private_data: &[u8]) -> io::Result<()> {
        let core = self.core.check()?;
        let (local, peer, traffic_class) = {
            let state = core.state.lock();
            let (Phase::Idle, Some(local), Some(peer), true) =
                (&state.phase, state.local, state.peer, core.kind.datagrams)
            else {
                return Err(io::ErrorKind::InvalidInput.into());
            };
            (local, peer, state.choices.traffic_class.unwrap_or(0))
        };
        let (owner, space) = (Arc::new(core.downgrade()), core.kind.space);
        let question = Question { owner, space, local, peer, traffic_class, private_data };
        let exchange = core.wires().ask(question)?;
        Ok(core.begin(&exchange, None, By::Worker)?)
    }

    /// Tells a peer that has asked which queue pair has the service, of which Q_Key. The peer's
    /// program gets `private_data`, 136 bytes at most. No event follows on this side.
    ///
    /// # Errors
    ///
    /// `InvalidInput` unless a peer has asked and was not answered, or when there is too much
    /// private data; `NotConnected` when the peer cannot be waiting any more.
    pub fn answer(&self, qp: &QueuePair, qkey: u32, private_data: &[u8]) -> io::Result<()> {
        self.answer_with(qp.number(), qkey, private_data)
    }

    /// As [`Self::answer`], by the number of the queue pair.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn answer_with(&self, qp: u32, qkey: u32, private_data: &[u8]) -> io::Result<()> {
        let core = self.core.check()?;
        core.exchange().ok_or(io::ErrorKind::InvalidInput)?.answer(qp, qkey, private_data)
    }

    /// Joins a multicast group, on the interface of the address that the id is bound to or has been
    /// resolved to; ends in [`EventKind::MulticastJoined`](crate::cm::EventKind::MulticastJoined),
    /// which says how datagrams are sent there.
    ///
    /// # Errors
    ///
    /// `InvalidInput` where the id has no address of the group's family, or is for connections, or
    /// the address is no group's.
    pub fn join(&self, group: IpAddr) -> io::Result<()> {
        let core = self.core.check()?;
        let group = group.to_canonical();
        let (local, class) = {
            let state = core.state.lock();
            (state.local, state.choices.traffic_class.unwrap_or(0))
        };
        let fits = |local: &IpAddr| local.is_ipv4() == group.is_ipv4() && !local.is_unspecified();
        let source = local.map(|local| local.ip().to_canonical()).filter(fits);
        let source = source.filter(|_| group.is_multicast() && core.kind.datagrams);
        let source = source.ok_or(io::ErrorKind::InvalidInput)?;
        let address = AddressVector {
            traffic_class: class,
            hop_limit: GROUP_HOPS,
            ..AddressVector::new(source, group)
        };
        core.push(joined(group, address));
        Ok(())
    }
}

/// The hop limit of datagrams to a group, as Linux has it.
const GROUP_HOPS: u8 = 64;

#[cfg(all(test, not(model)))]
mod tests {
    use std::net::SocketAddr;

    use crate::cm::PortSpace;
    use crate::cm::{EventChannel, EventKind};
    use crate::engine::options::Options;
    use crate::verbs::Device;

    use super::*;

    fn ids(addr: &str) -> (EventChannel, [Id; 2]) {
        let device = Device::with_options(Options::default()).unwrap();
        let channel = EventChannel::new(&device).unwrap();
        let ids =
            [Id::for_datagrams(&channel, PortSpace::DATAGRAMS), Id::new(&channel)].map(|id| {
                let id = id.unwrap();
                id.bind(SocketAddr::new(addr.parse().unwrap(), 0)).unwrap();
                id
            });
        (channel, ids)
    }

    #[test]
    fn a_group_of_ipv4_may_be_written_as_one_of_ipv6() {
        let (channel, [id, _]) = ids("127.0.0.1");
        id.set_traffic_class(0x28);
        id.join("::ffff:239.1.2.3".parse().unwrap()).unwrap();
        let kind = channel.try_next().unwrap().kind;
        let EventKind::MulticastJoined { group, address, .. } = kind else { panic!("{kind:?}") };
        assert_eq!(group, IpAddr::from([239, 1, 2, 3]));
        assert_eq!((address.source, address.destination), ([127, 0, 0, 1].into(), group));
        assert_eq!(address.traffic_class, 0x28);
    }

    #[test]
    fn a_group_needs_an_address_and_an_id_for_datagrams() {
        let group = IpAddr::from([239, 1, 2, 3]);
        let (_channel, [anywhere, _]) = ids("0.0.0.0");
        let (_other, [_, connections]) = ids("127.0.0.1");
        for id in [anywhere, connections] {
            assert_eq!(id.join(group).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
    }
}
