// SPDX-License-Identifier: MIT OR Apache-2.0

//! The file of a capture and what goes into it, as users say it.

use std::path::PathBuf;
use std::process;
use std::str::FromStr;

/// A capture of all packets of a process: where it goes and how much of each it has.
///
/// ```
/// use iwarp::Capture;
///
/// let capture: Capture = "/tmp/rdma-%p.pcapng,snap=128,ring=4x10M".parse()?;
/// assert_eq!((capture.snap, capture.ring), (128, Some((4, 10 << 20))));
/// # Ok::<(), iwarp::CaptureError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct Capture {
    /// Name of the file, a pcapng. `%p` stands for the number of the process; without it several
    /// processes, such as forked children, add to one file.
    pub file: PathBuf,
    /// Bytes of a packet that are kept at most, from its IP header on.
    pub snap: u32,
    /// Keep so many files, at least two, of about so many bytes each, of which the oldest is
    /// replaced. Each process then has files of its own: a `.%p` is added to a name without it, and
    /// a number to each.
    pub ring: Option<(u32, u64)>,
}

/// A text describes no capture.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("expected {}", Capture::EXPECTED)]
pub struct CaptureError;

impl Capture {
    /// The longest packet, which no snap length cuts.
    pub const WHOLE: u32 = 65_535;
    /// The shortest snap length: IPv6, TCP, and the headers of an FPDU.
    pub const LEAST_SNAP: u32 = 96;

    pub(crate) const EXPECTED: &str = "a file name, behind which ,snap=BYTES (at least 96) and \
                                       ,ring=FILESxSIZE may follow: /tmp/rdma-%p.pcapng,snap=128";

    /// Whole packets, in this file.
    pub fn to(file: impl Into<PathBuf>) -> Self {
        Self { file: file.into(), snap: Self::WHOLE, ring: None }
    }

    iwarp_types::setters! {
        snap: u32,
        into ring: Option<(u32, u64)>,
    }

    /// The name of the file with this number, of this process.
    pub(super) fn name(&self, number: u32) -> PathBuf {
        let mut name = self.file.to_string_lossy().into_owned();
        if self.ring.is_some() && !name.contains("%p") {
            name.push_str(".%p");
        }
        if name.contains("%p") {
            name = name.replace("%p", &process::id().to_string());
        } else if self.ring.is_none() {
            // Not by way of a text, which not all names are.
            return self.file.clone();
        }
        if self.ring.is_some() {
            name.push_str(&format!(".{number}"));
        }
        name.into()
    }
}

impl FromStr for Capture {
    type Err = CaptureError;

    fn from_str(text: &str) -> Result<Self, CaptureError> {
        // A name may have commas of its own.
        let end = [",snap=", ",ring="].iter().filter_map(|word| text.find(word)).min();
        let (file, words) = text.split_at(end.unwrap_or(text.len()));
        if file.is_empty() {
            return Err(CaptureError);
        }
        let mut capture = Self::to(file);
        for word in words.split(',').skip(1) {
            match word.split_once('=').ok_or(CaptureError)? {
                ("snap", octets) => {
                    let octets = octets.parse().map_err(|_| CaptureError)?;
                    if !(Self::LEAST_SNAP..=Self::WHOLE).contains(&octets) {
                        return Err(CaptureError);
                    }
                    capture.snap = octets;
                }
                ("ring", ring) => {
                    let (files, size) = ring.split_once('x').ok_or(CaptureError)?;
                    let files = files.parse().ok().filter(|files| *files > 1);
                    let size = size_of_text(size).filter(|size| *size > 0);
                    capture.ring = Some(files.zip(size).ok_or(CaptureError)?);
                }
                _ => return Err(CaptureError),
            }
        }
        Ok(capture)
    }
}

/// The bytes of a text such as `10M`.
fn size_of_text(text: &str) -> Option<u64> {
    let shift = match text.chars().last()? {
        'K' | 'k' => 10,
        'M' | 'm' => 20,
        'G' | 'g' => 30,
        _ => return text.parse().ok(),
    };
    text[..text.len() - 1].parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_say_captures() {
        let parse = |text: &str| text.parse::<Capture>();
        assert_eq!(parse("a.pcapng"), Ok(Capture::to("a.pcapng")));
        assert_eq!(parse("a,b.pcapng"), Ok(Capture::to("a,b.pcapng")));
        assert_eq!(parse("a,snap=128"), Ok(Capture::to("a").snap(128)));
        assert_eq!(parse("a,ring=4x10M"), Ok(Capture::to("a").ring((4, 10 << 20))));
        for wrong in ["", ",snap=128", "a,snap=95", "a,snap=65536", "a,snap=96,b=1", "a,ring=4"] {
            assert_eq!(parse(wrong), Err(CaptureError), "{wrong}");
        }
        for wrong in
            ["a,ring=0x1M", "a,ring=1x1M", "a,ring=2x0", "a,ring=2x1T", "a,ring=2x99999999999G"]
        {
            assert_eq!(parse(wrong), Err(CaptureError), "{wrong}");
        }
    }

    #[test]
    fn names_are_of_the_process_where_that_is_asked_for() {
        let pid = process::id();
        assert_eq!(Capture::to("a.pcapng").name(0), PathBuf::from("a.pcapng"));
        assert_eq!(Capture::to("a-%p.pcapng").name(0), PathBuf::from(format!("a-{pid}.pcapng")));
        let ring = Capture::to("a").ring((2, 1));
        assert_eq!(ring.name(1), PathBuf::from(format!("a.{pid}.1")));
    }
}
