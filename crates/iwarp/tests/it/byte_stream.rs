// SPDX-License-Identifier: MIT OR Apache-2.0

//! Byte streams in threads.

use std::io::{BufRead, ErrorKind, IoSlice, Read, Write};
use std::thread;
use std::time::Duration;

use iwarp::Ended;
use iwarp_session::ByteStream;
use iwarp_session::stream::{Config, ReadHalf};
use proptest::prelude::*;

use crate::common::sessions::{exchange, fill, streams, write_pieces};
use crate::common::{pattern, until};

/// Reads up to the end of the stream, at most `len` bytes at a time.
fn read_pieces(mut read: ReadHalf, len: usize) -> Vec<u8> {
    let mut octets = Vec::new();
    let mut buf = vec![0; len];
    loop {
        match read.read(&mut buf).unwrap() {
            0 => return octets,
            count => octets.extend_from_slice(&buf[..count]),
        }
    }
}

fn small() -> Config {
    Config::new().block_len(64).blocks(4).shared(0)
}

fn any_config() -> impl Strategy<Value = Config> {
    (1..300_usize, 1..6_usize)
        .prop_map(|(block_len, blocks)| Config::new().block_len(block_len).blocks(blocks))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn all_bytes_arrive_in_order_both_ways_at_once(
        configs in [any_config(), any_config()],
        pieces in [
            prop::collection::vec(0..700_usize, 0..40),
            prop::collection::vec(0..700_usize, 0..40),
        ],
        lens in [1..500_usize, 1..500_usize],
    ) {
        exchange(streams([&configs[0], &configs[1]]), &pieces, read_pieces, lens);
    }
}

#[test]
fn much_arrives_with_the_default_sizes() {
    let [client, server] = streams([&Config::default(), &Config::default()]);
    let octets = pattern(20_000_000, 1);
    thread::scope(|scope| {
        scope.spawn(|| write_pieces(client.into_split().1, &octets, &[octets.len()]));
        assert!(read_pieces(server.into_split().0, 100_000) == octets);
    });
}

/// One write fills half of the blocks at once, and no more than there are; its slices are as one.
#[test]
fn a_write_takes_several_blocks_that_are_free() {
    let config = small();
    let [mut client, mut server] = streams([&config, &config]);
    let octets = pattern(1000, 6);
    let slices =
        [&octets[..0], &octets[..100], &octets[100..100], &octets[100..]].map(IoSlice::new);
    assert_eq!(client.write_vectored(&slices).unwrap(), 2 * 64);
    assert_eq!(client.write(&octets[128..129]).unwrap(), 1);
    // The last of the peer's four receives.
    assert_eq!(client.write(&octets[129..]).unwrap(), 64);
    let mut got = Vec::new();
    for len in [64, 64, 1, 64] {
        let message = server.fill_buf().unwrap();
        assert_eq!(message.len(), len);
        got.extend_from_slice(message);
        server.consume(len);
    }
    assert!(got == octets[..got.len()]);
}

#[test]
fn a_writer_waits_for_a_reader_that_does_not_read() {
    let [mut client, mut server] = streams([&Config::default(), &small()]);
    let octets = pattern(10_000, 2);
    let mut sent = fill(&mut client, &octets);
    // The reader's memory, and no more.
    assert_eq!(sent, 4 * 64);
    assert!(client.session().is_connected() && server.session().is_connected());
    // As it reads, the writer can go on, and is held up again.
    let mut got = vec![0; 3 * 64];
    server.read_exact(&mut got).unwrap();
    sent += fill(&mut client, &octets[sent..]);
    assert_eq!(sent, got.len() + 4 * 64);
    thread::scope(|scope| {
        scope.spawn(|| {
            client.write_all(&octets[sent..]).unwrap();
            client.finish().unwrap();
        });
        server.read_to_end(&mut got).unwrap();
    });
    assert!(got == octets);
}

#[test]
fn tiny_writes_take_no_more_blocks_than_there_are() {
    let [mut client, mut server] = streams([&small(), &small()]);
    thread::scope(|scope| {
        scope.spawn(|| {
            for octet in pattern(1000, 3) {
                client.write_all(&[octet]).unwrap();
            }
            client.finish().unwrap();
        });
        let mut got = Vec::new();
        server.read_to_end(&mut got).unwrap();
        assert_eq!(got, pattern(1000, 3));
    });
}

#[test]
fn one_direction_ends_and_the_other_goes_on() {
    let [mut client, mut server] = streams([&small(), &small()]);
    client.write_all(b"question").unwrap();
    client.finish().unwrap();
    let mut question = String::new();
    server.read_to_string(&mut question).unwrap();
    assert_eq!(question, "question");
    // It stays at its end.
    assert_eq!(server.read(&mut [0; 8]).unwrap(), 0);
    let error = client.write(b"more").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    client.finish().unwrap();
    let answer = pattern(5000, 4);
    thread::scope(|scope| {
        scope.spawn(|| {
            server.write_all(&answer).unwrap();
            server.finish().unwrap();
        });
        let mut got = Vec::new();
        client.read_to_end(&mut got).unwrap();
        assert!(got == answer);
    });
}

#[test]
fn the_end_of_a_stream_does_not_wait_for_a_reader() {
    for dropped in [false, true] {
        let [mut client, mut server] = streams([&small(), &small()]);
        let octets = pattern(1000, 5);
        let sent = fill(&mut client, &octets);
        if dropped {
            drop(client);
        } else {
            client.finish().unwrap();
        }
        let mut got = Vec::new();
        server.read_to_end(&mut got).unwrap();
        assert!(got == octets[..sent]);
    }
}

#[test]
fn a_stream_that_is_dropped_at_once_has_an_end() {
    for first in [false, true] {
        let [client, server] = streams([&small(), &small()]);
        let (dropped, mut kept) = if first { (client, server) } else { (server, client) };
        drop(dropped);
        assert_eq!(kept.read(&mut [0; 8]).unwrap(), 0);
    }
}

#[test]
fn a_stream_whose_peer_has_gone_needs_no_end() {
    let [mut client, mut server] = streams([&small(), &small()]);
    client.write_all(b"hello").unwrap();
    let mut got = [0; 5];
    server.read_exact(&mut got).unwrap();
    drop(server);
    assert_eq!(client.read(&mut got).unwrap(), 0);
    assert_eq!(client.session().closed().wait(), Ended::Closed);
    client.finish().unwrap();
}

#[test]
fn each_half_may_go_first() {
    let [client, server] = streams([&small(), &small()]);
    let octets = pattern(3000, 6);
    let (read, mut write) = client.into_split();
    drop(read);
    let (mut their_read, their_write) = server.into_split();
    drop(their_write);
    thread::scope(|scope| {
        scope.spawn(|| {
            write.write_all(&octets).unwrap();
            drop(write);
        });
        let mut got = Vec::new();
        their_read.read_to_end(&mut got).unwrap();
        assert!(got == octets);
    });
}

#[test]
fn halves_find_together_again_and_no_others() {
    let [client, server] = streams([&small(), &small()]);
    let (read, write) = client.into_split();
    let (their_read, their_write) = server.into_split();
    let (read, their_write) = ByteStream::reunite(read, their_write).unwrap_err();
    let mut client = ByteStream::reunite(read, write).unwrap();
    let mut server = ByteStream::reunite(their_read, their_write).unwrap();
    client.write_all(b"hello").unwrap();
    let mut got = [0; 5];
    server.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"hello");
}

#[test]
fn slices_are_written_as_one_and_read_where_they_are() {
    let [mut client, mut server] = streams([&small(), &small()]);
    let slices = [&b""[..], b"one", b"", b", two", &[b'!'; 100]];
    assert_eq!(client.write_vectored(&slices.map(IoSlice::new)).unwrap(), 108);
    assert_eq!(server.fill_buf().unwrap().len(), 64);
    server.consume(3);
    assert_eq!(&server.fill_buf().unwrap()[..6], b", two!");
    // More than there is.
    server.consume(100);
    assert_eq!(server.fill_buf().unwrap(), [b'!'; 108 - 64]);
    server.consume(108 - 64);
    client.write_all(b"next").unwrap();
    assert_eq!(server.fill_buf().unwrap(), b"next");
    // An empty write is no end.
    assert_eq!(client.write_vectored(&[IoSlice::new(b"")]).unwrap(), 0);
    assert_eq!(client.write(b"").unwrap(), 0);
    client.write_all(b", and more").unwrap();
    let mut got = [0; 14];
    server.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"next, and more");
}

#[test]
fn a_read_that_waits_too_long_loses_nothing() {
    let [mut client, mut server] = streams([&small(), &small()]);
    server.set_read_timeout(Some(Duration::from_millis(1)));
    let error = server.read(&mut [0; 8]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    client.write_all(b"late").unwrap();
    let got = until("the bytes", || {
        let mut got = [0; 8];
        server.read(&mut got).ok().map(|count| got[..count].to_vec())
    });
    assert_eq!(got, b"late");
}

#[test]
fn an_end_that_breaks_off_is_an_error_after_what_came_before() {
    let [mut client, mut server] = streams([&small(), &small()]);
    server.write_all(b"0123456789").unwrap();
    let mut first = [0];
    client.read_exact(&mut first).unwrap();
    server.abort();
    let mut got = Vec::new();
    let error = client.read_to_end(&mut got).unwrap_err();
    assert_eq!(got, b"123456789");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
    // Again and again, in both directions.
    for _ in 0..2 {
        let error = client.read(&mut [0; 8]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
        let error = client.write_all(&[0; 1000]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
    }
    assert!(client.finish().is_err());
}

#[test]
fn a_panic_is_no_end() {
    let [mut client, mut server] = streams([&small(), &small()]);
    let panicking = thread::spawn(move || {
        server.write_all(b"half of").unwrap();
        std::panic::resume_unwind(Box::new(()));
    });
    assert!(panicking.join().is_err());
    let mut got = Vec::new();
    let error = client.read_to_end(&mut got).unwrap_err();
    assert_eq!(got, b"half of");
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{error}");
}

#[test]
fn a_writer_is_told_that_the_reader_is_gone() {
    let [mut client, server] = streams([&small(), &small()]);
    thread::scope(|scope| {
        let writing = scope.spawn(move || client.write_all(&[7; 10_000]).unwrap_err());
        drop(server);
        let error = writing.join().unwrap();
        // Bytes that come while the reader's end closes make it break off instead.
        let kinds =
            [ErrorKind::BrokenPipe, ErrorKind::ConnectionAborted, ErrorKind::ConnectionReset];
        assert!(kinds.contains(&error.kind()), "{error}");
    });
}
