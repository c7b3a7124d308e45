// SPDX-License-Identifier: MIT OR Apache-2.0

//! Knowing whether the peer has the operations of RFC 7306, and those of our own.
//!
//! No start-up field says so, and a peer without them terminates the stream at the first one
//! (RFC 7306 §1.1 leaves it to the programs). So each end may send a zero-length RDMA Write as
//! its first FPDU, whose STag and TO carry a magic number, a version and capabilities. No receiver
//! may look at these fields (RFC 5041 §5.2), so every peer takes the frame for what it is: an
//! RDMA Write of nothing.
//!
//! Operations that need an extension wait for the peer's frame. If another frame comes first, or
//! nothing within the start-up timeout (10 s, as a peer may be stopped for a while), they complete
//! in error and the connection lives on. The frame also opens the gate that keeps a responder
//! silent until the initiator's first FPDU. `IWARP_EXTENSIONS` switches the frame.
//!
//! # Operations of this library
//!
//! Capability bits of the frame announce two operations that no RFC has.
//!
//! *Send with Immediate* has the unassigned opcodes 0xC and 0xD (solicited). It is a Send whose
//! Invalidate STag field carries the four octets. An end that has not announced it answers 0/2/06
//! like any other end, and so does an end whose sender has not announced it, on every queue.
//!
//! *Write with Immediate* is a Write and, with nothing between, the Immediate Data of RFC 7306:
//! four octets and the mark `wimm`. The mark goes only to a peer that knows it; others get zeros
//! and see two messages. The receiver takes the two for one if the mark comes directly behind a
//! Write from a peer that announced the operation. The hello frame is no such Write. If a program
//! itself sends octets that look the same, a second hello frame separates them from the Write.
//!
//! # Other frames of this library
//!
//! Two bits name the device that programs see at that end, so that a log line can report that the
//! two ends differ. One bit asks for the *farewell*: a zero-length Write with a magic STag of its
//! own, whose TO is the number of messages for queue 0 and of non-empty Writes that the end
//! received with none missing in front of them. To a peer that asks for it, an end at which a
//! message waits for its receive says that number in between as well, by the *count*, another such
//! Write (`qp/outbound/count.rs`). A number that is more than was sent, or less than the one
//! before, ends the stream. A third one has the sender's `rnr_retry` as its TO: a peer that parks
//! messages ends the connection when one has waited for that many of its RNR times. A Write of no
//! octets never goes out with the STag and TO of such a frame, whatever STag and offset the program
//! uses.
//!
//! One more bit says that its sender would move the stream past TCP where both ends are on one
//! host. The responder then sends an *offer*: two such Writes, whose TOs are the name under which
//! its process can be reached and a secret of this connection. Only the reader of the stream
//! learns them, so they prove to the responder who comes. An end that cannot move the stream
//! *declines*: the TO of such a Write says why, in a number of the library's.

use iwarp_types::{Extension, Extensions, Stag, TaggedOffset};

/// The second half of Immediate Data that belongs to the Write in front of it.
pub(crate) const WRITE_MARK: [u8; 4] = *b"wimm";

const MAGIC_STAG: Stag = Stag(0x6957_4152);
const FAREWELL_STAG: Stag = Stag(0x6957_4642);
const COUNT_STAG: Stag = Stag(0x6957_434e);
const RNR_RETRY_STAG: Stag = Stag(0x6957_5252);
const OFFER_STAGS: [Stag; 2] = [Stag(0x6957_4c4e), Stag(0x6957_4c53)];
const DECLINE_STAG: Stag = Stag(0x6957_4c44);
const MAGIC_TO: u64 = 0x5048_454c << 32;
const MAGIC_TO_MASK: u64 = 0xffff_ffff << 32;
/// A count of repetitions that stands for no limit (IBA vol. 1, 9.7.5.2.8).
pub(crate) const RNR_WITHOUT_END: u8 = 7;
const VERSION: u64 = 1;
const VERSION_SHIFT: u32 = 24;

bitflags::bitflags! {
    /// The abilities of an end of the stream beyond RFC 5040.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Capabilities: u32 {
        /// Atomic Requests (RFC 7306 §5).
        const ATOMICS = 1;
        /// Immediate Data (RFC 7306 §6).
        const IMMEDIATE = 1 << 1;
        /// Sends with Immediate, which no RFC has: opcodes 0xC and 0xD.
        const SEND_IMMEDIATE = 1 << 2;
        /// Immediate Data that ends in `wimm` belongs to the Write in front of it.
        const WRITE_IMMEDIATE = 1 << 3;
        /// Programs at this end see an RNIC. Said by those that say what they see.
        const SEES_RNIC = 1 << 4;
        /// Programs at this end see a device like InfiniBand's. Said by those that say what they
        /// see.
        const SEES_INFINIBAND = 1 << 5;
        /// Wants to be told how much was received: when this side leaves, and while a message
        /// waits for its receive here.
        const FAREWELL = 1 << 6;
        /// Would move the stream past TCP, within one host.
        const LOCAL = 1 << 7;
        /// The operations that RFC 7306 adds.
        const RFC_7306 = Self::ATOMICS.bits() | Self::IMMEDIATE.bits();
        /// Everything this implementation does.
        const OURS = Self::RFC_7306.bits() | Self::SEND_IMMEDIATE.bits() | Self::WRITE_IMMEDIATE.bits();
    }
}

/// A zero-length Write that only ends of our kind understand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OwnFrame {
    /// The first FPDU: what its sender can do.
    Hello(Capabilities),
    /// The last FPDU: how many messages its sender has received.
    Farewell(u64),
    /// The number of messages that its sender has received, in front of one that waits for its
    /// receive.
    Count(u64),
    /// The number of times that its sender would send a message again that finds no receive: 0 to
    /// 6, or 7 for without end, as InfiniBand counts it.
    RnrRetry(u8),
    /// A half of its sender's [`Offer`].
    Offer(OfferHalf),
    /// Its sender keeps the stream with TCP, for the reason of this number.
    Decline(u64),
}

/// The way past TCP to the responder of a connection within one host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offer {
    /// The name under which the process of the responder can be reached.
    pub name: u64,
    /// The secret of this connection.
    pub secret: u64,
}

/// The part of an [`Offer`] that one frame has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OfferHalf {
    /// [`Offer::name`].
    Name(u64),
    /// [`Offer::secret`].
    Secret(u64),
}

impl Offer {
    /// The halves, in the order in which they go out.
    pub(crate) const fn halves(self) -> [OfferHalf; 2] {
        [OfferHalf::Name(self.name), OfferHalf::Secret(self.secret)]
    }
}

impl OfferHalf {
    /// STag and TO of its frame.
    pub(crate) const fn encode(self) -> (Stag, TaggedOffset) {
        match self {
            Self::Name(name) => (OFFER_STAGS[0], TaggedOffset(name)),
            Self::Secret(secret) => (OFFER_STAGS[1], TaggedOffset(secret)),
        }
    }

    const fn decode(stag: Stag, to: TaggedOffset) -> Option<Self> {
        if stag.0 == OFFER_STAGS[0].0 {
            Some(Self::Name(to.0))
        } else if stag.0 == OFFER_STAGS[1].0 {
            Some(Self::Secret(to.0))
        } else {
            None
        }
    }
}

impl OwnFrame {
    /// The frame that a Write of nothing with these is, if it is one.
    pub const fn of(stag: Stag, to: TaggedOffset) -> Option<Self> {
        if let Some(capabilities) = decode(stag, to) {
            return Some(Self::Hello(capabilities));
        }
        if let Some(received) = decode_farewell(stag, to) {
            return Some(Self::Farewell(received));
        }
        if stag.0 == COUNT_STAG.0 {
            return Some(Self::Count(to.0));
        }
        if let Some(half) = OfferHalf::decode(stag, to) {
            return Some(Self::Offer(half));
        }
        if stag.0 == DECLINE_STAG.0 {
            return Some(Self::Decline(to.0));
        }
        match decode_rnr_retry(stag, to) {
            Some(count) => Some(Self::RnrRetry(count)),
            None => None,
        }
    }
}

impl Capabilities {
    /// True if both say which device programs see, and the devices differ.
    const fn sees_another(self, other: Self) -> bool {
        const SEEN: Capabilities = Capabilities::SEES_RNIC.union(Capabilities::SEES_INFINIBAND);
        self.intersects(SEEN)
            && other.intersects(SEEN)
            && !self.intersects(other.intersection(SEEN))
    }
}

impl From<Extension> for Capabilities {
    fn from(extension: Extension) -> Self {
        match extension {
            Extension::Atomics => Self::ATOMICS,
            Extension::Immediate => Self::IMMEDIATE,
            Extension::SendImmediate => Self::SEND_IMMEDIATE,
        }
    }
}

/// The kind of the peer, as far as it is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PeerKind {
    /// It has said nothing yet.
    Unknown,
    /// It said what it can do.
    Known(Capabilities),
    /// It said nothing in time, or something else.
    Foreign,
}

impl PeerKind {
    pub(crate) const fn new(extensions: Extensions) -> Self {
        match extensions {
            Extensions::Ask => Self::Unknown,
            Extensions::Assume => Self::Known(Capabilities::RFC_7306),
            // Refused, or not known here.
            _ => Self::Foreign,
        }
    }

    pub(crate) const fn has(self, needed: Capabilities) -> bool {
        matches!(self, Self::Known(has) if has.contains(needed))
    }

    pub(crate) fn give_up(&mut self) {
        if *self == Self::Unknown {
            *self = Self::Foreign;
        }
    }

    /// Hears a zero-length Write. True if it says that programs see another device there than
    /// `told` says that they see here.
    pub(crate) fn hear(&mut self, stag: Stag, to: TaggedOffset, told: Capabilities) -> bool {
        if matches!(self, Self::Unknown | Self::Foreign)
            && let Some(capabilities) = decode(stag, to)
        {
            *self = Self::Known(capabilities);
            return told.sees_another(capabilities);
        }
        false
    }
}

/// STag and TO of our own first FPDU.
pub(crate) const fn encode(capabilities: Capabilities) -> (Stag, TaggedOffset) {
    let low = (VERSION << VERSION_SHIFT) | capabilities.bits() as u64;
    (MAGIC_STAG, TaggedOffset(MAGIC_TO | low))
}

/// STag and TO of the last FPDU to a peer that wants to know how many messages were received.
pub(crate) const fn encode_farewell(received: u64) -> (Stag, TaggedOffset) {
    (FAREWELL_STAG, TaggedOffset(received))
}

/// The number of messages that the peer has received, where this is its last FPDU.
pub(crate) const fn decode_farewell(stag: Stag, to: TaggedOffset) -> Option<u64> {
    if stag.0 == FAREWELL_STAG.0 { Some(to.0) } else { None }
}

/// STag and TO of the FPDU that says how many messages were received so far.
pub(crate) const fn encode_count(received: u64) -> (Stag, TaggedOffset) {
    (COUNT_STAG, TaggedOffset(received))
}

/// STag and TO of the FPDU that says that the stream stays with TCP, and why.
pub(crate) const fn encode_decline(reason: u64) -> (Stag, TaggedOffset) {
    (DECLINE_STAG, TaggedOffset(reason))
}

/// STag and TO of the FPDU that says how often a message that finds no receive is sent again.
pub(crate) const fn encode_rnr_retry(count: u8) -> (Stag, TaggedOffset) {
    (RNR_RETRY_STAG, TaggedOffset(count as u64))
}

/// The number of times that the peer would send a message again, where this FPDU says so.
pub(crate) const fn decode_rnr_retry(stag: Stag, to: TaggedOffset) -> Option<u8> {
    if stag.0 == RNR_RETRY_STAG.0 && to.0 <= RNR_WITHOUT_END as u64 {
        Some(to.0 as u8)
    } else {
        None
    }
}

/// True if a zero-length Write with these would be taken for a frame of our own.
pub(crate) const fn is_own(stag: Stag, to: TaggedOffset) -> bool {
    OwnFrame::of(stag, to).is_some()
}

/// Capabilities of a peer of any version: later ones may only add bits.
pub(crate) const fn decode(stag: Stag, to: TaggedOffset) -> Option<Capabilities> {
    let version = (to.0 >> VERSION_SHIFT) & 0xff;
    if stag.0 != MAGIC_STAG.0 || to.0 & MAGIC_TO_MASK != MAGIC_TO || version == 0 {
        return None;
    }
    Some(Capabilities::from_bits_retain((to.0 & 0x00ff_ffff) as u32))
}
