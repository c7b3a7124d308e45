// SPDX-License-Identifier: MIT OR Apache-2.0

//! A stranger that floods a queue pair and its host over UDP with packets that are wrong in every
//! way, while the queue pair works.

use std::convert::Infallible;
use std::fs;
use std::net::{IpAddr, Ipv6Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use iwarp::{AddressVector, Device};
use iwarp_roce::wire::{
    Aeth, Bth, Burst, Deth, Header, Message, Numbering, Path, Position, Psn, Reth, SendTail,
    Syndrome, Transport,
};
use iwarp_types::Digest;

use crate::common::process::{passed_apart, this_test};
use crate::common::{DEADLINE, until};
use crate::rc::{end, exchange, join, options};

const IP: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);
const PORT: u16 = 4791;
/// Far from what a queue pair expects, and from what it will.
const FAR: u32 = 0x40_0000;
const PER_BURST: u32 = 16;
/// Memory that allocators keep for themselves.
const SLACK_KIB: u64 = 4 << 10;

/// A queue pair that is flooded, and memory that it grants to its peer.
#[derive(Clone, Copy)]
struct Victim {
    number: u32,
    psn: u32,
    granted: Reth,
}

/// The fault of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wrong {
    Checksum,
    QueuePair,
    Ahead,
    Behind,
    StaleAcknowledgement,
    StaleNak,
    /// A management datagram that asks for a service that no program offers.
    Service,
    Octets,
}

impl Wrong {
    const ALL: [Self; 8] = [
        Self::Checksum,
        Self::QueuePair,
        Self::Ahead,
        Self::Behind,
        Self::StaleAcknowledgement,
        Self::StaleNak,
        Self::Service,
        Self::Octets,
    ];

    fn header(self, victim: &Victim, number: u32) -> Header {
        let Victim { number: qp, psn, granted } = *victim;
        let behind = psn.wrapping_sub(FAR + number % 0x1_0000);
        let (qp, psn) = match self {
            Self::QueuePair => ((qp & 0xff_ff00) | ((qp + 1 + number % 200) & 0xff), psn),
            Self::Ahead => (qp, psn + FAR + number % 0x1_0000),
            Self::Service => (1, 0),
            _ => (qp, behind),
        };
        let mut bth = Bth::new(qp, Psn::new(psn));
        bth.ack_req = true;
        let aeth = |syndrome| Aeth { syndrome, msn: number & 0xff_ffff };
        let code = iwarp_roce::wire::NakCode::RemoteAccess;
        let message = match self {
            Self::StaleAcknowledgement => Message::Acknowledge(aeth(Syndrome::ACK)),
            Self::StaleNak => Message::Acknowledge(aeth(Syndrome::Nak(code))),
            Self::Service => Message::Send { position: Position::Only, tail: SendTail::Plain },
            _ => Message::WriteBegin { only: true, reth: granted, immediate: None },
        };
        let is_datagram = self == Self::Service;
        Header {
            bth,
            transport: if is_datagram { Transport::Ud } else { Transport::Rc },
            deth: is_datagram.then_some(Deth { qkey: 0x8001_0000, source_qp: 1 }),
            message,
        }
    }

    fn payload(self, number: u32) -> Vec<u8> {
        match self {
            Self::StaleAcknowledgement | Self::StaleNak => Vec::new(),
            Self::Service => {
                let mut req = vec![0; 256];
                req[..4].copy_from_slice(&[1, 7, 2, 3]);
                req[8..12].copy_from_slice(&number.to_be_bytes());
                req[17] = 0x10;
                req[24..28].copy_from_slice(&number.to_be_bytes());
                req[32..40].copy_from_slice(&[0, 0, 0, 0, 1, 6, 0x7f, 0xff]);
                req
            }
            _ => vec![0xee; 64],
        }
    }
}

/// Sends bursts of one kind until told to stop; each has its own stranger.
fn flood(wrong: Wrong, victim: &Victim, stop: &AtomicBool, sent: &AtomicU64) {
    let socket = UdpSocket::bind((IP, 0)).unwrap();
    let path = Path::new(AddressVector::new(IP, IP), socket.local_addr().unwrap().port());
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) {
        let mut burst = Burst::new(Numbering::Zero, 1 << 16);
        for _ in 0..PER_BURST {
            number += 1;
            let payload = wrong.payload(number);
            let fill = |out: &mut [u8], digest: &mut Digest| {
                out.copy_from_slice(&payload);
                digest.update(out);
                Ok::<(), Infallible>(())
            };
            burst.push(&path, &wrong.header(victim, number), payload.len(), fill).unwrap();
        }
        for (_, octets) in burst.packets() {
            let mut octets = octets.to_vec();
            match wrong {
                Wrong::Checksum => *octets.last_mut().unwrap() ^= 0x55,
                Wrong::Octets => {
                    let keep = number as usize % octets.len();
                    octets.truncate(keep);
                    octets.fill(number as u8);
                }
                _ => {}
            }
            // A packet that does not fit is lost.
            let _ = socket.send_to(&octets, (IP, PORT));
        }
        sent.fetch_add(PER_BURST.into(), Ordering::Relaxed);
    }
}

/// Memory in KiB, and descriptors.
fn held() -> (u64, usize) {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let kib = line.split_whitespace().next().unwrap().parse().unwrap();
    (kib, fs::read_dir("/proc/self/fd").unwrap().count())
}

/// Ungranted data are not placed, nothing is kept, and the queue pair goes on.
///
/// Covers: ROCE-003, ROCE-031
#[test]
fn a_queue_pair_survives_floods_of_strangers_and_keeps_nothing() {
    // It measures the process.
    if passed_apart(this_test!(), DEADLINE * 3) {
        return;
    }
    let device = Device::with_options(options()).unwrap();
    let ends = [end(&device, IP), end(&device, IP)];
    join(&ends, |way| way.retry_count(7));
    let [one, other] = &ends;
    let untouched = other.region(64);
    let granted = Reth { va: untouched.base(), rkey: untouched.rkey(), length: 64 };
    let victim = Victim { number: other.qp.number(), psn: one.qp.psn(), granted };
    let flooded = |wrong| {
        let (stop, sent) = (AtomicBool::new(false), AtomicU64::new(0));
        thread::scope(|scope| {
            scope.spawn(|| flood(wrong, &victim, &stop, &sent));
            let begun = Instant::now();
            until("a flood", || (sent.load(Ordering::Relaxed) > 1000).then_some(()));
            exchange(&ends, &[1, 3000, 20_000]);
            assert!(begun.elapsed() < DEADLINE, "{wrong:?}");
            stop.store(true, Ordering::Relaxed);
        });
        let mut octets = [1; 64];
        untouched.buffer().unwrap().read_at(0, &mut octets);
        assert_eq!(octets, [0; 64], "{wrong:?}");
    };
    // Everything is there once that is made when it is first needed.
    Wrong::ALL.into_iter().for_each(flooded);
    let (kib, files) = held();
    for _ in 0..2 {
        Wrong::ALL.into_iter().for_each(flooded);
    }
    let (kib_after, files_after) = held();
    assert!(files_after <= files, "{files} descriptors became {files_after}");
    assert!(kib_after <= kib + SLACK_KIB, "{kib} KiB became {kib_after}");
    assert_eq!(device.poll_async_event().unwrap(), None);
}
