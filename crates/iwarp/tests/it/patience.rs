// SPDX-License-Identifier: MIT OR Apache-2.0

//! Peers that do not acknowledge what is sent: those that are still there have any time, those that
//! vanished are found.

use std::thread;
use std::time::{Duration, Instant};

use iwarp::cm::ConnectParams;
use iwarp::{
    AtomicOp, Ended, KeepAlive, MemoryRegion, Options, Personality, QpState, Retry, SendOp, Stag,
    TaggedOffset, WcStatus,
};
use iwarp_proto::rdmap::wire::Opcode;
use rustix::process::{Pid, Signal, kill_process};

use crate::common::process;
use crate::common::process::{Child, this_test};
use crate::common::raw::{Raw, reply, request};
use crate::common::station::Station;
use crate::common::{DEADLINE, End, Setup, all_access, next, pattern};

/// The time that the peers here may be silent.
const PATIENCE: Duration = Duration::from_secs(1);
/// Much longer: they would long be taken for dead.
const LONG: Duration = Duration::from_secs(5);
/// More than the sockets take.
const OCTETS: usize = 1 << 20;
const COUNT: u64 = 30;

fn impatient() -> Options {
    Options::new().user_timeout(PATIENCE)
}

fn connect(options: Options) -> (End, Raw) {
    let station = Station::new(options);
    let (end, mut raw, _) = station.accept(&request(), &ConnectParams::default());
    // A responder is silent before.
    raw.greet();
    (end, raw)
}

/// Writes more than the sockets of a peer take that does not read, from what is returned.
#[must_use]
fn overwhelm(end: &End) -> MemoryRegion {
    let source = end.region(OCTETS);
    let op = SendOp::Write { stag: Stag(0x100), to: TaggedOffset(0) };
    for id in 0..COUNT {
        end.post(id, op, &[source.whole()]);
    }
    source
}

/// The work of [`overwhelm`] fails, the first request that was not taken by the sockets first.
/// Returns how long that took.
fn is_given_up(end: &End) -> Duration {
    let start = Instant::now();
    let mut failed = false;
    for id in 0..COUNT {
        let completion = next(&end.send_cq);
        assert_eq!(completion.wr_id, id);
        let expected = match completion.status {
            WcStatus::Success => !failed,
            WcStatus::RetryExceeded => !std::mem::replace(&mut failed, true),
            status => failed && status == WcStatus::Flushed,
        };
        assert!(expected, "{completion:?}");
    }
    assert!(failed);
    assert_eq!(end.connection.wait_disconnected(Some(DEADLINE)), Some(Ended::Lost));
    start.elapsed()
}

/// The connection stays for that time.
fn is_kept(end: &End, time: Duration) {
    assert_eq!(end.connection.wait_disconnected(Some(time)), None);
    assert_eq!(end.qp.state(), QpState::Rts);
}

#[test]
fn the_options_say_how_long_a_peer_may_be_silent() {
    let (end, raw) = connect(impatient());
    raw.vanish();
    let _source = overwhelm(&end);
    let passed = is_given_up(&end);
    assert!(passed >= PATIENCE * 9 / 10 && passed < DEADLINE / 2, "{passed:?}");
}

#[test]
fn a_queue_pair_may_be_less_patient() {
    let (end, raw) = connect(Options::new().user_timeout(DEADLINE * 10));
    // While it is watched with more patience already.
    end.send(COUNT, &[]);
    assert_eq!(end.sent().wr_id, COUNT);
    end.qp.set_retry(Retry::new(Duration::from_millis(500), 5));
    raw.vanish();
    let _source = overwhelm(&end);
    let passed = is_given_up(&end);
    assert!(passed >= Duration::from_secs(3) && passed < DEADLINE / 2, "{passed:?}");
}

/// Work that waits to learn of which kind the peer is has as long as start-up has: a process may be
/// stopped for some seconds right after it.
#[test]
fn the_start_up_timeout_is_for_the_word_of_which_kind_a_peer_is_too() {
    const STARTUP: Duration = Duration::from_millis(500);
    let station = Station::new(Options::new().startup_timeout(STARTUP));
    let (end, _raw, _) = station.connect(&ConnectParams::default(), |_| reply());
    let end = end.unwrap();
    let sink = end.region(8);
    let start = Instant::now();
    let op = SendOp::Atomic {
        stag: Stag(0x100),
        to: TaggedOffset(0),
        op: AtomicOp::FetchAdd { add: 1, mask: 0 },
    };
    end.post(1, op, &[sink.whole()]);
    assert_eq!(next(&end.send_cq).status, WcStatus::RemoteInvalidRequest);
    let passed = start.elapsed();
    assert!(passed >= STARTUP / 2 && passed < Duration::from_millis(2500), "{passed:?}");
    is_kept(&end, Duration::ZERO);
}

#[test]
fn a_peer_that_does_not_read_is_waited_for() {
    let (end, mut raw) = connect(impatient());
    let _source = overwhelm(&end);
    is_kept(&end, LONG);
    // It was busy.
    thread::scope(|scope| {
        scope.spawn(|| (0..COUNT).for_each(|id| assert_eq!(end.sent().wr_id, id)));
        let mut left = COUNT as usize * OCTETS;
        while left > 0 {
            left -= raw.expect(Opcode::Write).1.len();
        }
    });
    assert_eq!(end.qp.state(), QpState::Rts);
}

/// Its system asks a full peer now and then, at intervals that grow (before Linux 6.15: without a
/// bound that would be of use here).
#[test]
fn a_peer_that_does_not_read_and_vanishes_is_found() {
    let (end, raw) = connect(impatient());
    let _source = overwhelm(&end);
    is_kept(&end, PATIENCE * 2);
    raw.vanish();
    let passed = is_given_up(&end);
    assert!(passed >= PATIENCE * 9 / 10 && passed < DEADLINE, "{passed:?}");
}

/// It acknowledged the question, and is gone before it answers.
#[test]
fn a_peer_that_vanishes_before_it_answers_a_read_is_found() {
    let (end, mut raw) = connect(impatient());
    let sink = end.region(64);
    end.post(
        1,
        SendOp::Read { stag: Stag(0x100), to: TaggedOffset(0), invalidate: None },
        &[sink.whole()],
    );
    raw.expect(Opcode::ReadRequest);
    // For so long it is only slow.
    is_kept(&end, LONG);
    raw.vanish();
    let completion = next(&end.send_cq);
    assert_eq!((completion.wr_id, completion.status), (1, WcStatus::RetryExceeded));
    assert_eq!(end.connection.wait_disconnected(Some(DEADLINE)), Some(Ended::Lost));
}

/// A listener does not choose its peers: those that vanish without a word do not stay for ever.
#[test]
fn an_idle_peer_that_vanishes_from_a_listener_is_found() {
    let keepalive = KeepAlive::Accepted(Duration::from_secs(1));
    let (end, raw) = connect(Options::new().keepalive(keepalive));
    end.post_recv(1, &[]);
    // As long as it is there it may be idle.
    is_kept(&end, LONG / 2);
    raw.vanish();
    assert_eq!(end.connection.wait_disconnected(Some(DEADLINE)), Some(Ended::Lost));
    assert_eq!(next(&end.recv_cq).status, WcStatus::Flushed);
}

/// The program is stopped, as a debugger or a batch system does it.
fn a_stopped_peer_is_waited_for(test: &str, time: Duration) {
    if process::role().is_some() {
        let (device, listener, addr) = process::listen(&impatient());
        process::say("addr", addr);
        let end = process::accept(&device, &listener, 64, Vec::new());
        let sink = end.pd.allocate(OCTETS, all_access()).unwrap();
        process::say("sink", format!("{} {}", sink.rkey().0, sink.base().0));
        end.connection.wait_disconnected(None);
        let octets = sink.buffer().unwrap().to_vec();
        process::say("whole", octets == pattern(OCTETS, 7));
        return;
    }
    let child = Child::start(test, "stopped", &[]);
    let addr = child.hear("addr", DEADLINE).parse().unwrap();
    let device = iwarp::Device::with_options(impatient()).unwrap();
    let end = process::dial(&device, addr, 64);
    let sink = child.hear("sink", DEADLINE);
    let (stag, to) = sink.split_once(' ').unwrap();
    let (stag, to) = (Stag(stag.parse().unwrap()), TaggedOffset(to.parse().unwrap()));
    let pid = Pid::from_raw(child.id() as i32).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    let source = end.region_of(&pattern(OCTETS, 7));
    for id in 0..COUNT {
        end.post(id, SendOp::Write { stag, to }, &[source.whole()]);
    }
    // The last one waits for an answer.
    let back = end.region(8);
    end.post(COUNT, SendOp::Read { stag, to, invalidate: None }, &[back.whole()]);
    is_kept(&end, time);
    kill_process(pid, Signal::CONT).unwrap();
    for id in 0..=COUNT {
        assert_eq!(end.sent().wr_id, id);
    }
    end.connection.disconnect();
    assert_eq!(child.hear("whole", DEADLINE), "true");
    child.succeeds(DEADLINE);
}

#[test]
fn a_stopped_process_is_waited_for() {
    a_stopped_peer_is_waited_for(this_test!(), LONG);
}

#[test]
#[ignore = "a minute"]
fn a_stopped_process_is_waited_for_a_minute() {
    a_stopped_peer_is_waited_for(this_test!(), Duration::from_secs(60));
}

/// Messages without receives: in vain on an RNIC, while InfiniBand waits (`rnr_retry` 7).
fn messages_wait_for_receives(time: Duration) {
    let roce = Options::new().personality(Personality::Roce);
    let (client, server) = Setup::both(&roce).connect();
    // The setting that programs commonly use: 0.5 s, taken for 3 s.
    for end in [&client, &server] {
        end.qp.set_retry(Retry::default());
    }
    let source = client.region_of(&pattern(OCTETS, 3));
    for id in 0..COUNT {
        client.send(id, &[source.whole()]);
    }
    is_kept(&client, time);
    is_kept(&server, Duration::ZERO);
    let sink = server.region(OCTETS);
    for id in 0..COUNT {
        server.post_recv(id, &[sink.whole()]);
        assert_eq!(server.received().wr_id, id);
    }
    for id in 0..COUNT {
        assert_eq!(client.sent().wr_id, id);
    }
    assert!(sink.buffer().unwrap().to_vec() == pattern(OCTETS, 3));
}

#[test]
fn messages_without_receives_are_waited_for() {
    messages_wait_for_receives(LONG);
}

#[test]
#[ignore = "a minute"]
fn messages_without_receives_are_waited_for_a_minute() {
    messages_wait_for_receives(Duration::from_secs(60));
}
