// SPDX-License-Identifier: MIT OR Apache-2.0

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::mpsc::{Receiver, Sender, channel};

use super::*;
use crate::engine::Engine;
use crate::engine::group::Member;
use crate::engine::numbers::{Numbers, port_of};
use crate::engine::options::Options;
use crate::port::{Clock, MemoryDatagrams, MemoryNetwork, Platform};
use crate::wire::roce::mux::{Mux, MuxPlace};

const DEADLINE: Duration = Duration::from_secs(20);

/// Tells the test what it is told.
#[derive(Debug)]
struct Heard {
    mads: Mutex<Sender<(Path, [u8; MAD_LEN], bool)>>,
    services: Mutex<Sender<(u64, bool)>>,
}

impl MadHandler for Heard {
    fn received(&self, path: &Path, mad: &[u8; MAD_LEN], unclaimed: bool) {
        let _ = self.mads.lock().send((*path, *mad, unclaimed));
    }

    fn listening(&self, service: u64, granted: bool) {
        let _ = self.services.lock().send((service, granted));
    }
}

/// An engine with its port.
struct Host {
    engine: Engine,
    _place: MuxPlace,
    mux: Arc<Mux>,
}

/// A handler, and what it hears. All tests over UDP have one port, and the first handler of it.
struct Hearing {
    handler: Arc<Heard>,
    mads: Receiver<(Path, [u8; MAD_LEN], bool)>,
    services: Receiver<(u64, bool)>,
}

impl Hearing {
    fn at(host: &Host) -> Self {
        let ((tell, mads), (say, services)) = (channel(), channel());
        let heard = Arc::new(Heard { mads: Mutex::new(tell), services: Mutex::new(say) });
        Self { handler: host.mux.gsi().handler_or(|| heard), mads, services }
    }
}

fn host(options: Options, platform: Platform) -> Host {
    let engine = Engine::new(options, platform).unwrap();
    let place = MuxPlace::default();
    let mux = place.open(&engine).unwrap();
    assert!(Arc::ptr_eq(&mux, &place.open(&engine).unwrap()));
    Host { engine, _place: place, mux }
}

/// The way from one address to another.
fn way(from: IpAddr, to: IpAddr) -> Path {
    Path { destination_port: PORT, ..Path::new(AddressVector::new(from, to), 0xc123) }
}

#[test]
fn datagrams_pass_in_memory() {
    let (datagrams, network) = (MemoryDatagrams::new(1), MemoryNetwork::new());
    let ips = [1, 2].map(|last| IpAddr::from([10, 0, 0, last]));
    let [one, other] = ips.map(|ip| {
        let datagrams = Some(datagrams.host(ip));
        let platform = Platform { network: network.host(ip), clock: Clock::system(), datagrams };
        host(Options::default(), platform)
    });
    let heard = Hearing::at(&other);
    assert_eq!(other.mux.gsi().listen(5).unwrap(), Listening::Granted);
    for octet in 0..10 {
        one.mux.send_mad(&way(ips[0], ips[1]), &[octet; MAD_LEN]);
        let (path, mad, unclaimed) = heard.mads.recv_timeout(DEADLINE).unwrap();
        assert_eq!((path.address.source, path.address.destination), (ips[0], ips[1]));
        // The port at which it reads, and not the one that the sender wanted.
        assert_eq!(path.source_port, PORT);
        assert_eq!((mad, unclaimed), ([octet; MAD_LEN], false));
    }
}

/// A port that is to be looked at, as it may be needed no more, is read until it is given back.
#[test]
fn a_port_is_read_while_nobody_needs_it() {
    let host = host(Options::default(), Platform::default());
    host.mux.rest_later();
    assert_eq!(host.mux.interest(), Interest::READ);
}

/// A request for a service of this process goes to slot 0, and comes back by whichever process
/// reads that.
///
/// Covers: ROCE-144
#[test]
fn datagrams_pass_by_the_broker() {
    let one = host(Options::default(), Platform::default());
    // Another engine of the process shares port and handler.
    let other = host(Options::default(), Platform::default());
    let heard = Hearing::at(&one);
    let the_same = Hearing::at(&other).handler;
    assert!(Arc::ptr_eq(&one.mux, &other.mux) && Arc::ptr_eq(&heard.handler, &the_same));
    drop((other, the_same));
    let service = getrandom::u64().unwrap();
    let listening = one.mux.gsi().listen(service).unwrap();
    if listening == Listening::Asked {
        assert_eq!(heard.services.recv_timeout(DEADLINE).unwrap(), (service, true));
    }
    let mut request = [0; MAD_LEN];
    request[..4].copy_from_slice(&[1, 7, 2, 3]);
    request[17] = 0x10;
    request[32..40].copy_from_slice(&service.to_be_bytes());
    for ip in [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
        one.mux.send_mad(&way(ip, ip), &request);
        let (path, mad, unclaimed) = heard.mads.recv_timeout(DEADLINE).unwrap();
        assert_eq!((path.address.source, path.address.destination), (ip, ip));
        assert_eq!((mad, unclaimed), (request, false));
    }
    one.mux.gsi().unlisten(service);
    assert_eq!(one.mux.gsi().listening(service), None);
}

/// Covers: ROCE-181
#[test]
fn numbers_are_in_the_slot() {
    let one = host(Options::default(), Platform::default());
    let numbers = &one.engine.numbers;
    let slot = *one.mux.gsi().ports().unwrap().start() >> 10;
    let both = numbers.addressable_by_both(&one.mux).unwrap();
    let number = Numbers::of_datagrams(&one.mux).unwrap();
    for number in [&both, &number] {
        assert_eq!(number.value() >> 18, u32::from(slot));
        assert!(Arc::ptr_eq(number.mux().unwrap(), &one.mux));
    }
    assert!(number.port().is_none() && number.value() != both.value());
    let port = both.port().unwrap();
    assert_eq!(port_of(both.value()), port.number());
    assert!(one.mux.gsi().ports().unwrap().contains(&port.number()));
    // The user's word wins, and then it is found by TCP alone.
    let options = Options { ports: Some(20_000..=20_400), ..Options::default() };
    let other = host(options, Platform::default());
    let number = other.engine.numbers.addressable_by_both(&other.mux).unwrap();
    assert!(number.mux().is_none() && (20_000..=20_400).contains(&port_of(number.value())));
}
