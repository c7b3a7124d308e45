// SPDX-License-Identifier: MIT OR Apache-2.0

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU8, AtomicU64};

use iwarp_mem::Buffer;
use iwarp_types::AtomicOp;

use super::*;
use crate::fork::in_child_process;
use crate::part::{IoPart, IoPartMut};

const PAGE: usize = 4096;

/// A block that goes back to its heap in the end.
struct Block {
    first: NonNull<u8>,
    len: usize,
}

impl Block {
    fn new(len: usize) -> Self {
        Self { first: HeapBuffers.allocate(len).expect("there is memory"), len }
    }

    fn addr(&self) -> usize {
        self.first.as_ptr().addr()
    }

    fn byte(&self, at: usize) -> &AtomicU8 {
        assert!(at < self.len);
        // SAFETY: within the block, and an atomic.
        unsafe { AtomicU8::from_ptr(self.first.as_ptr().wrapping_add(at)) }
    }

    fn place(&self) -> ArenaPlace {
        Heap::find(self.addr(), self.len).expect("it is in an arena")
    }

    /// The arena, as a peer maps it.
    fn mapped(&self) -> MappedArena {
        let own = |fd: BorrowedFd<'_>, len| Ok((fd.try_clone_to_owned()?, len));
        let (fd, len) = Heap::pass(self.place().arena, own).unwrap();
        MappedArena::map(fd.as_fd(), len).unwrap()
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: allocated with this length, and no borrow of it outlives it.
        unsafe { HeapBuffers.free(self.first, self.len) };
    }
}

#[test]
fn a_block_is_zeros_also_after_another_has_had_its_pages() {
    let mut seen = Vec::new();
    for _ in 0..3 {
        let block = Block::new(3 * PAGE + 1);
        assert!(block.addr().is_multiple_of(PAGE));
        assert!((0..block.len).all(|at| block.byte(at).swap(7, Ordering::Relaxed) == 0));
        seen.push(block.addr());
    }
    assert!(seen[0] == seen[2] || seen[0] == seen[1] || seen[1] == seen[2], "none was used again");
}

#[test]
fn a_peer_reads_and_writes_a_block_where_it_lies() {
    let block = Block::new(2 * PAGE);
    let (mapped, at) = (block.mapped(), block.place().offset);
    assert!(mapped.write(at + 5, &[IoPart::new(b"one"), IoPart::EMPTY, IoPart::new(b" two")]));
    let bytes: Vec<u8> = (5..12).map(|at| block.byte(at).load(Ordering::Relaxed)).collect();
    assert_eq!(bytes, b"one two");
    block.byte(6).store(b'N', Ordering::Relaxed);
    let (mut first, mut rest) = ([0; 2], [0; 5]);
    assert!(mapped.read(at + 5, &mut [IoPartMut::new(&mut first), IoPartMut::new(&mut rest)]));
    assert_eq!((&first, &rest), (b"oN", b"e two"));

    let word = block.first.as_ptr().cast();
    // SAFETY: in the block, which begins on a page.
    let word = unsafe { AtomicU64::from_ptr(word) };
    word.store(40, Ordering::Relaxed);
    let add = AtomicOp::FetchAdd { add: 2, mask: 0 };
    assert_eq!((mapped.update(at, add), word.load(Ordering::Relaxed)), (Some(40), 42));
    assert_eq!(mapped.update(at + 1, add), None, "it is not aligned");
    assert_eq!(mapped.update(u64::MAX - 8, add), None);
    assert!(!mapped.write(at + (1 << 40), &[IoPart::new(b"far")]));
    assert!(!mapped.read(u64::MAX, &mut [IoPartMut::new(&mut first)]));
}

#[test]
fn bytes_are_found_only_in_their_arena() {
    let block = Block::new(PAGE);
    assert!(HeapBuffers.holds(block.addr() + 8, 16));
    assert!(!HeapBuffers.holds(block.addr(), usize::MAX / 2));
    let elsewhere = 7_u64;
    assert!(!HeapBuffers.holds((&raw const elsewhere).addr(), 8));
    let unknown = Heap::pass(ARENAS as u32, |_, _| Ok(())).unwrap_err();
    assert_eq!(unknown.kind(), io::ErrorKind::NotFound);
}

/// Memory of which no other process knows goes back whole.
#[test]
fn an_arena_without_blocks_is_given_back() {
    let kept = Block::new(PAGE);
    let large = Block::new(64 << 20);
    let (addr, place) = (large.addr(), large.place());
    assert_ne!(place.arena, kept.place().arena);
    drop(large);
    if place.arena > 0 {
        let gone = Heap::pass(place.arena, |_, _| Ok(())).unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::NotFound);
    }
    assert!(!HeapBuffers.holds(addr, 1));
}

/// A peer that goes on storing stores where nothing looks.
#[test]
fn pages_that_were_taken_away_keep_their_bytes_and_are_no_peer_s() {
    let block = Block::new(3 * PAGE);
    let (mapped, at) = (block.mapped(), block.place().offset);
    (0..block.len).for_each(|at| block.byte(at).store(at as u8, Ordering::Relaxed));
    // A part of a page takes the page.
    let pages = Heap::keep_for_itself(block.addr() + PAGE + 10, 20).unwrap();
    assert_eq!(pages, (block.addr() + PAGE, PAGE));
    Heap::take_away(block.addr() + PAGE + 10, 20).unwrap();
    assert!((0..block.len).all(|at| block.byte(at).load(Ordering::Relaxed) == at as u8));
    assert!(
        mapped.write(at, &vec![0xee; block.len].chunks(1000).map(IoPart::new).collect::<Vec<_>>())
    );
    for (number, page) in [0xee, 0, 0xee].into_iter().enumerate() {
        let own = |at| if number == 1 { at as u8 } else { page };
        let mut range = number * PAGE..(number + 1) * PAGE;
        assert!(range.all(|at| block.byte(at).load(Ordering::Relaxed) == own(at)), "{number}");
    }
    assert_eq!(Heap::find(block.addr(), block.len), None);
    assert_eq!(Heap::find(block.addr() + PAGE, 1), None);
    assert!(Heap::find(block.addr(), PAGE).is_some());
    // No other block gets these pages.
    let taken = block.addr() + PAGE;
    drop(block);
    let others: Vec<Block> = (0..50).map(|_| Block::new(PAGE)).collect();
    assert!(others.iter().all(|other| other.addr() != taken));
}

/// Neither sees what the other stores after the fork, in pages of any kind.
#[test]
fn a_child_keeps_blocks_for_itself() {
    let block = Block::new(3 * PAGE);
    Heap::keep_for_itself(block.addr() + PAGE, PAGE).unwrap();
    Heap::take_away(block.addr() + PAGE, PAGE).unwrap();
    for page in 0..3 {
        block.byte(page * PAGE).store(1, Ordering::Relaxed);
    }
    let code = in_child_process(|| {
        let mut seen = 0;
        for page in 0..3 {
            seen += i32::from(block.byte(page * PAGE).swap(2, Ordering::Relaxed));
        }
        let own = (0..3).all(|page| block.byte(page * PAGE).load(Ordering::Relaxed) == 2);
        seen + 8 * i32::from(own)
    });
    assert_eq!(code, 3 + 8);
    assert!((0..3).all(|page| block.byte(page * PAGE).load(Ordering::Relaxed) == 1));
}

/// The child's own heap begins anew, and it gives none of the parent's blocks back.
#[test]
fn a_child_has_a_heap_of_its_own() {
    let (block, kept) = (Block::new(PAGE), Block::new(PAGE));
    kept.byte(0).store(5, Ordering::Relaxed);
    let (addr, parents) = (kept.addr(), block.place());
    let code = in_child_process(|| {
        let inherited = HeapBuffers.holds(addr, PAGE);
        drop(kept);
        // SAFETY: the parent's block, which the child has mapped.
        let there = unsafe { AtomicU8::from_ptr(std::ptr::with_exposed_provenance_mut(addr)) };
        i32::from(!inherited) + 2 * i32::from(there.load(Ordering::Relaxed) == 5)
    });
    assert_eq!(code, 3);
    assert_eq!(block.place(), parents);
}

#[test]
fn buffers_get_their_memory_here_once_that_was_said() {
    iwarp_mem::set_buffer_source(&HeapBuffers);
    let buffer = Buffer::new(100);
    assert!(HeapBuffers.holds(buffer.as_mut_ptr().addr(), buffer.len()));
    assert_eq!(buffer.to_vec(), [0; 100]);
    assert!(Buffer::new(0).is_empty());
}
