// SPDX-License-Identifier: MIT OR Apache-2.0

//! What a process holds of a shared port.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use iwarp_os::slots::{SlotSocket, Vault};
use iwarp_os::socket::is_shortage;
use iwarp_os::unix::SeqListener;

use super::protocol::Slot;

/// Slot bits of a new group: as many as there are members to be, but for slot 0; and where the
/// system allows the user no more descriptors on their way.
const BITS: [u8; 2] = [6, 4];

/// A member's place in a group.
#[derive(Debug)]
pub(super) struct Home {
    pub(super) addr: SocketAddr,
    pub(super) slot: u8,
    pub(super) bits: u8,
    /// Slot 0's, which the broker reads.
    pub(super) gsi: SlotSocket,
    /// Keeps the sockets of all slots.
    pub(super) vault: Vault,
    /// The name of the slot: the system gives it to one process at a time, and takes it back from
    /// one that is killed.
    _claim: SeqListener,
    /// The slot's socket, until it is taken.
    pub(super) data: Option<SlotSocket>,
}

impl Home {
    /// Makes a new group, and takes a slot of it.
    pub(super) fn found(addr: SocketAddr, user: u32) -> io::Result<Self> {
        let mut made = Err(io::ErrorKind::Unsupported.into());
        for bits in BITS {
            made = Vault::create(addr, bits.into()).map(|vault| (vault, bits));
            match &made {
                Err(error) if too_many_passed(error) || is_shortage(error) => {}
                _ => break,
            }
        }
        let (vault, bits) = made?;
        let first = getrandom::u32()? as u8;
        let slots = (1_u8 << bits) - 1;
        for step in 0..slots {
            let slot = 1 + (first % slots + step) % slots;
            let claim = match SeqListener::bind(&claim_name(addr, user, slot)) {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => continue,
                claim => claim?,
            };
            let gsi = vault.socket(0)?.into();
            let data = Some(vault.socket(slot)?.into());
            return Ok(Self { addr, slot, bits, gsi, vault, _claim: claim, data });
        }
        Err(io::ErrorKind::QuotaExceeded.into())
    }

    /// Takes what a broker has handed out: `None` where it is not what it should be.
    pub(super) fn received(addr: SocketAddr, slot: Slot, passed: Vec<OwnedFd>) -> Option<Self> {
        let Slot { number, bits } = slot;
        let [data, gsi, vault, claim] = <[OwnedFd; 4]>::try_from(passed).ok()?;
        let (data, gsi) = (SlotSocket::from(data), SlotSocket::from(gsi));
        let good = (1..=6).contains(&bits) && (1..1 << bits).contains(&number);
        let here = |socket: &SlotSocket| socket.local_addr().is_ok_and(|at| same_place(at, addr));
        (good && here(&data) && here(&gsi)).then(|| Self {
            addr,
            slot: number,
            bits,
            gsi,
            vault: vault.into(),
            _claim: claim.into(),
            data: Some(data),
        })
    }

    /// How many slots there are.
    pub(super) fn slots(&self) -> u8 {
        1 << self.bits
    }
}

/// Under which the broker of a user listens.
pub(super) fn broker_name(addr: SocketAddr, user: u32) -> Vec<u8> {
    format!("iwarp-roce/{user}/{addr}").into_bytes()
}

/// Which the member has that has the slot.
pub(super) fn claim_name(addr: SocketAddr, user: u32, slot: u8) -> Vec<u8> {
    format!("iwarp-roce/{user}/{addr}/{slot}").into_bytes()
}

/// The slots whose names some process has, a bit each.
pub(super) fn claims(addr: SocketAddr, user: u32) -> u64 {
    let claimed = |slot: &u8| {
        let claim = SeqListener::bind(&claim_name(addr, user, *slot));
        claim.is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse)
    };
    (1..1 << BITS[0]).filter(claimed).fold(0, |slots, slot| slots | 1 << slot)
}

/// More descriptors are on their way between processes of this user than one of them may have open.
pub(super) fn too_many_passed(error: &io::Error) -> bool {
    const ETOOMANYREFS: i32 = 109;
    error.raw_os_error() == Some(ETOOMANYREFS)
}

fn same_place(one: SocketAddr, other: SocketAddr) -> bool {
    (one.ip(), one.port()) == (other.ip(), other.port())
}
