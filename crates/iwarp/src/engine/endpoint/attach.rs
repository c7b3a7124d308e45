// SPDX-License-Identifier: MIT OR Apache-2.0

//! A stream comes to its queue pair.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use iwarp_proto::mpa::startup::Negotiated;
use iwarp_types::PostError;

use super::{Endpoint, Patience};
use crate::engine::any_core::AnyCore;
use crate::engine::ended::Observer;
use crate::engine::fate::Fate;
use crate::engine::link::Link;
use crate::engine::policy::habits::Habits;
use crate::port::Port;

/// The terms of a connection that the connection manager makes.
pub(crate) struct Agreed {
    pub(crate) terms: Negotiated,
    /// Times that the peer sends a message again which finds no receive here; 7: without end.
    pub(crate) rnr_retry: u8,
}

impl Endpoint {
    /// Runs a stream that MPA start-up has agreed on. Whatever happens to it is told to
    /// `observer`, after `established` was called: from then on work can be posted. `connection`
    /// is a number of [`Worker::next_id`](crate::engine::worker::Worker::next_id).
    pub(crate) fn attach(
        self: &Arc<Self>,
        stream: Box<dyn Port>,
        Agreed { terms, rnr_retry }: &Agreed,
        connection: u64,
        observer: Option<Arc<dyn Observer>>,
        established: impl FnOnce(),
    ) -> io::Result<()> {
        let establish = |core: &mut AnyCore| {
            core.set_peer_rnr_retry(*rnr_retry);
            core.iwarp().establish(terms, self.now());
        };
        let how = (connection, None);
        self.attach_by(establish, stream, Some(terms), how, observer, established)
    }

    /// As [`Self::attach`], for a queue pair that the program itself takes through its states.
    pub(crate) fn attach_in_place(
        self: &Arc<Self>,
        stream: Box<dyn Port>,
        terms: &Negotiated,
        peer_qp: u32,
    ) -> io::Result<()> {
        let connection = self.engine.worker.next_id();
        let establish = |core: &mut AnyCore| core.iwarp().establish_in_place(terms, self.now());
        let how = (connection, Some(peer_qp));
        self.attach_by(establish, stream, Some(terms), how, None, || {})
    }

    /// Runs a connected stream on a core that is not iWARP's, without any start-up.
    pub(crate) fn attach_other(
        self: &Arc<Self>,
        stream: Box<dyn Port>,
        observer: Arc<dyn Observer>,
    ) -> io::Result<()> {
        let connection = self.engine.worker.next_id();
        let establish = |core: &mut AnyCore| core.other().establish(self.now());
        self.attach_by(establish, stream, None, (connection, None), Some(observer), || {})
    }

    /// Has a queue pair of the type UD get the packets to a multicast group, too. Once more changes
    /// nothing.
    pub(crate) fn attach_multicast(self: &Arc<Self>, group: IpAddr) -> io::Result<()> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
        let mux = self.number.mux().ok_or_else(invalid)?;
        let is_new = self.with(|core| {
            let ud = core.ud().ok_or_else(invalid)?;
            let is_new = !ud.is_attached(group);
            ud.attach(group).map(|()| is_new).map_err(|error| match error {
                PostError::OutOfMemory => io::ErrorKind::OutOfMemory.into(),
                _ => invalid(),
            })
        })?;
        if !is_new {
            return Ok(());
        }
        mux.attach(group, self).inspect_err(|_| {
            self.with(|core| core.ud().map(|ud| ud.detach(group)));
        })
    }

    /// Ends that. `InvalidInput` where it was not attached.
    pub(crate) fn detach_multicast(&self, group: IpAddr) -> io::Result<()> {
        let was = self.with(|core| core.ud().is_some_and(|ud| ud.detach(group)));
        let (true, Some(mux)) = (was, self.number.mux()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        mux.detach(Some(group), self);
        Ok(())
    }

    /// `terms`: for iWARP's core, and only for that. The connection has a number, and its peer may
    /// be known by that of its queue pair.
    fn attach_by(
        self: &Arc<Self>,
        establish: impl FnOnce(&mut AnyCore),
        stream: Box<dyn Port>,
        terms: Option<&Negotiated>,
        (connection, peer_qp): (u64, Option<u32>),
        observer: Option<Arc<dyn Observer>>,
        established: impl FnOnce(),
    ) -> io::Result<()> {
        iwarp_mem::afford()?;
        iwarp_mem::keep_fault_handler();
        let loan = self.engine.send_memory.lend();
        let fate = Fate::of_stream(self.id(), peer_qp, stream.ends(), terms);
        let link = Arc::new(Link::new(self, stream, terms, loan, fate.clone()));
        let patience = {
            let mut core = self.core.lock();
            if core.core.is_iwarp() != terms.is_some()
                || core.link.is_some()
                || core.core.is_outlived()
            {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            self.engine.live.add(self)?;
            core.program.observer = observer;
            core.program.fate = fate;
            establish(&mut core.core);
            core.link = Some(Arc::clone(&link));
            core.connection = connection;
            core.habits = Habits::new(self.depth, 2 * link.budget(), self.engine.options.without);
            self.hand_on(&mut core);
            core.patience
        };
        if let Some(Patience(patience)) = patience {
            link.set_patience(patience);
        }
        established();
        let joined = link.join(self.recv_cq.group()).and_then(|()| link.join(self.send_cq.group()));
        if let Err(error) = joined {
            self.abort();
            return Err(error);
        }
        if link.may_hold() {
            // Bytes that it took in with the start-up frame nothing else reports.
            link.deliver();
        }
        link.transmit();
        link.settle();
        Ok(())
    }

    /// Whether the program allows itself Reads and Atomics.
    pub(crate) fn set_reads(&self, allowed: bool) {
        self.core.lock().reads = allowed;
    }

    /// The transport may hear nothing of the peer for so long while something is under way;
    /// `None`: as long as the system likes.
    pub(crate) fn set_patience(self: &Arc<Self>, patience: Option<Duration>) {
        let link = {
            let mut core = self.core.lock();
            core.patience = Some(Patience(patience));
            core.link.clone()
        };
        if let Some(link) = link {
            link.set_patience(patience);
            link.patience_changed();
        }
    }
}
