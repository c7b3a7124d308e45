// SPDX-License-Identifier: MIT OR Apache-2.0

//! Programs that listen by RDMA and by TCP of their own under one port number, with the library
//! that `iwarp run` preloads. The scenarios are in `c/cm_ports.c`.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use crate::support;

fn run(scenario: &str) {
    static PROGRAM: OnceLock<(PathBuf, PathBuf)> = OnceLock::new();

    let (program, preload) = PROGRAM.get_or_init(|| {
        let whole = support::with_headers(include_str!("../c/cm_ports.c"));
        let preload = support::scratch("ports").join("libiwarp-preload.so");
        std::fs::write(&preload, iwarp_preload::PRELOAD).unwrap();
        (support::compile("cm_ports", &whole, &["-lrdmacm", "-libverbs"]), preload)
    });
    let preload = preload.to_str().unwrap();
    for (personality, wire) in [("roce", "auto"), ("roce", "iwarp"), ("iwarp", "auto")] {
        let env =
            [("LD_PRELOAD", preload), ("IWARP_PERSONALITY", personality), ("IWARP_WIRE", wire)];
        let output = support::run_program(program, &[scenario], &env, Duration::from_secs(60));
        let said = String::from_utf8_lossy(&output.stderr);
        let of = format!("{scenario} {personality} {wire}");
        assert!(output.status.success(), "{of}: {}\n{said}", output.status);
    }
}

#[test]
fn tcp_comes_after_rdma() {
    run("rdma-first");
}

#[test]
fn rdma_comes_after_tcp() {
    run("tcp-first");
}

#[test]
fn both_are_bound_before_either_listens() {
    run("bound-first");
}

#[test]
fn a_socket_that_lets_others_in_is_bound_first() {
    run("reused");
}

#[test]
fn rdma_comes_to_one_of_the_addresses_of_tcp() {
    run("one-of-all");
}

#[test]
fn a_socket_that_would_get_the_other_s_connections_is_refused() {
    run("unlike");
}
