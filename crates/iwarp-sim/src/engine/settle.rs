// SPDX-License-Identifier: MIT OR Apache-2.0

//! Programs stand still: all posted requests have to finish without them.

use std::time::Duration;

use iwarp::{Look, QpState};
use iwarp_os::cancel::wait_cancellable;

use super::books::Couple;
use super::host::Host;
use super::run::{Run, SERVED};

/// Times that receives are posted for messages that wait, at most.
const ROUNDS: usize = 200;
/// A connection that was ended is over by then, and so is what outlives it.
const OVER: Duration = Duration::from_secs(30);

/// The ways in which programs stand still.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stands {
    /// All queues were armed, and then polled once more: programs sleep on descriptors.
    Armed,
    /// They do something else, for as long as a worker may take to notice.
    Absent,
    /// The program of that host sleeps within the library, the other one on descriptors.
    Blocked(usize),
}

impl Run<'_> {
    /// Programs stand still until all that can be finished is.
    pub(super) fn settle(&mut self, stands: Stands) -> Result<(), String> {
        if let Some(host) = self.blocked {
            self.wake_up(host);
        }
        self.stage.note(|| format!("programs stand still: {stands:?}"));
        for _ in 0..ROUNDS {
            let more = self.top_up()?;
            self.settle_once(stands)?;
            if !more {
                let mut well = self.couples.iter().filter(|couple| !couple.is_ending);
                return well.try_for_each(|couple| couple.judge_memory());
            }
        }
        Err("messages wait for receives that are there".to_owned())
    }

    /// Posts receives for messages that wait. Returns true if some messages are left without.
    fn top_up(&mut self) -> Result<bool, String> {
        let mut more = false;
        for number in 0..self.couples.len() {
            for which in 0..2 {
                loop {
                    let couple = &self.couples[number];
                    let messages = couple.ends[1 - which].messages.len();
                    if couple.is_ending || messages <= self.available(number, which) {
                        break;
                    }
                    if !self.can_receive(number, which) {
                        more = true;
                        break;
                    }
                    self.receive(number, which)?;
                }
            }
        }
        Ok(more)
    }

    fn settle_once(&mut self, stands: Stands) -> Result<(), String> {
        if stands != Stands::Absent {
            while self.arm_all()? {}
        }
        // A program that has armed all queues, and sleeps where only workers can wake it, need not
        // wait for any time to pass.
        let at_once = stands == Stands::Armed
            && self
                .hosts
                .iter()
                .all(|host| !host.has_blocked && host.queues.iter().all(|queue| queue.has_channel));
        let time = if at_once { Duration::ZERO } else { SERVED };
        match stands {
            Stands::Blocked(host) => self.sleep_within(host)?,
            _ => self.stage.pass(time, &mut self.choices)?,
        }
        self.take_all(stands != Stands::Absent)?;
        self.judge_due(at_once)
    }

    /// Arms all queues and polls what came before. True when one has told of something meanwhile,
    /// so that the program of its host does not go to sleep.
    fn arm_all(&mut self) -> Result<bool, String> {
        let mut told = false;
        for host in 0..self.hosts.len() {
            while self.hosts[host].channel.try_next().is_some() {}
            for queue in 0..self.hosts[host].queues.len() {
                self.arm(host, queue);
                while self.poll(host, queue, 64)? > 0 {}
            }
        }
        for host in &self.hosts {
            told |= host.is_told();
        }
        Ok(told)
    }

    /// The program of a host sleeps within the library as long as nothing is ready there.
    fn sleep_within(&mut self, host: usize) -> Result<(), String> {
        self.hosts[host].has_blocked = true;
        let end = self.stage.clock.now() + SERVED;
        loop {
            let looked = self.hosts[host].channel.look().map_err(|error| error.to_string())?;
            match looked {
                Look::Event(told) => {
                    let queues = &self.hosts[host].queues;
                    let queue = queues.iter().position(|queue| queue.cq.number() == told);
                    let queue = queue.ok_or("an event of no queue")?;
                    self.arm(host, queue);
                    while self.poll(host, queue, 64)? > 0 {}
                }
                Look::Nothing(fd) => {
                    // The thread of its own that it is taken for would be awake.
                    if wait_cancellable(fd, Some(Duration::ZERO)).is_ok_and(|ready| ready) {
                        continue;
                    }
                    if !self.stage.turn(&mut self.choices) && !self.stage.advance_to_wake(end) {
                        break;
                    }
                }
                other => return Err(format!("looking found {other:?}")),
            }
        }
        self.wake_up(host);
        Ok(())
    }

    /// Takes the completions that are there, and moves nothing.
    fn take_all(&mut self, armed: bool) -> Result<(), String> {
        for host in 0..self.hosts.len() {
            let mut told = Vec::new();
            while let Some(event) = self.hosts[host].channel.try_next() {
                told.push(event);
            }
            for queue in 0..self.hosts[host].queues.len() {
                let of = &self.hosts[host].queues[queue];
                let waiting = of.cq.waiting();
                if waiting == 0 {
                    continue;
                }
                if armed && of.has_channel && !told.contains(&of.cq.number()) {
                    return Err(format!(
                        "queue {queue} of host {host} was armed, has {waiting} completions, and \
                         has told nobody"
                    ));
                }
                self.poll(host, queue, waiting)?;
            }
        }
        Ok(())
    }

    /// Checks that no completion is due any more on connections that are well.
    fn judge_due(&mut self, at_once: bool) -> Result<(), String> {
        for number in 0..self.couples.len() {
            for which in 0..2 {
                let couple = &self.couples[number];
                if couple.is_ending {
                    continue;
                }
                let [sends, receives] = self.due(number, which);
                // A message that waits for a receive holds up those behind it.
                let parked = couple.ends.each_ref().map(|end| end.messages.len());
                let sends = if parked == [0, 0] { sends } else { 0 };
                if sends + receives > 0 {
                    let when = if at_once { "at once" } else { "in time" };
                    let what = format!(
                        "{number}.{which}: {sends} requests and {receives} receives are not \
                         completed {when}, and all workers sleep"
                    );
                    return Err(format!("{what}; {}", self.later()));
                }
            }
        }
        Ok(())
    }

    /// Lets time pass, and tells for the report if the missing completions come then.
    fn later(&mut self) -> String {
        for millis in [1, 10, 100, 1000] {
            let begun = self.stage.clock.now();
            let passed = self.stage.pass(Duration::from_millis(millis), &mut self.choices);
            let waiting = |host: &Host| host.queues.iter().map(|q| q.cq.waiting()).collect();
            let waiting: Vec<Vec<usize>> = self.hosts.iter().map(waiting).collect();
            let passed = passed.err().unwrap_or_default();
            self.stage.note(|| format!("since {begun:?} {waiting:?} wait {passed}"));
        }
        let mut polled = Vec::new();
        for host in &self.hosts {
            for queue in &host.queues {
                polled.push(queue.cq.poll(&mut Vec::new(), 64));
            }
        }
        format!("then polls bring {polled:?}")
    }

    /// All connections end, and nothing is left of them.
    pub(super) fn end_all(&mut self) -> Result<(), String> {
        let mut to_be_told = Vec::new();
        for number in 0..self.couples.len() {
            let Couple { is_ending, is_up, by_number, .. } = self.couples[number];
            if !is_ending {
                let which = self.choices.below(2) as usize;
                self.end(number, which)?;
                to_be_told.extend((is_up && !by_number).then_some((number, 1 - which)));
            }
        }
        self.stage.pass(SERVED, &mut self.choices)?;
        for host in 0..self.hosts.len() {
            self.take_connection_events(host)?;
        }
        for (number, which) in to_be_told {
            if !self.couples[number].is_over[which] {
                return Err(format!("{number}.{which} has not been told in time that it is over"));
            }
        }
        self.stage.pass(OVER, &mut self.choices)?;
        self.take_all(false)?;
        for couple in &self.couples {
            for qp in couple.ends.iter().filter_map(|end| end.qp.as_ref()) {
                qp.modify(QpState::Err).map_err(|error| error.to_string())?;
            }
        }
        self.stage.pass(OVER, &mut self.choices)?;
        self.take_all(false)?;
        for (number, couple) in self.couples.iter().enumerate() {
            for (which, end) in couple.ends.iter().enumerate().filter(|(_, e)| e.qp.is_some()) {
                let (sends, receives) = (end.due_sends(), end.receives.len());
                if sends + receives > 0 {
                    return Err(format!(
                        "{number}.{which}: {sends} requests and {receives} receives have never \
                         completed"
                    ));
                }
            }
        }
        for (number, host) in self.hosts.iter().enumerate() {
            let left = host.device.connections();
            if left > 0 {
                return Err(format!("{left} connections are left at host {number}"));
            }
        }
        Ok(())
    }
}
