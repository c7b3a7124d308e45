// SPDX-License-Identifier: MIT OR Apache-2.0

//! The facts of a capture. Times are in nanoseconds from its first packet on.

use std::time::Duration;

use serde::{Serialize, Serializer};

use crate::findings::Finding;
use crate::verdict::Verdict;

/// The facts of a capture.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// Packets in the file.
    pub packets: u64,
    /// The time from the first packet to the last.
    #[serde(rename = "duration_ns", serialize_with = "nanos")]
    pub duration: Duration,
    /// Packets that a snap length has cut.
    pub cut_packets: u64,
    /// Text about damage that ended the reading early.
    pub damage: Option<String>,
    /// Packets that belong to no connection below.
    pub other: Other,
    /// The connections, in the order of their first packets.
    pub connections: Vec<Connection>,
}

/// Packets that are not explained, by the reason.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Other {
    /// TCP connections without iWARP.
    pub tcp_connections: u64,
    /// TCP connections that began before the capture and in which no FPDU could be made out.
    pub tcp_unknown: Vec<String>,
    /// Packets of other protocols.
    pub packets: u64,
    /// Fragments of IP packets.
    pub fragments: u64,
    /// Packets of RoCE v1, which is not explained.
    pub roce_v1: u64,
    /// Packets of link layers that are not known.
    pub unknown_links: u64,
    /// Packets that were captured twice.
    pub doubled: u64,
    /// Messages of the connection manager that belong to no set-up that was seen: service look-ups
    /// (SIDR), or the rest of a connection that began before the capture.
    pub cm_messages: u64,
    /// Datagrams to port 4791 that are no packets of RoCE v2.
    pub strange_datagrams: u64,
}

/// A connection, or the packets between two queue pairs.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Connection {
    /// Its number, from 1 on.
    pub number: usize,
    /// `iWARP`, or `RoCE v2 RC` and the like.
    pub protocol: &'static str,
    /// The two ends.
    pub ends: [End; 2],
    /// Its packets.
    pub packets: u64,
    /// The number of its first packet.
    pub first_packet: u64,
    /// The time of its first packet.
    #[serde(rename = "begin_ns", serialize_with = "nanos")]
    pub begin: Duration,
    /// The time of its last packet.
    #[serde(rename = "end_ns", serialize_with = "nanos")]
    pub end: Duration,
    /// The terms on which it was set up.
    #[serde(serialize_with = "facts")]
    pub terms: Vec<Fact>,
    /// The messages of each kind and end.
    pub operations: Vec<Operation>,
    /// Durations.
    pub times: Vec<Times>,
    /// Facts about the transport below: TCP, or packets and acknowledgements.
    #[serde(serialize_with = "facts")]
    pub transport: Vec<Fact>,
    /// Faults, troubles and remarks, in the order of time.
    pub findings: Vec<Finding>,
    /// The frames, if the caller asked for them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub frames: Vec<Frame>,
    /// Its operations and waits in time, for a picture.
    #[serde(skip)]
    pub spans: Vec<Span>,
    /// Operations that the picture leaves out because there are too many.
    #[serde(skip)]
    pub spans_left_out: u64,
    /// The one line that counts.
    pub verdict: Verdict,
}

/// An end of a connection.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct End {
    /// `initiator` or `responder`, or `end A` and `end B` where the capture does not tell.
    pub role: &'static str,
    /// Address and port, or address and queue pair.
    pub address: String,
}

/// A fact with a name for programs and a text for people.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Fact {
    /// Its name.
    pub key: &'static str,
    /// Its value.
    pub value: Value,
    /// The text.
    pub text: String,
}

impl Fact {
    pub(crate) fn new(key: &'static str, value: impl Into<Value>, text: impl Into<String>) -> Self {
        Self { key, value: value.into(), text: text.into() }
    }
}

/// The value of a fact.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum Value {
    /// Yes or no.
    Flag(bool),
    /// A number.
    Number(u64),
    /// A text.
    Text(String),
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

/// The messages of one kind that one end sent.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Operation {
    /// The end that sent them: 0 or 1.
    pub by: usize,
    /// Their kind, by its name in the RFCs or in the InfiniBand specification.
    pub kind: String,
    /// Their number.
    pub messages: u64,
    /// The frames that they took.
    pub frames: u64,
    /// Their payload.
    pub bytes: u64,
    /// The payload of the smallest.
    pub smallest: u64,
    /// The payload of the largest.
    pub largest: u64,
}

/// Durations of one kind.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Times {
    /// A name.
    pub key: &'static str,
    /// The text: from which event to which.
    pub what: String,
    /// Their number.
    pub count: u64,
    /// The shortest.
    #[serde(rename = "shortest_ns", serialize_with = "nanos")]
    pub shortest: Duration,
    /// The median.
    #[serde(rename = "median_ns", serialize_with = "nanos")]
    pub median: Duration,
    /// The longest.
    #[serde(rename = "longest_ns", serialize_with = "nanos")]
    pub longest: Duration,
}

/// A frame in one line.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Frame {
    /// The packet that ends it.
    pub packet: u64,
    /// The time of that packet.
    #[serde(rename = "at_ns", serialize_with = "nanos")]
    pub at: Duration,
    /// The end that sent it: 0 or 1.
    pub by: usize,
    /// Its kind and fields.
    pub text: String,
}

/// The kind of a span.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SpanKind {
    /// Set-up or end of the connection.
    Control,
    /// A message that needs no answer.
    Message,
    /// A Read or an Atomic, from its request to its answer.
    Read,
    /// An acknowledgement that refuses, or a Terminate.
    Refusal,
    /// A wait.
    Stall,
}

/// A part of the time of a connection.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Span {
    /// Its begin.
    pub from: Duration,
    /// Its end.
    pub to: Duration,
    /// The end that began it: 0 or 1.
    pub by: usize,
    /// Its kind.
    pub kind: SpanKind,
    /// A text.
    pub text: String,
}

/// A duration as nanoseconds.
pub(crate) fn nanos<S: Serializer>(duration: &Duration, out: S) -> Result<S::Ok, S::Error> {
    out.serialize_u64(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}

fn facts<S: Serializer>(facts: &[Fact], out: S) -> Result<S::Ok, S::Error> {
    out.collect_map(facts.iter().map(|fact| (fact.key, &fact.value)))
}
