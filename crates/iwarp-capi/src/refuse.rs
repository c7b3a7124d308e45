// SPDX-License-Identifier: MIT OR Apache-2.0

//! Refusals: an error number, and a sentence that says why.
//!
//! An [`Errno`] with one of the numbers that mean a mistake is made by [`refuse!`] or [`decline!`],
//! which want the sentence. The boundary ([`crate::guard`]) puts the verb before it. A place that
//! refuses writes a line at the level `warn` the first time, as the program cannot have meant it,
//! and at `info` from then on; one that declines writes at `info` only, as programs try what is
//! there.

use std::cell::Cell;
use std::ffi::c_int;
use std::fmt::Arguments;
use std::io;
use std::num::NonZero;
use std::sync::atomic::{AtomicBool, Ordering};

use iwarp::Log;
use iwarp::report::Throttle;

use crate::log::{self, Once};

/// An error number of the system, and why the call ends with it.
#[derive(Debug)]
pub struct Errno {
    number: NonZero<c_int>,
    why: Option<Box<Why>>,
}

#[derive(Debug)]
struct Why {
    level: Log,
    text: String,
}

/// The reason does not count.
impl PartialEq for Errno {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Errno {}

impl Errno {
    /// A number that needs no words: a right program expects it, or it is explained elsewhere.
    pub fn plain(number: c_int) -> Self {
        Self { number: NonZero::new(number).unwrap_or(NO_NUMBER), why: None }
    }

    /// The number, as `errno` has it.
    pub const fn number(&self) -> c_int {
        self.number.get()
    }

    /// As it is, with another number.
    pub(crate) fn with_number(self, number: c_int) -> Self {
        Self { why: self.why, ..Self::plain(number) }
    }

    /// True where there is something to say.
    pub(crate) const fn is_explained(&self) -> bool {
        self.why.is_some()
    }

    /// Writes why, once, for the function of this name.
    #[cold]
    pub(crate) fn say(&mut self, verb: &str) {
        if let Some(why) = self.why.take() {
            let (number, text) = (name(self.number()), &why.text);
            log::say(why.level, format_args!("{verb}: {text} ({number})"));
        }
    }
}

const NO_NUMBER: NonZero<c_int> = NonZero::new(libc::EIO).unwrap();

/// Set if the sentences of refusals are kept.
static KEPT: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// The sentence of the thread's last refusal.
    static LAST: Cell<Option<String>> = const { Cell::new(None) };
}

/// Has the sentences of refusals kept from now on, for [`last`].
pub(crate) fn keep() {
    KEPT.store(true, Ordering::Relaxed);
}

/// The sentence of the thread's last refusal, once.
pub(crate) fn last() -> Option<String> {
    LAST.try_with(Cell::take).ok().flatten()
}

/// A place that refuses something.
pub(crate) struct Site {
    first: Once,
    throttle: Throttle,
}

impl Site {
    /// A program cannot mean what is refused here.
    pub(crate) const fn new() -> Self {
        Self { first: Once::new(), throttle: Throttle::new(8) }
    }

    #[cold]
    pub(crate) fn refuse(&self, number: c_int, text: Arguments<'_>) -> Errno {
        if KEPT.load(Ordering::Relaxed) {
            LAST.set(Some(text.to_string()));
        }
        let level = if self.first.first() { Log::Warn } else { Log::Info };
        self.explain(level, number, text)
    }

    /// A program may try this.
    #[cold]
    pub(crate) fn decline(&self, number: c_int, text: Arguments<'_>) -> Errno {
        self.explain(Log::Info, number, text)
    }

    fn explain(&self, level: Log, number: c_int, text: Arguments<'_>) -> Errno {
        let mut errno = Errno::plain(number);
        if log::is_wanted(level)
            && let Some(left_out) = self.throttle.admit()
        {
            let mut text = text.to_string();
            if let Some(left_out) = left_out {
                text.push_str(&format!(", and {left_out} more"));
            }
            errno.why = Some(Box::new(Why { level, text }));
        }
        errno
    }
}

/// Refuses what a program cannot mean: `refuse!(EINVAL, "GID index {index} does not exist")`.
macro_rules! refuse {
    ($number:ident, $($text:tt)+) => {{
        static SITE: $crate::refuse::Site = $crate::refuse::Site::new();
        SITE.refuse(libc::$number, format_args!($($text)+))
    }};
}

/// Likewise, for calls by which programs try what is supported.
macro_rules! decline {
    ($number:ident, $($text:tt)+) => {{
        static SITE: $crate::refuse::Site = $crate::refuse::Site::new();
        SITE.decline(libc::$number, format_args!($($text)+))
    }};
}

/// The thing that an argument of this name points to; refuses null.
macro_rules! given {
    ($argument:ident) => {
        $argument
            .ok_or_else(|| $crate::refuse::refuse!(EINVAL, "{} is NULL", stringify!($argument)))
    };
}

pub(crate) use {decline, given, refuse};

impl From<io::Error> for Errno {
    fn from(error: io::Error) -> Self {
        static MISTAKES: Site = Site::new();
        static OTHERS: Site = Site::new();

        if let Some(number) = error.raw_os_error() {
            return OTHERS.decline(number, format_args!("{error}"));
        }
        let number = match error.kind() {
            io::ErrorKind::InvalidInput => {
                return MISTAKES.refuse(libc::EINVAL, format_args!("{error}"));
            }
            io::ErrorKind::OutOfMemory => libc::ENOMEM,
            io::ErrorKind::TimedOut => libc::ETIMEDOUT,
            io::ErrorKind::AddrInUse => libc::EADDRINUSE,
            io::ErrorKind::AddrNotAvailable => libc::EADDRNOTAVAIL,
            io::ErrorKind::ConnectionRefused => libc::ECONNREFUSED,
            io::ErrorKind::ConnectionReset => libc::ECONNRESET,
            io::ErrorKind::NotConnected => libc::ENOTCONN,
            io::ErrorKind::Unsupported => libc::EOPNOTSUPP,
            io::ErrorKind::WouldBlock => libc::EAGAIN,
            io::ErrorKind::Interrupted => libc::EINTR,
            _ => libc::EIO,
        };
        OTHERS.decline(number, format_args!("{error}"))
    }
}

/// Its name in `errno.h`.
fn name(number: c_int) -> &'static str {
    match number {
        libc::EINVAL => "EINVAL",
        libc::ENOMEM => "ENOMEM",
        libc::EBUSY => "EBUSY",
        libc::EOPNOTSUPP => "EOPNOTSUPP",
        libc::ENOENT => "ENOENT",
        libc::EFAULT => "EFAULT",
        libc::EPERM => "EPERM",
        libc::EBADF => "EBADF",
        libc::EIO => "EIO",
        libc::ENOSYS => "ENOSYS",
        libc::ENODEV => "ENODEV",
        libc::ENODATA => "ENODATA",
        libc::EAGAIN => "EAGAIN",
        libc::EMFILE => "EMFILE",
        libc::EADDRINUSE => "EADDRINUSE",
        libc::EADDRNOTAVAIL => "EADDRNOTAVAIL",
        libc::EPROTONOSUPPORT => "EPROTONOSUPPORT",
        libc::ECONNREFUSED => "ECONNREFUSED",
        libc::ECONNRESET => "ECONNRESET",
        libc::ETIMEDOUT => "ETIMEDOUT",
        libc::ENOTCONN => "ENOTCONN",
        _ => "error",
    }
}
