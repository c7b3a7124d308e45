// SPDX-License-Identifier: MIT OR Apache-2.0

//! Peers that break the rules in Full Operation: each gets the Terminate that the RFCs ask for
//! and an end in good order, nothing outside what was granted is touched, and no other connection
//! notices.

use iwarp::{AsyncEvent, Ended, Extensions, WcStatus};
use iwarp_proto::rdmap::wire::{Opcode, TerminateCode};
use iwarp_proto::types::{Mo, Qn};
use iwarp_types::Stag;

use crate::common;
use crate::common::next;
use crate::common::pages::PAGE;
use crate::common::raw::{
    read_request, read_response, segment, send, send_invalidate, tagged, untagged, write,
};
use crate::common::station::{Station, hasty};
use crate::common::victim::{READ, RECEIVE, Victim};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Debug)]
enum Quotes {
    Nothing,
    Segment,
    ReadRequest,
}

/// One wrong segment and what it is answered by.
struct Case {
    what: &'static str,
    ulpdu: Vec<u8>,
    code: (u8, u8, u8),
    quotes: Quotes,
    /// The status of the first receive.
    first_receive: WcStatus,
    /// The status of the Read.
    read: WcStatus,
    /// Found only when it is carried out: nothing follows it here.
    alone: bool,
}

impl Case {
    fn new(what: &'static str, ulpdu: Vec<u8>, code: (u8, u8, u8)) -> Self {
        let (quotes, flushed) = (Quotes::Segment, WcStatus::Flushed);
        Self { what, ulpdu, code, quotes, first_receive: flushed, read: flushed, alone: false }
    }

    fn quotes(self, quotes: Quotes) -> Self {
        Self { quotes, ..self }
    }

    fn first_receive(self, first_receive: WcStatus) -> Self {
        Self { first_receive, ..self }
    }

    /// The peer got a Terminate with that code, which quotes what it should, and this end gave
    /// everything up.
    fn is_answered(&self, victim: &mut Victim) {
        let payload = victim.raw.expect_terminate();
        let (layer, etype, code) = self.code;
        let mut expected = vec![layer << 4 | etype, code, 0, 0];
        if self.quotes > Quotes::Nothing {
            expected[2] = 0xc0;
            expected.extend_from_slice(&(self.ulpdu.len() as u16).to_be_bytes());
            let header = if self.ulpdu[0] & 0x80 != 0 { 14 } else { 18 };
            expected.extend_from_slice(&self.ulpdu[..header]);
            if self.quotes == Quotes::ReadRequest {
                expected[2] = 0xe0;
                expected.extend_from_slice(&self.ulpdu[header..header + 28]);
            }
        }
        assert_eq!(payload, expected, "{}", self.what);
        let why = Ended::Fault(TerminateCode { layer, etype, code }.reason());
        assert_eq!(victim.end.connection.wait_disconnected(Some(common::DEADLINE)), Some(why));
        let qp = victim.end.qp.number();
        let told = match (layer, etype, code) {
            (0, 1, _) | (1, 1, 0..=3) => AsyncEvent::QpAccessError { qp },
            _ => AsyncEvent::QpFatal { qp },
        };
        victim.end.async_event(|event| *event == told);
        assert_eq!(next(&victim.end.recv_cq).status, self.first_receive, "{}", self.what);
        victim.end.flushed(0, 1);
    }
}

/// Tries each case on a connection of its own.
fn each(cases: impl Fn(&Victim) -> Vec<Case>) {
    each_on(&Station::new(hasty()), cases);
}

fn each_on(station: &Station, cases: impl Fn(&Victim) -> Vec<Case>) {
    for number in 0.. {
        let mut victim = Victim::new(station);
        let Some(case) = cases(&victim).into_iter().nth(number) else { break };
        station.others_do_not_notice();
        // A segment that follows one in error is dropped, right or wrong: the first error is told.
        let mut octets = victim.raw.frame(&case.ulpdu);
        if !case.alone {
            let whole = &victim.grants.whole;
            let late = write(whole.rkey(), whole.base().0, b"too late");
            octets.extend(victim.raw.frame(&late));
            octets.extend(victim.raw.frame(&send(1, b"too late")));
            octets.extend(victim.raw.frame(&write(Stag(0), 7, b"wrong, too")));
        }
        victim.raw.send(&octets);
        assert_eq!(next(&victim.end.send_cq).status, case.read, "{}", case.what);
        case.is_answered(&mut victim);
        victim.grants.untouched();
        assert_eq!(victim.sink.buffer().unwrap().to_vec(), [0; READ]);
        assert_eq!(victim.receives.buffer().unwrap().to_vec(), [0; 2 * RECEIVE]);
        station.others_do_not_notice();
    }
    station.settled();
}

/// Covers: DDP-5041-7.1-10, DDP-5041-7.1-11, DDP-5041-7.1-12, DDP-5041-7.1-13, DDP-5041-7.1-14,
/// DDP-5041-7.1-15, DDP-5041-7.1-16, DDP-5041-7.1-17, DDP-5041-7.1-18, DDP-5041-7.2-01,
/// DDP-5041-8.2-01, DDP-5041-8.3.1-01, DDP-5041-8.3.1-03, DDP-5041-8.3-04, DDP-5041-4.2-05,
/// DDP-5041-8.1-01, RDMAP-5040-5.1-03, RDMAP-5040-7.1-01, RDMAP-5040-7.1-03,
/// RDMAP-5040-7.1-05, RDMAP-5040-7.2-01, RDMAP-5040-8.1.1-01, RDMAP-5040-8.1.1-03,
/// RDMAP-5040-6.2.1-01, RDMAP-5040-6.2.1-02, RDMAP-5040-6.2.1-04, VERBS-hilland-7.2.1-01
#[test]
fn writes_to_where_they_may_not_go() {
    each(|victim| {
        let grants = &victim.grants;
        let (whole, part) = (&grants.whole, &grants.part);
        let (start, end) = (whole.base().0, whole.base().0 + PAGE as u64);
        let (low, high) = (part.base().0, part.base().0 + part.len() as u64);
        let unknown = Stag(whole.rkey().0 ^ 0x55);
        let bounds = (1, 1, 0x01);
        vec![
            Case::new("unknown key", write(unknown, start, b"x"), (1, 1, 0x00)),
            Case::new("unknown index", write(Stag(0x7fff_ff00), start, b"x"), (1, 1, 0x00)),
            Case::new("STag 0", write(Stag(0), start, b"x"), (1, 1, 0x00)),
            Case::new("other PD", write(grants.foreign.rkey(), start, b"x"), (1, 1, 0x02)),
            Case::new("no right", write(grants.for_reading.rkey(), start, b"x"), (1, 1, 0x00)),
            Case::new("local only", write(grants.local.rkey(), start, b"x"), (1, 1, 0x00)),
            Case::new("before the page", write(whole.rkey(), start - 1, b"x"), bounds),
            Case::new("into the page", write(whole.rkey(), start - 1, b"xx"), bounds),
            Case::new("behind the page", write(whole.rkey(), end, b"x"), bounds),
            Case::new("out of the page", write(whole.rkey(), end - 1, b"xx"), bounds),
            Case::new("before the part", write(part.rkey(), low - 1, b"x"), bounds),
            Case::new("into the part", write(part.rkey(), low - 1, b"xx"), bounds),
            Case::new("behind the part", write(part.rkey(), high, b"x"), bounds),
            Case::new("out of the part", write(part.rkey(), high - 1, b"xx"), bounds),
            Case::new("larger than the part", write(part.rkey(), low, &[0; 2049]), bounds),
        ]
    });
}

/// Covers: DDP-5041-7.1-14, DDP-5041-7.1-12
#[test]
fn corner_34_offset_and_length_wrap_before_bounds() {
    each(|victim| {
        let stag = victim.grants.whole.rkey();
        vec![
            Case::new("sum 2^64 - 1", write(stag, u64::MAX - 4, b"abcd"), (1, 1, 0x01)),
            Case::new("sum 2^64", write(stag, u64::MAX - 3, b"abcd"), (1, 1, 0x03)),
            Case::new("sum 2^64 + 1", write(stag, u64::MAX - 2, b"abcd"), (1, 1, 0x03)),
        ]
    });
}

/// Covers: RDMAP-5040-7.2-02, RDMAP-5040-7.2-03, RDMAP-5040-4.1-07, DDP-5041-4.1-10,
/// RDMAP-5040-5.3-14
#[test]
fn versions_and_opcodes_that_do_not_exist() {
    each(|victim| {
        let grants = &victim.grants;
        let (stag, to) = (grants.whole.rkey(), grants.whole.base().0);
        let unexpected = (0, 2, 0x06);
        let mut cases = Vec::new();
        for number in 0xc..=0xf_u8 {
            cases.push(Case::new(
                "tagged",
                tagged(0x40 | number, true, stag, to, b"x"),
                unexpected,
            ));
            // The victim has Send with Immediate, which is 0xc and 0xd, and says so; this peer does
            // not.
            for qn in 0..4 {
                let mut header = untagged(Opcode::Send, 1);
                header.rsvd_ulp[0] = 0x40 | number;
                header.qn = Qn(qn);
                cases.push(Case::new("untagged", segment(header, b"x"), unexpected));
            }
        }
        for control in [Opcode::Send, Opcode::ReadRequest, Opcode::Immediate, Opcode::Terminate] {
            let ulpdu = tagged(control.control(), true, stag, to, b"12345678");
            cases.push(Case::new("untagged message in a tagged segment", ulpdu, unexpected));
        }
        for control in [Opcode::Write, Opcode::ReadResponse] {
            let mut header = untagged(Opcode::Send, 1);
            header.rsvd_ulp[0] = control.control();
            let ulpdu = segment(header, b"x");
            cases.push(Case::new("tagged message in an untagged segment", ulpdu, unexpected));
        }
        for version in [0x00, 0x80, 0xc0] {
            let ulpdu = tagged(version, true, stag, to, b"x");
            cases.push(Case::new("RDMAP version, tagged", ulpdu, (0, 2, 0x05)));
            let mut header = untagged(Opcode::Send, 1);
            header.rsvd_ulp[0] = version | Opcode::Send as u8;
            cases.push(Case::new("RDMAP version, untagged", segment(header, b"x"), (0, 2, 0x05)));
        }
        for version in [0, 2, 3] {
            let mut ulpdu = write(stag, to, b"x");
            ulpdu[0] = ulpdu[0] & !3 | version;
            cases.push(Case::new("DDP version, tagged", ulpdu, (1, 1, 0x04)));
            let mut ulpdu = send(1, b"x");
            ulpdu[0] = ulpdu[0] & !3 | version;
            cases.push(Case::new("DDP version, untagged", ulpdu, (1, 2, 0x06)));
        }
        cases
    });
}

/// Covers: DDP-5041-7.1-01, DDP-5041-7.1-02, DDP-5041-7.1-09, RDMAP-5040-7.2-06
#[test]
fn queues_and_numbers_that_do_not_exist() {
    each(|_| {
        let on = |opcode, qn| {
            let mut header = untagged(opcode, 1);
            header.qn = Qn(qn);
            segment(header, &[0; 28])
        };
        let with = |opcode, msn, payload: &[u8]| segment(untagged(opcode, msn), payload);
        let (queue, none, range) = ((1, 2, 0x01), (1, 2, 0x02), (1, 2, 0x03));
        let mut cases = vec![
            Case::new("queue 4", on(Opcode::Send, 4), queue),
            Case::new("queue 2^32 - 1", on(Opcode::Send, u32::MAX), queue),
            Case::new("Send to the Requests' queue", on(Opcode::Send, 1), queue),
            Case::new("Send to the Terminates' queue", on(Opcode::Send, 2), queue),
            Case::new("Read Request to the Sends' queue", on(Opcode::ReadRequest, 0), queue),
            Case::new("the number before the first", send(0, b"x"), range),
            Case::new("a number in range, but not the next", send(2, b"x"), range),
            Case::new("the number behind the last receive", send(3, b"x"), none),
            Case::new("far ahead", send(0x7fff_0000, b"x"), none),
            Case::new("far behind", send(u32::MAX, b"x"), range),
        ];
        for msn in [0, 2, 16, u32::MAX] {
            let ulpdu = with(Opcode::ReadRequest, msn, &[0; 28]);
            cases.push(Case::new("number of a Read Request", ulpdu, range));
        }
        cases.push(Case::new("17th Request", with(Opcode::ReadRequest, 17, &[0; 28]), none));
        cases
    });
}

/// Covers: DDP-5041-7.1-07, DDP-5041-7.1-08, RDMAP-5040-5.3-04, VERBS-hilland-8.1.2.1-01
#[test]
fn corner_36_sends_that_do_not_fit() {
    each(|_| {
        let at = |mo, len: usize| {
            let mut header = untagged(Opcode::Send, 1);
            header.mo = Mo(mo);
            segment(header, &vec![1; len])
        };
        let (offset, long) = ((1, 2, 0x04), (1, 2, 0x05));
        [
            Case::new("one too many", at(0, RECEIVE + 1), long),
            Case::new("far too many", at(0, 1400), long),
            Case::new("inside, beyond the end", at(RECEIVE as u32 - 1, 2), long),
            Case::new("at the end", at(RECEIVE as u32, 1), offset),
            Case::new("behind the end", at(RECEIVE as u32 + 1, 1), offset),
            Case::new("2^32 - 1", at(u32::MAX, 1), offset),
            Case::new("nothing, behind the end", at(RECEIVE as u32 + 1, 0), offset),
        ]
        .into_iter()
        .map(|case| case.first_receive(WcStatus::LocalLength))
        .collect()
    });
}

/// Covers: RDMAP-5040-5.2.1-12, RDMAP-5040-5.2.1-15, RDMAP-5040-7.1-04, RDMAP-5040-7.2-09,
/// RDMAP-5040-7.2-10, RDMAP-5040-7.2-11, RDMAP-5040-7.2-12, RDMAP-5040-7.2-13,
/// RDMAP-5040-8.1.1-01
#[test]
fn reads_of_what_may_not_be_read() {
    each(|victim| {
        let grants = &victim.grants;
        let (whole, part) = (&grants.whole, &grants.part);
        let (start, end) = (whole.base().0, whole.base().0 + PAGE as u64);
        let (low, high) = (part.base().0, part.base().0 + part.len() as u64);
        let of = |what, size, stag, to, code| {
            Case::new(what, read_request(1, size, stag, to), (0, 1, code))
                .quotes(Quotes::ReadRequest)
        };
        let stag = whole.rkey();
        vec![
            of("unknown key", 1, Stag(stag.0 ^ 0x55), start, 0x00),
            of("STag 0", 1, Stag(0), start, 0x00),
            of("before the page", 1, stag, start - 1, 0x01),
            of("into the page", 2, stag, start - 1, 0x01),
            of("behind the page", 1, stag, end, 0x01),
            of("out of the page", 2, stag, end - 1, 0x01),
            of("before the part", 1, part.rkey(), low - 1, 0x01),
            of("out of the part", 2, part.rkey(), high - 1, 0x01),
            of("2^32 - 1 octets", u32::MAX, stag, start, 0x01),
            of("no right", 1, grants.for_writing.rkey(), start, 0x02),
            of("local only", 1, grants.local.rkey(), start, 0x02),
            of("other PD", 1, grants.foreign.rkey(), start, 0x03),
            of("sum 2^64 - 1", 4, stag, u64::MAX - 4, 0x01),
            of("sum 2^64", 4, stag, u64::MAX - 3, 0x04),
            of("sum 2^64 + 1", 4, stag, u64::MAX - 2, 0x04),
        ]
    });
}

/// Covers: RDMAP-5040-4.2-01, RDMAP-5040-7.2-06
#[test]
fn corner_48_read_requests_of_the_wrong_shape() {
    each(|victim| {
        let grants = &victim.grants;
        let good = read_request(1, 1, grants.whole.rkey(), grants.whole.base().0);
        let payload = good[18..].to_vec();
        let mut more = untagged(Opcode::ReadRequest, 1);
        more.last = false;
        let mut later = untagged(Opcode::ReadRequest, 1);
        later.mo = Mo(4);
        let header = untagged(Opcode::ReadRequest, 1);
        vec![
            Case::new("an octet short", segment(header, &payload[..27]), (0, 2, 0x07)),
            Case::new("nothing", segment(header, &[]), (0, 2, 0x07)),
            Case::new("an octet long", segment(header, &[0; 29]), (1, 2, 0x05)),
            Case::new("not the last segment", segment(more, &payload), (0, 2, 0x07)),
            Case::new("not at the start", segment(later, &payload[..24]), (0, 2, 0x07)),
        ]
    });
}

/// Covers: RDMAP-5040-5.2.2-04, RDMAP-5040-5.2.2-06
#[test]
fn corner_46_responses_that_are_not_the_one_that_is_due() {
    each(|victim| {
        let (asked, grants) = (&victim.asked, &victim.grants);
        let (stag, to) = (asked.sink_stag, asked.sink_to);
        let data = [7; READ];
        let control = Opcode::ReadResponse.control();
        vec![
            Case::new(
                "to where a Write might go",
                read_response(grants.whole.rkey(), grants.whole.base(), &data),
                (1, 1, 0x00),
            ),
            Case::new("other STag", read_response(Stag(stag.0 ^ 1), to, &data), (1, 1, 0x00)),
            Case::new("other offset", read_response(stag, to.advanced(1), &data), (1, 1, 0x01)),
            Case::new("too long", read_response(stag, to, &[7; READ + 1]), (1, 1, 0x01)),
            Case::new("too short", read_response(stag, to, &data[1..]), (0, 2, 0x07)),
            Case::new("empty", read_response(stag, to, &[]), (0, 2, 0x07)),
            Case::new(
                "begins behind its start",
                tagged(control, false, stag, to.0 + 8, &data[8..]),
                (1, 1, 0x01),
            ),
            Case::new(
                "to an Atomic",
                segment(untagged(Opcode::AtomicResponse, 1), &[0; 12]),
                (0, 2, 0x06),
            ),
        ]
    });
}

/// Covers: RDMAP-5040-5.3-12, RDMAP-5040-5.3-13, RDMAP-5040-7.2-04, RDMAP-5040-7.2-05
#[test]
fn corner_55_invalidation_of_what_is_not_the_peers() {
    each(|victim| {
        let grants = &victim.grants;
        let (unknown, foreign) = ((0, 2, 0x09), (0, 1, 0x09));
        let of = |what, stag, code| Case::new(what, send_invalidate(1, stag, b""), code);
        vec![
            of("unknown key", Stag(grants.whole.rkey().0 ^ 0x55), unknown),
            of("STag 0", Stag(0), unknown),
            of("other PD", grants.foreign.rkey(), foreign),
            of("local only", grants.local.rkey(), unknown),
            of("a region that all streams share", grants.whole.rkey(), unknown),
        ]
    });
}

/// Covers: RDMAP-5040-4.2-01
#[test]
fn corner_64_immediate_data_is_eight_octets() {
    each(|_| {
        let of = |len| segment(untagged(Opcode::Immediate, 1), &vec![0; len]);
        let mut more = untagged(Opcode::ImmediateSolicited, 1);
        more.last = false;
        vec![
            Case::new("none", of(0), (0, 2, 0x07)),
            Case::new("seven", of(7), (0, 2, 0x07)),
            Case::new("nine", of(9), (1, 2, 0x05)),
            Case::new("not the last segment", segment(more, &[0; 8]), (0, 2, 0x07)),
        ]
    });
}

#[test]
fn corner_63_atomics_on_what_is_not_theirs() {
    each(|victim| {
        let grants = &victim.grants;
        let (whole, to) = (grants.whole.rkey(), grants.whole.base().0);
        let of = |what, operation: u32, stag: Stag, to: u64, code| {
            let mut octets = [0; 52];
            octets[..4].copy_from_slice(&operation.to_be_bytes());
            octets[8..12].copy_from_slice(&stag.0.to_be_bytes());
            octets[12..20].copy_from_slice(&to.to_be_bytes());
            octets[27] = 1;
            Case::new(what, segment(untagged(Opcode::AtomicRequest, 1), &octets), code)
        };
        let end = to + PAGE as u64;
        vec![
            Case { alone: true, ..of("unaligned", 0, whole, to + 4, (0, 2, 0x07)) },
            of("unknown key", 0, Stag(whole.0 ^ 0x55), to, (0, 1, 0x00)),
            of("behind the page", 0, whole, end, (0, 1, 0x01)),
            of("before the page", 2, whole, to - 8, (0, 1, 0x01)),
            of("no right", 0, grants.for_writing.rkey(), to, (0, 1, 0x02)),
            of("other PD", 0, grants.foreign.rkey(), to, (0, 1, 0x03)),
            of("Swap, which is reserved", 1, whole, to, (0, 2, 0x06)),
        ]
    });
}

/// Covers: RDMAP-5040-7.1-03
#[test]
fn ulpdus_too_short_for_their_headers() {
    each(|_| {
        let quotes = Quotes::Nothing;
        let code = (2, 0, 0x03);
        let (tagged, untagged) = (write(Stag(0), 0, &[]), send(1, &[]));
        let mut cases = vec![Case::new("no octet", Vec::new(), code).quotes(quotes)];
        for len in [1, 13] {
            cases.push(Case::new("tagged", tagged[..len].to_vec(), code).quotes(quotes));
        }
        for len in [1, 14, 17] {
            cases.push(Case::new("untagged", untagged[..len].to_vec(), code).quotes(quotes));
        }
        cases
    });
}

/// A peer that was told of no extensions hears that there are none.
#[test]
fn corner_67_operations_that_were_switched_off() {
    let options = hasty().extensions(Extensions::Refuse);
    each_on(&Station::new(options), |victim| {
        let to = victim.grants.whole.base().0.to_be_bytes();
        let mut atomic = [0; 52];
        atomic[8..12].copy_from_slice(&victim.grants.whole.rkey().0.to_be_bytes());
        atomic[12..20].copy_from_slice(&to);
        let of = |opcode, payload: &[u8]| segment(untagged(opcode, 1), payload);
        vec![
            Case::new("Atomic", of(Opcode::AtomicRequest, &atomic), (0, 2, 0x06)),
            Case::new("Immediate", of(Opcode::Immediate, &[0; 8]), (0, 2, 0x06)),
            Case::new("with event", of(Opcode::ImmediateSolicited, &[0; 8]), (0, 2, 0x06)),
        ]
    });
}
