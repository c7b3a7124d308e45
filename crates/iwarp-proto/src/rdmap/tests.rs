// SPDX-License-Identifier: MIT OR Apache-2.0

//! Headers against octets made by hand, and the rules which opcode may stand where.

use alloc::format;
use alloc::vec::Vec;

use iwarp_types::{Stag, TaggedOffset};
use proptest::prelude::*;

use super::error::RdmapError;
use super::rx::{self, Rejected};
use super::tx;
use super::wire::{
    AOP_COMPARE_SWAP, AOP_FETCH_ADD, AtomicRequest, AtomicResponse, Opcode, ReadRequest,
    TERMINATE_MAX_LEN, Terminate, TerminateCode, TerminatedSegment, split_control,
};
use crate::ddp::error::DdpError;
use crate::ddp::wire::{Header, Tagged, Untagged};
use crate::types::{Mo, Msn, Qn};

/// Number, tagged, queue: the tables of RFC 5040 §4.1 and RFC 7306 §4.1.
const TABLE: [(u8, Opcode, Option<u32>); 12] = [
    (0x0, Opcode::Write, None),
    (0x1, Opcode::ReadRequest, Some(1)),
    (0x2, Opcode::ReadResponse, None),
    (0x3, Opcode::Send, Some(0)),
    (0x4, Opcode::SendInvalidate, Some(0)),
    (0x5, Opcode::SendSolicited, Some(0)),
    (0x6, Opcode::SendSolicitedInvalidate, Some(0)),
    (0x7, Opcode::Terminate, Some(2)),
    (0x8, Opcode::Immediate, Some(0)),
    (0x9, Opcode::ImmediateSolicited, Some(0)),
    (0xa, Opcode::AtomicRequest, Some(1)),
    (0xb, Opcode::AtomicResponse, Some(3)),
];

fn tagged(control: u8) -> Header {
    Header::Tagged(Tagged { last: true, rsvd_ulp: control, stag: Stag(1), to: TaggedOffset(2) })
}

fn untagged(control: u8, qn: u32) -> Header {
    Header::Untagged(Untagged {
        last: true,
        rsvd_ulp: [control, 1, 2, 3, 4],
        qn: Qn(qn),
        msn: Msn(1),
        mo: Mo(0),
    })
}

/// Covers: RDMAP-5040-4.1-02, RDMAP-5040-4.1-04, RDMAP-5040-4.1-05, RDMAP-5040-4.1-06,
/// RDMAP-5040-4.1-07, RDMAP-5040-3.1-02, EXT-7306-4.1-01, EXT-7306-4.1-02, EXT-7306-4.1-04
#[test]
fn opcodes_have_the_numbers_and_queues_of_the_tables() {
    for (number, opcode, queue) in TABLE {
        assert_eq!(Opcode::from_number(number), Some(opcode));
        assert_eq!(opcode.control(), 0x40 | number);
        assert_eq!(opcode.queue(), queue.map(Qn));
        assert_eq!(split_control(opcode.control()), (1, number));
    }
    for number in 0xe..=0xff {
        assert_eq!(Opcode::from_number(number), None);
    }
}

/// Covers: RDMAP-5040-4.1-01, RDMAP-5040-4.1-03, RDMAP-5040-4.1-08, RDMAP-5040-4.1-09,
/// RDMAP-5040-5.1-01, RDMAP-5040-5.2.1-01, RDMAP-5040-5.2.1-05, RDMAP-5040-5.2.2-01,
/// RDMAP-5040-5.3-01, RDMAP-5040-5.3-07, RDMAP-5040-5.3-11, RDMAP-5040-5.4-01,
/// RDMAP-5040-5.4-02, EXT-7306-4.1-03, EXT-7306-5-05, EXT-7306-5.2-01, EXT-7306-5.2-02,
/// EXT-7306-5.2.1-06, EXT-7306-5.2.1-11, EXT-7306-5.2.2-01, EXT-7306-5.2.2-02, EXT-7306-6.3-01,
/// EXT-7306-6.3-04
#[test]
fn messages_are_made_with_the_header_of_their_type() {
    for (number, opcode, queue) in TABLE {
        let Some(queue) = queue else {
            let mut message = tx::tagged(opcode, Stag(5), TaggedOffset(6), 3);
            let header = message.next_segment(128).unwrap().header;
            assert_eq!(
                header,
                Header::Tagged(Tagged {
                    last: true,
                    rsvd_ulp: 0x40 | number,
                    stag: Stag(5),
                    to: TaggedOffset(6)
                })
            );
            continue;
        };
        // Only the Sends with Invalidate carry an STag, even if the caller passes one.
        let stag = if matches!(number, 4 | 6) { [0xde, 0xad, 0xbe, 0x01] } else { [0; 4] };
        let mut message = tx::untagged(opcode, Msn(9), Stag(0xdead_be01), 3);
        let header = message.next_segment(128).unwrap().header;
        assert_eq!(
            header,
            Header::Untagged(Untagged {
                last: true,
                rsvd_ulp: [0x40 | number, stag[0], stag[1], stag[2], stag[3]],
                qn: Qn(queue),
                msn: Msn(9),
                mo: Mo(0)
            })
        );
    }
}

/// Covers: RDMAP-5040-4.1-08, RDMAP-5040-4.1-10, RDMAP-5040-7.2-02, RDMAP-5040-7.2-07,
/// EXT-7306-8.2-02
#[test]
fn every_opcode_passes_only_in_its_kind_of_segment_and_queue() {
    let numbers = || (0..16).flat_map(|number| [0x00, 0x10, 0x20, 0x30].map(|r| (number, r)));
    for highest in [Opcode::LAST_OF_RFC_5040, Opcode::LAST_OF_RFC_7306] {
        for (number, reserved) in numbers() {
            let control = 0x40 | reserved | number;
            let what = |qn| format!("{number:#x} on {qn:?}, up to {highest:?}");
            let unexpected = Err(Rejected::Rdmap(RdmapError::UnexpectedOpcode(number)));
            let row = TABLE.iter().find(|row| row.0 == number && number <= highest as u8);
            let expected = match row {
                Some(&(_, opcode, None)) => Ok(opcode),
                _ => unexpected,
            };
            assert_eq!(rx::opcode(&tagged(control), highest), expected, "{}", what(None));
            for qn in [0, 1, 2, 3] {
                let expected = match row {
                    Some(&(_, opcode, Some(queue))) if queue == qn => Ok(opcode),
                    Some((_, _, Some(_))) => Err(Rejected::Ddp(DdpError::InvalidQn)),
                    _ => unexpected,
                };
                let found = rx::opcode(&untagged(control, qn), highest);
                assert_eq!(found, expected, "{}", what(Some(qn)));
            }
            for qn in [4, 5, 0x100, u32::MAX] {
                let refused = Err(Rejected::Ddp(DdpError::InvalidQn));
                let found = rx::opcode(&untagged(control, qn), highest);
                assert_eq!(found, refused, "{}", what(Some(qn)));
            }
        }
    }
}

/// Two numbers that no RFC has given away: known only where the stream has them.
#[test]
fn our_own_opcodes_are_untagged_on_queue_0() {
    for (number, opcode) in [(0xc, Opcode::SendImmediate), (0xd, Opcode::SendImmediateSolicited)] {
        let control = 0x40 | number;
        assert_eq!(Opcode::from_number(number), Some(opcode));
        assert_eq!((opcode.control(), opcode.queue()), (control, Some(Qn(0))));
        let unexpected = Err(Rejected::Rdmap(RdmapError::UnexpectedOpcode(number)));
        let with = Opcode::LAST_OF_OURS;
        assert_eq!(rx::opcode(&untagged(control, 0), with), Ok(opcode));
        assert_eq!(rx::opcode(&tagged(control), with), unexpected);
        let queue = Err(Rejected::Ddp(DdpError::InvalidQn));
        assert_eq!(rx::opcode(&untagged(control, 1), with), queue);
        for qn in 0..4 {
            let found = rx::opcode(&untagged(control, qn), Opcode::LAST_OF_RFC_7306);
            assert_eq!(found, unexpected);
        }
        assert!(opcode.is_own());
        assert_eq!(opcode.solicited(), number == 0xd);
        let Header::Untagged(header) = untagged(control, 0) else { unreachable!() };
        assert_eq!(rx::immediate(&header), [1, 2, 3, 4]);
    }
    assert_eq!(Opcode::ALL.iter().filter(|opcode| opcode.is_own()).count(), 2);
    assert_eq!(Opcode::ALL.last(), Some(&Opcode::LAST_OF_OURS));
}

/// Covers: RDMAP-5040-4.1-07, RDMAP-5040-7.2-03, RDMAP-5040-7.2-08, EXT-7306-8.2-03
#[test]
fn every_opcode_passes_only_with_version_one() {
    for (number, _, queue) in TABLE {
        for version in [0x00, 0x80, 0xc0] {
            let header = match queue {
                None => tagged(version | number),
                Some(queue) => untagged(version | number, queue),
            };
            let found = rx::opcode(&header, Opcode::LAST_OF_OURS);
            assert_eq!(found, Err(Rejected::Rdmap(RdmapError::Version)));
        }
    }
}

/// Covers: RDMAP-5040-4.4-01, RDMAP-5040-4.4-04
#[test]
fn read_request_header_is_28_octets_in_the_order_of_section_4_4() {
    let octets: [u8; 28] = [
        1, 2, 3, 4, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0xff, 0xff, 0xff, 0xff, 5, 6,
        7, 8, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28,
    ];
    let request = ReadRequest {
        sink_stag: Stag(0x0102_0304),
        sink_to: TaggedOffset(0x1112_1314_1516_1718),
        size: u32::MAX,
        source_stag: Stag(0x0506_0708),
        source_to: TaggedOffset(0x2122_2324_2526_2728),
    };
    assert_eq!(request.octets(), octets);
    assert_eq!(ReadRequest::parse(&octets), Some(request));
    assert_eq!(ReadRequest::parse(&octets[..27]), None);
}

/// Covers: EXT-7306-5.2.1-01, EXT-7306-5.2.1-02, EXT-7306-5.2.1-15
#[test]
fn atomic_request_header_is_52_octets_in_the_order_of_figure_4() {
    let mut octets = [0; 52];
    octets[3] = 2;
    octets[4..8].copy_from_slice(&0xa1a2_a3a4u32.to_be_bytes());
    octets[8..12].copy_from_slice(&0x0102_0304u32.to_be_bytes());
    for (at, value) in [(12, 0x11u64), (20, 0x22), (28, 0x33), (36, 0x44), (44, 0x55)] {
        octets[at..at + 8].copy_from_slice(&(value << 48 | value).to_be_bytes());
    }
    let both = |value: u64| value << 48 | value;
    let request = AtomicRequest {
        operation: AOP_COMPARE_SWAP,
        request_id: 0xa1a2_a3a4,
        stag: Stag(0x0102_0304),
        to: TaggedOffset(both(0x11)),
        add_or_swap: both(0x22),
        add_or_swap_mask: both(0x33),
        compare: both(0x44),
        compare_mask: both(0x55),
    };
    assert_eq!(request.octets(), octets);
    assert_eq!((AOP_FETCH_ADD, AOP_COMPARE_SWAP), (0, 2));
    // The 28 bits before the operation are sent as zero and not looked at.
    octets[..4].copy_from_slice(&0xffff_fff2u32.to_be_bytes());
    assert_eq!(AtomicRequest::parse(&octets), Some(request));
    assert_eq!(AtomicRequest::parse(&octets[..51]), None);
}

/// Covers: EXT-7306-5.2.2-08
#[test]
fn atomic_response_header_is_12_octets_in_the_order_of_figure_6() {
    let octets = [1, 2, 3, 4, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18];
    let response = AtomicResponse { request_id: 0x0102_0304, original: 0x1112_1314_1516_1718 };
    assert_eq!(response.octets(), octets);
    assert_eq!(AtomicResponse::parse(&octets), Some(response));
    assert_eq!(AtomicResponse::parse(&octets[..11]), None);
}

fn emitted(terminate: &Terminate) -> Vec<u8> {
    let mut out = [0xee; TERMINATE_MAX_LEN];
    let len = terminate.emit(&mut out);
    out[..len].to_vec()
}

/// Covers: RDMAP-5040-4.8-01, RDMAP-5040-4.8-02, RDMAP-5040-4.8-05, RDMAP-5040-4.8-06,
/// RDMAP-5040-4.8-07, RDMAP-5040-4.8-08, RDMAP-5040-4.8-09
#[test]
fn corner_51_terminated_header_has_the_length_of_its_own_kind() {
    let code = TerminateCode { layer: 1, etype: 2, code: 0x34 };
    assert_eq!(emitted(&Terminate { code, segment: None }), [0x12, 0x34, 0, 0]);

    let mut ddp_header = [0; 18];
    for (i, octet) in ddp_header.iter_mut().enumerate() {
        *octet = i as u8 + 1;
    }
    for (first, len) in [(0x41, 18), (0xc1, 14)] {
        ddp_header[0] = first;
        let mut segment = TerminatedSegment { length: 0x1234, ddp_header, rdma_header: None };
        let mut expected = [0x12, 0x34, 0xc0, 0, 0x12, 0x34].to_vec();
        expected.extend(&ddp_header[..len]);
        assert_eq!(emitted(&Terminate { code, segment: Some(segment) }), expected);
        let parsed = Terminate::parse(&expected).unwrap().segment.unwrap();
        assert_eq!(parsed.ddp_header[..len], ddp_header[..len]);

        segment.rdma_header = Some([0xa5; 28]);
        expected[2] = 0xe0;
        expected.extend([0xa5; 28]);
        assert_eq!(emitted(&Terminate { code, segment: Some(segment) }), expected);
        let parsed = Terminate::parse(&expected).unwrap().segment.unwrap();
        assert_eq!(parsed.rdma_header, Some([0xa5; 28]));
    }
}

fn any_terminate() -> impl Strategy<Value = Terminate> {
    let segment = (any::<u16>(), any::<[u8; 18]>(), any::<Option<[u8; 28]>>()).prop_map(
        |(length, mut ddp_header, rdma_header)| {
            if ddp_header[0] & 0x80 != 0 {
                ddp_header[14..].fill(0);
            }
            TerminatedSegment { length, ddp_header, rdma_header }
        },
    );
    (0u8..16, 0u8..16, any::<u8>(), proptest::option::of(segment)).prop_map(
        |(layer, etype, code, segment)| Terminate {
            code: TerminateCode { layer, etype, code },
            segment,
        },
    )
}

proptest! {
    /// Covers: RDMAP-5040-4.8-01
    #[test]
    fn terminates_come_back_as_they_were_sent(terminate in any_terminate()) {
        prop_assert_eq!(Terminate::parse(&emitted(&terminate)), Some(terminate));
    }

    /// Covers: RDMAP-5040-4.8-05
    #[test]
    fn the_code_of_any_terminate_is_read_whatever_follows_it(
        octets in proptest::collection::vec(any::<u8>(), 0..80),
    ) {
        match Terminate::parse(&octets) {
            Some(terminate) => {
                prop_assert_eq!(terminate.code.layer, octets[0] >> 4);
                prop_assert_eq!(terminate.code.etype, octets[0] & 0x0f);
                prop_assert_eq!(terminate.code.code, octets[1]);
            }
            None => prop_assert!(octets.len() < 2),
        }
    }

    /// Covers: RDMAP-5040-4.4-01
    #[test]
    fn read_requests_come_back_as_they_were_sent(
        (sink_stag, sink_to, size, source_stag, source_to) in any::<(u32, u64, u32, u32, u64)>(),
    ) {
        let request = ReadRequest {
            sink_stag: Stag(sink_stag),
            sink_to: TaggedOffset(sink_to),
            size,
            source_stag: Stag(source_stag),
            source_to: TaggedOffset(source_to),
        };
        prop_assert_eq!(ReadRequest::parse(&request.octets()), Some(request));
    }

    /// Covers: EXT-7306-5.2.1-15, EXT-7306-5.2.2-08
    #[test]
    fn atomics_come_back_as_they_were_sent(
        operation in 0u32..16,
        (request_id, stag, to) in any::<(u32, u32, u64)>(),
        operands in any::<[u64; 4]>(),
    ) {
        let [add_or_swap, add_or_swap_mask, compare, compare_mask] = operands;
        let (stag, to) = (Stag(stag), TaggedOffset(to));
        let request = AtomicRequest {
            operation, request_id, stag, to, add_or_swap, add_or_swap_mask, compare, compare_mask,
        };
        prop_assert_eq!(AtomicRequest::parse(&request.octets()), Some(request));
        let response = AtomicResponse { request_id, original: compare };
        prop_assert_eq!(AtomicResponse::parse(&response.octets()), Some(response));
    }
}
