// SPDX-License-Identifier: MIT OR Apache-2.0

//! The carrier of management datagrams.

use std::io;

use iwarp_roce::cm::MAD_LEN;
use iwarp_roce::wire::Path;

use crate::port::share::Listening;

/// See the [module](self). Datagrams that it receives go to
/// [`ConnectionManager::receive`](super::ConnectionManager::receive).
pub(crate) trait Carrier: Send + Sync {
    /// Sends a datagram, or loses it. Waits for nothing.
    fn send(&self, path: &Path, mad: &[u8; MAD_LEN]);

    /// Asks for the datagrams that name this service. If the answer is [`Listening::Asked`],
    /// [`MadHandler::listening`](crate::wire::roce::gsi::MadHandler::listening) tells the outcome.
    ///
    /// # Errors
    ///
    /// If no process can be asked.
    fn listen(&self, service: u64) -> io::Result<Listening>;

    /// Gives the service back.
    fn unlisten(&self, service: u64);

    /// No datagrams are to be carried for now, perhaps for ever.
    fn idle(&self) {}
}
