// SPDX-License-Identifier: MIT OR Apache-2.0

//! Ping-pong between two tasks: `cargo run --release --features tokio --example pingpong_async`

use std::error::Error;
use std::time::{Duration, Instant};

use iwarp::Device;
use iwarp_session::{BlockPool, Config, Listener, Session};

const ROUNDS: u32 = 20_000;
const LEN: usize = 64;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let device = Device::open()?;
    let listener = Listener::bind(&device.alloc_pd(), "127.0.0.1:0")?;
    let addr = listener.local_addr().ok_or("the listener has no address")?;

    let (served, took) = tokio::join!(serve(&listener), play(&device, addr));
    served?;
    let took = took?;
    println!("{ROUNDS} rounds of {LEN} bytes in {took:.2?}: {:.1?} each way", took / ROUNDS / 2);
    Ok(())
}

/// Sends every message back.
async fn serve(listener: &Listener) -> Result<(), Box<dyn Error>> {
    let request = listener.accept().await?;
    let pool = BlockPool::new(request.pd(), LEN, 2)?;
    // Posted before the connection is up: the peer may send at once.
    let prepared = Config::default().prepare(request.pd())?;
    let mut next = prepared.recv(pool.try_take().ok_or("no block is free")?);
    let session = prepared.accept(request).await?;
    for _ in 0..ROUNDS {
        let message = next.await?;
        next = session.recv(pool.try_take().ok_or("no block is free")?);
        // Its block goes back to the pool when it was sent; no task has to wait for that.
        drop(session.send(message.block));
    }
    session.close().await?;
    Ok(())
}

async fn play(device: &Device, addr: std::net::SocketAddr) -> Result<Duration, Box<dyn Error>> {
    let pd = device.alloc_pd();
    let pool = BlockPool::new(&pd, LEN, 2)?;
    let session = Session::connect(&pd, addr).await?;
    let mut ball = pool.try_take().ok_or("no block is free")?;
    let start = Instant::now();
    for round in 0..ROUNDS {
        ball[..4].copy_from_slice(&round.to_be_bytes());
        let back = session.recv(pool.try_take().ok_or("no block is free")?);
        session.send(ball).await?;
        ball = back.await?.block;
        assert_eq!(ball[..4], round.to_be_bytes());
    }
    Ok(start.elapsed())
}
