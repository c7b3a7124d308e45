// SPDX-License-Identifier: MIT OR Apache-2.0

//! A wing of the program's own: what somebody writes who has another wire and wants the connection
//! manager, the verbs and sessions over it.

use std::any::Any;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::common::{DEADLINE, next, pattern, succeeded, until};
use crate::toy_core::Echo;
use iwarp::cm::{ConnectError, ConnectParams, Connection, Listener, connect};
use iwarp::port::{Ipv6Listen, MemoryNetwork, Network, Port, Sharing};
use iwarp::wing::{Call, Inbox, Request, Seeker, Wing};
use iwarp::wire::{Accessor, BoxedCore};
use iwarp::{
    Access, CompletionQueue, Device, Ended, MemoryRegion, Options, Peer, ProtectionDomain, QpState,
    QueuePair, QueuePairAttributes, RecvRequest, SendRequest,
};

const HOST: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

/// Programs of one process that find each other in a table.
#[derive(Debug)]
struct Toy {
    network: Arc<dyn Network>,
    table: Arc<Mutex<Table>>,
    core: fn(Accessor) -> BoxedCore,
}

#[derive(Debug, Default)]
struct Table {
    listeners: HashMap<u16, Inbox>,
    seekers: HashMap<u32, Seeker>,
}

impl Toy {
    /// Both ends of a stream.
    fn streams(&self) -> io::Result<[Box<dyn Port>; 2]> {
        let any = SocketAddr::new(HOST, 0);
        let reserved = self.network.reserve(any, Ipv6Listen::Only, Sharing::Exclusive)?;
        let addr = reserved.local_addr()?;
        let acceptor = reserved.listen(1).map_err(|(_, error)| error)?;
        let ours = self.network.connect(None, addr, None)?;
        Ok([ours, until("the other end", || acceptor.accept().ok())])
    }
}

impl Wing for Toy {
    fn name(&self) -> &'static str {
        "toy"
    }

    fn core(&self, who: Accessor) -> BoxedCore {
        (self.core)(who)
    }

    fn connect(&self, call: Call) {
        let listener = locked(&self.table).listeners.get(&call.peer.port()).cloned();
        // Dropping the call refuses.
        let (Some(listener), Ok([ours, theirs])) = (listener, self.streams()) else { return };
        let (local, peer, words) = (call.local, call.peer, call.private_data.clone());
        listener.asked(peer, local, words, Box::new(Asked { call, ours, theirs }));
    }

    fn listen(&self, addr: SocketAddr, inbox: Inbox) -> io::Result<Box<dyn Any + Send + Sync>> {
        locked(&self.table).listeners.insert(addr.port(), inbox);
        Ok(Box::new(Listening { port: addr.port(), table: Arc::downgrade(&self.table) }))
    }

    fn meet(&self, seeker: Seeker) {
        let other = locked(&self.table).seekers.remove(&seeker.peer.qpn);
        let Some(other) = other.filter(|other| other.peer.qpn == seeker.number) else {
            locked(&self.table).seekers.insert(seeker.number, seeker);
            return;
        };
        let [ours, theirs] = self.streams().unwrap();
        seeker.met(ours).unwrap();
        other.met(theirs).unwrap();
    }
}

fn locked<T>(table: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Listening {
    port: u16,
    table: Weak<Mutex<Table>>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        if let Some(table) = self.table.upgrade() {
            locked(&table).listeners.remove(&self.port);
        }
    }
}

struct Asked {
    call: Call,
    ours: Box<dyn Port>,
    theirs: Box<dyn Port>,
}

impl Request for Asked {
    fn accept(self: Box<Self>, private_data: &[u8]) -> io::Result<Box<dyn Port>> {
        let Self { call, ours, theirs } = *self;
        call.accepted(ours, private_data)?;
        Ok(theirs)
    }

    fn reject(self: Box<Self>, private_data: &[u8]) -> io::Result<()> {
        self.call.rejected(private_data);
        Ok(())
    }
}

fn device() -> Device {
    device_of(Echo::boxed)
}

/// A device whose queue pairs have these cores.
pub(crate) fn device_of(core: fn(Accessor) -> BoxedCore) -> Device {
    let platform = MemoryNetwork::new().platform(HOST);
    let toy = Toy { network: Arc::clone(&platform.network), table: Arc::default(), core };
    Device::on_wing(Options::default(), platform, Arc::new(toy)).unwrap()
}

pub(crate) struct End {
    pub(crate) pd: ProtectionDomain,
    pub(crate) cq: CompletionQueue,
    pub(crate) qp: QueuePair,
}

impl End {
    pub(crate) fn new(device: &Device, make: Make) -> Self {
        let (pd, cq) = (device.alloc_pd(), device.create_cq(64, None).unwrap());
        let qp = make(&pd, &QueuePairAttributes::new(&cq, &cq)).unwrap();
        Self { pd, cq, qp }
    }

    pub(crate) fn region(&self, octets: &[u8]) -> MemoryRegion {
        let region = self.pd.allocate(octets.len(), Access::LOCAL_WRITE).unwrap();
        region.buffer().unwrap().write_at(0, octets);
        region
    }
}

pub(crate) type Make = fn(&ProtectionDomain, &QueuePairAttributes<'_>) -> io::Result<QueuePair>;

pub(crate) const ORDINARY: Make = |pd, attributes| pd.create_qp(attributes);
const ADDRESSABLE: Make = |pd, attributes| pd.create_addressable_qp(attributes);

/// Moves a message from one end to the other, for which there is a receive.
pub(crate) fn carry(from: &End, to: &End) {
    let octets = pattern(5000, 1);
    let (source, sink) = (from.region(&octets), to.region(&[0; 5000]));
    to.qp.post_recv(&RecvRequest::new(1, &[sink.whole()])).unwrap();
    from.qp.post_send(&SendRequest::send(2, &[source.whole()]).signaled()).unwrap();
    assert_eq!(succeeded(next(&to.cq)).wr_id, 1);
    assert_eq!(succeeded(next(&from.cq)).wr_id, 2);
    assert_eq!(sink.buffer().unwrap().to_vec(), octets);
}

pub(crate) fn connected(device: &Device, ours: &End, theirs: &End) -> [Connection; 2] {
    let listener = Listener::bind(device, SocketAddr::new(HOST, 0)).unwrap();
    let addr = listener.local_addr().unwrap();
    std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            let request = listener.accept(Some(DEADLINE)).unwrap().expect("a request");
            assert_eq!(request.private_data(), b"version 1");
            let params = ConnectParams::new().private_data(b"welcome".to_vec());
            request.accept(&theirs.qp, &params).unwrap()
        });
        let params = ConnectParams::new().private_data(b"version 1".to_vec());
        let client = connect(device, addr, &ours.qp, &params, DEADLINE).unwrap();
        assert_eq!(client.private_data(), b"welcome");
        [client, server.join().unwrap()]
    })
}

#[test]
fn ids_connect_and_accept_by_a_wing_of_the_programs_own() {
    let device = device();
    let [ours, theirs] = [End::new(&device, ORDINARY), End::new(&device, ORDINARY)];
    let [client, server] = connected(&device, &ours, &theirs);
    carry(&ours, &theirs);
    carry(&theirs, &ours);
    client.disconnect();
    let ends = [&client, &server].map(|end| end.wait_disconnected(Some(DEADLINE)));
    assert_eq!(ends, [Some(Ended::Closed); 2]);
}

#[test]
fn a_connection_that_is_over_leaves_the_queue_pairs_next_one_alone() {
    let device = device();
    let [ours, theirs] = [End::new(&device, ORDINARY), End::new(&device, ORDINARY)];
    let first = connected(&device, &ours, &theirs);
    first[1].disconnect();
    for end in &first {
        end.wait_disconnected(Some(DEADLINE)).expect("an end");
    }
    for end in [&ours, &theirs] {
        end.qp.modify(QpState::Reset).unwrap();
        end.qp.modify(QpState::Init).unwrap();
    }
    let second = connected(&device, &ours, &theirs);
    drop(first);
    // The worker has taken a turn when another connection is made and ended.
    let [one, other] = [End::new(&device, ORDINARY), End::new(&device, ORDINARY)];
    drop(connected(&device, &one, &other));
    carry(&ours, &theirs);
    drop(second);
}

#[test]
fn a_wing_of_the_programs_own_refuses_as_the_program_does() {
    let device = device();
    let ours = End::new(&device, ORDINARY);
    let listener = Listener::bind(&device, SocketAddr::new(HOST, 0)).unwrap();
    let addr = listener.local_addr().unwrap();
    let try_once =
        || connect(&device, addr, &ours.qp, &ConnectParams::default(), DEADLINE).unwrap_err();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let request = listener.accept(Some(DEADLINE)).unwrap().expect("a request");
            request.reject(b"full").unwrap();
        });
        let refused = try_once();
        assert!(
            matches!(&refused, ConnectError::Rejected { private_data, .. } if private_data == b"full"),
            "{refused:?}"
        );
    });
    drop(listener);
    let refused = try_once();
    assert!(matches!(refused, ConnectError::Unreachable(_)), "{refused:?}");
}

#[test]
fn queue_pairs_meet_by_a_wing_of_the_programs_own() {
    let device = device();
    let [ours, theirs] = [End::new(&device, ADDRESSABLE), End::new(&device, ADDRESSABLE)];
    let peer = |of: &End| Peer::at(HOST, HOST, of.qp.number(), of.qp.psn());
    let _ = ours.qp.modify(QpState::Init);
    let _ = theirs.qp.modify(QpState::Init);
    ours.qp.connect_to(&peer(&theirs)).unwrap();
    theirs.qp.connect_to(&peer(&ours)).unwrap();
    carry(&ours, &theirs);
}

#[test]
fn a_wing_of_the_programs_own_has_no_datagrams() {
    let device = device();
    let (pd, cq) = (device.alloc_pd(), device.create_cq(4, None).unwrap());
    let attributes = QueuePairAttributes::new(&cq, &cq).qp_type(iwarp::QpType::Ud);
    let refused = pd.create_qp(&attributes).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::Unsupported);
}
