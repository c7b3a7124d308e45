// SPDX-License-Identifier: MIT OR Apache-2.0

//! The bytes of a connection as frames, taken apart by the parsers that the library runs.

use iwarp_proto::ddp::wire::Header;
use iwarp_proto::framing::Deframe as _;
use iwarp_proto::mpa::marker::{self, MARKER};
use iwarp_proto::mpa::rx::Deframer;
use iwarp_proto::mpa::wire::{CRC_FIELD, Frame as StartUp, FrameKind, MARKER_INTERVAL, pad_len};
use iwarp_proto::rdmap::hello::{OfferHalf, OwnFrame};
use iwarp_proto::rdmap::wire::{Opcode, ReadRequest, split_control};

use super::fields::{Field, Fields, Layer, name};

/// The highest revision of MPA there is.
const REVISION: u8 = 2;

/// A frame that passed.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) name: String,
    /// The purpose of it, where its name does not say so.
    pub(crate) note: Option<String>,
    /// The place of its first byte in the stream.
    pub(crate) start: usize,
    pub(crate) bytes: Vec<u8>,
    pub(crate) fields: Vec<Field>,
}

impl Frame {
    /// The place behind its last byte in the stream.
    pub(crate) fn end(&self) -> usize {
        self.start + self.bytes.len()
    }

    fn unknown(stream: &[u8], start: usize, why: &str) -> Self {
        let (bytes, note) = (stream[start..].to_vec(), Some(why.to_owned()));
        Self { name: "bytes".to_owned(), note, start, bytes, fields: Vec::new() }
    }
}

/// The frames of both directions of a connection: the Initiator's and the Responder's.
pub(super) fn decode(streams: [&[u8]; 2]) -> [Vec<Frame>; 2] {
    let kinds = [FrameKind::Request, FrameKind::Reply];
    let parse = |side: usize| StartUp::parse(kinds[side], REVISION, streams[side]).ok().flatten();
    let both = [parse(0), parse(1)];
    [0, 1].map(|side| {
        let stream = streams[side];
        let Some((own, used)) = &both[side] else {
            let why = "These bytes are not a complete start-up frame.";
            return match stream.is_empty() {
                true => Vec::new(),
                false => vec![Frame::unknown(stream, 0, why)],
            };
        };
        let mut frames = vec![start_up(own, &stream[..*used])];
        if let Some((theirs, _)) = &both[1 - side] {
            // Each end asks for markers in what it receives; CRCs are used if either asks.
            let deframer = Deframer::new(own.crc || theirs.crc, theirs.markers);
            segments(stream, *used, deframer, own.crc || theirs.crc, theirs.markers, &mut frames);
        }
        frames
    })
}

fn start_up(frame: &StartUp<'_>, bytes: &[u8]) -> Frame {
    let (name, note) = match (frame.kind, frame.rejected) {
        (FrameKind::Request, _) => ("MPA Request", "The initiator states its terms."),
        (FrameKind::Reply, false) => ("MPA Reply", "The responder accepts."),
        (FrameKind::Reply, true) => ("MPA Reply", "The responder refuses."),
    };
    let mut fields = Fields::new((0..bytes.len()).collect());
    fields.start_up(frame, bytes);
    let (name, note) = (name.to_owned(), Some(note.to_owned()));
    Frame { name, note, start: 0, bytes: bytes.to_vec(), fields: fields.all }
}

/// Adds the FPDUs of a stream from `start` on.
fn segments(
    stream: &[u8],
    mut start: usize,
    mut deframer: Deframer,
    crc: bool,
    markers: bool,
    frames: &mut Vec<Frame>,
) {
    while start < stream.len() {
        let position = deframer.position();
        let mut rest = stream[start..].to_vec();
        match deframer.next(&mut rest) {
            Ok(Some(found)) => {
                let bytes = &stream[start..start + found.consumed];
                let ulpdu = &rest[found.start..found.start + found.len];
                frames.push(segment(bytes, start, ulpdu, position, crc, markers));
                start += found.consumed;
            }
            Ok(None) => {
                let why = "The stream ends within this FPDU.";
                return frames.push(Frame::unknown(stream, start, why));
            }
            Err(error) => {
                return frames.push(Frame::unknown(stream, start, &format!("{error}.")));
            }
        }
    }
}

fn segment(
    bytes: &[u8],
    start: usize,
    ulpdu: &[u8],
    position: u64,
    crc: bool,
    markers: bool,
) -> Frame {
    let behind_marker = |at: &usize| (position + *at as u64) % MARKER_INTERVAL;
    let is_marker = |at: &usize| markers && behind_marker(at) < MARKER as u64;
    let places = |wanted: bool| (0..bytes.len()).filter(move |at| is_marker(at) == wanted);
    let mut fields = Fields::new(places(false).collect());
    for at in places(true).step_by(MARKER) {
        if let Some(octets) = bytes[at..].first_chunk() {
            fields.add_marker(marker::decode(*octets).to_string(), at..at + MARKER);
        }
    }
    let mpa = Layer::Mpa;
    fields.add(mpa, "ULPDU_Length", ulpdu.len().to_string(), 0..2);
    let (title, note) = match Header::parse(ulpdu) {
        Ok(header) => {
            fields.ddp(&header, 2);
            let payload = &ulpdu[header.wire_len()..];
            let opcode = opcode(&header);
            fields.message(opcode, payload, 2 + header.wire_len());
            let purpose = purpose(&header, opcode, payload);
            let (more, note) = purpose.map_or(("", None), |(more, note)| (more, Some(note)));
            (format!("{}{more}", opcode.map_or("unknown message", name)), note)
        }
        Err(error) => ("FPDU".to_owned(), Some(format!("{error}."))),
    };
    let (pad, end) = (pad_len(ulpdu.len()), 2 + ulpdu.len());
    if pad > 0 {
        fields.add(mpa, "PAD", super::deeds::bytes(pad as u64), end..end + pad);
    }
    if let Some(octets) = bytes.last_chunk::<CRC_FIELD>() {
        // Sent least significant byte first (RFC 5044 §4.4). The deframer has compared it.
        let value = u32::from_le_bytes(*octets);
        let verdict = if crc { "right" } else { "not used" };
        let place = end + pad..end + pad + CRC_FIELD;
        fields.add(mpa, "CRC", format!("{value:#010x} ({verdict})"), place);
    }
    Frame { name: title, note, start, bytes: bytes.to_vec(), fields: fields.all }
}

fn opcode(header: &Header) -> Option<Opcode> {
    let control = match header {
        Header::Tagged(header) => header.rsvd_ulp,
        Header::Untagged(header) => header.rsvd_ulp[0],
    };
    Opcode::from_number(split_control(control).1)
}

/// A frame that no program asked for: what the name lacks, and what it is for.
fn purpose(
    header: &Header,
    opcode: Option<Opcode>,
    payload: &[u8],
) -> Option<(&'static str, String)> {
    Some(match (header, opcode?) {
        (Header::Tagged(header), Opcode::Write) if payload.is_empty() => {
            match OwnFrame::of(header.stag, header.to)? {
                OwnFrame::Hello(capabilities) => {
                    let names: Vec<String> = capabilities
                        .iter_names()
                        .map(|(name, _)| name.to_lowercase().replace('_', " "))
                        .collect();
                    let text = format!(
                        "An empty Write, whose STag and TO identify this end as an iwarp library, \
                         and list its capabilities beyond RFC 5040: {}.",
                        names.join(", ")
                    );
                    (", hello", text)
                }
                OwnFrame::Farewell(received) => {
                    let text = format!(
                        "An empty Write, whose TO says that this end has received {received} \
                         messages and leaves."
                    );
                    (", farewell", text)
                }
                OwnFrame::Count(received) => {
                    let text = format!(
                        "An empty Write, whose TO says that this end has received {received} \
                         messages, and that one behind them waits for a receive."
                    );
                    (", count", text)
                }
                OwnFrame::Offer(half) => {
                    let what = match half {
                        OfferHalf::Name(_) => "the name under which its process can be reached",
                        OfferHalf::Secret(_) => "the secret of this connection",
                    };
                    let text = format!(
                        "An empty Write, whose TO is {what}, for a peer on this host that would \
                         move the connection to shared memory."
                    );
                    (", offer", text)
                }
                OwnFrame::Decline(_) => {
                    let text = "An empty Write, by which this end says to a peer on this host \
                                that the connection stays with TCP.";
                    (", decline", text.to_owned())
                }
                OwnFrame::RnrRetry(7) => {
                    let text = "An empty Write, whose TO says that messages of this end wait \
                                without limit for a receive.";
                    (", RNR retry", text.to_owned())
                }
                OwnFrame::RnrRetry(count) => {
                    let text = format!(
                        "An empty Write, whose TO says that a message of this end that finds no \
                         receive may wait for {count} of the other end's RNR times."
                    );
                    (", RNR retry", text)
                }
            }
        }
        (_, Opcode::ReadRequest) if ReadRequest::parse(payload)?.size == 0 => {
            let text = "Its answer tells this end that everything it sent before has arrived.";
            (", empty", text.to_owned())
        }
        (_, Opcode::ReadResponse) if payload.is_empty() => {
            (", empty", "Everything sent before has arrived.".to_owned())
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use iwarp_proto::mpa::wire::{Frame as StartUp, FrameKind};

    use super::{Frame, decode};

    /// A start-up frame that wants no CRC.
    fn start_up(kind: FrameKind, markers: bool) -> Vec<u8> {
        let (crc, rejected, rev, enhanced, private_data) = (false, false, 1, None, &[][..]);
        let frame = StartUp { kind, markers, crc, rejected, rev, enhanced, private_data };
        frame.encode().expect("it is short")
    }

    /// An RDMA Write of 5 bytes as an FPDU: 14 + 5 bytes of ULPDU, 3 of padding.
    fn write() -> Vec<u8> {
        let header = [0xc1, 0x40, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 9];
        [&[0, 19][..], &header, b"hello", &[0; 3], &[0; 4]].concat()
    }

    /// The frames that the Initiator sent.
    fn sent(behind: &[u8], markers: bool) -> Vec<Frame> {
        let request = [&start_up(FrameKind::Request, false), behind].concat();
        let [sent, answered] = decode([&request, &start_up(FrameKind::Reply, markers)]);
        assert_eq!(answered.len(), 1);
        sent
    }

    fn field(frame: &Frame, name: &str) -> (String, Vec<u8>) {
        let field = frame.fields.iter().find(|field| field.name == name);
        let field = field.unwrap_or_else(|| panic!("no {name}: {:?}", frame.fields));
        let bytes = field.place.iter().flat_map(|span| frame.bytes[span.clone()].to_vec());
        (field.value.clone(), bytes.collect())
    }

    #[test]
    fn every_field_knows_its_bytes() {
        let marked = [&[0, 0, 0, 0][..], &write()].concat();
        for (bytes, markers) in [(write(), false), (marked, true)] {
            let frames = sent(&bytes, markers);
            let [request, frame] = &frames[..] else { panic!("{frames:?}") };
            assert_eq!(request.name, "MPA Request");
            assert_eq!(field(request, "Rev"), ("1".to_owned(), vec![1]));
            assert_eq!((frame.name.as_str(), &frame.bytes), ("RDMA Write", &bytes));
            assert_eq!(field(frame, "ULPDU_Length"), ("19".to_owned(), vec![0, 19]));
            assert_eq!(field(frame, "STag"), ("0x00000007".to_owned(), vec![0, 0, 0, 7]));
            assert_eq!(field(frame, "TO").1.last(), Some(&9));
            assert_eq!(field(frame, "Opcode"), ("0x0 (RDMA Write)".to_owned(), vec![0x40]));
            assert_eq!(field(frame, "data"), ("\"hello\"".to_owned(), b"hello".to_vec()));
            assert_eq!(field(frame, "CRC").0, "0x00000000 (not used)");
            let has_marker = frame.fields.iter().any(|field| field.name.starts_with("Marker"));
            assert_eq!(has_marker, markers);
        }
    }

    #[test]
    fn unreadable_octets_are_shown_as_they_are() {
        let cut = sent(&write()[..10], false);
        assert_eq!(cut[1].note.as_deref(), Some("The stream ends within this FPDU."));
        assert_eq!(cut[1].bytes, write()[..10]);
        let [noise, _] = decode([b"GET / HTTP/1.1", b""]);
        assert_eq!(noise[0].bytes, b"GET / HTTP/1.1");
        let version = [&[0, 2, 0x80, 0x40][..], &[0; 4]].concat();
        assert_eq!(sent(&version, false)[1].name, "FPDU");
    }
}
