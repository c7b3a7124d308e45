// SPDX-License-Identifier: MIT OR Apache-2.0

//! Blocks of a pcapng file, in the order of bytes of x86-64 whichever the processor's is.

use std::fmt::{self, Write as _};
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::time::{SystemTime, UNIX_EPOCH};

const SECTION: u32 = 0x0a0d_0d0a;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
const INTERFACE: u32 = 1;
const PACKET: u32 = 6;

/// "Raw IP": packets begin with their IP header.
const LINKTYPE_RAW: u16 = 101;

const COMMENT: u16 = 1;
const IF_NAME: u16 = 2;
const IF_DESCRIPTION: u16 = 3;
const IF_TSRESOL: u16 = 9;
const PACKET_FLAGS: u16 = 2;
const NANOSECONDS: u8 = 9;

/// Bytes of a block's type and length.
const HEAD: usize = 8;

/// Appends a block whose body `fill` appends.
fn block(to: &mut Vec<u8>, kind: u32, fill: impl FnOnce(&mut Vec<u8>)) {
    let begin = to.len();
    to.extend(kind.to_le_bytes());
    to.extend([0; 4]);
    fill(to);
    pad(to, begin);
    let len = (to.len() - begin + 4) as u32;
    to[begin + 4..begin + HEAD].copy_from_slice(&len.to_le_bytes());
    to.extend(len.to_le_bytes());
}

fn pad(to: &mut Vec<u8>, begin: usize) {
    let len = to.len() - begin;
    to.resize(begin + len.next_multiple_of(4), 0);
}

fn option(to: &mut Vec<u8>, code: u16, value: &[u8]) {
    let value = &value[..value.len().min(u16::MAX.into())];
    to.extend(code.to_le_bytes());
    to.extend((value.len() as u16).to_le_bytes());
    let begin = to.len();
    to.extend(value);
    pad(to, begin);
}

fn end_of_options(to: &mut Vec<u8>) {
    option(to, 0, &[]);
}

/// Appends the block that every file begins with.
pub(super) fn section(to: &mut Vec<u8>, comment: &str) {
    block(to, SECTION, |body| {
        body.extend(BYTE_ORDER.to_le_bytes());
        body.extend([1, 0, 0, 0]);
        body.extend(u64::MAX.to_le_bytes());
        option(body, COMMENT, comment.as_bytes());
        end_of_options(body);
    });
}

/// Appends the description of an interface; the next number in the file is its.
pub(super) fn interface(to: &mut Vec<u8>, name: &str, description: &str, snap: u32) {
    block(to, INTERFACE, |body| {
        body.extend(LINKTYPE_RAW.to_le_bytes());
        body.extend([0; 2]);
        body.extend(snap.to_le_bytes());
        option(body, IF_NAME, name.as_bytes());
        option(body, IF_DESCRIPTION, description.as_bytes());
        option(body, IF_TSRESOL, &[NANOSECONDS]);
        end_of_options(body);
    });
}

/// Texts one behind the other, whose room is used again.
#[derive(Debug, Default)]
pub(super) struct Texts {
    all: String,
    ends: Vec<usize>,
}

impl Texts {
    pub(super) const fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn push(&mut self, text: fmt::Arguments<'_>) {
        // A text itself never fails.
        let _ = self.all.write_fmt(text);
        self.ends.push(self.all.len());
    }

    pub(super) fn clear(&mut self) {
        self.all.clear();
        self.ends.clear();
    }

    fn iter(&self) -> impl Iterator<Item = &str> {
        let begins = std::iter::once(0).chain(self.ends.iter().copied());
        begins.zip(&self.ends).map(|(begin, end)| &self.all[begin..*end])
    }
}

/// The facts of a packet beside its bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct About<'a> {
    pub(super) interface: u32,
    pub(super) at: SystemTime,
    pub(super) sent: bool,
    /// Bytes that it had.
    pub(super) len: usize,
    /// For [`super::file::Output::add`], which puts them behind others.
    pub(super) comments: &'a [String],
}

/// Appends a packet, whose bytes, or the first of them, `fill` appends, with these comments.
pub(super) fn packet(
    to: &mut Vec<u8>,
    about: &About<'_>,
    comments: &Texts,
    fill: impl FnOnce(&mut Vec<u8>),
) {
    let since = about.at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let nanos = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
    block(to, PACKET, |body| {
        let words = [about.interface, (nanos >> 32) as u32, nanos as u32, 0, about.len as u32];
        let mut fields = [0; 20];
        for (field, word) in fields.chunks_exact_mut(4).zip(words) {
            field.copy_from_slice(&word.to_le_bytes());
        }
        body.extend_from_slice(&fields);
        let begin = body.len();
        fill(body);
        let kept = (body.len() - begin) as u32;
        body[begin - 8..begin - 4].copy_from_slice(&kept.to_le_bytes());
        pad(body, begin);
        for comment in comments.iter() {
            option(body, COMMENT, comment.as_bytes());
        }
        let direction: u32 = if about.sent { 2 } else { 1 };
        option(body, PACKET_FLAGS, &direction.to_le_bytes());
        end_of_options(body);
    });
}

/// The number of interfaces that a file describes; `None` for an empty one.
///
/// # Errors
///
/// `InvalidData` for something else than a pcapng of one section, in this order of bytes.
pub(super) fn interfaces<R: Read + Seek>(file: &mut BufReader<R>) -> io::Result<Option<u32>> {
    let mut found = 0;
    let mut at = 0;
    loop {
        let mut head = [0; HEAD];
        match file.read_exact(&mut head) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return match at {
                    0 if file.seek(SeekFrom::End(0))? == 0 => Ok(None),
                    0 => Err(io::ErrorKind::InvalidData.into()),
                    _ => Ok(Some(found)),
                };
            }
            Err(error) => return Err(error),
        }
        let word =
            |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (kind, len) = (word(0), u64::from(word(4)));
        if len < 12 || len % 4 != 0 || (at == 0) != (kind == SECTION) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        found += u32::from(kind == INTERFACE);
        at += len;
        // Within what was read already, mostly.
        file.seek_relative((len - HEAD as u64).cast_signed())?;
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    #[test]
    fn interfaces_are_counted() {
        let mut file = Vec::new();
        assert_eq!(interfaces(&mut BufReader::new(Cursor::new(&file))).unwrap(), None);
        section(&mut file, "a comment");
        assert_eq!(interfaces(&mut BufReader::new(Cursor::new(&file))).unwrap(), Some(0));
        interface(&mut file, "one", "first", 128);
        let about = About { interface: 0, at: UNIX_EPOCH, sent: true, len: 7, comments: &[] };
        let mut comments = Texts::default();
        comments.push(format_args!("number {}", 1));
        comments.push(format_args!("the second"));
        packet(&mut file, &about, &comments, |body| body.extend([1, 2, 3]));
        for comment in [&b"\x01\0\x08\0number 1"[..], b"\x01\0\x0a\0the second\0\0"] {
            assert!(file.windows(comment.len()).any(|part| part == comment), "{file:?}");
        }
        interface(&mut file, "two", "second", 128);
        assert_eq!(interfaces(&mut BufReader::new(Cursor::new(&file))).unwrap(), Some(2));
        assert_eq!(file.len() % 4, 0);
    }

    #[test]
    fn other_files_are_refused() {
        for other in [&b"text"[..], b"a longer text than the head of a block", &[0; 64]] {
            let error = interfaces(&mut BufReader::new(Cursor::new(other))).expect_err("no pcapng");
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        }
    }
}
