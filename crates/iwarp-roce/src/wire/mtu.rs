// SPDX-License-Identifier: MIT OR Apache-2.0

//! The largest packets of a path.

/// Path MTU: the most octets of payload in one packet (ROCE-035).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
#[repr(u8)]
pub enum Mtu {
    /// 256 octets.
    Mtu256 = 1,
    /// 512 octets.
    Mtu512 = 2,
    /// 1024 octets.
    #[default]
    Mtu1024 = 3,
    /// 2048 octets.
    Mtu2048 = 4,
    /// 4096 octets.
    Mtu4096 = 5,
}

impl Mtu {
    const ALL: [Self; 5] =
        [Self::Mtu256, Self::Mtu512, Self::Mtu1024, Self::Mtu2048, Self::Mtu4096];

    /// Octets of all headers and the ICRC, over IPv6, as Linux's connection manager counts them.
    const HEADERS: u32 = 40 + 8 + 12 + 4 + 28 + 4;

    /// The MTU of a code, as messages and verbs have it.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|mtu| mtu.code() == code)
    }

    /// Its code.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Octets of payload.
    pub const fn octets(self) -> usize {
        128 << self as u8
    }

    /// The largest of at most so many octets of payload; the smallest if none is.
    pub fn largest_within(octets: usize) -> Self {
        let fits = |candidate: &Self| candidate.octets() <= octets;
        Self::ALL.into_iter().rev().find(fits).unwrap_or(Self::Mtu256)
    }

    /// The largest that fits a network interface's MTU (ROCE-138); the smallest if none does.
    pub fn of_interface(mtu: u32) -> Self {
        let fits = |candidate: &Self| candidate.octets() as u32 + Self::HEADERS <= mtu;
        Self::ALL.into_iter().rev().find(fits).unwrap_or(Self::Mtu256)
    }
}

#[cfg(test)]
mod tests {
    use super::Mtu;

    /// Covers: ROCE-138
    #[test]
    fn the_path_mtu_follows_the_interface() {
        let of = |mtu| Mtu::of_interface(mtu).octets();
        assert_eq!([of(1500), of(4200), of(65_536)], [1024, 4096, 4096]);
        assert_eq!([of(576), of(1023), of(100)], [256, 512, 256]);
        for code in 1..=5 {
            assert_eq!(Mtu::from_code(code).unwrap().octets(), 128 << code);
        }
        assert_eq!((Mtu::from_code(0), Mtu::from_code(6)), (None, None));
    }
}
