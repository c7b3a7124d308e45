//! What arrives at an end: every octet has to be placed where it belongs, and every message to
//! be delivered or answered.

use iwarp_proto::memory::{AtomicOp, Sge};
use iwarp_proto::types::Stag;

use super::{Arriving, Delivery, Meaning, Model, Placing, Request, Verdict};
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
        let known = self.arriving.iter().any(|segment| segment.awaits_octets());
        if known {
            return self.check_placing(at, data);
        }
        // Of an FPDU that is not whole yet: judged when it is.
        self.early.push((at, data.to_vec()));
        Ok(())
    }

    fn check_placing(&mut self, at: Placing, data: &[u8]) -> Verdict {
        let next = self.arriving.iter_mut().find(|segment| segment.awaits_octets());
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
                let index = self.asked[*asked].ok_or("answer to an RTR frame placed")?;
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
            let immediate = matches!(segment.meaning, Meaning::Immediate { .. });
            let whole = immediate || segment.placed == segment.octets.len();
            demand!(whole || !sure, "octets of {:?} not placed", segment.meaning);
            self.gated = false;
            self.understand(segment, whole, bank, moment)?;
        }
        self.consumed = position;
        Ok(())
    }

    fn understand(&mut self, s: Arriving, whole: bool, bank: &mut Bank, moment: u64) -> Verdict {
        match s.meaning {
            Meaning::Write { .. } | Meaning::Terminate => {}
            Meaning::Send { number, opcode, invalidate } => {
                self.message_whole = whole && (self.message_whole || s.offset == 0);
                if s.last {
                    self.send_number = number + 1;
                    self.deliveries.push_back(Delivery {
                        number,
                        opcode,
                        byte_len: s.offset + s.octets.len() as u32,
                        immediate: None,
                        invalidated: matches!(opcode, 4 | 6).then_some(invalidate),
                        whole: self.message_whole,
                    });
                }
            }
            Meaning::Immediate { number, opcode } => {
                self.send_number = number + 1;
                self.deliveries.push_back(Delivery {
                    number,
                    opcode,
                    byte_len: 8,
                    immediate: s.octets[..].try_into().ok(),
                    invalidated: None,
                    whole: true,
                });
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
                self.requests.push_back(request);
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
                    if let Some(index) = self.asked[asked] {
                        self.sends[index].answered = true;
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
            .find(|request| matches!(request, Request::Atomic { old: None, .. }));
        match next {
            Some(Request::Atomic { stag, to, op: due, old: slot, .. }) => {
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
