// SPDX-License-Identifier: MIT OR Apache-2.0

//! rping's client: lends its buffers, and looks at what came back.

use std::net::SocketAddr;

use anyhow::{Context, Result, bail, ensure};
use iwarp::cm::{EventChannel, EventKind, Id};
use iwarp::{Access, Device, Ended};
use iwarp_kit::ending::how;

use super::exchange::{Exchange, GOODBYE, Lent};
use super::{Args, params, text};

pub(super) fn run(device: &Device, args: &Args) -> Result<()> {
    let mut exchange = Exchange::new(device)?;
    let for_the_peer = Access::REMOTE_READ | Access::REMOTE_WRITE;
    let source = exchange.buffer(args.size(), for_the_peer)?;
    let sink = exchange.buffer(args.size(), for_the_peer)?;
    let source_octets = source.buffer().context("memory without a buffer")?;
    let sink_octets = sink.buffer().context("memory without a buffer")?;
    let addr = *args.server_addrs()?.first().context("the server has no address")?;
    let connection = Connection::open(device, args, addr, &exchange)?;

    let mut back = vec![0; args.size()];
    let mut round = 0;
    while args.count.is_none_or(|count| round < count) {
        let text = text::make(round, args.size());
        source_octets.write_at(0, &text);
        for (lent, what) in [(Lent::of(&source), "read"), (Lent::of(&sink), "written")] {
            args.debug(|| format!("lending {lent} to be {what}"));
            exchange.send(Some(lent))?;
            if exchange.receive()?.is_none() {
                bail!("in round {round}: {}", how(connection.wait_disconnected()?));
            }
            args.debug(|| format!("the server has {what}"));
        }
        sink_octets.read_at(0, &mut back);
        if args.validate {
            let wrong = (0..text.len()).find(|&i| text[i] != back[i]);
            ensure!(
                wrong.is_none(),
                "round {round}: byte {} came back wrong",
                wrong.unwrap_or_default()
            );
        }
        if args.verbose {
            println!("ping data: {}", text::show(&back));
        }
        round += 1;
    }
    connection.close(args)
}

/// A connection, by the steps that librdmacm has.
struct Connection {
    channel: EventChannel,
    id: Id,
}

impl Connection {
    fn open(device: &Device, args: &Args, addr: SocketAddr, to: &Exchange) -> Result<Self> {
        let channel = EventChannel::new(device)?;
        let id = Id::new(&channel)?;
        let source = args.source.map(|ip| SocketAddr::new(ip, 0));
        id.resolve_addr(source, addr).with_context(|| format!("no route to {addr}"))?;
        loop {
            let event = channel.wait(None)?.context("no event")?;
            args.debug(|| format!("event: {:?}", event.kind));
            match event.kind {
                EventKind::AddressResolved => id.resolve_route()?,
                EventKind::RouteResolved => id.connect(&to.end.qp, &params())?,
                EventKind::Established { .. } => return Ok(Self { channel, id }),
                EventKind::Rejected { .. } => bail!("{addr} rejects the connection"),
                EventKind::Unreachable(error) | EventKind::AddressError(error) => {
                    return Err(error).with_context(|| format!("cannot reach {addr}"));
                }
                EventKind::ConnectError(error) => {
                    return Err(error).with_context(|| format!("cannot connect to {addr}"));
                }
                _ => {}
            }
        }
    }

    /// Ends it, and waits a while until it is over.
    fn close(self, args: &Args) -> Result<()> {
        self.id.disconnect();
        let ended = self.wait_disconnected()?;
        args.debug(|| how(ended));
        Ok(())
    }

    fn wait_disconnected(&self) -> Result<Option<Ended>> {
        while let Some(event) = self.channel.wait(Some(GOODBYE))? {
            if let EventKind::Disconnected(ended) = event.kind {
                return Ok(Some(ended));
            }
        }
        Ok(None)
    }
}
