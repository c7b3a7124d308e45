// SPDX-License-Identifier: MIT OR Apache-2.0

//! Counters of datagram ports that other processes can read: `hw_counters` of sysfs, as `iwarp run`
//! shows it, for each port of a device.

use std::net::IpAddr;
use std::path::Path;

use iwarp_os::board::{Board, PART};
use iwarp_os::environment;
use iwarp_roce::wire::Counters;

use crate::engine::endpoint::Endpoint;
use crate::port::traffic;

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

    /// True if the packets of each port are to be counted by themselves.
    #[inline]
    pub(super) fn is_by_port(&self) -> bool {
        self.0.is_some() && traffic::has_several()
    }

    /// Adds what was counted of a queue pair since the last time.
    #[inline]
    pub(super) fn add_of(&self, endpoint: &Endpoint, counted: impl FnOnce() -> Counters) {
        if let Some(board) = &self.0 {
            let port = endpoint.profile.port_among_all(endpoint.port(), None);
            add(board, port, &counted());
        }
    }

    /// Adds what was counted of packets since the last time, where all count on one port.
    #[inline]
    pub(super) fn add(&self, counted: impl FnOnce() -> Counters) {
        if let Some(board) = &self.0 {
            add(board, 0, &counted());
        }
    }

    /// Adds what was counted of packets with an address of this host, or of packets to a group that
    /// have come by an interface.
    pub(super) fn add_at(&self, addr: IpAddr, interface: Option<u32>, counted: &Counters) {
        if let Some(board) = &self.0 {
            traffic::each_port_at(addr, interface, |port| add(board, port, counted));
        }
    }
}

#[cold]
fn add(board: &Board, port: usize, counters: &Counters) {
    if *counters == Counters::default() {
        return;
    }
    for (name, count) in counters.named().filter(|(_, count)| *count != 0) {
        if let Some(word) = COUNTER_NAMES.iter().position(|shown| *shown == name) {
            board.add(port * PART + word, count);
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
        assert!(COUNTER_NAMES.len() <= PART);
    }
}
