// SPDX-License-Identifier: MIT OR Apache-2.0

//! Network namespaces for runs beside each other, if the system allows them.

use std::env;
use std::fmt;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use rustix::process::geteuid;

/// The network in which a run is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Network {
    Apart,
    Shared,
}

impl Network {
    /// Finds out by trying.
    pub(super) fn find() -> Self {
        let mut attempt = wrapper();
        attempt.arg("true").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let worked = attempt.status().is_ok_and(|status| status.success());
        if worked { Self::Apart } else { Self::Shared }
    }

    pub(super) const fn is_apart(self) -> bool {
        matches!(self, Self::Apart)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Apart => "each run has a network of its own",
            Self::Shared => "no network namespaces (unshare, ip): one run at a time",
        })
    }
}

/// Becomes the command behind it, in a network that has only `lo`.
fn wrapper() -> Command {
    let mut unshare = Command::new("unshare");
    unshare.arg("--net");
    if !geteuid().is_root() {
        unshare.args(["--user", "--map-current-user", "--keep-caps"]);
    }
    unshare.args(["sh", "-c", "ip link set lo up && exec \"$@\"", "sh"]);
    unshare
}

/// This program, in a network of its own or not.
pub(super) fn this_program(apart: bool) -> Result<Command> {
    let program = env::current_exe().context("cannot find this program to run it again")?;
    if !apart {
        return Ok(Command::new(program));
    }
    let mut command = wrapper();
    command.arg(program);
    Ok(command)
}
