// SPDX-License-Identifier: MIT OR Apache-2.0

//! A TCP connection between 10.0.0.1:40000 (end 0) and 10.0.0.2:7174 (end 1).

use super::{Stamped, frames, ip};

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;
const TCP: u8 = 6;
const PORTS: [u16; 2] = [40_000, 7174];

/// The packets so far.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    pub(crate) packets: Vec<Stamped>,
    /// The time of the next packet, in microseconds.
    pub(crate) now: u64,
    pub(crate) next: [u32; 2],
    pub(crate) window: [u16; 2],
    id: u16,
}

impl Stream {
    /// A connection after the three-way handshake.
    pub(crate) fn open() -> Self {
        let mut stream = Self::middle();
        stream.segment(0, SYN, 0, &[]);
        stream.next[0] += 1;
        stream.segment(1, SYN | ACK, 0, &[]);
        stream.next[1] += 1;
        stream.ack(0);
        stream
    }

    /// A connection whose start is not in the capture.
    pub(crate) fn middle() -> Self {
        Self { packets: Vec::new(), now: 0, next: [1000, 0xffff_f000], window: [60_000; 2], id: 1 }
    }

    /// A connection after an MPA start-up of revision 2 with CRCs and an IRD of 2.
    pub(crate) fn started() -> Self {
        Self::started_by(&frames::Terms::default())
    }

    pub(crate) fn started_by(terms: &frames::Terms) -> Self {
        let mut stream = Self::open();
        stream.send(0, &frames::request(terms));
        stream.send(1, &frames::reply(terms));
        stream
    }

    fn segment(&mut self, from: usize, flags: u8, back: u32, payload: &[u8]) {
        let mut segment = Vec::new();
        segment.extend_from_slice(&PORTS[from].to_be_bytes());
        segment.extend_from_slice(&PORTS[1 - from].to_be_bytes());
        segment.extend_from_slice(&self.next[from].wrapping_sub(back).to_be_bytes());
        let ack = if flags & ACK != 0 { self.next[1 - from] } else { 0 };
        segment.extend_from_slice(&ack.to_be_bytes());
        segment.extend_from_slice(&[5 << 4, flags]);
        segment.extend_from_slice(&self.window[from].to_be_bytes());
        segment.extend_from_slice(&[0; 4]);
        segment.extend_from_slice(payload);
        self.packets.push((self.now, ip(from, TCP, self.id, &segment)));
        self.id += 1;
        self.now += 100;
    }

    /// Sends bytes in one segment, which the other end acknowledges.
    pub(crate) fn send(&mut self, from: usize, bytes: &[u8]) {
        self.send_only(from, bytes);
        self.ack(1 - from);
    }

    /// Sends bytes without an acknowledgement.
    pub(crate) fn send_only(&mut self, from: usize, bytes: &[u8]) {
        self.segment(from, ACK, 0, bytes);
        self.next[from] = self.next[from].wrapping_add(bytes.len() as u32);
    }

    /// Sends bytes that the capture does not have.
    pub(crate) fn send_unseen(&mut self, from: usize, bytes: &[u8]) {
        self.next[from] = self.next[from].wrapping_add(bytes.len() as u32);
    }

    /// Sends the last bytes again.
    pub(crate) fn again(&mut self, from: usize, bytes: &[u8]) {
        self.segment(from, ACK, bytes.len() as u32, bytes);
    }

    pub(crate) fn ack(&mut self, from: usize) {
        self.segment(from, ACK, 0, &[]);
    }

    pub(crate) fn fin(&mut self, from: usize) {
        self.segment(from, FIN | ACK, 0, &[]);
        self.next[from] += 1;
    }

    pub(crate) fn reset(&mut self, from: usize) {
        self.segment(from, RST | ACK, 0, &[]);
    }

    /// Closes the connection in good order.
    pub(crate) fn close(&mut self) {
        self.fin(0);
        self.fin(1);
        self.ack(0);
    }

    pub(crate) fn wait(&mut self, millis: u64) {
        self.now += millis * 1000;
    }
}
