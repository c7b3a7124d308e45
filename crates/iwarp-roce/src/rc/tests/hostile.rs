// SPDX-License-Identifier: MIT OR Apache-2.0

//! A peer that says anything at any time: nothing panics, every request ends once and in its order,
//! and what is kept stays bounded.

use iwarp_types::{AtomicOp, SendOp};
use proptest::prelude::*;

use super::*;
use crate::wire::{AtomicEth, AtomicKind, Pkey, RnrTimer};

/// A step of a run.
#[derive(Clone, Debug)]
enum Act {
    /// The peer sends a packet: PSN behind the first, of which direction.
    Take {
        number: i8,
        ack_req: bool,
        message: Message,
        length: u16,
    },
    Post {
        kind: u8,
        length: u16,
    },
    PostRecv {
        length: u16,
    },
    Transmit {
        budget: u16,
    },
    Wait {
        micros: u32,
    },
    Congested,
    Drain(bool),
}

fn reths() -> impl Strategy<Value = Reth> {
    let length = prop_oneof![0u32..2000, Just(MTU as u32), any::<u32>()];
    let at = prop_oneof![0u64..2000, any::<u64>()];
    let key = prop_oneof![5 => Just(REMOTE), 1 => any::<u32>()];
    (at, key, length).prop_map(|(at, key, length)| Reth {
        va: TaggedOffset(REMOTE_BASE.wrapping_add(at)),
        rkey: Stag(key),
        length,
    })
}

fn aeths() -> impl Strategy<Value = Aeth> {
    let code = prop_oneof![
        10 => Just(NakCode::SequenceError),
        1 => Just(NakCode::InvalidRequest),
        1 => Just(NakCode::RemoteAccess),
    ];
    let syndrome = prop_oneof![
        20 => Just(Syndrome::ACK),
        10 => (0..32u8).prop_map(|code| Syndrome::RnrNak(RnrTimer::new(code))),
        10 => code.prop_map(Syndrome::Nak),
        1 => Just(Syndrome::Reserved(0x41)),
    ];
    (syndrome, any::<u16>()).prop_map(|(syndrome, msn)| Aeth { syndrome, msn: msn.into() })
}

fn positions() -> impl Strategy<Value = Position> {
    prop_oneof![
        Just(Position::First),
        Just(Position::Middle),
        Just(Position::Last),
        Just(Position::Only)
    ]
}

fn messages() -> impl Strategy<Value = Message> {
    let immediate = || prop::option::of(any::<[u8; 4]>());
    prop_oneof![
        (positions(), immediate()).prop_map(|(position, data)| Message::Send {
            position,
            tail: data.map_or(SendTail::Plain, SendTail::Immediate),
        }),
        positions().prop_map(|position| Message::Send {
            position,
            tail: SendTail::Invalidate(Stag(REMOTE + 1)),
        }),
        (any::<bool>(), reths(), immediate())
            .prop_map(|(only, reth, immediate)| Message::WriteBegin { only, reth, immediate }),
        (any::<bool>(), immediate())
            .prop_map(|(last, immediate)| Message::WriteMore { last, immediate }),
        reths().prop_map(Message::ReadRequest),
        (reths(), any::<u64>()).prop_map(|(Reth { va, rkey, .. }, add)| {
            Message::Atomic(AtomicEth { va, rkey, kind: AtomicKind::FetchAdd { add } })
        }),
        aeths().prop_map(Message::Acknowledge),
        (positions(), aeths()).prop_map(|(position, aeth)| Message::ReadResponse {
            position,
            aeth: (position != Position::Middle).then_some(aeth),
        }),
        (aeths(), any::<u64>())
            .prop_map(|(aeth, original)| Message::AtomicAcknowledge { aeth, original }),
    ]
}

fn acts() -> impl Strategy<Value = Act> {
    let lengths = || prop_oneof![0u16..300, Just(MTU as u16), 0u16..2000];
    prop_oneof![
        10 => (-3i8..12, any::<bool>(), messages(), lengths()).prop_map(
            |(number, ack_req, message, length)| Act::Take { number, ack_req, message, length }
        ),
        4 => (0..7u8, lengths()).prop_map(|(kind, length)| Act::Post { kind, length }),
        2 => lengths().prop_map(|length| Act::PostRecv { length }),
        5 => (1..3000u16).prop_map(|budget| Act::Transmit { budget }),
        2 => (0..300_000u32).prop_map(|micros| Act::Wait { micros }),
        1 => Just(Act::Congested),
        1 => any::<bool>().prop_map(Act::Drain),
    ]
}

fn post(bench: &mut Bench, wr_id: u64, kind: u8, length: u32) -> bool {
    let (stag, to) = (Stag(9), TaggedOffset(0));
    let list = [local(8, length / 2), local(4000, length - length / 2)];
    let word = [local(0, 8)];
    let op = AtomicOp::FetchAdd { add: 1, mask: 0 };
    let request = match kind {
        0 => SendRequest::send(wr_id, &list),
        1 => SendRequest::write(wr_id, &list, stag, to),
        2 | 3 => SendRequest::read(wr_id, &list, stag, to),
        4 => SendRequest::atomic(wr_id, &word, stag, to, op),
        5 => SendRequest::new(wr_id, SendOp::LocalInvalidate(Stag(REMOTE + 2)), &[][..]),
        _ => SendRequest::send(wr_id, &list).fenced(),
    };
    bench.rc.post_send(&request.signaled()).is_ok()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: super::network::cases(), ..Default::default() })]

    /// Covers: ROCE-053, ROCE-066, ROCE-071, ROCE-090, ROCE-094
    #[test]
    fn a_peer_may_say_anything(acts in prop::collection::vec(acts(), 1..80)) {
        let mut bench = Bench::new();
        let (mut sends, mut receives) = (0, 0);
        let mut events = Vec::new();
        for act in acts {
            match act {
                Act::Take { number, ack_req, message, length } => {
                    let first = if message.is_response() { OWN_PSN } else { PEER_PSN };
                    let psn = Psn::new(first.number().wrapping_add_signed(number.into()));
                    let bth = Bth { pkey: Pkey(0x7fff), ..Bth::new(OWN_QP, psn).asking(ack_req) };
                    bench.take_header(header(bth, message), &pattern(length.into(), 1));
                }
                Act::Post { kind, length } => {
                    sends += u64::from(post(&mut bench, sends, kind, length.into()));
                }
                Act::PostRecv { length } => {
                    let list = [local(0, length.into())];
                    let request = RecvRequest::new(receives, &list);
                    receives += u64::from(bench.rc.post_recv(&request).is_ok());
                }
                Act::Transmit { budget } => {
                    let sent = bench.sent_within(budget.into());
                    prop_assert!(sent.len() <= usize::from(budget) / 16 + 1);
                }
                Act::Wait { micros } => bench.wait(Duration::from_micros(micros.into())),
                Act::Congested => bench.congested(),
                Act::Drain(drain) => {
                    let to = if drain { QpState::Sqd } else { QpState::Rts };
                    let _ = bench.rc.modify(to);
                }
            }
            events.extend(bench.events());
        }
        bench.rc.disconnect();
        bench.sent();
        events.extend(bench.events());
        let sent = |event: &Event| match event {
            Event::SendCompleted(wc) => Some(wc.wr_id),
            _ => None,
        };
        let received = |event: &Event| match event {
            Event::ReceiveCompleted(wc) => Some(wc.wr_id),
            _ => None,
        };
        prop_assert!(events.iter().filter_map(sent).eq(0..sends));
        prop_assert!(events.iter().filter_map(received).eq(0..receives));
        let is_end = |event: &&Event| {
            matches!(event, Event::Lost | Event::Fault(_) | Event::Terminated(_))
        };
        prop_assert!(events.iter().filter(is_end).count() <= 1);
        prop_assert_eq!(bench.rc.outstanding(), (0, 0));
    }
}
