//! `iwarp rping`: rping's exchange, so that either end may be librdmacm's.

mod client;
mod exchange;
mod server;
mod text;

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use anyhow::{Context, Result};
use iwarp::Device;
use iwarp::cm::ConnectParams;

/// Ping another RDMA host, with rping's options and on the wire exactly its exchange.
///
/// In every round the client lends the server a buffer with a line of text; the server fetches it
/// by RDMA Read, and puts it back into another buffer of the client's by RDMA Write. Either end may
/// be librdmacm's rping on siw or an iWARP network card.
#[derive(clap::Args, Debug)]
#[command(
    group = clap::ArgGroup::new("role").required(true).args(["server", "client"]),
    after_long_help = "\
Examples:
  iwarp rping -s                             serve one client at any IPv4 address
  iwarp rping -s -P -a ::0                   serve any number, also by IPv6
  iwarp rping -c -a 192.0.2.1 -C 10 -v -V    ten rounds, shown and verified
  rping -c -a 192.0.2.1 -C 10 -v -V          the same with librdmacm's, against ours"
)]
pub(crate) struct Args {
    /// Run as the server
    #[arg(short, long)]
    server: bool,
    /// Run as the client
    #[arg(short, long, requires = "address")]
    client: bool,
    /// Server: where to listen [default: 0.0.0.0]; client: where the server is
    #[arg(short, value_name = "ADDRESS")]
    address: Option<String>,
    /// Client: the local address to connect from
    #[arg(short = 'I', value_name = "ADDRESS", requires = "client")]
    source: Option<IpAddr>,
    /// The server's port; a server takes any free one for 0, and says which
    #[arg(short, default_value_t = 7174)]
    port: u16,
    /// Client: rounds until it disconnects [default: without end]
    #[arg(short = 'C', value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Octets of the text, 23 to 65536
    #[arg(short = 'S', value_name = "SIZE", default_value_t = 64,
          value_parser = clap::value_parser!(u32).range(text::MIN as i64..=text::MAX as i64))]
    size: u32,
    /// Show the text of every round
    #[arg(short)]
    verbose: bool,
    /// Client: compare what comes back with what was lent
    #[arg(short = 'V')]
    validate: bool,
    /// Show every step on standard error
    #[arg(short)]
    debug: bool,
    /// Server: serve any number of clients, at the same time too, until killed
    #[arg(short = 'P')]
    persistent: bool,
    /// Taken for rping's sake; queue pairs are always made this way here
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

    /// The server's address.
    fn server_addr(&self) -> Result<SocketAddr> {
        let host = self.address.as_deref().unwrap_or("0.0.0.0");
        (host, self.port)
            .to_socket_addrs()
            .with_context(|| format!("cannot find {host}"))?
            .next()
            .with_context(|| format!("{host} has no address"))
    }

    /// Shows a step.
    fn debug(&self, what: impl FnOnce() -> String) {
        if self.debug {
            eprintln!("{}", what());
        }
    }
}
