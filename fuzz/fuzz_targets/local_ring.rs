// SPDX-License-Identifier: MIT OR Apache-2.0

//! Rings and marks in shared memory: a peer that writes anything there causes no panic, no access
//! outside and no endless call; an end never says that it can go on where it cannot; and between
//! ends that keep the rules the stream comes out as it went in.
#![no_main]

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use arbitrary::Arbitrary;
use iwarp_os::local::{Marks, Ring, SLOTS, SharedMemory};
use iwarp_os::{IoPart, IoPartMut};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Input {
    /// The room of the ring is this power of two.
    room: u8,
    steps: Vec<Step>,
}

#[derive(Arbitrary, Debug)]
enum Step {
    /// This end, A, or the peer that keeps the rules sends and receives.
    Send {
        peer: bool,
        lengths: [u8; 2],
    },
    Recv {
        peer: bool,
        lengths: [u8; 2],
    },
    End {
        peer: bool,
    },
    Close {
        peer: bool,
    },
    Begin {
        peer: bool,
        at: u64,
    },
    /// Leaves bytes in an annex, and has the other end fetch them.
    Leave {
        peer: bool,
        at: u8,
        length: u8,
    },
    /// From here on the peer keeps no rules: it writes a word of the ring's.
    Write {
        word: u8,
        value: Value,
    },
    Mark {
        peer: bool,
        slot: u16,
    },
    Take {
        peer: bool,
    },
    Listen {
        peer: bool,
    },
    WriteMarks {
        word: u8,
        value: u64,
    },
}

#[derive(Arbitrary, Debug)]
enum Value {
    Any(u64),
    /// Near to what is there.
    Add(i8),
}

/// Bytes before the first ring's.
const HEADER: usize = 8192;
/// Bytes of the marks.
const MARKS: usize = 4096;
/// Words with a meaning, and some more.
const WORDS: usize = 160;

/// One end, and the bytes that are on their way from it.
struct End {
    ring: Ring,
    marks: Marks,
    sent: u64,
    received: u64,
}

fuzz_target!(|input: Input| {
    let room = 1 << (input.room % 7);
    let (a, ring) = Ring::create(room).unwrap();
    let scribbled = SharedMemory::map(ring.as_fd(), HEADER + 4 * room, 0).unwrap();
    let b = Ring::join(ring.as_fd(), room).unwrap();
    let (one, fds) = Marks::create().unwrap();
    let scribbled_marks = SharedMemory::map(fds.passed()[0], MARKS, 0).unwrap();
    let [memory, peers, own]: [OwnedFd; 3] =
        fds.passed().map(|fd| fd.try_clone_to_owned().unwrap());
    let other = Marks::join(memory, peers, own).unwrap();
    let end = |ring, marks| End { ring, marks, sent: 0, received: 0 };
    let mut ends = [end(a, one), end(b, other)];
    let mut is_honest = true;
    for step in input.steps.iter().take(200) {
        match *step {
            Step::Send { peer, lengths } => {
                let sent = ends[usize::from(peer)].send(lengths);
                assert!(!is_honest || !is_damage(&sent));
            }
            Step::Recv { peer, lengths } => {
                let came = ends[usize::from(peer)].recv(lengths, is_honest);
                assert!(!is_honest || !is_damage(&came));
            }
            Step::End { peer } => ends[usize::from(peer)].ring.end(),
            Step::Close { peer } => ends[usize::from(peer)].ring.close(),
            Step::Begin { peer, at } => ends[usize::from(peer)].ring.begin_at(at),
            Step::Leave { peer, at, length } => {
                let [from, to] = [peer, !peer].map(|peer| &ends[usize::from(peer)].ring);
                let (at, len) = (usize::from(at), usize::from(length));
                let octets: Vec<u8> = (0..).take(len).map(byte).collect();
                let mut fetched = vec![0; len];
                let results = [from.leave(at, &octets), to.fetch(at, &mut fetched)];
                assert!(results.iter().all(|result| result.is_ok() == (at + len <= room)));
                assert!(at + len > room || fetched == octets);
            }
            Step::Write { word, ref value } => {
                is_honest = false;
                scribble(&scribbled, word, value);
            }
            Step::Mark { peer, slot } => {
                let marked = ends[usize::from(peer)].marks.mark(slot);
                assert_eq!(marked.is_ok(), usize::from(slot) < SLOTS);
            }
            Step::Take { peer } => {
                let mut taken = 0;
                ends[usize::from(peer)].marks.take(|slot| {
                    assert!(usize::from(slot) < SLOTS);
                    taken += 1;
                });
                assert!(taken <= SLOTS);
            }
            Step::Listen { peer } => {
                let marks = &ends[usize::from(peer)].marks;
                assert_eq!(marks.any(), marks.listen());
                marks.drain();
            }
            Step::WriteMarks { word, value } => {
                scribble(&scribbled_marks, word, &Value::Any(value));
            }
        }
        if is_honest {
            for [from, to] in [[0, 1], [1, 0]] {
                let on_the_way = ends[from].sent - ends[to].received;
                assert!(on_the_way <= room as u64);
                let has_input = on_the_way > 0 || ends[to].ring.is_ended();
                assert_eq!(ends[to].ring.has_input(), has_input);
            }
        }
    }
});

fn is_damage(result: &io::Result<usize>) -> bool {
    result.as_ref().is_err_and(|error| error.kind() == ErrorKind::InvalidData)
}

fn is_waiting(result: &io::Result<usize>) -> bool {
    result.as_ref().is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

fn scribble(memory: &SharedMemory, word: u8, value: &Value) {
    let at = memory.as_ptr().wrapping_add(8 * (usize::from(word) % WORDS)).cast();
    // SAFETY: an aligned word of the mapping, which all reach by atomics.
    let word = unsafe { AtomicU64::from_ptr(at) };
    match *value {
        Value::Any(value) => word.store(value, Ordering::Relaxed),
        Value::Add(by) => {
            word.fetch_add(by as u64, Ordering::Relaxed);
        }
    }
}

/// The byte of this number in any stream.
fn byte(number: u64) -> u8 {
    (number ^ number >> 8) as u8
}

impl End {
    fn send(&mut self, lengths: [u8; 2]) -> io::Result<usize> {
        let had_room = self.ring.has_room();
        let lengths = lengths.map(usize::from);
        let bytes: Vec<u8> = (self.sent..).take(lengths[0] + lengths[1]).map(byte).collect();
        let (one, other) = bytes.split_at(lengths[0]);
        let sent = self.ring.send(&[IoPart::new(one), IoPart::new(other)]);
        assert!(!had_room || !is_waiting(&sent));
        if let Ok(sent) = sent {
            assert!(sent <= bytes.len().min(self.ring.room()));
            self.sent += sent as u64;
        }
        assert_eq!(self.ring.is_damaged(), is_damage(&sent));
        sent
    }

    fn recv(&mut self, lengths: [u8; 2], is_honest: bool) -> io::Result<usize> {
        let had_input = self.ring.has_input();
        let [mut one, mut other] = lengths.map(|length| vec![0; usize::from(length)]);
        let mut parts = [IoPartMut::new(&mut one), IoPartMut::new(&mut other)];
        let came = self.ring.recv(&mut parts);
        assert!(!had_input || !is_waiting(&came));
        let all = [one, other].concat();
        if let Ok(came) = came {
            assert!(came <= all.len().min(self.ring.room()));
            if is_honest {
                assert!((self.received..).zip(&all[..came]).all(|(at, got)| byte(at) == *got));
            }
            self.received += came as u64;
        }
        let _ = self.ring.owes_room();
        let began = self.ring.peer_began_at();
        assert!(began.is_none() || began == self.ring.peer_began_at());
        came
    }
}
