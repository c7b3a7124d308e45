// SPDX-License-Identifier: MIT OR Apache-2.0

//! The facts that are known about the program at the other end.

use std::collections::BTreeMap;

use crate::case::Need;

/// The program that answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Peer {
    /// Any: only behaviour in which no program has a say can be seen.
    #[default]
    Any,
    /// rping: as a client it lends memory by its first Send.
    Rping,
    /// A target on any device, `interop/conform_target.c`: lends memory by private data, as a
    /// client by its first Send, answers Sends, and carries out orders.
    Verbs,
    /// This project's target: as [`Self::Verbs`], in user space and with RFC 7306.
    Ours,
}

impl Peer {
    /// The reason why a case with these needs is not for such a peer, with any stack: known before
    /// anything is sent.
    pub fn lacks(self, needs: &[Need]) -> Option<&'static str> {
        needs.iter().find_map(|need| match need {
            _ if self == Self::Ours => None,
            Need::Orders if self != Self::Verbs => Some("this peer carries out no orders"),
            Need::UserSpace => Some("this peer may be a kernel that does not survive it"),
            Need::Extensions => Some("this peer may not answer operations of RFC 7306"),
            _ => None,
        })
    }

    /// The memory that its private data say it lends.
    pub(crate) fn offer_of_data(self, private_data: &[u8]) -> Option<Offer> {
        let says = matches!(self, Self::Verbs | Self::Ours);
        says.then(|| Offer::decode(private_data)).flatten()
    }

    /// True if as a client it says by its first Send what it lends. Some kernels do not survive an
    /// attempt to connect that fails and had private data.
    pub(crate) fn offers_by_send(self) -> bool {
        matches!(self, Self::Rping | Self::Verbs)
    }

    /// The memory that the Send says it lends.
    pub(crate) fn offer_of_send(self, message: &[u8]) -> Option<Offer> {
        if self == Self::Rping { Offer::of_rping(message) } else { Offer::decode(message) }
    }
}

/// The contents of lent memory until a peer writes there: 1 to 251, over and over.
pub fn pattern(len: usize) -> Vec<u8> {
    let period: Vec<u8> = (1..=251).collect();
    let mut bytes = period.repeat(len.div_ceil(period.len()));
    bytes.truncate(len);
    bytes
}

/// Memory that a peer lends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lent {
    /// Its key.
    pub stag: u32,
    /// The tagged offset at which it begins.
    pub to: u64,
    /// Its length in bytes.
    pub len: u32,
}

/// The offer of a target in its private data.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Offer {
    /// Memory by name: `rw`, `ro`, `wo`, `other`.
    pub lent: BTreeMap<String, Lent>,
    /// Receives that are posted.
    pub receives: u32,
    /// Bytes of each.
    pub room: u32,
}

/// The beginning of a target's private data.
const MAGIC: &[u8; 4] = b"icf1";
/// Bytes of one piece of memory there.
const ENTRY: usize = 24;

impl Offer {
    /// The private data.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(self.receives.to_be_bytes());
        bytes.extend(self.room.to_be_bytes());
        for (name, lent) in &self.lent {
            let mut padded = [0; 8];
            let len = name.len().min(8);
            padded[..len].copy_from_slice(&name.as_bytes()[..len]);
            bytes.extend(padded);
            bytes.extend(lent.stag.to_be_bytes());
            bytes.extend(lent.to.to_be_bytes());
            bytes.extend(lent.len.to_be_bytes());
        }
        bytes
    }

    /// The offer in private data; `None` when they are not a target's.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let rest = bytes.strip_prefix(MAGIC)?;
        let word = |bytes: &[u8]| Some(u32::from_be_bytes(bytes.try_into().ok()?));
        let receives = word(rest.get(..4)?)?;
        let room = word(rest.get(4..8)?)?;
        let mut lent = BTreeMap::new();
        for entry in rest[8..].chunks_exact(ENTRY) {
            let name = entry[..8].iter().take_while(|&&byte| byte != 0);
            let name = name.map(|&byte| char::from(byte)).collect();
            let to = u64::from_be_bytes(entry[12..20].try_into().ok()?);
            lent.insert(name, Lent { stag: word(&entry[8..12])?, to, len: word(&entry[20..])? });
        }
        Some(Self { lent, receives, room })
    }

    /// The memory that the first Send of rping's client lends.
    pub fn of_rping(message: &[u8]) -> Option<Self> {
        let bytes: [u8; 16] = message.try_into().ok()?;
        let all = u128::from_be_bytes(bytes);
        let lent = Lent { to: (all >> 64) as u64, stag: (all >> 32) as u32, len: all as u32 };
        Some(Self { lent: BTreeMap::from([("rw".to_owned(), lent)]), ..Self::default() })
    }
}
