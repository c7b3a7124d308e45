// SPDX-License-Identifier: MIT OR Apache-2.0

//! The counts of sessions.

use iwarp::port::MemoryNetwork;
use iwarp::{Access, Device, LocalPath, Options};
use iwarp_session::{
    Block, Config, Listener, Metrics, OperationError, Operations, RemoteGrant, Session,
};

use crate::common::sessions::{SessionEnd, pair, pair_as, pair_with};
use crate::common::{DEADLINE, until};

/// Operations posted, ended well and failed, and their bytes.
fn counts(operations: Operations) -> (u64, u64, u64, u64) {
    let Operations { posted, completed, failed, bytes, .. } = operations;
    (posted, completed, failed, bytes)
}

fn block(end: &SessionEnd, len: usize) -> Block {
    Block::new(&end.pd, len).unwrap()
}

/// Some of each kind, from one end to the other, which has four receives of 100 bytes.
fn work() -> (SessionEnd, SessionEnd) {
    // Numbers of TCP come to an end where the connection moves to shared memory.
    let options = Options::default().local(LocalPath::Off);
    let (client, server, receives) = pair_as(options, &Config::default(), |pd, prepared| {
        [0; 4].map(|_| prepared.recv(Block::new(pd, 100).unwrap()))
    });
    let all = Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
    let exposed = server.session.expose(4096, all).unwrap();
    let grant = RemoteGrant::from_octets(&exposed.grant().to_octets());
    let session = &client.session;
    session.send(block(&client, 100)).wait().unwrap();
    session.send_inline(b"twelve bytes").wait().unwrap();
    session.immediate(*b"8 octets").wait().unwrap();
    session.write([1000, 2000].map(|len| block(&client, len)), &grant, 0).wait().unwrap();
    session.write_inline(b"four", &grant, 8).wait().unwrap();
    session.write_immediate(block(&client, 1000), &grant, 0, *b"four").wait().unwrap();
    let mut batch = session.batch();
    let read = batch.read(&grant, 0, vec![block(&client, 1500), block(&client, 500)]);
    let sum = batch.fetch_add(&grant, 0, 1);
    batch.post().unwrap();
    read.wait().unwrap();
    sum.wait().unwrap();
    // One whose result was dropped counts as well.
    drop(session.read(&grant, 0, block(&client, 500)));
    session.compare_swap(&grant, 0, 0, 1).wait().unwrap();
    for receive in receives {
        receive.wait().unwrap();
    }
    (client, server)
}

/// Checks the counts of [`work`], at both ends.
fn check(client: &Metrics, server: &Metrics) {
    assert_eq!(counts(client.sends), (3, 3, 0, 112));
    assert_eq!(counts(client.writes), (3, 3, 0, 4004));
    assert_eq!(counts(client.reads), (2, 2, 0, 2500));
    assert_eq!(counts(client.atomics), (2, 2, 0, 16));
    assert_eq!((client.bytes_out(), client.bytes_in()), (4116, 2516));
    assert_eq!(counts(server.receives), (4, 4, 0, 112));
    assert_eq!((server.bytes_out(), server.bytes_in()), (0, 112));
    for idle in [client.receives, server.sends, server.writes, server.reads, server.atomics] {
        assert_eq!(idle, Operations::default());
    }
    assert_eq!((client.failed(), server.failed()), (0, 0));
}

#[test]
fn each_operation_is_counted_by_its_kind() {
    let (client, server) = work();
    check(&client.session.metrics(), &server.session.metrics());
}

#[test]
fn refusals_count_nowhere_and_operations_cut_off_count_as_failed() {
    let (client, server) = pair(&Config::new().max_recvs(2).max_inline(8));
    let refused = client.session.send_inline(b"more than eight").wait().unwrap_err();
    assert!(matches!(refused.error, OperationError::InlineTooLong), "{refused:?}");
    let receives = [0; 2].map(|_| client.session.recv(block(&client, 8)));
    let refused = client.session.recv(block(&client, 8)).wait().unwrap_err();
    assert!(matches!(refused.error, OperationError::QueueFull), "{refused:?}");
    let metrics = client.session.metrics();
    assert_eq!(metrics.sends, Operations::default());
    assert_eq!((counts(metrics.receives), metrics.receives.under_way()), ((2, 0, 0, 0), 2));
    drop(server);
    client.session.closed().wait_timeout(DEADLINE).unwrap();
    for receive in receives {
        receive.wait().unwrap_err();
    }
    let metrics = client.session.metrics();
    assert_eq!((counts(metrics.receives), metrics.receives.under_way()), ((2, 0, 2, 0), 0));
    assert_eq!((metrics.failed(), metrics.tcp), (2, None));
    let refused = client.session.send_inline(b"late").wait();
    assert!(refused.is_err() && client.session.metrics().sends.completed == 0);
}

#[test]
fn a_batch_counts_when_it_is_posted() {
    let (client, server, receive) = pair_with(&Config::new().max_inline(8), |pd, prepared| {
        prepared.recv(Block::new(pd, 100).unwrap())
    });
    let exposed = server.session.expose(4096, Access::REMOTE_WRITE).unwrap();
    let grant = RemoteGrant::from_octets(&exposed.grant().to_octets());
    let session = &client.session;
    let counted = || {
        let Metrics { sends, writes, .. } = session.metrics();
        [counts(sends), counts(writes)]
    };

    let mut batch = session.batch();
    let write = batch.write([100, 200, 300].map(|len| block(&client, len)), &grant, 0);
    let send = batch.send([30, 50].map(|len| block(&client, len)));
    assert_eq!(counted(), [(0, 0, 0, 0); 2]);
    batch.post().unwrap();
    assert_eq!((session.metrics().sends.posted, session.metrics().writes.posted), (1, 1));
    write.wait().unwrap();
    send.wait().unwrap();
    receive.wait().unwrap();
    let done = [(1, 1, 0, 80), (1, 1, 0, 600)];
    assert_eq!(counted(), done);
    assert_eq!(counts(server.session.metrics().receives), (1, 1, 0, 80));

    // One that is dropped, and one with a wrong operation.
    let mut batch = session.batch();
    let write = batch.write_inline(b"dropped", &grant, 0);
    drop(batch);
    write.wait().unwrap_err();
    let mut batch = session.batch();
    drop(batch.write_inline(b"left", &grant, 0));
    batch.send_inline(b"more than eight").wait().unwrap_err();
    batch.post().unwrap_err();
    assert_eq!(counted(), done);

    // Under way when the connection ends, as without a batch.
    let mut batch = session.batch();
    let writes = [(); 2].map(|()| batch.write_inline(b"late", &grant, 0));
    client.session.abort();
    batch.post().unwrap();
    for write in writes {
        write.wait().unwrap_err();
    }
    assert_eq!(counted(), [(1, 1, 0, 80), (3, 1, 2, 600)]);
}

#[test]
fn the_connection_is_told_of_while_it_is_up() {
    const LEN: usize = 1 << 20;
    // In shared memory there is nothing to tell of TCP.
    let options = Options::default().local(LocalPath::Off);
    let (client, server, receive) = pair_as(options, &Config::default(), |pd, prepared| {
        prepared.recv(Block::new(pd, LEN).unwrap())
    });
    // gVisor says nothing.
    let Some(fresh) = client.session.metrics().tcp else { return };
    assert!(fresh.mss > 0 && fresh.congestion_window >= fresh.mss.into(), "{fresh:?}");
    assert!(!fresh.rtt.is_zero() && fresh.rtt < DEADLINE, "{fresh:?}");
    client.session.send(block(&client, LEN)).wait().unwrap();
    receive.wait().unwrap();
    // The message with its headers and checksums. The system is asked for the two one after
    // another.
    let tcp = until("the acknowledgement", || {
        let all = fresh.acknowledged + LEN as u64;
        let tcp = client.session.metrics().tcp;
        tcp.filter(|tcp| tcp.unacknowledged == 0 && tcp.acknowledged > all)
    });
    assert_eq!(tcp.unsent, 0);
    let there = server.session.metrics().tcp.unwrap();
    assert!(there.received > LEN as u64, "{there:?}");
    client.session.abort();
    assert_eq!(client.session.metrics().tcp, None);
}

#[test]
fn a_wire_that_is_not_tcp_has_no_numbers_of_its_own() {
    let network = MemoryNetwork::new();
    let [client, server] = [1, 2].map(|host| {
        let platform = network.platform([10, 0, 0, host].into());
        Device::on_platform(Options::default(), platform).unwrap().alloc_pd()
    });
    let listener = Listener::bind(&server, "10.0.0.2:0").unwrap();
    let connecting = Session::connect(&client, listener.local_addr().unwrap());
    let server = Session::accept(listener.accept().wait_timeout(DEADLINE).unwrap());
    let server = server.wait_timeout(DEADLINE).unwrap();
    let client = connecting.wait_timeout(DEADLINE).unwrap();
    let receive = server.recv(Block::new(server.pd(), 8).unwrap());
    client.send_inline(b"hello").wait().unwrap();
    receive.wait().unwrap();
    assert_eq!((client.metrics().tcp, client.metrics().bytes_out()), (None, 5));
}

#[cfg(feature = "metrics")]
mod recorded {
    use std::collections::BTreeMap;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{Arc, Mutex};

    use ::metrics::{
        Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString,
        Unit,
    };

    use super::*;

    /// Keeps what is reported.
    #[derive(Default)]
    struct Kept {
        counters: Mutex<BTreeMap<String, Arc<AtomicU64>>>,
        histograms: Mutex<BTreeMap<String, Arc<Samples>>>,
        described: Mutex<BTreeMap<String, Unit>>,
    }

    #[derive(Default)]
    struct Samples(Mutex<Vec<f64>>);

    impl HistogramFn for Samples {
        fn record(&self, value: f64) {
            self.0.lock().unwrap().push(value);
        }
    }

    impl Kept {
        fn counted(&self, name: &str, kind: &str) -> u64 {
            let counters = self.counters.lock().unwrap();
            counters[&format!("{name} {kind}")].load(Ordering::SeqCst)
        }

        fn describe(&self, key: &KeyName, unit: Option<Unit>) {
            self.described.lock().unwrap().insert(key.as_str().to_owned(), unit.unwrap());
        }
    }

    fn name(key: &Key) -> String {
        let labels = key.labels().map(|label| label.value());
        [key.name()].into_iter().chain(labels).collect::<Vec<_>>().join(" ")
    }

    impl Recorder for Kept {
        fn describe_counter(&self, key: KeyName, unit: Option<Unit>, _: SharedString) {
            self.describe(&key, unit);
        }

        fn describe_gauge(&self, key: KeyName, unit: Option<Unit>, _: SharedString) {
            self.describe(&key, unit);
        }

        fn describe_histogram(&self, key: KeyName, unit: Option<Unit>, _: SharedString) {
            self.describe(&key, unit);
        }

        fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
            let mut counters = self.counters.lock().unwrap();
            Counter::from_arc(Arc::clone(counters.entry(name(key)).or_default()))
        }

        fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
            panic!("there are none");
        }

        fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
            let mut histograms = self.histograms.lock().unwrap();
            Histogram::from_arc(Arc::clone(histograms.entry(name(key)).or_default()))
        }
    }

    #[test]
    fn the_recorder_gets_the_sums_of_all_sessions() {
        let kept = Kept::default();
        let _ends = ::metrics::with_local_recorder(&kept, || {
            iwarp_session::describe_metrics();
            let ends = [work(), work()];
            for (client, server) in &ends {
                check(&client.session.metrics(), &server.session.metrics());
            }
            ends
        });
        let kinds = [
            ("send", 3, 112),
            ("write", 3, 4004),
            ("read", 2, 2500),
            ("atomic", 2, 16),
            ("receive", 4, 112),
        ];
        for (kind, operations, bytes) in kinds {
            let counted = ["posted", "completed", "failed"]
                .map(|what| kept.counted(&format!("iwarp_operations_{what}_total"), kind));
            assert_eq!(counted, [2 * operations, 2 * operations, 0], "{kind}");
            assert_eq!(kept.counted("iwarp_bytes_total", kind), 2 * bytes, "{kind}");
        }
        // One sample for each look, where the system tells.
        let samples = |name: &str| {
            let histograms = kept.histograms.lock().unwrap();
            histograms[name].0.lock().unwrap().clone()
        };
        let rtt = samples("iwarp_tcp_rtt_seconds");
        assert!(rtt.is_empty() || rtt.len() == 4, "{rtt:?}");
        assert!(rtt.iter().all(|&seconds| seconds > 0.0 && seconds < 10.0), "{rtt:?}");
        // Each has a unit, which its name says.
        let described = kept.described.lock().unwrap();
        let reported = kept.counters.lock().unwrap().keys().cloned().collect::<Vec<_>>();
        for name in reported.iter().chain(kept.histograms.lock().unwrap().keys()) {
            let name = name.split(' ').next().unwrap();
            let fits = match described[name] {
                Unit::Bytes => name.contains("bytes"),
                Unit::Seconds => name.ends_with("_seconds"),
                _ => name.ends_with("_total"),
            };
            assert!(fits && name.starts_with("iwarp_"), "{name}");
        }
        assert_eq!(described.len(), 9);
    }
}
