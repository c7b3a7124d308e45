// SPDX-License-Identifier: MIT OR Apache-2.0

//! The address of a server, as users write it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A host, and perhaps a port beside it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostPort<'a> {
    /// A name or an address, without brackets.
    pub host: &'a str,
    /// The port beside it.
    pub port: Option<u16>,
}

impl<'a> HostPort<'a> {
    /// Takes `host`, `host:port`, `::1`, `[::1]` and `[::1]:port`.
    ///
    /// # Errors
    ///
    /// Says what is wrong with it.
    pub fn parse(text: &'a str) -> Result<Self, String> {
        if let Some(rest) = text.strip_prefix('[') {
            let (host, rest) = rest.split_once(']').ok_or_else(|| format!("{text}: no ]"))?;
            let port = match rest.strip_prefix(':') {
                Some(port) => Some(number(text, port)?),
                None if rest.is_empty() => None,
                None => return Err(format!("{text}: expected :PORT behind ]")),
            };
            return Ok(Self { host, port });
        }
        // An IPv6 address may have a scope: fe80::1%eth0.
        let bare = text.split('%').next().unwrap_or(text);
        match text.rsplit_once(':') {
            Some((host, port)) if bare.parse::<Ipv6Addr>().is_err() => {
                Ok(Self { host, port: Some(number(text, port)?) })
            }
            _ => Ok(Self { host: text, port: None }),
        }
    }

    /// The port beside the host, or that which the option `flag` gives, or else `usual`.
    ///
    /// # Errors
    ///
    /// When the two differ.
    pub fn port_or(self, flag: &str, given: Option<u16>, usual: u16) -> Result<u16, String> {
        match (self.port, given) {
            (Some(beside), Some(port)) if beside != port => {
                Err(format!("{} says port {beside}, {flag} says {port}", self.host))
            }
            (beside, port) => Ok(beside.or(port).unwrap_or(usual)),
        }
    }
}

/// All addresses of this host, the best first: an IPv6 listener hears IPv4 too, but there are
/// systems without IPv6.
pub fn everywhere(port: u16) -> [SocketAddr; 2] {
    let all = [IpAddr::from(Ipv6Addr::UNSPECIFIED), Ipv4Addr::UNSPECIFIED.into()];
    all.map(|ip| SocketAddr::new(ip, port))
}

fn number(text: &str, port: &str) -> Result<u16, String> {
    port.parse()
        .map_err(|_| format!("{text}: expected a port from 0 to 65535 behind the last colon"))
}

#[cfg(test)]
mod tests {
    use super::HostPort;

    #[test]
    fn a_port_may_stand_beside_a_name_and_each_kind_of_address() {
        for (text, host, port) in [
            ("there", "there", None),
            ("there:7174", "there", Some(7174)),
            ("192.0.2.1", "192.0.2.1", None),
            ("192.0.2.1:1", "192.0.2.1", Some(1)),
            ("::1", "::1", None),
            ("fe80::1%eth0", "fe80::1%eth0", None),
            ("[::1]", "::1", None),
            ("[::1]:7", "::1", Some(7)),
            ("[fe80::1%eth0]:7", "fe80::1%eth0", Some(7)),
        ] {
            assert_eq!(HostPort::parse(text), Ok(HostPort { host, port }), "{text}");
        }
    }

    #[test]
    fn malformed_addresses_are_named() {
        for text in ["[::1", "[::1]7", "there:", "there:port", "192.0.2.1:65536"] {
            assert!(HostPort::parse(text).unwrap_err().contains(text), "{text}");
        }
    }

    #[test]
    fn a_port_is_beside_the_host_or_in_an_option_or_the_usual() {
        let port = |text, given| HostPort::parse(text).expect(text).port_or("--port", given, 3);
        assert_eq!(port("[::1]:1", None), Ok(1));
        assert_eq!(port("[::1]:1", Some(1)), Ok(1));
        assert_eq!(port("[::1]", Some(2)), Ok(2));
        assert_eq!(port("::1", None), Ok(3));
        assert_eq!(port("[::1]:1", Some(2)).unwrap_err(), "::1 says port 1, --port says 2");
    }
}
