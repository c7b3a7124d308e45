// SPDX-License-Identifier: MIT OR Apache-2.0

//! `iwarp rping`: rping's exchange, so that either end may be librdmacm's.

mod client;
mod exchange;
mod server;
mod text;

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use anyhow::{Context, Result};
use iwarp::Device;
use iwarp::cm::ConnectParams;
use iwarp_kit::host_port::{HostPort, everywhere};

/// The port that rping's server has unless told otherwise.
const PORT: u16 = 7174;

/// Ping another RDMA host, with rping's options and exactly its exchange on the wire.
///
/// In every round the client lends the server a buffer with a line of text; the server fetches it
/// by RDMA Read, and puts it back into another buffer of the client's by RDMA Write. Either end may
/// be librdmacm's rping on siw or an iWARP network card.
#[derive(clap::Args, Debug)]
#[command(
    group = clap::ArgGroup::new("role").required(true).args(["server", "client"]),
    after_long_help = "\
Examples:
  iwarp rping -s                             serve one client on any address
  iwarp rping -s -P -a 192.0.2.1             serve any number of clients on this address
  iwarp rping -c -a 192.0.2.1 -C 10 -v -V    ten rounds, shown and verified
  iwarp rping -c -a '[::1]:7174' -C 10       by IPv6, with the port beside the address
  rping -c -a 192.0.2.1 -C 10 -v -V          the same with librdmacm's rping as the client"
)]
pub(crate) struct Args {
    /// Run as the server
    #[arg(short, long)]
    server: bool,
    /// Run as the client
    #[arg(short, long, requires = "address")]
    client: bool,
    /// Server: the address to listen on [default: all]; client: the server's address. A name or an
    /// address, optionally with :PORT
    #[arg(short, value_name = "ADDRESS")]
    address: Option<String>,
    /// Client: the local address to connect from
    #[arg(short = 'I', value_name = "ADDRESS", requires = "client")]
    source: Option<IpAddr>,
    /// The server's port [default: 7174]; with 0 the server takes any free port and prints it
    #[arg(short)]
    port: Option<u16>,
    /// Client: number of rounds [default: unlimited]
    #[arg(short = 'C', value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Size of the text in bytes, 23 to 65536
    #[arg(short = 'S', value_name = "SIZE", default_value_t = 64,
          value_parser = clap::value_parser!(u32).range(text::MIN as i64..=text::MAX as i64))]
    size: u32,
    /// Show the text of every round
    #[arg(short)]
    verbose: bool,
    /// Client: compare the returned text with the one sent
    #[arg(short = 'V')]
    validate: bool,
    /// Show every step on standard error
    #[arg(short)]
    debug: bool,
    /// Server: serve any number of clients, also at the same time, until killed
    #[arg(short = 'P')]
    persistent: bool,
    /// Accepted for compatibility; has no effect
    #[arg(short)]
    q: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let device = Device::open()?;
    if args.client { client::run(&device, args) } else { server::run(&device, args) }
}

/// Read depths of rping: one at a time.
fn params() -> ConnectParams {
    ConnectParams::new().ird(1).ord(1)
}

impl Args {
    fn size(&self) -> usize {
        self.size as usize
    }

    /// The server's addresses, the best first: those of `-a`, or all of this host's.
    fn server_addrs(&self) -> Result<Vec<SocketAddr>> {
        let Some(address) = &self.address else {
            return Ok(everywhere(self.port.unwrap_or(PORT)).into());
        };
        let server = HostPort::parse(address).map_err(anyhow::Error::msg)?;
        let port = server.port_or("-p", self.port, PORT).map_err(anyhow::Error::msg)?;
        let found = (server.host, port).to_socket_addrs();
        let found = found.with_context(|| format!("cannot find {}", server.host))?;
        Ok(found.collect())
    }

    /// Shows a step.
    fn debug(&self, what: impl FnOnce() -> String) {
        if self.debug {
            eprintln!("{}", what());
        }
    }
}
