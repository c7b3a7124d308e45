// SPDX-License-Identifier: MIT OR Apache-2.0

//! Channels, in which a program finds the events of its ids.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use iwarp_os::{EventFd, EventFdKind, FdPlace, Interest, ProcessOwned, poll};
use iwarp_types::Time;

use crate::cm::events::Taken;
use crate::cm::id::{Events, IdCore};
use crate::cm::{EventKind, Id};
use crate::engine::ended::ConnectionObserver;
use crate::engine::now;
use crate::engine::poll_set::{By, Waiting, wait_beside};
use crate::engine::server::Server;
use crate::engine::wake_fd::WakeFd;
use crate::verbs::{Device, ProtectionDomain};
use crate::wire::choice::Wires;

/// Something that happened to an [`Id`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Event {
    /// The id that it happened to; a new one for [`EventKind::ConnectRequest`].
    pub id: Id,
    /// The listening id at which the connection came in.
    pub listener: Option<Id>,
    /// The kind of event.
    pub kind: EventKind,
}

impl Event {
    fn of(Taken { id, listener, kind }: Taken<IdCore>) -> Self {
        Self { id: Id::of(id), listener: listener.map(Id::of), kind }
    }
}

/// A queue in which the events of ids arrive.
#[derive(Clone, Debug)]
pub struct EventChannel {
    pub(crate) core: ProcessOwned<Arc<Events>>,
    fd: Arc<EventFd>,
    /// Its ids may be on any device.
    any: bool,
}

impl EventChannel {
    /// Makes a channel, for ids on that device.
    ///
    /// # Errors
    ///
    /// When the descriptor cannot be made; `ENODEV` in a forked child.
    pub fn new(device: &Device) -> io::Result<Self> {
        Self::on(device.wires()?)
    }

    /// Makes a channel for ids on any device of the process that `device` belongs to: an id is on
    /// the one that has its local address, and one that listens on all addresses takes what comes
    /// to any device.
    ///
    /// # Errors
    ///
    /// As [`Self::new`].
    pub fn for_any_device(device: &Device) -> io::Result<Self> {
        Self::on(&device.wires()?.of_any())
    }

    /// Makes a channel of the device that the domain is of.
    ///
    /// # Errors
    ///
    /// As [`Self::new`].
    pub fn of(pd: &ProtectionDomain) -> io::Result<Self> {
        Self::on(&pd.core.check()?.wires)
    }

    /// A channel in the place of one that this process, a forked child, inherits: it has that one's
    /// descriptor, and none of its events. Its ids are on `device`, or on any where those of the
    /// inherited one were.
    ///
    /// # Errors
    ///
    /// `EBADF` where the child has closed the descriptor; those of [`Self::new`].
    pub fn take_over(device: &Device, inherited: &Self) -> io::Result<Self> {
        let wires = device.wires()?;
        let wires = if inherited.any { wires.of_any() } else { Arc::clone(wires) };
        Ok(Self::with(&wires, EventFd::take_over(&inherited.fd)?))
    }

    /// As [`Self::for_any_device`], and the worker calls `serve` when there are events. The program
    /// does not see the channel.
    ///
    /// # Errors
    ///
    /// As [`Self::new`].
    #[doc(hidden)]
    pub fn served(device: &Device, serve: Arc<dyn Fn() + Send + Sync>) -> io::Result<Self> {
        let wires = device.wires()?.of_any();
        let fd = EventFd::new(EventFdKind::Semaphore, FdPlace::Internal)?;
        let this = Self::with(&wires, fd);
        this.core.check()?.serve(Server::new(&device.engine()?.worker, serve));
        Ok(this)
    }

    pub(crate) fn on(wires: &Arc<Wires>) -> io::Result<Self> {
        Ok(Self::with(wires, EventFd::new(EventFdKind::Semaphore, FdPlace::Program)?))
    }

    fn with(wires: &Arc<Wires>, fd: EventFd) -> Self {
        let fd = Arc::new(fd);
        let core = ProcessOwned::new(Events::new(wires, Some(Arc::clone(&fd))));
        Self { core, fd, any: wires.is_any() }
    }

    /// Waits for an event; `None` when `timeout` passes first.
    ///
    /// # Errors
    ///
    /// When waiting fails; `ENODEV` in a forked child.
    pub fn wait(&self, timeout: Option<Duration>) -> io::Result<Option<Event>> {
        let core = self.core.check()?;
        let deadline = timeout.map(|timeout| now().plus(timeout));
        loop {
            if let Some(event) = core.pop().map(Event::of) {
                return Ok(Some(event));
            }
            let left = deadline.map(|deadline| deadline.0.saturating_sub(now().0));
            if left == Some(Duration::ZERO) {
                return Ok(None);
            }
            match poll::wait_readable([self.as_fd()], left) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Checks that events can come.
    ///
    /// # Errors
    ///
    /// `ENODEV` in a forked child.
    #[doc(hidden)]
    pub fn check(&self) -> io::Result<()> {
        self.core.check().map(drop)
    }

    /// Has `observer` told, beside the program, how the connections of the channel's ids end. To be
    /// called once, before there is one.
    ///
    /// # Errors
    ///
    /// `ENODEV` in a forked child.
    #[doc(hidden)]
    pub fn watch(&self, observer: Arc<dyn ConnectionObserver>) -> io::Result<()> {
        self.core.check()?.watch(observer);
        Ok(())
    }

    /// Takes an event if there is one.
    pub fn try_next(&self) -> Option<Event> {
        self.core.alive()?.pop().map(Event::of)
    }
}

impl AsFd for EventChannel {
    /// Readable while events wait.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A channel without a descriptor, for callers that block in the library.
#[derive(Debug)]
pub(crate) struct Mailbox {
    core: ProcessOwned<Arc<Events>>,
}

impl Mailbox {
    pub(crate) fn new(wires: &Arc<Wires>) -> Self {
        Self { core: ProcessOwned::new(Events::new(wires, None)) }
    }

    /// The channel.
    ///
    /// # Errors
    ///
    /// `ENODEV` in a forked child.
    pub(crate) fn core(&self) -> io::Result<&Arc<Events>> {
        self.core.check()
    }

    /// Waits for an event, and moves what `waiting` names meanwhile; `None` when the time has come
    /// first.
    pub(crate) fn wait(
        &self,
        waiting: &[Waiting],
        deadline: Option<Time>,
    ) -> io::Result<Option<Event>> {
        let core = self.core.check()?;
        loop {
            if let Some(event) = core.pop().map(Event::of) {
                return Ok(Some(event));
            }
            let left = deadline.map(|deadline| deadline.0.saturating_sub(now().0));
            if left == Some(Duration::ZERO) {
                // The worker may have stayed away, as callers come here.
                waiting.iter().for_each(|waiting| _ = waiting.set().drive(By::Caller));
                return Ok(core.pop().map(Event::of));
            }
            let wake_fd = WakeFd::of_thread()?;
            if !core.sleep(&wake_fd) {
                continue;
            }
            let woken = wait_beside(waiting, wake_fd.as_fd(), Interest::READ, left);
            core.wake(&wake_fd);
            let woken = woken?;
            if woken.own {
                wake_fd.drain();
            }
            woken.drive(waiting);
        }
    }
}
