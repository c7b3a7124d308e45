// SPDX-License-Identifier: MIT OR Apache-2.0

//! Files of any bytes: the worst that they may do is to be refused.

use iwarp_explain::{Settings, explain, text};
use proptest::prelude::*;

use crate::made::datagrams::{Datagrams, FIRST};
use crate::made::frames::{self, fpdu};
use crate::made::stream::Stream;
use crate::made::{RAW, Stamped, pcap};

fn read(file: &[u8]) {
    let settings = Settings { frames: true, ..Settings::default() };
    if let Ok(report) = explain(file, &settings) {
        text::text(&report);
        serde_json::to_string(&report).unwrap();
    }
}

fn packets() -> Vec<Stamped> {
    let mut stream = Stream::started();
    for msn in 1..4 {
        stream.send(0, &fpdu(&frames::send(msn, &[7; 200])));
        stream.send(1, &fpdu(&frames::read(msn, 20)));
        stream.send(0, &fpdu(&frames::response(&[7; 20])));
    }
    stream.close();
    let mut all = Datagrams::connected();
    all.write(0, FIRST[0], 2500);
    all.ack(1, FIRST[0]);
    all.read(1, FIRST[1], 3000);
    let mut packets = stream.packets;
    packets.extend(all.packets);
    packets
}

proptest! {
    #[test]
    fn random_bytes_behind_a_head_are_read(
        link in prop::sample::select(vec![0_u32, 1, 101, 108, 113, 228, 276, 147]),
        records in prop::collection::vec((any::<u32>(), prop::collection::vec(any::<u8>(), 0..200)), 0..20),
    ) {
        let records: Vec<Stamped> =
            records.into_iter().map(|(at, bytes)| (u64::from(at), bytes)).collect();
        read(&pcap(link, &records, 150));
    }

    #[test]
    fn random_bytes_are_read(begin in 0_usize..3, bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let begins: [&[u8]; 3] =
            [&[], &[0x0a, 0x0d, 0x0d, 0x0a, 28, 0, 0, 0, 0x4d, 0x3c, 0x2b, 0x1a], &[0xd4, 0xc3, 0xb2, 0xa1]];
        read(&[begins[begin], &bytes].concat());
    }

    #[test]
    fn changed_packets_are_read(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40),
        lost in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
        moved in prop::collection::vec(any::<(prop::sample::Index, prop::sample::Index)>(), 0..4),
        snap in 20_usize..400,
    ) {
        let mut packets = packets();
        for lost in lost {
            let at = lost.index(packets.len());
            packets.remove(at);
        }
        for (one, other) in moved {
            let (one, other) = (one.index(packets.len()), other.index(packets.len()));
            packets.swap(one, other);
        }
        let mut file = pcap(RAW, &packets, snap);
        for (at, value) in changes {
            // The file's own header stays, so that the rest is read.
            let at = 24 + at.index(file.len() - 24);
            file[at] = value;
        }
        read(&file);
    }

    #[test]
    fn changed_payloads_are_read(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u8>()), 1..30),
    ) {
        let mut packets = packets();
        for (packet, at, value) in changes {
            let packet = packet.index(packets.len());
            let (_, bytes) = &mut packets[packet];
            // Behind the IP header, so that they still belong to something.
            let at = 20 + at.index(bytes.len() - 20);
            bytes[at] = value;
        }
        read(&pcap(RAW, &packets, usize::MAX));
    }
}
