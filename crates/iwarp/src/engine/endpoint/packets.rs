// SPDX-License-Identifier: MIT OR Apache-2.0

//! Packets, as the device's datagram port brings and takes them: those of a core over datagrams, and
//! those by which a queue pair that may speak iWARP or RoCE v2 finds out what its peer speaks.

use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use iwarp_roce::DatagramCore;
use iwarp_roce::wire::{Burst, Counters, Packet, Path};
use iwarp_types::{Core, Time, Wanted};

use super::{Endpoint, Locked};
use crate::engine::any_core::AnyCore;
use crate::engine::sync::Ordering;

/// Is told, once, that the peer of a queue pair speaks RoCE v2. Called without the queue pair's
/// lock.
pub(crate) trait RoceListener: Send + Sync {
    /// The peer has sent a packet of RoCE v2.
    fn heard_roce(&self);
}

/// A queue pair that does not know yet what its peer speaks.
pub(super) struct Undecided {
    listener: Weak<dyn RoceListener>,
    /// The peer is to be asked.
    asks: bool,
}

impl Endpoint {
    /// From now on `listener` is told when the peer turns out to speak RoCE v2, until the queue pair
    /// [stops listening](Self::stop_listening).
    pub(crate) fn listen_for_roce(
        self: &Arc<Self>,
        listener: Weak<dyn RoceListener>,
    ) -> io::Result<()> {
        self.core.lock().undecided = Some(Undecided { listener, asks: false });
        self.listen_for_datagrams().inspect_err(|_| self.core.lock().undecided = None)
    }

    /// Asks the peer what it speaks, if it listens.
    pub(crate) fn ask_for_roce(self: &Arc<Self>) {
        let mux = {
            let mut locked = self.core.lock();
            match &mut locked.undecided {
                Some(undecided) => undecided.asks = true,
                None => return,
            }
            locked.mux.clone()
        };
        if let Some(mux) = mux {
            mux.transmit(self);
        }
    }

    /// It is known what the peer speaks, or it does not matter any more.
    pub(crate) fn stop_listening(&self) {
        let mux = {
            let mut locked = self.core.lock();
            locked.undecided = None;
            if locked.core.is_datagram() { None } else { locked.mux.take() }
        };
        if let Some(mux) = mux {
            mux.forget(self);
        }
    }

    /// From now on a core for datagrams gets those that come to the port for its number, as does one
    /// that listens; nothing for any other core.
    pub(crate) fn listen_for_datagrams(self: &Arc<Self>) -> io::Result<()> {
        let is_new = {
            let locked = self.core.lock();
            let may = locked.core.is_datagram() || locked.undecided.is_some();
            may && locked.mux.is_none()
        };
        if !is_new {
            return Ok(());
        }
        iwarp_mem::afford()?;
        iwarp_mem::keep_fault_handler();
        // One whose number leads nowhere has no peers.
        let mux = Arc::clone(self.packets.as_ref().ok_or(io::ErrorKind::InvalidInput)?);
        mux.serve(self)?;
        // Two threads of a program may do this at once: the one that comes first serves.
        let mut core = self.core.lock();
        core.mux.get_or_insert(mux);
        Ok(())
    }

    /// True if there are packets to be sent.
    pub(crate) fn wants_packets(&self) -> bool {
        self.with(|core| core.wanted()) != Wanted::Nothing
    }

    /// Builds packets. True if there are more.
    pub(crate) fn fill(&self, burst: &mut Burst) -> bool {
        let mut locked = self.core.lock();
        // Not before: a thread may wait for the lock, or for a CPU, longer than for an answer.
        let now = self.now();
        let Locked { core, undecided, alternative, program, .. } = &mut *locked;
        match core {
            AnyCore::Datagram(core) => {
                let _admitted = iwarp_mem::admit_faults();
                let before = burst.octets();
                core.transmit(burst, now, &*self.engine.memory);
                if let Some(fate) = &program.fate {
                    fate.sent(burst.octets() - before);
                }
            }
            AnyCore::Iwarp(_) => {
                if let (Some(undecided), Some(alternative)) = (undecided, alternative)
                    && std::mem::take(&mut undecided.asks)
                {
                    alternative.probe(core.state()).ask(burst);
                }
                return false;
            }
            AnyCore::Stream(_) => return false,
        }
        let more = core.wanted() != Wanted::Nothing;
        self.hand_on(&mut locked);
        if locked.core.may_want_time() {
            self.wants_timer.store(true, Ordering::Relaxed);
        }
        more
    }

    /// Takes packets for the queue pair's number: the first, and those that `more` brings. True if
    /// there are packets to be sent then.
    pub(crate) fn take_packets<'a>(
        &self,
        (path, packet): (Path, Packet<'a>),
        mut more: impl FnMut() -> Option<(Path, Packet<'a>)>,
    ) -> bool {
        if let Some(wants) = self.give_core((path, packet), &mut more) {
            return wants;
        }
        let Some(listener) = self.listener_for(&packet, &path) else { return false };
        listener.heard_roce();
        // It is the first of the connection.
        self.give_core((path, packet), &mut more).unwrap_or(false)
    }

    /// Packets of its core left so much later than they were built.
    pub(crate) fn sent_late(&self, by: Duration) {
        self.with(|core| {
            if let AnyCore::Datagram(core) = core {
                core.sent_late(by);
            }
        });
    }

    /// The counts of its core since the last call, if it is one over datagrams.
    pub(crate) fn take_counters(&self) -> Counters {
        self.with(|core| match core {
            AnyCore::Datagram(core) => core.take_counters(),
            AnyCore::Iwarp(_) | AnyCore::Stream(_) => Counters::default(),
        })
    }

    /// A packet that came by `path` tells that the network is congested.
    pub(crate) fn slow_down(&self, path: &Path, now: Time) {
        self.with(|core| {
            if let AnyCore::Datagram(core) = core {
                core.congested(path, now);
            }
        });
    }

    /// `None` where the core takes no packets.
    fn give_core<'a>(
        &self,
        (mut path, mut packet): (Path, Packet<'a>),
        more: &mut impl FnMut() -> Option<(Path, Packet<'a>)>,
    ) -> Option<bool> {
        let memory = &*self.engine.memory;
        self.with_program(|core, program| {
            let AnyCore::Datagram(core) = core else { return None };
            let now = self.now();
            let _admitted = iwarp_mem::admit_faults();
            loop {
                if let Some(fate) = &program.fate {
                    fate.received_packet(&packet);
                }
                core.receive(&packet, &path, now, memory, self.pool());
                match more() {
                    Some(next) => (path, packet) = next,
                    None => return Some(core.wanted() != Wanted::Nothing),
                }
            }
        })
    }

    /// The listener that is to be told of what the packet proves.
    #[cold]
    fn listener_for(&self, packet: &Packet<'_>, path: &Path) -> Option<Arc<dyn RoceListener>> {
        let locked = self.core.lock();
        let (undecided, alternative) = (locked.undecided.as_ref()?, locked.alternative.as_ref()?);
        let probe = alternative.probe(locked.core.state());
        if probe.is_proof(packet, path) { undecided.listener.upgrade() } else { None }
    }
}
