// SPDX-License-Identifier: MIT OR Apache-2.0

//! Packets on their way out, as a datagram port takes them.

use alloc::collections::TryReserveError;
use alloc::vec::Vec;
use core::ops::Range;

use iwarp_types::{Digest, Numbering, OutboundTrain, Path, Trains};

use super::icrc::{self, Identification, LastStart};
use super::opcode::CNP;
use super::packet::CNP_LEN;
use super::{BTH_LEN, Bth, Header, ICRC_LEN, Mtu, Pkey, Psn, padding};

/// Packets that go one way in one send: all as long as the first, but the last, which may be
/// shorter. They are for one queue pair: a train received in one piece goes to the process of the
/// first packet, and another queue pair may be another process's.
#[derive(Clone, Debug)]
struct Train {
    /// Their way.
    path: Path,
    dest_qp: u32,
    /// Octets of the first packet, behind the UDP header.
    segment: usize,
    /// The number of packets.
    packets: usize,
    range: Range<usize>,
    /// The ICRC's digest before the transport header of the first packet. That of a later packet as
    /// long differs only by the identification.
    start: Digest,
}

/// Packets that are to be sent: trains, whole with their ICRCs.
#[derive(Clone, Debug)]
pub struct Burst {
    numbering: Numbering,
    /// Storage, which keeps its length: octets to be overwritten need not be cleared.
    octets: Vec<u8>,
    used: usize,
    trains: Vec<Train>,
    budget: usize,
    /// The weight of its packets, and its limit: see [`Self::limit`].
    weight: usize,
    most: usize,
    most_trains: usize,
    /// Most trains go the way of the one before, which is mostly gone.
    start: LastStart,
}

impl Burst {
    /// The weight of a packet beside its octets, roughly as systems count it for their buffers.
    pub const OVERHEAD: usize = 1280;

    /// Packets in one train: the kernel takes no more (ROCE-027).
    const MAX_PACKETS: usize = icrc::NUMBERS;
    /// Octets of one train: as many as fit an IPv4 packet.
    const MAX_OCTETS: usize = icrc::MAX_LEN;

    /// Octets of a packet at most.
    const LONGEST: usize = Header::MAX_LEN + Mtu::Mtu4096.octets() + ICRC_LEN;

    /// An empty burst that takes packets while it has fewer octets than `budget`.
    pub const fn new(numbering: Numbering, budget: usize) -> Self {
        Self {
            numbering,
            octets: Vec::new(),
            used: 0,
            trains: Vec::new(),
            budget,
            weight: 0,
            most: usize::MAX,
            most_trains: usize::MAX,
            start: LastStart::new(),
        }
    }

    /// The weight of its packets: their octets, and [`Self::OVERHEAD`] each.
    pub const fn weight(&self) -> usize {
        self.weight
    }

    /// Octets of its packets, ICRCs included.
    pub const fn octets(&self) -> usize {
        self.used
    }

    /// Until the next call, the burst counts as full once it weighs so much more than now, give or
    /// take a packet; `None` lifts the limit.
    pub const fn limit(&mut self, more: Option<usize>) {
        self.most = match more {
            Some(more) => self.weight.saturating_add(more),
            None => usize::MAX,
        };
    }

    /// The identifications that its ICRCs take the port to give.
    pub const fn numbering(&self) -> Numbering {
        self.numbering
    }

    /// True if it takes no more.
    pub const fn is_full(&self) -> bool {
        self.used >= self.budget
            || self.weight >= self.most
            || self.trains.len() >= self.most_trains
    }

    /// True if it is empty.
    pub const fn is_empty(&self) -> bool {
        self.trains.is_empty()
    }

    /// Allocates storage for all that it takes, so that it never grows: such a burst is full at so
    /// many trains, too.
    ///
    /// # Errors
    ///
    /// If there is no memory; then it grows as before.
    pub fn reserve(&mut self, trains: usize) -> Result<(), TryReserveError> {
        debug_assert!(self.is_empty());
        let octets = self.budget.saturating_add(Self::LONGEST);
        self.octets.try_reserve_exact(octets.saturating_sub(self.octets.len()))?;
        self.trains.try_reserve_exact(trains)?;
        self.most_trains = trains;
        Ok(())
    }

    /// Changes the identifications that its ICRCs take the port to give, while it is empty.
    pub fn set_numbering(&mut self, numbering: Numbering) {
        debug_assert!(self.is_empty());
        self.numbering = numbering;
    }

    /// Empties it, and keeps its storage.
    pub fn clear(&mut self) {
        self.used = 0;
        self.weight = 0;
        self.trains.clear();
    }

    /// The trains.
    pub fn trains(&self) -> impl ExactSizeIterator<Item = OutboundTrain<'_>> + DoubleEndedIterator {
        self.trains.iter().map(|train| train.with_octets(&self.octets))
    }

    /// The number of packets of the train at that place; 0 where there is none.
    pub fn packets_of(&self, train: usize) -> usize {
        self.trains.get(train).map_or(0, |train| train.packets)
    }

    /// The packets one by one, ICRCs included, as a network carries them.
    pub fn packets(&self) -> impl Iterator<Item = (&Path, &[u8])> {
        self.trains().flat_map(|train| {
            train.octets.chunks(train.segment).map(move |packet| (train.path, packet))
        })
    }

    /// Appends a packet with so many octets of payload, all of which `fill` writes and feeds to the
    /// digest in one pass. The caller first checks that the burst is not [full](Self::is_full).
    ///
    /// # Errors
    ///
    /// The error of `fill`; then nothing was appended.
    pub fn push<E>(
        &mut self,
        path: &Path,
        header: &Header,
        payload: usize,
        fill: impl FnOnce(&mut [u8], &mut Digest) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut headers = [0; Header::MAX_LEN];
        let header_len = header.write(payload, &mut headers);
        self.append(path, header.bth.dest_qp, &headers[..header_len], payload, fill)
    }

    /// Appends a notification that packets of the peer's queue pair met congestion (ROCE-142).
    pub fn push_congestion(&mut self, path: &Path, pkey: Pkey, dest_qp: u32) {
        let mut headers = [0; CNP_LEN];
        if let Some(bth) = headers.first_chunk_mut::<BTH_LEN>() {
            Bth { pkey, becn: true, ..Bth::new(dest_qp, Psn::default()) }.write(CNP, 0, bth);
        }
        let _ = self.append(path, dest_qp, &headers, 0, |_, _| Ok::<(), ()>(()));
    }

    #[inline]
    fn append<E>(
        &mut self,
        path: &Path,
        dest_qp: u32,
        headers: &[u8],
        payload: usize,
        fill: impl FnOnce(&mut [u8], &mut Digest) -> Result<(), E>,
    ) -> Result<(), E> {
        let header_len = headers.len();
        let pad = padding(payload);
        let len = header_len + payload + pad + ICRC_LEN;
        let train = self.trains.last_mut().filter(|train| train.takes(path, dest_qp, len));
        let mut digest = match &train {
            Some(train) => train.next(self.numbering, len),
            None => self.start.of(path, len),
        };
        let start = digest;
        icrc::headers(&mut digest, headers);

        let range = self.used..self.used + len;
        if self.octets.len() < range.end {
            self.octets.resize(range.end, 0);
        }
        let packet = &mut self.octets[range.clone()];
        packet[..header_len].copy_from_slice(headers);
        let (body, icrc) = packet[header_len..].split_at_mut(payload + pad);
        if payload > 0 {
            fill(&mut body[..payload], &mut digest)?;
        }
        body[payload..].fill(0);
        digest.update(&body[payload..]);
        icrc.copy_from_slice(&digest.wire());

        self.used = range.end;
        self.weight += len + Self::OVERHEAD;
        match train {
            Some(train) => {
                train.packets += 1;
                train.range.end = range.end;
            }
            None => {
                let (path, segment, packets) = (*path, len, 1);
                self.trains.push(Train { path, dest_qp, segment, packets, range, start });
            }
        }
        Ok(())
    }
}

impl Trains for Burst {
    fn numbering(&self) -> Numbering {
        self.numbering
    }

    fn train(&self, index: usize) -> Option<OutboundTrain<'_>> {
        self.trains.get(index).map(|train| train.with_octets(&self.octets))
    }
}

impl Train {
    /// The train as a port takes it, of a burst with these octets.
    #[inline]
    fn with_octets<'a>(&'a self, octets: &'a [u8]) -> OutboundTrain<'a> {
        let Self { path, segment, packets, range, .. } = self;
        let octets = &octets[range.clone()];
        OutboundTrain { path, segment: *segment, packets: *packets, octets }
    }

    /// True if a packet of so many octets may be the train's next.
    fn takes(&self, path: &Path, dest_qp: u32, len: usize) -> bool {
        let octets = self.range.len();
        // A shorter packet ended the train.
        self.dest_qp == dest_qp
            && self.path == *path
            && octets == self.packets * self.segment
            && len <= self.segment
            && self.packets < Burst::MAX_PACKETS
            && octets + len <= Burst::MAX_OCTETS
    }

    /// The digest at the start of the train's next packet.
    fn next(&self, numbering: Numbering, len: usize) -> Digest {
        let number = match numbering {
            Numbering::Counted => self.packets,
            Numbering::Zero => 0,
        };
        if len == self.segment {
            icrc::renumbered(self.start, &self.path, number)
        } else {
            icrc::start(&self.path, Identification::new(number as u16), len)
        }
    }
}

#[cfg(test)]
mod tests {
    use core::convert::Infallible;

    use super::*;
    use crate::wire::{Bth, Message, Position, Psn, SendTail, Transport};
    use iwarp_types::AddressVector;

    fn path() -> Path {
        let address = AddressVector::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        Path::new(address, 0xc000)
    }

    fn push(burst: &mut Burst, path: &Path, payload: usize) {
        push_to(17, burst, path, payload);
    }

    fn push_to(dest_qp: u32, burst: &mut Burst, path: &Path, payload: usize) {
        let header = Header {
            bth: Bth::new(dest_qp, Psn::new(0)),
            transport: Transport::Rc,
            deth: None,
            message: Message::Send { position: Position::Middle, tail: SendTail::Plain },
        };
        let fill = |out: &mut [u8], digest: &mut Digest| {
            digest.update(out);
            Ok::<(), Infallible>(())
        };
        burst.push(path, &header, payload, fill).unwrap();
    }

    #[test]
    fn it_is_full_by_weight_where_that_is_limited() {
        let mut burst = Burst::new(Numbering::Counted, 1 << 20);
        push(&mut burst, &path(), 1024);
        let one = 12 + 1024 + 4 + Burst::OVERHEAD;
        assert_eq!(burst.weight(), one);
        burst.limit(Some(2 * one));
        for full in [false, true] {
            push(&mut burst, &path(), 1024);
            assert_eq!(burst.is_full(), full);
        }
        burst.limit(None);
        assert!(!burst.is_full());
        burst.clear();
        assert_eq!(burst.weight(), 0);
    }

    #[test]
    fn it_never_grows_beyond_what_was_reserved() {
        let mut burst = Burst::new(Numbering::Counted, 100_000);
        burst.reserve(50).unwrap();
        let storage = |burst: &Burst| (burst.octets.capacity(), burst.trains.capacity());
        let reserved = storage(&burst);
        for (payload, different) in [(8, true), (4096, false), (4096, true)] {
            let mut source_port = 0;
            while !burst.is_full() {
                source_port += u16::from(different);
                push(&mut burst, &Path { source_port, ..path() }, payload);
            }
            assert_eq!(storage(&burst), reserved);
            burst.clear();
        }
    }

    #[test]
    fn trains_have_packets_of_one_length_and_a_shorter_last_one() {
        let mut burst = Burst::new(Numbering::Counted, 1 << 20);
        for payload in [1024, 1024, 5, 1024, 2048, 1024] {
            push(&mut burst, &path(), payload);
        }
        push(&mut burst, &Path { source_port: 1, ..path() }, 1024);
        let trains: Vec<(usize, usize, usize)> = burst
            .trains()
            .map(|train| (train.packets, train.segment, train.octets.len()))
            .collect();
        let len = |payload: usize| 12 + payload + 4;
        assert_eq!(
            trains,
            [
                (3, len(1024), 2 * len(1024) + len(8)),
                (1, len(1024), len(1024)),
                (2, len(2048), len(2048) + len(1024)),
                (1, len(1024), len(1024)),
            ]
        );
        assert_eq!(burst.packets().count(), 7);
        burst.clear();
        assert!(burst.is_empty());
    }

    /// The receiving host gives a train that comes in one piece to a single process.
    ///
    /// Covers: ROCE-175
    #[test]
    fn a_train_is_for_one_queue_pair() {
        let mut burst = Burst::new(Numbering::Counted, 1 << 20);
        for dest_qp in [17, 17, 18, 17, 17] {
            push_to(dest_qp, &mut burst, &path(), 1024);
        }
        burst.push_congestion(&path(), Pkey::default(), 17);
        let trains: Vec<_> = burst.trains().map(|train| train.packets).collect();
        assert_eq!(trains, [2, 1, 3]);
    }

    /// Covers: ROCE-027
    #[test]
    fn a_train_is_no_longer_than_the_kernel_takes() {
        let mut burst = Burst::new(Numbering::Counted, 1 << 20);
        for _ in 0..100 {
            push(&mut burst, &path(), 8);
        }
        assert_eq!(burst.trains().next().unwrap().packets, 64);
        burst.clear();
        for _ in 0..100 {
            push(&mut burst, &path(), 4096);
        }
        assert_eq!(burst.trains().next().unwrap().packets, 15);
    }

    /// Covers: ROCE-021, ROCE-027
    #[test]
    fn each_packet_of_a_train_has_the_icrc_of_its_number() {
        let to_6 = |last| [0xfd77, 0, 0, 0, 0, 0, 0, last].into();
        let path_6 = Path::new(AddressVector::new(to_6(1), to_6(2)), 0xc000);
        for (path, numbering) in
            [(path(), Numbering::Counted), (path(), Numbering::Zero), (path_6, Numbering::Counted)]
        {
            let mut burst = Burst::new(numbering, 1 << 20);
            // The storage is used a second time, longer than before.
            for payload in [40, 129] {
                burst.clear();
                for _ in 0..63 {
                    push(&mut burst, &path, payload);
                }
                push(&mut burst, &path, 3);
                assert_eq!(burst.trains().count(), 1);
                for (number, (path, packet)) in burst.packets().enumerate() {
                    let (octets, icrc) = packet.split_last_chunk().unwrap();
                    let number = if numbering == Numbering::Counted { number as u16 } else { 0 };
                    assert_eq!(icrc::of(path, Identification::new(number), octets), *icrc);
                    let pad = padding(if number < 63 { payload } else { 3 });
                    assert!(octets.ends_with(&[0, 0, 0][..pad]));
                }
            }
        }
    }

    /// Covers: ROCE-142
    #[test]
    fn a_notification_of_congestion_is_one_to_its_receiver() {
        use crate::wire::icrc::IdMemory;
        use crate::wire::{Counters, Received, receive};
        let mut burst = Burst::new(Numbering::Zero, 1 << 20);
        burst.push_congestion(&path(), Pkey(0x8001), 0x12_3456);
        let (way, octets) = burst.packets().next().unwrap();
        assert_eq!(octets[..12], [0x81, 0x40, 0x80, 1, 0x40, 0x12, 0x34, 0x56, 0, 0, 0, 0]);
        assert_eq!(octets[12..28], [0; 16]);
        let mut counters = Counters::default();
        let received =
            receive(way, octets, Default::default(), &mut IdMemory::new(4).unwrap(), &mut counters);
        assert_eq!(received, Some(Received::Congestion { qp: 0x12_3456 }));
    }

    #[test]
    fn a_packet_with_an_unreadable_payload_is_not_sent() {
        let mut burst = Burst::new(Numbering::Zero, 1);
        let header = Header {
            bth: Bth::new(17, Psn::new(0)),
            transport: Transport::Rc,
            deth: None,
            message: Message::Send { position: Position::Only, tail: SendTail::Plain },
        };
        assert_eq!(burst.push(&path(), &header, 1, |_, _| Err("gone")), Err("gone"));
        assert!(burst.is_empty() && !burst.is_full());
    }
}
