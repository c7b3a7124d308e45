// SPDX-License-Identifier: MIT OR Apache-2.0

//! Listeners.

use alloc::collections::BTreeMap;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use iwarp_types::Source;

use super::call::{CallError, Listen};
use super::event::ListenerId;
use super::pending::PendingBySource;
use super::service::ServiceId;
use crate::wire::Transport;

/// One listener.
#[derive(Debug)]
pub(super) struct Listener {
    pub(super) id: ListenerId,
    pub(super) transport: Transport,
    pub(super) header: bool,
    pending: PendingBySource,
}

/// The slot of a request that waits for the program's answer, or the peer's RTU.
#[derive(Clone, Copy, Debug)]
pub(super) struct BacklogSlot {
    pub(super) listener: ListenerId,
    key: Key,
    source: Source,
}

/// Datagram services and connections have listeners of their own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Key {
    service: ServiceId,
    datagrams: bool,
    address: Option<IpAddr>,
}

/// All listeners of a process.
#[derive(Debug, Default)]
pub(super) struct Listeners {
    all: BTreeMap<Key, Listener>,
    last: u32,
}

impl Listeners {
    pub(super) fn add(&mut self, listen: &Listen) -> Result<ListenerId, CallError> {
        let key = Key {
            service: listen.service,
            datagrams: listen.transport == Transport::Ud,
            address: listen.address.map(|address| address.to_canonical()),
        };
        if self.all.contains_key(&key) {
            return Err(CallError::ServiceInUse);
        }
        self.last = self.last.wrapping_add(1);
        let id = ListenerId(self.last);
        let pending = PendingBySource::new(listen.backlog);
        let Listen { transport, header, .. } = *listen;
        self.all.insert(key, Listener { id, transport, header, pending });
        Ok(id)
    }

    /// Removes a listener, and returns its service.
    pub(super) fn remove(&mut self, id: ListenerId) -> Option<ServiceId> {
        let key = *self.all.iter().find(|(_, listener)| listener.id == id)?.0;
        self.all.remove(&key);
        Some(key.service)
    }

    fn key(&self, service: ServiceId, datagrams: bool, address: IpAddr) -> Option<Key> {
        let address = address.to_canonical();
        let all_of_family = match address {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let addresses = [Some(address), Some(all_of_family), None];
        let mut keys = addresses.map(|address| Key { service, datagrams, address }).into_iter();
        keys.find(|key| self.all.contains_key(key))
    }

    /// The listener for a service at an address; the most specific address goes first.
    pub(super) fn find(
        &self,
        service: ServiceId,
        datagrams: bool,
        address: IpAddr,
    ) -> Option<&Listener> {
        self.all.get(&self.key(service, datagrams, address)?)
    }

    /// Takes a slot at that listener for a request from `source`; `None` if there is none.
    pub(super) fn enter(
        &mut self,
        service: ServiceId,
        datagrams: bool,
        address: IpAddr,
        source: IpAddr,
    ) -> Option<BacklogSlot> {
        let key = self.key(service, datagrams, address)?;
        let listener = self.all.get_mut(&key)?;
        let source = Source::of(source);
        let slot = BacklogSlot { listener: listener.id, key, source };
        listener.pending.enter(source).then_some(slot)
    }

    /// Gives the slot back, if its listener is still there.
    pub(super) fn leave(&mut self, slot: BacklogSlot) {
        if let Some(listener) = self.all.get_mut(&slot.key)
            && listener.id == slot.listener
        {
            listener.pending.leave(slot.source);
        }
    }

    pub(super) fn nobody_waits(&self) -> bool {
        self.all.values().all(|listener| listener.pending.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use iwarp_types::PortSpace;

    use super::*;

    fn listen(transport: Transport, address: Option<&str>) -> Listen {
        let service = ServiceId::new(PortSpace::Ib, 1);
        let address = address.map(|text| text.parse().unwrap());
        Listen { service, address, transport, header: true, backlog: 1 }
    }

    #[test]
    fn the_listener_of_an_address_goes_first() {
        let mut listeners = Listeners::default();
        let any = listeners.add(&listen(Transport::Rc, None)).unwrap();
        let one = listeners.add(&listen(Transport::Rc, Some("192.0.2.1"))).unwrap();
        let datagrams = listeners.add(&listen(Transport::Ud, None)).unwrap();
        let service = ServiceId::new(PortSpace::Ib, 1);
        let find = |listeners: &Listeners, datagrams, address: &str| {
            Some(listeners.find(service, datagrams, address.parse().unwrap())?.id)
        };
        assert_eq!(find(&listeners, false, "192.0.2.1"), Some(one));
        assert_eq!(find(&listeners, false, "::ffff:192.0.2.1"), Some(one));
        assert_eq!(find(&listeners, false, "192.0.2.2"), Some(any));
        assert_eq!(find(&listeners, true, "192.0.2.1"), Some(datagrams));
        assert_eq!(listeners.add(&listen(Transport::Uc, None)), Err(CallError::ServiceInUse));
        listeners.remove(any);
        assert_eq!(find(&listeners, false, "192.0.2.2"), None);
    }

    #[test]
    fn a_family_is_not_the_other() {
        let service = ServiceId::new(PortSpace::Ib, 1);
        let (four, six) = ("192.0.2.1", "2001:db8::1");
        for order in [["0.0.0.0", "::"], ["::", "0.0.0.0"]] {
            let mut listeners = Listeners::default();
            let find = |listeners: &Listeners, address: &str| {
                Some(listeners.find(service, false, address.parse().unwrap())?.id)
            };
            let ids = order.map(|all| {
                let id = listeners.add(&listen(Transport::Rc, Some(all))).unwrap();
                let (own, other) = if all == "::" { (six, four) } else { (four, six) };
                assert_eq!(find(&listeners, own), Some(id));
                assert_ne!(find(&listeners, other), Some(id));
                id
            });
            let any = listeners.add(&listen(Transport::Rc, None)).unwrap();
            for id in ids {
                listeners.remove(id);
            }
            assert_eq!([four, six].map(|address| find(&listeners, address)), [Some(any); 2]);
        }
    }

    #[test]
    fn slots_of_a_listener_that_went_are_not_another_s() {
        let mut listeners = Listeners::default();
        let service = ServiceId::new(PortSpace::Ib, 1);
        let (here, there) = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        let id = listeners.add(&listen(Transport::Rc, None)).unwrap();
        let old = listeners.enter(service, false, here, there).unwrap();
        assert!(listeners.enter(service, false, here, there).is_none());
        listeners.remove(id);
        listeners.add(&listen(Transport::Rc, None)).unwrap();
        let new = listeners.enter(service, false, here, there).unwrap();
        listeners.leave(old);
        assert!(!listeners.nobody_waits());
        listeners.leave(new);
        assert!(listeners.nobody_waits());
    }
}
