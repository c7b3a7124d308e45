// SPDX-License-Identifier: MIT OR Apache-2.0

//! Every operation between two ends, in every framing.

use iwarp::{AtomicOp, Options, SendOp, WcOp};

use crate::common;
use crate::common::{Setup, pattern};

/// Every combination of CRC and markers.
fn framings() -> Vec<Options> {
    [(true, false), (false, false), (true, true), (false, true)]
        .into_iter()
        .map(|(crc, markers)| Options::new().crc(crc).markers(markers))
        .collect()
}

const SIZES: [usize; 12] =
    [0, 1, 2, 7, 64, 511, 4096, 5001, 65_535, 65_536, 200_003, 4 * 1024 * 1024];

#[test]
fn sends_arrive_whole_and_in_order() {
    for options in framings() {
        let (client, server) = Setup::both(&options).connect();
        let sink = server.region(SIZES[SIZES.len() - 1]);
        for (id, size) in SIZES.into_iter().enumerate() {
            let octets = pattern(size, id as u64);
            let source = client.region_of(&octets);
            server.post_recv(id as u64, &[sink.sge(0, size)]);
            client.send(id as u64, &[source.whole()]);
            let completion = server.received();
            assert_eq!((completion.wr_id, completion.byte_len), (id as u64, size as u32));
            let mut got = vec![0; size];
            sink.buffer().unwrap().read_at(0, &mut got);
            assert_eq!(got, octets, "{size} octets, {options:?}");
            assert_eq!(client.sent().wr_id, id as u64);
        }
    }
}

#[test]
fn writes_land_where_they_should() {
    for options in framings() {
        let (client, server) = Setup::both(&options).connect();
        for (id, size) in SIZES.into_iter().enumerate() {
            let octets = pattern(size, id as u64);
            let source = client.region_of(&octets);
            let sink = server.region(size + 16);
            let end = server.region(1);
            server.post_recv(0, &[end.whole()]);
            client.write(1, source.whole(), &sink, 8);
            client.send(2, &[]);
            server.received();
            let mut expected = vec![0; 8];
            expected.extend_from_slice(&octets);
            expected.extend_from_slice(&[0; 8]);
            assert!(sink.buffer().unwrap().to_vec() == expected, "{size} octets, {options:?}");
            assert_eq!((client.sent().wr_id, client.sent().wr_id), (1, 2));
        }
    }
}

#[test]
fn reads_bring_what_is_there() {
    for options in framings() {
        let (client, server) = Setup::both(&options).connect();
        for (id, size) in SIZES.into_iter().enumerate() {
            let octets = pattern(size, id as u64);
            let source = server.region_of(&octets);
            let sink = client.region(size);
            client.read(7, sink.whole(), &source, 0);
            let completion = client.sent();
            assert_eq!((completion.op, completion.byte_len), (WcOp::Read, size as u32));
            assert!(sink.buffer().unwrap().to_vec() == octets, "{size} octets, {options:?}");
        }
    }
}

#[test]
fn atomics_return_what_was_there() {
    let (client, server) = Setup::default().connect();
    let word = server.region(8);
    let old = client.region(8);
    let value = |region: &iwarp::MemoryRegion| {
        let mut octets = [0; 8];
        region.buffer().unwrap().read_at(0, &mut octets);
        u64::from_ne_bytes(octets)
    };
    let (stag, to) = (word.rkey(), word.base());
    client.post(
        1,
        SendOp::Atomic { stag, to, op: AtomicOp::FetchAdd { add: 5, mask: 0 } },
        &[old.whole()],
    );
    assert_eq!(client.sent().op, WcOp::FetchAdd);
    assert_eq!((value(&old), value(&word)), (0, 5));
    let swap = |compare, swap| SendOp::Atomic {
        stag,
        to,
        op: AtomicOp::CompareSwap { compare, compare_mask: u64::MAX, swap, swap_mask: u64::MAX },
    };
    client.post(2, swap(5, 77), &[old.whole()]);
    assert_eq!(client.sent().op, WcOp::CompareSwap);
    assert_eq!((value(&old), value(&word)), (5, 77));
    client.post(3, swap(5, 99), &[old.whole()]);
    client.sent();
    assert_eq!((value(&old), value(&word)), (77, 77));
}

#[test]
fn immediate_data_arrives_in_the_completion() {
    let (client, server) = Setup::default().connect();
    server.post_recv(9, &[]);
    client.post(1, SendOp::Immediate { solicited: true, data: *b"8 octets" }, &[]);
    let completion = server.received();
    assert_eq!((completion.op, completion.wr_id), (WcOp::RecvImmediate, 9));
    assert_eq!(completion.immediate, Some(*b"8 octets"));
    assert!(completion.solicited);
    client.sent();
}

#[test]
fn both_directions_work_at_once() {
    let (client, server) = Setup::default().connect();
    let size = 1 << 20;
    let (a, b) = (client.region_of(&pattern(size, 1)), server.region_of(&pattern(size, 2)));
    let (into_server, into_client) = (server.region(size), client.region(size));
    let each = |end: &common::End, source: &iwarp::MemoryRegion, sink: &iwarp::MemoryRegion| {
        for id in 0..32 {
            end.write(id, source.whole(), sink, 0);
        }
        for id in 0..32 {
            assert_eq!(end.sent().wr_id, id);
        }
        let check = end.region(size);
        end.read(99, check.whole(), sink, 0);
        end.sent();
        assert!(check.buffer().unwrap().to_vec() == source.buffer().unwrap().to_vec());
    };
    std::thread::scope(|scope| {
        scope.spawn(|| each(&client, &a, &into_server));
        scope.spawn(|| each(&server, &b, &into_client));
    });
}
