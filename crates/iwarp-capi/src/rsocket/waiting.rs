// SPDX-License-Identifier: MIT OR Apache-2.0

//! Calls that wait. A thread sleeps in the C library, where it may be cancelled, and owns nothing
//! meanwhile ([`iwarp_os::cancel`]).

use std::ffi::c_int;
use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use iwarp_os::cancel::wait_cancellable_for;
use iwarp_os::clock;
use iwarp_rsocket::{Direction, Sleep};

use super::table::{self, Entry};
use crate::calls::Call;
use crate::guard::{self, Errno};
use crate::verbs::channel::is_nonblocking;

/// The way in which a call waits. It needs no `Drop`.
#[derive(Clone, Copy)]
pub(super) struct Wait {
    pub(super) direction: Direction,
    pub(super) blocks: Blocks,
    /// The time that options give, if they do.
    pub(super) limit: Limit,
}

/// The calls that wait.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Blocks {
    /// Unless the program has made the descriptor non-blocking.
    Usually,
    /// It has said that it does not (`MSG_DONTWAIT`).
    Never,
    Always,
}

/// The option that limits a wait.
#[derive(Clone, Copy)]
pub(super) enum Limit {
    Receive,
    Send,
    /// Seconds of the call's own, beyond which it goes on without a word.
    Of(Duration),
}

impl Limit {
    fn time(self, entry: &Entry) -> Option<Duration> {
        match self {
            Self::Receive => entry.options().receive_timeout,
            Self::Send => entry.options().send_timeout,
            Self::Of(time) => Some(time),
        }
    }
}

/// The next act of a call.
#[derive(Clone, Copy)]
enum Next<T> {
    Done(T),
    Sleep(Sleep),
    /// The first sleep, and the time at which the call gives up.
    Begin(Sleep, Option<Duration>),
}

/// Has `attempt` try until it does not end with `EAGAIN`, and sleeps between, unless the
/// descriptor is non-blocking. After a signal, or when the time is over, `interrupted` has the
/// last word: the number of bytes that were moved, or the error.
pub(super) fn wait<T: Copy>(
    call: Call<0>,
    number: RawFd,
    how: Wait,
    mut attempt: impl FnMut(&Entry) -> Result<T, Errno>,
    interrupted: impl Fn(Errno) -> Result<T, Errno>,
) -> Result<T, Errno> {
    let mut until: Option<Option<Duration>> = None;
    loop {
        let has_slept = until.is_some();
        let next = guard::call(call.verb(), || step(number, how, has_slept, &mut attempt));
        let sleep = match next {
            Ok(Next::Done(value)) => return Ok(value),
            Ok(Next::Sleep(sleep)) => sleep,
            Ok(Next::Begin(sleep, limit)) => {
                until = Some(limit);
                sleep
            }
            Err(error) => return Err(error),
        };
        let left = until.flatten().map(|until| until.saturating_sub(clock::now()));
        let error = match wait_cancellable_for(sleep.fd, sleep.writable, left) {
            Ok(true) => continue,
            Ok(false) => Errno::plain(libc::EAGAIN),
            Err(error) => Errno::from(error),
        };
        // A last try: it may just have come.
        let last = guard::call(call.verb(), || {
            let entry = table::get(number)?;
            let last = attempt(&entry);
            entry.socket.end_wait();
            last
        });
        return match last {
            Err(last) if last.number() == libc::EAGAIN => interrupted(error),
            last => last,
        };
    }
}

fn step<T>(
    number: RawFd,
    how: Wait,
    has_slept: bool,
    attempt: &mut impl FnMut(&Entry) -> Result<T, Errno>,
) -> Result<Next<T>, Errno> {
    let entry = table::get(number)?;
    loop {
        let result = attempt(&entry);
        match &result {
            Err(error) if error.number() == libc::EAGAIN => {}
            _ => {
                if has_slept {
                    entry.socket.end_wait();
                }
                return result.map(Next::Done);
            }
        }
        let waits = match how.blocks {
            Blocks::Usually => has_slept || !is_nonblocking(number),
            Blocks::Never => false,
            Blocks::Always => true,
        };
        if !waits {
            return result.map(Next::Done);
        }
        let Some(sleep) = entry.socket.prepare_wait(how.direction)? else { continue };
        return Ok(if has_slept {
            Next::Sleep(sleep)
        } else {
            let limit = how.limit.time(&entry).map(|time| clock::now().saturating_add(time));
            Next::Begin(sleep, limit)
        });
    }
}

/// The result of a call that returns 0.
pub(super) fn zero(result: Result<(), Errno>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(error) => {
            guard::set_errno(error.number());
            -1
        }
    }
}

/// The result of a call that returns a number of bytes.
pub(super) fn bytes(result: Result<usize, Errno>) -> isize {
    match result {
        Ok(bytes) => isize::try_from(bytes).unwrap_or(isize::MAX),
        Err(error) => {
            guard::set_errno(error.number());
            -1
        }
    }
}

/// An error of the sockets as one of the C API.
pub(super) fn errno(error: io::Error) -> Errno {
    match error.raw_os_error() {
        // Right programs expect these.
        Some(number) => Errno::plain(number),
        None => Errno::from(error),
    }
}
