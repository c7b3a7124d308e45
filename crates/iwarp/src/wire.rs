// SPDX-License-Identifier: MIT OR Apache-2.0

//! The interface for protocols other than iWARP under a queue pair.
//!
//! A [`StreamCore`] is a state machine that takes work requests and the bytes of a stream, and
//! produces bytes and events. The library does the rest, as for iWARP: completion queues and
//! channels, slots, polling callers and the worker, the ends of streams, timers.
//!
//! [`QueuePair::on_core`](crate::QueuePair::on_core) makes a queue pair of one, and
//! [`QueuePair::attach`](crate::QueuePair::attach) gives it a connected stream
//! ([`port`](crate::port)). There is no start-up: the ends negotiate in the stream or before it.
//! The connection manager and [`QueuePair::connect_to`](crate::QueuePair::connect_to) serve
//! iWARP and RoCE v2, and refuse such a queue pair: a [`Wing`](crate::wing::Wing) has them serve
//! another protocol. The wings of these two wires are private here.

pub(crate) mod choice;
pub(crate) mod iwarp;
pub(crate) mod roce;

pub use iwarp_roce::wire::grh;
pub use iwarp_types::{
    AccessError, Accessor, BoxedCore, Cause, Core, Disposition, Event, Memory, PdId, QpId, Receive,
    ReceivePool, Refusal, RefusedBy, StreamCore, Time, Wanted,
};
