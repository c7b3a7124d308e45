// SPDX-License-Identifier: MIT OR Apache-2.0

//! Completion queues that overflow or change their size, shared receive queues, and when a slot of
//! a work queue is free again.

use iwarp::cm::{ConnectParams, Connection, Listener};
use iwarp::{
    AsyncEvent, CompletionQueue, Device, Options, Payload, PostError, ProtectionDomain, QueuePair,
    QueuePairAttributes, RecvRequest, SendRequest, SharedReceiveQueue, WcStatus,
};
use iwarp_proto::ddp::wire::Untagged;
use iwarp_proto::mpa::wire::FrameKind;
use iwarp_proto::rdmap::wire::Opcode;

use crate::common;
use crate::common::process;
use crate::common::raw::{self, Raw};
use crate::common::{couple, next, until};

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
        let ours = self.client_pd.create_qp(&QueuePairAttributes::new(ours, ours)).unwrap();
        let attributes = QueuePairAttributes::new(theirs, theirs).srq(srq);
        let theirs = self.server_pd.create_qp(&attributes).unwrap();
        let connections = couple(&self.client, &ours, &self.listener, &theirs);
        Coupled { ours, theirs, _connections: connections }
    }
}

fn send(qp: &QueuePair, wr_id: u64) {
    let payload = Payload::Inline(&[]);
    qp.post_send(&SendRequest::send(wr_id, payload).signaled()).unwrap();
}

fn receive(qp: &QueuePair, wr_id: u64) {
    qp.post_recv(&RecvRequest::new(wr_id, &[])).unwrap();
}

fn events(device: &Device, wanted: AsyncEvent) {
    until("an asynchronous event", || {
        device.poll_async_event().unwrap().filter(|event| *event == wanted)
    });
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
    assert_eq!(victim.theirs.state(), iwarp::QpState::Err);
    // Completions that were in the queue are still there, in order.
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
    assert_eq!(bystander.theirs.state(), iwarp::QpState::Rts);
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
    let refused = coupled[0].theirs.post_recv(&RecvRequest::new(0, &[]));
    assert_eq!(refused, Err(PostError::SharedReceiveQueue));
    for id in 0..8 {
        srq.post(&RecvRequest::new(id, &[])).unwrap();
    }
    assert_eq!(srq.post(&RecvRequest::new(8, &[])), Err(PostError::QueueFull));
    // Fewer than five left: at the fourth message, for any of them, and once.
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
    srq.post(&RecvRequest::new(9, &[])).unwrap();
    srq.set_limit(1);
    send(&coupled[1].ours, 9);
    assert_eq!(next(&theirs).wr_id, 9);
    assert!(matches!(until_quiet(&ends.server), Some(AsyncEvent::SrqLimitReached { .. })));
}

/// The last event so far.
fn until_quiet(device: &Device) -> Option<AsyncEvent> {
    let event = device.poll_async_event().unwrap();
    assert!(event.is_none() || device.poll_async_event().unwrap().is_none(), "two events");
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
        srq.post(&RecvRequest::new(id, &[])).unwrap();
    }
    send(&gone.ours, 0);
    assert_eq!(next(&theirs).wr_id, 0);
    let number = gone.theirs.number();
    drop(gone.ours);
    events(&ends.server, AsyncEvent::LastReceiveReached { qp: number });
    // No receive of the queue was flushed: the rest is for the others.
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

/// Slots of the queues in the following tests, and completions that their completion queues hold.
const DEPTH: usize = 16;

/// A queue pair of [`DEPTH`] and a completion queue that is as deep for each of its queues.
fn tight<'a>(sends: &'a CompletionQueue, receives: &'a CompletionQueue) -> QueuePairAttributes<'a> {
    QueuePairAttributes::new(sends, receives).max_send_wr(DEPTH).max_recv_wr(DEPTH)
}

/// A request that needs no receive and no memory of the peer's.
fn nothing(wr_id: u64, signaled: bool) -> SendRequest<'static> {
    let (stag, to) = (iwarp::Stag(0), iwarp::TaggedOffset(0));
    let mut request = SendRequest::write(wr_id, Payload::NONE, stag, to);
    request.signaled = signaled;
    request
}

/// Posts up to `most` until the queue is full.
fn post_nothing(qp: &QueuePair, signaled: bool, most: usize) -> usize {
    (0..most)
        .take_while(|at| match qp.post_send(&nothing(*at as u64, signaled)) {
            Ok(()) => true,
            Err(error) => {
                assert_eq!(error, PostError::QueueFull);
                false
            }
        })
        .count()
}

fn post_receives(qp: &QueuePair, most: usize) -> usize {
    let request = RecvRequest::new(1, &[]);
    match qp.post_recvs(&vec![request; most]) {
        Ok(()) => most,
        Err((refused, error)) => {
            assert_eq!(error, PostError::QueueFull);
            refused
        }
    }
}

/// Waits until all sends are done, without polling.
fn sends_are_done(qp: &QueuePair) {
    until("all sends", || (qp.outstanding().0 == 0).then_some(()));
}

#[test]
fn a_send_has_its_slot_until_its_completion_was_polled() {
    let ends = Ends::new();
    let [ours, receives] = [DEPTH; 2].map(|depth| ends.client.create_cq(depth, None).unwrap());
    let theirs = ends.server.create_cq(64, None).unwrap();
    let qp = ends.client_pd.create_qp(&tight(&ours, &receives)).unwrap();
    let peer = ends.server_pd.create_qp(&tight(&theirs, &theirs)).unwrap();
    let _connections = couple(&ends.client, &qp, &ends.listener, &peer);
    for _ in 0..3 {
        assert_eq!(post_nothing(&qp, true, 200), DEPTH);
        sends_are_done(&qp);
        assert_eq!((post_nothing(&qp, true, 1), qp.room().0), (0, 0));
        // Each poll makes room for one, or for so many.
        for _ in 0..200 {
            assert_eq!(next(&ours).status, WcStatus::Success);
            assert_eq!((qp.room().0, post_nothing(&qp, true, 2)), (1, 1));
            sends_are_done(&qp);
        }
        let mut polled = Vec::new();
        assert_eq!(ours.poll(&mut polled, 7), 7);
        let requests: Vec<_> = (0..10).map(|wr_id| nothing(wr_id, true)).collect();
        assert_eq!(qp.post_sends(&requests), Err((7, PostError::QueueFull)));
        sends_are_done(&qp);
        assert_eq!(ours.poll(&mut polled, 64), DEPTH);
        assert_eq!(qp.room().0, DEPTH);
    }
    assert!(qp.is_connected() && ends.client.poll_async_event().unwrap().is_none());
}

#[test]
fn a_send_without_a_completion_has_its_slot_until_a_later_one_was_polled() {
    let ends = Ends::new();
    let [ours, theirs] =
        [&ends.client, &ends.server].map(|device| device.create_cq(64, None).unwrap());
    let qp = ends.client_pd.create_qp(&tight(&ours, &ours)).unwrap();
    let peer = ends.server_pd.create_qp(&tight(&theirs, &theirs)).unwrap();
    let _connections = couple(&ends.client, &qp, &ends.listener, &peer);
    for _ in 0..100 {
        for _ in 0..4 {
            assert_eq!(post_nothing(&qp, true, 1), 1);
            assert_eq!(post_nothing(&qp, false, 3), 3);
            sends_are_done(&qp);
        }
        // Three of them wait for a completion that is still to come.
        assert_eq!(post_nothing(&qp, true, 1), 0);
        for freed in [1, 4, 4] {
            next(&ours);
            assert_eq!(qp.room().0, freed);
            assert_eq!(post_nothing(&qp, false, 64), freed);
            sends_are_done(&qp);
        }
        // With the last one polled nothing waits, and all that are done are forgiven.
        next(&ours);
        assert_eq!((ours.poll_one(), qp.room().0), (None, DEPTH));
        // As they are where a program asks for no completion at all.
        for _ in 0..5 {
            assert!(post_nothing(&qp, false, DEPTH) > 0);
            sends_are_done(&qp);
        }
    }
}

#[test]
fn a_receive_has_its_slot_until_its_completion_was_polled() {
    let ends = Ends::new();
    let ours = ends.client.create_cq(1024, None).unwrap();
    let theirs = ends.server.create_cq(DEPTH, None).unwrap();
    let sends = ends.server.create_cq(DEPTH, None).unwrap();
    let qp = ends.client_pd.create_qp(&QueuePairAttributes::new(&ours, &ours)).unwrap();
    let peer = ends.server_pd.create_qp(&tight(&sends, &theirs)).unwrap();
    let _connections = couple(&ends.client, &qp, &ends.listener, &peer);
    assert_eq!(post_receives(&peer, 200), DEPTH);
    for _ in 0..DEPTH {
        send(&qp, 0);
    }
    until("the messages", || (peer.outstanding().1 == 0).then_some(()));
    for _ in 0..200 {
        assert_eq!((peer.room().1, post_receives(&peer, 1)), (0, 0));
        assert_eq!(next(&theirs).status, WcStatus::Success);
        assert_eq!((peer.room().1, post_receives(&peer, 2)), (1, 1));
        send(&qp, 0);
        next(&ours);
        until("the message", || (peer.outstanding().1 == 0).then_some(()));
    }
    assert!(peer.is_connected() && ends.server.poll_async_event().unwrap().is_none());
}

/// A flushed request completes, too. A Reset forgets it with all that was in the completion queues.
#[test]
fn slots_of_flushed_requests_are_free_when_they_were_polled() {
    let ends = Ends::new();
    let [sends, receives] = [DEPTH; 2].map(|depth| ends.client.create_cq(depth, None).unwrap());
    let qp = ends.client_pd.create_qp(&tight(&sends, &receives)).unwrap();
    assert_eq!(post_receives(&qp, 10), 10);
    qp.modify(iwarp::QpState::Err).unwrap();
    for _ in 0..3 {
        assert_eq!(post_nothing(&qp, false, 200), DEPTH);
        post_receives(&qp, 200);
        assert_eq!((qp.room(), qp.outstanding()), ((0, 0), (0, 0)));
        for free in 1..=DEPTH {
            for cq in [&sends, &receives] {
                assert_eq!(cq.poll_one().unwrap().status, WcStatus::Flushed);
            }
            assert_eq!(qp.room(), (free, free));
        }
    }
    assert_eq!(post_nothing(&qp, true, 200), DEPTH);
    qp.modify(iwarp::QpState::Reset).unwrap();
    assert_eq!(qp.room(), (DEPTH, DEPTH));
    // A completion that is polled now frees no slot.
    for _ in 0..DEPTH {
        assert_eq!(sends.poll_one().unwrap().status, WcStatus::Flushed);
    }
    assert_eq!((qp.room(), sends.poll_one()), ((DEPTH, DEPTH), None));
    assert!(ends.client.poll_async_event().unwrap().is_none());
    // Nor are those of a queue pair that is gone, whose place another one has.
    qp.modify(iwarp::QpState::Err).unwrap();
    assert_eq!(post_nothing(&qp, true, 200), DEPTH);
    drop(qp);
    let other = ends.client_pd.create_qp(&tight(&sends, &receives)).unwrap();
    assert_eq!(post_receives(&other, 1), 1);
    for _ in 0..DEPTH {
        assert!(sends.poll_one().is_some());
    }
    assert_eq!(other.room(), (DEPTH, DEPTH - 1));
}

/// Which completion queue a receive ends in does not matter, nor what becomes of its queue pair.
#[test]
fn a_shared_receive_has_its_slot_until_its_completion_was_polled() {
    let ends = Ends::new();
    let ours = ends.client.create_cq(1024, None).unwrap();
    let theirs = [0; 2].map(|_| ends.server.create_cq(DEPTH, None).unwrap());
    let srq = ends.server_pd.create_srq(DEPTH, 1);
    let coupled = [0, 1].map(|at: usize| ends.couple(&ours, &theirs[at], Some(&srq)));
    let fill = || {
        let request = RecvRequest::new(0, &[]);
        std::iter::repeat_with(|| srq.post(&request)).take_while(Result::is_ok).count()
    };
    let exchange = |at: usize, times: usize| {
        for _ in 0..times {
            send(&coupled[at].ours, 0);
            next(&ours);
        }
    };
    assert_eq!(fill(), DEPTH);
    for round in 0..50 {
        let most = round % (DEPTH / 2 + 1);
        exchange(0, most);
        exchange(1, DEPTH - most);
        // All have come, or are on their way; no slot is free.
        assert_eq!(fill(), 0);
        for number in 0..DEPTH {
            next(&theirs[usize::from(number >= most)]);
            assert_eq!(fill(), 1);
        }
    }
    // Completions that will not be polled give theirs back.
    exchange(0, 3);
    exchange(1, 5);
    for (cq, count) in theirs.iter().zip([3, 5]) {
        // One each is polled, which shows that they are there.
        for _ in 1..count {
            next(cq);
        }
    }
    assert_eq!(fill(), 6);
    let [first, second] = coupled;
    until("its last message", || {
        theirs[0].discard(first.theirs.number());
        (fill() == 1).then_some(())
    });
    drop(second);
    until("the end of the other", || (fill() == 1).then_some(()));
    assert_eq!(fill(), 0);
}

/// A message that had begun to come into a receive of a shared queue when all was forgotten.
#[test]
fn a_reset_gives_back_what_was_taken_of_a_shared_queue() {
    let (server, listener, addr) = process::listen(&Options::default());
    let pd = server.alloc_pd();
    let cq = server.create_cq(DEPTH, None).unwrap();
    let srq = pd.create_srq(2, 1);
    let attributes = tight(&cq, &cq).srq(&srq);
    let region = pd.allocate(64, common::all_access()).unwrap();
    let sges = [region.whole()];
    let request = RecvRequest::new(0, &sges);
    for _ in 0..3 {
        let qp = pd.create_qp(&attributes).unwrap();
        let mut raw = Raw::connect(addr);
        raw.send(&raw::request().octets());
        let incoming = listener.accept(Some(common::DEADLINE)).unwrap().expect("a request");
        let connection = incoming.accept(&qp, &ConnectParams::default()).unwrap();
        let reply = raw.startup(FrameKind::Reply);
        raw.operate(true, reply.markers, false);
        srq.post(&request).unwrap();
        srq.post(&request).unwrap();
        srq.set_limit(2);
        let first = Untagged { last: false, ..raw::untagged(Opcode::Send, 1) };
        raw.send_ulpdu(&raw::segment(first, b"the first half"));
        events(&server, AsyncEvent::SrqLimitReached { srq: srq.number() });
        assert_eq!(srq.post(&request), Err(PostError::QueueFull));
        qp.modify(iwarp::QpState::Reset).unwrap();
        srq.post(&request).unwrap();
        assert_eq!(srq.post(&request), Err(PostError::QueueFull));
        drop((connection, qp));
        // Uses up what is left for the next round.
        let qp = pd.create_qp(&attributes).unwrap();
        let other = Device::with_options(Options::default()).unwrap();
        let their_cq = other.create_cq(DEPTH, None).unwrap();
        let theirs = other.alloc_pd().create_qp(&tight(&their_cq, &their_cq)).unwrap();
        let _connections = couple(&other, &theirs, &listener, &qp);
        for _ in 0..2 {
            send(&theirs, 0);
            assert_eq!(next(&cq).status, WcStatus::Success);
        }
    }
}
