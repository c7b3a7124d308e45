// SPDX-License-Identifier: MIT OR Apache-2.0

//! Many clients of one target process: each a thread with a device of its own, which shares no
//! more with the others than another process would.

use std::net::SocketAddr;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

use super::rdma::Rdma;
use super::task::{Contender, Side, Spec, Task, Times};
use super::tcp::Tcp;
use super::ways::Ways;

/// The clients.
pub(super) struct Fleet<M> {
    members: Vec<M>,
}

impl<M> Fleet<M> {
    fn new(spec: &Spec, member: impl Fn(&Spec) -> Result<M>) -> Result<Self> {
        let alone = Spec { connections: 1, ..spec.clone() };
        let members = (0..spec.connections).map(|_| member(&alone)).collect::<Result<_>>()?;
        Ok(Self { members })
    }
}

impl Fleet<Rdma> {
    /// Their connections are served as one contender.
    pub(super) fn connect(spec: &Spec, addr: SocketAddr) -> Result<Self> {
        Self::new(spec, |alone| Rdma::connect(alone, addr))
    }
}

impl Fleet<Tcp> {
    /// Their connections are served by a hub.
    pub(super) fn connect_tcp(spec: &Spec, addr: SocketAddr) -> Result<Self> {
        Self::new(spec, |alone| Tcp::connect(alone, addr))
    }

    /// Congestion control in force.
    pub(super) fn congestion(&self) -> Option<String> {
        self.members.first().and_then(Tcp::congestion)
    }
}

/// A member's part of a round.
fn share(task: &Task) -> Task {
    Task { connections: 1, count: task.each(), ..task.clone() }
}

impl<M: Contender + Send> Contender for Fleet<M> {
    fn prepare(&mut self, task: &Task, side: Side) -> Result<()> {
        let share = share(task);
        self.members.iter_mut().try_for_each(|member| member.prepare(&share, side))
    }

    /// Measures from the moment when all threads are there until the last has done its part.
    fn measure(&mut self, task: &Task, _: &mut Times) -> Result<Duration> {
        let (share, barrier) = (share(task), Barrier::new(self.members.len() + 1));
        let (share, barrier) = (&share, &barrier);
        std::thread::scope(|scope| {
            let start = |member| {
                scope.spawn(move || {
                    let member: &mut M = member;
                    barrier.wait();
                    member.measure(share, &mut Times::new(1))
                })
            };
            let threads: Vec<_> = self.members.iter_mut().map(start).collect();
            barrier.wait();
            let start = Instant::now();
            for thread in threads {
                thread.join().map_err(|_| anyhow!("a client's thread panicked"))??;
            }
            Ok(start.elapsed())
        })
    }

    fn serve(&mut self, _: &Task) -> Result<()> {
        Err(anyhow!("a fleet is at the client's end"))
    }

    fn verify(&mut self, task: &Task, side: Side) -> Result<()> {
        let share = share(task);
        self.members.iter_mut().try_for_each(|member| member.verify(&share, side))
    }

    fn ways(&self) -> Ways {
        self.members.iter().map(M::ways).sum()
    }
}
