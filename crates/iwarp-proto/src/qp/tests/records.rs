// SPDX-License-Identifier: MIT OR Apache-2.0

//! Queue pairs over records in place of MPA: another framing changes nothing above it.

use proptest::prelude::*;

use super::twins::{TwinAction, step};
use super::*;
use crate::qp::{Fault, Park};
use crate::record::{self, LENGTH_FIELD, RecordError};

pub(super) type Records = Pair<record::Framer, record::Deframer>;

/// More than a segment over MPA can have.
const LONGEST: u32 = 200_000;
/// Octets in front of the payload of a tagged segment.
const TAGGED_HEAD: usize = LENGTH_FIELD + 14;

impl Records {
    pub(super) fn over_records(config: Config, mulpdu: usize, spare: u16) -> Self {
        let end = |role| {
            let mut terms = terms(role);
            (terms.spare_ord, terms.spare_ird) = (spare, spare);
            let framing = (record::Framer::new(LONGEST), record::Deframer::new(LONGEST));
            End::over(framing, mulpdu, established(config, &terms))
        };
        Self { a: end(Role::Initiator), b: end(Role::Responder) }
    }

    fn long() -> Self {
        Self::over_records(config(), LONGEST as usize, 0)
    }
}

/// The ULPDU of the one record that is in `octets`.
fn only_ulpdu(mut octets: Vec<u8>) -> Vec<u8> {
    let found = record::Deframer::new(LONGEST).next(&mut octets).unwrap().unwrap();
    assert_eq!(found.consumed, octets.len());
    octets.split_off(found.start)
}

#[test]
fn a_long_message_is_one_record_sent_from_its_place() {
    let mut pair = Records::long();
    let data = pattern(SIZE, 3);
    pair.a.host.fill(LOCAL, 0, &data);
    pair.a.post(1, write_op(0), &[local(0, SIZE as u32)]);
    pair.a.build();
    let in_place = Piece::Memory(Source::Local(local(0, SIZE as u32)));
    let pieces: Vec<_> = pair.a.out.pieces().cloned().collect();
    assert_eq!(pieces, [Piece::Staged(0..TAGGED_HEAD), in_place]);
    let octets = pair.a.take_all();
    assert_eq!(octets.len(), TAGGED_HEAD + SIZE);
    pair.b.arrive(&octets[..100]);
    assert_eq!(pair.b.rx.direct(), None, "no more than the header was looked at");
    for part in octets[100..].chunks(7_000) {
        pair.b.arrive(part);
    }
    assert_eq!(pair.b.host.octets(OPEN), data);
    assert_eq!(outcomes(&pair.a.completions()), [success(1, WcOp::Write)]);
}

#[test]
fn the_payload_of_a_long_record_may_be_read_to_its_place() {
    let mut pair = Records::long();
    pair.a.post(1, write_op(0), &[local(0, SIZE as u32)]);
    let octets = pair.a.take_all();
    pair.b.arrive(&octets[..LENGTH_FIELD + 128]);
    let target = pair.b.rx.direct().expect("a long payload").target;
    let Source::Remote { stag, to, len } = target else { panic!("{target:?}") };
    assert_eq!((stag, to), (Stag(OPEN), TaggedOffset(OPEN_BASE + 128 - 14)));
    assert_eq!(len as usize, SIZE - (128 - 14) - 16, "but for the last word and more");
    pair.b.rx.received_directly(len as usize);
    pair.b.arrive(&octets[octets.len() - 16..]);
    pair.a.post(2, SEND, &[local(0, 8)]);
    pair.b.receive(9, &[local(0, 8)]);
    pair.run();
    assert_eq!(outcomes(&pair.b.completions()), [success(9, WcOp::Recv)]);
}

#[test]
fn a_record_longer_than_agreed_ends_the_stream() {
    let mut pair = Records::long();
    pair.a.arrive(&(LONGEST + 1).to_be_bytes());
    let fault = Fault::Framing(RecordError::TooLong.fault());
    assert_eq!(pair.a.events(), [Event::Fault(fault)]);
    let terminate = only_ulpdu(pair.a.take_all());
    assert_eq!(terminate[18..], [0x21, 0x02, 0, 0]);
    assert_eq!(pair.a.disposition(), Disposition::Finish);
}

#[test]
fn a_stream_that_ends_within_a_record_is_broken_off() {
    for cut in [1, LENGTH_FIELD, TAGGED_HEAD + 5, 5_000] {
        let mut pair = Records::long();
        pair.a.post(1, write_op(0), &[local(0, 9_000)]);
        let octets = pair.a.take_all();
        pair.b.arrive(&octets[..cut]);
        pair.b.eof();
        let fault = Event::Fault(Fault::Framing(RecordError::Closed.fault()));
        assert_eq!(pair.b.events().last(), Some(&fault), "cut at {cut}");
        let terminate = only_ulpdu(pair.b.take_all());
        assert_eq!(terminate[18..], [0x21, 0x01, 0, 0]);
    }
}

#[test]
fn a_terminate_quotes_the_length_of_a_segment_as_far_as_its_field_goes() {
    for (len, quoted) in [(9_000, 9_014), (0xfff1, 0xffff), (0xfff2, 0xffff), (0x1_2345, 0xffff)] {
        let mut pair = Records::long();
        let op = SendOp::Write { stag: Stag(0xbad), to: TaggedOffset(0) };
        pair.a.post(1, op, &[local(0, len)]);
        let octets = pair.a.take_all();
        pair.b.arrive(&octets);
        let terminate = only_ulpdu(pair.b.take_all());
        assert_eq!(terminate[18..20], [0x11, 0x00], "an invalid STag");
        assert_eq!(u16::from_be_bytes([terminate[22], terminate[23]]), quoted);
    }
}

proptest! {
    #[test]
    fn requests_end_over_records_as_they_do_over_mpa(
        steps in prop::collection::vec(step(), 1..120),
        acknowledge in any::<bool>(),
        parks in any::<bool>(),
        crc in any::<bool>(),
        mulpdu in prop_oneof![Just(128), Just(1442), Just(5000)],
    ) {
        let park = Park { octets: 9000, messages: 3, timer: Duration::ZERO };
        let config =
            Config { acknowledge, park: parks.then_some(park), max_send_wr: 12, ..config() };
        let mut mpa = Pair::with(config, |terms| {
            (terms.crc, terms.spare_ord, terms.spare_ird) = (crc, 1, 1);
        });
        mpa.a.tx.set_mulpdu(mulpdu);
        mpa.b.tx.set_mulpdu(mulpdu);
        let mut records = Records::over_records(config, mulpdu, 1);
        for (number, mut step) in steps.into_iter().enumerate() {
            // Frames differ in length, so only all of them are equal parts of both streams.
            if let TwinAction::Move { most, .. } = &mut step {
                *most = usize::MAX;
            }
            let over_mpa = mpa.step(number as u64, step);
            let over_records = records.step(number as u64, step);
            prop_assert_eq!(
                over_mpa.above_framing(), over_records.above_framing(),
                "step {}: {:?}", number, step,
            );
        }
        // With CRC, payload is copied when it is framed, else when it is taken: it may differ where
        // requests change it in between.
        let ends = [(&mpa.a, &records.a), (&mpa.b, &records.b)];
        for (one, other) in ends.into_iter().filter(|_| !crc) {
            for stag in [LOCAL, OPEN] {
                prop_assert!(one.host.octets(stag) == other.host.octets(stag), "{:?}", stag);
            }
        }
    }
}
