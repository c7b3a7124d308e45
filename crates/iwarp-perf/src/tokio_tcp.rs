// SPDX-License-Identifier: MIT OR Apache-2.0

//! TCP as programs with tokio use it: a task for each connection.

use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;

use super::octets;
use super::task::{Contender, Flow, Side, Spec, Task, Times};
use super::tasks::{block_on, runtime};
use super::tcp::{self, REQUEST, Stream};

/// Connections between the two processes.
pub(super) struct TokioTcp {
    // First: they are dropped before the runtime that they are registered with.
    streams: Vec<TcpStream>,
    runtime: Runtime,
    /// The bytes of each message.
    message: Vec<u8>,
    /// The bytes that came last on each connection.
    found: Vec<Vec<u8>>,
}

impl TokioTcp {
    /// The client's end.
    pub(super) fn connect(spec: &Spec, addr: SocketAddr) -> Result<Self> {
        let connect = |_| Stream::connect(spec, addr);
        Self::new((0..spec.connections).map(connect).collect::<Result<_>>()?)
    }

    /// The server's end.
    pub(super) fn accept(spec: &Spec, listener: &TcpListener) -> Result<Self> {
        Self::new(tcp::accept(spec, listener)?)
    }

    fn new(streams: Vec<Stream>) -> Result<Self> {
        let runtime = runtime()?;
        let streams = {
            let _runtime = runtime.enter();
            let stream = |stream: Stream| {
                let socket = stream.into_socket();
                socket.set_nonblocking(true)?;
                Ok(TcpStream::from_std(socket)?)
            };
            streams.into_iter().map(stream).collect::<Result<_>>()?
        };
        Ok(Self { streams, runtime, message: Vec::new(), found: Vec::new() })
    }

    /// Does a task's part on each connection that takes part, and keeps what came last.
    fn each<W, R>(&mut self, task: &Task, work: W) -> Result<()>
    where
        W: Fn(TcpStream, u64, Vec<u8>) -> R,
        R: Future<Output = Result<(TcpStream, Vec<u8>)>> + Send + 'static,
    {
        let idle = self.streams.split_off(task.connections);
        let busy = std::mem::replace(&mut self.streams, idle);
        let done = block_on(&self.runtime, async {
            let spawn = |stream| tokio::spawn(work(stream, task.each(), self.message.clone()));
            let tasks: Vec<_> = busy.into_iter().map(spawn).collect();
            let mut done = Vec::with_capacity(tasks.len());
            for task in tasks {
                done.push(task.await??);
            }
            Ok(done)
        })?;
        let (streams, found): (Vec<_>, _) = done.into_iter().unzip();
        self.streams.splice(..0, streams);
        self.found = found;
        Ok(())
    }
}

async fn request(
    mut stream: TcpStream,
    count: u64,
    mut sink: Vec<u8>,
) -> Result<(TcpStream, Vec<u8>)> {
    for _ in 0..count {
        stream.write_all(&[0; REQUEST]).await?;
        stream.read_exact(&mut sink).await?;
    }
    Ok((stream, sink))
}

async fn respond(
    mut stream: TcpStream,
    count: u64,
    message: Vec<u8>,
) -> Result<(TcpStream, Vec<u8>)> {
    let mut request = [0; REQUEST];
    for _ in 0..count {
        stream.read_exact(&mut request).await?;
        stream.write_all(&message).await?;
    }
    Ok((stream, message))
}

async fn ping(mut stream: TcpStream, count: u64, message: Vec<u8>) -> Result<(TcpStream, Vec<u8>)> {
    let mut sink = vec![0; message.len()];
    for _ in 0..count {
        stream.write_all(&message).await?;
        stream.read_exact(&mut sink).await?;
    }
    Ok((stream, sink))
}

async fn echo(
    mut stream: TcpStream,
    count: u64,
    mut sink: Vec<u8>,
) -> Result<(TcpStream, Vec<u8>)> {
    for _ in 0..count {
        stream.read_exact(&mut sink).await?;
        stream.write_all(&sink).await?;
    }
    Ok((stream, sink))
}

impl Contender for TokioTcp {
    fn prepare(&mut self, task: &Task, _: Side) -> Result<()> {
        anyhow::ensure!(
            task.connections <= self.streams.len(),
            "so many connections there are not"
        );
        self.message = octets::last(task, task.size);
        self.found.clear();
        Ok(())
    }

    fn measure(&mut self, task: &Task, _: &mut Times) -> Result<Duration> {
        let start = Instant::now();
        match task.flow {
            Flow::Request => self.each(task, request)?,
            Flow::PingPong => self.each(task, ping)?,
            _ => bail!("TCP by tokio does not measure {:?}", task.flow),
        }
        Ok(start.elapsed())
    }

    fn serve(&mut self, task: &Task) -> Result<()> {
        match task.flow {
            Flow::Request => self.each(task, respond),
            Flow::PingPong => self.each(task, echo),
            _ => bail!("TCP by tokio does not serve {:?}", task.flow),
        }
    }

    fn verify(&mut self, task: &Task, _: Side) -> Result<()> {
        if self.found.len() != task.connections {
            bail!("not every connection kept a message");
        }
        self.found.iter().try_for_each(|found| octets::verify(task, found))
    }
}
