// SPDX-License-Identifier: MIT OR Apache-2.0

//! The end of a connection, as the agreement on a way past TCP sees it.

use std::fmt;
use std::io;
use std::sync::Arc;

use super::hindrance::Hindrance;
use crate::port::local::Way;
use crate::port::{Ends, WakerSlot};

/// The end of a connection that may move.
pub(crate) trait LocalEnd: Send + Sync + fmt::Debug {
    /// The addresses of its TCP socket.
    fn ends(&self) -> Ends;
    /// The waker of its port.
    fn waker(&self) -> Arc<WakerSlot>;
    /// It receives by the way from now on.
    fn move_to(&self, way: Way) -> io::Result<()>;
    /// It sends by the way, which its peer has as well, with CRCs or without.
    fn send_by_way(&self, crc: bool);
    /// It stays with TCP, and the peer knows that.
    fn stay(&self, why: Hindrance);
    /// It stays with TCP, and tells the peer why.
    fn decline(&self, why: Hindrance);
}
