// SPDX-License-Identifier: MIT OR Apache-2.0

//! Times of UC and UD queue pairs: messages of 64 octets, in lists of 32, posted, built and told;
//! and taken, placed and told. No port, no system call; memory is a vector.

#![allow(missing_docs, reason = "criterion's macros write functions")]

mod memory;

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use iwarp_roce::wire::{Burst, ICRC_LEN, Numbering, Packet, Path};
use iwarp_roce::{Attributes, Config, DatagramCore, Qp, Uc, Ud};
use iwarp_types::{
    Access, AddressVector, Core, Destination, NoPool, QpId, QpState, RecvRequest, SendOp,
    SendRequest, Sge, Stag, Time,
};

use memory::Flat;

const LIST: u64 = 32;
const LEN: u32 = 64;

fn attributes(own: u8) -> Attributes {
    let peer = 3 - own;
    let address = AddressVector::new([10, 0, 0, own].into(), [10, 0, 0, peer].into());
    Attributes {
        path: Path::new(address, 0xc000),
        dest_qp: u32::from(peer),
        access: Access::REMOTE,
        qkey: 5,
        ..Attributes::default()
    }
}

fn end(make: impl Fn(Config) -> Qp, own: u8) -> Qp {
    let mut qp = make(Config { qp: QpId(own.into()), ..Config::default() });
    qp.set_attributes(&attributes(own));
    for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
        qp.modify(state).expect("the usual way");
    }
    qp
}

/// Posts a list, and builds its packets.
fn send(qp: &mut Qp, op: SendOp, to: &Destination, burst: &mut Burst, memory: &Flat) {
    for number in 0..LIST {
        let sge = [Sge { addr: 64 * number, length: LEN, lkey: Stag(1) }];
        let mut request = SendRequest::new(number, op, &sge).to(to);
        request.signaled = number + 1 == LIST;
        qp.post_send(&request).expect("room");
    }
    burst.clear();
    qp.transmit(burst, Time::default(), memory);
    while qp.poll_event().is_some() {}
}

/// Posts as many receives, and takes the packets.
fn receive(qp: &mut Qp, packets: &[(Path, Vec<u8>)], memory: &Flat) {
    for number in 0..LIST {
        let sge = [Sge { addr: 128 * number, length: 128, lkey: Stag(1) }];
        qp.post_recv(&RecvRequest::new(number, &sge)).expect("room");
    }
    for (path, octets) in packets {
        let packet = Packet::parse(octets).expect("a packet");
        qp.receive(&packet, path, Time::default(), memory, &NoPool);
        black_box(qp.poll_event().expect("a completion"));
    }
}

fn datagrams(criterion: &mut Criterion) {
    let memory = Flat::new(vec![7; 64 * 1024]);
    let address = attributes(1).path.address;
    let to = Destination { address, qp: 2, qkey: 5 };
    let mut group = criterion.benchmark_group("datagrams of 64 octets");
    group.throughput(Throughput::Elements(LIST));
    for name in ["uc", "ud"] {
        let make = |config| -> Qp {
            if name == "uc" { Uc::new(config).into() } else { Ud::new(config).into() }
        };
        let mut burst = Burst::new(Numbering::Counted, 1 << 20);
        let mut sender = end(make, 1);
        group.bench_function(format!("{name} send"), |bencher| {
            bencher.iter(|| send(&mut sender, SendOp::SEND, &to, &mut burst, &memory));
        });
        send(&mut sender, SendOp::SEND, &to, &mut burst, &memory);
        let whole =
            |(path, octets): (&Path, &[u8])| (*path, octets[..octets.len() - ICRC_LEN].to_vec());
        let packets: Vec<_> = burst.packets().map(whole).collect();
        assert_eq!(packets.len() as u64, LIST);
        let mut receiver = end(make, 2);
        group.bench_function(format!("{name} receive"), |bencher| {
            bencher.iter(|| receive(&mut receiver, &packets, &memory));
        });
    }
    group.finish();
}

criterion_group!(benches, datagrams);
criterion_main!(benches);
