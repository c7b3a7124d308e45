// SPDX-License-Identifier: MIT OR Apache-2.0

//! Plays a program one way, in an order by lot: which end gets its turn, which worker, how far the
//! clock goes on, and for how long an end is stopped.

use std::sync::Arc;
use std::time::Duration;

use iwarp::cm::{ConnectParams, EventKind, Id};
use iwarp::port::MemoryNetwork;
use iwarp::{LocalPath, QpState};

use super::end::{End, listens_at};
use super::program::{Ending, Part, Program, REQUESTS};
use crate::choice::Choices;
use crate::engine::Stage;

/// Time within which something has to come of what was done last.
const PATIENCE: Duration = Duration::from_secs(40);
/// Time within which a connection moves, if it does.
const MOVED: Duration = Duration::from_secs(1);

/// All that both ends have seen.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) lines: [Vec<String>; 2],
    pub(super) completions: u64,
    pub(super) moved: u64,
    pub(super) direct: u64,
}

/// See the [module](self).
pub(super) struct Play<'a> {
    ends: [End; 2],
    stage: Stage,
    order: Choices<'static>,
    program: &'a Program,
    /// An end, its workers among it, does nothing until that time.
    stopped: Option<(usize, Duration)>,
    /// Something has come of something by then, or the run hangs.
    until: Duration,
}

impl<'a> Play<'a> {
    pub(super) fn new(
        program: &'a Program,
        ways: [LocalPath; 2],
        order: u64,
        verbose: bool,
    ) -> Self {
        let stage = Stage::new(order, verbose);
        let mut order = Choices::from_seed(order);
        let capacity = order.pick(&[700, 5_000, 70_000, 256 * 1024]);
        let network = MemoryNetwork::new().with_capacity(capacity).with_shared_memory();
        let ends = [0, 1].map(|side| {
            let (end, turns) = End::new(side, &program.options, ways[side], &network, &stage.clock);
            stage.add(turns);
            end
        });
        let until = stage.clock.now() + PATIENCE;
        Self { ends, stage, order, program, stopped: None, until }
    }

    /// Plays all of it.
    pub(super) fn all(&mut self) -> Result<Seen, String> {
        self.connect()?;
        if self.order.below(2) == 0 {
            self.wait_for_move()?;
        }
        let mut seen = Seen::default();
        let last = self.program.parts.len() - 1;
        for (number, part) in self.program.parts.iter().enumerate() {
            self.stage.note(|| format!("part {number}"));
            self.begin_part(part);
            if number < last || self.program.ending == Ending::Quiet {
                self.until(|play| play.act(part), |play| play.is_done(part))?;
            } else {
                self.count(&mut seen);
                self.end(part)?;
            }
            self.ends.iter_mut().for_each(|end| end.note(number));
        }
        if self.program.ending == Ending::Quiet {
            self.count(&mut seen);
        }
        for (end, lines) in self.ends.iter_mut().zip(&mut seen.lines) {
            if !end.is_kept() {
                return Err("memory has changed that is registered no more".to_owned());
            }
            lines.append(&mut end.lines);
            lines.extend(end.ended.as_ref().map(|why| format!("ended: {why}")));
            seen.completions += end.completions;
        }
        self.leave_nothing()?;
        Ok(seen)
    }

    pub(super) fn trace(&mut self) -> Vec<String> {
        self.stage.trace()
    }

    fn count(&self, seen: &mut Seen) {
        for end in &self.ends {
            seen.moved += u64::from(end.qp.local_path() == LocalPath::Rings);
            seen.direct += end.direct();
        }
    }

    fn connect(&mut self) -> Result<(), String> {
        let id = Id::new(&self.ends[0].events).map_err(|error| error.to_string())?;
        id.set_context(Arc::new(()));
        id.resolve_addr(None, listens_at(1)).map_err(|error| error.to_string())?;
        self.ends[0].id = Some(id);
        let is_up =
            |play: &Self| play.ends.iter().all(|end| end.id.is_some() && end.qp.is_connected());
        self.until(|_| Ok(false), is_up)
    }

    fn wait_for_move(&mut self) -> Result<(), String> {
        let end = self.stage.clock.now() + MOVED;
        let has_moved = move |play: &Self| {
            let is_moved = |end: &End| end.qp.local_path() == LocalPath::Rings;
            play.ends.iter().all(is_moved) || play.stage.clock.now() >= end
        };
        self.until(|_| Ok(false), has_moved)
    }

    /// Goes on until `done`; `act` says whether something has come of it.
    fn until(
        &mut self,
        act: impl Fn(&mut Self) -> Result<bool, String>,
        done: impl Fn(&Self) -> bool,
    ) -> Result<(), String> {
        self.until = self.stage.clock.now() + PATIENCE;
        while !done(self) {
            self.take_events()?;
            self.stop_or_go_on();
            if act(self)? {
                self.until = self.stage.clock.now() + PATIENCE;
            }
            match self.order.below(4) {
                0 | 1 if self.stage.turn(&mut self.order) => {}
                0..=2 => {
                    let by = Duration::from_nanos(self.order.range(100, 50_000));
                    self.stage.advance(by);
                }
                _ => {
                    let step = self.order.pick(&[1, 10, 500]);
                    let end = self.stage.clock.now() + Duration::from_millis(step);
                    self.stage.advance_to_wake(end);
                }
            }
            if self.stage.clock.now() > self.until {
                let states = self.ends.each_ref().map(|end| end.describe());
                return Err(format!("nothing comes of what was posted: {states:?}"));
            }
        }
        self.take_events()
    }

    /// Now and then an end stands still for a while.
    fn stop_or_go_on(&mut self) {
        let now = self.stage.clock.now();
        match self.stopped {
            Some((_, until)) if now >= until => {
                self.stopped = None;
                self.stage.go_on();
            }
            None if self.order.one_in(200) => {
                let side = self.order.below(2) as usize;
                let time = Duration::from_micros(self.order.pick(&[100, 10_000, 3_000_000]));
                self.stage.note(|| format!("end {side} stops for {time:?}"));
                self.stopped = Some((side, now + time));
                self.stage.stop(side);
            }
            _ => {}
        }
    }

    fn is_stopped(&self, side: usize) -> bool {
        self.stopped.is_some_and(|(stopped, _)| stopped == side)
    }

    fn take_events(&mut self) -> Result<(), String> {
        for side in 0..2 {
            while let Some(event) = self.ends[side].events.try_next() {
                let fail = |error: &dyn std::fmt::Display| format!("no connection: {error}");
                let params = ConnectParams::default();
                match event.kind {
                    EventKind::AddressResolved => {
                        let qp = &self.ends[side].qp;
                        event.id.connect(qp, &params).map_err(|error| fail(&error))?;
                    }
                    EventKind::ConnectRequest { .. } => {
                        let qp = &self.ends[side].qp;
                        event.id.accept(qp, &params).map_err(|error| fail(&error))?;
                        self.ends[side].id = Some(event.id);
                    }
                    EventKind::Established { .. } => {}
                    EventKind::Disconnected(why) => {
                        self.stage.note(|| format!("end {side} is over: {why:?}"));
                        self.ends[side].ended = Some(format!("{why:?}"));
                    }
                    kind => return Err(format!("the connection manager says {kind:?}")),
                }
            }
        }
        Ok(())
    }

    fn begin_part(&mut self, part: &Part) {
        for (side, end) in self.ends.iter_mut().enumerate() {
            end.begin_part();
            if let Some(region) = part.renewed[side] {
                end.register(region);
            }
        }
    }

    fn is_done(&self, part: &Part) -> bool {
        self.ends.iter().all(|end| end.is_done(part))
    }

    /// An end does something. True if something came of it.
    fn act(&mut self, part: &Part) -> Result<bool, String> {
        let side = self.order.below(2) as usize;
        if self.is_stopped(side) {
            return Ok(false);
        }
        let came = match self.order.below(4) {
            0 | 1 => self.post(part, side)?,
            2 => self.receive(part, side)?,
            _ => false,
        };
        let max = self.order.pick(&[0, 1, 4, 64]);
        let polled = self.ends[side].poll(&part.requests[side], max)?;
        if polled > 0 {
            self.stage.note(|| format!("end {side} polls {polled}"));
        }
        Ok(came || polled > 0)
    }

    fn receive(&mut self, part: &Part, side: usize) -> Result<bool, String> {
        let needed = part.requests[1 - side].iter();
        let needed = needed.filter(|request| request.kind.takes_receive()).count();
        if self.ends[side].receives() == needed || self.ends[side].ended.is_some() {
            return Ok(false);
        }
        self.stage.note(|| format!("end {side} posts a receive"));
        self.ends[side].post_receive().map(|()| true)
    }

    fn post(&mut self, part: &Part, side: usize) -> Result<bool, String> {
        let (own, posted) = (&part.requests[side], self.ends[side].posted());
        let count = if part.as_list[side] { own.len() - posted } else { 1 };
        let Some(next) = own.get(posted..posted + count).filter(|next| !next.is_empty()) else {
            return Ok(false);
        };
        let taken = own[..posted + count].iter().filter(|it| it.kind.takes_receive()).count();
        // A message may wait for its receive, but not beyond the end of its connection.
        let is_last = std::ptr::eq(part, self.program.parts.last().unwrap_or(part));
        let may_wait = self.program.waits() && !(is_last && self.program.ending.is_determined());
        let has_receive = may_wait || taken <= self.ends[1 - side].receives();
        if !has_receive || self.ends[side].qp.room().0 < count {
            return Ok(false);
        }
        let to: Vec<_> = next.iter().map(|request| self.ends[1 - side].address(request)).collect();
        self.stage.note(|| {
            let what: Vec<_> = next.iter().map(|it| (it.kind, it.region, it.len)).collect();
            format!("end {side} posts {posted}: {what:?}")
        });
        self.ends[side].post(next, &to).map(|()| true)
    }

    /// The last part, with which the connection ends.
    fn end(&mut self, part: &Part) -> Result<(), String> {
        match self.program.ending {
            Ending::Quiet => {}
            Ending::Leaves(side) => {
                let own = &part.requests[side];
                let needed = own.iter().filter(|request| request.kind.takes_receive()).count();
                let all_posted = |play: &Self| {
                    play.ends[side].posted() == own.len()
                        && play.ends[1 - side].receives() == needed
                };
                self.until(|play| play.act(part), all_posted)?;
                self.ends[side].id.as_ref().ok_or("no id")?.disconnect();
            }
            Ending::Fault(side) => {
                if part.requests[side]
                    .iter()
                    .any(|it| it.wrong == Some(super::program::Wrong::Withdrawn))
                {
                    self.ends[1 - side].withdraw(1);
                }
            }
            Ending::Race(side) => {
                let steps = self.order.below(60);
                for _ in 0..steps {
                    self.act(part)?;
                    self.stage.turn(&mut self.order);
                }
                self.stage.note(|| format!("end {} deregisters", 1 - side));
                self.ends[1 - side].withdraw(1);
                self.until(
                    |play| play.act_while_it_lives(part),
                    |play| {
                        let end = &play.ends[side];
                        end.ended.is_some() || end.is_done(part)
                    },
                )?;
                // All of it may have come before.
                self.ends[side].id.as_ref().ok_or("no id")?.disconnect();
            }
            Ending::Aborts(side) => {
                let steps = self.order.below(100);
                for _ in 0..steps {
                    self.act(part)?;
                    self.stage.turn(&mut self.order);
                }
                self.stage.note(|| format!("end {side} aborts"));
                self.ends[side].qp.abort();
            }
        }
        self.until(
            |play| play.act_while_it_lives(part),
            |play| play.ends.iter().all(|end| end.ended.is_some() && end.is_over(part)),
        )?;
        for end in &self.ends {
            end.judge_ending()?;
            end.judge_messages(part)?;
        }
        match self.program.ending {
            Ending::Leaves(side) => self.judge_leaver(part, side),
            Ending::Fault(side) if !self.program.waits() => {
                // It completes when it is sent, if the peer has not found out by then.
                let last = part.requests[side].len() - 1;
                if !part.requests[side][last].kind.is_answered() {
                    self.ends[side].forget_sent_from(last);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// All that an end has posted before it left has come, and it may not have been told.
    fn judge_leaver(&mut self, part: &Part, side: usize) -> Result<(), String> {
        self.ends[side].forget_sent_from(0);
        if self.ends[1 - side].is_done(part) { Ok(()) } else { Err("messages are lost".to_owned()) }
    }

    /// As [`Self::act`], where an end may be over that posts no more then.
    fn act_while_it_lives(&mut self, part: &Part) -> Result<bool, String> {
        let is_up = |end: &End| end.qp.state() == QpState::Rts;
        if self.ends.iter().all(is_up) {
            return self.act(part);
        }
        let mut came = 0;
        for side in 0..2 {
            if !self.is_stopped(side) {
                came += self.ends[side].poll(&part.requests[side], REQUESTS)?;
            }
        }
        Ok(came > 0)
    }

    /// All ends, and nothing is left.
    fn leave_nothing(&mut self) -> Result<(), String> {
        self.stopped = None;
        self.stage.go_on();
        for end in &mut self.ends {
            end.id.iter().for_each(Id::disconnect);
        }
        self.stage.pass(PATIENCE, &mut self.order)?;
        match self.ends.each_ref().map(End::connections) {
            [0, 0] => Ok(()),
            left => Err(format!("{left:?} connections are left")),
        }
    }
}
