// SPDX-License-Identifier: MIT OR Apache-2.0

//! A TCP connection whose every wait has an end, and a record of what went over it.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use socket2::SockRef;

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
    stream: TcpStream,
    begun: Instant,
    /// Came, and not yet looked at.
    pub(crate) came: Vec<u8>,
    ended: Option<Arrival>,
    split: usize,
    held: Option<Vec<u8>>,
    pub(crate) record: Record,
}

impl Link {
    pub(crate) fn new(stream: TcpStream, connected: bool, patience: Duration) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(patience))?;
        let (here, there) = (stream.local_addr()?, stream.peer_addr()?);
        let record = Record { here, there, connected, events: Vec::new() };
        Ok(Self {
            stream,
            begun: Instant::now(),
            came: Vec::new(),
            ended: None,
            split: usize::MAX,
            held: None,
            record,
        })
    }

    fn note(&mut self, sent: bool, what: What) {
        let at = self.begun.elapsed();
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
            if self.stream.write_all(piece).is_err() {
                return;
            }
            if piece.len() < bytes.len() {
                std::thread::sleep(PAUSE);
            }
        }
        self.note(true, What::Bytes(bytes.to_vec()));
    }

    /// Closes this end's half.
    pub(crate) fn close(&mut self) {
        // Fails where the connection is gone already.
        let _ = self.stream.shutdown(Shutdown::Write);
        self.note(true, What::Fin);
    }

    /// Makes the end of this connection a reset.
    pub(crate) fn reset(&mut self) -> io::Result<()> {
        SockRef::from(&self.stream).set_linger(Some(Duration::ZERO))?;
        self.note(true, What::Reset);
        Ok(())
    }

    /// Waits until something comes.
    pub(crate) fn wait(&mut self, deadline: Instant) -> io::Result<Arrival> {
        if let Some(ended) = self.ended {
            return Ok(ended);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(Arrival::Nothing);
        }
        self.stream.set_read_timeout(Some(left))?;
        let mut piece = [0; 16384];
        let arrival = match self.stream.read(&mut piece) {
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
