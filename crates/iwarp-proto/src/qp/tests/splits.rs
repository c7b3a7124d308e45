// SPDX-License-Identifier: MIT OR Apache-2.0

//! A stream may be cut anywhere on its way, with or without CRC and markers: the same octets end in
//! the same memory, with the same events and answer.

use proptest::prelude::*;

use super::octets::{self, tagged, untagged, word};
use super::*;

/// One message of the peer's, to be made into ULPDUs by [`Script`].
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerMessage {
    kind: u8,
    a: u32,
    b: u32,
}

/// Turns steps into ULPDUs, keeping count of what the peer has to count.
struct Script {
    sends: u32,
    requests: u32,
    /// Sink of the one Read that the end has under way, and how much of it was answered.
    sink: (u32, u64),
    answered: u32,
    ulpdus: Vec<Vec<u8>>,
}

const READ_LEN: u32 = 30_000;
const RECEIVES: u64 = 24;

impl Script {
    fn segments(&mut self, len: u32, piece: u32, make: impl Fn(bool, u32, &[u8]) -> Vec<u8>) {
        let octets = pattern(len as usize, piece as u8);
        let mut at = 0;
        loop {
            let end = (at + piece).min(len);
            self.ulpdus.push(make(end == len, at, &octets[at as usize..end as usize]));
            at = end;
            if at == len {
                return;
            }
        }
    }

    fn step(&mut self, PeerMessage { kind, a, b }: PeerMessage) {
        // Some pieces are larger than what is placed as it comes, some are a few octets.
        let piece = 1 + if b % 3 == 0 { b % 200 } else { b % 20_000 };
        match kind {
            0..=3 => {
                let (at, len) = (u64::from(a % 5000), b % 40_000);
                self.segments(len, piece.max(len / 8 + 1), |last, offset, octets| {
                    tagged(octets::WRITE, last, OPEN, OPEN_BASE + at + u64::from(offset), octets)
                });
            }
            4..=7 => {
                self.sends += 1;
                let (msn, len) = (self.sends, a % 24_001);
                let opcode = [octets::SEND, octets::SEND_SOLICITED][(b % 2) as usize];
                self.segments(len, piece.max(len / 8 + 1), |last, offset, octets| {
                    untagged(opcode, last, 0, 0, msn, offset, octets)
                });
            }
            8 => {
                self.sends += 1;
                let data = [a.to_be_bytes(), b.to_be_bytes()].concat();
                self.ulpdus.push(untagged(octets::IMMEDIATE, true, 0, 0, self.sends, 0, &data));
            }
            9 => {
                self.requests += 1;
                let at = OPEN_BASE + u64::from(a % 1000);
                self.ulpdus.push(octets::read_request(self.requests, b % 9000, OPEN, at));
            }
            10 => {
                self.requests += 1;
                let at = OPEN_BASE + u64::from(a % 100) * 8;
                let add = octets::fetch_add(u64::from(b));
                self.ulpdus.push(octets::atomic_request(self.requests, OPEN, at, add));
            }
            11..=13 => {
                let len = piece.min(READ_LEN - self.answered);
                let last = self.answered + len == READ_LEN;
                let octets = pattern(len as usize, a as u8);
                let to = self.sink.1 + u64::from(self.answered);
                if len > 0 {
                    self.ulpdus.push(tagged(octets::READ_RESPONSE, last, self.sink.0, to, &octets));
                }
                self.answered += len;
            }
            // Frames that must not come, large and small.
            14 => {
                let octets = pattern((b % 30_000) as usize, 1);
                self.ulpdus.push(match a % 6 {
                    0 => tagged(octets::WRITE, true, 0xbad, 0, &octets),
                    1 => tagged(octets::WRITE, true, OPEN, OPEN_BASE + SIZE as u64 - 7, &octets),
                    2 => untagged(octets::SEND, true, 0, 0, self.sends + 1, 9, &octets),
                    3 => untagged(octets::READ_REQUEST, true, 0, 1, 1, 0, &octets),
                    4 => untagged(0x4f, true, 0, 0, 1, 0, &octets),
                    _ => octets[..octets.len().min(9)].to_vec(),
                });
            }
            _ => self.ulpdus.push(octets::terminate(&pattern((b % 3000) as usize, 2))),
        }
    }
}

/// An end in its first state, equal each time, and the ULPDUs of a script for it.
pub(super) fn stage(steps: &[PeerMessage], crc: bool, markers: bool) -> (Raw, Vec<Vec<u8>>) {
    let mut raw = Raw::with(config(), Role::Initiator, |terms| {
        (terms.crc, terms.receive_markers) = (crc, markers);
    });
    for wr_id in 0..RECEIVES {
        let at = wr_id * 4000;
        let sges = [local(at, 1000), local(at + 1000, 0), local(at + 1000, 23_000)];
        raw.end.receive(wr_id, &sges);
    }
    raw.end.post(100, read_op(0), &[local(100_000, 9_000), local(70_000, READ_LEN - 9_000)]);
    let request = raw.back().remove(0);
    let sink = (word(&request, 18), octets::long(&request, 22));
    let mut script = Script { sends: 0, requests: 0, sink, answered: 0, ulpdus: Vec::new() };
    for step in steps {
        script.step(*step);
    }
    (raw, script.ulpdus)
}

/// As a driver does that reads what it may straight into registered memory.
fn arrive_directly(end: &mut End, mut octets: &[u8]) -> usize {
    let mut direct = 0;
    while end.inbox.is_empty()
        && !octets.is_empty()
        && let Some(found) = end.rx.direct()
    {
        let who = end.qp.borrow().accessor();
        let n = octets.len().min(found.target.len());
        let placed = match found.target {
            Source::Local(sge) => {
                end.host.place_local(who, Sge { length: n as u32, ..sge }, &octets[..n])
            }
            Source::Remote { stag, to, .. } => end.host.place_remote(who, stag, to, &octets[..n]),
        };
        match placed {
            Ok(()) => {
                end.rx.received_directly(n);
                direct += n;
                octets = &octets[n..];
            }
            Err(error) => end.rx.direct_refused(error),
        }
    }
    end.arrive(octets);
    direct
}

/// The visible outcome of a stream that was received.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Outcome {
    events: Vec<Event>,
    local: Vec<u8>,
    open: Vec<u8>,
    back: Vec<Vec<u8>>,
    state: QpState,
}

impl Outcome {
    pub(super) fn of(mut raw: Raw) -> Self {
        let events = raw.end.events();
        let back = raw.back();
        Self {
            events,
            local: raw.end.host.octets(LOCAL),
            open: raw.end.host.octets(OPEN),
            back,
            state: raw.end.state(),
        }
    }
}

fn stream_of(raw: &mut Raw, ulpdus: &[Vec<u8>]) -> Vec<u8> {
    ulpdus.iter().flat_map(|ulpdu| raw.fpdu(ulpdu)).collect()
}

pub(super) fn steps() -> impl Strategy<Value = Vec<PeerMessage>> {
    // One step in forty is one that ends the stream.
    let kind = prop_oneof![20 => 0u8..14, 1 => 14u8..16];
    let step =
        (kind, any::<u32>(), any::<u32>()).prop_map(|(kind, a, b)| PeerMessage { kind, a, b });
    proptest::collection::vec(step, 0..14)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Covers: MPA-5044-4.3-11, MPA-5044-4.3-12, DDP-5041-3-04, DDP-5041-3-08, DDP-5041-3-14,
    /// DDP-5041-5.2-04, DDP-5041-5.3-01
    #[test]
    fn any_split_in_any_mode_gives_the_same(
        steps in steps(),
        cuts in proptest::collection::vec(1usize..30_000, 1..6),
        small in any::<bool>(),
    ) {
        let (mut raw, ulpdus) = stage(&steps, true, false);
        let stream = stream_of(&mut raw, &ulpdus);
        raw.end.arrive(&stream);
        let expected = Outcome::of(raw);
        for (crc, markers) in [(true, false), (false, false), (true, true), (false, true)] {
            for direct in [false, true] {
                let (mut raw, ulpdus) = stage(&steps, crc, markers);
                let stream = stream_of(&mut raw, &ulpdus);
                let mut rest = &stream[..];
                for cut in cuts.iter().cycle() {
                    let cut = if small { cut % 700 + 1 } else { *cut };
                    let (now, later) = rest.split_at(cut.min(rest.len()));
                    if direct {
                        arrive_directly(&mut raw.end, now);
                    } else {
                        raw.end.arrive(now);
                    }
                    rest = later;
                    if rest.is_empty() {
                        break;
                    }
                }
                prop_assert_eq!(&Outcome::of(raw), &expected);
            }
        }
    }

    #[test]
    fn as_many_octets_as_are_wanted_are_enough_to_get_further(
        steps in steps(),
        (crc, markers) in any::<(bool, bool)>(),
    ) {
        let (mut raw, ulpdus) = stage(&steps, crc, markers);
        let stream = stream_of(&mut raw, &ulpdus);
        let mut rest = &stream[..];
        while !rest.is_empty() && raw.end.state() != QpState::Err {
            let has = raw.end.inbox.len();
            let wanted = raw.end.rx.wanted(&raw.end.inbox);
            prop_assert!(wanted > has);
            let wants = (wanted - has).min(rest.len());
            // One octet less is not enough.
            raw.end.arrive(&rest[..wants - 1]);
            prop_assert_eq!(raw.end.inbox.len(), has + wants - 1);
            raw.end.arrive(&rest[wants - 1..wants]);
            // Octets were used, or a length is known now.
            let used = raw.end.inbox.len() < has + wants;
            let known = raw.end.rx.wanted(&raw.end.inbox) > wanted;
            prop_assert!(used || known || raw.end.state() == QpState::Err);
            rest = &rest[wants..];
        }
        if raw.end.state() != QpState::Err {
            prop_assert!(raw.end.inbox.is_empty());
        }
    }

    /// Octets may be cut off or changed: the end stays whole, and each work request posted to it
    /// ends exactly once.
    #[test]
    fn no_stream_of_a_peer_does_harm(
        steps in steps(),
        (crc, markers) in any::<(bool, bool)>(),
        at in any::<prop::sample::Index>(),
        change in 0u8..=255,
        cut in any::<bool>(),
        step in 1usize..5000,
    ) {
        let (mut raw, ulpdus) = stage(&steps, crc, markers);
        let mut stream = stream_of(&mut raw, &ulpdus);
        stream.push(0);
        let at = at.index(stream.len());
        stream[at] ^= change;
        if cut {
            stream.truncate(at);
        }
        let mut events = Vec::new();
        for part in stream.chunks(step) {
            arrive_directly(&mut raw.end, part);
            events.extend(raw.end.events());
            raw.end.take_all();
        }
        raw.end.eof();
        raw.end.take_all();
        raw.end.qp.borrow_mut().lost();
        events.extend(raw.end.events());
        prop_assert_eq!(raw.end.disposition(), Disposition::Finish);
        prop_assert_eq!(raw.end.qp.borrow().outstanding(), (0, 0));
        let mut ids: Vec<u64> =
            events.into_iter().filter_map(completion).map(|wc| wc.wr_id).collect();
        ids.sort_unstable();
        let expected: Vec<u64> = (0..RECEIVES).chain([100]).collect();
        prop_assert_eq!(ids, expected);
    }
}

#[test]
fn large_segments_are_offered_to_be_read_directly_without_their_last_octets() {
    let mut raw = Raw::initiator(config(), |terms| terms.crc = false);
    let ulpdu = tagged(octets::WRITE, true, OPEN, OPEN_BASE + 5, &pattern(10_000, 4));
    let fpdu = raw.fpdu(&ulpdu);
    assert_eq!(raw.end.rx.direct(), None);
    raw.end.arrive(&fpdu[..1000]);
    let placed = 1000 - 16;
    let found = raw.end.rx.direct().unwrap();
    // Less than all by what must pass through the placement routine: it makes the end visible
    // last.
    let Source::Remote { stag, to, len } = found.target else { panic!("{found:?}") };
    assert_eq!((stag, to.0), (Stag(OPEN), OPEN_BASE + 5 + placed as u64));
    assert_eq!(len as usize, 10_000 - placed - 16);
    assert_eq!(arrive_directly(&mut raw.end, &fpdu[1000..]), len as usize);
    assert_eq!(raw.end.host.octets(OPEN)[5..10_005], pattern(10_000, 4));
    assert_eq!(raw.end.rx.direct(), None);
    let touches = raw.end.host.touches();
    assert_eq!(touches.last(), Some(&Touch::Placed { stag: OPEN, len: 16 }));

    // A Send, into the elements of its receive one after another.
    raw.end.receive(1, &[local(0, 6000), local(7000, 10), local(8000, 8000)]);
    let fpdu = raw.fpdu(&octets::send(1, &pattern(13_000, 5)));
    raw.end.arrive(&fpdu[..130]);
    let found = raw.end.rx.direct().unwrap();
    assert_eq!(found.target, Source::Local(local(110, 5890)));
    assert_eq!(arrive_directly(&mut raw.end, &fpdu[130..]), 5890);
    let octets = raw.end.host.octets(LOCAL);
    let got = [&octets[..6000], &octets[7000..7010], &octets[8000..14_990]].concat();
    assert_eq!(got, pattern(13_000, 5));
    assert_eq!(raw.end.completions().len(), 1);
}

#[test]
fn direct_placement_is_not_offered_with_crc_or_markers_or_without_the_right() {
    for (crc, markers) in [(true, false), (false, true), (true, true)] {
        let mut raw = Raw::initiator(config(), |terms| {
            (terms.crc, terms.receive_markers) = (crc, markers);
        });
        let fpdu = raw.fpdu(&tagged(octets::WRITE, true, OPEN, OPEN_BASE, &[1; 10_000]));
        raw.end.arrive(&fpdu[..1000]);
        assert_eq!(raw.end.rx.direct(), None);
        assert_eq!(raw.end.host.touches(), []);
    }
    let mut raw = Raw::initiator(config(), |terms| terms.crc = false);
    let ulpdu = tagged(octets::WRITE, true, LOCAL, LOCAL_BASE, &[1; 10_000]);
    let fpdu = raw.fpdu(&ulpdu);
    raw.end.arrive(&fpdu[..1000]);
    assert_eq!(raw.end.rx.direct(), None);
    raw.end.arrive(&fpdu[1000..]);
    assert_eq!(raw.terminate(), quoting([0x11, 0x00], 10_014, &ulpdu[..14], &[]));
    // Lost after it was offered.
    let mut raw = Raw::initiator(config(), |terms| terms.crc = false);
    let ulpdu = tagged(octets::WRITE, true, OPEN, OPEN_BASE, &[1; 10_000]);
    let fpdu = raw.fpdu(&ulpdu);
    raw.end.arrive(&fpdu[..1000]);
    assert!(raw.end.rx.direct().is_some());
    raw.end.host.change(OPEN, |region| region.valid = false);
    raw.end.host.touches();
    assert_eq!(arrive_directly(&mut raw.end, &fpdu[1000..]), 0);
    assert_eq!(raw.end.host.touches(), []);
    assert_eq!(raw.terminate(), quoting([0x11, 0x00], 10_014, &ulpdu[..14], &[]));
}
