// SPDX-License-Identifier: MIT OR Apache-2.0

//! A packet's fields by the names of `data/vectors.json`.

use std::net::IpAddr;

use iwarp_roce::wire::{AtomicEth, AtomicKind, Header, Message, Packet, Reth, SendTail, padding};
use serde_json::{Map, Value, json};

use crate::frame::Frame;

/// The values of the IP and UDP headers, but for the checksum, which the ICRC does not cover.
pub(crate) fn of_headers(frame: &Frame) -> Map<String, Value> {
    let address = &frame.path.address;
    let mut ip = json!({
        "src": address.source.to_string(),
        "dst": address.destination.to_string(),
        "id": frame.id.number,
        "df": u8::from(!frame.id.may_fragment),
    });
    let more = match address.source {
        IpAddr::V4(_) => json!({
            "v": 4, "tos": address.traffic_class, "ttl": address.hop_limit,
        }),
        IpAddr::V6(_) => json!({
            "v": 6, "tc": address.traffic_class, "hop": address.hop_limit,
            "fl": address.flow_label,
        }),
    };
    ip.as_object_mut().unwrap().extend(object(more));
    let udp = json!({
        "sport": frame.path.source_port,
        "dport": frame.path.destination_port,
        "length": 8 + frame.datagram.len(),
    });
    object(json!({ "ip": ip, "udp": udp }))
}

/// The message of the packet.
pub(crate) fn of_packet(packet: &Packet<'_>) -> Map<String, Value> {
    let header = &packet.header;
    let mut octets = [0; Header::MAX_LEN];
    header.write(packet.payload.len(), &mut octets);
    let bth = &header.bth;
    let mut fields = object(json!({
        "bth": {
            "opcode": hex::encode([octets[0]]),
            "se": u8::from(bth.solicited),
            "mig": u8::from(bth.migrated),
            "pad": padding(packet.payload.len()),
            "tver": octets[1] & 0xf,
            "pkey": format!("{:04x}", bth.pkey.0),
            "fecn": u8::from(bth.fecn),
            "becn": u8::from(bth.becn),
            "dest_qp": bth.dest_qp,
            "ackreq": u8::from(bth.ack_req),
            "psn": bth.psn.number(),
        },
        "payload_len": packet.payload.len(),
    }));
    if let Some(deth) = header.deth {
        let deth = json!({ "qkey": format!("{:08x}", deth.qkey), "srcqp": deth.source_qp });
        fields.insert("deth".into(), deth);
    }
    // No other header is between the BTH and an AETH.
    let aeth = |msn: u32| json!({ "syndrome": hex::encode([octets[12]]), "msn": msn });
    fields.extend(object(match header.message {
        Message::Send { tail: SendTail::Plain, .. }
        | Message::WriteMore { immediate: None, .. }
        | Message::ReadResponse { aeth: None, .. } => json!({}),
        Message::Send { tail: SendTail::Immediate(data), .. }
        | Message::WriteMore { immediate: Some(data), .. } => json!({ "immdt": hex::encode(data) }),
        Message::Send { tail: SendTail::Invalidate(rkey), .. } => {
            json!({ "ieth": format!("{:08x}", rkey.0) })
        }
        Message::WriteBegin { reth, immediate: Some(data), .. } => {
            json!({ "reth": of_reth(&reth), "immdt": hex::encode(data) })
        }
        Message::WriteBegin { reth, immediate: None, .. } | Message::ReadRequest(reth) => {
            json!({ "reth": of_reth(&reth) })
        }
        Message::Acknowledge(it) | Message::ReadResponse { aeth: Some(it), .. } => {
            json!({ "aeth": aeth(it.msn) })
        }
        Message::AtomicAcknowledge { aeth: it, original } => {
            json!({ "aeth": aeth(it.msn), "atomicack": format!("{original:016x}") })
        }
        Message::Atomic(eth) => json!({ "atomiceth": of_atomic(&eth) }),
    }));
    fields
}

fn of_reth(reth: &Reth) -> Value {
    json!({
        "va": format!("{:016x}", reth.va.0),
        "rkey": format!("{:08x}", reth.rkey.0),
        "length": reth.length,
    })
}

/// A fetch and add has no value to compare with; the field is ignored.
fn of_atomic(eth: &AtomicEth) -> Value {
    let (first, compare) = match eth.kind {
        AtomicKind::CompareSwap { compare, swap } => (swap, Some(compare)),
        AtomicKind::FetchAdd { add } => (add, None),
    };
    let mut value = json!({
        "va": format!("{:016x}", eth.va.0),
        "rkey": format!("{:08x}", eth.rkey.0),
        "swap_add": format!("{first:016x}"),
    });
    if let Some(compare) = compare {
        value["compare"] = format!("{compare:016x}").into();
    }
    value
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        other => panic!("not an object: {other}"),
    }
}

/// Asserts that each field of `found` is in `expected`, with its value.
#[track_caller]
pub(crate) fn agree(found: &Map<String, Value>, expected: &Value, what: &str) {
    for (name, value) in found {
        match value {
            Value::Object(map) => agree(map, &expected[name], what),
            value => assert_eq!(*value, expected[name], "{what}: {name}"),
        }
    }
}
