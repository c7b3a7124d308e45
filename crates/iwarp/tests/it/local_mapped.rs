// SPDX-License-Identifier: MIT OR Apache-2.0

//! Writes and Atomics that an end carries out by itself within the host, in memory of the peer's
//! that it maps. The peer has no part in them, and finds what would have come by the stream.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use iwarp::cm::{ConnectParams, Listener};
use iwarp::{
    Access, AtomicOp, Buffer, Device, LocalPath, MemoryRegion, Options, Payload, PostError, SendOp,
    SendRequest, Stag, TaggedOffset, WcStatus, WorkCompletion,
};

use crate::common::channels;
use crate::common::kin::{Kin, Refused, Talk};
use crate::common::process::{passed_apart, this_test};
use crate::common::{DEADLINE, End, all_access, next, parts, pattern, until};
use crate::local_direct::{
    LEN, connected, contents, dial, fill, kinds, moved, place, reads_directly,
};

const ADD: SendOp = SendOp::Atomic {
    stag: Stag(0),
    to: TaggedOffset(0),
    op: AtomicOp::FetchAdd { add: 1, mask: 0 },
};

pub(crate) fn write<C>(
    end: &End<C>,
    from: &MemoryRegion,
    stag: Stag,
    to: TaggedOffset,
) -> WorkCompletion {
    end.post(1, SendOp::Write { stag, to }, &[from.whole()]);
    next(&end.send_cq)
}

/// Adds one to the word, and says what it was.
fn add<C>(end: &End<C>, room: &MemoryRegion, stag: Stag, to: TaggedOffset) -> u64 {
    let SendOp::Atomic { op, .. } = ADD else { unreachable!() };
    end.post(1, SendOp::Atomic { stag, to, op }, &[room.sge(0, 8)]);
    assert_eq!(next(&end.send_cq).status, WcStatus::Success);
    room.buffer().unwrap().atomic_u64(0).load(Ordering::Relaxed)
}

/// Writes until one was carried out by the writer alone.
pub(crate) fn writes_directly<C>(end: &End<C>, from: &MemoryRegion, stag: Stag, to: TaggedOffset) {
    let before = end.qp.direct_writes();
    until("a Write without the peer", || {
        assert_eq!(write(end, from, stag, to).status, WcStatus::Success);
        (end.qp.direct_writes() > before).then_some(())
    });
}

#[test]
fn memory_that_was_written_before_is_written_without_the_peer() {
    const LONG: usize = 1 << 20;
    for options in kinds() {
        let (client, server) = connected(&options);
        let octets = pattern(LONG, 1);
        let (target, from) = (server.region(LONG), client.region_of(&octets));
        writes_directly(&client, &from, target.rkey(), target.base());
        let before = client.qp.direct_writes();
        let mut written = 0;
        // Any part of it, of any length, from some elements.
        let cases = [(0, 1), (3, 8), (1, 4095), (17, 8192), (5, 8193), (100, 300_000), (0, LONG)];
        for (offset, len) in cases {
            fill(&target, 0);
            let to = target.base().advanced(offset as u64);
            let (one, rest) = (len / 3, len - len / 3);
            let op = SendOp::Write { stag: target.rkey(), to };
            client.post(7, op, &[from.sge(0, one), from.sge(5, 0), from.sge(one, rest)]);
            let done = next(&client.send_cq);
            assert_eq!((done.wr_id, done.status), (7, WcStatus::Success));
            let there = contents(&target);
            assert!(there[offset..offset + len] == octets[..len], "{len} at {offset}");
            assert!(there[..offset].iter().chain(&there[offset + len..]).all(|octet| *octet == 0));
            written += 1;
        }
        let op = SendOp::Write { stag: target.rkey(), to: target.base().advanced(9) };
        client
            .qp
            .post_send(&SendRequest::new(8, op, Payload::Inline(b"inline")).signaled())
            .unwrap();
        assert_eq!(next(&client.send_cq).wr_id, 8);
        assert_eq!(&contents(&target)[9..15], b"inline");
        assert_eq!(client.qp.direct_writes(), before + written + 1);
    }
}

#[test]
fn memory_that_is_mapped_is_read_in_one_go_whatever_its_length() {
    const LONG: usize = 3 << 20;
    let (client, server) = connected(&Options::new());
    let octets = pattern(LONG, 2);
    let (source, room) = (server.region_of(&octets), client.region(LONG));
    until("a long Read without the peer", || {
        client.read(1, room.whole(), &source, 0);
        client.sent();
        (client.qp.direct_reads() > 0).then_some(())
    });
    assert!(contents(&room) == octets);
}

#[test]
fn atomics_at_both_ends_count_each_other() {
    const EACH: u64 = 20_000;
    let (client, server) = connected(&Options::new());
    let (word, room) = (server.region(64), client.region(8));
    let (stag, to) = (word.rkey(), word.base().advanced(8));
    until("an Atomic without the peer", || {
        add(&client, &room, stag, to);
        (client.qp.direct_writes() + client.qp.direct_reads() > 0).then_some(())
    });
    let counter = word.buffer().unwrap().atomic_u64(8);
    counter.store(0, Ordering::SeqCst);
    let mut last = None;
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..EACH {
                counter.fetch_add(1, Ordering::SeqCst);
            }
        });
        for _ in 0..EACH {
            let before = add(&client, &room, stag, to);
            assert!(last.is_none_or(|last| before > last));
            last = Some(before);
        }
    });
    assert_eq!(counter.load(Ordering::SeqCst), 2 * EACH);
    // A word that is not aligned is the peer's to refuse.
    let SendOp::Atomic { op, .. } = ADD else { unreachable!() };
    client.post(1, SendOp::Atomic { stag, to: to.advanced(1), op }, &[room.sge(0, 8)]);
    assert_ne!(next(&client.send_cq).status, WcStatus::Success);
}

/// The peer learns by a message that what was written before it is there.
#[test]
fn a_send_does_not_overtake_what_was_written_before_it() {
    for options in kinds() {
        let (client, server) = connected(&options);
        let (target, from, inbox) = (server.region(LEN), client.region(LEN), server.region(8));
        writes_directly(&client, &from, target.rkey(), target.base());
        let before = client.qp.direct_writes();
        for number in 1..=2000_u64 {
            server.post_recv(3, &[inbox.whole()]);
            fill(&from, number as u8);
            let write = SendOp::Write { stag: target.rkey(), to: target.base() };
            let (long, short) = ([from.whole()], [from.sge(0, 8)]);
            let list = [
                SendRequest::new(1, write, &long),
                SendRequest::new(2, SendOp::SEND, &short).signaled(),
            ];
            client.qp.post_sends(&list).unwrap();
            server.received();
            assert!(contents(&target).iter().all(|octet| *octet == number as u8));
            client.sent();
        }
        assert!(client.qp.direct_writes() > before + 500);
    }
}

/// The stream carries what cannot be carried out at once, and later Writes wait for it.
#[test]
fn a_write_does_not_overtake_what_was_posted_before_it() {
    for options in kinds() {
        let (client, server) = connected(&options);
        let (target, from) = (server.region(64), client.region(64));
        writes_directly(&client, &from, target.rkey(), target.base());
        let before = client.qp.direct_writes();
        let write = SendOp::Write { stag: target.rkey(), to: target.base() };
        for number in 1..=3000_u64 {
            fill(&from, number as u8);
            // More elements than are carried out at once.
            let pieces: [_; 8] = std::array::from_fn(|at| from.sge(8 * at, 8));
            client.qp.post_send(&SendRequest::new(1, write, &pieces)).unwrap();
            let other = client.region_of(&[!(number as u8); 64]);
            client.post(2, write, &[other.whole()]);
            let done = next(&client.send_cq);
            assert_eq!((done.wr_id, done.status), (2, WcStatus::Success));
            if number % 50 == 0 {
                until("the last Write", || {
                    (contents(&target) == [!(number as u8); 64]).then_some(())
                });
            }
        }
        writes_directly(&client, &from, target.rkey(), target.base());
        assert!(client.qp.direct_writes() > before);
    }
}

/// They are posted behind one that has to go by the stream, and more than that takes at once.
#[test]
fn requests_that_wait_are_carried_out_in_their_turn() {
    const LONG: usize = 64 << 10;
    for options in kinds() {
        let (client, server) = connected(&options);
        let (target, from) = (server.region(LONG), client.region_of(&pattern(LONG, 3)));
        let (stag, to) = (target.rkey(), target.base());
        writes_directly(&client, &from, stag, to);
        let (write, read) =
            (SendOp::Write { stag, to }, SendOp::Read { stag, to, invalidate: None });
        let (room, count) =
            (client.region(LONG), || client.qp.direct_reads() + client.qp.direct_writes());
        // A program may be looked away from for longer than requests wait.
        until("some without the peer", || {
            let before = count();
            fill(&target, 0);
            // More elements than are carried out at once.
            let pieces: [_; 8] = std::array::from_fn(|at| from.sge(8 * at, 8));
            let (all, space) = ([from.whole()], [room.whole()]);
            let mut list = vec![SendRequest::new(0, write, &pieces).signaled()];
            for number in 1..8 {
                list.push(SendRequest::new(2 * number, write, &all).signaled());
                list.push(SendRequest::new(2 * number + 1, read, &space).signaled());
            }
            client.qp.post_sends(&list).unwrap();
            for request in &list {
                let done = next(&client.send_cq);
                assert_eq!((done.wr_id, done.status), (request.wr_id, WcStatus::Success));
            }
            assert!(contents(&target) == contents(&from) && contents(&room) == contents(&from));
            assert_eq!(client.qp.outstanding(), (0, 0));
            (count() > before).then_some(())
        });
    }
}

#[test]
fn completions_come_in_the_order_of_posts() {
    for options in kinds() {
        let (client, server) = connected(&options);
        let (target, room) = (server.region(64), client.region(64));
        writes_directly(&client, &room, target.rkey(), target.base());
        let (stag, to) = (target.rkey(), target.base());
        let write = SendOp::Write { stag, to };
        let read = SendOp::Read { stag, to, invalidate: None };
        for round in 0..500 {
            let lot = [write, read, read, write, write];
            for (number, op) in lot.into_iter().enumerate() {
                client.post(10 * round + number as u64, op, &[room.whole()]);
            }
            for number in 0..lot.len() as u64 {
                let done = next(&client.send_cq);
                assert_eq!((done.wr_id, done.status), (10 * round + number, WcStatus::Success));
            }
            assert_eq!(client.qp.outstanding(), (0, 0));
        }
    }
}

/// Unsignaled ones give their places in the queue back.
#[test]
fn writes_without_a_completion_fill_no_queue() {
    let (client, server) = connected(&Options::new());
    let (target, from) = (server.region(64), client.region(64));
    writes_directly(&client, &from, target.rkey(), target.base());
    let write = SendOp::Write { stag: target.rkey(), to: target.base() };
    for _ in 0..5000 {
        // One that has to go by the stream holds up those behind it.
        until("room", || match client.qp.post_send(&SendRequest::new(1, write, &[from.whole()])) {
            Err(PostError::QueueFull) => None,
            posted => {
                posted.unwrap();
                Some(())
            }
        });
    }
    client.post(2, write, &[from.whole()]);
    assert_eq!(next(&client.send_cq).wr_id, 2);
}

#[test]
fn a_completion_wakes_who_waits_for_an_event() {
    let [(client, channel), (server, _)] = channels::connect_with(&Options::new());
    moved([&client, &server]);
    let (target, from) = (server.region(64), client.region(64));
    writes_directly(&client, &from, target.rkey(), target.base());
    let write = SendOp::Write { stag: target.rkey(), to: target.base() };
    let before = client.qp.direct_writes();
    for number in 0..100 {
        client.send_cq.request_notify(false);
        assert_eq!(client.send_cq.poll_one(), None);
        client.post(number, write, &[from.whole()]);
        channels::sleep(&channel);
        assert!(channel.try_next().is_some());
        assert_eq!(client.send_cq.poll_one().unwrap().wr_id, number);
    }
    assert_eq!(client.qp.direct_writes(), before + 100);
}

/// The peer shows memory with the rights that it grants.
#[test]
fn a_right_that_is_not_granted_is_refused_by_the_peer() {
    let only = |right| Access::LOCAL_WRITE | right;
    for options in kinds() {
        for right in [Access::REMOTE_WRITE, Access::REMOTE_READ, Access::REMOTE_ATOMIC] {
            let (client, server) = connected(&options);
            let region = server.pd.allocate(64, only(right)).unwrap();
            let room = client.region(64);
            let (stag, to) = (region.rkey(), region.base());
            let SendOp::Atomic { op, .. } = ADD else { unreachable!() };
            let ops = [
                (Access::REMOTE_WRITE, SendOp::Write { stag, to }),
                (Access::REMOTE_READ, SendOp::Read { stag, to, invalidate: None }),
                (Access::REMOTE_ATOMIC, SendOp::Atomic { stag, to, op }),
            ];
            let done = |op| {
                client.post(1, op, &[room.sge(0, 8)]);
                next(&client.send_cq).status
            };
            let (granted, others): (Vec<_>, Vec<_>) =
                ops.into_iter().partition(|(needed, _)| *needed == right);
            let count = || client.qp.direct_reads() + client.qp.direct_writes();
            until("one without the peer", || {
                assert_eq!(done(granted[0].1), WcStatus::Success);
                (count() > 0).then_some(())
            });
            // The last of them has an answer, for which its completion waits.
            assert_ne!(done(others[1].1), WcStatus::Success);
        }
    }
}

/// Each way to take memory from a peer that has written there.
#[test]
fn memory_that_was_taken_back_is_written_no_more() {
    type TakeBack = fn(&End, MemoryRegion) -> Option<MemoryRegion>;
    let ways: [(&str, TakeBack); 3] = [
        ("deregistered", |_, region| {
            drop(region);
            None
        }),
        ("the queue pair grants no Writes", |end, region| {
            end.qp.set_remote_access(Access::LOCAL_WRITE | Access::REMOTE_READ);
            Some(region)
        }),
        ("invalidated", |end, region| {
            end.post(9, SendOp::LocalInvalidate(region.rkey()), &[]);
            end.sent();
            Some(region)
        }),
    ];
    for options in kinds() {
        for (way, take_back) in ways {
            let (client, server) = connected(&options);
            let (target, from) = (server.region(LEN), client.region(LEN));
            let (stag, to) = (target.rkey(), target.base());
            writes_directly(&client, &from, stag, to);
            let before = client.qp.direct_writes();
            let kept = take_back(&server, target);
            // An RNIC reports a Write once it is on its way: a Read behind it hears of its fate.
            write(&client, &from, stag, to);
            client.post(2, SendOp::Read { stag, to, invalidate: None }, &[from.whole()]);
            assert_ne!(next(&client.send_cq).status, WcStatus::Success, "{way}");
            assert!(client.qp.direct_writes() <= before, "{way}");
            drop(kept);
        }
    }
}

#[test]
fn a_range_that_is_not_the_memory_s_is_refused_by_the_peer() {
    for offset in [LEN as u64, LEN as u64 - 63, u64::MAX] {
        let (client, server) = connected(&Options::new());
        let (target, beside) = (server.region(LEN), server.region_of(&[7; LEN]));
        let from = client.region(64);
        writes_directly(&client, &from, target.rkey(), target.base());
        let to = TaggedOffset(target.base().0.wrapping_add(offset));
        write(&client, &from, target.rkey(), to);
        client.read(2, from.whole(), &target, 0);
        assert_ne!(next(&client.send_cq).status, WcStatus::Success);
        assert!(contents(&beside).iter().all(|octet| *octet == 7));
    }
}

/// An owner takes memory back amid Writes, and has other use for it at once. No byte comes then.
#[test]
fn no_bytes_come_after_memory_was_taken_back() {
    let mut amid = 0;
    for round in 0..100 {
        let (client, server) = connected(&Options::new());
        let memory = Arc::new(Buffer::new(LEN));
        let target = server.pd.register(Arc::clone(&memory), all_access()).unwrap();
        let (stag, to) = (target.rkey(), target.base());
        let from = client.region_of(&[1; LEN]);
        writes_directly(&client, &from, stag, to);
        let writes = AtomicU64::new(0);
        thread::scope(|scope| {
            scope.spawn(|| {
                while write(&client, &from, stag, to).status == WcStatus::Success {
                    writes.fetch_add(1, Ordering::Relaxed);
                }
            });
            until("Writes", || (writes.load(Ordering::Relaxed) > round % 7).then_some(()));
            drop(target);
            memory.write_at(0, &[2; LEN]);
            for _ in 0..20 {
                assert!(memory.to_vec().iter().all(|octet| *octet == 2), "a late byte");
            }
        });
        assert!(memory.to_vec().iter().all(|octet| *octet == 2), "a late byte");
        amid += client.qp.direct_writes();
    }
    assert!(amid > 100);
}

/// The memory goes back to where buffers come from, and the next one has it.
#[test]
fn no_bytes_come_into_a_buffer_that_has_the_memory_of_another() {
    for _ in 0..50 {
        let (client, server) = connected(&Options::new());
        let target = server.region(LEN);
        let (stag, to) = (target.rkey(), target.base());
        let from = client.region_of(&[1; LEN]);
        writes_directly(&client, &from, stag, to);
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while write(&client, &from, stag, to).status == WcStatus::Success {}
                is_over.store(true, Ordering::Relaxed);
            });
            drop(target);
            until("the end of Writes", || {
                let buffer = Buffer::new(LEN);
                assert!((0..20).all(|_| buffer.to_vec().iter().all(|octet| *octet == 0)));
                is_over.load(Ordering::Relaxed).then_some(())
            });
        });
    }
}

/// If either process may not read the other, both keep to the ring.
#[test]
fn a_process_that_may_not_read_the_other_maps_none_of_it() {
    if passed_apart(this_test!(), DEADLINE) {
        return;
    }
    for (here, there) in [(true, false), (false, true)] {
        let refuse = move |is_due: bool| {
            if is_due {
                Refused::new(libc::SYS_process_vm_readv).refuse(libc::EPERM);
            }
        };
        let mut target = Kin::fork(|talk| {
            refuse(there);
            serve(talk);
        });
        let addr = target.hear();
        let mut writer = Kin::fork(|talk| {
            refuse(here);
            let client = dial(talk.hear().parse().unwrap());
            let (stag, to) = place(&talk.hear());
            let from = client.region(64);
            moved([&client]);
            for _ in 0..100 {
                assert_eq!(write(&client, &from, stag, to).status, WcStatus::Success);
            }
            talk.tell(&client.qp.direct_writes().to_string());
        });
        writer.tell(&addr);
        writer.tell(&target.hear());
        assert_eq!(writer.hear(), "0", "{here} {there}");
    }
}

/// A process that is stopped is written to, and one that is killed is not.
#[test]
fn a_stopped_process_is_written_to_and_a_dead_one_is_not() {
    if passed_apart(this_test!(), DEADLINE) {
        return;
    }
    let mut target = Kin::fork(serve);
    let addr: SocketAddr = target.hear().parse().unwrap();
    let client = dial(addr);
    let (stag, to) = place(&target.hear());
    let from = client.region_of(&pattern(LEN, 5));
    writes_directly(&client, &from, stag, to);
    let room = client.region(LEN);
    reads_directly(&client, &room, stag, to);

    target.signal(libc::SIGSTOP);
    for number in 0..100 {
        from.buffer().unwrap().write_at(0, &pattern(LEN, number));
        assert_eq!(write(&client, &from, stag, to).status, WcStatus::Success);
        client.post(2, SendOp::Read { stag, to, invalidate: None }, &[room.whole()]);
        assert_eq!(next(&client.send_cq).status, WcStatus::Success);
        assert_eq!(contents(&room), pattern(LEN, number));
    }
    target.signal(libc::SIGCONT);
    // Its own copy is what was written last.
    target.tell("sum");
    assert_eq!(target.hear(), format!("{:?}", &pattern(LEN, 99)[..8]));
    target.signal(libc::SIGKILL);
    target.await_end();
    let before = client.qp.direct_writes();
    until("the end", || {
        let done = write(&client, &from, stag, to);
        (done.status != WcStatus::Success).then_some(())
    });
    assert!(client.qp.direct_writes() <= before);
}

/// The owner of memory into which a stopped process was about to store does not wait for it, and
/// nothing comes when that goes on.
#[test]
fn a_writer_that_was_stopped_is_not_waited_for() {
    if passed_apart(this_test!(), DEADLINE) {
        return;
    }
    const LONG: usize = 8 << 20;
    // Forked before this process has threads.
    let mut writers: Vec<Kin> = (0..12)
        .map(|_| {
            Kin::fork(|talk| {
                let client = dial(talk.hear().parse().unwrap());
                let (stag, to) = place(&talk.hear());
                let from = client.region_of(&vec![1; LONG]);
                writes_directly(&client, &from, stag, to);
                talk.tell("writes");
                while write(&client, &from, stag, to).status == WcStatus::Success {}
                talk.tell("over");
            })
        })
        .collect();
    let device = Device::with_options(Options::new()).unwrap();
    let listener = Listener::bind(&device, "127.0.0.1:0").unwrap();
    for writer in &mut writers {
        let end = accepted(&device, &listener, || {
            writer.tell(&listener.local_addr().unwrap().to_string());
        });
        let memory = Arc::new(Buffer::new(LONG));
        let target = end.pd.register(Arc::clone(&memory), all_access()).unwrap();
        writer.tell(&format!("{} {}", target.rkey().0, target.base().0));
        assert_eq!(writer.hear(), "writes");
        writer.signal(libc::SIGSTOP);
        let begun = std::time::Instant::now();
        drop(target);
        assert!(begun.elapsed() < DEADLINE / 2);
        memory.write_at(0, &vec![2; LONG]);
        writer.signal(libc::SIGCONT);
        assert_eq!(writer.hear(), "over");
        assert!(memory.to_vec().iter().all(|octet| *octet == 2), "a late byte");
    }
}

fn accepted(device: &Device, listener: &Listener, ask: impl FnOnce()) -> End {
    let (pd, send_cq, recv_cq, qp) = parts(device, 4);
    ask();
    let incoming = listener.accept(Some(DEADLINE)).unwrap().unwrap();
    let connection = incoming.accept(&qp, &ConnectParams::default()).unwrap();
    End { device: device.clone(), pd, send_cq, recv_cq, qp, connection }
}

/// A process whose memory is written. It tells what is in it when it is asked.
fn serve(talk: &mut Talk) {
    serve_with(talk, LocalPath::Auto);
}

pub(crate) fn serve_with(talk: &mut Talk, way: LocalPath) {
    let device = Device::with_options(Options::new().local(way)).unwrap();
    let listener = Listener::bind(&device, "127.0.0.1:0").unwrap();
    talk.tell(&listener.local_addr().unwrap().to_string());
    let end = accepted(&device, &listener, || ());
    let target = end.region(LEN);
    talk.tell(&format!("{} {}", target.rkey().0, target.base().0));
    loop {
        talk.hear();
        talk.tell(&format!("{:?}", &contents(&target)[..8]));
    }
}
