// SPDX-License-Identifier: MIT OR Apache-2.0

//! Lines on standard output and standard error, whose reader may go away: `iwarp demo | head -1`.
//!
//! `println!` and `eprintln!` are these throughout the command's crates, each of which begins with
//! `#[macro_use] extern crate iwarp_kit;`. std's own panic then.

use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write as _};
use std::process::exit;

use rustix::io::Errno;
use rustix::process::{Resource, Signal, getrlimit};

/// Writes a line to standard output, or ends the process.
#[macro_export]
macro_rules! println {
    () => { $crate::lines::out(format_args!("\n")) };
    ($($what:tt)*) => { $crate::lines::out(format_args!("{}\n", format_args!($($what)*))) };
}

/// Writes a line to standard error.
#[macro_export]
macro_rules! eprintln {
    ($($what:tt)*) => { $crate::lines::err(format_args!("{}\n", format_args!($($what)*))) };
}

/// Writes to standard output, or ends the process.
pub fn out(text: Arguments<'_>) {
    let mut stdout = io::stdout().lock();
    if let Err(error) = stdout.write_fmt(text).and_then(|()| stdout.flush()) {
        unwritable(&error);
    }
}

/// Writes to standard error. A failure of that cannot be reported.
pub fn err(text: Arguments<'_>) {
    let _ = io::stderr().write_fmt(text);
}

/// An error with its causes, each said once: many errors say their cause themselves.
pub fn reason(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.ends_with(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    // Known by its words: a server's error comes over the network.
    if text.ends_with(&io::Error::from(Errno::MFILE).to_string()) {
        text = format!("{text}: {}", descriptor_limit());
    }
    text
}

/// The advice where the descriptors of a process do not suffice.
fn descriptor_limit() -> String {
    let most = getrlimit(Resource::Nofile).maximum;
    let most = most.map_or_else(|| "any number".to_owned(), |most| most.to_string());
    format!("a process may have {most} here; raise the limit (ulimit -Hn)")
}

/// Ends the process as programs end whose reader has gone: without a word, with the status that a
/// shell shows for SIGPIPE. Any other error is said.
fn unwritable(error: &io::Error) -> ! {
    if error.kind() == ErrorKind::BrokenPipe {
        exit(128 + Signal::PIPE.as_raw());
    }
    err(format_args!("iwarp: cannot write to standard output: {error}\n"));
    exit(1);
}

#[cfg(test)]
mod tests {
    use std::io;

    use anyhow::Error;
    use iwarp::cm::ConnectError;

    use super::reason;

    #[test]
    fn a_cause_is_said_once() {
        let refused = || io::Error::other("Connection refused");
        let error = Error::new(refused()).context("cannot reach 192.0.2.1:7174");
        assert_eq!(reason(&error), "cannot reach 192.0.2.1:7174: Connection refused");
        let error = Error::new(ConnectError::Io(refused())).context("client");
        let text = reason(&error);
        assert_eq!(text.matches("Connection refused").count(), 1, "{text}");
        assert!(text.starts_with("client: connection broke during start-up"), "{text}");
    }

    #[test]
    fn too_few_descriptors_come_with_what_to_do() {
        let text = reason(&Error::new(io::Error::from(rustix::io::Errno::MFILE)).context("client"));
        assert!(text.starts_with("client: Too many open files"), "{text}");
        assert!(text.ends_with("raise the limit (ulimit -Hn)"), "{text}");
    }
}
