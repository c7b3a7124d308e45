// SPDX-License-Identifier: MIT OR Apache-2.0

//! Requests as programs send them, and any others.

mod lists;
mod ports;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use proptest::prelude::*;

use super::numbers::*;
use super::{
    DATAGRAM, Device, Devices, Facts, Id, Listed, Message, OBJECTS, Object, Pair, Row, answer,
    attribute,
};

const TEXT: &[u8] = b"tx_bytes rx_bytes\n\
    roce0 roce 1 0.1.0 1b2c3d 1b2c3c 1221880 2 eth0\n\
    iwarp0 iw 4 0.1.0 5 6 0\n";

const PORT: u32 = 4711;
const SEQUENCE: u32 = 99;

/// The facts of a text, with a counter's port and place as its value, and as many regions of the
/// first device as it says beside other objects.
struct Canned(Devices<'static>, u32);

impl Facts for Canned {
    fn device(&self, index: u32) -> Option<Device<'_>> {
        self.0.device(index)
    }

    fn counter(&self, _: &Device<'_>, port: u32, place: usize) -> Option<(&[u8], u64)> {
        Some((self.0.counter(place)?, u64::from(port) * 10 + place as u64))
    }

    fn objects(&self, device: &Device<'_>) -> [u64; OBJECTS.len()] {
        if device.index == 0 { [0, 1, 2, 3, 4, 5, 6] } else { [0; OBJECTS.len()] }
    }

    fn each(&self, device: &Device<'_>, visit: &mut dyn FnMut(&Listed) -> bool) {
        if device.index != 0 {
            return;
        }
        let regions = (0..self.1).map(|length| Object::Region { length: length.into() });
        let mut all = OTHERS.into_iter().chain(regions).zip(1..).map(|(object, number)| {
            let row = Row { device: 0, context: 1, domain: 2, object };
            Listed { number, process: 300 + number, users: 7, row }
        });
        while all.next().is_some_and(|listed| visit(&listed)) {}
    }
}

/// The objects of the first device, which have the numbers from 1 on.
const OTHERS: [Object; 7] = [
    Object::Context,
    Object::Domain,
    Object::Completions { cqe: 31 },
    Object::SharedReceives,
    Object::Pair(Pair {
        number: 17,
        remote: 18,
        rq_psn: 19,
        sq_psn: 20,
        srq: 4,
        kind: 2,
        state: 3,
        port: 0,
        moved: true,
    }),
    Object::Pair(Pair {
        number: 21,
        remote: 0,
        rq_psn: 0,
        sq_psn: 0,
        srq: 0,
        kind: 4,
        state: 0,
        port: 1,
        moved: false,
    }),
    Object::Id(Id {
        pair: 17,
        space: 0x106,
        kind: 2,
        state: 5,
        port: 1,
        local: Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7174)),
        peer: Some(SocketAddr::new(IpAddr::V6(Ipv6Addr::LOCALHOST), 9)),
    }),
];

fn request(command: u16, flags: u16, numbers: &[(u16, u32)]) -> Vec<u8> {
    let kind = RDMA_NL_NLDEV << 10 | command;
    let length = 16 + 8 * numbers.len() as u32;
    let mut octets = length.to_ne_bytes().to_vec();
    octets.extend([kind, flags | NLM_F_REQUEST].into_iter().flat_map(u16::to_ne_bytes));
    octets.extend([SEQUENCE, 0].into_iter().flat_map(u32::to_ne_bytes));
    for (kind, number) in numbers {
        octets.extend([8, *kind].into_iter().flat_map(u16::to_ne_bytes));
        octets.extend(number.to_ne_bytes());
    }
    octets
}

fn datagrams(requests: &[u8], text: &'static [u8]) -> Vec<Vec<u8>> {
    datagrams_about(requests, &Canned(Devices::new(text), 1))
}

fn datagrams_about(requests: &[u8], facts: &Canned) -> Vec<Vec<u8>> {
    let mut sent = Vec::new();
    let whole = answer(requests, PORT, facts, |octets| {
        sent.push(octets.to_vec());
        true
    });
    assert!(whole);
    sent
}

/// The kinds and bodies of all messages; in them what every answer has is right.
fn messages(datagrams: &[Vec<u8>]) -> Vec<(u16, u16, &[u8])> {
    let mut found = Vec::new();
    for datagram in datagrams {
        assert!((1..=DATAGRAM).contains(&datagram.len()));
        let mut rest = &datagram[..];
        while let Some((message, behind)) = Message::first(rest) {
            assert_eq!(message.header[12..], PORT.to_ne_bytes());
            found.push((message.kind, message.flags, message.body));
            rest = behind;
        }
        assert!(rest.is_empty(), "{rest:?}");
    }
    found
}

fn errno(body: &[u8]) -> i32 {
    -i32::from_ne_bytes(*body.first_chunk().expect("a number"))
}

fn text(body: &[u8], kind: u16) -> &str {
    let octets = attribute(body, kind).unwrap_or_else(|| panic!("no {kind} in {body:?}"));
    let (last, octets) = octets.split_last().expect("a NUL");
    assert_eq!(*last, 0);
    std::str::from_utf8(octets).expect("ASCII")
}

fn u32_of(body: &[u8], kind: u16) -> Option<u32> {
    attribute(body, kind).map(|octets| u32::from_ne_bytes(octets.try_into().expect("four octets")))
}

fn u64_of(body: &[u8], kind: u16) -> Option<u64> {
    attribute(body, kind).map(|octets| u64::from_ne_bytes(octets.try_into().expect("eight octets")))
}

/// The parts of an attribute with attributes of one kind in it.
fn entries(mut list: &[u8]) -> Vec<&[u8]> {
    let mut found = Vec::new();
    while let Some([l0, l1, ..]) = list.first_chunk::<4>() {
        let length = usize::from(u16::from_ne_bytes([*l0, *l1]));
        found.push(&list[4..length]);
        list = &list[length.next_multiple_of(4)..];
    }
    found
}

#[test]
fn all_devices_are_listed() {
    let sent = datagrams(&request(CMD_GET, NLM_F_DUMP | NLM_F_ACK, &[]), TEXT);
    let messages = messages(&sent);
    let [(_, flags, first), (_, _, second), (NLMSG_DONE, NLM_F_MULTI, end)] = messages[..] else {
        panic!("{messages:?}")
    };
    assert_eq!((flags, errno(end)), (NLM_F_MULTI, 0));
    assert_eq!(text(first, ATTR_DEV_NAME), "roce0");
    assert_eq!(text(first, ATTR_DEV_PROTOCOL), "roce");
    assert_eq!(text(first, ATTR_FW_VERSION), "0.1.0");
    assert_eq!(u64_of(first, ATTR_NODE_GUID), Some(0x1b_2c3d));
    assert_eq!(u64_of(first, ATTR_SYS_IMAGE_GUID), Some(0x1b_2c3c));
    assert_eq!(u64_of(first, ATTR_CAP_FLAGS), Some(0x122_1880));
    assert_eq!(attribute(first, ATTR_DEV_NODE_TYPE), Some(&[1][..]));
    assert_eq!(u32_of(first, ATTR_PORT_INDEX), Some(1));
    assert_eq!(text(second, ATTR_DEV_NAME), "iwarp0");
    assert_eq!(u32_of(second, ATTR_DEV_INDEX), Some(1));
}

#[test]
fn a_port_has_its_interface() {
    let numbers = [(ATTR_DEV_INDEX, 0), (ATTR_PORT_INDEX, 1)];
    let sent = datagrams(&request(CMD_PORT_GET, NLM_F_ACK, &numbers), TEXT);
    // Two datagrams, as programs know it.
    assert_eq!(sent.len(), 2);
    let messages = messages(&sent);
    let [(_, 0, port), (NLMSG_ERROR, NLM_F_CAPPED, end)] = messages[..] else {
        panic!("{messages:?}")
    };
    assert_eq!(errno(end), 0);
    assert_eq!(attribute(port, ATTR_PORT_STATE), Some(&[4][..]));
    assert_eq!(attribute(port, ATTR_PORT_PHYS_STATE), Some(&[5][..]));
    assert_eq!((u32_of(port, ATTR_NDEV_INDEX), text(port, ATTR_NDEV_NAME)), (Some(2), "eth0"));
    // One without any.
    let sent = datagrams(&request(CMD_PORT_GET, NLM_F_DUMP, &[(ATTR_DEV_INDEX, 1)]), TEXT);
    let messages = self::messages(&sent);
    assert_eq!(attribute(messages[0].2, ATTR_NDEV_INDEX), None);
    assert_eq!(messages[1].0, NLMSG_DONE);
}

#[test]
fn counters_and_objects_are_told() {
    let numbers = [(ATTR_DEV_INDEX, 1), (ATTR_PORT_INDEX, 1)];
    let sent = datagrams(&request(CMD_STAT_GET, NLM_F_ACK, &numbers), TEXT);
    let table = attribute(messages(&sent)[0].2, ATTR_STAT_HWCOUNTERS).expect("counters");
    let counters: Vec<_> = entries(table)
        .into_iter()
        .map(|entry| {
            let value = u64_of(entry, ATTR_STAT_HWCOUNTER_ENTRY_VALUE);
            (text(entry, ATTR_STAT_HWCOUNTER_ENTRY_NAME), value)
        })
        .collect();
    assert_eq!(counters, [("tx_bytes", Some(10)), ("rx_bytes", Some(11))]);

    let sent = datagrams(&request(CMD_RES_GET, NLM_F_DUMP, &[]), TEXT);
    let messages = messages(&sent);
    assert_eq!(messages.len(), 3);
    let counts = |body| {
        let table = attribute(body, ATTR_RES_SUMMARY).expect("a summary");
        let entry = |entry| {
            let count = u64_of(entry, ATTR_RES_SUMMARY_ENTRY_CURR).expect("a count");
            (text(entry, ATTR_RES_SUMMARY_ENTRY_NAME).to_owned(), count)
        };
        entries(table).into_iter().map(entry).collect::<Vec<_>>()
    };
    let names = ["pd", "cq", "qp", "cm_id", "mr", "ctx", "srq"].map(str::to_owned);
    assert_eq!(counts(messages[0].2), names.into_iter().zip(0..).collect::<Vec<_>>());
    assert_eq!(counts(messages[1].2).iter().map(|(_, count)| count).sum::<u64>(), 0);
}

#[test]
fn the_system_shares_its_devices() {
    let sent = datagrams(&request(CMD_SYS_GET, 0, &[]), TEXT);
    let [(_, 0, body)] = messages(&sent)[..] else { panic!("{sent:?}") };
    assert_eq!(attribute(body, SYS_ATTR_NETNS_MODE), Some(&[1][..]));
    assert_eq!(attribute(body, SYS_ATTR_COPY_ON_FORK), Some(&[1][..]));
}

/// The numbers of errors are Linux's: programs print them.
#[test]
#[allow(clippy::type_complexity, reason = "two tables of cases, nothing else has their types")]
fn requests_without_an_answer_are_errors() {
    let device = (ATTR_DEV_INDEX, 0);
    let port = (ATTR_PORT_INDEX, 1);
    let errors: &[(u16, u16, &[(u16, u32)], i32)] = &[
        // No device, no such device, no such port.
        (CMD_GET, 0, &[], EINVAL),
        (CMD_GET, 0, &[(ATTR_DEV_INDEX, 2)], EINVAL),
        (CMD_PORT_GET, 0, &[device, (ATTR_PORT_INDEX, 2)], EINVAL),
        (CMD_PORT_GET, 0, &[device], EINVAL),
        (CMD_STAT_GET, 0, &[device], EINVAL),
        // Objects.
        (CMD_RES_QP_GET, 0, &[device], EINVAL),
        (CMD_RES_QP_GET, 0, &[device, (ATTR_RES_LQPN, 5)], ENOENT),
        (CMD_STAT_GET, 0, &[device, port, (ATTR_STAT_RES, ATTR_RES_MR.into())], EOPNOTSUPP),
        (CMD_STAT_GET, 0, &[device, port, (ATTR_STAT_RES, 1)], EINVAL),
        // No lists: of the system, of commands that are none.
        (CMD_SYS_GET, NLM_F_DUMP, &[], EINVAL),
        (3, 0, &[device], EOPNOTSUPP),
        (CMD_MONITOR, 0, &[], EOPNOTSUPP),
        (0, 0, &[], EINVAL),
        (8, 0, &[], EINVAL),
        (CMD_MONITOR + 1, 0, &[], EINVAL),
    ];
    for (command, flags, numbers, expected) in errors {
        let request = request(*command, *flags, numbers);
        let sent = datagrams(&request, TEXT);
        let [(NLMSG_ERROR, NLM_F_CAPPED, body)] = messages(&sent)[..] else {
            panic!("{command}: {sent:?}")
        };
        assert_eq!(errno(body), *expected, "{command} {numbers:?}");
        assert_eq!(body[4..], request[..16]);
    }
    // Errors of a list come at its end.
    let lists: &[(u16, &[(u16, u32)], i32)] = &[
        (CMD_PORT_GET, &[], EINVAL),
        (CMD_STAT_GET, &[device], EINVAL),
        (CMD_RES_MR_GET, &[(ATTR_DEV_INDEX, 7)], EINVAL),
        (CMD_RES_CM_ID_GET, &[(ATTR_DEV_INDEX, 1)], 0),
        (CMD_RES_QP_GET, &[(ATTR_DEV_INDEX, 1)], 0),
        (CMD_RES_QP_GET, &[device, (ATTR_PORT_INDEX, 2)], EINVAL),
        (CMD_STAT_GET, &[device, port, (ATTR_STAT_RES, ATTR_RES_QP.into())], 0),
    ];
    for (command, numbers, expected) in lists {
        let sent = datagrams(&request(*command, NLM_F_DUMP, numbers), TEXT);
        let [(NLMSG_DONE, NLM_F_MULTI, body)] = messages(&sent)[..] else {
            panic!("{command}: {sent:?}")
        };
        assert_eq!(errno(body), *expected, "{command} {numbers:?}");
    }
    // Another client, a number of netlink's own, no request.
    let mut other = request(CMD_GET, NLM_F_ACK, &[]);
    other[4..6].copy_from_slice(&(2_u16 << 10).to_ne_bytes());
    assert_eq!(errno(messages(&datagrams(&other, TEXT))[0].2), EINVAL);
    other[4..6].copy_from_slice(&1_u16.to_ne_bytes());
    assert_eq!(errno(messages(&datagrams(&other, TEXT))[0].2), 0);
    other[6..8].fill(0);
    assert!(datagrams(&other, TEXT).is_empty());
}

#[test]
fn requests_in_one_datagram_are_all_answered() {
    let one = request(CMD_SYS_GET, NLM_F_ACK, &[]);
    assert_eq!(messages(&datagrams(&[&one[..], &one].concat(), TEXT)).len(), 4);
    // Half of one is none.
    assert_eq!(messages(&datagrams(&[&one[..], &one[..15]].concat(), TEXT)).len(), 2);
    let mut long = one.clone();
    long[0] = 200;
    assert!(datagrams(&long, TEXT).is_empty());
    let short = [&15_u32.to_ne_bytes()[..], &one[4..]].concat();
    assert!(datagrams(&short, TEXT).is_empty());
}

#[test]
fn an_attribute_that_is_too_short_is_an_error() {
    let mut request = request(CMD_GET, 0, &[(ATTR_DEV_INDEX, 0)]);
    request[16..18].copy_from_slice(&7_u16.to_ne_bytes());
    assert_eq!(errno(messages(&datagrams(&request, TEXT))[0].2), EINVAL);
}

/// More than fits into one datagram; a receiver that takes no more ends it.
#[test]
fn a_long_list_takes_several_datagrams() {
    let mut text = "counter\n".to_owned();
    for place in 0..64 {
        text += &format!("{}{place} roce 1 0.1.0 {:x} {:x} 0 1 lo\n", "x".repeat(60), 1, u64::MAX);
    }
    let text: &'static [u8] = Vec::leak(text.into_bytes());
    let list = request(CMD_GET, NLM_F_DUMP, &[]);
    let sent = datagrams(&list, text);
    assert!(sent.len() > 2, "{}", sent.len());
    let messages = messages(&sent);
    assert_eq!(messages.len(), 65);
    assert!(
        messages
            .iter()
            .enumerate()
            .take(64)
            .all(|(place, (_, _, body))| { u32_of(body, ATTR_DEV_INDEX) == Some(place as u32) })
    );
    let mut count = 0;
    let facts = Canned(Devices::new(text), 0);
    assert!(!answer(&list, PORT, &facts, |_| {
        count += 1;
        count < 2
    }));
    assert_eq!(count, 2);
}

#[test]
fn descriptions_that_are_cut_off_end_the_list() {
    for length in 0..TEXT.len() {
        let devices = Devices::new(&TEXT[..length]);
        let count = TEXT[..length].iter().filter(|octet| **octet == b'\n').count();
        assert_eq!(devices.device(0).is_some(), count > 1, "{length}");
        assert!(devices.device(1).is_none());
    }
    for wrong in ["a\nx roce 1 v zz 1 0\n", "a\nx roce 400 v 1 1 0\n", "a\n\n", "a\nx roce 1\n"] {
        assert_eq!(Devices::new(wrong.as_bytes()).device(0), None, "{wrong}");
    }
}

proptest! {
    #[test]
    fn any_request_gets_an_answer_that_can_be_read(
        command in 0..32_u16,
        flags in any::<u16>(),
        numbers in prop::collection::vec((0..100_u16, 0..3_u32), 0..6),
        patches in prop::collection::vec((16..64_usize, any::<u8>()), 0..4),
    ) {
        let mut octets = request(command, flags, &numbers);
        for (place, octet) in patches {
            if let Some(at) = octets.get_mut(place) {
                *at = octet;
            }
        }
        let sent = datagrams(&octets, TEXT);
        let messages = messages(&sent);
        let ends = messages.iter().filter(|(kind, ..)| [NLMSG_DONE, NLMSG_ERROR].contains(kind));
        let is_last = messages.last().is_some_and(|(kind, ..)| *kind <= NLMSG_DONE);
        // A list always has an end, and one thing where that was asked for or it is not there.
        prop_assert_eq!(ends.count(), usize::from(is_last));
        if flags & (NLM_F_DUMP | NLM_F_ACK) != 0 {
            prop_assert!(is_last);
        }
    }

    #[test]
    fn any_octets_are_answered_or_not(octets in prop::collection::vec(any::<u8>(), 0..200)) {
        messages(&datagrams(&octets, TEXT));
    }

    #[test]
    fn any_text_describes_devices_or_not(
        text in "[ -~\n]{0,200}",
        index in 0..3_u32,
        place in 0..3_usize,
    ) {
        let devices = Devices::new(text.as_bytes());
        if let Some(device) = devices.device(index) {
            prop_assert!(!device.name.is_empty() && device.index == index);
        }
        prop_assert!(devices.counter(place).is_none_or(|name| !name.is_empty()));
    }
}
