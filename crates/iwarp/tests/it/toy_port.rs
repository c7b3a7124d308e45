//! A transport of the program's own under the library: what somebody writes who has another.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use crate::common::{DEADLINE, couple, next, parts, pattern, succeeded};
use iwarp::cm::Listener;
use iwarp::port::{
    Acceptor, Descriptors, Ends, IoPart, IoPartMut, Ipv6Listen, Network, Owner, Platform, Port,
    Reservation, Sharing,
};
use iwarp::{Access, Device, Ended, Options, Payload, RecvRequest, SendOp, SendRequest};

/// Octets through the file system's sockets: a port number is a file's name.
#[derive(Clone, Debug)]
struct Toy {
    folder: PathBuf,
    next: Arc<AtomicU16>,
}

#[derive(Debug)]
struct ToyPort(UnixStream, Ends);

impl Port for ToyPort {
    fn send(&self, parts: &[IoPart<'_>], _: bool) -> io::Result<usize> {
        let mut octets = Vec::new();
        IoPart::gather(parts, &mut octets, 65_536)?;
        (&self.0).write(&octets)
    }

    fn recv(&self, parts: &mut [IoPartMut<'_>]) -> io::Result<usize> {
        // What does not find its place again would be lost, so one part at a time.
        let part =
            parts.iter_mut().find(|part| !part.is_empty()).ok_or(io::ErrorKind::InvalidInput)?;
        let mut octets = vec![0; part.len()];
        let came = (&self.0).read(&mut octets)?;
        IoPartMut::scatter(std::slice::from_mut(part), &octets[..came])
    }

    fn has_input(&self) -> io::Result<bool> {
        Ok(rustix::io::ioctl_fionread(&self.0)? > 0)
    }

    fn shutdown_write(&self) -> io::Result<()> {
        self.0.shutdown(Shutdown::Write)
    }

    fn ends(&self) -> Ends {
        self.1
    }

    fn descriptors(&self) -> Descriptors<'_> {
        Descriptors::one(self.0.as_fd())
    }
}

fn addr(port: u16) -> SocketAddr {
    SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port)
}

fn port(stream: UnixStream, local: u16, peer: u16) -> io::Result<Box<dyn Port>> {
    stream.set_nonblocking(true)?;
    Ok(Box::new(ToyPort(stream, Ends { local: Some(addr(local)), peer: addr(peer) })))
}

#[derive(Debug)]
struct ToyReservation(Toy, u16);

#[derive(Debug)]
struct ToyAcceptor(UnixListener, u16);

impl Acceptor for ToyAcceptor {
    fn accept(&self) -> io::Result<Box<dyn Port>> {
        port(self.0.accept()?.0, self.1, 0)
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
        port(UnixStream::connect(self.folder.join(peer.port().to_string()))?, 0, peer.port())
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

#[test]
fn another_transport_carries_verbs() {
    const LEN: usize = 300_000;
    let folder = std::env::temp_dir().join(format!("iwarp-toy-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let network = Arc::new(Toy { folder: folder.clone(), next: Arc::new(AtomicU16::new(1)) });
    let device =
        Device::on_platform(Options::default(), Platform { network, ..Platform::default() })
            .unwrap();
    let listener = Listener::bind(&device, addr(0)).unwrap();
    let [ours, theirs] = [(); 2].map(|()| parts(&device, 16));
    let (connection, accepted) = couple(&device, &ours.3, &listener, &theirs.3);
    let octets = pattern(LEN, 1);
    let source = ours.0.allocate(LEN, Access::LOCAL_WRITE).unwrap();
    let sink = theirs.0.allocate(LEN, Access::LOCAL_WRITE).unwrap();
    source.buffer().unwrap().write_at(0, &octets);
    theirs.3.post_recv(&RecvRequest { wr_id: 1, sges: &[sink.sge(0, LEN)] }).unwrap();
    let op = SendOp::Send { solicited: false, invalidate: None };
    let sges = [source.sge(0, LEN)];
    let payload = Payload::Sges(&sges);
    ours.3.post_send(&SendRequest { wr_id: 2, op, payload, signaled: true, fence: false }).unwrap();
    assert_eq!(succeeded(next(&theirs.2)).byte_len as usize, LEN);
    assert_eq!(succeeded(next(&ours.1)).wr_id, 2);
    assert_eq!(sink.buffer().unwrap().to_vec(), octets);
    connection.disconnect();
    for end in [connection, accepted] {
        assert_eq!(end.wait_disconnected(Some(DEADLINE)), Some(Ended::Closed));
    }
    std::fs::remove_dir_all(folder).unwrap();
}
