// SPDX-License-Identifier: MIT OR Apache-2.0

//! The ways that connections of RDMA take within the host.

use std::fmt;
use std::iter::Sum;
use std::ops::Add;

use iwarp::{LocalPath, QueuePair};

/// Connections by TCP whose two ends are on this host, and those of them that have moved from it to
/// shared memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
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
}
