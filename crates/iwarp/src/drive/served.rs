// SPDX-License-Identifier: MIT OR Apache-2.0

//! The part of the interface that rsockets use: no loop has turns. Calls of the program's move the
//! connection while they last, and the worker serves it otherwise.

use std::io;
use std::sync::Arc;

use iwarp_types::WorkCompletion;

use super::Drive;
use crate::engine::channel::{ChannelCore, Look};
use crate::engine::server::Server;
use crate::verbs::{ProtectionDomain, check_depth};

#[doc(hidden)]
impl Drive {
    /// One without turns. The worker calls `serve` when something has completed since the last
    /// [`Self::arm`], and no thread [sleeps](Self::begin_sleep) here.
    ///
    /// # Errors
    ///
    /// As [`Self::new`].
    pub fn served(
        pd: &ProtectionDomain,
        depth: usize,
        serve: Arc<dyn Fn() + Send + Sync>,
    ) -> io::Result<Self> {
        check_depth(depth)?;
        let worker = &pd.core.check()?.engine.worker;
        Self::with(pd, depth, ChannelCore::served(Server::new(worker, serve))?)
    }

    /// Moves what can be moved on the connections, and hands over what has completed. True if
    /// there was something. To be [armed](Self::arm) behind it: until then the worker stays away
    /// for a while. In a forked child there is nothing.
    pub fn collect(&self, completed: impl FnMut(WorkCompletion)) -> bool {
        let Some(driven) = self.driven.alive() else { return false };
        driven.cq.group().poll();
        let done = driven.collect(completed) > 0;
        // These have brought the caller here, or are about to bring another.
        while driven.channel.take_ready().is_some() {}
        done
    }

    /// Has the next completion bring the server, or wake the thread that sleeps here. True where
    /// some wait already: the caller collects them.
    pub fn arm(&self) -> bool {
        let Some(driven) = self.driven.alive() else { return false };
        driven.cq.request_notify(false);
        driven.cq.waiting() > 0
    }

    /// This thread is about to sleep here, once it is armed and has collected. False where another
    /// thread does.
    pub fn begin_sleep(&self) -> bool {
        let driven = self.driven.alive();
        driven.and_then(|driven| driven.channel.server()).is_some_and(Server::begin_wait)
    }

    /// This thread sleeps here no more.
    pub fn end_sleep(&self) {
        let Some(driven) = self.driven.alive() else { return };
        ChannelCore::stop_looking();
        if let Some(server) = driven.channel.server() {
            server.end_wait();
        }
    }

    /// Looks for what the thread sleeps for: [`CompletionChannel::look`].
    ///
    /// [`CompletionChannel::look`]: crate::CompletionChannel::look
    ///
    /// # Errors
    ///
    /// As there.
    pub fn look(&self) -> io::Result<Look> {
        self.driven.check()?.channel.look()
    }
}
