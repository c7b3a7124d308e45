// SPDX-License-Identifier: MIT OR Apache-2.0

//! The attributes of a queue pair over datagrams on its way to RTR and RTS.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::Ordering;

use iwarp_roce::Attributes;
use iwarp_roce::wire::{Mtu, PORT, Path, Pkey, Psn, RnrTimer};
use iwarp_types::{Access, AddressVector, QpState};

use crate::engine::numbers::{Number, Numbers, PSN_BITS};
use crate::engine::options::Wire;
use crate::setters::setters;
use crate::verbs::pd::PdCore;
use crate::verbs::qp::{Inner, ModifyError, QueuePair};
use crate::wire::iwarp::rendezvous::{Peer, Retry};

/// The attributes of an RC queue pair before the program has told it anything.
pub(super) fn untold() -> DatagramAttributes {
    DatagramAttributes::default().access(Access::REMOTE)
}

/// The number of an RC queue pair that is found by it: by TCP, by datagrams, or both.
pub(super) fn addressable_number(pd: &PdCore) -> io::Result<Number> {
    let PdCore { engine, mux, .. } = pd;
    match engine.options.spoken() {
        Wire::Iwarp => engine.numbers.addressable(),
        Wire::Auto => {
            // It is iWARP where there are no datagrams.
            let found = mux.open_if_any(engine).map(|mux| engine.numbers.addressable_by_both(&mux));
            found.and_then(Result::ok).map_or_else(|| engine.numbers.addressable(), Ok)
        }
        Wire::Roce => {
            let mux = mux.open(engine)?;
            let number = engine.numbers.addressable_by_both(&mux);
            number
                .ok()
                .filter(|number| number.mux().is_some())
                .map_or_else(|| Numbers::of_datagrams(&mux), Ok)
        }
    }
}

impl QueuePair {
    /// Gives a queue pair over datagrams the attributes for its next state, before [`Self::modify`]
    /// moves it there: in Init at least, and before RTR. This also connects an RC queue pair that
    /// may speak RoCE v2 ([`Wire`](crate::Wire)); or it adds the attributes that [`Peer`] lacks,
    /// and [`Self::connect_to`] moves the queue pair to RTR.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a queue pair that is never over datagrams.
    pub fn set_datagram(&self, attributes: &DatagramAttributes) -> io::Result<()> {
        let inner = self.inner()?;
        inner.endpoint.set_datagram(attributes.of_protocol())?;
        if inner.meeting.is_some() {
            self.set_psn(attributes.sq_psn);
            self.set_retry(attributes.retry());
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
        inner.told.lock().peer()
    }

    /// Takes an RC queue pair that speaks RoCE v2 only to RTR; false where it does not.
    pub(super) fn speaks_roce_to(&self, peer: &Peer) -> Result<bool, ModifyError> {
        let Inner { endpoint, told, .. } = self.inner()?;
        if !endpoint.may_use_datagrams() {
            return Ok(false);
        }
        let mut told = told.lock();
        *told = told.toward(peer);
        endpoint.set_datagram(told.of_protocol())?;
        if endpoint.engine.options.spoken() != Wire::Roce {
            return Ok(false);
        }
        endpoint.speak_roce();
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
        endpoint.set_datagram(told.of_protocol())
    }
}

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
    /// Local ACK timeout code, 4.096 µs · 2^code; 0 waits for ever, 1 to 9 count as 10, 4.2 ms (RC).
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
    /// The peer's rights over datagrams, unless [`QueuePair::set_remote_access`] says them.
    pub access: Access,
}

impl Default for DatagramAttributes {
    fn default() -> Self {
        Self {
            qkey: 0,
            address: None,
            dest_qp: 0,
            pkey: Pkey::DEFAULT.0,
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
    fn peer(&self) -> Option<Peer> {
        let way = self.address?;
        let mut peer = Peer::at(way.source, way.destination, self.dest_qp, self.rq_psn & PSN_BITS);
        peer.ird = self.max_dest_rd_atomic.into();
        peer.ord = self.max_rd_atomic.into();
        Some(peer)
    }

    /// The time that an answer may take, and the number of tries.
    fn retry(&self) -> Retry {
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

    /// As the protocol has them.
    pub(super) fn of_protocol(&self) -> Attributes {
        let unset = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let address = self.address.unwrap_or(AddressVector::new(unset, unset));
        Attributes {
            path: Path::new(address, PORT),
            dest_qp: self.dest_qp,
            pkey: Pkey(self.pkey),
            mtu: Mtu::largest_within(self.path_mtu as usize),
            sq_psn: Psn::new(self.sq_psn),
            rq_psn: Psn::new(self.rq_psn),
            timeout: self.timeout,
            retry_count: self.retry_count,
            rnr_retry: self.rnr_retry,
            min_rnr_timer: RnrTimer::new(self.min_rnr_timer),
            max_rd_atomic: self.max_rd_atomic,
            max_dest_rd_atomic: self.max_dest_rd_atomic,
            access: self.access,
            qkey: self.qkey,
        }
    }
}
