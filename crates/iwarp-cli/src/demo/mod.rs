//! `iwarp demo`: two processes exchange data by every RDMA operation.

mod client;
mod messages;
pub(crate) mod pattern;
mod report;
mod server;

use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum;
use iwarp::{Device, Options};

use crate::child::Server;
use crate::size;

pub(crate) use server::serve;

/// A time that no step of the demo takes unless something is wrong.
const PATIENCE: Duration = Duration::from_secs(15);

/// Watch two processes do RDMA with each other on this machine.
///
/// Starts a server process, connects to it over loopback and goes through the operations: Send,
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

/// The settings on which both processes have to agree.
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
    /// The command line of the serving process.
    fn arguments(&self) -> Vec<String> {
        let mut arguments = vec!["demo-server".to_owned(), format!("--size={}", self.size)];
        if let Some(crc) = self.crc {
            let crc = if crc == Switch::On { "on" } else { "off" };
            arguments.push(format!("--crc={crc}"));
        }
        if self.markers {
            arguments.push("--markers".to_owned());
        }
        arguments
    }

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
    let mut server = Server::start(&args.settings.arguments())?;
    client::run(&args.settings, &server)?;
    server.join()
}
