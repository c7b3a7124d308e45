// SPDX-License-Identifier: MIT OR Apache-2.0

//! Programs that get stuck, each in a process of its own: this binary started once more.

use std::env;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::thread;
use std::time::Duration;

use iwarp::cm::{self, ConnectParams, Connection, Listener};
use iwarp::{
    Access, CompletionChannel, CompletionQueue, Device, MemoryRegion, Options, Peer,
    ProtectionDomain, QpState, QueuePair, QueuePairAttributes, RecvRequest, SendRequest,
    SharedReceiveQueue, Stag, TaggedOffset,
};

/// Variables that say how it gets stuck, and at which port its server is.
pub(super) const HOW: &str = "IWARP_TEST_STUCK";
pub(super) const PORT: &str = "IWARP_TEST_PORT";
/// Begins the line that it writes once it is, or is about to be.
pub(super) const READY: &str = "stuck now:";

const LEN: usize = 1 << 20;
const LONG: Duration = Duration::from_secs(600);

/// One end.
struct End {
    pd: ProtectionDomain,
    cq: CompletionQueue,
    channel: Option<CompletionChannel>,
    srq: Option<SharedReceiveQueue>,
    memory: MemoryRegion,
    qp: QueuePair,
}

impl End {
    fn new(device: &Device, with_channel: bool, with_srq: bool) -> Self {
        let pd = device.alloc_pd();
        let channel = with_channel.then(|| device.create_comp_channel().expect("a channel"));
        let cq = device.create_cq(256, channel.as_ref()).expect("a queue");
        let srq = with_srq.then(|| pd.create_srq(16, 1));
        let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
        let memory = pd.allocate(LEN, access).expect("memory");
        let mut attributes = QueuePairAttributes::new(&cq, &cq);
        attributes.srq = srq.as_ref();
        attributes.max_send_wr = 64;
        let qp = pd.create_qp(&attributes).expect("a queue pair");
        Self { pd, cq, channel, srq, memory, qp }
    }

    fn send(&self, len: usize) {
        let sges = [self.memory.sge(0, len)];
        self.qp.post_send(&SendRequest::send(1, &sges).signaled()).expect("room");
    }

    fn receive(&self) {
        let sges = [self.memory.sge(0, LEN)];
        self.qp.post_recv(&RecvRequest::new(2, &sges)).expect("room");
    }
}

/// Two ends of this process that are connected with each other.
struct Pair {
    one: End,
    other: End,
    _connections: [Connection; 2],
}

impl Pair {
    fn new(device: &Device, with_channel: bool, with_srq: bool) -> Self {
        let listener = Listener::bind(device, "127.0.0.1:0").expect("a port");
        let addr = listener.local_addr().expect("an address");
        let [one, other] =
            [false, true].map(|second| End::new(device, with_channel, second && with_srq));
        let params = ConnectParams::default();
        let connections = thread::scope(|scope| {
            let accepted = scope.spawn(|| {
                let request = listener.accept(Some(LONG)).expect("no error").expect("a request");
                request.accept(&other.qp, &params).expect("a connection")
            });
            let connected = cm::connect(device, addr, &one.qp, &params, LONG);
            [connected.expect("a connection"), accepted.join().expect("no panic")]
        });
        Self { one, other, _connections: connections }
    }
}

/// Says that the program is stuck from now on.
fn ready(words: &str) {
    let mut output = std::io::stdout();
    writeln!(output, "{READY} {words}").expect("it is read");
    output.flush().expect("it is read");
}

fn stay() -> ! {
    loop {
        thread::park();
    }
}

/// Waits until the standard input ends.
fn await_word() {
    let read = std::io::stdin().read_to_string(&mut String::new());
    read.expect("it ends");
}

#[test]
#[ignore = "the tests above start it"]
fn program() {
    let Ok(how) = env::var(HOW) else { return };
    let device = Device::open_with(Options::for_any_program()).expect("a device");
    match &*how {
        "serve" => serve(&device),
        "fence" | "full" | "idle" => client(&device, &how),
        "request" | "startup" => connecting(&device, &how),
        "meeting" => meeting(&device),
        how => both_ends(&device, how),
    }
}

fn both_ends(device: &Device, how: &str) -> ! {
    let with_channel = ["event", "unarmed", "late"].contains(&how);
    let pair = Pair::new(device, with_channel, how == "srq");
    let Pair { one, other, .. } = &pair;
    match how {
        "receive" | "srq" => one.send(100),
        "both" => {
            one.receive();
            other.receive();
        }
        "event" => {
            other.cq.request_notify(false);
            other.receive();
            one.send(100);
        }
        "poll" | "unarmed" => {
            other.receive();
            one.send(100);
        }
        "late" => {
            other.cq.request_notify(false);
            other.receive();
            one.send(100);
            let channel = other.channel.as_ref().expect("it has one");
            channel.wait(Some(LONG)).expect("no error").expect("an event");
            // Without a poll.
            other.cq.request_notify(false);
        }
        other => panic!("no way to get stuck: {other}"),
    }
    assert_eq!(other.channel.is_some(), with_channel);
    assert_eq!(other.srq.is_some(), how == "srq");
    ready("");
    stay()
}

fn serve(device: &Device) -> ! {
    let listener = Listener::bind(device, "127.0.0.1:0").expect("a port");
    ready(&listener.local_addr().expect("an address").port().to_string());
    let request = listener.accept(Some(LONG)).expect("no error").expect("a request");
    let end = End::new(device, false, false);
    let _connection = request.accept(&end.qp, &ConnectParams::default()).expect("a connection");
    stay()
}

fn server() -> SocketAddr {
    let port: u16 = env::var(PORT).expect("a port").parse().expect("a number");
    ([127, 0, 0, 1], port).into()
}

fn client(device: &Device, how: &str) -> ! {
    let end = End::new(device, false, false);
    let params = ConnectParams::default();
    let connection = cm::connect(device, server(), &end.qp, &params, LONG).expect("a connection");
    if env::var("IWARP_LOCAL").is_ok_and(|local| local == "rings") {
        while !end.qp.moves_within_host() {
            thread::yield_now();
        }
    }
    ready("");
    if how != "idle" {
        await_word();
    }
    match how {
        "fence" => {
            let sges = [end.memory.sge(0, 8)];
            let read = SendRequest::read(1, &sges, Stag(1), TaggedOffset(0)).signaled();
            end.qp.post_send(&read).expect("room");
            end.qp.post_send(&SendRequest::send(2, &sges).signaled().fenced()).expect("room");
        }
        "full" => (0..64).for_each(|_| end.send(LEN)),
        _ => {}
    }
    let _kept = (connection, &end.pd);
    stay()
}

fn connecting(device: &Device, how: &str) -> ! {
    let end = End::new(device, false, false);
    let params = ConnectParams::default();
    let connect = |addr| cm::connect(device, addr, &end.qp, &params, LONG);
    thread::scope(|scope| {
        if how == "startup" {
            let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
            let addr = silent.local_addr().expect("an address");
            scope.spawn(move || connect(addr));
            let _stream = silent.accept().expect("a connection");
            ready("");
            stay()
        }
        let listener = Listener::bind(device, "127.0.0.1:0").expect("a port");
        let addr = listener.local_addr().expect("an address");
        scope.spawn(move || connect(addr));
        let _request = listener.accept(Some(LONG)).expect("no error").expect("a request");
        ready("");
        stay()
    })
}

fn meeting(device: &Device) -> ! {
    let end = End::new(device, false, false);
    let addressable = || {
        let attributes = QueuePairAttributes::new(&end.cq, &end.cq);
        end.pd.create_addressable_qp(&attributes).expect("a queue pair")
    };
    let here = "127.0.0.1".parse().expect("an address");
    // One that was there.
    let gone = addressable().number();
    let qp = addressable();
    qp.modify(QpState::Init).expect("from Reset");
    qp.connect_to(&Peer::at(here, here, gone, 7)).expect("it is ready");
    ready("");
    stay()
}
