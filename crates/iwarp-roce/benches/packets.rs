// SPDX-License-Identifier: MIT OR Apache-2.0

//! The cost of a packet: built with its ICRC from registered memory, verified, parsed.
//!
//! `cargo bench -p iwarp-roce --bench packets`

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput};
use iwarp_mem::{Buffer, MemoryTable, Scope};
use iwarp_roce::wire::icrc::{self, IdMemory, Identification};
use iwarp_roce::wire::{
    Aeth, Bth, Burst, Header, Message, Numbering, Packet, Path, Position, Psn, SendTail, Syndrome,
    Transport,
};
use iwarp_types::{Access, Accessor, AddressVector, Memory, PdId, QpId, Sge, Time};

const WHO: Accessor = Accessor { pd: PdId(3), qp: QpId(5) };
const SIZES: [usize; 4] = [4, 64, 1 << 10, 4 << 10];
const NOW: Time = Time(Duration::ZERO);

fn main() {
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .nresamples(20_000)
        .configure_from_args();
    build(&mut criterion);
    verify(&mut criterion);
    parse(&mut criterion);
    criterion.final_summary();
}

fn path() -> Path {
    Path::new(AddressVector::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into()), 0xc123)
}

fn header(message: Message) -> Header {
    Header { bth: Bth::new(17, Psn::new(5)), transport: Transport::Rc, deth: None, message }
}

const SEND: Message = Message::Send { position: Position::Only, tail: SendTail::Plain };

/// Trains of 16 packets, as a core writes them.
fn build(criterion: &mut Criterion) {
    const PACKETS: u64 = 16;
    let table = MemoryTable::new();
    let buffer = Arc::new(Buffer::new(4 << 10));
    let access = Access::LOCAL_WRITE;
    let lkey = table.register_buffer(WHO.pd, &buffer, access, Scope::Domain).expect("memory");
    let mut group = criterion.benchmark_group("build 16");
    group.throughput(Throughput::Elements(PACKETS));
    let mut burst = Burst::new(Numbering::Counted, usize::MAX);
    for size in SIZES {
        let sge = Sge { addr: 0, length: size as u32, lkey };
        group.bench_function(BenchmarkId::new("send", size), |b| {
            b.iter(|| {
                burst.clear();
                for _ in 0..PACKETS {
                    let pushed = burst.push(&path(), &header(SEND), size, |out, digest| {
                        table.gather_local(WHO, sge, out, Some(digest))
                    });
                    pushed.expect("memory");
                }
                black_box(burst.packets().count());
            });
        });
    }
    let ack = Message::Acknowledge(Aeth { syndrome: Syndrome::ACK, msn: 7 });
    group.bench_function("acknowledge", |b| {
        b.iter(|| {
            burst.clear();
            for _ in 0..PACKETS {
                burst.push(&path(), &header(ack), 0, |_, _| Ok::<_, ()>(())).expect("no payload");
            }
            black_box(burst.packets().count());
        });
    });
    group.finish();
}

/// A packet with so many octets of payload and this identification.
fn datagram(size: usize, number: u16) -> Vec<u8> {
    let mut octets = vec![0; Header::MAX_LEN];
    let len = header(SEND).write(size, &mut octets);
    octets.resize(len, 0);
    octets.extend(vec![0x5a; size]);
    let icrc = icrc::of(&path(), Identification::new(number), &octets);
    octets.extend(icrc);
    octets
}

fn verify(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("verify");
    for (name, number) in [("id 0", 0), ("id counted", 0x1234)] {
        for size in SIZES {
            let datagram = datagram(size, number);
            let mut ids = IdMemory::new(1024).unwrap();
            group.bench_function(BenchmarkId::new(name, size), |b| {
                b.iter(|| icrc::verify(&path(), black_box(&datagram), NOW, &mut ids).is_ok());
            });
        }
    }
    group.finish();
}

fn parse(criterion: &mut Criterion) {
    let octets = datagram(4, 0);
    criterion.bench_function("parse", |b| {
        b.iter(|| Packet::parse(black_box(&octets[..octets.len() - 4])).is_ok());
    });
}
