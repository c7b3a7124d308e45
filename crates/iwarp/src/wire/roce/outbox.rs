// SPDX-License-Identifier: MIT OR Apache-2.0

//! A burst on its way to a port.

use std::io;
use std::net::IpAddr;

use iwarp_mem::OutOfMemory;
use iwarp_roce::wire::Burst;

use crate::port::{BurstCursor, DatagramPort, Sent};

/// Packets that a port has not taken yet: kept in order, and no more of them than one burst has.
#[derive(Debug)]
pub struct Outbox {
    burst: Burst,
    cursor: BurstCursor,
    waiting: bool,
}

impl Outbox {
    /// An empty one to that port, for bursts of `budget` bytes, give or take a packet.
    pub fn new(port: &dyn DatagramPort, budget: usize) -> Self {
        let burst = Burst::new(port.numbering(), budget);
        Self { burst, cursor: BurstCursor::default(), waiting: false }
    }

    /// Has storage for whole bursts of so many trains at most, so that none has to grow.
    ///
    /// # Errors
    ///
    /// If there is no memory for them.
    pub fn reserve(&mut self, trains: usize) -> Result<(), OutOfMemory> {
        self.burst.reserve(trains).map_err(|_| OutOfMemory)
    }

    /// The burst into which packets are put; `None` while the port is full and some wait for it.
    pub fn fill(&mut self, port: &dyn DatagramPort) -> Option<&mut Burst> {
        if self.waiting {
            return None;
        }
        if self.burst.is_empty() && self.burst.numbering() != port.numbering() {
            self.burst.set_numbering(port.numbering());
        }
        Some(&mut self.burst)
    }

    /// True if it is empty.
    pub const fn is_empty(&self) -> bool {
        self.burst.is_empty()
    }

    /// The number of trains that the port has taken or lost of those in it.
    pub const fn trains_taken(&self) -> usize {
        self.cursor.trains
    }

    /// Gives the port what it takes. After [`Sent::TooLong`] there may be more to give.
    ///
    /// # Errors
    ///
    /// If the port is gone; then the outbox is empty.
    pub fn flush(&mut self, port: &dyn DatagramPort) -> io::Result<Sent> {
        self.flush_until(port, usize::MAX)
    }

    /// As [`Self::flush`], but nothing from the train with the number `end` on.
    pub(super) fn flush_until(&mut self, port: &dyn DatagramPort, end: usize) -> io::Result<Sent> {
        let sent = port.send_until(&self.burst, &mut self.cursor, end);
        self.waiting = matches!(sent, Ok(Sent::Full));
        let is_last = end >= self.burst.trains().len();
        if sent.is_err() || is_last && matches!(sent, Ok(Sent::All)) {
            self.lose();
        }
        sent
    }

    /// The source of the next train, and the number behind the last train that follows from there.
    pub(super) fn next_run(&self) -> Option<(IpAddr, usize)> {
        let first = self.cursor.trains;
        let sources = || self.burst.trains().skip(first).map(|train| train.path.address.source);
        let source = sources().next()?;
        Some((source, first + sources().take_while(|other| *other == source).count()))
    }

    /// Drops what is in it, as a network does.
    pub fn lose(&mut self) {
        self.burst.clear();
        self.cursor = BurstCursor::default();
        self.waiting = false;
    }
}

#[cfg(all(test, not(model)))]
mod tests {
    use std::convert::Infallible;
    use std::net::Ipv4Addr;

    use iwarp_roce::wire::{Bth, Header, Message, Path, Position, Psn, SendTail, Transport};
    use iwarp_types::{AddressVector, Digest};

    use super::*;
    use crate::port::{DatagramSettings, MemoryDatagrams};

    #[test]
    fn trains_of_each_source_go_by_themselves() {
        let network = MemoryDatagrams::new(1);
        let [one, two] = [1, 2].map(|last| IpAddr::V4(Ipv4Addr::new(192, 0, 2, last)));
        let settings = DatagramSettings::default();
        let open = |ip| network.host(ip).open((ip, 4791).into(), &settings).unwrap();
        let (port, _peer) = (open(one), open(two));
        let mut outbox = Outbox::new(&*port, 1 << 20);
        let burst = outbox.fill(&*port).unwrap();
        let header = Header {
            bth: Bth::new(17, Psn::new(1)),
            transport: Transport::Rc,
            deth: None,
            message: Message::Send { position: Position::Only, tail: SendTail::Plain },
        };
        for (source, number) in [(one, 4791), (one, 7), (two, 4791), (one, 4791)] {
            let path = Path::new(AddressVector::new(source, two), number);
            let fill = |out: &mut [u8], digest: &mut Digest| {
                digest.update(out);
                Ok::<(), Infallible>(())
            };
            burst.push(&path, &header, 8, fill).unwrap();
        }
        for (source, end) in [(one, 2), (two, 3), (one, 4)] {
            assert_eq!(outbox.next_run(), Some((source, end)));
            assert!(!outbox.is_empty());
            assert_eq!(outbox.flush_until(&*port, end).unwrap(), Sent::All);
        }
        assert!(outbox.next_run().is_none() && outbox.is_empty());
        assert_eq!(port.counters().sent, 4);
    }
}
