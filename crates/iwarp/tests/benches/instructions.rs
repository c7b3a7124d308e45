// SPDX-License-Identifier: MIT OR Apache-2.0

//! Inner loops that `cargo xtask instructions` counts under callgrind, without system calls, other
//! threads or the clock, so that the count does not vary. Posting is counted through the engine as
//! well, over a socket and over the rings of one host: hardly anything of it depends on times, as
//! receiving does. RoCE v2 is counted whole, over a network in memory and in virtual time.
//!
//! ```text
//!   instructions                    runs each case a few times
//!   instructions --list             their names
//!   instructions CASE ITERATIONS    runs one
//! ```
//!
//! Only what [`measured`] calls is counted; what prepares an iteration is not.

#[path = "../common/mod.rs"]
mod common;
#[path = "../../benches/ends/mod.rs"]
mod ends;
mod packets;

use std::env;
use std::hint::black_box;
use std::sync::Arc;

use iwarp::{Access, Buffer, LocalPath, Options, QpType, QueuePair, SendOp, Sge, TaggedOffset};
use iwarp_mem::{MemoryTable, Scope};
use iwarp_proto::framing::{Deframe as _, Frame as _};
use iwarp_proto::mpa::rx::Deframer;
use iwarp_proto::mpa::tx::Framer;
use iwarp_session::{BlockPool, Config};
use iwarp_types::{AccessError, Accessor, Memory, PdId, QpId, RemoteAccess};

use common::sessions::{done, pair_as};
use common::{Setup, next};
use ends::{ETHERNET, End, Ring, SEND, Terms, ends};
use packets::Pair;

/// A name, and what runs it so many times.
type Case = (&'static str, fn(u64));

const CASES: &[Case] = &[
    ("stag_check", stag_check),
    ("encode_4k_crc", encode),
    ("decode_4k_crc", decode),
    ("send_64_transmit", |n| transmit(Terms::CRC, send, 64, n)),
    ("send_64_receive", |n| receive(Terms::CRC, send, 64, n)),
    ("write_64k_transmit", |n| transmit(Terms::PLAIN, End::write_to, 64 << 10, n)),
    ("write_64k_receive", |n| receive(Terms::PLAIN, End::write_to, 64 << 10, n)),
    ("write_64k_mtu_1500_transmit", |n| transmit(NARROW, End::write_to, 64 << 10, n)),
    ("write_64k_mtu_1500_receive", |n| receive(NARROW, End::write_to, 64 << 10, n)),
    ("write_64k_mtu_1500_crc_transmit", |n| transmit(CHECKED, End::write_to, 64 << 10, n)),
    ("write_64k_mtu_1500_crc_receive", |n| receive(CHECKED, End::write_to, 64 << 10, n)),
    ("completion_flush", completion_flush),
    ("completion_poll", completion_poll),
    ("send_64_tcp_post", |n| post_send(LocalPath::Off, n)),
    ("send_64_rings_post", |n| post_send(LocalPath::Rings, n)),
    ("session_send_64_tcp", session_tcp_send),
    ("send_64_rc_post", |n| post_packet(QpType::Rc, n)),
    ("send_64_rc_receive", |n| receive_packet(QpType::Rc, n)),
    ("send_64_rc_acknowledged", acknowledged),
    ("send_64_ud_post", |n| post_packet(QpType::Ud, n)),
    ("send_64_ud_receive", |n| receive_packet(QpType::Ud, n)),
];

/// Iterations of each case when none is counted.
const A_FEW: u64 = 3;

const WHO: Accessor = Accessor { pd: PdId(3), qp: QpId(5) };
const NARROW: Terms = Terms { crc: false, markers: false, emss: ETHERNET };
const CHECKED: Terms = Terms { crc: true, ..NARROW };
/// Payload and tagged DDP header of an FPDU.
const PAYLOAD: usize = 4 << 10;
const HEADER: [u8; 14] = [0; 14];

fn main() {
    let arguments: Vec<String> = env::args().skip(1).filter(|word| word != "--bench").collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => CASES.iter().for_each(|(name, run)| {
            run(A_FEW);
            println!("{name}: runs");
        }),
        ["--list"] => CASES.iter().for_each(|(name, _)| println!("{name}")),
        [case, iterations] => {
            let (_, run) = CASES.iter().find(|(name, _)| *name == case).expect("a case's name");
            run(iterations.parse().expect("a number of iterations"));
        }
        _ => panic!("at most a case and a number of iterations"),
    }
}

/// Collection is on while this runs. `xtask/src/instructions/callgrind.rs` knows it by name.
#[inline(never)]
fn measured<R>(work: impl FnOnce() -> R) -> R {
    black_box(work())
}

fn stag_check(iterations: u64) {
    let (table, sge) = memory();
    let (to, access) = (TaggedOffset(64), RemoteAccess::Write);
    for _ in 0..iterations {
        let stag = black_box(sge.lkey);
        measured(|| table.check_remote(WHO, stag, to, 64, access)).expect("access");
    }
}

fn encode(iterations: u64) {
    let (table, sge) = memory();
    let mut framer = Framer::new(true, false);
    let mut out = vec![0; 2 * PAYLOAD];
    for _ in 0..iterations {
        measured(|| frame(&mut framer, &mut out, &table, sge)).expect("access");
    }
}

fn decode(iterations: u64) {
    let (table, sge) = memory();
    let mut fpdu = vec![0; 2 * PAYLOAD];
    let len = frame(&mut Framer::new(true, false), &mut fpdu, &table, sge).expect("access");
    let mut deframer = Deframer::new(true, false);
    for _ in 0..iterations {
        let placed = measured(|| {
            let found = deframer.next(&mut fpdu[..len]).ok().flatten()?;
            let payload = &fpdu[found.start + HEADER.len()..found.start + found.len];
            table.place_remote(WHO, sge.lkey, TaggedOffset(0), payload).ok()
        });
        placed.expect("a good FPDU");
    }
}

fn frame(
    framer: &mut Framer,
    out: &mut [u8],
    table: &MemoryTable,
    sge: Sge,
) -> Result<usize, AccessError> {
    framer.write(out, &HEADER, PAYLOAD, |_, dst, crc| table.gather_local(WHO, sge, dst, crc))
}

/// A table and all of the one region in it.
fn memory() -> (MemoryTable, Sge) {
    let table = MemoryTable::new();
    let buffer = Arc::new(Buffer::new(PAYLOAD));
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let lkey = table.register_buffer(WHO.pd, &buffer, access, Scope::Domain).expect("memory");
    (table, Sge { addr: 0, length: PAYLOAD as u32, lkey })
}

const fn send(_: &End) -> SendOp {
    SEND
}

/// Posts a request, builds it, and takes its completion when the stream has it.
fn transmit(terms: Terms, op: fn(&End) -> SendOp, size: usize, iterations: u64) {
    let (mut from, to) = ends(terms);
    let op = op(&to);
    for _ in 0..iterations {
        let completed = measured(|| {
            from.post(op, size);
            while from.build() > 0 {
                from.taken();
            }
            from.completions()
        });
        assert_eq!(completed, 1);
    }
}

/// Takes a message apart and places it; of a Send there is a completion.
fn receive(terms: Terms, op: fn(&End) -> SendOp, size: usize, iterations: u64) {
    let (mut from, mut to) = ends(terms);
    let op = op(&to);
    let receives = usize::from(op == SEND);
    let mut wire = Vec::new();
    for _ in 0..iterations {
        (0..receives).for_each(|_| to.post_recv(size));
        wire.clear();
        from.post(op, size);
        from.send_all(&mut wire);
        assert_eq!(from.completions(), 1);
        let completed = measured(|| {
            to.receive(&mut wire);
            to.completions()
        });
        assert_eq!(completed, receives);
    }
}

/// A request that is flushed as it is posted: its way into the completion queue.
fn completion_flush(iterations: u64) {
    let ring = Ring::new();
    let mut completions = Vec::with_capacity(1);
    for _ in 0..iterations {
        measured(|| ring.push());
        ring.poll(&mut completions, 1);
    }
}

fn completion_poll(iterations: u64) {
    let ring = Ring::new();
    let mut completions = Vec::with_capacity(1);
    for _ in 0..iterations {
        ring.push();
        measured(|| ring.poll(&mut completions, 1));
    }
}

/// The library's own call within the host: posts, sends, completes.
fn post_send(path: LocalPath, iterations: u64) {
    let (from, to) = Setup::both(&Options::new().local(path)).connect();
    let (source, sink) = (from.region(64), to.region(64));
    let (post, send) = (|| to.post_recv(2, &[sink.whole()]), || from.send(1, &[source.whole()]));
    let complete = || {
        next(&from.send_cq);
        next(&to.recv_cq);
    };
    until_on(path, &from.qp, || {
        post();
        send();
        complete();
    });
    for _ in 0..iterations {
        post();
        measured(send);
        complete();
    }
}

/// A post of one packet, which goes out.
fn post_packet(qp_type: QpType, iterations: u64) {
    let pair = Pair::new(qp_type);
    for _ in 0..iterations {
        pair.post_recv();
        measured(|| pair.send());
        pair.receive();
        pair.sent();
        pair.pause();
    }
}

/// A poll that finds the message; RC answers with an acknowledgement.
fn receive_packet(qp_type: QpType, iterations: u64) {
    let pair = Pair::new(qp_type);
    for _ in 0..iterations {
        pair.post_recv();
        pair.send();
        measured(|| pair.receive());
        pair.sent();
        pair.pause();
    }
}

/// A poll that finds the acknowledgement.
fn acknowledged(iterations: u64) {
    let pair = Pair::new(QpType::Rc);
    for _ in 0..iterations {
        pair.post_recv();
        pair.send();
        pair.receive();
        measured(|| pair.sent());
        pair.pause();
    }
}

/// Repeats `step` until the connection has taken this way.
fn until_on(path: LocalPath, qp: &QueuePair, mut step: impl FnMut()) {
    while qp.local_path() != path {
        step();
    }
}

/// As [`post_send`] over a socket by a session, whose outcome is there when it is waited for.
fn session_tcp_send(iterations: u64) {
    let options = Options::new().local(LocalPath::Off);
    let (from, to, ()) = pair_as(options, &Config::default(), |_, _| ());
    let [sources, sinks] = [&from, &to].map(|end| BlockPool::new(&end.pd, 64, 1).expect("memory"));
    for _ in 0..iterations {
        let received = to.session.recv(sinks.take().wait().expect("a block"));
        let source = sources.take().wait().expect("a block");
        measured(|| from.session.send(source).wait()).expect("sent");
        done(received).expect("received");
    }
}
