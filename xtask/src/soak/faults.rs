// SPDX-License-Identifier: MIT OR Apache-2.0

//! The faults that hit the processes of an episode, and the errors that they explain.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use rustix::process::{Pid, Signal, kill_process_group};

use super::plan::Dice;
use super::traffic::Traffic;
use super::wire::Wire;
use crate::programs::lab::Side;
use crate::programs::process::Process;

/// The time within which silence is noticed, by the one that waits for acknowledgements as by the
/// one that has nothing to send: soon enough for a soak.
pub(super) const SILENCE: [(&str, &str); 2] =
    [("IWARP_USER_TIMEOUT_MS", "8000"), ("IWARP_KEEPALIVE_S", "4")];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    None,
    /// Packets are lost, late, doubled, out of order, or damaged so that TCP sees it.
    PacketFaults(Vec<(&'static str, u64)>),
    /// No packet passes for a while, which TCP and the connections survive.
    Cut(Duration),
    /// No packet passes any more.
    Lost,
    /// So many packets become resets.
    Reset(u64),
    /// Of a thousand packets so many have a wrong bit and right checksums of TCP and IP.
    Forged(u64),
    Kill(Side),
    /// Stopped for a while.
    Stop(Side, Duration),
    /// The process of that side may open few files.
    Files(Side),
}

/// The ends that a fault gives the right to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Allows {
    /// All that both ends do must succeed.
    Nothing,
    /// Either end may lose its connection, and has to say so in time.
    Errors,
}

impl Fault {
    pub(super) fn draw(dice: &mut Dice, traffic: &Traffic) -> Self {
        let side = dice.choose(&[Side::Server, Side::Client]);
        if let Traffic::Crowd { .. } = traffic {
            return Self::Files(side);
        }
        let fault = match dice.between(1, 100) {
            1..=15 => Self::None,
            16..=45 => Self::PacketFaults(weather(dice)),
            46..=55 => Self::Cut(Duration::from_millis(dice.between(50, 1500))),
            56..=58 => Self::Lost,
            59..=64 => Self::Reset(dice.between(1, 30)),
            65..=70 => Self::Forged(dice.between(1, 20)),
            71..=85 => Self::Kill(side),
            _ => {
                let most = if dice.of_a_hundred(25) { 12_000 } else { 1500 };
                Self::Stop(side, Duration::from_millis(dice.between(10, most)))
            }
        };
        if traffic.bears(&fault) { fault } else { Self::PacketFaults(weather(dice)) }
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::PacketFaults(_) => "weather",
            Self::Cut(_) => "cut",
            Self::Lost => "lost",
            Self::Reset(_) => "reset",
            Self::Forged(_) => "forged",
            Self::Kill(_) => "kill",
            Self::Stop(..) => "stop",
            Self::Files(_) => "files",
        }
    }

    /// In words, for the line of an episode.
    pub(super) fn told(&self) -> String {
        match self {
            Self::None => "no fault".to_owned(),
            Self::PacketFaults(weather) => {
                let words: Vec<_> = weather.iter().map(|(what, n)| format!("{what} {n}")).collect();
                words.join(", ")
            }
            Self::Cut(time) => format!("cut for {} ms", time.as_millis()),
            Self::Lost => "cut for good".to_owned(),
            Self::Reset(n) => format!("{n} resets"),
            Self::Forged(n) => format!("forged {n}"),
            Self::Kill(side) => format!("{} killed", told(*side)),
            Self::Stop(side, time) => {
                format!("{} stopped for {} ms", told(*side), time.as_millis())
            }
            Self::Files(side) => format!("{} short of descriptors", told(*side)),
        }
    }

    pub(super) fn allows(&self) -> Allows {
        match self {
            Self::None | Self::PacketFaults(_) | Self::Cut(_) | Self::Stop(..) => Allows::Nothing,
            Self::Lost | Self::Reset(_) | Self::Forged(_) | Self::Kill(_) | Self::Files(_) => {
                Allows::Errors
            }
        }
    }

    /// The state of the network from the beginning.
    pub(super) fn prepare(&self, wire: &Wire) -> Result<()> {
        match self {
            Self::PacketFaults(weather) => {
                weather.iter().try_for_each(|(what, number)| wire.set(what, *number))
            }
            Self::Forged(number) => wire.set("forge", *number),
            _ => Ok(()),
        }
    }

    /// Causes the fault, and mends it when its time has come, or all have ended.
    pub(super) fn strike(
        &self,
        wire: &Wire,
        server: Option<&Process>,
        client: &mut Process,
    ) -> Result<()> {
        match self {
            Self::None | Self::PacketFaults(_) | Self::Forged(_) | Self::Files(_) => {}
            Self::Cut(time) => {
                wire.set("cut", 1)?;
                thread::sleep(*time);
                wire.set("cut", 0)?;
            }
            Self::Lost => wire.set("cut", 1)?,
            Self::Reset(number) => wire.set("reset", *number)?,
            Self::Kill(Side::Client) => signal(client, Signal::KILL),
            Self::Stop(Side::Client, time) => {
                signal(client, Signal::STOP);
                thread::sleep(*time);
                signal(client, Signal::CONT);
            }
            Self::Kill(Side::Server) => {
                if let Some(server) = server {
                    signal(server, Signal::KILL);
                }
            }
            Self::Stop(Side::Server, time) => {
                if let Some(server) = server {
                    signal(server, Signal::STOP);
                    client.ends(Instant::now() + *time);
                    signal(server, Signal::CONT);
                }
            }
        }
        Ok(())
    }
}

fn told(side: Side) -> &'static str {
    match side {
        Side::Server => "server",
        Side::Client => "client",
    }
}

fn weather(dice: &mut Dice) -> Vec<(&'static str, u64)> {
    let kinds = [("loss", 15), ("reorder", 60), ("duplicate", 40), ("damage", 8), ("delay", 1000)];
    let mut chosen = Vec::new();
    for (what, most) in kinds {
        if dice.of_a_hundred(40) {
            chosen.push((what, dice.between(1, most)));
        }
    }
    if chosen.is_empty() {
        chosen.push(("loss", dice.between(1, 20)));
    }
    chosen
}

fn signal(process: &Process, signal: Signal) {
    if let Some(group) = Pid::from_raw(process.0.id() as i32) {
        // It may have ended; then its number is still its own, as nothing has waited for it.
        let _ = kill_process_group(group, signal);
    }
}
