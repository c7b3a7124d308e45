// SPDX-License-Identifier: MIT OR Apache-2.0

//! The line of the log that tells that a stream has come through start-up.

use std::sync::Arc;

use iwarp_proto::mpa::startup::{Negotiated, Role};

use crate::engine::fate::{Fate, IWARP, is_read, shown};
use crate::port::{Ends, canonical};
use crate::report;

/// A stream of the queue pair `qp` has come through start-up.
pub(super) fn of_stream(
    qp: u32,
    peer_qp: Option<u32>,
    ends: Ends,
    terms: Option<&Negotiated>,
) -> Option<Arc<Fate>> {
    if !is_read() {
        return None;
    }
    let (local, peer) = (ends.local.map(canonical), canonical(ends.peer));
    let wire = if terms.is_some() { IWARP } else { "another" };
    let role = terms.map(|terms| match terms.role {
        Role::Initiator => "initiator",
        Role::Responder => "responder",
    });
    let crc = terms.map(|terms| if terms.crc { "on" } else { "off" });
    let markers = terms.map(|terms| match (terms.send_markers, terms.receive_markers) {
        (false, false) => "off",
        (true, false) => "to the peer",
        (false, true) => "from the peer",
        (true, true) => "both ways",
    });
    let mpa = terms.map(|terms| terms.rev);
    let (ord, ird) = (terms.map(|terms| terms.ord), terms.map(|terms| terms.ird));
    report!(
        fate INFO,
        qp,
        peer_qp,
        local = shown(local),
        %peer,
        wire,
        role,
        mpa,
        crc,
        markers,
        ord,
        ird,
        "connected"
    );
    Some(Fate::new(qp, peer_qp, (local, peer), wire, true))
}
