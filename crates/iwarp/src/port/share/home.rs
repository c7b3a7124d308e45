// SPDX-License-Identifier: MIT OR Apache-2.0

//! What a process holds of a shared port.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use iwarp_os::register::Register;
use iwarp_os::slots::{SlotSocket, Vault};
use iwarp_os::socket::is_shortage;
use iwarp_os::unix::{SeqListener, SeqSocket, names};

use super::protocol::Slot;

/// Slot bits of a new group: as many as there are members to be, but for slot 0; and where the
/// system allows the user no more descriptors on their way.
const BITS: [u8; 2] = [6, 4];
/// In the register: the broker's place. Those of members have the numbers of their slots.
const BROKER: u32 = 0;

/// A member's place in a group.
#[derive(Debug)]
pub(super) struct Home {
    pub(super) slot: u8,
    pub(super) bits: u8,
    /// Slot 0's, which the broker reads.
    pub(super) gsi: SlotSocket,
    /// Keeps the sockets of all slots.
    pub(super) vault: Vault,
    /// Which slots have a member, and whether there is a broker.
    pub(super) register: Register,
    /// The slot's socket, until it is taken.
    pub(super) data: Option<SlotSocket>,
}

impl Home {
    /// Makes a new group, and takes a slot of it.
    pub(super) fn found(addr: SocketAddr) -> io::Result<Self> {
        let mut made = Err(io::ErrorKind::Unsupported.into());
        for bits in BITS {
            made = Vault::create(addr, bits.into()).map(|vault| (vault, bits));
            match &made {
                Err(error) if too_many_passed(error) || is_shortage(error) => {}
                _ => break,
            }
        }
        let (vault, bits) = made?;
        let slots = (1 << bits) - 1;
        let slot = 1 + (getrandom::u32()? % slots) as u8;
        let register = Register::create()?;
        for place in [BROKER, slot.into()] {
            // Nobody else has it.
            register.hold(place)?;
        }
        let gsi = vault.socket(0)?.into();
        let data = Some(vault.socket(slot)?.into());
        Ok(Self { slot, bits, gsi, vault, register, data })
    }

    /// Takes what a broker has handed out: `None` where it is not what it should be.
    pub(super) fn received(addr: SocketAddr, slot: Slot, passed: Vec<OwnedFd>) -> Option<Self> {
        let Slot { number, bits } = slot;
        let [data, gsi, vault, register] = <[OwnedFd; 4]>::try_from(passed).ok()?;
        let register = Register::from(register);
        let (data, gsi) = (SlotSocket::from(data), SlotSocket::from(gsi));
        let good = (1..=6).contains(&bits) && (1..1 << bits).contains(&number);
        let here = |socket: &SlotSocket| socket.local_addr().is_ok_and(|at| same_place(at, addr));
        let good = good && here(&data) && here(&gsi);
        (good && register.hold(number.into()).is_ok_and(|held| held)).then(|| Self {
            slot: number,
            bits,
            gsi,
            vault: vault.into(),
            register,
            data: Some(data),
        })
    }

    /// How many slots there are.
    pub(super) fn slots(&self) -> u8 {
        1 << self.bits
    }

    /// Becomes the only process that may be the broker, and says which slots have other members, a bit
    /// each. `None` where another process has that place.
    ///
    /// # Errors
    ///
    /// From the system.
    pub(super) fn succeed(&self) -> io::Result<Option<u64>> {
        if !self.register.hold(BROKER)? {
            return Ok(None);
        }
        let mut others = 0;
        for slot in (1..self.slots()).filter(|slot| *slot != self.slot) {
            others |= u64::from(self.has_member(slot)?) << slot;
        }
        Ok(Some(others))
    }

    /// Whether the slot is another process's.
    pub(super) fn has_member(&self, slot: u8) -> io::Result<bool> {
        self.register.is_held(slot.into())
    }
}

/// Under which the broker of a user listens, if no other user has taken the name; else under one that
/// begins so, with a slash and a number that nobody knows before.
pub(super) fn broker_name(addr: SocketAddr, user: u32) -> Vec<u8> {
    format!("iwarp-roce/{user}/{addr}").into_bytes()
}

/// Takes one of these names.
///
/// # Errors
///
/// Shortages.
pub(super) fn take_name(name: &[u8]) -> io::Result<SeqListener> {
    match SeqListener::bind(name) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            let number = format!("{:016x}", getrandom::u64()?);
            SeqListener::bind(&[name, b"/", number.as_bytes()].concat())
        }
        taken => taken,
    }
}

/// A connection to the process of this user that listens under one of these names. Other users can
/// take names, but not the user's identity.
///
/// # Errors
///
/// Shortages.
pub(super) fn find_broker(name: &[u8], user: u32) -> io::Result<Option<SeqSocket>> {
    let of_user = |name: &[u8]| match SeqSocket::connect(name) {
        Ok(socket) => match socket.peer_user()? {
            owner if owner == user => Ok(Some(socket)),
            owner => {
                crate::report!(
                    burst 1,
                    WARN,
                    user = owner,
                    "a process of another user has the name by which this user's processes find each \
                     other to share the RoCE port: they use another name"
                );
                Ok(None)
            }
        },
        // Nobody listens, or too many want to speak to it.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::ConnectionRefused | io::ErrorKind::WouldBlock
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    };
    if let Some(socket) = of_user(name)? {
        return Ok(Some(socket));
    }
    for other in names(&[name, b"/"].concat()) {
        if let Some(socket) = of_user(&other)? {
            return Ok(Some(socket));
        }
    }
    Ok(None)
}

/// More descriptors are on their way between processes of this user than one of them may have open.
pub(super) fn too_many_passed(error: &io::Error) -> bool {
    const ETOOMANYREFS: i32 = 109;
    error.raw_os_error() == Some(ETOOMANYREFS)
}

fn same_place(one: SocketAddr, other: SocketAddr) -> bool {
    (one.ip(), one.port()) == (other.ip(), other.port())
}
