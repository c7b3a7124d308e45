// SPDX-License-Identifier: MIT OR Apache-2.0

//! A stream leaves its queue pair, or is told to end.

use std::sync::Arc;

use iwarp_types::{QpState, TransitionError};

use super::{Endpoint, EndpointCore, Locked};
use crate::engine::ended::Ended;
use crate::engine::live::Connection;
use crate::engine::mover::StreamMover;

/// The reason for which a connection ends.
const DISCONNECTED: &str = "this end disconnected";

impl Connection for Endpoint {
    fn id(&self) -> u32 {
        self.id()
    }

    fn hold_back_receives(&self) {
        self.core.lock().program.exits = true;
    }

    fn end(self: Arc<Self>) {
        self.hear_out();
        self.end_by(|_| true, "the process exits", |core| core.disconnect());
    }
}

impl Endpoint {
    /// Changes the state; going to Reset drops the stream.
    pub(crate) fn modify(self: &Arc<Self>, to: QpState) -> Result<(), TransitionError> {
        self.hold_back_no_more();
        let dropped = {
            let mut core = self.core.lock();
            let was_connected = core.core.is_connected();
            let mut dropped = None;
            if to == QpState::Reset {
                dropped = core.link.take();
                core.connection = 0;
            }
            if to == QpState::Reset {
                core.catch_up();
            }
            core.core.modify(to)?;
            if matches!(to, QpState::Err | QpState::Reset) {
                core.program.ends(|| format!("the program moved the queue pair to {to:?}"));
            }
            if to == QpState::Reset {
                core.program.fate = None;
            }
            if to == QpState::Rts {
                self.begin_fate(&mut core);
            }
            if to == QpState::Reset {
                self.forget_work(&mut core);
                Self::choose_again(&mut core);
            }
            self.hand_on(&mut core);
            if was_connected && !core.core.is_connected() {
                core.program.tell(Ended::Closed);
            }
            dropped
        };
        if to == QpState::Reset {
            let mux = self.core.lock().mux.take();
            if let Some(mux) = mux {
                mux.forget(self);
            }
        }
        if let Some(link) = dropped {
            link.break_off();
            self.engine.live.remove(self);
        }
        self.carry_on();
        Ok(())
    }

    /// Ends the connection in good order.
    pub(crate) fn disconnect(self: &Arc<Self>) {
        self.hold_back_no_more();
        self.hear_out();
        self.end_by(|_| true, DISCONNECTED, |core| core.disconnect());
    }

    /// The connection over packets that it has from now on has this number.
    pub(crate) fn number_connection(&self, connection: u64) {
        self.core.lock().connection = connection;
    }

    /// True if it has the connection with this number, or had it last.
    pub(crate) fn has_connection(&self, connection: u64) -> bool {
        self.core.lock().connection == connection
    }

    /// As above, unless the queue pair has another connection by now.
    pub(crate) fn disconnect_if(self: &Arc<Self>, connection: u64) {
        self.hold_back_no_more();
        self.hear_out();
        self.end_by(|core| core.connection == connection, DISCONNECTED, |core| core.disconnect());
    }

    /// Takes in what has come by now. A program may leave on a message of which another thread has
    /// yet to see what stands behind it: the peer's question whether it was received.
    fn hear_out(self: &Arc<Self>) {
        if !self.is_connected() {
            return;
        }
        if let Some(link) = self.link() {
            link.deliver();
            link.settle_receiving();
        }
    }

    /// No connection could be had.
    pub(crate) fn unreachable(self: &Arc<Self>) {
        self.end_by(
            |core| core.link.is_none(),
            "no connection could be had",
            |core| core.unreachable(),
        );
    }

    /// The connection has turned out to lead to another peer than the program expects.
    pub(crate) fn mistaken(self: &Arc<Self>) {
        let why = "the peer expects another packet number of this end";
        self.end_by(|_| true, why, |core| core.timed_out());
    }

    /// Ends the connection with a reset.
    pub(crate) fn abort(self: &Arc<Self>) {
        self.end_by(|_| true, "this end broke it off", |core| core.abort());
    }

    fn end_by(
        self: &Arc<Self>,
        which: impl FnOnce(&Locked) -> bool,
        why: &str,
        end: impl FnOnce(&mut dyn EndpointCore),
    ) {
        {
            let mut core = self.core.lock();
            if !which(&core) {
                return;
            }
            let was_connected = core.core.is_connected();
            let gone = core.program.gone;
            core.program.ends(|| match gone {
                true => "the queue pair was destroyed".to_owned(),
                false => why.to_owned(),
            });
            end(&mut *core.core);
            self.hand_on(&mut core);
            // The core tells what the peer did, not what it was told to do itself.
            if was_connected {
                core.program.tell(Ended::Closed);
            }
        }
        self.carry_on();
    }

    /// The program is done with the queue pair: from now on neither a completion nor an event tells
    /// of it.
    pub(crate) fn retire(&self) {
        self.core.lock().program.gone = true;
    }

    /// Retires the queue pair and ends its connection. Sends that it was told have completed still
    /// go out.
    pub(crate) fn abandon(self: &Arc<Self>) {
        self.retire();
        self.disconnect();
    }

    /// The stream is closed.
    pub(crate) fn link_closed(self: &Arc<Self>, link: &dyn StreamMover) {
        let mut core = self.core.lock();
        if core.link.as_deref().is_some_and(|mine| std::ptr::addr_eq(mine, link)) {
            core.link = None;
            self.engine.live.remove(self);
        }
    }

    /// The queue pair is as new: nothing completes of what was posted before.
    fn forget_work(&self, core: &mut Locked) {
        self.send_cq.forget(self.send_owner);
        self.recv_cq.forget(self.recv_owner);
        core.program.postponed.forget();
        core.sends.reset();
        core.receives.reset();
        if let Some(observed) = &mut core.program.observed {
            observed.reset();
        }
        if let Some(hurt) = &mut core.program.hurt {
            hurt.reset();
        }
        self.return_borrowed();
    }
}
