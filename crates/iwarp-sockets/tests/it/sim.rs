// SPDX-License-Identifier: MIT OR Apache-2.0

//! Two ends joined by a wire that keeps the order and delays at will. Programs send, receive, map,
//! write, shut down and close in any order. Each receives the octets that the other sent; no
//! message goes without a credit or meets no receive; nothing stands still before both are done.

use std::collections::VecDeque;

use iwarp_sockets::stream::{Config, Memory, SendError, Shutdown, Wire};
use iwarp_sockets::wire::{ByteOrder, IomapEntry, IomapSize, Message};

use crate::support::{Packet, Pair, Rng, config};

const SEEDS: u64 = 3000;

/// A write into a region, which the peer must see before octet `before` of the stream.
struct Direct {
    before: usize,
    addr: u64,
    octets: Vec<u8>,
}

/// The doings of one program.
struct Program {
    /// Octets left to send, and what then becomes of the stream.
    to_send: usize,
    /// Closes before it has read everything.
    is_rude: bool,
    sent: Vec<u8>,
    received: Vec<u8>,
    direct: VecDeque<Direct>,
    /// Octets that messages have brought this end.
    arrived: usize,
    is_shut: bool,
    is_closed: bool,
    saw_end: bool,
}

struct World {
    rng: Rng,
    /// Events between two looks of a driver, about.
    laziness: usize,
    pair: Pair,
    programs: [Program; 2],
}

fn any_config(rng: &mut Rng, wire: Wire, key: u32) -> Config {
    Config {
        wire,
        immediates: wire == Wire::InfiniBand || rng.once_in(2),
        order: rng.pick(&[ByteOrder::Little, ByteOrder::Big]),
        receive_queue: rng.below(1..24) as u16,
        send_queue: rng.below(Config::MIN_SEND_QUEUE..30),
        send_buffer: rng.below(1..300),
        half: rng.below(1..150) as u32,
        sgl: Memory { addr: 0x1000, key },
        ring: Memory { addr: 0x10_0000, key: key + 1 },
        iomap: IomapSize::covering(rng.below(0..3)),
        ..config()
    }
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let wire = rng.pick(&[Wire::Iwarp, Wire::InfiniBand]);
        let configs = [(); 2].map(|()| any_config(&mut rng, wire, 1));
        let pair = if wire == Wire::Iwarp && rng.once_in(2) {
            // The original has 16 receives at least. Over InfiniBand it lives on RNR NAKs.
            let tight = |config: Config| {
                let receive_queue = config.receive_queue + 16;
                Config { receive_queue, immediates: false, ..config }
            };
            Pair::of_strangers(configs.map(tight))
        } else {
            Pair::new(configs)
        };
        let programs = [(); 2].map(|()| Program {
            to_send: rng.below(0..4) * rng.below(1..1000),
            is_rude: rng.once_in(4),
            sent: Vec::new(),
            received: Vec::new(),
            direct: VecDeque::new(),
            arrived: 0,
            is_shut: false,
            is_closed: false,
            saw_end: false,
        });
        Self { laziness: rng.pick(&[1, 2, 5, 20]), rng, pair, programs }
    }

    fn run(&mut self, seed: u64) {
        for end in [0, 1] {
            self.maybe_map(end, 100 + end as u32);
        }
        let mut still = 0;
        while !self.is_done() {
            let step = self.rng.below(0..12);
            let end = self.rng.below(0..2);
            let has_moved = match step {
                0 | 1 => self.send(end),
                2 | 3 => self.receive(end),
                4 => self.end(end),
                5 => self.direct(end),
                6..=8 => self.deliver(end),
                _ => self.take(end),
            };
            // Drivers look at once, or late.
            if has_moved && self.rng.once_in(self.laziness) {
                self.pair.poll(end);
            }
            still = if has_moved { 0 } else { still + 1 };
            if still > 300 {
                // All has been tried many times, but for polls.
                let before = self.traffic();
                self.pair.poll(0);
                self.pair.poll(1);
                assert!(self.traffic() > before, "seed {seed}: nothing moves any more");
                still = 0;
            }
        }
        self.check(seed);
    }

    /// Packets under way and requests not taken.
    fn traffic(&self) -> usize {
        let under_way: usize = self.pair.on_the_way.iter().map(VecDeque::len).sum();
        let ends = &self.pair.ends;
        let posted: usize =
            ends.iter().map(|end| end.untaken.len() + end.disconnected as usize).sum();
        under_way + posted
    }

    fn is_done(&self) -> bool {
        self.pair.ends.iter().all(|end| end.disconnected)
            && self.programs.iter().all(|program| program.saw_end || program.is_closed)
    }

    fn maybe_map(&mut self, end: usize, key: u32) {
        let offset = self.rng.below(0..1000) as u64;
        let region = IomapEntry { offset, addr: 0x5000, key, length: self.rng.below(1..60) as u32 };
        let peer = &mut self.pair.ends[end];
        if peer.stream.map(region).is_ok() {
            peer.regions.push((region, vec![0; region.length as usize]));
        }
    }

    fn send(&mut self, end: usize) -> bool {
        let program = &mut self.programs[end];
        if program.is_shut || program.to_send == 0 {
            return false;
        }
        let len = self.rng.below(1..100).min(program.to_send);
        let at = program.sent.len();
        let octets: Vec<u8> = (at..at + len).map(|n| (n * 31 + end) as u8).collect();
        match self.pair.ends[end].send(&octets) {
            Ok(count) => {
                program.sent.extend(&octets[..count]);
                program.to_send -= count;
                count > 0
            }
            Err(SendError::PeerClosed) => {
                program.to_send = 0;
                true
            }
            Err(other) => panic!("{other}"),
        }
    }

    fn receive(&mut self, end: usize) -> bool {
        let program = &mut self.programs[end];
        if program.is_closed {
            return false;
        }
        let octets = self.pair.ends[end].receive(self.rng.pick(&[1, 20, 120, 1000]));
        let is_end = octets.is_empty() && self.pair.ends[end].stream.is_read_over();
        let has_moved = !octets.is_empty() || is_end && !program.saw_end;
        program.received.extend(octets);
        program.saw_end |= is_end;
        has_moved
    }

    /// Ends what can be ended.
    fn end(&mut self, end: usize) -> bool {
        let program = &mut self.programs[end];
        let stream = &mut self.pair.ends[end].stream;
        if program.is_closed {
            return false;
        }
        if program.is_rude && self.rng.once_in(20) || program.is_shut && program.saw_end {
            stream.close();
            program.is_closed = true;
            program.is_shut = true;
            program.to_send = 0;
        } else if program.to_send == 0 && !program.is_shut {
            stream.shutdown(Shutdown::Write);
            program.is_shut = true;
        } else {
            return false;
        }
        true
    }

    fn direct(&mut self, end: usize) -> bool {
        let program = &mut self.programs[end];
        let Some((region, _)) = self.pair.ends[1 - end].regions.first() else { return false };
        let inside = self.rng.below(0..region.length as usize) as u64;
        let (offset, addr) = (region.offset + inside, region.addr + inside);
        let octets: Vec<u8> = (0..self.rng.below(1..20)).map(|n| n as u8 + end as u8).collect();
        if program.is_shut || self.rng.once_in(2) {
            return false;
        }
        let Ok(count) = self.pair.ends[end].write(offset, &octets) else { return false };
        if count > 0 {
            let before = program.sent.len();
            program.direct.push_back(Direct { before, addr, octets: octets[..count].to_vec() });
        }
        count > 0
    }

    fn deliver(&mut self, end: usize) -> bool {
        let is_gone = self.pair.ends[end].disconnected;
        let Some(packet) = self.pair.deliver(end) else { return false };
        if is_gone {
            return true;
        }
        let message = match packet {
            Packet::Write { addr, key, octets } if key >= 100 => {
                let direct = self.programs[1 - end].direct.pop_front().expect("it was written");
                assert_eq!((direct.addr, &direct.octets), (addr, &octets));
                return true;
            }
            Packet::Write { .. } => return true,
            Packet::Immediate(octets) => Message::from_immediate(octets),
            Packet::Send(octets) => {
                let order = self.pair.ends[1 - end].config.order;
                Message::from_send(octets.try_into().unwrap(), order)
            }
        };
        if let Ok(Message::Data(octets)) = message {
            self.programs[end].arrived += octets as usize;
            let late = self.programs[1 - end].direct.front();
            let arrived = self.programs[end].arrived;
            assert!(late.is_none_or(|direct| direct.before >= arrived), "a region comes late");
        }
        true
    }

    fn take(&mut self, end: usize) -> bool {
        let has_some = !self.pair.ends[end].untaken.is_empty();
        self.pair.ends[end].take_request();
        has_some
    }

    fn check(&self, seed: u64) {
        for end in [0, 1] {
            let (reader, writer) = (&self.programs[end], &self.programs[1 - end]);
            let len = reader.received.len();
            assert!(writer.sent.len() >= len, "seed {seed}");
            assert!(reader.received == writer.sent[..len], "seed {seed}: other octets");
            // Only an end that closes before it has read everything loses any.
            if !reader.is_rude {
                assert_eq!(len, writer.sent.len(), "seed {seed}: octets are lost");
            }
            assert_eq!(self.pair.ends[end].stream.clone().take_error(), None, "seed {seed}");
        }
    }
}

/// Covers: RS-FLOW-03, RS-FLOW-05, RS-FLOW-08, RS-FLOW-09, RS-MSG-05, RS-MSG-06
#[test]
fn programs_receive_what_was_sent_and_nothing_stands_still() {
    let (mut octets, mut direct) = (0, 0);
    for seed in 0..SEEDS {
        let mut world = World::new(seed);
        world.run(seed);
        octets += world.programs.iter().map(|program| program.received.len()).sum::<usize>();
        let regions = world.pair.ends.iter().flat_map(|end| &end.regions);
        direct += regions.filter(|(_, octets)| octets.iter().any(|octet| *octet > 0)).count();
    }
    // That most of it happens at all.
    assert!(octets > 500 * SEEDS as usize, "{octets}");
    assert!(direct > SEEDS as usize / 10, "{direct}");
}
