// SPDX-License-Identifier: MIT OR Apache-2.0

//! Peers that store into memory of this process by themselves, and the end of that.
//!
//! A peer says in the ring's memory that it is storing, for as long as one copy takes. Who takes
//! the right away waits for that. A peer that was stopped in the midst, or waits for a CPU for long,
//! is not waited for: this process goes on with other pages in the place of those, and the peer
//! stores where nothing looks. One that is dead stores nothing.

use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use iwarp_mem::Span;
use iwarp_os::local::{Heap, Ring};

use super::Channel;
use crate::report;

/// Time for which a peer is waited for. A copy takes microseconds, but its thread may have to wait
/// for a CPU.
const PATIENCE: Duration = Duration::from_millis(250);

/// Looks before the thread lets others have the CPU between them.
const LOOKS: u32 = 1000;
const NAP: Duration = Duration::from_micros(50);

/// A ring whose peer may store into memory of this process.
#[derive(Clone, Debug)]
pub(super) struct Writer {
    ring: Weak<Ring>,
    channel: Weak<Channel>,
}

impl Writer {
    pub(super) fn new(ring: &Arc<Ring>, channel: &Arc<Channel>) -> Self {
        Self { ring: Arc::downgrade(ring), channel: Arc::downgrade(channel) }
    }

    /// True while the connection is there.
    pub(super) fn is_there(&self) -> bool {
        self.ring.strong_count() > 0
    }

    pub(super) fn is(&self, ring: &Arc<Ring>) -> bool {
        std::ptr::eq(self.ring.as_ptr(), Arc::as_ptr(ring))
    }

    /// The peer stores no more into the memory of that name, `memory`, when this returns. It has
    /// lost the right before.
    pub(super) fn settle(&self, key: u32, memory: Span) {
        if let (Some(ring), Some(channel)) = (self.ring.upgrade(), self.channel.upgrade()) {
            settle(&ring, &channel, Some(key), |_| Some(memory));
        }
    }
}

/// The peer at the other end of the ring stores no more into any memory when this returns. It has
/// lost the right before.
pub(super) fn settle_all(ring: &Ring, channel: &Channel) {
    settle(ring, channel, None, |key| {
        let (address, len) = ring.last_showing(key)?;
        Some(Span { addr: usize::try_from(address).ok()?, len: usize::try_from(len).ok()? })
    });
}

fn settle(ring: &Ring, channel: &Channel, key: Option<u32>, memory: impl Fn(u32) -> Option<Span>) {
    let acts = || ring.is_accessed(key) && channel.peer_lives();
    if acts() && !ends_soon(&acts) {
        take_away(ring, channel, key, memory);
    }
}

#[cold]
fn ends_soon(acts: &impl Fn() -> bool) -> bool {
    let begun = Instant::now();
    let mut looks = 0;
    while acts() {
        looks += 1;
        if looks < LOOKS {
            std::hint::spin_loop();
        } else if begun.elapsed() < PATIENCE {
            thread::sleep(NAP);
        } else {
            return false;
        }
    }
    true
}

#[cold]
fn take_away(
    ring: &Ring,
    channel: &Channel,
    key: Option<u32>,
    memory: impl Fn(u32) -> Option<Span>,
) {
    let Some(key) = ring.disown_access(key) else { return };
    let taken = memory(key).map(|Span { addr, len }| Heap::take_away(addr, len));
    let Some(Err(error)) = taken else {
        report!(burst 1, WARN,
            key,
            "a process of this host was stopped while it stored into memory of this one, which \
             goes on with other pages in place of those"
        );
        return;
    };
    report!(burst 1, WARN,
        key,
        %error,
        "a process of this host was stopped while it stores into memory of this one, which cannot \
         take that away, and waits until the process goes on"
    );
    while !ring.is_idle() && channel.peer_lives() {
        thread::sleep(NAP);
    }
}
