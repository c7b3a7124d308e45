// SPDX-License-Identifier: MIT OR Apache-2.0

//! Connections that come in. They are made without a call of the program's (RS-API-06), and wait to
//! be accepted; those beyond the backlog wait for their answer.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use iwarp::cm::Id;
use iwarp_sockets::wire::ConnData;
use rustix::io::Errno;

use crate::connection::Connection;
use crate::shown::By;
use crate::socket::{Flags, Inner, Phase, Socket, State, shown};

/// The part of a socket that listens.
pub(crate) struct Listening {
    id: Id,
    backlog: usize,
    /// Connections that are being made.
    opening: Vec<Arc<Inner>>,
    /// Connections that wait to be accepted, oldest first.
    pub(crate) waiting: VecDeque<Arc<Inner>>,
    /// Requests that wait for room among those.
    held: VecDeque<(Id, ConnData)>,
}

impl Listening {
    fn has_room(&self) -> bool {
        self.opening.len() + self.waiting.len() < self.backlog
    }

    /// Ends it: none waits any more.
    pub(crate) fn close(self) {
        let Self { id, opening, waiting, held, .. } = self;
        id.close();
        drop(held);
        for socket in opening.into_iter().chain(waiting) {
            socket.abort();
        }
    }
}

impl Socket {
    /// Has connections come in; or, if they do, changes the number of those that may wait.
    ///
    /// # Errors
    ///
    /// `InvalidInput` where it has a connection; those of binding.
    pub fn listen(&self, backlog: u32) -> io::Result<()> {
        let mut state = self.inner.lock();
        let backlog = (backlog as usize).max(1);
        let id = match std::mem::replace(&mut state.phase, Phase::New) {
            Phase::Listening(mut listening) => {
                listening.backlog = backlog;
                state.phase = Phase::Listening(listening);
                return Ok(());
            }
            Phase::Bound(id) => id,
            Phase::New => {
                let id = self.inner.make_id(&state)?;
                id.bind(SocketAddr::new(self.inner.domain.any(), 0))?;
                id
            }
            phase => {
                state.phase = phase;
                return Err(Errno::INVAL.into());
            }
        };
        let listens = id.listen(backlog.try_into().unwrap_or(u32::MAX));
        state.local = id.local_addr();
        state.phase = match &listens {
            Ok(()) => Phase::Listening(Box::new(Listening {
                id,
                backlog,
                opening: Vec::new(),
                waiting: VecDeque::new(),
                held: VecDeque::new(),
            })),
            Err(_) => Phase::Bound(id),
        };
        state.settle(By::Call, false);
        listens
    }

    /// Takes a connection that has come in, and the address of its peer.
    ///
    /// # Errors
    ///
    /// `WouldBlock` where none waits; `InvalidInput` for a socket that does not listen; when
    /// descriptors cannot be made, and the connection goes on waiting.
    pub fn try_accept(&self, flags: Flags) -> io::Result<(Self, SocketAddr)> {
        let mut state = self.inner.lock();
        let Phase::Listening(listening) = &mut state.phase else {
            return Err(Errno::INVAL.into());
        };
        let Some(inner) = listening.waiting.front().map(Arc::clone) else {
            state.settle(By::Call, false);
            return Err(Errno::AGAIN.into());
        };
        let shown = shown(flags)?;
        listening.waiting.pop_front();
        let next = listening.held.pop_front();
        state.settle(By::Call, false);
        drop(state);
        if let Some((id, data)) = next {
            self.inner.make(id, data);
        }
        let mut state = inner.lock();
        state.attach(shown);
        state.settle(By::Call, true);
        let peer = state.peer.ok_or(Errno::CONNABORTED)?;
        drop(state);
        Ok((Self { inner }, peer))
    }
}

impl Inner {
    /// A peer wants a connection.
    pub(crate) fn requested(self: &Arc<Self>, id: Id, private_data: Vec<u8>) {
        let data = match ConnData::read(&private_data) {
            Ok(data) => data,
            Err(error) => {
                tracing::warn!("a peer is refused that asks an rsocket for a connection: {error}");
                let _ = id.reject(&[]);
                return;
            }
        };
        let mut state = self.lock();
        let Phase::Listening(listening) = &mut state.phase else { return };
        if !listening.has_room() {
            listening.held.push_back((id, data));
            return;
        }
        drop(state);
        self.make(id, data);
    }

    /// Accepts a peer's request.
    fn make(self: &Arc<Self>, id: Id, data: ConnData) {
        let opened = self.try_make(id, data);
        if let Err(error) = opened {
            tracing::warn!("an rsocket cannot accept a connection: {error}");
        }
    }

    fn try_make(self: &Arc<Self>, id: Id, data: ConnData) -> io::Result<()> {
        let (settings, choices) = {
            let state = self.lock();
            (state.settings.clone(), state.choices)
        };
        let mut state = State::new(settings, choices);
        (state.local, state.peer) = (id.local_addr(), id.peer_addr());
        state.parent = Weak::clone(&self.itself);
        let child = Self::new(&self.host, self.domain, state);
        id.set_context(child.as_context());
        let pd = self.host.domain(id.device_place().unwrap_or(0))?;
        let mut state = child.lock();
        let mut connection = Connection::new(&pd, id, &state.settings, child.server())?;
        connection.requested = Some(data);
        state.phase = Phase::Opening(Box::new(connection));
        // Before it can be up.
        if let Phase::Listening(listening) = &mut self.lock().phase {
            listening.opening.push(Arc::clone(&child));
        }
        let accepted = match &state.phase {
            Phase::Opening(connection) => connection.accept(),
            _ => Ok(()),
        };
        drop(state);
        accepted.inspect_err(|_| drop(self.take_opening(&child.itself)))
    }

    fn take_opening(&self, child: &Weak<Self>) -> Option<Arc<Self>> {
        let mut state = self.lock();
        let Phase::Listening(listening) = &mut state.phase else { return None };
        let is_it = |other: &Arc<Self>| std::ptr::eq(Arc::as_ptr(other), child.as_ptr());
        let place = listening.opening.iter().position(is_it)?;
        Some(listening.opening.swap_remove(place))
    }

    /// A connection that came in is made, or not.
    pub(crate) fn has_opened(self: &Arc<Self>, child: &Weak<Self>) {
        let Some(child) = self.take_opening(child) else { return };
        let is_up = matches!(child.lock().phase, Phase::Connected(_));
        let mut state = self.lock();
        let Phase::Listening(listening) = &mut state.phase else {
            drop(state);
            return child.abort();
        };
        let mut next = None;
        if is_up {
            listening.waiting.push_back(child);
        } else {
            next = listening.held.pop_front();
        }
        state.settle(By::Event, true);
        drop(state);
        if let Some((id, data)) = next {
            self.make(id, data);
        }
    }
}
