// SPDX-License-Identifier: MIT OR Apache-2.0

//! Runs: a seed, or octets, decide about ends, operations, links and mishaps; the oracle judges.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use iwarp_proto::mpa::startup::{self, Initiator, Negotiated, Responder, RtrTypes};
use iwarp_proto::qp::{Capabilities, Config, Extensions, Park};
use iwarp_types::{QpState, Time};

use crate::bank::{Bank, COMPACT, LARGE, Role};
use crate::choice::Choices;
use crate::failure::{Failure, verdict};
use crate::host::Flaw;
use crate::hostile;
use crate::net::{End, Net, Tolerance, accessor};
use crate::ops::{post_nothing, post_recv, post_send};

/// The kind of life that two ends have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Everything is legal and the network only slow: everything has to succeed.
    Clean,
    /// Wrong requests, lost access, ends that disconnect, abort, break.
    Rough,
    /// An octet changes on the way; CRCs are on.
    Corrupt,
    /// Octets change on the way, undetectably.
    Unchecked,
    /// The peer sends what it likes.
    Hostile,
}

impl Mode {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Clean, Self::Rough, Self::Corrupt, Self::Unchecked, Self::Hostile];
}

/// The options of a run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Steps of a run.
    pub steps: u64,
    /// Only lives of this kind.
    pub mode: Option<Mode>,
    /// A defect for the oracle to find.
    pub flaw: Flaw,
    /// Print every step.
    pub verbose: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { steps: 1000, mode: None, flaw: Flaw::None, verbose: false }
    }
}

/// The numbers of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Summary {
    /// Steps.
    pub steps: u64,
    /// Connections.
    pub connections: u64,
    /// Octets taken by the links.
    pub octets: u64,
    /// Completions judged.
    pub completions: u64,
    /// A digest of everything that happened; equal for equal seeds.
    pub digest: u64,
}

impl Summary {
    /// With what another run came to.
    pub const fn add(&mut self, other: &Self) {
        self.steps += other.steps;
        self.connections += other.connections;
        self.octets += other.octets;
        self.completions += other.completions;
        self.digest = self.digest.rotate_left(1) ^ other.digest;
    }
}

/// Runs `seed`. On failure the run is repeated with a record of what happened.
pub fn run_seed(seed: u64, options: &Options) -> Result<Summary, Failure> {
    let once = |record: bool| {
        let mut run = Run::new(Choices::from_seed(seed), options, record);
        let result = catch_unwind(AssertUnwindSafe(|| run.go()));
        run.conclude(seed, result)
    };
    once(options.verbose).or_else(|first| if options.verbose { Err(first) } else { once(true) })
}

/// Lets arbitrary octets decide instead of a seed.
///
/// # Panics
///
/// When the oracle finds a broken rule: for a fuzzer.
pub fn run_from_bytes(data: &[u8]) {
    let options = Options { steps: 4 * data.len() as u64 + 16, ..Options::default() };
    let mut run = Run::new(Choices::from_octets(data), &options, false);
    // Most of a run's cost is memory that is filled, moved and compared. Messages of a few frames
    // reach all branches that longer ones do, so long ones are made only if the input asks for
    // them.
    run.large = if run.rng.one_in(16) { LARGE } else { COMPACT };
    if let Err(why) = run.go() {
        panic!("{why}");
    }
}

/// The last lines of a record.
const RECORD: usize = 60;

/// The origin of the memory of both ends as it is at first: a seed, and octets of the large
/// regions.
type Origin = (u64, usize);

/// Memory as it is at first, and memory of a run that is over, for the next.
struct Made {
    origin: Origin,
    first: [Bank; 2],
    spare: Option<[Bank; 2]>,
}

thread_local! {
    /// Kept because nearly every run begins with equal memory.
    static MADE: RefCell<Vec<Made>> = const { RefCell::new(Vec::new()) };
}

/// Memory of both ends as it is at first. Restoring what a run has touched takes a fraction of the
/// time of making it, or of a copy.
fn fresh_banks(origin: Origin) -> [Bank; 2] {
    const KEPT: usize = 4;

    MADE.with_borrow_mut(|made| {
        if let Some(Made { first, spare, .. }) = made.iter_mut().find(|made| made.origin == origin)
        {
            return match spare.take() {
                Some(mut banks) => {
                    banks.iter_mut().zip(&*first).for_each(|(bank, first)| bank.restore(first));
                    banks
                }
                None => first.clone(),
            };
        }
        let (seed, large) = origin;
        let bank = |e: usize, seed| Bank::new(seed, accessor(e).pd, large);
        let banks = [bank(0, seed), bank(1, !seed)];
        if made.len() < KEPT {
            made.push(Made { origin, first: banks.clone(), spare: None });
        }
        banks
    })
}

fn keep_banks(origin: Origin, banks: [Bank; 2]) {
    MADE.with_borrow_mut(|made| {
        if let Some(made) = made.iter_mut().find(|made| made.origin == origin) {
            made.spare = Some(banks);
        }
    });
}

struct Run<'a> {
    rng: Choices<'a>,
    options: Options,
    record: bool,
    trace: std::collections::VecDeque<String>,
    summary: Summary,
    mode: Option<Mode>,
    /// Receives are posted only for messages that wait, at the end.
    late: bool,
    banks: Option<[Bank; 2]>,
    /// The octets that they were at first.
    origin: Origin,
    /// Octets of the large regions.
    large: usize,
}

macro_rules! trace {
    ($run:expr, $($what:tt)+) => {
        if $run.record {
            $run.line(format!($($what)+));
        }
    };
}

impl<'a> Run<'a> {
    fn new(rng: Choices<'a>, options: &Options, record: bool) -> Self {
        Self {
            rng,
            options: *options,
            record,
            trace: std::collections::VecDeque::new(),
            summary: Summary::default(),
            mode: None,
            late: false,
            banks: None,
            origin: (0, LARGE),
            large: LARGE,
        }
    }

    fn line(&mut self, line: String) {
        let line = format!("{:6} {line}", self.summary.steps);
        if self.options.verbose {
            println!("{line}");
        }
        if self.trace.len() == RECORD {
            self.trace.pop_front();
        }
        self.trace.push_back(line);
    }

    fn conclude(
        self,
        seed: u64,
        result: std::thread::Result<Result<(), String>>,
    ) -> Result<Summary, Failure> {
        verdict(result).map_err(|why| {
            let mode = self.mode.map_or("no life".to_owned(), |mode| format!("{mode:?}"));
            let place = Some(format!("step {}, {mode}", self.summary.steps));
            Failure { seed, place, why, trace: self.trace.into() }
        })?;
        Ok(self.summary)
    }

    fn go(&mut self) -> Result<(), String> {
        while self.summary.steps < self.options.steps && !self.rng.is_exhausted() {
            let mode = self.options.mode.unwrap_or_else(|| match self.rng.below(16) {
                0..=6 => Mode::Clean,
                7..=11 => Mode::Rough,
                12 => Mode::Corrupt,
                13 => Mode::Unchecked,
                _ => Mode::Hostile,
            });
            self.mode = Some(mode);
            self.life(mode)?;
        }
        if let Some(banks) = self.banks.take() {
            keep_banks(self.origin, banks);
        }
        Ok(())
    }

    fn take_banks(&mut self) -> [Bank; 2] {
        let Some(mut banks) = self.banks.take() else {
            self.origin = (self.summary.steps, self.large);
            return fresh_banks(self.origin);
        };
        banks.iter_mut().for_each(Bank::renew_all);
        banks
    }

    /// One connection, from its start to its end.
    fn life(&mut self, mode: Mode) -> Result<(), String> {
        self.summary.steps += 1;
        let Some((a, b)) = start(&mut self.rng, mode)? else {
            trace!(self, "no connection");
            return Ok(());
        };
        trace!(self, "connection: {mode:?}\n         {a:?}\n         {b:?}");
        self.summary.connections += 1;
        if mode == Mode::Hostile {
            let banks = self.take_banks();
            let role = if self.rng.one_in(2) { a } else { b };
            let record = self.record;
            let (mut log, mut steps) = (Vec::new(), 0);
            let result = hostile::life(
                &mut self.rng,
                role,
                banks,
                self.options.flaw,
                &mut |line: &dyn Fn() -> String| {
                    steps += 1;
                    if record {
                        log.push(line());
                    }
                },
            );
            self.summary.steps += steps;
            log.into_iter().for_each(|line| self.line(line));
            let (banks, digest, octets, completions) = result?;
            self.banks = Some(banks);
            self.summary.octets += octets;
            self.summary.completions += completions;
            self.summary.digest = self.summary.digest.rotate_left(7) ^ digest;
            return Ok(());
        }
        let rough = mode == Mode::Rough;
        let tolerance = Tolerance { faults: mode != Mode::Clean, garbage: mode == Mode::Unchecked };
        let rate = if rough && self.rng.one_in(2) { self.rng.range(20, 2000) } else { 0 };
        let mut banks = self.take_banks().into_iter();
        let now = Time(Duration::from_secs(1));
        let alike = self.rng.one_in(4);
        self.late = alike && self.rng.one_in(2);
        trace!(self, "like InfiniBand: {alike}, receives are late: {}", self.late);
        let mut end = |e: usize, terms: Negotiated, rng: &mut Choices<'_>| {
            let bank = banks.next().expect("two banks");
            let mut config = config(e, rng);
            if alike {
                like_infiniband(&mut config, rng);
            }
            End::new(e, config, terms, bank, rng.word(), rate, now)
        };
        let ends = [end(0, a, &mut self.rng), end(1, b, &mut self.rng)];
        let mut net = Net::new(ends, tolerance, now);
        net.set_flaw(self.options.flaw);
        for e in 0..2 {
            let of = |e: usize| net.ends[e].qp.borrow().config().extensions;
            let sure = matches!(
                (of(e), of(1 - e)),
                (Extensions::Ask, Extensions::Ask)
                    | (Extensions::Assume, Extensions::Assume | Extensions::Ask)
            );
            net.ends[e].host.model.borrow_mut().extensions_may_fail = !sure || mode != Mode::Clean;
        }
        let result = self.live(&mut net, mode);
        self.summary.octets += net.octets;
        self.summary.digest = self.summary.digest.rotate_left(7) ^ net.digest;
        for end in &net.ends {
            self.summary.completions += end.host.model.borrow().completions;
        }
        result?;
        self.banks = Some(net.into_banks());
        Ok(())
    }

    fn live(&mut self, net: &mut Net, mode: Mode) -> Result<(), String> {
        for e in 0..2 {
            let mulpdu = self.mulpdu();
            net.ends[e].set_mulpdu(mulpdu);
            net.links[e].capacity = self.capacity();
            for _ in 0..self.rng.range(1, 8) {
                post_recv(net, e, &mut self.rng)?;
            }
        }
        if matches!(mode, Mode::Corrupt | Mode::Unchecked) {
            let e = self.rng.below(2) as usize;
            net.links[e].corrupt_at = Some(self.rng.below(100_000));
        }
        let until = self.summary.steps + self.rng.range(20, 600);
        while self.summary.steps < until
            && self.summary.steps < self.options.steps
            && !self.rng.is_exhausted()
        {
            self.summary.steps += 1;
            self.step(net, mode)?;
            if !net.ends[0].is_up() && !net.ends[1].is_up() && self.rng.one_in(20) {
                break;
            }
        }
        self.end(net, mode)
    }

    fn mulpdu(&mut self) -> usize {
        self.rng.pick(&[0, 128, 131, 500, 1440, 1446, 8940, 32_000, 64_768, 100_000])
    }

    fn capacity(&mut self) -> usize {
        self.rng.pick(&[1, 60, 1000, 4096, 65_536, 65_536, 262_144, 1 << 20])
    }

    fn step(&mut self, net: &mut Net, mode: Mode) -> Result<(), String> {
        net.tick();
        let rng = &mut self.rng;
        let e = rng.below(2) as usize;
        let action = rng.below(100);
        net.note(action);
        match action {
            0..=27 => {
                let budget = rng.pick(&[1, 2000, 65_536, 262_144]);
                let most = if rng.one_in(3) { rng.below(3000) as usize } else { usize::MAX };
                trace!(self, "end {e}: send, budget {budget}, at most {most}");
                let before = net.octets;
                let result = net.send(e, budget, most);
                if net.octets > before {
                    trace!(self, "       took {}", net.octets - before);
                }
                result
            }
            28..=55 => {
                if net.links[1 - e].stalled {
                    return Ok(());
                }
                let most = if rng.one_in(3) { rng.below(3000) as usize } else { usize::MAX };
                let directly = rng.one_in(2);
                trace!(
                    self,
                    "end {e}: receive, at most {most} of {}",
                    net.links[1 - e].flying.len()
                );
                net.receive(e, most, directly)
            }
            56..=80 => {
                let before = net.ends[e].host.model.borrow().sends.len();
                let result = post_send(net, e, rng, mode == Mode::Rough);
                if self.record {
                    let last = net.ends[e].host.model.borrow().sends.get(before).cloned();
                    if let Some(last) = last {
                        let what = (last.wr_id, last.op, last.length, last.fence, last.signaled);
                        self.line(format!("end {e}: post_send {what:?} {:?}", last.sges));
                    }
                }
                result
            }
            81..=90 if self.late => Ok(()),
            81..=90 => {
                trace!(self, "end {e}: post_recv");
                post_recv(net, e, &mut self.rng)
            }
            91 => {
                let mulpdu = self.mulpdu();
                trace!(self, "end {e}: MULPDU {mulpdu}");
                net.ends[e].set_mulpdu(mulpdu);
                Ok(())
            }
            92 => {
                net.links[e].capacity = self.capacity();
                Ok(())
            }
            93 => {
                net.links[e].stalled = rng.one_in(2);
                Ok(())
            }
            94 => {
                let to = if rng.one_in(2) { QpState::Sqd } else { QpState::Rts };
                trace!(self, "end {e}: modify to {to:?}");
                self.modify(net, e, to)
            }
            _ if mode == Mode::Rough => self.mishap(net, e),
            _ => Ok(()),
        }
    }

    fn modify(&mut self, net: &mut Net, e: usize, to: QpState) -> Result<(), String> {
        let end = &mut net.ends[e];
        let from = end.qp.borrow().state();
        let result = end.qp.borrow_mut().modify(to);
        if result.is_ok() != from.may_become(to) {
            return Err(format!("{from:?} to {to:?}: {result:?}"));
        }
        if result.is_ok() {
            end.outcome.drains_due = u32::from(to == QpState::Sqd);
        }
        net.poll(e)
    }

    fn mishap(&mut self, net: &mut Net, e: usize) -> Result<(), String> {
        let rng = &mut self.rng;
        if !rng.one_in(6) {
            return Ok(());
        }
        let what = rng.below(9);
        trace!(self, "end {e}: mishap {what}");
        let rng = &mut self.rng;
        let disturb = |net: &Net| {
            net.ends.iter().for_each(|end| end.host.model.borrow_mut().disturbed = true);
        };
        match what {
            0 | 1 => {
                disturb(net);
                net.ends[e].host.model.borrow_mut().disconnected = true;
                net.ends[e].qp.borrow_mut().disconnect();
                if rng.one_in(2) {
                    // Octets that still go out cannot be read any more.
                    let mut bank = net.ends[e].host.bank.borrow_mut();
                    bank.revoke(rng.pick(&[Role::Source, Role::Passing]));
                }
            }
            2 => {
                disturb(net);
                net.ends[e].qp.borrow_mut().abort();
                net.reset(e);
            }
            3 => {
                disturb(net);
                net.reset(e);
                net.ends[e].qp.borrow_mut().lost();
            }
            4 => {
                disturb(net);
                let at = net.links[e].sent + rng.below(5000);
                net.links[e].cut_at.get_or_insert(at);
            }
            5 => {
                disturb(net);
                net.ends[e].qp.borrow_mut().fail_locally("asked to");
            }
            6 => {
                net.ends[e].host.model.borrow_mut().disconnected = true;
                disturb(net);
                self.modify(net, e, QpState::Err)?;
            }
            7 => {
                disturb(net);
                let role = rng.pick(&Role::ALL);
                net.ends[e].host.bank.borrow_mut().revoke(role);
            }
            _ => {
                disturb(net);
                net.pass_time();
            }
        }
        net.poll(e)?;
        net.poll(1 - e)
    }

    /// Posts the receives that messages wait for, as long as that helps: each when all that can
    /// complete before it has.
    fn pay(&mut self, net: &mut Net, mode: Mode) -> Result<(), String> {
        let debts = |net: &Net| -> usize { net.ends.iter().map(|end| end.debts.len()).sum() };
        loop {
            let before = debts(net);
            // A program may post a receive only when it knows of what was received before.
            if mode == Mode::Clean {
                net.check_complete()?;
            }
            for e in 0..2 {
                if net.ends[e].is_up() && !net.ends[e].debts.is_empty() {
                    post_recv(net, e, &mut self.rng)?;
                }
            }
            net.run_dry(&mut self.rng)?;
            if debts(net) == before {
                return Ok(());
            }
        }
    }

    fn end(&mut self, net: &mut Net, mode: Mode) -> Result<(), String> {
        trace!(self, "the end: everything may go on");
        for e in 0..2 {
            if net.ends[e].qp.borrow().state() == QpState::Sqd {
                self.modify(net, e, QpState::Rts)?;
            }
        }
        loop {
            net.run_dry(&mut self.rng)?;
            for e in 0..2 {
                if net.ends[e].host.model.borrow().gated {
                    post_nothing(net, 1 - e)?;
                }
            }
            net.run_dry(&mut self.rng)?;
            self.pay(net, mode)?;
            for e in 0..2 {
                if net.ends[e].qp.borrow().state() == QpState::Sqd {
                    self.modify(net, e, QpState::Rts)?;
                }
            }
            if !net.pass_time() && !net.is_busy() {
                break;
            }
        }
        if mode == Mode::Clean {
            for end in &net.ends {
                end.host.model.borrow_mut().check_finished(false)?;
            }
        }
        net.check_memory()?;
        let first = self.rng.below(2) as usize;
        for e in [first, 1 - first] {
            trace!(self, "end {e}: disconnect");
            net.ends[e].host.model.borrow_mut().disconnected = true;
            net.ends[e].qp.borrow_mut().disconnect();
            net.poll(e)?;
            if self.rng.one_in(2) {
                net.run_dry(&mut self.rng)?;
            }
        }
        net.run_dry(&mut self.rng)?;
        for (e, end) in net.ends.iter().enumerate() {
            let shared = end.qp.borrow().config().shared_receive;
            let mut model = end.host.model.borrow_mut();
            model.check_finished(!shared).map_err(|why| format!("end {e}: {why}"))?;
            if shared && !end.outcome.last_receive {
                return Err(format!("end {e}: last receive never reached"));
            }
            if end.qp.borrow().outstanding() != (0, 0) {
                return Err(format!("end {e}: work requests left"));
            }
            if let Some(sent) = model.terminate
                && end.outcome.fault != Some(sent)
            {
                return Err(format!(
                    "end {e}: sent Terminate {sent:?}, fault {:?}",
                    end.outcome.fault
                ));
            }
            if mode == Mode::Clean && !net.links[e].fin {
                return Err(format!("end {e}: stream not finished"));
            }
        }
        net.check_memory()
    }
}

pub(crate) fn config(e: usize, rng: &mut Choices<'_>) -> Config {
    let who = accessor(e);
    Config {
        qp: who.qp,
        pd: who.pd,
        max_send_wr: rng.pick(&[1, 2, 5, 16, 64, 128]),
        max_recv_wr: rng.pick(&[1, 3, 16, 64, 128]),
        max_send_sge: rng.range(1, 6) as usize,
        max_recv_sge: rng.range(1, 6) as usize,
        max_inline: rng.pick(&[0, 64, 256, 1000]),
        shared_receive: rng.one_in(4),
        extensions: rng.pick(&[
            Extensions::Ask,
            Extensions::Ask,
            Extensions::Assume,
            Extensions::Refuse,
        ]),
        extension_wait: Duration::from_secs(3),
        nudge: rng.one_in(3).then_some(Duration::from_millis(200)),
        tell_held_back: None,
        tell_no_receive: rng.one_in(2).then_some(Duration::from_secs(1)),
        acknowledge: rng.one_in(3),
        park: rng.one_in(3).then(|| Park {
            octets: rng.pick(&[0, 100, 5000, 60_000, 1 << 20]),
            messages: rng.pick(&[0, 1, 2, 5, 20]),
            timer: Duration::ZERO,
        }),
        outlive: rng.one_in(3).then_some(Duration::from_secs(1)),
        outlive_in_place: None,
        tells: Capabilities::default(),
    }
}

/// Makes an end one whose requests complete when they are received, and at which messages wait.
fn like_infiniband(config: &mut Config, rng: &mut Choices<'_>) {
    config.extensions = Extensions::Ask;
    config.acknowledge = true;
    config.park.get_or_insert(Park {
        octets: rng.pick(&[5000, 60_000, 1 << 20]),
        messages: 20,
        timer: Duration::ZERO,
    });
}

/// MPA start-up, its frames arriving in pieces. `None` when it was refused.
fn start(rng: &mut Choices<'_>, mode: Mode) -> Result<Option<(Negotiated, Negotiated)>, String> {
    let now = Time(Duration::ZERO);
    let depths = [0, 1, 1, 2, 4, 16];
    let rev = if rng.one_in(4) { 1 } else { 2 };
    let side = |rng: &mut Choices<'_>, rev: u8| startup::Config {
        rev,
        crc: match mode {
            Mode::Corrupt => true,
            Mode::Unchecked => false,
            _ => rng.one_in(2),
        },
        markers: rng.one_in(3),
        ird: rng.pick(&depths),
        ord: rng.pick(&depths),
        spare: u16::from(rng.one_in(2)),
        peer_to_peer: rng.one_in(2),
        rtr: rng.pick(&[
            RtrTypes::ALL,
            RtrTypes::ALL,
            RtrTypes { send: true, ..RtrTypes::NONE },
            RtrTypes { write: true, ..RtrTypes::NONE },
            RtrTypes { read: true, ..RtrTypes::NONE },
        ]),
        ..startup::Config::default()
    };
    let (mut ours, theirs) = (side(rng, rev), side(rng, 2));
    if mode == Mode::Clean && ours.peer_to_peer && ours.rtr.and(theirs.rtr).is_empty() {
        ours.rtr = RtrTypes::ALL;
    }
    let text = |error| format!("start-up: {error}");
    let mut private = vec![7; rng.below(300) as usize];
    let mut initiator = Initiator::new(ours, &private, now).map_err(text)?;
    let mut responder = Responder::new(theirs, now);
    let request = initiator.request().to_vec();
    for cut in cuts(rng, request.len()) {
        if responder.receive(&request[..cut]).map_err(text)?.is_some() {
            return Err("Request understood before it was whole".into());
        }
    }
    let (seen, used) =
        responder.receive(&request).map_err(text)?.ok_or("Request not understood")?;
    if used != request.len() || seen.private_data != private {
        return Err("Request misunderstood".into());
    }
    private.truncate(100);
    if rng.one_in(30) {
        let reply = responder.reject(&private).map_err(text)?;
        let (seen, _) = initiator.receive(&reply).map_err(text)?.ok_or("Reply not understood")?;
        return if seen.accepted { Err("reject taken for accept".into()) } else { Ok(None) };
    }
    let (reply, mut b) = responder.accept(theirs.ird, theirs.ord, &private).map_err(text)?;
    for cut in cuts(rng, reply.len()) {
        if initiator.receive(&reply[..cut]).map_err(text)?.is_some() {
            return Err("Reply understood before it was whole".into());
        }
    }
    let (seen, _) = initiator.receive(&reply).map_err(text)?.ok_or("Reply not understood")?;
    let mut a = seen.negotiated;
    if !a.enhanced {
        // The programs see to it themselves.
        a.ord = a.ord.min(b.ird);
        b.ord = b.ord.min(a.ird);
    }
    if mode == Mode::Clean && (a.outbound() > b.inbound() || b.outbound() > a.inbound()) {
        return Err(format!("depths do not fit: {a:?}, {b:?}"));
    }
    if a.crc != b.crc || a.send_markers != b.receive_markers || b.send_markers != a.receive_markers
    {
        return Err(format!("no agreement: {a:?}, {b:?}"));
    }
    Ok(Some((a, b)))
}

fn cuts(rng: &mut Choices<'_>, len: usize) -> Vec<usize> {
    let mut cuts: Vec<usize> = (0..rng.below(4)).map(|_| rng.below(len as u64) as usize).collect();
    cuts.sort_unstable();
    cuts
}
