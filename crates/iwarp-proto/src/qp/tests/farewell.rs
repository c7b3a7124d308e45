// SPDX-License-Identifier: MIT OR Apache-2.0

//! The last frame of an end of our kind, which says what it has received, and work requests that
//! outlive a peer that has left ([`Config::outlive`]).

use core::time::Duration;

use super::octets::{self, send, tagged, untagged};
use super::park::parking;
use super::*;
use crate::qp::Capabilities;

const HELLO_STAG: u32 = 0x6957_4152;
const HELLO_TO: u64 = 0x5048_454c_0100_0000;
const FAREWELL_STAG: u32 = 0x6957_4642;
const COUNT_STAG: u32 = 0x6957_434e;
const SECOND: Duration = Duration::from_secs(1);

fn hello(capabilities: Capabilities) -> Vec<u8> {
    tagged(octets::WRITE, true, HELLO_STAG, HELLO_TO | u64::from(capabilities.bits()), &[])
}

fn farewell(received: u64) -> Vec<u8> {
    tagged(octets::WRITE, true, FAREWELL_STAG, received, &[])
}

/// An end whose requests end as over InfiniBand: they outlive the peer.
fn outliving() -> Config {
    Config { acknowledge: true, outlive: Some(SECOND), extensions: Extensions::Ask, ..config() }
}

fn raw(config: Config, capabilities: Capabilities) -> Raw {
    let mut raw = Raw::initiator(config, |terms| (terms.ord, terms.spare_ord) = (1, 1));
    raw.back();
    raw.send(&hello(Capabilities::OURS.union(capabilities)));
    raw
}

fn known(config: Config) -> Raw {
    raw(config, Capabilities::FAREWELL)
}

fn tell(end: &End, now: Time) {
    end.qp.borrow_mut().handle_timeout(now);
}

fn due(end: &End) -> Option<Time> {
    end.qp.borrow().poll_timeout()
}

#[test]
fn an_end_that_leaves_says_last_how_many_messages_it_has_received() {
    let mut raw = known(Config { extensions: Extensions::Ask, ..config() });
    raw.end.receive(1, &[local(0, 8)]);
    raw.end.receive(2, &[]);
    raw.send(&tagged(octets::WRITE, true, OPEN, OPEN_BASE, b"counts"));
    // Of two segments, and of none that counts.
    raw.send(&untagged(octets::SEND, false, 0, 0, 1, 0, b"ab"));
    raw.send(&untagged(octets::SEND, true, 0, 0, 1, 2, b"cd"));
    raw.send(&tagged(octets::WRITE, true, OPEN, OPEN_BASE, &[]));
    raw.send(&untagged(octets::IMMEDIATE, true, 0, 0, 2, 0, &[0; 8]));
    // Half a Write, and half a Read.
    raw.send(&tagged(octets::WRITE, false, OPEN, OPEN_BASE, b"half"));
    raw.end.post(3, SEND, &[]);
    raw.end.qp.borrow_mut().disconnect();
    assert_eq!(raw.end.disposition(), Disposition::Open);
    assert_eq!(raw.back(), [send(1, &[]), farewell(3)]);
    assert_eq!(raw.end.disposition(), Disposition::Finish);
}

#[test]
fn a_farewell_goes_only_to_peers_that_have_asked_for_it() {
    let mut raw = raw(config(), Capabilities::default());
    raw.end.qp.borrow_mut().disconnect();
    assert_eq!(raw.back().len(), 0);
    assert_eq!(raw.end.disposition(), Disposition::Finish);
}

#[test]
fn a_farewell_counts_neither_parked_messages_nor_those_behind() {
    for delivered in 0..4 {
        let mut raw = known(parking());
        raw.send(&tagged(octets::WRITE, true, OPEN, OPEN_BASE, b"1"));
        raw.send(&send(1, b"2"));
        raw.send(&send(2, b"3"));
        raw.send(&tagged(octets::WRITE, true, OPEN, OPEN_BASE, b"4"));
        raw.send(&send(3, b"5"));
        for wr_id in 0..delivered {
            raw.end.receive(wr_id, &[local(0, 8)]);
        }
        raw.end.look_again();
        raw.end.qp.borrow_mut().disconnect();
        assert_eq!(raw.back(), [farewell([1, 2, 4, 5][delivered as usize])], "{delivered}");
    }
}

#[test]
fn requests_that_a_farewell_counts_succeed_without_another_answer() {
    for received in 0..=4 {
        let mut raw = known(outliving());
        raw.end.host.fill(LOCAL, 0, b"payload");
        raw.end.post(1, SEND, &[local(0, 7)]);
        raw.end.post(2, write_op(0), &[local(0, 7)]);
        // Of no octets: they count with what stands before them.
        raw.end.post(3, write_op(0), &[]);
        let immediate = SendOp::WriteImmediate {
            stag: Stag(OPEN),
            to: TaggedOffset(OPEN_BASE),
            solicited: false,
            data: [1; 4],
        };
        raw.end.post(4, immediate, &[local(0, 7)]);
        raw.back();
        assert_eq!(raw.end.completions(), []);
        raw.send(&farewell(received));
        let all = [
            success(1, WcOp::Send),
            success(2, WcOp::Write),
            success(3, WcOp::Write),
            success(4, WcOp::Write),
        ];
        // The last two messages are one request's.
        let done = [0, 1, 3, 3, 4][received as usize];
        assert_eq!(outcomes(&raw.end.completions()), all[..done], "{received}");
    }
}

#[test]
fn a_farewell_that_nobody_asked_for_or_that_a_stranger_sends_means_nothing() {
    // Not like InfiniBand: a completion says that the stream took it, and that was said.
    let mut raw = known(Config { extensions: Extensions::Ask, ..config() });
    raw.send(&farewell(7));
    assert_eq!(raw.end.events(), []);
    // A peer that is none of ours may use any STag in a Write of nothing.
    let mut raw = Raw::initiator(outliving(), |terms| (terms.ord, terms.spare_ord) = (1, 1));
    raw.end.post(1, SEND, &[]);
    raw.end.receive(2, &[]);
    raw.back();
    raw.send(&send(1, &[]));
    raw.send(&farewell(1));
    assert_eq!(outcomes(&raw.end.completions()), [success(2, WcOp::Recv)]);
}

#[test]
fn a_farewell_of_more_than_was_sent_or_of_less_than_before_ends_the_stream() {
    for (count, received) in [(0, u64::MAX), (0, 2), (1, 0)] {
        let mut raw = known(outliving());
        raw.end.post(1, SEND, &[]);
        raw.end.post(2, read_op(0), &[local(0, 8)]);
        raw.back();
        raw.send(&tagged(octets::WRITE, true, COUNT_STAG, count, &[]));
        let wrong = farewell(received);
        assert_eq!(raw.refuse(&wrong), quoting([0x02, 0x07], wrong.len(), &wrong, &[]));
        let first = if count == 1 { success(1, WcOp::Send) } else { flushed(1, WcOp::Send) };
        assert_eq!(outcomes(&raw.end.completions()), [first, flushed(2, WcOp::Read)]);
        assert!(!raw.end.qp.borrow().is_outlived());
    }
}

#[test]
fn work_requests_outlive_a_peer_that_has_left_until_the_program_moves() {
    let mut raw = known(outliving());
    raw.end.receive(1, &[]);
    raw.end.post(2, SEND, &[]);
    raw.end.post(3, read_op(0), &[local(0, 8)]);
    raw.back();
    raw.send(&farewell(0));
    raw.end.eof();
    assert_eq!(raw.end.events(), [Event::Disconnected]);
    assert_eq!((raw.end.state(), raw.end.disposition()), (QpState::Rts, Disposition::Finish));
    assert!(!raw.end.qp.borrow().is_connected() && raw.end.qp.borrow().is_outlived());
    // As over InfiniBand, more may be posted; nothing goes out any more.
    raw.end.post(4, SEND, &[]);
    raw.end.receive(5, &[]);
    assert_eq!((raw.back().len(), raw.end.events()), (0, vec![]));
    raw.end.qp.borrow_mut().modify(QpState::Err).unwrap();
    assert_eq!(
        outcomes(&raw.end.completions()),
        [
            flushed(2, WcOp::Send),
            flushed(3, WcOp::Read),
            flushed(4, WcOp::Send),
            flushed(1, WcOp::Recv),
            flushed(5, WcOp::Recv),
        ]
    );
    assert_eq!((raw.end.state(), due(&raw.end)), (QpState::Err, None));
}

/// An end like InfiniBand's, whose peer has shown with its first frame that it is none of our kind.
fn of_a_stranger(config: Config) -> Raw {
    let mut raw = Raw::initiator(config, |terms| (terms.ord, terms.spare_ord) = (1, 1));
    raw.end.receive(1, &[]);
    raw.back();
    raw.send(&send(1, &[]));
    assert_eq!(outcomes(&raw.end.completions()), [success(1, WcOp::Recv)]);
    raw
}

/// Linux siw takes what comes in order, and closes with a FIN only where it has taken all that its
/// transport has acknowledged.
#[test]
fn data_acknowledged_by_a_stranger_s_transport_are_received_at_its_close() {
    const HELLO: u64 = 2 + 14 + 4;
    const SENT: u64 = 2 + 18 + 8 + 4;
    // Behind the first one.
    const READ: u64 = 2 + 18 + 28 + 4;
    for (acknowledged, done) in [
        (None, 0),
        (Some(0), 0),
        (Some(HELLO + SENT - 1), 0),
        (Some(HELLO + SENT), 1),
        (Some(HELLO + SENT + READ), 1),
        (Some(HELLO + SENT + READ + SENT - 1), 1),
        (Some(HELLO + SENT + READ + SENT), 2),
        (Some(HELLO + SENT + READ + SENT + SENT), 3),
    ] {
        let mut raw = of_a_stranger(outliving());
        for wr_id in 2..5 {
            raw.end.post(wr_id, SEND, &[local(0, 8)]);
            raw.end.take_all();
        }
        raw.end.eof_behind(acknowledged);
        let events = raw.end.events();
        assert_eq!(events[0], Event::Disconnected);
        let completions: Vec<_> = events.into_iter().filter_map(completion).collect();
        let all = [2, 3, 4].map(|wr_id| success(wr_id, WcOp::Send));
        assert_eq!(outcomes(&completions), all[..done], "{acknowledged:?}");
        // The rest outlives the peer as ever.
        assert!(raw.end.qp.borrow().is_outlived());
        tell(&raw.end, at(0));
        tell(&raw.end, at(1000));
        let mut rest = [2, 3, 4].map(|wr_id| flushed(wr_id, WcOp::Send));
        if let Some(oldest) = rest[done..].first_mut() {
            oldest.1 = WcStatus::RetryExceeded;
        }
        assert_eq!(outcomes(&raw.end.completions()), rest[done..]);
    }
}

#[test]
fn a_read_that_was_not_answered_succeeds_with_no_acknowledgement_nor_does_what_follows() {
    let mut raw = of_a_stranger(outliving());
    raw.end.post(2, write_op(0), &[local(0, 8)]);
    raw.end.post(3, read_op(0), &[local(0, 8)]);
    raw.end.post(4, SEND, &[]);
    raw.end.take_all();
    raw.end.eof_behind(Some(u64::MAX));
    assert_eq!(outcomes(&raw.end.completions()), [success(2, WcOp::Write)]);
    raw.end.qp.borrow_mut().modify(QpState::Err).unwrap();
    assert_eq!(outcomes(&raw.end.completions()), [flushed(3, WcOp::Read), flushed(4, WcOp::Send)]);
}

#[test]
fn the_transport_is_not_asked_about_one_of_our_kind_nor_where_a_stranger_breaks_off() {
    let asks = |raw: &mut Raw, waiting: &[u8]| {
        raw.end.post(2, SEND, &[]);
        raw.end.take_all();
        raw.end.inbox.extend_from_slice(waiting);
        let mut asked = false;
        raw.end.rx.eof(&raw.end.qp, raw.end.inbox.len(), || {
            asked = true;
            None
        });
        asked
    };
    assert!(asks(&mut of_a_stranger(outliving()), &[]));
    // It has said what it received, or has crashed.
    let mut left = known(outliving());
    left.send(&farewell(0));
    assert!(!asks(&mut left, &[]));
    assert!(!asks(&mut known(outliving()), &[]));
    // It may yet have been one of ours.
    let mut silent = Raw::initiator(outliving(), |terms| (terms.ord, terms.spare_ord) = (1, 1));
    assert!(!asks(&mut silent, &[]));
    let refusing = Config { extensions: Extensions::Refuse, ..outliving() };
    assert!(!asks(&mut of_a_stranger(refusing), &[]));
    // In the middle of an FPDU, and of a message.
    assert!(!asks(&mut of_a_stranger(outliving()), &[0, 20]));
    let mut half = of_a_stranger(outliving());
    half.end.receive(3, &[local(0, 8)]);
    half.send(&untagged(octets::SEND, false, 0, 0, 2, 0, b"ab"));
    assert!(!asks(&mut half, &[]));
    // Not if completions say nothing of the peer, nor if nothing outlives it.
    let plain = Config { acknowledge: false, ..outliving() };
    assert!(!asks(&mut of_a_stranger(plain), &[]));
    let brief = Config { outlive: None, ..outliving() };
    assert!(!asks(&mut of_a_stranger(brief), &[]));
}

/// An end that its program connects, and whose peer has not spoken yet.
fn in_place(extensions: Extensions) -> End {
    let config = Config { extensions, outlive_in_place: Some(SECOND), ..outliving() };
    let mut qp = Qp::new(config);
    for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
        qp.modify(state).unwrap();
    }
    let terms = terms(Role::Initiator);
    qp.establish_in_place(&terms, Time::default());
    End::around(qp, &terms)
}

/// The peer may have asked for it in the frame that is still under way.
#[test]
fn an_end_that_leaves_before_it_has_heard_the_peer_says_its_farewell() {
    let mut leaving = in_place(Extensions::Ask);
    let mut said = leaving.take_all();
    leaving.qp.borrow_mut().modify(QpState::Err).unwrap();
    said.extend(leaving.take_all());
    let mut staying = in_place(Extensions::Ask);
    staying.post(1, read_op(0), &[local(0, 8)]);
    staying.arrive(&said);
    staying.eof();
    assert!(staying.qp.borrow().is_outlived());
    assert_eq!(staying.state(), QpState::Rts);
}

/// A peer whose program leaves RTR before it has taken the connection sends it away, by a FIN or a
/// reset. It is not there, as over InfiniBand.
#[test]
fn work_requests_outlive_a_peer_that_never_took_the_connection() {
    let by_reset = |end: &mut End| end.qp.borrow_mut().lost();
    let by_fin = |end: &mut End| end.eof();
    let by_silence = |end: &mut End| end.qp.borrow_mut().timed_out();
    for leave in [by_reset, by_fin] {
        for posts_late in [false, true] {
            let mut end = in_place(Extensions::Ask);
            if !posts_late {
                end.post(1, read_op(0), &[local(0, 8)]);
                end.take_all();
            }
            leave(&mut end);
            assert_eq!(end.events(), [Event::Disconnected]);
            assert_eq!((end.state(), end.disposition()), (QpState::Rts, Disposition::Finish));
            if posts_late {
                end.post(1, read_op(0), &[local(0, 8)]);
            }
            end.post(2, SEND, &[]);
            tell(&end, at(0));
            assert_eq!(end.events(), []);
            tell(&end, at(1000));
            let both = [(1, WcStatus::RetryExceeded, WcOp::Read), flushed(2, WcOp::Send)];
            assert_eq!(outcomes(&end.completions()), both);
            assert_eq!(end.state(), QpState::Err);
        }
    }
    // One that does not answer has been waited for already, and one that has spoken has crashed.
    let mut end = in_place(Extensions::Ask);
    end.post(1, read_op(0), &[local(0, 8)]);
    end.post(2, SEND, &[]);
    by_silence(&mut end);
    let both = [(1, WcStatus::RetryExceeded, WcOp::Read), flushed(2, WcOp::Send)];
    assert_eq!(outcomes(&end.completions()), both);
    let mut end = in_place(Extensions::Assume);
    end.post(1, read_op(0), &[local(0, 8)]);
    by_reset(&mut end);
    assert_eq!(outcomes(&end.completions()), [flushed(1, WcOp::Read)]);
}

#[test]
fn work_requests_that_nobody_ends_fail_when_the_time_is_over() {
    let mut raw = known(outliving());
    raw.end.receive(1, &[]);
    raw.end.post(2, SEND, &[]);
    raw.end.post(3, SEND, &[]);
    raw.back();
    raw.send(&farewell(0));
    raw.end.eof();
    raw.end.events();
    // The queue pair does not know the time, and wants to be told.
    assert_eq!(due(&raw.end), Some(at(0)));
    tell(&raw.end, at(5000));
    assert_eq!(due(&raw.end), Some(at(6000)));
    tell(&raw.end, at(5999));
    assert_eq!(raw.end.events(), []);
    tell(&raw.end, at(6000));
    assert_eq!(
        outcomes(&raw.end.completions()),
        [(2, WcStatus::RetryExceeded, WcOp::Send), flushed(3, WcOp::Send), flushed(1, WcOp::Recv)]
    );
    assert_eq!((raw.end.state(), due(&raw.end)), (QpState::Err, None));
}

/// A thread may have given octets to the system and not said so yet when the end of the stream is
/// seen by another.
#[test]
fn octets_reported_late_as_taken_are_credited() {
    let mut raw = known(outliving());
    raw.end.post(1, SEND, &[]);
    raw.end.tx.transmit(&raw.end.qp, &raw.end.host, &mut raw.end.out, 1);
    raw.send(&farewell(1));
    raw.end.eof();
    assert_eq!(raw.end.events(), [Event::Disconnected]);
    let built = raw.end.out.len();
    raw.end.tx.taken(&raw.end.qp, &mut raw.end.out, built);
    assert_eq!(outcomes(&raw.end.completions()), [success(1, WcOp::Send)]);
}

#[test]
fn a_peer_that_breaks_off_has_not_left_and_nothing_outlives_it() {
    let mut raw = known(outliving());
    raw.end.receive(1, &[local(0, 8)]);
    raw.send(&untagged(octets::SEND, false, 0, 0, 1, 0, b"ab"));
    raw.end.eof();
    assert!(matches!(raw.end.events()[0], Event::Fault(crate::qp::Fault::BadClose)));
    // A peer of our kind always says its farewell, unless it crashes.
    let mut raw = known(outliving());
    raw.end.receive(1, &[]);
    raw.end.eof();
    assert_eq!(raw.end.events()[0], Event::Disconnected);
    assert_eq!(raw.end.state(), QpState::Err);
    // Or it has not come to say what it is.
    let mut raw = Raw::initiator(outliving(), |_| {});
    raw.end.eof();
    assert_eq!(raw.end.state(), QpState::Err);
    // Others say none.
    let mut raw = Raw::initiator(outliving(), |terms| (terms.ord, terms.spare_ord) = (1, 1));
    raw.end.receive(1, &[]);
    raw.end.receive(2, &[]);
    raw.send(&send(1, &[]));
    raw.end.eof();
    assert_eq!(outcomes(&raw.end.completions()), [success(1, WcOp::Recv)]);
    assert!(raw.end.qp.borrow().is_outlived());
}

#[test]
fn an_empty_write_of_a_program_is_not_sent_as_a_farewell() {
    let mut raw = known(outliving());
    let write = SendOp::Write { stag: Stag(FAREWELL_STAG), to: TaggedOffset(3) };
    raw.end.post(1, write, &[]);
    assert_eq!(raw.back()[0], tagged(octets::WRITE, true, 0, 0, &[]));
}

#[test]
fn two_ends_that_talk_until_one_leaves_agree_on_what_was_received() {
    for sent in 0..5 {
        let config = Config { shared_receive: false, ..outliving() };
        let mut pair = Pair::with(config, |terms| {
            (terms.ord, terms.ird, terms.spare_ord, terms.spare_ird) = (1, 1, 1, 1);
        });
        pair.run();
        for wr_id in 0..8 {
            pair.b.receive(wr_id, &[local(wr_id * 8, 8)]);
        }
        for wr_id in 0..sent {
            pair.a.post(wr_id, SEND, &[local(0, 8)]);
        }
        // All of it arrives, and no answer comes back before the peer leaves.
        let octets = pair.a.take_all();
        pair.b.arrive(&octets);
        pair.b.qp.borrow_mut().disconnect();
        let octets = pair.b.take_all();
        pair.a.arrive(&octets);
        pair.a.eof();
        let done: Vec<_> = (0..sent).map(|wr_id| success(wr_id, WcOp::Send)).collect();
        assert_eq!(outcomes(&pair.a.completions()), done);
    }
}
