// SPDX-License-Identifier: MIT OR Apache-2.0

//! Two ends on a network that delivers at once, or not at all, with a clock that is set by hand.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Mutex as StdMutex;
use std::sync::{Arc, Weak};
use std::time::Duration;

use iwarp_roce::cm::{Answer, RejectReason, Resolve, SidrStatus, UDP_QKEY, Unreachable};
use iwarp_roce::wire::Transport;
use iwarp_types::PortSpace;
use iwarp_types::{AddressVector, QpId};

use super::*;
use crate::engine::worker::Worker;
use crate::port::{Clock, ManualClock};

const SERVICE: ServiceId = ServiceId::new(PortSpace::DATAGRAMS, 7174);

/// Waits for the worker, and leaves it the CPU.
fn until(what: &str, is_there: impl Fn() -> bool) {
    let end = std::time::Instant::now() + Duration::from_secs(60);
    while !is_there() {
        assert!(std::time::Instant::now() < end, "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The network: the ends by address.
#[derive(Default)]
struct Wire {
    ends: StdMutex<BTreeMap<IpAddr, Weak<ConnectionManager>>>,
    lost: StdMutex<Option<u16>>,
    sent: StdMutex<Vec<u16>>,
}

struct End {
    wire: Arc<Wire>,
    asked: StdMutex<Vec<u64>>,
    taken: bool,
}

impl Carrier for End {
    fn send(&self, path: &Path, mad: &[u8; MAD_LEN]) {
        let attribute = u16::from_be_bytes([mad[16], mad[17]]);
        self.wire.sent.lock().unwrap().push(attribute);
        if self.wire.lost.lock().unwrap().is_some_and(|lost| lost == attribute) {
            return;
        }
        let to = self.wire.ends.lock().unwrap().get(&path.address.destination).cloned();
        if let Some(to) = to.and_then(|to| to.upgrade()) {
            to.receive(path, mad);
        }
    }

    fn listen(&self, service: u64) -> io::Result<crate::port::share::Listening> {
        use crate::port::share::Listening;

        self.asked.lock().unwrap().push(service);
        Ok(if self.taken { Listening::Taken } else { Listening::Granted })
    }

    fn unlisten(&self, service: u64) {
        self.asked.lock().unwrap().retain(|asked| *asked != service);
    }
}

/// Two of them, and the clock.
struct Scene {
    wire: Arc<Wire>,
    clock: ManualClock,
    worker: Arc<Worker>,
    managers: [Arc<ConnectionManager>; 2],
    carriers: [Arc<End>; 2],
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.worker.stop();
    }
}

fn address(end: u8) -> IpAddr {
    [10, 0, 0, 1 + end].into()
}

impl Scene {
    fn new() -> Self {
        Self::with(false)
    }

    fn with(taken: bool) -> Self {
        let (wire, clock) = (Arc::new(Wire::default()), ManualClock::new());
        let worker = Worker::start().unwrap();
        let timers = Timers::new(Arc::clone(&worker), Clock::from(clock.clone()));
        let carriers = [0, 1]
            .map(|_| Arc::new(End { wire: Arc::clone(&wire), asked: StdMutex::default(), taken }));
        let managers = [0_u8, 1].map(|end| {
            let carrier = Arc::clone(&carriers[usize::from(end)]);
            let settings = Settings { guid: u64::from(end) + 1, ..Settings::default() };
            let manager = ConnectionManager::new(carrier, settings);
            manager.enter(&timers, Weak::new());
            wire.ends.lock().unwrap().insert(address(end), Arc::downgrade(&manager));
            manager
        });
        Self { wire, clock, worker, managers, carriers }
    }

    fn lose(&self, attribute: Option<u16>) {
        *self.wire.lost.lock().unwrap() = attribute;
    }

    fn listen(&self, host: &Arc<Answering>) -> io::Result<Listening> {
        let listen = Listen {
            service: SERVICE,
            address: None,
            transport: Transport::Ud,
            header: true,
            backlog: 64,
        };
        let host: Weak<dyn Host> = Arc::downgrade(&(Arc::clone(host) as Arc<dyn Host>));
        self.managers[1].listen(&listen, host)
    }

    fn ask(&self, party: &Arc<Recorder>) -> Communication {
        let address = AddressVector::new(address(0), address(1));
        let resolve = Resolve {
            path: Path::new(address, 0xc001),
            service: SERVICE,
            source_port: Some(1),
            private_data: b"who",
        };
        let party: Weak<dyn Party> = Arc::downgrade(&(Arc::clone(party) as Arc<dyn Party>));
        Communication::resolve(&self.managers[0], &resolve, party).unwrap()
    }

    /// The managers are clean, once the worker has handed on what it was left.
    fn becomes_clean(&self) {
        until("all to be gone", || self.managers.iter().all(|manager| manager.is_clean()));
    }

    /// The news that `party` has been told. Some of them are told by the worker, which hands on
    /// what comes of a communication that is dropped, and all that comes up meanwhile.
    fn news(&self, party: &Recorder) -> Vec<EventKind> {
        self.hands_on();
        party.take()
    }

    fn hands_on(&self) {
        until("news that stay with the manager", || {
            ConnectionManager::all_is_handed_on(&self.managers)
        });
    }

    /// Lets all deadlines pass.
    fn settle(&self) {
        // Work that is left to the worker comes before what is due later: a program that hears of a
        // request when its time is over could not answer it.
        while self.managers.iter().any(|manager| manager.next_timeout().is_some()) {
            self.hands_on();
            self.clock.advance(Duration::from_millis(500));
        }
    }
}

/// Answers questions, or does nothing.
struct Answering {
    answers: bool,
    kept: StdMutex<Vec<Communication>>,
    refuses: bool,
}

impl Answering {
    fn new(answers: bool, refuses: bool) -> Arc<Self> {
        Arc::new(Self { answers, refuses, kept: StdMutex::default() })
    }
}

impl Host for Answering {
    fn requested(self: Arc<Self>, communication: Communication, request: Box<Request>) {
        assert_eq!(&request.private_data[..4], b"who\0");
        if self.answers {
            let answer = Answer { qp: QpId(77), qkey: UDP_QKEY, private_data: b"me" };
            communication.answer(&answer).unwrap();
        } else if self.refuses {
            communication.reject(RejectReason::Consumer, b"").unwrap();
        } else {
            self.kept.lock().unwrap().push(communication);
        }
    }
}

#[derive(Default)]
struct Recorder(StdMutex<Vec<EventKind>>);

impl Recorder {
    fn take(&self) -> Vec<EventKind> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl Party for Recorder {
    fn happened(self: Arc<Self>, what: EventKind) {
        self.0.lock().unwrap().push(what);
    }
}

const SIDR_REQ: u16 = 0x17;
const SIDR_REP: u16 = 0x18;

/// Covers: ROCE-170, ROCE-171
#[test]
fn a_question_is_answered() {
    let scene = Scene::new();
    let host = Answering::new(true, false);
    let _listening = scene.listen(&host).unwrap();
    let asker = Arc::new(Recorder::default());
    let _question = scene.ask(&asker);
    let [EventKind::Resolved(resolved)] = &scene.news(&asker)[..] else { panic!("no answer") };
    assert_eq!((resolved.qp, resolved.qkey), (77, UDP_QKEY));
    assert_eq!(&resolved.private_data[..3], b"me\0");
    assert_eq!(*scene.wire.sent.lock().unwrap(), [SIDR_REQ, SIDR_REP]);
}

/// Covers: ROCE-170
#[test]
fn a_question_without_a_listener_is_refused() {
    let scene = Scene::new();
    for refuses in [false, true] {
        let host = Answering::new(false, true);
        let _listening = refuses.then(|| scene.listen(&host).unwrap());
        let asker = Arc::new(Recorder::default());
        let _question = scene.ask(&asker);
        let expected = if refuses { SidrStatus::Refused } else { SidrStatus::NoService };
        let [EventKind::Unreachable(Unreachable::Service(status))] = scene.news(&asker)[..] else {
            panic!("no refusal")
        };
        assert_eq!(status, expected);
    }
}

/// A peer that says nothing, or a program, ends in the deadline, and nothing is left behind.
#[test]
fn silence_ends() {
    let scene = Scene::new();
    for lost in [Some(SIDR_REQ), Some(SIDR_REP), None] {
        scene.lose(lost);
        let host = Answering::new(lost.is_some(), false);
        let listening = scene.listen(&host).unwrap();
        let asker = Arc::new(Recorder::default());
        let question = scene.ask(&asker);
        scene.settle();
        let events = scene.news(&asker);
        assert!(matches!(events[..], [EventKind::Unreachable(Unreachable::Silent)]), "{events:?}");
        drop((question, listening));
        host.kept.lock().unwrap().clear();
        scene.becomes_clean();
    }
}

/// Losing each message once costs one repetition.
#[test]
fn lost_messages_are_sent_again() {
    for lost in [SIDR_REQ, SIDR_REP] {
        let scene = Scene::new();
        let host = Answering::new(true, false);
        let _listening = scene.listen(&host).unwrap();
        let asker = Arc::new(Recorder::default());
        scene.lose(Some(lost));
        let _question = scene.ask(&asker);
        assert!(scene.news(&asker).is_empty());
        scene.lose(None);
        scene.clock.advance(Duration::from_secs(2));
        assert!(matches!(scene.news(&asker)[..], [EventKind::Resolved(_)]));
    }
}

#[test]
fn a_thousand_questions_leave_nothing_behind() {
    let scene = Scene::new();
    let host = Answering::new(true, false);
    let listening = scene.listen(&host).unwrap();
    for _ in 0..1000 {
        let asker = Arc::new(Recorder::default());
        let _question = scene.ask(&asker);
        assert!(matches!(scene.news(&asker)[..], [EventKind::Resolved(_)]));
    }
    let kept = scene.managers[1].len();
    assert!(kept <= Settings::default().stored_answers, "{kept} answers are kept");
    scene.settle();
    drop(listening);
    scene.becomes_clean();
    assert!(scene.carriers[1].asked.lock().unwrap().is_empty(), "a service is kept");
}

#[test]
fn a_service_of_another_process_cannot_be_had() {
    let scene = Scene::with(true);
    let host = Answering::new(true, false);
    let refused = scene.listen(&host).err().expect("it is another's");
    assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
    assert!(scene.carriers[1].asked.lock().unwrap().is_empty());
    assert!(scene.managers[1].is_clean());
}

/// Events that happened before a party was introduced are told first.
#[test]
fn news_wait_for_who_is_to_hear_them() {
    let scene = Scene::new();
    let host = Answering::new(false, false);
    let _listening = scene.listen(&host).unwrap();
    let asker = Arc::new(Recorder::default());
    let _question = scene.ask(&asker);
    scene.settle();
    let inquiry = host.kept.lock().unwrap().pop().unwrap();
    let late = Arc::new(Recorder::default());
    let party: Weak<dyn Party> = Arc::downgrade(&(Arc::clone(&late) as Arc<dyn Party>));
    inquiry.introduce(party);
    assert!(matches!(scene.news(&late)[..], [EventKind::Unreachable(Unreachable::TooSlow)]));
    let answer = Answer { qp: QpId(77), qkey: UDP_QKEY, private_data: b"" };
    assert_eq!(inquiry.answer(&answer).unwrap_err().kind(), io::ErrorKind::NotConnected);
}

/// A device that is closed does not take the times of the others along.
#[test]
fn another_worker_keeps_the_times() {
    let scene = Scene::new();
    let manager = &scene.managers[0];
    let worker = Worker::start().unwrap();
    let timers = Timers::new(Arc::clone(&worker), Clock::from(scene.clock.clone()));
    let second = manager.enter(&timers, Weak::new());
    scene.lose(Some(SIDR_REQ));
    let asker = Arc::new(Recorder::default());
    let _question = scene.ask(&asker);
    // The first of all was the scene's own.
    manager.leave(1);
    worker.stop();
    scene.settle();
    assert_eq!(scene.news(&asker).len(), 1);
    manager.leave(second);
}
