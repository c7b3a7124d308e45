// SPDX-License-Identifier: MIT OR Apache-2.0

//! A stream comes to its endpoint.

use std::any::TypeId;
use std::io;
use std::sync::Arc;

use iwarp_proto::mpa::startup::Negotiated;
use iwarp_proto::qp::Qp;
use iwarp_types::BoxedCore;

use super::{Link, fate};
use crate::capture;
use crate::engine::ended::ConnectionObserver;
use crate::engine::endpoint::{Adoption, Endpoint, EndpointCore, Patience};
use crate::engine::mover::StreamMover;
use crate::faults;
use crate::port::Port;

/// The terms of a connection that the connection manager makes.
pub(crate) struct Agreed {
    pub(crate) terms: Negotiated,
    /// Times that the peer sends a message again which finds no receive here; 7: without end.
    pub(crate) rnr_retry: u8,
}

/// Adopting a stream has checked it.
const OF_ITS_KIND: &str = "a link is of its core's kind";

fn iwarp(core: &mut dyn EndpointCore) -> &mut Qp {
    core.of().expect(OF_ITS_KIND)
}

impl Link {
    /// Runs a stream that MPA start-up has agreed on. Whatever happens to it is told to
    /// `observer`, after `established` was called: from then on work can be posted. `connection`
    /// is a number of [`Worker::next_id`](crate::engine::worker::Worker::next_id).
    pub(crate) fn attach(
        endpoint: &Arc<Endpoint>,
        stream: Box<dyn Port>,
        Agreed { terms, rnr_retry }: &Agreed,
        connection: u64,
        observer: Option<Arc<dyn ConnectionObserver>>,
        established: impl FnOnce(),
    ) -> io::Result<()> {
        let mut establish = |core: &mut dyn EndpointCore| {
            core.set_peer_rnr_retry(*rnr_retry);
            iwarp(core).establish(terms, endpoint.now());
        };
        let how = (connection, None);
        Self::attach_by(endpoint, &mut establish, stream, Some(terms), how, observer, established)
    }

    /// As [`Self::attach`], for a queue pair that the program itself takes through its states.
    pub(crate) fn attach_in_place(
        endpoint: &Arc<Endpoint>,
        stream: Box<dyn Port>,
        terms: &Negotiated,
        peer_qp: u32,
    ) -> io::Result<()> {
        let connection = endpoint.engine.worker.next_id();
        let mut establish = |core: &mut dyn EndpointCore| {
            iwarp(core).establish_in_place(terms, endpoint.now());
        };
        let how = (connection, Some(peer_qp));
        Self::attach_by(endpoint, &mut establish, stream, Some(terms), how, None, || {})
    }

    /// Runs a connected stream on a core that is not iWARP's, without any start-up; `connection` as
    /// for [`Self::attach`].
    pub(crate) fn attach_other(
        endpoint: &Arc<Endpoint>,
        stream: Box<dyn Port>,
        connection: u64,
        observer: Arc<dyn ConnectionObserver>,
        established: impl FnOnce(),
    ) -> io::Result<()> {
        let mut establish = |core: &mut dyn EndpointCore| {
            let core = core.of::<BoxedCore>().expect(OF_ITS_KIND);
            core.establish(endpoint.now());
        };
        Self::attach_by(
            endpoint,
            &mut establish,
            stream,
            None,
            (connection, None),
            Some(observer),
            established,
        )
    }

    /// `terms`: for iWARP's core, and only for that. The connection has a number, and its peer may
    /// be known by that of its queue pair.
    fn attach_by(
        endpoint: &Arc<Endpoint>,
        establish: &mut dyn FnMut(&mut dyn EndpointCore),
        mut stream: Box<dyn Port>,
        terms: Option<&Negotiated>,
        (connection, peer_qp): (u64, Option<u32>),
        observer: Option<Arc<dyn ConnectionObserver>>,
        established: impl FnOnce(),
    ) -> io::Result<()> {
        iwarp_mem::afford()?;
        iwarp_mem::keep_fault_handler();
        let local = stream.ends().local.map(|local| local.ip());
        stream.count_on(endpoint.profile.port_among_all(endpoint.port(), local));
        let loan = endpoint.engine.send_memory.lend();
        let fate = fate::of_stream(endpoint.id(), peer_qp, stream.ends(), terms);
        if let Some(tap) = stream.tap() {
            tap.keeps_no_more();
        }
        let link = Self::new(endpoint, stream, terms, loan, fate.clone());
        let patience = endpoint.adopt(Adoption {
            link: Arc::clone(&link) as Arc<dyn StreamMover>,
            moves: terms.map_or(TypeId::of::<BoxedCore>(), |_| TypeId::of::<Qp>()),
            connection,
            budget: link.budget,
            observer,
            fate,
            establish,
        })?;
        if let Some(Patience(patience)) = patience {
            // The first bytes that are sent begin the watch.
            link.keep_patience(patience);
        }
        established();
        let mut groups = endpoint.groups().into_iter();
        if let Err(error) = groups.try_for_each(|group| link.join(group)) {
            endpoint.abort();
            return Err(error);
        }
        if link.may_hold {
            // Bytes that it took in with the start-up frame nothing else reports.
            link.deliver();
        }
        if faults::is_pulled() {
            // It may have been, or not, when the link was made.
            link.cable(true);
        }
        if capture::is_on() {
            // It may have begun when this was not to be found.
            link.tell_capture();
        }
        link.begin_to_agree();
        link.transmit();
        link.settle();
        Ok(())
    }
}
