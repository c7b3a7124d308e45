// SPDX-License-Identifier: MIT OR Apache-2.0

//! The answers that the responder owes: acknowledgements, Read and Atomic answers, a NAK.
//!
//! Answers go out in the order of their requests (ROCE-084). Recent Reads and Atomics are
//! remembered, each with the packets owed of its answer (ROCE-081); one acknowledgement, for the
//! last request that wants one, stands for all before it (ROCE-083); a NAK comes last.

use core::time::Duration;

use iwarp_types::{AccessError, Accessor, Memory, Ring, Stag, TaggedOffset, Time};

use crate::config::Attributes;
use crate::wire::{
    Aeth, Bth, Burst, Header, Message, NakCode, Position, Psn, Reth, Syndrome, Transport,
};

/// Shortest time between two congestion notifications (ROCE-142).
const ECHO: Duration = Duration::from_micros(50);
/// The last acknowledgement is sent three times, in case one is lost.
const LAST_REPEATS: u8 = 2;

/// A Read or Atomic that was executed.
#[derive(Clone, Copy, Debug, Default)]
struct Resource {
    first: Psn,
    what: What,
    /// Packets of the answer that are owed: those from `next` to `end`, in a run that began at
    /// `begin`. They are counted from the first of the whole answer.
    begin: u32,
    next: u32,
    end: u32,
    /// Octets of the answer up to where the run ends.
    octets: u32,
    /// Set once it was answered.
    answered: bool,
}

#[derive(Clone, Copy, Debug)]
enum What {
    /// From memory, as it is when the answer is sent (ROCE-078).
    Read(Reth),
    /// The original value (ROCE-080).
    Atomic(u64),
}

impl Default for What {
    fn default() -> Self {
        Self::Atomic(0)
    }
}

/// Packets of the answer to a Read of so many octets (ROCE-044).
pub(super) const fn packets(octets: u32, mtu: usize) -> u32 {
    match octets {
        0 => 1,
        _ => octets.div_ceil(mtu as u32),
    }
}

/// Everything that is owed.
#[derive(Debug)]
pub(super) struct Replies {
    resources: Ring<Resource>,
    /// The first resource with packets owed.
    owing: u64,
    /// An acknowledgement of all up to this PSN.
    ack: Option<Psn>,
    /// The number of times that it is repeated.
    repeats: u8,
    /// A NAK: its PSN and syndrome.
    nak: Option<(Psn, Syndrome)>,
    /// Set if a congestion notification is owed; and the time at which one was last owed.
    echo: bool,
    echoed: Option<Time>,
    /// The Read that could not be answered, and why.
    pub(super) refused: Option<(Reth, AccessError)>,
}

impl Replies {
    pub(super) const fn new(resources: usize) -> Self {
        let resources = Ring::new(resources);
        Self {
            resources,
            owing: 0,
            ack: None,
            repeats: 0,
            nak: None,
            echo: false,
            echoed: None,
            refused: None,
        }
    }

    /// True if an answer is owed.
    #[inline]
    pub(super) fn is_owing(&self) -> bool {
        self.ack.is_some() || self.nak.is_some() || self.owing < self.resources.tail() || self.echo
    }

    /// Owes a congestion notification, unless the last one is too recent.
    pub(super) fn echo_congestion(&mut self, now: Time) -> bool {
        let due = self.echoed.is_none_or(|at| now >= at.plus(ECHO));
        if due {
            self.echo = true;
            self.echoed = Some(now);
        }
        due
    }

    /// Everything up to `psn` was executed, and the peer asks (ROCE-082).
    #[inline]
    pub(super) const fn acknowledge(&mut self, psn: Psn) {
        self.ack = Some(psn);
    }

    /// As [`Self::acknowledge`], for the last time: a peer that misses it can ask no more.
    pub(super) const fn acknowledge_at_last(&mut self, psn: Psn) {
        self.acknowledge(psn);
        self.repeats = LAST_REPEATS;
    }

    /// Owes a NAK for the request of `psn`.
    pub(super) const fn refuse(&mut self, psn: Psn, syndrome: Syndrome) {
        self.nak = Some((psn, syndrome));
    }

    /// Forgets the NAK: the packet that it asks for has come.
    #[inline]
    pub(super) const fn forget_nak(&mut self) {
        self.nak = None;
    }

    /// True if one more Read or Atomic may be taken: it replaces the oldest, which must have been
    /// answered (ROCE-081).
    pub(super) fn has_room(&mut self) -> bool {
        if self.resources.is_full() {
            let Some(oldest) = self.resources.front() else { return false };
            return oldest.answered;
        }
        true
    }

    /// Owes the answer to a new Read.
    pub(super) fn read(&mut self, psn: Psn, reth: Reth, mtu: usize) {
        let end = packets(reth.length, mtu);
        let (what, octets) = (What::Read(reth), reth.length);
        self.push(Resource { first: psn, what, end, octets, ..Resource::default() });
    }

    /// Owes the answer to a new Atomic.
    pub(super) fn atomic(&mut self, psn: Psn, original: u64) {
        let what = What::Atomic(original);
        self.push(Resource { first: psn, what, end: 1, ..Resource::default() });
    }

    /// The answer acknowledges all before it as well (ROCE-050).
    fn push(&mut self, resource: Resource) {
        if self.resources.is_full() {
            self.resources.pop();
            self.owing = self.owing.max(self.resources.head());
            self.skip_answered();
        }
        let Ok(slot) = self.resources.next_slot() else { return };
        *slot = resource;
        self.resources.push();
        self.ack = None;
    }

    /// Answers a repeated Read, or a part of one, if it lies within a remembered Read (ROCE-078,
    /// ROCE-079).
    pub(super) fn repeat_read(&mut self, psn: Psn, reth: Reth, mtu: usize) {
        self.repeat(psn, |resource, index| {
            let What::Read(whole) = resource.what else { return None };
            let skipped = u64::from(index) * mtu as u64;
            let fits = skipped + u64::from(reth.length) <= u64::from(whole.length)
                && reth.rkey == whole.rkey
                && reth.va == whole.va.advanced(skipped)
                && index < packets(whole.length, mtu);
            let octets = skipped as u32 + reth.length;
            fits.then(|| (index + packets(reth.length, mtu), octets))
        });
    }

    /// Answers a repeated Atomic with the stored original value (ROCE-080).
    pub(super) fn repeat_atomic(&mut self, psn: Psn) {
        self.repeat(psn, |resource, index| {
            (matches!(resource.what, What::Atomic(_)) && index == 0).then_some((1, 0))
        });
    }

    /// Owes an answer, or part of it, again: that of the latest resource that may have `psn`. `run`
    /// returns the part's end, in packets and octets, or `None`.
    fn repeat(&mut self, psn: Psn, run: impl Fn(&Resource, u32) -> Option<(u32, u32)>) {
        for number in (self.resources.head()..self.resources.tail()).rev() {
            let resource = self.resources.at(number);
            let Ok(index) = u32::try_from(psn.ahead_of(resource.first)) else { continue };
            if let Some((end, octets)) = run(resource, index) {
                *resource = Resource { begin: index, next: index, end, octets, ..*resource };
                self.owing = self.owing.min(number);
            }
            return;
        }
    }

    /// Sends at most so many of the packets owed. False if no more are owed, or none fits.
    ///
    /// # Errors
    ///
    /// The NAK code, if the peer may no longer read the memory of its Read. Only that NAK is then
    /// owed (ROCE-096).
    pub(super) fn send<M: Memory + ?Sized>(
        &mut self,
        most: usize,
        burst: &mut Burst,
        attributes: &Attributes,
        msn: u32,
        who: Accessor,
        memory: &M,
    ) -> Result<bool, NakCode> {
        if self.echo && !burst.is_full() {
            self.echo = false;
            burst.push_congestion(&attributes.path, attributes.pkey, attributes.dest_qp);
        }
        for _ in 0..most {
            if burst.is_full() {
                return Ok(false);
            }
            if self.owing < self.resources.tail() {
                self.send_answer(burst, attributes, msn, who, memory)?;
                continue;
            }
            // A NAK acknowledges all before it, but see `Rc::ask_for_expected`.
            let ack = self.ack.map(|psn| (psn, Syndrome::ACK));
            let gap = Syndrome::Nak(NakCode::SequenceError);
            let first = ack.filter(|_| self.nak.is_some_and(|(_, syndrome)| syndrome == gap));
            let next = first.or_else(|| self.nak.take()).or(ack);
            let Some((psn, syndrome)) = next else { return Ok(false) };
            match self.repeats.checked_sub(1).filter(|_| first.is_none()) {
                Some(left) => self.repeats = left,
                None => self.ack = None,
            }
            let message = Message::Acknowledge(Aeth { syndrome, msn });
            let header = header(attributes, psn, message);
            let _ = burst.push(&attributes.path, &header, 0, |_, _| Ok::<(), ()>(()));
        }
        Ok(true)
    }

    /// Sends the next packet of the first answer owed.
    fn send_answer<M: Memory + ?Sized>(
        &mut self,
        burst: &mut Burst,
        attributes: &Attributes,
        msn: u32,
        who: Accessor,
        memory: &M,
    ) -> Result<(), NakCode> {
        let resource = self.resources.at(self.owing);
        let mtu = attributes.mtu.octets() as u32;
        let psn = resource.first.plus(resource.next);
        let aeth = Aeth { syndrome: Syndrome::ACK, msn };
        match resource.what {
            What::Atomic(original) => {
                let message = Message::AtomicAcknowledge { aeth, original };
                let header = header(attributes, psn, message);
                let _ = burst.push(&attributes.path, &header, 0, |_, _| Ok::<(), ()>(()));
            }
            What::Read(reth @ Reth { va, rkey, .. }) => {
                let skipped = resource.next.saturating_mul(mtu);
                let payload = resource.octets.saturating_sub(skipped).min(mtu) as usize;
                let ends = resource.next + 1 == resource.end;
                let position = Position::of(resource.next == resource.begin, ends);
                let aeth = (position != Position::Middle).then_some(aeth);
                let header = header(attributes, psn, Message::ReadResponse { position, aeth });
                let at: TaggedOffset = va.advanced(u64::from(skipped));
                let sent = burst.push(&attributes.path, &header, payload, |out, digest| {
                    gather(memory, who, rkey, at, out, digest)
                });
                if let Err(error) = sent {
                    let code = match error {
                        AccessError::BadAddress(_) => NakCode::RemoteOperation,
                        _ => NakCode::RemoteAccess,
                    };
                    self.refused = Some((reth, error));
                    self.ack = None;
                    self.owing = self.resources.tail();
                    self.nak = Some((psn, Syndrome::Nak(code)));
                    return Err(code);
                }
            }
        }
        resource.next += 1;
        if resource.next == resource.end {
            resource.answered = true;
            self.skip_answered();
        }
        Ok(())
    }

    /// Moves on to the first resource with packets owed.
    fn skip_answered(&mut self) {
        while self.owing < self.resources.tail() {
            let resource = self.resources.at(self.owing);
            if resource.next < resource.end {
                break;
            }
            self.owing += 1;
        }
    }
}

#[inline]
fn gather<M: Memory + ?Sized>(
    memory: &M,
    who: Accessor,
    rkey: Stag,
    at: TaggedOffset,
    out: &mut [u8],
    digest: &mut iwarp_types::Digest,
) -> Result<(), AccessError> {
    memory.gather_remote(who, rkey, at, out, Some(digest))
}

fn header(attributes: &Attributes, psn: Psn, message: Message) -> Header {
    let mut bth = Bth::new(attributes.dest_qp, psn);
    bth.pkey = attributes.pkey;
    Header { bth, transport: Transport::Rc, deth: None, message }
}
