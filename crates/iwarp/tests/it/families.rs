// SPDX-License-Identifier: MIT OR Apache-2.0

//! Listeners at all addresses of a family, in all port spaces of the connection manager.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;

use iwarp::cm::{ConnectParams, EventChannel, EventKind, Id, PortSpace};
use iwarp::{Device, Options, Personality, QueuePairAttributes, Wire};

use crate::common::station::hasty;
use crate::common::{DEADLINE, until};

/// The ways in which clients ask.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// For a datagram service.
    Datagrams,
    /// For a connection over RoCE v2, at a listener for these alone.
    Packets,
    /// Likewise, at a listener that takes connections over TCP as well.
    Beside,
}

impl Kind {
    fn id(self, channel: &EventChannel) -> Id {
        match self {
            Self::Datagrams => Id::for_datagrams(channel, PortSpace::Udp).unwrap(),
            Self::Packets | Self::Beside => Id::new(channel).unwrap(),
        }
    }

    fn listen(self, channel: &EventChannel, (ip, only): ListenAddr, port: u16) -> io::Result<Id> {
        let id = self.id(channel);
        id.set_ipv6_only(only);
        id.bind(SocketAddr::new(ip.parse().unwrap(), port))?;
        id.listen(4)?;
        Ok(id)
    }

    /// Which of the listeners a client reaches at that address.
    fn reached(
        self,
        device: &Device,
        serving: &EventChannel,
        listeners: &[Id],
        to: SocketAddr,
    ) -> Option<usize> {
        let asking = EventChannel::new(device).unwrap();
        let client = self.id(&asking);
        let (pd, cq) = (device.alloc_pd(), device.create_cq(16, None).unwrap());
        let qp = pd.create_qp(&QueuePairAttributes::new(&cq, &cq)).unwrap();
        let next = || asking.wait(Some(DEADLINE)).unwrap().expect("an event").kind;
        client.resolve_addr(None, to).unwrap();
        assert!(matches!(next(), EventKind::AddressResolved));
        client.resolve_route().unwrap();
        assert!(matches!(next(), EventKind::RouteResolved));
        match self {
            Self::Datagrams => client.ask(b"").unwrap(),
            Self::Packets | Self::Beside => {
                client.connect(&qp, &ConnectParams::default()).unwrap();
            }
        }
        until("a request, or a refusal", || {
            if let Some(event) = serving.try_next() {
                let of = |id: &Id| event.listener.as_ref() == Some(id);
                return Some(listeners.iter().position(of));
            }
            asking.try_next().map(|_| None)
        })
    }
}

/// Address of a listener, and true if it asks for IPv6 only.
type ListenAddr = (&'static str, bool);

const FOUR: ListenAddr = ("0.0.0.0", false);
const BOTH: ListenAddr = ("::", false);
const SIX: ListenAddr = ("::", true);

/// Covers: ROCE-144
#[test]
fn a_listener_gets_the_clients_of_its_families() {
    let options = |wire| -> Options { hasty().personality(Personality::Roce).wire(wire) };
    let clients = Device::with_options(options(Wire::Roce)).unwrap();
    let streams = Device::with_options(options(Wire::Auto)).unwrap();
    for kind in [Kind::Datagrams, Kind::Packets, Kind::Beside] {
        let device = if kind == Kind::Beside { &streams } else { &clients };
        // Which of the listeners gets a client of IPv4, and of IPv6.
        let cases: [(&[ListenAddr], [Option<usize>; 2]); 5] = [
            (&[FOUR], [Some(0), None]),
            (&[BOTH], [Some(0), Some(0)]),
            (&[SIX], [None, Some(0)]),
            (&[FOUR, SIX], [Some(0), Some(1)]),
            (&[SIX, FOUR], [Some(1), Some(0)]),
        ];
        for (places, expected) in cases {
            let serving = EventChannel::new(device).unwrap();
            // A port that is free for one may be another program's for the other.
            let listeners = until("a port", || {
                let mut listeners: Vec<Id> = Vec::new();
                for place in places {
                    let addr = listeners.first().and_then(Id::local_addr);
                    let port = addr.map_or(0, |addr| addr.port());
                    listeners.push(kind.listen(&serving, *place, port).ok()?);
                }
                Some(listeners)
            });
            let port = listeners[0].local_addr().unwrap().port();
            for (ip, expected) in ["127.0.0.1", "::1"].into_iter().zip(expected) {
                let to = SocketAddr::new(ip.parse().unwrap(), port);
                let reached = kind.reached(&clients, &serving, &listeners, to);
                assert_eq!(reached, expected, "{kind:?}, {places:?}, {ip}");
            }
            // All addresses of both meet any others.
            let error = kind.listen(&serving, BOTH, port).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::AddrInUse, "{kind:?}, {places:?}");
        }
    }
}
