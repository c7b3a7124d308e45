// SPDX-License-Identifier: MIT OR Apache-2.0

//! rping's server: fetches what the client lends, and puts it back.

use anyhow::{Context, Result, anyhow, bail, ensure};
use iwarp::cm::{Incoming, Listener};
use iwarp::{Access, Device, Ended, SendOp};
use iwarp_kit::ending::how;
use iwarp_kit::lines;

use super::exchange::{Exchange, GOODBYE, Lent};
use super::{Args, params, text};

pub(super) fn run(device: &Device, args: &Args) -> Result<()> {
    let listener = listen(device, args)?;
    if !args.persistent {
        let incoming = listener.accept(None)?.context("no client came")?;
        return serve(device, args, incoming);
    }
    std::thread::scope(|scope| {
        loop {
            let incoming = listener.accept(None)?.context("no client came")?;
            scope.spawn(|| {
                if let Err(error) = serve(device, args, incoming) {
                    eprintln!("iwarp rping: {}", lines::reason(&error));
                }
            });
        }
    })
}

/// Listens at the first of the addresses that this host has, and says so.
fn listen(device: &Device, args: &Args) -> Result<Listener> {
    let mut failed = Err(anyhow!("there is no address to listen on"));
    for addr in args.server_addrs()? {
        match Listener::bind(device, addr) {
            Ok(listener) => {
                eprintln!("listening on {}", listener.local_addr().unwrap_or(addr));
                return Ok(listener);
            }
            Err(error) => failed = Err(error).context(format!("cannot listen on {addr}")),
        }
    }
    failed
}

/// Serves a client until it disconnects.
fn serve(device: &Device, args: &Args, incoming: Incoming) -> Result<()> {
    let peer = incoming.peer_addr().map_or_else(|| "a client".to_owned(), |addr| addr.to_string());
    args.debug(|| format!("{peer} wants to connect; its depths are {:?}", incoming.read_depths()));
    let mut exchange = Exchange::new(device)?;
    let buffer = exchange.buffer(args.size(), Access::LOCAL_WRITE)?;
    let octets = buffer.buffer().context("memory without a buffer")?;
    let connection = incoming
        .accept(&exchange.end.qp, &params())
        .with_context(|| format!("cannot accept {peer}"))?;
    args.debug(|| format!("{peer} is connected"));

    let mut rounds: u64 = 0;
    while let Some(source) = exchange.receive()? {
        args.debug(|| format!("the client lends {source} to be read"));
        check(args, source)?;
        let op = SendOp::Read { stag: source.stag, to: source.to, invalidate: None };
        exchange.transfer(op, &buffer, source.len).context("reading")?;
        if args.verbose {
            let mut line = vec![0; source.len as usize];
            octets.read_at(0, &mut line);
            println!("server ping data: {}", text::show(&line));
        }
        args.debug(|| "read; the client may go ahead".to_owned());
        exchange.send(None)?;

        let Some(sink) = exchange.receive()? else {
            let ended = connection.wait_disconnected(Some(GOODBYE));
            bail!("in the middle of round {rounds}: {}", how(ended));
        };
        args.debug(|| format!("the client lends {sink} to be written"));
        check(args, sink)?;
        let op = SendOp::Write { stag: sink.stag, to: sink.to };
        exchange.transfer(op, &buffer, sink.len).context("writing")?;
        args.debug(|| "written; the client may go ahead".to_owned());
        exchange.send(None)?;
        rounds += 1;
    }
    let ended = connection.wait_disconnected(Some(GOODBYE));
    args.debug(|| format!("{rounds} rounds with {peer}: {}", how(ended)));
    ensure!(ended == Some(Ended::Closed), "{}", how(ended));
    Ok(())
}

fn check(args: &Args, lent: Lent) -> Result<()> {
    ensure!(
        lent.len <= args.size,
        "the client lends {} bytes; give -S {0} here too (it is {})",
        lent.len,
        args.size
    );
    Ok(())
}
