// SPDX-License-Identifier: MIT OR Apache-2.0

//! A process's answer to the question what it is doing, and what the system tells of it.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use iwarp_os::questions::{Answering, answering, ask};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::tell;
use super::times::Times;

/// The time for which a process may not answer: its worker may wait for a CPU.
const PATIENCE: Duration = Duration::from_secs(2);
/// Seconds for which a process can be watched.
const LONGEST: u64 = 7200;

/// A process that has a device.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) pid: u32,
    pub(super) user: u32,
    /// The name of its program.
    pub(super) name: String,
    /// The system has stopped it: by a signal, or for a debugger.
    pub(super) is_stopped: bool,
    pub(super) answer: io::Result<Facts>,
}

/// Its answer.
#[derive(Clone, PartialEq, Eq, Default, Debug, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct Facts {
    pub(super) version: String,
    pub(super) qp: Vec<QueuePair>,
    pub(super) cq: Vec<CompletionQueue>,
    pub(super) srq: Vec<SharedReceives>,
    pub(super) cm_id: Vec<Id>,
    pub(super) call: Vec<Call>,
    pub(super) device: Vec<Device>,
}

/// A device as the program has opened it.
#[derive(Clone, PartialEq, Eq, Default, Debug, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct Device {
    pub(super) name: String,
    /// `up`, or `down` on purpose.
    pub(super) link: String,
}

#[derive(Clone, PartialEq, Eq, Default, Debug, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct QueuePair {
    pub(super) number: u64,
    pub(super) device: String,
    pub(super) r#type: String,
    pub(super) state: String,
    pub(super) wire: String,
    pub(super) send_cq: u64,
    pub(super) recv_cq: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) srq: Option<u64>,
    /// Send work requests that have not completed, and as many as may be.
    pub(super) sends: u64,
    pub(super) depth: u64,
    /// Receives that have not completed.
    pub(super) receives: u64,
    pub(super) connected: bool,
    /// Send work requests that have ended, and messages that have come.
    pub(super) ended: u64,
    /// Bytes of the payloads of all send work requests that were posted.
    pub(super) octets: u64,
    pub(super) arrivals: u64,
    /// Messages wait for receives.
    pub(super) parked: bool,
    pub(super) stalled: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) oldest: Option<Oldest>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) held: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) stream: Option<Stream>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) packets: Option<Packets>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) counters: Option<serde_json::Map<String, Value>>,
    /// Of requests since somebody watches.
    #[serde(skip_serializing_if = "Times::is_empty")]
    pub(super) times: Times,
}

/// The oldest send work request that has not ended.
#[derive(Clone, PartialEq, Eq, Default, Debug, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct Oldest {
    pub(super) wr_id: u64,
    pub(super) op: String,
    pub(super) bytes: u64,
    pub(super) awaits: String,
    pub(super) tries: u64,
}

/// The stream of an iWARP connection.
#[derive(Clone, PartialEq, Eq, Default, Debug, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct Stream {
    pub(super) local: Option<SocketAddr>,
    pub(super) peer: Option<SocketAddr>,
    pub(super) path: String,
    /// It takes no more bytes.
    pub(super) full: bool,
    pub(super) read_stalled: bool,
    pub(super) read_ended: bool,
    pub(super) write_ended: bool,
    pub(super) direct_reads: u64,
    pub(super) direct_writes: u64,
    pub(super) unacknowledged: Option<u64>,
    pub(super) retransmits: Option<u64>,
    pub(super) window_probes: Option<u64>,
    pub(super) last_ack_ms: Option<u64>,
    pub(super) last_data_ms: Option<u64>,
}

/// The way of RoCE's packets.
#[derive(Clone, PartialEq, Eq, Default, Debug, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct Packets {
    pub(super) local: String,
    pub(super) peer: String,
    pub(super) peer_qp: u64,
    pub(super) mtu: u64,
}

#[derive(Clone, PartialEq, Eq, Default, Debug, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct CompletionQueue {
    pub(super) number: u64,
    pub(super) depth: u64,
    /// Completions that the program has not polled.
    pub(super) waiting: u64,
    /// `no`, `solicited` or `next`.
    pub(super) armed: String,
    pub(super) overrun: bool,
    pub(super) polls: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) channel: Option<Channel>,
}

/// A completion channel.
#[derive(Clone, PartialEq, Eq, Default, Debug, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct Channel {
    /// Events that the program has not taken.
    pub(super) events: u64,
    /// Threads of the program wait for events in a call of the library.
    pub(super) blocks: bool,
}

#[derive(Clone, PartialEq, Eq, Default, Debug, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct SharedReceives {
    pub(super) number: u64,
    pub(super) depth: u64,
    pub(super) posted: u64,
    /// Queue pairs with messages that wait for receives.
    pub(super) waiting: u64,
    pub(super) limit: u64,
}

#[derive(Clone, PartialEq, Eq, Default, Debug, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct Id {
    pub(super) number: u64,
    pub(super) local: Option<SocketAddr>,
    pub(super) peer: Option<SocketAddr>,
    pub(super) state: String,
    pub(super) datagrams: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) qp: Option<u64>,
}

/// A call of the program that waits for something that the program itself has to do.
#[derive(Clone, PartialEq, Eq, Default, Debug, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct Call {
    pub(super) number: u64,
    pub(super) waits: String,
}

/// The one of that number, or all that this user may ask.
fn chosen(pid: Option<u32>) -> Result<BTreeSet<Answering>> {
    Ok(match pid {
        None => answering(),
        Some(pid) => [tell::find(pid)?].into(),
    })
}

impl Process {
    /// All that this user may ask.
    pub(super) fn all() -> Vec<Self> {
        Self::each(answering(), Self::of)
    }

    /// The one of that number.
    pub(super) fn find(pid: u32) -> Result<Self> {
        Ok(Self::of(tell::find(pid)?))
    }

    /// The one of that number, or all that this user may ask.
    pub(super) fn wanted(pid: Option<u32>) -> Result<Vec<Self>> {
        Ok(Self::each(chosen(pid)?, Self::of))
    }

    /// As [`Self::wanted`]; they take the times of their requests from now on, for so long.
    pub(super) fn watched(pid: Option<u32>, time: Duration) -> Result<Vec<Self>> {
        let wish = format!("watch {}", time.as_secs().clamp(1, LONGEST));
        Ok(Self::each(chosen(pid)?, |one| {
            let process = Self::of(one);
            if process.answer.is_ok() {
                // One with an older library has no times.
                let _ = ask(one, &wish, PATIENCE);
            }
            process
        }))
    }

    /// Asks all at once: some may not answer.
    fn each(all: BTreeSet<Answering>, ask: impl Fn(Answering) -> Self + Sync) -> Vec<Self> {
        let ask = &ask;
        thread::scope(|scope| {
            let asked: Vec<_> = all.into_iter().map(|one| scope.spawn(move || ask(one))).collect();
            asked.into_iter().filter_map(|asked| asked.join().ok()).collect()
        })
    }

    fn of(one: Answering) -> Self {
        let Answering { process, user } = one;
        let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
        let line = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            Some(line.trim().to_owned())
        };
        let state = line("State:").unwrap_or_default();
        let is_stopped = state.starts_with(['T', 't']);
        // One that is stopped answers when it goes on.
        let patience = if is_stopped { Duration::from_millis(10) } else { PATIENCE };
        let answer = ask(one, "describe", patience).and_then(|text| {
            let wrong = |error| io::Error::new(io::ErrorKind::InvalidData, error);
            let mut answer = serde_json::from_str(&text).map_err(wrong)?;
            printable(&mut answer);
            serde_json::from_value(answer).map_err(wrong)
        });
        let name = line("Name:").unwrap_or_else(|| "?".to_owned());
        let name = name.replace(char::is_control, "?");
        Self { pid: process, user, name, is_stopped, answer }
    }

    /// Asks once more.
    pub(super) fn again(&self) -> Self {
        Self::of(Answering { process: self.pid, user: self.user })
    }

    /// Its facts, if it has answered.
    pub(super) fn facts(&self) -> Option<&Facts> {
        self.answer.as_ref().ok()
    }
}

/// Takes out what a terminal would act on: the process may be another user's.
fn printable(value: &mut Value) {
    match value {
        Value::String(text) => *text = text.replace(char::is_control, "?"),
        Value::Array(list) => list.iter_mut().for_each(printable),
        Value::Object(members) => members.values_mut().for_each(printable),
        _ => {}
    }
}

/// The reason why a process has no answer, for people.
pub(super) fn silence(process: &Process, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "has ended".to_owned(),
        _ if process.is_stopped => {
            "is stopped, by a signal or by a debugger (kill -CONT lets it go on)".to_owned()
        }
        io::ErrorKind::TimedOut => {
            "does not answer within 2 s: its worker thread gets no CPU, or is stopped".to_owned()
        }
        io::ErrorKind::PermissionDenied => {
            "does not answer: another user has taken its name, or too many ask at a time".to_owned()
        }
        _ => format!("cannot be asked: {error}"),
    }
}
