// SPDX-License-Identifier: MIT OR Apache-2.0

//! Key-value lookup by RDMA Read: `cargo run --release --example kv_lookup`
//!
//! The hash table lies in the server's memory. The client computes where a key would be and reads
//! there; the server's CPU has no part in a lookup. (The table does not change while it is read.
//! If it did, each slot would need a checksum, and a reader that finds it wrong reads again.)

use std::error::Error;
use std::net::SocketAddr;
use std::thread;
use std::time::Instant;

use iwarp::cm::ConnectParams;
use iwarp::{Access, Device};
use iwarp_session::{BlockPool, Config, Exposed, GRANT_LEN, Listener, RemoteGrant, Session};

/// Slots of the table, and how many of them a lookup reads at a time.
const SLOTS: usize = 4096;
const PROBE: usize = 4;
/// A slot: lengths of key and value (an empty slot has no key), then both.
const SLOT: usize = 64;
const KEY: usize = 24;
const VALUE: usize = SLOT - 2 - KEY;

const ENTRIES: u32 = 3000;

type Failure = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let device = Device::open()?;
    let listener = Listener::bind(&device.alloc_pd(), "127.0.0.1:0")?;
    let addr = listener.local_addr().ok_or("the listener has no address")?;
    let server = thread::spawn(move || serve(&listener));
    look_everything_up(&device, addr)?;
    server.join().expect("the server does not panic")
}

/// The first slot where a key may be (FNV-1a).
fn home(key: &str) -> usize {
    let hash = key.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, octet| {
        (hash ^ u64::from(octet)).wrapping_mul(0x0100_0000_01b3)
    });
    // Starts a group of slots that one Read fetches.
    hash as usize % (SLOTS / PROBE) * PROBE
}

/// Key and value of a slot, if it has any.
fn entry(slot: &[u8]) -> Option<(&[u8], &[u8])> {
    let (key, value) = (usize::from(slot[0]), usize::from(slot[1]));
    (key > 0).then(|| (&slot[2..2 + key], &slot[2 + KEY..2 + KEY + value]))
}

/// Fills the table, tells the client where it is, and waits until the client has gone.
fn serve(listener: &Listener) -> Result<(), Failure> {
    let request = listener.accept().wait()?;
    let table = Exposed::new(request.pd(), SLOTS * SLOT, Access::REMOTE_READ)?;
    for number in 0..ENTRIES {
        insert(&table, &format!("key-{number}"), &format!("the value of {number}"))?;
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

/// Puts an entry into the first slot that is free, from its home on.
fn insert(table: &Exposed, key: &str, value: &str) -> Result<(), Failure> {
    if key.is_empty() || key.len() > KEY || value.len() > VALUE {
        return Err("key or value does not fit a slot".into());
    }
    let mut slot = [0; SLOT];
    for place in (home(key)..SLOTS).chain(0..home(key)) {
        table.read_at(place * SLOT, &mut slot);
        if entry(&slot).is_none() {
            (slot[0], slot[1]) = (key.len() as u8, value.len() as u8);
            slot[2..2 + key.len()].copy_from_slice(key.as_bytes());
            slot[2 + KEY..2 + KEY + value.len()].copy_from_slice(value.as_bytes());
            table.write_at(place * SLOT, &slot);
            return Ok(());
        }
    }
    Err("the table is full".into())
}

struct Client {
    session: Session,
    table: RemoteGrant,
    pool: BlockPool,
    reads: u32,
}

impl Client {
    /// Reads groups of slots from the key's home on until the key or a free slot turns up.
    fn get(&mut self, key: &str) -> Result<Option<String>, Failure> {
        let first = home(key);
        for group in (first..SLOTS).chain(0..first).step_by(PROBE) {
            let block = self.pool.try_take().ok_or("no block is free")?;
            let slots = self.session.read(&self.table, (group * SLOT) as u64, block).wait()?;
            self.reads += 1;
            for slot in slots.chunks(SLOT) {
                match entry(slot) {
                    None => return Ok(None),
                    Some((found, value)) if found == key.as_bytes() => {
                        return Ok(Some(String::from_utf8(value.to_vec())?));
                    }
                    Some(_) => {}
                }
            }
        }
        Ok(None)
    }
}

fn look_everything_up(device: &Device, addr: SocketAddr) -> Result<(), Failure> {
    let pd = device.alloc_pd();
    let session = Session::connect(&pd, addr).wait()?;
    let grant: &[u8; GRANT_LEN] = session.private_data().try_into()?;
    let table = RemoteGrant::from_octets(grant);
    let pool = BlockPool::new(&pd, PROBE * SLOT, 1)?;
    let mut client = Client { session, table, pool, reads: 0 };

    for key in ["key-7", "key-2999", "key-3000"] {
        println!("{key}: {}", client.get(key)?.as_deref().unwrap_or("not there"));
    }
    client.reads = 0;
    let start = Instant::now();
    for number in 0..ENTRIES {
        let value = client.get(&format!("key-{number}"))?;
        assert_eq!(value, Some(format!("the value of {number}")));
    }
    let took = start.elapsed() / ENTRIES;
    println!("{ENTRIES} lookups by {} Reads, {took:.1?} each", client.reads);
    assert_eq!(client.get("no such key")?, None);
    client.session.close().wait()?;
    Ok(())
}
