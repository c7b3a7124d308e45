//! Runs one row and says whether it works.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process_group};

use super::lab::{Lane, Side};
use super::table::{Expect, Loss, Place, Row};

/// How long a program may take to say no.
const AT_ONCE: Duration = Duration::from_secs(8);
/// Octets that no program sends before it is at work.
const AT_WORK: u64 = 50_000_000;
/// How often is looked whether something is so.
const LOOK: Duration = Duration::from_millis(4);

/// Runs both commands of a row.
///
/// # Errors
///
/// Why it does not work, with what the programs said.
pub(crate) fn run(lane: &Lane, row: &Row, place: Place) -> Result<()> {
    let (server_says, client_says) =
        (lane.directory().join("server.txt"), lane.directory().join("client.txt"));
    for file in [&server_says, &client_says] {
        let _ = fs::remove_file(file);
    }
    let result = attempt(lane, row, place, &server_says, &client_says);
    lane.sweep();
    result.map_err(|error| {
        let mut text = format!("{error:#}");
        for (who, file) in [("server", &server_says), ("client", &client_says)] {
            let said = fs::read(file).unwrap_or_default();
            let said = String::from_utf8_lossy(&said).into_owned();
            let lines: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
            for line in &lines[lines.len().saturating_sub(12)..] {
                text.push_str(&format!("\n    {who}: {line}"));
            }
        }
        anyhow::anyhow!(text)
    })
}

fn attempt(
    lane: &Lane,
    row: &Row,
    place: Place,
    server_says: &Path,
    client_says: &Path,
) -> Result<()> {
    let limit = match row.expect {
        Expect::Refusal(_) => AT_ONCE,
        Expect::Success(_) | Expect::Loss(..) => Duration::from_secs(row.limit),
    };
    let deadline = Instant::now() + limit;
    let mut server = None;
    if !row.server.is_empty() {
        let started = server.insert(Process(lane.start(row, place, Side::Server, server_says)?));
        started.listens(row.port, deadline)?;
    }
    let mut client = Process(lane.start(row, place, Side::Client, client_says)?);
    let (mut deadline, mut status) = (deadline, None);
    if let Expect::Loss(how, within, _) = row.expect {
        client.is_at_work(deadline)?;
        match how {
            Loss::Killed => drop(server.take()),
            Loss::Silent => lane.unplug()?,
        }
        deadline = Instant::now() + within;
        status = client.ends(deadline);
        lane.plug()?;
        ensure!(status.is_some(), "the client does not notice in {within:?}");
    }
    let status = status.or_else(|| client.ends(deadline));
    let said = fs::read_to_string(client_says).unwrap_or_default();
    let text = match row.expect {
        Expect::Refusal(text) | Expect::Loss(_, _, text) => {
            ensure!(status.is_some(), "the program neither works nor says no");
            ensure!(status.is_some_and(|status| !status.success()), "the program does not say no");
            text
        }
        Expect::Success(text) => {
            let Some(status) = status else { bail!("the client does not end in {limit:?}") };
            ensure!(status.success(), "the client fails: {status}");
            text
        }
    };
    ensure!(said.contains(text), "the client does not say \"{}\"", text.escape_debug());
    let own_end = matches!(row.expect, Expect::Success(_)) && !row.server_stays;
    let Some(mut server) = server.filter(|_| own_end) else { return Ok(()) };
    match server.ends(deadline) {
        None => bail!("the server does not end in {limit:?}"),
        Some(status) => ensure!(status.success(), "the server fails: {status}"),
    }
    Ok(())
}

/// A program, with all that it started; killed when this goes.
pub(crate) struct Process(pub(crate) Child);

impl Process {
    /// Waits until the server listens at `port` of its host.
    fn listens(&mut self, port: u16, deadline: Instant) -> Result<()> {
        // Local address and port are the second word, the state the fourth; 0A is LISTEN
        // (proc_net_tcp.txt of the kernel).
        let suffix = format!(":{port:04X}");
        let listening = |line: &str| {
            let mut words = line.split_whitespace().skip(1);
            words.next().is_some_and(|local| local.ends_with(&suffix)) && words.nth(1) == Some("0A")
        };
        loop {
            let tables = ["net/tcp", "net/tcp6"].map(|file| self.proc().join(file));
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
    fn is_at_work(&mut self, deadline: Instant) -> Result<()> {
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

    fn proc(&self) -> PathBuf {
        Path::new("/proc").join(self.0.id().to_string())
    }

    /// Whether it is on its host: at first it is where this program is.
    fn has_arrived(&self) -> bool {
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
            // What it started may outlive it; nothing else has this group while it is not reaped,
            // and after that only its own children.
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.0.wait();
    }
}
