// SPDX-License-Identifier: MIT OR Apache-2.0

//! Peers that store into memory of this process by themselves, and the end of that.
//!
//! A peer says in the ring's memory that it is storing, for as long as one copy takes. Who takes
//! the right away waits for that. A peer that was stopped in the midst, or waits for a CPU for
//! long, is not waited for: this process goes on with other pages in the place of those, and the
//! peer stores where nothing looks, which it learns. One that is dead stores nothing.
//!
//! Before pages are exchanged no peer may reach them any more, by any name: they are shown to
//! none, all that was shown before is void, and those that are storing there have come to an end or
//! learn that their bytes are lost.

use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use iwarp_mem::Span;
use iwarp_os::local::{Heap, Ring};

use super::{Channel, Showings};
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
            settle(&ring, &channel, Some(key), Some(memory));
        }
    }

    /// The peer stores no more into these pages, or learns that its bytes are lost.
    fn leave(&self, pages: Span) {
        let (Some(ring), Some(channel)) = (self.ring.upgrade(), self.channel.upgrade()) else {
            return;
        };
        let Some(name) = ring.accessed() else { return };
        let is_elsewhere = shown_last(&ring, name).is_some_and(|memory| {
            memory.addr + memory.len <= pages.addr || pages.addr + pages.len <= memory.addr
        });
        let acts = || ring.is_accessed(Some(name)) && channel.peer_lives();
        if !is_elsewhere && !ends_soon(&acts) {
            ring.disown_access(Some(name));
        }
    }
}

/// The peer at the other end of the ring is shown nothing any more, and stores no more into any
/// memory when this returns.
pub(super) fn show_nothing(ring: &Ring, channel: &Channel) {
    ring.show_nothing();
    settle(ring, channel, None, None);
}

fn settle(ring: &Ring, channel: &Channel, key: Option<u32>, memory: Option<Span>) {
    let acts = || ring.is_accessed(key) && channel.peer_lives();
    if acts() && !ends_soon(&acts) {
        go_on_without(ring, channel, key, memory);
    }
}

/// The memory that the peer was shown last by that name.
fn shown_last(ring: &Ring, name: u32) -> Option<Span> {
    let (address, len) = ring.last_showing(name)?;
    Some(Span { addr: usize::try_from(address).ok()?, len: usize::try_from(len).ok()? })
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

/// The peer was stopped while it stores.
#[cold]
fn go_on_without(ring: &Ring, channel: &Channel, key: Option<u32>, memory: Option<Span>) {
    let Some(name) = ring.accessed().filter(|name| key.is_none_or(|key| key == *name)) else {
        return;
    };
    let taken = memory.or_else(|| shown_last(ring, name)).and_then(|memory| {
        let (addr, len) = Heap::keep_for_itself(memory.addr, memory.len).ok()?;
        ring.disown_access(Some(name));
        Showings::void_all().iter().for_each(|writer| writer.leave(Span { addr, len }));
        Heap::take_away(addr, len).ok()
    });
    if taken.is_some() {
        report!(burst 1, WARN,
            key = name,
            "a process of this host was stopped while it stored into memory of this one, which \
             goes on with other pages in place of those"
        );
        return;
    }
    report!(burst 1, WARN,
        key = name,
        "a process of this host was stopped while it stores into memory of this one, which has no \
         memory to go on with, and waits until that process goes on: continue it (SIGCONT), or end it"
    );
    while !ring.is_idle() && channel.peer_lives() {
        thread::sleep(NAP);
    }
}
