// SPDX-License-Identifier: MIT OR Apache-2.0

//! Our packets in the eyes of other programs: scapy computes their ICRCs, tshark takes them apart.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::fs::File;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::{Path as FilePath, PathBuf};
use std::process::Command;
use std::time::Duration;

use iwarp_roce::wire::icrc::Identification;
use iwarp_roce::wire::{
    Aeth, AtomicEth, AtomicKind, Bth, Burst, Deth, Header, Message, NakCode, Numbering, Opcode,
    Packet, Path, Pkey, Position, Psn, Reth, RnrTimer, SendTail, Syndrome, Tail, Transport,
};
use iwarp_roce::wire::{Operation, source_port};
use iwarp_types::{AddressVector, Digest, Stag, TaggedOffset};
use pcap_file::DataLink;
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use serde_json::{Map, Value, json};

use crate::fields;
use crate::frame::Frame;

const SCAPY: &str = "apt-get install python3-scapy";
const TSHARK: &str = "apt-get install tshark";

/// Numbers that a seed decides.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn flag(&mut self) -> bool {
        self.below(2) == 1
    }

    fn path(&mut self) -> Path {
        let address = if self.below(3) == 0 {
            let mut host = || Ipv6Addr::from_bits(0xfd77 << 112 | u128::from(self.next())).into();
            AddressVector::new(host(), host())
        } else {
            let mut host = || Ipv4Addr::from_bits(10 << 24 | self.next() as u32 >> 8).into();
            AddressVector::new(host(), host())
        };
        let address = AddressVector {
            traffic_class: self.next() as u8,
            hop_limit: self.next() as u8,
            flow_label: if address.source.is_ipv6() { self.next() as u32 & 0xf_ffff } else { 0 },
            ..address
        };
        Path::new(address, source_port(address.flow_label, self.next() as u32, self.next() as u32))
    }

    fn reth(&mut self) -> Reth {
        Reth {
            va: TaggedOffset(self.next()),
            rkey: Stag(self.next() as u32),
            length: self.next() as u32,
        }
    }

    fn aeth(&mut self) -> Aeth {
        let code = [
            NakCode::SequenceError,
            NakCode::InvalidRequest,
            NakCode::RemoteAccess,
            NakCode::RemoteOperation,
        ];
        let syndrome = match self.below(4) {
            0 => Syndrome::ACK,
            1 => Syndrome::Ack { credits: Some(self.below(50_000) as u32) },
            2 => Syndrome::RnrNak(RnrTimer::new(self.next() as u8)),
            _ => Syndrome::Nak(code[self.below(4) as usize]),
        };
        Aeth { syndrome, msn: self.next() as u32 & 0xff_ffff }
    }

    fn immediate(&mut self) -> [u8; 4] {
        (self.next() as u32).to_be_bytes()
    }

    fn message(&mut self, operation: Operation) -> Message {
        let buffer = (TaggedOffset(self.next()), Stag(self.next() as u32));
        let atomic = |kind| Message::Atomic(AtomicEth { va: buffer.0, rkey: buffer.1, kind });
        match operation {
            Operation::Send(position, tail) => {
                let tail = match tail {
                    Tail::Plain => SendTail::Plain,
                    Tail::Immediate => SendTail::Immediate(self.immediate()),
                    Tail::Invalidate => SendTail::Invalidate(buffer.1),
                };
                Message::Send { position, tail }
            }
            Operation::Write(position, tail) => {
                let immediate = matches!(tail, Tail::Immediate).then(|| self.immediate());
                if position.begins() {
                    Message::WriteBegin { only: position.ends(), reth: self.reth(), immediate }
                } else {
                    Message::WriteMore { last: position.ends(), immediate }
                }
            }
            Operation::ReadRequest => Message::ReadRequest(self.reth()),
            Operation::ReadResponse(position) => {
                let aeth = (position != Position::Middle).then(|| self.aeth());
                Message::ReadResponse { position, aeth }
            }
            Operation::Acknowledge => Message::Acknowledge(self.aeth()),
            Operation::AtomicAcknowledge => {
                Message::AtomicAcknowledge { aeth: self.aeth(), original: self.next() }
            }
            Operation::CompareSwap => {
                atomic(AtomicKind::CompareSwap { compare: self.next(), swap: self.next() })
            }
            Operation::FetchAdd => atomic(AtomicKind::FetchAdd { add: self.next() }),
        }
    }

    fn header(&mut self, opcode: Opcode) -> Header {
        let is_datagram = opcode.transport == Transport::Ud;
        Header {
            bth: Bth {
                solicited: self.flag(),
                migrated: self.flag(),
                pkey: Pkey(self.next() as u16),
                fecn: self.flag(),
                becn: self.flag(),
                // Not the queue pairs with a meaning of their own, as tshark looks into their
                // payload.
                dest_qp: 2 + self.below(0xff_fff0) as u32,
                ack_req: self.flag(),
                psn: Psn::new(self.next() as u32),
            },
            transport: opcode.transport,
            deth: is_datagram.then(|| Deth {
                qkey: self.next() as u32,
                source_qp: 2 + self.below(0xff_fff0) as u32,
            }),
            message: self.message(opcode.operation),
        }
    }
}

/// Packets of all kinds, as bursts of trains make them.
fn packets(seed: u64, count: usize) -> Vec<Frame> {
    let opcodes: Vec<Opcode> = (0..=u8::MAX).filter_map(Opcode::from_octet).collect();
    let mut random = Random(seed);
    let mut frames = Vec::new();
    while frames.len() < count {
        let numbering = if random.flag() { Numbering::Counted } else { Numbering::Zero };
        let mut burst = Burst::new(numbering, 40_000);
        let path = random.path();
        let usual = random.below(300);
        while !burst.is_full() && burst.packets().count() < 30 {
            let opcode = random.below(opcodes.len() as u64) as usize;
            let header = random.header(opcodes[opcode]);
            let payload = match (carries(&header.message), random.below(20)) {
                (false, _) => 0,
                (true, 0) => random.below(4097),
                (true, 1..10) => random.below(300),
                (true, _) => usual,
            };
            let fill = |out: &mut [u8], digest: &mut Digest| {
                out.fill_with(|| random.next() as u8);
                digest.update(out);
                Ok::<_, Infallible>(())
            };
            burst.push(&path, &header, payload as usize, fill).unwrap();
        }
        for train in burst.trains() {
            for (number, packet) in train.octets.chunks(train.segment).enumerate() {
                let number = if numbering == Numbering::Counted { number as u16 } else { 0 };
                let (id, datagram) = (Identification::new(number), packet.to_vec());
                frames.push(Frame { path: *train.path, id, datagram });
            }
        }
    }
    frames.truncate(count);
    frames
}

fn carries(message: &Message) -> bool {
    !matches!(
        message,
        Message::ReadRequest(_)
            | Message::Acknowledge(_)
            | Message::AtomicAcknowledge { .. }
            | Message::Atomic(_)
    )
}

/// A capture of them, gone when dropped.
struct Capture(PathBuf);

impl Capture {
    fn of(frames: &[Frame], name: &str) -> Self {
        let file = format!("iwarp-roce-{}-{name}.pcap", std::process::id());
        let path = std::env::temp_dir().join(file);
        let header = PcapHeader { datalink: DataLink::RAW, ..PcapHeader::default() };
        let mut writer = PcapWriter::with_header(File::create(&path).unwrap(), header).unwrap();
        for frame in frames {
            let octets = frame.octets();
            let packet = PcapPacket::new(Duration::ZERO, octets.len() as u32, &octets);
            writer.write_packet(&packet).unwrap();
        }
        Self(path)
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        // It may not have been made.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The output of a program.
fn output(command: &mut Command, install: &str) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{error}; {install}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}; {install}");
    String::from_utf8(output.stdout).unwrap()
}

/// Covers: ROCE-006, ROCE-021, ROCE-022, ROCE-023, ROCE-024, ROCE-027
#[test]
fn scapy_finds_the_icrc_of_every_packet_good() {
    let mut frames = packets(1, 10_000);
    // It would find a wrong one.
    let mut wrong = packets(3, 1).remove(0);
    wrong.datagram[11] ^= 1;
    frames.push(wrong);
    let capture = Capture::of(&frames, "scapy");
    let script = FilePath::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/icrc.py");
    // The system's own, for which Debian has the package.
    let mut python = Command::new("/usr/bin/python3");
    let found = output(python.arg(script).arg(&capture.0), SCAPY);
    let lines: Vec<&str> = found.lines().collect();
    assert_eq!(lines.len(), 2, "{found}");
    assert!(lines[0].starts_with("packet 10001 has "), "{found}");
    assert_eq!(lines[1], "looked at 10001");
}

/// The fields of tshark, and where ours have them.
const FIELDS: [(&str, &str, &str); 23] = [
    ("infiniband.bth.opcode", "bth", "opcode"),
    ("infiniband.bth.se", "bth", "se"),
    ("infiniband.bth.m", "bth", "mig"),
    ("infiniband.bth.padcnt", "bth", "pad"),
    ("infiniband.bth.tver", "bth", "tver"),
    ("infiniband.bth.p_key", "bth", "pkey"),
    ("infiniband.bth.destqp", "bth", "dest_qp"),
    ("infiniband.bth.a", "bth", "ackreq"),
    ("infiniband.bth.psn", "bth", "psn"),
    ("infiniband.deth.q_key", "deth", "qkey"),
    ("infiniband.deth.srcqp", "deth", "srcqp"),
    ("infiniband.reth.va", "reth", "va"),
    ("infiniband.reth.r_key", "reth", "rkey"),
    ("infiniband.reth.dmalen", "reth", "length"),
    ("infiniband.atomiceth.swapdt", "atomiceth", "swap_add"),
    ("infiniband.atomiceth.cmpdt", "atomiceth", "compare"),
    ("infiniband.aeth.syndrome", "aeth", "syndrome"),
    ("infiniband.aeth.msn", "aeth", "msn"),
    ("infiniband.atomicacketh.origremdt", "atomicack", ""),
    ("infiniband.immdt", "immdt", ""),
    ("infiniband.ieth", "ieth", ""),
    ("infiniband.invariant.crc", "icrc", ""),
    ("_ws.malformed", "malformed", ""),
];

/// Covers: ROCE-001, ROCE-002, ROCE-006, ROCE-013
#[test]
fn tshark_reads_every_field_as_it_was_written() {
    let frames = packets(2, 10_000);
    let capture = Capture::of(&frames, "tshark");
    let mut tshark = Command::new("tshark");
    tshark.arg("-r").arg(&capture.0).args(["-T", "fields", "-E", "occurrence=f"]);
    // They would take payload for theirs.
    for upper in ["rpcordma", "smb_direct", "infiniband.eoib"] {
        tshark.args(["--disable-protocol", upper]);
    }
    for (field, ..) in FIELDS {
        tshark.args(["-e", field]);
    }
    let found = output(&mut tshark, TSHARK);
    let mut opcodes = BTreeSet::new();
    for (frame, line) in frames.iter().zip(found.lines()) {
        let (octets, icrc) = frame.datagram.split_last_chunk::<4>().unwrap();
        let packet = Packet::parse(octets).unwrap();
        let mut expected = fields::of_packet(&packet);
        expected.insert("icrc".into(), json!(hex::encode(icrc)));
        for ((field, header, name), found) in FIELDS.into_iter().zip(line.split('\t')) {
            let mut expected = lookup(&expected, header, name).map(ours);
            if name == "compare" && octets[0] == 0x14 {
                // Of a fetch and add it is sent as 0.
                expected = Some(0);
            }
            assert_eq!(theirs(field, found), expected, "{field} of {packet:?}");
        }
        opcodes.insert(octets[0]);
    }
    assert_eq!(found.lines().count(), frames.len());
    assert_eq!(opcodes.len(), (0..=u8::MAX).filter_map(Opcode::from_octet).count());
}

/// A field of ours as tshark has it: the buffer of an atomic operation is that of a RETH.
fn lookup<'a>(fields: &'a Map<String, Value>, header: &str, name: &str) -> Option<&'a Value> {
    match (header, fields.get(header)) {
        ("reth", None) => fields.get("atomiceth")?.get(name),
        (_, Some(header)) if !name.is_empty() => header.get(name),
        (_, header) => header,
    }
}

/// The number of a field of ours: digits are hexadecimal.
fn ours(value: &Value) -> u64 {
    match value {
        Value::Number(number) => number.as_u64().unwrap(),
        Value::String(digits) => u64::from_str_radix(digits, 16).unwrap(),
        other => panic!("not a number: {other}"),
    }
}

/// The number of a field of tshark's, where it has one: digits are hexadecimal with 0x ahead, and
/// where the field is one of octets.
fn theirs(field: &str, text: &str) -> Option<u64> {
    let digits = text.strip_prefix("0x");
    let digits =
        digits.or_else(|| ["infiniband.immdt", "infiniband.ieth"].contains(&field).then_some(text));
    match (text, digits) {
        ("", _) => None,
        (_, Some(digits)) => {
            let number = u64::from_str_radix(digits, 16);
            Some(number.unwrap_or_else(|_| panic!("{field}: {text}")))
        }
        _ => Some(text.parse().unwrap_or_else(|_| panic!("{field}: {text}"))),
    }
}
