//! Completion queues that overflow or change their size, shared receive queues.

mod common;
#[path = "common/process.rs"]
mod process;

use common::{couple, next, until};
use iwarp::cm::{Connection, Listener};
use iwarp::{
    AsyncEvent, CompletionQueue, Device, Options, Payload, PostError, ProtectionDomain, QueuePair,
    QueuePairAttributes, RecvRequest, SendOp, SendRequest, SharedReceiveQueue, WcStatus,
};

struct Ends {
    client: Device,
    server: Device,
    listener: Listener,
    client_pd: ProtectionDomain,
    server_pd: ProtectionDomain,
}

struct Coupled {
    ours: QueuePair,
    theirs: QueuePair,
    _connections: (Connection, Connection),
}

impl Ends {
    fn new() -> Self {
        let (server, listener, _) = process::listen(&Options::default());
        let client = Device::with_options(Options::default()).unwrap();
        let (client_pd, server_pd) = (client.alloc_pd(), server.alloc_pd());
        Self { client, server, listener, client_pd, server_pd }
    }

    fn couple(
        &self,
        ours: &CompletionQueue,
        theirs: &CompletionQueue,
        srq: Option<&SharedReceiveQueue>,
    ) -> Coupled {
        let ours = self.client_pd.create_qp(&QueuePairAttributes::new(ours, ours));
        let attributes = QueuePairAttributes { srq, ..QueuePairAttributes::new(theirs, theirs) };
        let theirs = self.server_pd.create_qp(&attributes);
        let connections = couple(&self.client, &ours, &self.listener, &theirs);
        Coupled { ours, theirs, _connections: connections }
    }
}

fn send(qp: &QueuePair, wr_id: u64) {
    let op = SendOp::Send { solicited: false, invalidate: None };
    let payload = Payload::Inline(&[]);
    qp.post_send(&SendRequest { wr_id, op, payload, signaled: true, fence: false }).unwrap();
}

fn receive(qp: &QueuePair, wr_id: u64) {
    qp.post_recv(&RecvRequest { wr_id, sges: &[] }).unwrap();
}

fn events(device: &Device, wanted: AsyncEvent) {
    until("an asynchronous event", || device.poll_async_event().filter(|event| *event == wanted));
}

/// Covers: RDMAP-5040-8.1.1-11, SEC-5042-6.4.6-01
#[test]
fn an_overflow_hurts_only_who_uses_the_queue() {
    let ends = Ends::new();
    let ours = ends.client.create_cq(64, None).unwrap();
    let small = ends.server.create_cq(4, None).unwrap();
    let other = ends.server.create_cq(64, None).unwrap();
    let victim = ends.couple(&ours, &small, None);
    let bystander = ends.couple(&ours, &other, None);
    for id in 0..6 {
        receive(&victim.theirs, id);
        receive(&bystander.theirs, id);
    }
    for id in 0..5 {
        send(&victim.ours, id);
    }
    events(&ends.server, AsyncEvent::CqError { cq: small.number() });
    events(&ends.server, AsyncEvent::QpFatal { qp: victim.theirs.number() });
    until("the end of the stream", || (!victim.ours.is_connected()).then_some(()));
    assert_eq!(victim.theirs.state(), iwarp::State::Err);
    // What was in the queue is still there, in order.
    for id in 0..4 {
        let completion = next(&small);
        assert_eq!((completion.wr_id, completion.status), (id, WcStatus::Success));
    }
    // The other one works as before.
    for id in 0..5 {
        send(&bystander.ours, id);
        let completion = next(&other);
        assert_eq!((completion.wr_id, completion.status), (id, WcStatus::Success));
    }
    assert_eq!(bystander.theirs.state(), iwarp::State::Rts);
}

#[test]
fn a_queue_can_be_made_to_fit() {
    let ends = Ends::new();
    let ours = ends.client.create_cq(64, None).unwrap();
    let theirs = ends.server.create_cq(4, None).unwrap();
    let coupled = ends.couple(&ours, &theirs, None);
    for id in 0..20 {
        receive(&coupled.theirs, id);
    }
    for id in 0..4 {
        send(&coupled.ours, id);
        assert_eq!(next(&ours).status, WcStatus::Success);
    }
    theirs.resize(20).unwrap();
    assert_eq!(theirs.depth(), 20);
    for id in 4..20 {
        send(&coupled.ours, id);
        assert_eq!(next(&ours).status, WcStatus::Success);
    }
    until("all receives", || (coupled.theirs.outstanding().1 == 0).then_some(()));
    assert!(theirs.resize(19).is_err() && theirs.resize(0).is_err());
    for id in 0..20 {
        let completion = next(&theirs);
        assert_eq!((completion.wr_id, completion.status), (id, WcStatus::Success));
    }
    theirs.resize(1).unwrap();
    assert_eq!(theirs.depth(), 1);
}

/// Covers: VERBS-hilland-6.3.8-01, DDP-5041-8.3.2-06,
/// RDMAP-5040-8.1.2-08, SEC-5042-6.4.3.1-01
#[test]
fn queue_pairs_share_receives() {
    let ends = Ends::new();
    let ours = ends.client.create_cq(256, None).unwrap();
    let theirs = ends.server.create_cq(256, None).unwrap();
    let srq = ends.server_pd.create_srq(8, 1);
    let coupled = [0, 1].map(|_| ends.couple(&ours, &theirs, Some(&srq)));
    let refused = coupled[0].theirs.post_recv(&RecvRequest { wr_id: 0, sges: &[] });
    assert_eq!(refused, Err(PostError::SharedReceiveQueue));
    for id in 0..8 {
        srq.post(&RecvRequest { wr_id: id, sges: &[] }).unwrap();
    }
    assert_eq!(srq.post(&RecvRequest { wr_id: 8, sges: &[] }), Err(PostError::QueueFull));
    // Fewer than five left: at the fourth message, whoever it is for, and once.
    srq.set_limit(5);
    for id in 0..8 {
        let coupled = &coupled[id as usize % 2];
        let event = until_quiet(&ends.server);
        assert_eq!(event, (id == 4).then_some(AsyncEvent::SrqLimitReached { srq: srq.number() }));
        send(&coupled.ours, id);
        assert_eq!(next(&ours).status, WcStatus::Success);
        let completion = next(&theirs);
        assert_eq!((completion.wr_id, completion.status), (id, WcStatus::Success));
        assert_eq!(completion.qp.0, coupled.theirs.number());
    }
    assert_eq!(srq.limit(), 0);
    assert_eq!(until_quiet(&ends.server), None);
    // Armed again, it fires again.
    srq.post(&RecvRequest { wr_id: 9, sges: &[] }).unwrap();
    srq.set_limit(1);
    send(&coupled[1].ours, 9);
    assert_eq!(next(&theirs).wr_id, 9);
    assert!(matches!(until_quiet(&ends.server), Some(AsyncEvent::SrqLimitReached { .. })));
}

/// What has happened by now.
fn until_quiet(device: &Device) -> Option<AsyncEvent> {
    let event = device.poll_async_event();
    assert!(event.is_none() || device.poll_async_event().is_none(), "two events");
    event
}

/// A queue pair that has ended takes nothing from the queue any more, and says so.
#[test]
fn the_last_receive_of_a_queue_pair_is_announced() {
    let ends = Ends::new();
    let ours = ends.client.create_cq(256, None).unwrap();
    let theirs = ends.server.create_cq(256, None).unwrap();
    let srq = ends.server_pd.create_srq(8, 1);
    let [gone, stays] = [0, 1].map(|_| ends.couple(&ours, &theirs, Some(&srq)));
    for id in 0..4 {
        srq.post(&RecvRequest { wr_id: id, sges: &[] }).unwrap();
    }
    send(&gone.ours, 0);
    assert_eq!(next(&theirs).wr_id, 0);
    let number = gone.theirs.number();
    drop(gone.ours);
    events(&ends.server, AsyncEvent::LastReceiveReached { qp: number });
    // Nothing of the queue was flushed: the rest is for the others.
    assert_eq!(next(&ours).status, WcStatus::Success);
    for id in 1..4 {
        send(&stays.ours, id);
        let completion = next(&theirs);
        assert_eq!((completion.wr_id, completion.status), (id, WcStatus::Success));
    }
    assert!(stays._connections.0.wait_disconnected(Some(std::time::Duration::ZERO)).is_none());
}

/// A message without a receive: the stream ends (RFC 5041 §7.1), as iWARP has it.
#[test]
fn an_empty_shared_queue_ends_the_stream() {
    let ends = Ends::new();
    let ours = ends.client.create_cq(256, None).unwrap();
    let theirs = ends.server.create_cq(256, None).unwrap();
    let srq = ends.server_pd.create_srq(8, 1);
    let coupled = ends.couple(&ours, &theirs, Some(&srq));
    send(&coupled.ours, 0);
    events(&ends.server, AsyncEvent::QpFatal { qp: coupled.theirs.number() });
    until("the end of the stream", || (!coupled.ours.is_connected()).then_some(()));
}
