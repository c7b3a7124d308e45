// SPDX-License-Identifier: MIT OR Apache-2.0

//! The protocol of a queue pair that may speak iWARP or RoCE v2 with its peer.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use iwarp::Outbox;
use iwarp::port::{DatagramFaults, DatagramPort, DatagramSettings};
use iwarp::{AsyncEvent, Options, Peer, QpState, WcStatus, Wire};
use iwarp_roce::probe::is_question;
use iwarp_roce::wire::{
    Aeth, Bth, Header, ICRC_LEN, Message, PORT, Packet, Path, Position, Psn, SendTail, Syndrome,
    Transport,
};
use iwarp_types::AddressVector;

use crate::common::scene::Scene;
use crate::common::{next, until};
use crate::rc::{HOSTS, Hosts, RoceEnd, end, exchange, options};

const ALL: [Wire; 3] = [Wire::Auto, Wire::Iwarp, Wire::Roce];

/// The protocol that two ends of our own kind speak; `None`: nothing.
fn expected(wires: [Wire; 2]) -> Option<Wire> {
    match wires {
        [Wire::Roce, Wire::Iwarp] | [Wire::Iwarp, Wire::Roce] => None,
        [Wire::Roce, _] | [_, Wire::Roce] => Some(Wire::Roce),
        _ => Some(Wire::Iwarp),
    }
}

fn ends(hosts: &Hosts, wires: [Wire; 2]) -> [RoceEnd; 2] {
    [0, 1].map(|n| end(&hosts.device(HOSTS[n], options().wire(wires[n])), HOSTS[n]))
}

/// Takes an end to a state, as a program does that knows addresses and numbers only.
fn meet(one: &RoceEnd, other: &RoceEnd, to: QpState) {
    let peer = Peer::at(one.connection, other.connection, other.qp.number(), other.qp.psn());
    one.qp.connect_to(&peer).unwrap();
    if to == QpState::Rts {
        one.qp.modify(QpState::Rts).unwrap();
    }
}

/// Faults of datagrams, which TCP does not meet.
fn storm() -> DatagramFaults {
    DatagramFaults {
        lost: 20_000,
        repeated: 10_000,
        reordered: 10_000,
        ..DatagramFaults::default()
    }
}

/// Both ends speak one protocol, for each pair of settings, in either order, and even if datagrams
/// are lost. In virtual time: lost ones are waited for.
#[test]
fn both_ends_speak_the_same() {
    for (seed, wires) in (0..).zip(ALL.iter().flat_map(|one| ALL.map(|other| [*one, other]))) {
        let Some(expected) = expected(wires) else { continue };
        for late in [None, Some(0), Some(1)] {
            for faults in [DatagramFaults::default(), storm()] {
                let scene = Scene::new();
                let _playing = scene.play();
                let hosts = Hosts::in_scene(seed, &scene);
                hosts.datagrams.set_faults(faults);
                let ends = ends(&hosts, wires);
                let first = late.map_or(0, |late| 1 - late);
                meet(&ends[first], &ends[1 - first], QpState::Rts);
                if late.is_some() {
                    // As long as it takes to ask in vain, twice or so.
                    scene.pass(Duration::from_millis(25));
                }
                meet(&ends[1 - first], &ends[first], QpState::Rts);
                exchange(&ends, &[0, 3000]);
                for end in &ends {
                    assert_eq!(end.qp.wire(), Some(expected), "{wires:?}");
                }
                let lost = expected == Wire::Roce && faults.lost > 0;
                // More than one wait for an acknowledgement.
                assert!(!lost || scene.clock.now() > Duration::from_millis(150), "{wires:?}");
            }
        }
    }
}

/// Covers: ROCE-176
#[test]
fn ends_that_were_told_to_speak_differently_do_not_meet() {
    let hosts = Hosts::new(1);
    let ends = ends(&hosts, [Wire::Roce, Wire::Iwarp]);
    for [one, other] in [[0, 1], [1, 0]] {
        meet(&ends[one], &ends[other], QpState::Rts);
        ends[one].send(1, &[]);
    }
    for end in &ends {
        assert_eq!(next(&end.send_cq).status, WcStatus::RetryExceeded);
    }
}

/// Without a port for datagrams it is iWARP.
#[test]
fn ends_without_datagrams_speak_iwarp() {
    let hosts = Hosts::new(1);
    let ends = HOSTS.map(|ip| {
        let device = hosts.device_on(ip, options().wire(Wire::Auto), None);
        end(&device, ip)
    });
    meet(&ends[0], &ends[1], QpState::Rts);
    let begun = Instant::now();
    until("a question that is not asked", || (begun.elapsed().as_millis() > 25).then_some(()));
    meet(&ends[1], &ends[0], QpState::Rts);
    exchange(&ends, &[100]);
    assert!(ends.iter().all(|end| end.qp.wire() == Some(Wire::Iwarp)));
}

/// After a reset either may be spoken again, with another peer.
#[test]
fn a_queue_pair_decides_anew_after_a_reset() {
    let hosts = Hosts::new(1);
    let [one, roce, iwarp] = [(0, Wire::Auto), (1, Wire::Roce), (1, Wire::Iwarp)]
        .map(|(n, wire)| (n, options().wire(wire)))
        .map(|(n, options)| (n, if n == 1 { options } else { self::options().wire(Wire::Auto) }))
        .map(|(n, options)| {
            // Two devices of one host cannot both have its port for datagrams.
            let datagrams = (options.wire != Wire::Iwarp).then(|| hosts.datagrams.host(HOSTS[n]));
            end(&hosts.device_on(HOSTS[n], options, datagrams), HOSTS[n])
        });
    let mut ends = [one, roce];
    let reset = |ends: &[RoceEnd; 2]| {
        for end in ends {
            end.qp.modify(QpState::Reset).unwrap();
            end.qp.modify(QpState::Init).unwrap();
        }
    };
    let speak = |ends: &[RoceEnd; 2]| {
        meet(&ends[0], &ends[1], QpState::Rts);
        meet(&ends[1], &ends[0], QpState::Rts);
        exchange(ends, &[100]);
        ends[0].qp.wire()
    };
    assert_eq!(speak(&ends), Some(Wire::Roce));
    reset(&ends);
    assert_eq!(ends[0].qp.wire(), None);
    ends[1] = iwarp;
    assert_eq!(speak(&ends), Some(Wire::Iwarp));
}

/// A peer of another kind: a port, by which the test says and hears what it likes.
struct Stranger {
    port: Box<dyn DatagramPort>,
    path: Path,
    end: RoceEnd,
    qpn: u32,
}

const PSN: u32 = 0x00aa_0000;

impl Stranger {
    /// With the number `qpn`, and an end that was told of it.
    fn new(hosts: &Hosts, qpn: u32) -> Self {
        let [here, there] = HOSTS;
        let settings = DatagramSettings::default();
        let port = hosts.datagrams.host(there).open(SocketAddr::new(there, PORT), &settings);
        let end = end(&hosts.device(here, Options::for_any_program()), here);
        end.qp.set_psn(PSN);
        let path = Path::new(AddressVector::new(there, here), PORT);
        Self { port: port.unwrap(), path, end, qpn }
    }

    fn meet(&self, to: QpState) {
        let peer = Peer::at(HOSTS[0], HOSTS[1], self.qpn, (2 * PSN) & 0x00ff_ffff);
        self.end.qp.connect_to(&peer).unwrap();
        if to == QpState::Rts {
            self.end.qp.modify(QpState::Rts).unwrap();
        }
    }

    fn say(&self, psn: u32, message: Message) {
        let bth = Bth::new(self.end.qp.number(), Psn::new(psn)).asking(true);
        let header = Header { bth, transport: Transport::Rc, deth: None, message };
        let mut outbox = Outbox::new(&*self.port, 1 << 16);
        let burst = outbox.fill(&*self.port).unwrap();
        burst.push(&self.path, &header, 0, |_, _| Ok::<(), ()>(())).unwrap();
        outbox.flush(&*self.port).unwrap();
    }

    fn acknowledge(&self, psn: u32) {
        let aeth = Aeth { syndrome: Syndrome::ACK, msn: 0 };
        self.say(psn, Message::Acknowledge(aeth));
    }

    /// The next packet that `which` picks.
    fn hears(&self, which: impl Fn(&Header) -> bool) -> Header {
        until("a packet", || {
            let mut heard = None;
            let _ = self.port.receive(&mut |_, octets| {
                let packet = Packet::parse(&octets[..octets.len() - ICRC_LEN]).unwrap();
                heard = heard.or(Some(packet.header).filter(|header| which(header)));
            });
            heard
        })
    }
}

const ANY_SEND: Message = Message::Send { position: Position::Only, tail: SendTail::Plain };

/// Work that was posted before it was known what the peer speaks goes to it, in order.
#[test]
fn a_peer_that_answers_the_question_gets_what_waits() {
    let stranger = Stranger::new(&Hosts::new(1), 0x00c0_0001);
    let end = &stranger.end;
    end.post_recv(7, &[]);
    stranger.meet(QpState::Rts);
    for wr_id in 1..4 {
        end.send(wr_id, &[]);
    }
    for _ in 0..2 {
        let question = stranger.hears(|header| is_question(&header.message));
        assert_eq!((question.bth.psn, question.bth.ack_req), (Psn::new(PSN - 1), true));
        assert_eq!(end.qp.wire(), None);
    }
    // That is no answer to it.
    stranger.acknowledge(PSN + 1);
    stranger.hears(|header| is_question(&header.message));
    stranger.acknowledge(PSN - 1);
    for n in 0..3 {
        let sent = stranger.hears(|header| header.bth.psn == Psn::new(PSN + n));
        assert_eq!(sent.message, ANY_SEND);
        stranger.acknowledge(PSN + n);
    }
    assert_eq!([(); 3].map(|()| end.sent().wr_id), [1, 2, 3]);
    assert_eq!(end.qp.wire(), Some(Wire::Roce));
    // The answer comes once more, and says nothing.
    stranger.acknowledge(PSN - 1);
    stranger.say((2 * PSN) & 0x00ff_ffff, ANY_SEND);
    assert_eq!(end.received().wr_id, 7);
}

/// An end that does not send is found by the first request, which is not lost.
#[test]
fn a_peer_that_speaks_first_is_understood() {
    let stranger = Stranger::new(&Hosts::new(1), 0x00c0_0001);
    let end = &stranger.end;
    stranger.meet(QpState::Rtr);
    end.post_recv(7, &[]);
    let first = (2 * PSN) & 0x00ff_ffff;
    // It listens a while after it came to RTR: the peer says it again.
    let received = until("a receive", || {
        stranger.say(first, ANY_SEND);
        end.recv_cq.poll_one()
    });
    assert_eq!((received.wr_id, received.status), (7, WcStatus::Success));
    stranger.hears(|header| matches!(header.message, Message::Acknowledge(_)));
    let established = AsyncEvent::CommunicationEstablished { qp: end.qp.number() };
    assert_eq!(end.async_event(|_| true), established);
    assert_eq!((end.qp.wire(), end.qp.state()), (Some(Wire::Roce), QpState::Rtr));
    end.qp.modify(QpState::Rts).unwrap();
    end.send(1, &[]);
    stranger.hears(|header| header.message == ANY_SEND && header.bth.psn == Psn::new(PSN));
    stranger.acknowledge(PSN);
    assert_eq!(end.sent().wr_id, 1);
}

/// A number that none of our queue pairs can have needs no question.
#[test]
fn a_peer_is_known_by_its_number() {
    let stranger = Stranger::new(&Hosts::new(1), 17);
    stranger.meet(QpState::Rts);
    assert_eq!(stranger.end.qp.wire(), Some(Wire::Roce));
    stranger.end.send(1, &[]);
    let first = stranger.hears(|header| !is_question(&header.message));
    assert_eq!((first.bth.psn, first.message), (Psn::new(PSN), ANY_SEND));
    stranger.acknowledge(PSN);
    assert_eq!(stranger.end.sent().wr_id, 1);
}

/// A peer that never comes is told by the oldest request, and the rest is flushed.
#[test]
fn a_peer_of_no_kind_is_given_up() {
    let stranger = Stranger::new(&Hosts::new(1), 0x00c0_0001);
    let end = &stranger.end;
    end.qp.set_retry(iwarp::Retry::new(Duration::from_millis(1), 0));
    stranger.meet(QpState::Rts);
    end.post_recv(3, &[]);
    end.send(1, &[]);
    end.send(2, &[]);
    assert_eq!(next(&end.send_cq).status, WcStatus::RetryExceeded);
    assert_eq!(next(&end.send_cq).status, WcStatus::Flushed);
    assert_eq!(next(&end.recv_cq).status, WcStatus::Flushed);
    // Too late.
    stranger.acknowledge(PSN - 1);
    assert_eq!(end.qp.state(), QpState::Err);
}
