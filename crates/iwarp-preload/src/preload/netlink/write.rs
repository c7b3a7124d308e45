// SPDX-License-Identifier: MIT OR Apache-2.0

//! Datagrams, messages and attributes.

use core::net::{IpAddr, SocketAddr};

use super::numbers::{AF_INET, AF_INET6, NLA_F_NESTED, NLA_HDRLEN, NLMSG_HDRLEN};
use super::read::aligned;

/// Octets of the longest datagram. Programs have room for a page (libmnl: 4096 octets at least).
pub const DATAGRAM: usize = 3776;

/// Octets of `struct sockaddr_storage`.
const STORAGE: usize = 128;

/// The start of something whose length is known at its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark(usize);

/// A datagram in the making. Anything that does not fit is left out, and [`Self::is_full`] tells.
#[derive(Debug)]
pub(super) struct Datagram {
    octets: [u8; DATAGRAM],
    length: usize,
    full: bool,
}

impl Datagram {
    pub(super) const fn new() -> Self {
        Self { octets: [0; DATAGRAM], length: 0, full: false }
    }

    /// All of it, if there is any.
    pub(super) fn written(&self) -> Option<&[u8]> {
        self.octets.get(..self.length).filter(|octets| !octets.is_empty())
    }

    pub(super) const fn is_full(&self) -> bool {
        self.full
    }

    pub(super) fn clear(&mut self) {
        self.length = 0;
        self.full = false;
    }

    /// Takes back what was written since.
    pub(super) fn cut(&mut self, mark: Mark) {
        self.length = mark.0;
        self.full = false;
    }

    /// Begins a message to the port `port`.
    pub(super) fn begin(&mut self, kind: u16, flags: u16, sequence: u32, port: u32) -> Mark {
        let mark = Mark(self.length);
        self.octets(&[0; 4]);
        self.octets(&kind.to_ne_bytes());
        self.octets(&flags.to_ne_bytes());
        self.octets(&sequence.to_ne_bytes());
        self.octets(&port.to_ne_bytes());
        mark
    }

    /// Ends the message, whose header then says how long it is.
    pub(super) fn end(&mut self, mark: Mark) {
        let length = self.length.wrapping_sub(mark.0) as u32;
        self.patch(mark, &length.to_ne_bytes());
    }

    pub(super) fn u8(&mut self, kind: u16, value: u8) {
        self.attribute(kind, &[value]);
    }

    pub(super) fn u32(&mut self, kind: u16, value: u32) {
        self.attribute(kind, &value.to_ne_bytes());
    }

    pub(super) fn u64(&mut self, kind: u16, value: u64) {
        self.attribute(kind, &value.to_ne_bytes());
    }

    /// The number of an object, if there is one.
    pub(super) fn number(&mut self, kind: u16, number: u32) {
        if number != 0 {
            self.u32(kind, number);
        }
    }

    /// An address, as long as one of any family can be (`struct sockaddr_storage`).
    pub(super) fn address(&mut self, kind: u16, address: &SocketAddr) {
        let mark = self.open(kind);
        let start = self.length;
        let port = address.port().to_be_bytes();
        match address.ip() {
            IpAddr::V4(ip) => {
                self.octets(&AF_INET.to_ne_bytes());
                self.octets(&port);
                self.octets(&ip.octets());
            }
            IpAddr::V6(ip) => {
                self.octets(&AF_INET6.to_ne_bytes());
                self.octets(&port);
                // The flow.
                self.octets(&[0; 4]);
                self.octets(&ip.octets());
            }
        }
        let missing = STORAGE.wrapping_sub(self.length.wrapping_sub(start));
        self.octets([0; STORAGE].get(..missing).unwrap_or_default());
        self.close(mark);
    }

    /// A string, which ends with a NUL.
    pub(super) fn text(&mut self, kind: u16, text: &[u8]) {
        let mark = self.open(kind);
        self.octets(text);
        self.octets(&[0]);
        self.close(mark);
    }

    fn attribute(&mut self, kind: u16, value: &[u8]) {
        let mark = self.open(kind);
        self.octets(value);
        self.close(mark);
    }

    /// Begins an attribute with others in it, which older parts of the kernel's interface do not
    /// mark as such.
    pub(super) fn open(&mut self, kind: u16) -> Mark {
        let mark = Mark(self.length);
        self.octets(&[0; 2]);
        self.octets(&kind.to_ne_bytes());
        mark
    }

    /// Likewise, one that is marked.
    pub(super) fn open_nested(&mut self, kind: u16) -> Mark {
        self.open(kind | NLA_F_NESTED)
    }

    /// Ends an attribute: what is next begins at a multiple of four.
    pub(super) fn close(&mut self, mark: Mark) {
        let length = self.length.wrapping_sub(mark.0);
        self.patch(mark, &(length as u16).to_ne_bytes());
        let padding = [0; NLA_HDRLEN];
        let missing = aligned(length).wrapping_sub(length);
        self.octets(padding.get(..missing).unwrap_or_default());
    }

    /// The header of another message, whole.
    pub(super) fn header(&mut self, header: &[u8; NLMSG_HDRLEN]) {
        self.octets(header);
    }

    pub(super) fn i32(&mut self, value: i32) {
        self.octets(&value.to_ne_bytes());
    }

    fn octets(&mut self, octets: &[u8]) {
        let end = self.length.wrapping_add(octets.len());
        match self.octets.get_mut(self.length..end) {
            Some(room) if !self.full => {
                room.iter_mut().zip(octets).for_each(|(to, octet)| *to = *octet);
                self.length = end;
            }
            _ => self.full = true,
        }
    }

    fn patch(&mut self, mark: Mark, octets: &[u8]) {
        let room = self.octets.iter_mut().skip(mark.0);
        room.zip(octets).for_each(|(to, octet)| *to = *octet);
    }
}
