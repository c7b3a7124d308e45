// SPDX-License-Identifier: MIT OR Apache-2.0

//! Broken processes of the same user, which say what they like to the broker.

use std::net::UdpSocket;
use std::os::fd::AsFd;

use iwarp::port::share::PACKET;
use iwarp_os::unix::SeqSocket;

use crate::common::process::{role, this_test};
use crate::common::sharers::{REQ, Sharer, mad, place, serve};
use crate::common::{pattern, until};

#[test]
fn garbage_neither_stops_nor_fills_the_broker() {
    if role().is_some() {
        return serve();
    }
    let addr = place();
    let mut broker = Sharer::start(this_test!(), addr);
    let mut member = Sharer::start(this_test!(), addr);
    assert_eq!(member.ask("listen 3"), "Granted");
    let before: usize = broker.ask("descriptors").parse().unwrap();
    let user = rustix::process::geteuid().as_raw();
    let name = format!("iwarp-roce/{user}/{addr}").into_bytes();
    let connect = || until("a place to connect", || SeqSocket::connect(&name).ok());
    let mut kept = Vec::new();
    for round in 0..2000 {
        let socket = connect();
        let (other, _) = SeqSocket::pair().unwrap();
        let octets = pattern(4096, round);
        // Every kind of message with something behind it, too long and too short ones, and files.
        let kind = [1, 2, 3, 5, 0x81, 0x84, 0xff][round as usize % 7];
        let message =
            [&[kind][..], &octets[..octets[0] as usize * octets[1] as usize / 16]].concat();
        let hello =
            [&[1, 3, 0, 0][..], &[5, 3, 0, 5, 6], &[5, 3, 0, 64, 6], &[1, 9, 0, 0], &[1, 3, 0]];
        for said in [hello[round as usize % 5], &message, &[], &[2, 0]] {
            let files: &[_] = if round % 3 == 0 { &[other.as_fd(), other.as_fd()] } else { &[] };
            if socket.send(said, files).is_err() {
                break;
            }
        }
        if round % 7 == 0 {
            kept.push(socket);
        }
        if round % 500 == 499 {
            // The others' work goes on, and what the broker holds is bounded.
            let peer = UdpSocket::bind((addr.ip(), 0)).unwrap();
            peer.send_to(&mad(REQ, 3), addr).unwrap();
            assert_eq!(member.mads(1), [(false, REQ, 3)]);
            let now: usize = broker.ask("descriptors").parse().unwrap();
            assert!(now <= before + 64 + 16 + 16, "{now} descriptors, {before} before");
        }
    }
    drop(kept);
    until("the broker to let go", || {
        (broker.ask("descriptors").parse() == Ok(before)).then_some(())
    });
    let mut newcomer = Sharer::start(this_test!(), addr);
    assert_eq!(newcomer.ask("broker"), "false");
    assert_eq!(broker.ask("broker"), "true");
}

/// A member that asks and does not listen to the answers is not read any more, and holds up no
/// other.
#[test]
fn a_member_that_does_not_read_is_not_read() {
    if role().is_some() {
        return serve();
    }
    let addr = place();
    let mut broker = Sharer::start(this_test!(), addr);
    let user = rustix::process::geteuid().as_raw();
    let name = format!("iwarp-roce/{user}/{addr}").into_bytes();
    let deaf = SeqSocket::connect(&name).unwrap();
    deaf.send(&[1, 3, 0, 0], &[]).unwrap();
    let listen = |service: u32| [&[2, 0, 0, 0, 0, 0][..], &service.to_be_bytes()].concat();
    // Until the broker has stopped reading, and both queues are full.
    let mut said = 0;
    let mut full = 0;
    until("the broker to stop reading", || {
        match deaf.send(&listen(said), &[]) {
            Ok(()) => (said, full) = (said + 1, 0),
            Err(_) => {
                full += 1;
                // So that it has had its turn since.
                broker.ask("broker");
            }
        }
        (full == 20).then_some(())
    });
    assert!(said < 5000, "{said} requests were taken");
    let mut member = Sharer::start(this_test!(), addr);
    assert_eq!(member.ask("listen 99999"), "Granted");
    let peer = UdpSocket::bind((addr.ip(), 0)).unwrap();
    // Packets for the deaf one are lost, as in a network; others are not.
    for _ in 0..100 {
        peer.send_to(&mad(REQ, 1), addr).unwrap();
    }
    peer.send_to(&mad(REQ, 99_999), addr).unwrap();
    assert_eq!(member.mads(1), [(false, REQ, 99_999)]);
    // It gets what it has missed, and no more than 1,024 services.
    let mut granted = 0;
    let mut answers = 0;
    until("all answers", || {
        let mut room = [0; PACKET + 64];
        while let Ok(len) = deaf.recv(&mut room) {
            assert_ne!(len, 0, "the broker has closed the connection");
            if room[0] == 0x83 {
                answers += 1;
                granted += u32::from(room[1]);
            }
        }
        (answers == said).then_some(())
    });
    assert_eq!(granted, said.min(1024));
}

/// Packets for QP 1 that are none of the connection manager's go nowhere.
#[test]
fn a_flood_for_qp_1_is_dropped() {
    if role().is_some() {
        return serve();
    }
    let addr = place();
    let mut broker = Sharer::start(this_test!(), addr);
    let peer = UdpSocket::bind((addr.ip(), 0)).unwrap();
    for round in 0..20_000_u64 {
        let mut packet = mad(0x20, round).to_vec();
        match round % 4 {
            0 => packet.truncate(round as usize % 280),
            1 => packet.extend([0; 100]),
            2 => packet[4..8].copy_from_slice(&(round as u32 & 0xff).to_be_bytes()),
            _ => {}
        }
        peer.send_to(&packet, addr).unwrap();
    }
    peer.send_to(&[], addr).unwrap();
    broker.ask("broker");
    until("a message to come through", || {
        peer.send_to(&mad(REQ, 4), addr).unwrap();
        (broker.mads(1) == [(true, REQ, 4)]).then_some(())
    });
}
