// SPDX-License-Identifier: MIT OR Apache-2.0

//! CRC32c, and FPDUs made and taken apart, without registered memory.
//!
//! `cargo bench -p iwarp-proto --bench framing`

use std::hint::black_box;
use std::time::Duration;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput};
use iwarp_types::Digest;

use iwarp_proto::framing::{Deframe as _, Frame as _};
use iwarp_proto::mpa::rx::Deframer;
use iwarp_proto::mpa::tx::Framer;

/// A tagged DDP header.
const HEADER: [u8; 14] = [0; 14];
/// Payload of an FPDU.
const PAYLOAD: usize = 4096;

/// Terms that a stream may have agreed on: name, CRC, markers.
const TERMS: [(&str, bool, bool); 3] =
    [("plain", false, false), ("crc", true, false), ("crc+markers", true, true)];

fn main() {
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .nresamples(20_000)
        .configure_from_args();
    crc(&mut criterion);
    encode(&mut criterion);
    decode(&mut criterion);
    criterion.final_summary();
}

fn crc(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("crc");
    for size in [64, 4 << 10, 64 << 10] {
        let octets = vec![0x5a; size];
        group.throughput(Throughput::Bytes(size as u64));
        group.bench_function(BenchmarkId::from_parameter(size), |b| {
            b.iter(|| {
                let mut crc = Digest::crc32c();
                crc.update(black_box(&octets));
                crc.wire()
            });
        });
    }
    group.finish();
}

fn encode(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("encode");
    group.throughput(Throughput::Bytes(PAYLOAD as u64));
    let payload = vec![0x5a; PAYLOAD];
    for (name, crc, markers) in TERMS {
        let mut framer = Framer::new(crc, markers);
        let mut out = vec![0; 2 * PAYLOAD];
        group.bench_function(BenchmarkId::new(name, PAYLOAD), |b| {
            b.iter(|| frame(&mut framer, black_box(&payload), &mut out));
        });
    }
    group.finish();
}

fn decode(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decode");
    group.throughput(Throughput::Bytes(PAYLOAD as u64));
    let payload = vec![0x5a; PAYLOAD];
    for (name, crc, markers) in TERMS {
        let mut fpdu = vec![0; 2 * PAYLOAD];
        let len = frame(&mut Framer::new(crc, markers), &payload, &mut fpdu);
        fpdu.truncate(len);
        group.bench_function(BenchmarkId::new(name, PAYLOAD), |b| {
            // Anew each time: markers are cut out in place.
            b.iter_batched_ref(
                || (Deframer::new(crc, markers), fpdu.clone()),
                |(deframer, fpdu)| {
                    let found = deframer.next(black_box(fpdu)).expect("a good FPDU");
                    assert_eq!(found.expect("a whole FPDU").consumed, len);
                },
                BatchSize::SmallInput,
            );
        });
    }
    group.finish();
}

/// Frames a copy of `payload` and returns the length of the FPDU.
fn frame(framer: &mut Framer, payload: &[u8], out: &mut [u8]) -> usize {
    let framed = framer.write(out, &HEADER, payload.len(), |at, dst, crc| {
        dst.copy_from_slice(&payload[at..at + dst.len()]);
        if let Some(crc) = crc {
            crc.update(dst);
        }
        Ok::<_, std::convert::Infallible>(())
    });
    framed.unwrap_or_else(|never| match never {})
}
