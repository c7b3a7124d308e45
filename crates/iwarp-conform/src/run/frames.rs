// SPDX-License-Identifier: MIT OR Apache-2.0

//! The steps of the start-up.

use super::session::Session;
use crate::case::{Fields, Role};
use crate::link::Arrival;
use crate::peer::Peer;
use crate::stream::end_in_words;
use crate::text::hex_of;
use crate::verdict::Stop;
use crate::wire::segment::Kind as Message;
use crate::wire::startup::{C, Depths, Frame, HEADER, Kind, M, MAX_PRIVATE_DATA, R, RESERVED, S};

/// The read depths that this end says.
const DEPTH: u16 = 8;
/// A depth that says "the programs agree on it themselves" (RFC 6581 §9.1).
pub(super) const UNSAID: u16 = 0x3fff;

impl Session<'_> {
    /// The whole start-up in good order, and what the peer offers.
    pub(super) fn start(&mut self, fields: &Fields) -> Result<(), Stop> {
        let nothing = Fields::default();
        match self.role {
            Role::Connect => {
                self.send_frame(Kind::Request, fields)?;
                let reply = self.receive_frame(Kind::Reply, &nothing)?;
                if reply.flags & R != 0 {
                    return Err(Stop::NotSeen("the peer rejects the connection".to_owned()));
                }
                self.stream()?;
            }
            Role::Listen => {
                self.receive_frame(Kind::Request, &nothing)?;
                self.send_frame(Kind::Reply, fields)?;
                self.first_message()?;
            }
        }
        self.check_offer()
    }

    /// Waits for the initiator's first message, of any kind: a responder is silent until then.
    pub(super) fn first_message(&mut self) -> Result<(), Stop> {
        self.heard = true;
        let deadline = self.link.now() + self.settings.patience;
        let peer = self.settings.peer;
        let (stream, link) = self.stream()?;
        match stream.any(link, deadline)? {
            Ok(first) if peer.offers_by_send() && first.kind == Message::Send => {
                self.offer = peer.offer_of_send(&first.data);
            }
            Ok(first) if first.kind == Message::Write && first.data.is_empty() => {}
            Ok(first) if first.kind == Message::ReadRequest => {
                self.answer_read_of_nothing(&first)?
            }
            Ok(first) => stream.keep(first),
            Err(end @ (Arrival::Fin | Arrival::Reset))
                if peer != Peer::Any && !self.wants_rdmac() =>
            {
                return Err(Stop::deviates("the initiator's first FPDU", end_in_words(end), &[]));
            }
            Err(end) => {
                let why = format!("the peer sends nothing first: {}", end_in_words(end));
                return Err(Stop::NotSeen(why));
            }
        }
        if peer.offers_by_send() && self.offer.is_none() {
            let deadline = self.link.now() + self.settings.patience;
            let (stream, link) = self.stream()?;
            let message = stream.next(link, deadline, "the Send that says what the peer lends")?;
            self.offer = peer.offer_of_send(&message.data);
        }
        Ok(())
    }

    pub(super) fn send_frame(&mut self, kind: Kind, fields: &Fields) -> Result<(), Stop> {
        let frame = self.make_frame(kind, fields)?;
        let cut = self.number_or(fields, "cut", u64::MAX)? as usize;
        let bytes = frame.encode();
        self.link.send(&bytes[..cut.min(bytes.len())]);
        if self.ours.is_none() {
            self.ours = Some(frame);
        }
        Ok(())
    }

    fn make_frame(&self, kind: Kind, fields: &Fields) -> Result<Frame, Stop> {
        let asked = self.theirs.as_ref().filter(|_| kind == Kind::Reply);
        let revision = asked.map_or(self.settings.revision, |asked| asked.revision.min(2));
        let revision = self.number_or(fields, "rev", revision.into())? as u8;
        let enhanced = asked.map_or(revision == 2, |asked| asked.flags & S != 0);
        let enhanced = self.is_set(fields, "enhanced", enhanced)?;
        let mut flags = self.number_or(fields, "reserved", 0)? as u8 & RESERVED;
        let bits = [
            ("markers", M, self.settings.markers),
            ("crc", C, self.settings.crc),
            ("reject", R, false),
        ];
        for (name, bit, otherwise) in bits {
            flags |= if self.is_set(fields, name, otherwise)? { bit } else { 0 };
        }
        let mut private_data = Vec::new();
        if enhanced {
            flags |= S;
            private_data.extend(self.make_depths(asked, fields)?.encode());
        }
        private_data.extend(self.bytes_of(fields, "pd")?.unwrap_or_default());
        let mut frame = Frame::new(kind, flags, revision, private_data);
        frame.length = self.number_or(fields, "length", frame.length.into())? as u16;
        if let Some(key) = self.bytes_of(fields, "key")? {
            frame.key = key
                .try_into()
                .map_err(|_| Stop::NotSeen("the case is wrong: a key has 16 bytes".to_owned()))?;
        }
        Ok(frame)
    }

    fn make_depths(&self, asked: Option<&Frame>, fields: &Fields) -> Result<Depths, Stop> {
        let asked = asked.and_then(Frame::depths).unwrap_or(Depths {
            ird: DEPTH,
            ord: DEPTH,
            ..Depths::default()
        });
        // The requests that the peer wants to have under way are those that this end answers, and
        // the other way round.
        Ok(Depths {
            a: self.is_set(fields, "p2p", asked.a)?,
            b: self.is_set(fields, "rtr-send", asked.b)?,
            ird: self.number_or(fields, "ird", asked.ord.into())? as u16,
            c: self.is_set(fields, "rtr-write", asked.c)?,
            d: self.is_set(fields, "rtr-read", asked.d)?,
            ord: self.number_or(fields, "ord", asked.ird.into())? as u16,
        })
    }

    /// Takes the peer's frame, and checks the rules for all frames.
    pub(super) fn receive_frame(&mut self, kind: Kind, fields: &Fields) -> Result<Frame, Stop> {
        let deadline = self.deadline(fields)?;
        let wanted = format!("an MPA {kind:?}");
        let frame = loop {
            if let Some(frame) = Frame::decode(&self.link.came) {
                break frame;
            }
            if let Some(header) = self.link.came.get(..HEADER) {
                let length = u16::from_be_bytes([header[18], header[19]]);
                if usize::from(length) > MAX_PRIVATE_DATA {
                    let came = format!("a length of {length}");
                    return Err(Stop::deviates("private data of at most 512 bytes", came, header));
                }
            }
            match self.link.wait(deadline)? {
                Arrival::Bytes => {}
                end if self.wants_rdmac() && end != Arrival::Nothing => return Err(no_rdmac()),
                end => return Err(Stop::deviates(wanted, end_in_words(end), &self.link.came)),
            }
        };
        if self.wants_rdmac() && kind == Kind::Reply && frame.revision != 0 {
            return Err(no_rdmac());
        }
        let bytes: Vec<u8> = self.link.came.drain(..frame.size()).collect();
        check_frame(kind, &frame, self.ours.as_ref())
            .map_err(|(wanted, came)| Stop::deviates(wanted, came, &bytes))?;
        if kind == Kind::Request && !self.link.came.is_empty() {
            let wanted = "nothing behind a Request before its Reply";
            return Err(Stop::deviates(wanted, "more bytes", &self.link.came));
        }
        let bit = |bit: u8| u64::from(frame.flags & bit != 0);
        let depths = frame.depths().unwrap_or_default();
        let numbers = [
            ("markers", bit(M)),
            ("crc", bit(C)),
            ("reject", bit(R)),
            ("enhanced", bit(S)),
            ("reserved", (frame.flags & RESERVED).into()),
            ("rev", frame.revision.into()),
            ("length", frame.length.into()),
            ("ird", depths.ird.into()),
            ("ord", depths.ord.into()),
            ("p2p", depths.a.into()),
            ("rtr-send", depths.b.into()),
            ("rtr-write", depths.c.into()),
            ("rtr-read", depths.d.into()),
        ];
        for (name, came) in numbers {
            self.is_wanted(fields, name, came, &bytes)?;
        }
        if let Some(wanted) = self.bytes_of(fields, "pd")?
            && wanted != frame.program_data()
        {
            let [wanted, came] = [&wanted, frame.program_data()].map(|data| hex_of(data, 32));
            return Err(Stop::deviates(format!("private data {wanted}"), came, &bytes));
        }
        self.theirs = Some(frame.clone());
        Ok(frame)
    }
}

/// RFC 5044 Appendix C calls such a peer not permissive.
fn no_rdmac() -> Stop {
    Stop::NotSeen("the peer has no versions but the IETF's".to_owned())
}

/// Checks the rules for all frames; the error is what should be there, and what is.
fn check_frame(kind: Kind, frame: &Frame, ours: Option<&Frame>) -> Result<(), (String, String)> {
    let wrong = |wanted: &str, came: String| Err((wanted.to_owned(), came));
    if frame.key != *kind.key() {
        let wanted = format!("the key {:?}", String::from_utf8_lossy(kind.key()));
        return Err((wanted, format!("{:?}", String::from_utf8_lossy(&frame.key))));
    }
    let least = ours.map_or(1, |ours| ours.revision.min(1));
    if !(least..=2).contains(&frame.revision) {
        return wrong("revision 1 or 2", frame.revision.to_string());
    }
    if frame.flags & RESERVED != 0 {
        return wrong("reserved bits that are 0", format!("{:#04x}", frame.flags));
    }
    if kind == Kind::Request && frame.flags & R != 0 {
        return wrong("a Request with R=0", format!("{:#04x}", frame.flags));
    }
    if frame.revision == 1 && frame.flags & S != 0 {
        return wrong("S=0 in a frame of revision 1", format!("{:#04x}", frame.flags));
    }
    if frame.flags & S != 0 && frame.private_data.len() < 4 {
        return wrong("the four bytes that S=1 speaks of", frame.length.to_string());
    }
    let depths = frame.depths().unwrap_or_default();
    if !depths.a && (depths.b || depths.c || depths.d) {
        return wrong("B, C and D of 0 where A is 0", format!("{depths:?}"));
    }
    let Some(ours) = ours.filter(|_| kind == Kind::Reply) else { return Ok(()) };
    if frame.flags & S != 0 && ours.flags & S == 0 {
        return wrong("S=0, as in the Request", format!("{:#04x}", frame.flags));
    }
    if ours.revision == 2 && ours.flags & (S | RESERVED) == S && frame.flags & S == 0 {
        return wrong("S=1, as in the Request", format!("{:#04x}", frame.flags));
    }
    if frame.revision > ours.revision {
        return wrong("a revision that the Request allows", frame.revision.to_string());
    }
    let Some(asked) = ours.depths().filter(|_| frame.flags & (S | R) == S) else { return Ok(()) };
    if depths.a && !asked.a {
        return wrong("A=0, as in the Request", format!("{depths:?}"));
    }
    if asked.ird == UNSAID {
        return match depths.ord {
            UNSAID => Ok(()),
            ord => wrong("ORD 0x3fff where the Request says IRD 0x3fff", format!("{ord:#x}")),
        };
    }
    if depths.ord != UNSAID && depths.ord > asked.ird {
        return wrong("an ORD within the Request's IRD", format!("{} > {}", depths.ord, asked.ird));
    }
    Ok(())
}
