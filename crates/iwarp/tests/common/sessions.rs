// SPDX-License-Identifier: MIT OR Apache-2.0

//! Two sessions that are connected to each other.

use std::io::{ErrorKind, Write};
use std::thread;
use std::time::Duration;

use iwarp::{Device, Options, ProtectionDomain};
use iwarp_session::{
    Block, ByteStream, Config, Exposed, Failure, Listener, Outcome, Pending, RemoteGrant, Session,
    Unconnected, stream,
};

use super::{DEADLINE, pattern};

/// One end.
pub struct SessionEnd {
    pub pd: ProtectionDomain,
    pub session: Session,
}

/// Two ends, each a device of its own, and what `prepare` makes of the second before anything can
/// arrive there.
pub fn pair_with<T>(
    config: &Config,
    prepare: impl FnOnce(&ProtectionDomain, &Unconnected) -> T,
) -> (SessionEnd, SessionEnd, T) {
    pair_as(Options::default(), config, prepare)
}

/// As [`pair_with`], on devices with these options.
pub fn pair_as<T>(
    options: Options,
    config: &Config,
    prepare: impl FnOnce(&ProtectionDomain, &Unconnected) -> T,
) -> (SessionEnd, SessionEnd, T) {
    let [client, server] =
        [0; 2].map(|_| Device::with_options(options.clone()).unwrap().alloc_pd());
    let listener = Listener::bind(&server, "127.0.0.1:0").unwrap();
    let connecting = config.connect(&client, listener.local_addr().unwrap());
    let request = listener.accept().wait_timeout(DEADLINE).unwrap();
    let prepared = config.prepare(&server).unwrap();
    let made = prepare(&server, &prepared);
    let session = prepared.accept(request).wait_timeout(DEADLINE).unwrap();
    let server = SessionEnd { pd: server, session };
    let session = connecting.wait_timeout(DEADLINE).unwrap();
    (SessionEnd { pd: client, session }, server, made)
}

/// As [`pair_with`], without anything prepared.
pub fn pair(config: &Config) -> (SessionEnd, SessionEnd) {
    let (client, server, ()) = pair_with(config, |_, _| ());
    (client, server)
}

/// Two ends of a byte stream, each a device of its own: the client's first.
pub fn streams(configs: [&stream::Config; 2]) -> [ByteStream; 2] {
    streams_as(&Options::default(), configs)
}

/// As [`streams`], on devices with these options.
pub fn streams_as(options: &Options, configs: [&stream::Config; 2]) -> [ByteStream; 2] {
    let [client, server] =
        [0; 2].map(|_| Device::with_options(options.clone()).unwrap().alloc_pd());
    let listener = Listener::bind(&server, "127.0.0.1:0").unwrap();
    let opening = configs[0].connect(&client, listener.local_addr().unwrap());
    let request = listener.accept().wait_timeout(DEADLINE).unwrap();
    let server = configs[1].accept(request).wait_timeout(DEADLINE).unwrap();
    let mut streams = [opening.wait_timeout(DEADLINE).unwrap(), server];
    for stream in &mut streams {
        stream.set_read_timeout(Some(DEADLINE));
        stream.set_write_timeout(Some(DEADLINE));
    }
    streams
}

/// Writes pieces of these lengths, one after the other, and the end of the stream.
pub fn write_pieces(mut write: stream::WriteHalf, octets: &[u8], pieces: &[usize]) {
    let mut rest = octets;
    for piece in pieces {
        let (now, later) = rest.split_at(*piece);
        write.write_all(now).unwrap();
        rest = later;
    }
    write.finish().unwrap();
}

/// Writes until the peer takes no more; how many bytes that were.
pub fn fill(stream: &mut ByteStream, octets: &[u8]) -> usize {
    stream.set_write_timeout(Some(Duration::from_millis(20)));
    let mut count = 0;
    let error = loop {
        match stream.write(&octets[count..]) {
            Ok(more) => count += more,
            Err(error) => break error,
        }
    };
    stream.set_write_timeout(Some(DEADLINE));
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    count
}

/// Sends bytes both ways at once, in pieces of these lengths, and reads them by `read`, which gets
/// `lens`: all of them come, in order.
pub fn exchange(
    [client, server]: [ByteStream; 2],
    pieces: &[Vec<usize>; 2],
    read: impl Fn(stream::ReadHalf, usize) -> Vec<u8> + Copy + Send,
    lens: [usize; 2],
) {
    let octets = [0, 1].map(|end| pattern(pieces[end].iter().sum(), end as u64));
    let (client_read, client_write) = client.into_split();
    let (server_read, server_write) = server.into_split();
    thread::scope(|scope| {
        scope.spawn(|| write_pieces(client_write, &octets[0], &pieces[0]));
        scope.spawn(|| write_pieces(server_write, &octets[1], &pieces[1]));
        let there = scope.spawn(move || read(client_read, lens[0]));
        assert!(read(server_read, lens[1]) == octets[0]);
        assert!(there.join().unwrap() == octets[1]);
    });
}

/// The outcome, in time.
pub fn done<T: Outcome>(pending: Pending<T>) -> Result<T, Failure> {
    pending.wait_timeout(DEADLINE).expect("the operation takes too long")
}

/// A block of these bytes.
pub fn block_of(pd: &ProtectionDomain, octets: &[u8]) -> Block {
    let mut block = Block::new(pd, octets.len()).unwrap();
    block.fill_from(octets);
    block
}

/// The grant as the peer makes it.
pub fn remote(exposed: &Exposed) -> RemoteGrant {
    RemoteGrant::from_octets(&exposed.grant().to_octets())
}
