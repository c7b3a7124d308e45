//! Looking now and then whether the peer is still there, as long as something is expected of it.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use iwarp_types::Time;

use super::Link;
use crate::engine::endpoint::Endpoint;
use crate::engine::sync::{AtomicBool, AtomicU64, Mutex, Ordering};
use crate::engine::vigil::{Verdict, Vigil, pause, question_pause};
use crate::engine::worker::{Deadline, Timed};

/// What is known of a link's peer.
#[derive(Debug)]
pub(crate) struct Watch {
    /// A look is going to be taken, or can never be.
    on: AtomicBool,
    /// How long the peer may be silent, in nanoseconds.
    patience: AtomicU64,
    ticket: OnceLock<Arc<Ticket>>,
    state: Mutex<State>,
}

/// For ever.
const FOR_EVER: u64 = u64::MAX;

#[derive(Debug, Default)]
struct State {
    vigil: Option<Vigil>,
    timer: Option<Deadline>,
    /// The system tells nothing and has to watch by itself.
    blind: bool,
    /// The system has been told to ask often.
    asks_often: bool,
    /// The peer is asked although nothing is outstanding, as the program waits for its answer.
    asks_idle: bool,
}

/// Whose time has come.
#[derive(Debug)]
struct Ticket {
    endpoint: Weak<Endpoint>,
    link: Weak<Link>,
}

impl Timed for Ticket {
    fn due(&self) {
        if let (Some(endpoint), Some(link)) = (self.endpoint.upgrade(), self.link.upgrade()) {
            endpoint.look_at_peer(&link);
        }
    }
}

fn nanos(patience: Option<Duration>) -> u64 {
    patience.map_or(FOR_EVER, |time| u64::try_from(time.as_nanos()).unwrap_or(FOR_EVER))
}

impl Watch {
    pub(super) fn new(patience: Option<Duration>) -> Self {
        Self {
            on: AtomicBool::new(false),
            patience: AtomicU64::new(nanos(patience)),
            ticket: OnceLock::new(),
            state: Mutex::default(),
        }
    }

    fn patience(&self) -> Option<Duration> {
        let nanos = self.patience.load(Ordering::Relaxed);
        (nanos != FOR_EVER).then(|| Duration::from_nanos(nanos))
    }
}

impl Link {
    /// The peer may be silent for so long while something is expected of it; `None`: as long as the
    /// system likes.
    pub(crate) fn set_patience(&self, patience: Option<Duration>) {
        self.watch.patience.store(nanos(patience), Ordering::Relaxed);
        let state = self.watch.state.lock();
        if state.blind {
            self.stream.bound_silence(patience);
        }
        // With [`Endpoint::patience_changed`] or the next octets that are sent.
        if patience.is_some() && state.timer.is_none() {
            self.watch.on.store(false, Ordering::SeqCst);
        }
    }

    /// Whether octets that were sent are looked after.
    pub(super) fn is_watched(&self) -> bool {
        self.watch.on.load(Ordering::Relaxed)
    }
}

impl Endpoint {
    /// Something was sent: sees to it that the peer is found out if it does not answer.
    #[cold]
    pub(super) fn watch_peer(self: &Arc<Self>, link: &Arc<Link>) {
        if link.watch.on.swap(true, Ordering::SeqCst) || link.is_closed() {
            return;
        }
        let Some(patience) = link.watch.patience() else { return };
        let now = self.now();
        let mut state = link.watch.state.lock();
        if !state.blind {
            state.vigil = Some(Vigil::new(now));
            self.look_later(link, &mut state, now.plus(pause(patience)));
        }
    }

    /// The program has changed its patience: the next look is due accordingly.
    pub(crate) fn patience_changed(self: &Arc<Self>, link: &Arc<Link>) {
        let Some(patience) = link.watch.patience() else { return };
        {
            let mut state = link.watch.state.lock();
            if state.timer.is_some() {
                return self.look_later(link, &mut state, self.now().plus(pause(patience)));
            }
        }
        // Something may be outstanding that was not to be looked after so far.
        self.watch_peer(link);
    }

    fn look_later(self: &Arc<Self>, link: &Arc<Link>, state: &mut State, at: Time) {
        let ticket = link.watch.ticket.get_or_init(|| {
            Arc::new(Ticket { endpoint: Arc::downgrade(self), link: Arc::downgrade(link) })
        });
        let ticket = Arc::downgrade(ticket);
        state.timer = Some(self.engine.worker.deadline_of(at, ticket));
    }

    fn look_at_peer(self: &Arc<Self>, link: &Arc<Link>) {
        if link.is_closed() {
            return;
        }
        let mut state = link.watch.state.lock();
        state.timer = None;
        // A thread that sends from here on begins another vigil: this look may not see its octets.
        link.watch.on.store(false, Ordering::SeqCst);
        let Some(patience) = link.watch.patience() else { return };
        let Ok(Some(vitals)) = link.stream.vitals() else {
            state.blind = true;
            link.watch.on.store(true, Ordering::SeqCst);
            return link.stream.bound_silence(Some(patience));
        };
        let now = self.now();
        let long = question_pause(patience);
        let vigil = state.vigil.get_or_insert(Vigil::new(now));
        let next = match vigil.look(now, &vitals, patience) {
            Verdict::Gone => {
                drop(state);
                return self.peer_is_gone(link);
            }
            Verdict::Waiting(at) => {
                if vitals.last_ack >= long && !state.asks_often {
                    state.asks_often = true;
                    link.stream.ask_within(long);
                }
                at
            }
            Verdict::Idle => {
                state.vigil = None;
                let awaits = self.with(|core| core.is_connected() && core.outstanding().0 > 0);
                let asks = awaits && vitals.last_ack.min(vitals.last_data) >= long;
                if asks != state.asks_idle {
                    state.asks_idle = asks;
                    link.stream.ask_idle(asks.then_some(patience));
                }
                if !awaits {
                    return;
                }
                now.plus(pause(patience))
            }
        };
        if !link.watch.on.swap(true, Ordering::SeqCst) {
            self.look_later(link, &mut state, next);
        }
    }

    /// The peer left our questions unanswered.
    fn peer_is_gone(self: &Arc<Self>, link: &Arc<Link>) {
        // The system would go on asking.
        link.stream.reset_on_close();
        self.lose(link, &std::io::ErrorKind::TimedOut.into());
    }
}
