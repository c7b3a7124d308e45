// SPDX-License-Identifier: MIT OR Apache-2.0

//! Agreement on a worker that a test turns.

mod lines;

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use iwarp_os::local::{Marks, PeerMemory, Ring, StatusPage};
use iwarp_os::unix::SeqSocket;

use super::message::{Answer, LEN, Message, Reach};
use super::*;
use crate::port::local::{ROOM, Way};
use crate::port::{Clock, Ends, ManualClock, WakerSlot};

/// An end that moves wherever it is asked to.
#[derive(Debug)]
struct Moves {
    peer: SocketAddr,
    waker: Arc<WakerSlot>,
    moved: AtomicBool,
    /// The reason for which it stays; only where that is expected.
    stays: Option<Mutex<Option<Cause>>>,
}

impl Moves {
    fn keep(&self, why: Hindrance) {
        match &self.stays {
            Some(stays) => *stays.lock() = Some(why.cause),
            None => panic!("{}", why.line()),
        }
    }
}

fn own() -> SocketAddr {
    ([127, 0, 0, 1], 7471).into()
}

impl LocalEnd for Moves {
    fn ends(&self) -> Ends {
        Ends { local: Some(own()), peer: self.peer }
    }

    fn waker(&self) -> Arc<WakerSlot> {
        Arc::clone(&self.waker)
    }

    fn move_to(&self, _: Way) -> io::Result<()> {
        Ok(())
    }

    fn send_by_way(&self, _: bool) {
        self.moved.store(true, Ordering::Relaxed);
    }

    fn stay(&self, why: Hindrance) {
        self.keep(why);
    }

    fn decline(&self, why: Hindrance) {
        self.keep(why);
    }
}

fn end(port: u16) -> Arc<Moves> {
    let peer = ([127, 0, 0, 1], port).into();
    Arc::new(Moves { peer, waker: Arc::default(), moved: AtomicBool::new(false), stays: None })
}

fn offered(locals: &Locals, end: &Arc<Moves>) -> Offer {
    let end: Weak<dyn LocalEnd> = Arc::downgrade(end) as _;
    locals.offer(end).unwrap()
}

/// All have connected, and said all they have to, before the process looks at the first.
#[test]
fn as_many_processes_as_can_wait_come_at_once() {
    let worker = Worker::without_thread(Clock::system()).unwrap();
    let locals = Locals::new(&worker, false, None, false);
    let come = |port| {
        let end = end(port);
        let Offer { name, secret } = offered(&locals, &end);
        let socket = SeqSocket::connect(socket_name(name).as_bytes()).unwrap();
        let (marks, fds) = Marks::create().unwrap();
        socket.send(&Message::Hello.encode(), &fds.passed()).unwrap();
        let (ring, memory) = Ring::create(ROOM).unwrap();
        let join = Join { slot: 0, crc: false, secret, local: end.peer, peer: own() };
        socket.send(&Message::Join(join).encode(), &[memory.as_fd()]).unwrap();
        (end, socket, marks, ring)
    };
    let ones: Vec<_> = (1..=BACKLOG).map(come).collect();
    let mut turner = worker.turner();
    for _ in 0..4 {
        worker.turn(&mut turner, Some(Duration::ZERO)).unwrap();
    }
    for (end, socket, ..) in &ones {
        let mut answer = [0; LEN];
        assert_eq!(socket.recv_passed(&mut answer).unwrap().0, LEN);
        let taken = Answer { slot: 0, taken: Ok(()), crc: false };
        assert_eq!(Message::decode(&answer), Some(Message::Answer(taken)));
        assert!(end.moved.load(Ordering::Relaxed));
    }
}

#[test]
fn offers_that_were_not_followed_make_room() {
    let clock = ManualClock::new();
    let worker = Worker::without_thread(Clock::from(clock.clone())).unwrap();
    let locals = Locals::new(&worker, false, None, false);
    let stays = end(1);
    for _ in 0..OFFERS {
        offered(&locals, &stays);
    }
    let one_more = || locals.offer(Arc::downgrade(&stays) as Weak<dyn LocalEnd>);
    assert_eq!(one_more().unwrap_err().cause, Cause::Full);
    clock.advance(2 * PATIENCE);
    assert!(one_more().is_ok());
    assert_eq!(locals.offers.lock().len(), 1);
}

/// The next message, with what comes along; `None` where the other end has closed.
fn heard(socket: &SeqSocket) -> Option<(Message, Vec<OwnedFd>)> {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let mut octets = [0; LEN];
        match socket.recv_passed(&mut octets) {
            Ok((LEN, passed)) => return Some((Message::decode(&octets).unwrap(), passed)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                assert!(Instant::now() < until, "nothing comes");
                std::thread::yield_now();
            }
            _ => return None,
        }
    }
}

/// One that may not read this process's memory would get some of it.
#[test]
fn a_process_that_says_it_reads_this_one_s_memory_has_to_show_it() {
    for is_honest in [true, false] {
        let worker = Worker::start().unwrap();
        let locals = Locals::new(&worker, false, Some(&Arc::default()), false);
        let known = end(1);
        let Offer { name, .. } = offered(&locals, &known);
        let socket = SeqSocket::connect(socket_name(name).as_bytes()).unwrap();
        let (_marks, fds) = Marks::create().unwrap();
        let (own, fd) = StatusPage::create().unwrap();
        let Ok(_life) = own.hold() else { return };
        let passed: Vec<_> = fds.passed().into_iter().chain([fd.as_fd()]).collect();
        socket.send(&Message::Hello.encode(), &passed).unwrap();
        let (reach, passed) = heard(&socket).unwrap();
        assert_eq!(reach, Message::Reach(Reach::Reads(own.secret().unwrap())));
        let peer = PeerMemory::open(&socket, passed[0].as_fd()).unwrap();
        let mut read = peer.probe().unwrap();
        read[7] ^= u8::from(!is_honest);
        socket.send(&Message::Reach(Reach::Reads(read)).encode(), &[]).unwrap();
        let (_ring, memory) = Ring::create(ROOM).unwrap();
        let (local, peer) = (known.peer, super::tests::own());
        let join = Join { slot: 0, crc: false, secret: 1, local, peer };
        let sent = socket.send(&Message::Join(join).encode(), &[memory.as_fd()]);
        let answered = sent.is_ok() && matches!(heard(&socket), Some((Message::Answer(_), _)));
        assert_eq!(answered, is_honest);
        worker.stop();
    }
}
