// SPDX-License-Identifier: MIT OR Apache-2.0

//! The messages that Linux's connection manager really sent, given to ours.

use iwarp_roce::cm::message::{Message, Rtu};
use iwarp_roce::cm::{
    Accept, Addressee, Event, EventKind, MAD_LEN, Mad, Manager, Parameters, Seeded, ServiceId,
    Settings,
};
use iwarp_roce::wire::{Mtu, Path, Transport};
use iwarp_types::{AddressVector, QpId, Time};
use pcap_file::pcap::PcapReader;

use crate::cm::scene::listen;

const CAPTURE: &[u8] = include_bytes!("../../data/rxe.pcap");
const UDP: u8 = 17;

/// Every management datagram of the capture, with the way that it went.
fn datagrams() -> Vec<(Path, Vec<u8>)> {
    let mut reader = PcapReader::new(CAPTURE).unwrap();
    let mut found = Vec::new();
    while let Some(packet) = reader.next_packet() {
        found.extend(datagram(&packet.unwrap().data));
    }
    found
}

/// The management datagram of a frame, which begins with IP, or with Ethernet ahead of it.
fn datagram(frame: &[u8]) -> Option<(Path, Vec<u8>)> {
    let ip = match frame[12..14] {
        [0x08, 0x00] | [0x86, 0xdd] => &frame[14..],
        _ => frame,
    };
    let (address, udp) = match ip[0] >> 4 {
        4 if ip[9] == UDP => {
            let address = |at: usize| <[u8; 4]>::try_from(&ip[at..at + 4]).unwrap().into();
            (AddressVector::new(address(12), address(16)), &ip[20..])
        }
        6 if ip[6] == UDP => {
            let address = |at: usize| <[u8; 16]>::try_from(&ip[at..at + 16]).unwrap().into();
            (AddressVector::new(address(8), address(24)), &ip[40..])
        }
        _ => return None,
    };
    let port = u16::from_be_bytes([udp[0], udp[1]]);
    let length = usize::from(u16::from_be_bytes([udp[4], udp[5]]));
    let packet = iwarp_roce::wire::Packet::parse(udp.get(8..length - 4)?).ok()?;
    let octets = iwarp_roce::cm::gsi_payload(&packet)?;
    Some((Path::new(address, port), octets.to_vec()))
}

/// Covers: ROCE-144, ROCE-146
#[test]
fn every_message_of_the_capture_is_built_as_it_was() {
    let datagrams = datagrams();
    assert_eq!(datagrams.len(), 19);
    for (_, octets) in datagrams {
        let mad = Mad::parse(&octets).unwrap();
        assert_eq!(mad.write()[..], octets);
        assert!(Addressee::of(&octets).is_some());
    }
}

/// Covers: ROCE-150, ROCE-151, ROCE-155
#[test]
fn linux_s_requests_are_understood() {
    let mut requests = 0;
    for (path, octets) in datagrams() {
        let Message::Req(req) = Mad::parse(&octets).unwrap().message else { continue };
        requests += 1;
        let now = Time::default();
        let mut manager = Manager::new(Settings::default(), Seeded(7));
        manager.listen(&listen(req.service_id, Transport::Rc)).unwrap();
        manager.receive(&octets, &path, now);
        let Some(Event { id, kind: EventKind::ConnectRequest(request) }) = manager.poll_event()
        else {
            panic!("{req:?}")
        };
        assert_eq!(request.peer.unwrap().0, path.address.source);
        assert_eq!(request.remote_qp, req.local_qpn);
        assert_eq!(request.own_kind, None);
        assert_eq!(Addressee::of(&octets), Some(Addressee::Service(req.service_id)));
        let accept = Accept { qp: QpId(9), parameters: Parameters::default(), private_data: &[] };
        let attributes = manager.attributes(id, &accept).unwrap();
        assert_eq!(attributes.mtu, Mtu::Mtu1024);
        assert_eq!(attributes.timeout, req.primary.local_ack_timeout.code());
        let retries = (attributes.retry_count, attributes.rnr_retry);
        assert_eq!(retries, (req.retry_count, req.rnr_retry));
        assert_eq!(attributes.sq_psn, req.starting_psn);
        manager.accept(id, &accept, now).unwrap();
        let (back, rep) = manager.poll_transmit().unwrap();
        assert_eq!(back.address.destination, path.address.source);
        assert_eq!(back.destination_port, 4791);
        let rep: [u8; MAD_LEN] = rep;
        let Message::Rep(message) = Mad::parse(&rep).unwrap().message else { panic!() };
        assert_eq!((message.vendor_id, message.remote_comm_id), (0, req.local_comm_id));
        assert!(message.responder_resources <= req.initiator_depth);
        let rtu =
            Rtu { local_comm_id: req.local_comm_id, remote_comm_id: id.0, private_data: [0; 224] };
        let mad = Mad { tid: 0, modifier: 0, message: rtu.into() };
        manager.receive(&mad.write(), &path, now);
        let established = manager.poll_event().unwrap().kind;
        assert!(matches!(established, EventKind::Established { .. }));
    }
    assert!(requests >= 3, "{requests}");
}

#[test]
fn a_datagram_tells_whom_it_is_for() {
    let mut kinds = [0; 3];
    for (_, octets) in datagrams() {
        match Addressee::of(&octets).unwrap() {
            Addressee::CommId(id) => {
                assert_ne!(id, 0);
                kinds[0] += 1;
            }
            Addressee::Service(service) => {
                assert!(service.port().is_some());
                kinds[1] += 1;
            }
            Addressee::Datagrams(service) => {
                assert_eq!(service, ServiceId(0x0111_1c06));
                kinds[2] += 1;
            }
            Addressee::Anyone => panic!(),
        }
    }
    assert!(kinds.iter().all(|kind| *kind > 0), "{kinds:?}");
    assert_eq!(Addressee::of(&[0; 256]), None);
}
