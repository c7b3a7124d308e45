// SPDX-License-Identifier: MIT OR Apache-2.0

use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::sync::mpsc::channel;
use std::thread;

use proptest::prelude::*;
use rustix::fs::SealFlags;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use super::shown::ShownStatus;
use super::*;
use crate::fork::in_child_process;
use crate::local::ReadError;

fn shown(fd: &impl AsFd) -> io::Result<ShownStatus> {
    ShownStatus::open(fd.as_fd())
}

#[test]
fn a_process_lives_as_long_as_a_thread_holds_its_page() {
    let (page, fd) = StatusPage::create().unwrap();
    assert_eq!(shown(&fd).unwrap_err().kind(), ErrorKind::InvalidData);
    let life = page.hold().unwrap();
    let first = shown(&fd).unwrap();
    assert!(first.lives());
    thread::scope(|scope| {
        let other = scope.spawn(|| page.hold().unwrap_err().kind());
        assert_eq!(other.join().unwrap(), ErrorKind::ResourceBusy);
    });
    assert!(first.lives());
    drop(life);
    assert!(!first.lives());
    assert_eq!(shown(&fd).unwrap_err().kind(), ErrorKind::InvalidData);
    // Another thread may come after it, for those who open the page then.
    let page = &page;
    thread::scope(|scope| {
        let (held, holds) = channel();
        let (end, ended) = channel();
        scope.spawn(move || {
            let _life = page.hold().unwrap();
            held.send(()).unwrap();
            let () = ended.recv().unwrap();
        });
        holds.recv().unwrap();
        let second = shown(&fd).unwrap();
        assert!(second.lives() && !first.lives());
        end.send(()).unwrap();
    });
}

/// The system marks the word, as the thread has not unlocked it.
#[test]
fn a_thread_that_ends_without_a_word_is_noticed_and_followed() {
    let (page, fd) = StatusPage::create().unwrap();
    let shown_first = thread::scope(|scope| {
        let holder = scope.spawn(|| {
            std::mem::forget(page.hold().unwrap());
            shown(&fd).unwrap()
        });
        holder.join().unwrap()
    });
    // A scope's join may return a little before the thread has ended.
    while shown_first.lives() {
        thread::yield_now();
    }
    // SAFETY: what was forgotten had counted one.
    unsafe { Arc::decrement_strong_count(Arc::as_ptr(&page.page)) };
    assert_eq!(shown(&fd).unwrap_err().kind(), ErrorKind::InvalidData);
    let _life = page.hold().unwrap();
    assert!(shown(&fd).unwrap().lives() && !shown_first.lives());
}

/// Mutexes of the thread's own beside it, unlocked in another order.
#[test]
fn a_thread_may_hold_several() {
    let (one, one_fd) = StatusPage::create().unwrap();
    let (other, other_fd) = StatusPage::create().unwrap();
    let (life, other_life) = (one.hold().unwrap(), other.hold().unwrap());
    let (seen, other_seen) = (shown(&one_fd).unwrap(), shown(&other_fd).unwrap());
    drop(life);
    drop(one);
    assert!(!seen.lives() && other_seen.lives());
    drop(other_life);
    assert!(!other_seen.lives());
}

#[test]
fn revocations_are_counted_and_seen() {
    let (page, fd) = StatusPage::create().unwrap();
    let _life = page.hold().unwrap();
    let seen = shown(&fd).unwrap();
    let at = page.revocations();
    assert_eq!(seen.since(at, || Ok(7)), Ok(7));
    page.revoke();
    assert_eq!(page.revocations(), at + 1);
    assert_eq!(seen.since::<()>(at, || unreachable!()), Err(ReadError::Revoked));
    let meanwhile = || {
        page.revoke();
        Err::<(), _>(ReadError::Gone)
    };
    assert_eq!(seen.since(at + 1, meanwhile), Err(ReadError::Revoked));
    assert_eq!(seen.since(at + 2, || Err::<(), _>(ReadError::Gone)), Err(ReadError::Gone));
    // A count that was not yet.
    assert_eq!(seen.since::<()>(at + 3, || unreachable!()), Err(ReadError::Revoked));
    assert_eq!(seen.alive(|| Ok(7)), Ok(7));
}

#[test]
fn no_other_process_can_write_to_it() {
    let (_page, fd) = StatusPage::create().unwrap();
    let rights = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping where the system likes it.
    let written =
        unsafe { rustix::mm::mmap(std::ptr::null_mut(), OCTETS, rights, MapFlags::SHARED, &fd, 0) };
    assert_eq!(written, Err(Errno::PERM));
    assert_eq!(rustix::io::pwrite(&fd, &[1], 0), Err(Errno::PERM));
    let hole = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
    assert_eq!(rustix::fs::fallocate(&fd, hole, 0, OCTETS as u64), Err(Errno::PERM));
    // A mapping to read cannot become one to write.
    let seen = SharedMemory::map_to_read(fd.as_fd(), OCTETS).unwrap();
    let rights = rustix::mm::MprotectFlags::READ | rustix::mm::MprotectFlags::WRITE;
    // SAFETY: our mapping, which nothing else uses.
    let changed = unsafe { rustix::mm::mprotect(seen.as_ptr().cast(), OCTETS, rights) };
    assert_eq!(changed, Err(Errno::ACCESS));
}

/// Memory with these seals and bytes.
fn made(seals: SealFlags, octets: &[u8]) -> std::os::fd::OwnedFd {
    let flags = rustix::fs::MemfdFlags::CLOEXEC | rustix::fs::MemfdFlags::ALLOW_SEALING;
    let fd = rustix::fs::memfd_create(c"made", flags).unwrap();
    assert_eq!(rustix::io::write(&fd, octets), Ok(octets.len()));
    rustix::fs::fcntl_add_seals(&fd, seals).unwrap();
    fd
}

const SEALS: SealFlags =
    SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL).union(SealFlags::FUTURE_WRITE);

#[test]
fn other_memory_is_refused() {
    let octets = |len| vec![0; len];
    for missing in SEALS.iter() {
        let fd = made(SEALS.difference(missing), &octets(OCTETS));
        let refused = shown(&fd).unwrap_err();
        assert_eq!(refused.to_string(), "the peer's memory is not sealed");
    }
    for len in [1, OCTETS - 1, OCTETS + 1, 2 * OCTETS] {
        let refused = shown(&made(SEALS, &octets(len))).unwrap_err();
        assert_eq!(refused.to_string(), "the peer's memory has another length");
    }
    let refused = shown(&made(SEALS, &octets(OCTETS))).unwrap_err();
    assert_eq!(refused.to_string(), "the peer's status is laid out otherwise");
    let (read, _write) = rustix::pipe::pipe().unwrap();
    assert_eq!(shown(&read).unwrap_err().kind(), ErrorKind::InvalidData);
}

proptest! {
    /// Any bytes in the place of a page: an error, or a page that says that its process lives.
    #[test]
    fn any_page_is_opened_or_refused(
        octets in prop::collection::vec(any::<u8>(), OCTETS),
        known in any::<bool>(),
        life_at in prop_oneof![
            any::<u64>(),
            0..2 * OCTETS as u64,
            (0..OCTETS as u64 / 4).prop_map(|at| 4 * at)
        ],
        other_at in prop_oneof![any::<u64>(), (0..OCTETS as u64 / 4).prop_map(|at| 4 * at)],
    ) {
        let mut octets = octets;
        if known {
            octets[..8].copy_from_slice(&VERSION.to_ne_bytes());
            octets[32..40].copy_from_slice(&life_at.to_ne_bytes());
            octets[40..48].copy_from_slice(&other_at.to_ne_bytes());
        }
        match shown(&made(SEALS, &octets)) {
            Ok(seen) => {
                let is_in = |at: u64| at.is_multiple_of(4) && at < OCTETS as u64;
                prop_assert!(known && is_in(life_at) && is_in(other_at));
                prop_assert!(seen.lives());
                let counted = u64::from_ne_bytes(octets[128..136].try_into().unwrap());
                prop_assert_eq!(seen.since(counted, || Ok(1)), Ok(1));
            }
            Err(refused) => prop_assert_eq!(refused.kind(), ErrorKind::InvalidData),
        }
    }
}

/// The child has no mapping, drops all it inherits, and its end is not the parent's.
#[test]
fn a_child_has_no_page_and_leaves_the_parents_alone() {
    let (page, fd) = StatusPage::create().unwrap();
    let life = page.hold().unwrap();
    let seen = shown(&fd).unwrap();
    let (place, before) = (page.page.memory.as_ptr(), page.revocations());
    let nonce = page.page.nonce.address() as *mut libc::c_void;
    let code = in_child_process(|| {
        let mut there = [0; 8];
        // SAFETY: asks which pages are there.
        let mut is_mapped =
            |at: *mut libc::c_void| unsafe { libc::mincore(at, 1, there.as_mut_ptr()) == 0 };
        let none = !is_mapped(place.cast()) && !is_mapped(nonce);
        page.revoke();
        let refused = page.hold().is_err() && page.revocations() == 0;
        let dead = seen.since::<()>(before, || unreachable!()) == Err(ReadError::Refused);
        drop((life, page, seen));
        i32::from(none) + 2 * i32::from(refused) + 4 * i32::from(dead)
    });
    assert_eq!(code, 7);
}

#[test]
fn a_childs_end_is_not_its_parents() {
    let (page, fd) = StatusPage::create().unwrap();
    let _life = page.hold().unwrap();
    let seen = shown(&fd).unwrap();
    assert_eq!(in_child_process(|| 1), 1);
    // SAFETY: no stack, no flags: a fork around the C library. The child leaves at once.
    let child = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
    if child == 0 {
        // SAFETY: leaves without running anything.
        unsafe { libc::_exit(1) };
    }
    // SAFETY: waits for the child just made.
    while unsafe { libc::waitpid(child as libc::pid_t, std::ptr::null_mut(), 0) } < 0 {}
    assert!(seen.lives());
    assert_eq!(page.revocations(), 0);
}
