// SPDX-License-Identifier: MIT OR Apache-2.0

//! The reliable connected queue pair: time for a packet of 1024 octets at either end, and for a
//! message of 8 octets there and its acknowledgement back. Memory is a plain vector, so what is
//! measured is the queue pair, one copy and the CRC.

#![allow(missing_docs, reason = "criterion's macros make public items")]
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "it measures")]

mod memory;

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use iwarp_roce::wire::{Burst, Mtu, Numbering, Packet, Path, Psn};
use iwarp_roce::{Attributes, Config, DatagramCore, Rc};
use iwarp_types::{
    Access, AddressVector, Core, Event, NoPool, QpId, QpState, RecvRequest, SendRequest, Sge, Stag,
    TaggedOffset, Time,
};

use memory::Flat;

const OCTETS: usize = 1 << 20;
const NOW: Time = Time(Duration::from_secs(1));

/// One end: its queue pair, the way to the other, and what it has to send.
struct End {
    rc: Rc,
    path: Path,
    burst: Burst,
}

fn end(own: u8, peer: u8) -> End {
    let address = |last| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last));
    let path = Path::new(AddressVector::new(address(own), address(peer)), 0xc000);
    let mut rc = Rc::new(Config { qp: QpId(own.into()), ..Config::default() });
    rc.modify(QpState::Init).unwrap();
    rc.set_attributes(&Attributes {
        path,
        dest_qp: peer.into(),
        mtu: Mtu::Mtu1024,
        sq_psn: Psn::new(7),
        rq_psn: Psn::new(7),
        timeout: 14,
        retry_count: 7,
        rnr_retry: 7,
        max_rd_atomic: 16,
        max_dest_rd_atomic: 16,
        access: Access::REMOTE,
        ..Attributes::default()
    });
    rc.modify(QpState::Rtr).unwrap();
    rc.modify(QpState::Rts).unwrap();
    End { rc, path, burst: Burst::new(Numbering::Zero, 64 << 10) }
}

impl End {
    fn transmit(&mut self, memory: &Flat) {
        self.burst.clear();
        self.rc.transmit(&mut self.burst, NOW, memory);
    }

    fn receive(&mut self, from: &Self, memory: &Flat) {
        for (_, octets) in from.burst.packets() {
            let packet = Packet::parse(&octets[..octets.len() - 4]).unwrap();
            self.rc.receive(&packet, &from.path, NOW, memory, &NoPool);
        }
    }

    /// Completions there were.
    fn drain(&mut self) -> usize {
        let is_end =
            |event: &Event| matches!(event, Event::SendCompleted(_) | Event::ReceiveCompleted(_));
        core::iter::from_fn(|| self.rc.poll_event()).filter(is_end).count()
    }
}

/// Runs both ends until the requester has all of its completions.
fn exchange(a: &mut End, b: &mut End, memory: &Flat, mut completions: usize) {
    while completions > 0 {
        a.transmit(memory);
        b.receive(a, memory);
        b.transmit(memory);
        a.receive(b, memory);
        completions -= a.drain();
        black_box(b.drain());
    }
}

fn rc(c: &mut Criterion) {
    let memory = Flat::new(vec![1; OCTETS]);
    let whole = [Sge { addr: 0, length: OCTETS as u32, lkey: Stag(1) }];
    let (mut a, mut b) = (end(1, 2), end(2, 1));
    let mut group = c.benchmark_group("rc");
    group.throughput(Throughput::Elements((OCTETS / 1024) as u64));
    group.bench_function("write", |bench| {
        bench.iter(|| {
            let write = SendRequest::write(1, &whole, Stag(1), TaggedOffset(0)).signaled();
            a.rc.post_send(&write).unwrap();
            exchange(&mut a, &mut b, &memory, 1);
        });
    });
    group.bench_function("read", |bench| {
        bench.iter(|| {
            let read = SendRequest::read(1, &whole, Stag(1), TaggedOffset(0)).signaled();
            a.rc.post_send(&read).unwrap();
            exchange(&mut a, &mut b, &memory, 1);
        });
    });
    // The requester alone: every packet is acknowledged by one answer for many.
    group.bench_function("write-requester", |bench| {
        let (mut a, mut b) = (end(1, 2), end(2, 1));
        bench.iter_custom(|times| {
            let mut spent = Duration::ZERO;
            for _ in 0..times {
                let write = SendRequest::write(1, &whole, Stag(1), TaggedOffset(0)).signaled();
                a.rc.post_send(&write).unwrap();
                let mut left = 1;
                while left > 0 {
                    let start = Instant::now();
                    a.transmit(&memory);
                    spent += start.elapsed();
                    b.receive(&a, &memory);
                    b.transmit(&memory);
                    let start = Instant::now();
                    a.receive(&b, &memory);
                    left -= a.drain();
                    spent += start.elapsed();
                    b.drain();
                }
            }
            spent
        });
    });
    group.bench_function("write-responder", |bench| {
        let (mut a, mut b) = (end(1, 2), end(2, 1));
        bench.iter_custom(|times| {
            let mut spent = Duration::ZERO;
            for _ in 0..times {
                let write = SendRequest::write(1, &whole, Stag(1), TaggedOffset(0)).signaled();
                a.rc.post_send(&write).unwrap();
                let mut left = 1;
                while left > 0 {
                    a.transmit(&memory);
                    let start = Instant::now();
                    b.receive(&a, &memory);
                    b.transmit(&memory);
                    b.drain();
                    spent += start.elapsed();
                    a.receive(&b, &memory);
                    left -= a.drain();
                }
            }
            spent
        });
    });
    group.throughput(Throughput::Elements(1));
    let word = [Sge { addr: 0, length: 8, lkey: Stag(1) }];
    group.bench_function("send-8", |bench| {
        bench.iter(|| {
            b.rc.post_recv(&RecvRequest::new(1, &word)).unwrap();
            a.rc.post_send(&SendRequest::send(1, &word).signaled()).unwrap();
            exchange(&mut a, &mut b, &memory, 1);
        });
    });
    group.finish();
}

criterion_group!(benches, rc);
criterion_main!(benches);
