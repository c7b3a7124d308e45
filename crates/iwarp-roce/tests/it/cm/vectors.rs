// SPDX-License-Identifier: MIT OR Apache-2.0

//! The messages that rxe and Linux's connection manager sent, one by one.

use std::net::IpAddr;

use iwarp_roce::cm::message::{CMA_HEADER_LEN, CmaHeader, Message, PathRecord, gid};
use iwarp_roce::cm::{MAD_LEN, Mad, Malformed, gsi_header, gsi_payload};
use iwarp_roce::wire::{Packet, Psn};
use serde_json::{Map, Value, json};

const VECTORS: &str = include_str!("../../data/vectors.json");

/// Each message of the connection manager in the vectors: its frame from IP on, and what is known
/// of it.
fn vectors() -> Vec<(Vec<u8>, Value)> {
    let all: Value = serde_json::from_str(VECTORS).unwrap();
    let vectors = all["vectors"].as_array().unwrap();
    let frame = |vector: &Value| hex::decode(vector["frame"].as_str().unwrap()).unwrap();
    vectors.iter().filter_map(|vector| Some((frame(vector), vector.get("cm")?.clone()))).collect()
}

/// The management datagram at the end of a frame, ahead of the ICRC.
fn datagram(frame: &[u8]) -> &[u8] {
    &frame[frame.len() - 4 - MAD_LEN..frame.len() - 4]
}

/// A message, in the words of the vectors.
fn described(mad: &Mad) -> Value {
    let id = |id: u32| json!(format!("{id:08x}"));
    let mut told = Map::new();
    let mut tell = |name: &str, value: Value| told.insert(name.to_owned(), value);
    tell(
        "mad",
        json!({
            "base_version": 1, "mgmt_class": 7, "class_version": 2, "method": 3, "status": 0,
            "tid": format!("{:016x}", mad.tid), "modifier": mad.modifier,
            "attribute": format!("{:04x}", mad.message.attribute()),
        }),
    );
    match &mad.message {
        Message::Req(req) => {
            tell("message", json!("REQ"));
            tell("local_comm_id", id(req.local_comm_id));
            tell("service_id", json!(format!("{:016x}", req.service_id.0)));
            tell("local_ca_guid", json!(format!("{:016x}", req.local_ca_guid)));
            tell("local_qpn", json!(req.local_qpn));
            tell("responder_resources", json!(req.responder_resources));
            tell("initiator_depth", json!(req.initiator_depth));
            tell("remote_cm_response_timeout", json!(req.remote_response_timeout.code()));
            tell("transport_service_type", json!(req.transport as u8));
            tell("end_to_end_flow_control", json!(u8::from(req.flow_control)));
            tell("starting_psn", json!(req.starting_psn.number()));
            tell("local_cm_response_timeout", json!(req.local_response_timeout.code()));
            tell("retry_count", json!(req.retry_count));
            tell("pkey", json!(req.pkey.0));
            tell("path_mtu", json!(req.mtu));
            tell("rdc_exists", json!(u8::from(req.rdc_exists)));
            tell("rnr_retry_count", json!(req.rnr_retry));
            tell("max_cm_retries", json!(req.max_cm_retries));
            tell("srq", json!(u8::from(req.srq)));
            tell("extended_transport", json!(req.extended_transport));
            let path = &req.primary;
            tell("primary_local_lid", json!(path.local_lid));
            tell("primary_remote_lid", json!(path.remote_lid));
            tell("primary_local_gid", json!(hex::encode(path.local_gid)));
            tell("primary_remote_gid", json!(hex::encode(path.remote_gid)));
            tell("flow_label", json!(path.flow_label));
            tell("packet_rate", json!(path.packet_rate));
            tell("traffic_class", json!(path.traffic_class));
            tell("hop_limit", json!(path.hop_limit));
            tell("sl", json!(path.service_level));
            tell("subnet_local", json!(u8::from(path.subnet_local)));
            tell("local_ack_timeout", json!(path.local_ack_timeout.code()));
            tell("private_data", json!(hex::encode(req.private_data)));
            tell("cma", cma(&req.private_data));
            assert_eq!(req.alternate, PathRecord::default());
        }
        Message::Rep(rep) => {
            tell("message", json!("REP"));
            tell("local_comm_id", id(rep.local_comm_id));
            tell("remote_comm_id", id(rep.remote_comm_id));
            tell("local_qkey", json!(rep.local_qkey));
            tell("local_qpn", json!(rep.local_qpn));
            tell("starting_psn", json!(rep.starting_psn.number()));
            tell("responder_resources", json!(rep.responder_resources));
            tell("initiator_depth", json!(rep.initiator_depth));
            tell("target_ack_delay", json!(rep.target_ack_delay.code()));
            tell("failover_accepted", json!(rep.failover_accepted));
            tell("end_to_end_flow_control", json!(u8::from(rep.flow_control)));
            tell("rnr_retry_count", json!(rep.rnr_retry));
            tell("srq", json!(u8::from(rep.srq)));
            tell("local_ca_guid", json!(format!("{:016x}", rep.local_ca_guid)));
            tell("private_data", json!(""));
        }
        Message::Rtu(rtu) => {
            tell("message", json!("RTU"));
            tell("local_comm_id", id(rtu.local_comm_id));
            tell("remote_comm_id", id(rtu.remote_comm_id));
        }
        Message::Dreq(dreq) => {
            tell("message", json!("DREQ"));
            tell("local_comm_id", id(dreq.local_comm_id));
            tell("remote_comm_id", id(dreq.remote_comm_id));
            tell("remote_qpn", json!(dreq.remote_qpn));
        }
        Message::Drep(drep) => {
            tell("message", json!("DREP"));
            tell("local_comm_id", id(drep.local_comm_id));
            tell("remote_comm_id", id(drep.remote_comm_id));
        }
        Message::Rej(rej) => {
            tell("message", json!("REJ"));
            tell("local_comm_id", id(rej.local_comm_id));
            tell("remote_comm_id", id(rej.remote_comm_id));
            tell("message_rejected", json!(rej.rejected as u8));
            tell("info_length", json!(rej.info_len));
            tell("reason", json!(rej.reason.code()));
        }
        Message::SidrReq(req) => {
            tell("message", json!("SIDR_REQ"));
            tell("request_id", id(req.request_id));
            tell("pkey", json!(req.pkey.0));
            tell("service_id", json!(format!("{:016x}", req.service_id.0)));
            tell("cma", cma(&req.private_data));
        }
        Message::SidrRep(rep) => {
            tell("message", json!("SIDR_REP"));
            tell("request_id", id(rep.request_id));
            tell("status", json!(rep.status.code()));
            tell("qpn", json!(rep.qpn));
            tell("service_id", json!(format!("{:016x}", rep.service_id.0)));
            tell("qkey", json!(format!("{:08x}", rep.qkey)));
        }
        other => panic!("not in the vectors: {other:?}"),
    }
    Value::Object(told)
}

fn cma(private_data: &[u8]) -> Value {
    let header = CmaHeader::read(private_data).unwrap();
    assert_eq!(header.write(), private_data[..CMA_HEADER_LEN]);
    let v4 = header.source.is_ipv4();
    // IPv4 addresses lie in the last four octets, the others are 0.
    let octets = |address: IpAddr| match address {
        IpAddr::V4(_) => format!("{:0>32}", hex::encode(&gid(address)[12..])),
        IpAddr::V6(address) => hex::encode(address.octets()),
    };
    json!({
        "version": 0, "ip_version": if v4 { 4 } else { 6 }, "src_port": header.source_port,
        "src": octets(header.source), "dst": octets(header.destination),
    })
}

/// Covers: ROCE-144, ROCE-146, ROCE-150
#[test]
fn every_message_is_read_and_built_as_it_was() {
    let vectors = vectors();
    assert_eq!(vectors.len(), 18);
    for (frame, expected) in vectors {
        let octets = datagram(&frame);
        let mad = Mad::parse(octets).unwrap();
        assert_eq!(described(&mad), expected);
        assert_eq!(mad.write(), octets);
    }
}

/// Covers: ROCE-144, ROCE-145
#[test]
fn the_packets_around_them_are_those_of_queue_pair_1() {
    for (frame, _) in vectors() {
        let headers = if frame[0] >> 4 == 4 { 28 } else { 48 };
        let packet = Packet::parse(&frame[headers..frame.len() - 4]).unwrap();
        assert_eq!(gsi_payload(&packet).unwrap()[..], *datagram(&frame));
        let mut own = gsi_header(packet.header.bth.psn);
        assert!(!own.bth.ack_req, "rxe alone asks for acknowledgements there");
        own.bth.ack_req = true;
        own.bth.migrated = packet.header.bth.migrated;
        assert_eq!(own, packet.header);
        let payload = packet.payload;
        let refused = |change: &dyn Fn(&mut Packet<'_>)| {
            let mut packet = Packet { header: gsi_header(Psn::new(1)), payload };
            assert!(gsi_payload(&packet).is_some());
            change(&mut packet);
            assert_eq!(gsi_payload(&packet), None);
        };
        refused(&|packet| packet.header.deth.as_mut().unwrap().qkey = 0x1234_5678);
        refused(&|packet| packet.header.deth.as_mut().unwrap().source_qp = 2);
        refused(&|packet| packet.header.deth = None);
        refused(&|packet| packet.header.bth.dest_qp = 17);
        refused(&|packet| packet.payload = &packet.payload[1..]);
    }
}

/// Covers: ROCE-145
#[test]
fn other_datagrams_are_none_of_ours() {
    let (frame, _) = vectors().swap_remove(0);
    let good = datagram(&frame);
    let changed = |at: usize, octet: u8| {
        let mut octets = good.to_vec();
        octets[at] = octet;
        Mad::parse(&octets)
    };
    assert_eq!(changed(0, 2), Err(Malformed::BaseVersion));
    assert_eq!(changed(1, 3), Err(Malformed::Class));
    assert_eq!(changed(2, 1), Err(Malformed::ClassVersion));
    assert_eq!(changed(3, 0x81), Err(Malformed::Method));
    assert_eq!(changed(17, 0x0f), Err(Malformed::Attribute));
    assert_eq!(changed(17, 0x1b), Err(Malformed::Attribute));
    assert_eq!(changed(16, 1), Err(Malformed::Attribute));
    assert_eq!(Mad::parse(&good[..255]), Err(Malformed::Length));
    assert_eq!(Mad::parse(&[good, &[0]].concat()), Err(Malformed::Length));
    assert_eq!(Mad::parse(&[]), Err(Malformed::Length));
    // Status and reserved fields are not looked at.
    assert!(changed(5, 1).is_ok() && changed(7, 1).is_ok() && changed(19, 1).is_ok());
}
