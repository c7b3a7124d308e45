// SPDX-License-Identifier: MIT OR Apache-2.0

//! The peer as a client: MPA's initiator.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use iwarp_conform::wire::fpdu::{Deviations, Framer};
use iwarp_conform::wire::segment::{Destination, Kind, LAST, Segment, TAGGED};
use iwarp_conform::wire::startup::{C, M, R, RESERVED, S};
use iwarp_conform::wire::startup::{Depths, Frame, HEADER, Kind as FrameKind, MAX_PRIVATE_DATA};
use socket2::SockRef;

use super::{DEPTH, Fault, PATIENCE, Peer, Quote, is_permissive, offer, regions};

/// Calls a tester again and again, until none listens any more.
pub(crate) fn call(addr: SocketAddr, wrong: &'static str) {
    while let Ok(stream) = TcpStream::connect(addr) {
        call_one(stream, wrong);
    }
}

fn call_one(mut stream: TcpStream, wrong: &'static str) {
    // The tester may leave in any way.
    let _ = stream.set_nodelay(true);
    let _ = stream.set_read_timeout(Some(PATIENCE));
    let request = request(wrong);
    let mut bytes = request.encode();
    if wrong == "speaks before the Reply" {
        bytes.extend(Framer::new(true, false).frame(&nothing(1), Deviations::default()));
    }
    if stream.write_all(&bytes).is_err() {
        return;
    }
    let mut came = Vec::new();
    let Some(reply) = reply(&mut stream, &mut came, wrong) else {
        if wrong == "resets on revision 0" {
            // The tester then gets a reset, in place of a FIN.
            let _ = SockRef::from(&stream).set_linger(Some(Duration::ZERO));
        }
        return;
    };
    let (mut peer, deframer) = Peer::new(stream, wrong, [&request, &reply]);
    let unsaid = |depth: &u16| *depth != 0x3fff;
    let ord = reply.depths().map(|depths| depths.ord).filter(unsaid);
    if ord > Some(DEPTH) && wrong != "takes any ORD" {
        let code = if wrong == "says another code for the depth" { 5 } else { 6 };
        return peer.end(Fault::Is((2, 0, code), Quote::Nothing), &[], came, deframer);
    }
    peer.segment(Kind::Write, Destination::Tagged { stag: 0, to: 0 }, true, &[]);
    peer.attend(came, deframer);
}

/// A Write of nothing.
fn nothing(version: u8) -> Vec<u8> {
    let destination = Destination::Tagged { stag: 0, to: 0 };
    Segment { ddp: TAGGED | LAST | version, rdmap: version << 6, destination, payload: Vec::new() }
        .encode()
}

fn request(wrong: &str) -> Frame {
    let mut flags = C | S;
    let mut revision = 2;
    match wrong {
        "asks for markers" | "asks for markers as a client" => flags |= M,
        "asks with R" => flags |= R,
        "asks with reserved bits" => flags |= 1,
        "asks for revision 3" => revision = 3,
        "asks for revision 0" => revision = 0,
        "asks for depths in revision 1" => revision = 1,
        _ => {}
    }
    let said = wrong == "names frames to begin with";
    let mut data =
        Depths { b: said, c: said, d: said, ird: DEPTH, ord: DEPTH, a: false }.encode().to_vec();
    data.extend(offer(&regions()).encode());
    if wrong == "has no room for its depths" {
        data.truncate(2);
    }
    let key = match wrong {
        "asks with the wrong key" => FrameKind::Reply,
        _ => FrameKind::Request,
    };
    let mut frame = Frame::new(key, flags, revision, data);
    if wrong == "asks with too great a length" {
        frame.length = 600;
    }
    frame
}

/// Takes the Reply, if it is one that it can live with.
fn reply(stream: &mut TcpStream, came: &mut Vec<u8>, wrong: &str) -> Option<Frame> {
    let mut piece = [0; 4096];
    loop {
        if let Some(header) = came.get(..HEADER) {
            let length = usize::from(u16::from_be_bytes([header[18], header[19]]));
            if length > MAX_PRIVATE_DATA && wrong != "takes any Reply's length" {
                return None;
            }
        }
        if let Some(frame) = Frame::decode(came) {
            came.drain(..frame.size());
            let rev = frame.revision;
            let is_reply = frame.key == *FrameKind::Reply.key();
            let is_request = frame.key == *FrameKind::Request.key();
            let good = (is_reply
                || is_request && wrong == "takes a Request for a Reply"
                || !is_request && wrong == "takes any Reply's key")
                && ((1..=2).contains(&rev) || is_permissive(wrong) || wrong == "takes revision 0")
                && (frame.flags & R == 0 || wrong == "goes on when it is rejected")
                && (frame.flags & RESERVED == 0 || wrong != "checks a Reply's reserved bits")
                && (frame.length < 500 || wrong != "has no room for private data")
                && (frame.depths().is_none_or(|depths| depths.ird != 0x3fff)
                    || wrong != "wants depths");
            return good.then_some(frame);
        }
        match stream.read(&mut piece) {
            Ok(len) if len > 0 => came.extend(&piece[..len]),
            Ok(_) if wrong == "stays when a Reply ends inside" => std::thread::sleep(PATIENCE),
            _ => return None,
        }
        if wrong == "wants the Reply at once" && Frame::decode(came).is_none() {
            return None;
        }
    }
}
