// SPDX-License-Identifier: MIT OR Apache-2.0

//! A connection whose every wait has an end, and a record of what went over it.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::transport::Transport;

/// Behind the first piece: a peer on a busy machine, too, wakes and sees that piece alone.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// Between the other pieces, so that most of them reach the peer one by one.
const PAUSE: Duration = Duration::from_micros(100);
/// From one pause of a drip to the next.
const SLOWER: f64 = 1.1;

/// The record of a connection.
#[derive(Clone, Debug)]
pub struct Record {
    /// This end.
    pub here: SocketAddr,
    /// The peer.
    pub there: SocketAddr,
    /// Set if this end connected.
    pub connected: bool,
    /// The events, in order.
    pub events: Vec<Event>,
}

/// Something that went over a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// The time since the connection was made.
    pub at: Duration,
    /// Set if this end sent it.
    pub sent: bool,
    /// The event itself.
    pub what: What,
}

/// The kinds of events.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum What {
    /// These bytes.
    Bytes(Vec<u8>),
    /// A FIN.
    Fin,
    /// A reset.
    Reset,
}

/// The result of a wait.
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
    /// Bytes that came and were not yet looked at.
    pub(crate) came: Vec<u8>,
    ended: Option<Arrival>,
    split: usize,
    /// The pause behind the first byte.
    drip: Option<Duration>,
    /// The end of this connection is to be a reset.
    pub(crate) resets: bool,
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
            drip: None,
            resets: false,
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

    /// Another connection to this peer.
    pub(crate) fn another(&self, patience: Duration) -> io::Result<Self> {
        Self::new(self.stream.another(patience)?, true)
    }

    fn note(&mut self, sent: bool, what: What) {
        let at = self.now().saturating_duration_since(self.begun);
        self.record.events.push(Event { at, sent, what });
    }

    /// Writes all that follows in pieces of that size.
    pub(crate) fn split(&mut self, size: usize) {
        self.split = size;
        self.drip = None;
    }

    /// Writes all that follows a byte at a time, slower and slower, as long as the peer listens.
    pub(crate) fn drip(&mut self, pause: Duration) {
        self.drip = Some(pause);
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
        if let Some(pause) = self.drip {
            return self.send_drops(bytes, pause);
        }
        let mut pause = FIRST_PAUSE;
        for piece in bytes.chunks(self.split) {
            if self.stream.write(piece).is_err() {
                return;
            }
            if piece.len() < bytes.len() {
                self.stream.sleep(std::mem::replace(&mut pause, PAUSE));
            }
        }
        self.note(true, What::Bytes(bytes.to_vec()));
    }

    fn send_drops(&mut self, bytes: &[u8], mut pause: Duration) {
        for &byte in bytes {
            if self.stream.write(&[byte]).is_err() {
                return;
            }
            self.note(true, What::Bytes(vec![byte]));
            let next = self.now() + pause;
            while matches!(self.wait(next), Ok(Arrival::Bytes)) {}
            if self.ended.is_some() {
                return;
            }
            pause = pause.mul_f64(SLOWER);
        }
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
        self.resets = true;
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
        let read = self.stream.read(&mut piece, left);
        self.took(&piece, read)
    }

    /// Takes what has come, and waits for nothing.
    pub(crate) fn poll(&mut self) -> io::Result<()> {
        let mut piece = [0; 16384];
        while self.ended.is_none() {
            let read = self.stream.take(&mut piece);
            if self.took(&piece, read)? != Arrival::Bytes {
                break;
            }
        }
        Ok(())
    }

    fn took(&mut self, piece: &[u8], read: io::Result<usize>) -> io::Result<Arrival> {
        let arrival = match read {
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
