//! A peer that takes nothing any more, and how long that is borne.

mod common;

use std::time::{Duration, Instant};

use common::raw::{Raw, request};
use common::station::Station;
use common::{End, next};
use iwarp::cm::ConnectParams;
use iwarp::{Options, Retry, SendOp, Stag, TaggedOffset, WcStatus};

/// Work fills the sockets of a peer that does not read. Returns how long it took to fail.
fn overwhelm(end: &End, raw: Raw) -> Duration {
    const COUNT: u64 = 30;
    let source = end.region(1 << 20);
    let op = SendOp::Write { stag: Stag(0x100), to: TaggedOffset(0) };
    let start = Instant::now();
    for id in 0..COUNT {
        end.post(id, op, &[source.whole()]);
    }
    let mut failed = false;
    for id in 0..COUNT {
        let completion = next(&end.send_cq);
        assert_eq!(completion.wr_id, id);
        let expected = match completion.status {
            // Taken by the sockets.
            WcStatus::Success => !failed,
            WcStatus::RetryExceeded => !std::mem::replace(&mut failed, true),
            status => failed && status == WcStatus::Flushed,
        };
        assert!(expected, "{completion:?}");
    }
    assert!(failed);
    let ended = end.connection.wait_disconnected(Some(common::DEADLINE));
    assert_eq!(ended, Some(iwarp::Ended::Lost));
    drop(raw);
    start.elapsed()
}

fn connect(user_timeout: Duration) -> (End, Raw) {
    let station = Station::new(Options { user_timeout, ..Options::default() });
    let (end, mut raw, _) = station.accept(&request(), &ConnectParams::default());
    // A responder is silent before.
    raw.greet();
    (end, raw)
}

#[test]
fn the_options_say_how_long_a_peer_may_be_silent() {
    let (end, raw) = connect(Duration::from_secs(1));
    let passed = overwhelm(&end, raw);
    assert!(passed >= Duration::from_secs(1), "{passed:?}");
}

#[test]
fn a_queue_pair_may_be_less_patient() {
    let (end, raw) = connect(Duration::from_secs(3600));
    end.qp.set_retry(Retry { timeout: Some(Duration::from_millis(500)), count: 5 });
    let passed = overwhelm(&end, raw);
    assert!(passed >= Duration::from_secs(3), "{passed:?}");
}
