// SPDX-License-Identifier: MIT OR Apache-2.0

//! A server that serves one connection, and is started for each case.

use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

/// A server that runs; ended when it is dropped.
pub(super) struct Restarted(Child);

impl Restarted {
    /// Starts it by a command of the shell. It may take a moment to listen.
    pub(super) fn start(command: &str) -> Result<Self> {
        // The server takes the shell's place, so that it is the one that is ended.
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(format!("exec {command}"));
        shell.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self(shell.spawn().context("cannot start a shell")?))
    }
}

impl Drop for Restarted {
    fn drop(&mut self) {
        // Both fail when the server has ended, as it does by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
