// SPDX-License-Identifier: MIT OR Apache-2.0

//! The connection between the tester and the program: pieces that take their time, by a clock that
//! stands still while either end works.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use std::cell::RefCell;
use std::rc::Rc;

use iwarp_conform::case::Role;
use iwarp_conform::transport::Transport;
use iwarp_sim::choice::Choices;
use iwarp_types::Time;

use super::target::{Chunk, Manner, Target};

/// The ways in which a seed cuts the stream and holds it up.
#[derive(Clone, Copy, Debug)]
struct StreamFaults {
    /// The longest piece in bytes; the first of each write are shorter.
    piece: usize,
    /// The longest delay of a piece.
    delay: Duration,
}

/// One direction.
#[derive(Debug, Default)]
struct Way {
    flying: VecDeque<(Duration, Chunk)>,
    /// When the last piece arrives: none overtakes another.
    last: Duration,
    ended: bool,
}

/// Both ends' world, which the test keeps when the tester has let go of it.
#[derive(Debug)]
pub(super) struct World {
    now: Duration,
    choices: Choices<'static>,
    faults: StreamFaults,
    to_target: Way,
    to_tester: Way,
    pub(super) target: Target,
    /// The sum of everything that passed, and when.
    pub(super) digest: u64,
}

/// The tester's end.
#[derive(Debug)]
pub(super) struct Wire {
    world: Rc<RefCell<World>>,
    base: Instant,
}

/// Pieces of a write that are very short at most, so that long messages do not take for ever.
const SHORT: usize = 300;

impl World {
    pub(super) fn new(seed: u64, role: Role, manner: Manner) -> Rc<RefCell<Self>> {
        let mut choices = Choices::from_seed(seed);
        let faults = StreamFaults {
            piece: choices.pick(&[1, 3, 40, 700, 1 << 20]),
            delay: Duration::from_micros(choices.pick(&[0, 50, 2000])),
        };
        let start = Time(Duration::ZERO);
        let (target, request) = match role {
            Role::Connect => (Target::server(manner, start), None),
            Role::Listen => {
                let (target, request) = Target::client(manner, start);
                (target, Some(Chunk::Bytes(request)))
            }
        };
        let mut world = Self {
            now: Duration::ZERO,
            choices,
            faults,
            to_target: Way::default(),
            to_tester: Way::default(),
            target,
            digest: seed,
        };
        world.send(false, request.into_iter().collect());
        Rc::new(RefCell::new(world))
    }

    fn note(&mut self, what: u64) {
        self.digest = (self.digest ^ what).wrapping_mul(0x0100_0000_01b3).rotate_left(23);
    }

    /// Puts chunks on their way.
    fn send(&mut self, to_target: bool, chunks: Vec<Chunk>) {
        for chunk in chunks {
            let mut pieces = Vec::new();
            match chunk {
                Chunk::Bytes(bytes) => {
                    let mut rest = &bytes[..];
                    while !rest.is_empty() {
                        let sent = bytes.len() - rest.len();
                        let most = if sent < SHORT { self.faults.piece } else { 1 << 20 };
                        let len = self.choices.range(1, most as u64) as usize;
                        let (piece, left) = rest.split_at(len.min(rest.len()));
                        pieces.push(Chunk::Bytes(piece.to_vec()));
                        rest = left;
                    }
                }
                end => pieces.push(end),
            }
            let way = if to_target { &mut self.to_target } else { &mut self.to_tester };
            for piece in pieces {
                if way.ended {
                    // No octets come behind a FIN or a reset.
                    break;
                }
                let delay = self.choices.below(self.faults.delay.as_micros() as u64 + 1);
                way.last = way.last.max(self.now + Duration::from_micros(delay));
                way.ended = !matches!(piece, Chunk::Bytes(_));
                way.flying.push_back((way.last, piece));
            }
        }
    }

    /// When something happens at the program's end.
    fn next(&self) -> Option<Duration> {
        let arrival = self.to_target.flying.front().map(|(at, _)| *at);
        let alarm = self.target.alarm().map(|at| at.0);
        arrival.into_iter().chain(alarm).min().map(|at| at.max(self.now))
    }

    /// Lets one thing happen at the program's end, if there is one until then.
    fn step(&mut self, until: Duration) -> bool {
        let Some(at) = self.next().filter(|at| *at <= until) else { return false };
        self.now = at;
        let arrives = self.to_target.flying.front().is_some_and(|(when, _)| *when <= at);
        let now = Time(at);
        let answer = if arrives {
            let (_, chunk) = self.to_target.flying.pop_front().expect("it was there");
            if let Chunk::Bytes(bytes) = &chunk {
                self.note(bytes.len() as u64);
            }
            self.target.take(chunk, now)
        } else {
            self.target.wake(now)
        };
        self.note(at.as_micros() as u64);
        self.send(false, answer);
        true
    }

    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        while self.step(until) {}
        self.now = until;
    }

    /// Lets all that is on its way arrive.
    pub(super) fn settle(&mut self) {
        self.pass(Duration::from_secs(60));
    }

    fn read(&mut self, room: &mut [u8], patience: Duration) -> io::Result<usize> {
        let until = self.now + patience;
        loop {
            let came = self.to_tester.flying.front().map(|(at, _)| (*at).max(self.now));
            let first = self.next();
            // Bytes due at the moment of a program's step come after that step.
            let reads = came.is_some_and(|came| first.is_none_or(|first| came < first));
            if let Some(at) = came.filter(|at| reads && *at <= until) {
                self.now = at;
                return self.deliver(room);
            }
            if !self.step(until) {
                self.now = until;
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
    }

    fn deliver(&mut self, room: &mut [u8]) -> io::Result<usize> {
        match self.to_tester.flying.pop_front() {
            Some((at, Chunk::Bytes(mut bytes))) => {
                let len = bytes.len().min(room.len());
                room[..len].copy_from_slice(&bytes[..len]);
                if len < bytes.len() {
                    self.to_tester.flying.push_front((at, Chunk::Bytes(bytes.split_off(len))));
                }
                self.note(len as u64);
                Ok(len)
            }
            Some((_, Chunk::Fin)) => Ok(0),
            Some((_, Chunk::Reset)) | None => Err(io::ErrorKind::ConnectionReset.into()),
        }
    }
}

impl Wire {
    pub(super) fn new(world: &Rc<RefCell<World>>) -> Self {
        Self { world: Rc::clone(world), base: Instant::now() }
    }
}

impl Transport for Wire {
    fn ends(&self) -> io::Result<(SocketAddr, SocketAddr)> {
        Ok((SocketAddr::from(([10, 0, 0, 1], 1)), SocketAddr::from(([10, 0, 0, 2], 2))))
    }

    fn now(&self) -> Instant {
        // Only differences count.
        self.base + self.world.borrow().now
    }

    fn sleep(&mut self, time: Duration) {
        self.world.borrow_mut().pass(time);
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.world.borrow_mut().send(true, vec![Chunk::Bytes(bytes.to_vec())]);
        Ok(())
    }

    fn read(&mut self, room: &mut [u8], patience: Duration) -> io::Result<usize> {
        self.world.borrow_mut().read(room, patience)
    }

    fn take(&mut self, room: &mut [u8]) -> io::Result<usize> {
        self.world.borrow_mut().read(room, Duration::from_nanos(1))
    }

    fn another(&self, _: Duration) -> io::Result<Box<dyn Transport>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn close(&mut self) {
        self.world.borrow_mut().send(true, vec![Chunk::Fin]);
    }

    fn reset(&mut self) -> io::Result<()> {
        let mut world = self.world.borrow_mut();
        world.to_tester.flying.clear();
        world.to_tester.ended = true;
        world.send(true, vec![Chunk::Reset]);
        Ok(())
    }
}
