// SPDX-License-Identifier: MIT OR Apache-2.0

//! This project's end of `interop/siw-exchange.sh`: Writes, Reads and Sends of many sizes between
//! it and `interop/siw_peer.c` on another implementation of iWARP, every byte compared.
//!
//! First each end sends what it lends: address (64 bits), key, length (32 bits), big-endian. From
//! then on this end sends commands of four 32-bit numbers (command, length, seed, count), and the
//! other answers each when it is done, with the number of the first wrong byte, from 1, or 0. A
//! peer that connects answers what this end lends, too: there is one receive posted at a time.

use std::env;
use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use iwarp::cm::{self, ConnectParams, Connection, Listener};
use iwarp::{
    Access, CompletionChannel, CompletionQueue, Device, Ended, MemoryRegion, Payload,
    ProtectionDomain, QueuePair, QueuePairAttributes, RecvRequest, SendOp, SendRequest, Sge, Stag,
    TaggedOffset, WcOp, WcStatus,
};

/// Bytes of the largest message, then with a margin behind it that stays untouched.
const ROOM: usize = 4 << 20;
const SIZE: usize = ROOM + 4096;
const UNTOUCHED: u8 = 0xee;
/// Of the private data.
const PRIVATE_SEED: u32 = 0xda7a;
/// Bytes of a command, of an answer, of a description of lent memory.
const MESSAGE: usize = 16;
/// A wait that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(30);

const SIZES: [usize; 12] = [1, 2, 3, 5, 64, 1023, 1460, 4096, 65535, 65536, (1 << 20) + 1, ROOM];
/// Many at once, and of which sizes.
const MANY: u32 = 16;
const SIZES_OF_MANY: [usize; 4] = [1, 1460, 65536, ROOM / MANY as usize];

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let args: Vec<String> = env::args().collect();
    let [_, role, addr, depth, who_closes, private @ ..] = &args[..] else {
        return Err("usage: siw_exchange listen|connect ADDRESS:PORT DEPTH we-close|they-close \
                    [OWN-PRIVATE PEERS-PRIVATE]"
            .into());
    };
    let device = Device::open()?;
    let addr: SocketAddr = addr.parse()?;
    let depth = depth.parse()?;
    // Bytes of private data that this end sends, and that it expects.
    let private: Vec<usize> =
        private.iter().map(|n| n.parse()).collect::<std::result::Result<_, _>>()?;
    let own = End::contents(PRIVATE_SEED, private.first().copied().unwrap_or(0));
    let own = &own[..private.first().copied().unwrap_or(0)];
    let check_private = |got: &[u8]| match private.get(1) {
        Some(&len) if got.len() != len => {
            Err(format!("{} bytes of private data, not {len}", got.len()))
        }
        Some(&len) if got != &End::contents(PRIVATE_SEED, len)[..len] => {
            Err("the private data is wrong".to_owned())
        }
        _ => Ok(()),
    };
    let params = ConnectParams::new().ird(depth).ord(depth).private_data(own);
    let end = End::new(&device)?;
    let connection = match role.as_str() {
        "listen" => {
            let listener = Listener::bind(&device, addr)?;
            println!("listening on {addr}");
            let incoming = listener.accept(Some(PATIENCE))?.ok_or("nobody connects")?;
            check_private(incoming.private_data())?;
            incoming.accept(&end.qp, &params)?
        }
        "connect" => {
            let connection = cm::connect(&device, addr, &end.qp, &params, PATIENCE)?;
            check_private(connection.private_data())?;
            connection
        }
        _ => return Err("listen or connect?".into()),
    };
    let done = Exchange::start(end, role == "listen").and_then(|mut exchange| {
        exchange.run()?;
        exchange.close(&connection, who_closes == "we-close")
    });
    done.map_err(|error| {
        let ended = connection.wait_disconnected(Some(Duration::ZERO));
        format!("{error} (how the connection ended: {ended:?})").into()
    })
}

#[derive(Clone, Copy)]
enum Command {
    CheckLent = 1,
    FillLent,
    Write,
    Read,
    Send,
    TakeSend,
    Bye,
}

/// An exchange that is under way.
struct Exchange {
    end: End,
    /// Memory that the peer lends.
    stag: Stag,
    to: TaggedOffset,
    /// Of the last contents: no two operations share one.
    seed: u32,
}

impl Exchange {
    /// The initiator speaks first, and each end has made room before the other may go on.
    fn start(end: End, we_listen: bool) -> Result<Self> {
        let [to, stag, len] = [end.lent.base().0, end.lent.rkey().0.into(), SIZE as u64];
        let ours = u128::from(to) << 64 | u128::from(stag) << 32 | u128::from(len);
        if !we_listen {
            end.send(&ours.to_be_bytes())?;
        }
        let theirs = u128::from_be_bytes(end.receive_message()?);
        if theirs as u32 as usize != SIZE {
            return Err(format!("the peer lends {} bytes", theirs as u32).into());
        }
        let (to, stag) = (TaggedOffset((theirs >> 64) as u64), Stag((theirs >> 32) as u32));
        let exchange = Self { end, stag, to, seed: 0 };
        if we_listen {
            exchange.end.send(&ours.to_be_bytes())?;
            exchange.answer()?;
        }
        Ok(exchange)
    }

    fn run(&mut self) -> Result<()> {
        let depths = self.end.qp.read_depths();
        println!("     depths: (ORD, IRD) = {depths:?}");
        let operations: [(&str, Operation); 6] = [
            ("RDMA Write by iwarp", Self::write),
            ("RDMA Read by iwarp", Self::read),
            ("Send by iwarp", Self::send),
            ("RDMA Write by peer", Self::be_written),
            ("RDMA Read by peer", Self::be_read),
            ("Send by peer", Self::be_sent),
        ];
        // Without a depth for it, an end cannot read, or be read.
        let possible = |name: &&(&str, Operation)| match name.0 {
            "RDMA Read by iwarp" => depths.0 > 0,
            "RDMA Read by peer" => depths.1 > 0,
            _ => true,
        };
        for &(name, operation) in operations.iter().filter(possible) {
            for len in SIZES {
                self.step(operation, len, 1).map_err(|e| format!("{name} of {len}: {e}"))?;
            }
            println!("ok   {name}: {} sizes", SIZES.len());
        }
        for &(name, operation) in operations.iter().filter(possible) {
            // A Send needs a receive each: there is only one.
            if name.starts_with("Send") {
                continue;
            }
            for len in SIZES_OF_MANY {
                self.step(operation, len, MANY)
                    .map_err(|e| format!("{MANY} {name} of {len}: {e}"))?;
            }
            println!("ok   {name}: {MANY} at once, {} sizes", SIZES_OF_MANY.len());
        }
        Ok(())
    }

    fn step(&mut self, operation: Operation, len: usize, count: u32) -> Result<()> {
        self.seed += 1;
        operation(self, len, count)
    }

    fn write(&mut self, len: usize, count: u32) -> Result<()> {
        self.end.fill(&self.end.own, self.seed, len * count as usize);
        self.transfer(len, count, |stag, to| SendOp::Write { stag, to })?;
        self.command(Command::CheckLent, len, count)
    }

    fn read(&mut self, len: usize, count: u32) -> Result<()> {
        self.command(Command::FillLent, len, count)?;
        self.end.fill(&self.end.own, 0, 0);
        self.transfer(len, count, |stag, to| SendOp::Read { stag, to, invalidate: None })?;
        let checked = self.end.check(&self.end.own, self.seed, len * count as usize);
        checked?;
        // The next Write finds the peer's bytes untouched.
        self.command(Command::FillLent, 0, 0)
    }

    fn send(&mut self, len: usize, _: u32) -> Result<()> {
        self.command(Command::TakeSend, len, 1)?;
        self.end.fill(&self.end.own, self.seed, len);
        self.end.post(SendOp::SEND, self.end.own.sge(0, len), None)?;
        self.end.wait(WcOp::Send)?;
        self.answer()?;
        Ok(())
    }

    fn be_written(&mut self, len: usize, count: u32) -> Result<()> {
        self.end.fill(&self.end.lent, 0, 0);
        self.command(Command::Write, len, count)?;
        self.end.check(&self.end.lent, self.seed, len * count as usize)
    }

    fn be_read(&mut self, len: usize, count: u32) -> Result<()> {
        self.end.fill(&self.end.lent, self.seed, len * count as usize);
        self.command(Command::Read, len, count)
    }

    fn be_sent(&mut self, len: usize, _: u32) -> Result<()> {
        self.post_command(Command::Send, len, 1)?;
        let got = self.end.wait(WcOp::Recv)? as usize;
        if got != len {
            return Err(format!("got a message of {got} bytes").into());
        }
        let checked = self.end.check(&self.end.inbox, self.seed, len);
        self.end.post_recv()?;
        checked
    }

    /// All of them are posted before the first has completed.
    fn transfer(
        &self,
        len: usize,
        count: u32,
        op: impl Fn(Stag, TaggedOffset) -> SendOp,
    ) -> Result<()> {
        for i in 0..count as usize {
            let to = TaggedOffset(self.to.0 + (i * len) as u64);
            self.end.post(op(self.stag, to), self.end.own.sge(i * len, len), Some(i))?;
        }
        let op = op(self.stag, self.to).completes_as();
        for _ in 0..count {
            self.end.wait(op)?;
        }
        Ok(())
    }

    fn post_command(&self, command: Command, len: usize, count: u32) -> Result<()> {
        let numbers = [command as u32, len as u32, self.seed, count].map(u32::to_be_bytes);
        self.end.send(numbers.as_flattened())
    }

    /// Commands, and waits until it is done and was right.
    fn command(&self, command: Command, len: usize, count: u32) -> Result<()> {
        self.post_command(command, len, count)?;
        self.answer()
    }

    fn answer(&self) -> Result<()> {
        match (u128::from_be_bytes(self.end.receive_message()?) >> 96) as u32 {
            0 => Ok(()),
            wrong => Err(format!("the peer says: byte {} is wrong", wrong - 1).into()),
        }
    }

    fn close(self, connection: &Connection, we_close: bool) -> Result<()> {
        self.command(Command::Bye, 0, u32::from(!we_close))?;
        if we_close {
            connection.disconnect();
        }
        match connection.wait_disconnected(Some(PATIENCE)) {
            Some(Ended::Closed) => Ok(()),
            other => Err(format!("the connection ended so: {other:?}").into()),
        }
    }
}

type Operation = fn(&mut Exchange, usize, u32) -> Result<()>;

/// A queue pair and its memory.
struct End {
    qp: QueuePair,
    cq: CompletionQueue,
    channel: CompletionChannel,
    /// The peer writes and reads it.
    lent: MemoryRegion,
    /// Memory that this end writes from, reads into and sends.
    own: MemoryRegion,
    /// Memory for the next message.
    inbox: MemoryRegion,
    /// Completions of receives that came while another was waited for.
    received: std::cell::Cell<Option<u32>>,
}

impl End {
    fn new(device: &Device) -> Result<Self> {
        let pd: ProtectionDomain = device.alloc_pd();
        let channel = device.create_comp_channel()?;
        let cq = device.create_cq(256, Some(&channel))?;
        let qp = pd.create_qp(&QueuePairAttributes::new(&cq, &cq))?;
        let lent = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let lent = pd.allocate(SIZE, lent)?;
        let own = pd.allocate(SIZE, Access::LOCAL_WRITE)?;
        let inbox = pd.allocate(SIZE, Access::LOCAL_WRITE)?;
        let end = Self { qp, cq, channel, lent, own, inbox, received: None.into() };
        end.fill(&end.inbox, 0, 0);
        end.post_recv()?;
        Ok(end)
    }

    /// A message of this number of bytes of contents, and untouched bytes behind.
    fn contents(seed: u32, len: usize) -> Vec<u8> {
        let mut octets = vec![UNTOUCHED; SIZE];
        for (octet, place) in octets[..len].iter_mut().zip(0_u32..) {
            let mixed =
                place.wrapping_add(seed.wrapping_mul(0x9e37_79b9)).wrapping_mul(0x85eb_ca6b);
            *octet = (mixed >> 24 ^ mixed >> 11) as u8;
        }
        octets
    }

    fn fill(&self, region: &MemoryRegion, seed: u32, len: usize) {
        region.buffer().expect("allocated").write_at(0, &Self::contents(seed, len));
    }

    fn check(&self, region: &MemoryRegion, seed: u32, len: usize) -> Result<()> {
        let mut octets = vec![0; SIZE];
        region.buffer().expect("allocated").read_at(0, &mut octets);
        let wanted = Self::contents(seed, len);
        match octets.iter().zip(&wanted).position(|(is, wanted)| is != wanted) {
            None => Ok(()),
            Some(place) => Err(format!("byte {place} is wrong").into()),
        }
    }

    fn post(&self, op: SendOp, sge: Sge, number: Option<usize>) -> Result<()> {
        let wr_id = number.unwrap_or(0) as u64;
        let payload = Payload::Sges(&[sge]);
        let request = SendRequest::new(wr_id, op, payload).signaled();
        Ok(self.qp.post_send(&request)?)
    }

    /// Makes room for the next message, untouched.
    fn post_recv(&self) -> Result<()> {
        self.fill(&self.inbox, 0, 0);
        Ok(self.qp.post_recv(&RecvRequest::new(0, &[self.inbox.whole()]))?)
    }

    fn send(&self, message: &[u8]) -> Result<()> {
        let request = SendRequest::send(0, Payload::Inline(message)).signaled();
        self.qp.post_send(&request)?;
        self.wait(WcOp::Send)?;
        Ok(())
    }

    fn receive_message(&self) -> Result<[u8; MESSAGE]> {
        let len = self.wait(WcOp::Recv)?;
        if len as usize != MESSAGE {
            return Err(format!("got a message of {len} bytes, not {MESSAGE}").into());
        }
        let mut message = [0; MESSAGE];
        self.inbox.buffer().expect("allocated").read_at(0, &mut message);
        self.post_recv()?;
        Ok(message)
    }

    /// Waits for the next completion of a kind, and says of how many bytes. At most one receive
    /// is posted, so a single one can come early.
    fn wait(&self, op: WcOp) -> Result<u32> {
        if op == WcOp::Recv
            && let Some(len) = self.received.take()
        {
            return Ok(len);
        }
        loop {
            self.cq.request_notify(false);
            while let Some(completion) = self.cq.poll_one() {
                if completion.status != WcStatus::Success {
                    return Err(format!("{:?}: {:?}", completion.op, completion.status).into());
                }
                if completion.op == op {
                    return Ok(completion.byte_len);
                }
                if completion.op != WcOp::Recv {
                    return Err(format!("{:?} completed, not {op:?}", completion.op).into());
                }
                self.received.set(Some(completion.byte_len));
            }
            if self.channel.wait(Some(PATIENCE))?.is_none() {
                return Err(format!("no {op:?} within {PATIENCE:?}").into());
            }
        }
    }
}
