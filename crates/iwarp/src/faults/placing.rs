// SPDX-License-Identifier: MIT OR Apache-2.0

//! Received bytes that become visible in pieces, late, and in another order.
//!
//! All of a segment is there before the queue pair learns of it, so each promise of the protocols
//! stays: of what has completed all bytes are in their place, as are those that were sent before.
//! The thread that receives waits meanwhile, as behind a slow bus.

use std::ops::Range;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use iwarp_mem::{AccessObserver, Span, Store};
use iwarp_types::AccessError;

use super::rules::{Action, Operation, lot};
use super::words::PLACED;
use super::{are_placing, decide};

/// The time before each piece.
const PAUSE: Duration = Duration::from_millis(4);
/// The time for which the last byte is there alone: long enough that a program which polls it finds
/// the others missing, also where it waits for a CPU.
const ALONE: Duration = Duration::from_millis(20);
/// The bytes that reach memory at one time.
const GRAIN: usize = 8;
/// The most pieces of a segment.
const PIECES: usize = 4;

/// The order in which the bytes of a segment become visible.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Order {
    /// Pieces in any order, of which the one with the last byte is the last.
    LastLast,
    /// The last byte before all others.
    LastFirst,
}

/// An observer, around another one, that has bytes placed as the rules say. That one itself
/// without such rules.
pub(crate) fn around(inner: Option<Arc<dyn AccessObserver>>) -> Option<Arc<dyn AccessObserver>> {
    if are_placing() { Some(Arc::new(Placing(inner))) } else { inner }
}

#[derive(Debug)]
struct Placing(Option<Arc<dyn AccessObserver>>);

impl AccessObserver for Placing {
    fn gathered(&self, qp: u32, span: Span) {
        self.0.iter().for_each(|inner| inner.gathered(qp, span));
    }

    fn placed(&self, qp: u32, span: Span) {
        self.0.iter().for_each(|inner| inner.placed(qp, span));
    }

    fn place(&self, qp: u32, span: Span, store: Store<'_>) -> Result<(), AccessError> {
        let size = Some(span.len as u64);
        let operation = Operation { qp: Some(qp), size, ..Operation::call(PLACED) };
        let Some((Action::Place(order), number)) = decide(&operation) else {
            return store(0..span.len);
        };
        let mut pause = PAUSE;
        for piece in pieces(order, span, number) {
            // Also before the first: bytes come late as well.
            thread::sleep(pause);
            store(piece)?;
            if order == Order::LastFirst {
                pause = ALONE;
            }
        }
        Ok(())
    }
}

/// The pieces of a span, in their order. Equal for equal numbers.
fn pieces(order: Order, span: Span, number: u64) -> Vec<Range<usize>> {
    let Span { addr: start, len } = span;
    if order == Order::LastFirst {
        return vec![len - 1..len, 0..len - 1];
    }
    let mut draws = (0..).map(|at| lot(number, at, 0, PLACED, 0));
    let mut below = |end: usize| (draws.next().unwrap_or(0) % end as u64) as usize;
    // Words of memory begin there.
    let first = GRAIN - start % GRAIN;
    let words: Vec<usize> = (first..len).step_by(GRAIN).collect();
    let mut cuts: Vec<usize> = Vec::new();
    if !words.is_empty() {
        cuts.extend((1..PIECES).map(|_| words[below(words.len())]));
    }
    cuts.extend([0, len]);
    cuts.sort_unstable();
    cuts.dedup();
    let mut pieces: Vec<_> = cuts.windows(2).map(|ends| ends[0]..ends[1]).collect();
    let last = pieces.pop();
    for at in (1..pieces.len()).rev() {
        pieces.swap(at, below(at + 1));
    }
    pieces.extend(last);
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each byte once, the last at its time, and words whole.
    #[test]
    fn pieces_are_the_whole() {
        let mut shuffled = 0;
        for len in 1..200 {
            for number in 0..40 {
                let span = Span { addr: 0x1000 + (number as usize % 16), len };
                let found = pieces(Order::LastLast, span, number);
                assert_eq!(found.last().map(|piece| piece.end), Some(len));
                shuffled += usize::from(!found.is_sorted_by_key(|piece| piece.start));
                let mut sorted = found.clone();
                sorted.sort_unstable_by_key(|piece| piece.start);
                let mut end = 0;
                for piece in sorted {
                    assert_eq!(piece.start, end);
                    assert!(piece.start == 0 || (span.addr + piece.start).is_multiple_of(GRAIN));
                    end = piece.end;
                }
                assert_eq!(end, len);
                let strict: Vec<_> =
                    pieces(Order::LastFirst, span, number).into_iter().flatten().collect();
                assert_eq!(strict.len(), len);
                assert_eq!(strict[0], len - 1);
            }
        }
        assert!(shuffled > 1000, "{shuffled}");
    }
}
