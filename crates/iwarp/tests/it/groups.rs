// SPDX-License-Identifier: MIT OR Apache-2.0

//! Multicast groups of devices and ports, each with an interface.

use std::fs;
use std::net::IpAddr;

use iwarp::{
    Access, AddressVector, CompletionQueue, DatagramAttributes, Destination, Device, MemoryRegion,
    NamedDevice, Options, Payload, ProtectionDomain, QpState, QpType, QueuePair,
    QueuePairAttributes, RecvRequest, SendOp, SendRequest, WcStatus,
};

use crate::common::process::{Child, role, this_test};
use crate::common::{DEADLINE, until};
use crate::hosts::{self, Host};

const QKEY: u32 = 0x7654;
/// Bytes in front of a message.
const GRH: usize = 40;
const PLACES: usize = 16;
const SENT: u64 = u64::MAX;

/// A queue pair of the type UD that sends and takes messages of one byte.
struct Station {
    qp: QueuePair,
    cq: CompletionQueue,
    memory: MemoryRegion,
    _pd: ProtectionDomain,
}

impl Station {
    /// One on a port of the device at a place.
    fn on(device: &Device, place: usize, port: u8) -> Self {
        let device = device.named_sibling(place).unwrap();
        let (pd, cq) = (device.alloc_pd(), device.create_cq(4 * PLACES, None).unwrap());
        let attributes = QueuePairAttributes::new(&cq, &cq).qp_type(QpType::Ud);
        let qp = pd.create_qp(&attributes.max_recv_wr(PLACES)).unwrap();
        qp.set_port(port).unwrap();
        qp.modify(QpState::Init).unwrap();
        let memory = pd.allocate(PLACES * (GRH + 1), Access::LOCAL_WRITE).unwrap();
        for place in 0..PLACES {
            let sges = [memory.sge(place * (GRH + 1), GRH + 1)];
            qp.post_recv(&RecvRequest::new(place as u64, &sges)).unwrap();
        }
        qp.set_datagram(&DatagramAttributes::with_qkey(QKEY)).unwrap();
        qp.modify(QpState::Rtr).unwrap();
        qp.modify(QpState::Rts).unwrap();
        Self { qp, cq, memory, _pd: pd }
    }

    fn send(&self, from: IpAddr, group: IpAddr, octet: u8) {
        let address = AddressVector::new(from, group);
        let to = Destination { address, qp: 0x00ff_ffff, qkey: QKEY };
        let octets = [octet];
        let request = SendRequest::new(SENT, SendOp::SEND, Payload::Inline(&octets));
        self.qp.post_send(&request.to(&to).signaled()).unwrap();
    }

    /// The next message, if one has come.
    fn next(&self) -> Option<u8> {
        let done = self.cq.poll_one()?;
        assert_eq!(done.status, WcStatus::Success);
        if done.wr_id == SENT {
            return None;
        }
        let mut octet = [0];
        self.memory.buffer().unwrap().read_at(done.wr_id as usize * (GRH + 1) + GRH, &mut octet);
        Some(octet[0])
    }

    fn hears(&self, octet: u8) {
        assert_eq!(until("a message", || self.next()), octet);
    }
}

/// The interfaces at which this host has joined a group, besides others.
fn joined_at(group: IpAddr) -> Vec<String> {
    let (file, word) = match group {
        IpAddr::V4(group) => ("igmp", format!("{:08X}", u32::from_le_bytes(group.octets()))),
        IpAddr::V6(group) => ("igmp6", format!("{:032x}", group.to_bits())),
    };
    let text = fs::read_to_string(format!("/proc/self/net/{file}")).unwrap();
    let (mut interface, mut found) = (String::new(), Vec::new());
    for line in text.lines() {
        let words: Vec<_> = line.split_whitespace().collect();
        // Each line of IPv6 names the interface; those of IPv4 follow one that does.
        if !line.starts_with(char::is_whitespace) && words.len() > 1 {
            words[1].clone_into(&mut interface);
        }
        if words.contains(&&*word) {
            found.push(interface.clone());
        }
    }
    found.sort_unstable();
    found
}

/// The host's routes to groups lead to the first of two interfaces. A queue pair of either port
/// hears the group at its own.
#[test]
fn a_port_joins_groups_at_its_own_interface() {
    let test = this_test!();
    if role().is_some() {
        return member();
    }
    if !hosts::possible() {
        return;
    }
    let (host, far) = (Host::new(), Host::new());
    for number in [1, 2] {
        let name = format!("v{number}");
        host.cable(&far, &name, number);
        host.sh(&format!("ip addr add 10.8.{number}.1/24 dev {name}"));
        host.sh(&format!("ip addr add fd08:{number}::1/64 dev {name} nodad"));
    }
    host.sh("ip route add 224.0.0.0/4 dev v1");
    host.run(|| Child::start(test, "member", &[])).succeeds(DEADLINE);
}

fn member() {
    let ports = NamedDevice::new("mlx4_0")
        .interface("v1".to_owned())
        .more_interfaces(vec!["v2".to_owned()]);
    let named =
        vec![ports, NamedDevice::new("siw0").interface("v2".to_owned()), NamedDevice::new("all")];
    let device = Device::with_options(Options::default().devices(named)).unwrap();
    for (group, froms) in
        [("239.7.7.7", ["10.8.1.1", "10.8.2.1"]), ("ff15::77", ["fd08:1::1", "fd08:2::1"])]
    {
        let group: IpAddr = group.parse().unwrap();
        let [near, far] = froms.map(|from| -> IpAddr { from.parse().unwrap() });
        let [one, two] = [1, 2].map(|port| Station::on(&device, 0, port));
        let (other, all) = (Station::on(&device, 1, 1), Station::on(&device, 2, 1));

        two.qp.attach_multicast(group).unwrap();
        assert_eq!(joined_at(group), ["v2"]);
        other.qp.attach_multicast(group).unwrap();
        one.qp.attach_multicast(group).unwrap();
        assert_eq!(joined_at(group), ["v1", "v2"]);
        // Packets that go out at an interface come to those that have joined there.
        two.send(far, group, 1);
        two.hears(1);
        other.hears(1);
        one.send(near, group, 2);
        one.hears(2);
        all.qp.attach_multicast(group).unwrap();
        assert_eq!(joined_at(group), ["lo", "v1", "v2"]);
        two.send(far, group, 3);
        [&two, &other, &all].iter().for_each(|station| station.hears(3));
        one.send(near, group, 4);
        [&one, &all].iter().for_each(|station| station.hears(4));

        // A group is left where none of the others has joined.
        all.qp.detach_multicast(group).unwrap();
        assert_eq!(joined_at(group), ["v1", "v2"]);
        one.qp.detach_multicast(group).unwrap();
        two.qp.detach_multicast(group).unwrap();
        assert_eq!(joined_at(group), ["v2"]);
        two.send(far, group, 5);
        other.hears(5);
        assert!(two.next().is_none() && one.next().is_none() && all.next().is_none());
        other.qp.detach_multicast(group).unwrap();
        assert_eq!(joined_at(group), [""; 0]);
    }
}
