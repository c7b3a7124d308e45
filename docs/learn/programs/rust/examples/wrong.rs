//! Four mistakes, and how each shows.

use std::net::SocketAddr;

use iwarp::{Access, ProtectionDomain, Stag, TaggedOffset};
use iwarp_learn::{Failure, connect_for_grant, learn, print_later};
use iwarp_session::{Block, Config, Exposed, Failure as Failed, Listener, RemoteGrant};

const MISTAKES: [&str; 4] = [
    "a Read beyond the end",
    "a Read with a wrong key",
    "a Write where only Reads are granted",
    "a message longer than the receive",
];

fn main() -> Result<(), Failure> {
    learn(server, client, 1)
}

fn server(listener: &Listener) -> Result<(), Failure> {
    // A failed connection does not work again: each mistake gets one of its own.
    for _ in MISTAKES {
        let request = listener.accept().wait()?;
        let table = Exposed::new(request.pd(), 64, Access::REMOTE_READ)?;
        let prepared = Config::new().prepare(request.pd())?;
        let small = prepared.recv(Block::new(request.pd(), 4)?);
        let session = prepared.accept(request).wait()?;
        // Its completion is not waited for: the client's mistake may come before it.
        drop(session.send_inline(&table.grant().to_octets()));
        print_later(format!("server: the receive: {}", word(small.wait())));
    }
    Ok(())
}

fn client(pd: &ProtectionDomain, addr: SocketAddr) -> Result<(), Failure> {
    for (number, name) in MISTAKES.iter().enumerate() {
        let (session, table) = connect_for_grant(pd, addr)?;
        let key = table.stag();
        let longer = RemoteGrant::new(key, TaggedOffset(0), 2 * table.len());
        let other = RemoteGrant::new(Stag(key.0 + 1), TaggedOffset(0), table.len());
        let (short, long) = (Block::new(pd, 64)?, Block::new(pd, 128)?);
        let outcome = match number {
            0 => session.read(&longer, 0, long),
            1 => session.read(&other, 0, short),
            2 => session.write(short, &table, 0),
            _ => session.send(short),
        };
        println!("client: {name}: {}", word(outcome.wait()));
    }
    Ok(())
}

fn word<T>(outcome: Result<T, Failed>) -> String {
    outcome.map_or_else(|failure| failure.to_string(), |_| "success".to_owned())
}
