// SPDX-License-Identifier: MIT OR Apache-2.0

//! The system's time, by which a caller waits that has a timeout of its own. Connections go by the
//! clock of their device ([`Worker::clock`](crate::engine::worker::Worker::clock)).

use iwarp_types::Time;

/// The system's time.
pub(crate) fn now() -> Time {
    Time(iwarp_os::clock::now())
}
