//! How a device behaves, and the environment variables that say so.

use std::env;
use std::time::Duration;

use iwarp_proto::mpa::startup::{Config, RtrTypes};
use iwarp_proto::qp::Extensions;
use thiserror::Error;

/// How a device behaves. Every field can be set by an environment variable `IWARP_...`, see
/// [`Options::from_env`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Ask for CRC32c on the stream (RFC 5044 §4.4). Off only where both ends say so.
    pub crc: bool,
    /// Ask the peer to put markers into what it sends (RFC 5044 §4.3).
    pub markers: bool,
    /// MPA revision of the requests this end makes: 1 (RFC 5044) or 2 (RFC 6581).
    pub revision: u8,
    /// Retry as revision 1 on a new connection where a peer refuses revision 2 by closing.
    pub fall_back: bool,
    /// Ask for the peer-to-peer model of RFC 6581: the initiator sends a frame first, so that
    /// the responder may send.
    pub peer_to_peer: bool,
    /// Which frames may serve for that.
    pub rtr: RtrTypes,
    /// Whether operations of RFC 7306 may be sent, and how that is found out.
    pub extensions: Extensions,
    /// Octets of the largest ULPDU, instead of what one TCP segment takes. FPDUs that are larger
    /// than a segment are fast, but hardware peers may not expect them.
    pub mulpdu: Option<usize>,
    /// How long the whole start-up frame of a peer may take.
    pub startup_timeout: Duration,
    /// How long octets may stay unacknowledged before the connection counts as lost.
    pub user_timeout: Duration,
    /// How long a closed connection may take to send what was accepted and see the peer close.
    pub linger: Duration,
    /// Connections of one listener that may be in start-up, or wait for the program's answer, at
    /// the same time, unless its backlog is more.
    pub max_pending: usize,
    /// Congestion control on connections within this host; the system's default elsewhere.
    /// Pacing algorithms halve loopback's bandwidth.
    pub local_congestion: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            crc: true,
            markers: false,
            revision: 2,
            fall_back: true,
            peer_to_peer: false,
            rtr: RtrTypes { send: false, write: true, read: true },
            extensions: Extensions::Ask,
            mulpdu: None,
            startup_timeout: Duration::from_secs(10),
            user_timeout: Duration::from_secs(30),
            linger: Duration::from_secs(10),
            max_pending: 1024,
            local_congestion: Some("cubic".to_owned()),
        }
    }
}

/// A variable of the environment makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{variable}={value}: expected {expected}")]
pub struct OptionError {
    /// Its name.
    pub variable: &'static str,
    /// What it holds.
    pub value: String,
    /// What it may hold.
    pub expected: &'static str,
}

impl Options {
    /// The defaults, changed by what the environment says:
    ///
    /// | Variable | Values | Default |
    /// |---|---|---|
    /// | `IWARP_CRC` | `on`, `off` | `on` |
    /// | `IWARP_MARKERS` | `on`, `off` | `off` |
    /// | `IWARP_MPA_REVISION` | `1`, `2` | `2` |
    /// | `IWARP_MPA_FALLBACK` | `on`, `off` | `on` |
    /// | `IWARP_PEER_TO_PEER` | `off`, `write`, `read`, `send`, `any` | `off` |
    /// | `IWARP_EXTENSIONS` | `ask`, `assume`, `refuse` | `ask` |
    /// | `IWARP_MULPDU` | 128 to 64768 octets | one TCP segment |
    /// | `IWARP_STARTUP_TIMEOUT_MS` | milliseconds | 10000 |
    /// | `IWARP_USER_TIMEOUT_MS` | milliseconds | 30000 |
    /// | `IWARP_LINGER_MS` | milliseconds | 10000 |
    /// | `IWARP_LOCAL_CONGESTION` | an algorithm, or `default` | `cubic` |
    ///
    /// # Errors
    ///
    /// The first variable that holds something else.
    pub fn from_env() -> Result<Self, OptionError> {
        Self::from_lookup(|name| env::var(name).ok())
    }

    fn from_lookup(lookup: impl Fn(&'static str) -> Option<String>) -> Result<Self, OptionError> {
        let mut options = Self::default();
        let switch = |name| match lookup(name).as_deref() {
            None => Ok(None),
            Some("on" | "1" | "yes") => Ok(Some(true)),
            Some("off" | "0" | "no") => Ok(Some(false)),
            Some(other) => Err(wrong(name, other, "on or off")),
        };
        let number = |name, expected, range: std::ops::RangeInclusive<u64>| match lookup(name) {
            None => Ok(None),
            Some(value) => match value.parse() {
                Ok(n) if range.contains(&n) => Ok(Some(n)),
                _ => Err(wrong(name, &value, expected)),
            },
        };
        let millis = |name| {
            let value = number(name, "milliseconds", 1..=u64::from(u32::MAX))?;
            Ok(value.map(Duration::from_millis))
        };
        options.crc = switch("IWARP_CRC")?.unwrap_or(options.crc);
        options.markers = switch("IWARP_MARKERS")?.unwrap_or(options.markers);
        options.fall_back = switch("IWARP_MPA_FALLBACK")?.unwrap_or(options.fall_back);
        if let Some(revision) = number("IWARP_MPA_REVISION", "1 or 2", 1..=2)? {
            options.revision = revision as u8;
        }
        if let Some(octets) = number("IWARP_MULPDU", "128 to 64768", 128..=64768)? {
            options.mulpdu = Some(octets as usize);
        }
        for (name, field) in [
            ("IWARP_STARTUP_TIMEOUT_MS", &mut options.startup_timeout),
            ("IWARP_USER_TIMEOUT_MS", &mut options.user_timeout),
            ("IWARP_LINGER_MS", &mut options.linger),
        ] {
            *field = millis(name)?.unwrap_or(*field);
        }
        if let Some(kind) = lookup("IWARP_PEER_TO_PEER") {
            let only = RtrTypes { send: false, write: false, read: false };
            (options.peer_to_peer, options.rtr) = match kind.as_str() {
                "off" => (false, options.rtr),
                "any" => (true, RtrTypes { send: true, write: true, read: true }),
                "write" => (true, RtrTypes { write: true, ..only }),
                "read" => (true, RtrTypes { read: true, ..only }),
                "send" => (true, RtrTypes { send: true, ..only }),
                _ => {
                    let expected = "off, write, read, send or any";
                    return Err(wrong("IWARP_PEER_TO_PEER", &kind, expected));
                }
            };
        }
        if let Some(value) = lookup("IWARP_EXTENSIONS") {
            options.extensions = match value.as_str() {
                "ask" => Extensions::Ask,
                "assume" => Extensions::Assume,
                "refuse" => Extensions::Refuse,
                _ => return Err(wrong("IWARP_EXTENSIONS", &value, "ask, assume or refuse")),
            };
        }
        if let Some(name) = lookup("IWARP_LOCAL_CONGESTION") {
            options.local_congestion = (name != "default").then_some(name);
        }
        Ok(options)
    }

    /// What start-up asks of the peer.
    pub(crate) fn startup(&self, ird: u16, ord: u16) -> Config {
        Config {
            rev: self.revision,
            crc: self.crc,
            markers: self.markers,
            ird,
            ord,
            peer_to_peer: self.peer_to_peer && self.revision > 1,
            rtr: self.rtr,
            timeout: self.startup_timeout,
        }
    }
}

fn wrong(variable: &'static str, value: &str, expected: &'static str) -> OptionError {
    OptionError { variable, value: value.to_owned(), expected }
}

#[cfg(test)]
mod tests {
    use super::{Extensions, OptionError, Options};

    fn from(pairs: &[(&'static str, &str)]) -> Result<Options, OptionError> {
        Options::from_lookup(|name| {
            pairs.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned())
        })
    }

    /// Covers: MPA-5044-1.2-02, MPA-5044-4.4-02, MPA-5044-4.4-03
    #[test]
    fn crc_is_on_unless_somebody_says_otherwise() {
        assert!(from(&[]).unwrap().crc);
        assert!(from(&[]).unwrap().startup(1, 1).crc);
        assert!(!from(&[("IWARP_CRC", "off")]).unwrap().crc);
    }

    #[test]
    fn variables_are_read() {
        let options = from(&[
            ("IWARP_MPA_REVISION", "1"),
            ("IWARP_MULPDU", "1442"),
            ("IWARP_PEER_TO_PEER", "read"),
            ("IWARP_EXTENSIONS", "refuse"),
            ("IWARP_LINGER_MS", "250"),
            ("IWARP_LOCAL_CONGESTION", "default"),
        ])
        .unwrap();
        assert_eq!(options.revision, 1);
        assert_eq!(options.mulpdu, Some(1442));
        assert!(options.peer_to_peer && options.rtr.read && !options.rtr.write);
        assert_eq!(options.extensions, Extensions::Refuse);
        assert_eq!(options.linger.as_millis(), 250);
        assert_eq!(options.local_congestion, None);
    }

    #[test]
    fn nonsense_is_named() {
        for (name, value) in [
            ("IWARP_CRC", "maybe"),
            ("IWARP_MPA_REVISION", "3"),
            ("IWARP_MULPDU", "127"),
            ("IWARP_LINGER_MS", "-1"),
            ("IWARP_PEER_TO_PEER", "on"),
            ("IWARP_EXTENSIONS", ""),
        ] {
            let error = from(&[(name, value)]).unwrap_err();
            assert_eq!((error.variable, error.value.as_str()), (name, value));
        }
    }
}
