//! `iwarp demo`: two processes exchange data by every RDMA operation.

mod client;
mod messages;
mod pattern;
mod report;
mod server;

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use iwarp::{Device, Options};

use crate::size;

pub(crate) use server::serve;

/// What no step of the demo takes unless something is wrong.
const PATIENCE: Duration = Duration::from_secs(15);

/// Watch two processes do RDMA with each other on this machine.
///
/// Starts a server process, connects to it over 127.0.0.1 and goes through the operations: Send,
/// RDMA Write, RDMA Read, FetchAdd, CompareSwap, Immediate Data. Each line shows what moved. Then
/// it measures how fast. Every result is verified; the exit status is 1 if one is wrong.
#[derive(clap::Args, Debug)]
#[command(after_long_help = "\
Examples:
  iwarp demo                         all of it, in a few seconds
  iwarp demo --crc off               what does CRC32c cost?
  iwarp demo --markers               with MPA markers in both directions
  iwarp demo --size 1GiB             lend the peer more memory")]
pub(crate) struct Args {
    #[command(flatten)]
    settings: Settings,
}

/// What both processes have to agree on.
#[derive(clap::Args, Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// CRC32c over what is sent [default: as IWARP_CRC says, else on]
    #[arg(long, value_enum)]
    crc: Option<Switch>,
    /// Put markers into both directions, so that a receiver could find its place again
    #[arg(long)]
    markers: bool,
    /// Memory that the server lends to its peer
    #[arg(long, value_parser = parse_size, default_value = "64MiB")]
    size: usize,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Switch {
    On,
    Off,
}

/// Arguments of the serving process.
#[derive(clap::Args, Debug)]
pub(crate) struct ServerArgs {
    #[command(flatten)]
    settings: Settings,
}

fn parse_size(text: &str) -> Result<usize, String> {
    let size = size::parse(text)?;
    if (4096..=1 << 34).contains(&size) {
        Ok(size)
    } else {
        Err("expected 4KiB to 16GiB".to_owned())
    }
}

impl Settings {
    fn device(&self) -> Result<Device> {
        let mut options = Options::from_env()?;
        options.markers |= self.markers;
        if let Some(crc) = self.crc {
            options.crc = crc == Switch::On;
        }
        Ok(Device::with_options(options)?)
    }
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let mut server = Server::start(&args.settings)?;
    client::run(&args.settings, &server)?;
    server.join()
}

/// The serving process. It ends with this value at the latest.
struct Server {
    process: Child,
    addr: SocketAddr,
}

impl Server {
    fn start(settings: &Settings) -> Result<Self> {
        let program =
            std::env::current_exe().context("cannot find this program to run it twice")?;
        let mut command = Command::new(program);
        command.arg("demo-server").arg("--size").arg(settings.size.to_string());
        if let Some(crc) = settings.crc {
            command.arg("--crc").arg(if crc == Switch::On { "on" } else { "off" });
        }
        if settings.markers {
            command.arg("--markers");
        }
        let process = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the server process")?;
        let mut server = Self { process, addr: SocketAddr::from(([0; 4], 0)) };
        let stdout = server.process.stdout.take().context("the server has no output")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).context("cannot hear the server")?;
        server.addr = line
            .trim()
            .strip_prefix("listening ")
            .and_then(|addr| addr.parse().ok())
            .context("the server process did not come up")?;
        Ok(server)
    }

    fn id(&self) -> u32 {
        self.process.id()
    }

    /// Waits for the process, which ends when its connection does.
    fn join(&mut self) -> Result<()> {
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
