// SPDX-License-Identifier: MIT OR Apache-2.0

//! The rows of Rust crates: their tests and examples.

use super::crates::{ASYNC_RDMA, IBVERBS, RUAPC_RDMA, SIDEWAY};
use super::table::{Row, alone, pair, same};

/// The result of a crate's tests.
const GOOD: &str = "test result: ok";

/// By heading, in the order of the document.
pub(super) fn groups() -> Vec<(&'static str, Vec<Row>)> {
    vec![
        (SIDEWAY, sideway()),
        (IBVERBS, ibverbs()),
        (ASYNC_RDMA, async_rdma()),
        (RUAPC_RDMA, ruapc_rdma()),
    ]
}

fn sideway() -> Vec<Row> {
    // Tests of features that it wants of every device and RNICs lack: a GID is RoCE's where the
    // link is Ethernet, and a queue pair takes no receives before it is told to be in the state
    // INIT.
    let left_out = "--skip test_query_gid_table_fallback --skip test_query_qp \
        --skip test_post_recv_errors";
    let mut rows = vec![
        alone("sideway-tests").sysfs().shows(GOOD),
        alone(&format!("sideway-tests {left_out}")).iwarp().sysfs().shows(GOOD),
    ];
    for test in ["atomic", "cq", "mr_and_cq", "post_send", "qp"] {
        let row = alone(&format!("sideway-test_{test}")).shows(GOOD);
        rows.extend([row.clone(), row.iwarp()]);
    }
    rows.push(alone("sideway-ibv_devinfo").shows("roce0"));
    rows.push(alone("sideway-show_gids").sysfs().shows("RoCEv2"));
    for example in ["rc_pingpong", "rc_pingpong_split"] {
        let row = same(&format!("sideway-{example} -n 500"), 18515).shows("iters in");
        rows.extend([row.clone(), row.iwarp()]);
    }
    let cmtime = pair("sideway-cmtime -b SERVER", "sideway-cmtime -b CLIENT -s SERVER", 18515);
    rows.extend([cmtime.clone(), cmtime.iwarp()]);
    rows
}

fn ibverbs() -> Vec<Row> {
    let example = alone("ibverbs-loopback").shows("received");
    vec![alone("ibverbs-tests").shows(GOOD), example.clone(), example.iwarp()]
}

fn async_rdma() -> Vec<Row> {
    // The one that is left out asks the kernel for its device, by the program `rdma`. Left out,
    // too: the test `imm` and the example `client`, which want Soft-RoCE's flags with immediate
    // data.
    let tests = alone("async-rdma-tests --skip context::tests::test1").shows(GOOD);
    let test = |name: &str| alone(&format!("async-rdma-{name}")).shows(GOOD);
    let mut rows = vec![tests.clone(), tests.iwarp()];
    for name in ["atomic", "loop"] {
        rows.extend([test(name), test(name).iwarp()]);
    }
    // With an RNIC's completions a Write does not learn that the peer has refused it.
    rows.extend(["cancel_safety", "device", "mr_slice", "rmr_access", "rmr_timeout"].map(test));
    rows.push(alone("async-rdma-devices").shows("roce0"));
    let rpc = alone("async-rdma-rpc").shows("response: world");
    rows.extend([rpc.clone(), rpc.iwarp()]);
    // The server answers without knowing whether its client has posted a receive.
    let by_cm = pair("async-rdma-cm_server", "async-rdma-cm_client SERVER 7471", 7471);
    rows.push(by_cm.shows("cm_client: end"));
    rows
}

fn ruapc_rdma() -> Vec<Row> {
    let row = alone("ruapc-rdma-tests").shows(GOOD);
    vec![row.clone(), row.iwarp()]
}
