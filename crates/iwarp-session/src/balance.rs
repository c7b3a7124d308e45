// SPDX-License-Identifier: MIT OR Apache-2.0

//! The messages that this end may send, as the peer has receives for them.
//!
//! Each end tells the other how many messages it may have sent in all since the connection was
//! made: the receives that it has posted so far. The number goes as immediate data of an empty
//! Send, which needs a receive itself; [`SPARE`] are kept for that. An end speaks up when its
//! number has grown by half the window, or when the peer has used up all that it knows of. By the
//! first rule the peer may have two such Sends to look at, never three: a third number would be
//! more than a window ahead of what the peer has seen. By the second there is one, as the peer has
//! seen all before it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use crate::line::Line;
use crate::table::{Core, Handle};

/// Receives beyond the window, for what the ends tell each other.
pub(super) const SPARE: usize = 2;

/// The number of messages that this end may send.
#[derive(Debug, Default)]
pub(super) struct Balance(Mutex<Sheet>);

#[derive(Debug, Default)]
struct Sheet {
    /// Messages that the peer has receives for, in all since the beginning.
    granted: u64,
    /// Messages that were sent, or are about to be.
    used: u64,
    /// The line of waiters to send some: empty while there are receives for those of the first.
    line: Line<Waker, usize>,
    /// There will be no more.
    closed: bool,
}

impl Sheet {
    fn grant(&mut self, total: u32) {
        // A number that was said before is behind, and never by half the numbers there are.
        #[allow(clippy::cast_possible_truncation, reason = "compared as numbers of 32 bits")]
        let more = total.wrapping_sub(self.granted as u32);
        if more <= u32::MAX / 2 {
            self.granted += u64::from(more);
        }
    }

    fn has(&self, count: usize) -> bool {
        !self.closed && self.used + count as u64 <= self.granted
    }

    /// Takes so many, if they are there and no other waits for them.
    fn take(&mut self, count: usize) -> bool {
        let taken = !self.line.has_waiting() && self.has(count);
        self.used += if taken { count as u64 } else { 0 };
        taken
    }

    /// Serves the waiters that it can; true if a thread is among them.
    fn serve(&mut self, woken: &mut Vec<Waker>) -> bool {
        let mut threads = false;
        while let Some(need) = self.line.need()
            && self.has(need)
            && let Ok((_, waker)) = self.line.serve(need)
        {
            self.used += need as u64;
            threads |= waker.is_none();
            woken.extend(waker);
        }
        threads
    }
}

impl Balance {
    fn lock(&self) -> MutexGuard<'_, Sheet> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The peer has said how many messages it takes in all, in 32 bits of the number.
    pub(super) fn grant(&self, total: u32, core: &Core) {
        self.change(core, |sheet| sheet.grant(total));
    }

    /// Ends it: no waiter gets any more.
    pub(super) fn close(&self, core: &Core) {
        let mut sheet = self.lock();
        let was_closed = std::mem::replace(&mut sheet.closed, true);
        let woken: Vec<_> = sheet.line.waiting().cloned().collect();
        drop(sheet);
        if !was_closed {
            core.nudge();
            woken.into_iter().for_each(Waker::wake);
        }
    }

    /// Has the tasks that wait look again.
    #[cfg(feature = "tokio")]
    pub(super) fn look_again(&self) {
        let woken: Vec<_> = self.lock().line.waiting().cloned().collect();
        woken.into_iter().for_each(Waker::wake);
    }

    /// Messages that can be sent at once, as far as the peer has told.
    pub(super) fn available(&self) -> u64 {
        let sheet = self.lock();
        if sheet.closed { 0 } else { sheet.granted - sheet.used }
    }

    /// Messages that the peer has had receives for, in all since the beginning.
    pub(super) fn granted(&self) -> u64 {
        self.lock().granted
    }

    /// Takes so many, if they are there or were handed to the ticket; false: it waits in the line,
    /// with a ticket, and `waker` is woken when they are. `None`: there will be no more.
    pub(super) fn take_or_join(
        &self,
        count: usize,
        ticket: &mut Option<u64>,
        waker: Option<&Waker>,
    ) -> Option<bool> {
        let mut sheet = self.lock();
        if let Some(own) = *ticket
            && sheet.line.collect(own).is_some()
        {
            *ticket = None;
            return Some(true);
        }
        if sheet.closed {
            return None;
        }
        match (*ticket, waker) {
            (None, _) if sheet.take(count) => return Some(true),
            (None, _) => *ticket = Some(sheet.line.join(count, waker.cloned())),
            #[cfg(feature = "tokio")]
            (Some(own), Some(waker)) => sheet.line.tell(own, waker.clone()),
            (Some(_), _) => {}
        }
        Some(false)
    }

    fn change(&self, core: &Core, change: impl FnOnce(&mut Sheet)) {
        let mut woken = Vec::new();
        let mut sheet = self.lock();
        change(&mut sheet);
        let threads = sheet.serve(&mut woken);
        drop(sheet);
        if threads {
            core.nudge();
        }
        woken.into_iter().for_each(Waker::wake);
    }

    pub(super) fn try_take(&self, count: usize) -> bool {
        self.lock().take(count)
    }

    fn give_back(&self, core: &Core, count: usize) {
        self.change(core, |sheet| sheet.used -= count as u64);
    }

    pub(super) fn leave_line(&self, ticket: u64, core: &Core) {
        self.change(core, |sheet| {
            if let Some(count) = sheet.line.leave(ticket) {
                sheet.used -= count as u64;
            }
        });
    }

    pub(super) fn is_decided(&self, ticket: u64) -> bool {
        let sheet = self.lock();
        sheet.closed || sheet.line.is_served(ticket)
    }
}

/// A number of the peer's receives. When it is dropped, receives that got no message go to the next
/// that waits.
pub struct Claim {
    handle: Arc<Handle>,
    balance: Arc<Balance>,
    count: usize,
}

impl Claim {
    pub(super) fn new(handle: &Arc<Handle>, balance: &Arc<Balance>, count: usize) -> Self {
        Self { handle: Arc::clone(handle), balance: Arc::clone(balance), count }
    }

    pub(super) const fn handle(&self) -> &Arc<Handle> {
        &self.handle
    }

    /// The messages are on their way.
    pub(super) const fn spend(&mut self) {
        self.count = 0;
    }

    /// One for each receive.
    pub(super) fn split(mut self) -> impl Iterator<Item = Self> {
        let count = std::mem::take(&mut self.count);
        let (handle, balance) = (Arc::clone(&self.handle), Arc::clone(&self.balance));
        (0..count).map(move |_| Self::new(&handle, &balance, 1))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.count > 0
            && let Some(core) = self.handle.alive()
        {
            self.balance.give_back(core, self.count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_go_on_beyond_32_bits() {
        let mut sheet = Sheet { granted: 0xffff_fffe, used: 0xffff_fffe, ..Sheet::default() };
        sheet.grant(3);
        assert_eq!(sheet.granted, 0x1_0000_0003);
        assert!(sheet.take(5) && !sheet.take(1));
    }

    #[test]
    fn an_old_total_takes_nothing_back() {
        let mut sheet = Sheet { granted: 0x1_0000_0003, ..Sheet::default() };
        for old in [2, 0, 0xffff_fffe] {
            sheet.grant(old);
            assert_eq!(sheet.granted, 0x1_0000_0003, "{old:#x}");
        }
    }

    #[test]
    fn a_small_need_does_not_overtake_a_large_one() {
        let mut sheet = Sheet { granted: 2, ..Sheet::default() };
        let first = sheet.line.join(3, None);
        assert!(!sheet.take(1), "the two are for the first that waits");
        let second = sheet.line.join(1, None);
        assert!(!sheet.serve(&mut Vec::new()));
        sheet.grant(3);
        assert!(sheet.serve(&mut Vec::new()), "a thread waits");
        assert_eq!([first, second].map(|ticket| sheet.line.is_served(ticket)), [true, false]);
        assert_eq!(sheet.used, 3);
    }

    #[test]
    fn a_closed_sheet_serves_no_waiter() {
        let mut sheet = Sheet { granted: 9, closed: true, ..Sheet::default() };
        let ticket = sheet.line.join(1, None);
        assert!(!sheet.serve(&mut Vec::new()) && !sheet.line.is_served(ticket));
        sheet.line.leave(ticket);
        assert!(!sheet.take(1));
    }
}
