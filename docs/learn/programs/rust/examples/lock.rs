//! Two clients count in the server's memory, with a lock that is there as well.

use std::net::SocketAddr;
use std::sync::atomic::Ordering::Acquire;

use iwarp::{Access, ProtectionDomain};
use iwarp_learn::{Failure, accept_and_grant, connect_for_grant, learn};
use iwarp_session::{Block, Exposed, Listener};

const CLIENTS: usize = 2;
const ROUNDS: usize = 100;
/// Alignment: atomic operations want offsets that are multiples of 8.
const LOCK: u64 = 0;
const COUNTER: u64 = 8;

fn main() -> Result<(), Failure> {
    learn(server, client, CLIENTS)
}

fn server(listener: &Listener) -> Result<(), Failure> {
    let mut request = listener.accept().wait()?;
    let all = Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
    let shared = Exposed::new(request.pd(), 16, all)?;
    let mut peers = vec![accept_and_grant(request, &shared)?];
    while peers.len() < CLIENTS {
        request = listener.accept().wait()?;
        peers.push(accept_and_grant(request, &shared)?);
    }
    let mut sessions = Vec::new();
    for (session, goodbye) in peers {
        goodbye.wait()?;
        sessions.push(session);
    }
    let [lock, counter] = [LOCK, COUNTER].map(|at| shared.atomic_u64(at as usize).load(Acquire));
    println!("server: the counter is {counter}");
    println!("server: the lock is {}", if lock == 0 { "free" } else { "taken" });
    Ok(())
}

fn client(pd: &ProtectionDomain, addr: SocketAddr) -> Result<(), Failure> {
    let (session, shared) = connect_for_grant(pd, addr)?;
    let mut counter = Block::new(pd, 8)?;
    for _ in 0..ROUNDS {
        // Puts 1 there if 0 is there, and returns what was there.
        while session.compare_swap(&shared, LOCK, 0, 1).wait()? != 0 {
            // The other one has it.
        }
        counter = session.read(&shared, COUNTER, counter).wait()?;
        let next = u64::from_ne_bytes(counter[..].try_into()?) + 1;
        counter.copy_from_slice(&next.to_ne_bytes());
        counter = session.write(counter, &shared, COUNTER).wait()?;
        session.compare_swap(&shared, LOCK, 1, 0).wait()?;
    }
    session.send_inline(b"").wait()?;
    session.close().wait()?;
    Ok(())
}
