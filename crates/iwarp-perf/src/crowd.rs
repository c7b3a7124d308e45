// SPDX-License-Identifier: MIT OR Apache-2.0

//! Connections that do nothing, and what they cost.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, Result, bail, ensure};
use iwarp::cm::{ConnectParams, EventChannel, EventKind, Id};
use iwarp::{CompletionQueue, Device, QueuePair, QueuePairAttributes};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::patience::PATIENCE;
use super::ways::Ways;

/// Work requests of either kind that an idle queue pair has room for.
pub(super) const DEPTH: usize = 4;
/// Descriptors that a process needs for other things.
const OTHER_DESCRIPTORS: u64 = 256;

/// Idle connections, all with one completion queue and one event channel.
pub(super) struct Crowd {
    connections: Vec<(QueuePair, Id)>,
    /// Bytes of this process that became resident for each.
    pub(super) memory_each: f64,
    _channel: EventChannel,
}

impl Crowd {
    /// The client's end.
    pub(super) fn connect(
        device: &Device,
        cq: &CompletionQueue,
        addr: SocketAddr,
        n: usize,
    ) -> Result<Self> {
        allow_descriptors(n)?;
        let channel = EventChannel::new(device)?;
        let (pd, before) = (device.alloc_pd(), resident()?);
        let mut connections = Vec::with_capacity(n);
        for _ in 0..n {
            let (qp, id) = (pd.create_qp(&attributes(cq))?, Id::new(&channel)?);
            id.resolve_addr(None, addr)?;
            await_event(&channel, |kind| matches!(kind, EventKind::AddressResolved))?;
            id.connect(&qp, &ConnectParams::default())?;
            await_event(&channel, |kind| matches!(kind, EventKind::Established { .. }))?;
            connections.push((qp, id));
        }
        Self::new(connections, before, channel)
    }

    /// The server's end.
    pub(super) fn accept(door: Door, device: &Device, cq: &CompletionQueue) -> Result<Self> {
        let Door { n, channel, listener } = door;
        let (pd, before) = (device.alloc_pd(), resident()?);
        let mut connections = Vec::with_capacity(n);
        while connections.len() < n {
            let event = channel.wait(Some(PATIENCE))?.context("no RDMA connection came")?;
            match event.kind {
                EventKind::ConnectRequest { .. } => {
                    let qp = pd.create_qp(&attributes(cq))?;
                    event.id.accept(&qp, &ConnectParams::default())?;
                    connections.push((qp, event.id));
                }
                EventKind::Established { .. } => {}
                other => bail!("an idle connection ended: {other:?}"),
            }
        }
        drop(listener);
        Self::new(connections, before, channel)
    }

    fn new(connections: Vec<(QueuePair, Id)>, before: u64, channel: EventChannel) -> Result<Self> {
        let memory_each = resident()?.saturating_sub(before) as f64 / connections.len() as f64;
        Ok(Self { connections, memory_each, _channel: channel })
    }

    pub(super) fn ways(&self) -> Ways {
        self.connections.iter().map(|(qp, _)| Ways::of(qp)).sum()
    }

    pub(super) fn len(&self) -> usize {
        self.connections.len()
    }
}

/// The address at which the server's end of a crowd listens.
pub(super) struct Door {
    n: usize,
    channel: EventChannel,
    listener: Id,
}

impl Door {
    pub(super) fn open(device: &Device, ip: IpAddr, n: usize) -> Result<Self> {
        allow_descriptors(n)?;
        let channel = EventChannel::new(device)?;
        let listener = Id::new(&channel)?;
        listener.bind(SocketAddr::new(ip, 0))?;
        listener.listen(0)?;
        Ok(Self { n, channel, listener })
    }

    pub(super) fn port(&self) -> u16 {
        self.listener.local_addr().map_or(0, |addr| addr.port())
    }
}

fn attributes(cq: &CompletionQueue) -> QueuePairAttributes<'_> {
    QueuePairAttributes::new(cq, cq)
        .max_send_wr(DEPTH)
        .max_recv_wr(DEPTH)
        .max_send_sge(1)
        .max_recv_sge(1)
        .max_inline(0)
}

fn await_event(channel: &EventChannel, wanted: impl Fn(&EventKind) -> bool) -> Result<()> {
    let event = channel.wait(Some(PATIENCE))?.context("no answer to an idle connection")?;
    ensure!(wanted(&event.kind), "an idle connection was not made: {:?}", event.kind);
    Ok(())
}

/// Bytes of this process in memory.
fn resident() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").context("/proc/self/statm")?;
    let pages: Option<u64> = text.split(' ').nth(1).and_then(|field| field.parse().ok());
    Ok(pages.context("/proc/self/statm")? * rustix::param::page_size() as u64)
}

/// A connection takes a descriptor in each process.
fn allow_descriptors(n: usize) -> Result<()> {
    let needed = n as u64 + OTHER_DESCRIPTORS;
    let Rlimit { current: soft, maximum: hard } = getrlimit(Resource::Nofile);
    if soft.is_none_or(|soft| soft >= needed) {
        return Ok(());
    }
    if let Some(hard) = hard {
        ensure!(
            hard >= needed,
            "{n} connections need {needed} descriptors, and a process may have {hard}: raise the \
             limit (ulimit -Hn), or ask for fewer"
        );
    }
    let limit = Rlimit { current: Some(needed), maximum: hard };
    setrlimit(Resource::Nofile, limit).context("setrlimit")
}
