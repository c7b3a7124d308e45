// SPDX-License-Identifier: MIT OR Apache-2.0

//! Making connections and ending them, one after the other.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use iwarp::cm::{self, ConnectParams, Connection, Listener};
use iwarp::{CompletionQueue, Device, Ended, ProtectionDomain, QueuePair, QueuePairAttributes};

use super::patience::{PATIENCE, wait_for};
use super::task::{Contender, Flow, Side, Task, Times, Wait};

/// Bytes of a start-up frame of MPA without private data (RFC 5044 §7.1.1).
const EXCHANGE: usize = 20;
const REQUEST: [u8; EXCHANGE] = *b"twenty bytes, please";
const REPLY: [u8; EXCHANGE] = *b"here they are, 20 it";

/// The client has the address of the server, and the server its listener.
enum DialEnd<L> {
    Client(SocketAddr),
    Server(L),
}

/// True if the client waits until the other end has closed as well.
fn waits(task: &Task) -> bool {
    task.wait == Wait::Events
}

fn check(task: &Task) -> Result<()> {
    ensure!(task.flow == Flow::Dial, "connections that are only made cannot do {:?}", task.flow);
    Ok(())
}

/// Bare TCP: connect, accept, one exchange, close.
pub(super) struct TcpDial(DialEnd<TcpListener>);

impl TcpDial {
    pub(super) fn calling(addr: SocketAddr) -> Self {
        Self(DialEnd::Client(addr))
    }

    pub(super) fn listening(listener: TcpListener) -> Self {
        Self(DialEnd::Server(listener))
    }
}

impl Contender for TcpDial {
    fn prepare(&mut self, task: &Task, _: Side) -> Result<()> {
        check(task)
    }

    fn measure(&mut self, task: &Task, times: &mut Times) -> Result<Duration> {
        let DialEnd::Client(addr) = self.0 else { bail!("the server's end does not connect") };
        let all = Instant::now();
        for _ in 0..task.count {
            let start = Instant::now();
            let mut stream = TcpStream::connect(addr)?;
            stream.set_nodelay(true)?;
            stream.write_all(&REQUEST)?;
            let mut reply = [0; EXCHANGE];
            stream.read_exact(&mut reply)?;
            ensure!(reply == REPLY, "raw TCP: a wrong reply");
            if waits(task) {
                stream.shutdown(Shutdown::Write)?;
                ensure!(stream.read(&mut reply)? == 0, "raw TCP: bytes behind the reply");
            }
            drop(stream);
            times.record(start.elapsed());
        }
        Ok(all.elapsed())
    }

    fn serve(&mut self, task: &Task) -> Result<()> {
        let DialEnd::Server(listener) = &self.0 else { bail!("the client's end does not accept") };
        for _ in 0..task.count {
            ensure!(wait_for(listener, PATIENCE)?, "no TCP connection came");
            let mut stream = listener.accept()?.0;
            stream.set_nodelay(true)?;
            let mut request = [0; EXCHANGE];
            stream.read_exact(&mut request)?;
            ensure!(request == REQUEST, "raw TCP: a wrong request");
            stream.write_all(&REPLY)?;
            ensure!(stream.read(&mut request)? == 0, "raw TCP: bytes behind the request");
        }
        Ok(())
    }

    fn verify(&mut self, _: &Task, _: Side) -> Result<()> {
        Ok(())
    }
}

/// RDMA: a queue pair is made, connected, disconnected and dropped, by blocking calls.
pub(super) struct RdmaDial {
    device: Device,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    end: DialEnd<Listener>,
}

impl RdmaDial {
    pub(super) fn calling(device: Device, addr: SocketAddr) -> Result<Self> {
        Self::new(device, DialEnd::Client(addr))
    }

    pub(super) fn listening(device: Device, listener: Listener) -> Result<Self> {
        Self::new(device, DialEnd::Server(listener))
    }

    fn new(device: Device, end: DialEnd<Listener>) -> Result<Self> {
        let (pd, cq) = (device.alloc_pd(), device.create_cq(16, None)?);
        Ok(Self { device, pd, cq, end })
    }

    fn qp(&self) -> Result<QueuePair> {
        Ok(self.pd.create_qp(&QueuePairAttributes::new(&self.cq, &self.cq))?)
    }
}

fn ended(connection: &Connection) -> Result<()> {
    let ended = connection.wait_disconnected(Some(PATIENCE)).context("a connection stays up")?;
    ensure!(ended == Ended::Closed, "{}", iwarp_kit::ending::how(Some(ended)));
    Ok(())
}

impl Contender for RdmaDial {
    fn prepare(&mut self, task: &Task, _: Side) -> Result<()> {
        check(task)
    }

    fn measure(&mut self, task: &Task, times: &mut Times) -> Result<Duration> {
        let DialEnd::Client(addr) = self.end else { bail!("the server's end does not connect") };
        let all = Instant::now();
        for _ in 0..task.count {
            let (start, qp) = (Instant::now(), self.qp()?);
            let params = ConnectParams::default();
            let connection = cm::connect(&self.device, addr, &qp, &params, PATIENCE)?;
            connection.disconnect();
            if waits(task) {
                ended(&connection)?;
            }
            drop((connection, qp));
            times.record(start.elapsed());
        }
        Ok(all.elapsed())
    }

    fn serve(&mut self, task: &Task) -> Result<()> {
        let DialEnd::Server(listener) = &self.end else {
            bail!("the client's end does not accept")
        };
        for _ in 0..task.count {
            let incoming = listener.accept(Some(PATIENCE))?.context("no RDMA connection came")?;
            let qp = self.qp()?;
            let connection = incoming.accept(&qp, &ConnectParams::default())?;
            ended(&connection)?;
        }
        Ok(())
    }

    fn verify(&mut self, _: &Task, _: Side) -> Result<()> {
        Ok(())
    }
}
