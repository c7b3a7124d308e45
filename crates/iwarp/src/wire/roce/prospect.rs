// SPDX-License-Identifier: MIT OR Apache-2.0

//! A queue pair that may come to speak RoCE v2: the parts for its core, and how it finds out that
//! its peer speaks nothing else.

use std::io;
use std::sync::{Arc, Weak};

use iwarp_roce::probe::Probe;
use iwarp_roce::wire::{Burst, Packet, Path};
use iwarp_roce::{Attributes, Config, DatagramCore as _, Qp, Rc};
use iwarp_types::{Access, Core as _, QpState};

use crate::connect::DatagramAttributes;
use crate::engine::endpoint::{Choice, CoreConfig, Endpoint, NO_RECEIVE, PacketListener};
use crate::wire::roce::attributes;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Prospect {
    config: Config,
    attributes: Attributes,
    undecided: Option<Undecided>,
}

/// A queue pair that does not know yet what its peer speaks.
struct Undecided {
    listener: Weak<dyn PacketListener>,
    /// The peer is to be asked.
    asks: bool,
}

impl std::fmt::Debug for Undecided {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Undecided").field("asks", &self.asks).finish_non_exhaustive()
    }
}

impl Prospect {
    pub(crate) fn new(wanted: &CoreConfig) -> Self {
        let config = config(wanted);
        Self { config, attributes: Attributes::default(), undecided: None }
    }

    /// A new core in this state, for a program that lets the peer do so much, where it has said it.
    pub(crate) fn core(&self, state: QpState, access: Option<Access>) -> Qp {
        let mut core = Rc::new(self.config);
        core.set_attributes(&self.attributes);
        if let Some(access) = access {
            core.set_remote_access(access);
        }
        for step in [QpState::Init, QpState::Rtr, QpState::Rts, QpState::Sqd] {
            if core.state() == state {
                break;
            }
            // These follow each other.
            let _ = core.modify(step);
        }
        // That nothing is under way is no news.
        while core.poll_event().is_some() {}
        core.into()
    }

    pub(crate) fn listen(&mut self, listener: Weak<dyn PacketListener>) {
        self.undecided = Some(Undecided { listener, asks: false });
    }

    pub(crate) fn ask(&mut self) -> bool {
        self.undecided.as_mut().map(|undecided| undecided.asks = true).is_some()
    }

    pub(crate) const fn is_listening(&self) -> bool {
        self.undecided.is_some()
    }

    pub(crate) fn stop_listening(&mut self) {
        self.undecided = None;
    }

    /// The probe that finds out whether the peer speaks RoCE v2.
    const fn probe(&self, state: QpState) -> Probe {
        // Before, the program has not said which packet is the first.
        let may_ask = matches!(state, QpState::Rts | QpState::Sqd);
        Probe::new(self.config.qp, self.attributes, may_ask)
    }
}

/// The core for a queue pair; `None` for a type that RoCE lacks.
pub(crate) fn core(wanted: &CoreConfig) -> Option<Qp> {
    Qp::new(config(wanted))
}

fn config(wanted: &CoreConfig) -> Config {
    Config {
        qp: wanted.qp,
        qp_type: wanted.qp_type,
        pd: wanted.pd,
        max_send_wr: wanted.max_send_wr,
        max_recv_wr: wanted.max_recv_wr,
        limits: wanted.limits,
        max_recv_sge: wanted.max_recv_sge,
        shared_receive: wanted.shared_receive,
        receive_pd: wanted.receive_pd,
        tell_no_receive: Some(NO_RECEIVE),
    }
}

/// The prospect of a queue pair that has a choice.
fn prospect_of(choice: Option<&mut dyn Choice>) -> Option<&mut Prospect> {
    choice?.part().downcast_mut()
}

/// Tells a core for packets what the program has set, or one that may come.
///
/// # Errors
///
/// `InvalidInput` where there is neither.
pub(super) fn set_attributes(endpoint: &Endpoint, attributes: Attributes) -> io::Result<()> {
    endpoint.with_choice(|core, choice| {
        let prospect = prospect_of(choice);
        let mut is_told = prospect.is_some();
        if let Some(prospect) = prospect {
            prospect.attributes = attributes;
        }
        if let Some(core) = core.of::<Qp>() {
            core.set_attributes(&attributes);
            is_told = true;
        }
        if is_told { Ok(()) } else { Err(io::ErrorKind::InvalidInput.into()) }
    })
}

/// As [`set_attributes`], by the names of the verbs.
///
/// # Errors
///
/// As there.
pub(crate) fn set_named_attributes(
    endpoint: &Endpoint,
    named: &DatagramAttributes,
) -> io::Result<()> {
    set_attributes(endpoint, attributes::of_protocol(named))
}

/// Builds the question that the peer is to be asked.
#[cold]
pub(super) fn ask(endpoint: &Endpoint, burst: &mut Burst) {
    endpoint.with_choice(|core, choice| {
        if let Some(prospect) = prospect_of(choice)
            && let Some(undecided) = &mut prospect.undecided
            && std::mem::take(&mut undecided.asks)
        {
            prospect.probe(core.state()).ask(burst);
        }
    });
}

/// The listener that is to be told of what the packet proves.
#[cold]
pub(super) fn listener_for(
    endpoint: &Endpoint,
    packet: &Packet<'_>,
    path: &Path,
) -> Option<Arc<dyn PacketListener>> {
    endpoint.with_choice(|core, choice| {
        let prospect = prospect_of(choice)?;
        let undecided = prospect.undecided.as_ref()?;
        let is_proof = prospect.probe(core.state()).is_proof(packet, path);
        if is_proof { undecided.listener.upgrade() } else { None }
    })
}
