// SPDX-License-Identifier: MIT OR Apache-2.0

//! The queue pairs of destinations, as many as are worth remembering.

use alloc::collections::BTreeMap;
use core::net::SocketAddr;
use core::time::Duration;

use iwarp_types::Time;

/// A destination with a queue pair.
#[derive(Clone, Debug)]
pub(super) struct Destination<H> {
    pub(super) qpn: u32,
    pub(super) handle: H,
    /// The program sent to it last.
    used: Option<Time>,
    /// It was heard last.
    heard: Time,
}

impl<H> Destination<H> {
    /// True if nothing has come from there for that long.
    pub(super) fn is_silent(&self, now: Time, silence: Duration) -> bool {
        self.heard.plus(silence) <= now
    }
}

/// Destinations by their sockets.
#[derive(Clone, Debug)]
pub(super) struct Destinations<H> {
    most: usize,
    known: BTreeMap<SocketAddr, Destination<H>>,
}

impl<H> Destinations<H> {
    pub(super) fn new(most: usize) -> Self {
        Self { most, known: BTreeMap::new() }
    }

    /// The destination, to which a datagram goes now.
    pub(super) fn used(&mut self, to: SocketAddr, now: Time) -> Option<&Destination<H>> {
        let known = self.known.get_mut(&to)?;
        known.used = Some(now);
        Some(known)
    }

    /// Something came from there; true if it is known, with that queue pair if one was named.
    pub(super) fn heard(&mut self, peer: SocketAddr, qpn: Option<u32>, now: Time) -> bool {
        let is_it = |known: &&mut Destination<H>| qpn.is_none_or(|qpn| qpn == known.qpn);
        let known = self.known.get_mut(&peer).filter(is_it);
        known.map(|known| known.heard = now).is_some()
    }

    /// Remembers a destination: the handle that goes for it.
    pub(super) fn insert(&mut self, peer: SocketAddr, qpn: u32, handle: H, now: Time) -> Option<H> {
        let before = self.known.remove(&peer);
        let used = before.as_ref().and_then(|before| before.used);
        let gone = match before {
            Some(before) => Some(before),
            None if self.known.len() >= self.most => self.forget_one(),
            None => None,
        };
        self.known.insert(peer, Destination { qpn, handle, used, heard: now });
        gone.map(|gone| gone.handle)
    }

    /// Forgets the one that will be missed least. Strangers who only say that they exist do not
    /// displace those to whom the program sends.
    fn forget_one(&mut self) -> Option<Destination<H>> {
        let least = self.known.iter().min_by_key(|(_, known)| (known.used, known.heard))?;
        let peer = *least.0;
        self.known.remove(&peer)
    }

    pub(super) fn remove(&mut self, peer: SocketAddr) -> Option<H> {
        self.known.remove(&peer).map(|known| known.handle)
    }

    pub(super) fn into_handles(self) -> impl Iterator<Item = H> {
        self.known.into_values().map(|known| known.handle)
    }
}
