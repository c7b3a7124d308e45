// SPDX-License-Identifier: MIT OR Apache-2.0

//! Faults of the network that a device is asked to have, and the network with them.

use std::str::FromStr;

use crate::port::{DatagramFaults, Faults, Platform};
use crate::report;

/// Faults of the network under a device, drawn from a seed: packets of RoCE v2 that are lost,
/// streams of iWARP that come late and in pieces. To find out how a program bears them.
///
/// Every field but the seed is off at 0. What this end sends and what it receives have each of
/// them, so an exchange between two such ends meets it twice as often. A device has the faults for
/// all of its queue pairs; devices of one process share the UDP port, and so the faults of the
/// first that used it.
///
/// ```
/// use iwarp::{NetworkFaults, Options};
///
/// let faults: NetworkFaults = "seed=7,lose=100".parse()?;
/// assert_eq!((faults.seed, faults.lose), (7, 100));
/// let options = Options::new().faults(faults);
/// # Ok::<(), iwarp::FaultsError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub struct NetworkFaults {
    /// The seed. Equal seeds give equal faults to equal calls, on each connection by itself.
    pub seed: u64,
    /// Of RoCE v2, one packet in so many is lost.
    pub lose: u16,
    /// Of RoCE v2, one packet in so many comes twice.
    pub repeat: u16,
    /// Of RoCE v2, one packet in so many overtakes up to eight before it that go in one send.
    pub reorder: u16,
    /// Of RoCE v2, one packet in so many has one bit changed, and a wrong ICRC with it.
    pub damage: u16,
    /// Of iWARP, one call in so many, up to 256, moves nothing although it could, nor do up to
    /// seven behind it.
    pub delay: u16,
    /// Of iWARP, bytes that one call moves at most.
    pub cut: u32,
    /// Of iWARP, one byte in about so many that this end sends has one bit changed. With CRCs that
    /// ends the connection (RFC 5044 §8.1); without, the peer gets the wrong byte. The first 600
    /// bytes, which start-up frames without a CRC may be, are spared.
    pub corrupt: u64,
    /// Of iWARP, one connection in so many is reset, once 600 bytes to 1 MiB have passed in one
    /// direction.
    pub reset: u16,
}

/// A text names no faults.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("expected {}", NetworkFaults::EXPECTED)]
pub struct FaultsError;

impl NetworkFaults {
    /// The texts that stand for faults, in words.
    pub(super) const EXPECTED: &str = "seed, lose, repeat, reorder, damage, delay, cut, corrupt or reset, each with = \
                            and a number, with commas between: seed=7,lose=100";

    /// The faults of streams, where there are some.
    fn of_streams(&self) -> Option<Faults> {
        let Self { seed, delay, cut, corrupt, reset, .. } = *self;
        (delay > 0 || cut > 0 || corrupt > 0 || reset > 0).then(|| Faults {
            delayed: of(1 << 8, delay).min(u8::MAX.into()) as u8,
            longest_piece: cut as usize,
            corrupt_one_in: corrupt,
            reset_one_in: reset.into(),
            ..Faults::seeded(seed)
        })
    }

    /// The faults of datagrams, where there are some.
    fn of_datagrams(&self) -> Option<DatagramFaults> {
        let Self { lose, repeat, reorder, damage, .. } = *self;
        let one_in = |number| of(1 << 16, number).min(u16::MAX.into()) as u16;
        let faults = DatagramFaults {
            lost: one_in(lose),
            repeated: one_in(repeat),
            reordered: one_in(reorder),
            damaged: one_in(damage),
            full: 0,
        };
        (faults != DatagramFaults::default()).then_some(faults)
    }

    /// True if they are more than a seed.
    fn are_some(&self) -> bool {
        self.of_streams().is_some() || self.of_datagrams().is_some()
    }

    /// The network with these faults.
    fn around(&self, mut platform: Platform) -> Platform {
        if let Some(faults) = self.of_streams() {
            platform.network = faults.around(platform.network);
        }
        if let Some(faults) = self.of_datagrams() {
            let around = |network| faults.around(self.seed, network);
            platform.datagrams = platform.datagrams.map(around);
        }
        platform
    }
}

/// The share of `all` that is one in `number`; none where that is 0. One in more than `all` is one.
fn of(all: u32, number: u16) -> u32 {
    if number == 0 { 0 } else { (all / u32::from(number)).max(1) }
}

impl FromStr for NetworkFaults {
    type Err = FaultsError;

    fn from_str(text: &str) -> Result<Self, FaultsError> {
        let (mut faults, mut names) = (Self::default(), Vec::new());
        for word in text.split(',') {
            let (name, number) = word.split_once('=').ok_or(FaultsError)?;
            let (name, number) = (name.trim(), number.trim());
            if names.contains(&name) {
                return Err(FaultsError);
            }
            names.push(name);
            fn parse<T: FromStr>(number: &str) -> Result<T, FaultsError> {
                number.parse().map_err(|_| FaultsError)
            }
            match name {
                "seed" => faults.seed = parse(number)?,
                "lose" => faults.lose = parse(number)?,
                "repeat" => faults.repeat = parse(number)?,
                "reorder" => faults.reorder = parse(number)?,
                "damage" => faults.damage = parse(number)?,
                "delay" => faults.delay = parse(number)?,
                "cut" => faults.cut = parse(number)?,
                "corrupt" => faults.corrupt = parse(number)?,
                "reset" => faults.reset = parse(number)?,
                _ => return Err(FaultsError),
            }
        }
        Ok(faults)
    }
}

/// The system's network, with these faults if there are some.
pub(crate) fn platform(faults: Option<NetworkFaults>) -> Platform {
    let platform = Platform::default();
    match faults.filter(NetworkFaults::are_some) {
        None => platform,
        Some(faults) => {
            report!(
                burst 1,
                WARN,
                "the network under this device has faults on purpose (IWARP_FAULTS, \
                 Options::faults): {faults:?}"
            );
            faults.around(platform)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read() {
        let all = "seed=1, lose=2,repeat=3,reorder=4,damage=5,delay=6,cut=7,corrupt=8,reset=9";
        let expected = NetworkFaults {
            seed: 1,
            lose: 2,
            repeat: 3,
            reorder: 4,
            damage: 5,
            delay: 6,
            cut: 7,
            corrupt: 8,
            reset: 9,
        };
        assert_eq!(all.parse(), Ok(expected));
        assert_eq!("lose=100".parse(), Ok(NetworkFaults { lose: 100, ..Default::default() }));
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "",
            "lose",
            "lose=",
            "lose=x",
            "lose=-1",
            "lose=65536",
            "loss=1",
            "lose=1,",
            "lose=1, lose=2",
        ] {
            assert_eq!(text.parse::<NetworkFaults>(), Err(FaultsError), "{text}");
        }
    }

    #[test]
    fn one_in_so_many_is_a_share() {
        let faults = NetworkFaults { lose: 1, repeat: 1000, ..Default::default() };
        let packets = faults.of_datagrams().unwrap();
        assert_eq!((packets.lost, packets.repeated, packets.damaged), (u16::MAX, 65, 0));
        assert!(faults.of_streams().is_none());
        let faults = NetworkFaults { delay: 1000, ..Default::default() };
        assert_eq!(faults.of_streams().unwrap().delayed, 1);
        assert!(faults.of_datagrams().is_none());
        assert!(faults.are_some());
        assert!(!NetworkFaults { seed: 3, ..Default::default() }.are_some());
    }
}
