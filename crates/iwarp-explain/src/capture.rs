// SPDX-License-Identifier: MIT OR Apache-2.0

//! Each packet to the connection that it belongs to.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use crate::Settings;
use crate::doubles::Doubles;
use crate::file::Captured;
use crate::findings::Moment;
use crate::ip;
use crate::link::{self, Content};
use crate::report::{Connection, Fact, Other, Report};
use crate::roce::{self, Roce};
use crate::tcp::{self, NoReport};

/// The state of the reading.
#[derive(Debug)]
pub(crate) struct Capture {
    settings: Settings,
    origin: Option<Duration>,
    last: Duration,
    packets: u64,
    cut: u64,
    other: Other,
    /// The current connection between two ends, the smaller address first. Processes that capture
    /// themselves see each a connection of their own: of two ends of one, each says when *it* has
    /// sent and taken something.
    current: HashMap<(Option<u32>, [SocketAddr; 2]), Open>,
    finished: Vec<Connection>,
    roce: Roce,
    doubles: Doubles,
}

/// A TCP connection, and the end that it calls 0.
#[derive(Debug)]
struct Open {
    process: Option<u32>,
    first: SocketAddr,
    connection: tcp::Connection,
}

impl Capture {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            settings,
            origin: None,
            last: Duration::ZERO,
            packets: 0,
            cut: 0,
            other: Other::default(),
            current: HashMap::new(),
            finished: Vec::new(),
            roce: Roce::new(settings),
            doubles: Doubles::default(),
        }
    }

    /// Takes a packet.
    pub(crate) fn packet(&mut self, captured: &Captured<'_>) {
        self.packets += 1;
        self.cut += u64::from(captured.data.len() < captured.length);
        let origin = *self.origin.get_or_insert(captured.at);
        // Clocks step back, and several interfaces are not in order.
        let at = captured.at.saturating_sub(origin).max(self.last);
        self.last = at;
        let when = Moment { at, packet: captured.number };
        let from = match link::content(captured.link, captured.data) {
            Content::Ip(from) => from,
            Content::RoceV1 => return self.other.roce_v1 += 1,
            Content::Other => return self.other.packets += 1,
            Content::UnknownLink => return self.other.unknown_links += 1,
        };
        let data = captured.data.get(from..).unwrap_or_default();
        let Some(packet) = ip::parse(data, captured.length.saturating_sub(from)) else {
            return self.other.packets += 1;
        };
        if packet.fragment {
            return self.other.fragments += 1;
        }
        let process = captured.process;
        let is_own = process.is_some() && packet.protocol == ip::TCP;
        if !is_own && self.doubles.is_second(&packet, data, at) {
            return self.other.doubled += 1;
        }
        match packet.protocol {
            ip::TCP => self.tcp(&packet, process, when),
            ip::UDP => self.udp(&packet, when),
            _ => self.other.packets += 1,
        }
    }

    fn tcp(&mut self, packet: &ip::Packet<'_>, process: Option<u32>, when: Moment) {
        let Some(segment) = tcp::parse(packet.payload, packet.length) else {
            return self.other.packets += 1;
        };
        let source = SocketAddr::new(packet.source, segment.source_port);
        let destination = SocketAddr::new(packet.destination, segment.destination_port);
        let ends =
            if source <= destination { [source, destination] } else { [destination, source] };
        let key = (process, ends);
        let opens = segment.syn && segment.ack.is_none();
        let over = self.current.get(&key).is_some_and(|open| open.connection.is_over());
        if opens
            && over
            && let Some(open) = self.current.remove(&key)
        {
            self.finish_tcp(open);
        }
        let settings = self.settings;
        let open = self.current.entry(key).or_insert_with(|| Open {
            process,
            first: source,
            connection: tcp::Connection::new([source, destination], when, settings),
        });
        let from = usize::from(open.first != source);
        open.connection.segment(from, &segment, when);
    }

    fn udp(&mut self, packet: &ip::Packet<'_>, when: Moment) {
        const HEADER: usize = 8;
        let Some(header) = packet.payload.first_chunk::<HEADER>() else {
            return self.other.packets += 1;
        };
        let half = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        if half(2) != roce::PORT {
            return self.other.packets += 1;
        }
        let claimed = usize::from(half(4));
        let total = if claimed == 0 { packet.length } else { claimed.min(packet.length) };
        let Some(length) = total.checked_sub(HEADER) else {
            return self.other.packets += 1;
        };
        let kept = packet.payload.get(HEADER..packet.payload.len().min(total)).unwrap_or_default();
        self.roce.datagram(packet, half(0), kept, length, when);
    }

    fn finish_tcp(&mut self, open: Open) {
        match open.connection.finish() {
            Ok(mut connection) => {
                if let Some(process) = open.process {
                    let text = format!("as process {process} has captured it");
                    connection.transport.push(Fact::new("process", u64::from(process), text));
                }
                self.finished.push(connection);
            }
            Err(NoReport::Foreign) => self.other.tcp_connections += 1,
            Err(NoReport::Unknown(ends)) => self.other.tcp_unknown.push(ends),
        }
    }

    /// Ends the reading.
    pub(crate) fn finish(mut self, damage: Option<String>) -> Report {
        let open: Vec<Open> = self.current.drain().map(|(_, open)| open).collect();
        for open in open {
            self.finish_tcp(open);
        }
        let (datagrams, [strange, messages]) = self.roce.finish();
        self.other.strange_datagrams = strange;
        self.other.cm_messages = messages;
        self.other.tcp_unknown.sort();
        let mut connections = self.finished;
        connections.extend(datagrams);
        connections.sort_by_key(|connection| connection.first_packet);
        for (index, connection) in connections.iter_mut().enumerate() {
            connection.number = index + 1;
        }
        Report {
            packets: self.packets,
            duration: self.last,
            cut_packets: self.cut,
            damage,
            other: self.other,
            connections,
        }
    }
}
