// SPDX-License-Identifier: MIT OR Apache-2.0

//! The connection manager over management datagrams: for all messages of peers and calls of
//! programs, in any order, nothing panics, its memory is bounded, a datagram brings two at most,
//! and in the end nothing is left.
//!
//! Covers: ROCE-145
#![no_main]

use std::net::IpAddr;
use std::time::Duration;

use arbitrary::Arbitrary;
use iwarp_roce::cm::message::{CMA_HEADER_LEN, CmaHeader, Message, gid};
use iwarp_roce::cm::{
    Accept, Addressee, Answer, CallError, CommId, Connect, Listen, MAD_LEN, Mad, Manager, OwnKind,
    Parameters, RejectReason, Resolve, Seeded, ServiceId, Settings,
};
use iwarp_roce::wire::{Mtu, Path, Pkey, Transport};
use iwarp_types::{AddressVector, PortSpace, QpId, Time};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Input {
    seed: u64,
    steps: Vec<CmAction>,
}

#[derive(Arbitrary, Debug)]
enum CmAction {
    Connect {
        qp: u8,
        peer: u8,
        private_data: u8,
    },
    Resolve {
        peer: u8,
    },
    Accept {
        id: u8,
        qp: u8,
        resources: u8,
    },
    Reject {
        id: u8,
        reason: u16,
    },
    Ready {
        id: u8,
    },
    Disconnect {
        id: u8,
    },
    Close {
        id: u8,
    },
    Packet {
        qp: u8,
    },
    Wait {
        milliseconds: u32,
    },
    /// A message that fits somewhere.
    Fitting {
        peer: u8,
        attribute: u8,
        local: u8,
        remote: u8,
        qp: u8,
        octets: [u8; 24],
    },
    /// A datagram sent here, sent back.
    Echo {
        peer: u8,
        which: u8,
        patches: Vec<(u8, u8)>,
    },
    /// Anything.
    Octets {
        peer: u8,
        octets: Vec<u8>,
    },
}

const BACKLOG: usize = 4;
const STORED: usize = 4;
const HERE: [u8; 4] = [192, 0, 2, 1];
const TCP: ServiceId = ServiceId::new(PortSpace::Tcp, 1);
const UDP: ServiceId = ServiceId::new(PortSpace::Udp, 1);
const IB: ServiceId = ServiceId::new(PortSpace::Ib, 1);

struct World {
    manager: Manager<Seeded>,
    now: Time,
    /// Ids of this end's, which programs and peers know.
    ids: Vec<u32>,
    sent: Vec<[u8; MAD_LEN]>,
    /// Connections of the program's own doing.
    own: usize,
}

fn peer(number: u8) -> IpAddr {
    [192, 0, 2, 2 + number % 3].into()
}

/// From a peer to here.
fn way(number: u8) -> Path {
    Path::new(AddressVector::new(peer(number), HERE.into()), 0xc000)
}

fuzz_target!(|input: Input| {
    let settings = Settings {
        guid: 7,
        mtu: Mtu::Mtu1024,
        max_retries: 3,
        own_kind: Some(OwnKind::default()),
        stored_answers: STORED,
        ..Settings::default()
    };
    let mut manager = Manager::new(settings, Seeded(input.seed));
    for (service, transport, header) in
        [(TCP, Transport::Rc, true), (UDP, Transport::Ud, true), (IB, Transport::Uc, false)]
    {
        let listen = Listen { service, address: None, transport, header, backlog: BACKLOG };
        manager.listen(&listen).expect("the service is free");
    }
    let mut world = World { manager, now: Time::default(), ids: vec![0], sent: Vec::new(), own: 0 };
    for step in input.steps.iter().take(200) {
        world.step(step);
        world.look();
    }
    world.end();
});

impl World {
    fn id(&self, which: u8) -> CommId {
        CommId(self.ids[usize::from(which) % self.ids.len()])
    }

    fn step(&mut self, step: &CmAction) {
        let now = self.now;
        let manager = &mut self.manager;
        match *step {
            CmAction::Connect { qp, peer: number, private_data } => {
                let address = AddressVector::new(HERE.into(), peer(number));
                let octets = [7; 255];
                let connect = Connect {
                    path: Path::new(address, 0xc000),
                    service: TCP,
                    source_port: (number < 128).then_some(1),
                    qp: QpId(qp.into()),
                    transport: if qp < 200 { Transport::Rc } else { Transport::Uc },
                    mtu: Mtu::Mtu4096,
                    parameters: Parameters::default(),
                    private_data: &octets[..private_data.into()],
                };
                let id = manager.connect(&connect, now);
                self.own(id);
            }
            CmAction::Resolve { peer: number } => {
                let address = AddressVector::new(HERE.into(), peer(number));
                let path = Path::new(address, 0xc000);
                let resolve =
                    Resolve { path, service: UDP, source_port: Some(1), private_data: b"where" };
                let id = manager.resolve(&resolve, now);
                self.own(id);
            }
            CmAction::Accept { id, qp, resources } => {
                let id = self.id(id);
                let parameters =
                    Parameters { responder_resources: resources, ..Parameters::default() };
                let qp = QpId(qp.into());
                let accept = Accept { qp, parameters, private_data: b"gladly" };
                let attributes = self.manager.attributes(id, &accept);
                let accepted = self.manager.accept(id, &accept, now);
                assert_eq!(attributes.is_ok(), accepted.is_ok());
                self.own += usize::from(accepted.is_ok());
                let answer = Answer { qp, qkey: 1, private_data: b"" };
                let _ = self.manager.answer_datagrams(id, &answer, now);
            }
            CmAction::Reject { id, reason } => {
                let (id, reason) = (self.id(id), RejectReason::from_code(reason));
                let _ = self.manager.reject(id, reason, b"no", now);
            }
            CmAction::Ready { id } => {
                let id = self.id(id);
                let _ = self.manager.ready(id, b"");
            }
            CmAction::Disconnect { id } => {
                let id = self.id(id);
                let _ = self.manager.disconnect(id, b"", now);
            }
            CmAction::Close { id } => {
                let id = self.id(id);
                self.manager.close(id, now);
            }
            CmAction::Packet { qp } => manager.packet_arrived(QpId(qp.into())),
            CmAction::Wait { milliseconds } => {
                self.now = now.plus(Duration::from_millis((milliseconds % 200_000).into()));
                manager.advance(self.now);
            }
            CmAction::Fitting { peer, attribute, local, remote, qp, ref octets } => {
                let datagram = self.fitting(peer, attribute, (local, remote), qp, octets);
                self.receive(peer, &datagram);
            }
            CmAction::Echo { peer, which, ref patches } => {
                if let Some(octets) = self.sent.get(usize::from(which) % self.sent.len().max(1)) {
                    let mut octets = *octets;
                    for (at, octet) in patches {
                        octets[usize::from(*at)] = *octet;
                    }
                    self.receive(peer, &octets);
                }
            }
            CmAction::Octets { peer, ref octets } => self.receive(peer, octets),
        }
    }

    fn own(&mut self, id: Result<CommId, CallError>) {
        if let Ok(id) = id {
            self.own += 1;
            self.ids.push(id.0);
        }
    }

    /// A message with known ids and addresses; for the rest zeros, but for some octets.
    fn fitting(
        &self,
        number: u8,
        attribute: u8,
        (local, remote): (u8, u8),
        qp: u8,
        octets: &[u8; 24],
    ) -> [u8; MAD_LEN] {
        let mut datagram = [0; MAD_LEN];
        datagram[..4].copy_from_slice(&[1, 7, 2, 3]);
        datagram[17] = 0x10 + attribute % 11;
        datagram[24..28].copy_from_slice(&u32::from(local).to_be_bytes());
        datagram[28..32].copy_from_slice(&self.id(remote).0.to_be_bytes());
        datagram[32..56].copy_from_slice(octets);
        let Ok(mut mad) = Mad::parse(&datagram) else { return datagram };
        let header = CmaHeader { source_port: 1, source: peer(number), destination: HERE.into() };
        match &mut mad.message {
            Message::Req(req) => {
                req.service_id = if qp < 128 { TCP } else { IB };
                req.local_qpn = qp.into();
                req.local_ca_guid = u64::from(number % 3);
                req.pkey = Pkey::DEFAULT;
                req.mtu = 1 + octets[0] % 4;
                req.primary.local_gid = gid(peer(number));
                req.primary.remote_gid = gid(HERE.into());
                req.private_data[..CMA_HEADER_LEN].copy_from_slice(&header.write());
            }
            Message::SidrReq(req) => {
                req.service_id = UDP;
                req.pkey = Pkey::DEFAULT;
                req.private_data[..CMA_HEADER_LEN].copy_from_slice(&header.write());
            }
            Message::SidrRep(rep) => {
                rep.request_id = self.id(remote).0;
                rep.service_id = UDP;
            }
            Message::Rep(rep) => {
                rep.local_qpn = qp.into();
                rep.local_ca_guid = u64::from(number % 3);
            }
            Message::Dreq(dreq) if octets[23] < 200 => dreq.remote_qpn = qp.into(),
            Message::Rej(rej) if octets[23] < 200 => {
                rej.reason = RejectReason::from_code(u16::from(octets[3] % 32));
                rej.info[7] = number % 3;
            }
            _ => {}
        }
        mad.write()
    }

    fn receive(&mut self, peer: u8, octets: &[u8]) {
        if let Ok(mad) = Mad::parse(octets) {
            let again = Mad::parse(&mad.write());
            assert_eq!(again.as_ref(), Ok(&mad), "what is built is read as it was");
            assert!(Addressee::of(octets).is_some());
        }
        self.manager.receive(octets, &way(peer), self.now);
        let sent = self.take();
        assert!(sent <= 2, "{sent} datagrams for one");
    }

    fn take(&mut self) -> usize {
        let mut count = 0;
        while let Some((path, octets)) = self.manager.poll_transmit() {
            count += 1;
            assert_eq!(path.address.source, IpAddr::from(HERE));
            let mad = Mad::parse(&octets).expect("what is sent is well-formed");
            assert_eq!(mad.write(), octets);
            if self.sent.len() < 64 {
                self.sent.push(octets);
            }
        }
        count
    }

    fn look(&mut self) {
        self.take();
        while let Some(event) = self.manager.poll_event() {
            self.ids.push(event.id.0);
        }
        let waiting = 3 * 2 * BACKLOG;
        assert!(self.manager.len() <= self.own + waiting + STORED, "{}", self.manager.len());
        assert!(self.manager.next_timeout().is_none_or(|due| due > self.now));
    }

    /// The program closes everything, and no peer answers.
    fn end(mut self) {
        for id in std::mem::take(&mut self.ids) {
            self.manager.close(CommId(id), self.now);
        }
        for _ in 0..10_000 {
            self.take();
            let Some(due) = self.manager.next_timeout() else { break };
            self.now = self.now.max(due);
            self.manager.advance(self.now);
        }
        assert!(self.manager.poll_event().is_none(), "the program has closed everything");
        assert!(self.manager.is_clean());
    }
}
