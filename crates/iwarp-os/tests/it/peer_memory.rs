// SPDX-License-Identifier: MIT OR Apache-2.0

//! Which bytes of another process are read: any pieces, memory that is gone on either side, memory
//! that is taken back, signals.

use std::os::fd::AsFd;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use iwarp_os::IoPartMut;
use iwarp_os::local::{Life, PeerMemory, ReadError, RemotePart, StatusPage};
use iwarp_os::unix::SeqSocket;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

use crate::peer::{Peer, Shower, this_test, until};

const PAGES: usize = 64;

fn page() -> usize {
    rustix::param::page_size()
}

fn pages(number: usize) -> *mut u8 {
    let rights = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping where the system likes it.
    unsafe { mmap_anonymous(null_mut(), number * page(), rights, MapFlags::PRIVATE) }
        .unwrap()
        .cast()
}

/// The byte at each place of the child's memory.
fn pattern(at: usize) -> u8 {
    (at ^ at >> 8 ^ at >> 16) as u8
}

/// Pages of the child that are not as the others.
const READ_ONLY: usize = 10;
const NO_RIGHTS: usize = 20;
const HOLE: usize = 30;

/// In the child: shows a pattern with pages of all kinds.
fn child(name: &[u8]) -> ! {
    let memory = pages(PAGES);
    for at in 0..PAGES * page() {
        // SAFETY: within the mapping.
        unsafe { memory.wrapping_add(at).write(pattern(at)) };
    }
    let at = |number: usize| memory.wrapping_add(number * page()).cast();
    // SAFETY: whole pages of a mapping of this function's.
    unsafe {
        mprotect(at(READ_ONLY), page(), MprotectFlags::READ).unwrap();
        mprotect(at(NO_RIGHTS), page(), MprotectFlags::empty()).unwrap();
    }
    let mut shower = Shower::connect(name);
    // SAFETY: as above.
    shower.show_after(memory, PAGES * page(), || unsafe { munmap(at(HOLE), page()).unwrap() });
    shower.wait_for_end()
}

struct Source {
    peer: Peer,
    memory: PeerMemory,
}

impl Source {
    fn new(test: &str) -> Self {
        let peer = Peer::start(test, &[]);
        let memory = peer.open().unwrap();
        Self { peer, memory }
    }

    /// Reads such pieces into rooms of such lengths, and checks all bytes. Says how many there are.
    fn read(&self, pieces: &[(usize, usize)], rooms: &[usize]) -> Result<usize, ReadError> {
        let from: Vec<_> = pieces.iter().map(|&(at, len)| self.peer.part(at, len)).collect();
        let mut bytes: Vec<Vec<u8>> = rooms.iter().map(|&len| vec![0xa5; len]).collect();
        let mut to: Vec<_> = bytes.iter_mut().map(|room| IoPartMut::new(room)).collect();
        let count = self.memory.read(self.peer.at(), &from, &mut to)?;
        let bytes = bytes.concat();
        let places = pieces.iter().flat_map(|&(at, len)| at..at + len);
        assert!(places.take(count).zip(&bytes).all(|(at, byte)| pattern(at) == *byte));
        assert!(bytes[count..].iter().all(|byte| *byte == 0xa5), "more than {count}");
        Ok(count)
    }
}

#[test]
fn a_read_ends_where_the_other_sides_memory_does() {
    if let Some(name) = Shower::in_child() {
        child(&name);
    }
    let source = Source::new(this_test!());
    let page = page();
    // Pages that are read-only are as good as others.
    let len = 3 * page;
    assert_eq!(source.read(&[((READ_ONLY - 1) * page, len)], &[len]), Ok(len));
    for bad in [NO_RIGHTS, HOLE] {
        let bad = bad * page;
        for before in [1, 7, 100, page - 1, page, page + 1, 2 * page + 5] {
            let one = [(bad - before, before + 10)];
            assert_eq!(source.read(&one, &[before + 10]), Ok(before));
            assert_eq!(source.read(&one, &[5, before + 5]), Ok(before));
            let two = [(0, 50), (bad - before, before), (bad, 100), (0, 50)];
            assert_eq!(source.read(&two, &[before + 200]), Ok(50 + before));
        }
        for first in [bad, bad + 1, bad + page - 1] {
            assert_eq!(source.read(&[(first, 1)], &[1]), Err(ReadError::Gone));
            assert_eq!(source.read(&[(first, 2 * page)], &[2 * page]), Err(ReadError::Gone));
        }
        assert_eq!(source.read(&[(bad + page, 9)], &[9]), Ok(9));
        // Room for no byte of it.
        assert_eq!(source.read(&[(bad - 9, 10)], &[9]), Ok(9));
    }
    // Addresses where no process has memory.
    for address in [0, 1, usize::MAX as u64 - 100] {
        let from = RemotePart::new(address, 100).unwrap();
        let mut room = [0; 100];
        let read = source.memory.read(source.peer.at(), &[from], &mut [IoPartMut::new(&mut room)]);
        assert_eq!(read, Err(ReadError::Gone));
    }
}

#[test]
fn a_read_ends_where_this_sides_memory_does() {
    if let Some(name) = Shower::in_child() {
        child(&name);
    }
    let source = Source::new(this_test!());
    let page = page();
    for bad in ["no rights", "read-only", "hole"] {
        let room = pages(3);
        let middle = room.wrapping_add(page);
        // SAFETY: a page of the mapping that was just made.
        unsafe {
            match bad {
                "no rights" => mprotect(middle.cast(), page, MprotectFlags::empty()).unwrap(),
                "read-only" => mprotect(middle.cast(), page, MprotectFlags::READ).unwrap(),
                _ => munmap(middle.cast(), page).unwrap(),
            }
        }
        let read = |from: usize, before: usize, len: usize| {
            // SAFETY: this test's alone, or not to be written.
            let to = unsafe { IoPartMut::from_raw(middle.wrapping_sub(before), len) };
            let parts = [source.peer.part(from, len)];
            let read = source.memory.read(source.peer.at(), &parts, &mut [to]);
            let count = read.unwrap_or(0);
            for at in 0..count {
                // SAFETY: just written.
                let byte = unsafe { middle.wrapping_sub(before).wrapping_add(at).read() };
                assert_eq!(byte, pattern(from + at), "{bad}: {at} of {count}");
            }
            read
        };
        for before in [1, 7, 8, 9, 100, page - 1, page] {
            for from in [0, 3, page - 50] {
                assert_eq!(read(from, before, before + 10), Ok(before), "{bad}");
                assert_eq!(read(from, before, 2 * page), Ok(before), "{bad}");
            }
        }
        assert_eq!(read(0, 0, 1), Err(ReadError::Gone), "{bad}");
        // Both sides at once.
        assert_eq!(read(NO_RIGHTS * page, 0, 1), Err(ReadError::Gone), "{bad}");
        // SAFETY: the mapping of this round, or what is left of it.
        unsafe { munmap(room.cast(), 3 * page).unwrap() };
    }
}

#[test]
fn a_thousand_pieces_are_read_by_one_call() {
    if let Some(name) = Shower::in_child() {
        child(&name);
    }
    let source = Source::new(this_test!());
    // From the pages behind the hole, in an order that goes up and down.
    let begin = (HOLE + 1) * page();
    let room = (PAGES - HOLE - 1) * page() - 200;
    let pieces: Vec<_> =
        (0..1000).map(|number| (begin + number * 7919 % room, 1 + number % 173)).collect();
    let total = pieces.iter().map(|(_, len)| len).sum::<usize>();
    assert!(begin + room + 200 <= source.peer.len());
    assert_eq!(source.read(&pieces, &[total]), Ok(total));
    let mut rooms = vec![total / 999; 999];
    rooms.push(total - total / 999 * 999);
    assert_eq!(source.read(&pieces, &rooms), Ok(total));
    // One that is gone amid them.
    let mut some = pieces.clone();
    some[700] = (HOLE * page(), 10);
    let before = some[..700].iter().map(|(_, len)| len).sum::<usize>();
    assert_eq!(source.read(&some, &rooms), Ok(before));
}

/// This process as its own peer.
fn own() -> (StatusPage, Life, PeerMemory) {
    let (page, fd) = StatusPage::create().unwrap();
    let life = page.hold().unwrap();
    let (socket, _end) = SeqSocket::pair().unwrap();
    let memory = PeerMemory::open(&socket, fd.as_fd()).unwrap();
    (page, life, memory)
}

/// A thread of the owner fills memory with a number, passes it, and takes it back before it fills
/// it anew. A reader has that number alone, or learns that it was taken back.
#[test]
fn a_read_of_memory_that_was_taken_back_does_not_count() {
    const WORDS: usize = 4096;
    let (page, _life, memory) = own();
    let words: Vec<AtomicU64> = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
    let from = RemotePart::new(words.as_ptr().addr() as u64, 8 * WORDS as u64).unwrap();
    let passed = AtomicU64::new(0);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                page.revoke();
                let number = page.revocations();
                for word in &words {
                    word.store(number, Ordering::Relaxed);
                }
                passed.store(number, Ordering::Release);
                // Some reads get through.
                let begin = Instant::now();
                while begin.elapsed() < Duration::from_micros(number % 64) {}
            }
        });
        let (mut counted, mut revoked) = (0, 0);
        let mut room = vec![0; 8 * WORDS];
        let begin = Instant::now();
        while counted < 2000 || revoked < 2000 {
            assert!(begin.elapsed() < Duration::from_secs(60), "{counted}, {revoked}");
            let at = passed.load(Ordering::Acquire);
            match memory.read(at, &[from], &mut [IoPartMut::new(&mut room)]) {
                Ok(read) => {
                    assert_eq!(read, room.len());
                    counted += 1;
                    let same = room.chunks_exact(8).all(|word| word == at.to_ne_bytes());
                    if !same {
                        done.store(true, Ordering::Relaxed);
                    }
                    assert!(same, "bytes of another time than {at}");
                }
                Err(error) => {
                    assert_eq!(error, ReadError::Revoked);
                    revoked += 1;
                }
            }
        }
        done.store(true, Ordering::Relaxed);
    });
}

extern "C" fn note(_: libc::c_int) {
    SIGNALS.fetch_add(1, Ordering::Relaxed);
}

static SIGNALS: AtomicU32 = AtomicU32::new(0);

/// Signals whose handler runs, and that would interrupt a call that waits.
#[test]
fn a_signal_loses_no_byte() {
    const LEN: usize = 4 << 20;
    let (page, _life, memory) = own();
    let source: Vec<u8> = (0..LEN).map(pattern).collect();
    let from = RemotePart::new(source.as_ptr().addr() as u64, LEN as u64).unwrap();
    // SAFETY: a handler that counts, without SA_RESTART, for a signal that nothing else uses.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = note as *const () as usize;
        assert_eq!(libc::sigaction(libc::SIGUSR2, &action, null_mut()), 0);
    }
    // SAFETY: names this thread.
    let reader = unsafe { libc::pthread_self() } as usize;
    let done = AtomicBool::new(false);
    let mut room = vec![0; LEN];
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                // SAFETY: the thread waits for this one before it ends.
                unsafe { libc::pthread_kill(reader as libc::pthread_t, libc::SIGUSR2) };
                thread::yield_now();
            }
        });
        let mut reads = 0;
        until("signals come amid reads", || {
            room.fill(0);
            let read = memory.read(page.revocations(), &[from], &mut [IoPartMut::new(&mut room)]);
            assert_eq!(read, Ok(LEN));
            assert!(room == source);
            reads += 1;
            reads > 50 && SIGNALS.load(Ordering::Relaxed) > 1000
        });
        done.store(true, Ordering::Relaxed);
    });
}
