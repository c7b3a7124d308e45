// SPDX-License-Identifier: MIT OR Apache-2.0

//! A wire that loses nothing and keeps the order.

use std::collections::VecDeque;
use std::time::Duration;

use iwarp_sockets::stream::Config;
use iwarp_sockets::wire::{ConnData, Extensions};

use super::End;

/// A unit that goes over the wire.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Packet {
    Write { addr: u64, key: u32, octets: Vec<u8> },
    Immediate([u8; 4]),
    Send(Vec<u8>),
}

/// Two ends, and what is on its way to each.
pub(crate) struct Pair {
    pub(crate) ends: [End; 2],
    pub(crate) on_the_way: [VecDeque<Packet>; 2],
    pub(crate) now: Duration,
}

impl Pair {
    pub(crate) fn new(configs: [Config; 2]) -> Self {
        let [a, b] = configs;
        let (data_a, data_b) = (a.conn_data(), b.conn_data());
        Self {
            ends: [End::new(a, &data_b), End::new(b, &data_a)],
            on_the_way: Default::default(),
            now: Duration::ZERO,
        }
    }

    /// Two ends that take each other for the original, and have no receives beyond those that they
    /// announce, as the original has none.
    pub(crate) fn of_strangers(configs: [Config; 2]) -> Self {
        let [a, b] = configs;
        let stranger =
            |config: &Config| ConnData { extensions: Extensions::empty(), ..config.conn_data() };
        let (data_a, data_b) = (stranger(&a), stranger(&b));
        let mut ends = [End::new(a, &data_b), End::new(b, &data_a)];
        for end in &mut ends {
            end.receives = end.config.receive_queue.into();
        }
        Self { ends, on_the_way: Default::default(), now: Duration::ZERO }
    }

    /// Sends what one end has to send.
    pub(crate) fn poll(&mut self, end: usize) {
        self.on_the_way[1 - end].extend(self.ends[end].poll(self.now));
    }

    /// Delivers one packet to an end.
    pub(crate) fn deliver(&mut self, end: usize) -> Option<Packet> {
        let packet = self.on_the_way[end].pop_front()?;
        if !self.ends[end].disconnected {
            self.ends[end].arrive(&packet).unwrap();
        }
        Some(packet)
    }

    /// Lets everything happen that happens by itself.
    pub(crate) fn settle(&mut self) {
        loop {
            let mut is_still = true;
            for end in [0, 1] {
                self.poll(end);
                while !self.ends[end].untaken.is_empty() {
                    self.ends[end].take_request();
                    is_still = false;
                }
                while self.deliver(end).is_some() {
                    is_still = false;
                }
            }
            if is_still {
                return;
            }
        }
    }
}
