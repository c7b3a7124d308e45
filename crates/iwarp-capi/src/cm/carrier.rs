// SPDX-License-Identifier: MIT OR Apache-2.0

//! Queue pairs that only bear a connection.

use iwarp::{CompletionQueue, QueuePair, QueuePairAttributes};

use crate::guard::Errno;
use crate::verbs::Context;

/// Bears a connection that transports nothing.
pub(super) struct Carrier {
    pub(super) queue_pair: QueuePair,
    _cq: CompletionQueue,
}

impl Carrier {
    /// One of that context, which is its id's.
    pub(super) fn new(context: &Context) -> Result<Self, Errno> {
        let device = context.device();
        let cq = device.create_cq(1, None)?;
        let attributes = QueuePairAttributes::new(&cq, &cq).max_send_wr(1).max_recv_wr(1);
        let queue_pair = device.alloc_pd().create_qp(&attributes)?;
        Ok(Self { queue_pair, _cq: cq })
    }
}
