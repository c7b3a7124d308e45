// SPDX-License-Identifier: MIT OR Apache-2.0

//! One core takes another's place, as long as nothing has been sent: a queue pair whose program says
//! whom it talks to only later begins with iWARP's, and may go on with RoCE's.
//!
//! A queue pair that may speak either protocol begins with iWARP's core and holds the parts for building
//! RoCE's (`Alternative`). The peer's number, its TCP connection or its first packet decides, and the
//! requests posted until then move from one core to the other (`Qp::hand_over`). Once the queue pair has
//! sent anything, its protocol is fixed until a reset.

use std::io;
use std::sync::Arc;

use iwarp_proto::qp::{Config, Qp};
use iwarp_roce::probe::Probe;
use iwarp_roce::{Attributes, DatagramCore, Qp as DatagramQp, Rc};
use iwarp_types::{Access, Core, QpState};

use super::{Endpoint, Locked};
use crate::engine::any_core::AnyCore;
use crate::engine::ended::Observer;
use crate::engine::fate::Fate;
use crate::engine::options::Wire;

/// The parts that a queue pair needs that may speak iWARP or RoCE v2.
#[derive(Debug)]
pub(crate) struct Alternative {
    iwarp: Config,
    roce: iwarp_roce::Config,
    attributes: Attributes,
}

impl Alternative {
    pub(crate) fn new(iwarp: Config, roce: iwarp_roce::Config) -> Box<Self> {
        Box::new(Self { iwarp, roce, attributes: Attributes::default() })
    }

    /// A new core for RoCE v2 in a state that iWARP's is in, for a program that lets the peer do so
    /// much, where it has said it.
    fn roce(&self, state: QpState, access: Option<Access>) -> DatagramQp {
        let mut core = Rc::new(self.roce);
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

    /// The probe that finds out whether the peer speaks RoCE v2.
    pub(super) const fn probe(&self, state: QpState) -> Probe {
        // Before, the program has not said which packet is the first.
        let may_ask = matches!(state, QpState::Rts | QpState::Sqd);
        Probe::new(self.roce.qp, self.attributes, may_ask)
    }
}

impl Endpoint {
    /// Tells a core for datagrams what the program set, or one that may come.
    pub(crate) fn set_datagram(&self, attributes: Attributes) -> io::Result<()> {
        let mut locked = self.core.lock();
        if let Some(alternative) = &mut locked.alternative {
            alternative.attributes = attributes;
        }
        let may_come = locked.alternative.is_some();
        match &mut locked.core {
            AnyCore::Datagram(core) => core.set_attributes(&attributes),
            AnyCore::Iwarp(_) if may_come => {}
            AnyCore::Iwarp(_) | AnyCore::Stream(_) => {
                return Err(io::ErrorKind::InvalidInput.into());
            }
        }
        Ok(())
    }

    /// Tells `observer` how a connection over packets fares, which is about to begin.
    pub(crate) fn observe(&self, observer: Arc<dyn Observer>) {
        let before = self.core.lock().program.observer.replace(observer);
        // Without the lock: it may be the last to know of an id.
        drop(before);
    }

    /// Packets make its connection, if it may send them: the log tells of it from now on.
    pub(super) fn begin_fate(&self, locked: &mut Locked) {
        if let AnyCore::Datagram(core) = &locked.core
            && matches!(core.state(), QpState::Rts | QpState::Sqd)
            && locked.program.fate.is_none()
            && let Some(attributes) = core.attributes()
        {
            locked.program.fate = Fate::of_packets(self.id(), attributes);
        }
    }

    /// Says for the log why its connection is about to end.
    pub(crate) fn ends(&self, why: &str) {
        self.core.lock().program.ends(|| why.to_owned());
    }

    /// True if it speaks RoCE v2, or may.
    pub(crate) fn may_use_datagrams(&self) -> bool {
        let locked = self.core.lock();
        locked.core.is_datagram() || locked.alternative.is_some()
    }

    /// Goes on with RoCE v2, and what was posted goes along. False where the queue pair has or had a
    /// connection, has failed, or can speak nothing else.
    pub(crate) fn speak_roce(&self) -> bool {
        let mut locked = self.core.lock();
        if locked.link.is_some() {
            return false;
        }
        let Some(alternative) = &locked.alternative else { return false };
        let AnyCore::Iwarp(iwarp) = &locked.core else { return false };
        let state = iwarp.state();
        if state == QpState::Err {
            return false;
        }
        let mut roce = alternative.roce(state, iwarp.remote_access());
        let AnyCore::Iwarp(iwarp) = &mut locked.core else { return false };
        let handed_over = iwarp.hand_over(&mut roce);
        if !handed_over {
            return false;
        }
        locked.core = AnyCore::Datagram(Box::new(roce));
        locked.undecided = None;
        self.hand_on(&mut locked);
        self.begin_fate(&mut locked);
        true
    }

    /// The protocol that it speaks, once that is known.
    pub(crate) fn wire(&self) -> Option<Wire> {
        let locked = self.core.lock();
        match &locked.core {
            AnyCore::Datagram(_) => Some(Wire::Roce),
            AnyCore::Iwarp(core) if locked.alternative.is_none() || core.is_connected() => {
                Some(Wire::Iwarp)
            }
            AnyCore::Iwarp(_) | AnyCore::Stream(_) => None,
        }
    }

    /// A queue pair that was reset may speak either again.
    pub(super) fn speak_either(locked: &mut Locked) {
        if let Some(alternative) = &locked.alternative
            && locked.core.is_datagram()
        {
            let config = alternative.iwarp;
            locked.core = AnyCore::Iwarp(Qp::new(config));
        }
    }
}
