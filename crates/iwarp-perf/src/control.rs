// SPDX-License-Identifier: MIT OR Apache-2.0

//! The control protocol: lines of JSON over a TCP connection of its own, by which the client tells
//! the server everything that is to be done.
//!
//! The first line of either end says the version; nothing else is looked at before. Every wait has
//! a deadline, and what is not understood ends the connection with a reason.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::args::TESTS;
use super::cpu::Usage;
use super::patience::wait_for;
use super::process_vm::Shown;
use super::task::{Idle, Spec, Task};
use super::ways::Ways;

/// Version of the protocol and of what a [`Task`] means.
pub(super) const VERSION: u32 = 1;
/// TCP port of a server where none is given.
pub(super) const PORT: u16 = 18_516;
/// A line that is longer is none of ours.
const LONGEST: usize = 1 << 20;
/// The time that the other end may take for its next line, the longest round included.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// The time that connecting may take, and the first line.
pub(super) const GREETING: Duration = Duration::from_secs(10);
/// The time that a server may take to say what went wrong.
const EXPLANATION: Duration = Duration::from_secs(2);

/// The first line of either end.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub(super) struct Hello {
    /// [`VERSION`] of the sender.
    pub(super) iwarp_perf: u32,
    /// Version of the command.
    pub(super) version: String,
    /// Number of the process.
    pub(super) process: u32,
    /// CPUs that the sender wants the server to run on; none: as it is.
    #[serde(default)]
    pub(super) cpus: Vec<usize>,
    /// The reason why there will be no second line.
    #[serde(default)]
    pub(super) refused: Option<String>,
}

impl Hello {
    pub(super) fn new(cpus: &[usize]) -> Self {
        Self {
            iwarp_perf: VERSION,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            process: std::process::id(),
            cpus: cpus.to_vec(),
            refused: None,
        }
    }

    /// Fails if the other end refuses, or speaks another version.
    fn check(&self) -> Result<()> {
        if let Some(why) = &self.refused {
            bail!("the other end refuses: {why}");
        }
        ensure!(
            self.iwarp_perf == VERSION,
            "the other end (iwarp {}) speaks version {} of the perf protocol, this one (iwarp {}) \
             version {VERSION}: use the same release on both",
            self.version,
            self.iwarp_perf,
            env!("CARGO_PKG_VERSION"),
        );
        Ok(())
    }
}

/// A question of the client's.
#[derive(Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
pub(super) enum Ask {
    /// Make a contender; answered by [`Answer::Listening`], then, when its connections are there,
    /// by [`Answer::Connected`]. A yardstick has none: [`Answer::Shown`].
    Make(Spec),
    /// Get ready for a round of the contender with this number: [`Answer::Ready`]. Then do it.
    Round(usize, Task),
    /// The round is over here: [`Answer::Done`] when it is over there and verified.
    Finish,
    /// Do nothing for that time, then report the cost of a contender's idle connections:
    /// [`Answer::Rested`].
    Rest(usize, Duration),
    /// Have a task of the lowest priority run on this CPU from now on, or none: [`Answer::Ready`].
    Background(Option<usize>),
    /// Drop all contenders: [`Answer::Ready`].
    Clear,
}

/// An answer of the server's.
#[derive(Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
pub(super) enum Answer {
    /// The contender listens at this port.
    Listening(u16),
    /// All connections of the contender are up; the congestion control of its end.
    Connected(Option<String>),
    /// The server's memory for a yardstick, if it takes any.
    Shown(Option<Shown>),
    /// Go ahead.
    Ready,
    /// The cost of the round, between ready and done, and the ways of its connections at its end.
    Done(Usage, Ways),
    /// The cost of that.
    Rested(Usage, Option<Idle>),
    /// It did not work; the connection is over.
    Failed(String),
}

/// One end of a control connection.
#[derive(Debug)]
pub(super) struct Control {
    stream: TcpStream,
    pending: Vec<u8>,
}

impl Control {
    /// Connects to a server.
    pub(super) fn connect(host: &str, port: u16) -> Result<Self> {
        let addrs: Vec<SocketAddr> = (host, port)
            .to_socket_addrs()
            .with_context(|| {
                format!("{host} is neither a test nor a known host. Tests are {TESTS}")
            })?
            .collect();
        let mut last = None;
        for addr in addrs {
            match TcpStream::connect_timeout(&addr, GREETING) {
                Ok(stream) => return Self::new(stream),
                Err(error) => last = Some(error),
            }
        }
        let error = last.unwrap_or_else(|| io::ErrorKind::AddrNotAvailable.into());
        Err(error).with_context(|| {
            format!("cannot reach {host} port {port}; is `iwarp perf --server` running there?")
        })
    }

    pub(super) fn new(stream: TcpStream) -> Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(GREETING))?;
        Ok(Self { stream, pending: Vec::new() })
    }

    /// The address at which the server is reached.
    pub(super) fn peer_ip(&self) -> Result<IpAddr> {
        Ok(self.stream.peer_addr()?.ip())
    }

    /// The address by which this end is reached.
    pub(super) fn local_ip(&self) -> Result<IpAddr> {
        // A server that listens on all addresses is reached by IPv4 at a mapped one.
        Ok(self.stream.local_addr()?.ip().to_canonical())
    }

    /// Says hello and hears who the other end is.
    pub(super) fn greet(&mut self, hello: &Hello) -> Result<Hello> {
        self.send(hello)?;
        let theirs: Hello = self
            .receive(GREETING)
            .context("the other end is not an `iwarp perf`")?
            .context("the other end hung up at once; is it an `iwarp perf --server`?")?;
        theirs.check()?;
        Ok(theirs)
    }

    /// Hears who a client is and answers, as a server: one that it cannot serve is told why.
    pub(super) fn greeted(&mut self) -> Result<Option<Hello>> {
        let heard = self
            .receive::<Hello>(GREETING)
            .and_then(|hello| hello.map(|hello| hello.check().map(|()| hello)).transpose());
        let refused = heard.as_ref().err().map(|error| format!("{error:#}"));
        let answered = self.send(&Hello { refused, ..Hello::new(&[]) });
        let heard = heard.context("the client cannot be understood")?;
        answered?;
        Ok(heard)
    }

    /// Sends one line.
    pub(super) fn send(&mut self, message: &impl Serialize) -> Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        self.stream.write_all(&line).context("the control connection broke")
    }

    /// Receives one line; `None` when the other end has hung up instead.
    pub(super) fn receive<T: DeserializeOwned>(&mut self, patience: Duration) -> Result<Option<T>> {
        let Some(line) = self.line(patience)? else { return Ok(None) };
        let message = serde_json::from_slice(&line).with_context(|| {
            let shown: String = String::from_utf8_lossy(&line).chars().take(60).collect();
            format!("not understood: {shown:?}")
        })?;
        Ok(Some(message))
    }

    fn line(&mut self, patience: Duration) -> Result<Option<Vec<u8>>> {
        let deadline = Instant::now() + patience;
        let mut looked_at = 0;
        loop {
            if let Some(end) = self.pending[looked_at..].iter().position(|&octet| octet == b'\n') {
                let rest = self.pending.split_off(looked_at + end + 1);
                return Ok(Some(std::mem::replace(&mut self.pending, rest)));
            }
            looked_at = self.pending.len();
            ensure!(looked_at <= LONGEST, "not understood: an endless line");
            let left = deadline.saturating_duration_since(Instant::now());
            ensure!(!left.is_zero(), "no answer within {patience:?}");
            self.stream.set_read_timeout(Some(left))?;
            let mut block = [0; 4096];
            match self.stream.read(&mut block) {
                Ok(0) if self.pending.is_empty() => return Ok(None),
                Ok(0) => bail!("not understood: {} bytes without a line", self.pending.len()),
                Ok(n) => self.pending.extend_from_slice(&block[..n]),
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                    ) => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
                Err(error) => return Err(error).context("the control connection broke"),
            }
        }
    }

    /// Asks the server.
    pub(super) fn ask(&mut self, ask: &Ask) -> Result<Answer> {
        self.send(ask)?;
        self.answer()
    }

    /// The server's next answer; its failure is an error here.
    pub(super) fn answer(&mut self) -> Result<Answer> {
        match self.receive(PATIENCE)?.context("the server has gone")? {
            Answer::Failed(why) => bail!("the server: {why}"),
            answer => Ok(answer),
        }
    }

    /// Computes until there is something to receive.
    pub(super) fn compute(&self) -> Result<()> {
        /// Between two looks, some 100 µs.
        const STEPS: u32 = 50_000;
        let mut number: u64 = 1;
        while !wait_for(&self.stream, Duration::ZERO)? {
            for _ in 0..STEPS {
                number = std::hint::black_box(number.rotate_left(7).wrapping_mul(0x9e37_79b9));
            }
        }
        Ok(())
    }

    /// The server's word on a failure at this end, if it still can say one.
    pub(super) fn explain(&mut self, error: anyhow::Error) -> anyhow::Error {
        match self.receive(EXPLANATION) {
            Ok(Some(Answer::Failed(why))) => error.context(format!("the server: {why}")),
            Ok(None) => error.context("the server has gone"),
            _ => error,
        }
    }
}

/// The error for an answer that was not expected.
pub(super) fn unexpected<T>(answer: &Answer) -> Result<T> {
    bail!("the server answers out of turn: {answer:?}")
}
