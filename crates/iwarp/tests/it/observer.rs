// SPDX-License-Identifier: MIT OR Apache-2.0

//! An observer is told of each request, access to memory, completion and event, in the order in
//! which they happen, and a queue pair counts its requests.

use std::sync::{Arc, Mutex};

use iwarp::observe::{AccessObserver, Observer, Span};
use iwarp::{
    AsyncEvent, AtomicOp, Counters, MemoryRegion, Operations, Options, Payload, QpState,
    QueuePairAttributes, RecvRequest, SendOp, SendRequest, WcStatus, Wire, WorkCompletion,
};

use crate::common::{self, End, Setup, until};

#[derive(Clone, Copy, PartialEq, Debug)]
enum Note {
    Posted(u64),
    PostedReceive(u64),
    Gathered(Span),
    Placed(Span),
    Completed(u64, WcStatus),
    CompletedSilently(u64),
    Event(AsyncEvent),
}

#[derive(Default, Debug)]
struct Notes(Mutex<Vec<Note>>);

impl Notes {
    fn take_down(&self, note: Note) {
        self.0.lock().unwrap().push(note);
    }

    /// All but the accesses.
    fn of_requests(&self) -> Vec<Note> {
        let is_access = |note: &Note| matches!(note, Note::Gathered(_) | Note::Placed(_));
        self.0.lock().unwrap().iter().filter(|note| !is_access(note)).copied().collect()
    }

    /// The bytes of a region that were accessed before the note `end`, as one range; panics where
    /// there is a gap.
    fn accessed(
        &self,
        region: &MemoryRegion,
        end: Note,
        which: impl Fn(&Note) -> Option<Span>,
    ) -> usize {
        let notes = self.0.lock().unwrap();
        let end = notes.iter().position(|note| *note == end).expect("the end");
        let buffer = region.buffer().unwrap();
        let first = buffer.as_mut_ptr().addr();
        let mut bytes = vec![false; buffer.len()];
        for span in notes[..end].iter().filter_map(which) {
            if (first..first + bytes.len()).contains(&span.addr) {
                bytes[span.addr - first..][..span.len].fill(true);
            }
        }
        let len = bytes.iter().take_while(|accessed| **accessed).count();
        assert!(bytes[len..].iter().all(|accessed| !accessed), "a gap behind {len}");
        len
    }

    fn gathered(&self, region: &MemoryRegion, end: Note) -> usize {
        self.accessed(region, end, |note| match note {
            Note::Gathered(span) => Some(*span),
            _ => None,
        })
    }

    fn placed(&self, region: &MemoryRegion, end: Note) -> usize {
        self.accessed(region, end, |note| match note {
            Note::Placed(span) => Some(*span),
            _ => None,
        })
    }
}

impl AccessObserver for Notes {
    fn gathered(&self, _: u32, span: Span) {
        self.take_down(Note::Gathered(span));
    }

    fn placed(&self, _: u32, span: Span) {
        self.take_down(Note::Placed(span));
    }
}

impl Observer for Notes {
    fn posted_send(&self, _: u32, request: &SendRequest<'_>) {
        self.take_down(Note::Posted(request.wr_id));
    }

    fn posted_receive(&self, _: u32, request: &RecvRequest<'_>) {
        self.take_down(Note::PostedReceive(request.wr_id));
    }

    fn completed(&self, completion: &WorkCompletion) {
        self.take_down(Note::Completed(completion.wr_id, completion.status));
    }

    fn completed_silently(&self, _: u32, wr_id: u64) {
        self.take_down(Note::CompletedSilently(wr_id));
    }

    fn event(&self, event: &AsyncEvent) {
        self.take_down(Note::Event(*event));
    }
}

/// Two connected ends, client first, and what the observer of each is told.
fn observed(options: &Options) -> [(End, Arc<Notes>); 2] {
    let notes = [(); 2].map(|()| Arc::new(Notes::default()));
    let [client, server] = notes.each_ref().map(|notes| options.clone().observer(notes.clone()));
    let (client, server) = Setup { client, server, ..Setup::default() }.connect();
    let [of_client, of_server] = notes;
    [(client, of_client), (server, of_server)]
}

/// Bytes are copied with their CRC, sent from where they lie, and cut into packets.
fn ways() -> [Options; 3] {
    let packets = Options::for_any_program().wire(Wire::Roce);
    [Options::new(), Options::new().crc(false), packets]
}

const LEN: usize = 300_000;
const GOOD: WcStatus = WcStatus::Success;

fn counts(of: Operations) -> [u64; 4] {
    [of.posted, of.completed, of.failed, of.bytes]
}

#[test]
fn all_bytes_of_an_operation_are_told_before_its_completion() {
    for options in ways() {
        let [(client, notes), (server, there)] = observed(&options);
        let [source, sink, answer] = [client.region(LEN), server.region(LEN), client.region(LEN)];
        let message = server.region(LEN);
        server.post_recv(9, &[message.whole()]);

        client.write(1, source.sge(0, LEN), &sink, 0);
        client.send(2, &[source.sge(0, LEN)]);
        assert_eq!(server.received().wr_id, 9);
        let received = Note::Completed(9, GOOD);
        assert_eq!(there.placed(&sink, received), LEN, "{options:?}");
        assert_eq!(there.placed(&message, received), LEN, "{options:?}");
        assert_eq!([client.sent().wr_id, client.sent().wr_id], [1, 2]);
        assert_eq!(notes.gathered(&source, Note::Completed(1, GOOD)), LEN, "{options:?}");

        client.read(3, answer.whole(), &sink, 0);
        assert_eq!(client.sent().wr_id, 3);
        assert_eq!(notes.placed(&answer, Note::Completed(3, GOOD)), LEN, "{options:?}");
        let mark = Note::Event(AsyncEvent::CqError { cq: 0 });
        there.take_down(mark);
        assert_eq!(there.gathered(&sink, mark), LEN, "{options:?}");
    }
}

#[test]
fn an_atomic_reads_and_writes_its_eight_bytes() {
    for options in ways() {
        let [(client, notes), (server, there)] = observed(&options);
        let [old, word] = [client.region(8), server.region(8)];
        let op = AtomicOp::FetchAdd { add: 1, mask: 0 };
        let op = SendOp::Atomic { stag: word.rkey(), to: word.base(), op };
        client.post(1, op, &[old.whole()]);
        assert_eq!(client.sent().wr_id, 1);
        assert_eq!(notes.placed(&old, Note::Completed(1, GOOD)), 8);
        let mark = Note::Event(AsyncEvent::CqError { cq: 0 });
        there.take_down(mark);
        assert_eq!([there.gathered(&word, mark), there.placed(&word, mark)], [8, 8]);
    }
}

#[test]
fn requests_are_told_in_order_with_their_ends() {
    for options in ways() {
        let [(client, notes), (server, there)] = observed(&options);
        let sink = server.region(64);
        server.post_recv(7, &[sink.whole()]);
        let inline = Payload::Inline(b"12345");
        client.qp.post_send(&SendRequest::write(1, inline, sink.rkey(), sink.base())).unwrap();
        client.qp.post_send(&SendRequest::send(2, inline).signaled()).unwrap();
        assert_eq!((client.sent().wr_id, server.received().wr_id), (2, 7));
        let of_requests = notes.of_requests();
        let [Note::Posted(1), Note::Posted(2), ends @ ..] = of_requests.as_slice() else {
            // Over TCP a Send has ended before the next is posted.
            let one_by_one = [
                Note::Posted(1),
                Note::CompletedSilently(1),
                Note::Posted(2),
                Note::Completed(2, GOOD),
            ];
            assert_eq!(of_requests, one_by_one);
            continue;
        };
        assert_eq!(*ends, [Note::CompletedSilently(1), Note::Completed(2, GOOD)]);
        assert_eq!(there.of_requests()[..2], [Note::PostedReceive(7), Note::Completed(7, GOOD)]);
    }
}

#[test]
fn work_that_the_end_takes_is_told_as_flushed() {
    for options in ways() {
        let [(client, notes), (server, _)] = observed(&options);
        client.post_recv(1, &[]);
        client.qp.modify(QpState::Err).unwrap();
        assert_eq!(common::next(&client.recv_cq).status, WcStatus::Flushed);
        let flushed = Note::Completed(1, WcStatus::Flushed);
        assert_eq!(notes.of_requests()[..2], [Note::PostedReceive(1), flushed]);
        drop(server);
    }
}

#[test]
fn an_overrun_is_told_as_an_event() {
    let [(client, notes), (server, _)] = observed(&Options::new());
    let small = client.device.create_cq(1, None).unwrap();
    let depth = small.depth();
    let attributes = QueuePairAttributes::new(&small, &small).max_recv_wr(depth + 1);
    let qp = client.pd.create_qp(&attributes).unwrap();
    for n in 0..=depth as u64 {
        qp.post_recv(&RecvRequest::new(n, &[])).unwrap();
    }
    qp.modify(QpState::Err).unwrap();
    let overrun = |note: &Note| matches!(note, Note::Event(AsyncEvent::CqError { .. }));
    until("the event", || notes.of_requests().iter().any(overrun).then_some(()));
    drop(server);
}

/// Without an observer, a queue pair counts where it was asked to.
#[test]
fn a_queue_pair_counts_its_operations_by_kind() {
    for options in ways() {
        let (client, server) = Setup::both(&options).connect();
        assert_eq!(client.qp.counters(), None);
        let uncounted = client.qp.counters();
        drop((client, server, uncounted));

        let [(client, _), (server, _)] = observed(&options);
        let [source, sink] = [client.region(3000), server.region(3000)];
        server.post_recv(1, &[sink.whole()]);
        server.post_recv(2, &[sink.whole()]);
        client.write(1, source.sge(0, 1000), &sink, 0);
        client.read(2, source.sge(0, 200), &sink, 0);
        let op = AtomicOp::FetchAdd { add: 1, mask: 0 };
        client.post(
            3,
            SendOp::Atomic { stag: sink.rkey(), to: sink.base(), op },
            &[source.sge(0, 8)],
        );
        (0..3).for_each(|_| _ = client.sent());
        // The Send is not signalled, and its end shows nevertheless.
        let send = SendRequest::send(4, Payload::Inline(b"four"));
        client.qp.post_send(&send).unwrap();
        assert_eq!(server.received().byte_len, 4);
        let sends = || client.qp.counters().unwrap().sends;
        until("the end of the Send", || (counts(sends()) == [1, 1, 0, 4]).then_some(()));
        let Counters { writes, reads, atomics, local, receives, .. } =
            client.qp.counters().unwrap();
        assert_eq!(counts(writes), [1, 1, 0, 1000]);
        assert_eq!(counts(reads), [1, 1, 0, 200]);
        assert_eq!(counts(atomics), [1, 1, 0, 8]);
        assert_eq!((local, receives), (Operations::default(), Operations::default()));
        assert_eq!(counts(server.qp.counters().unwrap().receives), [2, 1, 0, 4]);

        server.qp.modify(QpState::Err).unwrap();
        server.qp.modify(QpState::Reset).unwrap();
        assert_eq!(counts(server.qp.counters().unwrap().receives), [2, 1, 1, 4]);
    }
}
