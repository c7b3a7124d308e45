// SPDX-License-Identifier: MIT OR Apache-2.0

//! A wing without MPA: the queue pairs and pipelines of `iwarp-proto` over its records, made
//! outside the library's crates. [`toy_wing`](crate::toy_wing) has the connections.

use std::cell::RefCell;

use crate::common::{DEADLINE, next, pattern, succeeded};
use crate::toy_wing::{End, ORDINARY, carry, connected, device_of};
use iwarp::wire::{
    Accessor, BoxedCore, Core, Disposition, Event, Memory, ReceivePool, Refusal, StreamCore, Time,
    Wanted,
};
use iwarp::{
    Access, Ended, PostError, QpState, Reason, RecvRequest, SendRequest, Stag, TaggedOffset,
    TransitionError, WcStatus,
};
use iwarp_proto::mpa::startup::Role;
use iwarp_proto::qp::{Config, Piece, Qp, Receiver, Source, Terms, Transmit, Transmitter};
use iwarp_proto::record::{Deframer, Framer, LENGTH_FIELD};

/// Octets of the longest ULPDU: its record fits into the room of one call.
const LONGEST: u32 = (Transmit::MIN_CAPACITY - LENGTH_FIELD) as u32;
/// Reads of each end's that may be under way.
const READS: u16 = 4;

/// iWARP's queue pair, and the two halves that move its octets, all under the endpoint's lock.
#[derive(Debug)]
struct Records {
    who: Accessor,
    qp: RefCell<Qp>,
    rx: Receiver<Deframer>,
    tx: Transmitter<Framer>,
    out: Transmit,
}

impl Records {
    fn boxed(who: Accessor) -> BoxedCore {
        let config = Config { qp: who.qp, pd: who.pd, ..Config::default() };
        let qp = RefCell::new(Qp::new(config));
        let (rx, tx) = Self::halves(who);
        Box::new(Self { who, qp, rx, tx, out: Transmit::new(Transmit::MIN_CAPACITY) })
    }

    fn halves(who: Accessor) -> (Receiver<Deframer>, Transmitter<Framer>) {
        let rx = Receiver::new(Deframer::new(LONGEST), who);
        (rx, Transmitter::new(Framer::new(LONGEST), who, LONGEST as usize))
    }

    /// Copies what was built to `room`: the port of this core takes no registered memory.
    fn copy(&self, room: &mut [u8], memory: &dyn Memory) -> usize {
        let mut end = 0;
        for (number, piece) in self.out.pieces().enumerate() {
            let here = &mut room[end..end + piece.octets()];
            let copied = match piece {
                Piece::Staged(range) => {
                    here.copy_from_slice(self.out.octets(range.clone()));
                    Ok(())
                }
                Piece::Memory(Source::Local(sge)) => {
                    memory.gather_local(self.who, *sge, here, None)
                }
                &Piece::Memory(Source::Remote { stag, to, .. }) => {
                    memory.gather_remote(self.who, stag, to, here, None)
                }
            };
            if let Err(error) = copied {
                self.tx.lost(&self.qp, &self.out, number, error);
                return 0;
            }
            end += piece.octets();
        }
        end
    }
}

/// Passes methods on to the queue pair.
macro_rules! of_the_queue_pair {
    (&self { $($ask:ident -> $answer:ty;)+ }
     &mut self { $($method:ident($($arg:ident: $type:ty)?) $(-> $result:ty)?;)+ }) => {
        $(fn $ask(&self) -> $answer {
            self.qp.borrow().$ask()
        })+

        $(fn $method(&mut self $(, $arg: $type)?) $(-> $result)? {
            self.qp.get_mut().$method($($arg)?)
        })+
    };
}

impl Core for Records {
    type Terminated = Reason;
    type Fault = Reason;

    of_the_queue_pair! {
        &self {
            state -> QpState;
            outstanding -> (usize, usize);
            is_connected -> bool;
            disposition -> Disposition;
            has_events -> bool;
            poll_timeout -> Option<Time>;
            arrivals -> u64;
            read_depths -> (usize, usize);
        }
        &mut self {
            modify(to: QpState) -> Result<(), TransitionError>;
            post_send(request: &SendRequest<'_>) -> Result<(), PostError>;
            post_recv(request: &RecvRequest<'_>) -> Result<(), PostError>;
            disconnect();
            abort();
            unreachable();
            lost();
            fail_locally(what: &'static str);
            wanted() -> Wanted;
            take_refusal() -> Option<Refusal>;
            handle_timeout(now: Time);
        }
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.qp.get_mut().poll_event().map(Event::into_words)
    }
}

impl StreamCore for Records {
    fn establish(&mut self, now: Time) {
        (self.rx, self.tx) = Self::halves(self.who);
        self.out.clear();
        // Each end has heard of the other by the wing.
        self.qp.get_mut().establish(Terms::new(Role::Initiator, (READS, READS)), now);
    }

    fn receive(
        &mut self,
        octets: &mut [u8],
        memory: &dyn Memory,
        receives: &dyn ReceivePool,
    ) -> usize {
        self.rx.receive(&self.qp, &memory, receives, octets)
    }

    fn eof(&mut self, unused: usize) {
        self.rx.eof(&self.qp, unused, || None);
    }

    fn transmit(&mut self, room: &mut [u8], memory: &dyn Memory) -> usize {
        // The octets that were built before are on their way, and are kept until they are taken.
        if !self.out.is_empty() {
            return 0;
        }
        self.tx.transmit(&self.qp, &memory, &mut self.out, 1);
        self.copy(room, memory)
    }

    fn taken(&mut self, octets: usize) {
        self.tx.taken(&self.qp, &mut self.out, octets);
    }
}

#[test]
fn programs_connect_and_exchange_messages_in_records() {
    let device = device_of(Records::boxed);
    let [ours, theirs] = [End::new(&device, ORDINARY), End::new(&device, ORDINARY)];
    let [client, server] = connected(&device, &ours, &theirs);
    carry(&theirs, &ours);
    carry(&ours, &theirs);
    client.disconnect();
    let ends = [&client, &server].map(|end| end.wait_disconnected(Some(DEADLINE)));
    assert_eq!(ends, [Some(Ended::Closed); 2]);
}

#[test]
fn long_writes_and_reads_pass_in_records() {
    const LEN: usize = 200_000;
    let device = device_of(Records::boxed);
    let [ours, theirs] = [End::new(&device, ORDINARY), End::new(&device, ORDINARY)];
    let connections = connected(&device, &ours, &theirs);
    let octets = pattern(LEN, 7);
    let (source, back) = (ours.region(&octets), ours.region(&[0; LEN]));
    let all = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
    let open = theirs.pd.allocate(LEN, all).unwrap();
    let (stag, to) = (open.rkey(), open.base());
    let from = [source.whole()];
    ours.qp.post_send(&SendRequest::write(1, &from, stag, to)).unwrap();
    let into = [back.whole()];
    ours.qp.post_send(&SendRequest::read(2, &into, stag, to).signaled()).unwrap();
    // A Read is answered behind the Writes that came before it.
    assert_eq!(succeeded(next(&ours.cq)).wr_id, 2);
    assert_eq!(back.buffer().unwrap().to_vec(), octets);
    assert_eq!(open.buffer().unwrap().to_vec(), octets);
    drop(connections);
}

#[test]
fn a_refused_access_ends_in_a_terminate_in_records() {
    let device = device_of(Records::boxed);
    let [ours, theirs] = [End::new(&device, ORDINARY), End::new(&device, ORDINARY)];
    let [client, server] = connected(&device, &ours, &theirs);
    let sink = ours.region(&[0; 100]);
    let into = [sink.whole()];
    let read = SendRequest::read(5, &into, Stag(0x1234_5678), TaggedOffset(0)).signaled();
    ours.qp.post_send(&read).unwrap();
    let failed = next(&ours.cq);
    assert_eq!((failed.wr_id, failed.status), (5, WcStatus::RemoteAccess));
    let Some(Ended::Fault(found)) = server.wait_disconnected(Some(DEADLINE)) else {
        panic!("the peer found no fault")
    };
    // RDMAP's Terminate of the type Remote Protection: invalid STag (RFC 5040 §4.8).
    assert_eq!(found.code(), 0x0100);
    assert_eq!(client.wait_disconnected(Some(DEADLINE)), Some(Ended::Terminated(found)));
}
