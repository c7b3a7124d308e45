// SPDX-License-Identifier: MIT OR Apache-2.0

//! Captures: all packets of this process in a file that Wireshark and `iwarp explain` read, without
//! the rights that a capture of the system takes.
//!
//! A process has one capture at most, of all its devices. The ports of the system's sockets, and
//! connections within the host, tell it what they have moved; a network that a program brings
//! itself is not in it.
//!
//! ```text
//!   options   the file, and how much goes into it
//!   file      packets on their way to the file
//!   pcapng    its blocks
//!   packet    IP, TCP and UDP headers
//!   frames    units of MPA, each in a packet of its own
//!   stream    the packets of a connection
//!   direct    operations for which nothing is sent
//!   datagram  those of UDP
//! ```

mod datagram;
mod direct;
mod file;
mod frames;
mod options;
mod packet;
mod pcapng;
mod stream;

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use iwarp_os::PerProcess;

pub(crate) use self::datagram::{Datagram, watch_datagrams};
pub(crate) use self::direct::Remote;
pub(crate) use self::file::DELAY;
use self::file::Output;
pub use self::options::{Capture, CaptureError};
pub(crate) use self::stream::{NextUnit, Tap, Watch};

static OUTPUT: PerProcess<OnceLock<Option<Output>>> = PerProcess::new();
/// This process has a capture, or the one that it was forked from.
static ON: AtomicBool = AtomicBool::new(false);
/// The times that it has begun at the request of another process.
static BEGUN: AtomicU32 = AtomicU32::new(0);

/// True if there may be a capture.
#[inline]
pub(crate) fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// Locks what no panic leaves in a state that others could not go on with.
fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// This process's, if it has one.
fn output() -> Option<&'static Output> {
    OUTPUT.get().get()?.as_ref()
}

/// Begins a capture, and says whether there is one. A process that has one keeps it. Where the file
/// cannot be had, a line says so, and the program goes on without.
pub(crate) fn begin(capture: &Capture) -> bool {
    let output = OUTPUT.get().get_or_init(|| match Output::open(capture.clone()) {
        Ok(output) => {
            ON.store(true, Ordering::Relaxed);
            tracing::info!(file = %capture.file.display(), "captures all packets");
            Some(output)
        }
        Err(error) => {
            let file = capture.file.display();
            let why = match error.kind() {
                io::ErrorKind::InvalidData => "it holds something else than a capture of this \
                                               library; remove it or name another"
                    .to_owned(),
                io::ErrorKind::PermissionDenied if error.raw_os_error().is_none() => {
                    "it is another user's".to_owned()
                }
                io::ErrorKind::WouldBlock => {
                    "another process has it locked; a pipe is for one process".to_owned()
                }
                _ => error.to_string(),
            };
            tracing::error!(%file, %why, "no capture: the file cannot be written");
            None
        }
    });
    output.is_some()
}

/// Has packets written by `later`: called when the first one waits, and to have [`write_out`]
/// called after [`DELAY`]. It says whether it could.
pub(crate) fn write_later_by(later: impl Fn() -> bool + Send + Sync + 'static) {
    if is_on()
        && let Some(output) = output()
    {
        output.write_later_by(later);
    }
}

/// Goes on with a capture that was ended, or begins one; at the request of another process.
///
/// # Errors
///
/// From the system; `AlreadyExists` where there is one to another file.
pub(crate) fn begin_later(capture: &Capture) -> io::Result<()> {
    let slot = OUTPUT.get();
    if let Some(output) = slot.get() {
        let is_same = output.as_ref().is_some_and(|output| output.is(capture));
        if !is_same {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
    } else {
        let output = Output::open(capture.clone())?;
        if slot.set(Some(output)).is_err() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
    }
    BEGUN.fetch_add(1, Ordering::Relaxed);
    ON.store(true, Ordering::Release);
    Ok(())
}

/// To be asked by one who has found that there is a capture.
fn begun() -> u32 {
    // The count was changed before.
    fence(Ordering::Acquire);
    BEGUN.load(Ordering::Relaxed)
}

/// Ends the capture for now.
pub(crate) fn end() {
    write_out();
    ON.store(false, Ordering::Relaxed);
}

/// A comment for the packet that is captured next.
pub(crate) fn remark(text: fmt::Arguments<'_>) {
    if is_on()
        && let Some(output) = output()
    {
        output.remark(text);
    }
}

/// Writes the packets that wait.
pub(crate) fn write_out() {
    if is_on()
        && let Some(output) = output()
    {
        output.write_out();
    }
}
