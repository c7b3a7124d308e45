// SPDX-License-Identifier: MIT OR Apache-2.0

//! The peer that a stranger counts as.

use core::fmt;
use core::net::{IpAddr, Ipv6Addr};

/// One peer, as strangers are counted: an address, or a network of IPv6 that one host may have to
/// itself.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Source(IpAddr);

impl Source {
    /// The one that an address is of.
    pub const fn of(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
            address => address,
        })
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            IpAddr::V4(address) => write!(f, "{address}"),
            IpAddr::V6(network) => write!(f, "{network}/64"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::string::ToString;

    use super::Source;

    #[test]
    fn a_network_of_ipv6_is_one_source() {
        let of = |text: &str| Source::of(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:0:0:2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
        assert_eq!(of("2001:db8::1").to_string(), "2001:db8::/64");
        assert_eq!(of("192.0.2.1").to_string(), "192.0.2.1");
    }
}
