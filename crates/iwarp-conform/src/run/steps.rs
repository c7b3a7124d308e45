// SPDX-License-Identifier: MIT OR Apache-2.0

//! The steps of Full Operation.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use super::said::numbers;
use super::session::Session;
use crate::case::{Action, End, Fields, Role, Value};
use crate::link::Arrival;
use crate::order;
use crate::stream::{Message, end_in_words};
use crate::text::hex_of;
use crate::verdict::Stop;
use crate::wire::fpdu::Deviations;
use crate::wire::segment::{
    AtomicRequest, Destination, Kind, LAST, ReadRequest, Segment, TAGGED, Terminate, header_len,
};
use crate::wire::startup::{self, Frame};

/// A sink's STag that names no memory.
const PING_STAG: u32 = 0x7069_6e67;
/// Bytes of an answer that is one segment.
const MOST_ZEROS: u32 = 32_768;

impl Session<'_> {
    pub(super) fn step(&mut self, action: &Action) -> Result<(), Stop> {
        match action {
            Action::Start(fields) => self.start(fields),
            Action::SendFrame(kind, fields) => self.send_frame(*kind, fields),
            Action::SendMessage(kind, fields) => {
                for _ in 0..self.number_or(fields, "times", 1)? {
                    self.send_message(*kind, fields)?;
                }
                Ok(())
            }
            Action::SendBytes(bytes) => {
                let bytes = self.bytes(bytes)?;
                self.link.send(&bytes);
                Ok(())
            }
            Action::ExpectFrame(kind, fields) => self.receive_frame(*kind, fields).map(drop),
            Action::ExpectMessage(kind, fields) => self.expect_message(*kind, fields),
            Action::ExpectTerminate(codes, fields) => self.expect_terminate(codes, fields),
            Action::ExpectEnd(end, fields) => self.expect_end(*end, fields),
            Action::ExpectSilence(time) => self.expect_silence(*time),
            Action::Ping => self.ping(),
            Action::Split(size) => {
                self.link.split(*size);
                Ok(())
            }
            Action::Drip(pause) => {
                self.link.drip(*pause);
                Ok(())
            }
            Action::Crowd(number) => self.crowd(*number),
            Action::Hold => {
                self.link.hold();
                self.first_held = Some(self.stream()?.0.sent.len());
                Ok(())
            }
            Action::Flush => {
                self.link.flush();
                Ok(())
            }
            Action::Close => {
                self.link.close();
                Ok(())
            }
            Action::Reset => Ok(self.link.reset()?),
            Action::Wait(time) => {
                self.link.sleep(*time);
                Ok(())
            }
        }
    }

    /// The first frame of the peer-to-peer model, as the peer wants it.
    pub(super) fn send_first_frame(&mut self) -> Result<(), Stop> {
        let wants = self.their_depths().unwrap_or_default();
        let kind = match (wants.c, wants.d) {
            (false, true) => Kind::ReadRequest,
            (false, false) if wants.b => Kind::Send,
            _ => Kind::Write,
        };
        self.send_message(kind, &Fields::default())
    }

    fn send_message(&mut self, kind: Kind, fields: &Fields) -> Result<(), Stop> {
        self.stream()?;
        if !self.heard {
            self.first_message()?;
        }
        let asks = matches!(kind, Kind::ReadRequest | Kind::AtomicRequest);
        if asks && self.their_depths().is_some_and(|depths| depths.ird == 0) {
            return Err(Stop::NotSeen("this peer takes no Reads".to_owned()));
        }
        let segment = self.make_segment(kind, fields)?;
        let mut ulpdu = segment.encode();
        if let Some(value) = fields.get("short") {
            ulpdu.truncate(self.number(value)? as usize);
        }
        let deviations = Deviations {
            wrong_crc: self.is_set(fields, "bad-crc", false)?,
            pad: self.number_or(fields, "pad", 0)? as u8,
            length: match fields.get("length") {
                Some(value) => Some(self.number(value)? as u16),
                None => None,
            },
            pointer: self.number_or(fields, "marker-pointer", 0)? as u16,
            marker_reserved: self.number_or(fields, "marker-reserved", 0)? as u16,
        };
        let cut = self.number_or(fields, "cut", u64::MAX)? as usize;
        self.last_data.clone_from(&segment.payload);
        let counts = segment.is_last() && fields.get("msn").is_none() && fields.get("qn").is_none();
        self.last_sent = self.stream()?.0.sent.len();
        let (stream, link) = self.stream()?;
        // Frames that came before this are judged as such.
        stream.take_in(link)?;
        stream.may_refuse |= order::decode(&segment.payload, usize::MAX).is_some();
        let fpdu = stream.frame(&ulpdu, deviations);
        if let Some(queue) = kind.queue().filter(|_| counts) {
            let next = &mut stream.next_sent[queue as usize];
            *next = next.wrapping_add(1);
        }
        link.send(&fpdu[..cut.min(fpdu.len())]);
        Ok(())
    }

    fn make_segment(&self, kind: Kind, fields: &Fields) -> Result<Segment, Stop> {
        let number = |name: &str, otherwise: u64| self.number_or(fields, name, otherwise);
        let tagged = self.is_set(fields, "t", kind.queue().is_none())?;
        let version = self.version();
        let mut ddp = (number("dv", version)? as u8 & 3) | (number("rsvd", 0)? as u8 & 0x0f) << 2;
        ddp |= if tagged { TAGGED } else { 0 };
        ddp |= if self.is_set(fields, "l", true)? { LAST } else { 0 };
        let rdmap = (number("rv", version)? as u8) << 6
            | (number("rsv", 0)? as u8 & 3) << 4
            | number("opcode", kind.opcode().into())? as u8 & 0x0f;
        let destination = if tagged {
            Destination::Tagged { stag: number("stag", 0)? as u32, to: number("to", 0)? }
        } else {
            let queue = kind.queue().unwrap_or(0);
            let next = self.next_sent(queue);
            Destination::Untagged {
                invalidate: number("inv", 0)? as u32,
                qn: number("qn", queue.into())? as u32,
                msn: number("msn", next.into())? as u32,
                mo: number("mo", 0)? as u32,
            }
        };
        let mut payload = self.header(kind, fields)?;
        if let Some(data) = self.bytes_of(fields, "data")? {
            payload = data;
        }
        Ok(Segment { ddp, rdmap, destination, payload })
    }

    fn next_sent(&self, queue: u32) -> u32 {
        let name = format!("$msn{queue}");
        let Ok(Value::Number(number)) = crate::case::value_of(&name) else { return 1 };
        self.number(&Value::Number(number)).map_or(1, |msn| msn as u32)
    }

    /// RDMAP's own header.
    fn header(&self, kind: Kind, fields: &Fields) -> Result<Vec<u8>, Stop> {
        let number = |name: &str, otherwise: u64| self.number_or(fields, name, otherwise);
        Ok(match kind {
            Kind::ReadRequest => ReadRequest {
                sink_stag: number("sink-stag", PING_STAG.into())? as u32,
                sink_to: number("sink-to", 0)?,
                size: number("size", 0)? as u32,
                source_stag: number("src-stag", 0)? as u32,
                source_to: number("src-to", 0)?,
            }
            .encode(),
            Kind::AtomicRequest => AtomicRequest {
                operation: number("operation", 0)? as u32,
                id: number("id", 0x55aa_55aa)? as u32,
                stag: number("at-stag", 0)? as u32,
                to: number("at-to", 0)?,
                data: number("add", 0)?,
                mask: number("mask", 0)?,
                compare: number("compare", 0)?,
                compare_mask: number("compare-mask", u64::MAX)?,
            }
            .encode(),
            Kind::AtomicResponse => {
                let mut bytes = (number("id", 0)? as u32).to_be_bytes().to_vec();
                bytes.extend(number("value", 0)?.to_be_bytes());
                bytes
            }
            _ => Vec::new(),
        })
    }

    /// The next message that is not answered by the tester itself.
    fn next(&mut self, deadline: Instant, wanted: &str, reads: bool) -> Result<Message, Stop> {
        loop {
            let (stream, link) = self.stream()?;
            let message = stream.next(link, deadline, wanted)?;
            let size = ReadRequest::decode(&message.data).map(|request| request.size);
            if reads || message.kind != Kind::ReadRequest || size != Some(0) {
                return Ok(message);
            }
            self.answer_read_of_nothing(&message)?;
        }
    }

    /// Answers a Read of nothing.
    pub(super) fn answer_read_of_nothing(&mut self, message: &Message) -> Result<(), Stop> {
        ReadRequest::decode(&message.data).map_or(Ok(()), |request| self.answer_read(&request))
    }

    /// Answers a Read by zeros, as many as go into one segment.
    pub(super) fn answer_read(&mut self, request: &ReadRequest) -> Result<(), Stop> {
        let destination = Destination::Tagged { stag: request.sink_stag, to: request.sink_to };
        let version = self.version() as u8;
        let rdmap = version << 6 | Kind::ReadResponse.opcode();
        let payload = vec![0; request.size.min(MOST_ZEROS) as usize];
        let answer = Segment { ddp: TAGGED | LAST | version, rdmap, destination, payload };
        let (stream, link) = self.stream()?;
        let fpdu = stream.frame(&answer.encode(), Deviations::default());
        link.send(&fpdu);
        Ok(())
    }

    fn expect_message(&mut self, kind: Kind, fields: &Fields) -> Result<(), Stop> {
        let deadline = self.deadline(fields)?;
        let wanted = format!("a {}", kind.name());
        let message = if kind == Kind::Write && fields.get("len").is_none() {
            let (stream, link) = self.stream()?;
            let came = stream.any(link, deadline)?;
            came.map_err(|end| Stop::deviates(&wanted, end_in_words(end), &[]))?
        } else {
            self.next(deadline, &wanted, self.wants_empty_read(kind, fields)?)?
        };
        if message.kind != kind {
            return Err(Stop::deviates(wanted, message.describe(), &message.bytes));
        }
        self.check_message(&message, fields)?;
        match kind {
            Kind::ReadRequest => self.asked.extend(ReadRequest::decode(&message.data)),
            Kind::AtomicRequest => self.atomics.extend(AtomicRequest::decode(&message.data)),
            _ => {}
        }
        Ok(())
    }

    /// True if a Read of nothing may be what a step wants.
    fn wants_empty_read(&self, kind: Kind, fields: &Fields) -> Result<bool, Stop> {
        let Some(sizes) = fields.all("size") else { return Ok(kind == Kind::ReadRequest) };
        for size in sizes {
            if self.number(size)? == 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn check_message(&self, message: &Message, fields: &Fields) -> Result<(), Stop> {
        let bytes = &message.bytes;
        for (name, came) in numbers(message) {
            self.is_wanted(fields, name, came, bytes)?;
        }
        match self.bytes_of(fields, "data")? {
            Some(wanted) if wanted != message.data => {
                let [wanted, came] = [&wanted, &message.data].map(|data| hex_of(data, 48));
                Err(Stop::deviates(format!("the data {wanted}"), came, bytes))
            }
            _ => Ok(()),
        }
    }

    fn expect_terminate(&mut self, codes: &[(u8, u8, u8)], fields: &Fields) -> Result<(), Stop> {
        let deadline = self.deadline(fields)?;
        let names: Vec<String> = codes
            .iter()
            .map(|(layer, etype, code)| format!("{layer:x}/{etype:x}/{code:02x}"))
            .collect();
        let wanted = format!("terminate {}", names.join(" or "));
        if fields.get("silence").is_some() && self.is_silent(deadline, fields)? {
            return Ok(());
        }
        let message = loop {
            let message = self.next(deadline, &wanted, false)?;
            if !is_past(fields, &message) {
                break message;
            }
        };
        if message.kind != Kind::Terminate {
            return Err(Stop::deviates(wanted, message.describe(), &message.bytes));
        }
        let told = Terminate::decode(&message.data).expect("checked when it came");
        if !codes.contains(&(told.layer, told.etype, told.code)) {
            return Err(Stop::deviates(wanted, message.describe(), &message.bytes));
        }
        match fields.get("quotes") {
            Some(Value::Word(what)) => self.check_quote(what, &told, &message.bytes),
            _ => Ok(()),
        }
    }

    /// True if only messages come that any peer may send; anything else is kept.
    fn is_silent(&mut self, deadline: Instant, fields: &Fields) -> Result<bool, Stop> {
        loop {
            let (stream, link) = self.stream()?;
            let message = match stream.any(link, deadline)? {
                Ok(message) => message,
                Err(end) => return Ok(end == Arrival::Nothing),
            };
            let size = ReadRequest::decode(&message.data).map(|request| request.size);
            match message.kind {
                Kind::Write if message.data.is_empty() => {}
                Kind::ReadRequest if size == Some(0) => self.answer_read_of_nothing(&message)?,
                _ if is_past(fields, &message) => {}
                _ => {
                    self.stream()?.0.keep(message);
                    return Ok(false);
                }
            }
        }
    }

    fn check_quote(&mut self, what: &str, told: &Terminate, bytes: &[u8]) -> Result<(), Stop> {
        let headers = Terminate::M | Terminate::D;
        let blamed = match (what, self.first_held) {
            ("first", Some(first)) => first,
            _ => self.last_sent,
        };
        let blamed = self.stream()?.0.sent.get(blamed);
        let blamed = blamed.cloned().unwrap_or_default();
        let header = header_len(*blamed.first().unwrap_or(&0));
        let (bits, len) = match what {
            "nothing" => (0, 0),
            "read" => (headers | Terminate::R, header + 28),
            _ => (headers, header),
        };
        if told.bits != bits {
            let wanted = format!("a Terminate with the bits {bits:#06x} (M, D, R)");
            return Err(Stop::deviates(wanted, format!("{:#06x}", told.bits), bytes));
        }
        let quoted = told.quoted.get(2..).unwrap_or_default();
        let wanted = &blamed[..len.min(blamed.len())];
        if bits != 0 && quoted != wanted {
            let [wanted, came] = [wanted, quoted].map(|data| hex_of(data, 64));
            return Err(Stop::deviates(format!("a quotation of {wanted}"), came, bytes));
        }
        // RFC 5041 §7.1 says "length of the DDP segment"; there are peers that leave its header
        // out.
        let said = told.quoted.first_chunk().map_or(0, |said| u16::from_be_bytes(*said)) as usize;
        if bits != 0 && said != blamed.len() && said + header != blamed.len() {
            let wanted = format!("a segment length of {}", blamed.len());
            return Err(Stop::deviates(wanted, said.to_string(), bytes));
        }
        Ok(())
    }

    fn expect_end(&mut self, end: End, fields: &Fields) -> Result<(), Stop> {
        let deadline = self.deadline(fields)?;
        let may_tell = fields.get("terminate").is_some();
        let wanted = match end {
            End::Closed => "the end of the stream by FIN",
            End::Any => "the end of the stream",
        };
        let came = loop {
            if self.ours.is_none() || self.theirs.is_none() {
                match self.link.wait(deadline)? {
                    Arrival::Bytes if fields.get("reply").is_some() => {
                        self.pass_over_reply(wanted)?;
                        continue;
                    }
                    Arrival::Bytes => {
                        let came = "bytes";
                        return Err(Stop::deviates(wanted, came, &self.link.came));
                    }
                    came => break came,
                }
            }
            let (stream, link) = self.stream()?;
            match stream.any(link, deadline)? {
                Ok(message) if message.kind == Kind::Write && message.data.is_empty() => {}
                Ok(message) if message.kind == Kind::Terminate && may_tell => {}
                Ok(message) if is_past(fields, &message) => {}
                Ok(message) => {
                    return Err(Stop::deviates(wanted, message.describe(), &message.bytes));
                }
                Err(came) => break came,
            }
        };
        match (end, came) {
            (_, Arrival::Fin) | (End::Any, Arrival::Reset) => Ok(()),
            _ => Err(Stop::deviates(wanted, end_in_words(came), &[])),
        }
    }

    /// A Reply of the IETF's revisions may come before the end (RFC 5044 Appendix C.2.1).
    fn pass_over_reply(&mut self, wanted: &str) -> Result<(), Stop> {
        let Some(frame) = Frame::decode(&self.link.came) else { return Ok(()) };
        let bytes: Vec<u8> = self.link.came.drain(..frame.size()).collect();
        if frame.key == *startup::Kind::Reply.key() && frame.revision > 0 {
            return Ok(());
        }
        let came = format!("a frame of revision {}", frame.revision);
        Err(Stop::deviates(wanted, came, &bytes))
    }

    /// More connections to the peer, which end with the case. It goes on with the last.
    fn crowd(&mut self, number: u64) -> Result<(), Stop> {
        if self.role != Role::Connect {
            return Err(Stop::NotSeen("the case is wrong: a crowd connects".to_owned()));
        }
        for _ in 0..number {
            let next = match self.link.another(self.settings.patience) {
                Err(error) if error.kind() == ErrorKind::Unsupported => {
                    return Err(Stop::NotSeen("there is but one connection".to_owned()));
                }
                next => next?,
            };
            self.crowd.push(next);
        }
        if let Some(last) = self.crowd.last_mut() {
            std::mem::swap(last, &mut self.link);
        }
        Ok(())
    }

    fn expect_silence(&mut self, time: Duration) -> Result<(), Stop> {
        let deadline = self.link.now() + time;
        if self.ours.is_none() || self.theirs.is_none() {
            return match self.link.wait(deadline)? {
                Arrival::Nothing if self.link.came.is_empty() => Ok(()),
                Arrival::Nothing | Arrival::Bytes => {
                    Err(Stop::deviates("nothing", "bytes", &self.link.came))
                }
                end => Err(Stop::deviates("nothing", end_in_words(end), &[])),
            };
        }
        let (stream, link) = self.stream()?;
        stream.silent(link, deadline)
    }

    /// A Read of nothing: no peer may check its STag, and one that has taken in everything before
    /// it without fault answers it.
    fn ping(&mut self) -> Result<(), Stop> {
        self.pings += 1;
        let to = self.pings;
        let number = |name: &str, value: u64| {
            let value = crate::case::value_of(&value.to_string()).expect("a number");
            (name.to_owned(), vec![value])
        };
        let (data, sink) = (self.last_data.clone(), number("sink-to", to));
        self.send_message(Kind::ReadRequest, &Fields(vec![sink]))?;
        self.last_data = data;
        let deadline = self.link.now() + self.settings.patience;
        let wanted = "the answer to a Read of nothing";
        let mut others = Vec::new();
        let message = loop {
            let message = self.next(deadline, wanted, false)?;
            if message.kind == Kind::ReadResponse {
                break message;
            }
            if message.kind == Kind::Terminate {
                return Err(Stop::deviates(wanted, message.describe(), &message.bytes));
            }
            others.push(message);
        };
        for other in others {
            self.stream()?.0.keep(other);
        }
        let fields =
            Fields(vec![number("len", 0), number("stag", PING_STAG.into()), number("to", to)]);
        self.check_message(&message, &fields)
    }
}

/// True if a step passes over such a message.
fn is_past(fields: &Fields, message: &Message) -> bool {
    let is_it = |value: &Value| matches!(value, Value::Word(name) if name == message.kind.name());
    fields.all("past").unwrap_or_default().iter().any(is_it)
}
