// SPDX-License-Identifier: MIT OR Apache-2.0

//! The member that a packet for QP 1 is meant for.
//!
//! A message that opens something names a service id, and goes to the process that listens there.
//! Every other message names one of our communication ids, whose upper bits are the slot of the
//! process that drew it. Only these fields are looked at: the process that gets the packet verifies
//! its ICRC, and judges it.

use iwarp_os::slots::Layout;
use iwarp_types::CommIds;

/// Bytes of a packet with a MAD: BTH 12, DETH 8, MAD 256, ICRC 4.
pub const PACKET: usize = 280;

const OPCODE: usize = 0;
const DESTINATION: usize = 5;
const CLASS: usize = MAD + 1;
const ATTRIBUTE: usize = MAD + 16;
/// The MAD begins behind BTH and DETH.
const MAD: usize = 20;
/// The message of the connection manager begins behind the MAD's header.
const BODY: usize = MAD + 24;

const UD_SEND_ONLY: u8 = 0x64;
const COMMUNICATION_MANAGEMENT: u8 = 7;

const REQ: u16 = 0x10;
const MRA: u16 = 0x11;
const REJ: u16 = 0x12;
const REP: u16 = 0x13;
const RTU: u16 = 0x14;
const DREQ: u16 = 0x15;
const DREP: u16 = 0x16;
const SIDR_REQ: u16 = 0x17;
const SIDR_REP: u16 = 0x18;
const LAP: u16 = 0x19;
const APR: u16 = 0x1a;

/// The destination of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Route {
    /// To the process that listens for this service id.
    Service(u64),
    /// To the process whose communication id this is.
    Connection(u32),
}

/// The destination of this packet; `None` if it has no message of the connection manager.
pub(super) fn route(packet: &[u8; PACKET]) -> Option<Route> {
    let to_gsi = packet[DESTINATION..DESTINATION + 3] == [0, 0, 1];
    if packet[OPCODE] != UD_SEND_ONLY || !to_gsi || packet[CLASS] != COMMUNICATION_MANAGEMENT {
        return None;
    }
    let word = |at: usize| Some(u32::from_be_bytes(*packet.get(at..)?.first_chunk()?));
    let service = |at: usize| Some(u64::from_be_bytes(*packet.get(at..)?.first_chunk()?));
    let attribute = u16::from_be_bytes([packet[ATTRIBUTE], packet[ATTRIBUTE + 1]]);
    Some(match attribute {
        REQ | SIDR_REQ => Route::Service(service(BODY + 8)?),
        // Our Request ID comes back in the first place.
        SIDR_REP => Route::Connection(word(BODY)?),
        MRA | REJ | REP | RTU | DREQ | DREP | LAP | APR => Route::Connection(word(BODY + 4)?),
        _ => return None,
    })
}

/// The slot of the process that drew this communication id: that of the queue pair number which its
/// upper bits are.
pub(super) fn slot_of(id: u32, layout: Layout) -> u16 {
    layout.slot_of(id >> 8)
}

/// The communication ids of the process that has the slot.
pub(super) fn ids_of(slot: u16, layout: Layout) -> CommIds {
    let (first, below) = layout.range(slot);
    CommIds { first: first << 8, free_bits: below + 8 }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A packet with a message whose first 16 bytes are `body`.
    pub(in super::super) fn packet(attribute: u16, body: [u8; 16]) -> [u8; PACKET] {
        let mut packet = [0; PACKET];
        packet[OPCODE] = UD_SEND_ONLY;
        packet[DESTINATION + 2] = 1;
        packet[MAD] = 1;
        packet[CLASS] = COMMUNICATION_MANAGEMENT;
        packet[ATTRIBUTE..ATTRIBUTE + 2].copy_from_slice(&attribute.to_be_bytes());
        packet[BODY..BODY + 16].copy_from_slice(&body);
        packet
    }

    const WORDS: [u8; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

    /// Covers: ROCE-151
    #[test]
    fn messages_go_by_service_or_by_our_own_id() {
        let service = Some(Route::Service(0x0809_0a0b_0c0d_0e0f));
        for attribute in 0..=0x20 {
            let expected = match attribute {
                0x10 | 0x17 => service,
                0x18 => Some(Route::Connection(0x0001_0203)),
                0x11..=0x1a => Some(Route::Connection(0x0405_0607)),
                _ => None,
            };
            assert_eq!(route(&packet(attribute, WORDS)), expected, "{attribute:#x}");
        }
    }

    #[test]
    fn other_packets_go_nowhere() {
        let good = packet(REP, WORDS);
        for (place, value) in [(OPCODE, 0x65), (DESTINATION + 2, 2), (DESTINATION, 1), (CLASS, 4)] {
            let mut packet = good;
            packet[place] = value;
            assert_eq!(route(&packet), None, "{place}");
        }
    }

    proptest! {
        #[test]
        fn an_id_says_whose_it_is(slot in 0_u16..2000, random: u32, wide: bool) {
            let layout = if wide { Layout::new(6, 48) } else { Layout::new(4, 16) };
            let slot = slot % layout.slots();
            prop_assert_eq!(slot_of(ids_of(slot, layout).id(random), layout), slot);
        }
    }
}
