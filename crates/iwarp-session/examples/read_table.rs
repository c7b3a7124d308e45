// SPDX-License-Identifier: MIT OR Apache-2.0

//! A client reads rows of a table in the server's memory, and the server has nothing to do:
//! `cargo run --release --example read_table`

use std::error::Error;
use std::net::SocketAddr;
use std::thread;

use iwarp::cm::ConnectParams;
use iwarp::{Access, Device};
use iwarp_session::{BlockPool, Config, Exposed, GRANT_LEN, Listener, RemoteGrant, Session};

/// Bytes of a row: a name, padded with spaces, and a number.
const ROW: usize = 24;
const NAME: usize = ROW - 4;

const MOUNTAINS: [(&str, u32); 6] = [
    ("Aconcagua", 6961),
    ("Denali", 6190),
    ("Elbrus", 5642),
    ("Everest", 8849),
    ("Kilimanjaro", 5895),
    ("Puncak Jaya", 4884),
];

type Failure = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let device = Device::open()?;
    let listener = Listener::bind(&device.alloc_pd(), "127.0.0.1:0")?;
    let addr = listener.local_addr().ok_or("the listener has no address")?;
    let server = thread::spawn(move || serve(&listener));
    read(&device, addr)?;
    server.join().expect("the server does not panic")
}

/// Makes the table, tells the client where it is, and waits until the client has gone.
fn serve(listener: &Listener) -> Result<(), Failure> {
    let request = listener.accept().wait()?;
    let table = Exposed::new(request.pd(), MOUNTAINS.len() * ROW, Access::REMOTE_READ)?;
    for (number, (name, height)) in MOUNTAINS.iter().enumerate() {
        let mut row = format!("{name:NAME$}").into_bytes();
        row.extend(height.to_be_bytes());
        table.write_at(number * ROW, &row);
    }
    let params = ConnectParams::new().private_data(table.grant().to_octets());
    let config = Config::new().params(params);
    let prepared = config.prepare(request.pd())?;
    let pool = BlockPool::new(request.pd(), 1, 1)?;
    let nothing = prepared.recv(pool.try_take().ok_or("no block is free")?);
    let _session = prepared.accept(request).wait()?;
    // The client never sends: this ends when it disconnects.
    match nothing.wait() {
        Ok(_) => Err("the client sent something".into()),
        Err(_) => Ok(()),
    }
}

fn read(device: &Device, addr: SocketAddr) -> Result<(), Failure> {
    let pd = device.alloc_pd();
    let session = Session::connect(&pd, addr).wait()?;
    let grant: &[u8; GRANT_LEN] = session.private_data().try_into()?;
    let table = RemoteGrant::from_octets(grant);
    let rows = table.len() / ROW as u64;
    println!("The server has {rows} rows of {ROW} bytes at {:?}.", table.stag());

    // All Reads are under way at once, the last row first.
    let pool = BlockPool::new(&pd, ROW, MOUNTAINS.len())?;
    let mut reads = Vec::new();
    for row in (0..rows).rev() {
        let block = pool.try_take().ok_or("no block is free")?;
        reads.push(session.read(&table, row * ROW as u64, block));
    }
    for (read, want) in reads.into_iter().zip(MOUNTAINS.iter().rev()) {
        let row = read.wait()?;
        let (name, height) = row.split_at(NAME);
        let name = std::str::from_utf8(name)?.trim_end();
        let height = u32::from_be_bytes(height.try_into()?);
        println!("{name:12} {height:5} m");
        assert_eq!((name, height), *want);
    }

    // Memory that was not granted cannot be read.
    let block = pool.try_take().ok_or("no block is free")?;
    assert!(session.read(&table, rows * ROW as u64, block).wait().is_err());
    session.close().wait()?;
    Ok(())
}
