// SPDX-License-Identifier: MIT OR Apache-2.0

//! A device under attack: connections to raw peers, and beside them one between two well-behaved
//! ends that must not notice.

use std::net::{SocketAddr, TcpListener};
use std::thread;
use std::time::Duration;

use iwarp::cm::{ConnectError, ConnectParams, Connection, Listener, connect};
use iwarp::port::Platform;
use iwarp::{Device, Ended, MemoryRegion, Options, QpState, RtrTypes, WcStatus};
use iwarp_proto::mpa::wire::FrameKind;

use super::raw::{Raw, Startup};
use super::{DEADLINE, End, parts, pattern, until};

const DEPTH: usize = 64;
/// Bytes that the healthy connection moves for each look at it.
const CHECKED: usize = 3001;

pub struct Station {
    pub device: Device,
    pub listener: Listener,
    healthy: Healthy,
}

/// Two ends and what they exchange.
struct Healthy {
    near: End,
    far: End,
    source: MemoryRegion,
    sink: MemoryRegion,
    back: MemoryRegion,
    rounds: std::cell::Cell<u64>,
}

/// Options whose every time is short, and whose streams begin with the program's own messages.
pub fn hasty() -> Options {
    Options::new().startup_timeout(Duration::from_millis(300)).linger(Duration::from_millis(500))
}

impl Station {
    pub fn new(options: Options) -> Self {
        Self::on(options, Platform::default())
    }

    pub fn on(options: Options, platform: Platform) -> Self {
        let device = Device::on_platform(options, platform).unwrap();
        let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = Listener::bind(&device, any_port).unwrap();
        let healthy = Healthy::new(&device, &listener);
        Self { device, listener, healthy }
    }

    pub fn addr(&self) -> SocketAddr {
        self.listener.local_addr().unwrap()
    }

    /// The healthy connection works.
    pub fn others_do_not_notice(&self) {
        self.healthy.exchange();
    }

    /// A raw initiator connects and is accepted. Both are in Full Operation then.
    pub fn accept(&self, request: &Startup, params: &ConnectParams) -> (End, Raw, Startup) {
        let mut raw = Raw::connect(self.addr());
        raw.send(&request.octets());
        let incoming = self.listener.accept(Some(DEADLINE)).unwrap().expect("a request");
        let (pd, send_cq, recv_cq, qp) = parts(&self.device, DEPTH);
        let connection = incoming.accept(&qp, params).unwrap();
        let reply = raw.startup(FrameKind::Reply);
        assert!(!reply.rejected);
        let crc = request.crc || reply.crc;
        raw.operate(crc, reply.markers, request.markers);
        let device = self.device.clone();
        (End { device, pd, send_cq, recv_cq, qp, connection }, raw, reply)
    }

    /// Connects to a raw responder, which answers with what `answer` makes of the Request.
    pub fn connect(
        &self,
        params: &ConnectParams,
        answer: impl FnOnce(&Startup) -> Startup,
    ) -> (Result<End, ConnectError>, Raw, Startup) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let (pd, send_cq, recv_cq, qp) = parts(&self.device, DEPTH);
        let device = self.device.clone();
        let (connected, raw, request) = thread::scope(|scope| {
            let connecting = scope.spawn(|| connect(&device, addr, &qp, params, DEADLINE));
            let mut raw = Raw::accept(&listener);
            let request = raw.startup(FrameKind::Request);
            let reply = answer(&request);
            raw.send(&reply.octets());
            raw.operate(request.crc || reply.crc, request.markers, reply.markers);
            let connected: Result<Connection, _> = connecting.join().unwrap();
            (connected, raw, request)
        });
        let end = connected.map(|connection| End { device, pd, send_cq, recv_cq, qp, connection });
        (end, raw, request)
    }

    /// Waits until no connection is left but the healthy one.
    pub fn settled(&self) {
        until("connections to go", || (self.device.connections() == 1).then_some(()));
    }
}

impl Healthy {
    fn new(device: &Device, listener: &Listener) -> Self {
        let addr = listener.local_addr().unwrap();
        let params = ConnectParams::default();
        let far_device = Device::with_options(Options::default()).unwrap();
        let (pd, send_cq, recv_cq, qp) = parts(&far_device, DEPTH);
        let (near, connection) = thread::scope(|scope| {
            let accepting = scope.spawn(|| {
                let (pd, send_cq, recv_cq, qp) = parts(device, DEPTH);
                let incoming = listener.accept(Some(DEADLINE)).unwrap().expect("nobody connects");
                let connection = incoming.accept(&qp, &params).unwrap();
                End { device: device.clone(), pd, send_cq, recv_cq, qp, connection }
            });
            let connection = connect(&far_device, addr, &qp, &params, DEADLINE).unwrap();
            (accepting.join().unwrap(), connection)
        });
        let far = End { device: far_device, pd, send_cq, recv_cq, qp, connection };
        let (source, back) = (near.region(CHECKED), near.region(CHECKED));
        let sink = far.region(CHECKED);
        Self { near, far, source, sink, back, rounds: std::cell::Cell::new(0) }
    }

    /// A Write, a Send behind it, and a Read that brings the bytes back.
    fn exchange(&self) {
        let round = self.rounds.get() + 1;
        self.rounds.set(round);
        let octets = pattern(CHECKED, round);
        self.source.buffer().unwrap().write_at(0, &octets);
        self.far.post_recv(round, &[]);
        self.near.write(round, self.source.whole(), &self.sink, 0);
        self.near.send(round, &[]);
        assert_eq!(self.far.received().wr_id, round);
        assert!(self.sink.buffer().unwrap().to_vec() == octets);
        self.near.read(round, self.back.whole(), &self.sink, 0);
        for _ in 0..3 {
            assert_eq!(self.near.sent().wr_id, round);
        }
        assert!(self.back.buffer().unwrap().to_vec() == octets);
    }
}

impl End {
    /// The connection is over, as `why` says, and what was posted is flushed: this many sends
    /// and receives.
    pub fn ended(&self, why: Ended, sends: usize, receives: usize) {
        assert_eq!(self.connection.wait_disconnected(Some(DEADLINE)), Some(why));
        self.flushed(sends, receives);
    }

    /// This many sends and receives, and no more, come back flushed.
    pub fn flushed(&self, sends: usize, receives: usize) {
        for _ in 0..sends {
            assert_eq!(super::next(&self.send_cq).status, WcStatus::Flushed);
        }
        for _ in 0..receives {
            assert_eq!(super::next(&self.recv_cq).status, WcStatus::Flushed);
        }
        assert_eq!(self.send_cq.poll_one(), None);
        assert_eq!(self.recv_cq.poll_one(), None);
        assert_eq!(self.qp.outstanding(), (0, 0));
        assert_eq!(self.qp.state(), QpState::Err);
    }
}

/// One kind of ready-to-receive indication.
pub fn only(send: bool, write: bool, read: bool) -> RtrTypes {
    RtrTypes { send, write, read }
}
