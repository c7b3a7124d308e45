// SPDX-License-Identifier: MIT OR Apache-2.0

//! The client's side of the demo: does everything, verifies everything, tells about it.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use iwarp::cm::{self, ConnectParams, Connection};
use iwarp::{Access, AtomicOp, Buffer, Device, LocalPath, MemoryRegion, SendOp, TaggedOffset};
use iwarp_kit::child::Server;
use iwarp_kit::ending::how;
use iwarp_kit::pattern;
use iwarp_kit::size;

use super::messages::{
    Ask, BULK, COUNTER, COUNTER_START, Lent, MAX_MESSAGE, PING, TO_READ, WRITTEN,
};
use super::report::{self, Speed, Teller, Way};
use super::{PATIENCE, Settings, server};
use crate::completions::{End, QUIET, WaitError};
use crate::demo::explained::Deed;

/// The time that each measurement takes.
const MEASURE: Duration = Duration::from_secs(1);
/// Bytes of a message in the bandwidth measurements.
const CHUNK: usize = 1 << 20;
/// Messages under way at a time in them.
const DEPTH: u64 = 16;
/// Round trips before the measurement of latency begins.
const WARM_UP: u32 = 200;
/// Round trips that are measured at most.
const MAX_ROUND_TRIPS: usize = 1 << 18;
/// The pattern that is moved.
const SEED: u64 = 0x1ca5_7ab1e;

/// The explanation of each operation, for people who see it for the first time.
const BEFORE: &str = "Each process makes a queue pair, which executes work requests in order, and a \
    completion queue, which reports the finished ones. It registers memory before the network may \
    touch it: a peer needs the memory's rkey (on the wire: STag), and the right that registration \
    granted.";
const CONNECTION: &str = "One MPA frame each way over a new TCP connection settles CRC, markers \
    and the number of Reads under way (RFC 5044, RFC 6581). The server's private data names the \
    memory that it lends.";
const SEND: &str = "A message for the peer's program. The receiver chooses its place: the first \
    buffer that it has posted. Both ends get a completion.";
const WRITE: &str = "The sender names the place in the peer's memory by STag and tagged offset. \
    The peer's program takes no part in it, and gets no completion.";
const READ: &str = "The request names both places, and the response brings the bytes. The peer's \
    library answers; its program takes no part in it.";
const FETCH_ADD: &str = "Adds to 8 bytes of the peer's memory, as one indivisible step, \
    and brings back the old value.";
const COMPARE_SWAP: &str = "Replaces 8 bytes of the peer's memory if they have the expected value, \
    as one step, and brings back the old value. Locks are built on this.";
const COMPARE_SWAP_AGAIN: &str = "The counter no longer has the expected value, so nothing is \
    replaced. The old value tells the client so.";
const IMMEDIATE: &str = "8 bytes that arrive in the receiver's completion. They use up a receive, \
    and leave its buffer unchanged.";
const DISCONNECTING: &str = "The client ends the stream when all of its work is done; the server \
    then does the same.";

/// Layout of the client's own small memory.
const INBOX: usize = 0;
const OUTBOX: usize = 1024;
const RESULT: usize = 2048;

/// Numbers of work requests; [`work`] makes those of the bandwidth measurements.
const RECEIVE: u64 = 1;
const OPERATION: u64 = 2;
const BULK_WORK: u64 = 16;

/// Goes through it over TCP, where it can be seen on the wire.
pub(crate) fn run(settings: &Settings, server: &Server, teller: &Teller) -> Result<()> {
    let journal = teller.journal.as_ref();
    let device = settings.device(journal, LocalPath::Off)?;
    let (connection, mut client) = Client::connect(&device, settings, server, teller)?;

    println!("{}", console::style("RDMA between two processes, over plain TCP").bold());
    println!();
    let about = format!(
        "process {}, listening on {}, lends {} of its memory",
        server.id(),
        server.addr,
        size::show(settings.size)
    );
    report::process("server", &about);
    let options = device.options();
    let about = format!(
        "process {}, connected: MPA revision {}, CRC32c {}, markers {}",
        std::process::id(),
        options.revision,
        if options.crc { "on" } else { "off" },
        if options.markers { "on" } else { "off" },
    );
    report::process("client", &about);

    let result = client.everything(settings.size);
    if result.as_ref().is_err_and(|error| matches!(error.downcast_ref(), Some(WaitError::Ended))) {
        return result.context(how(connection.wait_disconnected(Some(PATIENCE))));
    }
    client.teller.chapter("Disconnecting", DISCONNECTING);
    client.end.note(|| Deed::new("disconnect", "in good order", "rdma_disconnect"));
    connection.disconnect();
    if journal.is_some() && connection.wait_disconnected(Some(PATIENCE)).is_some() {
        client.end.note(|| Deed::new("disconnected", "an event", "RDMA_CM_EVENT_DISCONNECTED"));
    }
    result
}

/// Measures once more, in memory that both processes share. False where the connection stays with
/// TCP.
pub(crate) fn measure_locally(
    settings: &Settings,
    server: &Server,
    teller: &Teller,
) -> Result<bool> {
    let device = settings.device(None, LocalPath::Auto)?;
    let (connection, mut client) = Client::connect(&device, settings, server, teller)?;
    let moved = client.moves()?;
    if moved {
        teller.headline("How fast in shared memory, as between any two processes of a host");
        report::speeds(&client.measure(settings.size)?);
    }
    connection.disconnect();
    Ok(moved)
}

struct Client {
    end: End,
    small: MemoryRegion,
    lent: Lent,
    /// Number of the server process.
    server: u32,
    teller: Teller,
}

impl Client {
    /// Connects to the server, which tells what it lends.
    fn connect(
        device: &Device,
        settings: &Settings,
        server: &Server,
        teller: &Teller,
    ) -> Result<(Connection, Self)> {
        teller.chapter("Before the connection", BEFORE);
        let end = End::noted(device, teller.journal.clone())?;
        let small = end.allocate(4096, Access::LOCAL_WRITE)?;
        teller.chapter("Connection", CONNECTION);
        end.note(|| Deed::new("connect", server.addr.to_string(), "rdma_connect"));
        let params = ConnectParams::default();
        let connection = cm::connect(device, server.addr, &end.qp, &params, PATIENCE)
            .with_context(|| format!("cannot connect to {}", server.addr))?;
        end.note(|| Deed::new("established", "an event", "RDMA_CM_EVENT_ESTABLISHED"));
        let lent = Lent::decode(connection.private_data())?;
        ensure!(lent.len == (BULK + settings.size) as u64, "the server lends {} bytes", lent.len);
        let (server, teller) = (server.id(), teller.clone());
        Ok((connection, Self { end, small, lent, server, teller }))
    }

    fn memory(&self) -> &Buffer {
        self.small.buffer().expect("the library allocated it")
    }

    fn everything(&mut self, size: usize) -> Result<()> {
        self.teller.headline("What moved");
        self.send()?;
        self.write()?;
        self.read()?;
        self.fetch_add()?;
        self.compare_swap()?;
        self.immediate()?;
        // A record of that would be as large as what is moved.
        if self.teller.journal.is_none() {
            self.teller.headline("How fast over TCP");
            let speeds = self.measure(size)?;
            report::speeds(&speeds);
        }
        Ok(())
    }

    /// Exchanges messages until the connection has moved, or some time has passed.
    fn moves(&mut self) -> Result<bool> {
        let begin = Instant::now();
        while self.end.qp.local_path() != LocalPath::Rings && begin.elapsed() < MEASURE {
            self.perform(
                SendOp::Write { stag: self.lent.stag, to: self.there(WRITTEN) },
                OUTBOX,
                8,
            )?;
        }
        Ok(self.end.qp.local_path() == LocalPath::Rings)
    }

    /// The name of byte `offset` of the server's memory.
    fn there(&self, offset: usize) -> TaggedOffset {
        self.lent.to.advanced(offset as u64)
    }

    /// Does one operation and waits until it is done.
    fn perform(&mut self, op: SendOp, offset: usize, len: usize) -> Result<()> {
        self.end.post(OPERATION, op, self.small.sge(offset, len))?;
        self.end.wait(OPERATION, Some(PATIENCE))?;
        Ok(())
    }

    /// Asks the server something and returns its answer.
    fn ask(&mut self, ask: &Ask<'_>) -> Result<Vec<u8>> {
        let message = ask.encode();
        self.end.post_recv(RECEIVE, self.small.sge(INBOX, MAX_MESSAGE))?;
        self.memory().write_at(OUTBOX, &message);
        self.perform(SendOp::SEND, OUTBOX, message.len())?;
        let received = self.end.wait(RECEIVE, Some(PATIENCE)).context("no answer")?;
        let mut answer = vec![0; received.byte_len as usize];
        self.memory().read_at(INBOX, &mut answer);
        Ok(answer)
    }

    fn look(&mut self, offset: usize, len: usize) -> Result<Vec<u8>> {
        self.teller.aside(
            "To check this, the client asks the server's program for the bytes in its memory.",
        );
        let seen = self.ask(&Ask::Look { offset: offset as u64, len: len as u64 });
        self.teller.back();
        seen
    }

    fn counter(&mut self) -> Result<u64> {
        let octets = self.look(COUNTER, 8)?;
        Ok(u64::from_ne_bytes(octets.as_slice().try_into().context("a counter has 8 bytes")?))
    }

    fn send(&mut self) -> Result<()> {
        self.teller.chapter("Send", SEND);
        let text = format!("Hello, process {}. This is process {}.", self.server, me());
        let answer = self.ask(&Ask::Hello(text.as_bytes())).context("Send")?;
        self.teller.moved("Send", Way::ToServer, &format!("\"{text}\""));
        let want = format!("Process {} got {} bytes.", self.server, text.len());
        same("Send", want.as_bytes(), &answer)?;
        self.teller.moved("Send", Way::ToClient, &format!("\"{want}\""));
        Ok(())
    }

    fn write(&mut self) -> Result<()> {
        self.teller.chapter("RDMA Write", WRITE);
        let text = format!("Process {} wrote this into your memory.", me());
        self.memory().write_at(OUTBOX, text.as_bytes());
        let op = SendOp::Write { stag: self.lent.stag, to: self.there(WRITTEN) };
        self.perform(op, OUTBOX, text.len()).context("RDMA Write")?;
        let found = self.look(WRITTEN, text.len()).context("RDMA Write")?;
        same("RDMA Write", text.as_bytes(), &found)?;
        self.teller.moved("RDMA Write", Way::ToServer, &format!("\"{text}\""));
        Ok(())
    }

    fn read(&mut self) -> Result<()> {
        self.teller.chapter("RDMA Read", READ);
        let want = server::to_read(self.server);
        let op = SendOp::Read { stag: self.lent.stag, to: self.there(TO_READ), invalidate: None };
        self.perform(op, RESULT, want.len()).context("RDMA Read")?;
        let mut found = vec![0; want.len()];
        self.memory().read_at(RESULT, &mut found);
        same("RDMA Read", want.as_bytes(), &found)?;
        self.teller.moved("RDMA Read", Way::ToClient, &format!("\"{want}\""));
        Ok(())
    }

    /// Does an atomic operation on the counter and returns its old value.
    fn atomic(&mut self, op: SendOp) -> Result<u64> {
        self.perform(op, RESULT, 8)?;
        let mut old = [0; 8];
        self.memory().read_at(RESULT, &mut old);
        Ok(u64::from_ne_bytes(old))
    }

    fn fetch_add(&mut self) -> Result<()> {
        self.teller.chapter("FetchAdd", FETCH_ADD);
        let (stag, to) = (self.lent.stag, self.there(COUNTER));
        let op = SendOp::Atomic { stag, to, op: AtomicOp::FetchAdd { add: 1, mask: 0 } };
        let old = self.atomic(op).context("FetchAdd")?;
        let new = self.counter().context("FetchAdd")?;
        ensure!(
            (old, new) == (COUNTER_START, COUNTER_START + 1),
            "FetchAdd: 1 was added to {COUNTER_START}: old value {old}, new value {new}"
        );
        self.teller.moved("FetchAdd", Way::ToServer, &format!("counter + 1: was {old}, is {new}"));
        Ok(())
    }

    fn compare_swap(&mut self) -> Result<()> {
        let (stag, to) = (self.lent.stag, self.there(COUNTER));
        let start = COUNTER_START + 1;
        let titles = ["CompareSwap", "CompareSwap, once more"];
        let leads = [COMPARE_SWAP, COMPARE_SWAP_AGAIN];
        let values = [(start, 7000), (7000, 7000)];
        for ((title, lead), (want_old, want_new)) in titles.into_iter().zip(leads).zip(values) {
            self.teller.chapter(title, lead);
            let op = SendOp::Atomic {
                stag,
                to,
                op: AtomicOp::CompareSwap {
                    compare: start,
                    compare_mask: u64::MAX,
                    swap: 7000,
                    swap_mask: u64::MAX,
                },
            };
            let old = self.atomic(op).context("CompareSwap")?;
            let new = self.counter().context("CompareSwap")?;
            ensure!(
                (old, new) == (want_old, want_new),
                "CompareSwap of {start} for 7000 on {want_old}: old value {old}, new value {new}"
            );
            let text = format!("counter = 7000 if it is {start}: was {old}, is {new}");
            self.teller.moved("CompareSwap", Way::ToServer, &text);
        }
        Ok(())
    }

    fn immediate(&mut self) -> Result<()> {
        let data = *b"iWARP !!";
        self.teller.chapter("Immediate Data", IMMEDIATE);
        self.teller.aside("The client announces the next operation to the server's program.");
        let ready = self.ask(&Ask::Expect)?;
        self.teller.back();
        same("Immediate Data", b"", &ready)?;
        self.end.post_recv(RECEIVE, self.small.sge(INBOX, MAX_MESSAGE))?;
        self.end.post_bare(QUIET, SendOp::Immediate { solicited: false, data })?;
        let received = self.end.wait(RECEIVE, Some(PATIENCE)).context("Immediate Data")?;
        let back = received.immediate.context("Immediate Data: got a Send instead")?;
        let mut want = data;
        want.reverse();
        same("Immediate Data", &want, &back)?;
        for (way, octets) in [(Way::ToServer, data), (Way::ToClient, back)] {
            let text = String::from_utf8_lossy(&octets).into_owned();
            self.teller.moved(
                "Immediate Data",
                way,
                &format!("\"{text}\" in the completion itself"),
            );
        }
        Ok(())
    }

    fn measure(&mut self, len: usize) -> Result<Vec<Speed>> {
        let source = self.end.pd.allocate(len, Access::LOCAL_READ)?;
        let sink = self.end.pd.allocate(len, Access::LOCAL_WRITE)?;
        pattern::fill(source.buffer().context("memory without a buffer")?, 0, SEED);
        let chunk = CHUNK.min(len);
        let label = size::show(chunk);

        let stag = self.lent.stag;
        let write = |to| SendOp::Write { stag, to };
        let (octets, time) = self.bandwidth("RDMA Write", &source, chunk, write)?;
        let difference = self.ask(&Ask::Check { seed: SEED })?;
        ensure!(
            difference.is_empty(),
            "RDMA Write: in the server's memory, {}",
            String::from_utf8_lossy(&difference)
        );
        let detail = format!("{} moved, then compared by the server", rounded(octets));
        let writes = Speed::bandwidth(format!("RDMA Write, {label}"), octets, time, detail);

        let read = |to| SendOp::Read { stag, to, invalidate: None };
        let (octets, time) = self.bandwidth("RDMA Read", &sink, chunk, read)?;
        let buffer = sink.buffer().context("memory without a buffer")?;
        if let Some(difference) = pattern::difference(buffer, 0, SEED) {
            anyhow::bail!("RDMA Read: in the client's memory, {difference}");
        }
        let detail = format!("{} moved, then compared by the client", rounded(octets));
        let reads = Speed::bandwidth(format!("RDMA Read, {label}"), octets, time, detail);

        Ok(vec![writes, reads, self.latency()?])
    }

    /// Moves messages of `chunk` bytes between `local` and the server's bulk memory, all over it
    /// at least once, for some time. Returns bytes and time, placement included.
    fn bandwidth(
        &mut self,
        what: &str,
        local: &MemoryRegion,
        chunk: usize,
        op: impl Fn(TaggedOffset) -> SendOp,
    ) -> Result<(u64, Duration)> {
        let bar = report::progress(what, MEASURE);
        let chunks = local.len().div_ceil(chunk) as u64;
        let (mut posted, mut done, mut octets) = (0, 0, 0);
        let start = Instant::now();
        while posted < chunks || start.elapsed() < MEASURE {
            while posted - done < DEPTH {
                let offset = (posted % chunks) as usize * chunk;
                let len = chunk.min(local.len() - offset);
                let op = op(self.there(BULK + offset));
                self.end.post(work(posted), op, local.sge(offset, len))?;
                posted += 1;
                octets += len as u64;
            }
            self.end.wait(work(done), Some(PATIENCE)).context(what.to_owned())?;
            done += 1;
            bar.set_position(start.elapsed().as_millis() as u64);
        }
        for number in done..posted {
            self.end.wait(work(number), Some(PATIENCE)).context(what.to_owned())?;
        }
        // Written bytes that only left do not count: a Read comes back after they are placed.
        let read = SendOp::Read { stag: self.lent.stag, to: self.there(COUNTER), invalidate: None };
        self.perform(read, RESULT, 8)?;
        let time = start.elapsed();
        bar.finish_and_clear();
        Ok((octets, time))
    }

    /// Has the server send small messages back, one after the other.
    fn latency(&mut self) -> Result<Speed> {
        let bar = report::progress("Send", MEASURE);
        for number in 0..WARM_UP {
            self.round_trip(number)?;
        }
        let start = Instant::now();
        let mut times = vec![self.round_trip(WARM_UP)?];
        while start.elapsed() < MEASURE && times.len() < MAX_ROUND_TRIPS {
            times.push(self.round_trip(times.len() as u32)?);
            if times.len().is_multiple_of(256) {
                bar.set_position(start.elapsed().as_millis() as u64);
            }
        }
        bar.finish_and_clear();
        times.sort_unstable();
        let half = |percent: usize| times[times.len() * percent / 100].as_secs_f64() * 5e5;
        let result = format!("{:.1} µs", half(50));
        let detail =
            format!("half a round trip, median of {}; 99 % under {:.1} µs", times.len(), half(99));
        Ok(Speed { what: format!("Send, {PING} bytes"), result, detail })
    }

    /// Sends a number, waits until it is back, and says how long that took.
    fn round_trip(&mut self, number: u32) -> Result<Duration> {
        let start = Instant::now();
        self.end.post_recv(RECEIVE, self.small.sge(INBOX, PING))?;
        self.end.post_inline(QUIET, SendOp::SEND, &number.to_be_bytes())?;
        let received = self.end.wait(RECEIVE, Some(PATIENCE)).context("ping-pong")?;
        let took = start.elapsed();
        let mut back = [0; PING];
        self.memory().read_at(INBOX, &mut back);
        ensure!(received.byte_len as usize == PING, "ping-pong: {} bytes", received.byte_len);
        same("ping-pong", &number.to_be_bytes(), &back)?;
        Ok(took)
    }
}

/// The number of the `number`th work request of a bandwidth measurement.
const fn work(number: u64) -> u64 {
    BULK_WORK + number
}

fn me() -> u32 {
    std::process::id()
}

fn rounded(octets: u64) -> String {
    format!("{:.1} GB", octets as f64 / 1e9)
}

/// Says what differs.
fn same(what: &str, want: &[u8], have: &[u8]) -> Result<()> {
    ensure!(
        want == have,
        "{what}: expected \"{}\", found \"{}\"",
        want.escape_ascii(),
        have.escape_ascii()
    );
    Ok(())
}
