// SPDX-License-Identifier: MIT OR Apache-2.0

use std::io::ErrorKind;
use std::os::fd::AsFd;

use super::*;
use crate::fd::PassedFd;
use crate::local::{Life, StatusPage};

fn this_process() -> (StatusPage, PassedFd, Life, PeerMemory) {
    let (page, fd) = StatusPage::create().unwrap();
    let life = page.hold().unwrap();
    let peer = PeerMemory::of_process(std::process::id(), fd.as_fd()).unwrap();
    (page, fd, life, peer)
}

fn at(octets: &[u8]) -> RemotePart {
    RemotePart::new(octets.as_ptr().addr() as u64, octets.len() as u64).unwrap()
}

#[test]
fn a_process_without_a_number_is_refused() {
    let (_page, fd, _life, peer) = this_process();
    assert_eq!(peer.process(), std::process::id());
    for none in [0, 1 << 31, u32::MAX] {
        let refused = PeerMemory::of_process(none, fd.as_fd()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unsupported);
    }
}

#[test]
fn a_page_is_known_for_its_processes_own() {
    let (_page, fd, _life, peer) = this_process();
    assert_eq!(peer.probe().map(drop), Ok(()));
    // Another living process, which has nothing at that address.
    let parent = rustix::process::getppid().unwrap().as_raw_nonzero().get().unsigned_abs();
    let other = PeerMemory::of_process(parent, fd.as_fd()).unwrap();
    let refused = other.probe().map(drop).unwrap_err();
    assert!(matches!(refused, ReadError::Gone | ReadError::Refused), "{refused}");
}

/// A child that claims to be its parent has not inherited the bytes.
#[test]
fn a_child_does_not_pass_for_its_parent() {
    let (_page, fd, _life, _peer) = this_process();
    let nonces_of_parent = PeerMemory::of_process(std::process::id(), fd.as_fd()).unwrap();
    let nonce_at = nonces_of_parent.status.nonce_at;
    let code = crate::fork::in_child_process(|| {
        let mut seen = [0; 16];
        let own = rustix::process::getpid().as_raw_nonzero().get();
        let part = RemotePart::new(nonce_at, 16).unwrap_or(RemotePart::EMPTY);
        let read = copy::copy(own, &[part], &mut [IoPartMut::new(&mut seen)]);
        i32::from(matches!(read, Err(ReadError::Gone | ReadError::Refused)))
    });
    assert_eq!(code, 1);
}

#[test]
fn addresses_that_cannot_be_are_none() {
    assert!(RemotePart::new(u64::MAX, 1).is_none());
    assert!(RemotePart::new(1, u64::MAX).is_none());
    assert!(RemotePart::new(0, 1 << 63).is_none());
    let part = RemotePart::new(usize::MAX as u64 - 1, 1).unwrap();
    assert_eq!((part.address(), part.len()), (usize::MAX as u64 - 1, 1));
    let part = RemotePart::new(4096, 10).unwrap();
    assert_eq!(part.skip(3).take(2), RemotePart::new(4099, 2).unwrap());
    assert!(part.skip(10).is_empty() && RemotePart::EMPTY.is_empty());
}

#[test]
fn pieces_are_laid_beside_each_other() {
    let (page, _fd, _life, peer) = this_process();
    let from: Vec<u8> = (0..100).collect();
    let parts = |lens: &[usize]| {
        let mut rest = &from[..];
        lens.iter()
            .map(|len| {
                let (now, later) = rest.split_at(*len);
                rest = later;
                at(now)
            })
            .collect::<Vec<_>>()
    };
    for (lens, rooms, expected) in [
        (&[100][..], &[100][..], 100),
        (&[0, 0, 30, 0, 70], &[0, 50, 0, 0, 50], 100),
        // More bytes than room: at an edge of a piece, within the first, within another.
        (&[50, 50], &[50], 50),
        (&[50, 50], &[20, 10], 30),
        (&[10, 20, 30, 40], &[15, 0, 20], 35),
        // More room.
        (&[10], &[4, 40], 10),
        (&[], &[4], 0),
        (&[4], &[], 0),
        (&[0, 0], &[4], 0),
        (&[4], &[0, 0], 0),
        (&[0], &[0], 0),
    ] {
        let mut to = [255_u8; 100];
        let mut rest = &mut to[..];
        let mut room = Vec::new();
        for len in rooms {
            let (now, later) = rest.split_at_mut(*len);
            rest = later;
            room.push(IoPartMut::new(now));
        }
        assert_eq!(peer.read(page.revocations(), &parts(lens), &mut room), Ok(expected));
        assert_eq!(to[..expected], from[..expected]);
        assert!(to[expected..].iter().all(|octet| *octet == 255));
    }
}

#[test]
fn more_pieces_than_the_system_takes_are_read_in_turn() {
    let (page, _fd, _life, peer) = this_process();
    let from: Vec<u8> = (0..2500_u32).map(|at| at as u8).collect();
    // In each other byte's place the system would find none.
    let parts: Vec<_> = from.chunks(1).map(at).collect();
    for each in [1, 2] {
        let mut to = vec![0; from.len()];
        let mut done = 0;
        let mut calls = 0;
        while done < from.len() {
            let mut room: Vec<_> = to[done..].chunks_mut(each).map(IoPartMut::new).collect();
            done += peer.read(page.revocations(), &parts[done..], &mut room).unwrap();
            calls += 1;
        }
        assert_eq!((&to, calls), (&from, 3));
    }
    // Pieces without bytes ahead of one with some.
    let mut parts = vec![RemotePart::EMPTY; 3000];
    parts.push(at(&from[7..8]));
    let mut one = [0];
    let mut room: Vec<_> = (0..3000).map(|_| IoPartMut::EMPTY).collect();
    room.push(IoPartMut::new(&mut one));
    assert_eq!(peer.read(page.revocations(), &parts, &mut room), Ok(1));
    assert_eq!(one, [7]);
}
