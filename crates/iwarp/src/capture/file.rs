// SPDX-License-Identifier: MIT OR Apache-2.0

//! The file of a capture, and the packets that are on their way to it.
//!
//! Packets gather in memory, so that one costs a copy and no system call. They are written when
//! there are many, when the device is asked to, and when the process exits. A process that is
//! killed loses those of the last moment ([`DELAY`]).

use std::fmt;
use std::io;
use std::path::Path;
use std::process;
use std::sync::Mutex;
use std::time::Duration;

use iwarp_os::AppendFile;

use super::pcapng::{self, About, Texts};
use super::{Capture, lock};

/// The time for which packets wait to be written.
pub(crate) const DELAY: Duration = Duration::from_millis(100);
/// Bytes of packets that wait before they are written at once, and at most.
const MANY: usize = 256 << 10;
const MOST_WAITING: usize = 4 << 20;
/// Comments of a packet at most.
const MOST_REMARKS: usize = 32;

/// The networks that packets are of: each has an interface in the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Medium {
    Stream,
    Datagrams,
    /// Memory that two processes of one host share.
    Memory,
}

/// Called when the first packet waits, to have [`Output::write_out`] called after [`DELAY`]. False
/// where that is not possible any more.
type Later = Box<dyn Fn() -> bool + Send + Sync>;

/// See the [module](self).
pub(super) struct Output {
    capture: Capture,
    waiting: Mutex<Waiting>,
    /// Locked before the packets that wait, and while they are written.
    file: Mutex<Written>,
    /// Held while datagrams are moved.
    pub(super) datagrams: Mutex<()>,
}

/// Packets that are on their way to the file.
struct Waiting {
    /// The number of the first interface in the file.
    first: u32,
    packets: Vec<u8>,
    /// For the next packet.
    remarks: Texts,
    /// Packets and remarks for which there was no room.
    lost: usize,
    left_out: usize,
    /// The latest of several devices comes last.
    later: Vec<Later>,
    /// The file cannot be written any more.
    is_over: bool,
}

/// The file, its number in the ring, and the bytes in it.
struct Written {
    file: AppendFile,
    number: u32,
    octets: u64,
}

impl fmt::Debug for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Output").field("capture", &self.capture).finish_non_exhaustive()
    }
}

impl Output {
    /// Opens the file.
    ///
    /// # Errors
    ///
    /// From the system; `InvalidData` where it holds something else than a capture of one section;
    /// `PermissionDenied` where it is another user's.
    pub(super) fn open(mut capture: Capture) -> io::Result<Self> {
        // The program may go to another directory.
        capture.file = std::path::absolute(&capture.file)?;
        if capture.ring.is_some() {
            // Left by a process of that number before.
            remove_own(&capture.name(0));
        }
        let (file, first) = begin(&capture, 0)?;
        let waiting = Waiting {
            first,
            packets: Vec::new(),
            remarks: Texts::default(),
            lost: 0,
            left_out: 0,
            later: Vec::new(),
            is_over: false,
        };
        Ok(Self {
            capture,
            waiting: Mutex::new(waiting),
            file: Mutex::new(Written { file, number: 0, octets: 0 }),
            datagrams: Mutex::default(),
        })
    }

    /// True if it is that capture.
    pub(super) fn is(&self, capture: &Capture) -> bool {
        self.capture == *capture
    }

    pub(super) const fn snap(&self) -> usize {
        self.capture.snap as usize
    }

    /// Has packets that wait written by this.
    pub(super) fn write_later_by(&self, later: impl Fn() -> bool + Send + Sync + 'static) {
        lock(&self.waiting).later.push(Box::new(later));
    }

    /// A comment for the next packet.
    pub(super) fn remark(&self, text: fmt::Arguments<'_>) {
        let mut waiting = lock(&self.waiting);
        if waiting.is_over {
            return;
        }
        if waiting.remarks.len() < MOST_REMARKS {
            waiting.remarks.push(text);
        } else {
            waiting.left_out += 1;
        }
    }

    /// Adds a packet.
    pub(super) fn add(&self, medium: Medium, about: About<'_>, fill: impl FnOnce(&mut Vec<u8>)) {
        let mut guard = lock(&self.waiting);
        let waiting = &mut *guard;
        if waiting.is_over {
            return;
        }
        // A file that is slow, or a host without memory, must not hold the program up.
        let is_full = waiting.packets.len() >= MOST_WAITING;
        if is_full || waiting.packets.try_reserve(usize::from(u16::MAX) + 16_384).is_err() {
            waiting.lost += 1;
            return;
        }
        let remarks = &mut waiting.remarks;
        about.comments.iter().for_each(|comment| remarks.push(format_args!("{comment}")));
        if std::mem::take(&mut waiting.left_out) > 0 {
            remarks.push(format_args!("further requests and completions are left out"));
        }
        let lost = std::mem::take(&mut waiting.lost);
        if lost > 0 {
            remarks.push(format_args!(
                "{lost} packets before this are left out: the file was too slow"
            ));
        }
        let interface = waiting.first + medium as u32;
        let about = About { interface, ..about };
        let was_empty = waiting.packets.is_empty();
        pcapng::packet(&mut waiting.packets, &about, remarks, fill);
        remarks.clear();
        if was_empty {
            // A device that is gone says no.
            while let Some(later) = waiting.later.last()
                && !later()
            {
                waiting.later.pop();
            }
        }
        let is_due = waiting.packets.len() >= MANY || waiting.later.is_empty();
        drop(guard);
        if is_due {
            self.write_if_free();
        }
    }

    /// Writes the packets that wait, unless another thread does.
    fn write_if_free(&self) {
        if let Ok(mut file) = self.file.try_lock() {
            self.write(&mut file);
        }
    }

    /// Writes the packets that wait.
    pub(super) fn write_out(&self) {
        self.write(&mut lock(&self.file));
    }

    fn write(&self, file: &mut Written) {
        let mut packets = std::mem::take(&mut lock(&self.waiting).packets);
        if packets.is_empty() {
            return;
        }
        let done = self.rotate(file).and_then(|()| file.file.add(&packets));
        file.octets += packets.len() as u64;
        packets.clear();
        let mut waiting = lock(&self.waiting);
        if waiting.packets.is_empty() {
            // Its room is used again.
            waiting.packets = packets;
        }
        let Err(error) = done else { return };
        waiting.is_over = true;
        waiting.packets = Vec::new();
        drop(waiting);
        let file = self.capture.file.display();
        tracing::error!(%file, %error, "the capture ends here: the file cannot be written");
    }

    /// Goes on with the next file of the ring where this one is full.
    fn rotate(&self, file: &mut Written) -> io::Result<()> {
        let Some((files, size)) = self.capture.ring.filter(|(_, size)| file.octets >= *size) else {
            return Ok(());
        };
        debug_assert!(size > 0 && files > 1);
        file.number = (file.number + 1) % files;
        file.octets = 0;
        remove_own(&self.capture.name(file.number));
        let (next, first) = begin(&self.capture, file.number)?;
        file.file = next;
        debug_assert_eq!(first, lock(&self.waiting).first, "each file has the interfaces of one");
        Ok(())
    }
}

/// Removes a file of this user's.
fn remove_own(path: &Path) {
    if AppendFile::is_own(path) {
        // One that stays is added to.
        let _ = std::fs::remove_file(path);
    }
}

/// Opens a file and adds the interfaces of this process; the number of the first.
fn begin(capture: &Capture, number: u32) -> io::Result<(AppendFile, u32)> {
    let mut first = 0;
    let file = AppendFile::open(&capture.name(number), |file| {
        let before = file.map(pcapng::interfaces).transpose()?.flatten();
        let mut octets = Vec::new();
        if before.is_none() {
            let version = env!("CARGO_PKG_VERSION");
            pcapng::section(&mut octets, &format!("iwarp {version}, in the process itself"));
        }
        first = before.unwrap_or(0);
        let pid = process::id();
        for (name, network) in [
            ("tcp", "TCP"),
            ("udp", "UDP"),
            ("memory", "shared memory of the host, as the FPDUs that it stands for"),
        ] {
            let (name, network) = (format!("{name}-{pid}"), format!("{network}, process {pid}"));
            pcapng::interface(&mut octets, &name, &network, capture.snap);
        }
        Ok(octets)
    })?;
    Ok((file, first))
}
