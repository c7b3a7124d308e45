// SPDX-License-Identifier: MIT OR Apache-2.0

//! The end of a stream, and the time of its closing.
//!
//! "The transport has it" is not "it arrived": closing a socket with unread input sends a reset,
//! which drops bytes that were completed. So a connection that ends sends the accepted data, shuts
//! its write side down, then reads and discards until the peer's FIN, for at most
//! `IWARP_LINGER_MS`. It does the same at process exit, for at most 2 s (`engine/live.rs`). There
//! receives are flushed only if the program itself ends the connection, as its other threads may
//! still wait for them.

use std::io;
use std::sync::Weak;

use iwarp_types::Disposition;

use super::Link;
use super::flags::{CLOSED, READ_ENDED, WRITE_ENDED};
use crate::engine::endpoint::EndpointCore;
use crate::engine::mover::StreamMover;
use crate::report;

/// The wishes of a queue pair for its stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Intent {
    pub(super) disposition: Disposition,
    pub(super) connected: bool,
}

impl Intent {
    pub(super) fn of(core: &dyn EndpointCore) -> Self {
        Self { disposition: core.disposition(), connected: core.is_connected() }
    }
}

impl Link {
    /// Gives it up: nothing reports it ready any more.
    pub(super) fn lose(&self, error: &io::Error) {
        if !self.is_closed() {
            self.failed(error);
            self.settle();
        }
    }

    /// The transport says that the connection is over.
    #[cold]
    pub(super) fn failed(&self, error: &io::Error) {
        self.flags.set(READ_ENDED | WRITE_ENDED);
        let silent = matches!(
            error.kind(),
            // The last word of the network, when the time for an answer had passed.
            io::ErrorKind::TimedOut
                | io::ErrorKind::HostUnreachable
                | io::ErrorKind::NetworkUnreachable
        );
        let (qp, peer) = (self.endpoint.id(), self.stream.ends().name());
        if let Some(fate) = &self.fate {
            match silent {
                true => fate.ends(format_args!("the peer does not answer any more: {error}")),
                false => fate.ends(format_args!("the transport broke: {error}")),
            }
        }
        if !self.endpoint.is_connected() {
            tracing::debug!(qp, %peer, %error, "stream failed");
        } else if silent {
            report!(WARN, qp, %peer, "the peer does not answer any more: connection given up");
        } else {
            report!(WARN, qp, %peer, %error, "the connection broke");
        }
        self.endpoint.with(|core| if silent { core.timed_out() } else { core.lost() });
    }

    /// Closes the stream once both directions are over, and makes sure that this happens in time
    /// once one of them is to end.
    pub(super) fn settle(&self) {
        self.settle_as(self.endpoint.with(|core| Intent::of(core)));
    }

    pub(super) fn settle_as(&self, intent: Intent) {
        let Intent { disposition, connected } = intent;
        if disposition == Disposition::Open && connected {
            return;
        }
        if disposition == Disposition::Finish && !self.flags.has(WRITE_ENDED) {
            // Even with nothing left to send, the peer waits for our end of the stream.
            self.send();
        }
        const BOTH: u32 = READ_ENDED | WRITE_ENDED;
        match disposition {
            Disposition::Abort => {
                self.stream.reset_on_close();
                self.close();
            }
            _ if self.flags.load() & BOTH == BOTH => self.close(),
            Disposition::Finish | Disposition::Open => self.linger(),
        }
    }

    /// From now on the peer has a bounded time to take what was accepted and to close.
    fn linger(&self) {
        let mut lingering = self.lingering.lock();
        if lingering.is_some() || self.is_closed() {
            return;
        }
        let weak = Weak::clone(&self.itself);
        let engine = &self.endpoint.engine;
        let deadline = self.endpoint.now().plus(engine.options.linger);
        *lingering = Some(engine.worker.deadline(
            deadline,
            Box::new(move || {
                if let Some(link) = weak.upgrade()
                    && !link.is_closed()
                {
                    let endpoint = &link.endpoint;
                    tracing::debug!(qp = endpoint.id(), "peer did not close in time: reset");
                    link.stream.reset_on_close();
                    endpoint.with(|core| core.lost());
                    link.close();
                }
            }),
        ));
    }

    fn close(&self) {
        self.detach();
        self.endpoint.link_closed(self);
    }

    /// The stream is not used any more; it is closed when its last user lets go of it.
    pub(super) fn detach(&self) {
        if self.flags.set(CLOSED | READ_ENDED | WRITE_ENDED) & CLOSED != 0 {
            return;
        }
        self.show_nothing();
        self.memberships.leave(self);
        self.reactor.leave();
        self.tx.request(|tx| self.give_back(tx));
        if let Some(fate) = &self.fate {
            fate.closed();
        }
    }
}
