// SPDX-License-Identifier: MIT OR Apache-2.0

//! The requests of a queue pair that a program is just building (`struct ibv_qp_ex`).

use std::cell::UnsafeCell;
use std::ops::Range;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use iwarp::{Destination, SendOp, Sge, Stag};
use iwarp_os::ProcessOwned;

use super::mw::Mw;
use crate::guard::Errno;

/// Requests between their beginning and their completion, in the process that made the queue pair.
/// A forked child, whose parent may have been between the two, assembles nothing.
#[derive(Debug)]
pub(crate) struct Builder {
    cell: ProcessOwned<ListCell>,
    /// Some thread of the process is between `wr_start` and `wr_complete`.
    taken: AtomicBool,
    /// The cell's list meanwhile; null otherwise.
    open: AtomicPtr<List>,
}

/// The list in which requests are put together. Storage is kept for the next time.
#[derive(Debug, Default)]
struct ListCell(UnsafeCell<List>);

#[derive(Debug, Default)]
pub(super) struct List {
    pub(super) requests: Vec<Pending>,
    /// Destinations, one per request on a UD queue pair; otherwise empty.
    pub(super) destinations: Vec<Option<Destination>>,
    pub(super) sges: Vec<Sge>,
    pub(super) inline: Vec<u8>,
    /// The error of one of them.
    pub(super) error: Option<Errno>,
}

#[derive(Debug)]
pub(super) struct Pending {
    pub(super) wr_id: u64,
    pub(super) op: SendOp,
    pub(super) octets: Octets,
    pub(super) signaled: bool,
    pub(super) fence: bool,
    /// The window to be bound, and the key it will have.
    pub(super) window: Option<(*const Mw, Stag)>,
}

#[derive(Debug)]
pub(super) enum Octets {
    Sges(Range<usize>),
    Inline(Range<usize>),
}

impl Default for Builder {
    fn default() -> Self {
        let (cell, open) = (ProcessOwned::new(ListCell::default()), AtomicPtr::new(null_mut()));
        Self { cell, taken: AtomicBool::new(false), open }
    }
}

impl Builder {
    pub(super) fn start(&self) {
        let Some(cell) = self.cell.alive() else {
            // The parent may have forked after its `wr_start`.
            return self.open.store(null_mut(), Ordering::Relaxed);
        };
        while self.taken.swap(true, Ordering::Acquire) {
            iwarp_os::clock::yield_now();
        }
        self.open.store(cell.0.get(), Ordering::Relaxed);
        let Some(list) = self.list() else { return };
        list.requests.clear();
        list.destinations.clear();
        list.sges.clear();
        list.inline.clear();
        list.error = None;
    }

    pub(super) fn end(&self) {
        self.open.store(null_mut(), Ordering::Relaxed);
        self.taken.store(false, Ordering::Release);
    }

    /// The list of the thread that has started; `None` where none has, as in a forked child.
    #[inline]
    #[expect(clippy::mut_from_ref, reason = "only the thread that has started gets here")]
    pub(super) fn list(&self) -> Option<&mut List> {
        // SAFETY: only called between `start` and `end`, where a thread is alone, and each call
        // from C ends before the next.
        unsafe { self.open.load(Ordering::Relaxed).as_mut() }
    }

    /// Notes that one of the requests cannot be.
    pub(super) fn refuse(&self, error: Errno) {
        if let Some(list) = self.list() {
            list.error = Some(error);
        }
    }
}
