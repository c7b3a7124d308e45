// SPDX-License-Identifier: MIT OR Apache-2.0

//! Descriptors for ports that have none: for those in start-up, which a thread waits for beside
//! others, or for as long as they live.

use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};

use iwarp_os::{EventFd, EventFdKind, FdPlace};

use super::around::{Wrap, around};
use super::waker::Wake;
use super::{Descriptors, Ends, IoPart, IoPartMut, Network, Port, Readiness, Settings, Waker};

/// A counter that is as full as it gets cannot be written.
const FULL: u64 = u64::MAX - 1;

/// The network, with descriptors for those of its ports that have none: until messages pass
/// (`for_life`: as long as they live). Other ports are left as they are.
pub(crate) fn described(network: Arc<dyn Network>, for_life: bool) -> Arc<dyn Network> {
    around(network, Described { for_life })
}

/// See [`described`].
#[derive(Clone, Debug)]
struct Described {
    for_life: bool,
}

impl Wrap for Described {
    fn wrap(&self, port: Box<dyn Port>) -> io::Result<Box<dyn Port>> {
        if !port.descriptors().is_none() {
            return Ok(port);
        }
        let shown = Arc::new(Shown::new()?);
        port.set_waker(Waker::new(Arc::clone(&shown) as Arc<dyn Wake>));
        shown.show_all(&*port);
        Ok(Box::new(DescribedPort { port, shown: Some(shown), for_life: self.for_life }))
    }
}

/// The readiness that two descriptors show.
#[derive(Debug)]
struct Shown {
    /// Readable while there is something to receive.
    input: EventFd,
    /// Writable while there is room.
    room: EventFd,
    /// The readiness that they show now.
    state: Mutex<Readiness>,
}

impl Shown {
    fn new() -> io::Result<Self> {
        let counter = || EventFd::new(EventFdKind::Counter, FdPlace::Internal);
        let (input, room) = (counter()?, counter()?);
        Ok(Self { input, room, state: Mutex::new(Readiness::ROOM) })
    }

    /// Has them show the port's readiness. The waker tells of changes while this looks: it waits
    /// for the lock meanwhile.
    fn show_all(&self, port: &dyn Port) {
        self.change(|_| port.readiness());
    }

    fn change(&self, to: impl FnOnce(Readiness) -> Readiness) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let after = to(*state);
        let changed = std::mem::replace(&mut *state, after) ^ after;
        // These fail only on a descriptor that was closed under us, which says that it is ready.
        if changed.contains(Readiness::INPUT) {
            let ready = after.contains(Readiness::INPUT);
            let _ = if ready { self.input.signal() } else { self.input.drain().map(drop) };
        }
        if changed.contains(Readiness::ROOM) {
            let ready = after.contains(Readiness::ROOM);
            let _ = if ready { self.room.drain().map(drop) } else { self.room.add(FULL) };
        }
    }
}

impl Wake for Shown {
    fn wake(&self, what: Readiness) {
        self.change(|before| before | what);
    }
}

/// A connection.
#[derive(Debug)]
struct DescribedPort {
    port: Box<dyn Port>,
    /// `None`: messages pass, and the port speaks for itself.
    shown: Option<Arc<Shown>>,
    for_life: bool,
}

impl DescribedPort {
    fn show<R>(&self, result: R) -> R {
        if let Some(shown) = &self.shown {
            shown.show_all(&*self.port);
        }
        result
    }
}

impl Port for DescribedPort {
    fn send(&self, parts: &[IoPart<'_>], more: bool) -> io::Result<usize> {
        self.show(self.port.send(parts, more))
    }

    fn recv(&self, parts: &mut [IoPartMut<'_>]) -> io::Result<usize> {
        self.show(self.port.recv(parts))
    }

    fn has_input(&self) -> io::Result<bool> {
        self.port.has_input()
    }

    fn shutdown_write(&self) -> io::Result<()> {
        self.show(self.port.shutdown_write())
    }

    fn ends(&self) -> Ends {
        self.port.ends()
    }

    fn descriptors(&self) -> Descriptors<'_> {
        match &self.shown {
            Some(shown) => Descriptors::two(shown.input.as_fd(), shown.room.as_fd()),
            None => Descriptors::none(),
        }
    }

    fn readiness(&self) -> Readiness {
        self.port.readiness()
    }

    fn set_waker(&self, waker: Waker) {
        // With descriptors it has one of its own.
        if self.shown.is_none() {
            self.port.set_waker(waker);
        }
    }

    fn may_hold(&self) -> bool {
        self.port.may_hold()
    }

    fn is_systems(&self) -> bool {
        self.port.is_systems()
    }

    fn begin(&mut self, settings: &Settings<'_>) -> io::Result<()> {
        self.port.begin(settings)?;
        if !self.for_life {
            self.shown = None;
        }
        Ok(())
    }

    super::around::pass_on_rest!(port);
}
