// SPDX-License-Identifier: MIT OR Apache-2.0

//! Much data between two processes, in messages of odd sizes, compared by hash.

use std::collections::hash_map::DefaultHasher;
use std::hash::Hasher;
use std::time::{Duration, Instant};

use iwarp::TaggedOffset;
use iwarp::{Buffer, Device, Options, Payload, RecvRequest, SendOp, SendRequest, Stag};

use crate::common;
use crate::common::process::{self, this_test};
use crate::common::{End, pattern};

const SOME: usize = 64 << 20;
const FULL: usize = 1 << 30;
/// Requests under way.
const WINDOW: usize = 32;
/// Receives that are posted, and messages between two credits.
const RECEIVES: usize = 128;
const CREDIT: usize = 32;
/// The longest message.
const LONGEST: usize = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(240);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum How {
    Write,
    Read,
    Send,
}

const FRAMINGS: [&str; 3] = ["crc", "markers", "plain"];

fn options(framing: &str) -> Options {
    Options::new().crc(framing != "plain").markers(framing == "markers")
}

/// Offsets and lengths of the messages that make up `total` octets: odd lengths of all
/// magnitudes, except for the last, which takes the rest.
fn messages(total: usize) -> impl Iterator<Item = (usize, usize)> {
    let mut state = 0x1234_5678_9abc_def1_u64;
    let mut at = 0;
    std::iter::from_fn(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let limit = 2 << (state >> 32 & 0x1f).min(19);
        let len = (((state as usize & (LONGEST - 1)) % limit) | 1).min(total - at);
        let message = (at, len);
        at += len;
        (len > 0).then_some(message)
    })
}

fn hash(buffer: &Buffer) -> u64 {
    let mut hasher = DefaultHasher::new();
    let mut part = vec![0; LONGEST];
    for offset in (0..buffer.len()).step_by(LONGEST) {
        let part = &mut part[..LONGEST.min(buffer.len() - offset)];
        buffer.read_at(offset, part);
        hasher.write(part);
    }
    hasher.finish()
}

fn fill(buffer: &Buffer, seed: u64) {
    for offset in (0..buffer.len()).step_by(LONGEST) {
        let len = LONGEST.min(buffer.len() - offset);
        buffer.write_at(offset, &pattern(len, seed + offset as u64));
    }
}

/// Posts all messages, with a bounded number under way.
fn in_window(end: &End, total: usize, mut post: impl FnMut(u64, usize, usize)) {
    let (mut posted, mut done) = (0, 0);
    for (offset, len) in messages(total) {
        while posted - done >= WINDOW {
            assert_eq!(end.sent().wr_id, done as u64);
            done += 1;
        }
        post(posted as u64, offset, len);
        posted += 1;
    }
    while done < posted {
        assert_eq!(end.sent().wr_id, done as u64);
        done += 1;
    }
}

fn client(how: How) {
    let total = process::setting("IWARP_TEST_OCTETS").parse().unwrap();
    let framing = process::setting("IWARP_TEST_FRAMING");
    let addr = process::setting("IWARP_TEST_ADDR").parse().unwrap();
    let device = Device::with_options(options(&framing)).unwrap();
    let end = process::dial(&device, addr, RECEIVES * 2);
    let private = end.connection.private_data();
    let stag = Stag(u32::from_be_bytes(private[..4].try_into().unwrap()));
    let region = end.region(total);
    let buffer = region.buffer().unwrap();
    let started;
    match how {
        How::Write => {
            fill(buffer, 7);
            started = Instant::now();
            in_window(&end, total, |id, offset, len| {
                let op = SendOp::Write { stag, to: TaggedOffset(offset as u64) };
                end.post(id, op, &[region.sge(offset, len)]);
            });
            end.send(0, &[]);
            end.sent();
        }
        How::Read => {
            started = Instant::now();
            in_window(&end, total, |id, offset, len| {
                let to = TaggedOffset(offset as u64);
                let op = SendOp::Read { stag, to, invalidate: None };
                end.post(id, op, &[region.sge(offset, len)]);
            });
            end.send(0, &[]);
            end.sent();
        }
        How::Send => {
            fill(buffer, 7);
            for credit in 0..RECEIVES / CREDIT {
                end.post_recv(credit as u64, &[]);
            }
            started = Instant::now();
            let mut left = RECEIVES;
            in_window(&end, total, |id, offset, len| {
                if left == 0 {
                    end.received();
                    end.post_recv(0, &[]);
                    left = CREDIT;
                }
                left -= 1;
                end.send(id, &[region.sge(offset, len)]);
            });
        }
    }
    let took = started.elapsed();
    process::say("hash", hash(buffer));
    process::say("took", took.as_micros());
    assert_eq!(process::listen_to_parent(), "end");
}

fn server(how: How, test: &str, framing: &str, total: usize) {
    let (device, listener, addr) = process::listen(&options(framing));
    let parts = common::parts(&device, RECEIVES * 2);
    let region = parts.0.allocate(total, common::all_access()).unwrap();
    let buffer = region.buffer().unwrap();
    let mut receives = messages(total).map(|(offset, len)| [region.sge(offset, len)]).enumerate();
    let mut post_next = |qp: &iwarp::QueuePair| {
        if let Some((id, sges)) = receives.next() {
            qp.post_recv(&RecvRequest::new(id as u64, &sges)).unwrap();
        }
    };
    match how {
        How::Write => {}
        How::Read => fill(buffer, 9),
        How::Send => (0..RECEIVES).for_each(|_| post_next(&parts.3)),
    }
    if how != How::Send {
        parts.3.post_recv(&RecvRequest::new(0, &[])).unwrap();
    }
    let mut child = process::Child::start(
        test,
        "client",
        &[
            ("IWARP_TEST_OCTETS", total.to_string()),
            ("IWARP_TEST_FRAMING", framing.to_owned()),
            ("IWARP_TEST_ADDR", addr.to_string()),
        ],
    );
    let private = region.rkey().0.to_be_bytes().to_vec();
    let end = process::accept_on(&device, &listener, parts, private);
    if how == How::Send {
        for (number, (_, len)) in messages(total).enumerate() {
            let completion = end.received();
            assert_eq!((completion.wr_id, completion.byte_len), (number as u64, len as u32));
            post_next(&end.qp);
            if (number + 1) % CREDIT == 0 {
                let credit = SendRequest::send(0, Payload::Inline(&[])).signaled();
                end.qp.post_send(&credit).unwrap();
                end.sent();
            }
        }
    } else {
        let deadline = Instant::now() + PATIENCE;
        while end.recv_cq.poll_one().is_none() {
            assert!(Instant::now() < deadline, "the end does not come");
        }
    }
    let theirs = child.hear("hash", PATIENCE);
    assert_eq!(theirs, hash(buffer).to_string(), "{how:?}, {framing}");
    let micros: u64 = child.hear("took", PATIENCE).parse().unwrap();
    let count = messages(total).count();
    let rate = total as f64 / micros as f64;
    println!("{how:?}, {framing}: {total} octets in {count} messages: {rate:.0} MB/s");
    child.tell("end");
    child.succeeds(PATIENCE);
}

fn run(how: How, test: &str, total: usize) {
    if process::role().is_some() {
        return client(how);
    }
    for framing in FRAMINGS {
        server(how, test, framing, total);
    }
}

/// Covers: DDP-5041-5.2-03, DDP-5041-5.2-04
#[test]
fn writes_arrive_whole() {
    run(How::Write, this_test!(), SOME);
}

/// Covers: DDP-5041-5.2-03, DDP-5041-5.2-04, RDMAP-5040-5.2.1-10
#[test]
fn reads_arrive_whole() {
    run(How::Read, this_test!(), SOME);
}

/// Covers: DDP-5041-5.2-03, DDP-5041-5.2-04, DDP-5041-5.3-05, DDP-5041-5.3-06, RDMAP-5040-5.3-05
#[test]
fn sends_arrive_whole_and_in_order() {
    run(How::Send, this_test!(), SOME);
}

#[test]
#[ignore = "1 GiB for each framing"]
fn writes_arrive_whole_full() {
    run(How::Write, this_test!(), FULL);
}

#[test]
#[ignore = "1 GiB for each framing"]
fn reads_arrive_whole_full() {
    run(How::Read, this_test!(), FULL);
}

#[test]
#[ignore = "1 GiB for each framing"]
fn sends_arrive_whole_and_in_order_full() {
    run(How::Send, this_test!(), FULL);
}
