// SPDX-License-Identifier: MIT OR Apache-2.0

//! A program that was started: its readiness, its work and its end can be waited for.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process_group};

/// Bytes that no program sends before it is at work.
const AT_WORK: u64 = 50_000_000;
/// RoCE v2's UDP port.
pub(super) const ROCE: u16 = 4791;
/// The interval between two looks while waiting.
pub(crate) const LOOK: Duration = Duration::from_millis(4);

/// A program, with all that it started; killed when this goes.
pub(crate) struct Process(pub(crate) Child);

impl Process {
    /// Waits until the server listens at `port` of its host; where that is RoCE v2's, by UDP.
    pub(crate) fn listens(&mut self, port: u16, deadline: Instant) -> Result<()> {
        // Local address and port are the second word, the state the fourth; 0A is LISTEN
        // (proc_net_tcp.txt of the kernel), and 07 a UDP socket without a peer.
        let (files, state) = match port {
            ROCE => (["net/udp", "net/udp6"], "07"),
            _ => (["net/tcp", "net/tcp6"], "0A"),
        };
        let suffix = format!(":{port:04X}");
        let listening = |line: &str| {
            let mut words = line.split_whitespace().skip(1);
            words.next().is_some_and(|local| local.ends_with(&suffix))
                && words.nth(1) == Some(state)
        };
        loop {
            let tables = files.map(|file| self.proc().join(file));
            let read = |table| fs::read_to_string(table).unwrap_or_default();
            if self.has_arrived()
                && tables.into_iter().any(|table| read(table).lines().any(listening))
            {
                return Ok(());
            }
            if let Some(status) = self.0.try_wait()? {
                bail!("the server ends before it listens: {status}");
            }
            ensure!(Instant::now() < deadline, "the server does not listen at port {port}");
            thread::sleep(LOOK);
        }
    }

    /// Waits until its host has sent so much that it must be at work.
    pub(crate) fn is_at_work(&mut self, deadline: Instant) -> Result<()> {
        let table = self.proc().join("net/dev");
        let mut before: Option<u64> = None;
        loop {
            // Of a network interface's numbers, the ninth is what it has sent (proc(5)).
            let table = fs::read_to_string(&table).unwrap_or_default();
            let numbers = table.lines().find_map(|line| line.trim().strip_prefix("eth0:"));
            let sent = numbers.and_then(|numbers| numbers.split_whitespace().nth(8)?.parse().ok());
            if self.has_arrived()
                && let Some(sent) = sent
                && sent > *before.get_or_insert(sent) + AT_WORK
            {
                return Ok(());
            }
            if let Some(status) = self.0.try_wait()? {
                bail!("the client ends before it is at work: {status}");
            }
            ensure!(Instant::now() < deadline, "the client never gets to work");
            thread::sleep(LOOK);
        }
    }

    pub(crate) fn proc(&self) -> PathBuf {
        Path::new("/proc").join(self.0.id().to_string())
    }

    /// True if it is on its host: at first it is in this program's network.
    pub(crate) fn has_arrived(&self) -> bool {
        fs::read_link(self.proc().join("ns/net")).ok() != fs::read_link("/proc/self/ns/net").ok()
    }

    /// Waits until it ends, but not past the deadline.
    pub(crate) fn ends(&mut self, deadline: Instant) -> Option<ExitStatus> {
        loop {
            if let Ok(Some(status)) = self.0.try_wait() {
                return Some(status);
            }
            if Instant::now() > deadline {
                return None;
            }
            thread::sleep(LOOK);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(group) = Pid::from_raw(self.0.id() as i32) {
            // Processes that it started may outlive it; nothing else has this group while it is not
            // reaped, and after that only its own children.
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.0.wait();
    }
}
