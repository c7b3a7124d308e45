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

/// Bytes of the mapping of that address that lie in huge pages.
fn huge_bytes(addr: usize) -> usize {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut is_it = false;
    for line in maps.lines() {
        let range = line.split_once(' ').and_then(|(range, _)| range.split_once('-'));
        if let Some((from, to)) = range {
            let [from, to] = [from, to].map(|at| usize::from_str_radix(at, 16));
            if let (Ok(from), Ok(to)) = (from, to) {
                is_it = (from..to).contains(&addr);
            }
        } else if let Some(bytes) = line.strip_prefix("ShmemPmdMapped:").filter(|_| is_it) {
            return bytes.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10;
        }
    }
    0
}

/// They hold what they held before, at both ends.
#[test]
fn a_long_block_that_will_be_used_lies_in_huge_pages() {
    let block = Block::new(3 * HUGE);
    block.byte(5).store(1, Ordering::Relaxed);
    block.byte(3 * HUGE - 1).store(3, Ordering::Relaxed);
    let mapped = block.mapped();
    HeapBuffers.will_use(block.addr(), 3 * HUGE);
    assert_eq!([5, HUGE, 3 * HUGE - 1].map(|at| block.byte(at).load(Ordering::Relaxed)), [1, 0, 3]);
    if huge::are_there() {
        assert!(huge_bytes(block.addr()) >= 3 * HUGE);
    }
    let mut there = [0; 6];
    let at = block.place().offset + 3 * HUGE as u64 - 6;
    assert!(mapped.read(at, &mut [IoPartMut::new(&mut there)]));
    assert_eq!(there, [0, 0, 0, 0, 0, 3]);
    // Memory of others, and a part of a huge page, stay as they are.
    HeapBuffers.will_use(0x1000, 4 * HUGE);
    HeapBuffers.will_use(block.addr() + PAGE, PAGE);
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

/// Some of them were this process's alone before.
#[test]
fn pages_are_taken_away_twice_with_what_they_hold() {
    let block = Block::new(2 * PAGE);
    for (round, len) in [(1, PAGE), (2, 2 * PAGE)] {
        Heap::keep_for_itself(block.addr(), len).unwrap();
        Heap::take_away(block.addr(), len).unwrap();
        assert_eq!(block.byte(5).fetch_add(1, Ordering::Relaxed) + 1, round);
        assert_eq!(block.byte(PAGE + 5).fetch_add(1, Ordering::Relaxed) + 1, round);
    }
}

/// A thread of the program stores while the pages are exchanged under it.
#[test]
fn no_store_is_lost_while_pages_are_taken_away() {
    let block = Block::new(64 * PAGE);
    let ends = AtomicBool::new(false);
    let bytes: Vec<&AtomicU8> = (0..64).map(|page| block.byte(page * PAGE)).collect();
    let stored = std::thread::scope(|threads| {
        let storing = threads.spawn(|| {
            let mut stored = [0_u64; 64];
            while !ends.load(Ordering::Relaxed) {
                for (byte, stored) in bytes.iter().zip(&mut stored) {
                    *stored += 1;
                    byte.fetch_add(1, Ordering::Relaxed);
                }
            }
            stored
        });
        for _ in 0..20 {
            Heap::keep_for_itself(block.addr(), block.len).unwrap();
            Heap::take_away(block.addr(), block.len).unwrap();
        }
        ends.store(true, Ordering::Relaxed);
        storing.join().unwrap()
    });
    for (page, stored) in stored.into_iter().enumerate() {
        assert_eq!(block.byte(page * PAGE).load(Ordering::Relaxed), stored as u8, "{page}");
    }
}

/// A block of the program's allocator, with a byte in front of its end.
fn program_block(len: usize, align: usize) -> (NonNull<u8>, &'static AtomicU8) {
    Blocks::reserve().expect("there are addresses");
    let block = Blocks::allocate(len, align, true).expect("there is memory");
    // SAFETY: in the block, which no test gives back while it looks there; an atomic.
    (block, unsafe { AtomicU8::from_ptr(block.as_ptr().wrapping_add(len - 1)) })
}

#[test]
fn blocks_for_programs_are_aligned_and_tell_their_room() {
    let (first, len) = Blocks::reserve().unwrap();
    for (size, align) in [(1, 1), (100, 64), (PAGE, PAGE), (3 * PAGE + 1, 1 << 21), (1 << 20, 16)] {
        let (block, last) = program_block(size, align);
        let addr = block.addr().get();
        assert!(addr.is_multiple_of(align.max(64)) && (first..first + len).contains(&addr));
        assert_eq!(last.load(Ordering::Relaxed), 0);
        // SAFETY: given out above.
        let room = unsafe { Blocks::room(block) };
        assert!((size..size + align + PAGE).contains(&room), "{room} for {size}");
        assert!(Heap::find(addr, room).is_some());
        // SAFETY: as above, once.
        unsafe { Blocks::free(block) };
    }
    assert_eq!(Blocks::allocate(usize::MAX - PAGE, 16, true), None);
    assert_eq!(Blocks::allocate(1 << 50, 16, true), None);
}

/// The heap asks for memory itself, and that may be the program's allocator.
#[test]
fn a_call_of_the_heap_gets_no_block() {
    program_block(PAGE, 16);
    let held = heap();
    assert_eq!(Blocks::allocate(PAGE, 16, true), None);
    drop(held);
    assert!(Blocks::allocate(PAGE, 16, true).is_some());
}

/// It can tell their room, empties those that it frees, and gets others at other addresses.
#[test]
fn a_child_keeps_blocks_of_programs() {
    let (block, last) = program_block(5 * PAGE, 16);
    last.store(9, Ordering::Relaxed);
    // SAFETY: given out above.
    let room = unsafe { Blocks::room(block) };
    let code = in_child_process(|| {
        // SAFETY: as above.
        let is_kept = unsafe { Blocks::room(block) } == room && last.load(Ordering::Relaxed) == 9;
        let (own, own_last) = program_block(5 * PAGE, 16);
        let is_apart = own != block && own_last.swap(4, Ordering::Relaxed) == 0;
        let (again, _) = program_block(64 << 20, 16);
        // SAFETY: as above, once each.
        unsafe {
            Blocks::free(block);
            Blocks::free(again);
        }
        i32::from(is_kept) + 2 * i32::from(is_apart) + 4 * own_last.load(Ordering::Relaxed) as i32
    });
    assert_eq!(code, 1 + 2 + 16);
    assert_eq!(last.load(Ordering::Relaxed), 9);
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
