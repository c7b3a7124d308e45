//! The client reads a row of the server's table; the server has nothing to do.

use std::net::SocketAddr;

use iwarp::{Access, ProtectionDomain};
use iwarp_learn::{Failure, accept_and_grant, connect_for_grant, learn};
use iwarp_session::{Block, Exposed, Listener};

/// Bytes of a row: a name, filled up with zeros, and a height.
const ROW: usize = NAME + 4;
const NAME: usize = 20;
const MOUNTAINS: [(&str, u32); 4] =
    [("Aconcagua", 6961), ("Denali", 6190), ("Everest", 8849), ("Kilimanjaro", 5895)];

fn main() -> Result<(), Failure> {
    learn(server, client, 1)
}

fn server(listener: &Listener) -> Result<(), Failure> {
    let request = listener.accept().wait()?;
    let table = Exposed::new(request.pd(), MOUNTAINS.len() * ROW, Access::REMOTE_READ)?;
    for (number, (name, height)) in MOUNTAINS.iter().enumerate() {
        table.write_at(number * ROW, name.as_bytes());
        table.write_at(number * ROW + NAME, &height.to_be_bytes());
    }
    let (_session, goodbye) = accept_and_grant(request, &table)?;
    // Here it sleeps until the client says goodbye.
    goodbye.wait()?;
    println!("server: one message came, the goodbye");
    Ok(())
}

fn client(pd: &ProtectionDomain, addr: SocketAddr) -> Result<(), Failure> {
    let (session, table) = connect_for_grant(pd, addr)?;
    println!("client: there are {} rows", table.len() / ROW as u64);
    let mut row = Block::new(pd, ROW)?;
    for number in [2, 0] {
        row = session.read(&table, (number * ROW) as u64, row).wait()?;
        let (name, height) = row.split_at(NAME);
        let name = str::from_utf8(name)?.trim_end_matches('\0');
        let height = u32::from_be_bytes(height.try_into()?);
        println!("client: row {number} is {name}, {height} m");
    }
    session.send_inline(b"").wait()?;
    session.close().wait()?;
    Ok(())
}
