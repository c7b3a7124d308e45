// SPDX-License-Identifier: MIT OR Apache-2.0

//! The way past TCP that a responder offers within a host.

use super::octets::{self, tagged};
use super::*;
use crate::qp::{Capabilities, Offer, PeerIsLocal};

const HELLO_STAG: u32 = 0x6957_4152;
const HELLO_TO: u64 = 0x5048_454c_0100_0000;
const NAME_STAG: u32 = 0x6957_4c4e;
const SECRET_STAG: u32 = 0x6957_4c53;
const DECLINE_STAG: u32 = 0x6957_4c44;
const OFFER: Offer = Offer { name: 0x1234_5678_9abc_def0, secret: 7 };

fn empty_write(stag: u32, to: u64) -> Vec<u8> {
    tagged(octets::WRITE, true, stag, to, &[])
}

fn hello(capabilities: Capabilities) -> Vec<u8> {
    empty_write(HELLO_STAG, HELLO_TO | u64::from(capabilities.bits()))
}

/// An end that would move, whose peer has said this.
fn raw(tells: Capabilities, peer: Capabilities) -> Raw {
    let config = Config { extensions: Extensions::Ask, tells, ..config() };
    let mut raw = Raw::initiator(config, |_| {});
    assert_eq!(raw.back(), [hello(Capabilities::OURS.union(tells))]);
    assert_eq!(raw.end.qp.borrow().peer_is_local(), PeerIsLocal::Unknown);
    raw.send(&hello(Capabilities::OURS.union(peer)));
    raw
}

#[test]
fn the_hello_frame_says_that_an_end_would_move() {
    for (peer, is_local) in [
        (Capabilities::LOCAL, PeerIsLocal::Willing),
        (Capabilities::empty(), PeerIsLocal::Unwilling),
    ] {
        let raw = raw(Capabilities::LOCAL, peer);
        assert_eq!(raw.end.qp.borrow().peer_is_local(), is_local);
    }
}

#[test]
fn an_offer_goes_out_in_two_frames_in_front_of_other_messages() {
    let mut raw = raw(Capabilities::LOCAL, Capabilities::LOCAL);
    raw.end.qp.borrow_mut().offer(OFFER);
    raw.end.post(1, SEND, &[]);
    let offer = [(NAME_STAG, OFFER.name), (SECRET_STAG, OFFER.secret)];
    let frames = offer.map(|(stag, to)| empty_write(stag, to));
    assert_eq!(raw.back()[..2], frames);
    assert_eq!(raw.back().len(), 0, "it goes out once");
}

#[test]
fn an_offer_is_heard_once_both_halves_have_come() {
    let mut raw = raw(Capabilities::LOCAL, Capabilities::LOCAL);
    raw.send(&empty_write(SECRET_STAG, OFFER.secret));
    assert_eq!(raw.end.qp.borrow().heard_offer(), None);
    raw.send(&empty_write(NAME_STAG, OFFER.name));
    assert_eq!(raw.end.qp.borrow().heard_offer(), Some(OFFER));
}

#[test]
fn an_end_that_declines_says_why_once() {
    let mut raw = raw(Capabilities::LOCAL, Capabilities::LOCAL);
    raw.end.qp.borrow_mut().decline(9);
    raw.end.post(1, SEND, &[]);
    assert_eq!(raw.back()[0], empty_write(DECLINE_STAG, 9));
    assert_eq!(raw.back().len(), 0, "it goes out once");
    assert_eq!(raw.end.qp.borrow().heard_decline(), None);
    raw.send(&empty_write(DECLINE_STAG, 5));
    assert_eq!(raw.end.qp.borrow().heard_decline(), Some(5));
}

#[test]
fn a_peer_that_says_other_than_hello_is_foreign() {
    let config = Config { extensions: Extensions::Ask, tells: Capabilities::LOCAL, ..config() };
    let mut raw = Raw::initiator(config, |_| {});
    raw.send(&empty_write(NAME_STAG ^ 1, 0));
    assert_eq!(raw.end.qp.borrow().peer_is_local(), PeerIsLocal::Foreign);
}

#[test]
fn an_end_that_stays_takes_an_offer_for_empty_writes() {
    let mut raw = raw(Capabilities::empty(), Capabilities::LOCAL);
    raw.send(&empty_write(NAME_STAG, OFFER.name));
    raw.send(&empty_write(SECRET_STAG, OFFER.secret));
    assert_eq!(raw.end.qp.borrow().heard_offer(), None);
    assert!(raw.end.qp.borrow().is_connected());
}

#[test]
fn an_empty_write_of_a_program_is_not_sent_as_an_offer() {
    let mut raw = raw(Capabilities::LOCAL, Capabilities::LOCAL);
    for stag in [NAME_STAG, SECRET_STAG, DECLINE_STAG] {
        raw.end.post(1, SendOp::Write { stag: Stag(stag), to: TaggedOffset(9) }, &[]);
        let back = raw.back();
        assert_eq!(back.len(), 1);
        assert_ne!(back[0], empty_write(stag, 9));
    }
}
