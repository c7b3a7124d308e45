// SPDX-License-Identifier: MIT OR Apache-2.0

//! The bytes that are moved: each round has its own, so that bytes found afterwards came in that
//! round.

use anyhow::{Result, bail};
use iwarp::Buffer;
use iwarp_kit::pattern;

use super::task::Task;

/// Fills `block` with messages of the round `seed`, the last byte of which is `mark`.
pub(super) fn fill(seed: u64, mark: u8, block: &mut [u8]) {
    pattern::make(seed, 0, block);
    if let Some(last) = block.last_mut() {
        *last = mark;
    }
}

/// The last message of a round.
pub(super) fn last(task: &Task, len: usize) -> Vec<u8> {
    let mut octets = vec![0; len];
    fill(task.seed, task.mark(), &mut octets);
    octets
}

/// The messages that an end sends in a round: one over and over, and the [`last`].
#[derive(Debug, Default)]
pub(super) struct Messages {
    usual: Vec<u8>,
    last: Vec<u8>,
}

impl Messages {
    /// Makes the messages of a round, of `len` bytes each.
    pub(super) fn prepare(&mut self, task: &Task, len: usize) {
        if self.usual.len() != len {
            self.usual.resize(len, 0);
            fill(0, 0, &mut self.usual);
        }
        self.last = last(task, len);
    }

    /// One of them: the last, or any other.
    pub(super) fn get(&self, is_last: bool) -> &[u8] {
        if is_last { &self.last } else { &self.usual }
    }
}

/// Has room for a message of `len` bytes hold none.
pub(super) fn clear(room: &mut Vec<u8>, len: usize) {
    room.resize(len, 0);
    room.fill(0);
}

/// Compares what came with [`last`].
pub(super) fn verify(task: &Task, found: &[u8]) -> Result<()> {
    let want = last(task, found.len());
    if let Some(at) = want.iter().zip(found).position(|(want, found)| want != found) {
        bail!(
            "wrong bytes arrived: byte {at} of {} is {:#04x} instead of {:#04x}",
            found.len(),
            found[at],
            want[at]
        );
    }
    Ok(())
}

/// Checks the first bytes of registered memory, as [`verify`] does.
pub(super) fn verify_buffer(task: &Task, buffer: &Buffer, len: usize) -> Result<()> {
    let mut found = vec![0; len];
    buffer.read_at(0, &mut found);
    verify(task, &found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::{Flow, Op, Wait};

    fn task(seed: u64) -> Task {
        Task {
            flow: Flow::Stream,
            op: Op::Write,
            wait: Wait::Poll,
            server_wait: Wait::Poll,
            size: 1,
            count: 1,
            depth: 1,
            list: 1,
            connections: 1,
            seed,
            computes: None,
            pace: 0,
        }
    }

    #[test]
    fn every_octet_counts_and_every_round_has_its_own() {
        for len in [1, 7, 8, 4096, 65_537] {
            let octets = last(&task(5), len);
            verify(&task(5), &octets).unwrap();
            assert!(verify(&task(6), &octets).is_err(), "{len}: of another round");
            for at in [0, len / 2, len - 1] {
                let mut wrong = octets.clone();
                wrong[at] ^= 1;
                let complaint = verify(&task(5), &wrong).unwrap_err().to_string();
                assert!(complaint.contains(&format!("byte {at} of {len}")), "{complaint}");
            }
            let buffer = Buffer::new(len);
            assert!(verify_buffer(&task(5), &buffer, len).is_err(), "{len}: nothing came");
            buffer.write_at(0, &octets);
            verify_buffer(&task(5), &buffer, len).unwrap();
        }
    }

    #[test]
    fn a_mark_is_neither_nothing_nor_the_one_before() {
        for number in 0..1000 {
            assert_ne!(crate::task::mark(number), 0);
            assert_ne!(crate::task::mark(number), crate::task::mark(number + 1));
        }
    }
}
