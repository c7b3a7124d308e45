// SPDX-License-Identifier: MIT OR Apache-2.0

//! `iwarp capture`: the packets of a running process from now on.

use std::env;

use anyhow::{Context, Result};
use iwarp::Capture;

use super::tell::{find, tell};

/// Begin or end a capture of a running process.
///
/// The process writes all its packets to the file from now on: see docs/capture.md. Of connections
/// that exist already the start-up is missing, so Wireshark does not know them; iwarp explain finds
/// their frames by trying. Requests and completions are not in the comments.
#[derive(clap::Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// The process; iwarp ps lists those that can be asked
    #[arg(value_name = "PID")]
    pid: u32,
    /// The file, behind which ,snap=BYTES and ,ring=FILESxSIZE may follow
    #[arg(value_name = "FILE", required_unless_present = "end")]
    file: Option<String>,
    /// End the capture; the next one goes on with the file
    #[arg(long, conflicts_with = "file")]
    end: bool,
}

const EXAMPLES: &str = "\
Examples:
  iwarp capture 4711 /tmp/rdma.pcapng           begin
  iwarp capture 4711 --end                      end
  iwarp explain /tmp/rdma.pcapng";

pub(crate) fn run(args: &Args) -> Result<()> {
    let process = find(args.pid)?;
    match &args.file {
        Some(file) => tell(process, &format!("capture {}", absolute(file)?)),
        None => tell(process, "capture"),
    }
}

/// The text that asks for a capture, with the whole name of its file: a program may be in another
/// directory, or go to one.
pub(crate) fn absolute(given: &str) -> Result<String> {
    let capture: Capture = given.parse().with_context(|| given.to_owned())?;
    let rest = given.strip_prefix(&*capture.file.to_string_lossy()).unwrap_or_default();
    let file = env::current_dir()?.join(&capture.file);
    Ok(format!("{}{rest}", file.display()))
}
