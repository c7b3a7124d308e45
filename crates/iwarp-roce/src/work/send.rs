// SPDX-License-Identifier: MIT OR Apache-2.0

//! Posted send work requests.

use iwarp_types::{Destination, PostError, SendOp, SendRequest, WcStatus};

use crate::payload::Stored;

/// A posted send work request, with storage that the next one in its place uses again.
#[derive(Debug)]
pub(crate) struct SendWqe {
    pub(crate) wr_id: u64,
    pub(crate) op: SendOp,
    /// Octets of the message.
    pub(crate) length: u32,
    pub(crate) destination: Option<Destination>,
    pub(super) signaled: bool,
    /// Set if it is not to be sent, but ends with this status.
    pub(super) refused: Option<WcStatus>,
    pub(super) payload: Stored,
}

impl Default for SendWqe {
    fn default() -> Self {
        Self {
            wr_id: 0,
            op: SendOp::SEND,
            length: 0,
            destination: None,
            signaled: false,
            refused: None,
            payload: Stored::default(),
        }
    }
}

impl SendWqe {
    /// Takes over a request, keeping this value's storage.
    pub(super) fn set(
        &mut self,
        request: &SendRequest<'_>,
        length: u32,
        refused: Option<WcStatus>,
    ) -> Result<(), PostError> {
        self.wr_id = request.wr_id;
        self.op = request.op;
        self.length = length;
        self.destination = request.destination.copied();
        self.signaled = request.signaled;
        self.refused = refused;
        self.payload.set(request.payload)
    }
}
