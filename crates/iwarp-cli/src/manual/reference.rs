// SPDX-License-Identifier: MIT OR Apache-2.0

//! Variables, files and other pages, which the manual pages name beside the command line.

/// Name, values and meaning of each variable, as in docs/configuration.md.
pub(super) const VARIABLES: &[(&str, &str, &str)] = &[
    (
        "IWARP_PERSONALITY",
        "roce|iwarp",
        "The kind of device: roce0, whose requests complete when the peer has placed the data, or \
         iwarp0, whose Sends and Writes complete when TCP has accepted them (roce; iwarp in Rust).",
    ),
    (
        "IWARP_WIRE",
        "auto|iwarp|roce",
        "The protocol of a roce device's reliable queue pairs: iWARP over TCP, RoCE v2 over UDP, or \
         what their peer speaks (auto).",
    ),
    (
        "IWARP_DEVICES",
        "NAME[=INTERFACE[+INTERFACE]...][:WORD]...,...",
        "The devices: name, the interface whose addresses each has, or one for each of its ports, \
         and in what it differs from the others: iwarp or roce, wire=auto|iwarp|roce, speed=GBIT \
         (roce0 or iwarp0, with all addresses).",
    ),
    (
        "IWARP_LOCAL",
        "auto|off|rings|require|share",
        "The way of iWARP connections within one host: shared memory where both ends allow it and \
         belong to one user, or TCP (auto). With require, one that stays with TCP fails; with \
         share, containers of a pod map each other's memory.",
    ),
    (
        "IWARP_SPEED",
        "GBIT",
        "Speed that the port is said to have, 10 to 400 Gbit/s (100). It limits nothing.",
    ),
    ("IWARP_CRC", "on|off", "CRC32c on the stream; off only if both ends switch it off (on)."),
    ("IWARP_MARKERS", "on|off", "Ask the peer for MPA markers (off)."),
    ("IWARP_MPA_REVISION", "1|2", "Revision of the requests that this end makes (2)."),
    (
        "IWARP_MPA_FALLBACK",
        "on|off",
        "Try revision 1 if a peer closes the connection on seeing revision 2 (on).",
    ),
    (
        "IWARP_PEER_TO_PEER",
        "off|write|read|send|any",
        "Let the connecting side send an empty frame first, so that the accepting side may be the \
         first to send (off).",
    ),
    (
        "IWARP_EXTENSIONS",
        "ask|assume|refuse",
        "Atomics and immediate data of RFC 7306: ask whether the peer has them, assume it, or do \
         without (ask).",
    ),
    ("IWARP_MULPDU", "BYTES", "Size of the largest frame, 128 to 64768 (one TCP segment)."),
    ("IWARP_STARTUP_TIMEOUT_MS", "MILLISECONDS", "Time for a peer's part of the start-up (10000)."),
    (
        "IWARP_USER_TIMEOUT_MS",
        "MILLISECONDS",
        "Silence of a peer that owes an answer, after which the connection is lost (25000).",
    ),
    (
        "IWARP_LINGER_MS",
        "MILLISECONDS",
        "Time for a closed connection to send what remains and to see the peer close (10000).",
    ),
    (
        "IWARP_MAX_PENDING",
        "CONNECTIONS",
        "Connections of a listener that may be in start-up, or wait for the program's answer, at a \
         time (1024).",
    ),
    (
        "IWARP_LOCAL_CONGESTION",
        "ALGORITHM|default",
        "TCP's congestion control within this host (cubic).",
    ),
    (
        "IWARP_KEEPALIVE_S",
        "off|SECONDS",
        "Idle time after which a connection is probed (300, on those that a listener accepted).",
    ),
    (
        "IWARP_SEND_MEMORY",
        "BYTES",
        "Memory of the system, over all connections, for data that peers do not read (67108864).",
    ),
    ("IWARP_UDP_SEGMENT", "on|off", "Pass several RoCE v2 packets to the system in one call (on)."),
    (
        "IWARP_STRICT",
        "on|off",
        "Refuse what RDMA cards refuse, where this library would do it all the same (off).",
    ),
    ("IWARP_WORKERS", "THREADS", "Threads of the library, 1 to 64 (1)."),
    (
        "IWARP_PORTS",
        "FIRST-LAST",
        "TCP ports of queue pairs that are connected without the connection manager (the system's \
         choice).",
    ),
    (
        "IWARP_ALLOW_USERS",
        "any|USER,...",
        "Users of this host, beside the own one and root, whose programs may connect to such queue \
         pairs (none).",
    ),
    (
        "IWARP_LOG",
        "off|error|warn|info|debug|trace",
        "Messages on standard error (warn); iwarp=trace and the like in this command and in Rust.",
    ),
    ("IWARP_LOG_FORMAT", "text|json", "The form of these messages (text)."),
    (
        "IWARP_CAPTURE",
        "FILE[,snap=N][,ring=NxN]",
        "Write all packets of the process to a file, for Wireshark (none).",
    ),
    (
        "IWARP_FAULTS",
        "seed=N,lose=N,...",
        "A network with faults, for tests: lose, repeat, reorder, damage, delay, cut, corrupt; and \
         faults of calls and completions by rule, with semicolons between (none).",
    ),
    (
        "IWARP_WITHOUT",
        "ADAPTATION,...",
        "For measuring and debugging: leave out gather, awaiting, piggyback, backoff, arming or lend \
         (none).",
    ),
];

/// Path, meaning, and whether only programs under `iwarp run` have to do with it.
pub(super) const FILES: [(&str, &str, bool); 9] = [
    (
        "PREFIX/lib/iwarp",
        "libibverbs.so.1, librdmacm.so.1 and the two small libraries of this command.",
        true,
    ),
    (
        "$XDG_RUNTIME_DIR/iwarp, $XDG_CACHE_HOME/iwarp, ~/.cache/iwarp, /tmp/iwarp-UID",
        "Links to the libraries, and what programs see in /sys and /dev: in the first of these that \
         is usable, not mounted noexec, and closed to other users.",
        true,
    ),
    (
        "/sys/class/infiniband, /dev/infiniband",
        "Where programs see the device. The system has nothing there.",
        true,
    ),
    (
        "PREFIX/share/iwarp/pair.sh",
        "Starts a client as soon as its server listens, for tests.",
        true,
    ),
    (
        "PREFIX/share/iwarp/valgrind.supp, tsan.supp",
        "Suppressions for Valgrind's memcheck and ThreadSanitizer.",
        true,
    ),
    ("/proc/net, /proc/sys/net", "What the system says of its addresses and of TCP.", false),
    ("PREFIX/share/doc/iwarp/run.md", "How to run programs, and what to do when one fails.", true),
    (
        "PREFIX/share/doc/iwarp/configuration.md",
        "All variables, at length. PREFIX is the folder of this command's bin, such as /usr.",
        false,
    ),
    ("PREFIX/share/doc/iwarp/learn", "A book that teaches RDMA by programs.", false),
];

/// Pages of others to which a page refers.
pub(super) const PROGRAMS: [(&str, &[&str]); 8] = [
    ("iwarp", &["rdma_cm(7)", "tcp(7)"]),
    ("iwarp-run", &["ld.so(8)", "ibv_devinfo(1)", "rping(1)", "rdma_cm(7)", "valgrind(1)"]),
    ("iwarp-devinfo", &["ibv_devinfo(1)", "ibv_devices(1)"]),
    ("iwarp-rping", &["rping(1)", "rdma_cm(7)"]),
    ("iwarp-perf", &["ib_write_bw(1)", "taskset(1)"]),
    ("iwarp-demo", &["tcpdump(1)"]),
    ("iwarp-conform", &["rping(1)"]),
    ("iwarp-completions", &["bash(1)", "zsh(1)", "fish(1)"]),
];
