// SPDX-License-Identifier: MIT OR Apache-2.0

//! A process's share of the port that RoCE v2 has, of which a host has but one.

use std::fmt::Debug;
use std::io;
use std::ops::RangeInclusive;
use std::time::Duration;

use iwarp_types::CommIds;

use super::DatagramPort;
use crate::port::Descriptors;
use crate::port::share::{Listening, Mad};

/// The share that a process has of the RoCE port of its host: queue pair numbers, whose packets
/// come to its [`DatagramPort`], and messages of the connection manager. The share lasts until this
/// is dropped.
///
/// Its owner calls [`Self::turn`] when the descriptor is readable or [`Self::next_timeout`] has
/// passed. No call waits.
pub trait DatagramShare: Send + Sync + Debug {
    /// The descriptors that become readable when there is something to do, as an input.
    fn descriptors(&self) -> Descriptors<'_>;

    /// Does what there is to do by the time of the system's clock.
    fn turn(&mut self, now: Duration);

    /// When to call [`Self::turn`] although nothing is ready, by the system's clock.
    fn next_timeout(&self) -> Option<Duration>;

    /// A queue pair number whose packets come to this process's port.
    ///
    /// # Errors
    ///
    /// `OutOfMemory` where all are in use.
    fn allocate_qpn(&mut self) -> io::Result<u32>;

    /// Gives a number back. It rests as long as others can be had.
    fn free_qpn(&mut self, number: u32);

    /// Packets for queue pairs whose number begins with one of these TCP ports come to this
    /// process's port as well, and [`Self::allocate_qpn`] gives none of them.
    ///
    /// # Errors
    ///
    /// `ENODEV` in a forked child.
    fn ports(&self) -> io::Result<RangeInclusive<u16>>;

    /// Communication ids for the connection manager: answers that name one come to this process,
    /// from now on.
    ///
    /// # Errors
    ///
    /// `ENODEV` in a forked child.
    fn comm_ids(&mut self) -> io::Result<CommIds>;

    /// Asks for the requests that name a service of the connection manager. [`Self::listening`]
    /// tells the outcome.
    ///
    /// # Errors
    ///
    /// `ENODEV` in a forked child.
    fn listen(&mut self, service: u64) -> io::Result<Listening>;

    /// The progress with a service; `None` if it was not asked for.
    fn listening(&self, service: u64) -> Option<Listening>;

    /// Gives a service back.
    fn unlisten(&mut self, service: u64);

    /// The next packet for QP 1 that is this process's and came another way than by its port.
    fn next_mad(&mut self) -> Option<Mad>;
}

/// A port, and what the process has of it.
pub type Shared = (Box<dyn DatagramPort>, Box<dyn DatagramShare>);
