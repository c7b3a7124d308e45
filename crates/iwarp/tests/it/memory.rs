// SPDX-License-Identifier: MIT OR Apache-2.0

//! Registered memory over a connection: who may reach it, what comes of it when somebody may
//! not, and that it is left alone once it is deregistered.

use std::ptr::null_mut;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use iwarp::verbs::WindowType;
use iwarp::{
    Access, Ended, MemoryRegion, Options, Payload, PostError, ProtectionDomain,
    QueuePairAttributes, SendOp, SendRequest, Sge, Stag, TaggedOffset, WcOp, WcStatus,
};
use iwarp_proto::rdmap::wire::TerminateCode;
use iwarp_types::Bind;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

use crate::common::process;
use crate::common::raw::{self, Heard, Raw};
use crate::common::{DEADLINE, End, Setup, all_access, next, parts, pattern, until};

/// Memory that can be taken away: afterwards every access to it is a fault.
struct Area {
    start: *mut u8,
    len: usize,
}

impl Area {
    fn new(len: usize) -> Self {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping.
        let start = unsafe { mmap_anonymous(null_mut(), len, protection, MapFlags::PRIVATE) };
        Self { start: start.unwrap().cast(), len }
    }

    fn register(&self, pd: &ProtectionDomain) -> MemoryRegion {
        // SAFETY: the tests deregister before they forbid or unmap it, and reach it by atomics.
        unsafe { pd.register_raw(self.start, self.len, all_access()) }.unwrap()
    }

    fn octet(&self, at: usize) -> u8 {
        assert!(at < self.len);
        // SAFETY: within the mapping.
        unsafe { AtomicU8::from_ptr(self.start.wrapping_add(at)) }.load(Ordering::Acquire)
    }

    fn octets(&self) -> Vec<u8> {
        (0..self.len).map(|at| self.octet(at)).collect()
    }

    fn protect(&self, flags: MprotectFlags) {
        // SAFETY: our own mapping; who touches it against its protection is what is looked for.
        unsafe { mprotect(self.start.cast(), self.len, flags) }.unwrap();
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: our own mapping, which nothing is registered in any more.
        unsafe { munmap(self.start.cast(), self.len) }.unwrap();
    }
}

/// Deregisters, which must not take longer than uses in flight do, however busy the machine is.
fn deregister(region: MemoryRegion) {
    let started = Instant::now();
    region.deregister().map_err(|(_, error)| error).unwrap();
    let took = started.elapsed();
    assert!(took < Duration::from_secs(1), "deregistering took {took:?}");
}

/// Bytes of a message that stalls.
const STALLED: usize = 48 * 1024;

/// The region goes when one half of the FPDU has come; `ended` waits for what comes of the other.
/// The memory is not touched any more.
fn deregister_amid(
    (end, peer): (&End, &mut Raw),
    (area, region): (&Area, MemoryRegion),
    fpdu: &[u8],
    ended: impl FnOnce(),
) {
    let (first, rest) = fpdu.split_at(fpdu.len() / 2);
    let crc = end.device.options().crc;
    peer.send(first);
    if crc {
        // Bytes that were sent over loopback are there to be read; and none of them may be placed.
        assert_eq!(end.recv_cq.poll_one(), None);
    } else {
        until("the first half", || {
            end.recv_cq.poll_one();
            (area.octet(4096) == 0xee).then_some(())
        });
    }
    deregister(region);
    let before = area.octets();
    assert_eq!(before.contains(&0xee), !crc);
    area.protect(MprotectFlags::empty());
    peer.send(rest);
    peer.expect_terminate();
    ended();
    area.protect(MprotectFlags::READ);
    assert!(area.octets() == before, "touched after it was deregistered");
}

/// Covers: RDMAP-5040-8.1.1-06, DDP-5041-8.3.1-06, SEC-5042-6.2.2-02
#[test]
fn a_stalled_write_does_not_hold_up_deregistration() {
    for crc in [true, false] {
        let (end, mut peer) = raw::pair(crc);
        let area = Area::new(STALLED);
        let region = area.register(&end.pd);
        let fpdu = peer.frame(&raw::write(region.rkey(), region.base().0, &[0xee; STALLED]));
        deregister_amid((&end, &mut peer), (&area, region), &fpdu, || {
            assert!(
                matches!(end.connection.wait_disconnected(Some(DEADLINE)), Some(Ended::Fault(why))
                if why.code() == 0x1100)
            );
        });
    }
}

/// The message is a Send, and the memory the buffer of its receive.
#[test]
fn a_stalled_send_does_not_hold_up_deregistration() {
    for crc in [true, false] {
        let (end, mut peer) = raw::pair(crc);
        let area = Area::new(STALLED);
        let region = area.register(&end.pd);
        end.post_recv(7, &[region.whole()]);
        let fpdu = peer.frame(&raw::send(1, &[0xee; STALLED]));
        deregister_amid((&end, &mut peer), (&area, region), &fpdu, || {
            let completion = next(&end.recv_cq);
            assert_eq!((completion.wr_id, completion.status), (7, WcStatus::LocalProtection));
        });
    }
}

/// The source of a Read whose reader has stopped reading.
///
/// Covers: RDMAP-5040-8.1.1-06, SEC-5042-6.2.2-02
#[test]
fn a_stalled_reader_does_not_hold_up_deregistration() {
    const LEN: usize = 64 << 20;
    for crc in [true, false] {
        let (end, mut peer) = raw::pair(crc);
        let area = Area::new(LEN);
        let region = area.register(&end.pd);
        peer.send_ulpdu(&raw::read_request(1, LEN as u32, region.rkey(), region.base().0));
        // The answer begins, and fills the sockets.
        let Heard::Ulpdu(first) = peer.hear_message() else { panic!("no answer") };
        assert_eq!(raw::opcode(&raw::split(&first).0), 2);
        (0..100).for_each(|_| assert_eq!(end.recv_cq.poll_one(), None));
        deregister(region);
        drop(area);
        // With CRC the framing goes on to the Terminate; without, what was announced cannot be
        // sent any more.
        if crc {
            peer.expect_terminate();
        } else {
            while matches!(peer.hear_cut(), Heard::Ulpdu(_)) {}
        }
        assert!(end.connection.wait_disconnected(Some(DEADLINE)).is_some());
    }
}

/// A local source whose bytes wait in a full socket: the program takes it away too early, which
/// costs it the connection, but not more.
#[test]
fn a_source_deregistered_too_early_costs_the_connection_alone() {
    for crc in [true, false] {
        let (end, mut peer) = raw::pair(crc);
        let area = Area::new(64 << 20);
        let region = area.register(&end.pd);
        end.send(5, &[region.whole()]);
        deregister(region);
        drop(area);
        while matches!(peer.hear_cut(), Heard::Ulpdu(_)) {}
        let completion = next(&end.send_cq);
        assert_eq!(completion.wr_id, 5);
        assert_ne!(completion.status, WcStatus::Success);
    }
}

fn pair() -> (End, End) {
    Setup::default().connect()
}

/// The client's first message, behind which the server may send.
fn greet(client: &End, server: &End) {
    server.post_recv(0, &[]);
    client.send(0, &[]);
    server.received();
    client.sent();
}

fn bind(
    end: &End,
    window: Stag,
    new_stag: Stag,
    region: &MemoryRegion,
    part: (u64, u64),
) -> WcStatus {
    let access = Access::REMOTE_WRITE | Access::REMOTE_READ;
    let (addr, length) = (region.base().0 + part.0, part.1);
    let bind = Bind { window, new_stag, region: region.lkey(), addr, length, access };
    end.post(1, SendOp::Bind(bind), &[]);
    let completion = next(&end.send_cq);
    assert_eq!(completion.op, WcOp::Bind);
    completion.status
}

fn read_status(end: &End, stag: Stag, to: TaggedOffset, sink: Sge) -> WcStatus {
    end.post(2, SendOp::Read { stag, to, invalidate: None }, &[sink]);
    next(&end.send_cq).status
}

/// A Write, and a Read of what it wrote, both through `stag`.
fn use_window(peer: &End, stag: Stag, at: u64) {
    let (source, sink) = (peer.region_of(b"through the window"), peer.region(18));
    peer.post(3, SendOp::Write { stag, to: TaggedOffset(at) }, &[source.whole()]);
    peer.sent();
    assert_eq!(read_status(peer, stag, TaggedOffset(at), sink.whole()), WcStatus::Success);
    assert_eq!(sink.buffer().unwrap().to_vec(), b"through the window");
}

/// Covers: VERBS-hilland-7.10.6-01
#[test]
fn a_window_opens_its_part_of_a_region_and_nothing_else() {
    for kind in [WindowType::One, WindowType::TwoA, WindowType::TwoB] {
        for outside in [1000 - 1, 1064 - 17] {
            let (peer, owner) = pair();
            greet(&peer, &owner);
            let access = Access::LOCAL_WRITE | Access::MW_BIND;
            let region = owner.pd.allocate(4096, access).unwrap();
            let window = owner.pd.allocate_window(kind).unwrap();
            let stag = window.next_stag().unwrap();
            assert_eq!(bind(&owner, window.stag(), stag, &region, (1000, 64)), WcStatus::Success);
            use_window(&peer, stag, 1000);
            use_window(&peer, stag, 1064 - 18);
            // One byte too far, at either end.
            let sink = peer.region(18);
            let status = read_status(&peer, stag, TaggedOffset(outside), sink.whole());
            assert_eq!(status, WcStatus::RemoteAccess, "{kind:?} at {outside}");
        }
    }
}

#[test]
fn an_unbound_or_invalidated_window_is_closed() {
    for kind in [WindowType::One, WindowType::TwoA, WindowType::TwoB] {
        let (peer, owner) = pair();
        let region = owner.region(256);
        let window = owner.pd.allocate_window(kind).unwrap();
        let stag = window.next_stag().unwrap();
        greet(&peer, &owner);
        assert_eq!(bind(&owner, window.stag(), stag, &region, (0, 256)), WcStatus::Success);
        use_window(&peer, stag, 0);
        // While it is bound, the region stays.
        let (region, _) = region.deregister().unwrap_err();
        if kind == WindowType::One {
            let closed = window.next_stag().unwrap();
            assert_eq!(bind(&owner, stag, closed, &region, (0, 0)), WcStatus::Success);
        } else {
            owner.post(4, SendOp::LocalInvalidate(stag), &[]);
            assert_eq!(owner.sent().op, WcOp::LocalInvalidate);
        }
        let sink = peer.region(8);
        let status = read_status(&peer, stag, TaggedOffset(0), sink.whole());
        assert_eq!(status, WcStatus::RemoteAccess, "{kind:?}");
        assert!(region.deregister().is_ok(), "{kind:?}");
    }
}

/// Covers: RDMAP-5040-8.1.1-02, SEC-5042-6.1.1-03
#[test]
fn a_window_of_type_2_belongs_to_one_queue_pair() {
    for kind in [WindowType::TwoA, WindowType::TwoB] {
        let (device, listener, addr) = process::listen(&Options::default());
        let client = iwarp::Device::with_options(Options::default()).unwrap();
        // One protection domain: nothing but the queue pair tells them apart.
        let pd = device.alloc_pd();
        let ends = [0, 1].map(|_| {
            let (_, send_cq, recv_cq, _) = parts(&device, 8);
            let qp = pd.create_qp(&QueuePairAttributes::new(&send_cq, &recv_cq)).unwrap();
            let parts = (pd.clone(), send_cq, recv_cq, qp);
            thread::scope(|scope| {
                let accepting =
                    scope.spawn(|| process::accept_on(&device, &listener, parts, Vec::new()));
                let dialled = process::dial(&client, addr, 8);
                (dialled, accepting.join().unwrap())
            })
        });
        let (_, owner) = &ends[0];
        let region = owner.region(64);
        let window = owner.pd.allocate_window(kind).unwrap();
        let stag = window.next_stag().unwrap();
        greet(&ends[0].0, owner);
        assert_eq!(bind(owner, window.stag(), stag, &region, (0, 64)), WcStatus::Success);
        use_window(&ends[0].0, stag, 0);
        let sink = ends[1].0.region(8);
        let status = read_status(&ends[1].0, stag, TaggedOffset(0), sink.whole());
        assert_eq!(status, WcStatus::RemoteAccess);
        // The first did not notice.
        use_window(&ends[0].0, stag, 0);
    }
}

/// Covers: RDMAP-5040-5.3-13, VERBS-hilland-8.2.2.1-01
#[test]
fn a_send_with_invalidate_closes_the_window() {
    for solicited in [true, false] {
        let (peer, owner) = pair();
        let region = owner.region(64);
        let window = owner.pd.allocate_window(WindowType::TwoB).unwrap();
        let stag = window.next_stag().unwrap();
        greet(&peer, &owner);
        assert_eq!(bind(&owner, window.stag(), stag, &region, (0, 64)), WcStatus::Success);
        use_window(&peer, stag, 0);
        owner.post_recv(1, &[]);
        peer.post(5, SendOp::Send { solicited, invalidate: Some(stag) }, &[]);
        let completion = owner.received();
        assert_eq!(completion.invalidated, Some(stag));
        assert_eq!(completion.solicited, solicited);
        peer.sent();
        assert!(region.deregister().is_ok(), "the window is still bound");
        let sink = peer.region(8);
        let status = read_status(&peer, stag, TaggedOffset(0), sink.whole());
        assert_eq!(status, WcStatus::RemoteAccess);
    }
}

/// Covers: RDMAP-5040-8.1.1-07
#[test]
fn a_peer_cannot_invalidate_what_several_streams_share() {
    let (peer, owner) = pair();
    let region = owner.region(64);
    owner.post_recv(1, &[]);
    peer.post(5, SendOp::Send { solicited: false, invalidate: Some(region.rkey()) }, &[]);
    assert_eq!(next(&owner.recv_cq).status, WcStatus::Flushed);
    let why = peer.connection.wait_disconnected(Some(DEADLINE));
    assert!(matches!(why, Some(Ended::Terminated(why)) if why.code() == 0x0209), "{why:?}");
    // It is as valid as before.
    let check = owner.pd.allocate(64, all_access()).unwrap();
    assert!(region.deregister().is_ok() && check.deregister().is_ok());
}

#[test]
fn a_read_with_invalidate_closes_its_sink() {
    let (client, server) = pair();
    let source = server.region_of(&[7; 64]);
    let sink = client.region(64);
    let (stag, to) = (source.rkey(), source.base());
    client.post(1, SendOp::Read { stag, to, invalidate: Some(sink.lkey()) }, &[sink.whole()]);
    assert_eq!(client.sent().op, WcOp::Read);
    assert_eq!(sink.buffer().unwrap().to_vec(), [7; 64]);
    // From now on it names nothing.
    assert_eq!(read_status(&client, stag, to, sink.whole()), WcStatus::LocalProtection);
}

/// Covers: RDMAP-5040-8.1.1-01, RDMAP-5040-8.1.1-03, RDMAP-5040-8.1.1-05, SEC-5042-6.1.1-02,
/// SEC-5042-6.2.1-01, SEC-5042-6.3.5-01
#[test]
fn a_read_that_is_refused_says_so() {
    struct Case(fn(&End) -> (Stag, u64));
    let cases = [
        Case(|owner| (Stag(owner.region(64).rkey().0 ^ 1), 0)),
        Case(|_| (Stag(0), 0)),
        Case(|owner| (keep(owner.region(64)), 57)),
        Case(|owner| (keep(owner.region(64)), u64::MAX - 3)),
        Case(|owner| (keep(owner.region(64)), u64::MAX - 7)),
        Case(|owner| {
            let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
            (keep(owner.pd.allocate(64, access).unwrap()), 0)
        }),
        Case(|owner| {
            let other = owner.device.alloc_pd();
            (keep(other.allocate(64, all_access()).unwrap()), 0)
        }),
    ];
    for (number, case) in cases.into_iter().enumerate() {
        let (client, server) = pair();
        let (stag, to) = (case.0)(&server);
        let sink = client.region(8);
        client.post_recv(9, &[sink.whole()]);
        let status = read_status(&client, stag, TaggedOffset(to), sink.whole());
        assert_eq!(status, WcStatus::RemoteAccess, "case {number}");
        assert_eq!(next(&client.recv_cq).status, WcStatus::Flushed, "case {number}");
        assert_eq!(sink.buffer().unwrap().to_vec(), [0; 8]);
    }
}

/// A region that lives as long as the process.
fn keep(region: MemoryRegion) -> Stag {
    static KEPT: Mutex<Vec<MemoryRegion>> = Mutex::new(Vec::new());
    let stag = region.rkey();
    KEPT.lock().unwrap().push(region);
    stag
}

/// Covers: DDP-5041-8.2-01, RDMAP-5040-8.1.1-05
#[test]
fn a_write_that_is_refused_ends_the_stream() {
    /// The code it ends in; the region, the STag of the Write if it is another, where it goes.
    struct Case(u8, fn(&End) -> (MemoryRegion, Option<Stag>, u64));
    let cases = [
        Case(0, |owner| (owner.region(64), Some(Stag(0x1234_5678)), 0)),
        Case(1, |owner| (owner.region(64), None, 57)),
        Case(0, |owner| (owner.pd.allocate(64, Access::REMOTE_READ).unwrap(), None, 0)),
        Case(2, |owner| (owner.device.alloc_pd().allocate(64, all_access()).unwrap(), None, 0)),
    ];
    for (number, Case(expected, case)) in cases.into_iter().enumerate() {
        let (client, server) = pair();
        let (region, stag, to) = case(&server);
        let source = client.region_of(&[1; 8]);
        let (stag, to) = (stag.unwrap_or(region.rkey()), TaggedOffset(to));
        client.post(1, SendOp::Write { stag, to }, &[source.whole()]);
        // Sent, which is all that success says; or the answer came before that was known.
        let status = next(&client.send_cq).status;
        assert!(matches!(status, WcStatus::Success | WcStatus::Flushed));
        let expected = TerminateCode { layer: 1, etype: 1, code: expected }.reason();
        let ends = [&client, &server].map(|end| end.connection.wait_disconnected(Some(DEADLINE)));
        let wanted = [Some(Ended::Terminated(expected)), Some(Ended::Fault(expected))];
        assert_eq!(ends, wanted, "case {number}");
        assert_eq!(region.buffer().unwrap().to_vec(), [0; 64]);
        client.post(2, SendOp::SEND, &[]);
        assert_eq!(next(&client.send_cq).status, WcStatus::Flushed);
    }
}

/// Covers: VERBS-hilland-8.1.3.1-01, VERBS-hilland-6.2.4-01
#[test]
fn a_local_element_that_is_refused_fails_its_request_and_flushes_the_rest() {
    let cases: [fn(&End) -> Sge; 4] = [
        |_| Sge { addr: 0, length: 8, lkey: Stag(0x0123_4567) },
        |end| Sge { length: 65, ..forgotten(end.region(64)) },
        |end| {
            let other = end.device.alloc_pd();
            forgotten(other.allocate(64, all_access()).unwrap())
        },
        |end| end.region(64).whole(),
    ];
    for (number, case) in cases.into_iter().enumerate() {
        let (client, server) = pair();
        server.post_recv(0, &[]);
        client.send(0, &[]);
        client.sent();
        let sges = [case(&client)];
        // Unsignalled: only failure raises a completion.
        for (id, list) in [(1, &sges[..]), (2, &[]), (3, &[])] {
            let wr = SendRequest::send(id, list);
            // The first may have ended the queue pair already.
            client.qp.post_send(&wr).unwrap();
        }
        let completion = next(&client.send_cq);
        let expected = (1, WcStatus::LocalProtection);
        assert_eq!((completion.wr_id, completion.status), expected, "case {number}");
        for id in 2..=3 {
            let completion = next(&client.send_cq);
            assert_eq!((completion.wr_id, completion.status), (id, WcStatus::Flushed));
        }
    }
}

fn forgotten(region: MemoryRegion) -> Sge {
    let sge = region.whole();
    keep(region);
    sge
}

/// Covers: VERBS-hilland-8.1.2.1-01, RDMAP-5040-5.3-04
#[test]
fn a_receive_that_does_not_fit_fails() {
    let (client, server) = pair();
    let (source, sink) = (client.region(65), server.region(65));
    server.post_recv(1, &[sink.sge(0, 64)]);
    server.post_recv(2, &[sink.whole()]);
    client.send(1, &[source.whole()]);
    let completion = next(&server.recv_cq);
    assert_eq!((completion.wr_id, completion.status), (1, WcStatus::LocalLength));
    let completion = next(&server.recv_cq);
    assert_eq!((completion.wr_id, completion.status), (2, WcStatus::Flushed));
    let why = client.connection.wait_disconnected(Some(DEADLINE));
    assert!(matches!(why, Some(Ended::Terminated(why)) if why.code() == 0x1205), "{why:?}");
}

#[test]
fn a_receive_into_memory_that_may_not_be_written_fails() {
    let (client, server) = pair();
    let sink = server.pd.allocate(64, Access::LOCAL_READ).unwrap();
    server.post_recv(1, &[sink.whole()]);
    let source = client.region_of(&[3; 8]);
    client.send(1, &[source.whole()]);
    assert_eq!(next(&server.recv_cq).status, WcStatus::LocalProtection);
    assert_eq!(sink.buffer().unwrap().to_vec(), [0; 64]);
}

/// Cuts a region into 32 elements of different lengths, some of them empty.
fn cut(region: &MemoryRegion) -> Vec<Sge> {
    let lengths = (0..32_usize).map(|n| if n % 7 == 3 { 0 } else { n * 97 + 1 });
    let mut at = 0;
    let list: Vec<Sge> = lengths
        .map(|len| {
            at += len;
            region.sge(at - len, len)
        })
        .collect();
    assert!(at <= region.len());
    list
}

#[test]
fn lists_of_32_elements_are_gathered_and_scattered() {
    for (crc, markers) in [(true, false), (false, false), (true, true)] {
        let options = Options::new().crc(crc).markers(markers);
        let (client, server) = Setup::both(&options).connect();
        let total: usize = cut(&client.region(1 << 16)).iter().map(|sge| sge.length as usize).sum();
        let octets = pattern(total, 4);
        let check = |region: &MemoryRegion, what: &str| {
            let mut got = vec![0; total];
            region.buffer().unwrap().read_at(0, &mut got);
            assert!(got == octets, "{what}, {options:?}");
        };
        // Many elements at one end, other borders at the other.
        let source = client.region(total);
        source.buffer().unwrap().write_at(0, &octets);
        let list = cut(&source);
        let sink = server.region(total);
        server.post_recv(1, &[sink.sge(0, 10_000), sink.sge(10_000, total - 10_000)]);
        client.send(1, &list);
        assert_eq!(server.received().byte_len as usize, total);
        client.sent();
        check(&sink, "gathered Send");

        let sink = server.region(total);
        server.post_recv(2, &cut(&sink));
        client.send(2, &[source.sge(0, 777), source.sge(777, total - 777)]);
        server.received();
        client.sent();
        check(&sink, "scattered Send");

        let sink = server.region(total);
        client.post(3, SendOp::Write { stag: sink.rkey(), to: sink.base() }, &list);
        client.sent();
        let back = client.region(total);
        let op = SendOp::Read { stag: sink.rkey(), to: sink.base(), invalidate: None };
        client.post(4, op, &cut(&back));
        assert_eq!(client.sent().byte_len as usize, total);
        check(&back, "gathered Write, scattered Read");

        let too_many = vec![source.sge(0, 1); 33];
        let wr = SendRequest::send(5, &too_many).signaled();
        assert_eq!(client.qp.post_send(&wr), Err(PostError::TooManySges));
        let wr = iwarp::RecvRequest::new(5, &too_many);
        assert_eq!(client.qp.post_recv(&wr), Err(PostError::TooManySges));
    }
}

#[test]
fn inline_octets_are_taken_at_once() {
    let (client, server) = pair();
    let sink = server.region(1024);
    server.post_recv(1, &[sink.whole()]);
    let mut octets = pattern(257, 1);
    let post = |wr_id, op, octets: &[u8]| {
        let payload = Payload::Inline(octets);
        client.qp.post_send(&SendRequest::new(wr_id, op, payload).signaled())
    };
    assert_eq!(post(1, SendOp::SEND, &octets), Err(PostError::InlineTooLong));
    let to = sink.base().advanced(512);
    post(1, SendOp::Write { stag: sink.rkey(), to }, &octets[..256]).unwrap();
    post(2, SendOp::SEND, &octets[..256]).unwrap();
    octets.fill(0);
    assert_eq!(server.received().byte_len, 256);
    let got = sink.buffer().unwrap().to_vec();
    assert!(got[..256] == pattern(256, 1) && got[512..768] == pattern(256, 1));
    assert_eq!((client.sent().wr_id, client.sent().wr_id), (1, 2));
}

/// Covers: VERBS-hilland-8.2.2-01
#[test]
fn a_fenced_send_waits_for_the_read_before_it() {
    const LEN: usize = 2 << 20;
    let (client, server) = pair();
    for round in 0..10 {
        let source = server.region_of(&pattern(LEN, round));
        let (through, sink) = (client.region(LEN), server.region(LEN));
        server.post_recv(1, &[sink.whole()]);
        client.read(1, through.whole(), &source, 0);
        let sges = [through.whole()];
        let wr = SendRequest::send(2, &sges).signaled().fenced();
        client.qp.post_send(&wr).unwrap();
        assert_eq!((client.sent().wr_id, client.sent().wr_id), (1, 2));
        server.received();
        // The bytes that came back are those that the Read brought.
        assert!(sink.buffer().unwrap().to_vec() == pattern(LEN, round));
    }
}

/// Covers: VERBS-hilland-8.1.3.1-01
#[test]
fn unsignalled_requests_complete_silently() {
    let (client, server) = pair();
    let source = client.region_of(b"silent");
    let sink = server.region(6);
    for id in 0..2000 {
        server.post_recv(id, &[sink.whole()]);
        let sges = [source.whole()];
        let payload = Payload::Sges(&sges);
        let signaled = id % 100 == 99;
        let mut wr = SendRequest::send(id, payload);
        wr.signaled = signaled;
        client.qp.post_send(&wr).unwrap();
        server.received();
        if signaled {
            assert_eq!(client.sent().wr_id, id);
        }
    }
    assert_eq!(client.send_cq.poll_one(), None);
    assert_eq!(client.qp.outstanding().0, 0);
}
