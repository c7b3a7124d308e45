// SPDX-License-Identifier: MIT OR Apache-2.0

//! System calls that a sandbox refuses, and shortages, in each step in which two processes of a
//! host agree to share memory: the connection works, by TCP where there is no other way, and one of
//! them says why.

use std::os::fd::{AsFd, OwnedFd};

use iwarp_os::unix::SeqSocket;
use rustix::process::{Resource, Rlimit};

use crate::common::DEADLINE;
use crate::common::kin::{Refused, become_user};
use crate::common::neighbours::{Acts, First, IN_VAIN, Neighbours, STAYS, Then};
use crate::common::process::{goes_on, passed_apart, this_test};
use crate::common::until;
use crate::hosts::possible;

const UNIX: (u32, u32, u32) = (0, u32::MAX, libc::AF_UNIX as u32);
const NO_TEST: (u32, u32, u32) = (0, 0, 0);
/// Mappings that are shared, of files.
const SHARED: [(u32, u32, u32); 2] = [(3, 0x21, 1), NO_TEST];

fn calls() -> [(&'static str, Refused); 5] {
    let unix = Refused { tests: [UNIX, NO_TEST], ..Refused::new(libc::SYS_socket) };
    let shared = Refused { tests: SHARED, ..Refused::new(libc::SYS_mmap) };
    [
        ("memfd_create", Refused::new(libc::SYS_memfd_create)),
        ("eventfd2", Refused::new(libc::SYS_eventfd2)),
        ("socket", unix),
        ("mmap", shared),
        ("madvise", Refused::new(libc::SYS_madvise)),
    ]
}

#[test]
fn refused_calls_leave_the_connection_with_tcp() {
    if passed_apart(this_test!(), DEADLINE) {
        return;
    }
    let errors = [libc::EPERM, libc::ENOSYS, libc::EMFILE, libc::ENOMEM];
    for (name, call) in calls() {
        for errno in errors {
            for first in [true, false] {
                if name == "eventfd2" && !first {
                    // A caller that waits for a connection needs one of its own.
                    continue;
                }
                println!("{name} {errno} {first}");
                let mut refuse = Then(|_: &str| call.refuse(errno));
                let mut two = Neighbours::with_one(first, &mut refuse);
                two.end(first).ask("refuse");
                two.connect().unwrap();
                let way = two.agree();
                // The one that connects makes the memory, and the bells.
                let needed = first || !matches!(name, "memfd_create" | "eventfd2");
                assert_eq!(way.moved, !needed, "{name} {errno} {first}: {way:?}");
                goes_on();
            }
        }
    }
}

/// Takes all descriptors that the process may have, but so many.
fn take_descriptors(all_but: usize) -> Vec<OwnedFd> {
    let mut taken = Vec::new();
    while let Ok(fd) = rustix::io::dup(std::io::stderr()) {
        taken.push(fd);
    }
    taken.truncate(taken.len() - all_but);
    taken
}

/// At each step the process has run out of descriptors, and gets some later.
#[test]
fn descriptors_run_out_at_each_step() {
    if passed_apart(this_test!(), DEADLINE) {
        return;
    }
    let steps = || (1..12).flat_map(|left| [(left, true), (left, false)]);
    let mut rested = false;
    for (left, first) in steps() {
        rested |= rests_without_descriptors(left, first);
    }
    // On a busy machine the shortage may meet another step than that of the listener.
    let rests = || steps().any(|(left, first)| !first && rests_without_descriptors(left, first));
    assert!(rested || (0..5).any(|_| rests()), "the listener has met no shortage");
}

/// One end has so many descriptors left when the two connect, and gets some later. True if its
/// listener rested meanwhile, and the process that asked was there still.
fn rests_without_descriptors(left: usize, first: bool) -> bool {
    println!("{left} {first}");
    let few = || {
        let limit = Rlimit { current: Some(64), maximum: Some(64) };
        rustix::process::setrlimit(Resource::Nofile, limit).unwrap();
    };
    let mut taken = Vec::new();
    let mut short = Short(few, move |word: &str| {
        taken.clear();
        if word == "take" {
            taken = take_descriptors(left);
        }
    });
    let mut two = Neighbours::with_one(first, &mut short);
    two.end(first).ask("take");
    let met = two.connect();
    if met.is_ok() {
        two.outcome();
    }
    println!("{left} {first}: {met:?}");
    two.end(first).ask("give back");
    let rested = met.is_ok() && {
        let ended = until("the end of the agreement", || {
            two.turn();
            let way = two.look();
            let stays = way.lines.iter().any(|said| said.contains(STAYS));
            (way.moved || stays).then_some(way)
        });
        ended.moved && ended.lines[1].contains(IN_VAIN)
    };
    // It was but a shortage: the next one moves.
    until("another connection", || two.connect().ok());
    two.move_on();
    goes_on();
    rested
}

struct Short<F, G>(F, G);

impl<F: FnMut(), G: FnMut(&str)> Acts for Short<F, G> {
    fn first(&mut self) {
        self.0();
    }

    fn act(&mut self, word: &str) {
        self.1(word);
    }
}

/// The system lets a user have so many descriptors on their way, and no more.
#[test]
fn a_message_waits_that_can_pass_no_descriptor() {
    if passed_apart(this_test!(), DEADLINE) || !possible() {
        return;
    }
    for line_is_there in [false, true] {
        for user in [61_236, 61_237] {
            println!("{line_is_there} {user}");
            let user = user + 2 * u32::from(line_is_there);
            let as_user = || {
                let limit = Rlimit { current: Some(64), maximum: Some(64) };
                rustix::process::setrlimit(Resource::Nofile, limit).unwrap();
                become_user(user);
            };
            let mut on_their_way = Vec::new();
            let mut client = Short(as_user, move |word: &str| {
                on_their_way.clear();
                if word == "take" {
                    let (one, other) = SeqSocket::pair().unwrap();
                    let stderr = std::io::stderr();
                    let fds = [stderr.as_fd(); 4];
                    while one.send(b"on their way", &fds).is_ok() {}
                    on_their_way.extend([one, other]);
                }
            });
            let mut two = Neighbours::new(&mut client, &mut First(as_user));
            if line_is_there {
                two.connect().unwrap();
                assert!(two.agree().moved);
            }
            two.client.ask("take");
            two.connect().unwrap();
            if !line_is_there {
                let way = two.agree();
                assert!(!way.moved, "{way:?}");
            }
            (0..20).for_each(|_| two.turn());
            let way = two.look();
            assert!(!way.moved, "{way:?}");
            two.client.ask("give back");
            if !line_is_there {
                // The process at the other end was not reached, and is for the next one.
                two.connect().unwrap();
            }
            two.move_on();
            goes_on();
        }
    }
}

/// A ring has the pages of its first bytes, and gets no more.
#[test]
fn a_ring_without_more_pages_goes_on_with_those_that_it_has() {
    if passed_apart(this_test!(), DEADLINE) {
        return;
    }
    const POPULATE_WRITE: u32 = 23;
    let more = Refused {
        tests: [(2, u32::MAX, POPULATE_WRITE), NO_TEST],
        above: Some((1, 8192)),
        ..Refused::new(libc::SYS_madvise)
    };
    for first in [true, false] {
        let mut refuse = Then(|_: &str| more.refuse(libc::ENOMEM));
        let mut two = Neighbours::with_one(first, &mut refuse);
        two.end(first).ask("refuse");
        two.connect().unwrap();
        two.move_on();
        (0..3).for_each(|_| two.turn());
        goes_on();
    }
}

/// A process that may make no large files is not killed for it.
#[test]
fn memory_is_no_file_that_is_too_large() {
    if passed_apart(this_test!(), DEADLINE) {
        return;
    }
    let small = || {
        let limit = Rlimit { current: Some(1 << 16), maximum: Some(1 << 16) };
        rustix::process::setrlimit(Resource::Fsize, limit).unwrap();
    };
    for first in [true, false] {
        let mut two = Neighbours::with_one(first, &mut First(small));
        two.connect().unwrap();
        let way = two.agree();
        // The one that connects makes the memory.
        assert_eq!(way.moved, !first, "{way:?}");
        goes_on();
    }
}
