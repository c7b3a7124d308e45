// SPDX-License-Identifier: MIT OR Apache-2.0

//! Runs of the original, message for message: over this library as iWARP and as RoCE card, against
//! Linux siw and rxe. A stream of ours takes the place of each end in turn.

use std::time::Duration;

use iwarp_sockets::stream::{Config, Memory, Shutdown, Wire};
use iwarp_sockets::wire::{ByteOrder, ConnData, Control, Entry, IomapEntry, IomapSize, Message};

use crate::support::{End, Packet, config, rows};

/// A row of a file: true if it is the client's, and the packet.
type Row = (bool, Packet);

/// A recorded run.
struct Run {
    client: ConnData,
    server: ConnData,
    packets: Vec<Row>,
}

fn run(file: &str) -> Run {
    let (mut data, mut packets) = (Vec::new(), Vec::new());
    for row in rows(file) {
        let is_client = row[0] == "client";
        let octets = hex::decode(&row[5]).unwrap();
        let packet = match row[1].as_str() {
            "private" => {
                data.push(ConnData::read(&octets).unwrap());
                continue;
            }
            "immediate" => Packet::Immediate(octets.try_into().unwrap()),
            "send" => Packet::Send(octets),
            _ => {
                let number = |field: &str| u64::from_str_radix(field, 16).unwrap();
                let len: usize = row[4].parse().unwrap();
                // Long ones are octets of one kind, which the file leaves out.
                let octets = if octets.len() == len { octets } else { vec![b'z'; len] };
                let (addr, key) = (number(&row[2]), number(&row[3]) as u32);
                Packet::Write { addr, key, octets }
            }
        };
        packets.push((is_client, packet));
    }
    let [client, server] = data[..] else { panic!("{file}: two ends") };
    Run { client, server, packets }
}

fn message(packet: &Packet) -> Option<Message> {
    match packet {
        Packet::Immediate(octets) => Message::from_immediate(*octets).ok(),
        Packet::Send(octets) => {
            let octets = octets[..].try_into().unwrap();
            Message::from_send(octets, ByteOrder::Little).ok()
        }
        Packet::Write { .. } => None,
    }
}

/// Our settings in the place of an end that has said `data`.
fn in_place_of(data: &ConnData, wire: Wire) -> Config {
    let Entry { addr, key, .. } = data.sgl;
    Config {
        wire,
        order: data.order,
        receive_queue: data.credits,
        send_buffer: 1 << 20,
        sgl: Memory { addr, key },
        ring: Memory { addr: data.ring.addr, key: data.ring.key },
        half: data.ring.length,
        iomap: IomapSize::covering(data.iomap_entries() as usize),
        ..config()
    }
}

/// The run with a stream in the place of one end, whose program does what that of the original did:
/// the octets that it received, and the packets that it sent.
fn replay(file: &str, wire: Wire, as_client: bool) -> (End, Vec<u8>, Vec<Packet>) {
    let Run { client, server, packets } = run(file);
    let (own, peer) = if as_client { (client, server) } else { (server, client) };
    let mut end = End::new(in_place_of(&own, wire), &peer);
    let (mut received, mut sent) = (Vec::new(), end.poll(Duration::ZERO));
    let mut written = Vec::new();
    for (is_client, packet) in packets {
        if is_client != as_client {
            end.arrive(&packet).unwrap_or_else(|violation| panic!("{file}: {violation}"));
            received.extend(end.receive(usize::MAX));
        } else if let Packet::Write { octets, key, .. } = packet {
            if octets.len() == 24 && key == peer.sgl.key {
                let region = IomapEntry::read(octets[..].try_into().unwrap(), peer.order);
                end.stream.map(region).unwrap();
                end.regions.push((region, vec![0; region.length as usize]));
            } else if octets == b"direct place" {
                assert_eq!(end.write(0x1000, &octets), Ok(octets.len()), "{file}");
            } else {
                written = octets;
            }
        } else {
            match message(&packet).unwrap() {
                Message::Data(octets) => {
                    assert_eq!(written.len(), octets as usize);
                    assert_eq!(end.send(&written), Ok(written.len()), "{file}");
                }
                Message::Control(Control::Shutdown) => end.stream.shutdown(Shutdown::Write),
                Message::Control(Control::Disconnect) => end.stream.close(),
                Message::Credits(_) | Message::Iomap(_) => {}
            }
        }
        sent.extend(end.poll(Duration::ZERO));
        while !end.untaken.is_empty() {
            end.take_request();
        }
        sent.extend(end.poll(Duration::ZERO));
    }
    assert_eq!(end.stream.take_error(), None, "{file}");
    (end, received, sent)
}

const FILES: [(&str, Wire); 4] = [
    ("stream-iwarp.csv", Wire::Iwarp),
    ("stream-siw.csv", Wire::Iwarp),
    ("stream-own-kind.csv", Wire::Iwarp),
    ("stream-rxe.csv", Wire::InfiniBand),
];

/// 20,000 octets in pieces of the original's making, through two halves of 8,192.
///
/// Covers: RS-FLOW-10, RS-MSG-05, RS-CLOSE-02
#[test]
fn every_recorded_client_is_understood() {
    for (file, wire) in FILES {
        let (end, received, _) = replay(file, wire, false);
        assert_eq!(received[..9], *b"hellodone", "{file}");
        assert_eq!(received.len(), 20_009, "{file}");
        assert!(received[9..].iter().all(|octet| *octet == b'z'), "{file}");
        assert_eq!(end.regions[0].1[..12], *b"direct place", "{file}");
        assert!(end.stream.is_read_over() && end.disconnected, "{file}");
    }
}

/// Covers: RS-CLOSE-03, RS-IO-02, RS-MSG-05
#[test]
fn every_recorded_server_is_understood() {
    for (file, wire) in FILES {
        let (end, received, _) = replay(file, wire, true);
        assert_eq!(received, b"worldlast", "{file}");
        assert!(end.stream.is_read_over() && end.disconnected, "{file}");
    }
}

/// Packets but for those of flow control, whose times are the receiver's choice.
fn of_data(
    packets: impl IntoIterator<Item = Packet>,
    sgl: Entry,
) -> Vec<(Packet, Option<Message>)> {
    let table = sgl.addr..sgl.addr + 32;
    let is_data = |packet: &Packet| match packet {
        Packet::Write { addr, octets, .. } => !table.contains(addr) && !octets.is_empty(),
        other => !matches!(message(other), Some(Message::Credits(_))),
    };
    packets
        .into_iter()
        .filter(is_data)
        .map(|packet| match message(&packet) {
            // In either form.
            Some(message) => (Packet::Send(vec![]), Some(message)),
            None => (packet, None),
        })
        .collect()
}

/// Octets, addresses, messages and their order are the original's.
///
/// Covers: RS-FLOW-01, RS-FLOW-03, RS-IO-02, RS-CLOSE-01, RS-WIRE-07
#[test]
fn data_are_sent_as_by_the_original() {
    for (file, wire) in FILES {
        for as_client in [true, false] {
            let (_, _, sent) = replay(file, wire, as_client);
            let Run { client, server, packets } = run(file);
            let peer = if as_client { server } else { client };
            let own = packets.into_iter().filter(|(is_client, _)| *is_client == as_client);
            let expected = of_data(own.map(|(_, packet)| packet), peer.sgl);
            assert_eq!(of_data(sent, peer.sgl), expected, "{file} {as_client}");
        }
    }
}

/// The first thing is the second half, in the very octets; the form is the peer's.
///
/// Covers: RS-MSG-02, RS-MSG-03, RS-MSG-04, RS-FLOW-02
#[test]
fn announcements_are_those_of_the_original() {
    for (file, wire) in FILES {
        for as_client in [true, false] {
            let (_, _, sent) = replay(file, wire, as_client);
            let packets = run(file).packets;
            let original: Vec<&Packet> = packets
                .iter()
                .filter_map(|(is_client, packet)| (*is_client == as_client).then_some(packet))
                .collect();
            let is_entry = |packet: &&Packet| matches!(packet, Packet::Write { octets, .. } if octets.len() == 16);
            let at = original.iter().position(is_entry).unwrap();
            assert_eq!(&sent[0], original[at], "{file}");
            if file == "stream-own-kind.csv" {
                // The device has both, and only the peer's own message says which it takes.
                assert_eq!(message(&sent[1]), message(original[at + 1]));
                let later = sent[2..].iter().filter(|packet| matches!(packet, Packet::Send(_)));
                assert_eq!(later.count(), 0);
            } else {
                assert_eq!(&sent[1], original[at + 1], "{file}");
            }
        }
    }
}
