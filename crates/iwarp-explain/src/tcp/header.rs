// SPDX-License-Identifier: MIT OR Apache-2.0

//! TCP headers.

/// A TCP segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment<'a> {
    pub(crate) source_port: u16,
    pub(crate) destination_port: u16,
    pub(crate) seq: u32,
    pub(crate) ack: Option<u32>,
    pub(crate) syn: bool,
    pub(crate) fin: bool,
    pub(crate) rst: bool,
    pub(crate) window: u16,
    /// Shift of the windows that the sender announces, in a SYN.
    pub(crate) scale: Option<u8>,
    /// Maximum segment size, in a SYN.
    pub(crate) mss: Option<u16>,
    /// The payload that was kept.
    pub(crate) payload: &'a [u8],
    /// The bytes of payload that it had.
    pub(crate) length: usize,
}

const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;

/// Reads a segment of `total` bytes, of which `data` were kept.
pub(crate) fn parse(data: &[u8], total: usize) -> Option<Segment<'_>> {
    let header: &[u8; 20] = data.first_chunk()?;
    let header_len = usize::from(header[12] >> 4) * 4;
    if header_len < 20 || header_len > total {
        return None;
    }
    let half = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let word = |at: usize| u32::from(half(at)) << 16 | u32::from(half(at + 2));
    let flags = header[13];
    let (mut scale, mut mss) = (None, None);
    if flags & SYN != 0 {
        let options = data.get(20..header_len.min(data.len())).unwrap_or_default();
        (scale, mss) = syn_options(options);
    }
    Some(Segment {
        source_port: half(0),
        destination_port: half(2),
        seq: word(4),
        ack: (flags & ACK != 0).then(|| word(8)),
        syn: flags & SYN != 0,
        fin: flags & FIN != 0,
        rst: flags & RST != 0,
        window: half(14),
        scale,
        mss,
        payload: data.get(header_len..).unwrap_or_default(),
        length: total - header_len,
    })
}

fn syn_options(mut options: &[u8]) -> (Option<u8>, Option<u16>) {
    const END: u8 = 0;
    const NOTHING: u8 = 1;
    const MSS: u8 = 2;
    const SCALE: u8 = 3;
    let (mut scale, mut mss) = (None, None);
    loop {
        match options {
            [] | [END, ..] => return (scale, mss),
            [NOTHING, rest @ ..] => options = rest,
            [kind, length, ..] => {
                let Some((option, rest)) = options.split_at_checked((*length).max(2).into()) else {
                    return (scale, mss);
                };
                match (*kind, option) {
                    (SCALE, [_, _, shift]) => scale = Some((*shift).min(14)),
                    (MSS, [_, _, high, low]) => mss = Some(u16::from_be_bytes([*high, *low])),
                    _ => {}
                }
                options = rest;
            }
            [_] => return (scale, mss),
        }
    }
}
