// SPDX-License-Identifier: MIT OR Apache-2.0

//! The way in which two ends of this project recognise each other, without a trace in programs'
//! private data (ROCE-172).
//!
//! REQ and REP name a vendor; the modifier of the management datagram holds its options (ECE,
//! enhanced connection establishment). Ours are:
//!
//! | Bits of the modifier | |
//! |---|---|
//! | 31-28 | 1, the version of this table; other versions are not understood |
//! | 27-26 | 1 in a REQ, 2 in a REP |
//! | 25-24 | 0, not looked at |
//! | 23-16 | flags: 1 = no ICRC is needed between ends on one host |
//! | 15-0 | UDP port on which the sender takes RoCE packets of its own kind; 0: only 4791 |
//!
//! Linux sends vendor and modifier of a REQ back in its REP if its program sets none, so an
//! initiator believes a REP only if it says 2: an echo says 1. A REQ with another vendor is
//! answered with vendor 0 and modifier 0, one of our vendor with our own options.
//!
//! The port on which the sender takes iWARP over TCP is in the upper half of the Q_Key field of the
//! REQ and REP, and its complement in the lower half. RC and UC give that field no meaning, Linux
//! sends 0 and looks at neither: with 0, or any other value that does not fit, the end does not
//! speak iWARP. The port is that of its process, on the source address of the message.
//!
//! An older or foreign peer ignores all of it.

use crate::wire::PORT;

/// The vendor: "iwR" as 24 bits, which no manufacturer has.
pub const VENDOR_ID: u32 = 0x69_7752;

const VERSION: u32 = 1;
const VERSION_SHIFT: u32 = 28;
const ROLE_SHIFT: u32 = 26;
const ROLE: u32 = 0b11;
const FLAGS_SHIFT: u32 = 16;
const NO_ICRC: u32 = 1;

/// The facts that an end of our own kind tells about itself.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct OwnKind {
    /// UDP port on which it takes packets of its own kind besides 4791.
    pub udp_port: Option<u16>,
    /// TCP port on which it takes iWARP.
    pub tcp_port: Option<u16>,
    /// Between two ends on one host that both say so, packets need no ICRC.
    pub no_icrc: bool,
}

/// The message that tells it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    Request = 1,
    Reply = 2,
}

/// The fields of a REQ or REP that tell it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Told {
    pub(super) vendor_id: u32,
    pub(super) options: u32,
    pub(super) qkey: u32,
}

impl OwnKind {
    pub(super) fn tell(self, role: Role) -> Told {
        let port = |port: Option<u16>| port.map_or(0, u32::from);
        let flags = if self.no_icrc { NO_ICRC } else { 0 };
        let tcp = port(self.tcp_port);
        Told {
            vendor_id: VENDOR_ID,
            options: VERSION << VERSION_SHIFT
                | (role as u32) << ROLE_SHIFT
                | flags << FLAGS_SHIFT
                | port(self.udp_port),
            qkey: if tcp == 0 { 0 } else { tcp << 16 | (!tcp & 0xffff) },
        }
    }

    pub(super) fn read(told: Told, role: Role) -> Option<Self> {
        let Told { vendor_id, options, qkey } = told;
        let ours = vendor_id == VENDOR_ID
            && options >> VERSION_SHIFT == VERSION
            && options >> ROLE_SHIFT & ROLE == role as u32;
        if !ours {
            return None;
        }
        let port = |number: u32| Some(number as u16).filter(|port| *port != 0);
        let tcp = qkey >> 16;
        Some(Self {
            udp_port: port(options & 0xffff).filter(|port| *port != PORT),
            tcp_port: if qkey & 0xffff == !tcp & 0xffff { port(tcp) } else { None },
            no_icrc: options >> FLAGS_SHIFT & NO_ICRC != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{OwnKind, Role, Told, VENDOR_ID};

    proptest! {
        /// Covers: ROCE-172
        #[test]
        fn an_echo_is_not_an_answer(udp: u16, tcp: u16, no_icrc: bool) {
            let port = |port: u16| Some(port).filter(|port| ![0, 4791].contains(port));
            let own = OwnKind { udp_port: port(udp), tcp_port: port(tcp), no_icrc };
            for (role, other) in [(Role::Request, Role::Reply), (Role::Reply, Role::Request)] {
                let told = own.tell(role);
                prop_assert_eq!(OwnKind::read(told, role), Some(own));
                prop_assert_eq!(OwnKind::read(told, other), None);
                let foreign = Told { vendor_id: VENDOR_ID ^ 1, ..told };
                prop_assert_eq!(OwnKind::read(foreign, role), None);
                let later = Told { options: told.options ^ 3 << 28, ..told };
                prop_assert_eq!(OwnKind::read(later, role), None);
            }
        }

        #[test]
        fn strange_options_do_no_harm(vendor_id in 0u32..1 << 24, options: u32, qkey: u32) {
            for vendor_id in [vendor_id, VENDOR_ID] {
                for role in [Role::Request, Role::Reply] {
                    let own = OwnKind::read(Told { vendor_id, options, qkey }, role);
                    prop_assert!(own.is_none_or(|own| own.udp_port != Some(0)));
                }
            }
        }
    }
}
