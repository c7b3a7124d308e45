// SPDX-License-Identifier: MIT OR Apache-2.0

//! The other end as a process of our own.

use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Signal, set_parent_process_death_signal};

/// Exit status of a child whose exec failed unreported: qemu's user mode emulates `vfork` by
/// `fork`.
const NOT_EXECUTED: i32 = 127;

/// A serving process, which says `listening ADDRESS` first. It ends with this value at the latest.
pub struct Server {
    process: Child,
    output: BufReader<ChildStdout>,
    /// The address at which it listens.
    pub addr: SocketAddr,
}

impl Server {
    /// Starts this program once more, with these arguments.
    ///
    /// # Errors
    ///
    /// If it does not start, or says something else.
    pub fn start<S: AsRef<std::ffi::OsStr>>(arguments: &[S]) -> Result<Self> {
        let program =
            std::env::current_exe().context("cannot find this program to run it twice")?;
        let mut process = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the server process")?;
        let output = process.stdout.take().context("the server has no output")?;
        let (output, addr) = (BufReader::new(output), SocketAddr::from(([0; 4], 0)));
        let mut server = Self { process, output, addr };
        let mut line = String::new();
        server.output.read_line(&mut line).context("cannot hear the server")?;
        match line.trim().strip_prefix("listening ").and_then(|addr| addr.parse().ok()) {
            Some(addr) => server.addr = addr,
            None => bail!("the server process did not come up: {}", server.failure(&line)),
        }
        Ok(server)
    }

    /// The fate of a server that said `line` in place of its address.
    fn failure(&mut self, line: &str) -> String {
        // One that is ending already keeps its own status.
        let _ = self.process.kill();
        match self.process.wait() {
            Ok(status) if status.code() == Some(NOT_EXECUTED) => {
                "the kernel did not execute this program a second time; under qemu's user mode it \
                 does if the program's kind is registered (binfmt_misc)"
                    .to_owned()
            }
            Ok(status) if line.is_empty() => status.to_string(),
            _ => format!("it said {line:?}"),
        }
    }

    /// Its process ID.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Everything that it says from now on until it ends.
    ///
    /// # Errors
    ///
    /// If that is not text.
    pub fn rest(&mut self) -> Result<String> {
        let mut text = String::new();
        self.output.read_to_string(&mut text).context("cannot hear the server")?;
        Ok(text)
    }

    /// Waits for the process, which ends when its connection does.
    ///
    /// # Errors
    ///
    /// If it reports a failure.
    pub fn join(&mut self) -> Result<()> {
        let status = self.process.wait().context("cannot wait for the server process")?;
        ensure!(status.success(), "the server process ended with {status}");
        Ok(())
    }
}

/// An address of this host that every program on it can reach; there are hosts with IPv6 alone.
pub fn loopback() -> IpAddr {
    let usual = IpAddr::from(Ipv4Addr::LOCALHOST);
    if TcpListener::bind((usual, 0)).is_ok() { usual } else { Ipv6Addr::LOCALHOST.into() }
}

/// Ends this process with the one that started it, however that ends.
///
/// # Errors
///
/// If the system refuses.
pub fn end_with_parent() -> Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL)).context("cannot follow the client process")
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail when it is gone, as it should be.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
