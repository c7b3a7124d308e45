// SPDX-License-Identifier: MIT OR Apache-2.0

//! Byte streams whose connection has moved to shared memory: long writes lie there until the reader
//! copies them, and all is as it is without that.

use std::io::{BufRead, ErrorKind, Read, Write};

use iwarp::cm::ConnectParams;
use iwarp::{Device, LocalPath, Options};
use iwarp_session::stream::{Config, ReadHalf};
use iwarp_session::{BlockPool, ByteStream, Listener, Receiver, Session};
use proptest::prelude::*;

use crate::common::kin::{Kin, Talk};
use crate::common::process::{passed_apart, this_test};
use crate::common::sessions::{exchange, fill, streams_as};
use crate::common::{DEADLINE, pattern, until};

fn moving() -> Options {
    Options::new().local(LocalPath::Rings)
}

/// Two ends, each of which sends by the ring.
fn moved(configs: [&Config; 2]) -> [ByteStream; 2] {
    let mut streams = streams_as(&moving(), configs);
    has_moved(&mut streams);
    streams
}

fn has_moved(streams: &mut [ByteStream]) {
    // A word of each end, so that each looks at what the other agrees to.
    for stream in &mut *streams {
        stream.write_all(&[0]).unwrap();
    }
    for stream in &mut *streams {
        stream.read_exact(&mut [0]).unwrap();
    }
    until("rings", || {
        let paths = streams.iter().map(|stream| stream.session().path_within_host());
        paths.clone().all(|path| path == Some(LocalPath::Rings)).then_some(())
    });
}

/// Reads up to the end of the stream: by turns into a buffer of `len` bytes, and where they are.
fn read_both_ways(mut read: ReadHalf, len: usize) -> Vec<u8> {
    let mut octets = Vec::new();
    let mut buf = vec![0; len];
    loop {
        let count = read.read(&mut buf).unwrap();
        octets.extend_from_slice(&buf[..count]);
        let there = read.fill_buf().unwrap();
        if there.is_empty() {
            return octets;
        }
        let count = there.len().min(len);
        octets.extend_from_slice(&there[..count]);
        read.consume(count);
    }
}

fn any_config() -> impl Strategy<Value = Config> {
    let lens = prop_oneof![1..300_usize, 4000..40_000_usize];
    let shared = prop_oneof![Just(2 << 20), 4096..100_000_usize];
    (lens, prop_oneof![1..6_usize, Just(16), Just(100)], shared).prop_map(
        |(block_len, blocks, shared)| {
            Config::new().block_len(block_len).blocks(blocks).shared(shared)
        },
    )
}

fn any_pieces() -> impl Strategy<Value = Vec<usize>> {
    let piece = prop_oneof![0..5000_usize, 3000..200_000_usize];
    prop::collection::vec(piece, 0..8)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn all_bytes_arrive_in_order_both_ways_at_once(
        configs in [any_config(), any_config()],
        pieces in [any_pieces(), any_pieces()],
        lens in [1000..5000_usize, 4096..300_000_usize],
    ) {
        exchange(moved([&configs[0], &configs[1]]), &pieces, read_both_ways, lens);
    }
}

/// A long write goes into shared memory, which holds more than the blocks do; a reader that does
/// not read holds the writer up there as well.
#[test]
fn a_writer_waits_for_a_reader_that_does_not_read() {
    let config = Config::new();
    let [mut client, mut server] = moved([&config, &config]);
    let octets = pattern(8 << 20, 1);
    let filled = fill(&mut client, &octets);
    let blocks = config.block_len * config.blocks;
    assert!(filled > 2 * blocks && filled <= 4 << 20, "{filled}");
    let mut got = vec![0; filled];
    server.read_exact(&mut got).unwrap();
    assert!(got == octets[..filled]);
    // And again, behind those.
    client.write_all(&octets[..100_000]).unwrap();
    let mut got = vec![0; 100_000];
    server.read_exact(&mut got).unwrap();
    assert!(got == octets[..100_000]);
}

/// The connection of both is over, and the bytes are there still.
#[test]
fn bytes_outlive_the_end_that_has_left_them() {
    let [mut client, mut server] = moved([&Config::new(), &Config::new()]);
    let octets = pattern(500_000, 2);
    client.write_all(&octets).unwrap();
    client.finish().unwrap();
    drop(client);
    until("the end of the connection", || server.session().ended());
    let mut got = Vec::new();
    server.read_to_end(&mut got).unwrap();
    assert!(got == octets);

    let [mut client, mut server] = moved([&Config::new(), &Config::new()]);
    client.write_all(&octets).unwrap();
    let mut got = vec![0; 100];
    server.read_exact(&mut got).unwrap();
    client.abort();
    let error = server.read_to_end(&mut got).unwrap_err();
    assert!(got == octets, "{} bytes", got.len());
    assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
}

/// A process that writes, and then waits to be killed.
fn writer(talk: &mut Talk) {
    let pd = Device::with_options(moving()).unwrap().alloc_pd();
    let addr: std::net::SocketAddr = talk.hear().parse().unwrap();
    let mut stream = ByteStream::connect(&pd, addr).wait_timeout(DEADLINE).unwrap();
    has_moved(std::slice::from_mut(&mut stream));
    stream.write_all(&pattern(600_000, 3)).unwrap();
    talk.tell("written");
    talk.hear();
}

#[test]
fn bytes_outlive_a_process_that_is_killed() {
    if passed_apart(this_test!(), DEADLINE) {
        return;
    }
    let mut writer = Kin::fork(writer);
    let pd = Device::with_options(moving()).unwrap().alloc_pd();
    let listener = Listener::bind(&pd, "127.0.0.1:0").unwrap();
    writer.tell(&listener.local_addr().unwrap().to_string());
    let request = listener.accept().wait_timeout(DEADLINE).unwrap();
    let mut stream = ByteStream::accept(request).wait_timeout(DEADLINE).unwrap();
    stream.set_read_timeout(Some(DEADLINE));
    has_moved(std::slice::from_mut(&mut stream));
    assert_eq!(writer.hear(), "written");
    // Some of it is read before the end, and the rest after it.
    let mut got = vec![0; 70_000];
    stream.read_exact(&mut got).unwrap();
    writer.signal(libc::SIGKILL);
    writer.await_end();
    let error = stream.read_to_end(&mut got).unwrap_err();
    assert!(got == pattern(600_000, 3), "{} bytes", got.len());
    assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
}

/// A stream, and its peer that speaks the protocol by itself.
fn spoken_to() -> (ByteStream, Session, Receiver) {
    let [client, server] = [0; 2].map(|_| Device::with_options(moving()).unwrap().alloc_pd());
    let listener = Listener::bind(&server, "127.0.0.1:0").unwrap();
    let opening = ByteStream::connect(&client, listener.local_addr().unwrap());
    let request = listener.accept().wait_timeout(DEADLINE).unwrap();
    let hello = *b"iwarp stream\0\0\0\x01\0\0\0\x10\0\0\0\x05\0\x20\0\0";
    let config = iwarp_session::Config::new().params(ConnectParams::new().private_data(hello));
    let prepared = config.prepare(&server).unwrap();
    let pool = BlockPool::new(&server, 16, 7).unwrap();
    let receiver = prepared.receiver(&pool, 7).unwrap();
    let session = prepared.accept(request).wait_timeout(DEADLINE).unwrap();
    let mut stream = opening.wait_timeout(DEADLINE).unwrap();
    stream.set_read_timeout(Some(DEADLINE));
    (stream, session, receiver)
}

#[test]
fn a_peer_that_tells_of_bytes_elsewhere_is_an_error() {
    let len = 2_u32 << 20;
    for (at, count) in [(0, 0), (len, 1), (len - 1, 2), (1, len), (u32::MAX, u32::MAX)] {
        let (mut stream, peer, _receiver) = spoken_to();
        until("rings", || {
            let path = stream.session().path_within_host();
            (path == Some(LocalPath::Rings)).then_some(())
        });
        let [[a, b, c, d], [e, f, g, h]] = [at, count].map(u32::to_be_bytes);
        let told = peer.immediate([a, b, c, d, e, f, g, h]);
        told.wait_timeout(DEADLINE).unwrap().unwrap();
        peer.send_inline(b"behind it").wait_timeout(DEADLINE).unwrap().unwrap();
        let error = stream.read(&mut [0; 64]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData, "{at} {count}: {error}");
        // It is the end, as bytes are missing, also if the next message has come.
        let again = stream.read(&mut [0; 64]).unwrap_err();
        assert_eq!(again.kind(), ErrorKind::InvalidData, "{again}");
    }
}

/// Bytes beside the ring have none.
#[test]
fn a_stream_with_crcs_leaves_nothing_in_shared_memory() {
    let with_crcs = moving().demands_crc(true);
    let mut streams = streams_as(&with_crcs, [&Config::new(), &Config::new()]);
    has_moved(&mut streams);
    let [mut client, mut server] = streams;
    let octets = pattern(100_000, 4);
    assert_eq!(client.write(&octets).unwrap(), 100_000);
    let mut got = vec![0; 100_000];
    server.read_exact(&mut got).unwrap();
    assert!(got == octets);
    // Four messages of 32 KiB at most, where one would do beside the ring.
    assert!(client.session().metrics().sends.posted >= 4);
}

#[test]
fn bytes_in_shared_memory_are_counted() {
    let [mut client, mut server] = moved([&Config::new(), &Config::new()]);
    let before = [client.session().metrics().bytes_out(), server.session().metrics().bytes_in()];
    let octets = pattern(300_000, 5);
    client.write_all(&octets).unwrap();
    let mut got = vec![0; 300_000];
    server.read_exact(&mut got).unwrap();
    let after = [client.session().metrics().bytes_out(), server.session().metrics().bytes_in()];
    let counted = [0, 1].map(|end| after[end] - before[end]);
    // The words of the ends about their receives have bytes as well.
    assert!(counted.iter().all(|bytes| (300_000..301_000).contains(bytes)), "{counted:?}");
}

/// Immediate Data mean nothing on a connection that stays with TCP.
#[test]
fn a_peer_that_shares_no_memory_tells_of_none() {
    let off = Options::new().local(LocalPath::Off);
    let [mut client, server] = streams_as(&off, [&Config::new(), &Config::new()]);
    server.session().immediate([0, 0, 0, 0, 0, 0, 0, 1]).wait_timeout(DEADLINE).unwrap().unwrap();
    let error = client.read(&mut [0; 64]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
}
