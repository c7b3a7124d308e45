// SPDX-License-Identifier: MIT OR Apache-2.0

//! The receiving half: takes the stream apart and places what the queue pair decides to keep.
//!
//! With CRC on, a frame is staged, verified, then copied once to its destination. Where the framing
//! lets the octets of a frame be taken as they come (MPA: with CRC off and no markers), a long
//! payload is placed as it comes. It is read straight into registered memory for
//! the one segment whose header was seen, except its last 16 octets: these always pass the
//! placement routine, which makes the last word visible last. No manual promises the order in which
//! system calls write memory.

mod run;
mod short;

use alloc::collections::{TryReserveError, VecDeque};
use alloc::vec::Vec;

use iwarp_types::{
    AccessError, Accessor, Memory, PdId, ReceivePool, RemoteAccess, Sge, Stag, TaggedOffset,
};

use crate::ddp::wire::{Header, UNTAGGED_LEN};
use crate::framing::{Deframe, LEAST_MAX_ULPDU};
use crate::qp::inbound::park::{Parked, Parking};
use crate::qp::inbound::{Follow, Plan};
use crate::qp::receive::run::Run;
use crate::qp::receive::short::judge;
use crate::qp::transmit::Source;
use crate::qp::{OUT_OF_MEMORY, Qp, Shared};
use crate::rdmap::terminate::Fault;
use iwarp_types::list::sub_list;

/// ULPDUs up to this many octets are always taken whole: every message without payload is.
const WHOLE_MAX: usize = LEAST_MAX_ULPDU;
/// Below this, reading straight into registered memory is not worth a system call's element.
const DIRECT_MIN: usize = 4096;
/// Octets at the end of a segment that always pass through the placement routine, which makes
/// the last word visible last: nothing promises that of a system call.
const DIRECT_TAIL: usize = 16;

/// Registered memory that the stream's next octets may be read into directly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Direct {
    /// The place that they go to. For [`Source::Remote`] the access is a remote write.
    pub target: Source,
}

/// Memory that the peer has named in a request for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Named {
    /// Its name.
    pub stag: Stag,
    /// The request was a Read.
    pub read: bool,
}

/// The payload of a segment that is placed as its octets come.
#[derive(Clone, Copy, Debug)]
struct Streaming {
    place: Place,
    /// Payload octets placed, and still to come.
    done: usize,
    left: usize,
    /// Octets of the frame behind them.
    trailer: usize,
    /// Access was lost on the way: the rest is dropped.
    failed: Option<AccessError>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Tagged(Stag, TaggedOffset),
    /// Into the receiver's element list.
    Local,
    /// Behind what is there of the message that was parked last, which it may end.
    Park {
        last: bool,
    },
    Nowhere,
}

/// Takes apart one direction of a stream.
#[derive(Debug)]
pub struct Receiver<D> {
    deframer: D,
    who: Accessor,
    /// Of the memory of receives.
    receives: Accessor,
    sges: Vec<Sge>,
    part: Vec<Sge>,
    streaming: Option<Streaming>,
    /// Messages that wait for a receive, oldest first.
    park: VecDeque<Parked>,
    /// The ULPDU that found no room in the park.
    held: Option<Vec<u8>>,
    stalled: bool,
    /// The memory that the peer has named last.
    named: Named,
    /// The octets of the stream that were used.
    used: u64,
    /// The position of the stream at which the frame begins that is being taken, of those that may
    /// have to wait.
    frame: u64,
    /// The position from which on nothing was delivered: the stream has ended.
    lost: Option<u64>,
}

impl<D: Deframe> Receiver<D> {
    /// Changes the framing of what is taken from now on, between two frames.
    pub fn change_deframer(&mut self, change: impl FnOnce(&mut D)) {
        change(&mut self.deframer);
    }

    /// The receiving half of a stream of frames that `deframer` finds, for the queue pair `who`.
    pub const fn new(deframer: D, who: Accessor) -> Self {
        Self {
            deframer,
            who,
            receives: who,
            sges: Vec::new(),
            part: Vec::new(),
            streaming: None,
            park: VecDeque::new(),
            held: None,
            stalled: false,
            named: Named { stag: Stag(0), read: false },
            used: 0,
            frame: 0,
            lost: None,
        }
    }

    /// Looks for the memory of receives in `pd`, the protection domain of the shared queue that
    /// they come from.
    #[must_use]
    pub const fn with_receives_of(mut self, pd: PdId) -> Self {
        self.receives.pd = pd;
        self
    }

    /// Takes octets of the stream and returns how many were used; the rest must come again at
    /// the start of the next call, with more behind it. What a framing interleaves, as MPA its
    /// markers, is cut out in place, so what was used is no longer what arrived.
    ///
    /// Messages that wait for a receive are delivered first. So it is called, with the octets that
    /// are there, also when a receive was posted while [`Qp::has_parked`].
    pub fn receive<S: Shared, M: Memory, P: ReceivePool + ?Sized>(
        &mut self,
        qp: &S,
        memory: &M,
        pool: &P,
        input: &mut [u8],
    ) -> usize {
        let mut used = 0;
        loop {
            // A segment that begins is judged by the queue pair, which knows whether it has ended.
            let asks = self.streaming.is_some() || self.has_waiting();
            if asks && self.has_ended(qp) {
                return self.drop_rest(used, input.len());
            }
            // Also right behind a segment that was parked: a receive may have been posted between
            // its judgement and its end, by a thread that saw nothing parked yet.
            if !self.park.is_empty() && self.streaming.is_none() {
                self.unpark(qp, memory, pool);
            }
            self.stalled = false;
            if self.held.is_some() {
                if !self.whole_held(qp, memory, pool) {
                    return used;
                }
                continue;
            }
            let left = &mut input[used..];
            self.frame = self.used;
            let mut step = 0;
            if self.streaming.is_none() {
                step = self.short_step(qp, memory, pool, left);
            }
            if step == 0 {
                step = match self.deframer.can_stream() {
                    true => self.stream_step(qp, memory, pool, left),
                    false => self.whole_step(qp, memory, pool, left),
                };
            }
            used += step;
            self.used += step as u64;
            if self.stalled || (used == input.len() && !self.has_waiting()) {
                return used;
            }
            if step == 0 {
                // Any octets that come after the end are dropped.
                return if self.has_ended(qp) { self.drop_rest(used, input.len()) } else { used };
            }
        }
    }

    /// Uses all `len` octets of the input, of which `used` were used.
    fn drop_rest(&mut self, used: usize, len: usize) -> usize {
        self.used += (len - used) as u64;
        len
    }

    /// Handles the ULPDU that had to come again. False where it has to once more.
    #[cold]
    fn whole_held<S: Shared, M: Memory, P: ReceivePool + ?Sized>(
        &mut self,
        qp: &S,
        memory: &M,
        pool: &P,
    ) -> bool {
        let Some(held) = self.held.take() else { return true };
        let done = self.whole(qp, memory, pool, &held);
        if !done {
            self.held = Some(held);
        }
        done
    }

    /// True if messages wait for receives, as far as is known here: if the queue pair has ended,
    /// the next call of [`Self::receive`] drops them.
    #[inline]
    pub fn has_waiting(&self) -> bool {
        !self.park.is_empty() || self.held.is_some()
    }

    /// The octets of the stream that were used and belong to messages that wait for receives, or
    /// stand behind such ones. All others were dealt with.
    #[inline]
    pub fn waiting(&self) -> u64 {
        self.lost.or(self.first_waiting()).map_or(0, |first| self.used - first)
    }

    /// The position of the stream at which the first message begins that waits for a receive.
    fn first_waiting(&self) -> Option<u64> {
        let first = self.park.front().map(|message| message.start);
        // A frame that is held comes behind messages that are parked.
        first.or(self.held.as_ref().map(|_| self.frame))
    }

    /// The memory that a request of the peer's has named last, since this was asked; it may have
    /// been refused.
    #[inline]
    pub fn take_named(&mut self) -> Option<Named> {
        let named = self.named;
        self.named.stag = Stag(0);
        // That one names none.
        (named.stag != Stag(0)).then_some(named)
    }

    /// True if nothing is received any more; parked messages are dropped then.
    #[inline(never)]
    fn has_ended<S: Shared>(&mut self, qp: &S) -> bool {
        let ended = !qp.with(|qp| qp.receives());
        if ended {
            self.forget_parked();
        }
        ended
    }

    /// True if the stream stands still because a message finds neither a receive nor room in the
    /// park. Then nothing more is to be read from it, its end neither, until [`Self::receive`] was
    /// called again and this is false: when receives may be there, when the queue pair's timer has
    /// run out, or when its stream has ended.
    pub const fn is_stalled(&self) -> bool {
        self.stalled
    }

    /// Delivers what was parked, as far as there are receives.
    #[inline(never)]
    fn unpark<S: Shared, M: Memory, P: ReceivePool + ?Sized>(
        &mut self,
        qp: &S,
        memory: &M,
        pool: &P,
    ) {
        while let Some(message) = self.park.front() {
            let (sges, next) = (&mut self.sges, self.park.get(1));
            let plan =
                qp.with(|qp: &mut Qp| qp.unpark(message, next, |receive| pool.take(receive), sges));
            let Some(plan) = plan else { return };
            let placed = match plan {
                Plan::Local(_) => place_list(memory, self.receives, &self.sges, &message.octets),
                _ => Ok(()),
            };
            self.park.pop_front();
            self.finish(qp, memory, placed);
        }
    }

    fn forget_parked(&mut self) {
        let first = self.first_waiting().unwrap_or(self.used);
        self.lost.get_or_insert(first);
        self.park.clear();
        self.held = None;
        self.stalled = false;
    }

    /// Keeps octets of a message that has no receive.
    fn keep(
        &mut self,
        message: &Parking,
        last: bool,
        payload: &[u8],
    ) -> Result<(), TryReserveError> {
        let Parking { header, opcode, write, before } = *message;
        match self.park.back_mut().filter(|open| !open.whole) {
            Some(open) => {
                append(&mut open.octets, payload)?;
                open.header = header;
                open.whole = last;
            }
            None => {
                let mut octets = Vec::new();
                append(&mut octets, payload)?;
                self.park.try_reserve(1)?;
                let start = self.frame;
                let whole = last;
                self.park.push_back(Parked { header, opcode, write, before, octets, start, whole });
            }
        }
        Ok(())
    }

    /// Keeps a ULPDU that has to come again.
    #[cold]
    fn hold<S: Shared>(&mut self, qp: &S, ulpdu: &[u8]) {
        let mut held = Vec::new();
        if append(&mut held, ulpdu).is_err() {
            return out_of_memory(qp);
        }
        self.held = Some(held);
    }

    /// Octets that must be at hand before the next call of [`Self::receive`] can get further,
    /// given that `input` was not used by the last one.
    pub fn wanted(&self, input: &[u8]) -> usize {
        if self.stalled {
            return usize::MAX;
        }
        match &self.streaming {
            Some(streaming) if streaming.left > 0 => 1,
            Some(streaming) => streaming.trailer,
            None => match self.deframer.peek_len(input) {
                // The start of a long frame is enough to begin with.
                Ok(Some(len)) if len > WHOLE_MAX && self.deframer.can_stream() => {
                    D::HEAD + WHOLE_MAX
                }
                _ => self.deframer.wanted(input),
            },
        }
    }

    /// True if the stream stands inside a frame of which `waiting` octets were not used.
    const fn inside_frame(&self, waiting: usize) -> bool {
        waiting > 0 || self.streaming.is_some()
    }

    /// The framing.
    pub const fn deframer(&self) -> &D {
        &self.deframer
    }

    /// Octets to come of the frame that is being taken as they come, unused ones among them.
    pub fn left_of_frame(&self) -> usize {
        self.streaming.map_or(0, |streaming| streaming.left + streaming.trailer)
    }

    /// The peer closed its side, and `waiting` octets were not used. `acknowledged` is asked, not
    /// under the lock, where it matters: how many octets of ours the peer's transport has
    /// acknowledged, of those that [`Transmitter::taken`](super::Transmitter::taken) was told of;
    /// `None` where the transport does not say.
    pub fn eof<S: Shared>(
        &mut self,
        qp: &S,
        waiting: usize,
        acknowledged: impl FnOnce() -> Option<u64>,
    ) {
        let cut = self.inside_frame(waiting).then(|| D::fault(D::CLOSED));
        let believed = cut.is_none() && qp.with(|qp| qp.believes_transport());
        let acknowledged = believed.then(acknowledged).flatten();
        qp.with(|qp| qp.peer_closed(cut, acknowledged));
    }

    /// The memory that the next octets may be read into directly: only of the one segment whose
    /// header was seen, and only where the framing lets octets be taken as they come.
    pub fn direct(&mut self) -> Option<Direct> {
        let streaming = self.streaming.as_ref()?;
        if streaming.failed.is_some() || streaming.left < DIRECT_MIN + DIRECT_TAIL {
            return None;
        }
        let len = streaming.left - DIRECT_TAIL;
        let target = match streaming.place {
            Place::Nowhere | Place::Park { .. } => return None,
            Place::Tagged(stag, to) => {
                Source::Remote { stag, to: to.advanced(streaming.done as u64), len: len as u32 }
            }
            Place::Local => {
                sub_list(&self.sges, streaming.done as u64, len, &mut self.part);
                Source::Local(*self.part.first()?)
            }
        };
        (target.len() >= DIRECT_MIN).then_some(Direct { target })
    }

    /// `n` octets were read to where [`Self::direct`] said.
    pub fn received_directly(&mut self, n: usize) {
        if let Some(streaming) = &mut self.streaming {
            streaming.done += n;
            streaming.left -= n;
            self.used += n as u64;
            self.deframer.advance(n);
        }
    }

    /// The memory that [`Self::direct`] named may no longer be accessed.
    pub fn direct_refused(&mut self, error: AccessError) {
        if let Some(streaming) = &mut self.streaming {
            streaming.failed.get_or_insert(error);
        }
    }

    /// One whole frame, verified before anything of it is placed; and those behind it that continue
    /// its message.
    #[inline(never)]
    fn whole_step<S: Shared, M: Memory, P: ReceivePool + ?Sized>(
        &mut self,
        qp: &S,
        memory: &M,
        pool: &P,
        input: &mut [u8],
    ) -> usize {
        match self.deframer.next(input) {
            Ok(None) => 0,
            Ok(Some(frame)) => {
                let (first, rest) = input.split_at_mut(frame.consumed);
                let ulpdu = &first[frame.start..frame.start + frame.len];
                let plan = self.plan(qp, pool, ulpdu, ulpdu.len());
                if !rest.is_empty() && !self.has_waiting() {
                    let run =
                        Run::begin(memory, (self.who, self.receives), plan, &self.sges, ulpdu);
                    if let Some(run) = run {
                        let first = frame.consumed;
                        return first + self.go_on(qp, memory, pool, (run, first), rest);
                    }
                }
                if !self.carry_out(qp, memory, plan, ulpdu) {
                    self.hold(qp, ulpdu);
                }
                frame.consumed
            }
            Err(error) => {
                self.framing_failed(qp, error);
                0
            }
        }
    }

    /// Takes whole frames that continue the message of the segment that was placed, of `first`
    /// octets, and the one behind them.
    fn go_on<S: Shared, M: Memory, P: ReceivePool + ?Sized>(
        &mut self,
        qp: &S,
        memory: &M,
        pool: &P,
        (mut run, first): (Run<M::Use<'_>>, usize),
        input: &mut [u8],
    ) -> usize {
        let (mut used, mut newest) = (0, 0..0);
        let (start, begin) = (self.frame, self.frame + first as u64);
        let next = loop {
            if run.is_over() {
                break Ok(None);
            }
            match self.deframer.next(&mut input[used..]) {
                Ok(Some(frame)) => {
                    let ulpdu = used + frame.start..used + frame.start + frame.len;
                    self.frame = begin + used as u64;
                    used += frame.consumed;
                    if !run.place(&input[ulpdu.clone()]) {
                        break Ok(Some(ulpdu));
                    }
                    newest = ulpdu;
                }
                Ok(None) => break Ok(None),
                Err(error) => break Err(error),
            }
        };
        match run.end() {
            Some(more) => {
                let end = |qp: &mut Qp| (qp.end_segments(&input[newest], &more), qp.receives());
                let (follow, goes_on) = qp.with(end);
                if !goes_on {
                    self.lost.get_or_insert(start);
                }
                self.follow(qp, memory, follow);
            }
            None => self.finish(qp, memory, Ok(())),
        }
        match next {
            Ok(Some(ulpdu)) if !self.whole(qp, memory, pool, &input[ulpdu.clone()]) => {
                self.hold(qp, &input[ulpdu]);
            }
            Ok(_) => {}
            Err(error) => self.framing_failed(qp, error),
        }
        used
    }

    fn framing_failed<S: Shared>(&self, qp: &S, error: D::Error) {
        qp.with(|qp| {
            // After a disconnect, octets are dropped without regard to frames, so what is read
            // behind them need not begin with one.
            if qp.receives() {
                qp.fail(Fault::Framing(D::fault(error)));
            }
        });
    }

    /// Handles a ULPDU that is there as a whole. False where it has to come again.
    fn whole<S: Shared, M: Memory, P: ReceivePool + ?Sized>(
        &mut self,
        qp: &S,
        memory: &M,
        pool: &P,
        ulpdu: &[u8],
    ) -> bool {
        let plan = self.plan(qp, pool, ulpdu, ulpdu.len());
        self.carry_out(qp, memory, plan, ulpdu)
    }

    /// Does what the queue pair has planned for a whole ULPDU. False where it has to come again.
    fn carry_out<S: Shared, M: Memory>(
        &mut self,
        qp: &S,
        memory: &M,
        plan: Plan,
        ulpdu: &[u8],
    ) -> bool {
        let payload = Header::payload_of(ulpdu);
        let placed = match plan {
            Plan::Discard | Plan::NeedReceive => {
                self.lost.get_or_insert(self.frame);
                return true;
            }
            Plan::Stall => {
                self.stalled = true;
                return false;
            }
            Plan::Park(message) => {
                if self.keep(&message, message.header.last, payload).is_err() {
                    out_of_memory(qp);
                    return true;
                }
                Ok(())
            }
            Plan::Nothing => Ok(()),
            Plan::Tagged(stag, to) => memory.place_remote(self.who, stag, to, payload),
            Plan::Local(_) => place_list(memory, self.receives, &self.sges, payload),
            Plan::Value(octets) => place_list(memory, self.who, &self.sges, &octets),
            Plan::Check { stag, to, len, access } => {
                self.named = Named { stag, read: access == RemoteAccess::Read };
                memory.check_remote(self.who, stag, to, len, access)
            }
        };
        self.finish(qp, memory, placed);
        true
    }

    /// Asks the queue pair what to do, supplying a receive where it needs one.
    fn plan<S: Shared, P: ReceivePool + ?Sized>(
        &mut self,
        qp: &S,
        pool: &P,
        head: &[u8],
        ulpdu_len: usize,
    ) -> Plan {
        let sges = &mut self.sges;
        let plan = qp.with(|qp: &mut Qp| judge(qp, pool, head, ulpdu_len, sges));
        if let Plan::Tagged(stag, _) = plan {
            self.named = Named { stag, read: false };
        }
        plan
    }

    fn finish<S: Shared, M: Memory>(
        &mut self,
        qp: &S,
        memory: &M,
        placed: Result<(), AccessError>,
    ) {
        let (follow, goes_on) = qp.with(|qp| (qp.end_segment(placed), qp.receives()));
        self.note_end(goes_on);
        self.follow(qp, memory, follow);
    }

    /// A segment was taken, with which the stream goes on or has ended.
    #[inline]
    fn note_end(&mut self, goes_on: bool) {
        if !goes_on {
            self.lost.get_or_insert(self.frame);
        }
    }

    fn follow<S: Shared, M: Memory>(&self, qp: &S, memory: &M, follow: Follow) {
        if let Follow::Invalidate(stag, by) = follow {
            let result = memory.invalidate(self.who, stag, by);
            qp.with(|qp| qp.invalidated(result));
        }
    }

    /// Takes short frames whole and the payload of long ones as it comes, which the framing allows.
    #[inline(never)]
    fn stream_step<S: Shared, M: Memory, P: ReceivePool + ?Sized>(
        &mut self,
        qp: &S,
        memory: &M,
        pool: &P,
        input: &mut [u8],
    ) -> usize {
        if self.streaming.is_some() {
            return self.continue_streaming(qp, memory, input);
        }
        let ulpdu_len = match self.deframer.peek_len(input) {
            Ok(None) => return 0,
            Ok(Some(len)) => len,
            Err(error) => {
                self.framing_failed(qp, error);
                return 0;
            }
        };
        let trailer = self.deframer.trailer_len(ulpdu_len);
        if ulpdu_len <= WHOLE_MAX || input.len() >= D::HEAD + ulpdu_len + trailer {
            return self.whole_step(qp, memory, pool, input);
        }
        let ulpdu = &input[D::HEAD..];
        if ulpdu.len() < WHOLE_MAX {
            return 0;
        }
        let plan = self.plan(qp, pool, &ulpdu[..WHOLE_MAX], ulpdu_len);
        let header_len = Header::len_of(ulpdu).unwrap_or(UNTAGGED_LEN);
        let left = ulpdu_len - header_len;
        let mut streaming =
            Streaming { place: Place::Nowhere, done: 0, left, trailer, failed: None };
        match plan {
            Plan::Tagged(stag, to) => {
                streaming.place = Place::Tagged(stag, to);
                let access = RemoteAccess::Write;
                streaming.failed =
                    memory.check_remote(self.who, stag, to, left as u64, access).err();
            }
            Plan::Local(_) => streaming.place = Place::Local,
            Plan::Park(message) => match self.keep(&message, false, &[]) {
                Ok(()) => streaming.place = Place::Park { last: message.header.last },
                Err(_) => out_of_memory(qp),
            },
            Plan::Stall => {
                self.stalled = true;
                return 0;
            }
            Plan::Discard => drop(self.lost.get_or_insert(self.frame)),
            // Messages without payload fit into WHOLE_MAX: the queue pair refused this one.
            Plan::NeedReceive | Plan::Nothing | Plan::Value(_) | Plan::Check { .. } => {}
        }
        self.streaming = Some(streaming);
        let used = D::HEAD + header_len;
        self.deframer.advance(used);
        used
    }

    fn continue_streaming<S: Shared, M: Memory>(
        &mut self,
        qp: &S,
        memory: &M,
        input: &[u8],
    ) -> usize {
        let Some(streaming) = &mut self.streaming else { return 0 };
        let mut used = 0;
        if streaming.left > 0 {
            let n = streaming.left.min(input.len());
            if n > 0 && streaming.failed.is_none() {
                let placed = match streaming.place {
                    Place::Nowhere => Ok(()),
                    Place::Tagged(stag, to) => memory.place_remote(
                        self.who,
                        stag,
                        to.advanced(streaming.done as u64),
                        &input[..n],
                    ),
                    Place::Local => {
                        sub_list(&self.sges, streaming.done as u64, n, &mut self.part);
                        place_list(memory, self.receives, &self.part, &input[..n])
                    }
                    Place::Park { .. } => {
                        if let Some(open) = self.park.back_mut()
                            && append(&mut open.octets, &input[..n]).is_err()
                        {
                            streaming.place = Place::Nowhere;
                            out_of_memory(qp);
                        }
                        Ok(())
                    }
                };
                streaming.failed = placed.err();
            }
            streaming.done += n;
            streaming.left -= n;
            self.deframer.advance(n);
            // A frame without a trailer ends here.
            if streaming.left > 0 || streaming.trailer > 0 {
                return n;
            }
            used = n;
        }
        if input.len() < streaming.trailer {
            return 0;
        }
        let (trailer, failed) = (streaming.trailer, streaming.failed);
        if let (Place::Park { last }, Some(open)) = (streaming.place, self.park.back_mut()) {
            open.whole = last;
        }
        self.streaming = None;
        self.deframer.advance(trailer);
        self.finish(qp, memory, failed.map_or(Ok(()), Err));
        used + trailer
    }
}

fn append(to: &mut Vec<u8>, octets: &[u8]) -> Result<(), TryReserveError> {
    to.try_reserve(octets.len())?;
    to.extend_from_slice(octets);
    Ok(())
}

/// Ends the stream: there is no memory for what it has to keep.
#[cold]
fn out_of_memory<S: Shared>(qp: &S) {
    qp.with(|qp| qp.fail_locally(OUT_OF_MEMORY));
}

/// Places `data` into a scatter/gather list that has room for it.
fn place_list<M: Memory>(
    memory: &M,
    who: Accessor,
    list: &[Sge],
    mut data: &[u8],
) -> Result<(), AccessError> {
    for sge in list {
        let (now, rest) = data.split_at(data.len().min(sge.length as usize));
        memory.place_local(who, *sge, now)?;
        data = rest;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mpa::rx::Deframer;
    use crate::mpa::wire::{LENGTH_FIELD, trailer_len};

    #[test]
    fn a_receiver_wants_the_octets_of_its_next_step() {
        let receiver = Receiver::new(Deframer::new(false, false), Accessor::default());
        let wanted = |len: u16| receiver.wanted(&len.to_be_bytes());
        // Short ones are taken whole, of long ones the start is enough.
        assert_eq!(wanted(WHOLE_MAX as u16), LENGTH_FIELD + WHOLE_MAX + trailer_len(WHOLE_MAX));
        assert_eq!(wanted(WHOLE_MAX as u16 + 1), LENGTH_FIELD + WHOLE_MAX);
        assert_eq!(wanted(60_000), LENGTH_FIELD + WHOLE_MAX);
    }
}
