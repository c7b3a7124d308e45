// SPDX-License-Identifier: MIT OR Apache-2.0

//! Segments of one message that are decided on together, sent or received, end as they would one by
//! one: the same octets, the same placements, the same fault with the same segment.

use iwarp_types::NoPool;
use proptest::prelude::*;
use proptest::sample::Index;

use super::octets::{self, read_request, tagged, untagged};
use super::splits::{Outcome, stage, steps};
use super::*;
use crate::qp::Shared;
use crate::rdmap::error::RdmapError;

/// A mishap to segments on their way, or to the memory that they go to.
#[derive(Clone, Debug)]
enum Mishap {
    None,
    /// A bit of a ULPDU is another, under a good CRC: mostly one of the header.
    Altered(Index, usize, u8),
    /// A bit of an FPDU is another.
    Damaged(Index, u8),
    Missing(Index),
    Twice(Index),
    /// After so many accesses there are no more.
    Revoked(usize, AccessError),
}

fn refusal() -> impl Strategy<Value = AccessError> {
    prop_oneof![
        Just(AccessError::InvalidStag),
        Just(AccessError::Bounds),
        Just(AccessError::NotAssociated),
    ]
}

fn mishap() -> impl Strategy<Value = Mishap> {
    let at = prop_oneof![3 => 0usize..18, 1 => 0usize..2000];
    prop_oneof![
        1 => Just(Mishap::None),
        3 => (any::<Index>(), at, 0u8..8).prop_map(|(n, at, bit)| Mishap::Altered(n, at, bit)),
        // L.
        1 => any::<Index>().prop_map(|n| Mishap::Altered(n, 0, 6)),
        1 => (any::<Index>(), 0u8..8).prop_map(|(at, bit)| Mishap::Damaged(at, bit)),
        1 => any::<Index>().prop_map(Mishap::Missing),
        1 => any::<Index>().prop_map(Mishap::Twice),
        3 => (0usize..60, refusal()).prop_map(|(after, error)| Mishap::Revoked(after, error)),
    ]
}

impl Mishap {
    fn change(&self, ulpdus: &mut Vec<Vec<u8>>) {
        if ulpdus.is_empty() {
            return;
        }
        match self {
            Self::Altered(n, at, bit) => {
                let ulpdu = n.get_mut(ulpdus);
                let at = at % ulpdu.len();
                ulpdu[at] ^= 1 << bit;
            }
            Self::Missing(n) => drop(ulpdus.remove(n.index(ulpdus.len()))),
            Self::Twice(n) => {
                let n = n.index(ulpdus.len());
                ulpdus.insert(n, ulpdus[n].clone());
            }
            Self::None | Self::Damaged(..) | Self::Revoked(..) => {}
        }
    }
}

/// Many short segments, as a small MTU makes them of a message.
fn cut(opcode: u8, segments: u32, each: u32) -> Vec<Vec<u8>> {
    let at = |n: u32| (n + 1 == segments, n * each, pattern(each as usize, n as u8));
    let make = |n| match (opcode, at(n)) {
        (octets::WRITE, (last, offset, octets)) => {
            tagged(opcode, last, OPEN, OPEN_BASE + u64::from(offset), &octets)
        }
        (_, (last, offset, octets)) => untagged(opcode, last, OPEN, 0, 1, offset, &octets),
    };
    (0..segments).map(make).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn segments_that_come_together_end_as_those_that_come_one_by_one(
        steps in steps(),
        mishap in mishap(),
        (crc, markers) in any::<(bool, bool)>(),
    ) {
        // Without CRC a damaged length has no end.
        let crc = crc || matches!(mishap, Mishap::Damaged(..));
        let outcome = |together: bool| {
            let (mut raw, mut ulpdus) = stage(&steps, crc, markers);
            mishap.change(&mut ulpdus);
            let mut fpdus: Vec<Vec<u8>> = ulpdus.iter().map(|ulpdu| raw.fpdu(ulpdu)).collect();
            if let Mishap::Damaged(at, bit) = &mishap && !fpdus.is_empty() {
                let fpdu = at.get_mut(&mut fpdus);
                // Behind the length, without which the CRC cannot be found.
                let at = 6 + at.index(fpdu.len() - 6);
                fpdu[at] ^= 1 << bit;
            }
            if let Mishap::Revoked(after, error) = mishap {
                raw.end.host.revoke_after.set(Some((after, error)));
            }
            if together {
                raw.end.arrive(&fpdus.concat());
            } else {
                fpdus.iter().for_each(|fpdu| raw.end.arrive(fpdu));
            }
            raw.end.host.revoke_after.set(None);
            (raw.end.host.touches(), Outcome::of(raw))
        };
        prop_assert_eq!(outcome(true), outcome(false));
    }

    #[test]
    fn segments_that_are_built_together_are_those_that_are_built_one_by_one(
        requests in proptest::collection::vec((any::<bool>(), 0u32..9000, 0u32..9000), 1..6),
        reads in proptest::collection::vec(0u32..20_000, 0..4),
        (crc, markers) in any::<(bool, bool)>(),
        mulpdu in 128usize..5000,
        revoked in prop_oneof![
            Just(None),
            (0usize..100, refusal()).prop_map(Some),
        ],
    ) {
        let outcome = |together: bool| {
            let mut raw = Raw::responder(config(), |terms| {
                (terms.crc, terms.send_markers) = (crc, markers);
            });
            raw.end.tx.set_mulpdu(mulpdu);
            raw.end.host.fill(LOCAL, 0, &pattern(30_000, 1));
            raw.end.host.fill(OPEN, 0, &pattern(30_000, 2));
            raw.send(&tagged(octets::WRITE, true, 0, 0, &[]));
            for (msn, size) in (1..).zip(&reads) {
                raw.send(&read_request(msn, *size, OPEN, OPEN_BASE));
            }
            for (wr_id, (write, a, b)) in (1..).zip(&requests) {
                let op = if *write { write_op(0) } else { SEND };
                raw.end.post(wr_id, op, &[local(0, *a), local(20_000, 0), local(10_000, *b)]);
            }
            raw.end.host.revoke_after.set(revoked);
            loop {
                let End { qp, host, tx, out, .. } = &mut raw.end;
                let budget = if together { usize::MAX } else { out.len() + 1 };
                if !tx.transmit(&*qp, &*host, out, budget) {
                    break;
                }
            }
            // Octets in memory are read again when the stream takes them.
            raw.end.host.revoke_after.set(None);
            let touches = raw.end.host.touches();
            (touches, raw.back(), raw.end.events(), raw.end.state())
        };
        prop_assert_eq!(outcome(true), outcome(false));
    }
}

/// Counts how often the queue pair is taken.
struct Counting<'a>(&'a RefCell<Qp>, Cell<usize>);

impl Shared for Counting<'_> {
    fn with<R>(&self, f: impl FnOnce(&mut Qp) -> R) -> R {
        self.1.set(self.1.get() + 1);
        self.0.with(f)
    }
}

/// The queue pair is asked about one of them, not about each.
#[test]
fn segments_that_come_together_take_the_queue_pair_but_twice() {
    for opcode in [octets::WRITE, octets::SEND] {
        let mut raw = Raw::new();
        raw.end.receive(1, &[local(0, 40_000)]);
        let ulpdus = cut(opcode, 28, 1400);
        let mut input: Vec<u8> = ulpdus.iter().flat_map(|ulpdu| raw.fpdu(ulpdu)).collect();
        let End { qp, host, rx, .. } = &mut raw.end;
        let counting = Counting(qp, Cell::new(0));
        assert_eq!(rx.receive(&counting, host, &NoPool, &mut input), input.len());
        assert_eq!(counting.1.get(), 2, "judged and ended");
        assert_eq!(host.touches().len(), 28);
        assert_eq!(raw.end.events().len(), usize::from(opcode == octets::SEND));
    }
}

/// A short message is judged, placed and reported at once; of a longer one the queue pair is free
/// while it is placed.
#[test]
fn a_short_message_takes_the_queue_pair_once() {
    for opcode in [octets::WRITE, octets::SEND] {
        for (len, times) in [(0, 1), (1, 1), (64, 1), (200, 2), (1400, 2)] {
            let mut raw = Raw::new();
            raw.end.receive(1, &[local(0, 40_000)]);
            let ulpdus = cut(opcode, 1, len);
            let mut input = raw.fpdu(&ulpdus[0]);
            let End { qp, host, rx, .. } = &mut raw.end;
            let counting = Counting(qp, Cell::new(0));
            assert_eq!(rx.receive(&counting, host, &NoPool, &mut input), input.len());
            assert_eq!(counting.1.get(), times, "{len} octets by opcode {opcode}");
            assert_eq!(host.touches().len(), usize::from(len > 0));
            assert_eq!(raw.end.events().len(), usize::from(opcode == octets::SEND));
        }
    }
}

/// The length of a Read Response is known, so its end has to be there, not before.
#[test]
fn a_read_response_that_ends_early_is_placed_up_to_the_segment_that_says_so() {
    let mut raw = Raw::initiator(config(), |_| {});
    raw.end.post(1, read_op(0), &[local(0, 10_000)]);
    let request = raw.back().remove(0);
    let (stag, to) = (octets::word(&request, 18), octets::long(&request, 22));
    let segment = |n: u64, last| {
        tagged(octets::READ_RESPONSE, last, stag, to + n * 1000, &pattern(1000, n as u8))
    };
    let ulpdus = [segment(0, false), segment(1, false), segment(2, true), segment(3, false)];
    let stream: Vec<u8> = ulpdus.iter().flat_map(|ulpdu| raw.fpdu(ulpdu)).collect();
    raw.end.arrive(&stream);
    let fault = RdmapError::Stream("Read Response is shorter than the request");
    assert_eq!(raw.end.events()[0], Event::Fault(fault.into()));
    assert_eq!(raw.terminate()[6..20], ulpdus[2][..14]);
    let placed = [pattern(1000, 0), pattern(1000, 1), vec![0; 8000]].concat();
    assert_eq!(raw.end.host.octets(LOCAL)[..10_000], placed);
}

/// An STag may be that of the very buffer that the message went to, whose use has to end before.
#[test]
fn the_use_of_a_buffer_ends_before_the_message_invalidates_it() {
    let mut raw = Raw::new();
    raw.end.host.change(OPEN, |region| region.access = Access::LOCAL_WRITE);
    raw.end.receive(1, &[Sge { addr: OPEN_BASE, length: 9000, lkey: Stag(OPEN) }]);
    let ulpdus = cut(octets::SEND_INVALIDATE, 6, 1400);
    let stream: Vec<u8> = ulpdus.iter().flat_map(|ulpdu| raw.fpdu(ulpdu)).collect();
    raw.end.arrive(&stream);
    let touches = raw.end.host.touches();
    let invalidated = Touch::Invalidated { stag: OPEN, by: Invalidator::Remote };
    assert_eq!((touches.len(), touches.last()), (7, Some(&invalidated)));
    let completions = raw.end.completions();
    assert_eq!((completions[0].byte_len, completions[0].invalidated), (8400, Some(Stag(OPEN))));
}

/// An operation for which a message asks fails behind its last segment, which is the one to be
/// quoted.
#[test]
fn a_message_whose_end_fails_is_quoted_by_its_last_segment() {
    let mut raw = Raw::new();
    raw.end.receive(1, &[local(0, 9000)]);
    let ulpdus = cut(octets::SEND_INVALIDATE, 6, 1400);
    let stream: Vec<u8> = ulpdus.iter().flat_map(|ulpdu| raw.fpdu(ulpdu)).collect();
    raw.end.host.change(OPEN, |region| region.valid = false);
    raw.end.arrive(&stream);
    assert_eq!(raw.terminate()[4..], [&1418_u16.to_be_bytes(), &ulpdus[5][..18]].concat());
}
