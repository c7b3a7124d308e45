// SPDX-License-Identifier: MIT OR Apache-2.0

//! Packets in the order of time. Processes that capture themselves into one file each add those of
//! a moment at once, so the file is not in that order.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::file::Captured;

/// The time by which a process may be late. It writes ten times a second.
const LATE: Duration = Duration::from_secs(1);
/// Bytes that are held at most, of packets and of the entry for each.
const MOST: usize = 64 << 20;
const ENTRY: usize = 128;

/// The packets that may have to wait for earlier ones.
#[derive(Debug, Default)]
pub(crate) struct Order {
    /// By time, and number in the file.
    held: BTreeMap<(Duration, u64), Held>,
    octets: usize,
}

#[derive(Debug)]
struct Held {
    link: u32,
    data: Vec<u8>,
    length: usize,
    process: Option<u32>,
}

impl Order {
    /// Takes a packet, and hands those to `each` that no earlier one is expected before.
    pub(crate) fn add(&mut self, packet: &Captured<'_>, each: &mut dyn FnMut(&Captured<'_>)) {
        if packet.process.is_none() {
            // The order of a file of another tool is part of what it says.
            return each(packet);
        }
        let Captured { number, at, link, data, length, process } = *packet;
        self.octets += ENTRY + data.len();
        self.held.insert((at, number), Held { link, data: data.to_vec(), length, process });
        while let (Some((&(first, _), _)), Some((&(last, _), _))) =
            (self.held.first_key_value(), self.held.last_key_value())
            && (last - first > LATE || self.octets > MOST)
        {
            self.hand_on(each);
        }
    }

    /// Hands all to `each`.
    pub(crate) fn end(mut self, each: &mut dyn FnMut(&Captured<'_>)) {
        while !self.held.is_empty() {
            self.hand_on(each);
        }
    }

    fn hand_on(&mut self, each: &mut dyn FnMut(&Captured<'_>)) {
        if let Some(((at, number), held)) = self.held.pop_first() {
            let Held { link, data, length, process } = held;
            self.octets -= ENTRY + data.len();
            each(&Captured { number, at, link, data: &data, length, process });
        }
    }
}
