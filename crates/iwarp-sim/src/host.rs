// SPDX-License-Identifier: MIT OR Apache-2.0

//! A simulated queue pair's view of its host: memory of which the oracle watches every use, and
//! into which others reach at the worst moments.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use iwarp_proto::qp::Qp;
use iwarp_types::mock::{self, RegionOffset};
use iwarp_types::{
    AccessError, Accessor, AtomicOp, Bind, Digest, EachAnew, Invalidator, Memory, QpState, Receive,
    ReceivePool, RemoteAccess, Sge, Stag, TaggedOffset, Usage,
};

use crate::bank::{Bank, Role};
use crate::choice::split_mix;
use crate::model::{Model, Placing, Verdict};

/// A defect put in on purpose, so that the oracle is known to find it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Flaw {
    /// None.
    #[default]
    None,
    /// Payloads are placed, but not their last octet.
    PlaceShort,
    /// An octet beside the payload changes too.
    PlaceBeside,
    /// The octets gathered for the peer have one that is wrong.
    GatherWrong,
    /// Atomics return the new value.
    AtomicReturnsNew,
    /// An invalidation says it was done and is not.
    KeepInvalidated,
    /// The link loses an octet.
    LinkDrops,
    /// The link changes an octet.
    LinkChanges,
    /// Send completions are lost.
    LoseCompletion,
    /// Completions come twice.
    RepeatCompletion,
    /// The link stops for ever.
    LinkStops,
    /// An end that leaves says that it has received one message more.
    FarewellHigh,
    /// Or one fewer.
    FarewellLow,
    /// An end at which messages wait says that it has received one message more.
    CountHigh,
    /// Or one fewer.
    CountLow,
    /// Or says so in vain: its frame arrives as a Write of nothing.
    CountLost,
}

/// The effect of an intervention that the network has to know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Intervention {
    /// Access was taken away from this region.
    Revoked(Role),
    /// The memory of this region was.
    Unmapped(Role),
    /// The queue pair was disconnected.
    Disconnected,
    /// The queue pair was aborted.
    Aborted,
    /// The queue pair was told that the stream is lost.
    Lost,
    /// The program gave up with a local error.
    Failed,
    /// The send queue was drained or let go on.
    Paused,
}

/// The host of one end.
#[derive(Debug)]
pub struct Host {
    /// Its memory.
    pub bank: RefCell<Bank>,
    /// Its oracle.
    pub model: RefCell<Model>,
    /// Shared receive queue.
    pub pool: RefCell<VecDeque<Receive>>,
    /// The first rule that was broken inside a call.
    pub broken: RefCell<Option<String>>,
    /// Interventions that have happened and were not looked at.
    pub interventions: RefCell<Vec<Intervention>>,
    qp: Rc<RefCell<Qp>>,
    state: Cell<u64>,
    /// One call in so many is intervened in; 0 for none.
    rate: Cell<u64>,
    flaw: Cell<Flaw>,
}

impl Host {
    /// A host for `qp`.
    pub fn new(bank: Bank, model: Model, qp: Rc<RefCell<Qp>>, seed: u64, rate: u64) -> Self {
        Self {
            bank: RefCell::new(bank),
            model: RefCell::new(model),
            pool: RefCell::new(VecDeque::new()),
            broken: RefCell::new(None),
            interventions: RefCell::new(Vec::new()),
            qp,
            state: Cell::new(seed),
            rate: Cell::new(rate),
            flaw: Cell::new(Flaw::None),
        }
    }

    /// Puts a defect in.
    pub fn set_flaw(&self, flaw: Flaw) {
        self.flaw.set(flaw);
    }

    /// No more interventions.
    pub fn leave_alone(&self) {
        self.rate.set(0);
    }

    fn random(&self) -> u64 {
        let mut state = self.state.get();
        let value = split_mix(&mut state);
        self.state.set(state);
        value
    }

    fn judge(&self, verdict: Verdict) {
        if let Err(why) = verdict {
            self.broken.borrow_mut().get_or_insert(why);
        }
    }

    /// Somebody else reaches in: every check may have become wrong before its use.
    fn meddle(&self) {
        self.meddle_once_in(self.rate.get());
    }

    /// As above, for calls that are rare.
    fn meddle_more(&self) {
        self.meddle_once_in(self.rate.get().div_ceil(64));
    }

    fn meddle_once_in(&self, rate: u64) {
        if rate == 0 || !self.random().is_multiple_of(rate) {
            return;
        }
        let which = self.random() % 16;
        if which <= 8 {
            let role = Role::ALL[(self.random() % 6) as usize];
            if which <= 2 {
                self.bank.borrow_mut().unmap(role);
                return self.has_meddled(Intervention::Unmapped(role));
            }
            self.bank.borrow_mut().revoke(role);
            return self.has_meddled(Intervention::Revoked(role));
        }
        // A short message is placed while the queue pair is held.
        let Ok(mut qp) = self.qp.try_borrow_mut() else { return };
        self.has_meddled(match which {
            9 => {
                qp.disconnect();
                Intervention::Disconnected
            }
            10 => {
                qp.abort();
                Intervention::Aborted
            }
            11 => {
                qp.lost();
                Intervention::Lost
            }
            12 => {
                qp.fail_locally("told to");
                Intervention::Failed
            }
            _ => {
                let to = if qp.state() == QpState::Rts { QpState::Sqd } else { QpState::Rts };
                if qp.modify(to).is_err() {
                    return;
                }
                Intervention::Paused
            }
        });
    }

    fn has_meddled(&self, done: Intervention) {
        if done != Intervention::Paused {
            self.model.borrow_mut().disturbed = true;
        }
        if done == Intervention::Disconnected {
            self.model.borrow_mut().disconnected = true;
        }
        self.interventions.borrow_mut().push(done);
    }

    fn watch(&self, at: Placing, data: &[u8], granted: bool) {
        let (model, bank) = (&mut *self.model.borrow_mut(), &mut *self.bank.borrow_mut());
        self.judge(model.placing(at, data, granted, bank));
    }

    fn write(&self, place: RegionOffset, data: &[u8]) {
        let mut bank = self.bank.borrow_mut();
        match self.flaw.get() {
            Flaw::PlaceShort if !data.is_empty() => {
                bank.write(place, &data[..data.len() - 1]);
            }
            Flaw::PlaceBeside if place.1 > 0 => {
                bank.write(place, data);
                bank.write((place.0, place.1 - 1), &[0xaa]);
            }
            _ => bank.write(place, data),
        }
    }

    fn read(&self, place: RegionOffset, dst: &mut [u8], crc: Option<&mut Digest>) {
        self.bank.borrow().memory.read(place, dst);
        if self.flaw.get() == Flaw::GatherWrong
            && let Some(octet) = dst.last_mut()
        {
            *octet ^= 1;
        }
        if let Some(crc) = crc {
            crc.update(dst);
        }
    }

    /// Octets of a region that the stream takes from where they lie.
    pub fn fetch(
        &self,
        who: Accessor,
        source: &iwarp_proto::qp::Source,
        out: &mut [u8],
    ) -> Result<(), AccessError> {
        use iwarp_proto::qp::Source;
        match *source {
            Source::Local(sge) => {
                self.gather_local(who, Sge { length: out.len() as u32, ..sge }, out, None)
            }
            Source::Remote { stag, to, .. } => self.gather_remote(who, stag, to, out, None),
        }
    }

    /// Finds what is allowed to be accessed, and whether there is memory.
    fn find(
        &self,
        allowed: impl FnOnce(&mock::Bank) -> Result<RegionOffset, AccessError>,
    ) -> Result<RegionOffset, AccessError> {
        let memory = &self.bank.borrow().memory;
        allowed(memory).and_then(|place| memory.there(place))
    }
}

impl Memory for Host {
    type Use<'a> = EachAnew<'a, Self>;

    fn begin_use(
        &self,
        who: Accessor,
        stag: Stag,
        usage: Usage,
    ) -> Result<EachAnew<'_, Self>, AccessError> {
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
        self.meddle();
        let result = self.bank.borrow().memory.remote(who, stag, to, len, access);
        if result.is_err() {
            self.model.borrow_mut().disturbed = true;
        }
        result.map(drop)
    }

    fn place_remote(
        &self,
        who: Accessor,
        stag: Stag,
        to: TaggedOffset,
        data: &[u8],
    ) -> Result<(), AccessError> {
        self.meddle();
        let len = data.len() as u64;
        let place = self.find(|memory| memory.remote(who, stag, to, len, RemoteAccess::Write));
        self.watch(Placing::Remote(stag, to.0), data, place.is_ok());
        self.write(place?, data);
        Ok(())
    }

    fn gather_remote(
        &self,
        who: Accessor,
        stag: Stag,
        to: TaggedOffset,
        dst: &mut [u8],
        crc: Option<&mut Digest>,
    ) -> Result<(), AccessError> {
        self.meddle();
        let len = dst.len() as u64;
        let place = self.find(|memory| memory.remote(who, stag, to, len, RemoteAccess::Read))?;
        self.read(place, dst, crc);
        Ok(())
    }

    fn atomic(
        &self,
        who: Accessor,
        stag: Stag,
        to: TaggedOffset,
        op: AtomicOp,
    ) -> Result<u64, AccessError> {
        self.meddle_more();
        let place = self.find(|memory| memory.remote(who, stag, to, 8, RemoteAccess::Atomic))?;
        let (bank, model) = (&mut *self.bank.borrow_mut(), &mut *self.model.borrow_mut());
        let mut old = bank.atomic(place, op);
        if self.flaw.get() == Flaw::AtomicReturnsNew {
            old = op.apply(old);
        }
        self.judge(model.atomic((stag, to.0), op, old, bank));
        Ok(old)
    }

    fn check_local(&self, who: Accessor, sge: Sge, write: bool) -> Result<(), AccessError> {
        self.meddle();
        self.bank.borrow().memory.local(who, sge, write).map(drop)
    }

    fn place_local(&self, who: Accessor, sge: Sge, data: &[u8]) -> Result<(), AccessError> {
        self.meddle();
        let place = self.find(|memory| memory.local(who, sge, true));
        self.watch(Placing::Local(sge), data, place.is_ok());
        self.write(place?, data);
        Ok(())
    }

    fn gather_local(
        &self,
        who: Accessor,
        sge: Sge,
        dst: &mut [u8],
        crc: Option<&mut Digest>,
    ) -> Result<(), AccessError> {
        self.meddle();
        let place = self.find(|memory| memory.local(who, sge, false))?;
        self.read(place, dst, crc);
        Ok(())
    }

    fn bind_window(&self, who: Accessor, bind: Bind) -> Result<(), AccessError> {
        self.meddle_more();
        self.bank.borrow_mut().memory.bind(who, bind)?;
        self.judge(self.model.borrow_mut().performed(true, bind.window));
        Ok(())
    }

    fn invalidate(&self, who: Accessor, stag: Stag, by: Invalidator) -> Result<(), AccessError> {
        self.meddle_more();
        if self.flaw.get() != Flaw::KeepInvalidated {
            self.bank.borrow_mut().memory.invalidate(who, stag, by)?;
        }
        if by == Invalidator::Local {
            self.judge(self.model.borrow_mut().performed(false, stag));
        }
        Ok(())
    }
}

impl ReceivePool for Host {
    fn take(&self, into: &mut Receive) -> bool {
        match self.pool.borrow_mut().pop_front() {
            Some(receive) => {
                *into = receive;
                true
            }
            None => false,
        }
    }
}
