// SPDX-License-Identifier: MIT OR Apache-2.0

//! The next thing to happen.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Duration;

use iwarp_roce::Config;
use iwarp_roce::wire::{Burst, ICRC_LEN, Malformed, Numbering, Packet, Psn};
use iwarp_types::{QpState, Time, Wanted};

use super::end::{End, Simulated, ends};
use super::net::{Flying, Net, Rates};
use super::{Kind, Options, Summary};
use crate::choice::Choices;

/// Lines of a trace that are kept.
const TRACE: usize = 60;
/// All has to be finished so soon after the network is well again.
const SOON: Duration = Duration::from_secs(60);
/// Rounds in which programs post what is missing, until then.
const ROUNDS: usize = 20_000;

/// A run.
pub(super) struct Run<'a, C> {
    pub(super) rng: Choices<'a>,
    pub(super) kind: Kind,
    pub(super) now: Time,
    pub(super) ends: Vec<End<C>>,
    pub(super) net: Net,
    pub(super) groups: [IpAddr; 2],
    pub(super) summary: Summary,
    pub(super) trace: VecDeque<String>,
    /// One end gets packets that its peer has not sent.
    pub(super) hostile: bool,
    /// The network is well for good.
    pub(super) is_well: bool,
    verbose: bool,
}

impl<'a, C: Simulated> Run<'a, C> {
    pub(super) fn new(
        mut rng: Choices<'a>,
        kind: Kind,
        options: &Options,
        make: impl Fn(Config) -> C,
    ) -> Self {
        let v6 = rng.one_in(3);
        let keys = [0x11, 0x11, 0x22];
        let mut ends: Vec<End<C>> =
            (0..ends(kind)).map(|number| End::new(number, v6, rng.one_in(3), &make)).collect();
        for end in &mut ends {
            end.attributes.qkey = rng.pick(&keys);
            end.attributes.sq_psn = Psn::new(match rng.below(3) {
                0 => 0,
                1 => 0xff_fff0,
                _ => rng.word() as u32,
            });
        }
        let psns: Vec<Psn> = ends.iter().map(|end| end.attributes.sq_psn).collect();
        for (number, end) in ends.iter_mut().enumerate() {
            end.attributes.rq_psn = psns[1 - number.min(1)];
        }
        let groups = match v6 {
            true => ["ff0e::7:1", "ff0e::7:2"],
            false => ["239.7.0.1", "239.7.0.2"],
        };
        let rates = Rates::choose(&mut rng);
        Self {
            kind,
            now: Time::default(),
            ends,
            net: Net::new(rates),
            groups: groups.map(|group| group.parse().expect("an address")),
            summary: Summary::default(),
            trace: VecDeque::new(),
            hostile: false,
            is_well: false,
            verbose: options.verbose,
            rng,
        }
    }

    pub(super) fn note(&mut self, text: impl FnOnce() -> String) {
        let line = format!("{:?}: {}", self.now.0, text());
        if self.verbose {
            println!("{line}");
        }
        if self.trace.len() == TRACE {
            self.trace.pop_front();
        }
        self.trace.push_back(line);
    }

    /// All of it.
    pub(super) fn go(&mut self, steps: u64) -> Result<(), String> {
        self.ends.iter_mut().try_for_each(End::raise)?;
        for _ in 0..steps {
            if self.rng.is_exhausted() {
                break;
            }
            self.summary.steps += 1;
            self.step()?;
        }
        self.settle()?;
        self.summary.lost = self.net.lost;
        Ok(())
    }

    fn step(&mut self) -> Result<(), String> {
        let e = self.rng.below(self.ends.len() as u64) as usize;
        match self.rng.below(16) {
            0..=3 => self.post_send(e),
            4..=6 => self.post_receive(e),
            7..=9 => {
                let budget = 1 << self.rng.below(14);
                self.transmit(e, budget)
            }
            10..=13 => self.deliver(),
            14 => {
                let later = Duration::from_micros(self.rng.below(2000));
                self.now = self.now.plus(later);
                self.tell_time()
            }
            _ => self.meddle(e),
        }
    }

    /// The things that happen seldom.
    fn meddle(&mut self, e: usize) -> Result<(), String> {
        let may_reset = self.kind != Kind::Rc;
        match self.rng.below(8) {
            0 => self.drain(e),
            1 | 2 if self.hostile => self.attack(e),
            1 if may_reset => self.reset(e),
            2 => {
                self.net.rates = Rates::choose(&mut self.rng);
                Ok(())
            }
            3 | 4 => self.regroup(e),
            _ => self.let_go_on(e),
        }
    }

    fn drain(&mut self, e: usize) -> Result<(), String> {
        if self.ends[e].core.state() == QpState::Rts {
            self.note(|| format!("end {e} drains"));
            self.ends[e].core.modify(QpState::Sqd).map_err(|error| error.to_string())?;
            self.judge(e)?;
        }
        Ok(())
    }

    /// A send queue that is drained, or in error, goes on.
    fn let_go_on(&mut self, e: usize) -> Result<(), String> {
        if matches!(self.ends[e].core.state(), QpState::Sqd | QpState::Sqe) {
            self.note(|| format!("end {e} goes on"));
            self.ends[e].core.modify(QpState::Rts).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// The program begins anew. Packets of before are still on their way.
    fn reset(&mut self, e: usize) -> Result<(), String> {
        self.note(|| format!("end {e} is reset"));
        if self.rng.one_in(2) {
            self.ends[e].core.modify(QpState::Err).map_err(|error| error.to_string())?;
            self.judge(e)?;
            if !self.ends[e].config.shared_receive && !self.ends[e].receives.is_empty() {
                return Err(format!("receives of end {e} were not flushed"));
            }
        }
        let psn = Psn::new(self.rng.word() as u32);
        let end = &mut self.ends[e];
        end.core.modify(QpState::Reset).map_err(|error| error.to_string())?;
        end.forget();
        end.attributes.sq_psn = psn;
        end.raise()
    }

    /// Joins a multicast group, or leaves it.
    fn regroup(&mut self, e: usize) -> Result<(), String> {
        let group = self.rng.pick(&self.groups);
        let end = &mut self.ends[e];
        let before = end.groups.len();
        end.groups.retain(|attached| *attached != group);
        if end.groups.len() == before {
            end.groups.push(group);
            end.core.attach(group);
        } else {
            end.core.detach(group);
        }
        Ok(())
    }

    /// Has an end send what it has to, up to so many octets.
    pub(super) fn transmit(&mut self, e: usize, budget: usize) -> Result<(), String> {
        let mut burst = Burst::new(Numbering::Zero, budget);
        let end = &mut self.ends[e];
        end.core.transmit(&mut burst, self.now, &end.host);
        for (path, octets) in burst.packets() {
            let octets = octets[..octets.len() - ICRC_LEN].to_vec();
            let tag = match Packet::parse(&octets) {
                Err(Malformed::Congestion(to)) => {
                    self.summary.notices += 1;
                    let allowed = self.kind == Kind::Rc && self.summary.notices <= self.net.marked;
                    if !allowed || to != self.ends[e].attributes.dest_qp {
                        return Err(format!("end {e} tells queue pair {to:#x} of congestion"));
                    }
                    None
                }
                Err(error) => return Err(error.to_string()),
                Ok(packet) => {
                    self.note(|| format!("end {e} sends {:?}", packet.header.message));
                    match self.kind {
                        Kind::Rc => None,
                        Kind::Uc | Kind::Ud => Some(self.ends[e].judge_packet(e, &packet, path)?),
                    }
                }
            };
            self.summary.packets += 1;
            let to = path.address.destination;
            let gets = |other: &usize| {
                let own = self.ends[*other].attributes.path.address.source;
                own == to || to.is_multicast()
            };
            let receivers: Vec<usize> = (0..self.ends.len()).filter(gets).collect();
            for to in receivers {
                let packet = Flying { to, path: *path, octets: octets.clone(), tag };
                self.net.send(self.now, packet, &mut self.rng);
            }
        }
        self.judge(e)
    }

    /// The next packet arrives, if there is one.
    fn deliver(&mut self) -> Result<(), String> {
        let Some(at) = self.net.next() else { return Ok(()) };
        self.now = self.now.max(at);
        self.tell_time()?;
        let Some(flying) = self.net.take() else { return Ok(()) };
        let e = flying.to;
        let packet = match Packet::parse(&flying.octets) {
            Ok(packet) => packet,
            Err(Malformed::Congestion(_)) => {
                self.ends[e].core.congested(&flying.path, self.now);
                return Ok(());
            }
            Err(error) => return Err(error.to_string()),
        };
        self.note(|| format!("end {e} gets {:?} {:?}", packet.header.message, flying.tag));
        let due = match flying.tag {
            Some(tag) if !self.hostile => Some(self.foresee(e, &tag)?),
            _ => None,
        };
        let writes = due.is_some() && self.kind == Kind::Uc;
        let end = &mut self.ends[e];
        end.core.receive(&packet, &flying.path, self.now, &end.host, &end.host);
        self.judge_receipt(e, due)?;
        if writes { self.judge_written(e) } else { Ok(()) }
    }

    /// Timers that are due.
    fn tell_time(&mut self) -> Result<(), String> {
        for e in 0..self.ends.len() {
            if self.ends[e].core.poll_timeout().is_some_and(|at| at <= self.now) {
                let now = self.now;
                self.ends[e].core.handle_timeout(now);
                self.judge(e)?;
            }
        }
        Ok(())
    }

    /// The network is well again, and programs post the receives that are missing: all has to be
    /// finished soon.
    fn settle(&mut self) -> Result<(), String> {
        self.net.rates = Rates::WELL;
        self.is_well = true;
        let end = self.now.plus(SOON);
        for _ in 0..ROUNDS {
            let mut is_busy = false;
            for e in 0..self.ends.len() {
                self.let_go_on(e)?;
                self.post_missing(e)?;
                if self.ends[e].core.wanted() != Wanted::Nothing {
                    is_busy = true;
                    self.transmit(e, 1 << 14)?;
                }
            }
            while self.net.next().is_some_and(|at| at <= self.now) {
                is_busy = true;
                self.deliver()?;
            }
            let timers = self.ends.iter().filter_map(|end| end.core.poll_timeout());
            let next = timers.chain(self.net.next()).min();
            match next {
                _ if is_busy => {}
                Some(at) if self.is_pending() || at <= self.now => {
                    self.now = self.now.max(at);
                    self.tell_time()?;
                }
                _ => return self.judge_end(),
            }
            if self.now > end {
                return Err(format!("not finished after {SOON:?} on a network that is well"));
            }
        }
        Err("busy without end".to_owned())
    }

    /// True if a request or packet is still to finish.
    fn is_pending(&self) -> bool {
        self.net.next().is_some()
            || self.ends.iter().any(|end| !end.has_failed && end.core.outstanding().0 > 0)
    }
}
