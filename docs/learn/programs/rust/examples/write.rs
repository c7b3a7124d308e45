//! The client writes into the server's memory.

use std::net::SocketAddr;

use iwarp::{Access, ProtectionDomain};
use iwarp_learn::{Failure, learn};
use iwarp_session::{Block, Config, Exposed, GRANT_LEN, Listener, RemoteGrant};

fn main() -> Result<(), Failure> {
    learn(server, client, 1)
}

fn server(listener: &Listener) -> Result<(), Failure> {
    let request = listener.accept().wait()?;
    let board = Exposed::new(request.pd(), 64, Access::REMOTE_WRITE)?;
    board.write_at(0, b"(nothing yet)");

    // A receive without bytes: only to be told when to look.
    let prepared = Config::new().prepare(request.pd())?;
    let word = prepared.recv(Block::new(request.pd(), 0)?);
    let session = prepared.accept(request).wait()?;
    println!("server: the board says {}", text(&board)?);
    session.send_inline(&board.grant().to_octets()).wait()?;
    word.wait()?;
    println!("server: the board says {}", text(&board)?);
    Ok(())
}

fn text(board: &Exposed) -> Result<String, Failure> {
    Ok(String::from_utf8(board.to_vec())?.trim_end_matches('\0').to_owned())
}

fn client(pd: &ProtectionDomain, addr: SocketAddr) -> Result<(), Failure> {
    let prepared = Config::new().prepare(pd)?;
    let grant = prepared.recv(Block::new(pd, GRANT_LEN)?);
    let session = prepared.connect(addr).wait()?;
    let board = RemoteGrant::from_octets(grant.wait()?.block[..].try_into()?);
    println!("client: may write {} bytes", board.len());

    // The grant holds both the address and the key.
    let mut news = Block::new(pd, 13)?;
    news.copy_from_slice(b"Hello, board!");
    session.write(news, &board, 0).wait()?;
    // The server has noticed nothing. A message tells it, and arrives after the Write.
    session.send_inline(b"").wait()?;
    session.close().wait()?;
    Ok(())
}
