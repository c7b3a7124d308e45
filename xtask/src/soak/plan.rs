// SPDX-License-Identifier: MIT OR Apache-2.0

//! The events of a soak: all of them follow from the seed, none from the clock.

use std::time::Duration;

use super::faults::Fault;
use super::traffic::{PROGRAMS, Traffic};
use crate::programs::table::Personality;

/// SplitMix64.
#[derive(Clone, Debug)]
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From `least` to `most`.
    pub(super) fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.word() % (most - least + 1)
    }

    pub(super) fn of_a_hundred(&mut self, percent: u64) -> bool {
        self.between(1, 100) <= percent
    }

    pub(super) fn choose<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.between(0, all.len() as u64 - 1) as usize].clone()
    }
}

/// A server and a client, and the fault that hits them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Episode {
    /// Of its lane, from 0.
    pub(super) number: u64,
    pub(super) traffic: Traffic,
    pub(super) personality: Personality,
    pub(super) fault: Fault,
    /// From the client's start to the fault.
    pub(super) after: Duration,
    /// For what draws by itself.
    pub(super) seed: u64,
}

/// The episodes of a lane, without end.
pub(super) fn episodes(seed: u64, lane: usize) -> impl Iterator<Item = Episode> {
    (0..).map(move |number| {
        // Each has dice of its own, so that one can be had without those before it.
        let mut dice = Dice::new(seed ^ (lane as u64) << 56 ^ number << 32);
        dice.word();
        draw(&mut dice, number)
    })
}

fn draw(dice: &mut Dice, number: u64) -> Episode {
    let traffic = match dice.between(1, 100) {
        // Traffic that verifies everything comes most often.
        1..=35 => Traffic::Resident { threads: dice.between(1, 4), rounds: rounds(dice) },
        36..=55 => Traffic::Own { threads: dice.between(1, 4), rounds: rounds(dice) },
        56..=61 => Traffic::Crowd { files: dice.between(24, 64), threads: dice.between(20, 40) },
        _ => Traffic::Program(dice.between(0, PROGRAMS.len() as u64 - 1) as usize),
    };
    let personality = match &traffic {
        Traffic::Program(number) => match PROGRAMS[*number].only {
            Some(personality) => personality,
            None => dice.choose(&[Personality::Iwarp, Personality::Roce]),
        },
        _ => dice.choose(&[Personality::Iwarp, Personality::Roce]),
    };
    let fault = Fault::draw(dice, &traffic);
    let traffic = if let Fault::PacketFaults(_) = fault { traffic.lighter() } else { traffic };
    // Some strike while the connection is being made, the others before all is done.
    let most = if dice.of_a_hundred(25) { 100 } else { traffic.lasts_ms() };
    let after = match fault {
        // A peer's first frame tells that it has atomics, and after 10 s without one they complete
        // in error (`rdmap/hello.rs`): a process that is stopped for longer has sent it before.
        Fault::Stop(_, time) if time > Duration::from_secs(2) => Duration::from_secs(1),
        _ => Duration::from_millis(dice.between(0, most)),
    };
    Episode { number, traffic, personality, fault, after, seed: dice.word() }
}

fn rounds(dice: &mut Dice) -> u64 {
    if dice.of_a_hundred(30) { dice.between(1, 100) } else { dice.between(500, 5000) }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::episodes;
    use crate::programs::lab::Side;
    use crate::soak::faults::Fault;
    use crate::soak::traffic::{PROGRAMS, Traffic};

    #[test]
    fn a_seed_is_a_sequence() {
        let some = |seed, lane| episodes(seed, lane).take(50).collect::<Vec<_>>();
        assert_eq!(some(7, 1), some(7, 1));
        assert_ne!(some(7, 1), some(8, 1));
        assert_ne!(some(7, 1), some(7, 2));
        assert_eq!(episodes(7, 1).nth(31).as_ref(), some(7, 1).get(31));
    }

    #[test]
    fn everything_has_its_turn() {
        let kinds: HashSet<String> = episodes(1, 0)
            .take(3000)
            .flat_map(|e| [e.traffic.name().to_owned(), e.fault.name().to_owned()])
            .collect();
        assert!(PROGRAMS.iter().all(|program| kinds.contains(program.name)), "{kinds:?}");
        for fault in ["none", "weather", "cut", "lost", "reset", "forged", "kill", "stop", "files"]
        {
            assert!(kinds.contains(fault), "{fault}: {kinds:?}");
        }
    }

    #[test]
    fn a_deaf_program_keeps_its_server() {
        let deaf = episodes(1, 0)
            .take(3000)
            .filter(|episode| matches!(episode.traffic, Traffic::Program(n) if PROGRAMS[n].deaf));
        let faults: Vec<Fault> = deaf.map(|episode| episode.fault).collect();
        assert!(faults.len() > 20);
        assert!(!faults.contains(&Fault::Kill(Side::Server)));
    }
}
