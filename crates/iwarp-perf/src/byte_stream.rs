// SPDX-License-Identifier: MIT OR Apache-2.0

//! A byte stream of `iwarp-session`, in threads that block: what a program gets that
//! uses it in place of a TCP socket.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use iwarp_session::{ByteStream, Listener};

use super::octets::Messages;
use super::patience::PATIENCE;
use super::task::{Contender, Flow, Side, Spec, Task, Times};
use super::ways::Ways;
use super::{octets, rdma};

/// One end.
pub(super) struct Bytes {
    stream: ByteStream,
    /// Each is written by one call.
    messages: Messages,
    /// Room for as many that are read.
    sink: Vec<u8>,
}

impl Bytes {
    /// The client's end.
    pub(super) fn connect(spec: &Spec, addr: SocketAddr) -> Result<Self> {
        let pd = rdma::device(spec)?.alloc_pd();
        Ok(Self::new(ByteStream::connect(&pd, addr).wait_timeout(PATIENCE)?))
    }

    /// The server's end; the address of its listener is told before a client is waited for.
    pub(super) fn accept(listener: &Listener) -> Result<Self> {
        let request = listener.accept().wait_timeout(PATIENCE)?;
        Ok(Self::new(ByteStream::accept(request).wait_timeout(PATIENCE)?))
    }

    fn new(mut stream: ByteStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE));
        stream.set_write_timeout(Some(PATIENCE));
        Self { stream, messages: Messages::default(), sink: Vec::new() }
    }

    fn read(&mut self) -> Result<()> {
        self.stream.read_exact(&mut self.sink).context("the byte stream")
    }

    fn ping(&mut self, task: &Task, times: &mut Times) -> Result<()> {
        times.begin();
        for number in 1..=task.count {
            let octets = self.messages.get(number == task.count);
            self.stream.write_all(octets)?;
            self.stream.read_exact(&mut self.sink)?;
            times.lap();
        }
        Ok(())
    }
}

impl Contender for Bytes {
    fn ways(&self) -> Ways {
        Ways::of_path(self.stream.session().path_within_host())
    }

    fn prepare(&mut self, task: &Task, _: Side) -> Result<()> {
        self.messages.prepare(task, task.size);
        octets::clear(&mut self.sink, task.size);
        Ok(())
    }

    fn measure(&mut self, task: &Task, times: &mut Times) -> Result<Duration> {
        let start = Instant::now();
        match task.flow {
            Flow::Stream => {
                for _ in 1..task.count {
                    self.stream.write_all(self.messages.get(false))?;
                }
                self.stream.write_all(self.messages.get(true))?;
                self.stream.read_exact(&mut [0])?;
            }
            Flow::PingPong => self.ping(task, times)?,
            _ => bail!("byte streams do not measure {:?}", task.flow),
        }
        Ok(start.elapsed())
    }

    fn serve(&mut self, task: &Task) -> Result<()> {
        for _ in 0..task.count {
            self.read()?;
            if task.flow == Flow::PingPong {
                self.stream.write_all(&self.sink)?;
            }
        }
        match task.flow {
            Flow::Stream => Ok(self.stream.write_all(&[1])?),
            Flow::PingPong => Ok(()),
            _ => bail!("byte streams do not serve {:?}", task.flow),
        }
    }

    fn verify(&mut self, task: &Task, side: Side) -> Result<()> {
        let receives = task.flow == Flow::PingPong || side == Side::Server;
        if receives { octets::verify(task, &self.sink) } else { Ok(()) }
    }
}
