//! The other end as a process of our own.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};

/// A serving process, which says `listening ADDRESS` first. It ends with this value at the latest.
pub(crate) struct Server {
    process: Child,
    /// The address at which it listens.
    pub(crate) addr: SocketAddr,
}

impl Server {
    /// Starts this program once more, with these arguments.
    pub(crate) fn start<S: AsRef<std::ffi::OsStr>>(arguments: &[S]) -> Result<Self> {
        let program =
            std::env::current_exe().context("cannot find this program to run it twice")?;
        let mut process = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the server process")?;
        let stdout = process.stdout.take();
        let mut server = Self { process, addr: SocketAddr::from(([0; 4], 0)) };
        let mut line = String::new();
        BufReader::new(stdout.context("the server has no output")?)
            .read_line(&mut line)
            .context("cannot hear the server")?;
        server.addr = line
            .trim()
            .strip_prefix("listening ")
            .and_then(|addr| addr.parse().ok())
            .context("the server process did not come up")?;
        Ok(server)
    }

    /// Its number.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Waits for the process, which ends when its connection does.
    pub(crate) fn join(&mut self) -> Result<()> {
        let status = self.process.wait().context("cannot wait for the server process")?;
        ensure!(status.success(), "the server process ended with {status}");
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail when it is gone, as it should be.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
