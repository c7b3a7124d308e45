// SPDX-License-Identifier: MIT OR Apache-2.0

//! Defects that are planted, to see that they are found.

use std::cell::RefCell;
use std::collections::HashSet;
use std::net::IpAddr;

use iwarp_roce::wire::{AtomicKind, Burst, Message, Packet, Path};
use iwarp_roce::{Attributes, DatagramCore};
use iwarp_types::{
    Access, AccessError, Accessor, AtomicOp, Bind, Core, Digest, Disposition, EachAnew, Event,
    Invalidator, Memory, PostError, QpState, Reason, ReceivePool, RecvRequest, RemoteAccess,
    SendRequest, Sge, Stag, TaggedOffset, Time, TransitionError, Usage, Wanted,
};

use super::end::Simulated;

/// A defect of a queue pair's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Flaw {
    /// None.
    #[default]
    None,
    /// Datagrams are taken with any Q_Key.
    QkeyIgnored,
    /// Messages are told, and acknowledged, before their octets are placed.
    PlacedLate,
    /// A receive is posted with the buffer of the one before it.
    StaleReceive,
    /// Packets that come again are done again: Atomics count twice.
    DoneTwice,
    /// Now and then a completion is lost.
    CompletionLost,
    /// Now and then one is told twice.
    CompletionTwice,
}

/// A core with a defect.
#[derive(Debug)]
pub(super) struct Flawed<C> {
    core: C,
    who: Accessor,
    flaw: Flaw,
    attributes: Attributes,
    /// The octets that are to be placed yet.
    late: RefCell<Vec<Placement>>,
    stale: Vec<Sge>,
    seen: HashSet<u32>,
    told: u32,
    again: Option<Event>,
}

#[derive(Debug)]
enum Placement {
    Local(Accessor, Sge, Vec<u8>),
    Remote(Accessor, Stag, TaggedOffset, Vec<u8>),
}

/// One completion in so many is lost, or told twice.
const RARE: u32 = 20;

impl<C: DatagramCore> Flawed<C> {
    pub(super) fn new(core: C, who: Accessor, flaw: Flaw) -> Self {
        Self {
            core,
            who,
            flaw,
            attributes: Attributes::default(),
            late: RefCell::default(),
            stale: Vec::new(),
            seen: HashSet::new(),
            told: 0,
            again: None,
        }
    }

    fn place_now<M: Memory + ?Sized>(&self, memory: &M) {
        for placement in self.late.take() {
            // Its completion has been told: it is too late for errors.
            let _ = match placement {
                Placement::Local(who, sge, data) => memory.place_local(who, sge, &data),
                Placement::Remote(who, stag, to, data) => memory.place_remote(who, stag, to, &data),
            };
        }
    }

    /// Does an Atomic that has come before.
    fn do_again<M: Memory + ?Sized>(&self, packet: &Packet<'_>, memory: &M) {
        if let Message::Atomic(eth) = packet.header.message
            && let AtomicKind::FetchAdd { add } = eth.kind
        {
            let _ = memory.atomic(self.who, eth.rkey, eth.va, AtomicOp::FetchAdd { add, mask: 0 });
        }
    }
}

impl<C: DatagramCore> DatagramCore for Flawed<C> {
    fn set_attributes(&mut self, attributes: &Attributes) {
        self.attributes = *attributes;
        self.core.set_attributes(attributes);
    }

    fn receive<M: Memory + ?Sized>(
        &mut self,
        packet: &Packet<'_>,
        path: &Path,
        now: Time,
        memory: &M,
        receives: &dyn ReceivePool,
    ) {
        let mut packet = *packet;
        match self.flaw {
            Flaw::QkeyIgnored => {
                if let Some(deth) = &mut packet.header.deth {
                    deth.qkey = self.attributes.qkey;
                }
            }
            Flaw::PlacedLate => {
                self.place_now(memory);
                let late = Late { memory, late: &self.late };
                return self.core.receive(&packet, path, now, &late, receives);
            }
            Flaw::DoneTwice => {
                if !packet.header.message.is_response()
                    && !self.seen.insert(packet.header.bth.psn.number())
                {
                    self.do_again(&packet, memory);
                }
            }
            Flaw::None | Flaw::StaleReceive | Flaw::CompletionLost | Flaw::CompletionTwice => {}
        }
        self.core.receive(&packet, path, now, memory, receives);
    }

    fn transmit<M: Memory + ?Sized>(&mut self, burst: &mut Burst, now: Time, memory: &M) {
        self.core.transmit(burst, now, memory);
        self.place_now(memory);
    }
}

impl<C: DatagramCore> Core for Flawed<C> {
    type Terminated = Reason;
    type Fault = Reason;

    fn state(&self) -> QpState {
        self.core.state()
    }

    fn modify(&mut self, to: QpState) -> Result<(), TransitionError> {
        self.core.modify(to)
    }

    fn post_send(&mut self, request: &SendRequest<'_>) -> Result<(), PostError> {
        self.core.post_send(request)
    }

    fn post_recv(&mut self, request: &RecvRequest<'_>) -> Result<(), PostError> {
        let stale = std::mem::replace(&mut self.stale, request.sges.to_vec());
        let is_usable = stale.iter().map(|sge| sge.length).sum::<u32>() > 0;
        if self.flaw == Flaw::StaleReceive && is_usable {
            return self.core.post_recv(&RecvRequest::new(request.wr_id, &stale));
        }
        self.core.post_recv(request)
    }

    fn outstanding(&self) -> (usize, usize) {
        self.core.outstanding()
    }

    fn is_connected(&self) -> bool {
        self.core.is_connected()
    }

    fn disconnect(&mut self) {
        self.core.disconnect();
    }

    fn abort(&mut self) {
        self.core.abort();
    }

    fn unreachable(&mut self) {
        self.core.unreachable();
    }

    fn lost(&mut self) {
        self.core.lost();
    }

    fn timed_out(&mut self) {
        self.core.timed_out();
    }

    fn fail_locally(&mut self, what: &'static str) {
        self.core.fail_locally(what);
    }

    fn disposition(&self) -> Disposition {
        self.core.disposition()
    }

    fn wanted(&mut self) -> Wanted {
        self.core.wanted()
    }

    fn poll_event(&mut self) -> Option<Event> {
        if let Some(event) = self.again.take() {
            return Some(event);
        }
        let event = self.core.poll_event()?;
        self.told += 1;
        match self.flaw {
            Flaw::CompletionLost if self.told.is_multiple_of(RARE) => self.core.poll_event(),
            Flaw::CompletionTwice if self.told.is_multiple_of(RARE) => {
                self.again = Some(event);
                Some(event)
            }
            _ => Some(event),
        }
    }

    fn has_events(&self) -> bool {
        self.core.has_events()
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.core.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Time) {
        self.core.handle_timeout(now);
    }

    fn set_remote_access(&mut self, access: Access) {
        self.core.set_remote_access(access);
    }
}

impl<C: Simulated> Simulated for Flawed<C> {
    fn attach(&mut self, group: IpAddr) {
        self.core.attach(group);
    }

    fn detach(&mut self, group: IpAddr) {
        self.core.detach(group);
    }
}

/// Memory whose placements wait.
struct Late<'a, M: ?Sized> {
    memory: &'a M,
    late: &'a RefCell<Vec<Placement>>,
}

impl<M: Memory + ?Sized> Memory for Late<'_, M> {
    type Use<'a>
        = EachAnew<'a, Self>
    where
        Self: Sized + 'a;

    fn begin_use(
        &self,
        who: Accessor,
        stag: Stag,
        usage: Usage,
    ) -> Result<Self::Use<'_>, AccessError> {
        Ok(EachAnew { memory: self, who, stag, usage })
    }

    fn check_remote(
        &self,
        who: Accessor,
        stag: Stag,
        to: TaggedOffset,
        len: u64,
        access: RemoteAccess,
    ) -> Result<(), AccessError> {
        self.memory.check_remote(who, stag, to, len, access)
    }

    fn place_remote(
        &self,
        who: Accessor,
        stag: Stag,
        to: TaggedOffset,
        data: &[u8],
    ) -> Result<(), AccessError> {
        self.late.borrow_mut().push(Placement::Remote(who, stag, to, data.to_vec()));
        Ok(())
    }

    fn gather_remote(
        &self,
        who: Accessor,
        stag: Stag,
        to: TaggedOffset,
        dst: &mut [u8],
        digest: Option<&mut Digest>,
    ) -> Result<(), AccessError> {
        self.memory.gather_remote(who, stag, to, dst, digest)
    }

    fn atomic(
        &self,
        who: Accessor,
        stag: Stag,
        to: TaggedOffset,
        op: AtomicOp,
    ) -> Result<u64, AccessError> {
        self.memory.atomic(who, stag, to, op)
    }

    fn check_local(&self, who: Accessor, sge: Sge, write: bool) -> Result<(), AccessError> {
        self.memory.check_local(who, sge, write)
    }

    fn place_local(&self, who: Accessor, sge: Sge, data: &[u8]) -> Result<(), AccessError> {
        self.late.borrow_mut().push(Placement::Local(who, sge, data.to_vec()));
        Ok(())
    }

    fn gather_local(
        &self,
        who: Accessor,
        sge: Sge,
        dst: &mut [u8],
        digest: Option<&mut Digest>,
    ) -> Result<(), AccessError> {
        self.memory.gather_local(who, sge, dst, digest)
    }

    fn bind_window(&self, who: Accessor, bind: Bind) -> Result<(), AccessError> {
        self.memory.bind_window(who, bind)
    }

    fn invalidate(&self, who: Accessor, stag: Stag, by: Invalidator) -> Result<(), AccessError> {
        self.memory.invalidate(who, stag, by)
    }
}
