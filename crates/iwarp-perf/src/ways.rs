// SPDX-License-Identifier: MIT OR Apache-2.0

//! The ways that connections of RDMA take within the host.

use std::fmt;
use std::iter::Sum;
use std::ops::Add;

use iwarp::{LocalPath, QueuePair};
use serde::{Deserialize, Serialize};

/// A way that a line is asked to take, at both ends.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "snake_case")]
pub(super) enum Way {
    Off,
    Rings,
    Auto,
}

impl Way {
    pub(super) const ALL: [Self; 3] = [Self::Off, Self::Rings, Self::Auto];

    /// The ending that tells its lines from others'.
    pub(super) const fn suffix(self) -> &'static str {
        match self {
            Self::Off => ", over TCP",
            Self::Rings => ", by rings",
            Self::Auto => ", auto",
        }
    }

    /// True if connections that were asked to take it have done so.
    pub(super) fn is_taken(self, ways: Ways) -> bool {
        match self {
            Self::Off => ways.moved == 0,
            Self::Rings | Self::Auto => ways.moved == ways.all && ways.all > 0,
        }
    }
}

impl From<Way> for LocalPath {
    fn from(way: Way) -> Self {
        match way {
            Way::Off => Self::Off,
            Way::Rings => Self::Rings,
            Way::Auto => Self::Auto,
        }
    }
}

/// Connections by TCP whose two ends are on this host, and those of them that have moved from it to
/// shared memory.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Ways {
    moved: usize,
    all: usize,
}

impl Ways {
    /// The one of a queue pair that is connected; none to another host, or by RoCE v2.
    pub(super) fn of(qp: &QueuePair) -> Self {
        Self::of_path(qp.path_within_host())
    }

    /// Likewise, as a queue pair or a session tells it.
    pub(super) const fn of_path(path: Option<LocalPath>) -> Self {
        match path {
            Some(LocalPath::Rings) => Self { moved: 1, all: 1 },
            Some(_) => Self { moved: 0, all: 1 },
            None => Self { moved: 0, all: 0 },
        }
    }

    /// The ways of connections that have these at one end and `there` at the other: one that sends
    /// by TCP at either end has not moved.
    pub(super) fn at_both_ends(self, there: Self) -> Self {
        match self.all == there.all {
            true => Self { moved: self.moved.min(there.moved), ..self },
            false => self,
        }
    }
}

impl Add for Ways {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { moved: self.moved + other.moved, all: self.all + other.all }
    }
}

impl Sum for Ways {
    fn sum<I: Iterator<Item = Self>>(ways: I) -> Self {
        ways.fold(Self::default(), Add::add)
    }
}

/// As the JSON has it, where there are any.
impl fmt::Display for Ways {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self { moved: 0, .. } => write!(f, "{}", LocalPath::Off),
            Self { moved, all } if moved == all => write!(f, "{}", LocalPath::Rings),
            Self { moved, all } => write!(f, "{}: {moved} of {all}", LocalPath::Rings),
        }
    }
}

impl Ways {
    /// The word for them; `None` where there are none.
    pub(super) fn word(self) -> Option<String> {
        (self != Self::default()).then(|| self.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_connections_are_counted() {
        let word = |moved, stayed: usize| {
            let moved = (0..moved).map(|_| Ways { moved: 1, all: 1 });
            let stayed = (0..stayed).map(|_| Ways { moved: 0, all: 1 });
            moved.chain(stayed).sum::<Ways>().word()
        };
        assert_eq!(word(0, 0), None);
        assert_eq!(word(0, 2).as_deref(), Some("off"));
        assert_eq!(word(2, 0).as_deref(), Some("rings"));
        assert_eq!(word(2, 3).as_deref(), Some("rings: 2 of 5"));
    }

    #[test]
    fn a_way_is_taken_by_all_connections_at_both_ends() {
        let ways = |moved, all| Ways { moved, all };
        for way in [Way::Rings, Way::Auto] {
            assert!(way.is_taken(ways(2, 2)));
            assert!(!way.is_taken(ways(2, 2).at_both_ends(ways(1, 2))));
            // RoCE v2 has none.
            assert!(!way.is_taken(ways(0, 0)));
        }
        assert!(Way::Off.is_taken(ways(0, 2)) && !Way::Off.is_taken(ways(1, 2)));
        // An end that does not know says nothing.
        assert_eq!(ways(2, 2).at_both_ends(ways(0, 0)), ways(2, 2));
    }
}
