// SPDX-License-Identifier: MIT OR Apache-2.0

//! Raw TCP, the baseline of all measurements: equal sizes, written and read in a loop.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::net::sockopt;

use super::octets::{self, Messages};
use super::patience::{PATIENCE, Pace, Patience, wait_for};
use super::task::{Contender, Flow, Side, Spec, Task, Times, Wait};

/// Bytes of a request for a message: as many as a Read Request has in its headers, about.
pub(super) const REQUEST: usize = 32;

/// Connections between the two processes, used by one thread at each end.
pub(super) struct Tcp {
    streams: Vec<Stream>,
    /// Each is sent by one call.
    messages: Messages,
    /// Room for the bytes that one call receives.
    sink: Vec<u8>,
}

impl Tcp {
    /// The client's end.
    pub(super) fn connect(spec: &Spec, addr: SocketAddr) -> Result<Self> {
        let connect = |_| Stream::connect(spec, addr);
        Ok(Self::new((0..spec.connections).map(connect).collect::<Result<_>>()?))
    }

    /// The server's end.
    pub(super) fn accept(spec: &Spec, listener: &TcpListener) -> Result<Self> {
        Ok(Self::new(accept(spec, listener)?))
    }

    fn new(streams: Vec<Stream>) -> Self {
        Self { streams, messages: Messages::default(), sink: Vec::new() }
    }

    /// Congestion control in force.
    pub(super) fn congestion(&self) -> Option<String> {
        self.streams.first()?.congestion()
    }

    /// Sends each connection's share, and what is last from memory of its own.
    fn pour(&mut self, task: &Task) -> Result<()> {
        let calls = task.each() / task.list as u64;
        let mut pace = Pace::new(task);
        for call in 1..=calls {
            pace.keep(task.list * task.connections);
            let octets = self.messages.get(call == calls);
            for stream in &mut self.streams[..task.connections] {
                stream.write(octets)?;
            }
        }
        Ok(())
    }

    /// Receives each connection's share.
    fn drain(&mut self, task: &Task) -> Result<()> {
        for _ in 0..task.each() / task.list as u64 {
            for stream in &mut self.streams[..task.connections] {
                stream.read(&mut self.sink)?;
            }
        }
        Ok(())
    }

    fn ping(&mut self, task: &Task, times: &mut Times) -> Result<()> {
        let stream = &mut self.streams[0];
        times.begin();
        for number in 0..task.count {
            let octets = self.messages.get(number + 1 == task.count);
            stream.write(octets)?;
            stream.read(&mut self.sink)?;
            times.lap();
        }
        Ok(())
    }

    /// Asks for messages, so many at a time on each connection.
    fn request(&mut self, task: &Task, times: &mut Times) -> Result<()> {
        let each = task.each();
        let ahead = each.min(task.depth as u64);
        let (mut asked, mut request) = (0, [0; REQUEST]);
        times.begin();
        for number in 0..each {
            let upto = each.min(number + ahead);
            while asked < upto {
                asked += 1;
                request[0] = u8::from(asked == each);
                for stream in &mut self.streams[..task.connections] {
                    stream.write(&request)?;
                }
            }
            for stream in &mut self.streams[..task.connections] {
                stream.read(&mut self.sink)?;
            }
            if task.depth == 1 {
                times.lap();
            }
        }
        Ok(())
    }

    fn respond(&mut self, task: &Task) -> Result<()> {
        let mut request = [0; REQUEST];
        for _ in 0..task.each() {
            for stream in &mut self.streams[..task.connections] {
                stream.read(&mut request)?;
                let octets = self.messages.get(request[0] == 1);
                stream.write(octets)?;
            }
        }
        Ok(())
    }
}

impl Contender for Tcp {
    fn prepare(&mut self, task: &Task, side: Side) -> Result<()> {
        ensure!(task.connections <= self.streams.len(), "there are fewer connections");
        let wait = if side == Side::Client { task.wait } else { task.server_wait };
        for stream in &mut self.streams {
            stream.set_spins(wait == Wait::Poll)?;
        }
        let len = task.size * task.list;
        self.messages.prepare(task, len);
        octets::clear(&mut self.sink, len);
        Ok(())
    }

    fn measure(&mut self, task: &Task, times: &mut Times) -> Result<Duration> {
        let start = Instant::now();
        match task.flow {
            Flow::Stream => {
                self.pour(task)?;
                self.streams[0].read(&mut [0])?;
            }
            Flow::Fetch => {
                self.streams[0].write(&[1])?;
                self.drain(task)?;
            }
            Flow::PingPong => self.ping(task, times)?,
            Flow::Request => self.request(task, times)?,
            Flow::Push | Flow::Dial | Flow::Rest => bail!("raw TCP cannot do {:?}", task.flow),
        }
        Ok(start.elapsed())
    }

    fn serve(&mut self, task: &Task) -> Result<()> {
        match task.flow {
            Flow::Stream => {
                self.drain(task)?;
                self.streams[0].write(&[1])
            }
            Flow::Fetch => {
                self.streams[0].read(&mut [0])?;
                self.pour(task)
            }
            Flow::PingPong => {
                let stream = &mut self.streams[0];
                for _ in 0..task.count {
                    stream.read(&mut self.sink)?;
                    stream.write(&self.sink)?;
                }
                Ok(())
            }
            Flow::Request => self.respond(task),
            Flow::Push | Flow::Dial | Flow::Rest => bail!("raw TCP cannot do {:?}", task.flow),
        }
    }

    fn verify(&mut self, task: &Task, side: Side) -> Result<()> {
        let receives = match task.flow {
            Flow::Stream => side == Side::Server,
            Flow::Fetch | Flow::Request => side == Side::Client,
            Flow::PingPong => true,
            Flow::Push | Flow::Dial | Flow::Rest => false,
        };
        if receives { octets::verify(task, &self.sink) } else { Ok(()) }
    }
}

/// The server's ends of the connections.
pub(super) fn accept(spec: &Spec, listener: &TcpListener) -> Result<Vec<Stream>> {
    let accept = |_| -> Result<Stream> {
        ensure!(wait_for(listener, PATIENCE)?, "no TCP connection came");
        Stream::new(listener.accept()?.0, spec)
    };
    (0..spec.connections).map(accept).collect()
}

/// One connection.
pub(super) struct Stream {
    socket: TcpStream,
    /// It never blocks, and its user tries again and again.
    spins: bool,
}

impl Stream {
    pub(super) fn connect(spec: &Spec, addr: SocketAddr) -> Result<Self> {
        let socket = TcpStream::connect_timeout(&addr, PATIENCE)
            .with_context(|| format!("cannot reach {addr}"))?;
        Self::new(socket, spec)
    }

    /// The socket options are those that the library sets on its own connections.
    fn new(socket: TcpStream, spec: &Spec) -> Result<Self> {
        socket.set_nodelay(true)?;
        if let Some(name) = &spec.congestion
            && socket.peer_addr()?.ip() == socket.local_addr()?.ip()
        {
            // A kernel without it keeps its default, as the library lets it; the report says which.
            let _ = sockopt::set_tcp_congestion(&socket, name);
        }
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { socket, spins: false })
    }

    pub(super) fn into_socket(self) -> TcpStream {
        self.socket
    }

    pub(super) const fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Congestion control in force.
    pub(super) fn congestion(&self) -> Option<String> {
        sockopt::tcp_congestion(&self.socket).ok()
    }

    pub(super) fn set_spins(&mut self, spins: bool) -> Result<()> {
        if self.spins != spins {
            self.socket.set_nonblocking(spins)?;
            self.spins = spins;
        }
        Ok(())
    }

    /// Writes all of it.
    fn write(&mut self, octets: &[u8]) -> Result<()> {
        let (mut done, mut patience) = (0, Patience::default());
        while done < octets.len() {
            match self.socket.write(&octets[done..]) {
                Ok(n) => done += n,
                Err(error) => self.retry(error, &mut patience)?,
            }
        }
        Ok(())
    }

    /// Reads until `octets` is full.
    fn read(&mut self, octets: &mut [u8]) -> Result<()> {
        let (mut done, mut patience) = (0, Patience::default());
        while done < octets.len() {
            match self.socket.read(&mut octets[done..]) {
                Ok(0) => bail!("the peer has closed its raw TCP connection"),
                Ok(n) => done += n,
                Err(error) => self.retry(error, &mut patience)?,
            }
        }
        Ok(())
    }

    fn retry(&self, error: io::Error, patience: &mut Patience) -> Result<()> {
        match error.kind() {
            io::ErrorKind::Interrupted => Ok(()),
            io::ErrorKind::WouldBlock if self.spins => {
                std::hint::spin_loop();
                patience.check().map(drop).context("raw TCP")
            }
            io::ErrorKind::WouldBlock => bail!("raw TCP: nothing has come for {PATIENCE:?}"),
            _ => Err(error).context("raw TCP"),
        }
    }
}
