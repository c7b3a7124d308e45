// SPDX-License-Identifier: MIT OR Apache-2.0

//! A queue pair, its memory, and what its program has posted.

use std::collections::VecDeque;
use std::net::IpAddr;

use iwarp_roce::wire::{Mtu, Path, Psn, RnrTimer};
use iwarp_roce::{Attributes, Config, DatagramCore, Qp};
use iwarp_types::mock::Host;
use iwarp_types::{
    Access, AddressVector, Destination, PdId, QpId, QpState, SendOp, Sge, Stag, TaggedOffset,
    WcStatus,
};

use super::Kind;
use crate::choice::pattern;

/// Octets for one message, or one Write.
pub(super) const SLOT: usize = 6 * 1024;
/// Slots of each region that has some.
pub(super) const SLOTS: usize = 32;
/// Octets that messages come from.
pub(super) const STOCK: usize = 64 * 1024;
/// The 40 octets ahead of a datagram.
pub(super) const GRH: usize = 40;
/// The octet that no message wrote.
pub(super) const UNTOUCHED: u8 = 0xcc;

pub(super) const PD: PdId = PdId(3);

/// A core that the simulator drives.
pub(super) trait Simulated: DatagramCore {
    /// Attaches it to a multicast group, where its type has some.
    fn attach(&mut self, group: IpAddr);
    /// Detaches it from one.
    fn detach(&mut self, group: IpAddr);
}

impl Simulated for Qp {
    fn attach(&mut self, group: IpAddr) {
        if let Self::Ud(ud) = self {
            ud.attach(group).expect("a group's address");
        }
    }

    fn detach(&mut self, group: IpAddr) {
        if let Self::Ud(ud) = self {
            ud.detach(group);
        }
    }
}

/// The regions of an end, by their number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    /// The source of sent octets. The peer may read it.
    Stock,
    /// The peer writes and reads here.
    Target,
    /// Receives.
    Receives,
    /// The peer's Atomics.
    Counters,
    /// Sink of Reads and Atomics.
    Fetched,
}

impl Role {
    const ALL: [Self; 5] =
        [Self::Stock, Self::Target, Self::Receives, Self::Counters, Self::Fetched];

    pub(super) const fn stag(self) -> Stag {
        Stag((self as u32 + 1) << 8 | 0x11)
    }

    const fn base(self) -> u64 {
        0x7000_0000 + ((self as u64) << 24)
    }

    pub(super) const fn len(self) -> usize {
        match self {
            Self::Stock => STOCK,
            Self::Target | Self::Receives | Self::Fetched => SLOT * SLOTS,
            Self::Counters => 8 * SLOTS,
        }
    }

    const fn access(self) -> Access {
        match self {
            Self::Stock => Access::REMOTE_READ,
            Self::Target => {
                Access::LOCAL_WRITE.union(Access::REMOTE_WRITE).union(Access::REMOTE_READ)
            }
            Self::Receives | Self::Fetched => Access::LOCAL_WRITE,
            Self::Counters => Access::LOCAL_WRITE.union(Access::REMOTE_ATOMIC),
        }
    }

    /// Octets of it, `at` behind its start.
    pub(super) const fn sge(self, at: usize, length: u32) -> Sge {
        Sge { addr: self.base() + at as u64, length, lkey: self.stag() }
    }

    /// Its octet `at`, for a peer.
    pub(super) const fn remote(self, at: usize) -> (Stag, TaggedOffset) {
        (self.stag(), TaggedOffset(self.base() + at as u64))
    }
}

/// A send work request that was posted.
#[derive(Clone, Debug)]
pub(super) struct Posted {
    pub(super) op: SendOp,
    /// Its octets: these of the stock.
    pub(super) from: usize,
    pub(super) len: usize,
    /// The slot of the peer's that it writes to or reads from, or the counter.
    pub(super) slot: usize,
    /// The slot that it fetches to.
    pub(super) fetched: usize,
    pub(super) signaled: bool,
    pub(super) destination: Option<Destination>,
    /// The status that it has to fail with, before a packet goes out.
    pub(super) fails: Option<WcStatus>,
    /// The peer grants its Write.
    pub(super) granted: bool,
}

/// A receive that was posted.
#[derive(Clone, Copy, Debug)]
pub(super) struct PostedReceive {
    pub(super) id: u64,
    pub(super) slot: usize,
    pub(super) len: usize,
}

/// A message of the peer's, of which these parts have come (UC).
#[derive(Clone, Copy, Debug)]
pub(super) struct Coming {
    pub(super) message: usize,
    pub(super) parts: usize,
    /// It takes a receive from its start on.
    pub(super) is_send: bool,
}

/// One end.
#[derive(Debug)]
pub(super) struct End<C> {
    pub(super) core: C,
    pub(super) host: Host,
    pub(super) config: Config,
    pub(super) attributes: Attributes,
    /// All that was ever posted; the number is the index.
    pub(super) posted: Vec<Posted>,
    /// Sends that have not completed, from this one on.
    pub(super) completed: usize,
    /// The message that goes out next, and the part of it.
    pub(super) going: (usize, usize),
    /// PSN of the next packet.
    pub(super) psn: Psn,
    pub(super) receives: VecDeque<PostedReceive>,
    pub(super) received: u64,
    /// Sends of this end's that have arrived (RC).
    pub(super) arrived: usize,
    pub(super) coming: Option<Coming>,
    /// The octets that the region which the peer writes to has to hold.
    pub(super) target: Vec<u8>,
    pub(super) groups: Vec<IpAddr>,
    /// The peer's counters, as this end's Atomics have left them (RC).
    pub(super) counters: Vec<u64>,
    /// The queue pair has failed, as it may (RC).
    pub(super) has_failed: bool,
}

/// The address of end `number`.
pub(super) fn address(number: usize, v6: bool) -> IpAddr {
    let number = number as u8 + 1;
    match v6 {
        true => [0xfd00, 0, 0, 0, 0, 0, 0, u16::from(number)].into(),
        false => [10, 0, 0, number].into(),
    }
}

impl<C: DatagramCore> End<C> {
    /// An end in Reset.
    pub(super) fn new(number: usize, v6: bool, shared: bool, make: impl Fn(Config) -> C) -> Self {
        let config = Config {
            qp: QpId(0x100 + number as u32),
            pd: PD,
            max_send_wr: 16,
            max_recv_wr: SLOTS,
            shared_receive: shared,
            ..Config::default()
        };
        let host = Host::default();
        for role in Role::ALL {
            host.register(PD, role.stag().0, role.base(), role.len(), role.access());
        }
        for role in [Role::Target, Role::Receives, Role::Fetched] {
            host.change(role.stag().0, |region| region.octets.fill(UNTOUCHED));
        }
        host.change(Role::Stock.stag().0, |region| pattern(number as u64, &mut region.octets));
        let peer = AddressVector::new(address(number, v6), address(1 - number.min(1), v6));
        let attributes = Attributes {
            path: Path::new(peer, 0xc000 + number as u16),
            dest_qp: 0x100 + (1 - number.min(1)) as u32,
            mtu: Mtu::Mtu256,
            timeout: 8,
            retry_count: 7,
            rnr_retry: 7,
            min_rnr_timer: RnrTimer::new(3),
            max_rd_atomic: 4,
            max_dest_rd_atomic: 4,
            access: Access::REMOTE,
            ..Attributes::default()
        };
        Self {
            core: make(config),
            host,
            config,
            attributes,
            posted: Vec::new(),
            completed: 0,
            going: (0, 0),
            psn: Psn::default(),
            receives: VecDeque::new(),
            received: 0,
            arrived: 0,
            coming: None,
            target: vec![UNTOUCHED; Role::Target.len()],
            groups: Vec::new(),
            counters: vec![0; SLOTS],
            has_failed: false,
        }
    }

    /// Takes the queue pair from Reset to Rts.
    pub(super) fn raise(&mut self) -> Result<(), String> {
        self.psn = self.attributes.sq_psn;
        self.core.set_attributes(&self.attributes);
        for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
            self.core.modify(state).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// True if it takes packets.
    pub(super) fn hears(&self) -> bool {
        use QpState::{Rtr, Rts, Sqd, Sqe};
        matches!(self.core.state(), Rtr | Rts | Sqd | Sqe)
    }

    /// Octets of a region.
    pub(super) fn octets<T>(&self, role: Role, look: impl FnOnce(&[u8]) -> T) -> T {
        look(&self.host.bank.borrow().regions[role as usize].octets)
    }

    /// True if octets of a region are these.
    pub(super) fn holds(&self, role: Role, at: usize, octets: &[u8]) -> bool {
        self.octets(role, |region| region.get(at..at + octets.len()) == Some(octets))
    }

    /// The octets of a message of this end's, or of a part of it.
    pub(super) fn stock(&self, from: usize, len: usize) -> Vec<u8> {
        self.octets(Role::Stock, |region| region[from..from + len].to_vec())
    }
}

impl Posted {
    /// Immediate data that it carries.
    pub(super) const fn immediate(&self) -> Option<[u8; 4]> {
        match self.op {
            SendOp::SendImmediate { data, .. } | SendOp::WriteImmediate { data, .. } => Some(data),
            _ => None,
        }
    }

    pub(super) const fn solicited(&self) -> bool {
        match self.op {
            SendOp::Send { solicited, .. }
            | SendOp::SendImmediate { solicited, .. }
            | SendOp::WriteImmediate { solicited, .. } => solicited,
            _ => false,
        }
    }

    pub(super) const fn is_write(&self) -> bool {
        matches!(self.op, SendOp::Write { .. } | SendOp::WriteImmediate { .. })
    }

    /// True if it takes a receive of the peer's.
    pub(super) const fn takes_receive(&self) -> bool {
        !matches!(self.op, SendOp::Write { .. } | SendOp::Read { .. } | SendOp::Atomic { .. })
    }

    /// Packets that it goes out in.
    pub(super) fn parts(&self, mtu: usize) -> usize {
        self.len.div_ceil(mtu).max(1)
    }
}

/// The number of ends that the type of queue pair needs.
pub(super) const fn ends(kind: Kind) -> usize {
    match kind {
        Kind::Rc | Kind::Uc => 2,
        Kind::Ud => 3,
    }
}
