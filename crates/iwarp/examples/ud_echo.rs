// SPDX-License-Identifier: MIT OR Apache-2.0

//! Answers each UD datagram that comes to a port of RoCE v2 with what was in it.
//!
//!     cargo run --release -p iwarp --example ud_echo -- 127.0.0.1 100 [GROUP]
//!
//! It answers so many and ends. Of a group it says what it hears, and sends it one packet. No queue
//! pairs: any is answered, by number 18.

use std::convert::Infallible;
use std::error::Error;
use std::net::{IpAddr, SocketAddr};

use iwarp::Outbox;
use iwarp::port::{DatagramPort, DatagramSettings, Sent, datagrams};
use iwarp_roce::wire::{
    Bth, Burst, Deth, Header, ICRC_LEN, MULTICAST_QP, Message, PORT, Packet, Path, Position, Psn,
    SendTail, Transport,
};
use iwarp_types::{AddressVector, Digest};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let [ip, count, group @ ..] = &args[..] else {
        return Err("ADDRESS COUNT [GROUP]".into());
    };
    let (ip, count): (IpAddr, u32) = (ip.parse()?, count.parse()?);
    let network = datagrams();
    let port = network.open(SocketAddr::new(ip, PORT), &DatagramSettings::default())?;
    println!("{:?}", port.self_test()?);
    let mut ports = vec![&*port];
    let member = match group {
        [group, ..] => Some(network.open_group(SocketAddr::new(group.parse()?, PORT), ip)?),
        [] => None,
    };
    let mut outbox = Outbox::new(&*port, 1 << 16);
    if let Some(member) = &member {
        ports.push(&**member);
        let address = AddressVector::new(ip, member.local_addr().ip());
        let deth = Deth { qkey: 0x0123_4567, source_qp: OWN };
        push(room(&mut outbox, &*port), &Path::new(address, PORT), MULTICAST_QP, deth, 0, b"hello");
    }
    let mut answered = 0;
    while answered < count {
        while !matches!(outbox.flush(&*port)?, Sent::All) {}
        for from in &ports {
            let out = room(&mut outbox, &*port);
            let got = from.receive(&mut |path, packet| answered += answer(out, path, packet));
            if got.is_err() {
                std::thread::yield_now();
            }
        }
    }
    outbox.flush(&*port)?;
    println!("{:?}", port.counters());
    Ok(())
}

/// The number of our queue pair.
const OWN: u32 = 18;

fn room<'a>(outbox: &'a mut Outbox, port: &dyn DatagramPort) -> &'a mut Burst {
    outbox.fill(port).expect("flushed before")
}

/// Answers a packet; how many that makes.
fn answer(out: &mut Burst, path: &Path, packet: &[u8]) -> u32 {
    let Some(parsed) = packet.len().checked_sub(ICRC_LEN).map(|end| Packet::parse(&packet[..end]))
    else {
        return 0;
    };
    let Ok(Packet { header: Header { bth, deth: Some(deth), .. }, payload }) = parsed else {
        println!("{parsed:?} from {:?}", path.address.source);
        return 0;
    };
    if bth.dest_qp == MULTICAST_QP {
        println!("heard {:?} of {deth:?}", String::from_utf8_lossy(payload));
        return u32::from(deth.source_qp != OWN);
    }
    let AddressVector { source, destination, .. } = path.address;
    let address = AddressVector::new(destination, source);
    let back = Path { destination_port: path.source_port, ..Path::new(address, PORT) };
    let ours = Deth { source_qp: OWN, ..deth };
    push(out, &back, deth.source_qp, ours, bth.psn.number(), payload);
    1
}

fn push(out: &mut Burst, path: &Path, to: u32, deth: Deth, psn: u32, payload: &[u8]) {
    let header = Header {
        bth: Bth::new(to, Psn::new(psn)),
        transport: Transport::Ud,
        deth: Some(deth),
        message: Message::Send { position: Position::Only, tail: SendTail::Plain },
    };
    let fill = |out: &mut [u8], digest: &mut Digest| {
        out.copy_from_slice(payload);
        digest.update(out);
        Ok::<(), Infallible>(())
    };
    let Ok(()) = out.push(path, &header, payload.len(), fill);
}
