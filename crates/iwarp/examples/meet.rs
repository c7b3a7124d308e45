// SPDX-License-Identifier: MIT OR Apache-2.0

//! Two programs that tell each other address, queue pair number and packet number over a connection
//! of their own, as programs for InfiniBand do, and need no connection manager:
//!
//! ```sh
//! cargo run --example meet                # listens on port 18515
//! cargo run --example meet -- 192.0.2.1   # goes there
//! ```

use std::env;
use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, TcpListener, TcpStream};

use iwarp::{
    CompletionQueue, Device, Payload, Peer, QpState, QueuePairAttributes, RecvRequest, SendRequest,
    WcStatus, WorkCompletion,
};

const PORT: u16 = 18515;

fn main() -> Result<(), Box<dyn Error>> {
    let device = Device::open()?;
    let pd = device.alloc_pd();
    let cq = device.create_cq(16, None)?;
    let qp = pd.create_addressable_qp(&QueuePairAttributes::new(&cq, &cq))?;
    let region = pd.allocate(64, iwarp::Access::LOCAL_WRITE)?;
    qp.modify(QpState::Init)?;
    qp.post_recv(&RecvRequest::new(1, &[region.whole()]))?;

    let server = env::args().nth(1);
    let mut stream = match &server {
        Some(host) => TcpStream::connect((host.as_str(), PORT))?,
        None => TcpListener::bind(("::", PORT))?.accept()?.0,
    };
    let local = stream.local_addr()?.ip().to_canonical();
    let gids = device.gids()?;
    let gid = gids.iter().find(|gid| gid.addr == local).ok_or("no such address")?;
    writeln!(stream, "{} {} {}", gid.addr, qp.number(), qp.psn())?;
    let mut line = String::new();
    BufReader::new(&stream).read_line(&mut line)?;
    let words: Vec<_> = line.trim().split(' ').collect();
    let [addr, number, psn] = words[..] else { return Err("the peer makes no sense".into()) };
    let peer = Peer::new(gid, addr.parse::<IpAddr>()?, number.parse()?, psn.parse()?);

    // From now on the peer may come.
    qp.connect_to(&peer)?;
    qp.modify(QpState::Rts)?;
    let words = if server.is_some() { "I came to you." } else { "I waited for you." };
    qp.post_send(&SendRequest::send(2, Payload::Inline(words.as_bytes())).signaled())?;
    for _ in 0..2 {
        let completion = wait(&cq);
        if completion.status != WcStatus::Success {
            return Err(format!("{:?}: {:?}", completion.op, completion.status).into());
        }
        if completion.wr_id == 1 {
            let mut octets = vec![0; completion.byte_len as usize];
            region.buffer().ok_or("not our memory")?.read_at(0, &mut octets);
            println!("{} says: {}", peer.gid, String::from_utf8_lossy(&octets));
        }
    }
    // Neither leaves before the other has what was sent.
    writeln!(stream, "done")?;
    BufReader::new(&stream).read_line(&mut line)?;
    Ok(())
}

fn wait(cq: &CompletionQueue) -> WorkCompletion {
    loop {
        if let Some(completion) = cq.poll_one() {
            return completion;
        }
    }
}
