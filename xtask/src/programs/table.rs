// SPDX-License-Identifier: MIT OR Apache-2.0

//! The programs that are run, how, and the results that they must have.
//!
//! `SERVER` in a command is the address of the host that serves, `CLIENT` that of the other.

use std::time::Duration;

use super::clock::Measurement;
use super::crate_rows;
use super::lab::Side;
use super::process::ROCE;

/// A line of the matrix.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// Heading in the document, and for `--only`.
    pub(crate) group: &'static str,
    /// The serving command; empty where there is none.
    pub(crate) server: String,
    /// The port at which the server listens when it is ready (TCP).
    pub(crate) port: u16,
    /// The other command, or the only one.
    pub(crate) client: String,
    /// The kind that the device says it is.
    pub(crate) personality: Personality,
    /// The kind that the server's device says it is, where that is another.
    pub(crate) server_personality: Option<Personality>,
    /// Set if the program looks into /sys or /dev.
    pub(crate) sysfs: bool,
    /// Set if its large blocks of memory are shared.
    pub(crate) shared_heap: bool,
    /// Set if the device has two ports: the first on `lo`, the second on `eth0`.
    pub(crate) two_ports: bool,
    /// The topologies where it runs.
    pub(crate) topologies: &'static [Topology],
    /// The result that it must have.
    pub(crate) expect: Expect,
    /// Set if the server goes on when its client is done.
    pub(crate) server_stays: bool,
    /// Seconds that are too many for it.
    pub(crate) limit: u64,
    /// The measurement that its program makes: a run that refuses it is repeated once.
    pub(crate) measures: Option<Measurement>,
    /// Among the few that `--fast` runs.
    pub(crate) fast: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Personality {
    Iwarp,
    Roce,
}

impl Personality {
    /// Its name, which `--personality` takes.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Iwarp => "iwarp",
            Self::Roce => "roce",
        }
    }
}

/// The names that the device and programs give to it, as an RNIC and as a RoCE device.
const SAID: [(&str, &str); 8] = [
    ("transport:\t\t\tiWARP (1)", "transport:\t\t\tInfiniBand (0)"),
    ("FI_PROTO_IWARP", "FI_PROTO_RDMA_CM_IB_RC"),
    ("Couldn't create QP", "Failed to modify QP to INIT"),
    ("Failed to create QP", "Failed to modify QP"),
    ("rc_verbs/iwarp0:1", "rc_verbs/roce0:1"),
    ("rc_verbs/iwarp0:2", "rc_verbs/roce0:2"),
    ("link iwarp0/2 state ACTIVE", "link roce0/2 state ACTIVE"),
    ("iwarp0", "roce0"),
];

/// The topologies of the two processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Topology {
    /// On one host, which is reached as 127.0.0.1.
    Loopback,
    /// On two hosts with a network of MTU 1500 between them.
    Network,
}

/// The result that a row must have.
#[derive(Clone, Debug)]
pub(crate) enum Expect {
    /// Both commands succeed, and the client's output has this in it.
    Success(&'static str),
    /// The client fails within seconds, and some output has this in it.
    Refusal(&'static str),
    /// The client is at work, and this happens: it fails in time, and its output has this in it.
    Loss(Loss, Duration, &'static str),
}

/// The way in which a client loses its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// The process is killed (SIGKILL).
    Killed,
    /// Its host's network goes down: neither end hears of it.
    Silent,
}

impl Loss {
    /// For the document.
    pub(crate) const fn told(self) -> &'static str {
        match self {
            Self::Killed => "then the server is killed",
            Self::Silent => "then the server's network goes down",
        }
    }
}

const EVERYWHERE: &[Topology] = &[Topology::Loopback, Topology::Network];
const LOOPBACK: &[Topology] = &[Topology::Loopback];
const NETWORK: &[Topology] = &[Topology::Network];

/// All rows, in the order of the document.
pub(crate) fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    let mut group = |name, more: Vec<Row>| {
        rows.extend(more.into_iter().map(|row| Row { group: name, ..row }));
    };
    group("ibverbs-utils", ibverbs_utils());
    group("iproute2", iproute2());
    group("rdmacm-utils", rdmacm_utils());
    group("perftest", perftest());
    group("qperf", qperf());
    group("fio", fio());
    group("libfabric", libfabric());
    group("Open MPI", open_mpi());
    group("UCX", ucx());
    for (name, more) in crate_rows::groups() {
        group(name, more);
    }
    group("the second port of a device", second_port());
    group("two kinds of device", mixed());
    group("a peer that is lost", lost());
    group("what no RC device has", refused());
    rows
}

fn ibverbs_utils() -> Vec<Row> {
    let mut rows = vec![
        alone("ibv_devices").shows("roce0").fast(),
        alone("ibv_devices").iwarp().shows("iwarp0"),
        alone("ibv_devinfo -v").shows("transport:\t\t\tInfiniBand (0)").fast(),
        alone("ibv_devinfo -v").iwarp().shows("transport:\t\t\tiWARP (1)"),
    ];
    // With and without a GID, sleeping and polling, by the newer interface, with checked content.
    for options in ["-g 0", "-g 0 -e", "-g 0 -c", "-g 0 -N", "-g 0 -s 1048576 -n 100", "", "-e"] {
        let command = format!("ibv_rc_pingpong {options}");
        let row = same(&command, 18515).shows("iters in");
        rows.push(if options == "-g 0" { row.fast() } else { row });
    }
    rows.push(same("ibv_rc_pingpong -g 0 -c", 18515).iwarp().shows("iters in"));
    for options in ["-g 0", "-g 0 -e", "", "-g 0 -c -q 4"] {
        rows.push(same(&format!("ibv_srq_pingpong {options}"), 18515).shows("iters in"));
    }
    for program in ["ibv_ud_pingpong -g 0", "ibv_ud_pingpong -g 0 -e", "ibv_uc_pingpong -g 0"] {
        rows.push(same(program, 18515).shows("iters in"));
        rows.push(same(program, 18515).iwarp().shows("iters in"));
    }
    rows
}

/// Programs that ask for devices by netlink.
fn iproute2() -> Vec<Row> {
    vec![
        alone("rdma link show").sysfs().shows("link roce0/1 state ACTIVE").fast(),
        alone("rdma -j link show").sysfs().shows("\"ifname\":\"roce0\""),
        alone("rdma dev show").sysfs().shows("0: roce0: node_type ca "),
        alone("rdma dev show").iwarp().sysfs().shows("0: iwarp0: node_type rnic "),
        alone("rdma resource show").sysfs().shows("0: roce0: pd "),
        alone("rdma statistic show").sysfs().shows("link roce0/1 "),
        alone("rdma system show").sysfs().shows("netns shared"),
    ]
}

fn rdmacm_utils() -> Vec<Row> {
    let rping = |options: &str| {
        let client = format!("rping -c -a SERVER -C 20 -V {options}");
        pair(&format!("rping -s -a SERVER -C 20 -V {options}"), &client, 7174)
    };
    vec![
        rping("-v").shows("ping data: rdma-ping-").fast(),
        rping("-S 65535"),
        rping("-q"),
        rping("-d"),
        rping("-I CLIENT").server("rping -s -C 20"),
        rping("").server("rping -s -P").stays(),
        rping("").iwarp(),
        pair("ucmatose", "ucmatose -s SERVER", 7471).shows("return status 0").fast(),
        pair("ucmatose -c 10 -C 20 -S 65536", "ucmatose -s SERVER -c 10 -C 20 -S 65536", 7471)
            .shows("return status 0"),
        pair("ucmatose -m", "ucmatose -s SERVER -m", 7471).shows("return status 0"),
        pair("ucmatose -a 10", "ucmatose -s SERVER -a 10", 7471).shows("return status 0"),
        pair("rdma_server", "rdma_client -s SERVER", 7471).shows("rdma_client: end 0"),
        pair("rdma_xserver", "rdma_xclient -s SERVER", 7471).shows("rdma_xclient: end 0"),
        datagrams("udaddy", "udaddy -s SERVER").shows("return status 0").fast(),
        datagrams("udaddy", "udaddy -s SERVER").iwarp().shows("return status 0"),
        datagrams("udaddy -c 3 -C 20 -S 1000", "udaddy -s SERVER -c 3 -C 20 -S 1000"),
        datagrams("mckey -m 239.7.18.1 -b SERVER", "mckey -m 239.7.18.1 -b CLIENT -s")
            .only(NETWORK)
            .shows("return status 0"),
        datagrams("mckey -m 239.7.18.1 -b SERVER", "mckey -m 239.7.18.1 -b CLIENT -s")
            .only(NETWORK)
            .iwarp()
            .shows("return status 0"),
        pair("cmtime -c 50", "cmtime -s SERVER -c 50", 7471).shows("disconnect").stays(),
        rstream("").fast(),
        rstream("").iwarp(),
        rstream("-T v -T n"),
        rstream("-T v -T b").iwarp(),
        rstream("-T v -T r"),
        rstream("-T f"),
    ]
}

fn rstream(options: &str) -> Row {
    let options = format!("-S 20000 -C 200 {options}");
    let client = format!("rstream -s SERVER {options}");
    pair(&format!("rstream {options}"), &client, 7471).only(LOOPBACK).shows("custom")
}

fn perftest() -> Vec<Row> {
    let mut rows = Vec::new();
    // The parts of it that there are for each test.
    let bw = ["write", "read", "send", "atomic"].map(|what| (what, "bw"));
    let lat = ["write", "read", "send", "atomic"].map(|what| (what, "lat"));
    for (what, measure) in bw.into_iter().chain(lat) {
        let program = format!("ib_{what}_{measure}");
        let mut variants = vec!["", "-R", "-c RC"];
        if measure == "bw" {
            variants.extend(["-q 4", "-q 2 -R", "-b"]);
        }
        if what != "write" {
            variants.push("-e");
        }
        if what == "send" || what == "write" {
            variants.push("-I 64 -s 64");
        }
        if what == "send" {
            variants.extend(["--use-srq", "--use-srq -R"]);
        }
        for options in variants {
            let row = same(&format!("{program} -n 200 {options}"), 18515);
            let fast = program == "ib_write_bw" && ["", "-R"].contains(&options);
            // RC is what it does anyway.
            let row = if options == "-c RC" { row.only(LOOPBACK) } else { row };
            rows.push(if fast { row.fast() } else { row });
        }
        if what != "atomic" {
            // perftest takes a second for each size, and longer where others want the CPUs.
            let topology = if measure == "bw" { NETWORK } else { LOOPBACK };
            let all = same(&format!("{program} -a -n 5"), 18515).only(topology).within(180);
            rows.push(all.shows("8388608"));
            rows.push(same(&format!("{program} -s 8388608 -n 5 -R"), 18515).shows("8388608"));
        }
    }
    for options in ["-A CMP_AND_SWAP", "-A FETCH_AND_ADD"] {
        rows.push(same(&format!("ib_atomic_bw -n 200 {options}"), 18515));
    }
    rows.push(same("ib_write_bw -D 1", 18515));
    rows.push(same("ib_write_bw -z -n 200", 18515));
    let counting = same("ib_write_bw -n 200 -W counters/port_xmit_packets", 18515).sysfs();
    rows.push(counting.only(NETWORK).shows("port_xmit_packets="));
    rows.push(same("ib_send_bw -l 8 -n 200", 18515));
    for program in ["ib_send_bw -c UD", "ib_send_bw -c UD -b", "ib_send_lat -c UD"] {
        rows.push(same(&format!("{program} -n 200"), 18515));
    }
    for program in ["ib_send_bw", "ib_send_lat", "ib_write_bw", "ib_write_lat"] {
        rows.push(same(&format!("{program} -c UC -n 200"), 18515));
    }
    for program in ["ib_write_bw", "ib_read_bw", "ib_send_bw", "ib_write_lat", "ib_atomic_lat"] {
        rows.push(same(&format!("{program} -n 200"), 18515).iwarp());
        rows.push(same(&format!("{program} -n 200 -R"), 18515).iwarp().only(NETWORK));
    }
    let programs = ["ib_write_bw -a -n 200", "ib_read_bw -n 2000 -q 4", "ib_write_lat -n 2000"];
    for program in programs.into_iter().chain(["ib_atomic_bw -n 2000", "ib_send_bw -n 2000"]) {
        let row = same(program, 18515).only(LOOPBACK).shared_heap();
        rows.push(if program.starts_with("ib_write_lat") { row.fast() } else { row });
    }
    rows
}

fn qperf() -> Vec<Row> {
    const TESTS: &str = "rc_bi_bw rc_bw rc_lat rc_rdma_read_bw rc_rdma_read_lat rc_rdma_write_bw \
        rc_rdma_write_lat rc_rdma_write_poll_lat rc_compare_swap_mr rc_fetch_add_mr \
        ver_rc_compare_swap ver_rc_fetch_add";
    let mut rows = Vec::new();
    for cm in ["", "-cm 1 "] {
        for test in TESTS.split_whitespace() {
            let row = pair("qperf", &format!("qperf SERVER -t 1 {cm}{test}"), 19765).stays();
            // Either end of rc_bi_bw may send before the other has posted a receive. The client of
            // rc_rdma_write_bw sends Immediate Data without a limit, and in shared memory so many
            // that a server which waits for a CPU runs out of receives.
            if cm.is_empty() && test != "rc_bi_bw" {
                let own = row.clone().iwarp();
                rows.push(if test == "rc_rdma_write_bw" { own.only(NETWORK) } else { own });
            }
            rows.push(row);
        }
    }
    rows
}

fn fio() -> Vec<Row> {
    let job = "--name=job --ioengine=rdma --port=18765 --bs=64k --size=8m --minimal";
    // The server says `read`, for any verb of the client; receiving is what servers do.
    let server = format!("fio {job} --rw=read --iodepth=16");
    let client = |verb| format!("fio {job} --rw=write --hostname=SERVER --verb={verb} --iodepth=1");
    let row = |verb| pair(&server, &client(verb), 18765);
    let mut rows = ["write", "read", "send"].map(row).to_vec();
    // It sends without knowing whether the other end has a receive, which InfiniBand makes good.
    rows.extend(["write", "read"].map(|verb| row(verb).iwarp()));
    rows
}

fn libfabric() -> Vec<Row> {
    let pingpong = |options: &str| {
        let server = format!("fi_pingpong {options}");
        pair(&server, &format!("{server} SERVER"), 47592).only(NETWORK)
    };
    vec![
        alone("fi_info -p verbs").shows("FI_PROTO_RDMA_CM_IB_RC"),
        alone("fi_info -p verbs").iwarp().shows("FI_PROTO_IWARP"),
        pingpong("-p verbs -e msg -c -I 50").shows("50"),
        pingpong("-p verbs -e msg -c -I 50").iwarp().shows("50"),
        pingpong("-p verbs;ofi_rxm -e rdm -c -I 50").shows("50"),
        pingpong("-p verbs;ofi_rxm -e rdm -m tagged -S 1048576 -I 20").shows("20"),
        alone("fi_info -p verbs").shows("FI_PROTO_IB_UD"),
        pingpong("-p verbs -e dgram -c -I 50").shows("50"),
        pingpong("-p verbs;ofi_rxd -e rdm -c -I 50").shows("50"),
        pingpong("-e dgram -I 50").shows("50"),
        pingpong("-I 50").shows("50"),
    ]
}

fn open_mpi() -> Vec<Row> {
    let mpirun = "mpirun --oversubscribe -n 4 --mca pml cm --mca mtl ofi --mca \
        mtl_ofi_provider_include verbs;ofi_rxm mpi_ring";
    vec![alone(mpirun).shows("ring of 4: ok").within(60)]
}

fn ucx() -> Vec<Row> {
    let mut rows = Vec::new();
    for test in ["am_lat", "am_bw", "put_lat", "put_bw", "get", "fadd", "cswap"] {
        let size = if matches!(test, "get" | "put_bw") { " -D zcopy -s 4096" } else { "" };
        let command = format!("ucx_perftest -d roce0:1 -x rc_verbs -n 1000 -t {test}{size}");
        rows.push(pair(&command, &format!("{command} SERVER"), 13337).sysfs());
    }
    for test in ["am_lat", "am_bw"] {
        let command = format!("ucx_perftest -d roce0:1 -x ud_verbs -n 1000 -t {test}");
        rows.push(pair(&command, &format!("{command} SERVER"), 13337).sysfs());
    }
    // All transports that the device has, as UCX sets them up and picks them; it connects by UD. To
    // it both hosts are one, so it is told to leave the memory alone that they share.
    let tests = "tag_lat tag_bw tag_sync_lat ucp_put_lat ucp_put_bw ucp_get ucp_add ucp_fadd ucp_swap \
        ucp_cswap stream_lat stream_bw ucp_am_lat ucp_am_bw";
    for test in tests.split_whitespace() {
        let server = "env UCX_TLS=ib,self UCX_LOG_LEVEL=info ucx_perftest";
        let client = format!("{server} SERVER -n 500 -t {test}");
        rows.push(pair(server, &client, 13337).sysfs().shows("rc_verbs/roce0:1"));
    }
    let plain = pair("ucx_perftest", "ucx_perftest SERVER -n 500 -t tag_lat", 13337);
    rows.push(plain.sysfs().shows("Final:"));
    // A port for each: UCX cannot listen where connections linger. Its connection manager over TCP
    // needs that transport to begin with, then it takes the fastest. Left to itself it listens by
    // both at one port, and connects by RDMA.
    let mut port = 13_400;
    for (cm, transports) in [("tcp", "rc_verbs,tcp"), ("rdmacm", "rc_verbs"), ("rdmacm", "all")] {
        for kind in ["stream", "tag", "am"] {
            port += 1;
            let command = format!(
                "env UCX_TLS={transports} UCX_NET_DEVICES=roce0:1,eth0 UCX_LOG_LEVEL=info \
                 UCX_SOCKADDR_TLS_PRIORITY={cm} ucp_client_server -p {port} -c {kind}"
            );
            let row = pair(&command, &format!("{command} -a SERVER"), port).sysfs();
            rows.push(row.only(NETWORK).shows("rc_verbs/roce0:1").stays());
        }
    }
    for kind in ["stream", "tag", "am"] {
        port += 1;
        let command = format!("env UCX_LOG_LEVEL=info ucp_client_server -p {port} -c {kind}");
        let row = pair(&command, &format!("{command} -a SERVER"), port).sysfs();
        rows.push(row.only(NETWORK).shows("rc_verbs/roce0:1").stays());
    }
    rows
}

/// Programs that are told to take the second port of a device, and meet there.
fn second_port() -> Vec<Row> {
    let ucx = |options: &str| {
        let command = format!("ucx_perftest -d roce0:2 -n 1000 -t am_lat {options}");
        pair(&command, &format!("{command} SERVER"), 13337).sysfs()
    };
    let chosen = "env UCX_TLS=ib,self UCX_NET_DEVICES=roce0:2 UCX_LOG_LEVEL=info ucx_perftest";
    let rows = [
        alone("ibv_devinfo -d roce0 -i 2").shows("port:\t2"),
        alone("rdma link show roce0/2").sysfs().shows("link roce0/2 state ACTIVE"),
        alone("ucx_info -d").sysfs().shows("Device: roce0:2"),
        same("ibv_rc_pingpong -d roce0 -i 2 -g 0 -c", 18515).shows("iters in").fast(),
        same("ibv_rc_pingpong -d roce0 -i 2", 18515).shows("iters in"),
        same("ibv_ud_pingpong -d roce0 -i 2 -g 0", 18515).shows("iters in"),
        same("ib_write_bw -d roce0 -i 2 -n 200", 18515),
        same("ib_write_bw -d roce0 -i 2 -n 200 -R", 18515),
        same("ib_read_lat -d roce0 -i 2 -n 200", 18515),
        same("ib_send_bw -d roce0 -i 2 -n 200 -c UD", 18515),
        ucx("-x rc_verbs"),
        ucx("-x ud_verbs"),
        pair(chosen, &format!("{chosen} SERVER -n 500 -t tag_lat"), 13337)
            .sysfs()
            .shows("rc_verbs/roce0:2"),
    ];
    let rows = rows.map(|row| match row.server.is_empty() {
        true => row,
        // The address of the other host is the second port's.
        false => row.only(NETWORK),
    });
    rows.map(|row| Row { two_ports: true, ..row }).into()
}

/// Ends of which one is like an RNIC and one like a RoCE device. Not ib_send_bw, whose ends count
/// credits where their own device is an RNIC, so that one waits for what the other never writes;
/// a line of the library says that the devices differ.
fn mixed() -> Vec<Row> {
    let mut rows = Vec::new();
    for (servers, clients) in
        [(Personality::Roce, Personality::Iwarp), (Personality::Iwarp, Personality::Roce)]
    {
        let mut add = |row: Row| {
            let row = Row { personality: clients, ..row };
            rows.push(row.served_by(servers));
        };
        let rping = "rping -c -a SERVER -C 20 -V -v";
        add(pair("rping -s -a SERVER -C 20 -V -v", rping, 7174).shows("ping data: rdma-ping-"));
        add(same("ibv_rc_pingpong -g 0 -c", 18515).shows("iters in"));
        for program in ["ib_send_lat", "ib_write_bw", "ib_write_lat", "ib_read_bw", "ib_atomic_lat"]
        {
            add(same(&format!("{program} -n 200"), 18515));
            add(same(&format!("{program} -n 200 -R"), 18515));
        }
    }
    rows
}

fn lost() -> Vec<Row> {
    let no_answer = "the peer does not answer any more";
    let silent = |seconds| Expect::Loss(Loss::Silent, Duration::from_secs(seconds), no_answer);
    let killed = Expect::Loss(Loss::Killed, Duration::from_secs(1), "Completion with error");
    // The first says how long it waits; with the connection manager it is our default.
    [
        ("ib_write_bw -D 60", silent(10)),
        ("ib_write_bw -D 60 -R", silent(30)),
        ("ib_write_bw -D 60", killed.clone()),
        ("ib_write_bw -D 60 -R", killed),
    ]
    .map(|(command, expect)| Row { expect, topologies: NETWORK, ..same(command, 18515) })
    .into()
}

fn refused() -> Vec<Row> {
    vec![alone("ibv_xsrq_pingpong -g 0").refused("XRC")]
}

/// A command by itself.
pub(super) fn alone(command: &str) -> Row {
    Row {
        group: "",
        server: String::new(),
        port: 0,
        client: tidy(command),
        personality: Personality::Roce,
        server_personality: None,
        sysfs: false,
        shared_heap: false,
        two_ports: false,
        topologies: LOOPBACK,
        expect: Expect::Success(""),
        server_stays: false,
        limit: 60,
        measures: Measurement::of(command),
        fast: false,
    }
}

fn tidy(command: &str) -> String {
    command.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A server, and a client when it listens.
pub(super) fn pair(server: &str, client: &str, port: u16) -> Row {
    Row { server: tidy(server), port, topologies: EVERYWHERE, ..alone(client) }
}

/// A server of datagrams, and a client when it has RoCE v2's port.
fn datagrams(server: &str, client: &str) -> Row {
    pair(server, client, ROCE)
}

/// One command for both ends; the client's ends with the name of the server.
pub(super) fn same(command: &str, port: u16) -> Row {
    pair(command, &format!("{command} SERVER"), port)
}

impl Row {
    fn server(self, server: &str) -> Self {
        Self { server: server.to_owned(), ..self }
    }

    pub(super) fn shows(self, text: &'static str) -> Self {
        Self { expect: Expect::Success(text), ..self }
    }

    fn refused(self, text: &'static str) -> Self {
        Self { expect: Expect::Refusal(text), ..self }
    }

    pub(super) fn iwarp(self) -> Self {
        Self { personality: Personality::Iwarp, ..self }
    }

    /// The kind that the device of one end says it is.
    pub(crate) fn personality_of(&self, side: Side) -> Personality {
        match side {
            Side::Server => self.server_personality.unwrap_or(self.personality),
            Side::Client => self.personality,
        }
    }

    /// This row with another device, at both ends.
    pub(crate) fn with_personality(&self, personality: Personality) -> Self {
        if personality == self.personality {
            return Self { server_personality: None, ..self.clone() };
        }
        let pair = |&(iwarp, roce)| match personality {
            Personality::Iwarp => (roce, iwarp),
            Personality::Roce => (iwarp, roce),
        };
        let [.., names] = SAID.each_ref().map(pair);
        let said = |text: &'static str| {
            SAID.iter().map(pair).find(|(from, _)| *from == text).map_or(text, |(_, to)| to)
        };
        let expect = match self.expect.clone() {
            Expect::Success(text) => Expect::Success(said(text)),
            Expect::Refusal(text) => Expect::Refusal(said(text)),
            loss @ Expect::Loss(..) => loss,
        };
        Self {
            personality,
            server_personality: None,
            expect,
            client: self.client.replace(names.0, names.1),
            server: self.server.replace(names.0, names.1),
            ..self.clone()
        }
    }

    /// Another device at the server's end.
    fn served_by(self, personality: Personality) -> Self {
        Self { server_personality: Some(personality), ..self }
    }

    pub(super) fn sysfs(self) -> Self {
        Self { sysfs: true, ..self }
    }

    fn shared_heap(self) -> Self {
        Self { shared_heap: true, ..self }
    }

    /// Options of `iwarp run` besides the kind of the device.
    pub(super) fn options(&self) -> Vec<&'static str> {
        let all = [("--sysfs", self.sysfs), ("--shared-heap", self.shared_heap)];
        all.into_iter().filter(|(_, is_given)| *is_given).map(|(option, _)| option).collect()
    }

    fn only(self, topologies: &'static [Topology]) -> Self {
        Self { topologies, ..self }
    }

    fn stays(self) -> Self {
        Self { server_stays: true, ..self }
    }

    fn within(self, limit: u64) -> Self {
        Self { limit, ..self }
    }

    fn fast(self) -> Self {
        Self { fast: true, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Also of rows that no list of perftest's has, and with another device.
    #[test]
    fn every_row_of_perftest_measures_its_clock() {
        for row in rows() {
            let is_perftest = row.client.starts_with("ib_");
            for row in [row.with_personality(Personality::Iwarp), row] {
                let clock = is_perftest.then_some(Measurement::Clock);
                assert_eq!(row.measures, clock, "{}: {}", row.group, row.client);
                assert_eq!(is_perftest, row.server.starts_with("ib_"), "{}", row.server);
            }
        }
        let groups = ["perftest", "two kinds of device", "a peer that is lost"];
        for group in groups {
            let measures = |row: &Row| row.group == group && row.measures.is_some();
            assert!(rows().iter().any(measures), "{group}");
        }
    }
}
