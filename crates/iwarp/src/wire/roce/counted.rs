// SPDX-License-Identifier: MIT OR Apache-2.0

//! Counters of datagram ports that other processes can read: `hw_counters` of sysfs, as `iwarp run`
//! shows it.

use std::path::Path;

use iwarp_os::board::Board;
use iwarp_os::environment;
use iwarp_roce::wire::Counters;

/// The names of the files, in the order of the words on the board: of [`Counters`] those that
/// something increments.
pub const COUNTER_NAMES: [&str; 15] = [
    "sent_pkts",
    "rcvd_pkts",
    "rx_icrc_encapsulated",
    "rcvd_malformed",
    "rcvd_unknown_qp",
    "np_cnp_sent",
    "rp_cnp_handled",
    "duplicate_request",
    "out_of_seq_request",
    "rcvd_rnr_err",
    "send_rnr_err",
    "rcvd_seq_err",
    "completer_retry_err",
    "local_ack_timeout_err",
    "send_err",
];

/// Board on which they are counted; `None` if no process looks.
#[derive(Debug)]
pub(crate) struct Counted(Option<Board>);

impl Counted {
    /// Opens the board of the tree that this process is shown, if it is shown one.
    pub(crate) fn open() -> Self {
        let tree = environment::variable("IWARP_SYSFS");
        Self(tree.and_then(|tree| Board::open(&Path::new(&tree).join("counted/words")).ok()))
    }

    /// Adds what was counted since the last time.
    #[inline]
    pub(crate) fn add(&self, counted: impl FnOnce() -> Counters) {
        if let Some(board) = &self.0 {
            add(board, &counted());
        }
    }
}

#[cold]
fn add(board: &Board, counters: &Counters) {
    if *counters == Counters::default() {
        return;
    }
    for (name, count) in counters.named().filter(|(_, count)| *count != 0) {
        if let Some(word) = COUNTER_NAMES.iter().position(|shown| *shown == name) {
            board.add(word, count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_names_are_those_of_counters() {
        let known: Vec<_> = Counters::default().named().map(|(name, _)| name).collect();
        assert!(COUNTER_NAMES.iter().all(|name| known.contains(name)));
        assert!(COUNTER_NAMES.len() <= iwarp_os::board::WORDS);
    }
}
