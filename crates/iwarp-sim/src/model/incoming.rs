// SPDX-License-Identifier: MIT OR Apache-2.0

//! The octets that arrive at an end: every one has to be placed where it belongs, and every message
//! to be delivered or answered.

use iwarp_types::{AtomicOp, SendOp, Sge, Stag, WcOp};

use super::{
    Arriving, Asking, Delivery, Meaning, Model, Placing, Posted, Request, Verdict, Waiting,
};
use crate::bank::Bank;

impl Model {
    /// A segment is on its way to this end.
    pub fn arrives(&mut self, segment: Arriving) -> Verdict {
        self.arriving.push_back(segment);
        for (at, data) in std::mem::take(&mut self.early) {
            self.check_placing(at, &data)?;
        }
        Ok(())
    }

    /// Octets are being placed: they have to be the next ones of the stream, at the place that
    /// they are for. Writes them to the shadow if the access was granted.
    pub fn placing(&mut self, at: Placing, data: &[u8], granted: bool, bank: &mut Bank) -> Verdict {
        if data.is_empty() {
            return Ok(());
        }
        if !granted {
            self.disturbed = true;
            return Ok(());
        }
        let shadow = match at {
            Placing::Remote(stag, to) => {
                bank.tagged_place(stag, to).and_then(|place| bank.shadow_at(place, data.len()))
            }
            Placing::Local(sge) => {
                demand!(data.len() <= sge.length as usize, "more octets placed than fit {sge:?}");
                demand!(
                    self.grants(Sge { length: data.len() as u32, ..sge }),
                    "octets placed in {sge:?}, which was not given"
                );
                bank.shadow_of(sge.lkey, sge.addr, data.len())
            }
        };
        shadow.ok_or("octets placed outside every region")?.copy_from_slice(data);
        if self.blind {
            return Ok(());
        }
        if let Placing::Local(sge) = at
            && self.unparks(sge, data)
        {
            return Ok(());
        }
        if self.next_to_place().is_some() {
            return self.check_placing(at, data);
        }
        // Of an FPDU that is not whole yet: judged when it is.
        self.early.push((at, data.to_vec()));
        Ok(())
    }

    /// True if octets are those of the oldest message that waited for its receive.
    fn unparks(&mut self, sge: Sge, data: &[u8]) -> bool {
        // Earlier messages have all they need, and complete when this call is over.
        let next = self.waiting.iter().position(|waiting| {
            waiting.placed < waiting.octets.len() || waiting.delivery.is_none()
        });
        let Some(next) = next else { return false };
        let waiting = &self.waiting[next];
        let (number, due) = (waiting.number, waiting.octets.len() - waiting.placed);
        if due < data.len() && self.waiting.len() == next + 1 {
            // More of it was received in this call, and is placed together.
            let more = self.arriving.iter().position(|segment| {
                segment.placed == 0
                    && !segment.joined
                    && matches!(segment.meaning, Meaning::Send { number: n, .. } if n == number)
            });
            if let Some(segment) = more.and_then(|at| self.arriving.get_mut(at)) {
                segment.joined = true;
                let segment = segment.clone();
                self.wait(segment, number);
                return self.unparks(sge, data);
            }
        }
        let waiting = &mut self.waiting[next];
        let Some(recv) = self.recvs.get(number) else { return false };
        let due = &waiting.octets[waiting.placed..];
        let fits = due.len() >= data.len()
            && due[..data.len()] == *data
            && check_place(&recv.sges, waiting.placed as u64, sge, data).is_ok();
        if fits {
            waiting.placed += data.len();
            if waiting.placed == waiting.octets.len() && waiting.delivery.is_none() {
                // The rest of it goes to its receive as it comes.
                self.waiting.remove(next);
                self.message_whole = true;
            }
        }
        fits
    }

    /// The first arriving segment of which octets have to be placed: those of messages that find
    /// no receive do not count.
    fn next_to_place(&self) -> Option<usize> {
        let mut waits = self.waiting.iter().any(|waiting| {
            waiting.number >= self.recvs.len()
                || waiting.placed < waiting.octets.len()
                || waiting.delivery.is_none()
        });
        self.arriving.iter().position(|segment| {
            if segment.joined {
                return false;
            }
            let number = match segment.meaning {
                Meaning::Send { number, .. } | Meaning::Immediate { number, .. } => Some(number),
                _ => None,
            };
            if self.parks
                && segment.placed == 0
                && number.is_some_and(|number| waits || number >= self.recvs.len())
            {
                waits = true;
                return false;
            }
            segment.awaits_octets()
        })
    }

    fn check_placing(&mut self, at: Placing, data: &[u8]) -> Verdict {
        let next = self.next_to_place();
        let next = next.and_then(|index| self.arriving.get_mut(index));
        let Some(segment) = next else { return Err("octets placed that never came".into()) };
        let due = &segment.octets[segment.placed..];
        demand!(due.len() >= data.len() && due[..data.len()] == *data, "wrong octets placed");
        let offset = u64::from(segment.offset) + segment.placed as u64;
        match (&segment.meaning, at) {
            (Meaning::Write { stag, to }, Placing::Remote(s, t)) => {
                demand!(
                    *stag == s && to.wrapping_add(offset) == t,
                    "Write placed at {s:?}, {t:#x}"
                );
            }
            (Meaning::Send { number, .. }, Placing::Local(sge)) => {
                let recv = self.recvs.get(*number).ok_or("Send placed without a receive")?;
                check_place(&recv.sges, offset, sge, data)?;
            }
            (Meaning::Response { asked }, Placing::Local(sge)) => {
                let Asking::Posted(index) = self.asked[*asked] else {
                    return Err("answer to a request of nobody's placed".into());
                };
                check_place(&self.sends[index].sges, offset, sge, data)?;
            }
            (meaning, at) => return Err(format!("{meaning:?} placed at {at:?}")),
        }
        segment.placed += data.len();
        Ok(())
    }

    /// This end has used the stream up to `position`. `sure` if it operated all the time: then
    /// everything up to there has to be placed.
    pub fn consumed(&mut self, position: u64, sure: bool, bank: &mut Bank, moment: u64) -> Verdict {
        while let Some(segment) = self.arriving.front() {
            if segment.end > position {
                break;
            }
            let segment = self.arriving.pop_front().ok_or("no segment")?;
            if segment.ends_a_message() {
                self.whole_messages.push(match segment.meaning {
                    Meaning::Send { number, .. } | Meaning::Immediate { number, .. } => {
                        Some(number)
                    }
                    _ => None,
                });
            }
            if segment.joined {
                continue;
            }
            let immediate = matches!(segment.meaning, Meaning::Immediate { .. });
            let whole = immediate || segment.placed == segment.octets.len();
            if let Some(number) = self.finds_no_receive(&segment) {
                self.gated = false;
                self.wait(segment, number);
                continue;
            }
            demand!(whole || !sure, "octets of {:?} not placed", segment.meaning);
            self.gated = false;
            self.understand(segment, whole, bank, moment)?;
        }
        self.consumed = position;
        Ok(())
    }

    /// The number of the message, if it is one that has to wait for its receive.
    fn finds_no_receive(&self, segment: &Arriving) -> Option<usize> {
        let (Meaning::Send { number, .. } | Meaning::Immediate { number, .. }) = segment.meaning
        else {
            return None;
        };
        let waits = !self.waiting.is_empty() || number >= self.recvs.len();
        (self.parks && waits && segment.placed == 0).then_some(number)
    }

    fn wait(&mut self, segment: Arriving, number: usize) {
        if self.waiting.back().is_none_or(|waiting| waiting.number != number) {
            self.waiting.push_back(Waiting { number, ..Waiting::default() });
        }
        let Some(waiting) = self.waiting.back_mut() else { return };
        let last = segment.last;
        let delivery = delivery_of(&segment);
        if !matches!(segment.meaning, Meaning::Immediate { .. }) {
            waiting.octets.extend(segment.octets);
        }
        if last {
            waiting.delivery = delivery;
            self.send_number = number + 1;
        }
    }

    fn understand(&mut self, s: Arriving, whole: bool, bank: &mut Bank, moment: u64) -> Verdict {
        match s.meaning {
            Meaning::Write { .. } => {}
            Meaning::Received(received) => {
                if let Some(last) = (received as usize).checked_sub(1) {
                    let below = self.sent_messages.get(last).ok_or("received, and never sent")?;
                    self.acknowledged = self.acknowledged.max(*below);
                }
                // A request that moves nothing counts with those before it.
                let moves = |wqe: &Posted| {
                    let empty_write = matches!(wqe.op, SendOp::Write { .. }) && wqe.length == 0;
                    !(empty_write || wqe.asks() || wqe.is_local())
                };
                let behind = self.sends.iter().skip(self.acknowledged);
                self.acknowledged += behind.take_while(|wqe| !moves(wqe)).count();
            }
            // It may name one of ours, which tells that all before it arrived.
            Meaning::Terminate => self.acknowledged = usize::MAX,
            Meaning::Send { number, .. } => {
                self.message_whole = whole && (self.message_whole || s.offset == 0);
                if s.last {
                    self.send_number = number + 1;
                    let whole = self.message_whole;
                    let delivery = delivery_of(&s).map(|delivery| Delivery { whole, ..delivery });
                    self.deliveries.extend(delivery);
                }
            }
            Meaning::Immediate { number, .. } => {
                self.send_number = number + 1;
                self.deliveries.extend(delivery_of(&s));
            }
            Meaning::Request(mut request) => {
                if let Request::Read { source, since, size, .. } = &mut request {
                    let at = source.take();
                    if let Some((stag, to)) = at
                        && *size > 0
                    {
                        *source = bank.tagged_place(Stag(stag as u32), to as u64);
                    }
                    *since = moment;
                    bank.remember();
                }
                self.requests.push_back((request, self.send_number));
                demand!(
                    self.requests.len() <= self.ird || self.disturbed,
                    "{} requests accepted, IRD {}",
                    self.requests.len(),
                    self.ird
                );
            }
            Meaning::Response { asked } => {
                if s.last {
                    demand!(asked == self.answered, "answers out of order");
                    self.answered += 1;
                    match self.asked[asked] {
                        Asking::Posted(index) => {
                            self.sends[index].answered = true;
                            self.acknowledged = self.acknowledged.max(index);
                        }
                        Asking::Acknowledgement(index) => {
                            self.acknowledged = self.acknowledged.max(index);
                        }
                        Asking::Rtr => {}
                    }
                }
            }
        }
        Ok(())
    }

    /// An atomic operation was performed for the peer.
    pub fn atomic(&mut self, at: (Stag, u64), op: AtomicOp, old: u64, bank: &mut Bank) -> Verdict {
        let next = self
            .requests
            .iter_mut()
            .find(|(request, _)| matches!(request, Request::Atomic { old: None, .. }));
        match next {
            Some((Request::Atomic { stag, to, op: due, old: slot, .. }, _)) => {
                demand!((*stag, *to) == at && *due == op, "another atomic operation is due");
                *slot = Some(old);
            }
            _ => demand!(self.blind, "atomic operation that nobody asked for"),
        }
        let place = bank.tagged_place(at.0, at.1).ok_or("atomic operation nowhere")?;
        let shadow = bank.shadow_at(place, 8).ok_or("atomic operation nowhere")?;
        let before = u64::from_ne_bytes(shadow[..8].try_into().unwrap());
        demand!(before == old, "atomic operation returned {old:#x}, there was {before:#x}");
        shadow.copy_from_slice(&op.apply(before).to_ne_bytes());
        Ok(())
    }
}

/// The report of the receive of a message, of which this is the last segment.
fn delivery_of(segment: &Arriving) -> Option<Delivery> {
    match segment.meaning {
        Meaning::Send { number, opcode, invalidate } => {
            let own = matches!(opcode, 0xc | 0xd);
            let [a, b, c, d] = invalidate.0.to_be_bytes();
            Some(Delivery {
                number,
                opcode,
                op: WcOp::Recv,
                byte_len: segment.offset + segment.octets.len() as u32,
                immediate: own.then_some([a, b, c, d, 0, 0, 0, 0]),
                invalidated: matches!(opcode, 4 | 6).then_some(invalidate),
                whole: true,
            })
        }
        Meaning::Immediate { number, opcode, write } => {
            let mut data: [u8; 8] = segment.octets[..].try_into().ok()?;
            if write.is_some() {
                data[4..].fill(0);
            }
            Some(Delivery {
                number,
                opcode,
                op: write.map_or(WcOp::RecvImmediate, |_| WcOp::RecvWriteImmediate),
                byte_len: write.unwrap_or(8),
                immediate: Some(data),
                invalidated: None,
                whole: true,
            })
        }
        _ => None,
    }
}

/// Octets `offset..` of a message go to a local list: checks that `sge` is where they belong.
fn check_place(list: &[Sge], mut offset: u64, sge: Sge, data: &[u8]) -> Verdict {
    for own in list {
        let size = u64::from(own.length);
        if offset >= size {
            offset -= size;
            continue;
        }
        demand!(
            own.lkey == sge.lkey
                && own.addr + offset == sge.addr
                && data.len() as u64 <= size - offset,
            "octets placed in {sge:?}, they belong {offset} into {own:?}"
        );
        return Ok(());
    }
    Err("octets placed behind the end of the buffer".into())
}
