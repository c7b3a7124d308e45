// SPDX-License-Identifier: MIT OR Apache-2.0

//! Start-up: no octets from the peer panic either end; a frame received in pieces gives the result
//! of the whole one; the parameters that two ends of any configuration agree on fit together.
#![no_main]

use std::time::Duration;

use arbitrary::Arbitrary;
use iwarp_proto::mpa::startup::{Config, Initiator, Responder, RtrTypes};
use iwarp_types::Time;
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Input {
    initiator: End,
    responder: End,
    /// Begin with the right key, so that not all time goes into finding it.
    with_key: bool,
    octets: Vec<u8>,
}

#[derive(Arbitrary, Debug)]
struct End {
    rev: u8,
    crc: bool,
    markers: bool,
    ird: u16,
    ord: u16,
    spare: bool,
    peer_to_peer: bool,
    rtr: (bool, bool, bool),
    private_data: Vec<u8>,
}

impl End {
    fn config(&self) -> Config {
        let (send, write, read) = self.rtr;
        Config {
            rev: self.rev % 4,
            crc: self.crc,
            markers: self.markers,
            // Mostly numbers, sometimes 0x3fff, sometimes beyond.
            ird: self.ird & 0x7fff,
            ord: self.ord & 0x7fff,
            spare: u16::from(self.spare),
            peer_to_peer: self.peer_to_peer,
            rtr: RtrTypes { send, write, read },
            timeout: Duration::from_secs(1),
        }
    }
}

const NOW: Time = Time(Duration::ZERO);

fuzz_target!(|input: Input| {
    arbitrary_request(&input);
    arbitrary_reply(&input);
    two_ends(&input);
});

fn frame(key: &[u8], input: &Input) -> Vec<u8> {
    let key = if input.with_key { key } else { &[] };
    [key, &input.octets].concat()
}

fn arbitrary_request(input: &Input) {
    let frame = frame(b"MPA ID Req Frame", input);
    let end = &input.responder;
    let mut whole = Responder::new(end.config(), NOW);
    let expected = whole.receive(&frame);
    let mut pieces = Responder::new(end.config(), NOW);
    let taken = in_pieces(&frame, |octets| pieces.receive(octets));
    // A Request that ends before the octets do is malformed, but in pieces it was seen first.
    match taken {
        Some((at, Ok(_))) if at < frame.len() => assert!(expected.is_err()),
        Some((_, result)) => assert_eq!(result.map(Some), expected),
        None => assert_eq!(expected, Ok(None)),
    }
    if let Ok(Some((request, consumed))) = expected {
        assert_eq!(consumed, frame.len());
        assert!(request.private_data.len() <= if request.enhanced { 508 } else { 512 });
        let _ = whole.accept(end.ird, end.ord, &end.private_data);
        let _ = whole.reject(&end.private_data);
    }
}

fn arbitrary_reply(input: &Input) {
    let frame = frame(b"MPA ID Rep Frame", input);
    let end = &input.initiator;
    let Ok(initiator) = Initiator::new(end.config(), &end.private_data, NOW) else { return };
    let expected = initiator.clone().receive(&frame);
    let mut pieces = initiator;
    match in_pieces(&frame, |octets| pieces.receive(octets)) {
        // It does not matter what follows a Reply.
        Some((_, result)) => assert_eq!(result.map(Some), expected),
        None => assert_eq!(expected, Ok(None)),
    }
}

/// Hands over one octet more each time, until there is a result; with it, how many it took.
fn in_pieces<T, E>(
    octets: &[u8],
    mut receive: impl FnMut(&[u8]) -> Result<Option<T>, E>,
) -> Option<(usize, Result<T, E>)> {
    (0..=octets.len()).find_map(|len| match receive(&octets[..len]) {
        Ok(None) => None,
        Ok(Some(result)) => Some((len, Ok(result))),
        Err(error) => Some((len, Err(error))),
    })
}

fn two_ends(input: &Input) {
    let (a, b) = (&input.initiator, &input.responder);
    let Ok(mut initiator) = Initiator::new(a.config(), &a.private_data, NOW) else { return };
    let mut responder = Responder::new(b.config(), NOW);
    let Ok(Some((request, _))) = responder.receive(initiator.request()) else { return };
    assert_eq!(request.private_data, a.private_data);
    let Ok((reply, theirs)) = responder.accept(b.ird, b.ord, &b.private_data) else { return };
    let Ok(received) = initiator.receive(&reply) else { return };
    let (reply, _) = received.expect("a whole Reply");
    assert!(reply.accepted);
    assert_eq!(reply.private_data, b.private_data);
    let ours = reply.negotiated;
    assert_eq!((ours.crc, ours.enhanced), (theirs.crc, theirs.enhanced));
    assert_eq!(ours.crc, a.crc || b.crc);
    assert_eq!((ours.send_markers, ours.receive_markers), (b.markers, a.markers));
    assert_eq!((theirs.send_markers, theirs.receive_markers), (a.markers, b.markers));
    let number = |depth: u16| depth < 0x3fff;
    if ours.enhanced && ours.fault.is_none() {
        let fits = |ord: u16, ird: u16| !number(ord) || !number(ird) || ord <= ird;
        assert!(fits(ours.outbound(), theirs.inbound()));
        assert!(fits(theirs.outbound(), ours.inbound()));
    }
}
