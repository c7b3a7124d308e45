// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory that a program takes away while it is registered: the request concerned fails, the peer's
//! is answered with a Terminate, and everything else goes on.
#![cfg(not(plain_copies))]

use std::ffi::c_void;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};

use iwarp::cm::Listener;
use iwarp::verbs::RegisterError;
use iwarp::{
    Access, AsyncEvent, AtomicOp, Ended, MemoryRegion, Options, ProtectionDomain,
    QueuePairAttributes, Reason, RecvRequest, SendOp, Sge, WcStatus,
};
use iwarp_proto::rdmap::wire::TerminateCode;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap, mmap_anonymous, mprotect, munmap};

use crate::common::process::{passed_apart, this_test};
use crate::common::reports::Reports;
use crate::common::{DEADLINE, End, Setup, all_access, couple, next, parts, pattern, until};

const LEN: usize = 256 << 10;
const PAGE: usize = 4096;

/// An address at which the system maps nothing by itself, as it begins from above: what is unmapped
/// there stays so, in spite of other tests.
fn free_place() -> *mut c_void {
    static NEXT: AtomicUsize = AtomicUsize::new(0x2000_0000_0000);
    std::ptr::with_exposed_provenance_mut(NEXT.fetch_add(16 << 20, Ordering::Relaxed))
}

/// The way in which memory goes away.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Way {
    Unmap,
    Protect,
    MakeReadOnly,
    MapNothingOver,
    Truncate,
}

const WAYS: [Way; 5] =
    [Way::Unmap, Way::Protect, Way::MakeReadOnly, Way::MapNothingOver, Way::Truncate];

/// Registered memory that will go away.
struct Area {
    start: *mut u8,
    file: OwnedFd,
}

impl Area {
    fn new() -> Self {
        let file = memfd_create("area", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, LEN as u64).unwrap();
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::FIXED_NOREPLACE;
        // SAFETY: a new mapping where none is.
        let start = unsafe { mmap(free_place(), LEN, protection, flags, &file, 0).unwrap() };
        Self { start: start.cast(), file }
    }

    fn register(&self, pd: &ProtectionDomain) -> MemoryRegion {
        // SAFETY: the fate of the memory is under test; no other code uses it.
        unsafe { pd.register_raw(self.start, LEN, all_access()) }.unwrap()
    }

    /// Takes away all from the page `from` on.
    fn take(&self, way: Way, from: usize) {
        let (start, len) = (self.start.wrapping_add(from * PAGE).cast(), LEN - from * PAGE);
        // SAFETY: the test's own pages.
        unsafe {
            match way {
                Way::Unmap => munmap(start, len).unwrap(),
                Way::Protect => mprotect(start, len, MprotectFlags::empty()).unwrap(),
                Way::MakeReadOnly => mprotect(start, len, MprotectFlags::READ).unwrap(),
                Way::MapNothingOver => {
                    let flags = MapFlags::PRIVATE | MapFlags::FIXED;
                    mmap_anonymous(start, len, ProtFlags::empty(), flags).unwrap();
                }
                Way::Truncate => ftruncate(&self.file, (from * PAGE) as u64).unwrap(),
            }
        }
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: as above; parts may be gone.
        let _ = unsafe { munmap(self.start.cast(), LEN) };
    }
}

/// The access that comes upon the memory.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Mode {
    /// By the peer.
    Write,
    Read,
    Atomic,
    /// The peer's Send into a receive.
    Receive,
    /// By requests of the program's own.
    OwnSend,
    OwnWrite,
    OwnRead,
}

const MODES: [Mode; 7] = [
    Mode::Write,
    Mode::Read,
    Mode::Atomic,
    Mode::Receive,
    Mode::OwnSend,
    Mode::OwnWrite,
    Mode::OwnRead,
];

impl Mode {
    fn writes(self) -> bool {
        matches!(self, Self::Write | Self::Atomic | Self::Receive | Self::OwnRead)
    }

    fn is_peers(self) -> bool {
        matches!(self, Self::Write | Self::Read | Self::Atomic)
    }
}

/// Local catastrophic error.
const TERMINATE: Reason = TerminateCode { layer: 0, etype: 0, code: 0 }.reason();

/// Has `peer` or `victim` access the last `len` bytes of the victim's memory, the last of which are
/// gone, and looks what each is told.
fn befall(victim: &End, peer: &End, mode: Mode, way: Way, len: usize, from: usize) {
    let what = format!("{mode:?} {way:?} {len} {from}");
    let area = Area::new();
    let region = area.register(&victim.pd);
    let own = peer.region_of(&pattern(LEN, 7));
    let at = LEN - len;
    let there: Sge = region.sge(at, len);
    let to = region.base().advanced(at as u64);
    let remote = region.rkey();
    if mode == Mode::Receive {
        victim.post_recv(70, &[there]);
    } else if mode == Mode::OwnSend {
        peer.post_recv(71, &[own.whole()]);
    }
    area.take(way, from);
    match mode {
        Mode::Write => peer.post(1, SendOp::Write { stag: remote, to }, &[own.sge(0, len)]),
        Mode::Read => {
            let op = SendOp::Read { stag: remote, to, invalidate: None };
            peer.post(1, op, &[own.sge(0, len)]);
        }
        Mode::Atomic => {
            let to = region.base().advanced(LEN as u64 - 8);
            let op =
                SendOp::Atomic { stag: remote, to, op: AtomicOp::FetchAdd { add: 1, mask: 0 } };
            peer.post(1, op, &[own.sge(0, 8)]);
        }
        Mode::Receive => peer.post(1, SendOp::SEND, &[own.sge(0, len)]),
        Mode::OwnSend => victim.post(2, SendOp::SEND, &[there]),
        Mode::OwnWrite => {
            let op = SendOp::Write { stag: own.rkey(), to: own.base() };
            victim.post(2, op, &[there]);
        }
        Mode::OwnRead => {
            let op = SendOp::Read { stag: own.rkey(), to: own.base(), invalidate: None };
            victim.post(2, op, &[there]);
        }
    }
    match mode {
        Mode::Receive => {
            let done = next(&victim.recv_cq);
            assert_eq!((done.wr_id, done.status), (70, WcStatus::LocalProtection), "{what}");
        }
        Mode::OwnSend | Mode::OwnWrite | Mode::OwnRead => {
            let done = next(&victim.send_cq);
            assert_eq!((done.wr_id, done.status), (2, WcStatus::LocalProtection), "{what}");
        }
        _ => {}
    }
    let qp = victim.qp.number();
    let event = match mode.is_peers() {
        true => AsyncEvent::QpAccessError { qp },
        false => AsyncEvent::QpFatal { qp },
    };
    victim.async_event(|told| *told == event);
    let why = victim.connection.wait_disconnected(Some(DEADLINE));
    assert!(matches!(why, Some(Ended::Fault(TERMINATE))), "{what}: {why:?}");
    // The peer can still be told, as what failed was not begun, or ends with its segment.
    let told = peer.connection.wait_disconnected(Some(DEADLINE));
    assert!(matches!(told, Some(Ended::Terminated(TERMINATE))), "{what}: {told:?}");
    region.deregister().unwrap();
}

fn each_case(options: &Options, lens: &[usize]) {
    let (client, server) = Setup::both(options).connect();
    let listener = Listener::bind(&server.device, "127.0.0.1:0").unwrap();
    for mode in MODES {
        for (n, way) in WAYS.into_iter().enumerate() {
            if way == Way::MakeReadOnly && !mode.writes() {
                continue;
            }
            for &len in lens {
                // All of it is gone, or the end of it.
                let from = if n % 2 == 0 { 0 } else { (LEN - len / 2) / PAGE };
                let (a_pd, a_send, a_recv, ours) = parts(&client.device, 16);
                let (b_pd, b_send, b_recv, theirs) = parts(&server.device, 16);
                let (a, b) = couple(&client.device, &ours, &listener, &theirs);
                let end = |device: &iwarp::Device, pd, send_cq, recv_cq, qp, connection| End {
                    device: device.clone(),
                    pd,
                    send_cq,
                    recv_cq,
                    qp,
                    connection,
                };
                let peer = end(&client.device, a_pd, a_send, a_recv, ours, a);
                let victim = end(&server.device, b_pd, b_send, b_recv, theirs, b);
                befall(&victim, &peer, mode, way, len, from);
            }
        }
    }
    // Another connection between the same devices has not noticed.
    let (source, sink) = (client.region_of(b"unharmed"), server.region(8));
    server.post_recv(1, &[sink.whole()]);
    client.send(2, &[source.whole()]);
    client.sent();
    server.received();
    assert_eq!(sink.buffer().unwrap().to_vec(), b"unharmed");
}

#[test]
fn with_crc() {
    each_case(&Options::new().crc(true), &[8, 64, 1000, 60_000]);
}

#[test]
fn without_crc() {
    each_case(&Options::new().crc(false), &[8, 64, 1000, 60_000, LEN]);
}

#[test]
fn with_crc_and_markers() {
    let options = Options::new().crc(true).markers(true);
    each_case(&options, &[8, 1000, 60_000]);
}

#[test]
fn with_markers_alone() {
    let options = Options::new().crc(false).markers(true);
    each_case(&options, &[64, 60_000]);
}

/// A receive of a shared queue is the program's own as well.
#[test]
fn a_receive_of_a_shared_queue() {
    for crc in [false, true] {
        let (client, server) = Setup::both(&Options::new().crc(crc)).connect();
        let listener = Listener::bind(&server.device, "127.0.0.1:0").unwrap();
        let srq = server.pd.create_srq(8, 1);
        let attributes = QueuePairAttributes::new(&server.send_cq, &server.recv_cq).srq(&srq);
        let theirs = server.pd.create_qp(&attributes).unwrap();
        let (pd, _send_cq, _recv_cq, ours) = parts(&client.device, 8);
        let _both = couple(&client.device, &ours, &listener, &theirs);
        let area = Area::new();
        let region = area.register(&server.pd);
        for wr_id in [3, 4] {
            srq.post(&RecvRequest::new(wr_id, &[region.whole()])).unwrap();
        }
        area.take(Way::Unmap, 0);
        let source = pd.allocate(5000, Access::LOCAL_READ).unwrap();
        let payload = iwarp::Payload::Sges(&[source.whole()]);
        let request = iwarp::SendRequest::send(1, payload);
        ours.post_send(&request).unwrap();
        let done = next(&server.recv_cq);
        assert_eq!((done.wr_id, done.status), (3, WcStatus::LocalProtection));
        let qp = theirs.number();
        server.async_event(|event| *event == AsyncEvent::QpFatal { qp });
    }
}

/// Messages that were sent in front of the one that fails have arrived, and those behind it are
/// flushed.
#[test]
fn messages_in_front_of_a_failed_one_arrive_and_those_behind_are_flushed() {
    for crc in [false, true] {
        let (victim, peer) = Setup::both(&Options::new().crc(crc)).connect();
        let area = Area::new();
        let region = area.register(&victim.pd);
        let source = victim.region_of(&pattern(5000, 3));
        let sink = peer.region(5000);
        peer.post_recv(1, &[sink.whole()]);
        area.take(Way::Truncate, 1);
        victim.send(1, &[source.whole()]);
        victim.send(2, &[region.sge(PAGE - 100, 30_000)]);
        victim.send(3, &[source.whole()]);
        let ends: Vec<_> =
            (0..3).map(|_| next(&victim.send_cq)).map(|c| (c.wr_id, c.status)).collect();
        let expected =
            [(1, WcStatus::Success), (2, WcStatus::LocalProtection), (3, WcStatus::Flushed)];
        assert_eq!(ends, expected, "crc {crc}");
        assert_eq!(peer.received().byte_len, 5000);
        assert_eq!(sink.buffer().unwrap().to_vec(), pattern(5000, 3));
    }
}

#[test]
fn one_line_says_which_queue_pair_and_which_address() {
    // The whole process has to listen.
    if passed_apart(this_test!(), DEADLINE * 2) {
        return;
    }
    let reports = Reports::listen();
    let (peer, victim) = Setup::default().connect();
    let area = Area::new();
    let region = area.register(&victim.pd);
    area.take(Way::Protect, 0);
    let source = peer.region_of(&pattern(100, 1));
    peer.write(1, source.whole(), &region, 10);
    peer.write(2, source.whole(), &region, 10);
    let qp = victim.qp.number();
    victim.async_event(|event| *event == AsyncEvent::QpAccessError { qp });
    let line = until("a line", || reports.lines().first().cloned());
    // Fault addresses are those of the access that failed, somewhere in the bytes.
    for part in [format!("{qp:#08x}"), format!("{:#x}", area.start.addr() >> 12)] {
        assert!(line.contains(&part), "{part} in {line}");
    }
    assert!(line.contains("unmapped") && !line.contains('\n'), "{line}");
    peer.connection.wait_disconnected(Some(DEADLINE));
    let of_this: Vec<String> = reports.lines().clone();
    assert_eq!(of_this.iter().filter(|line| line.contains("unmapped")).count(), 1, "{of_this:?}");
}

#[test]
fn memory_that_may_not_be_accessed_so_is_not_registered() {
    let (end, _peer) = Setup::default().connect();
    let area = Area::new();
    // SAFETY: what becomes of the memory is what is looked at.
    let register = |access| unsafe { end.pd.register_raw(area.start, LEN, access) }.map(drop);
    area.take(Way::MakeReadOnly, 3);
    assert_eq!(register(Access::LOCAL_WRITE), Err(RegisterError::NotWritable));
    assert_eq!(register(Access::REMOTE_READ), Ok(()));
    area.take(Way::Protect, 5);
    assert_eq!(register(Access::REMOTE_READ), Err(RegisterError::NotMapped));
    area.take(Way::Unmap, 0);
    assert_eq!(register(Access::LOCAL_WRITE), Err(RegisterError::NotMapped));
}
