// SPDX-License-Identifier: MIT OR Apache-2.0

//! Runs one cell of the matrix and says what came of it.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::guest::{Guest, HERE, Running, THERE, read};
use super::matrix::{Cell, End, Matrix, Program, Setting, Way};
use crate::programs::process::LOOK;

/// Bytes on the link that no program moves before it is at work.
const AT_WORK: u64 = 2_000_000;
/// The port of the first cell; each has the next.
const FIRST_PORT: u16 = 18_600;
/// Beside the client's end, this much for the server's own.
const FAREWELL: Duration = Duration::from_secs(10);

/// The things that the ends of a cell have in common.
struct Scene<'a, 'b> {
    guest: &'a mut Guest<'b>,
    program: &'a Program,
    setting: &'a Setting,
    limit: Duration,
    port: u16,
    /// The addresses of the server and of the client.
    addresses: [&'static str; 2],
    directory: &'a Path,
}

/// The two ends of a cell.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Server,
    Client,
}

/// Runs it; what the ends say goes into `directory`, `server` and `client`.
///
/// # Errors
///
/// The reason why it failed.
pub(crate) fn run(
    guest: &mut Guest<'_>,
    matrix: &Matrix,
    cell: Cell,
    number: u16,
    slowness: u32,
    directory: &Path,
) -> Result<()> {
    let (program, setting) = (matrix.program(cell), matrix.setting(cell));
    let family = usize::from(cell.family == '6');
    let addresses = match cell.way {
        Way::WeServe => [HERE[family], THERE[family]],
        Way::WeConnect => [THERE[family], HERE[family]],
    };
    let slowness = if setting.boot.link.is_some() { 2 * slowness } else { slowness };
    let mut scene = Scene {
        guest,
        program,
        setting,
        limit: Duration::from_secs(program.limit) * slowness,
        port: FIRST_PORT + number,
        addresses,
        directory,
    };
    scene.guest.set(setting)?;
    match setting.end {
        None => scene.play(cell.way == Way::WeServe, cell.way == Way::WeConnect),
        Some(end) => scene.interrupt(cell.way, end),
    }
}

/// Runs it with siw at both ends, in the guest alone.
///
/// # Errors
///
/// The reason why siw itself fails.
pub(crate) fn run_without_us(
    guest: &mut Guest<'_>,
    matrix: &Matrix,
    cell: Cell,
    number: u16,
    slowness: u32,
    directory: &Path,
) -> Result<()> {
    let (program, setting) = (matrix.program(cell), matrix.setting(cell));
    let address = THERE[usize::from(cell.family == '6')];
    let limit = Duration::from_secs(program.limit) * slowness;
    let (port, addresses) = (FIRST_PORT + number, [address, address]);
    guest.set(setting)?;
    let mut scene = Scene { guest, program, setting, limit, port, addresses, directory };
    scene.play(false, false)
}

impl Scene<'_, '_> {
    /// Runs server and client to their ends, each here or there.
    fn play(&mut self, server_here: bool, client_here: bool) -> Result<()> {
        let start = Instant::now();
        let mut server = self.start(Role::Server, server_here)?;
        server.listens(self.port, start + self.limit)?;
        let mut client = self.start(Role::Client, client_here)?;
        let deadline = Instant::now() + self.limit;
        let status = client.ends(deadline);
        let mut problem = match status {
            Some(0) if self.said("client").contains(&self.program.says) => None,
            Some(0) => Some(format!("the client does not say \"{}\"", self.program.says)),
            Some(status) => Some(format!("the client's status is {status}{}", self.last("client"))),
            None => {
                Some(format!("the client does not end in {:?}{}", self.limit, self.last("client")))
            }
        };
        if status.is_none() && !client.kill() {
            bail!("the client does not end, and cannot be killed");
        }
        let server_status =
            if self.program.stays { None } else { server.ends(Instant::now() + FAREWELL) };
        match server_status {
            Some(0) => {}
            None if self.program.stays => {}
            _ if problem.is_some() => {}
            Some(status) => {
                problem = Some(format!("the server's status is {status}{}", self.last("server")));
            }
            None => problem = Some(format!("the server does not end{}", self.last("server"))),
        }
        if server_status.is_none() && !server.kill() {
            bail!("the server cannot be killed");
        }
        // Both of Debian's and our own rping say so.
        let bad = ["mismatch", "data verification failed", "Failed status"];
        for end in ["server", "client"] {
            let said = self.said(end);
            if let Some(line) = said.lines().find(|line| bad.iter().any(|bad| line.contains(bad))) {
                problem = Some(format!("the {end} says: {line}"));
            }
        }
        match problem {
            None => Ok(()),
            Some(problem) => bail!("{problem}"),
        }
    }

    /// Ends the traffic amid, and waits until the ends notice that have to.
    fn interrupt(&mut self, way: Way, end: End) -> Result<()> {
        let deadline = Instant::now() + self.limit;
        let mut server = self.start(Role::Server, way == Way::WeServe)?;
        server.listens(self.port, deadline)?;
        let client = self.start(Role::Client, way == Way::WeConnect)?;
        let before = self.guest.traffic()?;
        while self.guest.traffic()? < before + AT_WORK {
            ensure!(Instant::now() < deadline, "there is no traffic{}", self.last("client"));
            thread::sleep(LOOK);
        }
        let (ours, theirs) = match way {
            Way::WeServe => (server, client),
            Way::WeConnect => (client, server),
        };
        let (name_of_ours, name_of_theirs) = match way {
            Way::WeServe => ("server", "client"),
            Way::WeConnect => ("client", "server"),
        };
        let (mut left, other, name) = match end {
            End::KillOurs => {
                drop(ours);
                (theirs, None, name_of_theirs)
            }
            End::KillTheirs => {
                ensure!(theirs.kill(), "siw's end cannot be killed");
                (ours, None, name_of_ours)
            }
            End::Cut => {
                self.guest.cut()?;
                (ours, Some(theirs), name_of_ours)
            }
        };
        let status = left.ends(Instant::now() + self.limit);
        if status.is_none() {
            let killed = left.kill();
            bail!(
                "the {name} does not notice{}",
                if killed { "" } else { ", and cannot be killed" }
            );
        }
        if let Some(other) = other {
            ensure!(other.kill(), "siw's end cannot be killed");
        }
        ensure!(status != Some(0), "the {name} says that all went well");
        Ok(())
    }

    fn start(&mut self, role: Role, here: bool) -> Result<Running> {
        let (commands, file, own) = match role {
            Role::Server => (&self.program.server, "server", self.addresses[0]),
            Role::Client => (&self.program.client, "client", self.addresses[1]),
        };
        let text = if here { &commands.here } else { &commands.there };
        let server = self.addresses[0];
        let both = match server.contains(':') {
            true => format!("[{server}]:{}", self.port),
            false => format!("{server}:{}", self.port),
        };
        let text = text.replace("%a", server).replace("%p", &self.port.to_string());
        let text = text.replace("%m", own).replace("%t", &both);
        let output = self.directory.join(file);
        if here {
            self.guest.start_here(&text, self.setting, &output)
        } else {
            self.guest.start_there(&format!("exec {text}"), self.port, &output)
        }
        .with_context(|| format!("the {file}: {text}"))
    }

    fn said(&self, end: &str) -> String {
        read(&self.directory.join(end))
    }

    /// The last line that an end said, to be put behind something.
    fn last(&self, end: &str) -> String {
        let said = self.said(end);
        let is_one =
            |line: &&str| line.chars().any(char::is_alphanumeric) && !line.contains("rdma-ping-");
        let Some(line) = said.lines().rfind(is_one) else { return String::new() };
        format!(": {}", line.trim().chars().take(120).collect::<String>())
    }
}

/// Files of a cell that went well are of no use.
pub(crate) fn forget(directory: &Path) {
    let _ = fs::remove_dir_all(directory);
}
