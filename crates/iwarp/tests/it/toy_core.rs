// SPDX-License-Identifier: MIT OR Apache-2.0

//! A protocol of the program's own in place of iWARP: what somebody writes who has another wire.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::mpsc::{Receiver, channel};

use crate::common::{DEADLINE, next, pattern, succeeded, until};
use iwarp::cm::{ConnectParams, Listener, connect};
use iwarp::port::{Ipv6Listen, MemoryNetwork, Platform, Port, Sharing};
use iwarp::wire::{
    Accessor, BoxedCore, Core, Disposition, Event, Memory, Receive, ReceivePool, StreamCore, Time,
    Wanted,
};
use iwarp::{
    Access, AsyncEvent, CompletionChannel, CompletionQueue, Device, Ended, MemoryRegion, Options,
    Payload, PostError, ProtectionDomain, Protocol, QpState, QueuePair, QueuePairAttributes,
    Reason, RecvRequest, SendOp, SendRequest, Sge, TransitionError, WcOp, WcStatus, WorkCompletion,
};

/// Messages by a kind and a length, each of which the peer echoes: then its Send completes.
#[derive(Debug)]
pub(crate) struct Echo {
    who: Accessor,
    state: QpState,
    connected: bool,
    abort: bool,
    unsent: VecDeque<Message>,
    unanswered: VecDeque<Message>,
    receives: VecDeque<Receive>,
    echoes: VecDeque<u32>,
    events: VecDeque<Event>,
}

#[derive(Debug)]
struct Message {
    wr_id: u64,
    sges: Vec<Sge>,
    octets: u32,
}

const HEADER: usize = 5;
const MESSAGE: u8 = 1;
const ECHO: u8 = 2;
const LONGEST: u32 = 60_000;

const UNKNOWN_KIND: Reason = Reason::new(Protocol::Other, 1, "unknown kind of message");
const NO_RECEIVE: Reason = Reason::new(Protocol::Other, 2, "no receive").for_want_of_a_receive();
const BAD_MEMORY: Reason = Reason::new(Protocol::Other, 3, "memory was refused");
const HERE: Reason = Reason::new(Protocol::Other, 4, "local error");
const CUT: Reason = Reason::new(Protocol::Other, 5, "ended within a message");

impl Echo {
    pub(crate) fn boxed(who: Accessor) -> BoxedCore {
        Box::new(Self::new(who))
    }

    fn new(who: Accessor) -> Self {
        Self {
            who,
            state: QpState::Reset,
            connected: false,
            abort: false,
            unsent: VecDeque::new(),
            unanswered: VecDeque::new(),
            receives: VecDeque::new(),
            echoes: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    fn ended(&mut self, wr_id: u64, status: WcStatus) {
        let ended = WorkCompletion::new(wr_id, self.who.qp, WcOp::Send, status);
        self.events.push_back(Event::SendCompleted(ended));
    }

    fn received(&mut self, wr_id: u64, octets: usize, status: WcStatus) {
        let mut received = WorkCompletion::new(wr_id, self.who.qp, WcOp::Recv, status);
        received.byte_len = octets as u32;
        self.events.push_back(Event::ReceiveCompleted(received));
    }

    fn end(&mut self, why: Option<Event>) {
        if self.connected {
            self.events.extend(why);
        }
        self.connected = false;
        self.state = QpState::Err;
        let sends: Vec<_> = self.unanswered.drain(..).chain(self.unsent.drain(..)).collect();
        sends.iter().for_each(|send| self.ended(send.wr_id, WcStatus::Flushed));
        let receives = std::mem::take(&mut self.receives);
        receives.iter().for_each(|receive| self.received(receive.wr_id, 0, WcStatus::Flushed));
    }

    /// The first frame of `octets`; how many it has, or none when it is not whole.
    fn take(&mut self, octets: &[u8], memory: &dyn Memory, shared: &dyn ReceivePool) -> usize {
        let Some((&[kind, a, b, c, d], rest)) = octets.split_first_chunk() else { return 0 };
        let len = u32::from_be_bytes([a, b, c, d]) as usize;
        match kind {
            MESSAGE if rest.len() < len => return 0,
            MESSAGE => {
                let mut receive = Receive::default();
                if let Some(own) = self.receives.pop_front() {
                    receive = own;
                } else if !shared.take(&mut receive) {
                    self.end(Some(Event::Fault(NO_RECEIVE)));
                    return octets.len();
                }
                let (mut left, mut status) = (&rest[..len], WcStatus::Success);
                for sge in &receive.sges {
                    let (here, behind) = left.split_at(left.len().min(sge.length as usize));
                    if memory.place_local(self.who, *sge, here).is_err() {
                        status = WcStatus::LocalAccess;
                    }
                    left = behind;
                }
                self.received(receive.wr_id, len, status);
                self.echoes.push_back(len as u32);
                return HEADER + len;
            }
            ECHO => match self.unanswered.pop_front() {
                Some(sent) if sent.octets as usize == len => {
                    self.ended(sent.wr_id, WcStatus::Success);
                    return HEADER;
                }
                _ => {}
            },
            _ => {}
        }
        self.end(Some(Event::Fault(UNKNOWN_KIND)));
        octets.len()
    }
}

impl Core for Echo {
    type Terminated = Reason;
    type Fault = Reason;

    fn state(&self) -> QpState {
        self.state
    }

    fn modify(&mut self, to: QpState) -> Result<(), TransitionError> {
        match to {
            QpState::Reset => *self = Self::new(self.who),
            QpState::Err => self.end(None),
            _ if self.state.may_become(to) => self.state = to,
            _ => return Err(TransitionError { from: self.state, to }),
        }
        Ok(())
    }

    fn post_send(&mut self, request: &SendRequest<'_>) -> Result<(), PostError> {
        let (SendOp::Send { .. }, Payload::Sges(sges)) = (request.op, request.payload) else {
            return Err(PostError::Invalid);
        };
        let octets = sges.iter().map(|sge| sge.length).sum();
        match self.state {
            _ if octets > LONGEST => return Err(PostError::MessageTooLong),
            QpState::Err => self.ended(request.wr_id, WcStatus::Flushed),
            state if !state.takes_sends() => return Err(PostError::WrongState),
            _ => self.unsent.push_back(Message { wr_id: request.wr_id, sges: sges.into(), octets }),
        }
        Ok(())
    }

    fn post_recv(&mut self, request: &RecvRequest<'_>) -> Result<(), PostError> {
        if self.state == QpState::Err {
            self.received(request.wr_id, 0, WcStatus::Flushed);
            return Ok(());
        }
        let mut receive = Receive::default();
        receive.set(request)?;
        self.receives.push_back(receive);
        Ok(())
    }

    fn outstanding(&self) -> (usize, usize) {
        (self.unsent.len() + self.unanswered.len(), self.receives.len())
    }

    fn is_connected(&self) -> bool {
        self.connected
    }

    fn disconnect(&mut self) {
        self.end(None);
    }

    fn abort(&mut self) {
        self.abort = true;
        self.end(None);
    }

    fn unreachable(&mut self) {
        self.end(None);
    }

    fn lost(&mut self) {
        self.end(Some(Event::Lost));
    }

    fn fail_locally(&mut self, _: &'static str) {
        self.end(Some(Event::Fault(HERE)));
    }

    fn disposition(&self) -> Disposition {
        match self.connected {
            _ if self.abort => Disposition::Abort,
            true => Disposition::Open,
            false => Disposition::Finish,
        }
    }

    fn wanted(&mut self) -> Wanted {
        let waits = self.connected && !(self.echoes.is_empty() && self.unsent.is_empty());
        if waits { Wanted::Much } else { Wanted::Nothing }
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn has_events(&self) -> bool {
        !self.events.is_empty()
    }
}

impl StreamCore for Echo {
    fn establish(&mut self, _: Time) {
        self.connected = true;
        self.state = QpState::Rts;
    }

    fn receive(
        &mut self,
        octets: &mut [u8],
        memory: &dyn Memory,
        receives: &dyn ReceivePool,
    ) -> usize {
        let mut used = 0;
        while self.connected {
            match self.take(&octets[used..], memory, receives) {
                0 => return used,
                frame => used += frame,
            }
        }
        octets.len()
    }

    fn eof(&mut self, unused: usize) {
        self.end(Some(if unused == 0 { Event::Disconnected } else { Event::Fault(CUT) }));
    }

    fn transmit(&mut self, room: &mut [u8], memory: &dyn Memory) -> usize {
        if !self.connected {
            return 0;
        }
        let mut frame = |kind: u8, len: u32| {
            room[0] = kind;
            room[1..HEADER].copy_from_slice(&len.to_be_bytes());
        };
        if let Some(len) = self.echoes.pop_front() {
            frame(ECHO, len);
            return HEADER;
        }
        let Some(message) = self.unsent.pop_front() else { return 0 };
        frame(MESSAGE, message.octets);
        let mut end = HEADER;
        for sge in &message.sges {
            let here = &mut room[end..end + sge.length as usize];
            if memory.gather_local(self.who, *sge, here, None).is_err() {
                self.ended(message.wr_id, WcStatus::LocalProtection);
                self.end(Some(Event::Fault(BAD_MEMORY)));
                return 0;
            }
            end += sge.length as usize;
        }
        self.unanswered.push_back(message);
        end
    }

    fn taken(&mut self, _: usize) {}
}

const HOST: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

fn device() -> (Device, Platform) {
    let platform = MemoryNetwork::new().platform(HOST);
    (Device::on_platform(Options::default(), platform.clone()).unwrap(), platform)
}

/// Both ends of a stream.
fn streams(platform: &Platform) -> [Box<dyn Port>; 2] {
    let any = SocketAddr::new(HOST, 0);
    let reserved = platform.network.reserve(any, Ipv6Listen::Only, Sharing::Exclusive).unwrap();
    let addr = reserved.local_addr().unwrap();
    let acceptor = reserved.listen(1).map_err(|(_, error)| error).unwrap();
    let ours = platform.network.connect(None, addr, None).unwrap();
    [ours, until("the other end", || acceptor.accept().ok())]
}

pub(crate) struct End {
    pd: ProtectionDomain,
    pub(crate) send_cq: CompletionQueue,
    pub(crate) recv_cq: CompletionQueue,
    pub(crate) qp: QueuePair,
    ended: Receiver<Ended>,
}

impl End {
    pub(crate) fn new(
        device: &Device,
        port: Box<dyn Port>,
        channel_: Option<&CompletionChannel>,
    ) -> Self {
        let pd = device.alloc_pd();
        let send_cq = device.create_cq(64, None).unwrap();
        let recv_cq = device.create_cq(64, channel_).unwrap();
        let attributes = QueuePairAttributes::new(&send_cq, &recv_cq);
        let qp = QueuePair::on_core(&pd, &attributes, Echo::boxed).unwrap();
        let (told, ended) = channel();
        qp.attach(port, told).unwrap();
        Self { pd, send_cq, recv_cq, qp, ended }
    }

    pub(crate) fn region(&self, octets: &[u8]) -> MemoryRegion {
        let region = self.pd.allocate(octets.len(), Access::LOCAL_WRITE).unwrap();
        region.buffer().unwrap().write_at(0, octets);
        region
    }

    pub(crate) fn send(&self, wr_id: u64, sges: &[Sge]) {
        let request = SendRequest::send(wr_id, sges).signaled();
        self.qp.post_send(&request).unwrap();
    }

    pub(crate) fn ended(&self) -> Ended {
        self.ended.recv_timeout(DEADLINE).unwrap()
    }
}

fn pair(device: &Device, platform: &Platform) -> [End; 2] {
    streams(platform).map(|port| End::new(device, port, None))
}

#[test]
fn another_protocol_moves_octets_through_verbs_engine_and_completion_queue() {
    const LEN: usize = 50_000;
    const ROUNDS: usize = 100;
    let (device, platform) = device();
    let [ours, theirs] = pair(&device, &platform);
    let octets = pattern(LEN, 1);
    let source = ours.region(&octets);
    let sink = theirs.region(&[0; LEN]);
    for round in 0..ROUNDS {
        let len = LEN - round;
        let parts = [sink.sge(0, len / 2), sink.sge(len / 2, len - len / 2)];
        theirs.qp.post_recv(&RecvRequest::new(round as u64, &parts)).unwrap();
        ours.send(round as u64, &[source.sge(round, len)]);
        let received = succeeded(next(&theirs.recv_cq));
        assert_eq!((received.wr_id, received.byte_len as usize), (round as u64, len));
        assert_eq!(sink.buffer().unwrap().to_vec()[..len], octets[round..]);
        let sent = succeeded(next(&ours.send_cq));
        assert_eq!((sent.wr_id, sent.qp.0), (round as u64, ours.qp.number()));
    }
    assert_eq!(ours.qp.room().0, 128, "every request has given its slot back");
}

#[test]
fn another_protocol_wakes_who_waits_on_a_channel() {
    let (device, platform) = device();
    let channel = device.create_comp_channel().unwrap();
    let [ours, theirs] = streams(&platform);
    let (ours, theirs) = (End::new(&device, ours, None), End::new(&device, theirs, Some(&channel)));
    let (source, sink) = (ours.region(b"hello"), theirs.region(&[0; 5]));
    theirs.qp.post_recv(&RecvRequest::new(1, &[sink.sge(0, 5)])).unwrap();
    theirs.recv_cq.request_notify(false);
    ours.send(2, &[source.sge(0, 5)]);
    channel.wait(Some(DEADLINE)).unwrap().expect("a completion within the deadline");
    assert_eq!(succeeded(next(&theirs.recv_cq)).wr_id, 1);
    assert_eq!(sink.buffer().unwrap().to_vec(), b"hello");
}

#[test]
fn the_end_of_another_protocols_stream_flushes_what_waits() {
    let (device, platform) = device();
    let [ours, theirs] = pair(&device, &platform);
    let sink = theirs.region(&[0; 8]);
    for wr_id in [7, 8] {
        theirs.qp.post_recv(&RecvRequest::new(wr_id, &[sink.sge(0, 8)])).unwrap();
    }
    ours.qp.modify(QpState::Err).unwrap();
    assert_eq!([ours.ended(), theirs.ended()], [Ended::Closed; 2]);
    for wr_id in [7, 8] {
        let flushed = next(&theirs.recv_cq);
        assert_eq!((flushed.wr_id, flushed.status), (wr_id, WcStatus::Flushed));
    }
    // So is what is posted afterwards.
    theirs.send(9, &[sink.sge(0, 8)]);
    assert_eq!(next(&theirs.send_cq).status, WcStatus::Flushed);
    assert_eq!(theirs.qp.state(), QpState::Err);
}

#[test]
fn a_fault_of_another_protocol_is_told_in_its_own_words() {
    let (device, platform) = device();
    let [ours, theirs] = pair(&device, &platform);
    let source = ours.region(&[1; 8]);
    ours.send(1, &[source.sge(0, 8)]);
    let why = theirs.ended();
    assert_eq!(why, Ended::Fault(NO_RECEIVE));
    assert_eq!(why.to_string(), "the peer broke a rule: no receive (0x2)");
    let fatal = AsyncEvent::QpFatal { qp: theirs.qp.number() };
    assert_eq!(until("an event", || device.poll_async_event().unwrap()), fatal);
    // This protocol has no word for it on the wire: the other end sees the stream end.
    assert_eq!(ours.ended(), Ended::Closed);
    assert_eq!(next(&ours.send_cq).status, WcStatus::Flushed);
}

#[test]
fn another_protocol_is_refused_memory_that_is_none() {
    let (device, platform) = device();
    let [ours, theirs] = pair(&device, &platform);
    let source = ours.region(&[1; 8]);
    let sge = Sge { length: 9, ..source.sge(0, 8) };
    ours.send(1, &[sge]);
    assert_eq!(next(&ours.send_cq).status, WcStatus::LocalProtection);
    assert_eq!([ours.ended(), theirs.ended()], [Ended::Fault(BAD_MEMORY), Ended::Closed]);
}

#[test]
fn a_queue_pair_is_connected_by_its_own_protocol_only() {
    let (device, platform) = device();
    let pd = device.alloc_pd();
    let cq = device.create_cq(16, None).unwrap();
    let attributes = QueuePairAttributes::new(&cq, &cq);
    let iwarp = pd.create_qp(&attributes).unwrap();
    let [port, _theirs] = streams(&platform);
    let refused = iwarp.attach(port, channel().0).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);

    let other = QueuePair::on_core(&pd, &attributes, Echo::boxed).unwrap();
    let listener = Listener::bind(&device, SocketAddr::new(HOST, 0)).unwrap();
    let (addr, params) = (listener.local_addr().unwrap(), ConnectParams::default());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let incoming = listener.accept(Some(DEADLINE)).unwrap().expect("somebody connects");
            // Its own attempt may be over before the answer.
            let _ = incoming.accept(&iwarp, &params);
        });
        assert!(connect(&device, addr, &other, &params, DEADLINE).is_err());
    });
    assert!(!other.is_connected());
}
