// SPDX-License-Identifier: MIT OR Apache-2.0

//! The original's octets, by name: `data/vectors.csv`.

use std::net::{IpAddr, SocketAddr};

use iwarp_sockets::wire::{
    ByteOrder, ConnData, Control, Entry, Extensions, IomapEntry, IomapSize, MAX_UD_HEADER_LEN,
    MAX_UDP_HEADER_LEN, Message, UdHeader, UdpHeader, UdpOp,
};

use crate::support::rows;

fn vector(name: &str) -> Vec<u8> {
    let rows = rows("vectors.csv");
    let row = rows.iter().find(|row| row[0] == name).unwrap_or_else(|| panic!("no {name}"));
    hex::decode(&row[1]).unwrap()
}

fn array<const N: usize>(name: &str) -> [u8; N] {
    vector(name).try_into().unwrap()
}

/// Each row has a test here.
///
/// Covers: RS-TEST-05
#[test]
fn every_vector_is_looked_at() {
    let source = include_str!("vectors.rs");
    for row in rows("vectors.csv") {
        // That one is the connection manager's, and this one has no octets.
        if row[0] != "mpa_private_data_head" && row[0] != "keepalive" {
            assert!(source.contains(&format!("\"{}\"", row[0])), "{}", row[0]);
        }
    }
}

/// Covers: RS-WIRE-02, RS-WIRE-03, RS-WIRE-04, RS-TEST-05
#[test]
fn vector_conn_data() {
    let entry = |addr, key, length| Entry { addr, key, length };
    for (name, sgl, ring) in [
        (
            "conn_data_request",
            entry(0x55cb_b81f_3000, 0x275f_a237, 2),
            entry(0x55cb_b81f_5000, 0x2b27_87c1, 8192),
        ),
        (
            "conn_data_reply",
            entry(0x7f0b_2000_b000, 0x71f9_f194, 2),
            entry(0x7f0b_2000_d000, 0x68a3_ada8, 8192),
        ),
    ] {
        let data = ConnData {
            order: ByteOrder::Little,
            credits: 16,
            extensions: Extensions::empty(),
            iomap: Some(IomapSize::covering(4)),
            sgl,
            ring,
        };
        assert_eq!(ConnData::read(&vector(name)), Ok(data), "{name}");
        assert_eq!(data.write()[..], vector(name), "{name}");
    }
}

/// Covers: RS-MSG-01, RS-MSG-03, RS-TEST-05
#[test]
fn vector_msg_iwarp() {
    for (name, message) in [
        ("msg_iwarp_data_5", Message::Data(5)),
        ("msg_iwarp_data_2048", Message::Data(2048)),
        ("msg_iwarp_credits_16", Message::Credits(16)),
        ("msg_iwarp_credits_21", Message::Credits(21)),
        ("msg_iwarp_iomap_0", Message::Iomap(0)),
        ("msg_iwarp_shutdown", Message::Control(Control::Shutdown)),
        ("msg_iwarp_disconnect", Message::Control(Control::Disconnect)),
    ] {
        assert_eq!(Message::from_send(array(name), ByteOrder::Little), Ok(message), "{name}");
        assert_eq!(message.to_send(ByteOrder::Little)[..], vector(name), "{name}");
    }
}

/// Covers: RS-MSG-01, RS-MSG-02, RS-TEST-05
#[test]
fn vector_msg_imm() {
    for (name, message) in [
        ("msg_imm_data_5", Message::Data(5)),
        ("msg_imm_credits_16", Message::Credits(16)),
        ("msg_imm_iomap_0", Message::Iomap(0)),
    ] {
        assert_eq!(Message::from_immediate(array(name)), Ok(message), "{name}");
        assert_eq!(message.to_immediate()[..], vector(name), "{name}");
    }
}

/// Covers: RS-MSG-07, RS-TEST-05
#[test]
fn vector_entry_writes() {
    let entry = Entry { addr: 0x55cb_b81f_7000, key: 0x2b27_87c1, length: 8192 };
    assert_eq!(Entry::read(&array("sgl_entry_write"), ByteOrder::Little), entry);
    assert_eq!(entry.write(ByteOrder::Little)[..], vector("sgl_entry_write"));
    let entry =
        IomapEntry { offset: 0x1000, addr: 0x5607_9449_6000, key: 0x37e3_fbc9, length: 4096 };
    assert_eq!(IomapEntry::read(&array("iomap_entry_write"), ByteOrder::Little), entry);
    assert_eq!(entry.write(ByteOrder::Little)[..], vector("iomap_entry_write"));
}

/// Covers: RS-DG-02, RS-TEST-05
#[test]
fn vector_dg_udp() {
    let addr = IpAddr::from([10, 9, 0, 1]);
    for (name, op, qpn) in [
        ("dg_udp_data_header", UdpOp::Data, 0xdd_f3ec),
        ("dg_udp_control_header", UdpOp::Control, 0x74_cb82),
    ] {
        let header = UdpHeader { op, qpn, addr };
        assert_eq!(UdpHeader::read(&vector(name)), Ok((header, &[][..])), "{name}");
        let mut octets = [0; MAX_UDP_HEADER_LEN];
        let len = header.write(&mut octets);
        assert_eq!(octets[..len], vector(name), "{name}");
    }
}

/// Covers: RS-DG-04, RS-TEST-05
#[test]
fn vector_dg_ud() {
    let header = UdHeader { source: SocketAddr::from(([10, 9, 0, 1], 52_590)) };
    assert_eq!(UdHeader::read(&vector("dg_ud_header")), Ok((header, &[][..])));
    let mut octets = [0; MAX_UD_HEADER_LEN];
    let len = header.write(&mut octets);
    assert_eq!(octets[..len], vector("dg_ud_header"));
}
