// SPDX-License-Identifier: MIT OR Apache-2.0

//! Runs one episode and says what came of it.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::faults::{Allows, Fault, SILENCE};
use super::plan::Episode;
use super::resident::Resident;
use super::table::Outcome;
use super::traffic::{self, PROGRAMS, Traffic};
use super::wire::Wire;
use crate::programs::clock;
use crate::programs::lab::{Lane, Side};
use crate::programs::process::Process;
use crate::programs::table::{Personality, Topology};

/// The time that no process exceeds, under any load and weather; `traffic` itself gives up after a
/// minute without progress.
const LIMIT: Duration = Duration::from_secs(150);
/// The time within which an end has noticed that the other is gone, including
/// `IWARP_USER_TIMEOUT_MS`.
const NOTICED: Duration = Duration::from_secs(60);
/// Lines that a process has no reason to exceed.
const CHATTER: usize = 400;

/// The hosts between which episodes take place.
pub(super) struct Stage<'a> {
    pub(super) lane: &'a Lane,
    pub(super) wire: &'a Wire,
}

/// One of the processes of an episode.
struct Player {
    who: &'static str,
    process: Process,
    output: PathBuf,
}

impl Stage<'_> {
    /// Runs it, and once more if its program measures something and could not. Problems of its own
    /// making are errors, what the programs do is in the outcome.
    pub(super) fn run(&self, episode: &Episode, residents: &mut [Resident]) -> Result<Outcome> {
        let measures = episode.traffic.measures();
        let attempt = || self.attempt(episode, residents);
        clock::repeated(measures, attempt, |outcome, measurement| {
            let failed = outcome.as_ref().is_ok_and(|outcome| !outcome.problems.is_empty());
            failed && measurement.is_refused([Side::Server, Side::Client].map(|s| self.output(s)))
        })
    }

    fn attempt(&self, episode: &Episode, residents: &mut [Resident]) -> Result<Outcome> {
        // A port that was closed lingers; no later episode is to meet it.
        let port = 20_000 + (episode.number % 20_000) as u16;
        let resident = residents.iter_mut().find(|resident| {
            let roce = resident.port == 7002;
            roce == (episode.personality == Personality::Roce)
        });
        let resident = resident.filter(|_| matches!(episode.traffic, Traffic::Resident { .. }));
        self.wire.clear()?;
        let mut server = match episode.traffic.server(port) {
            Some(text) => Some(self.start(episode, Side::Server, &text)?),
            None => None,
        };
        if let Some(server) = &mut server {
            server.process.listens(port, Instant::now() + Duration::from_secs(30))?;
        }
        episode.fault.prepare(self.wire)?;
        let port = resident.as_ref().map_or(port, |resident| resident.port);
        let text = episode.traffic.client(port, episode.seed);
        let mut client = self.start(episode, Side::Client, &text)?;
        client.process.ends(Instant::now() + episode.after);
        let struck = match (&resident, &server) {
            (Some(resident), _) => Some(resident.process()),
            (None, server) => server.as_ref().map(|server| &server.process),
        };
        episode.fault.strike(self.wire, struck, &mut client.process)?;

        let mut outcome = Outcome::default();
        let limit = if self.ends_soon(episode) { NOTICED } else { LIMIT };
        let status = client.process.ends(Instant::now() + limit);
        self.judge(episode, &client, Side::Client, status, &mut outcome);
        if let Traffic::Crowd { .. } = episode.traffic {
            self.one_more(episode, port, &mut outcome)?;
        }
        if let Some(mut server) = server {
            let status = self.await_server(episode, &mut server);
            if let Some(status) = status {
                self.judge(episode, &server, Side::Server, status, &mut outcome);
            } else {
                judge_text(&server, &mut outcome);
            }
        }
        if let (Some(resident), Traffic::Resident { threads, .. }) = (resident, &episode.traffic)
            && episode.fault.allows() == Allows::Errors
        {
            resident.excused += threads;
        }
        self.wire.clear()?;
        if let Traffic::Program(number) = episode.traffic
            && outcome.expected == 0
            && outcome.problems.is_empty()
        {
            outcome.sent = PROGRAMS[number].sent;
            outcome.verified = PROGRAMS[number].verified;
        }
        Ok(outcome)
    }

    /// After a crowd there is room for everybody again.
    fn one_more(&self, episode: &Episode, port: u16, outcome: &mut Outcome) -> Result<()> {
        let calm = Episode {
            traffic: Traffic::Own { threads: 1, rounds: 100 },
            fault: Fault::None,
            ..episode.clone()
        };
        let text = calm.traffic.client(port, episode.seed);
        let mut client = self.start(&calm, Side::Client, &text)?;
        let status = client.process.ends(Instant::now() + LIMIT);
        self.judge(&calm, &client, Side::Client, status, outcome);
        Ok(())
    }

    /// True if the fault ends the connection at once or not at all.
    fn ends_soon(&self, episode: &Episode) -> bool {
        matches!(episode.fault, Fault::Lost | Fault::Reset(_) | Fault::Kill(_))
    }

    /// The end of a server that does so by itself. Others are looked after: they must not end, and
    /// one of ours must have noticed that its clients are gone and serve the next.
    fn await_server(&self, episode: &Episode, server: &mut Player) -> Option<Option<ExitStatus>> {
        if episode.fault == Fault::Kill(Side::Server) {
            return Some(server.process.ends(Instant::now() + LIMIT));
        }
        if episode.traffic.server_ends() {
            // A server whose client was killed may wait for ever for what it says by TCP.
            if episode.fault == Fault::Kill(Side::Client) {
                return None;
            }
            return Some(server.process.ends(Instant::now() + LIMIT));
        }
        if let Ok(Some(status)) = server.process.0.try_wait() {
            return Some(Some(status));
        }
        None
    }

    /// The file for what an end says.
    fn output(&self, side: Side) -> PathBuf {
        self.lane.directory().join(format!("{}.txt", name(side)))
    }

    fn start(&self, episode: &Episode, side: Side, text: &str) -> Result<Player> {
        let who = name(side);
        let output = self.output(side);
        // The last one's was read.
        let _ = fs::remove_file(&output);
        let mut command = self.lane.command(side);
        command.envs(SILENCE);
        if let (Traffic::Crowd { files, .. }, true) =
            (&episode.traffic, episode.fault == Fault::Files(side))
        {
            command.arg("prlimit").arg(format!("--nofile={files}:{files}"));
        }
        if let Some(own) = text.strip_prefix("iwarp ") {
            command.arg(self.lane.iwarp()).args(self.addressed(own));
        } else {
            self.lane.run_with(&mut command, episode.personality, &[], Topology::Network, text);
        }
        let process = Process(self.lane.spawn(&mut command, &output).context(text.to_owned())?);
        Ok(Player { who, process, output })
    }

    fn addressed(&self, text: &str) -> Vec<String> {
        let server = self.lane.address(Side::Server, Topology::Network);
        text.split_whitespace().map(|word| word.replace("SERVER", server)).collect()
    }

    /// Judges how a process ended, and counts what it moved.
    fn judge(
        &self,
        episode: &Episode,
        player: &Player,
        side: Side,
        status: Option<ExitStatus>,
        outcome: &mut Outcome,
    ) {
        let killed = episode.fault == Fault::Kill(side);
        let may_fail = episode.fault.allows() == Allows::Errors;
        match status {
            None => {
                let state = state_of(player.process.0.id());
                outcome.problems.push(format!("the {} does not end\n{state}", player.who));
            }
            Some(status) if status.success() => {}
            Some(status) if killed && status.signal() == Some(9) => outcome.expected += 1,
            Some(status) if may_fail && status.code().is_some_and(|code| code < 125) => {
                outcome.expected += 1;
            }
            Some(status) => outcome.problems.push(format!("the {} fails: {status}", player.who)),
        }
        judge_text(player, outcome);
        if side == Side::Client {
            let text = text_of(&player.output);
            let said = traffic::said(&text);
            outcome.messages += said.messages;
            outcome.sent += said.octets;
            outcome.verified += said.octets;
        }
    }
}

fn name(side: Side) -> &'static str {
    match side {
        Side::Server => "server",
        Side::Client => "client",
    }
}

/// Reports output of a process that no fault explains.
fn judge_text(player: &Player, outcome: &mut Outcome) {
    let text = text_of(&player.output);
    if let Some(line) = traffic::suspicious(&text) {
        outcome.problems.push(format!("the {} says: {line}", player.who));
    }
    let lines = text.lines().count();
    if lines > CHATTER {
        outcome.problems.push(format!("the {} says {lines} lines", player.who));
    }
    if !outcome.problems.is_empty() {
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        let last = &lines[lines.len().saturating_sub(10)..];
        let last: Vec<String> = last.iter().map(|l| format!("    {}: {l}", player.who)).collect();
        outcome.problems.push(last.join("\n"));
    }
}

fn text_of(output: &Path) -> String {
    String::from_utf8_lossy(&fs::read(output).unwrap_or_default()).into_owned()
}

/// The state of the threads of a process that does not end.
fn state_of(pid: u32) -> String {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let read = |path: PathBuf| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let states = tasks.take(20).map(|task| {
        let [name, wait, call] =
            ["comm", "wchan", "syscall"].map(|file| read(task.path().join(file)));
        format!("    {name}: {wait}, system call {call}")
    });
    states.collect::<Vec<_>>().join("\n")
}
