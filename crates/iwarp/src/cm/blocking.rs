// SPDX-License-Identifier: MIT OR Apache-2.0

//! Connecting and accepting, blocking.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use iwarp_os::ProcessOwned;
use iwarp_types::Time;

use crate::cm::channel::Mailbox;
use crate::cm::{Addresses, ConnectError, ConnectParams, Event, EventKind, Id};
use crate::connect::Meanwhile;
use crate::engine::accept_set::AcceptSet;
use crate::engine::ended::Ended;
use crate::engine::now;
use crate::engine::poll_set::{PollSet, Waiting};
use crate::verbs::{Device, QueuePair};

/// Accepts connection requests on an address.
#[derive(Debug)]
pub struct Listener {
    mailbox: Mailbox,
    id: Id,
    accept_set: ProcessOwned<Arc<AcceptSet>>,
}

impl Listener {
    /// Listens on `addr`, or on the first of several [`Addresses`] where that is possible; with
    /// port 0 the system chooses one. A name is looked up in this thread.
    ///
    /// # Errors
    ///
    /// Errors of the resolver and of listening; `ENODEV` in a forked child.
    pub fn bind(device: &Device, addr: impl Into<Addresses>) -> io::Result<Self> {
        let engine = device.engine()?;
        let mailbox = Mailbox::new(device.wires()?);
        let accept_set = AcceptSet::new(&engine.worker)?;
        let id = addr.into().try_each(|addr| {
            let id = Id::with_mailbox(&mailbox)?;
            id.bind(addr)?;
            id.listen_at(Some(&accept_set), None)?;
            Ok(id)
        })?;
        Ok(Self { mailbox, id, accept_set: ProcessOwned::new(accept_set) })
    }

    /// The address on which it listens.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.id.local_addr()
    }

    /// Waits for a request; `None` when `timeout` passes first.
    ///
    /// # Errors
    ///
    /// Errors of waiting.
    pub fn accept(&self, timeout: Option<Duration>) -> io::Result<Option<Incoming>> {
        let deadline = timeout.map(|timeout| now().plus(timeout));
        let accept_set = Arc::clone(self.accept_set.check()?) as Arc<dyn PollSet>;
        let accept_set = [Waiting::on(accept_set)];
        loop {
            let Some(event) = self.mailbox.wait(&accept_set, deadline)? else { return Ok(None) };
            if let Event { id, kind, .. } = event
                && let EventKind::ConnectRequest { private_data, ird, ord, .. } = kind
            {
                return Ok(Some(Incoming { id, private_data, ird, ord }));
            }
            // Events of connections that were accepted here: the program has not asked for them.
        }
    }
}

/// A connection request.
#[derive(Debug)]
pub struct Incoming {
    id: Id,
    private_data: Vec<u8>,
    ird: Option<u16>,
    ord: Option<u16>,
}

impl Incoming {
    /// The peer's private data.
    pub fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    /// The peer's address.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.id.peer_addr()
    }

    /// The peer's IRD and ORD, if it states them (MPA revision 2).
    pub const fn read_depths(&self) -> (Option<u16>, Option<u16>) {
        (self.ird, self.ord)
    }

    /// Accepts: the connection is up when this returns.
    ///
    /// # Errors
    ///
    /// [`ConnectError`] when the peer has gone or broken the rules meanwhile.
    pub fn accept(
        self,
        qp: &QueuePair,
        params: &ConnectParams,
    ) -> Result<Connection, ConnectError> {
        let core = self.id.core()?;
        let mailbox = Mailbox::new(&core.wires());
        core.move_to(mailbox.core()?);
        self.id.try_accept(qp, params)?;
        Ok(Connection { mailbox, id: self.id, private_data: self.private_data })
    }

    /// Refuses the request, with private data for the peer.
    ///
    /// # Errors
    ///
    /// Too much private data; errors of sending.
    pub fn reject(self, private_data: &[u8]) -> io::Result<()> {
        self.id.reject(private_data)
    }
}

/// Connects `qp` to a listener at `addr`. Of several [`Addresses`] each is tried until one answers;
/// `timeout` is for all, and for looking a name up.
///
/// # Errors
///
/// [`ConnectError`]
pub fn connect(
    device: &Device,
    addr: impl Into<Addresses>,
    qp: &QueuePair,
    params: &ConnectParams,
    timeout: Duration,
) -> Result<Connection, ConnectError> {
    let deadline = now().plus(timeout);
    let mailbox = Mailbox::new(device.wires()?);
    let id = Id::with_mailbox(&mailbox)?;
    let found = addr.into().resolve_until(deadline).map_err(|error| match error.kind() {
        io::ErrorKind::TimedOut => ConnectError::Timeout,
        _ => ConnectError::Unreachable(error),
    })?;
    id.core()?.set_candidates(found);
    let mut last = ConnectError::Timeout;
    while let Some(addr) = id.core()?.next_candidate() {
        match connect_once(&mailbox, &id, addr, qp, params, deadline) {
            Ok(private_data) => return Ok(Connection { mailbox, id, private_data }),
            Err(error) if error.is_of_the_address() => last = error.at(Some(addr)),
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

/// Connects to one address, and returns the peer's private data.
fn connect_once(
    mailbox: &Mailbox,
    id: &Id,
    addr: SocketAddr,
    qp: &QueuePair,
    params: &ConnectParams,
    deadline: Time,
) -> Result<Vec<u8>, ConnectError> {
    let meanwhile = Meanwhile::of(qp.endpoint()?);
    id.connect_here(qp, addr, params, &meanwhile, deadline)?;
    loop {
        let Some(event) = mailbox.wait(meanwhile.waiting(), Some(deadline))? else {
            return Err(ConnectError::Timeout);
        };
        match event.kind {
            EventKind::Established { private_data, .. } => return Ok(private_data),
            other => {
                if let Some(error) = other.into_error() {
                    return Err(error);
                }
            }
        }
    }
}

/// A connection that is up. Dropping it ends it in good order.
#[derive(Debug)]
pub struct Connection {
    mailbox: Mailbox,
    id: Id,
    private_data: Vec<u8>,
}

impl Connection {
    /// The peer's private data from the start of the connection.
    pub fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    /// The local address.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.id.local_addr()
    }

    /// The peer's address.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.id.peer_addr()
    }

    /// The id underneath.
    pub const fn id(&self) -> &Id {
        &self.id
    }

    /// Ends it in good order: accepted data still go out, in the background.
    pub fn disconnect(&self) {
        self.id.disconnect();
    }

    /// Waits until either side has ended it, and says how; `None` when `timeout` passes first.
    pub fn wait_disconnected(&self, timeout: Option<Duration>) -> Option<Ended> {
        let deadline = timeout.map(|timeout| now().plus(timeout));
        let endpoint = self.id.core().ok()?.endpoint();
        let meanwhile = endpoint.map(|endpoint| Meanwhile::of(&endpoint));
        let waiting = meanwhile.as_ref().map_or(&[][..], Meanwhile::waiting);
        loop {
            match self.mailbox.wait(waiting, deadline) {
                Ok(Some(Event { kind: EventKind::Disconnected(why), .. })) => return Some(why),
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => return None,
            }
        }
    }
}
