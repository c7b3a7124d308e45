// SPDX-License-Identifier: MIT OR Apache-2.0

//! A connection whose every wait has an end, and a record of what went over it.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::transport::Transport;

/// Between pieces, so that most of them reach the peer one by one.
const PAUSE: Duration = Duration::from_micros(100);

/// What went over a connection.
#[derive(Clone, Debug)]
pub struct Record {
    /// This end.
    pub here: SocketAddr,
    /// The peer.
    pub there: SocketAddr,
    /// Whether this end connected.
    pub connected: bool,
    /// What happened, in order.
    pub events: Vec<Event>,
}

/// Something that went over a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// Since the connection was made.
    pub at: Duration,
    /// Whether this end sent it.
    pub sent: bool,
    /// What.
    pub what: What,
}

/// What went over a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum What {
    /// These bytes.
    Bytes(Vec<u8>),
    /// A FIN.
    Fin,
    /// A reset.
    Reset,
}

/// What a wait brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Arrival {
    Bytes,
    Fin,
    Reset,
    Nothing,
}

/// The connection.
#[derive(Debug)]
pub(crate) struct Link {
    stream: Box<dyn Transport>,
    begun: Instant,
    /// Came, and not yet looked at.
    pub(crate) came: Vec<u8>,
    ended: Option<Arrival>,
    split: usize,
    held: Option<Vec<u8>>,
    pub(crate) record: Record,
}

impl Link {
    pub(crate) fn new(stream: Box<dyn Transport>, connected: bool) -> io::Result<Self> {
        let (here, there) = stream.ends()?;
        let record = Record { here, there, connected, events: Vec::new() };
        Ok(Self {
            begun: stream.now(),
            stream,
            came: Vec::new(),
            ended: None,
            split: usize::MAX,
            held: None,
            record,
        })
    }

    /// The time, by which deadlines are set.
    pub(crate) fn now(&self) -> Instant {
        self.stream.now()
    }

    /// Lets time pass.
    pub(crate) fn sleep(&mut self, time: Duration) {
        self.stream.sleep(time);
    }

    fn note(&mut self, sent: bool, what: What) {
        let at = self.now().saturating_duration_since(self.begun);
        self.record.events.push(Event { at, sent, what });
    }

    /// Writes what follows in pieces of that size.
    pub(crate) fn split(&mut self, size: usize) {
        self.split = size;
    }

    /// Keeps what is sent from now on.
    pub(crate) fn hold(&mut self) {
        self.held.get_or_insert_default();
    }

    /// Sends what was kept.
    pub(crate) fn flush(&mut self) {
        if let Some(bytes) = self.held.take() {
            self.send(&bytes);
        }
    }

    /// Sends bytes. A peer that takes none any more is found out by what is received.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        if let Some(held) = &mut self.held {
            held.extend(bytes);
            return;
        }
        for piece in bytes.chunks(self.split) {
            if self.stream.write(piece).is_err() {
                return;
            }
            if piece.len() < bytes.len() {
                self.stream.sleep(PAUSE);
            }
        }
        self.note(true, What::Bytes(bytes.to_vec()));
    }

    /// Closes this end's half.
    pub(crate) fn close(&mut self) {
        self.stream.close();
        self.note(true, What::Fin);
    }

    /// Makes the end of this connection a reset.
    pub(crate) fn reset(&mut self) -> io::Result<()> {
        self.stream.reset()?;
        self.note(true, What::Reset);
        Ok(())
    }

    /// Waits until something comes.
    pub(crate) fn wait(&mut self, deadline: Instant) -> io::Result<Arrival> {
        if let Some(ended) = self.ended {
            return Ok(ended);
        }
        let left = deadline.saturating_duration_since(self.now());
        if left.is_zero() {
            return Ok(Arrival::Nothing);
        }
        let mut piece = [0; 16384];
        let arrival = match self.stream.read(&mut piece, left) {
            Ok(0) => Arrival::Fin,
            Ok(len) => {
                self.came.extend(&piece[..len]);
                self.note(false, What::Bytes(piece[..len].to_vec()));
                return Ok(Arrival::Bytes);
            }
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut => return Ok(Arrival::Nothing),
                ErrorKind::Interrupted => return Ok(Arrival::Bytes),
                ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => Arrival::Reset,
                _ => return Err(error),
            },
        };
        self.ended = Some(arrival);
        self.note(false, if arrival == Arrival::Fin { What::Fin } else { What::Reset });
        Ok(arrival)
    }
}
