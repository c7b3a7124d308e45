// SPDX-License-Identifier: MIT OR Apache-2.0

//! The kinds of devices that programs know, and the protocols that a device may speak.

use std::fmt;

/// The kind of a device, and the meaning of its completions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Personality {
    /// Like an RNIC: a Send or Write completes when the reliable transport has accepted it, and a
    /// Send that finds no receive ends the stream.
    #[default]
    Iwarp,
    /// Like a RoCE v2 device, for programs that refuse an RNIC or take a completion to mean "placed
    /// at the peer": a completion means that here, and a Send that finds no receive waits.
    Roce,
}

impl Personality {
    /// The one of this name, as users write it.
    pub(super) fn of_name(name: &str) -> Option<Self> {
        match name {
            "iwarp" => Some(Self::Iwarp),
            "roce" => Some(Self::Roce),
            _ => None,
        }
    }

    /// Linux's name for the GID type of such a device (`gid_attrs/types` in sysfs).
    pub const fn gid_type(self) -> &'static str {
        match self {
            Self::Iwarp => "IB/RoCE v1",
            Self::Roce => "RoCE v2",
        }
    }
}

/// The protocol of a reliable connected queue pair on a device with [`Personality::Roce`]. With the
/// other personality it is always iWARP.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Wire {
    /// iWARP over TCP to peers that run this library, RoCE v2 to all others: each queue pair finds
    /// out the kind of its peer.
    #[default]
    Auto,
    /// iWARP over TCP.
    Iwarp,
    /// RoCE v2: packets over UDP.
    Roce,
}

impl Wire {
    /// The one of this name, as users write it.
    pub(super) fn of_name(name: &str) -> Option<Self> {
        match name {
            "auto" => Some(Self::Auto),
            "iwarp" => Some(Self::Iwarp),
            "roce" => Some(Self::Roce),
            _ => None,
        }
    }
}

/// The way of a connection whose two ends are on one host.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum LocalPath {
    /// The best one that both ends allow. A connection has [`Off`](Self::Off) or
    /// [`Rings`](Self::Rings). Besides, where the system lets each process read the other's memory,
    /// an end carries out Reads by itself, and Writes and Atomics in memory of the other's
    /// [`Buffer`](iwarp_mem::Buffer)s.
    #[default]
    Auto,
    /// TCP, as to any other host.
    Off,
    /// Rings in memory that the two processes share, once the ends have found each other: see
    /// [`Options::local`](crate::Options::local).
    Rings,
    /// As [`Auto`](Self::Auto), and a connection within the host that keeps to TCP ends in an
    /// error: a line of the log says what is missing. Until that is known, for 5 seconds at most,
    /// its messages go by TCP. Connections to other hosts go by TCP.
    Require,
    /// As [`Auto`](Self::Auto), and a process of this user that says so too maps the memory of
    /// [`Buffer`](iwarp_mem::Buffer)s also where the system lets it not read this one's: in another
    /// container of a pod, say. It could then write to any of that memory.
    Share,
}

impl LocalPath {
    /// True if processes access each other's memory by themselves, where they may.
    pub(crate) const fn reaches_memory(self) -> bool {
        matches!(self, Self::Auto | Self::Require | Self::Share)
    }

    /// The one of this name, as users write it.
    pub(super) fn of_name(name: &str) -> Option<Self> {
        match name {
            "auto" => Some(Self::Auto),
            "off" => Some(Self::Off),
            "rings" => Some(Self::Rings),
            "require" => Some(Self::Require),
            "share" => Some(Self::Share),
            _ => None,
        }
    }
}

/// As users write it.
impl fmt::Display for LocalPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Off => "off",
            Self::Rings => "rings",
            Self::Require => "require",
            Self::Share => "share",
        })
    }
}
