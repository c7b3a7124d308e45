// SPDX-License-Identifier: MIT OR Apache-2.0

//! Strangers that come to the port of a queue pair, or answer where its peer should be.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use iwarp::{Options, Peer, QpState, Users, WcStatus};
use iwarp_proto::mpa::startup::{Config, Initiator, Reply, Request, Responder, RtrTypes};
use iwarp_types::Time;

use crate::common;
use crate::common::knows;
use crate::common::knows::{BEGUN, Key, Knows, PROOF, Role, TAG};
use crate::common::meet::{LOOPBACK, Side, TestHost, exchange};
use crate::common::{DEADLINE, until};

/// The bytes of every refusal.
const REFUSAL: &[u8] = b"iwarp qp\x03\x00";
/// The end whose packet sequence number is to be proven.
const INITIATORS: u8 = 0;
const RESPONDERS: u8 = 1;
/// The user without rights.
const NOBODY: u32 = 65_534;

fn loopback() -> IpAddr {
    LOOPBACK.parse().unwrap()
}

/// An end that waits for its peer, and that peer in its first state.
fn expecting(host: &TestHost) -> (Side, Side) {
    let (a, b) = (host.end(), host.end());
    a.init();
    a.rtr(&b);
    (a, b)
}

fn port(side: &Side) -> SocketAddr {
    SocketAddr::new(side.gid.addr, (side.qp.number() >> 8) as u16)
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

fn connect_from(local: IpAddr, to: SocketAddr) -> TcpStream {
    let socket = iwarp_os::TcpSocket::connect_start(Some(SocketAddr::new(local, 0)), to).unwrap();
    until("the connection", || socket.finish_connect().ok());
    let stream = TcpStream::from(std::os::fd::OwnedFd::from(socket));
    stream.set_nonblocking(false).unwrap();
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

#[track_caller]
fn is_refused(reply: Option<Reply>) {
    let reply = reply.expect("closed without an answer");
    assert!(!reply.accepted, "{reply:?}");
    assert_eq!(reply.private_data, REFUSAL);
}

/// Closed from the other side, or reset.
fn is_closed(stream: &mut TcpStream) -> bool {
    match stream.read(&mut [0; 64]) {
        Ok(n) => n == 0,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

/// The stranger at the other end of the stream is closed on, and has not become the peer of
/// `found`.
#[track_caller]
fn stays_out(stream: &mut TcpStream, found: &Side) {
    assert!(is_closed(stream));
    assert!(!found.qp.is_connected());
}

/// The end that strangers have come to still meets its peer.
fn meets(found: &Side, peer: &Side) {
    peer.all_the_way(found);
    found.rts();
    exchange(found, peer);
}

/// The queue pair `from` of this address, as one who knows `psn` of `to`'s peer.
fn knows(from: u32, to: &Side, psn: u32) -> Knows {
    let gid = to.gid.addr;
    Knows { initiator: (gid, from), responder: (gid, to.qp.number()), psn, other: to.qp.psn() }
}

/// Comes to a queue pair: says what it has to say, reads the answer, gives what it has to prove
/// and whether the other end has proven something.
fn come(stream: &mut TcpStream, knows: &Knows) -> Option<([u8; PROOF], bool)> {
    let (opening, share) = knows.open(Role::Initiator);
    let request = knows.introduction(INITIATORS, &share);
    let reply = ask(stream, &request)?;
    if !reply.accepted {
        assert_eq!(reply.private_data, REFUSAL);
        return None;
    }
    let said = reply.private_data;
    let (share, tag, claim) = knows::answer(&said);
    let key = Key::of(opening, share);
    let begun = &said[..BEGUN];
    let known = key.proof(Role::Responder, &request, begun) == tag
        && claim.is_none_or(|tag| key.claim(Role::Responder, knows.other, &request, begun) == tag);
    Some((key.proves(knows.other, &request, &said), known))
}

#[test]
fn peers_that_say_something_else_are_closed_on() {
    let host = TestHost::new();
    let (a, b) = expecting(&host);
    for words in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 64], &[0xff; 600]] {
        let mut stream = connect(port(&a));
        // It may be closed before all is written.
        let _ = stream.write_all(words);
        assert!(is_closed(&mut stream));
    }
    // The start-up of some other program: closed without an answer.
    for private_data in [&b""[..], b"iwarp qp", b"iwarp qp\x03aaabbb", b"some private data"] {
        assert_eq!(ask(&mut connect(port(&a)), private_data), None);
    }
    // That of an earlier release.
    for words in [b"iwarp qp\x01aaabbb", b"iwarp qp\x02aaabbb"] {
        is_refused(ask(&mut connect(port(&a)), words));
    }
    a.rts();
    b.all_the_way(&a);
    exchange(&a, &b);
}

/// For any reason: nothing is to be learnt from a refusal.
#[test]
fn refusals_tell_nothing() {
    let host = TestHost::new();
    let (a, b) = expecting(&host);
    let (from, to) = (b.qp.number(), a.qp.number());
    let knows = knows(from, &a, b.qp.psn());
    let (_, share) = knows.open(Role::Initiator);
    let words = |from, to| knows::introduction(INITIATORS, from, to, &share);
    // Queue pairs that are not there, or expect no peer.
    for to in [0, from, to ^ 0x80, 0x00ff_ffff] {
        is_refused(ask(&mut connect(port(&a)), &words(from, to)));
    }
    // Somebody else.
    is_refused(ask(&mut connect(port(&a)), &words(from ^ 1, to)));
    // The right one at a wrong address.
    let elsewhere = Ipv4Addr::new(127, 0, 0, 2);
    is_refused(ask(&mut connect_from(elsewhere.into(), port(&a)), &words(from, to)));
    a.rts();
    b.all_the_way(&a);
    exchange(&a, &b);
    // Too late.
    is_refused(ask(&mut connect(port(&b)), &words(to, from)));
    let third = host.end();
    third.all_the_way(&a);
    a.qp.modify(QpState::Reset).unwrap();
    is_refused(ask(&mut connect(port(&third)), &words(from, to)));
}

/// A listener may have two addresses, but each queue pair has one.
#[test]
fn a_queue_pair_is_found_at_its_own_address_alone() {
    let host = TestHost::new();
    let (a, mut b, peer) = (host.end(), host.end(), host.end());
    let Some(v6) = common::meet::gid(&host.device, "::1".parse().unwrap()) else { return };
    b.gid = v6;
    a.init();
    a.rtr(&peer);
    b.init();
    b.qp.connect_to(&Peer::new(&b.gid, b.gid.addr, 0x0004_0001, 7).scope(0)).unwrap();
    assert_eq!(port(&a).port(), port(&b).port());
    let knows = knows(peer.qp.number(), &a, peer.qp.psn());
    assert_eq!(come(&mut connect(port(&b)), &knows), None);
    assert!(come(&mut connect(port(&a)), &knows).is_some());
    peer.all_the_way(&a);
    a.rts();
    exchange(&a, &peer);
}

/// A stranger who knows addresses and numbers, but not what the programs have told each other, is
/// answered and gets no further, however often and whenever it tries.
#[test]
fn strangers_without_the_secret_stay_out() {
    let host = TestHost::new();
    for (strangers, idle) in [(1, 0), (3, 20), (1000, 8)] {
        let (a, b) = (host.end(), host.end());
        b.qp.set_psn(0x0012_3456);
        a.init();
        a.rtr(&b);
        let (start, mut answered) = (Instant::now(), 0);
        for n in 0..strangers {
            let mut stream = connect(port(&a));
            let knows = knows(b.qp.number(), &a, 0x0012_3457 + n);
            let Some((tag, known)) = come(&mut stream, &knows) else { continue };
            assert!(!known, "the answer is of no use to who does not know it");
            answered += 1;
            // The longer the better, but no proof.
            let _ = stream.write_all(&tag);
            stays_out(&mut stream, &a);
        }
        // 64, and four a second.
        let most = 65 + start.elapsed().as_millis() / 250;
        assert!((1..=most).contains(&answered), "{answered} of {strangers}: tries are few");
        // Strangers that do not even try hold up no peer.
        let share = knows(b.qp.number(), &a, 1).open(Role::Initiator).1;
        let idle: Vec<_> = (0..idle)
            .map(|_| {
                let mut stream = connect(port(&a));
                let words = knows::introduction(RESPONDERS, b.qp.number(), a.qp.number(), &share);
                let initiator = Initiator::new(config(), &words, Time::default()).unwrap();
                stream.write_all(initiator.request()).unwrap();
                stream
            })
            .collect();
        meets(&a, &b);
        // The queue pair takes no other connection now.
        let late = knows(b.qp.number(), &a, b.qp.psn());
        assert_eq!(come(&mut connect(port(&a)), &late), None);
        drop(idle);
        exchange(&a, &b);
    }
}

/// A peer has the connection as soon as it has sent its proof, which may cross the end of the queue
/// pair: it gets the end of the stream then, and no reset.
#[test]
fn a_queue_pair_that_goes_before_the_proof_comes_closes_in_good_order() {
    for ending in [QpState::Err, QpState::Reset] {
        let host = TestHost::new();
        let (a, b) = expecting(&host);
        a.rts();
        let mut stream = connect(port(&a));
        let knows = knows(b.qp.number(), &a, b.qp.psn());
        let (proof, known) = come(&mut stream, &knows).expect("an answer");
        assert!(known);
        a.qp.modify(ending).unwrap();
        assert_eq!(stream.read(&mut [0; 64]).unwrap(), 0);
        // A socket that was closed answers the first one with a reset.
        for _ in 0..3 {
            stream.write_all(&proof).unwrap();
        }
        assert_eq!(stream.take_error().unwrap().map(|error| error.kind()), None);
    }
}

/// With the right secret a program of ours can be anybody: the test of the tests.
#[test]
fn a_program_with_the_secret_is_the_peer() {
    let host = TestHost::new();
    let (a, b) = expecting(&host);
    let mut stream = connect(port(&a));
    let (tag, known) = come(&mut stream, &knows(b.qp.number(), &a, b.qp.psn())).unwrap();
    assert!(known);
    // In pieces, as TCP may have it.
    stream.write_all(&tag[..5]).unwrap();
    thread::sleep(Duration::from_millis(5));
    assert!(!a.qp.is_connected());
    stream.write_all(&tag[5..]).unwrap();
    until("the connection", || a.qp.is_connected().then_some(()));
}

/// Each end has to know the number of either.
#[test]
fn one_of_the_two_numbers_is_not_enough() {
    let host = TestHost::new();
    let (a, b) = expecting(&host);
    a.rts();
    for wrong in [[1, 0], [0, 1]] {
        let mut stream = connect(port(&a));
        let mut knows = knows(b.qp.number(), &a, b.qp.psn() ^ wrong[0]);
        knows.other ^= wrong[1];
        let (proof, known) = come(&mut stream, &knows).unwrap();
        assert!(!known);
        let _ = stream.write_all(&proof);
        stays_out(&mut stream, &a);
    }
    b.all_the_way(&a);
    exchange(&a, &b);
}

/// An end in RTR has not been told its own number, and looks at what was said of it when it is.
#[test]
fn a_peer_with_one_of_the_two_numbers_is_found_out_in_rts() {
    let host = TestHost::new();
    for wrong in [0, 1] {
        let (a, b) = expecting(&host);
        let mut knows = knows(b.qp.number(), &a, b.qp.psn());
        knows.other ^= wrong;
        let mut stream = connect(port(&a));
        let (proof, known) = come(&mut stream, &knows).unwrap();
        assert!(known);
        stream.write_all(&proof).unwrap();
        until("the connection", || a.qp.is_connected().then_some(()));
        a.qp.modify(QpState::Rts).unwrap();
        assert_eq!(a.qp.state(), if wrong == 0 { QpState::Rts } else { QpState::Err });
        assert_eq!(a.qp.is_connected(), wrong == 0);
        if wrong == 1 {
            until("the end of it", || is_closed(&mut stream).then_some(()));
        }
    }
}

/// The recorded words of the genuine peer are worth nothing.
#[test]
fn a_recorded_exchange_proves_nothing() {
    let host = TestHost::new();
    let (a, b) = expecting(&host);
    let knows = knows(b.qp.number(), &a, b.qp.psn());
    let (opening, share) = knows.open(Role::Initiator);
    let request = knows.introduction(INITIATORS, &share);
    let mut stream = connect(port(&a));
    let reply = ask(&mut stream, &request).unwrap();
    let key = Key::of(opening, knows::answer(&reply.private_data).0);
    let tag = key.proves(a.qp.psn(), &request, &reply.private_data);
    // The genuine one gives up; a stranger has recorded all of it, even the proof not sent.
    drop(stream);
    let mut stream = connect(port(&a));
    let again = ask(&mut stream, &request).unwrap();
    assert_ne!(again.private_data, reply.private_data);
    stream.write_all(&tag).unwrap();
    stays_out(&mut stream, &a);
    // The responder's own words, sent back to it.
    let mut stream = connect(port(&a));
    let reply = ask(&mut stream, &request).unwrap();
    let reflected = &reply.private_data[reply.private_data.len() - TAG..];
    stream.write_all(&[reflected; 2].concat()).unwrap();
    stays_out(&mut stream, &a);
    meets(&a, &b);
}

/// Programs that exchange no packet sequence numbers have equal ones at both ends, or none.
#[test]
fn programs_that_number_all_from_nought_meet() {
    let host = TestHost::new();
    for late in [false, true] {
        let (a, b) = (host.end(), host.end());
        a.qp.set_psn(0);
        b.qp.set_psn(0x0500_0000);
        assert_eq!(b.qp.psn(), 0, "24 bits");
        a.all_the_way(&b);
        if late {
            b.init();
            b.rtr(&a);
        } else {
            b.all_the_way(&a);
        }
        b.post_recv(1);
        a.send(2, b"zero");
        assert_eq!(b.received(), b"zero");
    }
}

/// Runs as the user without rights, as the system sees it; `None` where that cannot be had.
fn as_nobody<T: Send>(what: impl FnOnce() -> T + Send) -> Option<T> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    thread::scope(|scope| {
        let run = scope.spawn(|| {
            // This thread alone.
            let nobody = rustix::thread::Uid::from_raw(NOBODY);
            rustix::thread::set_thread_res_uid(nobody, nobody, nobody).ok()?;
            Some(what())
        });
        run.join().unwrap()
    })
}

/// The process's user decides before anything that it knows.
#[test]
fn another_users_process_stays_out() {
    if as_nobody(|| ()).is_none() {
        eprintln!("not run: only root has other users' processes");
        return;
    }
    for (allow_users, welcome) in [
        (Users::Listed(Vec::new()), false),
        (Users::Listed(vec![1]), false),
        (Users::Listed(vec![1, NOBODY]), true),
        (Users::Any, true),
    ] {
        let host = TestHost::with(Options::new().allow_users(allow_users), LOOPBACK);
        // One that comes.
        let (a, b) = expecting(&host);
        let (addr, knows) = (port(&a), knows(b.qp.number(), &a, b.qp.psn()));
        let mut stream = as_nobody(|| connect(addr)).unwrap();
        let answer = come(&mut stream, &knows);
        assert_eq!(answer.is_some(), welcome);
        if let Some((tag, _)) = answer {
            stream.write_all(&tag).unwrap();
            until("the connection", || a.qp.is_connected().then_some(()));
        } else {
            a.rts();
            b.all_the_way(&a);
            exchange(&a, &b);
        }
        // One that is in the peer's place.
        let side = host.end();
        let lower = Lower::than(&side);
        side.init();
        side.qp.connect_to(&lower.peer(&side)).unwrap();
        side.rts();
        let taken = as_nobody(|| lower.take()).unwrap();
        let mut stream = lower.answers(taken, &side);
        if welcome {
            until("the connection", || side.qp.is_connected().then_some(()));
        } else {
            assert!(is_closed(&mut stream));
            assert!(!side.qp.is_connected());
            let _stream = lower.answers(lower.take(), &side);
            until("the connection", || side.qp.is_connected().then_some(()));
        }
    }
}

/// A listener whose number, seen as a queue pair's, is lower than that of a queue pair here.
struct Lower {
    listener: TcpListener,
    number: u32,
}

/// The number that the lower end's program has told its peer.
const LOWER_PSN: u32 = 0x00ab_cdef;

impl Lower {
    fn than(side: &Side) -> Self {
        let own = (side.qp.number() >> 8) as u16;
        let listener = (1024..own).find_map(|port| TcpListener::bind((LOOPBACK, port)).ok());
        let listener = listener.expect("no port is free");
        let number = u32::from(listener.local_addr().unwrap().port()) << 8 | 7;
        Self { listener, number }
    }

    fn peer(&self, own: &Side) -> Peer {
        Peer::new(&own.gid, own.gid.addr, self.number, LOWER_PSN)
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

    /// The words to a request of `side`'s of an end that knows the secret but for the bits `wrong`;
    /// and what it expects to be proven.
    fn words(
        &self,
        request: &Request,
        side: &Side,
        [wrong, wrong_claim]: [u32; 2],
    ) -> (Vec<u8>, [u8; PROOF]) {
        let gid = side.gid.addr;
        // It begins with the peer's where it has not yet been told its own.
        let numbers = [LOWER_PSN, side.qp.psn()];
        let theirs = request.private_data[9] == RESPONDERS;
        let (psn, other) = if theirs { numbers.into() } else { (numbers[1], numbers[0]) };
        let (psn, other) = (psn ^ wrong, other ^ wrong_claim);
        let (initiator, responder) = ((gid, side.qp.number()), (gid, self.number));
        let knows = Knows { initiator, responder, psn, other };
        let (opening, share) = knows.open(Role::Responder);
        let key = Key::of(opening, knows::share_of(&request.private_data));
        let mut said = knows::begin_answer(&share);
        let tag = key.proof(Role::Responder, &request.private_data, &said);
        let claim = key.claim(Role::Responder, knows.other, &request.private_data, &said);
        said.extend([tag, claim].concat());
        let due = key.proves(LOWER_PSN, &request.private_data, &said);
        (said, due)
    }

    /// Answers a request of `side`'s.
    fn answers(
        &self,
        (mut stream, responder, request): (TcpStream, Responder, Request),
        side: &Side,
    ) -> TcpStream {
        let (said, _) = self.words(&request, side, [0; 2]);
        stream.write_all(&responder.accept(4, 4, &said).unwrap().0).unwrap();
        stream
    }
}

/// Reads the proof that `side` sends when it takes a connection.
fn proof(stream: &mut TcpStream) -> [u8; PROOF] {
    let mut tag = [0; PROOF];
    stream.read_exact(&mut tag).unwrap();
    tag
}

/// The lower end cannot connect (here: it does not even try): the other one does after a while.
/// One that stays in RTR can prove what its peer has told.
#[test]
fn the_other_end_connects_when_the_first_cannot() {
    let host = TestHost::new();
    for only_rtr in [true, false] {
        let side = host.end();
        let lower = Lower::than(&side);
        side.init();
        side.qp.connect_to(&lower.peer(&side)).unwrap();
        if !only_rtr {
            side.rts();
        }
        let secret = if only_rtr { RESPONDERS } else { INITIATORS };
        let (mut stream, responder, request) = loop {
            let taken = lower.take();
            // One that began before the step to RTS.
            if taken.2.private_data[9] == secret {
                break taken;
            }
        };
        let expected = knows::introduction(
            secret,
            side.qp.number(),
            lower.number,
            &knows::share_of(&request.private_data),
        );
        assert_eq!(request.private_data, expected);
        assert!(request.enhanced && request.peer_to_peer);
        let (said, due) = lower.words(&request, &side, [0; 2]);
        stream.write_all(&responder.accept(4, 4, &said).unwrap().0).unwrap();
        assert_eq!(proof(&mut stream), due);
        until("the connection", || side.qp.is_connected().then_some(()));
        assert_eq!(side.qp.state(), if only_rtr { QpState::Rtr } else { QpState::Rts });
        // Either program may send first: so the initiator has sent something by itself.
        assert_ne!(stream.read(&mut [0; 64]).unwrap(), 0);
    }
}

/// A peer whose number an end in RTR begins with is in RTS, so it knows the other one as well.
#[test]
fn an_answer_in_rts_claims_the_other_number() {
    let host = TestHost::new();
    let side = host.end();
    let lower = Lower::than(&side);
    side.init();
    side.qp.connect_to(&lower.peer(&side)).unwrap();
    let (mut stream, responder, request) = lower.take();
    let words = &request.private_data;
    assert_eq!(words[9], RESPONDERS);
    let (own, peer) = ((side.gid.addr, side.qp.number()), (side.gid.addr, lower.number));
    let knows = Knows { initiator: own, responder: peer, psn: LOWER_PSN, other: 0 };
    let (opening, share) = knows.open(Role::Responder);
    let key = Key::of(opening, knows::share_of(words));
    let mut said = knows::begin_answer(&share);
    said[9] = 1;
    said.extend(key.proof(Role::Responder, words, &said));
    stream.write_all(&responder.accept(4, 4, &said).unwrap().0).unwrap();
    stays_out(&mut stream, &side);
    let _stream = lower.answers(lower.take(), &side);
    until("the connection", || side.qp.is_connected().then_some(()));
}

/// Answers that are none, or prove nothing, are no connection: there is another attempt.
#[test]
fn answers_without_a_proof_are_not_taken_for_the_peer() {
    let host = TestHost::new();
    let side = host.end();
    let lower = Lower::than(&side);
    side.init();
    side.qp.connect_to(&lower.peer(&side)).unwrap();
    side.rts();
    let answer = |kind, responder: &Responder, request: &Request| {
        let accept = |private_data: &[u8]| responder.accept(4, 4, private_data).unwrap().0;
        let (right, _) = lower.words(request, &side, [0; 2]);
        match kind {
            0 => b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
            1 => Vec::new(),
            2 => responder.reject(b"no").unwrap(),
            3 => accept(b"somebody else's"),
            // An end that does not know it, by one bit, and by all of them.
            4 => accept(&lower.words(request, &side, [1, 0]).0),
            5 => accept(&lower.words(request, &side, [0x00ff_ffff, 0]).0),
            // The right one, cut off; with a wrong share; no share at all.
            6 => accept(&right[..right.len() - 1]),
            7 => accept(&[&right[..20], &[right[20] ^ 1], &right[21..]].concat()),
            8 => accept(&[&right[..10], &[0x42], &[0xff; 32], &right[43..]].concat()),
            9 => accept(&[&right[..10], &request.private_data[16..49], &right[43..]].concat()),
            // Speaks before it is spoken to (RFC 5044 §7.1.2(4)).
            10 => [&accept(&right)[..], &[0; 16]].concat(),
            // An end that knows one of the two numbers.
            _ => accept(&lower.words(request, &side, [0, 1]).0),
        }
    };
    for kind in 0..12 {
        let (mut stream, responder, request) = lower.take();
        // The peer may have seen enough and closed.
        let _ = stream.write_all(&answer(kind, &responder, &request));
        let _ = stream.shutdown(std::net::Shutdown::Write);
        while !matches!(stream.read(&mut [0; 64]), Ok(0) | Err(_)) {}
        assert!(!side.qp.is_connected(), "{kind}");
        assert_eq!(side.qp.state(), QpState::Rts);
    }
    // And the right one is still welcome.
    let _stream = lower.answers(lower.take(), &side);
    until("the connection", || side.qp.is_connected().then_some(()));
}

/// Both have connected and both Requests are under way: the lower end's connection counts, and
/// the higher end drops its own.
#[test]
fn the_lower_end_wins() {
    let host = TestHost::new();
    for both_answered in [false, true] {
        let side = host.end();
        let lower = Lower::than(&side);
        side.init();
        side.qp.connect_to(&lower.peer(&side)).unwrap();
        side.rts();
        let taken = lower.take();
        let mut ours = connect(port(&side));
        let (tag, known) = come(&mut ours, &knows(lower.number, &side, LOWER_PSN)).unwrap();
        assert!(known);
        let mut theirs = if both_answered {
            // It knows that this is its peer, but has answered the other connection.
            lower.answers(taken, &side)
        } else {
            taken.0
        };
        assert!(!side.qp.is_connected());
        ours.write_all(&tag).unwrap();
        until("the connection", || side.qp.is_connected().then_some(()));
        assert!(is_closed(&mut theirs), "its own is closed, without a proof");
        ours.set_nonblocking(true).unwrap();
        assert_eq!(ours.read(&mut [0; 64]).unwrap_err().kind(), ErrorKind::WouldBlock);
    }
}

/// A stranger cannot hold up what the end that does not lead has made itself.
#[test]
fn a_guest_that_proves_nothing_gives_way() {
    let host = TestHost::new();
    let side = host.end();
    let lower = Lower::than(&side);
    side.init();
    side.qp.connect_to(&lower.peer(&side)).unwrap();
    side.rts();
    let taken = lower.take();
    let mut stranger = connect(port(&side));
    let (_, known) = come(&mut stranger, &knows(lower.number, &side, 1)).unwrap();
    assert!(!known);
    let mut stream = lower.answers(taken, &side);
    // It says nothing, for seconds.
    proof(&mut stream);
    until("the connection", || side.qp.is_connected().then_some(()));
    assert!(is_closed(&mut stranger));
}

/// A peer that accepts TCP and says nothing holds up no queue pair for ever.
#[test]
fn silence_is_not_an_answer() {
    let options = Options::new().startup_timeout(Duration::from_millis(300));
    let host = TestHost::with(options, LOOPBACK);
    let side = host.end();
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
    let other = host.end();
    other.init();
    other.rtr(&side);
    let mut silent = connect(port(&other));
    silent.write_all(b"MPA ID").unwrap();
    assert_eq!(silent.read(&mut [0; 64]).unwrap_or(0), 0);
    assert_eq!(port(&other).ip(), loopback());
}
