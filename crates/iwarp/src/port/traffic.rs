// SPDX-License-Identifier: MIT OR Apache-2.0

//! The traffic of this process's ports, for other processes: the counters of a device's port, as
//! `iwarp run` shows them in /sys.

use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use iwarp_os::ledger::{self, Entry};
use iwarp_os::{PerProcess, environment};

static TRAFFIC: PerProcess<OnceLock<Option<Entry>>> = PerProcess::new();
/// This process counts, or the one that it was forked from: without a tree it costs a load and a
/// branch.
static COUNTS: AtomicBool = AtomicBool::new(false);

/// Begins to count, where this process is shown a tree. Later calls do nothing.
pub(super) fn open() {
    TRAFFIC.get().get_or_init(|| {
        let tree = environment::variable("IWARP_SYSFS")?;
        let entry = Entry::claim(&Path::new(&tree).join("counted/processes"), ledger::TRAFFIC);
        COUNTS.store(entry.is_ok(), Ordering::Relaxed);
        entry.ok()
    });
}

/// Counts what the system took.
#[inline]
pub(super) fn sent(octets: usize, packets: impl FnOnce() -> usize) {
    if COUNTS.load(Ordering::Relaxed) {
        count([(ledger::SENT_OCTETS, octets), (ledger::SENT_PACKETS, packets())]);
    }
}

/// Counts what came.
#[inline]
pub(super) fn received(octets: usize, packets: impl FnOnce() -> usize) {
    if COUNTS.load(Ordering::Relaxed) {
        count([(ledger::RECEIVED_OCTETS, octets), (ledger::RECEIVED_PACKETS, packets())]);
    }
}

#[inline(never)]
fn count(counts: [(usize, usize); 2]) {
    if let Some(Some(entry)) = TRAFFIC.get().get() {
        for (count, by) in counts {
            entry.add(count, by as u64);
        }
    }
}
