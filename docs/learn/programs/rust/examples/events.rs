//! Two ways to wait for a completion.

use std::net::SocketAddr;
use std::thread::sleep;
use std::time::Duration;

use iwarp::cm::{self, ConnectParams};
use iwarp::{
    CompletionChannel, CompletionQueue, Device, Payload, QueuePairAttributes, RecvRequest,
    SendRequest,
};
use iwarp_learn::{Failure, learn_verbs};

/// A message without bytes.
const WORD: Payload<'_> = Payload::Sges(&[]);

fn main() -> Result<(), Failure> {
    learn_verbs(server, client)
}

fn server(device: &Device, listener: &cm::Listener) -> Result<(), Failure> {
    let channel = device.create_comp_channel()?;
    let received = device.create_cq(16, Some(&channel))?;
    let sent = device.create_cq(16, None)?;
    let qp = device.alloc_pd().create_qp(&QueuePairAttributes::new(&sent, &received))?;
    qp.post_recv(&RecvRequest::new(0, &[]))?;
    qp.post_recv(&RecvRequest::new(0, &[]))?;
    let request = listener.accept(None)?.ok_or("nobody connects")?;
    let connection = request.accept(&qp, &ConnectParams::default())?;
    for _ in 0..2 {
        by_event(&received, &channel)?;
        sleep(Duration::from_millis(100)); // it has to think
        qp.post_send(&SendRequest::send(0, WORD))?;
    }
    connection.wait_disconnected(None);
    Ok(())
}

/// Keeps asking: the answer is seen at once, and the CPU is busy until then.
fn by_polling(queue: &CompletionQueue) -> u32 {
    let mut looks = 1;
    while queue.poll_one().is_none() {
        looks += 1;
    }
    looks
}

/// Sleeps until something has come.
fn by_event(queue: &CompletionQueue, channel: &CompletionChannel) -> Result<u32, Failure> {
    let mut looks = 0;
    loop {
        looks += 1;
        // Armed first: what comes after this look makes an event.
        queue.request_notify(false);
        if queue.poll_one().is_some() {
            return Ok(looks);
        }
        channel.wait(None)?;
    }
}

fn client(device: &Device, addr: SocketAddr) -> Result<(), Failure> {
    let channel = device.create_comp_channel()?;
    let received = device.create_cq(16, Some(&channel))?;
    let sent = device.create_cq(16, None)?;
    let qp = device.alloc_pd().create_qp(&QueuePairAttributes::new(&sent, &received))?;
    qp.post_recv(&RecvRequest::new(0, &[]))?;
    qp.post_recv(&RecvRequest::new(0, &[]))?;
    let params = ConnectParams::default();
    let connection = cm::connect(device, addr, &qp, &params, Duration::from_secs(5))?;
    qp.post_send(&SendRequest::send(0, WORD))?;
    // The count differs in each run: it goes to stderr, where no test looks.
    eprintln!("looked {} times", by_polling(&received));
    println!("the first answer is found by polling");
    qp.post_send(&SendRequest::send(0, WORD))?;
    eprintln!("looked {} times", by_event(&received, &channel)?);
    println!("the second answer is found by an event");
    connection.disconnect();
    Ok(())
}
