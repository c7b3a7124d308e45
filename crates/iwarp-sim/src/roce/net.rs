// SPDX-License-Identifier: MIT OR Apache-2.0

//! Packets on their way.

use std::collections::BTreeMap;
use std::time::Duration;

use iwarp_roce::wire::Path;
use iwarp_types::Time;

use crate::choice::Choices;

/// Which part of which message a packet is, where that is known: the sender, the number of its
/// message, the part's, and how many parts there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Tag {
    pub(super) from: usize,
    pub(super) message: usize,
    pub(super) part: usize,
    pub(super) parts: usize,
}

/// A packet.
#[derive(Clone, Debug)]
pub(super) struct Flying {
    /// The end that gets it.
    pub(super) to: usize,
    pub(super) path: Path,
    /// Without the ICRC, which the port looks at.
    pub(super) octets: Vec<u8>,
    pub(super) tag: Option<Tag>,
}

/// The mishaps of the network, once in so many packets; 0 for never.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rates {
    drop: u64,
    corrupt: u64,
    repeat: u64,
    delay: u64,
    /// Tells of congestion by a mark.
    mark: u64,
}

/// The network.
#[derive(Debug)]
pub(super) struct Net {
    pub(super) rates: Rates,
    flying: BTreeMap<(Time, u64), Flying>,
    serial: u64,
    pub(super) lost: u64,
    /// Packets that arrived with a mark.
    pub(super) marked: u64,
}

impl Rates {
    /// A network that is well.
    pub(super) const WELL: Self = Self { drop: 0, corrupt: 0, repeat: 0, delay: 0, mark: 0 };

    pub(super) fn choose(rng: &mut Choices<'_>) -> Self {
        const RATES: [u64; 6] = [0, 0, 50, 20, 8, 3];
        let [drop, corrupt] = core::array::from_fn(|_| rng.pick(&RATES[..5]));
        let [repeat, delay, mark] = core::array::from_fn(|_| rng.pick(&RATES));
        Self { drop, corrupt, repeat, delay, mark }
    }
}

/// The mark that a packet met congestion (CE).
const CONGESTED: u8 = 0b11;
/// The time that a packet takes.
const LATENCY: Duration = Duration::from_micros(10);

impl Net {
    pub(super) fn new(rates: Rates) -> Self {
        Self { rates, flying: BTreeMap::new(), serial: 0, lost: 0, marked: 0 }
    }

    pub(super) fn send(&mut self, now: Time, mut packet: Flying, rng: &mut Choices<'_>) {
        let once_in = |rate: u64, rng: &mut Choices<'_>| rate > 0 && rng.one_in(rate);
        // One that is corrupted does not pass the port, which looks at its ICRC.
        if once_in(self.rates.drop, rng) || once_in(self.rates.corrupt, rng) {
            self.lost += 1;
            return;
        }
        if once_in(self.rates.mark, rng) {
            packet.path.address.traffic_class |= CONGESTED;
        }
        if once_in(self.rates.repeat, rng) {
            let later = Duration::from_micros(rng.below(200));
            self.launch(now.plus(LATENCY + later), packet.clone());
        }
        let delayed = once_in(self.rates.delay, rng);
        let later = Duration::from_micros(if delayed { rng.below(500) } else { 0 });
        self.launch(now.plus(LATENCY + later), packet);
    }

    fn launch(&mut self, at: Time, packet: Flying) {
        self.flying.insert((at, self.serial), packet);
        self.serial += 1;
    }

    /// When the next packet arrives.
    pub(super) fn next(&self) -> Option<Time> {
        self.flying.first_key_value().map(|((at, _), _)| *at)
    }

    pub(super) fn take(&mut self) -> Option<Flying> {
        let (_, packet) = self.flying.pop_first()?;
        self.marked += u64::from(packet.path.is_marked());
        Some(packet)
    }
}
