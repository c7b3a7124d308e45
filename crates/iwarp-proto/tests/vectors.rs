// SPDX-License-Identifier: MIT OR Apache-2.0

//! Recorded octets: `data/vectors.json` and `data/pcap`, which a separate encoder made from the
//! text of the RFCs.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::{Path, PathBuf};

use etherparse::{SlicedPacket, TransportSlice};
use iwarp_proto::framing::{Deframe as _, Frame as _};
use iwarp_proto::mpa::marker;
use iwarp_proto::mpa::rx::Deframer;
use iwarp_proto::mpa::startup::{Config, Initiator, Responder, RtrTypes};
use iwarp_proto::mpa::tx::Framer;
use iwarp_proto::mpa::wire::{Frame, FrameKind, mulpdu};
use iwarp_types::Time;
use pcap_file::pcap::PcapReader;
use serde_json::Value;

fn data(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(path)
}

fn vectors() -> serde_json::Map<String, Value> {
    let text = std::fs::read_to_string(data("vectors.json")).unwrap();
    match serde_json::from_str(&text).unwrap() {
        Value::Object(map) => map,
        other => panic!("not an object: {other}"),
    }
}

fn octets(value: &Value) -> Vec<u8> {
    hex::decode(value.as_str().unwrap()).unwrap()
}

/// All ULPDUs of a stream that must end with an FPDU.
fn deframe(crc: bool, markers: bool, stream: &[u8]) -> Vec<Vec<u8>> {
    let mut deframer = Deframer::new(crc, markers);
    let mut rest = stream.to_vec();
    let mut ulpdus = Vec::new();
    while !rest.is_empty() {
        let fpdu = deframer.next(&mut rest).unwrap().expect("a whole FPDU");
        ulpdus.push(rest[fpdu.start..fpdu.start + fpdu.len].to_vec());
        rest.drain(..fpdu.consumed);
    }
    assert_eq!(deframer.position(), stream.len() as u64);
    ulpdus
}

fn frame(crc: bool, markers: bool, ulpdus: &[Vec<u8>]) -> Vec<u8> {
    let mut framer = Framer::new(crc, markers);
    let mut stream = Vec::new();
    for ulpdu in ulpdus {
        let from = stream.len();
        stream.resize(from + framer.frame_len(ulpdu.len()), 0xee);
        let (header, payload) = ulpdu.split_at(14);
        let fill = |offset: usize, dst: &mut [u8], crc: Option<&mut _>| {
            dst.copy_from_slice(&payload[offset..offset + dst.len()]);
            if let Some(crc) = crc {
                iwarp_types::Digest::update(crc, dst);
            }
            Ok::<_, Infallible>(())
        };
        framer.write(&mut stream[from..], header, payload.len(), fill).unwrap();
    }
    stream
}

/// Covers: MPA-5044-4.1-01, MPA-5044-4.4-01, MPA-5044-4.4-11, MPA-5044-4.4-12, MPA-5044-4.4-13
#[test]
fn every_message_is_framed_and_deframed_with_and_without_markers() {
    let vectors = vectors();
    let ulpdu_of = |octets: &[u8], at: usize| {
        let len = usize::from(u16::from_be_bytes([octets[at], octets[at + 1]]));
        octets[at + 2..at + 2 + len].to_vec()
    };
    let mut seen = [0, 0];
    for (name, value) in &vectors {
        let markers = match name.split('_').next().unwrap() {
            "nomk" => false,
            "mk" => true,
            _ => continue,
        };
        seen[usize::from(markers)] += 1;
        let stream = octets(value);
        let ulpdus = deframe(true, markers, &stream);
        assert_eq!(ulpdus, [ulpdu_of(&stream, if markers { 4 } else { 0 })], "{name}");
        assert_eq!(frame(true, markers, &ulpdus), stream, "{name}");
    }
    assert_eq!(seen, [22, 22]);

    // The figures of RFC 5044: the first FPDU of a stream, and one behind 492 octets.
    let figure = octets(&vectors["rfc5044_fig5"]);
    let ulpdu = ulpdu_of(&figure, 4);
    assert_eq!(frame(true, true, std::slice::from_ref(&ulpdu)), figure);
    assert_eq!(deframe(true, true, &figure), [ulpdu]);
    let figure = octets(&vectors["rfc5044_fig6"]);
    let mut ulpdu = vec![0; 42];
    (ulpdu[0], ulpdu[1], ulpdu[13]) = (0x41, 0x43, 2);
    let ulpdus = [vec![0; 482], ulpdu];
    let stream = frame(true, true, &ulpdus);
    assert_eq!(stream[492..], figure);
    assert_eq!(deframe(true, true, &stream), ulpdus);
}

/// Covers: MPA-5044-4.2-01, MPA-5044-4.3-02, MPA-5044-4.3-03, MPA-5044-4.3-05,
/// MPA-5044-4.3-08, MPA-5044-4.3-10
#[test]
fn every_stream_has_its_markers_where_they_belong() {
    let mut seen = 0;
    for (name, value) in vectors() {
        if !name.starts_with("stream_") {
            continue;
        }
        seen += 1;
        let stream = octets(&value["octets"]);
        let ulpdus = deframe(true, true, &stream);
        assert_eq!(ulpdus.len(), 2, "{name}");
        let framed = frame(true, true, &ulpdus);
        assert_eq!(framed, stream, "{name}");

        let expected: Vec<(usize, usize)> =
            serde_json::from_value(value["markers_pos_ptr"].clone()).unwrap();
        let found: Vec<(usize, usize)> = (0..framed.len())
            .step_by(512)
            .map(|at| (at, marker::decode(*framed[at..].first_chunk().unwrap())))
            .collect();
        assert_eq!(found, expected, "{name}");
    }
    assert_eq!(seen, 5);
}

/// Covers: MPA-5044-4.5-01, MPA-5044-4.5-02
#[test]
fn mulpdu_is_that_of_the_table() {
    let vectors = vectors();
    let table = vectors["mulpdu"].as_object().unwrap();
    assert_eq!(table.len(), 16);
    for (emss, row) in table {
        let emss = emss.parse().unwrap();
        for (column, markers) in [("no_markers", false), ("markers", true)] {
            let expected = row[column].as_u64().unwrap() as usize;
            assert_eq!(mulpdu(emss, markers), expected, "{emss} {column}");
        }
    }
}

/// Covers: MPA-5044-7.1.1-01, MPA-5044-7.1.1-03, MPA-5044-7.1.1-11, MPA-5044-7.1.1-12,
/// MPA-5044-7.1.1-16, EMPA-6581-9-01
#[test]
fn every_startup_frame_is_made_and_read() {
    let vectors = vectors();
    let vector = |name: &str| octets(&vectors[name]);
    let now = Time::default();
    let request = |config, private_data: &[u8]| {
        Initiator::new(config, private_data, now).unwrap().request().to_vec()
    };
    let rev1 = Config { rev: 1, ..Config::default() };
    let marked = Config { markers: true, ..rev1 };
    let enhanced = Config { ird: 4, ord: 5, peer_to_peer: true, ..Config::default() };
    let by_ulp = Config { ird: 0x3fff, ord: 0x3fff, ..Config::default() };
    assert_eq!(request(rev1, b""), vector("mpa_req_rev1_crc"));
    assert_eq!(request(marked, b"abc"), vector("mpa_req_rev1_mark_crc_pd"));
    assert_eq!(request(enhanced, b""), vector("mpa_req_rev2_p2p_all_rtr_ird4_ord5"));
    assert_eq!(request(by_ulp, b""), vector("mpa_req_rev2_client_server_ird3fff_ord3fff"));

    let responder = |config, name: &str| {
        let mut responder = Responder::new(config, now);
        responder.receive(&vector(name)).unwrap().unwrap();
        responder
    };
    let plain = responder(rev1, "mpa_req_rev1_crc");
    assert_eq!(plain.accept(0, 0, b"").unwrap().0, vector("mpa_rep_rev1_crc"));
    assert_eq!(plain.reject(b"no").unwrap(), vector("mpa_rep_rev1_reject"));
    let siw = Config { rtr: RtrTypes { send: false, ..RtrTypes::ALL }, ..Config::default() };
    let peer = responder(siw, "mpa_req_rev2_p2p_all_rtr_ird4_ord5");
    let reply = peer.accept(5, 4, b"").unwrap().0;
    assert_eq!(reply, vector("mpa_rep_rev2_p2p_write_read_ird5_ord4"));

    let mut seen = 0;
    for name in vectors.keys().filter(|name| name.starts_with("mpa_")) {
        seen += 1;
        let kind = if name.starts_with("mpa_req") { FrameKind::Request } else { FrameKind::Reply };
        let octets = vector(name);
        let (frame, consumed) = Frame::parse(kind, 2, &octets).unwrap().unwrap();
        assert_eq!(consumed, octets.len(), "{name}");
        assert_eq!(frame.encode().unwrap(), octets, "{name}");
    }
    assert_eq!(seen, 7);
}

/// The payload of both directions of the one TCP connection in a capture, by source port, and
/// the number of segments that carried some.
fn tcp_payload(path: &Path) -> BTreeMap<u16, (Vec<u8>, usize)> {
    let mut reader = PcapReader::new(std::fs::File::open(path).unwrap()).unwrap();
    let mut streams: BTreeMap<u16, (Vec<u8>, usize)> = BTreeMap::new();
    let mut next_seq: BTreeMap<u16, u32> = BTreeMap::new();
    while let Some(packet) = reader.next_packet() {
        let packet = packet.unwrap();
        let sliced = SlicedPacket::from_ethernet(&packet.data).unwrap();
        let Some(TransportSlice::Tcp(tcp)) = sliced.transport else { panic!("not TCP") };
        let port = tcp.source_port();
        if tcp.syn() {
            next_seq.insert(port, tcp.sequence_number().wrapping_add(1));
            continue;
        }
        if tcp.payload().is_empty() {
            continue;
        }
        let expected = next_seq.get_mut(&port).unwrap();
        assert_eq!(tcp.sequence_number(), *expected, "capture without gaps");
        *expected = expected.wrapping_add(tcp.payload().len() as u32);
        let (stream, segments) = streams.entry(port).or_default();
        stream.extend_from_slice(tcp.payload());
        *segments += 1;
    }
    streams
}

/// Each capture has one frame or FPDU in a segment.
///
/// Covers: MPA-5044-4.3-07, MPA-5044-4.4-11, MPA-5044-7.1-05
#[test]
fn every_capture_is_taken_apart_and_put_together_again() {
    let mut fpdus = BTreeMap::new();
    for entry in std::fs::read_dir(data("pcap")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let streams = tcp_payload(&path);
        let (from_initiator, request_and_fpdus) = &streams[&40000];
        let (from_responder, reply_and_fpdus) = &streams[&5445];

        let parsed = Frame::parse(FrameKind::Request, 2, from_initiator).unwrap().unwrap();
        let (request, request_len) = parsed;
        let (_, reply_len) = Frame::parse(FrameKind::Reply, 2, from_responder).unwrap().unwrap();

        // The Initiator of the capture, as our configuration.
        let mut config = Config {
            rev: request.rev,
            crc: request.crc,
            markers: request.markers,
            ..Config::default()
        };
        if let Some(word) = request.enhanced {
            config.peer_to_peer = word.peer_to_peer;
            (config.ird, config.ord) = (word.ird, word.ord);
        }
        let mut initiator = Initiator::new(config, request.private_data, Time::default()).unwrap();
        assert_eq!(initiator.request(), &from_initiator[..request_len], "{name}");
        let (reply, _) = initiator.receive(&from_responder[..reply_len]).unwrap().unwrap();
        assert!(reply.accepted, "{name}");
        let negotiated = reply.negotiated;
        assert_eq!(negotiated.fault, None, "{name}");
        let markers = name != "ref_nomarkers";
        assert_eq!((negotiated.send_markers, negotiated.receive_markers), (markers, markers));

        let sent = deframe(negotiated.crc, negotiated.send_markers, &from_initiator[request_len..]);
        assert_eq!(sent.len(), request_and_fpdus - 1, "{name}");
        let received =
            deframe(negotiated.crc, negotiated.receive_markers, &from_responder[reply_len..]);
        assert_eq!(received.len(), reply_and_fpdus - 1, "{name}");
        assert_eq!(frame(negotiated.crc, markers, &sent), from_initiator[request_len..], "{name}");
        assert_eq!(frame(negotiated.crc, markers, &received), from_responder[reply_len..]);
        fpdus.insert(name, (sent, received));
    }
    assert_eq!(fpdus.len(), 8);
    assert_eq!((fpdus["ref_markers"].0.len(), fpdus["ref_markers"].1.len()), (13, 4));
    assert_eq!(fpdus["ref_markers"], fpdus["ref_nomarkers"], "markers change no ULPDU");
}
