// SPDX-License-Identifier: MIT OR Apache-2.0

//! An id that a forked child goes on with: a daemon binds or listens, forks, and its child serves.

use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use iwarp_os::FamilyClaim;

use super::{Events, Id, IdCore, IdState, Kind, Phase};
use crate::port::Acceptor;
use crate::report;

/// Time for which a child waits for its parent to end, which has the port in the connection
/// manager's port space until then: a daemon's has just forked, and is about to.
const PARENT_ENDS: Duration = Duration::from_millis(300);
/// Time between two looks meanwhile.
const LOOK: Duration = Duration::from_millis(5);

/// The state of the parent's id at the fork.
struct Inherited {
    kind: Kind,
    state: IdState,
    /// It has a port of the connection manager's port space.
    has_port: bool,
    activity: Activity,
}

/// The activity of the parent's id at the fork.
enum Activity {
    None,
    Listening(Box<dyn Acceptor>, Arc<FamilyClaim>),
    Serving,
}

impl IdCore {
    /// As [`Id::take_over`].
    pub(crate) fn take_over(events: &Arc<Events>, inherited: &Id) -> io::Result<Arc<Self>> {
        let parents = inherited.core.of_ancestor().ok_or(io::ErrorKind::InvalidInput)?;
        let Inherited { kind, state, has_port, activity } = parents.left_behind()?;
        let (max_pending, local) = (state.max_pending, state.local);
        let core = IdCore::on(events, kind, IdState::default());
        if let Some(local) = local {
            // An address that no device has now may come back: requests name their devices anyway.
            let _ = core.enter_device(local.ip());
        }
        let mut own = core.state.lock();
        *own = state;
        if let Some(local) = local.filter(|_| has_port) {
            core.take_port(&mut own, local)?;
        }
        match activity {
            Activity::None => drop(own),
            Activity::Serving => {
                drop(own);
                once_free(|| core.serve(max_pending))?;
            }
            Activity::Listening(acceptor, claim) => {
                claim.claim();
                core.take_streams(own, acceptor, max_pending, None, claim)?;
                let local = local.unwrap_or((Ipv6Addr::UNSPECIFIED, 0).into());
                core.serve_beside_parent(local, max_pending);
            }
        }
        Ok(core)
    }

    /// The parent's id as its forked child finds it.
    fn left_behind(&self) -> io::Result<Inherited> {
        let state = self.state.try_lock().ok_or(io::ErrorKind::WouldBlock)?;
        let (reserved, activity) = match &state.phase {
            Phase::Idle => {
                let reserved = state.reserved.as_ref();
                (reserved.map(|reserved| reserved.inherit()).transpose()?, Activity::None)
            }
            Phase::Listening(arrivals) => {
                let mut activity = Activity::Serving;
                for arrivals in arrivals {
                    if let Some((acceptor, claim)) = arrivals.inherit()? {
                        activity = Activity::Listening(acceptor, claim);
                    }
                }
                (None, activity)
            }
            Phase::Talking(_) => return Err(io::ErrorKind::NotConnected.into()),
        };
        let own = IdState {
            local: state.local,
            peer: state.peer,
            candidates: state.candidates.clone(),
            source: state.source,
            reserved,
            choices: state.choices,
            max_pending: state.max_pending,
            ..IdState::default()
        };
        let has_port = state.service_port.is_some();
        Ok(Inherited { kind: self.kind, state: own, has_port, activity })
    }

    fn serve_beside_parent(self: &Arc<Self>, local: SocketAddr, max_pending: usize) {
        if let Err(error) = once_free(|| self.serve_beside(local, max_pending)) {
            report!(
                WARN, %local, %error,
                "a listener of a forked child takes connections over iWARP alone: its parent still has \
                 the port over RoCE v2"
            );
        }
    }
}

/// Calls `f` until the port is free, at most for as long as a parent that ends needs for it.
fn once_free<T>(mut f: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let mut looks = PARENT_ENDS.as_millis() / LOOK.as_millis();
    loop {
        match f() {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && looks > 0 => {
                looks -= 1;
                std::thread::sleep(LOOK);
            }
            done => return done,
        }
    }
}
