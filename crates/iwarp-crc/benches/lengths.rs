// SPDX-License-Identifier: MIT OR Apache-2.0

//! The cost of a CRC by the number of octets, beside that of the crate `crc-fast`.
//!
//! `cargo bench -p iwarp-crc --bench lengths`

use std::hint::black_box;
use std::time::Duration;

use crc_fast::CrcAlgorithm;
use criterion::Criterion;
use iwarp_crc::{Digest, Polynomial};

const LENGTHS: [usize; 10] = [12, 36, 64, 128, 256, 512, 1040, 2064, 4112, 65_536];

fn main() {
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(500))
        .nresamples(20_000)
        .configure_from_args();
    for (name, polynomial, algorithm) in [
        ("CRC-32", Polynomial::Ethernet, CrcAlgorithm::Crc32IsoHdlc),
        ("CRC32c", Polynomial::Castagnoli, CrcAlgorithm::Crc32Iscsi),
    ] {
        for length in LENGTHS {
            let data = vec![0x5a; length];
            criterion.bench_function(&format!("{name}/{length}"), |b| {
                b.iter(|| {
                    let mut digest = Digest::from_register(polynomial, 0x1234_5678);
                    digest.update(black_box(&data));
                    digest.register()
                });
            });
            criterion.bench_function(&format!("{name}/{length}, crc-fast"), |b| {
                b.iter(|| {
                    let mut digest = crc_fast::Digest::new_with_init_state(algorithm, 0x1234_5678);
                    digest.update(black_box(&data));
                    digest.get_state()
                });
            });
        }
    }
    criterion.final_summary();
}
