// SPDX-License-Identifier: MIT OR Apache-2.0

//! The two halves of a link that work on bytes, of its core's kind.
//!
//! iWARP's are pipelines beside the lock of the endpoint, which they take for single decisions. The
//! framing of their segments is chosen here: MPA's, on the terms of start-up. Another core does the
//! work itself, locked. A match stands at the top of each call.

use iwarp_mem::MemoryTable;
use iwarp_proto::framing::{Deframe as _, Frame as _};
use iwarp_proto::mpa::rx::Deframer;
use iwarp_proto::mpa::startup::Negotiated;
use iwarp_proto::mpa::tx::Framer;
use iwarp_proto::mpa::wire::mulpdu;
use iwarp_proto::qp::{Direct, Named, Receiver, Taken, Transmit, Transmitter};
use iwarp_types::{AccessError, Accessor, BoxedCore, Core as _, Delivery, PdId, Wanted};

use super::shared::Receiving;
use crate::capture::NextUnit;
use crate::engine::endpoint::Endpoint;

/// The part that takes apart bytes that have come.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "nearly all are the first")]
pub(super) enum Incoming {
    Iwarp(Receiver<Deframer>),
    Other {
        /// The core lets nothing more be read.
        stalled: bool,
    },
}

/// The part that builds bytes that go out.
#[derive(Debug)]
pub(super) enum Outgoing {
    Iwarp(Transmitter<Framer>),
    Other,
}

impl Incoming {
    /// `terms`: what MPA start-up has agreed on; none for a core that is not iWARP's.
    /// `receives`: the domain of their memory.
    pub(super) fn new(terms: Option<&Negotiated>, who: Accessor, receives: PdId) -> Self {
        match terms {
            Some(terms) => {
                let receiver = Receiver::new(terms.deframer(), who);
                Self::Iwarp(receiver.with_receives_of(receives))
            }
            None => Self::Other { stalled: false },
        }
    }

    /// Takes bytes and returns how many were used; the rest comes again.
    #[inline]
    pub(super) fn receive(
        &mut self,
        by: &Receiving<'_>,
        memory: &MemoryTable,
        octets: &mut [u8],
    ) -> usize {
        let endpoint = by.endpoint;
        match self {
            Self::Iwarp(receiver) => receiver.receive(by, memory, endpoint.pool(), octets),
            Self::Other { stalled } => endpoint.with_own(|core: &mut BoxedCore| {
                let used = core.receive(octets, memory, endpoint.pool());
                *stalled = core.is_stalled();
                used.min(octets.len())
            }),
        }
    }

    /// True if messages wait for receives.
    #[inline]
    pub(super) fn has_waiting(&self, endpoint: &Endpoint) -> bool {
        match self {
            Self::Iwarp(receiver) => receiver.has_waiting(),
            Self::Other { .. } => endpoint.has_parked(),
        }
    }

    /// See [`Receiver::waiting`]: of the bytes of another core, all wait that wait at all.
    #[inline]
    pub(super) fn waiting(&self, endpoint: &Endpoint) -> Option<u64> {
        match self {
            Self::Iwarp(receiver) => Some(receiver.waiting()),
            Self::Other { .. } => (!self.has_waiting(endpoint)).then_some(0),
        }
    }

    /// See [`Receiver::take_named`].
    #[inline]
    pub(super) fn take_named(&mut self) -> Option<Named> {
        match self {
            Self::Iwarp(receiver) => receiver.take_named(),
            Self::Other { .. } => None,
        }
    }

    /// True if reading waits until there are receives.
    #[inline]
    pub(super) fn is_stalled(&self) -> bool {
        match self {
            Self::Iwarp(receiver) => receiver.is_stalled(),
            Self::Other { stalled } => *stalled,
        }
    }

    /// The peer has closed its side; so many bytes were left unused. `acknowledged`: see
    /// [`Receiver::eof`].
    pub(super) fn eof(
        &mut self,
        endpoint: &Endpoint,
        unused: usize,
        acknowledged: impl FnOnce() -> Option<u64>,
    ) {
        match self {
            Self::Iwarp(receiver) => receiver.eof(endpoint, unused, acknowledged),
            Self::Other { .. } => endpoint.with_own(|core: &mut BoxedCore| core.eof(unused)),
        }
    }

    /// As [`Outgoing::switched`], for what comes.
    pub(super) fn switched(&mut self, crc: bool) {
        if let (Self::Iwarp(receiver), false) = (self, crc) {
            receiver.change_deframer(Deframer::stop_crc);
        }
    }

    /// See [`Receiver::direct`].
    #[inline]
    pub(super) fn direct(&mut self) -> Option<Direct> {
        match self {
            Self::Iwarp(receiver) => receiver.direct(),
            Self::Other { .. } => None,
        }
    }

    /// See [`Receiver::received_directly`].
    #[inline]
    pub(super) fn received_directly(&mut self, octets: usize) {
        if let Self::Iwarp(receiver) = self {
            receiver.received_directly(octets);
        }
    }

    /// The next message unit of the stream, of which `unused` bytes were left; `None` for a core
    /// that is not iWARP's.
    pub(super) fn next_unit<'a>(&self, unused: &'a [u8]) -> Option<NextUnit<'a>> {
        let Self::Iwarp(receiver) = self else { return None };
        let (deframer, left) = (receiver.deframer(), receiver.left_of_frame());
        Some(NextUnit {
            at: deframer.position() + left as u64,
            has_markers: deframer.interleaves(),
            rest: left.saturating_sub(unused.len()),
            begun: if left == 0 { unused } else { &[] },
        })
    }

    /// See [`Receiver::direct_refused`].
    pub(super) fn direct_refused(&mut self, error: AccessError) {
        if let Self::Iwarp(receiver) = self {
            receiver.direct_refused(error);
        }
    }
}

impl Outgoing {
    /// As [`Incoming::new`]. A message unit has `unit` bytes at most, if that is fixed, or what a
    /// segment of the transport takes.
    pub(super) fn new(
        terms: Option<&Negotiated>,
        who: Accessor,
        unit: Option<usize>,
        max_segment: impl FnOnce() -> usize,
    ) -> Self {
        terms.map_or(Self::Other, |terms| {
            let unit = unit.unwrap_or_else(|| mulpdu(max_segment(), terms.send_markers));
            Self::Iwarp(Transmitter::new(terms.framer(), who, unit))
        })
    }

    /// Builds bytes until `budget` of them wait, `out` is full, or there is nothing to send. False
    /// in the last case.
    #[inline]
    pub(super) fn transmit(
        &mut self,
        endpoint: &Endpoint,
        memory: &MemoryTable,
        out: &mut Transmit,
        budget: usize,
    ) -> bool {
        match self {
            Self::Iwarp(transmitter) => transmitter.transmit(endpoint, memory, out, budget),
            Self::Other => endpoint.with_own(|core: &mut BoxedCore| {
                while out.len() < budget && out.has_room() {
                    if out.build(|room| core.transmit(room, memory)) == 0 {
                        return false;
                    }
                }
                true
            }),
        }
    }

    /// The completions that `out` brings about at the peer, if it begins with a whole message unit
    /// and that is known.
    pub(super) fn delivery(&self, out: &Transmit) -> Delivery {
        match self {
            Self::Iwarp(transmitter) => transmitter.delivery(out),
            Self::Other => Delivery::Nothing,
        }
    }

    /// The stream has taken `n` bytes of `out`.
    #[inline]
    pub(super) fn taken(&mut self, endpoint: &Endpoint, out: &mut Transmit, n: usize) -> Taken {
        match self {
            Self::Iwarp(transmitter) => transmitter.taken(endpoint, out, n),
            Self::Other => {
                out.drop_front(n);
                endpoint.with_own(|core: &mut BoxedCore| {
                    core.taken(n);
                    let more = core.wanted() != Wanted::Nothing;
                    let (disposition, connected) = (core.disposition(), core.is_connected());
                    Taken { more, awaited: false, disposition, connected }
                })
            }
        }
    }

    /// The stream has moved past TCP: what is built from now on has CRCs no more, unless they are
    /// asked for.
    pub(super) fn switched(&mut self, crc: bool) {
        if let (Self::Iwarp(transmitter), false) = (self, crc) {
            transmitter.change_framer(Framer::stop_crc);
        }
    }

    /// The next message unit that will be built, behind `waiting` bytes that were.
    pub(super) fn next_unit(&self, waiting: usize) -> Option<NextUnit<'static>> {
        let Self::Iwarp(transmitter) = self else { return None };
        let framer = transmitter.framer();
        let (at, has_markers) = (framer.position(), framer.interleaves());
        Some(NextUnit { at, has_markers, rest: waiting, begun: &[] })
    }

    /// Registered bytes of `out` are gone.
    pub(super) fn lost(
        &self,
        endpoint: &Endpoint,
        out: &Transmit,
        number: usize,
        error: AccessError,
    ) {
        // Another core stages all it sends.
        if let Self::Iwarp(transmitter) = self {
            transmitter.lost(endpoint, out, number, error);
        }
    }

    /// Segments of the transport have so many bytes now.
    pub(super) fn set_max_segment(&mut self, octets: usize) {
        if let Self::Iwarp(transmitter) = self {
            transmitter.set_mulpdu(mulpdu(octets, transmitter.framer().interleaves()));
        }
    }
}
