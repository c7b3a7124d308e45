// SPDX-License-Identifier: MIT OR Apache-2.0

//! A queue pair that meets its peer without the connection manager.

use std::fmt;
use std::io;
use std::sync::Arc;

use super::{Peer, Retry};

/// The meeting of a queue pair with the peer that its program names, which does likewise.
pub(crate) trait Meeting: fmt::Debug + Send + Sync {
    /// Peers can find the queue pair from now on, before it looks for this one.
    ///
    /// # Errors
    ///
    /// Errors of listening.
    fn list(self: Arc<Self>, peer: &Peer) -> io::Result<()>;

    /// Looks for the peer.
    ///
    /// # Errors
    ///
    /// Errors of connecting.
    fn seek(self: Arc<Self>, peer: &Peer) -> io::Result<()>;

    /// The queue pair goes to RTS, and its packets are numbered from `psn`.
    fn tell_psn(&self, psn: u32);

    /// The queue pair is of no more use, or goes back to Reset.
    fn withdraw(&self);

    /// The peer that it was told.
    fn peer(&self) -> Option<Peer>;

    /// Sets the time that work waits for the peer.
    fn set_retry(&self, retry: Retry);
}
