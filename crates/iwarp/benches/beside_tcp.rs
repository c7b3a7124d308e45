//! Write, Send and Read beside raw TCP: two processes on loopback, interleaved round by round.
//!
//! `cargo bench -p iwarp --bench beside_tcp [-- --rounds N]` prints the tables of BENCHMARKS.md;
//! `--only bandwidth` or `--only latency` one of them.
//! Machines are noisy: what counts is the ratio of medians within one run, never the times.

use std::env;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use iwarp::cm::{ConnectParams, Connection, Listener, connect};
use iwarp::{
    Access, CompletionChannel, CompletionQueue, Device, MemoryRegion, Options, Payload, QueuePair,
    QueuePairAttributes, RecvRequest, SendOp, SendRequest, Stag, TaggedOffset, WcStatus,
    WorkCompletion,
};
use rustix::event::{PollFd, PollFlags, Timespec};

const MAX_SIZE: usize = 1 << 20;
const DEPTH: usize = 16;
/// iWARP has no RNR: a Send that finds no receive ends the connection. So all of a round are there
/// before it begins.
const RECEIVES: usize = 4100;
/// What every stream of the run uses: the library's own choice on loopback.
const CONGESTION: &str = "cubic";
const PATIENCE: Duration = Duration::from_secs(20);

fn main() {
    let arguments: Vec<String> = env::args().collect();
    if arguments.iter().any(|argument| argument == "--serve") {
        serve();
        return;
    }
    let rounds = arguments
        .windows(2)
        .find(|pair| pair[0] == "--rounds")
        .map_or(15, |pair| pair[1].parse().expect("--rounds N"));
    let only = arguments.windows(2).find(|pair| pair[0] == "--only").map(|pair| pair[1].as_str());
    measure(rounds, only);
}

/// One thing the server is asked to do.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Ask {
    TcpSink,
    TcpPing,
    TcpPingSpinning,
    Sink,
    SendSink,
    Ping,
    PingBlocking,
    PingOnDescriptor,
    PingWriting,
    Nothing,
}

impl Ask {
    const ALL: [Self; 10] = [
        Self::TcpSink,
        Self::TcpPing,
        Self::TcpPingSpinning,
        Self::Sink,
        Self::SendSink,
        Self::Ping,
        Self::PingBlocking,
        Self::PingOnDescriptor,
        Self::PingWriting,
        Self::Nothing,
    ];
}

/// One connection of either process, with memory that the peer may write and read.
struct End {
    channel: CompletionChannel,
    cq: CompletionQueue,
    qp: QueuePair,
    memory: MemoryRegion,
    receives: MemoryRegion,
    source: MemoryRegion,
    peer: Option<(Stag, TaggedOffset)>,
    /// Completions that came and were not waited for yet.
    sent: usize,
    received: usize,
    _connection: Option<Connection>,
}

impl End {
    fn new(device: &Device) -> Self {
        let pd = device.alloc_pd();
        let channel = device.create_comp_channel().expect("completion channel");
        let cq = device.create_cq(2 * RECEIVES, Some(&channel)).expect("completion queue");
        let attributes = QueuePairAttributes {
            max_send_wr: 256,
            max_recv_wr: 2 * RECEIVES,
            ..QueuePairAttributes::new(&cq, &cq)
        };
        let qp = pd.create_qp(&attributes);
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let memory = pd.allocate(MAX_SIZE, access).expect("memory");
        let receives = pd.allocate(MAX_SIZE, Access::LOCAL_WRITE).expect("memory");
        let source = pd.allocate(MAX_SIZE, Access::LOCAL_WRITE).expect("memory");
        let end = Self {
            channel,
            cq,
            qp,
            memory,
            receives,
            source,
            peer: None,
            sent: 0,
            received: 0,
            _connection: None,
        };
        for _ in 0..RECEIVES {
            end.post_recv();
        }
        end
    }

    fn params(&self) -> ConnectParams {
        let mut private_data = self.memory.rkey().0.to_be_bytes().to_vec();
        private_data.extend_from_slice(&self.memory.base().0.to_be_bytes());
        ConnectParams { private_data, ..ConnectParams::default() }
    }

    fn connected(&mut self, connection: Connection) {
        let data = connection.private_data();
        let stag = u32::from_be_bytes(data[..4].try_into().expect("4 octets"));
        let to = u64::from_be_bytes(data[4..12].try_into().expect("8 octets"));
        self.peer = Some((Stag(stag), TaggedOffset(to)));
        self._connection = Some(connection);
    }

    fn post_recv(&self) {
        let sges = [self.receives.whole()];
        self.qp.post_recv(&RecvRequest { wr_id: 0, sges: &sges }).expect("receive");
    }

    fn post(&self, op: SendOp, size: usize) {
        let sges = [self.memory.sge(0, size)];
        let payload = Payload::Sges(if size == 0 { &[] } else { &sges });
        let request = SendRequest { wr_id: 1, op, payload, signaled: true, fence: false };
        self.qp.post_send(&request).expect("send");
    }

    fn send(&self, size: usize) {
        self.post(SendOp::Send { solicited: false, invalidate: None }, size);
    }

    /// Polls until `sends` more sends have ended and `receives` more messages have come.
    fn wait(&mut self, sends: usize, receives: usize) {
        let deadline = Instant::now() + PATIENCE;
        let mut completions = Vec::with_capacity(64);
        while self.sent < sends || self.received < receives {
            self.poll(&mut completions);
            assert!(Instant::now() < deadline, "stuck");
        }
        self.sent -= sends;
        self.received -= receives;
    }

    fn poll(&mut self, completions: &mut Vec<WorkCompletion>) -> usize {
        let taken = self.cq.poll(completions, 64);
        for completion in completions.drain(..) {
            assert_eq!(completion.status, WcStatus::Success, "{completion:?}");
            if completion.wr_id == 1 {
                self.sent += 1;
            } else {
                self.received += 1;
                self.post_recv();
            }
        }
        taken
    }

    /// As [`Self::wait`], but sleeps: an event, then the queue is armed and polled until it is
    /// empty. It has to be armed before.
    fn sleep(&mut self, how: Sleep, sends: usize, receives: usize) {
        let mut completions = Vec::with_capacity(64);
        while self.sent < sends || self.received < receives {
            match how {
                Sleep::Blocked => {
                    self.channel.wait(Some(PATIENCE)).expect("wait").expect("stuck");
                }
                Sleep::OnDescriptor => loop {
                    let mut fds = [PollFd::from_borrowed_fd(self.channel.as_fd(), PollFlags::IN)];
                    let patience = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
                    assert_eq!(rustix::event::poll(&mut fds, Some(&patience)), Ok(1), "stuck");
                    if self.channel.try_next().is_some() {
                        break;
                    }
                },
            }
            self.cq.request_notify(false);
            while self.poll(&mut completions) > 0 {}
        }
        self.sent -= sends;
        self.received -= receives;
    }

    /// What has come counts from now on, and what comes raises an event.
    fn arm(&mut self) {
        self.cq.request_notify(false);
        let mut completions = Vec::with_capacity(64);
        while self.poll(&mut completions) > 0 {}
    }

    /// Writes `size` octets to the peer, the last of which is `mark`, and takes the completion.
    fn write(&mut self, size: usize, mark: u8) {
        let (stag, to) = self.peer.expect("connected");
        self.source.buffer().expect("own memory").write_at(size - 1, &[mark]);
        let sges = [self.source.sge(0, size)];
        let payload = Payload::Sges(&sges);
        let op = SendOp::Write { stag, to };
        let request = SendRequest { wr_id: 1, op, payload, signaled: true, fence: false };
        self.qp.post_send(&request).expect("write");
        self.wait(1, 0);
    }

    /// Spins on memory until the last of `size` octets is `mark`.
    fn written(&self, size: usize, mark: u8) {
        let last = self.memory.buffer().expect("own memory").atomic_u8(size - 1);
        while last.load(Ordering::Acquire) != mark {
            std::hint::spin_loop();
        }
    }
}

/// How a program waits for an event.
#[derive(Clone, Copy)]
enum Sleep {
    /// In a call of the library.
    Blocked,
    /// In `poll` on the channel's descriptor.
    OnDescriptor,
}

fn devices() -> [Device; 2] {
    [false, true].map(|crc| {
        let congestion = Some(CONGESTION.to_owned());
        let options = Options { crc, local_congestion: congestion, ..Options::default() };
        Device::with_options(options).expect("device")
    })
}

fn loopback() -> SocketAddr {
    SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0)
}

fn raw(stream: TcpStream) -> TcpStream {
    stream.set_nodelay(true).expect("TCP_NODELAY");
    rustix::net::sockopt::set_tcp_congestion(&stream, CONGESTION).expect("TCP_CONGESTION");
    stream
}

fn serve() {
    let devices = devices();
    let listeners =
        devices.each_ref().map(|device| Listener::bind(device, loopback()).expect("listen"));
    let (control, data) = (
        TcpListener::bind(loopback()).expect("listen"),
        TcpListener::bind(loopback()).expect("listen"),
    );
    let port = |addr: SocketAddr| addr.port();
    println!(
        "{} {} {} {}",
        port(control.local_addr().expect("address")),
        port(data.local_addr().expect("address")),
        port(listeners[0].local_addr().expect("address")),
        port(listeners[1].local_addr().expect("address")),
    );
    io::stdout().flush().expect("stdout");
    let mut control = control.accept().expect("accept").0;
    control.set_nodelay(true).expect("TCP_NODELAY");
    let mut data = raw(data.accept().expect("accept").0);
    let mut ends: Vec<End> = listeners
        .iter()
        .zip(&devices)
        .map(|(listener, device)| {
            let mut end = End::new(device);
            let incoming = listener.accept(Some(PATIENCE)).expect("accept").expect("a client");
            let connection = incoming.accept(&end.qp, &end.params()).expect("accept");
            end.connected(connection);
            end
        })
        .collect();
    let mut buffer = vec![0; MAX_SIZE];
    let mut command = [0; 10];
    while control.read_exact(&mut command).is_ok() {
        let size = u32::from_be_bytes(command[2..6].try_into().expect("4 octets")) as usize;
        let count = u32::from_be_bytes(command[6..10].try_into().expect("4 octets")) as usize;
        let end = &mut ends[usize::from(command[1])];
        let what = Ask::ALL[usize::from(command[0])];
        match what {
            Ask::PingBlocking | Ask::PingOnDescriptor => end.arm(),
            Ask::PingWriting => end.memory.buffer().expect("own memory").write_at(size - 1, &[0]),
            _ => {}
        }
        control.write_all(&[1]).expect("control");
        match what {
            Ask::TcpSink => {
                for _ in 0..count {
                    data.read_exact(&mut buffer[..size]).expect("read");
                }
                data.write_all(&[1]).expect("write");
            }
            Ask::TcpPing => answer(&mut data, &mut buffer[..size], count),
            Ask::TcpPingSpinning => {
                data.set_nonblocking(true).expect("O_NONBLOCK");
                answer_spinning(&mut data, &mut buffer[..size], count);
                data.set_nonblocking(false).expect("O_NONBLOCK");
            }
            Ask::Sink => {
                end.wait(0, 1);
                end.send(4);
                end.wait(1, 0);
            }
            Ask::SendSink => {
                end.wait(0, count);
                end.send(4);
                end.wait(1, 0);
            }
            Ask::Ping => {
                for _ in 0..count {
                    end.wait(0, 1);
                    end.send(size);
                    end.wait(1, 0);
                }
            }
            Ask::PingBlocking => answer_sleeping(end, Sleep::Blocked, size, count),
            Ask::PingOnDescriptor => answer_sleeping(end, Sleep::OnDescriptor, size, count),
            Ask::PingWriting => {
                for round in 0..count {
                    end.written(size, mark(round));
                    end.write(size, mark(round));
                }
            }
            Ask::Nothing => {}
        }
    }
}

/// Differs from what the round before left, and from zero.
const fn mark(round: usize) -> u8 {
    (round % 255) as u8 + 1
}

fn answer_sleeping(end: &mut End, how: Sleep, size: usize, count: usize) {
    for _ in 0..count {
        end.sleep(how, 0, 1);
        end.send(size);
    }
    end.wait(count, 0);
}

fn answer(stream: &mut TcpStream, buffer: &mut [u8], count: usize) {
    for _ in 0..count {
        stream.read_exact(buffer).expect("read");
        stream.write_all(buffer).expect("write");
    }
}

fn answer_spinning(stream: &mut TcpStream, buffer: &mut [u8], count: usize) {
    for _ in 0..count {
        spin_read(stream, buffer);
        stream.write_all(buffer).expect("write");
    }
}

fn spin_read(stream: &mut TcpStream, buffer: &mut [u8]) {
    let mut have = 0;
    while have < buffer.len() {
        match stream.read(&mut buffer[have..]) {
            Ok(0) => panic!("the peer has gone"),
            Ok(n) => have += n,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::hint::spin_loop(),
            Err(error) => panic!("{error}"),
        }
    }
}

/// The measuring side.
struct Client {
    control: TcpStream,
    data: TcpStream,
    ends: Vec<End>,
    buffer: Vec<u8>,
}

impl Client {
    fn ask(&mut self, ask: Ask, end: usize, size: usize, count: usize) {
        let mut command = vec![ask as u8, end as u8];
        command.extend_from_slice(&(size as u32).to_be_bytes());
        command.extend_from_slice(&(count as u32).to_be_bytes());
        self.control.write_all(&command).expect("control");
        self.control.read_exact(&mut [0]).expect("control");
    }

    /// Octets per second of `count` messages.
    fn bandwidth(&mut self, what: What, size: usize, count: usize) -> f64 {
        let ask = match what {
            What::Tcp => Ask::TcpSink,
            What::Write(_) => Ask::Sink,
            What::Send(_) => Ask::SendSink,
            What::Read(_) => Ask::Nothing,
        };
        self.ask(ask, what.end(), size, count);
        let start = Instant::now();
        match what {
            What::Tcp => {
                for _ in 0..count {
                    self.data.write_all(&self.buffer[..size]).expect("write");
                }
                self.data.read_exact(&mut [0]).expect("read");
            }
            What::Write(_) => {
                let end = &mut self.ends[what.end()];
                let (stag, to) = end.peer.expect("connected");
                pipeline(end, size, count, SendOp::Write { stag, to });
                end.send(4);
                end.wait(1, 1);
            }
            What::Send(_) => {
                let end = &mut self.ends[what.end()];
                // As many as the peer has receives for; they are posted again as they are used.
                let op = SendOp::Send { solicited: false, invalidate: None };
                pipeline(end, size, count, op);
                end.wait(0, 1);
            }
            What::Read(_) => {
                let end = &mut self.ends[what.end()];
                let (stag, to) = end.peer.expect("connected");
                pipeline(end, size, count, SendOp::Read { stag, to, invalidate: None });
            }
        }
        (size * count) as f64 / start.elapsed().as_secs_f64()
    }

    /// Half a round trip in seconds.
    fn latency(&mut self, what: Ping, size: usize, count: usize) -> f64 {
        let (ask, end) = match what {
            Ping::TcpBlocking => (Ask::TcpPing, 0),
            Ping::TcpSpinning => (Ask::TcpPingSpinning, 0),
            Ping::Send(crc) => (Ask::Ping, usize::from(crc)),
            Ping::Sleeping(Sleep::Blocked) => (Ask::PingBlocking, 0),
            Ping::Sleeping(Sleep::OnDescriptor) => (Ask::PingOnDescriptor, 0),
            Ping::Writing(crc) => (Ask::PingWriting, usize::from(crc)),
        };
        self.ask(ask, end, size, count);
        let start = Instant::now();
        match what {
            Ping::TcpBlocking => {
                for _ in 0..count {
                    self.data.write_all(&self.buffer[..size]).expect("write");
                    self.data.read_exact(&mut self.buffer[..size]).expect("read");
                }
            }
            Ping::TcpSpinning => {
                self.data.set_nonblocking(true).expect("O_NONBLOCK");
                for _ in 0..count {
                    self.data.write_all(&self.buffer[..size]).expect("write");
                    spin_read(&mut self.data, &mut self.buffer[..size]);
                }
                self.data.set_nonblocking(false).expect("O_NONBLOCK");
            }
            Ping::Send(_) => {
                let end = &mut self.ends[end];
                for _ in 0..count {
                    end.send(size);
                    end.wait(1, 1);
                }
            }
            Ping::Sleeping(how) => {
                let end = &mut self.ends[end];
                end.arm();
                for _ in 0..count {
                    end.send(size);
                    end.sleep(how, 1, 1);
                }
            }
            Ping::Writing(_) => {
                let end = &mut self.ends[end];
                for round in 0..count {
                    end.write(size, mark(round));
                    end.written(size, mark(round));
                }
            }
        }
        start.elapsed().as_secs_f64() / (2 * count) as f64
    }
}

/// Keeps [`DEPTH`] requests outstanding until `count` have ended.
fn pipeline(end: &mut End, size: usize, count: usize, op: SendOp) {
    let mut outstanding = 0;
    for _ in 0..count {
        if outstanding == DEPTH {
            end.wait(1, 0);
            outstanding -= 1;
        }
        end.post(op, size);
        outstanding += 1;
    }
    end.wait(outstanding, 0);
}

#[derive(Clone, Copy)]
enum What {
    Tcp,
    Write(bool),
    Send(bool),
    Read(bool),
}

impl What {
    const fn end(self) -> usize {
        match self {
            Self::Tcp => 0,
            Self::Write(crc) | Self::Send(crc) | Self::Read(crc) => crc as usize,
        }
    }
}

#[derive(Clone, Copy)]
enum Ping {
    TcpBlocking,
    TcpSpinning,
    Send(bool),
    Sleeping(Sleep),
    Writing(bool),
}

fn measure(rounds: usize, only: Option<&str>) {
    let mut server = Command::new(env::current_exe().expect("own path"))
        .arg("--serve")
        .stdout(Stdio::piped())
        .spawn()
        .expect("server process");
    let mut line = String::new();
    BufReader::new(server.stdout.take().expect("stdout")).read_line(&mut line).expect("ports");
    let ports: Vec<u16> = line.split_whitespace().map(|port| port.parse().expect("port")).collect();
    let at = |port| SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
    let control = TcpStream::connect(at(ports[0])).expect("connect");
    control.set_nodelay(true).expect("TCP_NODELAY");
    let data = raw(TcpStream::connect(at(ports[1])).expect("connect"));
    let devices = devices();
    let ends = devices
        .iter()
        .zip(&ports[2..])
        .map(|(device, port)| {
            let mut end = End::new(device);
            let connection =
                connect(device, at(*port), &end.qp, &end.params(), PATIENCE).expect("connect");
            end.connected(connection);
            end
        })
        .collect();
    let mut client = Client { control, data, ends, buffer: vec![0x5a; MAX_SIZE] };

    if only.is_none_or(|only| only == "bandwidth") {
        bandwidths(&mut client, rounds);
    }
    if only.is_none_or(|only| only == "latency") {
        latencies(&mut client, rounds);
    }
    drop(client);
    server.wait().expect("server");
}

fn bandwidths(client: &mut Client, rounds: usize) {
    let kinds: [(&str, What); 7] = [
        ("raw TCP", What::Tcp),
        ("Write", What::Write(false)),
        ("Send", What::Send(false)),
        ("Read", What::Read(false)),
        ("Write, CRC", What::Write(true)),
        ("Send, CRC", What::Send(true)),
        ("Read, CRC", What::Read(true)),
    ];
    println!(
        "Bandwidth, {rounds} rounds, queue depth {DEPTH}, medians (ratio to raw TCP, quartiles)\n"
    );
    println!("| size | {} |", kinds.map(|(name, _)| name).join(" | "));
    println!("|---|{}", "---|".repeat(kinds.len()));
    for (size, count) in [(4096, 4096), (65_536, 2048), (MAX_SIZE, 256)] {
        let mut results = vec![Vec::new(); kinds.len()];
        for round in 0..=rounds {
            for ((_, what), results) in kinds.iter().zip(&mut results) {
                let value = client.bandwidth(*what, size, count);
                // The first round warms up.
                if round > 0 {
                    results.push(value);
                }
            }
        }
        let cells = cells(&results, |value| format!("{:.2} GB/s", value / 1e9));
        println!("| {size} | {} |", cells.join(" | "));
    }
}

fn latencies(client: &mut Client, rounds: usize) {
    let pings: [(&str, Ping); 8] = [
        ("TCP blocking", Ping::TcpBlocking),
        ("TCP spinning", Ping::TcpSpinning),
        ("Send/Recv", Ping::Send(false)),
        ("Send/Recv, CRC", Ping::Send(true)),
        ("Write, memory", Ping::Writing(false)),
        ("Write, memory, CRC", Ping::Writing(true)),
        ("Send/Recv, blocked", Ping::Sleeping(Sleep::Blocked)),
        ("Send/Recv, on descriptor", Ping::Sleeping(Sleep::OnDescriptor)),
    ];
    println!(
        "\nHalf round trip, {rounds} rounds, both sides alike, medians (ratio to TCP blocking)\n"
    );
    println!("| size | {} |", pings.map(|(name, _)| name).join(" | "));
    println!("|---|{}", "---|".repeat(pings.len()));
    for size in [4, 4096, 65_536] {
        let mut results = vec![Vec::new(); pings.len()];
        for round in 0..=rounds {
            for ((_, what), results) in pings.iter().zip(&mut results) {
                let value = client.latency(*what, size, 1000);
                if round > 0 {
                    results.push(value);
                }
            }
        }
        let cells = cells(&results, |value| format!("{:.1} µs", value * 1e6));
        println!("| {size} | {} |", cells.join(" | "));
    }
}

/// Medians, and the quartiles of the ratio to the first column taken round by round.
fn cells(results: &[Vec<f64>], unit: impl Fn(f64) -> String) -> Vec<String> {
    let base = &results[0];
    results
        .iter()
        .enumerate()
        .map(|(column, values)| {
            let median = quantile(values, 0.5);
            if column == 0 {
                return unit(median);
            }
            let ratios: Vec<f64> =
                values.iter().zip(base).map(|(value, base)| value / base).collect();
            format!(
                "{} ({:.2}x, {:.2}-{:.2})",
                unit(median),
                median / quantile(base, 0.5),
                quantile(&ratios, 0.25),
                quantile(&ratios, 0.75),
            )
        })
        .collect()
}

fn quantile(values: &[f64], at: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[((sorted.len() - 1) as f64 * at).round() as usize]
}
