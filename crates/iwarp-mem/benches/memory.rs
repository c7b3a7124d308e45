// SPDX-License-Identifier: MIT OR Apache-2.0

//! Registered memory: the copies in and out of it beside `memcpy`, the check of an STag, and
//! registration.
//!
//! `cargo bench -p iwarp-mem --bench memory`

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput};
use iwarp_types::{
    Access, Accessor, Digest, Memory, PdId, QpId, RemoteAccess, Sge, Stag, TaggedOffset,
};

use iwarp_mem::{Buffer, MemoryTable, RegionSpec, Scope};

const WHO: Accessor = Accessor { pd: PdId(3), qp: QpId(5) };
const SIZES: [usize; 5] = [64, 256, 1 << 10, 4 << 10, 64 << 10];

fn main() {
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .nresamples(20_000)
        .configure_from_args();
    copies(&mut criterion);
    check(&mut criterion);
    registration(&mut criterion);
    criterion.final_summary();
}

/// Each with the check of the element's STag, as the protocol calls them.
fn copies(criterion: &mut Criterion) {
    let table = MemoryTable::new();
    let stag = region(&table, 64 << 10);
    let mut group = criterion.benchmark_group("copy");
    for size in SIZES {
        let sge = Sge { addr: 0, length: size as u32, lkey: stag };
        let octets = vec![0x5a; size];
        let mut dst = vec![0; size];
        group.throughput(Throughput::Bytes(size as u64));
        group.bench_function(BenchmarkId::new("memcpy", size), |b| {
            b.iter(|| black_box(&mut dst).copy_from_slice(black_box(&octets)));
        });
        group.bench_function(BenchmarkId::new("gather", size), |b| {
            b.iter(|| table.gather_local(WHO, sge, black_box(&mut dst), None).expect("access"));
        });
        for (name, start) in [("gather+crc", Digest::crc32c()), ("gather+crc-32", Digest::crc32())]
        {
            group.bench_function(BenchmarkId::new(name, size), |b| {
                b.iter(|| {
                    let (mut crc, dst) = (start, black_box(&mut dst));
                    table.gather_local(WHO, sge, dst, Some(&mut crc)).expect("access");
                    crc.wire()
                });
            });
        }
        group.bench_function(BenchmarkId::new("place", size), |b| {
            b.iter(|| table.place_local(WHO, sge, black_box(&octets)).expect("access"));
        });
    }
    group.finish();
}

/// The cost of a peer's access before anything is copied.
fn check(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("check");
    group.throughput(Throughput::Elements(1));
    for regions in [1, 10_000] {
        let table = MemoryTable::new();
        let stags: Vec<Stag> = (0..regions).map(|_| region(&table, 4096)).collect();
        let mut next = stags.iter().cycle();
        group.bench_function(BenchmarkId::new("regions", regions), |b| {
            b.iter(|| {
                let stag = *next.next().expect("an endless iterator");
                let (to, access) = (TaggedOffset(64), RemoteAccess::Write);
                table.check_remote(WHO, black_box(stag), to, 64, access).expect("access");
            });
        });
    }
    group.finish();
}

/// A program's memory: a page, as many as are tried one by one, and a range of which the most is
/// not touched.
fn registration(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("register");
    let table = MemoryTable::new();
    for (name, len) in [("page", 4 << 10), ("256K", 256 << 10), ("1G", 1 << 30)] {
        let memory = Buffer::new(len);
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let spec = RegionSpec::new(WHO.pd, memory.as_mut_ptr(), len, access);
        group.bench_function(name, |b| {
            b.iter(|| {
                // SAFETY: the buffer outlives the region, and nothing else uses it.
                let stag = unsafe { table.register(spec) }.expect("registration");
                table.deregister(stag).expect("deregistration");
            });
        });
    }
    group.finish();
}

/// Registers memory of its own, open to peers.
fn region(table: &MemoryTable, len: usize) -> Stag {
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
    let buffer = Arc::new(Buffer::new(len));
    table.register_buffer(WHO.pd, &buffer, access, Scope::Domain).expect("registration")
}
