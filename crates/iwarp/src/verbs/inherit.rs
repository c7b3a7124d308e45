// SPDX-License-Identifier: MIT OR Apache-2.0

//! Objects that a forked child goes on with, made anew of those that it inherits.
//!
//! The inherited object itself is not used, as another thread of the parent may have been changing
//! it. Taken over are the facts known when it was made, the descriptor that the program waits on,
//! and the regions of a protection domain under the keys that the program knows.

use std::io;

use iwarp_os::EventFd;

use crate::engine::channel::ChannelCore;
use crate::engine::event_queue::AsyncQueue;
use crate::verbs::{CompletionChannel, Device, ProtectionDomain};

impl Device {
    /// A sibling of this device in the place of one that this process, a forked child, inherits: it
    /// has that one's name, and reports its events by that one's descriptor.
    ///
    /// # Errors
    ///
    /// `EBADF` where the child has closed that descriptor; those of [`Self::named_sibling`].
    pub fn take_over(&self, inherited: &Self) -> io::Result<Self> {
        let fd = EventFd::take_over(inherited.event_fd())?;
        self.sibling_with(inherited.place(), AsyncQueue::on(fd))
    }

    /// A completion channel in the place of one that this process, a forked child, inherits: it has
    /// that one's descriptor, and none of its events.
    ///
    /// # Errors
    ///
    /// As [`Self::take_over`].
    pub fn take_over_channel(
        &self,
        inherited: &CompletionChannel,
    ) -> io::Result<CompletionChannel> {
        self.engine()?;
        let fd = EventFd::take_over(inherited.event_fd())?;
        Ok(CompletionChannel::of(ChannelCore::on(fd)?))
    }

    /// A protection domain in the place of one that this process, a forked child, inherits, and how
    /// many of its regions stay behind. The others are registered in the new one, under their
    /// STags: [`ProtectionDomain::adopt`] makes their handles. Windows, and regions that only one
    /// queue pair could use, stay behind.
    ///
    /// # Errors
    ///
    /// `WouldBlock` where a thread of the parent was just registering memory: no region is taken
    /// over then. `ENODEV` where this device is inherited itself.
    ///
    /// # Safety
    ///
    /// For each region, as
    /// [`ProtectionDomain::register_raw`](crate::ProtectionDomain::register_raw).
    pub unsafe fn take_over_pd(
        &self,
        inherited: &ProtectionDomain,
    ) -> io::Result<(ProtectionDomain, usize)> {
        let memory = &self.engine()?.memory;
        let pd = self.alloc_pd();
        let Some(parents) = inherited.core.of_ancestor() else { return Ok((pd, 0)) };
        // SAFETY: the caller's promise.
        match unsafe { memory.inherit(&parents.engine.memory, inherited.id, pd.id) } {
            Ok(left) => Ok((pd, left)),
            Err(_) => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}
