// SPDX-License-Identifier: MIT OR Apache-2.0

use std::io::ErrorKind;
use std::thread;

use super::*;
use crate::poll::{EventFd, EventFdKind, is_readable};
use crate::{FdPlace, unix::SeqSocket};

fn owned(fds: &MarksFds) -> [OwnedFd; 3] {
    fds.passed().map(|fd| rustix::io::fcntl_dupfd_cloexec(fd, 0).unwrap())
}

fn pair() -> (Marks, Marks) {
    let (a, fds) = Marks::create().unwrap();
    let [memory, peers, own] = owned(&fds);
    (a, Marks::join(memory, peers, own).unwrap())
}

fn taken(marks: &Marks) -> Vec<u16> {
    let mut taken = Vec::new();
    marks.take(|slot| taken.push(slot));
    taken
}

#[test]
fn a_mark_is_taken_once_by_the_other_end() {
    let (a, b) = pair();
    for (one, other) in [(&a, &b), (&b, &a)] {
        assert!(!other.any());
        for slot in [4095, 0, 63, 64, 127, 128, 0] {
            assert!(!one.mark(slot).unwrap());
        }
        assert!(other.any() && !one.any());
        assert_eq!(taken(other), [0, 63, 64, 127, 128, 4095]);
        assert!(!other.any());
        assert_eq!(taken(other), []);
        let refused = one.mark(SLOTS as u16).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    }
    for slot in 0..SLOTS as u16 {
        a.mark(slot).unwrap();
    }
    assert_eq!(taken(&b), (0..SLOTS as u16).collect::<Vec<_>>());
}

#[test]
fn an_end_that_sleeps_is_woken_once() {
    let (a, b) = pair();
    for (one, other) in [(&a, &b), (&b, &a)] {
        assert!(!other.listen());
        assert!(!other.any());
        assert!(one.mark(5).unwrap());
        assert!(!one.mark(6).unwrap());
        assert!(is_readable(other.bell()).unwrap() && !is_readable(one.bell()).unwrap());
        other.drain();
        assert!(!is_readable(other.bell()).unwrap());
        // Without a ring it does not wait.
        other.drain();
        assert!(other.listen());
        assert_eq!(taken(other), [5, 6]);
        // It is awake.
        assert!(!one.mark(5).unwrap());
        assert_eq!(taken(other), [5]);
    }
}

#[test]
fn other_descriptors_are_not_joined() {
    let (_a, fds) = Marks::create().unwrap();
    let eventfd = || EventFd::new(EventFdKind::Counter, FdPlace::Program).unwrap();
    let wrong: [OwnedFd; 3] = [
        rustix::pipe::pipe().unwrap().1,
        rustix::io::fcntl_dupfd_cloexec(SeqSocket::pair().unwrap().0, 0).unwrap(),
        std::fs::File::open("/dev/null").unwrap().into(),
    ];
    let memory = || owned(&fds).into_iter().next().unwrap();
    for wrong in &wrong {
        let copy = || wrong.try_clone().unwrap();
        let [_, peers, own] = owned(&fds);
        for refused in [
            Marks::join(copy(), peers, own),
            Marks::join(memory(), copy(), eventfd().as_fd().try_clone_to_owned().unwrap()),
            Marks::join(memory(), eventfd().as_fd().try_clone_to_owned().unwrap(), copy()),
        ] {
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidData);
        }
    }
    let [_, peers, own] = owned(&fds);
    let (_, other) = SharedMemory::create(c"other", OCTETS, OCTETS, OCTETS).unwrap();
    let refused = Marks::join(other.as_fd().try_clone_to_owned().unwrap(), peers, own).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidData);
}

#[test]
fn a_bell_that_could_block_is_not_rung() {
    let (_a, fds) = Marks::create().unwrap();
    let blocking = EventFd::new(EventFdKind::Counter, FdPlace::Program).unwrap();
    let copy = || blocking.as_fd().try_clone_to_owned().unwrap();
    let [memory, _, _] = owned(&fds);
    let b = Marks::join(memory, copy(), copy()).unwrap();
    // The flag is set as it comes, so a full counter holds no thread up.
    blocking.add(u64::MAX - 1).unwrap();
    b.shared().directions[Side::B as usize].listen();
    assert!(b.mark(1).unwrap());
    // The peer takes the flag back.
    rustix::fs::fcntl_setfl(&blocking, rustix::fs::OFlags::RDWR).unwrap();
    b.shared().directions[Side::B as usize].listen();
    assert_eq!(b.mark(1).unwrap_err().kind(), ErrorKind::InvalidData);
    b.drain();
    b.drain();
}

/// Each end waits for the other's mark, so one that is lost, or whose ring is, would be the end.
#[test]
fn no_mark_is_lost_between_ends_that_sleep() {
    const TURNS: u32 = 20_000;
    let (a, b) = pair();
    let play = |marks: &Marks, begins: bool| {
        if begins {
            marks.mark(9).unwrap();
        }
        for _ in 0..TURNS {
            loop {
                let mut came = false;
                marks.take(|_| came = true);
                if came {
                    break;
                }
                if !marks.listen() {
                    let mut bell = [rustix::event::PollFd::from_borrowed_fd(
                        marks.bell(),
                        rustix::event::PollFlags::IN,
                    )];
                    rustix::event::poll(&mut bell, None).unwrap();
                    marks.drain();
                }
            }
            marks.mark(9).unwrap();
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| play(&a, true));
        scope.spawn(|| play(&b, false));
    });
}
