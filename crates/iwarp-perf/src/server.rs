// SPDX-License-Identifier: MIT OR Apache-2.0

//! The serving end: does what clients ask, one after the other.

use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use iwarp::cm::Listener;
use iwarp_kit::child::end_with_parent;
use iwarp_kit::lines;

use super::byte_stream::Bytes;
use super::control::{Answer, Ask, Control, GREETING, Hello, PATIENCE};
use super::cpu::{self, Background, Usage};
use super::dial::{RdmaDial, TcpDial};
use super::hub::Hub;
use super::memcpy::Memcpy;
use super::patience::wait_for;
use super::process_vm::Open;
use super::rdma::{self, Rdma};
use super::task::{Contender, Flow, Kind, Side, Spec, Task, Transport, Yardstick};
use super::tasks::Tasks;
use super::tcp::Tcp;
use super::tokio_tcp::TokioTcp;

/// The settings with which a server is started.
#[derive(Debug)]
pub(super) struct Settings {
    /// The addresses to listen on: the first that this host has is taken.
    pub(super) addrs: Vec<SocketAddr>,
    /// Ends after the first client.
    pub(super) once: bool,
    /// Ends with the process that started it.
    pub(super) child: bool,
    /// The time to wait for a client.
    pub(super) patience: Option<Duration>,
}

pub(super) fn run(settings: &Settings) -> Result<()> {
    if settings.child {
        end_with_parent()?;
    }
    let listener = listen(&settings.addrs)?;
    let mut stdout = std::io::stdout();
    writeln!(stdout, "listening {}", listener.local_addr()?)?;
    stdout.flush()?;
    let everywhere = cpu::allowed()?;
    loop {
        if let Some(patience) = settings.patience {
            ensure!(wait_for(&listener, patience)?, "no client came");
        }
        let (stream, peer) = listener.accept().context("cannot accept")?;
        let served = Control::new(stream).and_then(|control| Client::new(control).serve());
        if settings.once {
            return served.with_context(|| format!("client {}", canonical(peer)));
        }
        if let Err(error) = served {
            eprintln!("iwarp perf: client {}: {}", canonical(peer), lines::reason(&error));
        }
        cpu::pin(&everywhere)?;
    }
}

fn listen(addrs: &[SocketAddr]) -> Result<TcpListener> {
    let name = addrs.first().map_or_else(|| "no address".to_owned(), ToString::to_string);
    TcpListener::bind(addrs).with_context(|| format!("cannot listen on {name}"))
}

/// As users know it: an IPv6 listener's names of IPv4 clients are mapped ones.
fn canonical(addr: SocketAddr) -> SocketAddr {
    SocketAddr::new(addr.ip().to_canonical(), addr.port())
}

/// The things that a client has asked for so far.
struct Client {
    control: Control,
    contenders: Vec<Box<dyn Contender>>,
    /// The CPUs that they run on.
    cpus: Vec<Vec<usize>>,
    background: Option<Background>,
}

impl Client {
    fn new(control: Control) -> Self {
        Self { control, contenders: Vec::new(), cpus: Vec::new(), background: None }
    }

    /// Serves it until it hangs up.
    fn serve(&mut self) -> Result<()> {
        let Some(Hello { cpus, .. }) = self.control.greeted()? else { return Ok(()) };
        if !cpus.is_empty()
            && let Err(error) = cpu::pin(&cpus)
        {
            return self.failed(error);
        }
        while let Some(ask) = self.control.receive(PATIENCE)? {
            if let Err(error) = self.answer(ask) {
                return self.failed(error);
            }
        }
        Ok(())
    }

    /// Tells the client, if it still is there.
    fn failed(&mut self, error: anyhow::Error) -> Result<()> {
        let _ = self.control.send(&Answer::Failed(format!("{error:#}")));
        Err(error)
    }

    fn answer(&mut self, ask: Ask) -> Result<()> {
        match ask {
            Ask::Make(spec) => self.make(&spec),
            Ask::Round(number, task) => self.round(number, &task),
            Ask::Background(cpu) => {
                self.background = None;
                self.background = cpu.map(Background::start).transpose()?;
                self.control.send(&Answer::Ready)
            }
            Ask::Clear => {
                self.contenders.clear();
                self.cpus.clear();
                self.control.send(&Answer::Ready)
            }
            Ask::Rest(number, time) => self.rest(number, time),
            Ask::Finish => Err(anyhow::anyhow!("there is no round to finish")),
        }
    }

    fn make(&mut self, spec: &Spec) -> Result<()> {
        spec.check()?;
        cpu::on(spec.places.of_threads(Side::Server), || self.make_here(spec))?;
        self.cpus.push(spec.places.server.clone());
        Ok(())
    }

    fn make_here(&mut self, spec: &Spec) -> Result<()> {
        let here = SocketAddr::new(self.control.local_ip()?, 0);
        let mut congestion = None;
        let contender: Box<dyn Contender> = match spec.transport {
            Transport::Tcp => {
                let listener = TcpListener::bind(here)?;
                self.control.send(&Answer::Listening(listener.local_addr()?.port()))?;
                match spec.kind {
                    Kind::Dial => Box::new(TcpDial::listening(listener)),
                    Kind::Fleet => {
                        let hub = Hub::accept(spec, &listener)?;
                        congestion = hub.congestion();
                        Box::new(hub)
                    }
                    Kind::Tasks => Box::new(TokioTcp::accept(spec, &listener)?),
                    Kind::Move | Kind::Crowd(_) | Kind::Threads | Kind::Bytes => {
                        let tcp = Tcp::accept(spec, &listener)?;
                        congestion = tcp.congestion();
                        Box::new(tcp)
                    }
                }
            }
            Transport::Iwarp { .. }
                if matches!(spec.kind, Kind::Tasks | Kind::Threads | Kind::Bytes) =>
            {
                let pd = rdma::device(spec)?.alloc_pd();
                let listener = iwarp_session::Listener::bind(&pd, here)?;
                let addr = listener.local_addr().context("the listener has no address")?;
                self.control.send(&Answer::Listening(addr.port()))?;
                match spec.kind {
                    Kind::Bytes => Box::new(Bytes::accept(&listener)?),
                    _ => Box::new(Tasks::accept(spec, &listener)?),
                }
            }
            Transport::Yardstick(yardstick) => return self.make_yardstick(spec, yardstick),
            Transport::Iwarp { .. } => {
                let device = rdma::device(spec)?;
                let listener = Listener::bind(&device, here)?;
                let addr = listener.local_addr().context("the listener has no address")?;
                self.control.send(&Answer::Listening(addr.port()))?;
                if spec.kind == Kind::Dial {
                    Box::new(RdmaDial::listening(device, listener)?)
                } else {
                    Box::new(Rdma::accept(spec, &device, &listener)?)
                }
            }
        };
        self.contenders.push(contender);
        self.control.send(&Answer::Connected(congestion))
    }

    fn make_yardstick(&mut self, spec: &Spec, yardstick: Yardstick) -> Result<()> {
        let (contender, shown): (Box<dyn Contender>, _) = match yardstick {
            Yardstick::Memcpy => (Box::new(Memcpy::default()), None),
            Yardstick::ProcessVm => {
                let open = Open::new(spec);
                let shown = open.shown();
                (Box::new(open), Some(shown))
            }
        };
        self.contenders.push(contender);
        self.control.send(&Answer::Shown(shown))
    }

    fn round(&mut self, number: usize, task: &Task) -> Result<()> {
        let cpus = self.cpus.get(number).context("no such contender")?;
        let cpus = task.computes.map_or_else(|| cpus.clone(), |cpu| vec![cpu]);
        task.check()?;
        cpu::on(&cpus, || self.round_here(number, task))
    }

    fn round_here(&mut self, number: usize, task: &Task) -> Result<()> {
        let contender = &mut self.contenders[number];
        let rests = task.flow == Flow::Rest;
        if !rests {
            contender.prepare(task, Side::Server)?;
        }
        let before = Usage::now()?;
        self.control.send(&Answer::Ready)?;
        if task.computes.is_some() {
            self.control.compute()?;
        } else if !rests {
            contender.serve(task)?;
        }
        let ask = self.control.receive(PATIENCE)?;
        ensure!(matches!(ask, Some(Ask::Finish)), "the client has gone in the middle of a round");
        let usage = Usage::now()? - before;
        if !rests {
            contender.verify(task, Side::Server)?;
        }
        let ways = contender.ways();
        self.control.send(&Answer::Done(usage, ways))
    }

    /// Does nothing for a while, and says what that cost.
    fn rest(&mut self, number: usize, time: Duration) -> Result<()> {
        let contender = self.contenders.get_mut(number).context("no such contender")?;
        let before = Usage::now()?;
        std::thread::sleep(time.min(GREETING));
        let usage = Usage::now()? - before;
        self.control.send(&Answer::Rested(usage, contender.idle()))
    }
}
