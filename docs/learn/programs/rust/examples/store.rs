//! A key-value store: the server puts, clients get by RDMA Read.

use std::net::SocketAddr;

use iwarp::{Access, ProtectionDomain};
use iwarp_learn::{Failure, accept_and_grant, connect_for_grant, learn};
use iwarp_session::{Block, Exposed, Listener, RemoteGrant, Session};

const SLOTS: usize = 64;
/// Bytes of a slot: key and value, both filled up with zeros, and a checksum of these.
const SLOT: usize = ENTRY + 8;
const ENTRY: usize = KEY + 40;
const KEY: usize = 16;

fn main() -> Result<(), Failure> {
    learn(server, client, 1)
}

/// FNV-1a.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Key and value of a slot.
fn entry(slot: &[u8]) -> Result<(&str, &str), Failure> {
    let [key, value] = [&slot[..KEY], &slot[KEY..ENTRY]].map(str::from_utf8);
    Ok((key?.trim_end_matches('\0'), value?.trim_end_matches('\0')))
}

fn put(table: &Exposed, key: &str, value: &str) -> Result<(), Failure> {
    let mut slot = [0; SLOT];
    let mut place = hash(key.as_bytes()) as usize % SLOTS;
    loop {
        table.read_at(place * SLOT, &mut slot);
        if [key, ""].contains(&entry(&slot)?.0) {
            break;
        }
        place = (place + 1) % SLOTS;
    }
    slot = [0; SLOT];
    slot[..key.len()].copy_from_slice(key.as_bytes());
    slot[KEY..KEY + value.len()].copy_from_slice(value.as_bytes());
    let check = hash(&slot[..ENTRY]);
    slot[ENTRY..].copy_from_slice(&check.to_ne_bytes());
    table.write_at(place * SLOT, &slot);
    Ok(())
}

fn server(listener: &Listener) -> Result<(), Failure> {
    let request = listener.accept().wait()?;
    let table = Exposed::new(request.pd(), SLOTS * SLOT, Access::REMOTE_READ)?;
    for (key, value) in [("apple", "red"), ("banana", "yellow"), ("cherry", "dark red")] {
        put(&table, key, value)?;
    }
    let (session, word) = accept_and_grant(request, &table)?;
    let goodbye = session.recv(word.wait()?.block);
    put(&table, "apple", "green")?;
    session.send_inline(b"").wait()?;
    goodbye.wait()?;
    println!("server: put 4 times, got nothing");
    Ok(())
}

/// Reads slots from the key's place on, until the key or a free slot turns up.
fn get(session: &Session, table: &RemoteGrant, key: &str) -> Result<String, Failure> {
    let mut slot = Block::new(session.pd(), SLOT)?;
    let mut place = hash(key.as_bytes()) as usize % SLOTS;
    loop {
        slot = session.read(table, (place * SLOT) as u64, slot).wait()?;
        let (found, value) = entry(&slot)?;
        let check = u64::from_ne_bytes(slot[ENTRY..].try_into()?);
        if found.is_empty() {
            return Ok("not there".to_owned());
        } else if check != hash(&slot[..ENTRY]) {
            continue; // half old and half new: read again
        } else if found == key {
            return Ok(value.to_owned());
        }
        place = (place + 1) % SLOTS;
    }
}

fn client(pd: &ProtectionDomain, addr: SocketAddr) -> Result<(), Failure> {
    let (session, table) = connect_for_grant(pd, addr)?;
    for key in ["apple", "banana", "pear"] {
        println!("client: {key} is {}", get(&session, &table, key)?);
    }
    let word = session.recv(Block::new(pd, 0)?);
    session.send_inline(b"").wait()?;
    word.wait()?;
    println!("client: apple is now {}", get(&session, &table, "apple")?);
    session.send_inline(b"").wait()?;
    session.close().wait()?;
    Ok(())
}
