// SPDX-License-Identifier: MIT OR Apache-2.0

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::sync::atomic::{AtomicU16, Ordering};

use super::*;

/// A port of this address that no socket has, and none of those that other tests are given when
/// they ask for any.
fn place(ip: IpAddr) -> Option<SocketAddr> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    UdpSocket::bind((ip, 0)).ok()?;
    let first = (std::process::id() % 500) as u16 * 40;
    let ports = (0..40).map(|_| 10_000 + first + NEXT.fetch_add(1, Ordering::Relaxed) % 40);
    let mut places = ports.map(|port| SocketAddr::new(ip, port));
    places.find(|addr| UdpSocket::bind(addr).is_ok())
}

/// Two files that lie beside the sockets in each vault of these tests.
fn beside() -> [OwnedFd; 2] {
    let (one, other) = SeqSocket::pair().unwrap();
    [one.as_fd(), other.as_fd()].map(|fd| fd.try_clone_to_owned().unwrap())
}

fn create(addr: SocketAddr, layout: Layout) -> io::Result<Vault> {
    let [one, other] = beside();
    Vault::create(addr, layout, [one.as_fd(), other.as_fd()])
}

/// All slots are wide.
const fn wide(bits: u32) -> Layout {
    Layout::new(bits, 1 << bits)
}

/// A vault at such a port. A child that another test starts has our sockets for a moment, so a port
/// may be in use again that has just been free.
fn vault(ip: IpAddr, layout: Layout) -> Option<(Vault, SocketAddr)> {
    let mut last = None;
    for _ in 0..40 {
        let addr = place(ip)?;
        match create(addr, layout) {
            Ok(vault) => return Some((vault, addr)),
            Err(error) => last = Some(error),
        }
    }
    panic!("no vault at any port: {last:?}");
}

/// Tells if the port is free soon: since Linux 6.10 a thread of the system closes what lies in a
/// queue that is in itself.
fn becomes_free(addr: SocketAddr) -> bool {
    let pause = || std::thread::sleep(std::time::Duration::from_millis(1));
    (0..5000).any(|_| SlotSocket::is_free(addr).unwrap() || (pause(), false).1)
}

/// The first bytes of a packet to that queue pair.
fn packet(qpn: u32) -> [u8; 12] {
    let mut packet = [0x64; 12];
    packet[4..8].copy_from_slice(&(0xff00_0000 | qpn).to_be_bytes());
    packet
}

/// The queue pair that the packet which has come is for.
fn came(socket: &SlotSocket) -> Option<u32> {
    let mut room = [0; 64];
    let (len, _) = socket.recv_from(&mut room).ok()?;
    let word = room[..len].get(4..8)?;
    Some(u32::from_be_bytes(word.try_into().unwrap()) & 0x00ff_ffff)
}

/// Covers: ROCE-175
#[test]
fn the_kernel_chooses_by_the_number() {
    for ip in [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
        for bits in [6, 4, 1] {
            let Some((vault, addr)) = vault(ip, wide(bits)) else { continue };
            let sender = UdpSocket::bind((ip, 0)).unwrap();
            let last = (1_u16 << bits) - 1;
            // In any order, as often as one likes.
            for slot in (0..=last).chain((0..=last).rev()) {
                let socket = SlotSocket::from(vault.socket(slot).unwrap());
                assert_eq!(socket.local_addr().unwrap(), addr);
                let base = u32::from(slot) << (24 - bits);
                for qpn in [base, base | 5, base | ((1 << (24 - bits)) - 2)] {
                    sender.send_to(&packet(qpn), addr).unwrap();
                    assert_eq!(came(&socket), Some(qpn), "{slot}");
                }
                assert_eq!(came(&socket), None);
            }
            let first = SlotSocket::from(vault.socket(0).unwrap());
            sender.send_to(&packet(0x00ff_ffff), addr).unwrap();
            assert_eq!(came(&first), Some(0x00ff_ffff));
            for short in 0..8 {
                sender.send_to(&vec![0xff; short], addr).unwrap();
                assert_eq!(first.recv_from(&mut [0; 64]).unwrap().0, short);
            }
            assert!(vault.socket(last + 1).is_err());
        }
    }
}

/// Slots are added unnoticed by the others, by any process that has the vault.
///
/// Covers: ROCE-175
#[test]
fn a_group_grows_by_wings() {
    let layout = Layout::new(4, 12);
    let ip = IpAddr::from(Ipv4Addr::LOCALHOST);
    let (vault, addr) = vault(ip, layout).unwrap();
    let sender = UdpSocket::bind((ip, 0)).unwrap();
    let sent = |slot: u16, to: &SlotSocket| {
        let (first, below) = layout.range(slot);
        for number in [first, first | 3, first | ((1 << below) - 2)] {
            assert_eq!(layout.slot_of(number), slot);
            sender.send_to(&packet(number), addr).unwrap();
            assert_eq!(came(to), Some(number), "{slot}");
        }
    };
    let first = SlotSocket::from(vault.socket(0).unwrap());
    assert_eq!((vault.slots(), layout.slots()), (12, 12 + 4 * 16));
    for wings in 0..4 {
        let slots = 12 + wings * 16;
        assert!(vault.socket(slots).is_err());
        // Packets to a slot that is not there yet go to slot 0.
        sender.send_to(&packet(layout.range(slots).0), addr).unwrap();
        assert_eq!(came(&first), Some(layout.range(slots).0));
        let other = Vault::adopt(vault.queue.as_fd().try_clone_to_owned().unwrap(), layout);
        other.add_wing(addr).unwrap();
        assert_eq!(vault.slots(), slots + 16);
        for slot in [1, 11, 12, slots, slots + 15] {
            sent(slot, &SlotSocket::from(vault.socket(slot).unwrap()));
        }
    }
    assert_eq!(vault.add_wing(addr).unwrap_err().kind(), ErrorKind::NotFound);
    assert!(vault.beside(0).is_ok() && vault.beside(1).is_ok());
    drop((vault, first));
    // Its sending end in the queue does not keep it.
    assert!(becomes_free(addr));
}

/// One port at all addresses of both families.
///
/// Covers: ROCE-175
#[test]
fn a_group_of_both_families_has_one_socket_for_a_slot() {
    let Some((vault, addr)) = vault(Ipv6Addr::UNSPECIFIED.into(), wide(6)) else { return };
    let socket = SlotSocket::from(vault.socket(9).unwrap());
    for ip in [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
        let sender = UdpSocket::bind((ip, 0)).unwrap();
        for qpn in [9 << 18, (10 << 18) - 1] {
            sender.send_to(&packet(qpn), (ip, addr.port())).unwrap();
            assert_eq!(came(&socket), Some(qpn));
        }
        let taken = UdpSocket::bind((ip, addr.port())).unwrap_err();
        assert_eq!(taken.kind(), ErrorKind::AddrInUse);
    }
}

/// Covers: ROCE-176
#[test]
fn a_group_needs_the_port_for_itself() {
    let addr = place(Ipv4Addr::LOCALHOST.into()).unwrap();
    assert!(SlotSocket::is_free(addr).unwrap());
    for shared in [false, true] {
        let other = SlotSocket::from(udp(addr).unwrap());
        option::set_socket_reuseport(&other, shared).unwrap();
        rustix::net::bind(&other, &addr).unwrap();
        assert_eq!(create(addr, wide(6)).unwrap_err().kind(), ErrorKind::AddrInUse);
        assert!(!SlotSocket::is_free(addr).unwrap());
    }
    let (group, addr) = vault(addr.ip(), wide(6)).unwrap();
    assert_eq!(create(addr, wide(6)).unwrap_err().kind(), ErrorKind::AddrInUse);
    drop(group);
    // The last descriptor was the group's end.
    assert!(becomes_free(addr));
    let unset = SocketAddr::new(addr.ip(), 0);
    assert_eq!(create(unset, wide(6)).unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[test]
fn draining_takes_what_is_there() {
    let addr = place(Ipv4Addr::LOCALHOST.into()).unwrap();
    let socket = SlotSocket::alone(addr).unwrap();
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    for _ in 0..5 {
        sender.send_to(&packet(1), addr).unwrap();
    }
    assert_eq!((socket.drain(2), socket.drain(100), socket.drain(100)), (2, 3, 0));
}
