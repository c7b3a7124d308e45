// SPDX-License-Identifier: MIT OR Apache-2.0

use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::thread;

use iwarp_types::Access;

use super::*;
use crate::local::ArenaPlace;

/// Both ends of a connection.
fn pair(room: usize) -> (Ring, Ring) {
    let (a, fd) = Ring::create(room).unwrap();
    let b = Ring::join(fd.as_fd(), room).unwrap();
    (a, b)
}

fn send(ring: &Ring, bytes: &[u8]) -> io::Result<usize> {
    ring.send(&[IoPart::new(bytes)])
}

fn recv(ring: &Ring, most: usize) -> io::Result<Vec<u8>> {
    let mut room = vec![0; most];
    let len = ring.recv(&mut [IoPartMut::new(&mut room)])?;
    room.truncate(len);
    Ok(room)
}

fn kind<T: std::fmt::Debug>(result: io::Result<T>) -> ErrorKind {
    result.unwrap_err().kind()
}

#[test]
fn bytes_pass_in_both_directions_and_around_the_end() {
    let (a, b) = pair(8);
    assert_eq!((a.side(), b.side(), b.room()), (Side::A, Side::B, 8));
    for _ in 0..5 {
        assert_eq!(send(&a, b"hello").unwrap(), 5);
        assert_eq!(send(&b, b"answer").unwrap(), 6);
        assert_eq!(recv(&b, 8).unwrap(), b"hello");
        assert_eq!(recv(&a, 8).unwrap(), b"answer");
    }
    let parts = [IoPart::new(b"ab"), IoPart::EMPTY, IoPart::new(b"cdefghijk")];
    assert_eq!(a.send(&parts).unwrap(), 8);
    let (mut one, mut other) = ([0; 3], [0; 9]);
    let mut room = [IoPartMut::new(&mut one), IoPartMut::EMPTY, IoPartMut::new(&mut other)];
    assert_eq!(b.recv(&mut room).unwrap(), 8);
    assert_eq!((&one, &other[..5]), (b"abc", &b"defgh"[..]));
    assert_eq!(kind(b.recv(&mut [])), ErrorKind::InvalidInput);
    assert_eq!(a.send(&[]).unwrap(), 0);
}

#[test]
fn a_full_ring_has_its_sender_told_once_half_of_it_is_free() {
    let (a, b) = pair(8);
    assert_eq!(send(&a, &[7; 10]).unwrap(), 8);
    assert!(!a.has_room());
    // The sender has not asked yet.
    recv(&b, 8).unwrap();
    assert!(!b.owes_room());
    send(&a, &[7; 10]).unwrap();
    assert_eq!(kind(send(&a, &[7])), ErrorKind::WouldBlock);
    for left in [7, 6, 5] {
        recv(&b, 1).unwrap();
        assert!(!b.owes_room(), "{left} are left");
        assert!(a.has_room());
    }
    recv(&b, 1).unwrap();
    assert!(b.owes_room());
    assert!(!b.owes_room());
    recv(&b, 4).unwrap();
    assert!(!b.owes_room());
    assert_eq!(send(&a, &[7; 10]).unwrap(), 8);
}

#[test]
fn a_ring_is_read_out_before_it_ends() {
    let (a, b) = pair(64);
    assert!(!b.has_input() && !b.is_ended());
    assert_eq!(kind(recv(&b, 1)), ErrorKind::WouldBlock);
    send(&a, b"last").unwrap();
    a.end();
    assert!(b.has_input() && b.is_ended() && a.has_room());
    assert_eq!(kind(send(&a, b"more")), ErrorKind::BrokenPipe);
    assert_eq!(recv(&b, 3).unwrap(), b"las");
    assert_eq!(recv(&b, 3).unwrap(), b"t");
    assert!(b.has_input());
    assert_eq!(recv(&b, 3).unwrap(), b"");
    // The other direction goes on.
    send(&b, b"x").unwrap();
    assert_eq!(recv(&a, 3).unwrap(), b"x");
}

#[test]
fn a_sender_hears_that_no_more_is_read() {
    let (a, b) = pair(4);
    send(&a, b"full").unwrap();
    assert!(!a.has_room());
    b.close();
    assert!(a.has_room());
    assert_eq!(kind(send(&a, b"x")), ErrorKind::BrokenPipe);
    send(&b, b"y").unwrap();
}

#[test]
fn an_end_tells_once_how_many_bytes_went_another_way() {
    let (a, b) = pair(4);
    assert_eq!(b.peer_began_at(), None);
    a.begin_at(0);
    assert_eq!((b.peer_began_at(), a.peer_began_at()), (Some(0), None));
    // A peer that changes its mind is not heard.
    a.begin_at(7);
    assert_eq!(b.peer_began_at(), Some(0));
    b.begin_at(u64::MAX);
    assert_eq!(a.peer_began_at(), Some(u64::MAX));
}

#[test]
fn a_ring_has_a_power_of_two() {
    for room in [0, 3, MAX_ROOM * 2, 1 << 31, usize::MAX] {
        assert_eq!(kind(Ring::create(room)), ErrorKind::InvalidInput);
    }
    let (a, fd) = Ring::create(1).unwrap();
    let b = Ring::join(fd.as_fd(), 1).unwrap();
    for byte in 0..=255 {
        assert_eq!(send(&a, &[byte; 2]).unwrap(), 1);
        assert_eq!(recv(&b, 2).unwrap(), [byte]);
    }
    assert_eq!(kind(Ring::join(fd.as_fd(), 2)), ErrorKind::InvalidData);
}

#[test]
fn a_ring_of_another_layout_is_not_joined() {
    let (a, fd) = Ring::create(64).unwrap();
    a.header().about.0.version.fetch_add(1, Ordering::Relaxed);
    assert_eq!(kind(Ring::join(fd.as_fd(), 64)), ErrorKind::InvalidData);
    a.header().about.0.version.store(VERSION, Ordering::Relaxed);
    a.header().about.0.room.store(32, Ordering::Relaxed);
    assert_eq!(kind(Ring::join(fd.as_fd(), 64)), ErrorKind::InvalidData);
    // Of the length that a ring would have.
    let (_, other) = SharedMemory::create(c"other", octets(64).unwrap(), 0, HEADER).unwrap();
    assert_eq!(kind(Ring::join(other.as_fd(), 64)), ErrorKind::InvalidData);
}

#[test]
fn nonsense_of_a_receiver_is_noticed() {
    for lie in [1, 5, 1 << 63, 0_u64.wrapping_sub(5), 0_u64.wrapping_sub(64)] {
        let (a, b) = pair(4);
        send(&a, b"abcd").unwrap();
        // It has taken more than was sent, or less than nothing.
        b.incoming().taken.0.store(4_u64.wrapping_add(lie), Ordering::Relaxed);
        assert!(a.has_room());
        assert_eq!(kind(send(&a, b"x")), ErrorKind::InvalidData);
        assert!(a.is_damaged() && a.has_room() && a.has_input());
        assert_eq!(kind(send(&a, b"x")), ErrorKind::InvalidData);
        assert_eq!(kind(recv(&a, 1)), ErrorKind::InvalidData);
    }
    let (a, b) = pair(4);
    for _ in 0..2 {
        send(&a, b"abcd").unwrap();
        recv(&b, 4).unwrap();
    }
    send(&a, b"ab").unwrap();
    assert_eq!(send(&a, b"cde").unwrap(), 2);
    // It goes back.
    b.incoming().taken.0.store(7, Ordering::Relaxed);
    assert_eq!(kind(send(&a, b"x")), ErrorKind::InvalidData);
}

#[test]
fn nonsense_of_a_sender_is_noticed() {
    for lie in [5, 1 << 40, u64::MAX, 1 << 63, 0_u64.wrapping_sub(4)] {
        let (a, b) = pair(4);
        a.out().sender.0.sent.store(lie, Ordering::Relaxed);
        assert!(b.has_input());
        assert_eq!(kind(recv(&b, 9)), ErrorKind::InvalidData);
        assert!(b.is_damaged() && b.has_input() && b.has_room());
        assert_eq!(kind(send(&b, b"x")), ErrorKind::InvalidData);
    }
    let (a, b) = pair(4);
    send(&a, b"abcd").unwrap();
    assert_eq!(recv(&b, 1).unwrap(), b"a");
    // It goes back.
    a.out().sender.0.sent.store(3, Ordering::Relaxed);
    assert_eq!(kind(recv(&b, 9)), ErrorKind::InvalidData);
}

/// An end believes its own count, not what has become of it in the shared memory.
#[test]
fn a_peer_does_not_change_the_counts_of_this_end() {
    let (a, b) = pair(4);
    send(&a, b"ab").unwrap();
    a.out().sender.0.sent.store(1, Ordering::Relaxed);
    assert_eq!(send(&a, b"cd").unwrap(), 2);
    assert_eq!(recv(&b, 2).unwrap(), b"ab");
    b.incoming().taken.0.store(0, Ordering::Relaxed);
    assert_eq!(recv(&b, 2).unwrap(), b"cd");
    assert_eq!(send(&a, b"ef").unwrap(), 2);
    assert_eq!(recv(&b, 2).unwrap(), b"ef");
}

#[test]
fn ends_of_two_threads_see_what_the_other_has_sent() {
    const LEN: usize = 1 << 20;
    let (a, b) = pair(64);
    let byte = |at: usize| (at * 31 + at / 251) as u8;
    thread::scope(|scope| {
        scope.spawn(|| {
            let bytes: Vec<u8> = (0..LEN).map(byte).collect();
            let mut sent = 0;
            while sent < LEN {
                match send(&a, &bytes[sent..LEN.min(sent + 1 + sent % 97)]) {
                    Ok(len) => sent += len,
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::WouldBlock);
                        thread::yield_now();
                    }
                }
            }
            a.end();
        });
        let mut came = 0;
        loop {
            match recv(&b, 1 + came % 89) {
                Ok(bytes) if bytes.is_empty() => break,
                Ok(bytes) => {
                    for got in bytes {
                        assert_eq!(got, byte(came));
                        came += 1;
                    }
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    thread::yield_now();
                }
            }
        }
        assert_eq!(came, LEN);
    });
}

#[test]
fn a_connection_that_passes_little_touches_little_memory() {
    let (a, fd) = Ring::create(512 * 1024).unwrap();
    let b = Ring::join(fd.as_fd(), 512 * 1024).unwrap();
    let touched = || rustix::fs::fstat(&fd).unwrap().st_blocks as usize * 512;
    let whole = touched() > 512 * 1024;
    let mut room = [0; 64];
    for _ in 0..100_000 {
        for [one, other] in [[&a, &b], [&b, &a]] {
            assert_eq!(one.send(&[IoPart::new(&[7; 64])]).unwrap(), 64);
            assert_eq!(other.recv(&mut [IoPartMut::new(&mut room)]).unwrap(), 64);
        }
    }
    // Before Linux 5.14 all of it is there from the beginning.
    let page = rustix::param::page_size();
    assert!(whole || touched() <= 6 * page.max(4096), "{} bytes", touched());
}

fn range(key: u32, address: u64) -> ShownRange {
    let (place, access) = (Some(ArenaPlace { arena: 2, offset: address }), Access::REMOTE);
    ShownRange { key, first: 7, len: 64, address, revocations: 3, place, access }
}

#[test]
fn memory_is_shown_to_the_peer_until_it_is_shown_no_more() {
    let (a, b) = pair(8);
    assert_eq!(b.shown(0x100), None);
    assert!(a.show(&range(0x100, 1)));
    assert!(!a.show(&range(0x100, 1)));
    assert_eq!(a.shown(0x100), None);
    let (seen, found) = b.shown(0x100).unwrap();
    assert_eq!(seen, range(0x100, 1));
    assert_eq!(b.shown(0x101), None);
    assert!(b.still_shows(found));
    a.show_nothing();
    assert!(!b.still_shows(found));
    assert_eq!(b.shown(0x100), None);
    // Shown again, it is no more what was found before.
    assert!(a.show(&range(0x100, 1)));
    assert!(!b.still_shows(found));
    let (_, found) = b.shown(0x100).unwrap();
    assert!(a.show(&range(0x100, 2)));
    assert!(!b.still_shows(found));
    assert_eq!(b.shown(0x100).unwrap().0.address, 2);
}

#[test]
fn an_owner_sees_who_accesses_its_memory_until_it_waits_no_more() {
    let (a, b) = pair(8);
    a.show(&range(0x100, 1));
    let (_, found) = b.shown(0x100).unwrap();
    assert!(a.is_idle() && !a.is_accessed(None));
    assert!(b.begin_access(found, 0x100));
    assert!(!b.begin_access(found, 0x100), "one at a time");
    assert!(a.is_accessed(None) && a.is_accessed(Some(0x100)));
    assert!(!a.is_accessed(Some(0x200)) && !b.is_accessed(None));
    assert!(b.end_access() && a.is_idle());
    // The owner gives up.
    assert!(b.begin_access(found, 0x100));
    a.show_nothing();
    assert_eq!(a.disown_access(Some(0x200)), None);
    assert_eq!(a.disown_access(None), Some(0x100));
    assert_eq!(a.last_showing(0x100), Some((1, 64)));
    assert!(!a.is_accessed(None) && !a.is_idle());
    assert_eq!(a.disown_access(None), None);
    assert!(!b.end_access() && a.is_idle());
    // Memory that is shown no more is not accessed.
    assert!(!b.begin_access(found, 0x100) && a.is_idle());
}

#[test]
fn a_further_range_takes_the_place_of_an_old_one() {
    let (a, b) = pair(8);
    let keys = (1..=40).map(|number| number << 8 | 5);
    for key in keys.clone() {
        a.show(&range(key, key.into()));
        assert_eq!(b.shown(key).unwrap().0.address, u64::from(key));
    }
    assert_eq!(keys.filter(|key| b.shown(*key).is_some()).count(), 32);
}

/// Its owner has to find the memory that a peer is writing to.
#[test]
fn no_range_takes_the_place_of_one_that_is_being_accessed() {
    let (a, b) = pair(8);
    a.show(&range(0x100, 1));
    let (_, found) = b.shown(0x100).unwrap();
    assert!(b.begin_access(found, 0x100));
    for key in (1..=100).map(|number| number << 11 | 0x100) {
        assert!(a.show(&range(key, key.into())));
        assert_eq!(a.last_showing(0x100), Some((1, 64)));
    }
    a.show_nothing();
    assert!(a.show(&range(0x1100, 2)));
    assert_eq!(a.disown_access(None), Some(0x100));
    assert_eq!(a.last_showing(0x100), Some((1, 64)));
    assert!(!b.end_access());
}

#[test]
fn a_peer_says_when_it_has_dealt_with_all_that_was_sent() {
    let (a, b) = pair(8);
    // It was not asked, and has not received.
    b.settle(0);
    assert!(!a.is_settled());
    b.settle(0);
    assert!(a.is_settled());
    send(&a, b"abc").unwrap();
    assert!(!a.is_settled());
    recv(&b, 2).unwrap();
    b.settle(0);
    assert!(!a.is_settled());
    recv(&b, 2).unwrap();
    assert!(!a.is_settled());
    b.settle(1);
    assert!(!a.is_settled());
    b.settle(0);
    assert!(a.is_settled());
    // The other direction is one of its own.
    assert!(!b.is_settled());
    a.settle(0);
    assert!(b.is_settled());
}

#[test]
fn a_peer_that_is_awaited_tells_once_how_much_it_has_dealt_with() {
    let (a, b) = pair(8);
    send(&a, b"abcdef").unwrap();
    assert_eq!(a.peer_settled(), None);
    assert!(a.await_peer(0));
    recv(&b, 4).unwrap();
    assert!(!b.settle(5), "what waits has come before the ring was there");
    assert_eq!(a.peer_settled(), None);
    assert!(b.settle(1));
    assert_eq!(a.peer_settled(), Some(3));
    assert!(!b.settle(0), "nothing waits");
    assert!(!a.await_peer(3), "it has dealt with more already");
    assert!(a.await_peer(4));
    assert!(!b.settle(0), "it has said so");
    recv(&b, 4).unwrap();
    assert!(b.settle(0));
    assert_eq!(a.peer_settled(), Some(6));
    // A count beyond what was sent is believed up to there.
    b.own_words().settled.0.upto.store(u64::MAX, Ordering::Relaxed);
    assert_eq!(a.peer_settled(), Some(6));
}

#[test]
fn bytes_lie_in_an_annex_until_others_are_put_there() {
    let (a, b) = pair(1 << 17);
    let len = a.annex_len();
    if !a.memory.is_on_demand() {
        assert_eq!(kind(a.leave(0, b"from a")), ErrorKind::Unsupported);
        return;
    }
    a.leave(0, b"from a").unwrap();
    b.leave(0, b"from b").unwrap();
    // Across pages and steps, and up to the end.
    let long: Vec<u8> = (0..=255).cycle().take(len - 1000).collect();
    a.leave(1000, &long).unwrap();
    // Beside the ring, which they do not touch.
    assert_eq!(send(&a, &[7; 1 << 17]).unwrap(), 1 << 17);
    assert_eq!(recv(&b, 1 << 17).unwrap(), [7; 1 << 17]);
    for _ in 0..2 {
        for (end, text) in [(&a, b"from b"), (&b, b"from a")] {
            let mut room = [0; 6];
            end.fetch(0, &mut room).unwrap();
            assert_eq!(&room, text);
        }
        let mut room = vec![0; long.len()];
        b.fetch(1000, &mut room).unwrap();
        assert!(room == long);
    }
    drop(a);
    let mut room = [0; 6];
    b.fetch(0, &mut room).unwrap();
    assert_eq!(&room, b"from a");
}

#[test]
fn an_annex_has_an_end() {
    let (a, b) = pair(64);
    assert_eq!(a.annex_len(), 64);
    for (at, len) in [(64, 1), (0, 65), (1, 64), (usize::MAX, 1), (usize::MAX, usize::MAX >> 40)] {
        let mut octets = vec![0; len];
        assert_eq!(kind(a.leave(at, &octets)), ErrorKind::InvalidInput, "{len} at {at}");
        assert_eq!(kind(b.fetch(at, &mut octets)), ErrorKind::InvalidInput, "{len} at {at}");
    }
    if a.memory.is_on_demand() {
        a.leave(63, &[1]).unwrap();
        a.leave(64, &[]).unwrap();
    }
}

#[test]
fn a_child_reaches_no_annex() {
    let (a, b) = pair(64);
    let refused = |result: io::Result<()>| {
        result.is_err_and(|error| error.raw_os_error() == Some(libc::ENODEV))
    };
    let code = crate::fork::in_child_process(|| {
        let ends = [refused(a.leave(0, &[1])), refused(b.fetch(0, &mut [0]))];
        i32::from(ends != [true; 2])
    });
    assert_eq!(code, 0);
}
