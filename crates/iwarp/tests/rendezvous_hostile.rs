//! Who else may come to the port of a queue pair, and what may answer where its peer should be.

mod common;

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use common::meet::{LOOPBACK, Place, Side, exchange};
use common::{DEADLINE, until};
use iwarp::{Options, Peer, State, WcStatus};
use iwarp_proto::mpa::startup::{Config, Initiator, Reply, Request, Responder, RtrTypes};
use iwarp_proto::types::Time;

/// How long the end that does not lead waits before it connects itself.
const PRECEDENCE: Duration = Duration::from_millis(500);

fn port(side: &Side) -> SocketAddr {
    SocketAddr::new(LOOPBACK.parse().unwrap(), (side.qp.number() >> 8) as u16)
}

/// As the queue pairs say it: magic, version, two numbers of 24 bits.
fn introduction(from: u32, to: u32) -> Vec<u8> {
    let mut octets = b"iwarp qp\x01".to_vec();
    octets.extend(&from.to_be_bytes()[1..]);
    octets.extend(&to.to_be_bytes()[1..]);
    octets
}

fn config() -> Config {
    let rtr = RtrTypes { send: false, write: true, read: true };
    Config { peer_to_peer: true, rtr, ..Config::default() }
}

fn connect(addr: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream
}

/// Sends a Request and waits for the Reply; `None` when the connection is closed instead.
fn ask(stream: &mut TcpStream, private_data: &[u8]) -> Option<Reply> {
    let mut initiator = Initiator::new(config(), private_data, Time::default()).unwrap();
    stream.write_all(initiator.request()).unwrap();
    let mut received = Vec::new();
    loop {
        let mut room = [0; 1024];
        match stream.read(&mut room) {
            Ok(0) => return None,
            Ok(n) => received.extend_from_slice(&room[..n]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
            Err(error) => panic!("{error}"),
        }
        if let Some((reply, _)) = initiator.receive(&received).unwrap() {
            return Some(reply);
        }
    }
}

/// The reason that a refusal gives.
fn refusal(reply: Option<Reply>) -> u8 {
    let reply = reply.expect("closed without an answer");
    assert!(!reply.accepted);
    let [reason] = reply.private_data.strip_prefix(b"iwarp qp\x01").unwrap() else {
        panic!("{reply:?}")
    };
    *reason
}

const UNKNOWN: u8 = 1;
const STRANGER: u8 = 2;
const TAKEN: u8 = 3;

#[test]
fn whoever_says_something_else_is_closed_on() {
    let place = Place::new();
    let (a, b) = (place.end(), place.end());
    a.init();
    for words in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 64], &[0xff; 600]] {
        let mut stream = connect(port(&a));
        // It may be closed before all is written.
        let _ = stream.write_all(words);
        let mut room = [0; 64];
        match stream.read(&mut room) {
            Ok(n) => assert_eq!(n, 0),
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        }
    }
    // The start-up of some other program: closed without an answer.
    for private_data in [&b""[..], b"iwarp qp", b"iwarp qp\x00aaabbb", b"some private data"] {
        assert_eq!(ask(&mut connect(port(&a)), private_data), None);
    }
    a.rtr(&b);
    a.rts();
    b.all_the_way(&a);
    exchange(&a, &b);
}

#[test]
fn whoever_is_not_expected_is_sent_away() {
    let place = Place::new();
    let (a, b) = (place.end(), place.end());
    a.init();
    let (from, to) = (b.qp.number(), a.qp.number());
    // Queue pairs that are not there, or do not want to be found.
    for to in [0, from, to + 200, 0x00ff_ffff] {
        assert_eq!(refusal(ask(&mut connect(port(&a)), &introduction(from, to))), UNKNOWN);
    }
    a.rtr(&b);
    assert_eq!(refusal(ask(&mut connect(port(&a)), &introduction(from + 1, to))), STRANGER);
    // The right number at a wrong address.
    let elsewhere = Ipv4Addr::new(127, 0, 0, 2);
    let mut stream = connect_from(elsewhere.into(), port(&a));
    assert_eq!(refusal(ask(&mut stream, &introduction(from, to))), STRANGER);
    a.rts();
    b.all_the_way(&a);
    exchange(&a, &b);
    assert_eq!(refusal(ask(&mut connect(port(&a)), &introduction(from, to))), TAKEN);
    a.qp.modify(State::Reset).unwrap();
    assert_eq!(refusal(ask(&mut connect(port(&b)), &introduction(from, to))), UNKNOWN);
}

fn connect_from(local: IpAddr, to: SocketAddr) -> TcpStream {
    let socket = iwarp_os::TcpSocket::connect_start(Some(SocketAddr::new(local, 0)), to).unwrap();
    until("the connection", || socket.finish_connect().ok());
    let stream = TcpStream::from(std::os::fd::OwnedFd::from(socket));
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream
}

/// Requests for a queue pair whose program has not said whom it expects are kept, but not many.
#[test]
fn not_many_wait_for_a_queue_pair() {
    let place = Place::new();
    let (a, b) = (place.end(), place.end());
    a.init();
    let mut waiting: Vec<_> = (0..20)
        .map(|n| {
            let mut stream = connect(port(&a));
            let private_data = introduction(b.qp.number() + 1 + n, a.qp.number());
            let initiator = Initiator::new(config(), &private_data, Time::default()).unwrap();
            stream.write_all(initiator.request()).unwrap();
            stream
        })
        .collect();
    // The first ones give way to the later ones.
    for stream in waiting.drain(..16) {
        let mut stream = stream;
        assert_eq!(stream.read(&mut [0; 64]).unwrap_or(0), 0);
    }
    for stream in &waiting {
        stream.set_nonblocking(true).unwrap();
    }
    for stream in &mut waiting {
        assert_eq!(stream.read(&mut [0; 64]).unwrap_err().kind(), ErrorKind::WouldBlock);
    }
    // The right one comes last and is found among them.
    b.all_the_way(&a);
    a.rtr(&b);
    a.rts();
    exchange(&a, &b);
}

/// A listener whose number, seen as a queue pair's, is lower than that of a queue pair here.
struct Lower {
    listener: TcpListener,
    number: u32,
}

impl Lower {
    fn than(side: &Side) -> Self {
        let own = (side.qp.number() >> 8) as u16;
        let listener = (1024..own).find_map(|port| TcpListener::bind((LOOPBACK, port)).ok());
        let listener = listener.expect("no port is free");
        let number = u32::from(listener.local_addr().unwrap().port()) << 8 | 7;
        Self { listener, number }
    }

    fn peer(&self, own: &Side) -> Peer {
        Peer::new(&own.gid, own.gid.addr, self.number)
    }

    /// Takes a connection and reads the Request.
    fn take(&self) -> (TcpStream, Responder, Request) {
        let (mut stream, _) = self.listener.accept().unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let mut responder = Responder::new(config(), Time::default());
        let mut received = Vec::new();
        loop {
            let mut room = [0; 1024];
            let n = stream.read(&mut room).unwrap();
            assert_ne!(n, 0, "closed in the middle of the Request");
            received.extend_from_slice(&room[..n]);
            if let Some((request, _)) = responder.receive(&received).unwrap() {
                return (stream, responder, request);
            }
        }
    }
}

/// The lower end cannot connect (here: it does not even try): the other one does after a while.
#[test]
fn the_other_end_connects_when_the_first_cannot() {
    let place = Place::new();
    let side = place.end();
    let lower = Lower::than(&side);
    side.init();
    let start = Instant::now();
    side.qp.connect_to(&lower.peer(&side)).unwrap();
    let (mut stream, responder, request) = lower.take();
    assert!(start.elapsed() >= PRECEDENCE, "{:?}", start.elapsed());
    assert_eq!(request.private_data, introduction(side.qp.number(), lower.number));
    assert!(request.enhanced && request.peer_to_peer);
    let own = introduction(lower.number, side.qp.number());
    let (reply, _) = responder.accept(4, 4, &own).unwrap();
    stream.write_all(&reply).unwrap();
    until("the connection", || side.qp.is_connected().then_some(()));
    assert_eq!(side.qp.state(), State::Rtr);
    // Either program may send first: so the initiator has sent something by itself.
    assert_ne!(stream.read(&mut [0; 64]).unwrap(), 0);
}

/// Answers that are none are no connection: there is another attempt.
#[test]
fn whatever_answers_there_is_not_taken_for_the_peer() {
    let place = Place::new();
    let side = place.end();
    let lower = Lower::than(&side);
    side.init();
    side.qp.connect_to(&lower.peer(&side)).unwrap();
    side.rts();
    let own = introduction(lower.number, side.qp.number());
    let answer = |kind, responder: &Responder| {
        let accept = |private_data: &[u8]| responder.accept(4, 4, private_data).unwrap().0;
        match kind {
            0 => b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
            1 => Vec::new(),
            2 => responder.reject(b"no").unwrap(),
            3 => accept(b"somebody else's"),
            4 => accept(&introduction(lower.number, side.qp.number() + 1)),
            // Speaks before it is spoken to (RFC 5044 §7.1.2(4)).
            _ => [&accept(&own)[..], &[0; 16]].concat(),
        }
    };
    for kind in 0..6 {
        let (mut stream, responder, _) = lower.take();
        // Whoever has seen enough may have closed.
        let _ = stream.write_all(&answer(kind, &responder));
        let _ = stream.shutdown(std::net::Shutdown::Write);
        while !matches!(stream.read(&mut [0; 64]), Ok(0) | Err(_)) {}
        assert!(!side.qp.is_connected());
        assert_eq!(side.qp.state(), State::Rts);
    }
    // And the right one is still welcome.
    let (mut stream, responder, _) = lower.take();
    stream.write_all(&responder.accept(4, 4, &own).unwrap().0).unwrap();
    until("the connection", || side.qp.is_connected().then_some(()));
}

/// Both have connected and both Requests are under way: the lower end's connection counts, and
/// the higher end drops its own.
#[test]
fn the_lower_end_wins() {
    let place = Place::new();
    let side = place.end();
    let lower = Lower::than(&side);
    side.init();
    side.qp.connect_to(&lower.peer(&side)).unwrap();
    let (mut theirs, _, _) = lower.take();
    let mut ours = connect(port(&side));
    let reply = ask(&mut ours, &introduction(lower.number, side.qp.number())).unwrap();
    assert!(reply.accepted);
    assert_eq!(reply.private_data, introduction(side.qp.number(), lower.number));
    assert_eq!(theirs.read(&mut [0; 64]).unwrap_or(0), 0, "its own is closed");
}

/// A peer that accepts TCP and says nothing holds nobody up for ever.
#[test]
fn silence_is_not_an_answer() {
    let options = Options { startup_timeout: Duration::from_millis(300), ..Options::default() };
    let place = Place::with(options, LOOPBACK);
    let side = place.end();
    let lower = Lower::than(&side);
    side.init();
    side.qp.connect_to(&lower.peer(&side)).unwrap();
    side.rts();
    side.send(1, b"hello?");
    let first = lower.take();
    let second = lower.take();
    assert_eq!(side.status(), WcStatus::RetryExceeded);
    drop((first, second));
    // Nor does one who comes and says nothing.
    let other = place.end();
    other.init();
    let mut silent = connect(port(&other));
    silent.write_all(b"MPA ID").unwrap();
    assert_eq!(silent.read(&mut [0; 64]).unwrap_or(0), 0);
}
