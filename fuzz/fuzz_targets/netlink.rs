// SPDX-License-Identifier: MIT OR Apache-2.0

//! RDMA's netlink: for all messages of programs, nothing panics, each answer is made of whole
//! messages to its requester, and each request has one end at most.
#![no_main]

use arbitrary::Arbitrary;
use iwarp_preload::netlink::numbers::{NLM_F_REQUEST, NLMSG_DONE, RDMA_NL_NLDEV};
use iwarp_preload::netlink::{
    DATAGRAM, Device, Devices, Facts, Listed, Message, OBJECTS, ROW_WORDS, Row, answer, attribute,
};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Input {
    requests: Vec<Request>,
    /// Behind them.
    octets: Vec<u8>,
    /// In the place of the usual description.
    text: Option<Vec<u8>>,
    /// Datagrams that the receiver takes.
    room: u8,
    /// Objects of every device.
    rows: Vec<[u64; ROW_WORDS]>,
}

/// One that begins right.
#[derive(Arbitrary, Debug)]
struct Request {
    command: u8,
    flags: u16,
    numbers: Vec<(u8, u8)>,
}

const TEXT: &[u8] =
    b"tx_bytes rx_bytes\nroce0 roce 1 0.1.0 5 6 7 2 eth0\niwarp0 iw 4 0.1.0 5 6 0\n";
const PORT: u32 = 7;

struct Canned<'a>(Devices<'a>, &'a [[u64; ROW_WORDS]]);

impl Facts for Canned<'_> {
    fn device(&self, index: u32) -> Option<Device<'_>> {
        self.0.device(index)
    }

    fn counter(&self, _: &Device<'_>, _: u32, place: usize) -> Option<(&[u8], u64)> {
        Some((self.0.counter(place)?, place as u64))
    }

    fn objects(&self, device: &Device<'_>) -> [u64; OBJECTS.len()] {
        [device.index.into(); OBJECTS.len()]
    }

    fn each(&self, device: &Device<'_>, visit: &mut dyn FnMut(&Listed) -> bool) {
        let rows = self.1.iter().filter_map(Row::of).zip(1..);
        let of = |(row, number)| Listed { number, process: device.index, users: 1, row };
        let _ = rows.map(of).all(|listed| visit(&listed));
    }
}

fuzz_target!(|input: Input| {
    let mut octets = Vec::new();
    for request in input.requests.iter().take(8) {
        request.write(&mut octets);
    }
    octets.extend(&input.octets);
    let facts = Canned(Devices::new(input.text.as_deref().unwrap_or(TEXT)), &input.rows);
    let (room, mut count, mut ends) = (usize::from(input.room), 0, 0);
    let whole = answer(&octets, PORT, &facts, |datagram| {
        assert!((1..=DATAGRAM).contains(&datagram.len()));
        let mut rest = datagram;
        while let Some((message, behind)) = Message::first(rest) {
            assert_eq!(message.header[12..], PORT.to_ne_bytes());
            ends += usize::from(message.kind <= NLMSG_DONE);
            attribute(message.body, 1);
            rest = behind;
        }
        assert!(rest.is_empty());
        count += 1;
        count <= room
    });
    assert!(whole || count > room);
    assert!(ends <= octets.len() / 16);
});

impl Request {
    fn write(&self, to: &mut Vec<u8>) {
        let length = 16 + 8 * self.numbers.len() as u32;
        to.extend(length.to_ne_bytes());
        to.extend((RDMA_NL_NLDEV << 10 | u16::from(self.command)).to_ne_bytes());
        to.extend((self.flags | NLM_F_REQUEST).to_ne_bytes());
        to.extend([0; 8]);
        for (kind, number) in &self.numbers {
            to.extend(8_u16.to_ne_bytes());
            to.extend(u16::from(*kind).to_ne_bytes());
            to.extend(u32::from(*number).to_ne_bytes());
        }
    }
}
