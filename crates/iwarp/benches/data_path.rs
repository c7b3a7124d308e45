// SPDX-License-Identifier: MIT OR Apache-2.0

//! Messages built and taken apart between queue pairs with registered memory, and the completion
//! queue. No system calls: the stream between the two ends is a buffer.
//!
//! `cargo bench -p iwarp --bench data_path`

mod ends;

use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput};

use ends::{ETHERNET, End, Ring, SEND, Terms, ends};
use iwarp::WorkCompletion;

/// Messages that are posted together, if they are short: enough to hide the clock's own cost.
const BATCH: usize = 32;

/// One kind of traffic.
struct Traffic {
    name: &'static str,
    terms: Terms,
    send: bool,
    sizes: &'static [usize],
}

const ALL: [Traffic; 4] = [
    Traffic {
        name: "write",
        terms: Terms::PLAIN,
        send: false,
        sizes: &[64, 4 << 10, 64 << 10, 1 << 20],
    },
    Traffic {
        name: "write crc",
        terms: Terms::CRC,
        send: false,
        sizes: &[64, 4 << 10, 64 << 10, 1 << 20],
    },
    Traffic {
        name: "write crc+markers mtu 1500",
        terms: Terms { crc: true, markers: true, emss: ETHERNET },
        send: false,
        sizes: &[64 << 10],
    },
    Traffic { name: "send crc", terms: Terms::CRC, send: true, sizes: &[64] },
];

fn main() {
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .nresamples(20_000)
        .configure_from_args();
    for (group, half) in [("transmit", Half::Transmit), ("receive", Half::Receive)] {
        let mut group = criterion.benchmark_group(group);
        for traffic in &ALL {
            for &size in traffic.sizes {
                let mut bench = Bench::new(traffic, size);
                group.throughput(Throughput::Bytes((bench.batch * size) as u64));
                group.bench_function(BenchmarkId::new(traffic.name, size), |b| {
                    b.iter_custom(|n| (0..n).map(|_| bench.round(half)).sum());
                });
            }
        }
        group.finish();
    }
    completion_queue(&mut criterion);
    criterion.final_summary();
}

/// The part of a round that is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Half {
    /// Posting, building, completing; not what the system call would do.
    Transmit,
    /// Taking apart, placing, completing.
    Receive,
}

struct Bench {
    from: End,
    to: End,
    wire: Vec<u8>,
    send: bool,
    size: usize,
    batch: usize,
}

impl Bench {
    fn new(traffic: &Traffic, size: usize) -> Self {
        let (from, to) = ends(traffic.terms);
        let batch = if size <= 4 << 10 { BATCH } else { 1 };
        Self { from, to, wire: Vec::new(), send: traffic.send, size, batch }
    }

    fn round(&mut self, half: Half) -> Duration {
        let (batch, size) = (self.batch, self.size);
        if self.send {
            (0..batch).for_each(|_| self.to.post_recv(size));
        }
        let op = if self.send { SEND } else { End::write_to(&self.to) };
        self.wire.clear();

        let start = Instant::now();
        (0..batch).for_each(|_| self.from.post(op, size));
        let mut transmit = start.elapsed();
        loop {
            let start = Instant::now();
            let built = self.from.build();
            transmit += start.elapsed();
            if built == 0 {
                break;
            }
            self.from.copy_out(&mut self.wire);
            let start = Instant::now();
            self.from.taken();
            transmit += start.elapsed();
        }
        let start = Instant::now();
        assert_eq!(self.from.completions(), batch);
        transmit += start.elapsed();

        let start = Instant::now();
        self.to.receive(&mut self.wire);
        assert_eq!(self.to.completions(), if self.send { batch } else { 0 });
        match half {
            Half::Transmit => transmit,
            Half::Receive => start.elapsed(),
        }
    }
}

fn completion_queue(criterion: &mut Criterion) {
    let ring = Ring::new();
    let mut completions: Vec<WorkCompletion> = Vec::with_capacity(BATCH);
    let mut group = criterion.benchmark_group("completion queue");
    for n in [1, BATCH] {
        group.throughput(Throughput::Elements(n as u64));
        group.bench_function(BenchmarkId::new("flush and poll", n), |b| {
            b.iter(|| {
                (0..n).for_each(|_| ring.push());
                ring.poll(&mut completions, n);
            });
        });
    }
    // As above without the flushes, which are not the queue's.
    group.bench_function(BenchmarkId::new("poll", BATCH), |b| {
        b.iter_custom(|rounds| {
            let mut time = Duration::ZERO;
            for _ in 0..rounds {
                (0..BATCH).for_each(|_| ring.push());
                let start = Instant::now();
                ring.poll(&mut completions, BATCH);
                time += start.elapsed();
            }
            time
        });
    });
    group.finish();
}
