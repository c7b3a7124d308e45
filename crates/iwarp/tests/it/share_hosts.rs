// SPDX-License-Identifier: MIT OR Apache-2.0

//! Shares of a UDP port under several users, in several network namespaces, without rights.

use std::net::{SocketAddr, UdpSocket};
use std::process::Command;
use std::time::{Duration, Instant};

use iwarp::port::share::{Listening, Member, ShareError};
use iwarp_os::slots::SlotSocket;
use iwarp_os::unix::SeqListener;
use rustix::thread::{Gid, Uid, UnshareFlags};

use crate::common::DEADLINE;
use crate::common::process::{role, this_test};
use crate::common::sharers::{REQ, Sharer, mad, packet, place, serve};

const NOBODY: u32 = 65534;

/// Runs `f` as another user would: the system sees users in threads. Only root can do that.
fn as_nobody<T: Send>(f: impl FnOnce() -> T + Send) -> Option<T> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let become_nobody = || {
        let (uid, gid) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
        rustix::thread::set_no_new_privs(true).unwrap();
        rustix::thread::set_thread_groups(&[]).unwrap();
        rustix::thread::set_thread_res_gid(gid, gid, gid).unwrap();
        // Capabilities go with it.
        rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
        f()
    };
    Some(std::thread::scope(|scope| scope.spawn(become_nobody).join().unwrap()))
}

/// Runs `f` in a network namespace of its own, where the system lets us.
fn in_namespace<T: Send>(f: impl FnOnce() -> T + Send) -> Option<T> {
    let apart = || {
        // SAFETY: only this thread's network changes, and it ends with `f`.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }.ok()?;
        ip("link set lo up")?;
        Some(f())
    };
    std::thread::scope(|scope| scope.spawn(apart).join().unwrap())
}

/// The output of `ip`, in the namespace of this thread.
fn ip(words: &str) -> Option<()> {
    Command::new("ip").args(words.split(' ')).status().ok()?.success().then_some(())
}

/// True if a packet to a queue pair of the member comes to it.
fn reaches(addr: SocketAddr, member: &mut Member, data: &UdpSocket) -> bool {
    let qpn = member.allocate_qpn().unwrap();
    let sender = UdpSocket::bind((addr.ip(), 0)).unwrap();
    sender.send_to(&packet(qpn, 5), addr).unwrap();
    let mut room = [0; 64];
    data.recv(&mut room).is_ok_and(|len| room[..len] == packet(qpn, 5))
}

fn data(member: &mut Member) -> UdpSocket {
    UdpSocket::from(member.take_socket().unwrap())
}

/// Covers: ROCE-175
#[test]
fn no_rights_are_needed() {
    let addr = place();
    as_nobody(|| {
        let mut member = Member::join(addr).unwrap();
        let data = data(&mut member);
        assert!(reaches(addr, &mut member, &data));
    });
}

/// Covers: ROCE-175
#[test]
fn ipv6_is_as_good() {
    let addr: SocketAddr = "[::1]:14791".parse().unwrap();
    in_namespace(|| {
        let mut member = Member::join(addr).unwrap();
        let data = data(&mut member);
        assert!(reaches(addr, &mut member, &data));
        // An IPv4 address is one, however it is written, and has nothing to do with that.
        let mapped: SocketAddr = "[::ffff:127.0.0.1]:14791".parse().unwrap();
        let plain: SocketAddr = "127.0.0.1:14791".parse().unwrap();
        let mut other = Member::join(mapped).unwrap();
        assert!(other.is_broker());
        let data = self::data(&mut other);
        assert!(reaches(plain, &mut other, &data));
    });
}

/// One group for all addresses of the host.
///
/// Covers: ROCE-175
#[test]
fn a_share_of_all_addresses_is_one_of_both_families() {
    in_namespace(|| {
        let all: SocketAddr = "[::]:14791".parse().unwrap();
        let mut member = Member::join(all).unwrap();
        let data = data(&mut member);
        for addr in ["127.0.0.1:14791", "127.9.9.9:14791", "[::1]:14791"] {
            assert!(reaches(addr.parse().unwrap(), &mut member, &data), "{addr}");
        }
        // The MADs that the broker reads come from the addresses that they do come from.
        assert_eq!(member.listen(77).unwrap(), Listening::Granted);
        for ip in ["127.0.0.1", "::1"] {
            let ip: std::net::IpAddr = ip.parse().unwrap();
            let peer = UdpSocket::bind((ip, 0)).unwrap();
            peer.send_to(&mad(REQ, 77), (ip, 14791)).unwrap();
            let mut got = None;
            member
                .drive(DEADLINE, |member| {
                    got = member.next_mad();
                    got.is_some()
                })
                .unwrap();
            let got = got.unwrap();
            assert_eq!((got.from, got.to), (peer.local_addr().unwrap(), ip));
        }
    });
}

/// Covers: ROCE-176, ROCE-178
#[test]
fn an_address_is_one_users() {
    let (addr, another) = (place(), place());
    let _ours = Member::join(addr).unwrap();
    as_nobody(|| {
        assert!(matches!(Member::join(addr), Err(ShareError::Taken { .. })));
        let mut member = Member::join(another).unwrap();
        let data = data(&mut member);
        assert!(reaches(another, &mut member, &data));
        // Peers of this library's kind do not need the port.
        SlotSocket::alone(SocketAddr::new(addr.ip(), 0)).unwrap();
    });
}

/// Covers: ROCE-176
#[test]
fn a_port_that_is_not_shared_is_said_to_be_taken() {
    let addr = place();
    let _other = UdpSocket::bind(addr).unwrap();
    let error = Member::join(addr).unwrap_err();
    assert!(matches!(error, ShareError::Taken { .. }), "{error}");
    assert!(error.to_string().contains(&addr.to_string()) && !error.to_string().contains('\n'));
}

#[test]
fn some_addresses_have_no_share() {
    for addr in ["224.0.0.7:14791", "[ff02::7]:14791", "127.0.0.1:0", "[::]:0"] {
        let error = Member::join(addr.parse().unwrap()).unwrap_err();
        assert!(matches!(error, ShareError::Address { .. }), "{error}");
    }
    // It is no address of this host.
    let error = Member::join("192.0.2.77:14791".parse().unwrap()).unwrap_err();
    assert!(matches!(error, ShareError::System { .. }), "{error}");
}

/// Other users can take every name that they can guess, listening or not: who has the port finds
/// one, and others find that.
///
/// Covers: ROCE-178
#[test]
fn a_squatter_of_another_user_is_gone_around() {
    if role().is_some() {
        return serve();
    }
    for listens in [false, true] {
        let addr = place();
        let names = (0..70).map(|slot| match slot {
            0 => format!("iwarp-roce/0/{addr}"),
            slot => format!("iwarp-roce/0/{addr}/{slot}"),
        });
        let names: Vec<_> = names.map(String::into_bytes).collect();
        let squat = |name: &Vec<u8>| {
            let squatter = SeqListener::bind(name).unwrap();
            if listens {
                squatter.listen(4).unwrap();
            }
            squatter
        };
        let Some(_squatters) = as_nobody(|| names.iter().map(squat).collect::<Vec<_>>()) else {
            return;
        };
        let mut first = Sharer::start(this_test!(), addr);
        assert_eq!(first.ask("broker"), "true");
        let began = Instant::now();
        let mut member = Member::join(addr).unwrap();
        assert!(!member.is_broker() && began.elapsed() < Duration::from_secs(1));
        // And the next broker is found as well.
        first.kill();
        assert!(member.drive(DEADLINE, |member| member.is_broker()).unwrap());
    }
}

/// The port cannot be gone around: the line says whose it is.
///
/// Covers: ROCE-176
#[test]
fn the_owner_of_the_port_is_named() {
    let addr = place();
    let Some(_theirs) = as_nobody(|| UdpSocket::bind(addr).unwrap()) else { return };
    let error = Member::join(addr).unwrap_err();
    assert!(matches!(error, ShareError::Taken { user: Some(NOBODY), .. }), "{error}");
    assert!(error.to_string().contains("user 65534"), "{error}");
}

/// A member that has dropped its rights would lock out those who trust its former user.
///
/// Covers: ROCE-178
#[test]
fn a_member_that_became_another_user_is_no_broker() {
    if role().is_some() {
        return serve();
    }
    let addr = place();
    let mut broker = Sharer::start(this_test!(), addr);
    let mut member = Member::join(addr).unwrap();
    broker.kill();
    let lone = as_nobody(|| {
        member.drive(Duration::from_millis(300), |member| member.is_broker()).unwrap()
    });
    assert_ne!(lone, Some(true), "as nobody");
    assert!(member.drive(DEADLINE, |member| member.is_broker()).unwrap());
}

/// Covers: ROCE-178
#[test]
fn another_users_process_is_sent_away() {
    let addr = place();
    let mut ours = Member::join(addr).unwrap();
    let name = format!("iwarp-roce/0/{addr}").into_bytes();
    as_nobody(|| {
        let theirs = iwarp_os::unix::SeqSocket::connect(&name).unwrap();
        theirs.send(&[1, 3, 0, 0], &[]).unwrap();
        let mut said = Vec::new();
        let sent_away = ours.drive(crate::common::DEADLINE, |_| match theirs.recv(&mut [0; 64]) {
            Ok(len) => {
                said.push(len);
                len == 0
            }
            // The words that it has said are lost with the connection.
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        });
        assert!(sent_away.unwrap());
        assert!(said.is_empty() || said == [0]);
    });
}

#[test]
fn network_namespaces_are_worlds_of_their_own() {
    let addr = place();
    let mut here = Member::join(addr).unwrap();
    let ours = data(&mut here);
    in_namespace(|| {
        let mut there = Member::join(addr).unwrap();
        assert!(there.is_broker());
        let theirs = data(&mut there);
        assert!(reaches(addr, &mut there, &theirs));
    });
    assert!(here.is_broker() && reaches(addr, &mut here, &ours));
}

/// Packets stop, and come again; who joins meanwhile joins.
#[test]
fn an_address_that_goes_and_comes_back() {
    let addr: SocketAddr = "10.9.8.7:14791".parse().unwrap();
    in_namespace(|| {
        ip("addr add 10.9.8.7/32 dev lo").unwrap();
        let mut member = Member::join(addr).unwrap();
        let data = data(&mut member);
        assert!(reaches(addr, &mut member, &data));
        ip("addr del 10.9.8.7/32 dev lo").unwrap();
        assert!(UdpSocket::bind((addr.ip(), 0)).is_err());
        member.turn(iwarp_os::clock::now()).unwrap();
        ip("addr add 10.9.8.7/32 dev lo").unwrap();
        assert!(reaches(addr, &mut member, &data));
    });
}
