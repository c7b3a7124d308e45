// SPDX-License-Identifier: MIT OR Apache-2.0

//! iWARP's core, as the options of its device want it.

use std::time::Duration;

use iwarp_proto::qp::{Capabilities, Park};
pub(crate) use iwarp_proto::qp::{Config, Qp};
use iwarp_types::RnrTimer;

use crate::engine::endpoint::{CoreConfig, NO_RECEIVE};
use crate::engine::options::{LocalPath, Options, Personality};

/// Silence after which an initiator repeats itself, for peers that overlooked its first frame.
const NUDGE: Duration = Duration::from_millis(200);

/// Silence of an initiator after which the user of a responder is told what its work waits for.
const HELD_BACK: Duration = Duration::from_secs(2);

/// The bounds of messages that wait for receives, where they may wait (InfiniBand's RNR NAK leaves
/// them with the sender). Messages beyond that wait on the way, as long as the program says.
const PARK: Park = Park { octets: 256 * 1024, messages: 1024, timer: RnrTimer::new(0).duration() };

/// For how long what was posted outlives a peer that has left in good order. A program for
/// InfiniBand that has all it waits for leaves by itself, and takes a request that is flushed
/// before for a failure; one whose peer has gone for good is told when its retries are over.
const OUTLIVE: Duration = Duration::from_secs(1);

/// The core for a queue pair of a device with these options.
pub(crate) fn config(options: &Options, wanted: &CoreConfig) -> Config {
    let like_infiniband = options.personality == Personality::Roce;
    Config {
        qp: wanted.qp,
        pd: wanted.pd,
        max_send_wr: wanted.max_send_wr,
        max_recv_wr: wanted.max_recv_wr,
        max_send_sge: wanted.limits.max_send_sge,
        max_recv_sge: wanted.max_recv_sge,
        max_inline: wanted.limits.max_inline,
        shared_receive: wanted.shared_receive,
        extensions: options.extensions,
        // The kind that it is, is part of what a peer has to say at the start.
        extension_wait: options.startup_timeout,
        nudge: Some(NUDGE),
        tell_held_back: Some(HELD_BACK),
        tell_no_receive: Some(NO_RECEIVE),
        acknowledge: like_infiniband,
        park: like_infiniband.then_some(PARK),
        outlive: like_infiniband.then_some(OUTLIVE),
        outlive_in_place: Some(OUTLIVE),
        tells: told(options),
    }
}

/// The capabilities that the hello frame tells beside those of all ends with this library.
fn told(options: &Options) -> Capabilities {
    let seen = match (options.tell_personality, options.personality) {
        (false, _) => Capabilities::default(),
        (true, Personality::Iwarp) => Capabilities::SEES_RNIC,
        (true, Personality::Roce) => Capabilities::SEES_INFINIBAND,
    };
    match options.local {
        LocalPath::Off => seen,
        LocalPath::Auto | LocalPath::Rings | LocalPath::Require | LocalPath::Share => {
            seen.union(Capabilities::LOCAL)
        }
    }
}
