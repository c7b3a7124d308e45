// SPDX-License-Identifier: MIT OR Apache-2.0

//! A file to which several processes add, each in whole writes.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Seek};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::{Errno, retry_on_intr, write};
use rustix::process::{Resource, geteuid, getrlimit};

use crate::fd::{FdPlace, OurFd};

/// The time that a pipe may be full, or that other processes may take to open the file.
const PATIENCE: Duration = Duration::from_secs(2);
/// The pause before another try to lock it.
const PAUSE: Duration = Duration::from_millis(1);

/// A file, or a pipe, that is open for adding. A forked child closes its copy at once.
#[derive(Debug)]
pub struct AppendFile {
    fd: OurFd,
}

impl AppendFile {
    /// Opens the file at `path`, which is made if it is not there, for its owner alone. `begin` is
    /// given a regular file, at its start, and says what to add first; processes that do this at
    /// the moment wait for each other. A pipe is for one process at a time.
    ///
    /// # Errors
    ///
    /// As for `open(2)` and [`Self::add`]; the errors of `begin`; `PermissionDenied` for a file of
    /// another user, but root; `WouldBlock` where another process has it locked for 2 s.
    pub fn open(
        path: &Path,
        begin: impl FnOnce(Option<&mut BufReader<&File>>) -> io::Result<Vec<u8>>,
    ) -> io::Result<Self> {
        // A pipe that is open for both never waits for a reader, and no write to it is ended by a
        // signal.
        let mut file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .mode(0o600)
            .custom_flags((OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed())
            .open(path)?;
        let about = file.metadata()?;
        if ![0, geteuid().as_raw()].contains(&about.uid()) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        lock(&file)?;
        let kind = about.file_type();
        if kind.is_fifo() || kind.is_char_device() {
            // Locked as long as it is open.
            let this = Self { fd: FdPlace::Internal.put(file.into()) };
            this.add(&begin(None)?)?;
            return Ok(this);
        }
        file.rewind()?;
        let first = begin(Some(&mut BufReader::new(&file)));
        let added = first.and_then(|first| add(&file, &first));
        // Goes with the file where it fails.
        let _ = flock(&file, FlockOperation::Unlock);
        added?;
        Ok(Self { fd: FdPlace::Internal.put(file.into()) })
    }

    /// True for a regular file of this user's.
    pub fn is_own(path: &Path) -> bool {
        let about = std::fs::symlink_metadata(path);
        about.is_ok_and(|about| about.is_file() && about.uid() == geteuid().as_raw())
    }

    /// Adds all of it at the end, in one write where the system takes it so.
    ///
    /// # Errors
    ///
    /// As for `write(2)`; `TimedOut` where the reader of a pipe takes longer than 2 s;
    /// `FileTooLarge` at the process's limit (`ulimit -f`), where a write would end it.
    pub fn add(&self, octets: &[u8]) -> io::Result<()> {
        add(&self.fd, octets)
    }
}

/// Locks the file for this process, before another does.
fn lock(file: &File) -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match retry_on_intr(|| flock(file, FlockOperation::NonBlockingLockExclusive)) {
            Err(Errno::WOULDBLOCK) if Instant::now() < deadline => std::thread::sleep(PAUSE),
            // Some file systems have no locks: then no other process is expected.
            Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK) => return Ok(()),
            locked => return Ok(locked?),
        }
    }
}

fn add(fd: impl AsFd, octets: &[u8]) -> io::Result<()> {
    if let Some(limit) = getrlimit(Resource::Fsize).current {
        let size = rustix::fs::fstat(&fd)?.st_size;
        if u64::try_from(size).unwrap_or(0).saturating_add(octets.len() as u64) > limit {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
    }
    let deadline = Instant::now() + PATIENCE;
    let mut left = octets;
    while !left.is_empty() {
        match retry_on_intr(|| write(&fd, left)) {
            Ok(written) => left = left.get(written..).unwrap_or_default(),
            Err(Errno::AGAIN) => {
                let rest = deadline.saturating_duration_since(Instant::now());
                let patience = Timespec::try_from(rest).map_err(io::Error::other)?;
                let mut ready = [PollFd::new(&fd, PollFlags::OUT)];
                if retry_on_intr(|| poll(&mut ready, Some(&patience)))? == 0 {
                    return Err(io::ErrorKind::TimedOut.into());
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    fn path(name: &str) -> std::path::PathBuf {
        std::env::temp_dir().join(format!("iwarp-append-{}-{name}", std::process::id()))
    }

    #[test]
    fn several_add_whole_pieces() {
        let path = path("several");
        let begin = |file: Option<&mut BufReader<&File>>| {
            let mut before = String::new();
            file.expect("a regular file").read_to_string(&mut before)?;
            Ok(format!("[{}]", before.len()).into_bytes())
        };
        let first = AppendFile::open(&path, begin).expect("a new file");
        let second = AppendFile::open(&path, begin).expect("a file");
        first.add(b"one ").expect("room");
        second.add(b"two ").expect("room");
        first.add(b"three").expect("room");
        let all = std::fs::read_to_string(&path).expect("text");
        std::fs::remove_file(&path).expect("it is there");
        assert_eq!(all, "[0][3]one two three");
    }

    #[test]
    fn a_refusal_adds_nothing() {
        let path = path("refusal");
        let refuse = |_: Option<&mut BufReader<&File>>| Err(io::ErrorKind::InvalidData.into());
        let error = AppendFile::open(&path, refuse).expect_err("it is refused");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert_eq!(std::fs::read(&path).expect("a file"), b"");
        std::fs::remove_file(&path).expect("it is there");
    }

    #[test]
    fn a_pipe_takes_what_its_reader_gets() {
        let path = path("pipe");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
        let pipe = AppendFile::open(&path, |file| {
            assert!(file.is_none());
            Ok(b"begin ".to_vec())
        });
        let pipe = pipe.expect("it waits for no reader");
        let mut reader = File::open(&path).expect("a pipe");
        pipe.add(b"rest").expect("room");
        let mut room = [0; 10];
        reader.read_exact(&mut room).expect("it is all there");
        assert_eq!(&room, b"begin rest");
        std::fs::remove_file(&path).expect("it is there");
    }
}
