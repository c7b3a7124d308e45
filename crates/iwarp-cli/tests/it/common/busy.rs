// SPDX-License-Identifier: MIT OR Apache-2.0

//! A client and a server of `iwarp rping` that go on.

use std::process::{Child, Stdio};

use super::server::Server;
use super::{command, messages};

/// A client that sends until it is dropped.
pub(crate) struct Busy {
    pub(crate) client: Child,
    pub(crate) server: Server,
}

impl Busy {
    /// Both ends have these variables.
    pub(crate) fn start(variables: &[(&str, &str)]) -> Self {
        let mut server = command(&["rping", "-s", "-p", "0", "-a", "127.0.0.1", "-P"]);
        let server = Server::start_with(server.envs(variables.iter().copied()));
        let client = command(&["rping", "-c", "-a", "127.0.0.1", "-p", &server.port])
            .args(["-C", "1000000000"])
            .envs(variables.iter().copied())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let busy = Self { client, server };
        messages(&busy.pid(), 11);
        busy
    }

    /// The client's.
    pub(crate) fn pid(&self) -> String {
        self.client.id().to_string()
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.client.kill();
        let _ = self.client.wait();
    }
}
