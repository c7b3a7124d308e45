// SPDX-License-Identifier: MIT OR Apache-2.0

//! Completions of what a peer on this host has taken in, as it says in the memory that both share.
//!
//! A device that is like InfiniBand's completes a Send or Write when the peer has received it, for
//! which it sends a Read of nothing behind it. In shared memory the peer writes down with how many
//! bytes of the stream it has dealt, and no Read is needed. This end says before that it waits for
//! more, and is woken once the peer has dealt with some.

use std::time::Duration;

use iwarp_proto::qp::Qp;

use super::Link;
use crate::engine::sync::{AtomicBool, AtomicU64, Ordering};
use crate::port::Readiness;
use crate::port::local::LocalPort;

/// The words of the peer that this end has heard.
#[derive(Debug)]
pub(super) struct Dealt {
    /// Requests complete when the peer has dealt with more.
    awaited: AtomicBool,
    /// The position of the stream at which it has moved: set by the transmitter before it sends on.
    moved_at: AtomicU64,
    /// The bytes behind that of which the core was told.
    told: AtomicU64,
    /// Requests wait to be carried out until the peer has dealt with all that was sent.
    holds: AtomicBool,
    /// A timer hurries the peer.
    hurries: AtomicBool,
    /// The peer had dealt with something when that began to be awaited.
    is_due: AtomicBool,
}

/// The time in which a program that waits for an event may come and deal with what was sent, before
/// its worker is woken for that.
const PATIENCE: Duration = Duration::from_millis(1);

impl Dealt {
    pub(super) fn new() -> Self {
        let zero = || AtomicU64::new(0);
        let no = || AtomicBool::new(false);
        Self {
            awaited: no(),
            moved_at: zero(),
            told: zero(),
            holds: no(),
            hurries: no(),
            is_due: no(),
        }
    }

    /// Requests wait so from now on, or not. The thread that reports completions looks afterwards.
    pub(super) fn hold(&self, holds: bool) {
        self.holds.store(holds, Ordering::SeqCst);
    }

    /// The position of the stream behind so many bytes that were sent since it has moved.
    pub(super) fn position(&self, upto: u64) -> u64 {
        self.moved_at.load(Ordering::Acquire) + upto
    }

    pub(super) fn holds(&self) -> bool {
        self.holds.load(Ordering::SeqCst)
    }
}

impl Link {
    /// The stream moves, and has passed so many bytes.
    pub(super) fn moves_at(&self, position: u64) {
        self.dealt.moved_at.store(position, Ordering::Release);
    }

    /// Requests were sent that complete when the peer has dealt with them.
    #[inline]
    pub(super) fn await_dealing(&self) {
        if let Some(port) = self.stream.local().filter(|port| port.has_switched()) {
            self.dealt.awaited.store(true, Ordering::Release);
            if !port.await_dealing(self.dealt.told.load(Ordering::Acquire)) {
                self.dealt.is_due.store(true, Ordering::Relaxed);
            }
            if port.has_alerted() && !self.dealt.hurries.swap(true, Ordering::AcqRel) {
                self.hurry_later();
            }
        }
    }

    /// Completes requests with which the peer had dealt when that began to be awaited: this thread
    /// need not wake another for it. To be called after [`Self::await_dealing`].
    #[inline]
    pub(super) fn hear_at_once(&self) {
        if self.dealt.is_due.load(Ordering::Relaxed)
            && self.dealt.is_due.swap(false, Ordering::Relaxed)
        {
            self.hear_of_dealing();
        }
    }

    /// The peer's program alone was woken, and may have other things to do: has its worker woken
    /// as well if it does not come.
    #[cold]
    fn hurry_later(&self) {
        self.endpoint.engine.worker.after(PATIENCE, &self.itself, |link: &Self| {
            link.dealt.hurries.store(false, Ordering::Release);
            if link.dealt.awaited.load(Ordering::Acquire)
                && let Some(port) = link.stream.local()
            {
                port.hurry();
            }
        });
    }

    /// Completes requests with which the peer has dealt since.
    #[inline]
    pub(super) fn hear_of_dealing(&self) {
        if self.dealt.awaited.load(Ordering::Acquire)
            && let Some(port) = self.stream.local()
            && let Some(upto) = port.dealt_with()
            && (upto > self.dealt.told.load(Ordering::Acquire) || port.has_dealt())
        {
            self.tell_dealt(port);
        }
        if self.dealt.holds()
            && let Some(port) = self.stream.local()
        {
            if port.is_settled() {
                self.send();
            } else if !self.dealt.awaited.load(Ordering::Acquire) {
                // The thread that told before has not seen that requests wait.
                self.await_dealing();
                if self.dealt.is_due.swap(false, Ordering::Relaxed) {
                    port.waker().wake(Readiness::INPUT);
                }
            }
        }
    }

    fn tell_dealt(&self, port: &LocalPort) {
        // Another thread that awaits more from now on does so behind this.
        port.await_no_dealing();
        let Some(upto) = port.dealt_with() else { return };
        let told = self.endpoint.tell_core_of(self, |qp: &mut Qp| {
            // Another thread may have told more.
            let upto = upto.max(self.dealt.told.load(Ordering::Acquire));
            qp.peer_has(self.dealt.position(upto));
            self.dealt.told.store(upto, Ordering::Release);
            let awaited = qp.awaits_acknowledgement() || (self.dealt.holds() && !port.is_settled());
            self.dealt.awaited.store(awaited, Ordering::Release);
            awaited.then_some(upto)
        });
        if let Some(upto) = told.flatten()
            && !port.await_dealing(upto)
        {
            // Looked at once more, after what else has come.
            port.waker().wake(Readiness::INPUT);
        }
    }
}
