// SPDX-License-Identifier: MIT OR Apache-2.0

//! Messages on a connection in Full Operation. In every case everything that comes is looked at
//! closely.

use std::collections::VecDeque;
use std::time::Instant;

use crate::link::{Arrival, Link};
use crate::order;
use crate::text::hex_of;
use crate::verdict::Stop;
use crate::wire::fpdu::{Deframer, Deviations, Fpdu, Framer};
use crate::wire::segment::{
    AtomicRequest, COMPARE_SWAP, DDP_RESERVED, Destination, FETCH_ADD, Kind, RDMAP_RESERVED,
    ReadRequest, Segment, TAGGED, Terminate, header_len,
};

/// A message that came.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) kind: Kind,
    /// The destination of its first segment.
    pub(crate) destination: Destination,
    pub(crate) segments: usize,
    /// Everything behind DDP's headers.
    pub(crate) data: Vec<u8>,
    /// Its FPDUs.
    pub(crate) bytes: Vec<u8>,
}

impl Message {
    /// True for a Write of nothing: its receiver looks at nothing of it, so any peer may send it.
    fn says_nothing(&self) -> bool {
        self.kind == Kind::Write && self.data.is_empty()
    }

    pub(crate) fn describe(&self) -> String {
        let name = self.kind.name();
        if let (Kind::Terminate, Some(told)) = (self.kind, Terminate::decode(&self.data)) {
            let Terminate { layer, etype, code, .. } = told;
            return format!("terminate {layer:x}/{etype:x}/{code:02x}");
        }
        format!("{name} of {} bytes: {}", self.data.len(), hex_of(&self.data, 32))
    }
}

/// The stream of messages of both directions.
#[derive(Debug)]
pub(crate) struct Stream {
    framer: Framer,
    deframer: Deframer,
    /// The next message's number of each queue.
    pub(crate) next_sent: [u32; 4],
    next_came: [u32; 4],
    open: Option<Message>,
    early: VecDeque<Message>,
    /// The ULPDUs that this end has sent.
    pub(crate) sent: Vec<Vec<u8>>,
    /// The version of DDP and of RDMAP: the IETF's 1, or the RDMA Consortium's 0.
    pub(crate) version: u8,
    /// Reads and Atomics that the peer may have under way, and has.
    pub(crate) depth: u16,
    under_way: u16,
    /// Of these, the Reads.
    pub(crate) unanswered: VecDeque<ReadRequest>,
    /// The peer may send nothing before this end has.
    must_wait: bool,
    /// An order has been sent, and a Send may say that it cannot be carried out: until something of
    /// RFC 7306 comes, which only an order asks for.
    pub(crate) may_refuse: bool,
    terminated: bool,
}

impl Stream {
    pub(crate) fn new(framer: Framer, deframer: Deframer, must_wait: bool) -> Self {
        Self {
            framer,
            deframer,
            next_sent: [1; 4],
            next_came: [1; 4],
            open: None,
            early: VecDeque::new(),
            sent: Vec::new(),
            version: 1,
            depth: u16::MAX,
            under_way: 0,
            unanswered: VecDeque::new(),
            must_wait,
            may_refuse: false,
            terminated: false,
        }
    }

    /// The FPDU of a ULPDU.
    pub(crate) fn frame(&mut self, ulpdu: &[u8], deviations: Deviations) -> Vec<u8> {
        self.must_wait = false;
        if let Some(answer) = Segment::decode(ulpdu)
            && answer.is_last()
            && let Some(kind @ (Kind::ReadResponse | Kind::AtomicResponse)) = answer.kind()
        {
            self.under_way = self.under_way.saturating_sub(1);
            if kind == Kind::ReadResponse {
                self.unanswered.pop_front();
            }
        }
        self.sent.push(ulpdu.to_vec());
        self.framer.frame(ulpdu, deviations)
    }

    /// Looks at everything that has come, and keeps it for later steps.
    pub(crate) fn take_in(&mut self, link: &mut Link) -> Result<(), Stop> {
        link.poll()?;
        while let Some(fpdu) = self.deframer.next(&mut link.came) {
            if let Some(message) = self.take(&fpdu)? {
                self.early.push_back(message);
            }
        }
        Ok(())
    }

    /// Keeps a message for a later step.
    pub(crate) fn keep(&mut self, message: Message) {
        self.early.push_back(message);
    }

    /// The next message other than Writes of nothing, and than Reads of nothing, which are
    /// answered.
    pub(crate) fn next(
        &mut self,
        link: &mut Link,
        deadline: Instant,
        wanted: &str,
    ) -> Result<Message, Stop> {
        loop {
            match self.any(link, deadline)? {
                Ok(message) if message.says_nothing() => {}
                Ok(message) => return Ok(message),
                Err(end) => return Err(Stop::deviates(wanted, end_in_words(end), &link.came)),
            }
        }
    }

    /// The next message of any kind, or what came instead.
    pub(crate) fn any(
        &mut self,
        link: &mut Link,
        deadline: Instant,
    ) -> Result<Result<Message, Arrival>, Stop> {
        if let Some(message) = self.early.pop_front() {
            return Ok(Ok(message));
        }
        loop {
            while let Some(fpdu) = self.deframer.next(&mut link.came) {
                if let Some(message) = self.take(&fpdu)? {
                    return Ok(Ok(message));
                }
            }
            match link.wait(deadline)? {
                Arrival::Bytes => {}
                end => {
                    if end == Arrival::Fin && (self.open.is_some() || !link.came.is_empty()) {
                        let wanted = "the whole of a message before the end of the stream";
                        return Err(Stop::deviates(wanted, "a FIN inside it", &link.came));
                    }
                    return Ok(Err(end));
                }
            }
        }
    }

    /// Fails if anything besides Writes of nothing comes by then.
    pub(crate) fn silent(&mut self, link: &mut Link, deadline: Instant) -> Result<(), Stop> {
        loop {
            match self.any(link, deadline)? {
                Ok(message) if message.says_nothing() => {}
                Ok(message) => {
                    return Err(Stop::deviates("nothing", message.describe(), &message.bytes));
                }
                Err(Arrival::Nothing) => return Ok(()),
                Err(end) => return Err(Stop::deviates("nothing", end_in_words(end), &[])),
            }
        }
    }

    /// Looks at an FPDU; returns the message that it completes.
    fn take(&mut self, fpdu: &Fpdu) -> Result<Option<Message>, Stop> {
        let flaw = |wanted: &str, came: String| Err(Stop::deviates(wanted, came, &fpdu.bytes));
        if let Some(wrong) = fpdu.flaws.first() {
            return flaw("a right FPDU", wrong.clone());
        }
        if self.must_wait {
            let came = "an FPDU of the responder comes first".to_owned();
            return flaw("silence until the initiator has sent an FPDU", came);
        }
        if self.terminated {
            return flaw("nothing after its Terminate", "another FPDU".to_owned());
        }
        let Some(segment) = Segment::decode(&fpdu.ulpdu) else {
            return flaw("a whole DDP header", format!("a ULPDU of {} bytes", fpdu.ulpdu.len()));
        };
        if let Err((wanted, came)) = self.check(&segment) {
            return flaw(wanted, came);
        }
        let kind = segment.kind().expect("checked");
        let message = self.open.get_or_insert(Message {
            kind,
            destination: segment.destination,
            segments: 0,
            data: Vec::new(),
            bytes: Vec::new(),
        });
        message.segments += 1;
        message.data.extend(&segment.payload);
        message.bytes.extend(&fpdu.bytes);
        if !segment.is_last() {
            return Ok(None);
        }
        if let Destination::Untagged { qn, .. } = segment.destination {
            let next = &mut self.next_came[qn as usize];
            *next = next.wrapping_add(1);
        }
        let message = self.open.take().expect("just put there");
        self.terminated = kind == Kind::Terminate;
        if matches!(kind, Kind::ReadRequest | Kind::AtomicRequest) {
            self.under_way += 1;
            if self.under_way > self.depth {
                let came = format!("{} under way", self.under_way);
                return flaw("no more Reads at a time than this end takes", came);
            }
        }
        if kind == Kind::ReadRequest {
            self.unanswered.extend(ReadRequest::decode(&message.data));
        }
        if let Err((wanted, came)) = check_whole(&message, &self.sent) {
            return flaw(wanted, came);
        }
        self.may_refuse &= kind.opcode() < Kind::Immediate.opcode();
        if self.may_refuse
            && kind == Kind::Send
            && let Some(why) = message.data.strip_prefix(order::CANNOT)
        {
            let why = String::from_utf8_lossy(why);
            return Err(Stop::NotSeen(format!("the target cannot do this: {why}")));
        }
        Ok(Some(message))
    }

    fn check(&self, segment: &Segment) -> Result<(), (&'static str, String)> {
        let Segment { ddp, rdmap, ref payload, .. } = *segment;
        if ddp & 3 != self.version {
            return Err(("DDP's version on this stream", format!("version {}", ddp & 3)));
        }
        if ddp & DDP_RESERVED != 0 {
            return Err(("reserved bits of DDP's control that are 0", format!("{ddp:#04x}")));
        }
        if rdmap >> 6 != self.version {
            return Err(("RDMAP's version on this stream", format!("version {}", rdmap >> 6)));
        }
        if rdmap & RDMAP_RESERVED != 0 {
            return Err(("reserved bits of RDMAP's control that are 0", format!("{rdmap:#04x}")));
        }
        let Some(kind) = segment.kind() else {
            return Err(("an opcode that there is", format!("{:#x}", rdmap & 0x0f)));
        };
        if kind.queue().is_none() != (ddp & TAGGED != 0) {
            return Err(("the T bit that belongs to the opcode", format!("{ddp:#04x}")));
        }
        if let Some(open) = &self.open
            && open.kind != kind
        {
            return Err(("the rest of a message", format!("a segment of a {}", kind.name())));
        }
        let so_far = self.open.as_ref().map_or(0, |open| open.data.len());
        match segment.destination {
            Destination::Tagged { stag, to } => {
                if let Some(Message {
                    destination: Destination::Tagged { stag: first, to: start },
                    ..
                }) = self.open
                    && (stag != first || to != start.wrapping_add(so_far as u64))
                {
                    return Err((
                        "the place behind the last segment",
                        format!("{stag:#x}, {to:#x}"),
                    ));
                }
            }
            Destination::Untagged { invalidate, qn, msn, mo } => {
                if Some(qn) != kind.queue() {
                    return Err(("the queue that belongs to the opcode", format!("queue {qn}")));
                }
                if !kind.invalidates() && invalidate != 0 {
                    return Err(("no STag to invalidate", format!("{invalidate:#x}")));
                }
                let next = self.next_came[qn as usize];
                if msn != next {
                    return Err(("the next MSN of its queue", format!("{msn}, not {next}")));
                }
                if mo as usize != so_far {
                    return Err((
                        "an MO that counts the bytes before",
                        format!("{mo}, not {so_far}"),
                    ));
                }
            }
        }
        if !segment.is_last() && payload.is_empty() {
            return Err(("data in a segment that is not the last", "none".to_owned()));
        }
        Ok(())
    }
}

/// Checks a message as a whole.
fn check_whole(message: &Message, sent: &[Vec<u8>]) -> Result<(), (&'static str, String)> {
    let len = message.data.len();
    let wanted = match message.kind {
        Kind::ReadRequest => Some(28),
        Kind::AtomicRequest => Some(52),
        Kind::AtomicResponse => Some(12),
        Kind::Immediate | Kind::ImmediateSolicited => Some(8),
        _ => None,
    };
    if wanted.is_some_and(|wanted| wanted != len) {
        return Err(("a header of the length that belongs to the opcode", format!("{len} bytes")));
    }
    if let (Kind::AtomicRequest, Some(request)) =
        (message.kind, AtomicRequest::decode(&message.data))
        && ![FETCH_ADD, COMPARE_SWAP].contains(&request.operation)
    {
        let came = format!("{:#010x}", request.operation);
        return Err(("FetchAdd or CmpSwap, behind 28 reserved bits that are 0", came));
    }
    if message.kind != Kind::Terminate {
        return Ok(());
    }
    let Some(told) = Terminate::decode(&message.data) else {
        return Err(("a Terminate of at least 4 bytes", format!("{len} bytes")));
    };
    if told.bits & !(Terminate::M | Terminate::D | Terminate::R) != 0 {
        return Err(("reserved bits of a Terminate that are 0", format!("{:#06x}", told.bits)));
    }
    if told.bits & Terminate::D != 0 {
        let quoted = told.quoted.get(2..).unwrap_or_default();
        let quotes = |ulpdu: &Vec<u8>| {
            let header = header_len(*ulpdu.first().unwrap_or(&0));
            let header = &ulpdu[..header.min(ulpdu.len())];
            quoted.starts_with(header)
        };
        if !sent.iter().any(quotes) {
            let came = hex_of(quoted, 48);
            return Err(("a Terminate that quotes a DDP header which it got", came));
        }
    }
    Ok(())
}

pub(crate) fn end_in_words(end: Arrival) -> &'static str {
    match end {
        Arrival::Fin => "the end of the stream (FIN)",
        Arrival::Reset => "a reset",
        Arrival::Nothing | Arrival::Bytes => "nothing in time",
    }
}
