// SPDX-License-Identifier: MIT OR Apache-2.0

//! A queue pair as other processes of its user see it.

use std::sync::Arc;
use std::time::Duration;

use iwarp_types::{Awaits, HeldBy, OldestSend, Standing};

use super::Endpoint;
use crate::engine::census::{self, Described, Kind, Place};
use crate::engine::observe::{Counters, Observed, Operations};
use crate::report::Object;

impl Endpoint {
    /// Its place in the census.
    pub(super) fn place(&self) -> Place {
        census::of(Kind::QueuePair, self)
    }
}

impl Described for Endpoint {
    fn have_faults(self: Arc<Self>) {
        let hurt = super::Hurt::new(&self);
        self.core.lock().program.hurt.get_or_insert(hurt);
    }

    fn watch(&self, until: Duration) {
        let mut core = self.core.lock();
        let core = &mut *core;
        if core.program.observed.is_none() && !core.core.has_events() {
            let (outstanding, untold) = (core.core.outstanding().0, core.sends.untold());
            let joined = Observed::join(self.id(), self.depth, outstanding, untold);
            // Without memory for it nothing is seen, and the program goes on.
            core.program.observed = joined.ok();
        }
        if let Some(observed) = &mut core.program.observed {
            let _ = observed.watch(until);
        }
    }

    fn cable(&self, is_pulled: bool) {
        if let Some(link) = self.link() {
            link.cable(is_pulled);
        }
    }

    fn have_capture(self: Arc<Self>) {
        if let Some(link) = self.link() {
            link.have_capture();
        }
    }

    fn describe(&self, to: &mut Object) {
        to.number("number", self.number.value());
        to.text("device", &self.profile.name);
        to.text("type", format_args!("{:?}", self.qp_type));
        to.number("send_cq", self.send_cq.number());
        to.number("recv_cq", self.recv_cq.number());
        if let Some(srq) = &self.srq {
            to.number("srq", srq.number());
        }
        let mut core = self.core.lock();
        let core = &mut *core;
        to.text("state", format_args!("{:?}", core.core.state()));
        if let Some(wire) = core.core.wire() {
            to.text("wire", format_args!("{wire:?}"));
        }
        let (sends, receives) = core.core.outstanding();
        to.count("sends", sends);
        to.count("depth", self.depth);
        to.count("receives", receives);
        to.flag("connected", core.core.is_connected());
        to.number("arrivals", core.core.arrivals());
        to.flag("parked", core.core.has_parked());
        to.flag("stalled", core.core.is_stalled());
        describe_standing(core.core.standing(), to);
        core.core.describe(to);
        core.catch_up();
        if let Some(observed) = &core.program.observed {
            if let Some(counters) = observed.counters() {
                to.object("counters", |to| describe_counters(&counters, to));
            }
            if let Some(times) = observed.times() {
                to.object("times", |to| {
                    times.counts().for_each(|(nanos, count)| to.number(&nanos.to_string(), count));
                });
            }
        }
        let link = core.link.as_ref().map(Arc::clone);
        if let Some(link) = link {
            to.object("stream", |to| link.describe(to));
        }
    }
}

fn describe_standing(standing: Standing, to: &mut Object) {
    let Standing { ended, octets, oldest, held } = standing;
    to.number("ended", ended);
    to.number("octets", octets);
    if let Some(OldestSend { wr_id, op, length, awaits }) = oldest {
        to.object("oldest", |to| {
            to.number("wr_id", wr_id);
            to.text("op", format_args!("{op:?}"));
            to.number("bytes", length);
            let (name, tries) = match awaits {
                Awaits::Transmission => ("transmission", 0),
                Awaits::Acknowledgement { tries } => ("acknowledgement", tries),
                Awaits::Answer { tries } => ("answer", tries),
                Awaits::Receive { tries } => ("receive", tries),
            };
            to.text("awaits", name);
            to.number("tries", tries);
        });
    }
    if let Some(held) = held {
        let name = match held {
            HeldBy::Fence => "fence",
            HeldBy::ReadDepth => "read depth",
            HeldBy::State => "state",
            HeldBy::Turn => "turn",
        };
        to.text("held", name);
    }
}

fn describe_counters(counters: &Counters, to: &mut Object) {
    let Counters { sends, writes, reads, atomics, local, receives } = counters;
    for (name, operations) in [
        ("sends", sends),
        ("writes", writes),
        ("reads", reads),
        ("atomics", atomics),
        ("local", local),
        ("receives", receives),
    ] {
        let Operations { posted, completed, failed, bytes, .. } = *operations;
        if (posted, completed, failed) != (0, 0, 0) {
            to.object(name, |to| {
                to.number("posted", posted);
                to.number("completed", completed);
                to.number("failed", failed);
                to.number("bytes", bytes);
            });
        }
    }
}
