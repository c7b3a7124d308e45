// SPDX-License-Identifier: MIT OR Apache-2.0

//! One core takes another's place, as long as nothing has been sent.
//!
//! A queue pair whose program says only later whom it talks to may begin with one wire's core and
//! go on with another's. Its [`Choice`] holds what the others need. The peer's number, its stream
//! or its first packet decides, and the requests posted until then move from one core to the other.
//! Once the queue pair has sent anything, its protocol is fixed until a reset.

use std::any::Any;
use std::fmt::Debug;
use std::io;
use std::sync::{Arc, Weak};

use iwarp_types::QpState;

use super::{Endpoint, EndpointCore, Locked};
use crate::engine::ended::ConnectionObserver;
use crate::engine::options::Wire;

/// The wires among which a queue pair has a choice: a stream's, with which it begins, and one over
/// packets.
pub(crate) trait Choice: Debug + Send {
    /// A core for packets in place of `core`, which hands over what was posted. `None` where it has
    /// sent something, or has failed.
    fn packets(&mut self, core: &mut dyn EndpointCore) -> Option<Box<dyn EndpointCore>>;

    /// Keeps the core whose place another one has taken, for [`Self::stream`].
    fn keep(&mut self, stream: Box<dyn EndpointCore>);

    /// The core for a stream that was kept, as new: a reset needs no memory.
    fn stream(&mut self) -> Option<Box<dyn EndpointCore>>;

    /// Has packets for the queue pair's number concern it although its core takes none, and
    /// `listener` told of the first one by which the peer proves that it speaks nothing else.
    fn listen(&mut self, listener: Weak<dyn PacketListener>);

    /// True while it listens.
    fn is_listening(&self) -> bool;

    /// Ends that.
    fn stop_listening(&mut self);

    /// Has the next packet that goes out ask the peer what it speaks. False unless it listens.
    fn ask(&mut self) -> bool;

    /// The part of it that the wing for packets knows.
    fn part(&mut self) -> &mut dyn Any;
}

/// Is told, once, that the peer of a queue pair speaks the wire over packets. Called without the
/// queue pair's lock.
pub(crate) trait PacketListener: Send + Sync {
    /// The peer has sent a packet that proves it.
    fn heard_packet(&self);
}

impl Endpoint {
    /// Calls `f` with the core and the choice that it has, locked. Events are not handed on.
    pub(crate) fn with_choice<R>(
        &self,
        f: impl FnOnce(&mut dyn EndpointCore, Option<&mut dyn Choice>) -> R,
    ) -> R {
        let mut locked = self.core.lock();
        let Locked { core, choice, .. } = &mut *locked;
        match choice {
            Some(choice) => f(&mut **core, Some(&mut **choice)),
            None => f(&mut **core, None),
        }
    }

    /// Tells `observer` how a connection over packets fares, which is about to begin.
    pub(crate) fn observe(&self, observer: Arc<dyn ConnectionObserver>) {
        let before = self.core.lock().program.observer.replace(observer);
        // Without the lock: it may be the last to know of an id.
        drop(before);
    }

    /// Packets make its connection, if it may send them: the log tells of it from now on.
    pub(super) fn begin_fate(&self, locked: &mut Locked) {
        if matches!(locked.core.state(), QpState::Rts | QpState::Sqd)
            && locked.program.fate.is_none()
        {
            locked.program.fate = locked.core.begin_fate(self.id());
        }
    }

    /// Says for the log why its connection is about to end.
    pub(crate) fn ends(&self, why: &str) {
        self.core.lock().program.ends(|| why.to_owned());
    }

    /// True if its core takes packets, or one that may take its place.
    pub(crate) fn may_use_datagrams(&self) -> bool {
        let locked = self.core.lock();
        locked.core.takes_packets() || locked.choice.is_some()
    }

    /// Goes on over packets, and what was posted goes along. False where the queue pair has or had
    /// a connection, has failed, or has no choice.
    pub(crate) fn go_on_over_packets(&self) -> bool {
        let mut locked = self.core.lock();
        if locked.link.is_some() || locked.core.takes_packets() {
            return false;
        }
        let Locked { core, choice, .. } = &mut *locked;
        let Some(choice) = choice else { return false };
        let Some(packets) = choice.packets(&mut **core) else { return false };
        choice.stop_listening();
        choice.keep(std::mem::replace(core, packets));
        self.hand_on(&mut locked);
        self.begin_fate(&mut locked);
        true
    }

    /// The protocol that it speaks, once that is known.
    pub(crate) fn wire(&self) -> Option<Wire> {
        let Locked { core, choice, .. } = &*self.core.lock();
        let is_chosen = choice.is_none() || core.takes_packets() || core.is_connected();
        core.wire().filter(|_| is_chosen)
    }

    /// A queue pair that was reset has its choice again.
    pub(super) fn choose_again(locked: &mut Locked) {
        if let Some(choice) = &mut locked.choice {
            choice.stop_listening();
            if locked.core.takes_packets()
                && let Some(stream) = choice.stream()
            {
                locked.core = stream;
            }
        }
    }

    /// From now on `listener` is told when the peer turns out to speak the wire over packets, until
    /// the queue pair [stops listening](Self::stop_listening).
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a queue pair without a choice; those of the port that packets come by.
    pub(crate) fn listen_for_packets(
        self: &Arc<Self>,
        listener: Weak<dyn PacketListener>,
    ) -> io::Result<()> {
        let begun = self.with_choice(|_, choice| choice.map(|choice| choice.listen(listener)));
        begun.ok_or(io::ErrorKind::InvalidInput)?;
        self.listen_for_datagrams().inspect_err(|_| {
            self.with_choice(|_, choice| choice.map(|choice| choice.stop_listening()));
        })
    }

    /// Asks the peer what it speaks, if the queue pair listens.
    pub(crate) fn ask_by_packets(self: &Arc<Self>) {
        let asks = self.with_choice(|_, choice| choice.is_some_and(|choice| choice.ask()));
        let mux = if asks { self.mux() } else { None };
        if let Some(mux) = mux {
            mux.transmit(self);
        }
    }

    /// It is known what the peer speaks, or it does not matter any more.
    pub(crate) fn stop_listening(&self) {
        let mux = {
            let mut locked = self.core.lock();
            if let Some(choice) = &mut locked.choice {
                choice.stop_listening();
            }
            if locked.core.takes_packets() { None } else { locked.mux.take() }
        };
        if let Some(mux) = mux {
            mux.forget(self);
        }
    }

    /// From now on a core over packets gets those that come to the port for its number, and so does
    /// a choice that listens; nothing for any other core.
    pub(crate) fn listen_for_datagrams(self: &Arc<Self>) -> io::Result<()> {
        let is_new = {
            let Locked { core, choice, mux, .. } = &*self.core.lock();
            let listens = choice.as_ref().is_some_and(|choice| choice.is_listening());
            (core.takes_packets() || listens) && mux.is_none()
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
}
