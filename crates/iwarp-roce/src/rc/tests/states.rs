// SPDX-License-Identifier: MIT OR Apache-2.0

//! States, and how a queue pair ends.

use iwarp_types::{Disposition, PostError, Receive};

use super::*;
use crate::wire::Pkey;

fn states(bench: &Bench) -> (QpState, bool) {
    (bench.rc.state(), bench.rc.is_connected())
}

/// Covers: ROCE-005, ROCE-011, ROCE-012, ROCE-016, ROCE-019
#[test]
fn packets_of_others_are_dropped_without_a_word() {
    let mut bench = Bench::new();
    bench.post_recv(1, 0, 100);
    let bth = Bth::new(OWN_QP, peer(0)).asking(true);
    let good = header(bth, send(Position::Only));
    let other = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 3));
    let strange = [
        (Header { transport: Transport::Uc, ..good }, PEER, OWN),
        (Header { bth: Bth { dest_qp: 0, ..bth }, ..good }, PEER, OWN),
        (Header { bth: Bth { dest_qp: 0xff_ffff, ..bth }, ..good }, PEER, OWN),
        (Header { bth: Bth { pkey: Pkey(0x9234), ..bth }, ..good }, PEER, OWN),
        (good, other, OWN),
        (good, PEER, other),
    ];
    for (header, source, destination) in strange {
        let path = Path::new(AddressVector::new(source, destination), 0xc000);
        // No matter which PSN it has.
        for psn in [peer(0), peer(1), peer(0).previous()] {
            let header = Header { bth: Bth { psn, ..header.bth }, ..header };
            bench.take_from(header, &[], &path);
        }
        assert_eq!((bench.events(), bench.sent()), (Vec::new(), Vec::new()), "{header:?}");
    }
    // Limited members of the partition, other ports and marks are as good as any.
    let limited = Bth { pkey: Pkey(0x7fff), migrated: false, fecn: true, becn: true, ..bth };
    bench.take_header(Header { bth: limited, ..good }, &[]);
    assert_eq!(bench.received().len(), 1);
}

/// Covers: ROCE-017, ROCE-105
#[test]
fn requests_are_taken_from_rtr_on_and_answers_from_rts_on() {
    let mut rc = Rc::new(config());
    rc.modify(QpState::Init).unwrap();
    rc.set_attributes(&attributes());
    let mut bench = Bench { rc, host: host(), now: Time(Duration::from_secs(1)) };
    for wr_id in 0..2 {
        bench.post_recv(wr_id, 0, 100);
    }
    bench.ask(peer(0), send(Position::Only), &[1]);
    assert_eq!(bench.events(), []);
    bench.rc.modify(QpState::Rtr).unwrap();
    let request = SendRequest::send(0, &[]);
    assert_eq!(bench.rc.post_send(&request), Err(PostError::WrongState));
    bench.answer(0, Syndrome::ACK);
    assert_eq!(bench.events(), []);
    for number in 0..2 {
        bench.ask(peer(number), send(Position::Only), &[1]);
        assert_eq!(bench.sent()[0].message, ack(number + 1));
    }
    let events = bench.events();
    assert_eq!(events[0], Event::FirstHeard);
    assert_eq!(events.len(), 3, "and once");
    bench.rc.modify(QpState::Rts).unwrap();
    assert_eq!(states(&bench), (QpState::Rts, true));
}

#[test]
fn a_drained_send_queue_is_told() {
    let mut bench = Bench::new();
    bench.post(SendRequest::send(0, &[local(0, 2 * MTU as u32)]));
    bench.post(SendRequest::send(1, &[]));
    assert_eq!(bench.sent_within(1).len(), 1);
    bench.rc.modify(QpState::Sqd).unwrap();
    // A message that was begun is finished, and no other is begun.
    assert_eq!(bench.sent().len(), 1);
    assert_eq!(bench.events(), []);
    bench.answer(1, Syndrome::ACK);
    assert_eq!(bench.events(), [Event::SendQueueDrained]);
    assert_eq!(bench.sent(), []);
    bench.rc.modify(QpState::Rts).unwrap();
    assert_eq!(bench.sent().len(), 1);
    bench.answer(2, Syndrome::ACK);
    bench.rc.modify(QpState::Sqd).unwrap();
    assert_eq!(bench.events(), [Event::SendQueueDrained]);
}

#[test]
fn an_end_flushes_once_and_says_why() {
    type EndOf = fn(&mut Rc);
    let ends: [(EndOf, WcStatus, Option<Event>); 7] = [
        (|rc| rc.disconnect(), WcStatus::Flushed, None),
        (|rc| rc.abort(), WcStatus::Flushed, None),
        (|rc| rc.modify(QpState::Err).unwrap(), WcStatus::Flushed, None),
        (|rc| rc.lost(), WcStatus::Flushed, Some(Event::Lost)),
        (|rc| rc.timed_out(), WcStatus::RetryExceeded, Some(Event::Lost)),
        (|rc| rc.unreachable(), WcStatus::RetryExceeded, None),
        (
            |rc| rc.fail_locally("out of socks"),
            WcStatus::Flushed,
            Some(Event::Fault(crate::rc::reasons::local("out of socks"))),
        ),
    ];
    for (end, status, event) in ends {
        let mut bench = Bench::new();
        bench.post(SendRequest::send(0, &[local(0, 8)]));
        bench.post(SendRequest::send(1, &[local(0, 8)]));
        bench.post_recv(2, 0, 8);
        bench.sent();
        end(&mut bench.rc);
        end(&mut bench.rc);
        let mut events = bench.events();
        if let Some(event) = event {
            assert_eq!(events.remove(0), event);
        }
        let ended = |event: &Event| match event {
            Event::SendCompleted(wc) | Event::ReceiveCompleted(wc) => (wc.wr_id, wc.status),
            other => panic!("{other:?}"),
        };
        let flushed = WcStatus::Flushed;
        let ended: Vec<_> = events.iter().map(ended).collect();
        assert_eq!(ended, [(0, status), (1, flushed), (2, flushed)]);
        assert_eq!(states(&bench), (QpState::Err, false));
        assert_eq!((bench.rc.poll_timeout(), bench.sent()), (None, Vec::new()));
        assert_eq!(bench.rc.disposition(), Disposition::Finish);
        // A request that is posted later is flushed as well.
        bench.post(SendRequest::send(3, &[]));
        assert_eq!(bench.ended(), [(3, flushed)]);
        bench.post_recv(4, 0, 8);
        assert_eq!(bench.received()[0].status, flushed);
        bench.ask(peer(0), send(Position::Only), &[]);
        assert_eq!((bench.events(), bench.sent()), (Vec::new(), Vec::new()));
    }
}

/// A program that has the last message goes at once: its peer learns that it had arrived.
#[test]
fn a_received_message_is_acknowledged_after_the_end() {
    let mut bench = Bench::new();
    bench.post_recv(0, 0, 8);
    bench.ask(peer(0), send(Position::Only), &[1]);
    bench.rc.disconnect();
    assert_eq!(bench.rc.disposition(), Disposition::Open);
    assert_eq!(bench.sent()[0].message, ack(1));
    assert_eq!(bench.rc.disposition(), Disposition::Finish);
}

#[test]
fn reset_forgets_everything() {
    let mut bench = Bench::new();
    bench.post(SendRequest::send(0, &[]));
    bench.post_recv(0, 0, 8);
    bench.sent();
    bench.ask(peer(1), send(Position::Only), &[]);
    bench.rc.modify(QpState::Reset).unwrap();
    assert_eq!(bench.rc.outstanding(), (0, 0));
    assert_eq!((bench.events(), bench.sent()), (Vec::new(), Vec::new()));
    bench.rc.modify(QpState::Init).unwrap();
    bench.rc.set_attributes(&attributes());
    bench.rc.modify(QpState::Rtr).unwrap();
    bench.rc.modify(QpState::Rts).unwrap();
    bench.post(SendRequest::send(0, &[]));
    assert_eq!(bench.sent()[0].psn, OWN_PSN);
    assert!(bench.rc.modify(QpState::Rtr).is_err());
}

/// Covers: ROCE-106
#[test]
fn with_a_shared_receive_queue_the_last_receive_is_told() {
    let config = Config { shared_receive: true, ..config() };
    let mut bench = Bench::with(config, attributes());
    let request = RecvRequest::new(0, &[]);
    assert_eq!(bench.rc.post_recv(&request), Err(PostError::SharedReceiveQueue));
    let receive = Receive { wr_id: 5, sges: [local(0, 1000)].to_vec() };
    bench.host.pool.borrow_mut().push_back(receive.clone());
    bench.take(peer(0), send(Position::Only), &[1, 2]);
    assert_eq!(bench.received()[0].wr_id, 5);
    bench.host.pool.borrow_mut().push_back(receive);
    bench.take(peer(1), send(Position::First), &[0; MTU]);
    bench.rc.disconnect();
    bench.rc.disconnect();
    let events = bench.events();
    let [Event::ReceiveCompleted(wc), Event::LastReceiveReached] = events[..] else {
        panic!("{events:?}")
    };
    assert_eq!((wc.wr_id, wc.status), (5, WcStatus::Flushed));
}

/// Not in the queue pair's.
#[test]
fn receives_of_a_shared_queue_are_in_its_domain() {
    let config = Config { shared_receive: true, receive_pd: Some(PdId(9)), ..config() };
    for (domain, status) in [(9, WcStatus::Success), (7, WcStatus::LocalProtection)] {
        let mut bench = Bench::with(config, attributes());
        bench.host.register(PdId(domain), 0x7700, 0, 8, Access::LOCAL_WRITE);
        let sges = [Sge { addr: 0, length: 8, lkey: Stag(0x7700) }].to_vec();
        bench.host.pool.borrow_mut().push_back(Receive { wr_id: 5, sges });
        bench.take(peer(0), send(Position::Only), &[1, 2]);
        assert_eq!(bench.received()[0].status, status);
    }
}

/// A peer that misses the last acknowledgement would repeat its request in vain.
#[test]
fn the_last_acknowledgement_is_repeated() {
    let mut bench = Bench::new();
    bench.post_recv(1, 0, 100);
    bench.ask(peer(0), send(Position::Only), &[1]);
    assert_eq!(bench.sent().len(), 1);
    bench.rc.disconnect();
    let said: Vec<_> = bench.sent().iter().map(|sent| sent.message).collect();
    assert_eq!(said, [ack(1); 3]);
    assert!(matches!(bench.rc.disposition(), Disposition::Finish));
    // A queue pair without requests sends none.
    let mut bench = Bench::new();
    bench.rc.disconnect();
    assert_eq!(bench.sent().len(), 0);
}
