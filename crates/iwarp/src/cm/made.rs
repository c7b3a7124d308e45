// SPDX-License-Identifier: MIT OR Apache-2.0

//! Ids that are made for a channel, or move to another.

use std::io;

use iwarp_types::PortSpace;

use crate::cm::channel::{EventChannel, Mailbox};
use crate::cm::id::{Id, IdCore};

impl Id {
    /// Makes an id whose events go to `channel`.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`; `ENODEV` in a forked child.
    pub fn new(channel: &EventChannel) -> io::Result<Self> {
        iwarp_mem::afford()?;
        Ok(Self::of(IdCore::for_connections(channel.core.check()?)))
    }

    /// Makes an id for whose events only a blocked caller waits.
    pub(crate) fn with_mailbox(mailbox: &Mailbox) -> io::Result<Self> {
        Ok(Self::of(IdCore::for_connections(mailbox.core()?)))
    }

    /// Makes an id for a datagram service, to offer it or to ask for it. [`Self::listen`] and
    /// [`Self::resolve_addr`] apply to it as to connections; ports of datagram services are a space
    /// of their own.
    ///
    /// # Errors
    ///
    /// As [`Self::new`].
    pub fn for_datagrams(channel: &EventChannel, space: PortSpace) -> io::Result<Self> {
        iwarp_mem::afford()?;
        Ok(Self::of(IdCore::for_datagrams(channel.core.check()?, space)))
    }

    /// An id in the place of one that this process, a forked child, inherits and that has no
    /// connection: with its settings, bound where that is bound, and listening if that listens. Its
    /// events go to `channel`. From then on connections come in there, and no longer at the
    /// parent's id; those over RoCE v2 only once the parent has ended or closed its own, for which
    /// this waits up to 300 ms.
    ///
    /// # Errors
    ///
    /// `NotConnected` where it has a connection, or is about to: that is the parent's; `WouldBlock`
    /// where a thread of the parent was just using it; `AddrInUse` where the port is the parent's
    /// alone; `InvalidInput` where it is not inherited; those of [`Self::listen`].
    pub fn take_over(channel: &EventChannel, inherited: &Self) -> io::Result<Self> {
        Ok(Self::of(IdCore::take_over(channel.core.check()?, inherited)?))
    }

    /// Directs its events to another channel from now on, including those that already wait.
    pub fn migrate(&self, channel: &EventChannel) {
        if let (Ok(core), Some(channel)) = (self.core(), channel.core.alive()) {
            core.move_to(channel);
        }
    }
}
