// SPDX-License-Identifier: MIT OR Apache-2.0

//! The fields of frames, by their names in the RFCs, and the bytes that hold each.

use std::ops::Range;

use iwarp_proto::ddp::wire::Header;
use iwarp_proto::mpa::wire::{EnhancedData, FRAME_HEADER, Frame};
use iwarp_proto::rdmap::wire::{
    AOP_COMPARE_SWAP, AOP_FETCH_ADD, AtomicRequest, AtomicResponse, Opcode, ReadRequest, Terminate,
    split_control,
};

/// Bytes of payload that are shown.
const SHOWN: usize = 48;

/// The layer that a field belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Layer {
    Mpa,
    Ddp,
    Rdmap,
    Payload,
}

impl Layer {
    pub(crate) const ALL: [Self; 4] = [Self::Mpa, Self::Ddp, Self::Rdmap, Self::Payload];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Mpa => "MPA",
            Self::Ddp => "DDP",
            Self::Rdmap => "RDMAP",
            Self::Payload => "Payload",
        }
    }
}

/// A field of a frame.
#[derive(Clone, Debug)]
pub(crate) struct Field {
    pub(crate) layer: Layer,
    pub(crate) name: &'static str,
    pub(crate) value: String,
    /// The bytes of the frame in which it stands. Several fields may share a byte.
    pub(crate) place: Vec<Range<usize>>,
}

/// The fields of one frame, in the order in which they are added.
#[derive(Debug, Default)]
pub(super) struct Fields {
    pub(super) all: Vec<Field>,
    /// The place in the frame of each byte that belongs to no marker.
    unmarked: Vec<usize>,
}

impl Fields {
    /// Starts without fields, for a frame whose bytes without markers stand at these places.
    pub(super) fn new(unmarked: Vec<usize>) -> Self {
        Self { all: Vec::new(), unmarked }
    }

    pub(super) fn add(
        &mut self,
        layer: Layer,
        name: &'static str,
        value: impl Into<String>,
        bytes: Range<usize>,
    ) {
        let mut place: Vec<Range<usize>> = Vec::new();
        for &at in self.unmarked.get(bytes).unwrap_or_default() {
            match place.last_mut() {
                Some(last) if last.end == at => last.end = at + 1,
                _ => place.push(at..at + 1),
            }
        }
        self.all.push(Field { layer, name, value: value.into(), place });
    }

    /// A field at a place that counts markers.
    pub(super) fn add_marker(&mut self, value: String, place: Range<usize>) {
        let (layer, name) = (Layer::Mpa, "Marker, FPDUPTR");
        self.all.push(Field { layer, name, value, place: vec![place] });
    }

    /// A start-up frame (RFC 5044 §7.1.1, RFC 6581 §6 and §9).
    pub(super) fn start_up(&mut self, frame: &Frame<'_>, bytes: &[u8]) {
        let mpa = Layer::Mpa;
        self.add(mpa, "Key", format!("\"{}\"", bytes[..16].escape_ascii()), 0..16);
        self.add(mpa, "M", flag(frame.markers, "wants markers", "wants no markers"), 16..17);
        self.add(mpa, "C", flag(frame.crc, "CRC32c", "no CRC"), 16..17);
        self.add(mpa, "R", flag(frame.rejected, "rejected", "not rejected"), 16..17);
        let enhanced = flag(frame.enhanced.is_some(), "enhanced", "not enhanced");
        self.add(mpa, "S", enhanced, 16..17);
        self.add(mpa, "Rev", frame.rev.to_string(), 17..18);
        self.add(mpa, "PD_Length", (bytes.len() - FRAME_HEADER).to_string(), 18..20);
        let mut behind = FRAME_HEADER;
        if let Some(word) = &frame.enhanced {
            self.enhanced(word, behind);
            behind += EnhancedData::LEN;
        }
        if !frame.private_data.is_empty() {
            self.add(Layer::Payload, "Private Data", data(frame.private_data), behind..bytes.len());
        }
    }

    fn enhanced(&mut self, word: &EnhancedData, at: usize) {
        let mpa = Layer::Mpa;
        let model = flag(word.peer_to_peer, "peer-to-peer", "client-server");
        self.add(mpa, "A", model, at..at + 1);
        self.add(mpa, "B", flag(word.rtr.send, "RTR by Send", "none"), at..at + 1);
        self.add(mpa, "IRD", word.ird.to_string(), at..at + 2);
        self.add(mpa, "C", flag(word.rtr.write, "RTR by Write", "none"), at + 2..at + 3);
        self.add(mpa, "D", flag(word.rtr.read, "RTR by Read", "none"), at + 2..at + 3);
        self.add(mpa, "ORD", word.ord.to_string(), at + 2..at + 4);
    }

    /// A DDP header that begins at `at` (RFC 5041 §4), and the control byte that it carries for
    /// RDMAP (RFC 5040 §4.1).
    pub(super) fn ddp(&mut self, header: &Header, at: usize) {
        let ddp = Layer::Ddp;
        let first = at..at + 1;
        let tagged = matches!(header, Header::Tagged(_));
        self.add(ddp, "T", flag(tagged, "tagged", "untagged"), first.clone());
        let last = flag(header.last(), "last segment of its message", "more segments follow");
        self.add(ddp, "L", last, first.clone());
        // A header that parses has the one version that there is.
        self.add(ddp, "DV", "1", first);
        let control = match header {
            Header::Tagged(header) => {
                self.add(ddp, "STag", format!("{:#010x}", header.stag.0), at + 2..at + 6);
                self.add(ddp, "TO", format!("{:#x}", header.to.0), at + 6..at + 14);
                header.rsvd_ulp
            }
            Header::Untagged(header) => {
                self.add(ddp, "QN", header.qn.0.to_string(), at + 6..at + 10);
                self.add(ddp, "MSN", header.msn.0.to_string(), at + 10..at + 14);
                self.add(ddp, "MO", header.mo.0.to_string(), at + 14..at + 18);
                header.rsvd_ulp[0]
            }
        };
        let (version, number) = split_control(control);
        self.add(Layer::Rdmap, "RV", version.to_string(), at + 1..at + 2);
        let name = Opcode::from_number(number).map_or("unknown", name);
        self.add(Layer::Rdmap, "Opcode", format!("{number:#x} ({name})"), at + 1..at + 2);
    }

    /// The message behind the DDP header, from `at` on.
    pub(super) fn message(&mut self, opcode: Option<Opcode>, payload: &[u8], at: usize) {
        if self.header(opcode, payload, at).is_none() && !payload.is_empty() {
            self.add(Layer::Payload, "data", data(payload), at..at + payload.len());
        }
    }

    /// The header of a message that has one of its own.
    fn header(&mut self, opcode: Option<Opcode>, payload: &[u8], at: usize) -> Option<()> {
        match opcode? {
            Opcode::ReadRequest => self.read_request(&ReadRequest::parse(payload)?, at),
            Opcode::AtomicRequest => self.atomic_request(&AtomicRequest::parse(payload)?, at),
            Opcode::AtomicResponse => self.atomic_response(&AtomicResponse::parse(payload)?, at),
            Opcode::Terminate => {
                self.terminate(&Terminate::parse(payload)?, at);
                if payload.len() > 2 {
                    let segment = data(&payload[2..]);
                    let place = at + 2..at + payload.len();
                    self.add(Layer::Rdmap, "terminated segment", segment, place);
                }
            }
            Opcode::Immediate | Opcode::ImmediateSolicited => {
                let place = at..at + payload.len();
                self.add(Layer::Rdmap, "Immediate Data", data(payload), place);
            }
            _ => return None,
        }
        Some(())
    }

    /// RFC 5040 §4.8.
    fn terminate(&mut self, header: &Terminate, at: usize) {
        let (rdmap, code) = (Layer::Rdmap, header.code);
        self.add(rdmap, "Layer", code.layer.to_string(), at..at + 1);
        self.add(rdmap, "EType", code.etype.to_string(), at..at + 1);
        let value = format!("{:#04x} ({})", code.code, code.name());
        self.add(rdmap, "Error Code", value, at + 1..at + 2);
    }

    /// RFC 7306 §5.2.2.
    fn atomic_response(&mut self, header: &AtomicResponse, at: usize) {
        let (rdmap, id) = (Layer::Rdmap, header.request_id.to_string());
        self.add(rdmap, "Original Request Identifier", id, at..at + 4);
        let value = header.original.to_string();
        self.add(rdmap, "Original Remote Data Value", value, at + 4..at + 12);
    }

    /// RFC 5040 §4.4.
    fn read_request(&mut self, header: &ReadRequest, at: usize) {
        let rdmap = Layer::Rdmap;
        self.add(rdmap, "SinkSTag", format!("{:#010x}", header.sink_stag.0), at..at + 4);
        self.add(rdmap, "SinkTO", format!("{:#x}", header.sink_to.0), at + 4..at + 12);
        self.add(rdmap, "RDMARDSZ", header.size.to_string(), at + 12..at + 16);
        self.add(rdmap, "SrcSTag", format!("{:#010x}", header.source_stag.0), at + 16..at + 20);
        self.add(rdmap, "SrcTO", format!("{:#x}", header.source_to.0), at + 20..at + 28);
    }

    /// RFC 7306 §5.2.1.
    fn atomic_request(&mut self, header: &AtomicRequest, at: usize) {
        let rdmap = Layer::Rdmap;
        let operation = match header.operation {
            AOP_FETCH_ADD => "0 (FetchAdd)".to_owned(),
            AOP_COMPARE_SWAP => "2 (CmpSwap)".to_owned(),
            other => other.to_string(),
        };
        self.add(rdmap, "AOpCode", operation, at..at + 4);
        self.add(rdmap, "Request Identifier", header.request_id.to_string(), at + 4..at + 8);
        self.add(rdmap, "Remote STag", format!("{:#010x}", header.stag.0), at + 8..at + 12);
        let offset = format!("{:#x}", header.to.0);
        self.add(rdmap, "Remote Tagged Offset", offset, at + 12..at + 20);
        let number = header.add_or_swap.to_string();
        self.add(rdmap, "Add or Swap Data", number, at + 20..at + 28);
        let mask = format!("{:#x}", header.add_or_swap_mask);
        self.add(rdmap, "Add or Swap Mask", mask, at + 28..at + 36);
        self.add(rdmap, "Compare Data", header.compare.to_string(), at + 36..at + 44);
        self.add(rdmap, "Compare Mask", format!("{:#x}", header.compare_mask), at + 44..at + 52);
    }
}

/// A message's name in the RFCs.
pub(super) const fn name(opcode: Opcode) -> &'static str {
    match opcode {
        Opcode::Write => "RDMA Write",
        Opcode::ReadRequest => "RDMA Read Request",
        Opcode::ReadResponse => "RDMA Read Response",
        Opcode::Send => "Send",
        Opcode::SendInvalidate => "Send with Invalidate",
        Opcode::SendSolicited => "Send with Solicited Event",
        Opcode::SendSolicitedInvalidate => "Send with SE and Invalidate",
        Opcode::Terminate => "Terminate",
        Opcode::Immediate => "Immediate Data",
        Opcode::ImmediateSolicited => "Immediate Data with SE",
        Opcode::AtomicRequest => "Atomic Request",
        Opcode::AtomicResponse => "Atomic Response",
        Opcode::SendImmediate => "Send with Immediate",
        Opcode::SendImmediateSolicited => "Send with Immediate and SE",
    }
}

fn flag(is_set: bool, yes: &str, no: &str) -> String {
    if is_set { format!("1 ({yes})") } else { format!("0 ({no})") }
}

/// Bytes as text where they are text, else as hexadecimal digits; long ones are cut.
pub(super) fn data(bytes: &[u8]) -> String {
    let shown = &bytes[..bytes.len().min(SHOWN)];
    let is_text = |byte: &u8| byte.is_ascii_graphic() || *byte == b' ';
    let text = match !shown.is_empty() && shown.iter().all(is_text) {
        true => format!("\"{}\"", String::from_utf8_lossy(shown)),
        false => shown.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" "),
    };
    match bytes.len() - shown.len() {
        0 => text,
        more => format!("{text} and {} more", super::deeds::bytes(more as u64)),
    }
}
