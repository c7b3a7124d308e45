// SPDX-License-Identifier: MIT OR Apache-2.0

//! Checks now and then that the peer is still there, as long as something is expected of it.

use std::sync::{Arc, Weak};
use std::time::Duration;

use iwarp_types::Time;

use super::Link;
use super::flags::PEER_WATCHED;
use crate::engine::mover::StreamMover;
use crate::engine::peer_watch::{PeerWatch, Verdict, pause, question_pause};
use crate::engine::sync::Mutex;
use crate::engine::worker::{Deadline, Timed};

/// The knowledge of a link's peer. [`PEER_WATCHED`] says that a look is going to be taken.
#[derive(Debug)]
pub(super) struct Watch(Mutex<WatchState>);

#[derive(Debug, Default)]
struct WatchState {
    /// The time that the peer may be silent; `None`: for ever.
    patience: Option<Duration>,
    of_peer: Option<PeerWatch>,
    timer: Option<Deadline>,
    /// The system tells nothing, and has to watch by itself.
    blind: bool,
    /// The system has been told to ask often.
    asks_often: bool,
    /// The peer is asked although nothing is outstanding, as the program waits for its answer.
    asks_idle: bool,
}

impl Timed for Link {
    fn due(self: Arc<Self>) {
        self.look_at_peer();
    }
}

impl Watch {
    pub(super) fn new(patience: Option<Duration>) -> Self {
        Self(Mutex::new(WatchState { patience, ..WatchState::default() }))
    }
}

impl Link {
    /// The peer may be silent for so long while something is expected of it; `None`: as long as the
    /// system likes.
    pub(super) fn keep_patience(&self, patience: Option<Duration>) {
        let mut state = self.watch.0.lock();
        state.patience = patience;
        if state.blind {
            self.stream.bound_silence(patience);
        }
        // With [`Self::patience_changed`] or the next bytes that are sent.
        if patience.is_some() && state.timer.is_none() {
            self.flags.clear(PEER_WATCHED);
        }
    }

    /// The program has changed its patience: the next look is due accordingly.
    pub(super) fn patience_changed(&self) {
        {
            let mut state = self.watch.0.lock();
            let Some(patience) = state.patience else { return };
            if state.timer.is_some() {
                return self.look_later(&mut state, self.endpoint.now().plus(pause(patience)));
            }
        }
        // Something may be outstanding that was not to be looked after so far.
        self.watch_peer();
    }

    /// Something was sent: sees to it that the peer is found out if it does not answer.
    #[cold]
    pub(super) fn watch_peer(&self) {
        if self.flags.set(PEER_WATCHED) & PEER_WATCHED != 0 || self.is_closed() {
            return;
        }
        let mut state = self.watch.0.lock();
        let Some(patience) = state.patience else { return };
        if !state.blind {
            let now = self.endpoint.now();
            state.of_peer = Some(PeerWatch::new(now));
            self.look_later(&mut state, now.plus(pause(patience)));
        }
    }

    fn look_later(&self, state: &mut WatchState, at: Time) {
        let this: Weak<Self> = Weak::clone(&self.itself);
        state.timer = Some(self.endpoint.engine.worker.deadline_of(at, this));
    }

    fn look_at_peer(&self) {
        if self.is_closed() {
            return;
        }
        let mut state = self.watch.0.lock();
        state.timer = None;
        // A thread that sends from here on begins another watch: this look may not see its bytes.
        self.flags.clear(PEER_WATCHED);
        let Some(patience) = state.patience else { return };
        let Ok(Some(vitals)) = self.stream.vitals() else {
            state.blind = true;
            self.flags.set(PEER_WATCHED);
            return self.stream.bound_silence(Some(patience));
        };
        let now = self.endpoint.now();
        let long = question_pause(patience);
        let watch = state.of_peer.get_or_insert(PeerWatch::new(now));
        let next = match watch.look(now, &vitals, patience) {
            Verdict::Gone => {
                drop(state);
                return self.peer_is_gone();
            }
            Verdict::Waiting(at) => {
                if vitals.last_ack >= long && !state.asks_often {
                    state.asks_often = true;
                    self.stream.ask_within(long);
                }
                at
            }
            Verdict::Idle => {
                state.of_peer = None;
                let awaits =
                    self.endpoint.with(|core| core.is_connected() && core.outstanding().0 > 0);
                let asks = awaits && vitals.last_ack.min(vitals.last_data) >= long;
                if asks != state.asks_idle {
                    state.asks_idle = asks;
                    self.stream.ask_idle(asks.then_some(patience));
                }
                if !awaits {
                    return;
                }
                now.plus(pause(patience))
            }
        };
        if self.flags.set(PEER_WATCHED) & PEER_WATCHED == 0 {
            self.look_later(&mut state, next);
        }
    }

    /// The peer left our questions unanswered.
    fn peer_is_gone(&self) {
        // The system would go on asking.
        self.stream.reset_on_close();
        self.lose(&std::io::ErrorKind::TimedOut.into());
    }
}
