// SPDX-License-Identifier: MIT OR Apache-2.0

//! The short ways ([`crate::qp::short`]) and the way of any message are twins: the same requests
//! make the same octets, events and accesses to memory in any context.

use proptest::prelude::*;

use super::records::Records;
use super::*;
use crate::qp::short::without_ways;

#[derive(Clone, Copy, Debug)]
pub(super) enum TwinAction {
    Post { by_a: bool, kind: u8, len: u32, signaled: bool, fence: bool, inline: bool },
    Receive { by_a: bool, len: u32 },
    Move { from_a: bool, most: usize, step: usize },
    Pause { a: bool, resume: bool },
    Disconnect { a: bool },
}

pub(super) fn step() -> impl Strategy<Value = TwinAction> {
    let len = prop_oneof![0..5u32, 60..110u32, 0..6000u32];
    prop_oneof![
        10 => (any::<bool>(), 0..8u8, len.clone(), any::<[bool; 2]>(), 0..6u8).prop_map(
            |(by_a, kind, len, [signaled, inline], fence)| {
                let inline = inline && len <= 200;
                TwinAction::Post { by_a, kind, len, signaled, fence: fence == 0, inline }
            }
        ),
        5 => (any::<bool>(), len).prop_map(|(by_a, len)| TwinAction::Receive { by_a, len }),
        8 => (any::<bool>(), prop_oneof![1..300usize, Just(usize::MAX)], 1..2000usize)
            .prop_map(|(from_a, most, step)| TwinAction::Move { from_a, most, step }),
        1 => any::<[bool; 2]>().prop_map(|[a, resume]| TwinAction::Pause { a, resume }),
        1 => (any::<bool>(), 0..10u8).prop_map(|(a, rare)| match rare {
            0 => TwinAction::Disconnect { a },
            _ => TwinAction::Pause { a, resume: true },
        }),
    ]
}

/// The visible effects of a step.
#[derive(PartialEq, Debug)]
pub(super) struct Seen {
    octets: Vec<u8>,
    posted: Option<Result<(), PostError>>,
    events: [Vec<Event>; 2],
    touches: [Vec<Touch>; 2],
    outstanding: [(usize, usize); 2],
}

impl Seen {
    /// The part that does not depend on the framing.
    pub(super) fn above_framing(&self) -> impl PartialEq + core::fmt::Debug + '_ {
        (&self.posted, &self.events, self.outstanding)
    }
}

fn op(kind: u8, len: u32) -> SendOp {
    let at = u64::from(len % 64) * 8;
    match kind {
        0..=2 => SendOp::Send { solicited: kind == 1, invalidate: None },
        3 | 4 => write_op(at),
        5 => read_op(at),
        6 => add_op(at, u64::from(len)),
        _ => SendOp::Immediate { solicited: false, data: [len as u8; 8] },
    }
}

impl<F: Frame, D: Deframe> Pair<F, D> {
    fn end(&mut self, a: bool) -> &mut End<F, D> {
        if a { &mut self.a } else { &mut self.b }
    }

    pub(super) fn step(&mut self, number: u64, step: TwinAction) -> Seen {
        let (mut octets, mut posted) = (Vec::new(), None);
        match step {
            TwinAction::Post { by_a, kind, len, signaled, fence, inline } => {
                let op = op(kind, len);
                let sges = match op {
                    SendOp::Immediate { .. } => vec![],
                    SendOp::Atomic { .. } => vec![local(number % 1000 * 8, 8)],
                    _ => vec![local(number % 100, len / 2), local(7000, len - len / 2)],
                };
                let inlined = pattern(len as usize, number as u8);
                let payload = match op {
                    SendOp::Send { .. } | SendOp::Write { .. } if inline => {
                        Payload::Inline(&inlined)
                    }
                    _ => Payload::Sges(&sges),
                };
                let mut request = SendRequest::new(number, op, payload);
                (request.signaled, request.fence) = (signaled, fence);
                posted = Some(self.end(by_a).qp.borrow_mut().post_send(&request));
            }
            TwinAction::Receive { by_a, len } => {
                let sges = [local(number % 5 * 6000, len.max(3000))];
                let request = RecvRequest::new(number, &sges);
                posted = Some(self.end(by_a).qp.borrow_mut().post_recv(&request));
            }
            TwinAction::Move { from_a, most, step } => {
                octets = self.end(from_a).take(most);
                for part in octets.chunks(step) {
                    self.end(!from_a).arrive(part);
                }
            }
            TwinAction::Pause { a, resume } => {
                let to = if resume { QpState::Rts } else { QpState::Sqd };
                let _ = self.end(a).qp.borrow_mut().modify(to);
            }
            TwinAction::Disconnect { a } => self.end(a).qp.borrow_mut().disconnect(),
        }
        Seen {
            octets,
            posted,
            events: [self.a.events(), self.b.events()],
            touches: [self.a.host.touches(), self.b.host.touches()],
            outstanding: [self.a.qp.borrow().outstanding(), self.b.qp.borrow().outstanding()],
        }
    }
}

proptest! {
    #[test]
    fn the_short_ways_do_what_the_long_ones_do(
        steps in prop::collection::vec(step(), 1..120),
        acknowledge in any::<bool>(),
        parks in any::<bool>(),
        crc in any::<bool>(),
        records in any::<bool>(),
    ) {
        let config = Config {
            acknowledge,
            park: parks.then_some(crate::qp::Park { octets: 9000, messages: 3, timer: core::time::Duration::ZERO }),
            max_send_wr: 12,
            ..config()
        };
        let pair = || Pair::with(config, |terms| {
            (terms.crc, terms.spare_ord, terms.spare_ird) = (crc, 1, 1);
        });
        if records {
            twins(|| Records::over_records(config, 1442, 1), steps)?;
        } else {
            twins(pair, steps)?;
        }
    }
}

fn twins<F: Frame, D: Deframe>(
    pair: impl Fn() -> Pair<F, D>,
    steps: Vec<TwinAction>,
) -> Result<(), TestCaseError> {
    let (mut short, mut long) = (pair(), pair());
    for (number, step) in steps.into_iter().enumerate() {
        let number = number as u64;
        let seen = short.step(number, step);
        let twin = without_ways(|| long.step(number, step));
        prop_assert_eq!(seen, twin, "step {}: {:?}", number, step);
    }
    Ok(())
}
