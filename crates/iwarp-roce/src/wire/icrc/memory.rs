// SPDX-License-Identifier: MIT OR Apache-2.0

//! The identifications of the peers' IPv4 packets so far, and so the credible ones.

use alloc::boxed::Box;
use alloc::collections::TryReserveError;
use alloc::vec::Vec;

use iwarp_types::Time;

use super::Identification;
use super::solved::Solved;
use super::start::LastStart;

/// The ways in which identifications of a peer's packets are made, from the narrowest to the
/// widest: how many of the ICRC's bits still guard a packet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Form {
    /// Always 0, until the kernel cuts packets from a send for the first time: 31 bits.
    Zero,
    /// The kernel numbers the packets that it cuts from one send: 25 bits.
    Small,
    /// A counter, which may serve other packets as well: 20 bits, and fewer after a pause.
    Near,
    /// Anything: 16 bits, 15 where packets may be fragmented.
    Any,
}

/// The memory of the identifications of peers: a fixed number of pairs of addresses, the least
/// recently used forgotten first.
///
/// An unknown peer may have any identification. Once all packets of a run had a narrower form, no
/// wider one is accepted (ROCE-030), until two packets agree on a new place of the counter: the
/// host may have been restarted, or several of its queues may count for themselves. Each time that
/// happens the next run must be twice as long.
#[derive(Debug)]
pub struct IdMemory {
    sets: Box<[[Peer; WAYS]]>,
    /// Packets so far; the least recently used entry of a set is found by it.
    turn: u64,
    /// The next packet is likely to have the headers of the last.
    pub(super) start: LastStart,
    pub(super) solved: Solved,
}

/// Places for one value of the hash.
const WAYS: usize = 4;
/// Steps that a counter may be ahead of the last packet accepted (ROCE-029).
const AHEAD: u16 = 4096;
/// Steps that an overtaken packet may be behind.
const BEHIND: u16 = 256;
/// Packets that the kernel cuts from one send at most.
const SMALL: u16 = 128;
/// Packets in the first run that decides.
const RUN: u32 = 64;

/// A pair of addresses, the sender's first.
pub(super) type Pair = (u32, u32);

#[derive(Clone, Copy, Debug)]
struct Peer {
    pair: Pair,
    /// The turn of its last packet; 0 if there is no peer.
    used: u64,
    /// The last value of the counter, and its time.
    last: Option<(Identification, Time)>,
    /// The last one that was refused: the next near it proves that the counter is there.
    refused: Option<Identification>,
    /// The widest form that is accepted.
    admitted: Form,
    /// The widest form of this run.
    seen: Form,
    /// Packets of this run that are still to come.
    left: u32,
    /// Packets of a whole run.
    run: u32,
}

impl Peer {
    const NOBODY: Self = Self {
        pair: (0, 0),
        used: 0,
        last: None,
        refused: None,
        admitted: Form::Any,
        seen: Form::Zero,
        left: RUN,
        run: RUN,
    };
}

impl IdMemory {
    /// A memory for some `peers`; the number is rounded up to a power of two, and at least 4.
    ///
    /// # Errors
    ///
    /// If there is no memory for it.
    pub fn new(peers: usize) -> Result<Self, TryReserveError> {
        let count = peers.div_ceil(WAYS).next_power_of_two();
        let mut sets = Vec::new();
        sets.try_reserve_exact(count)?;
        sets.resize(count, [Peer::NOBODY; WAYS]);
        let (start, solved) = (LastStart::default(), Solved::new()?);
        Ok(Self { sets: sets.into_boxed_slice(), turn: 0, start, solved })
    }

    /// True if a packet between these two may have this identification, which is then remembered.
    pub(super) fn admit(&mut self, pair: Pair, id: Identification, now: Time) -> bool {
        let peer = self.peer(pair);
        let mut form = peer.form(id, now);
        if peer.admitted == Form::Zero && id == Identification::new(1) {
            peer.widen(Form::Small);
        }
        if form > peer.admitted {
            let agrees = peer.refused.is_some_and(|refused| near(refused, id, 0));
            peer.refused = (!agrees).then_some(id);
            if !agrees {
                return false;
            }
            // The counter begins anew there.
            (peer.last, form) = (None, Form::Near);
            peer.widen(Form::Any);
        }
        if form >= Form::Near {
            peer.advance(id, now);
        }
        peer.seen = peer.seen.max(form);
        peer.left -= 1;
        if peer.left == 0 {
            peer.admitted = peer.seen;
            peer.begin_run();
        }
        true
    }

    /// The widest form that is admitted between these two.
    #[cfg(test)]
    pub(super) fn admitted(&mut self, pair: Pair) -> Form {
        self.peer(pair).admitted
    }

    /// The memory of a pair; empty if it is new.
    fn peer(&mut self, pair: Pair) -> &mut Peer {
        self.turn += 1;
        let (source, destination) = pair;
        let hash = u64::from(source) << 32 | u64::from(destination);
        // The golden ratio spreads neighbouring addresses well.
        let hash = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let set = &mut self.sets[hash as usize & (self.sets.len() - 1)];
        let known = set.iter().position(|peer| peer.used != 0 && peer.pair == pair);
        let place = known.unwrap_or_else(|| {
            let oldest = (0..WAYS).min_by_key(|place| set[*place].used).unwrap_or(0);
            set[oldest] = Peer { pair, ..Peer::NOBODY };
            oldest
        });
        set[place].used = self.turn;
        &mut set[place]
    }
}

impl Peer {
    /// The narrowest form that an identification has.
    fn form(&self, id: Identification, now: Time) -> Form {
        match id {
            Identification { number: 0, may_fragment: false } => Form::Zero,
            Identification { number: ..SMALL, may_fragment: false } => Form::Small,
            // The first one says where a counter stands.
            _ => match self.last {
                Some((last, then)) => {
                    let pause = now.0.saturating_sub(then.0).as_millis();
                    if near(last, id, pause) { Form::Near } else { Form::Any }
                }
                // The first one says where a counter stands.
                None => Form::Near,
            },
        }
    }

    /// Accepts a wider form, for a run twice as long as the last.
    fn widen(&mut self, form: Form) {
        self.admitted = form;
        self.run = self.run.saturating_mul(2);
        self.begin_run();
    }

    fn begin_run(&mut self) {
        (self.left, self.seen) = (self.run, Form::Zero);
    }

    /// Moves the counter, but not back for an overtaken packet.
    fn advance(&mut self, id: Identification, now: Time) {
        let overtaken = self.last.is_some_and(|(last, _)| {
            last.may_fragment == id.may_fragment
                && (1..=BEHIND).contains(&last.number.wrapping_sub(id.number))
        });
        if !overtaken {
            self.last = Some((id, now));
        }
    }
}

/// True if a counter that stood at `last` may be at `id` after so many milliseconds: Linux adds up
/// to one for each of them.
fn near(last: Identification, id: Identification, pause: u128) -> bool {
    let ahead = u128::from(id.number.wrapping_sub(last.number));
    let behind = last.number.wrapping_sub(id.number);
    last.may_fragment == id.may_fragment && (ahead <= u128::from(AHEAD) + pause || behind <= BEHIND)
}
