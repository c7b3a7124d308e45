// SPDX-License-Identifier: MIT OR Apache-2.0

//! The user without rights, as whom programs are tried where root tries them.

use std::fs;
use std::os::unix::fs::chown;
use std::path::Path;

use anyhow::{Context, Result};
use rustix::process::geteuid;

const NOBODY: u32 = 65_534;

/// Options of setpriv for a program that dies with this process and is that user's.
pub(crate) fn options() -> Vec<&'static str> {
    let mut options = vec!["--pdeathsig", "KILL"];
    if is_possible() {
        options.extend(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
    }
    options
}

/// Gives a directory to that user.
pub(crate) fn give(path: &Path) -> Result<()> {
    if is_possible() {
        chown(path, Some(NOBODY), Some(NOBODY)).with_context(|| format!("{}", path.display()))?;
    }
    Ok(())
}

/// In a user namespace there may be no other user; there root is an ordinary one outside.
fn is_possible() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let count = map.split_whitespace().nth(2).and_then(|count| count.parse::<u64>().ok());
    geteuid().is_root() && count.is_some_and(|count| count > u64::from(NOBODY))
}
