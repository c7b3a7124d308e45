// SPDX-License-Identifier: MIT OR Apache-2.0

//! The options of a device, and the environment variables that set them.

use std::borrow::Cow;
use std::ops::RangeInclusive;
use std::time::Duration;

use iwarp_os::environment;
use iwarp_types::{Extensions, RtrTypes};
use thiserror::Error;

use super::devices::{self, NamedDevice};
pub use super::kinds::{LocalPath, Personality, Wire};
use super::network_faults::NetworkFaults;
use super::observe::SomeObserver;
use super::policy::Behaviours;
use super::speed::Speed;
use super::variables;
use crate::capture::Capture;
use crate::faults::{FaultRules, split};
use crate::report::LogFormat;

/// The messages that the drop-in libraries write to standard error.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Log {
    /// No messages.
    Off,
    /// Errors that make the device useless.
    Error,
    /// One line for each thing that a user must know: a peer that cannot be reached, a peer that
    /// vanished.
    #[default]
    Warn,
    /// The beginning and end of connections.
    Info,
    /// Also what the library finds out and decides by itself.
    Debug,
    /// Everything: each call of the C API with its arguments and result, each request with its end,
    /// each access to registered memory.
    Trace,
}

/// The idle connections that are probed after the given time. The library gives up a peer that does
/// not answer for as long again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum KeepAlive {
    /// None: as on InfiniBand, a program does not learn that an idle peer has vanished.
    Off,
    /// Connections that a listener has accepted: any number of peers may come, and vanish.
    Accepted(Duration),
    /// All.
    All(Duration),
}

/// Users whose processes on this host may connect to queue pairs without the connection manager,
/// besides the process's own user and root.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Users {
    /// Any user.
    Any,
    /// The users with these ids.
    Listed(Vec<u32>),
}

/// The options of a device. An environment variable `IWARP_...` sets each field, see
/// [`Options::from_env`], and so does a setter of its name:
///
/// ```
/// use iwarp::Options;
///
/// let options = Options::new().workers(2).crc(false);
/// assert_eq!((options.workers, options.crc), (2, false));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// The kind of the device.
    pub personality: Personality,
    /// The protocol of reliable connected queue pairs.
    pub wire: Wire,
    /// The way of connections within this host. Unless it is [`LocalPath::Off`] at one end, the
    /// stream of an iWARP connection between two processes of one user moves from TCP to memory
    /// that they share. What has moved is not seen on the loopback interface any more, and has no
    /// CRC. The default is [`LocalPath::Auto`].
    pub local: LocalPath,
    /// The devices that programs see; empty: one, named after its personality. Each may have the
    /// addresses of one interface only, or several ports with one each, and a kind, a protocol and
    /// a speed of its own. They share the process's threads, memory and share of UDP port 4791.
    pub devices: Vec<NamedDevice>,
    /// The speed that programs see; it limits nothing.
    pub speed: Speed,
    /// Tell peers that run this library the kind of the device, for a warning if theirs differs:
    /// programs that ask for the kind may then not understand each other.
    pub tell_personality: bool,
    /// Ask for CRC32c on the stream (RFC 5044 §4.4). Off only if neither end asks for it.
    pub crc: bool,
    /// Keep CRC32c even where the stream moves to shared memory ([`Self::local`]).
    pub demands_crc: bool,
    /// Ask the peer to put markers into its stream (RFC 5044 §4.3).
    pub markers: bool,
    /// MPA revision of the requests this end makes: 1 (RFC 5044) or 2 (RFC 6581).
    pub revision: u8,
    /// Retry with revision 1 on a new connection if a peer refuses revision 2 by closing.
    pub fall_back: bool,
    /// Ask for the peer-to-peer model of RFC 6581: the initiator sends a frame first, so that
    /// the responder may send.
    pub peer_to_peer: bool,
    /// The frames that may serve for that.
    pub rtr: RtrTypes,
    /// Use of the operations of RFC 7306: the way to find out whether the peer takes them.
    pub extensions: Extensions,
    /// Bytes of the largest ULPDU, in place of the size that fits one TCP segment. FPDUs larger
    /// than a segment are fast, but hardware peers may not expect them.
    pub mulpdu: Option<usize>,
    /// Time limit for a peer's whole start-up frame.
    pub startup_timeout: Duration,
    /// Time for which bytes may stay unacknowledged before the connection counts as lost.
    pub user_timeout: Duration,
    /// Time limit for a closed connection to send its remaining data and to see the peer close.
    pub linger: Duration,
    /// Number of connections of one listener that may be in start-up, or wait for the program's
    /// answer, at a time, unless its backlog is larger.
    pub max_pending: usize,
    /// Congestion control on connections within this host; the system's default elsewhere.
    /// Pacing algorithms halve loopback's bandwidth.
    pub local_congestion: Option<String>,
    /// The idle connections that are probed, and the time after which they are.
    pub keepalive: KeepAlive,
    /// Bytes that may wait in the system for peers that do not read, over all connections together:
    /// each connection has a share, and 64 KiB in any case.
    pub send_memory: usize,
    /// TCP ports for queue pairs that programs connect without the connection manager
    /// ([`QueuePair::connect_to`](crate::QueuePair::connect_to)), one for every 256 of them; `None`
    /// leaves the choice to the system.
    pub ports: Option<RangeInclusive<u16>>,
    /// Users on this host whose processes may connect to such queue pairs. The users of processes
    /// on other hosts, and in other network namespaces of this one, are not known.
    pub allow_users: Users,
    /// For queue pairs that speak RoCE v2, let the system cut several packets from one send
    /// (`UDP_SEGMENT`). Without it each packet takes a send, which costs several times the CPU
    /// time. A card that numbers such packets in its own way makes peers drop them over IPv4.
    pub udp_segment: bool,
    /// Refuse what RDMA cards refuse though this library could do it: a send queue full of requests
    /// without a completion stays full, until one with a completion is polled.
    pub strict: bool,
    /// Number of worker threads, which move the traffic that no caller moves. One is enough unless
    /// many peers read and write while the program computes; each completion queue belongs to one
    /// thread.
    pub workers: usize,
    /// The messages of the drop-in libraries on standard error. Rust programs subscribe to
    /// `tracing`.
    pub log: Log,
    /// Their form.
    pub log_format: LogFormat,
    /// Faults that the network has on purpose: to find out how a program bears them.
    pub faults: Option<NetworkFaults>,
    /// Faults of calls of the C API and of completions, by rule. Those of the first device that is
    /// opened with some count, for the whole process.
    pub fault_rules: Option<FaultRules>,
    /// A file that gets all packets of the process. The first device that is opened with one
    /// counts.
    pub capture: Option<Capture>,
    /// Adaptations to the program that the engine leaves out: for measurements, and to diagnose
    /// problems.
    pub without: Behaviours,
    /// Observer of all that the devices of the process do. No promise of stability.
    #[doc(hidden)]
    pub observer: Option<SomeObserver>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            personality: Personality::Iwarp,
            wire: Wire::Auto,
            local: LocalPath::Auto,
            devices: Vec::new(),
            speed: Speed::default(),
            tell_personality: false,
            crc: true,
            demands_crc: false,
            markers: false,
            revision: 2,
            fall_back: true,
            peer_to_peer: false,
            rtr: RtrTypes { send: false, write: true, read: true },
            extensions: Extensions::Ask,
            mulpdu: None,
            startup_timeout: Duration::from_secs(10),
            user_timeout: Duration::from_secs(25),
            linger: Duration::from_secs(10),
            max_pending: 1024,
            local_congestion: Some("cubic".to_owned()),
            keepalive: KeepAlive::Accepted(Duration::from_secs(300)),
            send_memory: 64 << 20,
            ports: None,
            allow_users: Users::Listed(Vec::new()),
            udp_segment: true,
            strict: false,
            workers: 1,
            log: Log::Warn,
            log_format: LogFormat::Text,
            faults: None,
            fault_rules: None,
            capture: None,
            without: Behaviours::empty(),
            observer: None,
        }
    }
}

/// An environment variable has an invalid value.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{variable}={value}: expected {expected}")]
#[non_exhaustive]
pub struct OptionError {
    /// Its name.
    pub variable: &'static str,
    /// Its value.
    pub value: String,
    /// The valid values.
    pub expected: Cow<'static, str>,
}

impl Options {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    iwarp_types::setters! {
        personality: Personality,
        wire: Wire,
        local: LocalPath,
        devices: Vec<NamedDevice>,
        speed: Speed,
        tell_personality: bool,
        crc: bool,
        demands_crc: bool,
        markers: bool,
        revision: u8,
        fall_back: bool,
        peer_to_peer: bool,
        rtr: RtrTypes,
        extensions: Extensions,
        into mulpdu: Option<usize>,
        startup_timeout: Duration,
        user_timeout: Duration,
        linger: Duration,
        max_pending: usize,
        into local_congestion: Option<String>,
        keepalive: KeepAlive,
        send_memory: usize,
        into ports: Option<RangeInclusive<u16>>,
        allow_users: Users,
        udp_segment: bool,
        strict: bool,
        workers: usize,
        into faults: Option<NetworkFaults>,
        into fault_rules: Option<FaultRules>,
        into capture: Option<Capture>,
        without: Behaviours,
        log: Log,
        log_format: LogFormat,
    }

    /// Has all that the devices of the process do told to an observer.
    #[doc(hidden)]
    #[must_use]
    pub fn observer(mut self, observer: impl Into<SomeObserver>) -> Self {
        self.observer = Some(observer.into());
        self
    }

    /// The defaults, changed by the environment:
    ///
    /// | Variable | Values | Default |
    /// |---|---|---|
    /// | `IWARP_PERSONALITY` | `iwarp`, `roce` | `iwarp`; `roce` for [programs that use the C libraries](Self::for_any_program) |
    /// | `IWARP_WIRE` | `auto`, `iwarp`, `roce` | `auto` |
    /// | `IWARP_DEVICES` | `NAME[=INTERFACE[+INTERFACE]...][:WORD]...` with commas between; words: `iwarp`, `roce`, `wire=...`, `speed=...` | `iwarp0` or `roce0` |
    /// | `IWARP_LOCAL` | `auto`, `off`, `rings`, `require`, `share` | `auto` |
    /// | `IWARP_CRC` | `on`, `off` | `on`, but not in shared memory |
    /// | `IWARP_MARKERS` | `on`, `off` | `off` |
    /// | `IWARP_MPA_REVISION` | `1`, `2` | `2` |
    /// | `IWARP_MPA_FALLBACK` | `on`, `off` | `on` |
    /// | `IWARP_PEER_TO_PEER` | `off`, `write`, `read`, `send`, `any` | `off` |
    /// | `IWARP_EXTENSIONS` | `ask`, `assume`, `refuse` | `ask` |
    /// | `IWARP_MULPDU` | 128 to 64768 bytes | one TCP segment |
    /// | `IWARP_STARTUP_TIMEOUT_MS` | milliseconds | 10000 |
    /// | `IWARP_USER_TIMEOUT_MS` | milliseconds | 25000 |
    /// | `IWARP_LINGER_MS` | milliseconds | 10000 |
    /// | `IWARP_MAX_PENDING` | connections, at least 1 | 1024 |
    /// | `IWARP_LOCAL_CONGESTION` | an algorithm, or `default` | `cubic` |
    /// | `IWARP_KEEPALIVE_S` | `off`, seconds | 300, on accepted connections |
    /// | `IWARP_SEND_MEMORY` | bytes, at least 65536 | 67108864 |
    /// | `IWARP_UDP_SEGMENT` | `on`, `off` | `on` |
    /// | `IWARP_STRICT` | `on`, `off` | `off` |
    /// | `IWARP_SPEED` | 10, 25, 40, 50, 100, 200, 400 (Gbit/s) | 100 |
    /// | `IWARP_WORKERS` | 1 to 64 threads | 1 |
    /// | `IWARP_PORTS` | `first-last`, from 1024 on | the system's choice |
    /// | `IWARP_ALLOW_USERS` | `any`, or names and ids of users: `ann,1007` | none |
    /// | `IWARP_LOG` | `off`, `error`, `warn`, `info`, `debug`, `trace`, or a `tracing` filter | `warn` |
    /// | `IWARP_LOG_FORMAT` | `text`, `json` | `text` |
    /// | `IWARP_FAULTS` | [faults of the network](NetworkFaults): `seed=7,lose=100`; [rules](FaultRules) | none |
    /// | `IWARP_CAPTURE` | [a file for all packets](Capture): `FILE[,snap=BYTES][,ring=FILESxSIZE]` | none |
    /// | `IWARP_WITHOUT` | `gather`, `awaiting`, `piggyback`, `backoff`, `arming`, `lend`, with commas between | none |
    ///
    /// A process that has more rights than the user who started it (`AT_SECURE`) ignores them.
    ///
    /// # Errors
    ///
    /// The first variable that holds something else.
    pub fn from_env() -> Result<Self, OptionError> {
        Self::default().with_env()
    }

    /// As [`Self::from_env`], with these as the defaults. The first call in a process warns of
    /// variables `IWARP_*` that are not in the table, and names the nearest one that is.
    ///
    /// # Errors
    ///
    /// As [`Options::from_env`].
    pub fn with_env(self) -> Result<Self, OptionError> {
        variables::warn_of_unknown();
        self.with_lookup(environment::variable)
    }

    /// The defaults for programs that were written for any RDMA device and perhaps tested on
    /// InfiniBand and RoCE only: those of [`Options::default`], but with [`Personality::Roce`],
    /// which the peer learns. The C libraries begin with these.
    pub fn for_any_program() -> Self {
        Self { personality: Personality::Roce, tell_personality: true, ..Self::default() }
    }

    /// As [`Options::with_env`], with other values of the variables.
    ///
    /// # Errors
    ///
    /// The first variable that holds something else.
    pub fn with_lookup(
        self,
        lookup: impl Fn(&'static str) -> Option<String>,
    ) -> Result<Self, OptionError> {
        let mut options = self;
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
        let crc = switch("IWARP_CRC")?;
        options.demands_crc |= crc == Some(true);
        options.crc = crc.unwrap_or(options.crc);
        options.markers = switch("IWARP_MARKERS")?.unwrap_or(options.markers);
        options.udp_segment = switch("IWARP_UDP_SEGMENT")?.unwrap_or(options.udp_segment);
        options.strict = switch("IWARP_STRICT")?.unwrap_or(options.strict);
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
        if let Some(value) = lookup("IWARP_PERSONALITY") {
            let personality = Personality::of_name(&value);
            options.personality =
                personality.ok_or_else(|| wrong("IWARP_PERSONALITY", &value, "iwarp or roce"))?;
        }
        if let Some(value) = lookup("IWARP_WIRE") {
            let wire = Wire::of_name(&value);
            options.wire =
                wire.ok_or_else(|| wrong("IWARP_WIRE", &value, "auto, iwarp or roce"))?;
        }
        if let Some(value) = lookup("IWARP_DEVICES") {
            let expected = "names with commas between, none twice, each alone or with an \
                            interface of this host, or one for each port with a plus between, and \
                            words after colons (iwarp or roce, wire=auto, iwarp or roce, \
                            speed=10 to 400), none twice: \
                            mlx5_0=eth0:speed=100,siw0=eth1:iwarp,mlx4_0=eth2+eth3";
            let devices = devices::parse(&value);
            options.devices = devices.ok_or_else(|| wrong("IWARP_DEVICES", &value, expected))?;
        }
        if let Some(value) = lookup("IWARP_LOCAL") {
            let local = LocalPath::of_name(&value);
            options.local = local.ok_or_else(|| {
                wrong("IWARP_LOCAL", &value, "auto, off, rings, require or share")
            })?;
        }
        if let Some(value) = lookup("IWARP_SPEED") {
            let expected = "10, 25, 40, 50, 100, 200 or 400 Gbit/s";
            let speed = value.parse().ok().and_then(Speed::of_gbit);
            options.speed = speed.ok_or_else(|| wrong("IWARP_SPEED", &value, expected))?;
        }
        if let Some(name) = lookup("IWARP_LOCAL_CONGESTION") {
            options.local_congestion = (name != "default").then_some(name);
        }
        if let Some(most) = number("IWARP_MAX_PENDING", "1 to 1000000", 1..=1_000_000)? {
            options.max_pending = most as usize;
        }
        if lookup("IWARP_KEEPALIVE_S").as_deref() == Some("off") {
            options.keepalive = KeepAlive::Off;
        } else {
            let expected = "off or 1 to 32767 seconds";
            if let Some(seconds) = number("IWARP_KEEPALIVE_S", expected, 1..=32767)? {
                options.keepalive = KeepAlive::All(Duration::from_secs(seconds));
            }
        }
        let octets = "bytes, 65536 at least";
        if let Some(octets) = number("IWARP_SEND_MEMORY", octets, 65_536..=1 << 40)? {
            options.send_memory = usize::try_from(octets).unwrap_or(usize::MAX);
        }
        if let Some(threads) = number("IWARP_WORKERS", "1 to 64", 1..=64)? {
            options.workers = threads as usize;
        }
        if let Some(value) = lookup("IWARP_PORTS") {
            let ports = port_range(&value);
            let expected = "first-last, both from 1024 to 65535";
            options.ports = Some(ports.ok_or_else(|| wrong("IWARP_PORTS", &value, expected))?);
        }
        if let Some(value) = lookup("IWARP_ALLOW_USERS") {
            let expected = "any, or names and ids of users with commas between";
            let users = users(&value);
            options.allow_users =
                users.ok_or_else(|| wrong("IWARP_ALLOW_USERS", &value, expected))?;
        }
        if let Some(value) = lookup("IWARP_LOG") {
            let expected = "off, error, warn, info, debug or trace";
            options.log = log(&value).ok_or_else(|| wrong("IWARP_LOG", &value, expected))?;
        }
        if let Some(value) = lookup("IWARP_LOG_FORMAT") {
            options.log_format = match &*value {
                "text" => LogFormat::Text,
                "json" => LogFormat::Json,
                _ => return Err(wrong("IWARP_LOG_FORMAT", &value, "text or json")),
            };
        }
        if let Some(value) = lookup("IWARP_FAULTS") {
            let wrong = |expected: String| OptionError {
                variable: "IWARP_FAULTS",
                value: value.clone(),
                expected: expected.into(),
            };
            let (network, rules) = split(&value).map_err(|error| wrong(error.to_string()))?;
            if !network.is_empty() || !rules.has_some() {
                let expected = |_| wrong(NetworkFaults::EXPECTED.to_owned());
                options.faults = Some(network.parse().map_err(expected)?);
            }
            options.fault_rules = rules.has_some().then_some(rules);
        }
        if let Some(value) = lookup("IWARP_CAPTURE") {
            let capture = value.parse();
            let wrong = |_| wrong("IWARP_CAPTURE", &value, Capture::EXPECTED);
            options.capture = Some(capture.map_err(wrong)?);
        }
        if let Some(value) = lookup("IWARP_WITHOUT") {
            let expected = "any of gather, awaiting, piggyback, backoff, arming, lend, with commas \
                            between";
            let without = Behaviours::parse(&value);
            options.without = without.ok_or_else(|| wrong("IWARP_WITHOUT", &value, expected))?;
        }
        Ok(options)
    }

    /// The protocol of reliable connected queue pairs that are connected without the connection
    /// manager.
    pub(crate) fn spoken(&self) -> Wire {
        match self.personality {
            Personality::Iwarp => Wire::Iwarp,
            Personality::Roce => self.wire,
        }
    }

    /// The devices that programs see, at least one.
    pub fn visible_devices(&self) -> Vec<NamedDevice> {
        if !self.devices.is_empty() {
            return self.devices.clone();
        }
        let name = match self.personality {
            Personality::Iwarp => "iwarp0",
            Personality::Roce => "roce0",
        };
        vec![NamedDevice::new(name)]
    }

    /// These options as one of the devices has them: with its own personality, wire and speed,
    /// where it has some.
    #[must_use]
    pub fn for_device(&self, device: &NamedDevice) -> Self {
        Self {
            personality: device.personality.unwrap_or(self.personality),
            wire: device.wire.unwrap_or(self.wire),
            speed: device.speed.unwrap_or(self.speed),
            ..self.clone()
        }
    }
}

/// One level, or what `tracing` takes for a filter (`warn,iwarp::cm=debug`): its most talkative.
/// The trace of calls and accesses has to be asked for by itself: a filter that names a part of the
/// library has the level below instead.
pub(super) fn log(text: &str) -> Option<Log> {
    let level = |directive: &str| {
        Some(match directive.rsplit('=').next()?.trim() {
            "trace" if directive.contains('=') => Log::Debug,
            "off" => Log::Off,
            "error" => Log::Error,
            "warn" => Log::Warn,
            "info" => Log::Info,
            "debug" => Log::Debug,
            "trace" => Log::Trace,
            _ => return None,
        })
    };
    let levels: Option<Vec<_>> = text.split(',').map(level).collect();
    levels?.into_iter().max()
}

/// `first-last`, or one port.
fn port_range(text: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    (first >= LOWEST_PORT && first <= last).then_some(first..=last)
}

fn users(text: &str) -> Option<Users> {
    if text == "any" {
        return Some(Users::Any);
    }
    let id = |word: &str| word.parse().ok().or_else(|| iwarp_os::owner::user_id(word));
    let ids: Option<_> = text.split(',').map(|word| id(word.trim())).collect();
    ids.map(Users::Listed)
}

/// Ports below need privileges.
const LOWEST_PORT: u16 = 1024;

fn wrong(variable: &'static str, value: &str, expected: &'static str) -> OptionError {
    OptionError { variable, value: value.to_owned(), expected: expected.into() }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{
        Behaviours, Capture, Extensions, KeepAlive, Log, LogFormat, NetworkFaults, OptionError,
        Options, Personality, Users, Wire,
    };

    fn from(pairs: &[(&'static str, &str)]) -> Result<Options, OptionError> {
        Options::default().with_lookup(|name| {
            pairs.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned())
        })
    }

    /// Covers: MPA-5044-1.2-02, MPA-5044-4.4-02, MPA-5044-4.4-03
    #[test]
    fn crc_is_on_unless_somebody_says_otherwise() {
        assert!(from(&[]).unwrap().crc);
        assert!(!from(&[("IWARP_CRC", "off")]).unwrap().crc);
    }

    #[test]
    fn programs_written_for_any_device_find_one_like_roce_unless_somebody_says_otherwise() {
        let of = |value: Option<&str>| {
            let lookup = |name| value.filter(|_| name == "IWARP_PERSONALITY").map(str::to_owned);
            Options::for_any_program().with_lookup(lookup).unwrap().personality
        };
        assert_eq!(of(None), Personality::Roce);
        assert_eq!(of(Some("iwarp")), Personality::Iwarp);
        assert_eq!(from(&[]).unwrap().personality, Personality::Iwarp);
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
            ("IWARP_PERSONALITY", "roce"),
            ("IWARP_WIRE", "roce"),
            ("IWARP_DEVICES", "mlx5_0,mlx5_1=lo"),
            ("IWARP_KEEPALIVE_S", "60"),
            ("IWARP_SEND_MEMORY", "1048576"),
            ("IWARP_PORTS", "20000-20003"),
            ("IWARP_ALLOW_USERS", "1007, root"),
            ("IWARP_MAX_PENDING", "7"),
            ("IWARP_UDP_SEGMENT", "off"),
            ("IWARP_STRICT", "on"),
            ("IWARP_SPEED", "400"),
            ("IWARP_WORKERS", "3"),
            ("IWARP_LOG", "off"),
            ("IWARP_LOG_FORMAT", "json"),
            ("IWARP_FAULTS", "seed=7,lose=100"),
            ("IWARP_CAPTURE", "x,snap=128"),
            ("IWARP_WITHOUT", "gather,lend"),
        ])
        .unwrap();
        assert_eq!(options.personality, Personality::Roce);
        assert_eq!((options.wire, Options::default().wire), (Wire::Roce, Wire::Auto));
        assert_eq!(options.clone().personality(Personality::Iwarp).spoken(), Wire::Iwarp);
        assert_eq!(options.keepalive, KeepAlive::All(Duration::from_secs(60)));
        assert_eq!(options.send_memory, 1 << 20);
        assert_eq!(options.ports, Some(20000..=20003));
        assert_eq!(options.allow_users, Users::Listed(vec![1007, 0]));
        let any = from(&[("IWARP_ALLOW_USERS", "any")]).unwrap().allow_users;
        assert_eq!(any, Users::Any);
        let devices: Vec<_> = options.devices.iter().map(|device| device.name.as_str()).collect();
        assert_eq!(devices, ["mlx5_0", "mlx5_1"]);
        assert_eq!(options.max_pending, 7);
        assert_eq!(options.workers, 3);
        assert!(!options.udp_segment && Options::default().udp_segment);
        assert!(options.strict && !Options::default().strict);
        assert_eq!(options.log, Log::Off);
        assert_eq!((options.log_format, LogFormat::default()), (LogFormat::Json, LogFormat::Text));
        let faults = NetworkFaults { seed: 7, lose: 100, ..NetworkFaults::default() };
        assert_eq!(options.faults, Some(faults));
        assert_eq!(options.capture, Some(Capture::to("x").snap(128)));
        assert_eq!(options.without, Behaviours::GATHER | Behaviours::LEND);
        assert_eq!(options.revision, 1);
        assert_eq!(options.mulpdu, Some(1442));
        assert!(options.peer_to_peer && options.rtr.read && !options.rtr.write);
        assert_eq!(options.extensions, Extensions::Refuse);
        assert_eq!(options.linger.as_millis(), 250);
        assert_eq!(options.local_congestion, None);
    }

    #[test]
    fn accepted_connections_are_probed_unless_that_is_switched_off() {
        let accepted = KeepAlive::Accepted(Duration::from_secs(300));
        assert_eq!(from(&[]).unwrap().keepalive, accepted);
        assert_eq!(from(&[("IWARP_KEEPALIVE_S", "off")]).unwrap().keepalive, KeepAlive::Off);
    }

    #[test]
    fn a_filter_is_a_level_too() {
        let level = |text| from(&[("IWARP_LOG", text)]).map(|options| options.log);
        assert_eq!(level("iwarp::cm=debug,warn"), Ok(Log::Debug));
        assert_eq!(level("warn,iwarp::cm=trace"), Ok(Log::Debug));
        assert_eq!(level("off,iwarp=error"), Ok(Log::Error));
        assert_eq!(level("trace"), Ok(Log::Trace));
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
            ("IWARP_PERSONALITY", "infiniband"),
            ("IWARP_WIRE", "tcp"),
            ("IWARP_DEVICES", "mlx5_0,mlx5_0"),
            ("IWARP_DEVICES", "mlx5_0=no such interface"),
            ("IWARP_DEVICES", "mlx5_0=lo:infiniband"),
            ("IWARP_DEVICES", "mlx5_0=lo+lo"),
            ("IWARP_KEEPALIVE_S", "0"),
            ("IWARP_SEND_MEMORY", "65535"),
            ("IWARP_PORTS", "1023-1030"),
            ("IWARP_PORTS", "20003-20000"),
            ("IWARP_PORTS", "20000-"),
            ("IWARP_ALLOW_USERS", "root,no such user"),
            ("IWARP_ALLOW_USERS", ""),
            ("IWARP_MAX_PENDING", "0"),
            ("IWARP_UDP_SEGMENT", "64"),
            ("IWARP_SPEED", "56"),
            ("IWARP_SPEED", "fast"),
            ("IWARP_WORKERS", "65"),
            ("IWARP_LOG", "loud"),
            ("IWARP_LOG_FORMAT", "yaml"),
            ("IWARP_FAULTS", "loss=1"),
            ("IWARP_CAPTURE", "x,snap=1"),
            ("IWARP_WITHOUT", "gather,loans"),
        ] {
            let error = from(&[(name, value)]).unwrap_err();
            assert_eq!((error.variable, error.value.as_str()), (name, value));
        }
    }

    /// The variables that have a row in a document's table.
    fn documented(text: &str) -> Vec<&str> {
        let lines = text.lines().map(|line| line.trim().trim_start_matches("///").trim());
        let names = lines.filter_map(|line| line.strip_prefix("| `")?.split('`').next());
        names.filter(|name| name.starts_with("IWARP_")).collect()
    }

    #[test]
    fn the_variables_that_are_read_are_documented() {
        let read = std::cell::RefCell::new(Vec::new());
        Options::default()
            .with_lookup(|name| {
                let mut read = read.borrow_mut();
                if !read.contains(&name) {
                    read.push(name);
                }
                None
            })
            .unwrap();
        let mut read = read.into_inner();
        read.sort_unstable();
        assert_eq!(super::variables::READ[..], read);
        for document in
            [include_str!("options.rs"), include_str!("../../../../docs/configuration.md")]
        {
            let mut rows = documented(document);
            rows.sort_unstable();
            assert_eq!(rows, read);
        }
    }
}
