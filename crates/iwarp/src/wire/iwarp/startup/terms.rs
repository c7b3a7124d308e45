// SPDX-License-Identifier: MIT OR Apache-2.0

//! The terms that a device's options ask of the peer.

use iwarp_proto::mpa::startup::Config;

use crate::engine::options::{Options, Personality};

/// The terms that start-up asks of the peer, with so many Reads and Atomics of the peer's and of
/// our own under way.
pub(crate) fn terms(options: &Options, ird: u16, ord: u16) -> Config {
    Config {
        rev: options.revision,
        crc: options.crc,
        markers: options.markers,
        ird,
        ord,
        spare: spare(options),
        peer_to_peer: options.peer_to_peer && options.revision > 1,
        rtr: options.rtr,
        timeout: options.startup_timeout,
    }
}

/// The Reads on top of the program's: one for acknowledgements, where the queue pair's core has
/// them (`acknowledge`).
pub(crate) fn spare(options: &Options) -> u16 {
    u16::from(options.personality == Personality::Roce)
}

#[cfg(all(test, not(model)))]
mod tests {
    use super::*;

    /// Covers: MPA-5044-1.2-02, MPA-5044-4.4-02, MPA-5044-4.4-03
    #[test]
    fn crc_is_asked_for_unless_somebody_says_otherwise() {
        assert!(terms(&Options::new(), 1, 1).crc);
        assert!(!terms(&Options::new().crc(false), 1, 1).crc);
    }
}
