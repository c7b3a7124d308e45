// SPDX-License-Identifier: MIT OR Apache-2.0

//! Reads that an end carries out by itself within the host: it copies from where the bytes lie, and
//! the peer has no part in it. What comes out is what would have come by the stream.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use iwarp::cm::{ConnectParams, Listener, connect};
use iwarp::{
    Access, Buffer, Device, LocalPath, MemoryRegion, Options, PostError, QpState, SendOp,
    SendRequest, Stag, TaggedOffset, WcStatus, WorkCompletion,
};

use crate::common::channels;
use crate::common::kin::{Kin, Refused, Talk};
use crate::common::process::{passed_apart, this_test};
use crate::common::{DEADLINE, End, Setup, all_access, next, parts, pattern, until};

pub(crate) const LEN: usize = 8192;

/// Devices of either kind.
pub(crate) fn kinds() -> [Options; 2] {
    [Options::new(), Options::for_any_program()]
}

pub(crate) fn connected(options: &Options) -> (End, End) {
    let (client, server) = Setup::both(options).connect();
    moved([&client, &server]);
    (client, server)
}

/// Both ends send by the ring.
pub(crate) fn moved<const N: usize>(ends: [&End; N]) {
    until("rings", || {
        for end in ends {
            assert_eq!(end.recv_cq.poll_one(), None);
        }
        ends.iter().all(|end| end.qp.local_path() == LocalPath::Rings).then_some(())
    });
}

fn read<C>(end: &End<C>, room: &MemoryRegion, stag: Stag, to: TaggedOffset) -> WorkCompletion {
    end.post(1, SendOp::Read { stag, to, invalidate: None }, &[room.whole()]);
    next(&end.send_cq)
}

/// Reads until one was carried out by the reader alone.
pub(crate) fn reads_directly<C>(end: &End<C>, room: &MemoryRegion, stag: Stag, to: TaggedOffset) {
    let before = end.qp.direct_reads();
    until("a Read without the peer", || {
        assert_eq!(read(end, room, stag, to).status, WcStatus::Success);
        (end.qp.direct_reads() > before).then_some(())
    });
}

pub(crate) fn fill(region: &MemoryRegion, octet: u8) {
    let buffer = region.buffer().unwrap();
    buffer.write_at(0, &vec![octet; buffer.len()]);
}

pub(crate) fn contents(region: &MemoryRegion) -> Vec<u8> {
    region.buffer().unwrap().to_vec()
}

#[test]
fn memory_that_was_read_before_is_read_without_the_peer() {
    for options in kinds() {
        let (client, server) = connected(&options);
        let octets = pattern(LEN, 1);
        let (source, room) = (server.region_of(&octets), client.region(LEN));
        reads_directly(&client, &room, source.rkey(), source.base());
        // Any part of it, of any length.
        let before = client.qp.direct_reads();
        for (offset, len) in [(0, 1), (1, 4095), (LEN - 1, 1), (17, LEN - 17), (0, LEN)] {
            let to = source.base().advanced(offset as u64);
            fill(&room, 0);
            let op = SendOp::Read { stag: source.rkey(), to, invalidate: None };
            let (one, rest) = (len / 3, len - len / 3);
            client.post(7, op, &[room.sge(5 * (LEN - len) / LEN, one), room.sge(one + 8, 0)]);
            let short = next(&client.send_cq);
            assert_eq!((short.status, short.byte_len as usize), (WcStatus::Success, one));
            client.post(8, op, &[room.sge(0, one), room.sge(one, rest)]);
            let done = next(&client.send_cq);
            assert_eq!((done.wr_id, done.status), (8, WcStatus::Success));
            assert_eq!(done.byte_len as usize, len);
            assert_eq!(contents(&room)[..len], octets[offset..offset + len]);
        }
        assert!(client.qp.direct_reads() > before);
        // Either end can.
        let (source, room) = (client.region_of(&octets), server.region(LEN));
        reads_directly(&server, &room, source.rkey(), source.base());
        assert_eq!(contents(&room), octets);
    }
}

#[test]
fn several_regions_are_read_without_the_peer_in_turn() {
    let (client, server) = connected(&Options::new());
    // Two that share a place in the table of what is shown would take it from each other.
    let mut sources: Vec<MemoryRegion> = Vec::new();
    let place = |region: &MemoryRegion| (region.rkey().0 >> 8) % 16;
    while sources.len() < 5 {
        let more = server.region_of(&pattern(LEN, sources.len() as u64 + 1));
        if sources.iter().all(|other| place(other) != place(&more)) {
            sources.push(more);
        }
    }
    let room = client.region(LEN);
    for source in &sources {
        reads_directly(&client, &room, source.rkey(), source.base());
    }
    let before = client.qp.direct_reads();
    for _ in 0..20 {
        for (seed, source) in (1..).zip(&sources) {
            let done = read(&client, &room, source.rkey(), source.base());
            assert_eq!(done.status, WcStatus::Success);
            assert!(contents(&room) == pattern(LEN, seed));
        }
    }
    // One may find that the peer has just sent something.
    assert!(client.qp.direct_reads() > before + 50);
}

/// The peer writes into this end's memory, and then says in its own that it has: a Read that finds
/// the word finds the bytes, too.
#[test]
fn a_read_does_not_come_before_what_the_peer_has_sent() {
    let (reads, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let (client, server) = connected(&Options::new());
    let (word, room) = (server.region(8), client.region(8));
    let (target, from) = (client.region(8), server.region(8));
    reads_directly(&client, &room, word.rkey(), word.base());
    let before = client.qp.direct_reads();
    fn said(region: &MemoryRegion) -> &AtomicU64 {
        region.buffer().unwrap().atomic_u64(0)
    }
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1..=500 {
                said(&from).store(number, Ordering::SeqCst);
                server.write(number, from.whole(), &target, 0);
                said(&word).store(number, Ordering::SeqCst);
                server.sent();
                // The reader finds it quiet for a while.
                let seen = reads.load(Ordering::SeqCst);
                until("Reads", || (reads.load(Ordering::SeqCst) >= seen + 3).then_some(()));
            }
            is_over.store(true, Ordering::SeqCst);
        });
        until("the end of Writes", || {
            let done = read(&client, &room, word.rkey(), word.base());
            assert_eq!(done.status, WcStatus::Success);
            let (heard, there) = (said(&room).load(Ordering::SeqCst), said(&target));
            assert!(there.load(Ordering::SeqCst) >= heard);
            reads.fetch_add(1, Ordering::SeqCst);
            is_over.load(Ordering::SeqCst).then_some(())
        });
    });
    assert!(client.qp.direct_reads() > before);
}

#[test]
fn rings_alone_do_not_read_so() {
    let (client, server) = connected(&Options::new().local(LocalPath::Rings));
    let (source, room) = (server.region_of(&pattern(LEN, 2)), client.region(LEN));
    for _ in 0..50 {
        assert_eq!(read(&client, &room, source.rkey(), source.base()).status, WcStatus::Success);
    }
    assert_eq!(client.qp.direct_reads(), 0);
}

/// A Read finds what was written and sent before it, though the peer's worker places that when it
/// likes.
#[test]
fn a_read_does_not_overtake_what_was_posted_before_it() {
    for options in kinds() {
        let (client, server) = connected(&options);
        let (target, from, room) = (server.region(8), client.region(8), client.region(8));
        let inbox = server.region(8);
        reads_directly(&client, &room, target.rkey(), target.base());
        for number in 1..=3000_u64 {
            from.buffer().unwrap().write_at(0, &number.to_ne_bytes());
            let to = target.base();
            let write = SendOp::Write { stag: target.rkey(), to };
            let read = SendOp::Read { stag: target.rkey(), to, invalidate: None };
            if number % 2 == 0 {
                server.post_recv(3, &[inbox.whole()]);
                client.qp.post_send(&SendRequest::new(1, SendOp::SEND, &[from.whole()])).unwrap();
            }
            let (from, room_sge) = ([from.whole()], [room.whole()]);
            if number % 3 == 0 {
                client.qp.post_send(&SendRequest::new(1, write, &from)).unwrap();
                client.qp.post_send(&SendRequest::new(2, read, &room_sge).signaled()).unwrap();
            } else {
                let list = [
                    SendRequest::new(1, write, &from),
                    SendRequest::new(2, read, &room_sge).signaled(),
                ];
                client.qp.post_sends(&list).unwrap();
            }
            let done = next(&client.send_cq);
            assert_eq!((done.wr_id, done.status), (2, WcStatus::Success));
            assert_eq!(contents(&room), number.to_ne_bytes());
            if number % 2 == 0 {
                server.received();
            }
        }
    }
}

#[test]
fn completions_come_in_the_order_of_posts() {
    for options in kinds() {
        let (client, server) = connected(&options);
        let (target, room) = (server.region(64), client.region(64));
        reads_directly(&client, &room, target.rkey(), target.base());
        let to = target.base();
        let write = SendOp::Write { stag: target.rkey(), to };
        let read = SendOp::Read { stag: target.rkey(), to, invalidate: None };
        for round in 0..500 {
            let lot = [write, read, read, write, read];
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
fn reads_without_a_completion_fill_no_queue() {
    let (client, server) = connected(&Options::new());
    let (target, room) = (server.region(64), client.region(64));
    reads_directly(&client, &room, target.rkey(), target.base());
    let read = SendOp::Read { stag: target.rkey(), to: target.base(), invalidate: None };
    for _ in 0..5000 {
        // One that has to go by the stream holds up those behind it.
        until("room", || match client.qp.post_send(&SendRequest::new(1, read, &[room.whole()])) {
            Err(PostError::QueueFull) => None,
            posted => {
                posted.unwrap();
                Some(())
            }
        });
    }
    client.post(2, read, &[room.whole()]);
    assert_eq!(next(&client.send_cq).wr_id, 2);
}

#[test]
fn a_completion_wakes_who_waits_for_an_event() {
    let [(client, channel), (server, _)] = channels::connect_with(&Options::new());
    moved([&client, &server]);
    let (target, room) = (server.region(64), client.region(64));
    reads_directly(&client, &room, target.rkey(), target.base());
    let (before, read) = (
        client.qp.direct_reads(),
        SendOp::Read { stag: target.rkey(), to: target.base(), invalidate: None },
    );
    for number in 0..100 {
        client.send_cq.request_notify(false);
        assert_eq!(client.send_cq.poll_one(), None);
        client.post(number, read, &[room.whole()]);
        channels::sleep(&channel);
        assert!(channel.try_next().is_some());
        assert_eq!(client.send_cq.poll_one().unwrap().wr_id, number);
    }
    assert!(client.qp.direct_reads() > before);
}

/// Each way to take memory from a peer that has read it.
#[test]
fn memory_that_was_taken_back_is_read_no_more() {
    type TakeBack = fn(&End, MemoryRegion) -> Option<MemoryRegion>;
    let ways: [(&str, TakeBack); 3] = [
        ("deregistered", |_, region| {
            drop(region);
            None
        }),
        ("the queue pair grants no Reads", |end, region| {
            end.qp.set_remote_access(Access::LOCAL_WRITE | Access::REMOTE_WRITE);
            Some(region)
        }),
        ("invalidated", |end, region| {
            let op = SendOp::LocalInvalidate(region.rkey());
            end.post(9, op, &[]);
            end.sent();
            Some(region)
        }),
    ];
    for options in kinds() {
        for (way, take_back) in ways {
            let (client, server) = connected(&options);
            let (source, room) = (server.region(LEN), client.region(LEN));
            let (stag, to) = (source.rkey(), source.base());
            reads_directly(&client, &room, stag, to);
            let before = client.qp.direct_reads();
            let kept = take_back(&server, source);
            let refused = read(&client, &room, stag, to);
            // A RoCE card's word for a right that the queue pair does not grant is the second.
            let words = [WcStatus::RemoteAccess, WcStatus::RemoteInvalidRequest];
            assert!(words.contains(&refused.status), "{way}: {refused:?}");
            assert!(client.qp.direct_reads() <= before, "{way}");
            drop(kept);
        }
    }
}

#[test]
fn a_range_that_is_not_the_memory_s_is_refused_by_the_peer() {
    for (offset, more) in [(LEN as u64, 0), (LEN as u64 - 63, 0), (u64::MAX, 0), (1, LEN as u64)] {
        let (client, server) = connected(&Options::new());
        let (source, room) = (server.region(LEN), client.region(64));
        reads_directly(&client, &room, source.rkey(), source.base());
        let to = TaggedOffset(source.base().0.wrapping_add(offset).wrapping_add(more));
        assert_eq!(read(&client, &room, source.rkey(), to).status, WcStatus::RemoteAccess);
    }
}

#[test]
fn room_that_is_not_this_end_s_fails_at_this_end() {
    let (client, server) = connected(&Options::new());
    let (source, room) = (server.region(LEN), client.region(64));
    reads_directly(&client, &room, source.rkey(), source.base());
    let mut beyond = room.whole();
    beyond.addr += 8;
    let op = SendOp::Read { stag: source.rkey(), to: source.base(), invalidate: None };
    client.post(4, op, &[beyond]);
    assert_eq!(next(&client.send_cq).status, WcStatus::LocalProtection);
}

/// Each way in which the owner ends the connection. It changes the memory once the call returns.
#[test]
fn no_bytes_are_read_that_were_written_after_the_end_of_a_connection() {
    // The end, if it stays for a while.
    type Finish = fn(End) -> Option<End>;
    let ways: [Finish; 3] = [
        |end| {
            end.connection.disconnect();
            Some(end)
        },
        |end| {
            end.qp.modify(QpState::Err).unwrap();
            Some(end)
        },
        |end| {
            drop(end);
            None
        },
    ];
    // A device of the second kind lets its requests outlive the peer by a second.
    for (options, rounds) in kinds().into_iter().zip([20, 1]) {
        for way in ways {
            for _ in 0..rounds {
                let (client, server) = connected(&options);
                let memory = Arc::new(Buffer::new(LEN));
                memory.write_at(0, &[1; LEN]);
                let source = server.pd.register(Arc::clone(&memory), all_access()).unwrap();
                let room = client.region(LEN);
                reads_directly(&client, &room, source.rkey(), source.base());
                let _kept = way(server);
                memory.write_at(0, &[2; LEN]);
                let done = read(&client, &room, source.rkey(), source.base());
                let is_old = contents(&room).iter().all(|octet| *octet == 1);
                assert!(done.status != WcStatus::Success || is_old, "{done:?}");
            }
        }
    }
}

/// A Read does not succeed behind a Write that the peer refuses: programs read to make sure that
/// what they wrote is there.
#[test]
fn no_read_succeeds_behind_a_write_that_was_refused() {
    for options in kinds() {
        for _ in 0..100 {
            let (client, server) = connected(&options);
            let (source, room) = (server.region(LEN), client.region(LEN));
            reads_directly(&client, &room, source.rkey(), source.base());
            let gone = server.region(64);
            let (stag, to) = (gone.rkey(), gone.base());
            drop(gone);
            let write = SendOp::Write { stag, to };
            client.qp.post_send(&SendRequest::new(1, write, &[room.sge(0, 64)])).unwrap();
            let done = read(&client, &room, source.rkey(), source.base());
            assert_ne!(done.status, WcStatus::Success);
        }
    }
}

/// A post that is refused has no effect.
#[test]
fn a_read_that_is_not_accepted_changes_no_memory() {
    let strict = Options::new().strict(true);
    let (client, server) = Setup { depth: 4, ..Setup::both(&strict) }.connect();
    moved([&client, &server]);
    let (source, room) = (server.region_of(&[1; LEN]), client.region(LEN));
    reads_directly(&client, &room, source.rkey(), source.base());
    let op = SendOp::Read { stag: source.rkey(), to: source.base(), invalidate: None };
    let sges = [room.whole()];
    let request = SendRequest::new(1, op, &sges).signaled();
    while client.qp.post_send(&request).is_ok() {}
    fill(&room, 7);
    let before = client.qp.direct_reads();
    assert_eq!(client.qp.post_send(&request), Err(PostError::QueueFull));
    assert!(contents(&room).iter().all(|octet| *octet == 7));
    assert_eq!(client.qp.direct_reads(), before);
}

/// An owner takes memory back amid Reads and writes other bytes there at once. No Read that
/// succeeds has any of these.
#[test]
fn no_bytes_are_read_that_were_written_after_memory_was_taken_back() {
    let mut amid = 0;
    for round in 0..100 {
        let (client, server) = connected(&Options::new());
        let memory = Arc::new(Buffer::new(LEN));
        memory.write_at(0, &[1; LEN]);
        let source = server.pd.register(Arc::clone(&memory), all_access()).unwrap();
        let (stag, to) = (source.rkey(), source.base());
        let room = client.region(LEN);
        reads_directly(&client, &room, stag, to);
        let reads = AtomicU64::new(0);
        thread::scope(|scope| {
            scope.spawn(|| {
                loop {
                    let done = read(&client, &room, stag, to);
                    if done.status != WcStatus::Success {
                        assert_eq!(done.status, WcStatus::RemoteAccess);
                        break;
                    }
                    assert!(contents(&room).iter().all(|octet| *octet == 1), "other bytes");
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            });
            until("Reads", || (reads.load(Ordering::Relaxed) > round % 7).then_some(()));
            drop(source);
            memory.write_at(0, &[2; LEN]);
        });
        amid += reads.load(Ordering::Relaxed);
    }
    assert!(amid > 100);
}

/// If either process may not read the other, both keep to the ring.
#[test]
fn a_process_that_may_not_read_does_not_try() {
    if passed_apart(this_test!(), DEADLINE) {
        return;
    }
    for (call, errno) in [
        (libc::SYS_process_vm_readv, libc::EPERM),
        (libc::SYS_process_vm_readv, libc::ENOSYS),
        (libc::SYS_get_robust_list, libc::EPERM),
        (libc::SYS_set_robust_list, libc::ENOSYS),
    ] {
        for (here, there) in [(true, false), (false, true)] {
            let refuse = move |is_due: bool| {
                if is_due {
                    Refused::new(call).refuse(errno);
                }
            };
            let mut target = Kin::fork(|talk| {
                refuse(there);
                target(talk);
            });
            let addr = target.hear();
            let mut reader = Kin::fork(|talk| {
                refuse(here);
                let client = dial(talk.hear().parse().unwrap());
                let (stag, to) = place(&talk.hear());
                let room = client.region(LEN);
                moved([&client]);
                for _ in 0..100 {
                    assert_eq!(read(&client, &room, stag, to).status, WcStatus::Success);
                    assert_eq!(contents(&room), pattern(LEN, 5));
                }
                talk.tell(&client.qp.direct_reads().to_string());
            });
            reader.tell(&addr);
            reader.tell(&target.hear());
            assert_eq!(reader.hear(), "0", "{call} {errno} {here}");
        }
    }
}

/// A process that is stopped is read, and one that is killed is not.
#[test]
fn a_stopped_process_is_read_and_a_dead_one_is_not() {
    if passed_apart(this_test!(), DEADLINE) {
        return;
    }
    let mut target = Kin::fork(target);
    let addr: SocketAddr = target.hear().parse().unwrap();
    let client = dial(addr);
    let (stag, to) = place(&target.hear());
    let room = client.region(LEN);
    reads_directly(&client, &room, stag, to);

    target.signal(libc::SIGSTOP);
    for _ in 0..100 {
        fill(&room, 0);
        assert_eq!(read(&client, &room, stag, to).status, WcStatus::Success);
        assert_eq!(contents(&room), pattern(LEN, 5));
    }
    target.signal(libc::SIGKILL);
    target.await_end();
    let before = client.qp.direct_reads();
    assert_ne!(read(&client, &room, stag, to).status, WcStatus::Success);
    assert!(client.qp.direct_reads() <= before);
}

pub(crate) fn dial(addr: SocketAddr) -> End {
    dial_with(addr, Options::new())
}

pub(crate) fn dial_with(addr: SocketAddr, options: Options) -> End {
    let device = Device::with_options(options).unwrap();
    let (pd, send_cq, recv_cq, qp) = parts(&device, 4);
    let connection = connect(&device, addr, &qp, &ConnectParams::default(), DEADLINE).unwrap();
    End { device, pd, send_cq, recv_cq, qp, connection }
}

/// The memory of the target, by its words.
pub(crate) fn place(said: &str) -> (Stag, TaggedOffset) {
    let (stag, to) = said.split_once(' ').unwrap();
    (Stag(stag.parse().unwrap()), TaggedOffset(to.parse().unwrap()))
}

/// A process that is read.
pub(crate) fn target(talk: &mut Talk) {
    let device = Device::with_options(Options::new()).unwrap();
    let listener = Listener::bind(&device, "127.0.0.1:0").unwrap();
    talk.tell(&listener.local_addr().unwrap().to_string());
    let (pd, send_cq, recv_cq, qp) = parts(&device, 4);
    let incoming = listener.accept(Some(DEADLINE)).unwrap().unwrap();
    let connection = incoming.accept(&qp, &ConnectParams::default()).unwrap();
    let end = End { device, pd, send_cq, recv_cq, qp, connection };
    let source = end.region_of(&pattern(LEN, 5));
    talk.tell(&format!("{} {}", source.rkey().0, source.base().0));
    // It is ended by a signal.
    talk.hear();
}
