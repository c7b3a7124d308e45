// SPDX-License-Identifier: MIT OR Apache-2.0

//! Two ends with a connection manager each, and what lies between them.

use std::net::IpAddr;
use std::time::Duration;

use iwarp_roce::cm::message::Message;
use iwarp_roce::cm::{
    Accept, CommId, Connect, Event, EventKind, Listen, ListenerId, MAD_LEN, Mad, Manager,
    Parameters, RejectReason, Request, Resolve, Response, Seeded, ServiceId, Settings,
};
use iwarp_roce::wire::{Mtu, Path, Transport};
use iwarp_types::{AddressVector, PortSpace, QpId, Time};

pub(crate) const SERVICE: ServiceId = ServiceId::new(PortSpace::Tcp, 7174);
pub(crate) const DATAGRAMS: ServiceId = ServiceId::new(PortSpace::Udp, 7174);
/// The initiator, and the acceptor.
pub(crate) const A: usize = 0;
pub(crate) const B: usize = 1;
pub(crate) const A_QP: QpId = QpId(0x1234);
pub(crate) const B_QP: QpId = QpId(0x5678);
const PORT: u16 = 40_000;

pub(crate) struct Scene {
    pub(crate) ends: [Manager<Seeded>; 2],
    pub(crate) now: Time,
    pub(crate) listener: ListenerId,
    /// All that was sent since it was looked at last, with its sender.
    pub(crate) sent: Vec<(usize, Mad)>,
}

pub(crate) fn address(end: usize) -> IpAddr {
    [10, 77, 0, 2 + end as u8].into()
}

/// From one end to the other.
pub(crate) fn way(from: usize) -> Path {
    Path::new(AddressVector::new(address(from), address(1 - from)), 0xc123)
}

pub(crate) fn settings(end: usize) -> Settings {
    Settings { guid: 0x5054_00ff_fe77_0001 + end as u64, ..Settings::default() }
}

pub(crate) fn listen(service: ServiceId, transport: Transport) -> Listen {
    Listen { service, address: None, transport, header: true, backlog: 8 }
}

pub(crate) fn connect() -> Connect<'static> {
    Connect {
        path: way(A),
        service: SERVICE,
        source_port: Some(PORT),
        qp: A_QP,
        transport: Transport::Rc,
        mtu: Mtu::Mtu1024,
        parameters: Parameters::default(),
        private_data: b"please",
    }
}

pub(crate) fn accept() -> Accept<'static> {
    Accept { qp: B_QP, parameters: Parameters::default(), private_data: b"gladly" }
}

pub(crate) fn resolve() -> Resolve<'static> {
    Resolve { path: way(A), service: DATAGRAMS, source_port: Some(PORT), private_data: b"where" }
}

pub(crate) fn second() -> Duration {
    Duration::from_secs(1)
}

pub(crate) fn rejected(kind: &EventKind) -> (RejectReason, bool) {
    match kind {
        EventKind::Rejected { reason, timewait, .. } => (*reason, *timewait),
        other => panic!("{other:?}"),
    }
}

impl Scene {
    pub(crate) fn new() -> Self {
        Self::with([settings(A), settings(B)])
    }

    pub(crate) fn with(settings: [Settings; 2]) -> Self {
        let [a, b] = settings;
        let mut ends = [Manager::new(a, Seeded(1)), Manager::new(b, Seeded(2))];
        let listener = ends[B].listen(&listen(SERVICE, Transport::Rc)).unwrap();
        ends[B].listen(&listen(DATAGRAMS, Transport::Ud)).unwrap();
        Self { ends, now: Time(Duration::from_secs(1000)), listener, sent: Vec::new() }
    }

    /// Takes what an end has to send.
    pub(crate) fn take(&mut self, end: usize) -> Vec<(Path, [u8; MAD_LEN])> {
        let taken: Vec<_> = std::iter::from_fn(|| self.ends[end].poll_transmit()).collect();
        for (path, octets) in &taken {
            assert_eq!(path.address.source, address(end));
            self.sent.push((end, Mad::parse(octets).unwrap()));
        }
        taken
    }

    /// Loses what an end has to send.
    pub(crate) fn lose(&mut self, end: usize) -> Vec<Mad> {
        self.take(end).iter().map(|(_, octets)| Mad::parse(octets).unwrap()).collect()
    }

    /// Gives an end a datagram of the other's.
    pub(crate) fn give(&mut self, end: usize, mad: &Mad) {
        let now = self.now;
        self.ends[end].receive(&mad.write(), &way(1 - end), now);
    }

    /// Carries datagrams until no end has any.
    pub(crate) fn settle(&mut self) {
        loop {
            let taken = [self.take(A), self.take(B)];
            if taken.iter().all(Vec::is_empty) {
                return;
            }
            for (end, datagrams) in taken.into_iter().enumerate() {
                for (path, octets) in datagrams {
                    self.ends[1 - end].receive(&octets, &path, self.now);
                }
            }
        }
    }

    /// Lets time pass; each end does what is due when it is due.
    pub(crate) fn pass(&mut self, time: Duration) {
        let until = self.now.plus(time);
        while let Some(due) = self.ends.iter().filter_map(Manager::next_timeout).min()
            && due <= until
        {
            self.now = self.now.max(due);
            for end in &mut self.ends {
                end.advance(self.now);
            }
        }
        self.now = until;
    }

    /// Lets time pass until everything that ends by itself has ended, and loses all datagrams.
    pub(crate) fn pass_all(&mut self) {
        for _ in 0..100_000 {
            let Some(due) = self.ends.iter().filter_map(Manager::next_timeout).min() else {
                return;
            };
            self.now = self.now.max(due);
            for end in [A, B] {
                self.ends[end].advance(self.now);
                self.take(end);
            }
        }
        panic!("it never ends");
    }

    pub(crate) fn events(&mut self, end: usize) -> Vec<Event> {
        std::iter::from_fn(|| self.ends[end].poll_event()).collect()
    }

    /// The one event of an end.
    pub(crate) fn event(&mut self, end: usize) -> Event {
        let mut events = self.events(end);
        assert_eq!(events.len(), 1, "{events:?}");
        events.remove(0)
    }

    pub(crate) fn request(&mut self) -> (CommId, Request) {
        let Event { id, kind } = self.event(B);
        let EventKind::ConnectRequest(request) = kind else { panic!("{kind:?}") };
        (id, *request)
    }

    pub(crate) fn response(&mut self) -> (CommId, Response) {
        let Event { id, kind } = self.event(A);
        let EventKind::ConnectResponse(response) = kind else { panic!("{kind:?}") };
        (id, *response)
    }

    pub(crate) fn connect(&mut self) -> CommId {
        let now = self.now;
        self.ends[A].connect(&connect(), now).unwrap()
    }

    pub(crate) fn accept(&mut self, id: CommId) {
        let now = self.now;
        self.ends[B].accept(id, &accept(), now).unwrap();
    }

    pub(crate) fn disconnect(&mut self, end: usize, id: CommId) {
        let now = self.now;
        self.ends[end].disconnect(id, b"bye", now).unwrap();
    }

    /// The ids of a connection whose REQ has come.
    pub(crate) fn requested(&mut self) -> (CommId, CommId) {
        let a = self.connect();
        self.settle();
        (a, self.request().0)
    }

    /// The ids of a connection whose REP has come.
    pub(crate) fn responded(&mut self) -> (CommId, CommId) {
        let (a, b, _) = self.responded_by();
        (a, b)
    }

    /// Likewise, and the REP.
    pub(crate) fn responded_by(&mut self) -> (CommId, CommId, Mad) {
        let (a, b) = self.requested();
        self.accept(b);
        let rep = self.lose(B).remove(0);
        self.give(A, &rep);
        self.response();
        (a, b, rep)
    }

    /// The ids of an established connection.
    pub(crate) fn established(&mut self) -> (CommId, CommId) {
        let (a, b) = self.responded();
        self.ends[A].ready(a, b"ready").unwrap();
        self.settle();
        let kind = self.event(B).kind;
        assert!(matches!(&kind, EventKind::Established { private_data }
            if private_data.starts_with(b"ready\0") && private_data.len() == 224));
        self.sent.clear();
        (a, b)
    }

    /// The messages that were sent since it was looked at last, in short.
    pub(crate) fn sent(&mut self) -> String {
        let told = self.sent.drain(..).map(|(end, mad)| {
            let name = match mad.message {
                Message::Req(_) => "REQ".to_owned(),
                Message::Mra(mra) => format!("MRA {}", mra.service_timeout.code()),
                Message::Rej(rej) => format!("REJ {}", rej.reason.code()),
                Message::Rep(_) => "REP".to_owned(),
                Message::Rtu(_) => "RTU".to_owned(),
                Message::Dreq(_) => "DREQ".to_owned(),
                Message::Drep(_) => "DREP".to_owned(),
                Message::SidrReq(_) => "SIDR_REQ".to_owned(),
                Message::SidrRep(rep) => format!("SIDR_REP {}", rep.status.code()),
                Message::Lap(_) => "LAP".to_owned(),
                Message::Apr(apr) => format!("APR {}", apr.status),
            };
            format!("{} {name}", ["a", "b"][end])
        });
        told.collect::<Vec<_>>().join(", ")
    }

    /// After timewait nothing is left at either end.
    pub(crate) fn assert_nothing_is_left(&mut self) {
        self.pass_all();
        for end in [A, B] {
            self.events(end);
            self.take(end);
            assert!(self.ends[end].is_clean(), "{} are left", self.ends[end].len());
        }
    }
}
