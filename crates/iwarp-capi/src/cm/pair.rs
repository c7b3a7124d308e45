// SPDX-License-Identifier: MIT OR Apache-2.0

//! The queue pairs of connections.

use iwarp::QueuePair;

use super::carrier::Carrier;
use super::id::CmId;
use crate::guard::Errno;
use crate::verbs::qp::Qp;
use crate::verbs::shared;

/// The queue pair for the connection of `id`: its own, or that of which the program gave the
/// number. `None` if that is not of this device: the program only wants to exchange private data
/// and to learn of the end.
fn queue(id: &CmId) -> Option<&Qp> {
    let own = id.qp.get();
    let qp = if own.is_null() { shared::by_number(id.state().qp_num)? } else { own };
    // SAFETY: a queue pair of the program's, which it does not destroy meanwhile.
    unsafe { Qp::of(qp) }
}

/// True if the queue pair of that number is on another device than the id. One that the program has
/// made with a context of its own is not known here.
pub(super) fn is_elsewhere(id: &CmId, number: u32) -> Result<bool, Errno> {
    let own = id.context()?;
    Ok(shared::with_number(number, |qp| !qp.context().is(own)).unwrap_or(false))
}

/// Calls `f` with the queue pair of the connection, unless the program has destroyed it.
pub(super) fn if_alive(id: &CmId, f: impl FnOnce(&Qp)) {
    let number = id.state().qp_num;
    shared::with_number(number, f);
}

/// Has the program see the state of the connection's queue pair.
pub(super) fn refresh_state(id: &CmId) {
    if_alive(id, Qp::refresh_state);
}

/// Calls `f` with the queue pair of the connection.
pub(super) fn with_queue_pair(
    id: &CmId,
    f: impl FnOnce(&QueuePair) -> Result<(), Errno>,
) -> Result<(), Errno> {
    if let Some(qp) = queue(id) {
        qp.set_managed();
        id.state().qp_num = qp.number();
        let timeout = id.state().ack_timeout;
        if let Some(timeout) = timeout {
            qp.set_timeout(timeout);
        }
        return f(qp.queue_pair());
    }
    let carrier = Carrier::new(id.context()?)?;
    f(&carrier.queue_pair)?;
    let before = id.state().carrier.replace(carrier);
    drop(before);
    Ok(())
}
