// SPDX-License-Identifier: MIT OR Apache-2.0

//! A rule: its action, and the operations that it is about.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use iwarp_types::WcStatus;

use super::placing::Order;
use super::words::Verb;
use super::{Outcome, process};

/// Rules for faults in calls and completions, with the seed by which they decide.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FaultRules {
    pub(super) seed: u64,
    pub(super) rules: Arc<[Rule]>,
    /// By name, those that fire, and no others; `None` where the rules choose.
    pub(super) only: Option<Arc<BTreeSet<String>>>,
    /// A file that gets a line for each that has fired.
    pub(super) record: Option<PathBuf>,
}

impl FaultRules {
    /// True if there are rules, and not only a seed.
    pub fn has_some(&self) -> bool {
        !self.rules.is_empty()
    }

    /// True if some are about the placement of bytes.
    pub(super) fn place(&self) -> bool {
        self.rules.iter().any(|rule| matches!(rule.action, Action::Place(_)))
    }

    /// The seed.
    pub const fn seed(&self) -> u64 {
        self.seed
    }

    /// True if a file gets a line for each fault.
    pub const fn is_recorded(&self) -> bool {
        self.record.is_some()
    }

    /// The rules, as they were written.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.rules.iter().map(|rule| &*rule.text)
    }
}

/// The kind of a work request, or of an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Kind {
    /// A Send.
    Send,
    /// An RDMA Write.
    Write,
    /// An RDMA Read.
    Read,
    /// An Atomic.
    Atomic,
    /// A receive.
    Recv,
    /// No request, but an event of a completion channel.
    Event,
    /// An asynchronous event.
    AsyncEvent,
    /// An event of the connection manager.
    CmEvent,
    /// Another.
    Other,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Action {
    /// The call is refused with this number.
    Errno(i32),
    /// The completion has this status.
    Status(WcStatus),
    /// The completion comes so much later.
    Late(Duration),
    /// Received bytes become visible in this order, with pauses.
    Place(Order),
    /// The call takes so much longer.
    Slow(Duration),
    /// A completion event comes twice.
    Again,
    /// A step of the connection manager ends so.
    End(Outcome),
}

/// See the [module](self).
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Rule {
    pub(super) text: String,
    pub(super) action: Action,
    /// Of calls: the function.
    pub(super) verb: Option<Verb>,
    /// The queue pair: the how many-th that the process has made, from 1 on.
    pub(super) qp: Option<u32>,
    /// The queue pair, by its number.
    pub(super) qpn: Option<u32>,
    /// The program's number of the request.
    pub(super) wr_id: Option<u64>,
    pub(super) kind: Option<Kind>,
    /// In bytes.
    pub(super) size: Option<RangeInclusive<u64>>,
    pub(super) after: Option<Duration>,
    pub(super) before: Option<Duration>,
    /// Of those that match on a queue pair: one, each so many-th, one in so many by lot.
    pub(super) nth: Option<u64>,
    pub(super) every: Option<u64>,
    pub(super) one_in: Option<u64>,
    /// The number that may fire on a queue pair.
    pub(super) times: Option<u64>,
    /// Of all but calls.
    pub(super) lanes: Vec<&'static str>,
    /// The processes that have it: by name, and by an argument.
    pub(super) program: Option<String>,
    pub(super) argument: Option<String>,
}

/// An operation about which rules decide.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operation<'a> {
    /// Name of the function, or the lane of a completion.
    pub(super) verb: &'a str,
    /// Number of the queue pair.
    pub(super) qp: Option<u32>,
    pub(super) kind: Option<Kind>,
    pub(super) size: Option<u64>,
    /// Of a completion.
    pub(super) wr_id: Option<u64>,
}

impl<'a> Operation<'a> {
    pub(super) const fn call(verb: &'a str) -> Self {
        Self { verb, qp: None, kind: None, size: None, wr_id: None }
    }
}

impl Rule {
    /// True if it is about this operation. `index`: the how many-th queue pair it is; `time`: since
    /// the process has had its first.
    pub(super) fn is_about(&self, operation: &Operation<'_>, index: u32, time: Duration) -> bool {
        let lane = match (&self.verb, operation.verb) {
            (Some(verb), called) => verb.name == called && verb.on_qp == operation.qp.is_some(),
            (None, lane) => self.lanes.contains(&lane),
        };
        lane && self.qp.is_none_or(|qp| qp == index)
            && self.qpn.is_none_or(|qpn| operation.qp == Some(qpn))
            && self.wr_id.is_none_or(|wr_id| operation.wr_id == Some(wr_id))
            && self.kind.is_none_or(|kind| operation.kind == Some(kind))
            && self
                .size
                .as_ref()
                .is_none_or(|sizes| operation.size.is_some_and(|size| sizes.contains(&size)))
            && self.after.is_none_or(|after| time >= after)
            && self.before.is_none_or(|before| time < before)
            && self.program.as_ref().is_none_or(|name| process::is(name))
            && self.argument.as_ref().is_none_or(|argument| process::has(argument))
    }

    /// True if it fires: at the `matched`-th (from 1 on) that it is about on this queue pair, after
    /// `fired` others; `lot` is drawn for the operation.
    pub(super) fn fires(&self, matched: u64, fired: u64, lot: u64) -> bool {
        self.nth.is_none_or(|nth| matched == nth)
            && self.every.is_none_or(|every| matched.is_multiple_of(every))
            && self.one_in.is_none_or(|number| lot.is_multiple_of(number))
            && self.times.is_none_or(|times| fired < times)
    }
}

/// A number by lot: of the seed, a rule, a queue pair, a lane and an operation in it.
pub(super) fn lot(seed: u64, rule: usize, qp: u32, lane: &str, operation: u64) -> u64 {
    let lane = process::hash(lane.as_bytes());
    [rule as u64, u64::from(qp), lane, operation]
        .into_iter()
        .fold(mix(seed), |hash, word| mix(hash ^ mix(word)))
}

/// The step of SplitMix64, which spreads each bit over all.
pub(super) const fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::lot;

    /// One in four of many, give or take a tenth.
    #[test]
    fn lots_are_even() {
        let count = (0..4000).filter(|&n| lot(7, 0, 1, "sent", n).is_multiple_of(4)).count();
        assert!((900..=1100).contains(&count), "{count}");
    }

    #[test]
    fn each_part_changes_the_lot() {
        let all = [
            lot(7, 0, 1, "sent", 3),
            lot(8, 0, 1, "sent", 3),
            lot(7, 1, 1, "sent", 3),
            lot(7, 0, 2, "sent", 3),
            lot(7, 0, 1, "received", 3),
            lot(7, 0, 1, "sent", 4),
        ];
        let distinct: std::collections::BTreeSet<_> = all.into_iter().collect();
        assert_eq!(distinct.len(), all.len());
    }
}
