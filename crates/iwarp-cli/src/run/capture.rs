// SPDX-License-Identifier: MIT OR Apache-2.0

//! The file of `iwarp run --capture`, which begins anew with each run.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use iwarp::Capture;

use crate::live::capture::absolute;

/// The value of `IWARP_CAPTURE` for what the user has given: the program may go to another
/// directory before it opens the file. A file that is there already goes.
pub(super) fn begin(given: &str) -> Result<String> {
    if given == "-" || given.starts_with("-,") {
        bail!(
            "--capture -: standard output is the program's own; make a pipe (mkfifo PIPE), have \
             wireshark -k -i PIPE read it, and give its name"
        );
    }
    let given = absolute(given).context("--capture")?;
    let capture: Capture = given.parse()?;
    let name = capture.file.to_string_lossy();
    if !name.contains("%p") && capture.ring.is_none() {
        replace(&capture.file).with_context(|| format!("--capture {name}"))?;
    }
    Ok(given)
}

/// Empties the file, if it is a regular one, and finds out whether it can be written.
fn replace(file: &Path) -> Result<()> {
    if fs::symlink_metadata(file).is_ok_and(|found| found.is_file()) {
        fs::remove_file(file)?;
    }
    let directory = file.parent().context("no directory")?;
    if !directory.is_dir() {
        bail!("{} is no directory", directory.display());
    }
    Ok(())
}
