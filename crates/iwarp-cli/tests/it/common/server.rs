// SPDX-License-Identifier: MIT OR Apache-2.0

//! The server end of `iwarp rping`.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::time::Duration;

use super::{command, within};

/// The time that a server may take to end after its client.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running `iwarp rping -s`; killed when it is dropped.
pub(crate) struct Server {
    pub(crate) process: Child,
    pub(crate) port: String,
    rest: BufReader<ChildStderr>,
}

impl Server {
    /// Starts a server at a port of its own, and waits until it says that it listens.
    pub(crate) fn start(address: &str, arguments: &[&str]) -> Self {
        Self::start_with(command(&["rping", "-s", "-p", "0", "-a", address]).args(arguments))
    }

    /// Starts `command`, which is to be a server, and waits until it says that it listens.
    pub(crate) fn start_with(command: &mut Command) -> Self {
        let mut process = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let mut rest = BufReader::new(process.stderr.take().expect("piped"));
        let mut line = String::new();
        rest.read_line(&mut line).expect("the server speaks");
        let port = line.trim().rsplit_once(':').expect("it names its port").1.to_owned();
        assert!(line.starts_with("listening on "), "{line}");
        Self { process, port, rest }
    }

    /// Waits until it ends by itself; returns how, what it printed and what it complained about.
    pub(crate) fn end(&mut self) -> (ExitStatus, String, String) {
        let ended = || self.process.try_wait().expect("it can be waited for");
        let status = within(PATIENCE, "the end of the server", ended);
        let out = std::io::read_to_string(self.process.stdout.take().expect("piped"));
        let complaints = std::io::read_to_string(&mut self.rest);
        (status, out.expect("text"), complaints.expect("text"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail when it is gone.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
