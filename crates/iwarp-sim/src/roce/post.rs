// SPDX-License-Identifier: MIT OR Apache-2.0

//! The requests that programs post.

use iwarp_roce::wire::MULTICAST_QP;
use iwarp_types::{
    AddressVector, AtomicOp, Destination, Payload, PostError, QpState, Receive, RecvRequest,
    SendOp, SendRequest, Sge, Stag, WcStatus,
};

use super::Kind;
use super::end::{End, GRH, Posted, PostedReceive, Role, SLOT, SLOTS, STOCK, Simulated, UNTOUCHED};
use super::run::Run;

/// Elements of a list at most.
const ELEMENTS: u64 = 4;
/// Inline octets at most.
const INLINE: usize = 256;

impl<C: Simulated> Run<'_, C> {
    /// The program posts a receive, where there is room.
    pub(super) fn post_receive(&mut self, e: usize) -> Result<(), String> {
        let len = match (self.kind, self.rng.below(4)) {
            (Kind::Rc, _) => SLOT,
            (Kind::Ud, 0) => self.rng.length(400) as usize,
            (Kind::Ud, _) => GRH + 256,
            (Kind::Uc, 0) => self.rng.length(SLOT as u32) as usize,
            (Kind::Uc, _) => SLOT,
        };
        self.post_receive_of(e, len)
    }

    fn post_receive_of(&mut self, e: usize, len: usize) -> Result<(), String> {
        let end = &mut self.ends[e];
        if end.receives.len() == SLOTS || !end.core.state().takes_receives() {
            return Ok(());
        }
        let id = end.received;
        let slot = id as usize % SLOTS;
        let cut = self.rng.below(len as u64 + 1) as u32;
        let at = slot * SLOT;
        let sges =
            [Role::Receives.sge(at, cut), Role::Receives.sge(at + cut as usize, len as u32 - cut)];
        let end = &mut self.ends[e];
        end.host.change(Role::Receives.stag().0, |region| {
            region.octets[at..at + SLOT].fill(UNTOUCHED);
        });
        let wr_id = 2 * id + 1;
        if end.config.shared_receive {
            let receive = Receive { wr_id, sges: sges.to_vec() };
            end.host.pool.borrow_mut().push_back(receive);
        } else {
            let posted = end.core.post_recv(&RecvRequest::new(wr_id, &sges));
            posted.map_err(|error| format!("receive refused: {error}"))?;
        }
        end.received += 1;
        end.receives.push_back(PostedReceive { id: wr_id, slot, len });
        self.judge(e)
    }

    /// The program posts the receives that the peer's messages wait for (RC).
    pub(super) fn post_missing(&mut self, e: usize) -> Result<(), String> {
        if self.kind != Kind::Rc {
            return Ok(());
        }
        let peer = &self.ends[1 - e];
        let waiting =
            peer.posted[peer.arrived..].iter().filter(|posted| posted.takes_receive()).count();
        let missing = waiting.min(SLOTS).saturating_sub(self.ends[e].receives.len());
        (0..missing).try_for_each(|_| self.post_receive_of(e, SLOT))
    }

    /// The program posts a send.
    pub(super) fn post_send(&mut self, e: usize) -> Result<(), String> {
        let end = &self.ends[e];
        let takes = end.core.state().takes_sends();
        if !takes || end.core.outstanding().0 >= end.config.max_send_wr {
            return Ok(());
        }
        let posted = self.choose(e);
        let wr_id = 2 * self.ends[e].posted.len() as u64;
        let is_inline = posted.len <= INLINE
            && !matches!(posted.op, SendOp::Read { .. } | SendOp::Atomic { .. })
            && posted.fails != Some(WcStatus::LocalProtection)
            && self.rng.one_in(3);
        let octets = self.ends[e].stock(posted.from, posted.len);
        let sges = self.list(&posted);
        let payload = if is_inline { Payload::Inline(&octets) } else { Payload::Sges(&sges) };
        let mut request = SendRequest::new(wr_id, posted.op, payload);
        request.signaled = posted.signaled;
        request.destination = posted.destination.as_ref();
        self.note(|| format!("end {e} posts {posted:?}"));
        let result = self.ends[e].core.post_send(&request);
        match result {
            Ok(()) => self.ends[e].posted.push(posted),
            // A request that is silent and told yet counts for the queue pair, but not for the
            // oracle.
            Err(PostError::QueueFull) => {}
            Err(error) => return Err(format!("send refused: {error}")),
        }
        self.judge(e)
    }

    fn choose(&mut self, e: usize) -> Posted {
        let rng = &mut self.rng;
        let solicited = rng.one_in(4);
        let data = (rng.word() as u32).to_be_bytes();
        let most = if self.kind == Kind::Ud { 256 } else { SLOT as u32 };
        let (mut len, mut slot) = (rng.length(most) as usize, rng.below(SLOTS as u64) as usize);
        let (stag, to) = Role::Target.remote(slot * SLOT);
        let writes = SendOp::Write { stag, to };
        let sends = SendOp::Send { solicited, invalidate: None };
        let op = match (self.kind, rng.below(10)) {
            (Kind::Ud, 0..5) | (_, 0..3) => sends,
            (Kind::Ud, _) | (_, 3) => SendOp::SendImmediate { solicited, data },
            (Kind::Rc, 6) => SendOp::Read { stag, to, invalidate: None },
            (Kind::Rc, 7) => {
                let (stag, to) = Role::Stock.remote(rng.below((STOCK - len) as u64) as usize);
                slot = SLOTS;
                SendOp::Read { stag, to, invalidate: None }
            }
            (Kind::Rc, 8) => {
                let (stag, to) = Role::Counters.remote(8 * slot);
                len = 8;
                let (add, mask) = (rng.word(), 0);
                let all = u64::MAX;
                let (compare, swap) = (rng.below(2), rng.below(3));
                let op = match rng.one_in(2) {
                    true => AtomicOp::FetchAdd { add, mask },
                    false => {
                        AtomicOp::CompareSwap { compare, compare_mask: all, swap, swap_mask: all }
                    }
                };
                SendOp::Atomic { stag, to, op }
            }
            (_, 4) => SendOp::WriteImmediate { stag, to, solicited, data },
            _ => writes,
        };
        let mut posted = Posted {
            op,
            from: rng.below((STOCK - 2 * SLOT) as u64) as usize,
            len,
            slot,
            fetched: self.ends[e].posted.len() % SLOTS,
            signaled: !rng.one_in(4) || matches!(op, SendOp::Atomic { .. } | SendOp::Read { .. }),
            destination: None,
            fails: None,
            granted: true,
        };
        if self.kind != Kind::Rc {
            self.spoil(&mut posted);
        }
        if self.kind == Kind::Ud {
            posted.destination = Some(self.address(e));
        }
        posted
    }

    /// Makes a request wrong, now and then.
    fn spoil(&mut self, posted: &mut Posted) {
        let rng = &mut self.rng;
        match rng.below(60) {
            0 if posted.len > 0 => posted.fails = Some(WcStatus::LocalProtection),
            1 if self.kind == Kind::Ud => {
                posted.len = 257 + rng.below(100) as usize;
                posted.fails = Some(WcStatus::LocalLength);
            }
            2..=4 if posted.is_write() && posted.len > 0 => {
                if let SendOp::Write { stag, to } | SendOp::WriteImmediate { stag, to, .. } =
                    &mut posted.op
                {
                    posted.granted = false;
                    match rng.below(3) {
                        0 => *stag = Stag(stag.0 ^ 1),
                        1 => *to = Role::Target.remote(Role::Target.len()).1,
                        _ => (*stag, *to) = Role::Stock.remote(0),
                    }
                }
            }
            _ => {}
        }
    }

    /// The destination of a datagram.
    fn address(&mut self, e: usize) -> Destination {
        let rng = &mut self.rng;
        let other = &self.ends[rng.below(self.ends.len() as u64) as usize];
        let own = self.ends[e].attributes.path.address.source;
        let (mut to, mut qp) = (other.attributes.path.address.source, other.config.qp.0);
        if rng.one_in(4) {
            (to, qp) = (rng.pick(&self.groups), MULTICAST_QP);
        } else if rng.one_in(30) {
            qp ^= 8;
        }
        let qkey = match rng.below(8) {
            0 => rng.pick(&[0x11, 0x22, 0x33]),
            1 => 0x8000_0000 | rng.word() as u32,
            _ => other.attributes.qkey,
        };
        let hop_limit = rng.below(256) as u8;
        let address = AddressVector { hop_limit, ..AddressVector::new(own, to) };
        Destination { address, qp, qkey }
    }

    /// The list of a request's octets, oddly cut.
    fn list(&mut self, posted: &Posted) -> Vec<Sge> {
        if matches!(posted.op, SendOp::Read { .. } | SendOp::Atomic { .. }) {
            return vec![Role::Fetched.sge(posted.fetched * SLOT, posted.len as u32)];
        }
        let elements = self.rng.range(1, ELEMENTS);
        let (mut at, mut left) = (posted.from, posted.len);
        let mut sges = Vec::new();
        for element in 1..=elements {
            let len = match element == elements {
                true => left,
                false => self.rng.below(left as u64 + 1) as usize,
            };
            sges.push(Role::Stock.sge(at, len as u32));
            (at, left) = (at + len, left - len);
        }
        if posted.fails == Some(WcStatus::LocalProtection) {
            sges.iter_mut().for_each(|sge| sge.lkey = Stag(sge.lkey.0 ^ 1));
        }
        sges
    }
}

impl<C: Simulated> End<C> {
    /// The queue pair was reset: nothing is posted.
    pub(super) fn forget(&mut self) {
        self.completed = self.posted.len();
        self.going = (self.posted.len(), 0);
        self.receives.clear();
        self.host.pool.borrow_mut().clear();
        self.coming = None;
        debug_assert_eq!(self.core.state(), QpState::Reset);
    }
}
