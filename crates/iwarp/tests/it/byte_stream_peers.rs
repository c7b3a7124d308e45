// SPDX-License-Identifier: MIT OR Apache-2.0

//! Byte streams and peers that are none, or that speak the protocol by themselves.

use std::error::Error;
use std::io::{self, ErrorKind, Read, Write};

use iwarp::cm::{ConnectError, ConnectParams};
use iwarp::{Device, Options, ProtectionDomain};
use iwarp_session::stream::{Config, HelloError};
use iwarp_session::{BlockPool, ByteStream, Listener, Receiver, Request, Session};

use crate::common::DEADLINE;

/// The greeting of a byte stream that takes four messages of up to 16 bytes, the last of them its
/// end.
const HELLO: &[u8; 24] = b"iwarp stream\0\0\0\x01\0\0\0\x10\0\0\0\x05";

fn device() -> ProtectionDomain {
    Device::with_options(Options::default()).unwrap().alloc_pd()
}

/// A request of a peer with that private data, and what becomes of the peer.
fn requested(hello: &[u8]) -> (Request, iwarp_session::Connecting) {
    let server = device();
    let listener = Listener::bind(&server, "127.0.0.1:0").unwrap();
    let config = iwarp_session::Config::new().params(ConnectParams::new().private_data(hello));
    let connecting = config.connect(&device(), listener.local_addr().unwrap());
    (listener.accept().wait_timeout(DEADLINE).unwrap(), connecting)
}

/// A byte stream that connects to a peer with that private data, which has receives.
fn answered(hello: &[u8]) -> (io::Result<ByteStream>, Session, Receiver) {
    let server = device();
    let listener = Listener::bind(&server, "127.0.0.1:0").unwrap();
    let opening = ByteStream::connect(&device(), listener.local_addr().unwrap());
    let request = listener.accept().wait_timeout(DEADLINE).unwrap();
    assert!(request.is_byte_stream());
    let config = iwarp_session::Config::new().params(ConnectParams::new().private_data(hello));
    let prepared = config.prepare(&server).unwrap();
    let receiver = prepared.receiver(&BlockPool::new(&server, 16, 7).unwrap(), 7).unwrap();
    let session = prepared.accept(request).wait_timeout(DEADLINE).unwrap();
    (opening.wait_timeout(DEADLINE), session, receiver)
}

fn hello_error(error: &io::Error) -> HelloError {
    assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
    *error.get_ref().unwrap().downcast_ref::<HelloError>().unwrap()
}

fn later_version() -> Vec<u8> {
    let mut hello = HELLO.to_vec();
    hello[15] = 2;
    hello
}

#[test]
fn a_peer_that_is_no_byte_stream_is_told_and_rejected() {
    for (hello, expected, is_stream) in [
        (Vec::new(), HelloError::NotAStream, false),
        (b"something else".to_vec(), HelloError::NotAStream, false),
        (later_version(), HelloError::Version(2), true),
    ] {
        let (request, connecting) = requested(&hello);
        assert_eq!(request.is_byte_stream(), is_stream);
        let error = ByteStream::accept(request).wait_timeout(DEADLINE).unwrap_err();
        assert_eq!(hello_error(&error), expected);
        match connecting.wait_timeout(DEADLINE).unwrap_err() {
            ConnectError::Rejected { private_data, .. } => {
                assert!(private_data.starts_with(b"iwarp stream\0\0\0\x01"));
            }
            error => panic!("{error}"),
        }
    }
}

#[test]
fn a_peer_that_accepts_and_is_no_byte_stream_gets_no_message() {
    for (hello, expected) in [
        (Vec::new(), HelloError::NotAStream),
        (later_version(), HelloError::Version(2)),
        (b"iwarp stream\0\0\0\x01\0\0\0\0\0\0\0\x05".to_vec(), HelloError::NoRoom),
    ] {
        let (opened, _session, mut receiver) = answered(&hello);
        assert_eq!(hello_error(&opened.unwrap_err()), expected);
        assert!(receiver.recv().wait_timeout(DEADLINE).unwrap().is_none());
    }
}

#[test]
fn a_peer_that_rejects_is_a_refused_connection() {
    let server = device();
    let listener = Listener::bind(&server, "127.0.0.1:0").unwrap();
    let opening = ByteStream::connect(&device(), listener.local_addr().unwrap());
    listener.accept().wait_timeout(DEADLINE).unwrap().reject(b"not today").unwrap();
    let error = opening.wait_timeout(DEADLINE).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{error}");
    assert!(error.get_ref().is_some_and(|error| error.is::<ConnectError>()));
    assert!(error.source().is_none());
}

#[test]
fn a_stream_without_room_is_refused() {
    let addr = "127.0.0.1:1";
    for config in [
        Config::new().block_len(0),
        Config::new().blocks(0),
        Config::new().blocks(1 << 16),
        Config::new().block_len(usize::MAX),
    ] {
        let error = config.connect(&device(), addr).wait_timeout(DEADLINE).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    }
}

/// The protocol as it is written down, spoken by a session.
#[test]
fn a_peer_can_speak_the_protocol_by_itself() {
    let (opened, session, mut receiver) = answered(HELLO);
    let mut stream = opened.unwrap();
    stream.set_read_timeout(Some(DEADLINE));
    stream.set_write_timeout(Some(DEADLINE));
    let mut next = || receiver.recv().wait_timeout(DEADLINE).unwrap().unwrap();
    // 16 blocks of the stream, and one receive for the end.
    let word = next();
    assert_eq!((word.block.len(), word.immediate), (0, Some([0, 0, 0, 17, 0, 0, 0, 0])));
    // No more than four messages, and not the one for the end, before it hears of more.
    stream.write_all(&[1; 40]).unwrap();
    for len in [16, 16, 8] {
        assert_eq!(next().block.len(), len);
    }
    stream.write_all(b"a").unwrap();
    assert_eq!(&*next().block, b"a");
    stream.set_write_timeout(Some(std::time::Duration::from_millis(5)));
    assert_eq!(stream.write(b"b").unwrap_err().kind(), ErrorKind::TimedOut);
    stream.finish().unwrap();
    let last = next();
    assert_eq!((last.block.len(), last.immediate), (0, None));
    for octets in [&b"hello"[..], b" ", b"world"] {
        session.send_inline(octets).wait().unwrap();
    }
    session.close().wait().unwrap();
    let mut got = Vec::new();
    let error = stream.read_to_end(&mut got).unwrap_err();
    assert_eq!(got, b"hello world");
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{error}");
}

#[test]
fn a_peer_that_breaks_a_rule_is_an_error() {
    let (opened, session, _receiver) = answered(HELLO);
    let mut stream = opened.unwrap();
    stream.set_read_timeout(Some(DEADLINE));
    session.send_inline(b"hello").wait().unwrap();
    // Longer than a block.
    let mut block = iwarp_session::Block::new(session.pd(), 32 * 1024 + 1).unwrap();
    block.fill(1);
    drop(session.send(block));
    let mut got = Vec::new();
    let error = stream.read_to_end(&mut got).unwrap_err();
    assert_eq!(got, b"hello");
    assert_eq!(error.kind(), ErrorKind::ConnectionAborted, "{error}");
}
