// SPDX-License-Identifier: MIT OR Apache-2.0

//! Peers that do not keep to the rules: each fault has its name, and ends the connection.

use std::time::Duration;

use iwarp_sockets::stream::{Config, Failure, SendError, Stream, Unusable, Violation};
use iwarp_sockets::wire::{ByteOrder, ConnData, Control, Entry, IomapEntry, Message};
use iwarp_types::Time;
use proptest::prelude::*;

use crate::support::{End, Packet, config};

fn end() -> End {
    End::new(config(), &config().conn_data())
}

fn message(message: Message) -> Packet {
    Packet::Immediate(message.to_immediate())
}

/// The violation that these packets are.
fn violation(packets: &[Packet]) -> Violation {
    let mut end = end();
    let (last, before) = packets.split_last().unwrap();
    for packet in before {
        end.arrive(packet).unwrap();
        end.poll(Duration::ZERO);
    }
    let violation = end.arrive(last).unwrap_err();
    // It is the end, for the program and for the queue pair.
    assert_eq!(end.send(b"more"), Err(SendError::Lost));
    assert!(end.stream.condition().readiness().error);
    assert_eq!(end.stream.take_error(), Some(Failure::Violation(violation)));
    assert_eq!(end.stream.take_error(), None);
    assert!(end.stream.condition().readiness().hangup);
    assert_eq!(end.poll(Duration::ZERO), []);
    assert!(end.disconnected);
    // Later messages are not looked at.
    end.arrive(last).unwrap();
    assert_eq!(end.poll(Duration::ZERO), []);
    violation
}

/// Covers: RS-MSG-08, RS-IO-05
#[test]
fn each_fault_ends_the_connection_by_name() {
    let data = |octets| message(Message::Data(octets));
    let beyond = |octets, room| Violation::DataBeyondRoom { octets, room };
    let unknown = violation(&[Packet::Immediate([0x20, 0, 0, 0])]);
    assert!(matches!(unknown, Violation::Unknown(_)));
    assert_eq!(violation(&[Packet::Send(vec![0; 5])]), Violation::MessageLen(5));
    assert_eq!(violation(&[Packet::Send(vec![])]), Violation::MessageLen(0));
    assert_eq!(violation(&[data(0)]), Violation::EmptyData);
    assert_eq!(violation(&[data(33)]), beyond(33, 32));
    assert_eq!(violation(&[data(30), data(3)]), beyond(3, 2));
    assert_eq!(violation(&[data(32), data(32), data(1)]), beyond(1, 0));
    let shutdown = message(Message::Control(Control::Shutdown));
    assert_eq!(violation(&[shutdown, data(1)]), Violation::DataAfterEnd);
    let index = Violation::IomapIndex { index: 4, entries: 4 };
    assert_eq!(violation(&[message(Message::Iomap(4))]), index);
    let credits = |limit| Violation::Credits { limit, before: 16, sent: 0, queue: 16 };
    assert_eq!(violation(&[message(Message::Credits(17))]), credits(17));
    assert_eq!(violation(&[message(Message::Credits(15))]), credits(15));

    let mut end = end();
    for _ in 0..16 {
        end.arrive(&data(1)).unwrap();
    }
    let more = end.arrive(&data(1));
    assert_eq!(more, Err(Violation::BeyondCredits), "before new ones were given");
}

/// Covers: RS-MSG-08, RS-IO-05
#[test]
fn announced_memory_has_an_end() {
    let Config { sgl, order, .. } = config();
    let write = |at, octets: &[u8]| Packet::Write {
        addr: sgl.addr + at,
        key: sgl.key,
        octets: octets.to_vec(),
    };
    let entry = Entry { addr: u64::MAX, key: 1, length: 2 };
    let announced = [write(16, &entry.write(order)), message(Message::Credits(16))];
    assert!(matches!(violation(&announced), Violation::Memory(_)));
    let region = IomapEntry { offset: u64::MAX, addr: 0, key: 1, length: 2 };
    let mapped = [write(32, &region.write(order)), message(Message::Iomap(0))];
    assert!(matches!(violation(&mapped), Violation::Memory(_)));
}

/// Covers: RS-WIRE-04
#[test]
fn private_data_must_describe_memory() {
    let good = config().conn_data();
    let refused = |data: ConnData| Stream::new(config(), &data, Time::default()).unwrap_err();
    assert_eq!(refused(ConnData { credits: 0, ..good }), Unusable::NoCredits);
    let sgl = Entry { length: 1, ..good.sgl };
    assert_eq!(refused(ConnData { sgl, ..good }), Unusable::SglEntries(1));
    let ring = Entry { length: 0, ..good.ring };
    assert_eq!(refused(ConnData { ring, ..good }), Unusable::NoRing);
    let ring = Entry { addr: u64::MAX - 8, ..good.ring };
    assert!(matches!(refused(ConnData { ring, ..good }), Unusable::Memory(_)));
    // The table has 2 * 16 + 4 * 24 octets.
    let sgl = Entry { addr: u64::MAX - 127, ..good.sgl };
    assert!(matches!(refused(ConnData { sgl, ..good }), Unusable::Memory(_)));
    let sgl = Entry { addr: u64::MAX - 128, ..good.sgl };
    assert!(Stream::new(config(), &ConnData { sgl, ..good }, Time::default()).is_ok());
}

#[derive(Clone, Debug)]
enum Step {
    Packet(Packet),
    Table(usize, u8),
    Send(usize),
    Write(u64),
    Take(usize),
    Complete,
    Shut,
    Poll,
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        any::<[u8; 4]>().prop_map(|octets| Step::Packet(Packet::Immediate(octets))),
        prop::collection::vec(any::<u8>(), 3..6)
            .prop_map(|octets| Step::Packet(Packet::Send(octets))),
        (0u32..40).prop_map(|octets| Step::Packet(message(Message::Data(octets)))),
        (0u32..5).prop_map(|index| Step::Packet(message(Message::Iomap(index)))),
        (10u16..60).prop_map(|limit| Step::Packet(message(Message::Credits(limit)))),
        (0usize..128, any::<u8>()).prop_map(|(at, octet)| Step::Table(at, octet)),
        (0usize..100).prop_map(Step::Send),
        any::<u64>().prop_map(Step::Write),
        (0usize..100).prop_map(Step::Take),
        Just(Step::Complete),
        Just(Step::Shut),
        Just(Step::Poll),
    ]
}

proptest! {
    #[test]
    fn no_peer_brings_the_stream_out_of_its_bounds(
        steps in prop::collection::vec(any_step(), 0..100), is_big: bool
    ) {
        let order = if is_big { ByteOrder::Big } else { ByteOrder::Little };
        let peer = ConnData { order, ..config().conn_data() };
        let mut end = End::new(Config { order, ..config() }, &peer);
        for step in steps {
            match step {
                Step::Packet(packet) if end.receives > 0 => {
                    let _ = end.arrive(&packet);
                }
                Step::Packet(_) => {}
                Step::Table(at, octet) => end.table.0[at] = octet,
                Step::Send(octets) => {
                    let _ = end.send(&vec![1; octets]);
                }
                Step::Write(offset) => {
                    let _ = end.write(offset, &[2; 20]);
                }
                Step::Take(octets) => {
                    prop_assert!(end.receive(octets).len() <= octets);
                }
                Step::Complete => end.take_request(),
                Step::Shut => end.stream.close(),
                Step::Poll => {
                    end.poll(Duration::ZERO);
                }
            }
            prop_assert!(end.stream.readable() <= 64 && end.stream.room() <= 64);
        }
    }
}
