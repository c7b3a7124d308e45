// SPDX-License-Identifier: MIT OR Apache-2.0

//! Tests of the reliable connected queue pair: one of them against packets made by hand, and two of
//! them over a network that loses, repeats and delays.

mod answers;
mod congestion;
mod hostile;
mod network;
mod replies;
mod requester;
mod responder;
mod states;

use core::net::{IpAddr, Ipv4Addr};
use core::time::Duration;
use std::vec::Vec;

use iwarp_types::mock::Host;
use iwarp_types::{
    Access, AddressVector, Core, Event, NoPool, PdId, QpId, QpState, RecvRequest, SendRequest, Sge,
    Stag, TaggedOffset, Time, Wanted, WcStatus, WorkCompletion,
};

use super::Rc;
use crate::config::{Attributes, Config};
use crate::core::DatagramCore;
use crate::wire::{
    Aeth, Bth, Burst, Header, Message, Mtu, NakCode, Numbering, Packet, Path, Position, Psn, Reth,
    SendTail, Syndrome, Transport,
};

const OWN: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
const OWN_QP: u32 = 0x11;
const PEER_QP: u32 = 0x22;
/// First PSNs of either direction: they wrap soon.
const OWN_PSN: Psn = Psn::new(0xff_fffe);
const PEER_PSN: Psn = Psn::new(0xff_fffd);
const MTU: usize = 256;

/// Memory: a region with all local rights, and one that the peer may use in every way.
const LOCAL: u32 = 0x100;
const REMOTE: u32 = 0x200;
const REMOTE_BASE: u64 = 0x10_0000;
const REGION_LEN: usize = 1 << 18;

/// One queue pair, ready to send, whose peer is the test.
struct Bench {
    rc: Rc,
    host: Host,
    now: Time,
}

/// A packet that was sent.
#[derive(Clone, PartialEq, Debug)]
struct Sent {
    psn: Psn,
    ack_req: bool,
    solicited: bool,
    message: Message,
    payload: Vec<u8>,
}

fn attributes() -> Attributes {
    Attributes {
        path: Path::new(AddressVector::new(OWN, PEER), 0xc123),
        dest_qp: PEER_QP,
        mtu: Mtu::Mtu256,
        sq_psn: OWN_PSN,
        rq_psn: PEER_PSN,
        timeout: 14,
        retry_count: 3,
        rnr_retry: 2,
        max_rd_atomic: 4,
        max_dest_rd_atomic: 4,
        access: Access::REMOTE,
        ..Attributes::default()
    }
}

fn config() -> Config {
    Config { qp: QpId(OWN_QP), pd: PdId(7), ..Config::default() }
}

fn host() -> Host {
    let host = Host::default();
    host.register(PdId(7), LOCAL, 0, REGION_LEN, Access::LOCAL_WRITE);
    host.register(PdId(7), REMOTE, REMOTE_BASE, REGION_LEN, Access::LOCAL_WRITE | Access::REMOTE);
    host
}

impl Bench {
    fn new() -> Self {
        Self::with(config(), attributes())
    }

    fn with(config: Config, attributes: Attributes) -> Self {
        let mut bench = Self::in_rtr(config, attributes);
        bench.rc.modify(QpState::Rts).unwrap();
        bench
    }

    fn in_rtr(config: Config, attributes: Attributes) -> Self {
        let mut rc = Rc::new(config);
        rc.modify(QpState::Init).unwrap();
        rc.set_attributes(&attributes);
        rc.modify(QpState::Rtr).unwrap();
        Self { rc, host: host(), now: Time(Duration::from_secs(1)) }
    }

    /// Everything that is sent now.
    #[track_caller]
    fn sent(&mut self) -> Vec<Sent> {
        self.sent_within(usize::MAX)
    }

    /// The packets that a burst of so many octets sends now. That there was something to send was
    /// told.
    #[track_caller]
    fn sent_within(&mut self, budget: usize) -> Vec<Sent> {
        let wanted = self.rc.wanted();
        let events = self.rc.events.len();
        let mut burst = Burst::new(Numbering::Zero, budget);
        self.rc.transmit(&mut burst, self.now, &self.host);
        let did = !burst.is_empty() || events != self.rc.events.len();
        assert!(did <= (wanted == Wanted::Much), "said that there was nothing");
        if !burst.is_full() {
            assert_eq!(self.rc.wanted(), Wanted::Nothing);
        }
        let parse = |(path, octets): (&Path, &[u8])| {
            assert_eq!(*path, attributes().path);
            let packet = Packet::parse(&octets[..octets.len() - 4]).unwrap();
            assert_eq!(packet.header.transport, Transport::Rc);
            assert_eq!(packet.header.bth.dest_qp, PEER_QP);
            Sent {
                psn: packet.header.bth.psn,
                ack_req: packet.header.bth.ack_req,
                solicited: packet.header.bth.solicited,
                message: packet.header.message,
                payload: packet.payload.to_vec(),
            }
        };
        burst.packets().map(parse).collect()
    }

    /// The peer sends a packet.
    fn take_header(&mut self, header: Header, payload: &[u8]) {
        self.take_from(header, payload, &Path::new(AddressVector::new(PEER, OWN), 1025));
    }

    fn take_from(&mut self, header: Header, payload: &[u8], path: &Path) {
        let packet = Packet { header, payload };
        if self.rc.config.shared_receive {
            self.rc.receive(&packet, path, self.now, &self.host, &self.host);
        } else {
            self.rc.receive(&packet, path, self.now, &self.host, &NoPool);
        }
    }

    fn take(&mut self, psn: Psn, message: Message, payload: &[u8]) {
        self.take_header(header(Bth::new(OWN_QP, psn), message), payload);
    }

    /// The peer sends a request, and asks for an acknowledgement.
    fn ask(&mut self, psn: Psn, message: Message, payload: &[u8]) {
        self.take_header(header(Bth::new(OWN_QP, psn).asking(true), message), payload);
    }

    /// The peer acknowledges, or not, the packet so far behind the first.
    fn answer(&mut self, number: u32, syndrome: Syndrome) {
        self.take(own(number), Message::Acknowledge(Aeth { syndrome, msn: 0 }), &[]);
    }

    /// The peer tells of congestion.
    fn congested(&mut self) {
        self.rc.congested(&Path::new(AddressVector::new(PEER, OWN), 1025), self.now);
    }

    fn nak(&mut self, number: u32, code: NakCode) {
        self.answer(number, Syndrome::Nak(code));
    }

    /// So much time goes by.
    fn wait(&mut self, time: Duration) {
        self.now = self.now.plus(time);
        if self.rc.poll_timeout().is_some_and(|at| at <= self.now) {
            self.rc.handle_timeout(self.now);
        }
    }

    /// Waits until the queue pair wants to be told the time.
    #[track_caller]
    fn wait_for_timeout(&mut self) -> Duration {
        let wait = self.rc.poll_timeout().expect("a deadline").0 - self.now.0;
        self.wait(wait);
        wait
    }

    fn post(&mut self, request: SendRequest<'_>) {
        self.rc.post_send(&request).unwrap();
    }

    fn post_recv(&mut self, wr_id: u64, addr: u64, length: u32) {
        self.rc.post_recv(&RecvRequest::new(wr_id, &[local(addr, length)])).unwrap();
    }

    fn events(&mut self) -> Vec<Event> {
        core::iter::from_fn(|| self.rc.poll_event()).collect()
    }

    /// Completions of send work requests: their numbers, and how they ended.
    fn ended(&mut self) -> Vec<(u64, WcStatus)> {
        let end = |event| match event {
            Event::SendCompleted(wc) => Some((wc.wr_id, wc.status)),
            _ => None,
        };
        self.events().into_iter().filter_map(end).collect()
    }

    /// Completions of receives.
    fn received(&mut self) -> Vec<WorkCompletion> {
        let end = |event| match event {
            Event::ReceiveCompleted(wc) => Some(wc),
            _ => None,
        };
        self.events().into_iter().filter_map(end).collect()
    }
}

const fn header(bth: Bth, message: Message) -> Header {
    Header { bth, transport: Transport::Rc, deth: None, message }
}

const fn local(addr: u64, length: u32) -> Sge {
    Sge { addr, length, lkey: Stag(LOCAL) }
}

/// PSN of a packet of this side's, counted from the first.
const fn own(number: u32) -> Psn {
    OWN_PSN.plus(number)
}

/// PSN of a packet of the peer's, counted from the first.
const fn peer(number: u32) -> Psn {
    PEER_PSN.plus(number)
}

const fn send(position: Position) -> Message {
    Message::Send { position, tail: SendTail::Plain }
}

const fn reth(at: u64, length: u32) -> Reth {
    Reth { va: TaggedOffset(REMOTE_BASE + at), rkey: Stag(REMOTE), length }
}

const fn ack(msn: u32) -> Message {
    Message::Acknowledge(Aeth { syndrome: Syndrome::ACK, msn })
}

const fn nak(code: NakCode, msn: u32) -> Message {
    Message::Acknowledge(Aeth { syndrome: Syndrome::Nak(code), msn })
}

const fn response(position: Position) -> Message {
    let aeth = Aeth { syndrome: Syndrome::ACK, msn: 1 };
    let aeth = if matches!(position, Position::Middle) { None } else { Some(aeth) };
    Message::ReadResponse { position, aeth }
}

/// Octets of which each says where it is.
fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251) as u8 ^ seed).collect()
}
