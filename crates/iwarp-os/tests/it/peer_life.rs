// SPDX-License-Identifier: MIT OR Apache-2.0

//! Processes that end, or go on in another way, while others read their memory.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use iwarp_os::local::{PeerMemory, ReadError};
use iwarp_os::process::is_stopped;

use crate::peer::{Peer, Shower, this_test, until};

const BYTES: [u8; 8] = *b"a secret";

/// In the child: shows some bytes, and then does as told. The calling thread, which holds the page,
/// is none that the process began with: the harness starts one for each test.
fn child(name: &[u8]) -> ! {
    let mut shower = Shower::connect(name);
    shower.show(BYTES.as_ptr(), BYTES.len());
    loop {
        match shower.listen() {
            b'x' => std::process::exit(0),
            b'e' => {
                let error = Command::new("sleep").arg("1000").exec();
                panic!("{error}");
            }
            // By another thread than the one that holds the page.
            b'E' => {
                let other = thread::spawn(|| Command::new("sleep").arg("1000").exec());
                panic!("{}", other.join().unwrap());
            }
            // A child that has all memory of its parent, and ends.
            b'f' => {
                // SAFETY: the child leaves at once.
                let child = unsafe { libc::fork() };
                if child == 0 {
                    // SAFETY: as above.
                    unsafe { libc::_exit(0) };
                }
                // SAFETY: waits for that child.
                while unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) } != child {}
                shower.answer(b'f');
            }
            // Children by the other ways, of which one shares the memory until it ends.
            b's' => {
                assert!(Command::new("true").status().unwrap().success());
                shower.answer(b's');
            }
            b't' => {
                shower.let_go();
                shower.answer(b't');
            }
            _ => shower.wait_for_end(),
        }
    }
}

fn opened(peer: &Peer) -> PeerMemory {
    let memory = peer.open().unwrap();
    assert_eq!(memory.probe().map(drop), Ok(()));
    assert_eq!(peer.taste(&memory), Ok(BYTES));
    memory
}

fn is_dead(peer: &Peer, memory: &PeerMemory) {
    until("the process is known to be dead", || !memory.lives());
    // Its number is no other process's yet: its parent has not waited for it.
    // SAFETY: asks whether there is such a process.
    assert_eq!(unsafe { libc::kill(memory.process() as libc::pid_t, 0) }, 0);
    assert_eq!(peer.taste(memory), Err(ReadError::Dead));
    assert_eq!(memory.probe().map(drop), Err(ReadError::Dead));
    assert_eq!(peer.open().unwrap_err().kind(), std::io::ErrorKind::InvalidData);
}

#[test]
fn a_process_that_ends_is_dead() {
    if let Some(name) = Shower::in_child() {
        child(&name);
    }
    type End = fn(&Peer);
    let ends: [(&str, End); 6] = [
        ("killed", |peer| peer.signal(libc::SIGKILL)),
        ("killed while stopped", |peer| {
            peer.signal(libc::SIGSTOP);
            until("it is stopped", || is_stopped(peer.child.id()));
            peer.signal(libc::SIGKILL);
        }),
        ("exits", |peer| peer.tell(b'x')),
        ("runs another program by the thread that holds it", |peer| peer.tell(b'e')),
        ("runs another program by another thread", |peer| peer.tell(b'E')),
        ("is no longer held", |peer| peer.tell(b't')),
    ];
    for (how, end) in ends {
        println!("{how}");
        let peer = Peer::start(this_test!(), &[]);
        let memory = opened(&peer);
        end(&peer);
        is_dead(&peer, &memory);
    }
}

/// The first thread of a process has the process's number.
#[test]
fn a_process_whose_first_thread_holds_its_page_ends() {
    if let Some(name) = Shower::in_child() {
        // SAFETY: the child has the C library's locks as a fork leaves them, and leaves by exit or
        // exec. This process waits for the parent's end, and not for the child's.
        if unsafe { libc::fork() } == 0 {
            // SAFETY: a number; the child ends with this one.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            child(&name);
        }
        loop {
            thread::park();
        }
    }
    for word in *b"xeEt" {
        let peer = Peer::start(this_test!(), &[]);
        let memory = opened(&peer);
        assert_ne!(memory.process(), peer.child.id());
        peer.tell(word);
        is_dead(&peer, &memory);
        // SAFETY: the number is still its own, as above.
        assert_eq!(unsafe { libc::kill(memory.process() as libc::pid_t, libc::SIGKILL) }, 0);
    }
}

#[test]
fn a_process_that_forks_or_starts_others_lives_on() {
    if let Some(name) = Shower::in_child() {
        child(&name);
    }
    let peer = Peer::start(this_test!(), &[]);
    let memory = opened(&peer);
    for word in *b"fsfs" {
        peer.tell(word);
        assert_eq!(peer.hear(), word);
        assert!(memory.lives());
        assert_eq!((peer.taste(&memory), memory.probe().map(drop)), (Ok(BYTES), Ok(())));
    }
}

#[test]
fn a_process_that_is_stopped_is_read() {
    if let Some(name) = Shower::in_child() {
        child(&name);
    }
    let peer = Peer::start(this_test!(), &[]);
    let memory = opened(&peer);
    peer.signal(libc::SIGSTOP);
    until("it is stopped", || is_stopped(peer.child.id()));
    assert_eq!((peer.taste(&memory), memory.probe().map(drop)), (Ok(BYTES), Ok(())));
    peer.signal(libc::SIGCONT);
    peer.tell(b'f');
    assert_eq!(peer.hear(), b'f');
    assert_eq!(peer.taste(&memory), Ok(BYTES));
}

/// A thread reads all the time. What it reads is right, until it learns that the process is dead.
#[test]
fn a_process_ends_amid_reads() {
    if let Some(name) = Shower::in_child() {
        child(&name);
    }
    for round in 0..20 {
        let peer = Peer::start(this_test!(), &[]);
        let memory = opened(&peer);
        let began = AtomicBool::new(false);
        thread::scope(|scope| {
            let reader = scope.spawn(|| {
                loop {
                    match peer.taste(&memory) {
                        Ok(bytes) => assert_eq!(bytes, BYTES),
                        Err(error) => return error,
                    }
                    began.store(true, Ordering::Relaxed);
                }
            });
            until("it reads", || began.load(Ordering::Relaxed));
            match round % 2 {
                0 => peer.signal(libc::SIGKILL),
                _ => peer.tell(b'e'),
            }
            // Not of memory that is gone, although it is: another program has none there.
            assert_eq!(reader.join().unwrap(), ReadError::Dead);
        });
        is_dead(&peer, &memory);
    }
}
