// SPDX-License-Identifier: MIT OR Apache-2.0

//! rsockets: for any private data, messages, entries and datagrams of a peer, in any order with the
//! calls of the program, nothing panics, no range leaves its buffer, the send queue does not run
//! over, and a fault is the end. Private data come back as they were decoded.
#![no_main]

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use arbitrary::Arbitrary;
use iwarp_sockets::datagram::{Config as DatagramConfig, Datagrams, Local, Way};
use iwarp_sockets::stream::{
    Action, Arrival, Config, Memory, Operation, Shutdown, Source, Stream, Table, Wire,
};
use iwarp_sockets::wire::{
    ByteOrder, ConnData, IOMAP_ENTRY_LEN, IOMAP_OFFSET, IomapEntry, IomapSize, Message,
    SGL_ENTRY_LEN, UdHeader, UdpHeader,
};
use iwarp_types::Time;
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Input {
    /// The peer's private data; ours, if there is none.
    private_data: Option<Vec<u8>>,
    is_iwarp: bool,
    immediates: bool,
    is_big: bool,
    receive_queue: u8,
    send_queue: u8,
    send_buffer: u8,
    half: u8,
    steps: Vec<Step>,
    datagrams: Vec<Datagram>,
}

#[derive(Arbitrary, Debug)]
enum Step {
    /// Any word.
    Word(u32, bool),
    /// A Send of any length.
    Send(Vec<u8>),
    Data(u8),
    Credits(u16),
    Iomap(u8),
    /// The peer writes into the table.
    Table {
        at: u8,
        octets: [u8; 16],
    },
    Poll,
    Complete,
    Lost,
    ProgramSends(u8),
    ProgramTakes(u8),
    ProgramWrites {
        offset: u64,
        len: u8,
    },
    Map {
        offset: u64,
        addr: u64,
        length: u32,
    },
    Unmap {
        addr: u64,
        length: u32,
    },
    Shutdown(u8),
    Close,
}

#[derive(Arbitrary, Debug)]
struct Datagram {
    is_udp: bool,
    port: u8,
    octets: Vec<u8>,
    milliseconds: u16,
}

const IOMAP: usize = 4;

struct Octets([u8; IOMAP_OFFSET as usize + IOMAP * IOMAP_ENTRY_LEN]);

impl Table for Octets {
    fn take_sgl_entry(&mut self, index: u32) -> [u8; SGL_ENTRY_LEN] {
        let entry = self.0[index as usize * SGL_ENTRY_LEN..].first_chunk_mut().expect("two");
        std::mem::replace(entry, [0; SGL_ENTRY_LEN])
    }

    fn iomap_entry(&mut self, index: u32) -> [u8; IOMAP_ENTRY_LEN] {
        let at = IOMAP_OFFSET as usize + index as usize * IOMAP_ENTRY_LEN;
        *self.0[at..].first_chunk().expect("within the table")
    }
}

fuzz_target!(|input: Input| {
    stream(&input);
    datagrams(&input.datagrams);
});

/// A stream, and what its driver knows of it.
struct Driver {
    stream: Stream,
    config: Config,
    table: Octets,
    untaken: VecDeque<(u64, bool)>,
    is_over: bool,
    has_failed: bool,
}

fn stream(input: &Input) {
    let order = if input.is_big { ByteOrder::Big } else { ByteOrder::Little };
    let config = Config {
        wire: if input.is_iwarp { Wire::Iwarp } else { Wire::InfiniBand },
        immediates: input.immediates,
        order,
        receive_queue: u16::from(input.receive_queue).max(1),
        send_queue: usize::from(input.send_queue % 32).max(Config::MIN_SEND_QUEUE),
        send_buffer: usize::from(input.send_buffer).max(1),
        sgl: Memory { addr: 0x1000, key: 1 },
        ring: Memory { addr: u64::MAX - 100, key: 2 },
        half: u32::from(input.half).max(1),
        iomap: IomapSize::covering(IOMAP),
        keepalive: Some(Duration::from_secs(1)),
    };
    let mut own = config.conn_data();
    own.ring.addr = 0x1_0000;
    let octets = input.private_data.clone().unwrap_or_else(|| own.write().to_vec());
    let Ok(peer) = ConnData::read(&octets) else { return };
    assert_eq!(ConnData::read(&peer.write()), Ok(peer));
    let Ok(stream) = Stream::new(config.clone(), &peer, Time::default()) else { return };
    let mut driver = Driver {
        stream,
        table: Octets([0; _]),
        config,
        untaken: VecDeque::new(),
        is_over: false,
        has_failed: false,
    };
    for step in input.steps.iter().take(300) {
        driver.step(step);
        assert!(driver.stream.readable() <= driver.config.ring_len());
        assert!(driver.stream.room() <= driver.config.send_buffer);
        driver.stream.condition().readiness();
    }
}

impl Driver {
    fn step(&mut self, step: &Step) {
        let message = |message: Message| Arrival::Immediate(message.to_immediate());
        match *step {
            Step::Word(word, true) => self.receive(Arrival::Immediate(word.to_be_bytes())),
            Step::Word(word, false) => self.receive(Arrival::Send(&word.to_le_bytes())),
            Step::Send(ref octets) => self.receive(Arrival::Send(octets)),
            Step::Data(octets) => self.receive(message(Message::Data(octets.into()))),
            Step::Credits(limit) => self.receive(message(Message::Credits(limit))),
            Step::Iomap(index) => self.receive(message(Message::Iomap(index.into()))),
            Step::Table { at, ref octets } => {
                let at = usize::from(at) % (self.table.0.len() - octets.len());
                self.table.0[at..at + octets.len()].copy_from_slice(octets);
            }
            Step::Poll => self.poll(),
            Step::Complete => {
                if let Some((id, true)) = self.untaken.pop_front() {
                    self.stream.completed(id);
                }
            }
            Step::Lost => self.stream.lost(),
            Step::ProgramSends(len) => {
                if let Ok(spans) = self.stream.send_space(len.into()) {
                    assert!(spans.iter().all(|span| span.end <= self.config.send_buffer));
                    self.stream.sent(spans.len()).expect("nothing has happened");
                }
            }
            Step::ProgramTakes(len) => {
                let spans = self.stream.receive_space(len.into());
                assert!(spans.iter().all(|span| span.end <= self.config.ring_len()));
                self.stream.taken(spans.len());
            }
            Step::ProgramWrites { offset, len } => {
                if let Ok(spans) = self.stream.write_space(offset, len.into()) {
                    self.stream.wrote(offset, spans.len()).expect("nothing has happened");
                }
            }
            Step::Map { offset, addr, length } => {
                let _ = self.stream.map(IomapEntry { offset, addr, key: 3, length });
            }
            Step::Unmap { addr, length } => {
                let _ = self.stream.unmap(addr, length);
            }
            Step::Shutdown(how) => self.stream.shutdown(match how % 3 {
                0 => Shutdown::Read,
                1 => Shutdown::Write,
                _ => Shutdown::Both,
            }),
            Step::Close => self.stream.close(),
        }
    }

    fn receive(&mut self, arrival: Arrival<'_>) {
        let result = self.stream.received(arrival, &mut self.table);
        if self.has_failed {
            assert_eq!(result, Ok(()), "the first fault is the last");
        }
        self.has_failed |= result.is_err();
    }

    fn poll(&mut self) {
        while let Some(action) = self.stream.poll(Time::default()) {
            assert!(!self.is_over, "{action:?} behind the end");
            match action {
                Action::PostReceives(count) => assert!(count > 0 && !self.has_failed),
                Action::Disconnect => self.is_over = true,
                Action::Post(request) => {
                    assert!(!self.has_failed);
                    if let Operation::Write { source: Source::Buffer(spans), .. } =
                        &request.operation
                    {
                        assert!(spans.iter().all(|span| span.end <= self.config.send_buffer));
                        assert!(!spans.is_empty());
                    }
                    self.untaken.push_back((request.id, request.signaled));
                    assert!(self.untaken.len() <= self.config.send_queue);
                }
            }
        }
        assert!(self.is_over || !self.has_failed);
    }
}

fn datagrams(datagrams: &[Datagram]) {
    const MOST: usize = 4;
    let config = DatagramConfig { destinations: MOST, ..DatagramConfig::default() };
    let mut socket = Datagrams::new(config);
    let local = Local { addr: SocketAddr::from(([10, 9, 0, 1], 1)), qpn: 1, mtu: 1024 };
    let (mut now, mut handles) = (Time::default(), 0);
    for Datagram { is_udp, port, octets, milliseconds } in datagrams.iter().take(100) {
        now = now.plus(Duration::from_millis((*milliseconds).into()));
        let source = SocketAddr::from(([10, 9, 0, 2], (port % 8).into()));
        if *is_udp {
            if let Ok(arrival) = socket.received_udp(source, octets, &local, now) {
                let (header, data) = UdpHeader::read(octets).expect("it was read");
                assert_eq!(header.len() + data.len(), octets.len());
                if let Some(learned) = arrival.learned {
                    assert_eq!(learned.peer, source);
                    handles += 1 - usize::from(socket.resolved(learned, (), now).is_some());
                }
            }
        } else if let Ok(Some((_, data))) = socket.received_ud(octets, now) {
            let (header, _) = UdHeader::read(octets).expect("it was read");
            assert_eq!(header.len() + data.len(), octets.len());
        }
        assert!(handles <= MOST);
        if let Ok(Way::Ud { header, .. }) = socket.send(Some(source), octets.len(), &local, now) {
            assert!(header.len() + octets.len() <= local.mtu);
        }
    }
    assert_eq!(socket.into_handles().count(), handles);
}
