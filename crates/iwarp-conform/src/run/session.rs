// SPDX-License-Identifier: MIT OR Apache-2.0

//! One connection on which a case runs.

use std::time::Instant;

use super::{GOODBYE, Settings};
use crate::case::{Bytes, Case, Fields, Need, Number, Role, Value};
use crate::link::{Arrival, Link, Record};
use crate::peer::Offer;
use crate::stream::Stream;
use crate::verdict::Stop;
use crate::wire::fpdu::{Deframer, Framer};
use crate::wire::segment::{AtomicRequest, ReadRequest};
use crate::wire::startup::{self, Depths, Frame};

use super::frames::UNSAID;

/// The state of a case that runs.
pub(super) struct Session<'a> {
    pub(super) link: Link,
    pub(super) role: Role,
    pub(super) settings: &'a Settings,
    needs: &'a [Need],
    /// The frames of the start-up.
    pub(super) ours: Option<Frame>,
    pub(super) theirs: Option<Frame>,
    stream: Option<Stream>,
    pub(super) offer: Option<Offer>,
    /// The data of the last message that this end sent.
    pub(super) last_data: Vec<u8>,
    /// The ULPDU of the last step that sent a message, and of the first one since `hold`.
    pub(super) last_sent: usize,
    pub(super) first_held: Option<usize>,
    pub(super) pings: u64,
    /// The Read Requests that steps have seen.
    pub(super) asked: Vec<ReadRequest>,
    /// The Atomic Requests that steps have seen.
    pub(super) atomics: Vec<AtomicRequest>,
    /// Connections that say nothing.
    pub(super) crowd: Vec<Link>,
    /// The initiator's first message has come.
    pub(super) heard: bool,
}

impl<'a> Session<'a> {
    pub(super) fn new(link: Link, role: Role, case: &'a Case, settings: &'a Settings) -> Self {
        Self {
            link,
            role,
            settings,
            needs: &case.needs,
            ours: None,
            theirs: None,
            stream: None,
            offer: None,
            last_data: Vec::new(),
            last_sent: 0,
            first_held: None,
            pings: 0,
            asked: Vec::new(),
            atomics: Vec::new(),
            crowd: Vec::new(),
            heard: role == Role::Connect,
        }
    }

    /// Leaves, and gives the peer a moment to leave, too, so that the next case finds it at rest.
    pub(super) fn end(mut self) -> Record {
        if self.link.resets {
            // A FIN in front of it would make it something else.
            return self.link.record;
        }
        let (deadline, events) = (self.link.now() + GOODBYE, self.link.record.events.len());
        if self.owes_a_first_frame() {
            let _ = self.send_first_frame();
        }
        self.link.close();
        while matches!(self.link.wait(deadline), Ok(Arrival::Bytes)) {}
        // Frames that the tester sends to clear up are no part of the case.
        let mut record = self.link.record;
        record.events.truncate(events);
        record
    }

    /// A responder of the peer-to-peer model still waits for its first frame. Some kernels do not
    /// survive a stream that ends without it, so a case that stops here must not leave at once.
    fn owes_a_first_frame(&self) -> bool {
        let agreed = self.their_depths().is_some_and(|depths| depths.a);
        let has_sent = self.stream.as_ref().is_some_and(|stream| !stream.sent.is_empty());
        self.role == Role::Connect && agreed && !has_sent
    }

    /// The reason why the target cannot carry out an order, if it gives one behind a message that a
    /// step does not want. It may have begun with the rest of the order, and the reason waits
    /// behind Reads of that.
    pub(super) fn refusal(&mut self) -> Option<String> {
        let deadline = self.link.now() + GOODBYE;
        loop {
            let stream = self.stream.as_mut().filter(|stream| stream.may_refuse)?;
            if let Some(request) = stream.unanswered.front().copied() {
                self.answer_read(&request).ok()?;
                continue;
            }
            match stream.any(&mut self.link, deadline) {
                Ok(Ok(_)) => {}
                Err(Stop::NotSeen(why)) => return Some(why),
                _ => return None,
            }
        }
    }

    pub(super) fn deadline(&self, fields: &Fields) -> Result<Instant, Stop> {
        let within = match fields.get("within") {
            Some(value) => std::time::Duration::from_millis(self.number(value)?),
            None => self.settings.patience,
        };
        Ok(self.link.now() + within)
    }

    /// Full Operation: from here on only FPDUs are sent and wanted.
    pub(super) fn stream(&mut self) -> Result<(&mut Stream, &mut Link), Stop> {
        if self.stream.is_none() {
            let stream = self.enter()?;
            self.stream = Some(stream);
        }
        Ok((self.stream.as_mut().expect("just made"), &mut self.link))
    }

    fn enter(&mut self) -> Result<Stream, Stop> {
        let (Some(ours), Some(theirs)) = (&self.ours, &self.theirs) else {
            return Err(Stop::NotSeen("the case sends before its start-up is over".to_owned()));
        };
        let crc = (ours.flags | theirs.flags) & startup::C != 0;
        // RFC 5044 Appendix C.2.3: markers in both directions, whichever end asked for them.
        let is_rdmac = ours.revision == 0 && self.wants_rdmac();
        let framer = Framer::new(crc, is_rdmac || theirs.flags & startup::M != 0);
        let deframer = Deframer::new(crc, ours.flags & startup::M != 0);
        self.offer = self.settings.peer.offer_of_data(theirs.program_data());
        let markers = framer.markers;
        for need in self.needs {
            let lacks = match need {
                Need::Crc if !crc => "the stream has no CRCs",
                Need::NoCrc if crc => "the peer insists on CRCs",
                Need::Markers if !markers => "the peer asks for no markers",
                Need::Reads if self.their_depths().is_none_or(|depths| depths.ord < 2) => {
                    "the peer does not say that it has several Reads under way"
                }
                _ => continue,
            };
            return Err(Stop::NotSeen(lacks.to_owned()));
        }
        if self.role == Role::Connect {
            self.link.sleep(self.settings.pause);
        }
        let mut stream = Stream::new(framer, deframer, self.role == Role::Connect);
        stream.version = u8::from(!is_rdmac);
        if let Some(Depths { ird, .. }) = ours.depths().filter(|depths| depths.ird != UNSAID) {
            stream.depth = ird;
        }
        Ok(stream)
    }

    /// True if the case is about the versions of the RDMA Consortium.
    pub(super) fn wants_rdmac(&self) -> bool {
        self.needs.contains(&Need::Rdmac)
    }

    /// The version of DDP and RDMAP.
    pub(super) fn version(&self) -> u64 {
        self.stream.as_ref().map_or(1, |stream| stream.version.into())
    }

    /// Checks that the peer offers what the case needs.
    pub(super) fn check_offer(&self) -> Result<(), Stop> {
        let offer = self.offer.as_ref();
        let lends = |name: &str| offer.is_some_and(|offer| offer.lent.contains_key(name));
        for need in self.needs {
            let lacks = match need {
                Need::Memory if !lends("rw") => "this peer lends no memory",
                Need::Rights if !lends("other") => "this peer lends one kind of memory at most",
                Need::Echo if offer.is_none_or(|offer| offer.receives == 0) => {
                    "this peer answers no Sends of ours"
                }
                _ => continue,
            };
            return Err(Stop::NotSeen(lacks.to_owned()));
        }
        Ok(())
    }

    /// The read depths that the peer says.
    pub(super) fn their_depths(&self) -> Option<Depths> {
        self.theirs.as_ref().and_then(Frame::depths)
    }

    fn variable(&self, name: &str) -> Option<u64> {
        if let Some(queue) = name.strip_prefix("msn") {
            let queue: usize = queue.parse().ok()?;
            return self.stream.as_ref()?.next_sent.get(queue).map(|&msn| msn.into());
        }
        let offer = self.offer.as_ref();
        match name {
            "ird" => return Some(self.their_depths().map_or(1, |depths| depths.ird.into())),
            "ord" => return Some(self.their_depths().map_or(1, |depths| depths.ord.into())),
            "receives" => return Some(offer?.receives.into()),
            "room" => return Some(offer?.room.into()),
            _ => {}
        }
        let (region, field) = name.split_once('.')?;
        if let Some(number) = region.strip_prefix("atomic") {
            return match field {
                "id" => Some(numbered(&self.atomics, number)?.id.into()),
                _ => None,
            };
        }
        if let Some(number) = region.strip_prefix("sink") {
            let asked = numbered(&self.asked, number)?;
            return match field {
                "stag" => Some(asked.sink_stag.into()),
                "to" => Some(asked.sink_to),
                "len" => Some(asked.size.into()),
                _ => None,
            };
        }
        let lent = offer?.lent.get(region)?;
        match field {
            "stag" => Some(lent.stag.into()),
            "to" => Some(lent.to),
            "len" => Some(lent.len.into()),
            _ => None,
        }
    }

    fn compute(&self, number: &Number) -> Result<u64, Stop> {
        number
            .value(|name| self.variable(name))
            .map_err(|name| Stop::NotSeen(format!("this peer says nothing of ${name}")))
    }

    pub(super) fn number(&self, value: &Value) -> Result<u64, Stop> {
        match value {
            Value::Number(number) => self.compute(number),
            other => Err(Stop::NotSeen(format!("the case is wrong: {other:?} is no number"))),
        }
    }

    /// A field's number, or `otherwise` without the field.
    pub(super) fn number_or(
        &self,
        fields: &Fields,
        name: &str,
        otherwise: u64,
    ) -> Result<u64, Stop> {
        fields.get(name).map_or(Ok(otherwise), |value| self.number(value))
    }

    pub(super) fn is_set(
        &self,
        fields: &Fields,
        name: &str,
        otherwise: bool,
    ) -> Result<bool, Stop> {
        Ok(self.number_or(fields, name, otherwise.into())? != 0)
    }

    pub(super) fn bytes(&self, bytes: &Bytes) -> Result<Vec<u8>, Stop> {
        Ok(match bytes {
            Bytes::Literal(bytes) => bytes.clone(),
            Bytes::Fill(len) => crate::peer::pattern(self.compute(len)? as usize),
            Bytes::Zeros(len) => vec![0; self.compute(len)? as usize],
            Bytes::Sent => self.last_data.clone(),
        })
    }

    /// A field's bytes; none where it is not there.
    pub(super) fn bytes_of(&self, fields: &Fields, name: &str) -> Result<Option<Vec<u8>>, Stop> {
        match fields.get(name) {
            None => Ok(None),
            Some(Value::Bytes(bytes)) => self.bytes(bytes).map(Some),
            Some(other) => Err(Stop::NotSeen(format!("the case is wrong: {other:?}, not bytes"))),
        }
    }

    /// Compares a number that came with the alternatives of a field.
    pub(super) fn is_wanted(
        &self,
        fields: &Fields,
        name: &str,
        came: u64,
        bytes: &[u8],
    ) -> Result<(), Stop> {
        let Some(values) = fields.all(name) else { return Ok(()) };
        let mut wanted = Vec::new();
        for value in values {
            wanted.push(self.number(value)?);
        }
        if wanted.contains(&came) {
            return Ok(());
        }
        let wanted: Vec<String> = wanted.iter().map(|number| format!("{number:#x}")).collect();
        let wanted = wanted.join(" or ");
        Err(Stop::deviates(format!("{name} {wanted}"), format!("{name} {came:#x}"), bytes))
    }
}

/// The one of that number, from 1; without a number the last.
fn numbered<'a, T>(all: &'a [T], number: &str) -> Option<&'a T> {
    if number.is_empty() {
        return all.last();
    }
    let number: usize = number.parse().ok()?;
    all.get(number.checked_sub(1)?)
}
