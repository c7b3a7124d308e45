// SPDX-License-Identifier: MIT OR Apache-2.0

//! The attributes of a queue pair over datagrams on its way to RTR and RTS.

use std::io;
use std::sync::atomic::Ordering;

use iwarp_types::{AddressVector, QpState};

use crate::connect::{DatagramAttributes, Peer, Retry};
use crate::engine::numbers::PSN_BITS;
use crate::engine::options::Wire;
use crate::verbs::qp::{Inner, ModifyError, QueuePair, check_source};
use crate::wire::choice::set_attributes;

impl QueuePair {
    /// Gives a queue pair over datagrams the attributes for its next state, before [`Self::modify`]
    /// moves it there: in Init at least, and before RTR. This also connects an RC queue pair that
    /// may speak RoCE v2 ([`Wire`](crate::Wire)); or it adds the attributes that [`Peer`] lacks,
    /// and [`Self::connect_to`] moves the queue pair to RTR.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a queue pair that is never over datagrams, and for a source address that
    /// is not its device's, or not its port's.
    pub fn set_datagram(&self, attributes: &DatagramAttributes) -> io::Result<()> {
        let inner = self.inner()?;
        if let Some(way) = attributes.address {
            check_source(inner.endpoint.home(), way.source)?;
        }
        set_attributes(&inner.endpoint, attributes)?;
        if inner.meeting.is_some() {
            self.set_psn(attributes.sq_psn);
            self.set_retry(attributes.as_retry());
            self.set_rnr_retry(attributes.rnr_retry);
            self.set_rnr_timer(attributes.min_rnr_timer);
        }
        *inner.told.lock() = *attributes;
        Ok(())
    }

    /// True if [`Self::set_datagram`] applies to it.
    pub fn may_use_datagrams(&self) -> bool {
        let inner = self.inner().ok();
        inner.is_some_and(|inner| inner.endpoint.may_use_datagrams())
    }

    /// The protocol that an RC queue pair speaks with its peer; `None` until it is known, and for
    /// other protocols ([`crate::wire`]).
    pub fn wire(&self) -> Option<Wire> {
        self.inner().ok()?.endpoint.wire()
    }

    /// The peer of an RC queue pair, where [`Self::set_datagram`] has said it.
    pub(super) fn told_peer(&self) -> Option<Peer> {
        let inner = self.inner().ok()?;
        inner.meeting.as_ref()?;
        inner.told.lock().as_peer()
    }

    /// Takes an RC queue pair that speaks RoCE v2 only to RTR; false where it does not.
    pub(super) fn speaks_roce_to(&self, peer: &Peer) -> Result<bool, ModifyError> {
        let Inner { endpoint, told, .. } = self.inner()?;
        if !endpoint.may_use_datagrams() {
            return Ok(false);
        }
        let mut told = told.lock();
        *told = told.toward(peer);
        set_attributes(endpoint, &told)?;
        if endpoint.profile.options.spoken() != Wire::Roce {
            return Ok(false);
        }
        endpoint.go_on_over_packets();
        endpoint.listen_for_datagrams()?;
        endpoint.modify(QpState::Rtr)?;
        Ok(true)
    }

    /// Says what only counts from RTS on.
    pub(super) fn tell_for_rts(&self) -> io::Result<()> {
        let Inner { endpoint, meeting, psn, retry, told, .. } = self.inner()?;
        if meeting.is_none() || !endpoint.may_use_datagrams() {
            return Ok(());
        }
        let mut told = told.lock();
        told.sq_psn = psn.load(Ordering::Relaxed);
        told.set_retry(*retry.lock());
        set_attributes(endpoint, &told)
    }
}

impl DatagramAttributes {
    /// These with what is said of the peer. Over RoCE v2 the ends agree on nothing: the smaller of
    /// the two read depths stands for the one that the peer serves.
    fn toward(mut self, peer: &Peer) -> Self {
        let address = AddressVector::new(peer.local, peer.gid);
        let ends = |way: &AddressVector| (way.source, way.destination);
        self.address = self.address.filter(|way| ends(way) == ends(&address)).or(Some(address));
        self.dest_qp = peer.qpn;
        self.rq_psn = peer.psn;
        self.max_rd_atomic = peer.ord.min(peer.ird).min(u8::MAX.into()) as u8;
        self.max_dest_rd_atomic = peer.ird.min(u8::MAX.into()) as u8;
        self
    }

    /// The peer, where its address is said.
    fn as_peer(&self) -> Option<Peer> {
        let way = self.address?;
        let mut peer = Peer::at(way.source, way.destination, self.dest_qp, self.rq_psn & PSN_BITS);
        peer.ird = self.max_dest_rd_atomic.into();
        peer.ord = self.max_rd_atomic.into();
        Some(peer)
    }

    /// The time that an answer may take, and the number of tries.
    fn as_retry(&self) -> Retry {
        let timeout = (self.timeout != 0).then(|| Retry::local_ack_timeout(self.timeout));
        Retry::new(timeout, self.retry_count)
    }

    /// Likewise: the next longer of the times that the protocol has.
    fn set_retry(&mut self, retry: Retry) {
        self.timeout = retry.timeout.map_or(0, |timeout| {
            (1..31).find(|code| Retry::local_ack_timeout(*code) >= timeout).unwrap_or(31)
        });
        self.retry_count = retry.count.min(7);
    }
}

#[cfg(all(test, not(model)))]
mod tests {
    use std::net::IpAddr;
    use std::time::Duration;

    use super::*;

    fn ip(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    fn way(to: u8) -> AddressVector {
        AddressVector { traffic_class: 0x20, ..AddressVector::new(ip(1), ip(to)) }
    }

    #[test]
    fn a_way_to_the_peer_keeps_what_the_program_said_of_it() {
        let peer = Peer::at(ip(1), ip(2), 17, 0x0012_3456);
        let told = DatagramAttributes::default().address(way(2)).toward(&peer);
        assert_eq!((told.address, told.dest_qp, told.rq_psn), (Some(way(2)), 17, 0x0012_3456));
        for before in [None, Some(way(3))] {
            let told = DatagramAttributes::default().address(before).toward(&peer);
            assert_eq!(told.address, Some(AddressVector::new(ip(1), ip(2))), "{before:?}");
        }
    }

    #[test]
    fn read_depths_are_those_that_both_ends_have_within_8_bits() {
        for (ird, ord, expected) in [(4, 9, (4, 4)), (9, 4, (4, 9)), (300, 400, (255, 255))] {
            let peer = Peer::at(ip(1), ip(2), 17, 0).ird(ird).ord(ord);
            let told = DatagramAttributes::default().toward(&peer);
            assert_eq!((told.max_rd_atomic, told.max_dest_rd_atomic), expected, "{ird}, {ord}");
        }
    }

    #[test]
    fn a_peer_needs_an_address_and_has_24_bits_of_a_number() {
        let told = DatagramAttributes::default().dest_qp(17).rq_psn(0xff12_3456);
        assert_eq!(told.as_peer(), None);
        let peer = told.address(way(2)).max_rd_atomic(3).max_dest_rd_atomic(5).as_peer();
        assert_eq!(peer, Some(Peer::at(ip(1), ip(2), 17, 0x0012_3456).ord(3).ird(5)));
    }

    #[test]
    fn a_retry_becomes_the_next_longer_code() {
        let coded = |timeout: Option<Duration>, count| {
            let mut told = DatagramAttributes::default();
            told.set_retry(Retry::new(timeout, count));
            (told.timeout, told.retry_count)
        };
        let exact = Retry::local_ack_timeout(14);
        assert_eq!(coded(Some(exact), 3), (14, 3));
        assert_eq!(coded(Some(exact + Duration::from_nanos(1)), 7), (15, 7));
        assert_eq!(coded(Some(Duration::ZERO), 0), (1, 0), "0 would be for ever");
        assert_eq!(coded(Some(Duration::MAX), 200), (31, 7));
        assert_eq!(coded(None, 8), (0, 7));
    }

    #[test]
    fn each_code_comes_back() {
        for code in 0..32 {
            let mut told = DatagramAttributes::default().timeout(code).retry_count(code % 8);
            let retry = told.as_retry();
            (told.timeout, told.retry_count) = (77, 77);
            told.set_retry(retry);
            assert_eq!((told.timeout, told.retry_count), (code, code % 8));
        }
    }
}
