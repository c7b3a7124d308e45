// SPDX-License-Identifier: MIT OR Apache-2.0

//! Packets out of a pcap or pcapng file.

use std::io::{self, Read};
use std::time::Duration;

use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::PcapNgReader;
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionOption;
use pcap_file::{Endianness, PcapError, TsResolution};
use thiserror::Error;

/// The reason that a file cannot be explained.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FileError {
    /// The system cannot read it.
    #[error("it cannot be read: {0}")]
    Io(#[from] io::Error),
    /// It has no content.
    #[error(
        "it is empty; a capture that was just begun has no packets until tcpdump writes them (-U)"
    )]
    Empty,
    /// It is compressed.
    #[error(
        "it is compressed ({0}); unpack it first, or pipe it in: {0} -dc FILE | iwarp explain -"
    )]
    Compressed(&'static str),
    /// It is of another kind.
    #[error(
        "it is not a capture: it begins with {0}, and a pcap or pcapng file does not. Write one with \
         tcpdump -w FILE, or with Wireshark"
    )]
    Other(String),
    /// Its head is damaged.
    #[error("its head is damaged: {0}")]
    Damaged(String),
}

/// A packet of a capture.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Captured<'a> {
    /// Its number in the file, from 1 on, as Wireshark counts.
    pub(crate) number: u64,
    /// Its time, from an origin of the file's own.
    pub(crate) at: Duration,
    /// The number of its link layer.
    pub(crate) link: u32,
    /// The bytes that were kept.
    pub(crate) data: &'a [u8],
    /// The bytes that it had.
    pub(crate) length: usize,
    /// The process that has captured its own packets, of which this is one.
    pub(crate) process: Option<u32>,
}

const PCAP: [[u8; 4]; 4] = [
    [0xa1, 0xb2, 0xc3, 0xd4],
    [0xd4, 0xc3, 0xb2, 0xa1],
    [0xa1, 0xb2, 0x3c, 0x4d],
    [0x4d, 0x3c, 0xb2, 0xa1],
];
const PCAPNG: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const XZ: [u8; 4] = [0xfd, b'7', b'z', b'X'];

/// Hands each packet to `each`. Returns a text about damage that ended the reading early.
pub(crate) fn read(
    mut input: impl Read,
    each: &mut dyn FnMut(Captured<'_>),
) -> Result<Option<String>, FileError> {
    let mut magic = Vec::new();
    input.by_ref().take(4).read_to_end(&mut magic)?;
    let begins: [u8; 4] = match magic.as_slice().try_into() {
        Ok(begins) => begins,
        Err(_) if magic.is_empty() => return Err(FileError::Empty),
        Err(_) => return Err(FileError::Other(shown(&magic))),
    };
    let whole = io::Cursor::new(magic).chain(input);
    match begins {
        PCAPNG => pcapng(whole, each),
        _ if PCAP.contains(&begins) => pcap(whole, each),
        ZSTD => Err(FileError::Compressed("zstd")),
        XZ => Err(FileError::Compressed("xz")),
        [a, b, ..] if [a, b] == GZIP => Err(FileError::Compressed("gzip")),
        _ => Err(FileError::Other(shown(&begins))),
    }
}

fn shown(bytes: &[u8]) -> String {
    let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    hex.join(" ")
}

fn pcap(input: impl Read, each: &mut dyn FnMut(Captured<'_>)) -> Result<Option<String>, FileError> {
    let mut reader = PcapReader::new(input).map_err(head)?;
    let header = reader.header();
    let unit: u32 = if header.ts_resolution == TsResolution::MicroSecond { 1000 } else { 1 };
    let link = u32::from(header.datalink) & 0xffff;
    let mut number = 0;
    // Raw ones: the crate refuses packets that a snap length has cut.
    while let Some(next) = reader.next_raw_packet() {
        let packet = match next {
            Ok(packet) => packet,
            Err(error) => return damage(error, number),
        };
        number += 1;
        let at = Duration::from_secs(packet.ts_sec.into())
            + Duration::from_nanos(u64::from(packet.ts_frac) * u64::from(unit));
        let length = (packet.orig_len as usize).max(packet.data.len());
        each(Captured { number, at, link, data: &packet.data, length, process: None });
    }
    Ok(None)
}

/// The units of time of a pcapng interface, and what else it says of its packets.
#[derive(Clone, Copy)]
struct Clock {
    link: u32,
    resolution: u8,
    offset: u64,
    snap: usize,
    process: Option<u32>,
}

impl Clock {
    fn time(&self, ticks: u64) -> Duration {
        let exponent = u32::from(self.resolution & 0x7f);
        let per_second = match self.resolution & 0x80 {
            0 => 10_u128.checked_pow(exponent),
            _ => 2_u128.checked_pow(exponent),
        };
        let nanos = u128::from(ticks)
            .checked_mul(1_000_000_000)
            .zip(per_second)
            .map_or(0, |(nanos, per_second)| nanos / per_second);
        let nanos = u64::try_from(nanos).unwrap_or(u64::MAX);
        Duration::from_nanos(nanos).saturating_add(Duration::from_secs(self.offset))
    }
}

const INTERFACE: u32 = 1;
const OBSOLETE_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;

fn pcapng(
    input: impl Read,
    each: &mut dyn FnMut(Captured<'_>),
) -> Result<Option<String>, FileError> {
    let mut reader = PcapNgReader::new(input).map_err(head)?;
    let mut number = 0;
    let mut clocks: Vec<Clock> = Vec::new();
    let mut last = Duration::ZERO;
    loop {
        let endianness = reader.section().endianness;
        let (kind, body) = match reader.next_raw_block() {
            None => return Ok(None),
            Some(Ok(block)) => (block.type_, block.body.into_owned()),
            Some(Err(error)) => return damage(error, number),
        };
        let word = |at: usize| word(&body, at, endianness);
        let (clock, at, from, kept, length) = match kind {
            INTERFACE => {
                // A new section has begun where the reader knows fewer interfaces than before.
                clocks = reader.interfaces().iter().map(clock).collect();
                continue;
            }
            ENHANCED_PACKET | OBSOLETE_PACKET => {
                let fields = (word(0), word(4), word(8), word(12), word(16));
                let (Some(id), Some(high), Some(low), Some(kept), Some(length)) = fields else {
                    continue;
                };
                let id = match (kind, endianness) {
                    (ENHANCED_PACKET, _) => id,
                    // The second half of the word counts drops.
                    (_, Endianness::Big) => id >> 16,
                    (_, Endianness::Little) => id & 0xffff,
                };
                let Some(clock) = clocks.get(id as usize) else { continue };
                let at = clock.time(u64::from(high) << 32 | u64::from(low));
                (*clock, at, 20, kept as usize, length as usize)
            }
            SIMPLE_PACKET => {
                let (Some(length), Some(clock)) = (word(0), clocks.first()) else { continue };
                let snap = if clock.snap == 0 { usize::MAX } else { clock.snap };
                (*clock, last, 4, (length as usize).min(snap), length as usize)
            }
            _ => continue,
        };
        number += 1;
        last = at;
        let data = body.get(from..).unwrap_or_default();
        let data = &data[..kept.min(data.len())];
        let length = length.max(data.len());
        let Clock { link, process, .. } = clock;
        each(Captured { number, at, link, data, length, process });
    }
}

fn clock(
    interface: &pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionBlock<'_>,
) -> Clock {
    let mut clock = Clock {
        link: u32::from(interface.linktype) & 0xffff,
        resolution: 6,
        offset: 0,
        snap: interface.snaplen as usize,
        process: None,
    };
    for option in &interface.options {
        match option {
            InterfaceDescriptionOption::IfTsResol(resolution) => clock.resolution = *resolution,
            InterfaceDescriptionOption::IfTsOffset(offset) => clock.offset = *offset,
            InterfaceDescriptionOption::IfName(name) => clock.process = process(name),
            _ => {}
        }
    }
    clock
}

/// The process whose own packets an interface of this name has: `tcp-4711` in captures of
/// [iwarp](https://docs.rs/iwarp).
fn process(name: &str) -> Option<u32> {
    let (network, process) = name.split_once('-')?;
    ["tcp", "udp", "memory"].contains(&network).then_some(process)?.parse().ok()
}

fn word(body: &[u8], at: usize, endianness: Endianness) -> Option<u32> {
    let octets: [u8; 4] = body.get(at..at.checked_add(4)?)?.try_into().ok()?;
    Some(match endianness {
        Endianness::Big => u32::from_be_bytes(octets),
        Endianness::Little => u32::from_le_bytes(octets),
    })
}

fn head(error: PcapError) -> FileError {
    FileError::Damaged(error.to_string())
}

/// The text about damage behind packet `number`.
fn damage(error: PcapError, number: u64) -> Result<Option<String>, FileError> {
    match error {
        PcapError::IoError(error) if error.kind() != io::ErrorKind::UnexpectedEof => {
            Err(FileError::Io(error))
        }
        PcapError::IoError(_) | PcapError::IncompleteBuffer => Ok(Some(format!(
            "The file ends within a packet, behind packet {number}: the capture was cut off."
        ))),
        error => Ok(Some(format!("The file is damaged behind packet {number}: {error}."))),
    }
}
