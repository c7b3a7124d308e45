// SPDX-License-Identifier: MIT OR Apache-2.0

//! Ids for datagram services (`RDMA_PS_UDP`).

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use iwarp_roce::cm::{ServiceId, UDP_QKEY};
use iwarp_roce::wire::MULTICAST_QP;
use iwarp_types::AddressVector;

use super::{Id, IdCore, Kind, Phase, PortSpace, State};
use crate::cm::channel::ChannelCore;
use crate::cm::datagrams::{Ends, Inquiry, SidrRequest};
use crate::cm::{EventChannel, EventKind};
use crate::verbs::QueuePair;

impl Id {
    /// Makes an id for a datagram service, to offer it or to ask for it. [`Self::listen`] and
    /// [`Self::resolve_addr`] apply to it as to connections; ports of datagram services are a space
    /// of their own.
    ///
    /// # Errors
    ///
    /// As [`Self::new`].
    pub fn for_datagrams(channel: &EventChannel, space: PortSpace) -> io::Result<Self> {
        iwarp_mem::afford()?;
        let kind = Kind { space, datagrams: true };
        Ok(Self::of(IdCore::on(channel.core.check()?, kind, State::default())))
    }

    /// Asks for the queue pair of the datagram service at the peer's address. Ends in
    /// [`EventKind::ServiceFound`], [`EventKind::ServiceRefused`] or [`EventKind::Unreachable`].
    /// The peer's program gets `private_data`, 180 bytes at most.
    ///
    /// # Errors
    ///
    /// `InvalidInput` before the address is resolved, when the id is in use or for connections, or
    /// when there is too much private data; those of opening UDP port 4791.
    pub fn ask(&self, private_data: &[u8]) -> io::Result<()> {
        let core = self.core.check()?;
        let manager = core.manager()?;
        let mut state = core.state.lock();
        let (Phase::Idle, Some(local), Some(peer), true) =
            (&state.phase, state.local, state.peer, core.kind.datagrams)
        else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let traffic_class = state.choices.traffic_class.unwrap_or(0);
        let ends = Ends { local, peer, traffic_class };
        let service = ServiceId::new(core.kind.space, peer.port());
        let question = SidrRequest::new(core.downgrade(), manager, ends, service, private_data);
        state.phase = Phase::Asking(Arc::clone(&question));
        drop(state);
        question.ask().inspect_err(|_| {
            core.leave(&question, Phase::Idle);
        })
    }

    /// Tells a peer that has asked which queue pair has the service, of which Q_Key. The peer's
    /// program gets `private_data`, 136 bytes at most. No event follows on this side.
    ///
    /// # Errors
    ///
    /// `InvalidInput` unless a peer has asked and was not answered, or when there is too much
    /// private data; `NotConnected` when the peer cannot be waiting any more.
    pub fn answer(&self, qp: &QueuePair, qkey: u32, private_data: &[u8]) -> io::Result<()> {
        self.answer_with(qp.number(), qkey, private_data)
    }

    /// As [`Self::answer`], by the number of the queue pair.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn answer_with(&self, qp: u32, qkey: u32, private_data: &[u8]) -> io::Result<()> {
        let core = self.core.check()?;
        core.take_inquiry(Phase::Answered)?.answer(qp, qkey, private_data)
    }

    /// Joins a multicast group, on the interface of the address that the id is bound to or has been
    /// resolved to; ends in [`EventKind::MulticastJoined`], which says how datagrams are sent there.
    ///
    /// # Errors
    ///
    /// `InvalidInput` where the id has no address of the group's family, or is for connections, or
    /// the address is no group's.
    pub fn join(&self, group: IpAddr) -> io::Result<()> {
        let core = self.core.check()?;
        let group = group.to_canonical();
        let (local, class) = {
            let state = core.state.lock();
            (state.local, state.choices.traffic_class.unwrap_or(0))
        };
        let fits = |local: &IpAddr| local.is_ipv4() == group.is_ipv4() && !local.is_unspecified();
        let source = local.map(|local| local.ip().to_canonical()).filter(fits);
        let source = source.filter(|_| group.is_multicast() && core.kind.datagrams);
        let source = source.ok_or(io::ErrorKind::InvalidInput)?;
        let address = AddressVector {
            traffic_class: class,
            hop_limit: GROUP_HOPS,
            ..AddressVector::new(source, group)
        };
        core.push(EventKind::MulticastJoined { group, address, qp: MULTICAST_QP, qkey: UDP_QKEY });
        Ok(())
    }
}

/// The hop limit of datagrams to a group, as Linux has it.
const GROUP_HOPS: u8 = 64;

impl IdCore {
    /// The id of a question that came in.
    pub(crate) fn inquired(
        channel: &Arc<ChannelCore>,
        inquiry: Inquiry,
        space: PortSpace,
    ) -> Arc<Self> {
        let state = State {
            local: Some(inquiry.local),
            peer: Some(inquiry.peer),
            phase: Phase::Inquired(inquiry),
            ..State::default()
        };
        Self::on(channel, Kind { space, datagrams: true }, state)
    }

    /// The question has its answer: the id is where it says, and the program is told.
    pub(crate) fn answered(self: &Arc<Self>, question: &Arc<SidrRequest>, kind: EventKind) {
        let phase = match kind {
            EventKind::ServiceFound { .. } => Phase::Found,
            _ => Phase::Idle,
        };
        if self.leave(question, phase) {
            self.push(kind);
        }
    }

    /// The id does not ask that any more. False where it did not.
    fn leave(&self, question: &Arc<SidrRequest>, phase: Phase) -> bool {
        let mut state = self.state.lock();
        let asks = matches!(&state.phase, Phase::Asking(own) if Arc::ptr_eq(own, question));
        if asks {
            let before = std::mem::replace(&mut state.phase, phase);
            drop(state);
            drop(before);
        }
        asks
    }

    /// Takes the peer's question to answer it: once only, even if that fails.
    pub(super) fn take_inquiry(&self, phase: Phase) -> io::Result<Inquiry> {
        let mut state = self.state.lock();
        match std::mem::replace(&mut state.phase, phase) {
            Phase::Inquired(inquiry) => Ok(inquiry),
            other => {
                state.phase = other;
                Err(io::ErrorKind::InvalidInput.into())
            }
        }
    }
}
