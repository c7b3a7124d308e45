// SPDX-License-Identifier: MIT OR Apache-2.0

//! From fault to Terminate, as a table; and every Terminate that a peer may send.

use super::octets::{self, read_request, tagged};
use super::*;
use crate::ddp::DdpError;
use crate::mpa::error::{MpaError, StartupFault};
use crate::qp::Fault;
use crate::rdmap::RdmapError;
use crate::rdmap::wire::TerminateCode;

/// The part of the segment at fault that a Terminate quotes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Quotes {
    /// M = D = R = 0.
    Nothing,
    /// M and D: length and DDP header.
    Ddp,
    /// M, D and R: the Read Request header too.
    Both,
}

/// Every fault: layer and type, code, quotes (RFC 5040 §4.8 with Figures 9 and 10, RFC 6581 §8,
/// RFC 7306 §8.2).
const TABLE: [(Fault, [u8; 2], Quotes); 40] = {
    use Quotes::{Both, Ddp, Nothing};
    const fn d(error: DdpError) -> Fault {
        Fault::Ddp(error)
    }
    const fn p(error: AccessError) -> Fault {
        Fault::Rdmap(RdmapError::Protection(error))
    }
    const fn i(error: AccessError) -> Fault {
        Fault::Rdmap(RdmapError::Invalidate(error))
    }
    [
        (Fault::Local("why"), [0x00, 0x00], Nothing),
        (p(AccessError::InvalidStag), [0x01, 0x00], Both),
        (p(AccessError::Bounds), [0x01, 0x01], Both),
        (p(AccessError::Rights), [0x01, 0x02], Both),
        (p(AccessError::NotAssociated), [0x01, 0x03], Both),
        (p(AccessError::Wrap), [0x01, 0x04], Both),
        (p(AccessError::CannotInvalidate), [0x01, 0x09], Both),
        (p(AccessError::Unaligned), [0x02, 0x07], Ddp),
        (i(AccessError::InvalidStag), [0x02, 0x09], Ddp),
        (i(AccessError::Bounds), [0x01, 0x09], Ddp),
        (i(AccessError::Rights), [0x01, 0x09], Ddp),
        (i(AccessError::NotAssociated), [0x01, 0x09], Ddp),
        (i(AccessError::Wrap), [0x01, 0x09], Ddp),
        (i(AccessError::CannotInvalidate), [0x02, 0x09], Ddp),
        (i(AccessError::Unaligned), [0x01, 0x09], Ddp),
        (Fault::Rdmap(RdmapError::Version), [0x02, 0x05], Ddp),
        (Fault::Rdmap(RdmapError::UnexpectedOpcode(0xf)), [0x02, 0x06], Ddp),
        (Fault::Rdmap(RdmapError::Stream("why")), [0x02, 0x07], Ddp),
        (Fault::BadClose, [0x02, 0x07], Nothing),
        (d(DdpError::InvalidStag), [0x11, 0x00], Ddp),
        (d(DdpError::Bounds), [0x11, 0x01], Ddp),
        (d(DdpError::NotAssociated), [0x11, 0x02], Ddp),
        (d(DdpError::Wrap), [0x11, 0x03], Ddp),
        (d(DdpError::TaggedVersion), [0x11, 0x04], Ddp),
        (d(DdpError::InvalidQn), [0x12, 0x01], Ddp),
        (d(DdpError::NoBuffer), [0x12, 0x02], Ddp),
        (d(DdpError::MsnRange), [0x12, 0x03], Ddp),
        (d(DdpError::InvalidMo), [0x12, 0x04], Ddp),
        (d(DdpError::TooLong { octets: 2, whole: true, room: 1 }), [0x12, 0x05], Ddp),
        (d(DdpError::UntaggedVersion), [0x12, 0x06], Ddp),
        // No code for it in the RFCs: the length field cannot be right.
        (d(DdpError::Truncated), [0x20, 0x03], Nothing),
        (Fault::Framing(MpaError::Closed.fault()), [0x20, 0x01], Nothing),
        (Fault::Framing(MpaError::Crc.fault()), [0x20, 0x02], Nothing),
        (Fault::Framing(MpaError::Marker.fault()), [0x20, 0x03], Nothing),
        (Fault::Startup(StartupFault::Local), [0x20, 0x05], Nothing),
        (Fault::Startup(StartupFault::InsufficientIrd), [0x20, 0x06], Nothing),
        (Fault::Startup(StartupFault::NoMatchingRtr), [0x20, 0x07], Nothing),
        (Fault::Local("another"), [0x00, 0x00], Nothing),
        // An error of this side, though the peer's request came upon it.
        (Fault::BadAddress { addr: 7, remote: true }, [0x00, 0x00], Nothing),
        (Fault::BadAddress { addr: 7, remote: false }, [0x00, 0x00], Nothing),
    ]
};

/// Which fault the table has to have: a new one does not compile without its row here.
fn rows_of(fault: &Fault) -> usize {
    match fault {
        Fault::Local(_) | Fault::BadAddress { .. } => 2,
        Fault::BadClose => 1,
        Fault::Framing(_) => 3,
        Fault::Startup(_) => 3,
        Fault::Ddp(
            DdpError::Truncated
            | DdpError::TaggedVersion
            | DdpError::UntaggedVersion
            | DdpError::InvalidStag
            | DdpError::Bounds
            | DdpError::NotAssociated
            | DdpError::Wrap
            | DdpError::InvalidQn
            | DdpError::NoBuffer
            | DdpError::MsnRange
            | DdpError::InvalidMo
            | DdpError::TooLong { .. },
        ) => 12,
        Fault::Rdmap(
            RdmapError::Version
            | RdmapError::UnexpectedOpcode(_)
            | RdmapError::Stream(_)
            | RdmapError::Protection(_)
            | RdmapError::Invalidate(_),
        ) => 17,
    }
}

/// Covers: DDP-5041-7.2-01, RDMAP-5040-4.8-01, RDMAP-5040-4.8-02, RDMAP-5040-4.8-03,
/// RDMAP-5040-4.8-04, RDMAP-5040-4.8-05, RDMAP-5040-4.8-06, RDMAP-5040-4.8-07,
/// RDMAP-5040-4.8-08, RDMAP-5040-4.8-09, RDMAP-5040-4.1-09, RDMAP-5040-5.4-01,
/// RDMAP-5040-5.4-02, EMPA-6581-8-01, RDMAP-5040-7.1-03, RDMAP-5040-7.1-04, EXT-7306-8.1-02,
/// MPA-5044-8-05
#[test]
fn every_fault_has_its_terminate() {
    for (fault, ..) in &TABLE {
        let same = |other: &&(Fault, [u8; 2], Quotes)| {
            core::mem::discriminant(fault) == core::mem::discriminant(&other.0)
        };
        assert_eq!(TABLE.iter().filter(same).count(), rows_of(fault), "{fault:?}");
    }
    let request = read_request(1, 4, OPEN, OPEN_BASE);
    let write = tagged(octets::WRITE, true, OPEN, OPEN_BASE, &[1; 100]);
    for (fault, code, quotes) in TABLE {
        for (ulpdu, header, rdma) in [(&request, 18, &request[18..]), (&write, 14, &[][..])] {
            let mut raw = Raw::new();
            let mut qp = raw.end.qp.borrow_mut();
            qp.begin_segment(ulpdu, ulpdu.len(), &mut Vec::new());
            qp.fail(fault);
            drop(qp);
            let expected = match quotes {
                Quotes::Nothing => vec![code[0], code[1], 0, 0],
                Quotes::Ddp => quoting(code, ulpdu.len(), &ulpdu[..header], &[]),
                // Of a Write there is no header to quote.
                Quotes::Both => quoting(code, ulpdu.len(), &ulpdu[..header], rdma),
            };
            assert_eq!(raw.terminate(), expected, "{fault:?}");
            assert_eq!(raw.end.events(), [Event::Fault(fault)]);
            let TerminateCode { layer, etype, code: number } = fault.code();
            assert_eq!([(layer << 4) | etype, number], code);
        }
    }
}

/// Covers: RDMAP-5040-7.1-05, VERBS-hilland-6.4-03
#[test]
fn the_first_fault_decides_the_terminate() {
    let mut raw = Raw::new();
    let first = tagged(octets::WRITE, true, 0xbad, 0, b"x");
    let second = read_request(1, 4, 0xbad, 0);
    let stream = [raw.fpdu(&first), raw.fpdu(&second)].concat();
    raw.end.arrive(&stream);
    raw.end.qp.borrow_mut().fail_locally("later");
    assert_eq!(raw.terminate(), quoting([0x11, 0x00], 15, &first[..14], &[]));
    assert_eq!(raw.end.events().len(), 1);
}

/// Covers: RDMAP-5040-5.4-05, RDMAP-5040-5.4-06, VERBS-hilland-6.2.2.3-02
#[test]
fn corner_54_every_code_of_a_received_terminate_is_taken() {
    for first in 0..=0xff {
        for code in (0..=0x0f).chain([0xfe, 0xff]) {
            let mut raw = Raw::initiator(config(), |_| {});
            raw.send(&octets::terminate(&[first, code, 0, 0]));
            let told = TerminateCode { layer: first >> 4, etype: first & 0xf, code };
            assert_eq!(raw.end.events(), [Event::Terminated(told)]);
            assert_eq!(raw.back().len(), 0);
            assert_eq!(raw.end.disposition(), Disposition::Finish);
        }
    }
}

/// Covers: RDMAP-5040-4.8-05, RDMAP-5040-5.4-10
#[test]
fn corner_50_a_terminate_of_any_length_and_flags_is_taken() {
    let code = TerminateCode { layer: 0, etype: 1, code: 1 };
    let quote = read_request(1, 4, OPEN, OPEN_BASE);
    for flags in 0..8 {
        for len in 0..=80 {
            let mut payload = vec![0x01, 0x01, flags << 5, 0, 0, 46];
            payload.extend(&quote);
            payload.resize(80, 0);
            payload.truncate(len);
            // Reserved bits.
            if let Some(octet) = payload.get_mut(3) {
                *octet = 0xff;
            }
            let mut raw = Raw::initiator(config(), |_| {});
            raw.end.receive(9, &[]);
            raw.send(&octets::terminate(&payload));
            let told = if len < 2 { TerminateCode { layer: 0, etype: 0, code: 0 } } else { code };
            let events = raw.end.events();
            assert_eq!(events[0], Event::Terminated(told), "{flags} {len}");
            assert_eq!(events.len(), 2);
            assert_eq!((raw.back().len(), raw.end.state()), (0, QpState::Err));
        }
    }
    // Far longer than one can be, also where it is not taken as a whole.
    for crc in [true, false] {
        let mut raw = Raw::initiator(config(), |terms| terms.crc = crc);
        let mut payload = vec![0x01; 3000];
        payload[2..4].fill(0);
        let fpdu = raw.fpdu(&octets::terminate(&payload));
        for part in fpdu.chunks(100) {
            raw.end.arrive(part);
        }
        assert_eq!(raw.end.events(), [Event::Terminated(code)]);
        assert_eq!(raw.back().len(), 0);
    }
}

#[test]
fn a_terminate_whose_own_header_is_odd_is_taken_too() {
    let code = TerminateCode { layer: 1, etype: 2, code: 3 };
    for (msn, mo, last) in [(2, 0, true), (0, 0, true), (1, 500, true), (1, 0, false)] {
        let mut raw = Raw::initiator(config(), |_| {});
        raw.send(&octets::untagged(octets::TERMINATE, last, 0, 2, msn, mo, &[0x12, 3, 0, 0]));
        assert_eq!(raw.end.events(), [Event::Terminated(code)]);
        assert_eq!(raw.back().len(), 0);
    }
}

/// The peer may have found the fault before this end learns that the stream took the octets.
#[test]
fn requests_before_the_one_that_a_terminate_names_have_arrived() {
    for acknowledge in [false, true] {
        let mut raw = Raw::initiator(Config { acknowledge, ..config() }, |_| {});
        raw.end.post(1, SEND, &[]);
        raw.end.post(2, write_op(0), &[local(0, 20)]);
        raw.end.post(3, add_op(4, 1), &[local(0, 8)]);
        raw.end.post(4, SEND, &[]);
        raw.end.build();
        let request = octets::untagged(octets::ATOMIC_REQUEST, true, 0, 1, 1, 0, &[]);
        raw.send(&octets::terminate(&quoting([0x02, 0x07], 46, &request[..18], &[])));
        let ended: Vec<_> = raw.end.completions().iter().map(|wc| wc.status).collect();
        let refused = WcStatus::RemoteInvalidRequest;
        assert_eq!(ended, [WcStatus::Success, WcStatus::Success, refused, WcStatus::Flushed]);
    }
}

/// Which work request a Terminate names, and how that ends.
#[test]
fn the_request_that_a_terminate_names_ends_with_what_the_peer_said() {
    let quote = |msn: u32| {
        let mut request = read_request(msn, 4, OPEN, OPEN_BASE);
        request.truncate(46);
        request
    };
    let named = |first: u8, code: u8, ddp: &[u8]| {
        let mut payload = vec![first, code, 0xc0, 0, 0, 46];
        payload.extend(ddp);
        payload
    };
    for (payload, statuses) in [
        (named(0x01, 0x00, &quote(2)[..18]), [WcStatus::Flushed, WcStatus::RemoteAccess]),
        (named(0x01, 0x04, &quote(1)[..18]), [WcStatus::RemoteAccess, WcStatus::Flushed]),
        (named(0x02, 0x06, &quote(1)[..18]), [WcStatus::RemoteInvalidRequest, WcStatus::Flushed]),
        (named(0x02, 0x07, &quote(1)[..18]), [WcStatus::RemoteInvalidRequest, WcStatus::Flushed]),
        (named(0x12, 0x02, &quote(1)[..18]), [WcStatus::RemoteInvalidRequest, WcStatus::Flushed]),
        (named(0x00, 0x00, &quote(1)[..18]), [WcStatus::RemoteOperation, WcStatus::Flushed]),
        // Names none: another message, a number that is not under way, cut short.
        (named(0x01, 0x00, &quote(3)[..18]), [WcStatus::Flushed; 2]),
        (named(0x11, 0x00, &tagged(octets::WRITE, true, 1, 2, &[])), [WcStatus::Flushed; 2]),
        (named(0x12, 0x02, &octets::send(1, &[])), [WcStatus::Flushed; 2]),
        (named(0x01, 0x00, &quote(1)[..17]), [WcStatus::Flushed; 2]),
    ] {
        let mut raw = Raw::initiator(config(), |_| {});
        raw.end.post(1, read_op(0), &[local(0, 8)]);
        raw.end.post(2, add_op(0, 1), &[local(0, 8)]);
        raw.back();
        raw.send(&octets::terminate(&payload));
        let ended: Vec<_> = raw.end.completions().iter().map(|wc| wc.status).collect();
        assert_eq!(ended, statuses, "{payload:02x?}");
    }
}

#[test]
fn a_terminate_reaches_the_program_of_the_peer() {
    for crc in [true, false] {
        for markers in [true, false] {
            let mut pair = Pair::with(config(), |terms| {
                (terms.crc, terms.send_markers, terms.receive_markers) = (crc, markers, markers);
            });
            pair.a.post(1, SEND, &[local(0, 8)]);
            pair.run();
            let fault = Fault::Ddp(DdpError::NoBuffer);
            assert_eq!(pair.b.events(), [Event::Fault(fault)]);
            assert!(pair.a.events().contains(&Event::Terminated(fault.code())));
            assert_eq!(pair.a.disposition(), Disposition::Finish);
            assert_eq!(pair.b.disposition(), Disposition::Finish);
        }
    }
}
