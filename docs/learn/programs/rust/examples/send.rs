//! A question and its answer: Send and Receive, and what completes.

use std::net::SocketAddr;
use std::time::Duration;

use iwarp::cm::{self, ConnectParams, Listener};
use iwarp::{
    Access, CompletionQueue, Device, QueuePairAttributes, RecvRequest, SendRequest, WcStatus,
    WorkCompletion,
};
use iwarp_learn::{Failure, learn_verbs};

fn main() -> Result<(), Failure> {
    learn_verbs(server, client)
}

fn server(device: &Device, listener: &Listener) -> Result<(), Failure> {
    let pd = device.alloc_pd();
    let (sent, received) = (device.create_cq(16, None)?, device.create_cq(16, None)?);
    let qp = pd.create_qp(&QueuePairAttributes::new(&sent, &received))?;
    let memory = pd.allocate(64, Access::LOCAL_WRITE)?;
    let text = memory.buffer().ok_or("the library allocated it")?;

    // First the receive, then the connection: the peer may send at once.
    qp.post_recv(&RecvRequest::new(7, &[memory.whole()]))?;
    let request = listener.accept(None)?.ok_or("nobody connects")?;
    let connection = request.accept(&qp, &ConnectParams::default())?;
    let wc = next(&received)?;
    let mut bytes = vec![0; wc.byte_len as usize];
    text.read_at(0, &mut bytes);
    let words = str::from_utf8(&bytes)?;
    println!("server: request {} is complete, {} bytes: {words}", wc.wr_id, wc.byte_len);

    text.write_at(0, words.to_uppercase().as_bytes());
    qp.post_send(&SendRequest::send(8, &[memory.sge(0, bytes.len())]).signaled())?;
    next(&sent)?;
    // The client ends the connection when it has the answer.
    connection.wait_disconnected(None);
    Ok(())
}

fn client(device: &Device, addr: SocketAddr) -> Result<(), Failure> {
    let pd = device.alloc_pd();
    let (sent, received) = (device.create_cq(16, None)?, device.create_cq(16, None)?);
    let qp = pd.create_qp(&QueuePairAttributes::new(&sent, &received))?;
    let (question, answer) =
        (pd.allocate(5, Access::LOCAL_WRITE)?, pd.allocate(64, Access::LOCAL_WRITE)?);
    question.buffer().ok_or("the library allocated it")?.write_at(0, b"hello");

    qp.post_recv(&RecvRequest::new(1, &[answer.whole()]))?;
    let params = ConnectParams::default();
    let connection = cm::connect(device, addr, &qp, &params, Duration::from_secs(5))?;
    qp.post_send(&SendRequest::send(2, &[question.whole()]).signaled())?;
    next(&sent)?;
    let wc = next(&received)?;
    let mut bytes = vec![0; wc.byte_len as usize];
    answer.buffer().ok_or("the library allocated it")?.read_at(0, &mut bytes);
    let words = str::from_utf8(&bytes)?;
    println!("client: request {} is complete, {} bytes: {words}", wc.wr_id, wc.byte_len);
    connection.disconnect();
    Ok(())
}

/// Polls until there is a completion, which must be a success.
fn next(queue: &CompletionQueue) -> Result<WorkCompletion, Failure> {
    loop {
        match queue.poll_one() {
            Some(wc) if wc.status == WcStatus::Success => return Ok(wc),
            Some(wc) => return Err(format!("completion: {:?}", wc.status).into()),
            None => {}
        }
    }
}
