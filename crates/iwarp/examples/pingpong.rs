// SPDX-License-Identifier: MIT OR Apache-2.0

//! Ping-pong with the verbs themselves: `cargo run --release --example pingpong`
//!
//! Two threads, each with a queue pair of its own, throw a message back and forth. The crate
//! `iwarp-session` does it with less to write; this shows what happens underneath.

use std::error::Error;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use iwarp::cm::{self, ConnectParams, Listener};
use iwarp::{
    Access, CompletionQueue, Device, MemoryRegion, QueuePair, QueuePairAttributes, RecvRequest,
    SendRequest, WcOp, WcStatus,
};

const ROUNDS: u32 = 20_000;
const LEN: usize = 64;

type Failure = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let device = Device::open()?;
    let listener = Listener::bind(&device, "127.0.0.1:0")?;
    let addr = listener.local_addr().ok_or("the listener has no address")?;
    let server = {
        let device = device.clone();
        thread::spawn(move || serve(&device, &listener))
    };
    let took = play(&device, addr)?;
    server.join().expect("the server does not panic")?;
    println!("{ROUNDS} rounds of {LEN} bytes in {took:.2?}: {:.1?} each way", took / ROUNDS / 2);
    Ok(())
}

/// Sends every message back.
fn serve(device: &Device, listener: &Listener) -> Result<(), Failure> {
    let player = Player::new(device)?;
    // Posted before the connection is up: the peer may send at once.
    player.post_recv()?;
    let request = listener.accept(None)?.ok_or("nobody connects")?;
    let connection = request.accept(&player.qp, &ConnectParams::default())?;
    for _ in 0..ROUNDS {
        let ball = player.catch()?;
        player.post_recv()?;
        player.throw(ball)?;
    }
    // The peer disconnects when it has the last one.
    connection.wait_disconnected(None);
    Ok(())
}

/// Throws, and times how long it takes until everything is back.
fn play(device: &Device, addr: SocketAddr) -> Result<Duration, Failure> {
    let player = Player::new(device)?;
    let params = ConnectParams::default();
    let connection = cm::connect(device, addr, &player.qp, &params, Duration::from_secs(5))?;
    let start = Instant::now();
    for round in 0..ROUNDS {
        player.post_recv()?;
        player.throw(round)?;
        assert_eq!(player.catch()?, round);
    }
    let took = start.elapsed();
    connection.disconnect();
    Ok(took)
}

struct Player {
    qp: QueuePair,
    cq: CompletionQueue,
    /// The message to throw, then the one caught.
    memory: MemoryRegion,
}

impl Player {
    fn new(device: &Device) -> Result<Self, Failure> {
        let pd = device.alloc_pd();
        let cq = device.create_cq(16, None)?;
        let memory = pd.allocate(2 * LEN, Access::LOCAL_WRITE)?;
        let qp = pd.create_qp(&QueuePairAttributes::new(&cq, &cq))?;
        Ok(Self { qp, cq, memory })
    }

    fn post_recv(&self) -> Result<(), Failure> {
        let sges = &[self.memory.sge(LEN, LEN)];
        Ok(self.qp.post_recv(&RecvRequest::new(0, sges))?)
    }

    fn throw(&self, ball: u32) -> Result<(), Failure> {
        let buffer = self.memory.buffer().ok_or("the library allocated it")?;
        buffer.write_at(0, &ball.to_be_bytes());
        Ok(self.qp.post_send(&SendRequest::send(0, &[self.memory.sge(0, LEN)]).signaled())?)
    }

    /// Polls until a message has come; completions of sends come by meanwhile.
    fn catch(&self) -> Result<u32, Failure> {
        loop {
            let Some(completion) = self.cq.poll_one() else { continue };
            if completion.status != WcStatus::Success {
                return Err(format!("{:?}: {:?}", completion.op, completion.status).into());
            }
            if completion.op == WcOp::Recv {
                let mut ball = [0; 4];
                self.memory.buffer().ok_or("the library allocated it")?.read_at(LEN, &mut ball);
                return Ok(u32::from_be_bytes(ball));
            }
        }
    }
}
