// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory of requests that are under way: sinks that overlap, and sources that change.
//!
//! Programs that only measure use one buffer for all requests, so these rules are for those who ask
//! for them.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hasher as _};
use std::ops::Range;

use super::place::{Place, copy};

/// Bytes that are read at a time.
const CHUNK: usize = 1 << 16;

#[derive(Debug)]
struct Sink {
    end: usize,
    request: u64,
    posted: Place,
}

/// Memory that the device may write to, by its first address. Ranges do not overlap.
#[derive(Debug, Default)]
pub(super) struct Sinks {
    of: BTreeMap<usize, Sink>,
    /// Requests that have ended and whose completions lie in a queue, by queue pair, kind and the
    /// program's number.
    unpolled: HashMap<(u32, bool, u64), Vec<u64>>,
}

impl Sinks {
    /// A request takes this memory. Returns the place of one that has some of it already.
    pub(super) fn take(
        &mut self,
        request: u64,
        memory: &Range<usize>,
        posted: &Place,
    ) -> Option<(Range<usize>, Place)> {
        if memory.is_empty() {
            return None;
        }
        let before = self.of.range(..memory.end).next_back();
        if let Some((start, sink)) = before.filter(|(_, sink)| sink.end > memory.start) {
            return Some((*start..sink.end, sink.posted.clone()));
        }
        let sink = Sink { end: memory.end, request, posted: posted.clone() };
        self.of.insert(memory.start, sink);
        None
    }

    /// True if all of this memory is of one request that is not polled.
    pub(super) fn have(&self, memory: &Range<usize>) -> bool {
        let before = self.of.range(..=memory.start).next_back();
        before.is_some_and(|(_, sink)| memory.end <= sink.end)
    }

    /// All memory is free, and is returned.
    pub(super) fn release_all(&mut self) -> Vec<Range<usize>> {
        let all = std::mem::take(self).of;
        all.into_iter().map(|(start, sink)| start..sink.end).collect()
    }

    /// A request has ended: its memory is free once the program has polled that.
    pub(super) fn ended(&mut self, request: u64, key: (u32, bool, u64)) {
        self.unpolled.entry(key).or_default().push(request);
    }

    /// The program has polled a completion. Returns the memory that is free with it.
    pub(super) fn polled(&mut self, key: (u32, bool, u64)) -> Vec<Range<usize>> {
        let Some(requests) = self.unpolled.get_mut(&key) else { return Vec::new() };
        let request = requests.remove(0);
        if requests.is_empty() {
            self.unpolled.remove(&key);
        }
        self.release(request)
    }

    /// Completions of a queue pair are gone. Returns the memory that is free with them.
    pub(super) fn forget_pair(&mut self, pair: u32) -> Vec<Range<usize>> {
        let gone = self.unpolled.extract_if(|(of, ..), _| *of == pair);
        let requests: Vec<u64> = gone.flat_map(|(_, requests)| requests).collect();
        requests.into_iter().flat_map(|request| self.release(request)).collect()
    }

    /// The memory of a request is free, and is returned.
    pub(super) fn release(&mut self, request: u64) -> Vec<Range<usize>> {
        let all = self.of.iter().filter(|(_, sink)| sink.request == request);
        let released: Vec<_> = all.map(|(start, sink)| *start..sink.end).collect();
        released.iter().for_each(|memory| drop(self.of.remove(&memory.start)));
        released
    }
}

/// A digest of the bytes at these addresses; `None` where they cannot be read.
pub(super) fn digest(memory: impl Iterator<Item = Range<usize>>) -> Option<u64> {
    let mut hasher = DefaultHasher::new();
    let mut bytes = vec![0_u8; CHUNK];
    for range in memory {
        let mut at = range.start;
        while at < range.end {
            let length = CHUNK.min(range.end - at);
            // The program may have unmapped them.
            if !copy(at, &mut bytes[..length]) {
                return None;
            }
            hasher.write(&bytes[..length]);
            at += length;
        }
    }
    Some(hasher.finish())
}

/// True if some of the memory is not mapped.
pub(super) fn is_unmapped(memory: &Range<usize>) -> bool {
    // SAFETY: it only returns a number.
    let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
    let start = memory.start / page * page;
    let address = std::ptr::without_provenance_mut(start);
    // SAFETY: with this flag alone the system does nothing but look.
    let result = unsafe { libc::msync(address, memory.end - start, libc::MS_ASYNC) };
    result != 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::ENOMEM)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sinks_that_touch_do_not_overlap() {
        let (mut sinks, place) = (Sinks::default(), Place::here());
        assert!(sinks.take(1, &(100..200), &place).is_none());
        assert!(sinks.take(2, &(200..300), &place).is_none());
        assert!(sinks.take(3, &(50..100), &place).is_none());
        assert!(sinks.take(4, &(150..150), &place).is_none());
        assert!(sinks.have(&(100..200)) && sinks.have(&(210..220)) && !sinks.have(&(190..210)));
        assert!(!sinks.have(&(300..301)) && !sinks.have(&(49..51)));
        assert_eq!(sinks.take(5, &(199..201), &place).map(|(range, _)| range), Some(200..300));
        assert_eq!(sinks.take(6, &(0..1000), &place).map(|(range, _)| range), Some(200..300));
        sinks.ended(2, (7, true, 9));
        assert_eq!(sinks.release(1), vec![100..200; 1]);
        assert!(sinks.take(7, &(100..200), &place).is_none());
        assert!(sinks.take(8, &(200..300), &place).is_some());
        assert_eq!(sinks.polled((7, false, 9)), []);
        assert!(sinks.take(8, &(200..300), &place).is_some());
        assert_eq!(sinks.polled((7, true, 9)), vec![200..300; 1]);
        assert!(sinks.take(8, &(200..300), &place).is_none());
        assert_eq!(sinks.release_all(), [50..100, 100..200, 200..300]);
    }

    #[test]
    fn a_digest_changes_with_any_byte_and_is_of_memory_that_is_there() {
        let mut bytes = vec![0_u8; CHUNK + 5];
        let start = bytes.as_ptr().addr();
        let of = || digest([start..start + 3, start + 3..start + CHUNK + 5].into_iter());
        let before = of();
        assert!(before.is_some() && of() == before);
        bytes[CHUNK + 4] = 1;
        assert_ne!(of(), before);
        std::hint::black_box(&bytes);
        assert!(digest(std::iter::once(0..8)).is_none());
        assert!(is_unmapped(&(0..8)) && !is_unmapped(&(start..start + 8)));
    }
}
