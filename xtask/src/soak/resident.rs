// SPDX-License-Identifier: MIT OR Apache-2.0

//! `traffic` processes that live as long as the soak.

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};

use super::faults::SILENCE;
use super::traffic::{self, Said};
use super::watch::Watch;
use crate::programs::lab::{Lane, Side};
use crate::programs::process::Process;
use crate::programs::table::{Personality, Topology};

/// Of connections that speak RoCE v2 on a network that loses packets: an answer is waited for 33 ms
/// at first (`RDMA_OPTION_ID_ACK_TIMEOUT`), so that most of the time packets are on their way.
pub(super) const ROUGH: [(&str, &str); 2] = [("IWARP_WIRE", "roce"), ("ACK_TIMEOUT", "13")];

/// Lines besides those for connections that are too many.
const CHATTER: usize = 2000;

pub(super) struct Resident {
    pub(super) name: String,
    pub(super) port: u16,
    process: Process,
    output: PathBuf,
    watch: Arc<Mutex<Watch>>,
    /// The number of its connections that faults gave the right to fail.
    pub(super) excused: u64,
}

impl Resident {
    /// Starts a server, which listens when this returns.
    pub(super) fn server(lane: &Lane, number: usize, personality: Personality) -> Result<Self> {
        let port = if personality == Personality::Roce { 7002 } else { 7001 };
        let name = format!("lane {number}, {personality:?} server");
        let command = format!("traffic serve SERVER {port}");
        let mut server =
            Self::start(lane, name, port, personality, Side::Server, &SILENCE, &command)?;
        server.process.listens(port, Instant::now() + Duration::from_secs(20))?;
        Ok(server)
    }

    /// Starts a client that connects, exchanges data and disconnects, again and again.
    pub(super) fn client(lane: &Lane, to: &Self, personality: Personality) -> Result<Self> {
        let name = to.name.replace("server", "client");
        let command = format!("traffic ask SERVER {} 1 3000 1 again", to.port);
        Self::start(lane, name, to.port, personality, Side::Client, &SILENCE, &command)
    }

    /// Starts a server of connections that speak RoCE v2. It listens when this returns.
    pub(super) fn rough_server(lane: &Lane) -> Result<Self> {
        let (name, port, kind) = ("server".to_owned(), 7002, Personality::Roce);
        let command = format!("traffic serve SERVER {port}");
        let mut server = Self::start(lane, name, port, kind, Side::Server, &ROUGH, &command)?;
        let deadline = Instant::now() + Duration::from_secs(20);
        // There is no port of TCP to look at.
        while !server.text().contains("listening") {
            ensure!(server.has_ended().is_none(), "no server:\n{}", server.text());
            ensure!(Instant::now() < deadline, "the server does not listen:\n{}", server.text());
            thread::sleep(Duration::from_millis(50));
        }
        Ok(server)
    }

    /// Starts a client of it, which connects on two threads again and again.
    pub(super) fn rough_client(lane: &Lane, to: &Self, number: usize, seed: u64) -> Result<Self> {
        let name = format!("client {number}");
        let seed = seed.wrapping_add((number as u64) << 32);
        let command = format!("traffic ask SERVER {} {seed} 100 2 again", to.port);
        Self::start(lane, name, to.port, Personality::Roce, Side::Client, &ROUGH, &command)
    }

    fn start(
        lane: &Lane,
        name: String,
        port: u16,
        personality: Personality,
        side: Side,
        environment: &[(&str, &str)],
        text: &str,
    ) -> Result<Self> {
        let output = lane.directory().join(format!("resident-{name}.txt").replace([' ', ','], "-"));
        let mut command = lane.command(side);
        command.envs(environment.iter().copied());
        lane.run_with(&mut command, personality, &[], Topology::Network, text);
        let process = Process(lane.spawn(&mut command, &output).context(name.clone())?);
        let watch = Arc::new(Mutex::new(Watch::new(process.0.id())));
        Ok(Self { name, port, process, output, watch, excused: 0 })
    }

    pub(super) fn process(&self) -> &Process {
        &self.process
    }

    pub(super) fn watch(&self) -> MutexGuard<'_, Watch> {
        self.watch.lock().expect("not poisoned")
    }

    /// For the thread that looks at all of them.
    pub(super) fn shared_watch(&self) -> Arc<Mutex<Watch>> {
        Arc::clone(&self.watch)
    }

    /// Waits until it holds no more than it needs to, unchanged for some looks.
    pub(super) fn settle(&self, limit: Duration) {
        let deadline = Instant::now() + limit;
        let want = self.watch().warm;
        while Instant::now() < deadline {
            thread::sleep(Duration::from_millis(250));
            let mut watch = self.watch();
            let Some(sample) = watch.look() else { return };
            let enough = want
                .is_none_or(|want| sample.files <= want.files && sample.threads <= want.threads);
            if enough && watch.is_settled() {
                break;
            }
        }
    }

    /// Notes its state when nothing is going on and some connections have been.
    pub(super) fn is_warm(&self) {
        self.settle(Duration::from_secs(15));
        let mut watch = self.watch();
        watch.warm = watch.samples.last().copied();
    }

    /// Has a client end after its present connection.
    pub(super) fn finish(&mut self, limit: Duration) -> Result<()> {
        let pid = Pid::from_raw(self.process.0.id() as i32).context("a process has a number")?;
        // Should it have ended already, this hits nothing else: it was not waited for.
        let _ = kill_process(pid, Signal::TERM);
        let status = self.process.ends(Instant::now() + limit);
        let status = status.with_context(|| format!("{}: does not end", self.name))?;
        ensure!(status.success(), "{}: {status}", self.name);
        Ok(())
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.output).unwrap_or_default()).into_owned()
    }

    pub(super) fn said(&self) -> Said {
        traffic::said(&self.text())
    }

    /// Everything about it that no fault explains.
    pub(super) fn problems(&self) -> Vec<String> {
        let mut found = Vec::new();
        let text = self.text();
        if let Some(line) = traffic::suspicious(&text) {
            found.push(line.to_owned());
        }
        let said = traffic::said(&text);
        let failed = said.ended + said.refused;
        if failed > self.excused {
            let excused = self.excused;
            found.push(format!("{failed} connections failed, of which faults explain {excused}"));
        }
        let connections = said.done + failed;
        if text.lines().count() > connections as usize + CHATTER {
            found.push(format!("{} lines of output", text.lines().count()));
        }
        found.extend(self.watch().growth());
        found.into_iter().map(|problem| format!("{}: {problem}", self.name)).collect()
    }

    /// The end of it, if it did.
    pub(super) fn has_ended(&mut self) -> Option<String> {
        let status = self.process.0.try_wait().ok()??;
        Some(format!("{}: ended: {status}", self.name))
    }
}
