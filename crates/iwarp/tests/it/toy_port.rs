// SPDX-License-Identifier: MIT OR Apache-2.0

//! A transport of the program's own under the library: what somebody writes who has another.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use crate::common::{DEADLINE, couple, next, parts, pattern, succeeded, until};
use iwarp::cm::{Connection, Listener};
use iwarp::port::{
    Acceptor, Descriptors, Ends, IoPart, IoPartMut, Ipv6Listen, Network, Owner, Platform, Port,
    Reservation, Sharing,
};
use iwarp::{
    Access, CompletionQueue, Device, Ended, MemoryRegion, Options, Payload, ProtectionDomain,
    QueuePair, RecvRequest, SendRequest,
};

/// Bytes through the file system's sockets: a port number is a file's name.
#[derive(Clone, Debug)]
struct Toy {
    folder: PathBuf,
    next: Arc<AtomicU16>,
    gate: Arc<Gate>,
}

/// Holds the threads that send on the clients' side after their bytes have gone.
#[derive(Debug, Default)]
struct Gate {
    closed: Mutex<bool>,
    changed: Condvar,
    /// Bytes that have come to the clients' side.
    came: AtomicUsize,
}

impl Gate {
    fn set(&self, closed: bool) {
        *self.closed.lock().unwrap() = closed;
        self.changed.notify_all();
    }

    fn pass(&self) {
        let closed = self.closed.lock().unwrap();
        let waited = self.changed.wait_timeout_while(closed, DEADLINE, |closed| *closed);
        assert!(!waited.unwrap().1.timed_out(), "the gate stays closed");
    }
}

#[derive(Debug)]
struct ToyPort {
    stream: UnixStream,
    ends: Ends,
    /// Of a client's end.
    gate: Option<Arc<Gate>>,
}

impl Port for ToyPort {
    fn send(&self, parts: &[IoPart<'_>], _: bool) -> io::Result<usize> {
        let mut octets = Vec::new();
        IoPart::gather(parts, &mut octets, 65_536)?;
        let sent = (&self.stream).write(&octets)?;
        if let Some(gate) = &self.gate {
            gate.pass();
        }
        Ok(sent)
    }

    fn recv(&self, parts: &mut [IoPartMut<'_>]) -> io::Result<usize> {
        // Bytes that do not find their place again would be lost, so one part at a time.
        let part =
            parts.iter_mut().find(|part| !part.is_empty()).ok_or(io::ErrorKind::InvalidInput)?;
        let mut octets = vec![0; part.len()];
        let came = (&self.stream).read(&mut octets)?;
        if let Some(gate) = &self.gate {
            gate.came.fetch_add(came, Ordering::Relaxed);
        }
        IoPartMut::scatter(std::slice::from_mut(part), &octets[..came])
    }

    fn has_input(&self) -> io::Result<bool> {
        Ok(rustix::io::ioctl_fionread(&self.stream)? > 0)
    }

    fn shutdown_write(&self) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Write)
    }

    fn ends(&self) -> Ends {
        self.ends
    }

    fn descriptors(&self) -> Descriptors<'_> {
        Descriptors::one(self.stream.as_fd())
    }
}

fn addr(port: u16) -> SocketAddr {
    SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port)
}

fn port(
    stream: UnixStream,
    local: u16,
    peer: u16,
    gate: Option<Arc<Gate>>,
) -> io::Result<Box<dyn Port>> {
    stream.set_nonblocking(true)?;
    let ends = Ends { local: Some(addr(local)), peer: addr(peer) };
    Ok(Box::new(ToyPort { stream, ends, gate }))
}

#[derive(Debug)]
struct ToyReservation(Toy, u16);

#[derive(Debug)]
struct ToyAcceptor(UnixListener, u16);

impl Acceptor for ToyAcceptor {
    fn accept(&self) -> io::Result<Box<dyn Port>> {
        port(self.0.accept()?.0, self.1, 0, None)
    }

    fn descriptors(&self) -> Descriptors<'_> {
        Descriptors::one(self.0.as_fd())
    }
}

impl Reservation for ToyReservation {
    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(addr(self.1))
    }

    fn listen(
        self: Box<Self>,
        _: u32,
    ) -> Result<Box<dyn Acceptor>, (Box<dyn Reservation>, io::Error)> {
        let Self(toy, number) = &*self;
        let bound = UnixListener::bind(toy.folder.join(number.to_string()));
        match bound.and_then(|bound| bound.set_nonblocking(true).map(|()| bound)) {
            Ok(listener) => Ok(Box::new(ToyAcceptor(listener, self.1))),
            Err(error) => Err((self, error)),
        }
    }

    fn listen_at(&self, _: IpAddr, _: u32, _: u32) -> io::Result<Box<dyn Acceptor>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn connect(self: Box<Self>, peer: SocketAddr, _: Option<u8>) -> io::Result<Box<dyn Port>> {
        self.0.connect(None, peer, None)
    }
}

impl Network for Toy {
    fn reserve(
        &self,
        _: SocketAddr,
        _: Ipv6Listen,
        _: Sharing,
    ) -> io::Result<Box<dyn Reservation>> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(ToyReservation(self.clone(), number)))
    }

    fn connect(
        &self,
        _: Option<SocketAddr>,
        peer: SocketAddr,
        _: Option<u8>,
    ) -> io::Result<Box<dyn Port>> {
        let stream = UnixStream::connect(self.folder.join(peer.port().to_string()))?;
        port(stream, 0, peer.port(), Some(Arc::clone(&self.gate)))
    }

    fn looped(&self, _: IpAddr, _: u32) -> io::Result<Box<dyn Port>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn source_for(&self, _: SocketAddr) -> io::Result<IpAddr> {
        Ok(addr(0).ip())
    }

    fn owner_of(&self, _: SocketAddr, _: SocketAddr) -> io::Result<Owner> {
        Ok(Owner::Elsewhere)
    }
}

/// Two ends on a device of their own, and the folder of the sockets.
struct Scene {
    folder: PathBuf,
    gate: Arc<Gate>,
    client: End,
    server: End,
}

struct End {
    pd: ProtectionDomain,
    send_cq: CompletionQueue,
    recv_cq: CompletionQueue,
    qp: QueuePair,
    connection: Connection,
}

impl Scene {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("iwarp-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (next, gate) = (Arc::new(AtomicU16::new(1)), Arc::default());
        let network = Arc::new(Toy { folder: folder.clone(), next, gate: Arc::clone(&gate) });
        let platform = Platform { network, ..Platform::default() };
        let device = Device::on_platform(Options::default(), platform).unwrap();
        let listener = Listener::bind(&device, addr(0)).unwrap();
        let [ours, theirs] = [(); 2].map(|()| parts(&device, 16));
        let (connection, accepted) = couple(&device, &ours.3, &listener, &theirs.3);
        let end =
            |(pd, send_cq, recv_cq, qp), connection| End { pd, send_cq, recv_cq, qp, connection };
        Self { folder, gate, client: end(ours, connection), server: end(theirs, accepted) }
    }

    fn end(self) {
        self.client.connection.disconnect();
        for end in [self.client, self.server] {
            assert_eq!(end.connection.wait_disconnected(Some(DEADLINE)), Some(Ended::Closed));
        }
        std::fs::remove_dir_all(self.folder).unwrap();
    }
}

impl End {
    fn region(&self, len: usize) -> MemoryRegion {
        self.pd.allocate(len, Access::LOCAL_WRITE).unwrap()
    }

    fn post_recv(&self, wr_id: u64, region: &MemoryRegion) {
        let sges = [region.sge(0, region.len())];
        self.qp.post_recv(&RecvRequest::new(wr_id, &sges)).unwrap();
    }

    fn send(&self, wr_id: u64, region: &MemoryRegion) {
        let sges = [region.sge(0, region.len())];
        self.qp.post_send(&SendRequest::send(wr_id, Payload::Sges(&sges)).signaled()).unwrap();
    }
}

#[test]
fn another_transport_carries_verbs() {
    const LEN: usize = 300_000;
    let scene = Scene::new("toy");
    let Scene { client, server, .. } = &scene;
    let octets = pattern(LEN, 1);
    let (source, sink) = (client.region(LEN), server.region(LEN));
    source.buffer().unwrap().write_at(0, &octets);
    server.post_recv(1, &sink);
    client.send(2, &source);
    assert_eq!(succeeded(next(&server.recv_cq)).byte_len as usize, LEN);
    assert_eq!(succeeded(next(&client.send_cq)).wr_id, 2);
    assert_eq!(sink.buffer().unwrap().to_vec(), octets);
    scene.end();
}

/// A thread that sends may be long on its way back from the system, and the peer's answer is there:
/// the send completes first nevertheless. Programs count on it (tgt, for one, takes a command for
/// wrong that comes before its answer to the login has completed).
#[test]
fn a_send_completes_before_its_answer() {
    let scene = Scene::new("toy-order");
    let Scene { gate, client, server, .. } = &scene;
    let [question, answer] = [client.region(64), client.region(64)];
    let [heard, reply] = [server.region(64), server.region(64)];
    server.post_recv(1, &heard);
    client.post_recv(2, &answer);
    gate.set(true);
    std::thread::scope(|scope| {
        scope.spawn(|| client.send(3, &question));
        succeeded(next(&server.recv_cq));
        let before = gate.came.load(Ordering::Relaxed);
        server.send(4, &reply);
        succeeded(next(&server.send_cq));
        until("the answer", || {
            assert!(client.recv_cq.poll_one().is_none(), "the answer has overtaken");
            (gate.came.load(Ordering::Relaxed) > before).then_some(())
        });
        // The thread that has received it takes it apart at once.
        for _ in 0..100 {
            assert!(client.recv_cq.poll_one().is_none(), "the answer has overtaken");
        }
        assert!(client.send_cq.poll_one().is_none());
        gate.set(false);
    });
    assert_eq!(succeeded(next(&client.recv_cq)).wr_id, 2);
    assert_eq!(client.send_cq.poll_one().map(|completion| completion.wr_id), Some(3));
    scene.end();
}
