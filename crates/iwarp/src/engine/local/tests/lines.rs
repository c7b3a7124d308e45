// SPDX-License-Identifier: MIT OR Apache-2.0

//! The lines of processes that read late, and of those that have become another user.

use std::fmt::Write as _;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use super::*;
use crate::engine::worker::Turner;

/// More connections than both sockets and the messages that wait have room for.
const BURST: u16 = 1200;

/// An end whose peer has this port, and which may stay with TCP.
fn undecided(port: u16) -> Arc<Moves> {
    let end = Arc::into_inner(end(port)).unwrap();
    Arc::new(Moves { stays: Some(Mutex::default()), ..end })
}

/// The reason for which it stays.
fn stays(end: &Moves) -> Option<Cause> {
    *end.stays.as_ref().unwrap().lock()
}

fn turn(worker: &Arc<Worker>, turner: &mut Turner) {
    worker.turn(turner, Some(Duration::ZERO)).unwrap();
}

/// The process at the other end of a line, which says each message by itself.
struct Peer {
    socket: SeqSocket,
    _marks: Option<Marks>,
}

impl Peer {
    /// Begins a line to the process with that name.
    fn begin(name: u64) -> Self {
        let socket = SeqSocket::connect(socket_name(name).as_bytes()).unwrap();
        let (marks, fds) = Marks::create().unwrap();
        socket.send(&Message::Hello.encode(), &fds.passed()).unwrap();
        Self { socket, _marks: Some(marks) }
    }

    /// Asks for the connection of that secret. False where the socket has no room.
    fn joins(&self, slot: u16, secret: u64, end: &Moves) -> bool {
        let (_ring, memory) = Ring::create(ROOM).unwrap();
        let join = Join { slot, crc: false, secret, local: end.peer, peer: own() };
        match self.socket.send(&Message::Join(join).encode(), &[memory.as_fd()]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => false,
            said => said.map(|()| true).unwrap(),
        }
    }

    /// The next message of the process, if one is there.
    fn hears(&self) -> Option<Message> {
        let mut octets = [0; LEN];
        match self.socket.recv_passed(&mut octets) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            received => {
                assert_eq!(received.unwrap().0, LEN, "the line is over");
                Some(Message::decode(&octets).unwrap())
            }
        }
    }

    /// Takes each connection that the process asks for, and says how many these were. `turn` has
    /// the process read the answers.
    fn answers(&self, mut turn: impl FnMut()) -> usize {
        let mut heard = 0;
        while let Some(message) = self.hears() {
            if let Message::Join(Join { slot, .. }) = message {
                let answer = Message::Answer(Answer { slot, taken: Ok(()), crc: false });
                while let Err(error) = self.socket.send(&answer.encode(), &[]) {
                    assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "{error}");
                    turn();
                }
                heard += 1;
            }
        }
        heard
    }
}

#[test]
fn a_process_that_hears_no_answers_is_asked_to_wait() {
    let worker = Worker::without_thread(Clock::system()).unwrap();
    let mut turner = worker.turner();
    let locals = Locals::new(&worker, false, None, false);
    let peer = Peer::begin(offered(&locals, &end(1)).name);
    let (mut ends, mut answers, mut had_to_wait) = (Vec::new(), 0, false);
    for slot in 0..BURST {
        let end = end(slot + 1);
        let Offer { secret, .. } = offered(&locals, &end);
        while !peer.joins(slot, secret, &end) {
            turn(&worker, &mut turner);
            if !peer.joins(slot, secret, &end) {
                // The process does not read on before its answers are heard.
                had_to_wait = true;
                answers += usize::from(peer.hears().is_some());
            } else {
                break;
            }
        }
        ends.push(end);
    }
    assert!(had_to_wait, "the process has read all of them without an end to its answers");
    while answers < ends.len() {
        turn(&worker, &mut turner);
        answers += usize::from(peer.hears().is_some());
    }
    assert!(ends.iter().all(|end| end.moved.load(Ordering::Relaxed)));
}

/// A process that listens under a name, and accepts when the test wants it to.
fn listening() -> (u64, SeqListener) {
    let name = random().unwrap();
    let listener = SeqListener::bind(socket_name(name).as_bytes()).unwrap();
    listener.listen(BACKLOG).unwrap();
    (name, listener)
}

#[test]
fn connections_wait_for_a_process_that_reads_no_questions() {
    let clock = ManualClock::new();
    let end_of_patience = clock.now() + PATIENCE;
    let worker = Worker::without_thread(Clock::from(clock.clone())).unwrap();
    let mut turner = worker.turner();
    let locals = Locals::new(&worker, false, None, false);
    let (name, listener) = listening();
    let ends: Vec<_> = (1..=BURST).map(end).collect();
    for (end, secret) in ends.iter().zip(0..) {
        locals.follow(Offer { name, secret }, Arc::clone(end) as Arc<dyn LocalEnd>);
    }
    turn(&worker, &mut turner);
    let peer = Peer { socket: listener.accept().unwrap(), _marks: None };
    while !ends.iter().all(|end| end.moved.load(Ordering::Relaxed)) {
        peer.answers(|| turn(&worker, &mut turner));
        turn(&worker, &mut turner);
        clock.advance(AGAIN / 10);
        assert!(clock.now() < end_of_patience, "they do not wait any more");
    }
}

/// Runs it in a thread that may become another user. Only root can.
fn in_own_thread(test: fn()) {
    if rustix::process::geteuid().is_root() {
        std::thread::spawn(test).join().unwrap();
    }
}

fn become_another_user() {
    let user = rustix::thread::Uid::from_raw(61_240);
    rustix::thread::set_thread_res_uid(user, user, user).unwrap();
}

#[test]
fn a_line_of_a_former_user_takes_no_more_connections() {
    in_own_thread(|| {
        let worker = Worker::without_thread(Clock::system()).unwrap();
        let mut turner = worker.turner();
        let locals = Locals::new(&worker, false, None, false);
        let (first, second) = (undecided(1), undecided(2));
        let Offer { name, secret } = offered(&locals, &first);
        let later = offered(&locals, &second).secret;
        let peer = Peer::begin(name);
        assert!(peer.joins(0, secret, &first));
        (0..2).for_each(|_| turn(&worker, &mut turner));
        let answer = Answer { slot: 0, taken: Ok(()), crc: false };
        assert_eq!(peer.hears(), Some(Message::Answer(answer)));

        become_another_user();
        assert!(peer.joins(1, later, &second));
        turn(&worker, &mut turner);
        let why = Cause::OtherUser;
        let answer = Answer { slot: 1, taken: Err(why as u8), crc: false };
        assert_eq!(peer.hears(), Some(Message::Answer(answer)));
        assert_eq!((stays(&first), stays(&second)), (None, Some(why)));
    });
}

#[test]
fn a_line_of_a_former_user_asks_no_more() {
    in_own_thread(|| {
        let worker = Worker::without_thread(Clock::system()).unwrap();
        let mut turner = worker.turner();
        let locals = Locals::new(&worker, false, None, false);
        let (first, second) = (undecided(1), undecided(2));
        let (name, listener) = listening();
        let mut follow = |end: &Arc<Moves>| {
            locals.follow(Offer { name, secret: 1 }, Arc::clone(end) as Arc<dyn LocalEnd>);
            turn(&worker, &mut turner);
        };
        follow(&first);
        let peer = Peer { socket: listener.accept().unwrap(), _marks: None };
        assert_eq!(peer.answers(|| {}), 1);
        become_another_user();
        // The process that listens is the former one's.
        follow(&second);
        assert_eq!(peer.answers(|| {}), 0);
        assert_eq!((stays(&first), stays(&second)), (None, Some(Cause::OtherUser)));
        assert!(first.moved.load(Ordering::Relaxed), "a line stays for those that use it");
    });
}

/// The lines of the log.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<String>>);

impl Visit for Lines {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        writeln!(self.0.lock(), "{}={value:?}", field.name()).unwrap();
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO
    }

    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// The process is told of fewer descriptors than were passed where it has no room for them.
#[test]
fn a_greeting_without_its_descriptors_is_explained() {
    let worker = Worker::without_thread(Clock::system()).unwrap();
    let locals = Locals::new(&worker, false, None, false);
    let name = offered(&locals, &end(1)).name;
    let socket = SeqSocket::connect(socket_name(name).as_bytes()).unwrap();
    socket.send(&Message::Hello.encode(), &[socket.as_fd()]).unwrap();
    let lines = Lines::default();
    tracing::subscriber::with_default(lines.clone(), || turn(&worker, &mut worker.turner()));
    let lines = lines.0.lock().clone();
    assert!(lines.contains("no file descriptors are left in this process"), "{lines}");
}
