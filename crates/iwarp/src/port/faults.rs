// SPDX-License-Identifier: MIT OR Apache-2.0

//! A network that delays, cuts, corrupts and resets, as a seed says.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::around::{Held, Wrap, around, gathered, pass_on};
use super::{IoPart, IoPartMut, Network, Port, Readiness, lock};

/// The fate of the bytes of a connection: equal for equal seeds and equal calls.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    /// The seed of all that is drawn.
    pub seed: u64,
    /// Of 256 calls so many say `WouldBlock` although something has come or there is room, and up
    /// to seven more of that kind after each: so long are bytes on their way.
    pub delayed: u8,
    /// A call moves a random number of bytes up to this one; 0: as many as it can. Of what has
    /// come the rest waits where the descriptor does not report it ([`Port::may_hold`]).
    pub longest_piece: usize,
    /// One bit is changed in about one byte of so many that are sent; 0: none.
    pub corrupt_one_in: u64,
    /// One connection in so many is reset, once [`Self::spared`] bytes to 1 MiB have passed in one
    /// direction; 0: none.
    pub reset_one_in: u64,
    /// At the beginning of each direction so many bytes are sent as they are: start-up frames have
    /// no CRC, and go out in one call.
    pub spared: u64,
}

impl Faults {
    /// None yet, to be drawn from that seed.
    pub const fn seeded(seed: u64) -> Self {
        Self { seed, delayed: 0, longest_piece: 0, corrupt_one_in: 0, reset_one_in: 0, spared: 600 }
    }

    /// The network with these faults.
    pub fn around(&self, network: Arc<dyn Network>) -> Arc<dyn Network> {
        around(network, Source { faults: *self, connections: Arc::default() })
    }
}

/// Gives each connection faults of its own.
#[derive(Clone, Debug)]
struct Source {
    faults: Faults,
    connections: Arc<AtomicU64>,
}

impl Wrap for Source {
    fn wrap(&self, port: Box<dyn Port>) -> io::Result<Box<dyn Port>> {
        let number = self.connections.fetch_add(1, Ordering::Relaxed);
        let faults = self.faults;
        let way = |direction: u64| {
            Mutex::new(Way::new(&faults, Draws::of(faults.seed, number * 2 + direction)))
        };
        let (sending, receiving) = (way(0), way(1));
        let (held, is_reset) = (Held::default(), AtomicBool::new(false));
        let ends_at = faults.end_of(number);
        Ok(Box::new(Faulty { port, sending, receiving, held, ends_at, is_reset, faults }))
    }
}

impl Faults {
    /// The bytes of a direction after which the connection with this number is reset.
    fn end_of(&self, number: u64) -> u64 {
        let mut draws = Draws::of(!self.seed, number);
        if self.reset_one_in == 0 || draws.below(self.reset_one_in) > 0 {
            return u64::MAX;
        }
        // As often after few bytes as after many.
        let most = 1 << (6 + draws.below(15));
        self.spared + draws.below(most)
    }
}

/// One direction.
#[derive(Debug)]
struct Way {
    draws: Draws,
    /// Calls still to be put off.
    put_off: u64,
    /// Bytes that have passed.
    passed: u64,
    /// The place of the next one that is changed.
    wrong: u64,
}

impl Way {
    fn new(faults: &Faults, mut draws: Draws) -> Self {
        let wrong = match faults.corrupt_one_in {
            0 => u64::MAX,
            one_in => faults.spared + draws.below(2 * one_in),
        };
        Self { draws, put_off: 0, passed: 0, wrong }
    }

    /// True if this call says `WouldBlock`.
    fn is_put_off(&mut self, faults: &Faults) -> bool {
        if self.put_off == 0 && self.draws.below(256) < u64::from(faults.delayed) {
            self.put_off = 1 + self.draws.below(8);
        }
        let put_off = self.put_off > 0;
        self.put_off = self.put_off.saturating_sub(1);
        put_off
    }

    /// The number of bytes that this call moves at most.
    fn piece(&mut self, faults: &Faults) -> usize {
        match faults.longest_piece {
            0 => usize::MAX,
            longest => 1 + self.draws.below(longest as u64) as usize,
        }
    }
}

/// A connection.
#[derive(Debug)]
struct Faulty {
    port: Box<dyn Port>,
    sending: Mutex<Way>,
    receiving: Mutex<Way>,
    held: Held,
    ends_at: u64,
    is_reset: AtomicBool,
    faults: Faults,
}

impl Faulty {
    /// An error from the byte on at which the connection is reset. The peer learns of it when this
    /// end, which is told here, closes its own.
    fn check(&self, way: &Way) -> io::Result<()> {
        if self.ends_at == u64::MAX {
            return Ok(());
        }
        if way.passed >= self.ends_at {
            self.is_reset.store(true, Ordering::Relaxed);
        }
        if self.is_reset.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        Ok(())
    }
}

impl Port for Faulty {
    fn send(&self, parts: &[IoPart<'_>], more: bool) -> io::Result<usize> {
        let way = &mut *lock(&self.sending);
        self.check(way)?;
        let mut most = usize::MAX;
        if way.passed >= self.faults.spared {
            if way.is_put_off(&self.faults) {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            most = way.piece(&self.faults);
        }
        let mut octets = gathered(parts, most)?;
        let wrong = way.wrong.wrapping_sub(way.passed);
        let wrong = usize::try_from(wrong).ok().filter(|place| *place < octets.len());
        if let Some(place) = wrong {
            octets.truncate(place + 1);
            // That bit again, should the call have to be repeated.
            octets[place] ^= 1 << (way.wrong % 8);
        }
        let sent = self.port.send(&[IoPart::new(&octets)], more)?;
        way.passed += sent as u64;
        if way.passed > way.wrong {
            way.wrong = way.passed + way.draws.below(2 * self.faults.corrupt_one_in);
        }
        Ok(sent)
    }

    fn recv(&self, parts: &mut [IoPartMut<'_>]) -> io::Result<usize> {
        let way = &mut *lock(&self.receiving);
        self.check(way)?;
        // Bytes that are held are reported by nothing else.
        if self.held.is_empty() && way.is_put_off(&self.faults) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let most = way.piece(&self.faults);
        self.held.receive(&*self.port, parts, most, |octets| way.passed += octets.len() as u64)
    }

    fn has_input(&self) -> io::Result<bool> {
        Ok(!self.held.is_empty() || self.port.has_input()?)
    }

    fn readiness(&self) -> Readiness {
        self.held.readiness() | self.port.readiness()
    }

    fn may_hold(&self) -> bool {
        true
    }

    pass_on!(port);
}

/// Numbers that look random (SplitMix64).
#[derive(Debug)]
pub(super) struct Draws(pub(super) u64);

impl Draws {
    /// Numbers for one of several that draw by themselves from one seed.
    pub(super) fn of(seed: u64, number: u64) -> Self {
        // Drawn itself: numbers that follow each other would give parts of one sequence.
        Self(seed ^ Self(number).below(u64::MAX))
    }

    /// One below `end`, which is not 0.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }
}
