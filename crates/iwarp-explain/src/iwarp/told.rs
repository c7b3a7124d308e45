// SPDX-License-Identifier: MIT OR Apache-2.0

//! The part of a report that iWARP knows.

use crate::report::{Fact, Frame, Operation, Span, Times};
use crate::statistics::Durations;
use crate::words::{bytes, grouped};

use super::{Stream, startup};

/// The part of a report that tells of an iWARP connection.
#[derive(Debug)]
pub(crate) struct Told {
    /// No frame could be read.
    pub(crate) blind: bool,
    pub(crate) terms: Vec<Fact>,
    pub(crate) operations: Vec<Operation>,
    pub(crate) times: Vec<Times>,
    pub(crate) frames: Vec<Frame>,
    pub(crate) spans: Vec<Span>,
    pub(crate) spans_left_out: u64,
}

const READ: [&str; 2] = ["read_of_0", "read_of_1"];
const ATOMIC: [&str; 2] = ["atomic_of_0", "atomic_of_1"];
const UNREAD: [&str; 2] = ["unread_bytes_of_0", "unread_bytes_of_1"];
const MOST: [&str; 2] = ["most_outstanding_of_0", "most_outstanding_of_1"];

impl Stream {
    /// Tells all, with the ends in an order.
    pub(crate) fn tell(&mut self, order: [usize; 2]) -> Told {
        let mut terms = startup::facts(self.frames, self.names, order);
        let mut times = Vec::new();
        if let Some(setup) = self.setup {
            let mut durations = Durations::default();
            durations.add(setup);
            times.extend(durations.times("start_up", "MPA Request to MPA Reply".to_owned()));
        }
        let mut operations = Vec::new();
        for (place, end) in order.into_iter().enumerate() {
            let name = self.name(end);
            operations.extend(std::mem::take(&mut self.senders[end].messages).by(place));
            let asking = &mut self.asking[end];
            let reads = std::mem::take(&mut asking.reads);
            let what = format!("Read of {name}: request to the last byte of the response");
            times.extend(reads.times(READ[place], what));
            let atomics = std::mem::take(&mut asking.atomics);
            let what = format!("Atomic of {name}: request to response");
            times.extend(atomics.times(ATOMIC[place], what));
            if asking.most > 1 {
                let most = asking.most as u64;
                let text = format!("{name} had up to {} Reads or Atomics under way", grouped(most));
                terms.push(Fact::new(MOST[place], most, text));
            }
            let unread = self.directions[end].unread;
            if unread > 0 {
                let text = format!("{} of {name} could not be read", bytes(unread));
                terms.push(Fact::new(UNREAD[place], unread, text));
            }
        }
        if self.unverified > 0 {
            let text =
                format!("CRC unverified in {} FPDUs, which are cut", grouped(self.unverified));
            terms.push(Fact::new("crc_unverified", self.unverified, text));
        }
        let fpdus: u64 = self.directions.iter().map(|direction| direction.fpdus).sum();
        let told = self.frames.iter().all(Option::is_some);
        let (spans, spans_left_out) = std::mem::take(&mut self.spans).ordered(order);
        let mut frames = std::mem::take(&mut self.lines);
        frames.sort_by_key(|frame| frame.packet);
        for frame in &mut frames {
            frame.by = order[frame.by];
        }
        Told { blind: fpdus == 0 && !told, terms, operations, times, frames, spans, spans_left_out }
    }
}
