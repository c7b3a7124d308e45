// SPDX-License-Identifier: MIT OR Apache-2.0

//! The network between the two hosts of a lane: `c/wire.c`, which is told the weather.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::programs::lab::Lane;

pub(super) struct Wire {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Wire {
    /// Connects the hosts of a lane.
    pub(super) fn connect(program: &Path, lane: &Lane, seed: u64) -> Result<Self> {
        // It stands for hardware, so the programs' load must not slow it down.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "nice", "-n", "-10"]).arg(program);
        command.args(lane.namespaces()).arg(seed.to_string());
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the wire")?;
        let input = child.stdin.take();
        let mut output = BufReader::new(child.stdout.take().expect("piped"));
        let mut line = String::new();
        output.read_line(&mut line)?;
        ensure!(line.trim() == "ready", "there is no wire: is there /dev/net/tun?");
        lane.bring_up()?;
        Ok(Self { child, input, output })
    }

    /// Changes one thing about it.
    pub(super) fn set(&self, what: &str, number: u64) -> Result<()> {
        let mut input = self.input.as_ref().expect("only `end` takes it");
        writeln!(input, "{what} {number}").context("the wire is gone")
    }

    /// Lets everything pass again.
    pub(super) fn clear(&self) -> Result<()> {
        self.set("clear", 0)
    }

    /// Takes it down, and returns its counts.
    pub(super) fn end(mut self) -> Result<Vec<(String, u64)>> {
        drop(self.input.take());
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        self.child.wait()?;
        let words: Vec<&str> = line.split_whitespace().collect();
        words.chunks_exact(2).map(|pair| Ok((pair[0].to_owned(), pair[1].parse()?))).collect()
    }
}
