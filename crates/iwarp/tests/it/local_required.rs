// SPDX-License-Identifier: MIT OR Apache-2.0

//! Connections within the host that must move to shared memory, or end with a line that says what
//! is missing. Each device here has an engine of its own, as two processes do.

use std::net::TcpListener;
use std::process::Command;
use std::thread;
use std::time::Duration;

use iwarp::cm::Listener;
use iwarp::port::{ManualClock, MemoryNetwork, Platform};
use iwarp::{
    Device, Ended, Extensions, LocalPath, NetworkFaults, Options, QpState, RecvRequest, SendOp,
    SendRequest,
};
use iwarp_os::unix::{SeqListener, SeqSocket};
use iwarp_proto::ddp::wire::{Header, Tagged};
use iwarp_proto::mpa::wire::FrameKind;
use iwarp_types::Stag;
use rustix::io::Errno;
use rustix::thread::{Gid, Uid, UnshareFlags};

use crate::common::meet::{TestHost, exchange};
use crate::common::process::{self, goes_on, passed_apart, this_test};
use crate::common::raw::{Heard, Raw, reply, request, send, split, write};
use crate::common::reports::Reports;
use crate::common::{DEADLINE, End, Setup, couple, next, parts, sandbox, succeeded, until};
use crate::fates::Lines;
use crate::local_rings::relay;

fn demanding() -> Options {
    Options::new().local(LocalPath::Require)
}

/// The connection of an end that demands shared memory ends, with one line that has this in it.
fn ends_for(reports: &Reports, end: &End, missing: &str) {
    until(missing, || {
        // Polling moves what has come.
        assert_eq!(end.recv_cq.poll_one(), None);
        (end.qp.state() == QpState::Err).then_some(())
    });
    let ended = end.connection.wait_disconnected(Some(DEADLINE));
    assert!(matches!(ended, Some(Ended::Fault(_))), "{ended:?}");
    let is_demand = |line: &mut String| line.contains("IWARP_LOCAL=require, but ");
    let lines: Vec<_> = reports.lines().extract_if(.., is_demand).collect();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains(missing), "{missing}: {lines:?}");
    assert!(!lines[0].contains("left_out"), "{lines:?}");
    assert_eq!(end.qp.local_path(), LocalPath::Off);
    goes_on();
}

/// A client that is made by `make` connects to a server with these options.
fn connect_with(make: impl FnOnce() -> Device + Send, server: &Options) -> (End, End) {
    let (device, listener, addr) = process::listen(server);
    thread::scope(|scope| {
        let dialling = scope.spawn(|| process::dial(&make(), addr, 16));
        let server = process::accept(&device, &listener, 16, Vec::new());
        (dialling.join().unwrap(), server)
    })
}

/// To an end that hears something before a hello frame, the peer is foreign.
fn says_something(from: &End, to: &End) {
    to.post_recv(1, &[]);
    from.send(1, &[]);
    // It comes, or the end of the connection before it.
    next(&to.recv_cq);
}

#[test]
fn a_connection_that_moves_goes_on() {
    let (client, server) = Setup::both(&demanding()).connect();
    for end in [&client, &server] {
        until("rings", || {
            assert_eq!(end.recv_cq.poll_one(), None);
            (end.qp.local_path() == LocalPath::Rings).then_some(())
        });
    }
}

#[test]
fn a_peer_that_does_not_move_is_named() {
    if passed_apart(this_test!(), DEADLINE) {
        return;
    }
    let reports = Reports::listen();
    let off = Options::new().local(LocalPath::Off);
    let silent = Options::new().extensions(Extensions::Refuse);
    for (peer, missing) in [(off, "set IWARP_LOCAL=auto there"), (silent, "use it at both ends")] {
        let setup = Setup { client: demanding(), server: peer.clone(), ..Setup::default() };
        let (client, server) = setup.connect();
        says_something(&server, &client);
        ends_for(&reports, &client, missing);
        let setup = Setup { client: peer, server: demanding(), ..Setup::default() };
        let (client, server) = setup.connect();
        says_something(&client, &server);
        ends_for(&reports, &server, missing);
    }
}

#[test]
fn an_obstacle_between_the_ends_is_named() {
    if passed_apart(this_test!(), DEADLINE) {
        return;
    }
    let reports = Reports::listen();
    // Each end knows, whichever found it out.
    for (client, server) in [(demanding(), Options::new()), (Options::new(), demanding())] {
        let (device, listener, addr) = process::listen(&server);
        let dialler = Device::with_options(client.clone()).unwrap();
        let relayed = relay(addr);
        let dialling = thread::spawn(move || process::dial(&dialler, relayed, 16));
        let server = process::accept(&device, &listener, 16, Vec::new());
        let dialled = dialling.join().unwrap();
        let demands = if client == demanding() { &dialled } else { &server };
        ends_for(&reports, demands, "a relay, a proxy or a NAT");
    }
    let delay = "delay=1".parse::<NetworkFaults>().unwrap();
    for (faults, other) in [(demanding(), Options::new()), (Options::new(), demanding())] {
        let faults = faults.faults(delay);
        let setup = Setup { client: faults.clone(), server: other.clone(), ..Setup::default() };
        let (client, server) = setup.connect();
        let demands = if other == demanding() { &server } else { &client };
        ends_for(&reports, demands, "IWARP_FAULTS");
    }
    // An end that does not say what it can do learns nothing of its peer.
    let silent = demanding().extensions(Extensions::Refuse);
    let (client, _server) =
        Setup { client: silent, server: Options::new(), ..Setup::default() }.connect();
    ends_for(&reports, &client, "set it to ask");
}

const NOBODY: u32 = 65534;

/// A device whose thread is another user's.
fn nobodys(options: Options) -> Device {
    thread::spawn(|| {
        let (uid, gid) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
        rustix::thread::set_thread_res_gid(gid, gid, gid).unwrap();
        rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
        Device::with_options(options).unwrap()
    })
    .join()
    .unwrap()
}

#[test]
fn a_peer_of_another_user_is_named() {
    // Only root can be another.
    if !rustix::process::geteuid().is_root() || passed_apart(this_test!(), DEADLINE) {
        return;
    }
    let reports = Reports::listen();
    for (client, server) in [(demanding(), Options::new()), (Options::new(), demanding())] {
        let demands_first = client == demanding();
        let (client, server) = connect_with(|| nobodys(client), &server);
        let demands = if demands_first { &client } else { &server };
        ends_for(&reports, demands, "another user");
    }
}

#[test]
fn a_refusal_of_the_system_is_named_at_both_ends() {
    if passed_apart(this_test!(), DEADLINE) {
        return;
    }
    let reports = Reports::listen();
    for (error, here, there) in [
        (Errno::MFILE, "left in this process", "left in the peer's process"),
        (Errno::NOMEM, "no memory is left for it here", "no memory is left for it at the peer"),
        (Errno::PERM, "refuses this process memfd_create", "refuses the peer's process memfd"),
    ] {
        // The initiator makes the memory, in its worker.
        let make = |options: Options| {
            move || {
                let make = || Device::with_options(options).unwrap();
                sandbox::without(libc::SYS_memfd_create, error.raw_os_error(), make)
            }
        };
        let (client, _server) = connect_with(make(demanding()), &Options::new());
        ends_for(&reports, &client, here);
        let (_client, server) = connect_with(make(Options::new()), &demanding());
        ends_for(&reports, &server, there);
    }
}

#[test]
fn a_peer_that_says_nothing_has_a_bounded_time() {
    if passed_apart(this_test!(), DEADLINE) {
        return;
    }
    let reports = Reports::listen();
    let clock = ManualClock::new();
    let platform = Platform { clock: clock.clone().into(), ..Platform::default() };
    let device = Device::on_platform(demanding(), platform).unwrap();
    let listener = Listener::bind(&device, "127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let peer = thread::spawn(move || {
        let mut peer = Raw::connect(addr);
        peer.send(&request().octets());
        peer
    });
    let end = process::accept(&device, &listener, 16, Vec::new());
    let _peer = peer.join().unwrap();
    clock.advance(Duration::from_millis(4900));
    assert_eq!(end.recv_cq.poll_one(), None);
    assert_eq!(end.qp.state(), QpState::Rts);
    clock.advance(Duration::from_millis(200));
    ends_for(&reports, &end, "in time");
}

/// A peer that offers shared memory, in the process of that name.
fn offer(peer: &mut Raw, name: u64) {
    const HELLO: (u32, u64) = (0x6957_4152, 0x5048_454c_0100_008f);
    const NAME: u32 = 0x6957_4c4e;
    const SECRET: (u32, u64) = (0x6957_4c53, 7);
    assert_eq!(peer.startup(FrameKind::Request).kind, FrameKind::Request);
    peer.send(&reply().octets());
    peer.operate(true, false, false);
    for (stag, to) in [HELLO, (NAME, name), SECRET] {
        peer.send_ulpdu(&write(Stag(stag), to, &[]));
    }
}

/// Hears that the end keeps the connection with TCP.
fn is_declined(peer: &mut Raw) {
    const DECLINE: u32 = 0x6957_4c44;
    loop {
        let Heard::Ulpdu(ulpdu) = peer.hear() else { panic!("the stream ends") };
        if let (Header::Tagged(Tagged { stag: Stag(DECLINE), .. }), _) = split(&ulpdu) {
            return;
        }
    }
}

#[test]
fn a_peer_that_has_left_is_heard_before_it_is_missed() {
    if passed_apart(this_test!(), DEADLINE) {
        return;
    }
    let reports = Reports::listen();
    for leaves in [true, false] {
        let clock = ManualClock::new();
        let platform = Platform { clock: clock.clone().into(), ..Platform::default() };
        let device = Device::on_platform(demanding(), platform).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let peer = thread::spawn(move || {
            let mut peer = Raw::accept(&listener);
            // No process has that name.
            offer(&mut peer, 0x1234_5678);
            is_declined(&mut peer);
            peer
        });
        let end = process::dial(&device, addr, 16);
        let inbox = end.region(8);
        end.post_recv(1, &[inbox.whole()]);
        let mut peer = peer.join().unwrap();
        peer.send_ulpdu(&send(1, &[5; 8]));
        if leaves {
            peer.fin();
        }
        end.received();
        if leaves {
            assert_eq!(end.connection.wait_disconnected(Some(DEADLINE)), Some(Ended::Closed));
            assert!(reports.lines().is_empty(), "{:?}", reports.lines());
        } else {
            clock.advance(Duration::from_millis(5100));
            ends_for(&reports, &end, "another network namespace");
        }
    }
}

#[test]
fn a_process_that_many_ask_is_asked_again() {
    let name = getrandom::u64().unwrap();
    let door = format!("iwarp-local/{name:016x}");
    let listener = SeqListener::bind(door.as_bytes()).unwrap();
    listener.listen(1).unwrap();
    let waiting: Vec<_> = std::iter::from_fn(|| SeqSocket::connect(door.as_bytes()).ok()).collect();
    assert!(!waiting.is_empty());
    let (end, _peer) = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let peer = thread::spawn(move || {
            let mut peer = Raw::accept(&listener);
            offer(&mut peer, name);
            // The offer has been followed by now.
            assert!(matches!(peer.hear(), Heard::Ulpdu(_)));
            assert!(peer.is_silent(Duration::from_millis(100)), "it declines");
            peer
        });
        let end = process::dial(&Device::with_options(demanding()).unwrap(), addr, 16);
        (end, peer.join().unwrap())
    };
    for _ in &waiting {
        listener.accept().unwrap();
    }
    let asker = until("the end that was offered it", || listener.accept().ok());
    let hello = until("its first message", || asker.recv(&mut [0; 80]).ok());
    assert_eq!(hello, 80);
    assert_eq!(end.qp.state(), QpState::Rts);
}

/// Runs `f` in a network of its own that has these addresses, where the system lets us.
fn at_addresses(addresses: [&str; 2], f: impl FnOnce() + Send) {
    let ip = |words: &str| Command::new("ip").args(words.split(' ')).status().ok();
    let apart = || {
        // SAFETY: only this thread's network changes, and that of the threads that it starts.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }.ok()?;
        ip("link set lo up")?.success().then_some(())?;
        ip("link add name one type veth peer name two")?.success().then_some(())?;
        for (addr, interface) in addresses.into_iter().zip(["one", "two"]) {
            assert!(ip(&format!("addr add {addr}/24 dev {interface}"))?.success());
            assert!(ip(&format!("link set {interface} up"))?.success());
        }
        f();
        Some(())
    };
    thread::scope(|scope| scope.spawn(apart).join().unwrap());
}

#[test]
fn two_interfaces_of_a_host_are_one_host() {
    let addresses = ["192.0.2.1", "203.0.113.1"];
    at_addresses(addresses, || {
        let hosts = addresses.map(|addr| TestHost::with(demanding(), addr));
        let [one, other] = hosts.each_ref().map(TestHost::end);
        one.all_the_way(&other);
        other.all_the_way(&one);
        until("rings", || {
            exchange(&one, &other);
            let ways = [one.qp.local_path(), other.qp.local_path()];
            (ways == [LocalPath::Rings; 2]).then_some(())
        });
    });
}

#[test]
fn the_log_has_one_line_on_the_way_of_each_connection() {
    if passed_apart(this_test!(), DEADLINE) {
        return;
    }
    let lines = Lines::listen();
    let moving = Setup::default().connect();
    for end in [&moving.0, &moving.1] {
        until("rings", || {
            assert_eq!(end.recv_cq.poll_one(), None);
            (end.qp.local_path() == LocalPath::Rings).then_some(())
        });
    }
    assert_eq!(lines.take(2, "moves from TCP to shared memory").len(), 2);
    // The end that is off has nothing to say.
    let server = Options::new().local(LocalPath::Off);
    let off = Setup { server, ..Setup::default() }.connect();
    let stays = lines.take(1, "the connection stays with TCP");
    assert_eq!(stays.len(), 1, "{stays:?}");
    assert!(stays[0].contains("set IWARP_LOCAL=auto there"), "{stays:?}");
    let make = || Device::with_options(Options::new()).unwrap();
    let make = || sandbox::without(libc::SYS_memfd_create, libc::EMFILE, make);
    let refused = connect_with(make, &Options::new());
    let stays = lines.take(2, "the connection stays with TCP");
    assert_eq!(stays.len(), 2, "{stays:?}");
    let of = |end: &End| {
        let qp = format!(" qp={} ", end.qp.number());
        stays.iter().filter(|line| line.contains(&qp)).count()
    };
    // Two devices of one process may give their queue pairs one number.
    assert!([&refused.0, &refused.1].into_iter().all(|end| of(end) > 0), "{stays:?}");
    assert!(stays.iter().any(|line| line.contains("left in this process")), "{stays:?}");
    assert!(stays.iter().any(|line| line.contains("left in the peer's process")), "{stays:?}");
    drop((moving, off, refused));
}

/// The demand is for connections within the host.
#[test]
fn a_connection_to_another_host_goes_on_by_tcp() {
    let network = MemoryNetwork::default();
    let devices = ["192.0.2.1", "192.0.2.2"].map(|addr| {
        let platform = network.platform(addr.parse().unwrap());
        Device::on_platform(demanding(), platform).unwrap()
    });
    let [client, server] = &devices;
    let listener = Listener::bind(server, "192.0.2.2:0").unwrap();
    let (_, sends, _, one) = parts(client, 16);
    let (_, _, receives, other) = parts(server, 16);
    let _connections = couple(client, &one, &listener, &other);
    other.post_recv(&RecvRequest::new(1, &[])).unwrap();
    one.post_send(&SendRequest::new(2, SendOp::SEND, &[]).signaled()).unwrap();
    for cq in [&sends, &receives] {
        succeeded(next(cq));
    }
    assert_eq!([one.state(), other.state()], [QpState::Rts; 2]);
}
