// SPDX-License-Identifier: MIT OR Apache-2.0

//! One end: a stream, the memory that its driver has, and a program's view of it.

use std::collections::VecDeque;
use std::time::Duration;

use iwarp_sockets::stream::{
    Action, Arrival, Config, Memory, Operation, Request, SendError, Source, Stream, Violation, Wire,
};
use iwarp_sockets::wire::{ByteOrder, ConnData, IomapEntry, IomapSize, Message};
use iwarp_types::Time;

use super::{Octets, Packet};

/// Settings of an end with small buffers.
pub(crate) fn config() -> Config {
    Config {
        wire: Wire::Iwarp,
        immediates: true,
        order: ByteOrder::Little,
        receive_queue: 16,
        send_queue: 32,
        send_buffer: 64,
        sgl: Memory { addr: 0x1000, key: 0x51 },
        ring: Memory { addr: 0x2000, key: 0x52 },
        half: 32,
        iomap: IomapSize::covering(4),
        keepalive: None,
    }
}

pub(crate) struct End {
    pub(crate) stream: Stream,
    pub(crate) config: Config,
    pub(crate) send_buffer: Vec<u8>,
    pub(crate) ring: Vec<u8>,
    pub(crate) table: Octets,
    /// Octets of regions for the peer's `riowrite`, by key.
    pub(crate) regions: Vec<(IomapEntry, Vec<u8>)>,
    /// Receives that are posted.
    pub(crate) receives: u32,
    /// Requests that the transport has not taken.
    pub(crate) untaken: VecDeque<Request>,
    pub(crate) disconnected: bool,
    /// Messages that needed a credit: sent, and the most that the peer lets this end send.
    spent: u64,
    limit: u64,
    peer_order: ByteOrder,
}

impl End {
    pub(crate) fn new(config: Config, peer: &ConnData) -> Self {
        let stream = Stream::new(config.clone(), peer, Time::default()).unwrap();
        Self {
            stream,
            send_buffer: vec![0; config.send_buffer],
            ring: vec![0; config.ring_len()],
            table: Octets(vec![0; config.table_len()]),
            regions: Vec::new(),
            receives: config.receives(),
            untaken: VecDeque::new(),
            disconnected: false,
            spent: 0,
            limit: peer.credits.into(),
            peer_order: peer.order,
            config,
        }
    }

    /// Hands as many of the octets over as there is room for.
    pub(crate) fn send(&mut self, octets: &[u8]) -> Result<usize, SendError> {
        let spans = self.stream.send_space(octets.len())?;
        let mut rest = octets;
        for span in spans.iter() {
            let (part, behind) = rest.split_at(span.len());
            self.send_buffer[span].copy_from_slice(part);
            rest = behind;
        }
        self.stream.sent(spans.len())?;
        Ok(spans.len())
    }

    /// Writes to the peer's region (`riowrite`).
    pub(crate) fn write(&mut self, offset: u64, octets: &[u8]) -> Result<usize, SendError> {
        let spans = self.stream.write_space(offset, octets.len())?;
        let mut rest = octets;
        for span in spans.iter() {
            let (part, behind) = rest.split_at(span.len());
            self.send_buffer[span].copy_from_slice(part);
            rest = behind;
        }
        self.stream.wrote(offset, spans.len())?;
        Ok(spans.len())
    }

    /// Takes up to `max` octets.
    pub(crate) fn receive(&mut self, max: usize) -> Vec<u8> {
        let spans = self.stream.receive_space(max);
        let octets: Vec<u8> = spans.iter().flat_map(|span| self.ring[span].to_vec()).collect();
        self.stream.taken(octets.len());
        octets
    }

    /// Carries out what the stream asks for; the packets that leave.
    pub(crate) fn poll(&mut self, now: Duration) -> Vec<Packet> {
        let mut packets = Vec::new();
        while let Some(action) = self.stream.poll(Time(now)) {
            assert!(!self.disconnected, "{action:?} behind the end");
            match action {
                Action::PostReceives(count) => self.receives += count,
                Action::Disconnect => self.disconnected = true,
                Action::Post(request) => {
                    self.launch(&request, &mut packets);
                    self.untaken.push_back(request);
                    assert!(self.untaken.len() <= self.config.send_queue, "the queue runs over");
                }
            }
        }
        packets
    }

    fn launch(&mut self, request: &Request, packets: &mut Vec<Packet>) {
        match &request.operation {
            Operation::Send(octets) => {
                self.count(Message::from_send(*octets, self.config.order));
                packets.push(Packet::Send(octets.to_vec()));
            }
            Operation::Write { source, addr, key, immediate } => {
                let octets = match source {
                    Source::Empty => Vec::new(),
                    Source::Inline(inline) => inline.octets().to_vec(),
                    Source::Buffer(spans) => {
                        spans.iter().flat_map(|span| self.send_buffer[span].to_vec()).collect()
                    }
                };
                packets.push(Packet::Write { addr: *addr, key: *key, octets });
                if let Some(immediate) = immediate {
                    self.count(Message::from_immediate(*immediate));
                    packets.push(Packet::Immediate(*immediate));
                }
            }
        }
    }

    /// Messages are within the credits that were given.
    fn count(&mut self, message: Result<Message, impl std::fmt::Debug>) {
        if let Message::Data(_) | Message::Iomap(_) = message.unwrap() {
            self.spent += 1;
            assert!(self.spent <= self.limit, "more messages than credits");
        }
    }

    /// The transport takes the octets of the first request.
    pub(crate) fn take_request(&mut self) {
        if let Some(Request { id, signaled, .. }) = self.untaken.pop_front()
            && signaled
        {
            self.stream.completed(id);
        }
    }

    /// Places or takes in what has come.
    pub(crate) fn arrive(&mut self, packet: &Packet) -> Result<(), Violation> {
        let arrival = match packet {
            Packet::Write { addr, key, octets } => {
                self.place(*addr, *key, octets);
                return Ok(());
            }
            Packet::Immediate(octets) => Arrival::Immediate(*octets),
            Packet::Send(octets) => Arrival::Send(octets),
        };
        assert!(self.receives > 0, "a message finds no receive");
        self.receives -= 1;
        let message = match arrival {
            Arrival::Immediate(octets) => Message::from_immediate(octets),
            Arrival::Send(octets) => {
                Message::from_send(octets.try_into().unwrap_or_default(), self.peer_order)
            }
        };
        if let Ok(Message::Credits(limit)) = message {
            self.limit += u64::from(limit.wrapping_sub(self.limit as u16));
        }
        self.stream.received(arrival, &mut self.table)
    }

    fn place(&mut self, addr: u64, key: u32, octets: &[u8]) {
        if octets.is_empty() {
            return;
        }
        let Config { sgl, ring, .. } = &self.config;
        let (memory, start) = if key == sgl.key {
            (&mut self.table.0, sgl.addr)
        } else if key == ring.key {
            (&mut self.ring, ring.addr)
        } else {
            let region = self.regions.iter_mut().find(|(region, _)| region.key == key);
            let (region, memory) = region.expect("the key is good");
            (memory, region.addr)
        };
        let at = (addr - start) as usize;
        memory[at..at + octets.len()].copy_from_slice(octets);
    }
}
