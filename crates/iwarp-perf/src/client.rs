// SPDX-License-Identifier: MIT OR Apache-2.0

//! The measuring end.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::byte_stream::Bytes;
use super::control::{Answer, Ask, Control, Hello, unexpected};
use super::cpu::{self, Background, Usage};
use super::dial::{RdmaDial, TcpDial};
use super::fleet::Fleet;
use super::memcpy::Memcpy;
use super::process_vm::Reach;
use super::rdma::{self, Rdma};
use super::task::{Contender, Flow, Idle, Kind, Side, Spec, Task, Times, Transport, Yardstick};
use super::tasks::Tasks;
use super::tcp::Tcp;
use super::tokio_tcp::TokioTcp;
use super::ways::Ways;

/// A connection to a server, and both ends of contenders.
pub(super) struct Client {
    control: Control,
    contenders: Vec<Box<dyn Contender>>,
    /// The CPUs that they run on.
    cpus: Vec<Vec<usize>>,
    background: Option<Background>,
    /// The server.
    pub(super) server: Hello,
    /// Congestion control of raw TCP, here and there.
    pub(super) congestion: Option<[String; 2]>,
    /// The ways of each contender's connections at the end of its last round.
    ways: Vec<Ways>,
    /// The ways of contenders that were dropped.
    ways_before: Ways,
}

/// The measurements of one round.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) time: Duration,
    pub(super) client: Usage,
    pub(super) server: Usage,
    /// The ways of its connections within the host at the end of it.
    pub(super) ways: Ways,
    /// Requests that the client carried out by itself in the server's memory.
    pub(super) direct: u64,
}

impl Client {
    pub(super) fn connect(host: &str, port: u16, server_cpus: &[usize]) -> Result<Self> {
        let mut control = Control::connect(host, port)?;
        let server = control.greet(&Hello::new(server_cpus))?;
        Ok(Self {
            control,
            contenders: Vec::new(),
            cpus: Vec::new(),
            background: None,
            server,
            congestion: None,
            ways: Vec::new(),
            ways_before: Ways::default(),
        })
    }

    /// Makes a contender and returns its number.
    pub(super) fn make(&mut self, spec: &Spec) -> Result<usize> {
        let number = cpu::on(spec.places.of_threads(Side::Client), || self.make_here(spec))?;
        self.cpus.push(spec.places.client.clone());
        Ok(number)
    }

    fn make_here(&mut self, spec: &Spec) -> Result<usize> {
        let contender = match spec.transport {
            Transport::Yardstick(yardstick) => self.make_yardstick(spec, yardstick)?,
            Transport::Tcp | Transport::Iwarp { .. } => self.make_connected(spec)?,
        };
        self.contenders.push(contender);
        self.ways.push(Ways::default());
        Ok(self.contenders.len() - 1)
    }

    /// The server has part of it, or only memory for it.
    fn make_yardstick(&mut self, spec: &Spec, yardstick: Yardstick) -> Result<Box<dyn Contender>> {
        match (self.control.ask(&Ask::Make(spec.clone()))?, yardstick) {
            (Answer::Shown(None), Yardstick::Memcpy) => Ok(Box::new(Memcpy::default())),
            (Answer::Shown(Some(shown)), Yardstick::ProcessVm) => Ok(Box::new(Reach::new(shown)?)),
            (answer, _) => unexpected(&answer),
        }
    }

    fn make_connected(&mut self, spec: &Spec) -> Result<Box<dyn Contender>> {
        let addr = match self.control.ask(&Ask::Make(spec.clone()))? {
            Answer::Listening(port) => SocketAddr::new(self.control.peer_ip()?, port),
            answer => return unexpected(&answer),
        };
        let mut here = None;
        let contender: Box<dyn Contender> = match spec.transport {
            Transport::Tcp => match spec.kind {
                Kind::Dial => Box::new(TcpDial::calling(addr)),
                Kind::Fleet => {
                    let fleet = Fleet::connect_tcp(spec, addr)?;
                    here = fleet.congestion();
                    Box::new(fleet)
                }
                Kind::Tasks => Box::new(TokioTcp::connect(spec, addr)?),
                Kind::Move | Kind::Crowd(_) | Kind::Threads | Kind::Bytes => {
                    let tcp = Tcp::connect(spec, addr)?;
                    here = tcp.congestion();
                    Box::new(tcp)
                }
            },
            Transport::Yardstick(_) => bail!("a yardstick has no connection"),
            Transport::Iwarp { .. } => match spec.kind {
                Kind::Dial => Box::new(RdmaDial::calling(rdma::device(spec)?, addr)?),
                Kind::Fleet => Box::new(Fleet::connect(spec, addr)?),
                Kind::Tasks | Kind::Threads => Box::new(Tasks::connect(spec, addr)?),
                Kind::Bytes => Box::new(Bytes::connect(spec, addr)?),
                Kind::Move | Kind::Crowd(_) => Box::new(Rdma::connect(spec, addr)?),
            },
        };
        match self.control.answer()? {
            Answer::Connected(there) => {
                if let (Some(here), Some(there)) = (here, there) {
                    self.congestion = Some([here, there]);
                }
            }
            answer => return unexpected(&answer),
        }
        Ok(contender)
    }

    /// The reason for which a contender cannot do what its spec says, as far as it is known here.
    pub(super) fn hindrance(&self, number: usize) -> Option<String> {
        self.contenders[number].hindrance()
    }

    /// Has a task of the lowest priority run on a CPU here and one there, from now on.
    pub(super) fn background(&mut self, cpus: Option<[usize; 2]>) -> Result<()> {
        self.background = None;
        self.background = cpus.map(|[here, _]| Background::start(here)).transpose()?;
        match self.control.ask(&Ask::Background(cpus.map(|[_, there]| there)))? {
            Answer::Ready => Ok(()),
            answer => unexpected(&answer),
        }
    }

    /// Drops all contenders, here and there.
    pub(super) fn clear(&mut self) -> Result<()> {
        self.contenders.clear();
        self.ways_before = self.ways();
        self.ways.clear();
        self.cpus.clear();
        match self.control.ask(&Ask::Clear)? {
            Answer::Ready => Ok(()),
            answer => unexpected(&answer),
        }
    }

    /// The ways that connections of RDMA have taken within the host, at the end of their last
    /// rounds.
    pub(super) fn ways(&self) -> Ways {
        self.ways_before + self.ways.iter().copied().sum()
    }

    /// One round of a contender, verified.
    pub(super) fn round(
        &mut self,
        number: usize,
        task: &Task,
        times: &mut Times,
    ) -> Result<Sample> {
        let cpus = self.cpus[number].clone();
        cpu::on(&cpus, || self.round_here(number, task, times))
    }

    /// Has both ends do nothing for a while. Returns the cost of that and of idle connections, here
    /// and there.
    pub(super) fn rest(
        &mut self,
        number: usize,
        time: Duration,
    ) -> Result<[(Usage, Option<Idle>); 2]> {
        let before = Usage::now()?;
        let there = match self.control.ask(&Ask::Rest(number, time))? {
            Answer::Rested(usage, idle) => (usage, idle),
            answer => return unexpected(&answer),
        };
        let here = (Usage::now()? - before, self.contenders[number].idle());
        Ok([here, there])
    }

    fn round_here(&mut self, number: usize, task: &Task, times: &mut Times) -> Result<Sample> {
        let contender = &mut self.contenders[number];
        let rests = task.flow == Flow::Rest;
        if !rests {
            // Before the server, which may poll from the moment it is ready.
            contender.prepare(task, Side::Client)?;
        }
        match self.control.ask(&Ask::Round(number, task.clone()))? {
            Answer::Ready => {}
            answer => return unexpected(&answer),
        }
        let (before, direct) = (Usage::now()?, contender.direct());
        let time = if rests {
            let time = task.duration();
            std::thread::sleep(time);
            time
        } else {
            contender.measure(task, times).map_err(|error| self.control.explain(error))?
        };
        let client = Usage::now()? - before;
        let direct = contender.direct() - direct;
        let (server, there) = match self.control.ask(&Ask::Finish)? {
            Answer::Done(usage, ways) => (usage, ways),
            answer => return unexpected(&answer),
        };
        if !rests {
            contender.verify(task, Side::Client).context("at the client")?;
        }
        let ways = contender.ways().at_both_ends(there);
        self.ways[number] = ways;
        Ok(Sample { time, client, server, ways, direct })
    }
}
