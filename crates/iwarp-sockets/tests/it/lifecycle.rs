// SPDX-License-Identifier: MIT OR Apache-2.0

//! Two ends from the first announcement to the last word.

use std::time::Duration;

use iwarp_sockets::stream::{
    Action, Condition, Config, Connected, Failure, Form, MapError, Operation, SendError, Shutdown,
    Source, Wakes, Wire,
};
use iwarp_sockets::wire::{
    ByteOrder, ConnData, Control, Extensions, IomapEntry, IomapSize, Message,
};
use iwarp_types::Time;

use crate::support::{End, Packet, Pair, config};

const BOTH: Wakes = Wakes { reader: true, writer: true };
const READER: Wakes = Wakes { reader: true, writer: false };
const WRITER: Wakes = Wakes { reader: false, writer: true };

fn pair() -> Pair {
    Pair::new([config(), config()])
}

fn connected(pair: &Pair, end: usize) -> Connected {
    match pair.ends[end].stream.condition() {
        Condition::Connected(connected) => connected,
        other => panic!("{other:?}"),
    }
}

/// The messages among these packets, which are immediates.
fn messages(packets: &[Packet]) -> Vec<Message> {
    let message = |packet: &Packet| match packet {
        Packet::Immediate(octets) => Some(Message::from_immediate(*octets).unwrap()),
        _ => None,
    };
    packets.iter().filter_map(message).collect()
}

/// An end whose peer is the original, and takes no more than it announces.
fn beside_a_stranger(config: Config) -> End {
    let peer = ConnData { extensions: Extensions::empty(), ..config.conn_data() };
    End::new(config, &peer)
}

/// Covers: RS-FLOW-01, RS-FLOW-02
#[test]
fn each_end_announces_its_second_half_first() {
    let mut pair = pair();
    for end in [0, 1] {
        let packets = pair.ends[end].poll(Duration::ZERO);
        assert!(matches!(packets[0], Packet::Write { addr: 0x1010, key: 0x51, .. }));
        assert_eq!(messages(&packets), [Message::Credits(16)]);
    }
}

/// Covers: RS-FLOW-03, RS-FLOW-11
#[test]
fn data_are_cut_only_at_the_end_of_a_half() {
    let mut pair = pair();
    pair.settle();
    let sent = |packets: &[Packet]| messages(packets);
    assert_eq!(pair.ends[0].send(&[7; 20]), Ok(20));
    assert_eq!(pair.ends[0].send(&[7; 5]), Ok(5));
    assert_eq!(sent(&pair.ends[0].poll(pair.now)), [Message::Data(25)], "one for both");
    assert_eq!(pair.ends[0].send(&[7; 39]), Ok(39));
    let last = pair.ends[0].poll(pair.now);
    assert_eq!(sent(&last), [Message::Data(7), Message::Data(32)]);
    assert!(matches!(last[0], Packet::Write { addr: 0x2019, key: 0x52, .. }));
    assert!(matches!(last[2], Packet::Write { addr: 0x2020, key: 0x52, .. }));
    assert_eq!(pair.ends[0].send(&[7; 5]), Ok(0), "the buffer waits for the transport");
}

/// Covers: RS-FLOW-06
#[test]
fn credits_come_with_half_of_the_queue_or_a_half_of_the_ring() {
    let mut pair = pair();
    pair.settle();
    let mut given = Vec::new();
    for octet in 1..=20 {
        pair.ends[0].send(&[octet]).unwrap();
        pair.poll(0);
        while pair.deliver(1).is_some() {}
        let packets = pair.ends[1].poll(pair.now);
        given.extend(messages(&packets).into_iter().map(|message| (octet, message)));
        pair.on_the_way[0].extend(packets);
        pair.settle();
    }
    assert_eq!(given, [(8, Message::Credits(24)), (16, Message::Credits(32))]);
    assert_eq!(pair.ends[1].receive(31).len(), 20);
    pair.ends[0].send(&[9; 12]).unwrap();
    pair.settle();
    assert_eq!(pair.ends[1].receive(12).len(), 12);
    let packets = pair.ends[1].poll(pair.now);
    assert_eq!(messages(&packets), [Message::Credits(16 + 21)], "the first half is free");
    assert!(matches!(packets[0], Packet::Write { addr: 0x1000, key: 0x51, .. }));
}

/// Covers: RS-FLOW-09
#[test]
fn more_receives_are_posted_than_announced() {
    assert_eq!(config().receives(), u32::from(config().conn_data().credits) + 8);
}

/// The original sends while it does not look at what comes, and has only the receives that it
/// announces.
///
/// Covers: RS-FLOW-09
#[test]
fn a_stranger_has_receives_for_control_messages() {
    let config = Config { immediates: false, ..config() };
    let mut pair = Pair::of_strangers([config.clone(), config]);
    for _ in 0..8 {
        pair.ends[1].send(b"x").unwrap();
        pair.poll(1);
    }
    while pair.deliver(0).is_some() {}
    for _ in 0..16 {
        pair.ends[0].send(b"y").unwrap();
        pair.poll(0);
        while !pair.ends[0].untaken.is_empty() {
            pair.ends[0].take_request();
        }
    }
    pair.ends[0].stream.shutdown(Shutdown::Write);
    pair.settle();
    assert_eq!(pair.ends[1].receive(100), b"yyyyyyyyyyyyyyyy");
    assert!(pair.ends[1].stream.is_read_over());
}

/// Each region costs a credit, which comes back.
///
/// Covers: RS-FLOW-07, RS-IO-02
#[test]
fn credits_of_regions_come_back() {
    let config = Config { iomap: IomapSize::covering(1), ..config() };
    let mut pair = Pair::new([config.clone(), config]);
    pair.settle();
    for round in 0..200_u64 {
        let region = IomapEntry { offset: round, addr: 0x9000, key: 9, length: 16 };
        pair.ends[0].stream.map(region).unwrap();
        assert_eq!(pair.ends[0].send(b"x"), Ok(1), "round {round}");
        pair.settle();
        assert_eq!(pair.ends[1].receive(10), b"x", "round {round}");
        assert_eq!(pair.ends[1].stream.write_space(round, 100).unwrap().len(), 16);
        assert_eq!(pair.ends[0].stream.unmap(0x9000, 16), Some(region));
        pair.settle();
    }
}

/// Covers: RS-IO-02
#[test]
fn regions_are_told_with_the_next_data() {
    let mut pair = pair();
    pair.settle();
    let region = IomapEntry { offset: 1000, addr: 0x9000, key: 9, length: 16 };
    pair.ends[0].regions.push((region, vec![0; 16]));
    pair.ends[0].stream.map(region).unwrap();
    assert_eq!(pair.ends[0].poll(pair.now), [], "not before there are data");
    pair.ends[0].send(b"look").unwrap();
    let packets = pair.ends[0].poll(pair.now);
    assert_eq!(messages(&packets), [Message::Iomap(0), Message::Data(4)]);
    pair.on_the_way[1].extend(packets);
    assert_eq!(pair.ends[1].write(1000, b"early"), Err(SendError::Unmapped));
    pair.settle();
    assert_eq!(pair.ends[1].write(999, b"before"), Err(SendError::Unmapped));
    assert_eq!(pair.ends[1].write(1016, b"behind"), Err(SendError::Unmapped));
    assert_eq!(pair.ends[1].write(1014, b"end"), Ok(2), "what fits");
    assert_eq!(pair.ends[1].write(1000, b"begin"), Ok(5));
    pair.ends[1].send(b"done").unwrap();
    let packets = pair.ends[1].poll(pair.now);
    assert_eq!(messages(&packets), [Message::Data(4)], "no message for the region");
    assert!(matches!(packets[1], Packet::Write { addr: 0x9000, key: 9, .. }), "in order");
    pair.on_the_way[0].extend(packets);
    pair.settle();
    assert_eq!(pair.ends[0].regions[0].1, b"begin\0\0\0\0\0\0\0\0\0en");

    for n in 1..4 {
        let region = IomapEntry { offset: n, addr: n, key: 9, length: 1 };
        pair.ends[0].stream.map(region).unwrap();
    }
    let one_more = IomapEntry { offset: 7, addr: 7, key: 9, length: 1 };
    assert_eq!(pair.ends[0].stream.map(one_more), Err(MapError::Full(4)));
    assert_eq!(pair.ends[0].stream.unmap(0x9000, 15), None);
    assert_eq!(pair.ends[0].stream.unmap(0x9000, 16), Some(region));
    pair.settle();
    assert_eq!(pair.ends[1].stream.write_space(1000, 1).unwrap().len(), 1, "nobody tells");
}

/// Covers: RS-CLOSE-01, RS-CLOSE-02
#[test]
fn a_half_closed_stream_goes_on_the_other_way() {
    let mut pair = pair();
    pair.ends[0].send(b"question").unwrap();
    pair.ends[0].stream.shutdown(Shutdown::Write);
    let packets = pair.ends[0].poll(pair.now);
    let said = messages(&packets);
    assert_eq!(said[1..], [Message::Data(8), Message::Control(Control::Shutdown)]);
    assert_eq!(pair.ends[0].send(b"more"), Err(SendError::ShutDown));
    pair.on_the_way[1].extend(packets);
    pair.settle();
    assert!(pair.ends[1].stream.is_read_over());
    assert_eq!(pair.ends[1].receive(100), b"question");
    pair.ends[1].send(b"answer").unwrap();
    pair.settle();
    pair.ends[1].stream.shutdown(Shutdown::Write);
    let packets = pair.ends[1].poll(pair.now);
    assert_eq!(messages(&packets), [Message::Control(Control::Disconnect)]);
    pair.on_the_way[0].extend(packets);
    assert!(!pair.ends[1].disconnected, "the last word is not on its way yet");
    pair.settle();
    assert!(pair.ends.iter().all(|end| end.disconnected));
    assert_eq!(pair.ends[0].receive(100), b"answer");
    assert_eq!(pair.ends[0].stream.take_error(), None);
}

/// Covers: RS-CLOSE-02
#[test]
fn shutdowns_that_cross_end_the_connection() {
    let mut pair = pair();
    pair.settle();
    for end in [0, 1] {
        pair.ends[end].stream.shutdown(Shutdown::Write);
        let packets = pair.ends[end].poll(pair.now);
        assert_eq!(messages(&packets), [Message::Control(Control::Shutdown)]);
        pair.on_the_way[1 - end].extend(packets);
    }
    pair.deliver(1);
    pair.deliver(1);
    assert_eq!(pair.ends[1].poll(pair.now), []);
    assert!(!pair.ends[1].disconnected, "its own word has not been taken");
    pair.settle();
    assert!(pair.ends.iter().all(|end| end.disconnected));
}

/// Covers: RS-CLOSE-01, RS-CLOSE-03
#[test]
fn close_hands_over_everything_first() {
    let mut pair = pair();
    pair.settle();
    pair.ends[1].send(b"late").unwrap();
    assert_eq!(pair.ends[0].send(&[5; 64]), Ok(64));
    pair.poll(0);
    pair.ends[0].take_request();
    pair.ends[0].take_request();
    let more = pair.ends[0].send(&[6; 64]).unwrap();
    assert!(more > 0);
    pair.ends[0].stream.close();
    pair.settle();
    assert!(!pair.ends[0].disconnected, "data are left");
    let mut received = pair.ends[1].receive(100);
    pair.settle();
    received.extend(pair.ends[1].receive(100));
    assert_eq!(received.len(), 64 + more);
    assert!(pair.ends.iter().all(|end| end.disconnected));
    assert_eq!(pair.ends[0].receive(100), b"", "nobody wants what came after");
    assert_eq!(pair.ends[1].send(b"x"), Err(SendError::PeerClosed));
    assert_eq!(pair.ends[1].stream.take_error(), None);
}

/// Two programs that write and do not read, one of which closes.
#[test]
fn a_closed_end_does_not_stop_its_peer() {
    let mut pair = pair();
    pair.settle();
    let mut stuck = [0, 0];
    loop {
        let before = stuck;
        for end in [0, 1] {
            stuck[end] += pair.ends[end].send(&[end as u8; 10]).unwrap();
            pair.settle();
        }
        if before == stuck {
            break;
        }
    }
    pair.ends[0].stream.close();
    pair.settle();
    assert!(pair.ends[1].send(&[1; 10]).unwrap() > 0, "its octets are thrown away");
}

/// Covers: RS-CLOSE-01
#[test]
fn shutting_reading_down_says_something_only_at_the_end() {
    let mut pair = pair();
    pair.settle();
    pair.ends[0].stream.shutdown(Shutdown::Read);
    assert_eq!(pair.ends[0].poll(pair.now), []);
    pair.ends[1].send(b"still").unwrap();
    pair.settle();
    assert_eq!(pair.ends[0].receive(10), b"still", "as with TCP");
    pair.ends[0].stream.shutdown(Shutdown::Write);
    assert_eq!(messages(&pair.ends[0].poll(pair.now)), [Message::Control(Control::Disconnect)]);
}

#[test]
fn an_end_without_a_word_is_a_reset_behind_the_data() {
    let mut pair = pair();
    pair.ends[1].send(b"last").unwrap();
    pair.settle();
    pair.ends[0].stream.wakes();
    pair.ends[0].stream.lost();
    assert_eq!(pair.ends[0].stream.wakes(), BOTH);
    assert_eq!(pair.ends[0].receive(10), b"last");
    assert!(pair.ends[0].stream.condition().readiness().error);
    assert_eq!(pair.ends[0].stream.take_error(), Some(Failure::Reset));
    assert_eq!(pair.ends[0].stream.take_error(), None);
    assert!(pair.ends[0].stream.is_read_over());
    assert_eq!(pair.ends[0].send(b"x"), Err(SendError::Lost));
    pair.poll(0);
    assert!(pair.ends[0].disconnected);

    pair.ends[1].stream.close();
    pair.settle();
    pair.ends[1].stream.lost();
    assert_eq!(pair.ends[1].stream.take_error(), None, "it had said that it is over");
}

#[test]
fn a_peer_that_shut_down_and_went_is_no_reset_for_the_reader() {
    let mut pair = pair();
    pair.ends[1].stream.shutdown(Shutdown::Write);
    pair.settle();
    pair.ends[0].stream.lost();
    assert_eq!(pair.ends[0].stream.take_error(), None);
    assert!(pair.ends[0].stream.is_read_over());
    assert_eq!(pair.ends[0].send(b"x"), Err(SendError::Lost));
}

#[test]
fn close_leaves_no_region_to_wait_for() {
    let mut pair = pair();
    let region = IomapEntry { offset: 0, addr: 0x9000, key: 9, length: 16 };
    pair.ends[0].stream.map(region).unwrap();
    pair.ends[0].stream.close();
    pair.settle();
    assert!(pair.ends[0].disconnected);
    assert!(pair.ends[0].stream.maps().eq([&region]), "for the driver to deregister");
}

#[test]
fn keepalives_go_out_when_nothing_else_does() {
    let second = Duration::from_secs(1);
    let mut end = beside_a_stranger(Config { keepalive: Some(second), ..config() });
    end.poll(Duration::ZERO);
    assert_eq!(end.stream.deadline(), Some(Time(second)));
    assert_eq!(end.poll(second - Duration::from_nanos(1)), []);
    let keepalive = [Packet::Write { addr: 0, key: 0, octets: vec![] }];
    assert_eq!(end.poll(second), keepalive);
    assert_eq!(end.poll(second), []);
    end.send(b"x").unwrap();
    end.poll(second + second / 2);
    assert_eq!(end.stream.deadline(), Some(Time(second / 2 + second * 2)));
    assert_eq!(end.poll(second * 2), []);
    assert_eq!(end.poll(second * 3), keepalive);
    end.arrive(&Packet::Send(Message::Credits(16).to_send(ByteOrder::Little).to_vec())).unwrap();
    assert_eq!(end.poll(second * 4), [], "what the peer sends counts too");
    end.stream.set_keepalive(None);
    assert_eq!(end.stream.deadline(), None);
}

#[test]
fn edges_are_arrivals_and_room_that_somebody_missed() {
    let mut pair = pair();
    pair.settle();
    assert_eq!(pair.ends[0].stream.wakes(), Wakes::default());
    for _ in 0..2 {
        pair.ends[1].send(b"x").unwrap();
        pair.settle();
        assert_eq!(pair.ends[0].stream.wakes(), READER, "each arrival");
        assert_eq!(pair.ends[0].stream.wakes(), Wakes::default());
    }
    assert_eq!(pair.ends[1].stream.wakes(), Wakes::default(), "nobody missed room");
    let room = pair.ends[1].stream.room();
    assert_eq!(pair.ends[1].send(&[1; 200]), Ok(room));
    assert!(!connected(&pair, 1).room);
    pair.settle();
    assert_eq!(pair.ends[1].stream.wakes(), WRITER);
    assert!(connected(&pair, 1).room);
    assert_eq!(pair.ends[1].stream.wakes(), Wakes::default());
}

/// Covers: RS-WIRE-10, RS-MSG-04
#[test]
fn two_of_a_kind_say_so_and_need_half_the_requests() {
    let mut pair = pair();
    assert!(pair.ends.iter().all(|end| end.stream.form() == Form::Immediate));
    pair.ends[0].send(b"x").unwrap();
    pair.poll(0);
    assert_eq!(pair.ends[0].untaken.len(), 2, "an announcement and data");
    let mut stranger = beside_a_stranger(config());
    assert_eq!(stranger.stream.form(), Form::Send);
    stranger.send(b"x").unwrap();
    stranger.poll(Duration::ZERO);
    assert_eq!(stranger.untaken.len(), 4);
}

#[test]
fn few_requests_ask_for_a_completion() {
    let config = Config { send_buffer: 1 << 20, half: 1 << 20, send_queue: 400, ..config() };
    let mut end = End::new(
        Config { receive_queue: 400, ..config.clone() },
        &ConnData { credits: 400, ..config.conn_data() },
    );
    end.poll(Duration::ZERO);
    for _ in 0..300 {
        end.send(b"x").unwrap();
        end.poll(Duration::ZERO);
    }
    let asked = end.untaken.iter().filter(|request| request.signaled).count();
    assert_eq!(asked, 3, "each fourth part of the queue");
}

/// Covers: RS-MSG-06, RS-MSG-07
#[test]
fn hosts_of_different_byte_order_understand_each_other() {
    let mut pair = Pair::new([
        Config { immediates: false, order: ByteOrder::Big, ..config() },
        Config { immediates: false, ..config() },
    ]);
    let region = IomapEntry { offset: 5, addr: 0x9000, key: 9, length: 16 };
    pair.ends[0].regions.push((region, vec![0; 16]));
    pair.ends[0].stream.map(region).unwrap();
    let mut received = [Vec::new(), Vec::new()];
    for round in 0..50 {
        for end in [0, 1] {
            assert_eq!(pair.ends[end].send(&[round; 7]), Ok(7));
        }
        pair.settle();
        for end in [0, 1] {
            received[end].extend(pair.ends[end].receive(100));
        }
        pair.settle();
    }
    assert!(received.iter().all(|octets| octets.len() == 350));
    assert_eq!(pair.ends[1].write(5, b"there"), Ok(5));
    pair.settle();
    assert_eq!(pair.ends[0].regions[0].1[..5], *b"there");
}

/// A message that stands alone has no destination.
///
/// Covers: RS-MSG-02
#[test]
fn messages_alone_are_empty_writes() {
    let config = Config { wire: Wire::InfiniBand, ..config() };
    let mut end = beside_a_stranger(config);
    end.poll(Duration::ZERO);
    end.stream.close();
    let Some(Action::Post(request)) = end.stream.poll(Time::default()) else { panic!() };
    let immediate = Some(Message::Control(Control::Disconnect).to_immediate());
    let expected = Operation::Write { source: Source::Empty, addr: 0, key: 0, immediate };
    assert_eq!(request.operation, expected);
    assert!(request.signaled, "the end waits for it");
}
