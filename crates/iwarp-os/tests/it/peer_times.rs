// SPDX-License-Identifier: MIT OR Apache-2.0

//! The time of a read of another process, beside a copy into a ring and one out of it.

use std::hint::black_box;
use std::ptr::null_mut;

use iwarp_os::IoPartMut;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous};
use rustix::time::{ClockId, clock_gettime};

use crate::peer::{Peer, Shower, this_test};

const MOST: usize = 1 << 20;
const HUGE: usize = 2 << 20;
const RING: usize = 2 << 20;
const BATCHES: usize = 101;

/// Memory of this process, in pages of the usual size, or collapsed into huge ones.
fn memory(collapsed: bool) -> *mut u8 {
    let rights = ProtFlags::READ | ProtFlags::WRITE;
    let len = 2 * HUGE;
    // SAFETY: a new mapping where the system likes it.
    let first = unsafe { mmap_anonymous(null_mut(), len, rights, MapFlags::PRIVATE) }.unwrap();
    let aligned = first.wrapping_byte_add(first.addr().wrapping_neg() % HUGE);
    let advice = if collapsed { Advice::LinuxHugepage } else { Advice::LinuxNoHugepage };
    // SAFETY: within the mapping, which is this function's alone.
    unsafe {
        madvise(aligned, HUGE, advice).unwrap();
        aligned.cast::<u8>().write_bytes(7, HUGE);
        if collapsed {
            const MADV_COLLAPSE: libc::c_int = 25;
            // If the system has it.
            libc::madvise(aligned, HUGE, MADV_COLLAPSE);
        }
    }
    aligned.cast()
}

/// Time of this thread on a processor, in nanoseconds.
fn spent() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 * 1e9 + now.tv_nsec as f64
}

/// Quartiles of what a turn of each way takes, in microseconds; the ways take turns.
fn compare(turns: usize, ways: &mut [(&str, &mut dyn FnMut())]) {
    let mut batches = vec![Vec::new(); ways.len()];
    for _ in 0..BATCHES {
        for ((_, way), batches) in ways.iter_mut().zip(&mut batches) {
            let begin = spent();
            (0..turns).for_each(|_| way());
            batches.push((spent() - begin) / turns as f64 / 1e3);
        }
    }
    for ((name, _), batches) in ways.iter().zip(&mut batches) {
        batches.sort_by(f64::total_cmp);
        let [low, middle, high] = [1, 2, 3].map(|quarter| batches[quarter * BATCHES / 4]);
        println!("  {name}: {middle:.2} us ({low:.2} to {high:.2})");
    }
}

/// # Safety
///
/// As of [`std::ptr::copy_nonoverlapping`].
unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller's word.
    unsafe { std::ptr::copy_nonoverlapping(black_box(from), black_box(to), len) };
}

#[test]
#[ignore = "prints times"]
fn times_of_reads() {
    if let Some(name) = Shower::in_child() {
        let mut shower = Shower::connect(&name);
        let collapsed = shower.listen() == b'c';
        shower.show(memory(collapsed), MOST);
        shower.wait_for_end();
    }
    let test = this_test!();
    let peers = [b'p', b'c'].map(|kind| {
        let peer = Peer::start_telling(test, kind);
        let memory = peer.open().unwrap();
        (peer, memory)
    });
    let (source, room) = (memory(false), memory(false));
    let rights = ProtFlags::READ | ProtFlags::WRITE;
    let file = rustix::fs::memfd_create(c"ring", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&file, RING as u64).unwrap();
    let mapped = || {
        // SAFETY: a new mapping where the system likes it.
        unsafe { mmap(null_mut(), RING, rights, MapFlags::SHARED, &file, 0) }.unwrap().cast::<u8>()
    };
    // The two processes of a ring have one each.
    let (filled, drained) = (mapped(), mapped());
    for len in [4096, 8192, 16_384, 32_768, 65_536, 262_144, MOST] {
        println!("{len} bytes:");
        let read = |(peer, memory): &(Peer, iwarp_os::local::PeerMemory)| {
            // SAFETY: this test's own.
            let to = unsafe { IoPartMut::from_raw(room, len) };
            assert_eq!(memory.read(peer.at(), &[peer.part(0, len)], &mut [to]), Ok(len));
        };
        let (mut put, mut taken) = (0, 0);
        // SAFETY: places of the ring are multiples of the length, which the ring's is as well; both
        // have so many bytes.
        let mut fill = || unsafe {
            copy(source, filled.wrapping_add(put % RING), len);
            put += len;
        };
        // SAFETY: as above.
        let mut drain = || unsafe {
            copy(drained.wrapping_add(taken % RING), room, len);
            taken += len;
        };
        let mut both = {
            let mut at = 0;
            move || {
                // SAFETY: as above.
                unsafe {
                    copy(source, filled.wrapping_add(at % RING), len);
                    copy(drained.wrapping_add(at % RING), room, len);
                }
                at += len;
            }
        };
        compare(
            ((1 << 21) / len).clamp(4, 200),
            &mut [
                ("read", &mut || read(&peers[0])),
                ("read of huge pages", &mut || read(&peers[1])),
                ("into a ring and out of it", &mut both),
                ("into a ring", &mut fill),
                ("out of a ring", &mut drain),
                // SAFETY: both have so many bytes.
                ("copy", &mut || unsafe { copy(source, room, len) }),
            ],
        );
    }
}
