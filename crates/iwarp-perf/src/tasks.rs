// SPDX-License-Identifier: MIT OR Apache-2.0

//! One session of `iwarp-session`, shared by tasks of a tokio runtime or by threads
//! that block: how programs in Rust use it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use iwarp::{Access, ProtectionDomain};
use iwarp_session::{
    Block, BlockPool, Config, Exposed, Listener, Outcome, Pending, Received, RemoteGrant, Session,
};
use tokio::runtime::Runtime;

use super::control::PATIENCE;
use super::task::{Contender, Flow, Kind, Side, Spec, Task, Times};
use super::ways::Ways;
use super::{octets, rdma};

/// Blocks beside those of the tasks: for the bye, and for what is on its way.
const SPARE: usize = 8;

/// A runtime as `#[tokio::main]` makes one.
pub(super) fn runtime() -> Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().context("no tokio runtime")
}

/// Runs a round to its end, which has a deadline.
pub(super) fn block_on<T>(runtime: &Runtime, round: impl Future<Output = Result<T>>) -> Result<T> {
    let bounded = async { tokio::time::timeout(PATIENCE, round).await };
    runtime.block_on(bounded).with_context(|| format!("a round took more than {PATIENCE:?}"))?
}

/// One end of the session.
pub(super) struct Tasks {
    session: Arc<Session>,
    pool: Arc<BlockPool>,
    far: Far,
    /// Without one, threads share the session.
    runtime: Option<Runtime>,
    /// The receive for what the client says next.
    coming: Option<Pending<Received>>,
    /// The message that came last, of each task.
    found: Vec<Block>,
}

/// The objects that an end has of the other.
enum Far {
    /// The client reads there.
    Target(RemoteGrant),
    /// The server's memory, that the client reads.
    Own(Exposed),
}

/// The objects with which both ends begin.
struct Parts {
    pd: ProtectionDomain,
    config: Config,
    pool: Arc<BlockPool>,
    runtime: Option<Runtime>,
}

impl Parts {
    fn new(spec: &Spec, pd: ProtectionDomain) -> Result<Self> {
        let blocks = spec.connections + SPARE;
        Ok(Self {
            config: Config::default().max_sends(blocks).max_recvs(blocks),
            pool: Arc::new(BlockPool::new(&pd, spec.max_size.max(64), blocks)?),
            runtime: (spec.kind == Kind::Tasks).then(runtime).transpose()?,
            pd,
        })
    }

    fn into_tasks(self, session: Session, far: Far) -> Tasks {
        let (pool, runtime) = (self.pool, self.runtime);
        let session = Arc::new(session);
        Tasks { session, pool, far, runtime, coming: None, found: Vec::new() }
    }
}

impl Tasks {
    /// The client's end.
    pub(super) fn connect(spec: &Spec, addr: SocketAddr) -> Result<Self> {
        let parts = Parts::new(spec, rdma::device(spec)?.alloc_pd())?;
        let prepared = parts.config.prepare(&parts.pd)?;
        let grant = prepared.recv(free(&parts.pool)?);
        let session = prepared.connect(addr).wait_timeout(PATIENCE)?;
        let grant = wait(grant)?.block;
        let grant = grant.as_ref().try_into().context("the server sent no grant")?;
        Ok(parts.into_tasks(session, Far::Target(RemoteGrant::from_octets(grant))))
    }

    /// The server's end; the address of its listener is told before a client is waited for.
    pub(super) fn accept(spec: &Spec, listener: &Listener) -> Result<Self> {
        let request = listener.accept().wait_timeout(PATIENCE)?;
        let parts = Parts::new(spec, request.pd().clone())?;
        let prepared = parts.config.prepare(&parts.pd)?;
        let own = prepared.expose(spec.max_size, Access::REMOTE_READ)?;
        let session = prepared.accept(request).wait_timeout(PATIENCE)?;
        wait(session.send_inline(&own.grant().to_octets()))?;
        Ok(parts.into_tasks(session, Far::Own(own)))
    }

    /// Waits as this end's program does.
    fn finish<T: Outcome>(&self, pending: Pending<T>) -> Result<T> {
        match &self.runtime {
            Some(runtime) => block_on(runtime, async { Ok(pending.await?) }),
            None => wait(pending),
        }
    }

    /// Each task or thread reads its share, one message after the other.
    fn request(&mut self, task: &Task) -> Result<Duration> {
        let Far::Target(from) = &self.far else { bail!("the server does not ask") };
        let (from, each) = (*from, task.each());
        let mut blocks = Vec::with_capacity(task.connections);
        for _ in 0..task.connections {
            let mut block = free(&self.pool)?;
            block.set_len(task.size);
            blocks.push(block);
        }
        let start = Instant::now();
        self.found = match &self.runtime {
            Some(runtime) => block_on(runtime, async {
                let tasks = blocks.into_iter().map(|mut block| {
                    let session = Arc::clone(&self.session);
                    tokio::spawn(async move {
                        for _ in 0..each {
                            block = session.read(&from, 0, block).await?;
                        }
                        anyhow::Ok(block)
                    })
                });
                let mut found = Vec::new();
                for task in tasks.collect::<Vec<_>>() {
                    found.push(task.await??);
                }
                Ok(found)
            })?,
            None => std::thread::scope(|scope| {
                let session = &*self.session;
                let threads = blocks.into_iter().map(|mut block| {
                    scope.spawn(move || {
                        for _ in 0..each {
                            block = wait(session.read(&from, 0, block))?;
                        }
                        Ok(block)
                    })
                });
                let threads: Vec<_> = threads.collect();
                let joined = threads.into_iter().map(|thread| thread.join());
                let joined = joined.map(|found| found.map_err(|_| anyhow!("a thread panicked"))?);
                joined.collect::<Result<_>>()
            })?,
        };
        let took = start.elapsed();
        // The server's program may go on.
        self.finish(self.session.send_inline(&[0]))?;
        Ok(took)
    }

    /// Has a task do an end's part of a ping-pong.
    fn in_task<R>(&mut self, part: impl FnOnce(End) -> R) -> Result<Duration>
    where
        R: Future<Output = Result<Block>> + Send + 'static,
    {
        let runtime = self.runtime.as_ref().context("a ping-pong is of tasks")?;
        let end = End { session: Arc::clone(&self.session), pool: Arc::clone(&self.pool) };
        let (start, part) = (Instant::now(), part(end));
        let found = block_on(runtime, async { tokio::spawn(part).await? })?;
        self.found = vec![found];
        Ok(start.elapsed())
    }
}

/// The objects of a ping-pong's task.
struct End {
    session: Arc<Session>,
    pool: Arc<BlockPool>,
}

impl End {
    async fn ping(self, count: u64, mut block: Block) -> Result<Block> {
        let mut found = None;
        for _ in 0..count {
            let answer = self.session.recv(free(&self.pool)?);
            block = self.session.send(block).await?;
            found = Some(answer.await?.block);
        }
        found.context("no message was asked for")
    }

    async fn echo(self, count: u64, first: Pending<Received>) -> Result<Block> {
        let mut block = first.await?.block;
        for _ in 1..count {
            let next = self.session.recv(free(&self.pool)?);
            self.session.send(block).await?;
            block = next.await?.block;
        }
        Ok(self.session.send(block).await?)
    }
}

impl Contender for Tasks {
    fn ways(&self) -> Ways {
        Ways::of_path(self.session.path_within_host())
    }

    fn prepare(&mut self, task: &Task, side: Side) -> Result<()> {
        self.found.clear();
        if side == Side::Client {
            return Ok(());
        }
        if let Far::Own(own) = &self.far {
            own.write_at(0, &octets::last(task, task.size));
        }
        // There before the client can send.
        self.coming = Some(self.session.recv(free(&self.pool)?));
        Ok(())
    }

    fn measure(&mut self, task: &Task, _: &mut Times) -> Result<Duration> {
        match task.flow {
            Flow::Request => self.request(task),
            Flow::PingPong => {
                let mut block = free(&self.pool)?;
                block.fill_from(&octets::last(task, task.size));
                let count = task.count;
                self.in_task(|end| end.ping(count, block))
            }
            _ => bail!("sessions do not measure {:?}", task.flow),
        }
    }

    fn serve(&mut self, task: &Task) -> Result<()> {
        let coming = self.coming.take().context("no receive was posted")?;
        match task.flow {
            // A program that waits for a message, as one does that is read from.
            Flow::Request => self.finish(coming).map(drop),
            Flow::PingPong => {
                let count = task.count;
                self.in_task(|end| end.echo(count, coming)).map(drop)
            }
            _ => bail!("sessions do not serve {:?}", task.flow),
        }
    }

    fn verify(&mut self, task: &Task, side: Side) -> Result<()> {
        if side == Side::Server && task.flow == Flow::Request {
            return Ok(());
        }
        if self.found.is_empty() {
            bail!("no message was kept");
        }
        self.found.iter().try_for_each(|found| octets::verify(task, found))
    }
}

fn free(pool: &BlockPool) -> Result<Block> {
    pool.try_take().context("all blocks are in use")
}

fn wait<T: Outcome>(pending: Pending<T>) -> Result<T> {
    match pending.wait_timeout(PATIENCE) {
        Ok(outcome) => Ok(outcome?),
        Err(_) => bail!("an operation took more than {PATIENCE:?}"),
    }
}
