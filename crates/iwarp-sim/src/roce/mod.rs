// SPDX-License-Identifier: MIT OR Apache-2.0

//! RoCE v2: queue pairs of one type on a network that drops, repeats, delays and mixes up packets,
//! in virtual time.
//!
//! Of UC and UD the oracle knows what each packet has to say and what it has to bring about, since
//! every one is told which message it is part of. An RC queue pair has to hide the network: each
//! message arrives once and in order, each Atomic is done once, and all that was posted completes
//! soon after the network is well again.
//!
//! ```text
//!   net        packets on their way
//!   end        a queue pair, its memory, and what its program has posted
//!   post       what programs post
//!   outgoing   judges packets that go out (UC, UD)
//!   incoming   what a packet has to bring about (UC, UD)
//!   reliable   judges what programs of RC are told
//!   books      judges completions
//!   run        what happens next
//!   hostile    packets of a peer that keeps to no rule
//!   flaw       defects that are planted, to see that they are found
//! ```

mod books;
mod end;
mod flaw;
mod hostile;
mod incoming;
mod net;
mod outgoing;
mod post;
mod reliable;
mod run;

use std::panic::{AssertUnwindSafe, catch_unwind};

use iwarp_roce::{Config, Qp, Rc, Uc, Ud};
use iwarp_types::Accessor;

use crate::choice::Choices;
use crate::failure::{Failure, verdict};
pub use flaw::Flaw;
use flaw::Flawed;
use run::Run;

/// The type of the queue pairs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Reliable connected.
    Rc,
    /// Unreliable connected.
    Uc,
    /// Unreliable datagram.
    Ud,
}

impl Kind {
    /// The kinds that can be made.
    pub const ALL: [Self; 3] = [Self::Rc, Self::Uc, Self::Ud];

    /// By its name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| format!("{kind:?}").eq_ignore_ascii_case(name))
    }

    fn make(self, config: Config) -> Qp {
        match self {
            Self::Uc => Uc::new(config).into(),
            Self::Ud => Ud::new(config).into(),
            Self::Rc => Rc::new(config).into(),
        }
    }
}

/// The options of a run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Decisions before the network is well again.
    pub steps: u64,
    /// Prints each of them.
    pub verbose: bool,
    /// The type of the queue pairs; `None`: as the seed decides.
    pub kind: Option<Kind>,
    /// Plants a defect.
    pub flaw: Flaw,
}

impl Default for Options {
    fn default() -> Self {
        Self { steps: 400, verbose: false, kind: None, flaw: Flaw::None }
    }
}

/// The result of a run.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Summary {
    /// Decisions.
    pub steps: u64,
    /// Packets that were sent.
    pub packets: u64,
    /// Of these, those that the network lost.
    pub lost: u64,
    /// Of these, those that told of congestion.
    pub notices: u64,
    /// Messages that arrived.
    pub arrived: u64,
    /// Completions that were judged.
    pub completions: u64,
    /// Digest of all that was told, with its times; equal for equal seeds.
    pub digest: u64,
}

impl Summary {
    /// With what another run came to.
    pub const fn add(&mut self, other: &Self) {
        self.steps += other.steps;
        self.packets += other.packets;
        self.lost += other.lost;
        self.notices += other.notices;
        self.arrived += other.arrived;
        self.completions += other.completions;
        self.digest = self.digest.rotate_left(1) ^ other.digest;
    }
}

/// Runs one seed.
///
/// # Errors
///
/// The first rule that was broken.
pub fn run_seed(seed: u64, options: &Options) -> Result<Summary, Failure> {
    let mut choices = Choices::from_seed(seed);
    let kind = options.kind.unwrap_or_else(|| choices.pick(&Kind::ALL));
    let make = |config: Config| {
        Flawed::new(kind.make(config), Accessor { pd: config.pd, qp: config.qp }, options.flaw)
    };
    let mut run = Run::new(choices, kind, options, make);
    let result = catch_unwind(AssertUnwindSafe(|| run.go(options.steps)));
    let why = match verdict(result) {
        Ok(()) => return Ok(run.summary),
        Err(why) => why,
    };
    let place = Some(format!("{kind:?}, step {}", run.summary.steps));
    Err(Failure { seed, place, why, trace: run.trace.into() })
}

/// Runs the decisions that octets are. Every other run has a hostile peer.
///
/// # Panics
///
/// With the first rule that was broken.
pub fn run_from_bytes(data: &[u8]) {
    let mut choices = Choices::from_octets(data);
    let kind = choices.pick(&Kind::ALL);
    let options = Options { steps: 2 * data.len() as u64 + 8, ..Options::default() };
    let hostile = choices.one_in(2);
    let mut run = Run::new(choices, kind, &options, |config| kind.make(config));
    run.hostile = hostile;
    if let Err(why) = run.go(options.steps) {
        panic!("{why}");
    }
}
