//! Every step of a connection, as an event.

use std::net::SocketAddr;

use iwarp::cm::{ConnectParams, EventChannel, EventKind, Id};
use iwarp::{CompletionQueue, Device, QueuePair, QueuePairAttributes};
use iwarp_learn::{Failure, open_device, print_later, run};

fn main() -> Result<(), Failure> {
    let device = open_device()?;
    let channel = EventChannel::new(&device)?;
    let listener = Id::new(&channel)?;
    listener.bind("127.0.0.1:0".parse()?)?;
    listener.listen(16)?;
    let addr = listener.local_addr().ok_or("the listener has no address")?;
    run(|| server(&device, &channel), || client(&device, addr), 1);
    Ok(())
}

/// The next event: the id that it happened to, and the peer's words.
fn next(channel: &EventChannel, lines: &mut Vec<String>) -> Result<(Id, String), Failure> {
    let event = channel.wait(None)?.ok_or("no event comes")?;
    // librdmacm's name, and what the peer says with it.
    let (name, said) = match event.kind {
        EventKind::AddressResolved => ("ADDR_RESOLVED", Vec::new()),
        EventKind::RouteResolved => ("ROUTE_RESOLVED", Vec::new()),
        EventKind::ConnectRequest { private_data, .. } => ("CONNECT_REQUEST", private_data),
        EventKind::Established { private_data, .. } => ("ESTABLISHED", private_data),
        EventKind::Rejected { private_data, .. } => ("REJECTED", private_data),
        EventKind::Disconnected(_) => ("DISCONNECTED", Vec::new()),
        other => return Err(format!("{other:?}").into()),
    };
    lines.push(format!("RDMA_CM_EVENT_{name}"));
    let said = String::from_utf8(said)?.trim_end_matches('\0').to_owned();
    Ok((event.id, said))
}

fn create_qp(device: &Device) -> Result<(QueuePair, CompletionQueue), Failure> {
    let cq = device.create_cq(2, None)?;
    Ok((device.alloc_pd().create_qp(&QueuePairAttributes::new(&cq, &cq))?, cq))
}

fn server(device: &Device, channel: &EventChannel) -> Result<(), Failure> {
    let mut lines = Vec::new();
    let (guest, name) = next(channel, &mut lines)?;
    lines.push(format!("{name} is refused"));
    guest.reject(b"no guests")?;

    let (peer, name) = next(channel, &mut lines)?;
    lines.push(format!("{name} is accepted"));
    let (qp, _cq) = create_qp(device)?;
    peer.accept(&qp, &ConnectParams::new().private_data(*b"welcome"))?;
    next(channel, &mut lines)?;
    next(channel, &mut lines)?;
    lines.iter().for_each(|line| print_later(format!("server: {line}")));
    Ok(())
}

fn client(device: &Device, addr: SocketAddr) -> Result<(), Failure> {
    for name in ["guest", "member"] {
        let mut lines = Vec::new();
        let channel = EventChannel::new(device)?;
        let id = Id::new(&channel)?;
        id.resolve_addr(None, addr)?;
        next(&channel, &mut lines)?;
        id.resolve_route()?;
        next(&channel, &mut lines)?;
        let (qp, _cq) = create_qp(device)?;
        id.connect(&qp, &ConnectParams::new().private_data(name))?;
        let (_, said) = next(&channel, &mut lines)?;
        lines.push(format!("the server says {said}"));
        lines.iter().for_each(|line| println!("client: {line}"));
        id.disconnect();
    }
    Ok(())
}
