// SPDX-License-Identifier: MIT OR Apache-2.0

//! The part of a shared port that a process holds.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};

use iwarp_os::process::{self, Debuggee};
use iwarp_os::register::{self, Register};
use iwarp_os::slots::{Layout, SlotSocket, Vault};
use iwarp_os::socket::is_shortage;
use iwarp_os::unix::{SeqListener, SeqSocket, names};
use iwarp_os::{EventFd, EventFdKind, FdPlace};

use super::protocol::Slot;

/// Slot bits of a new group; fewer where the system allows the user no more descriptors on their
/// way.
const BITS: [u8; 2] = [6, 4];
/// In the vault, beside the sockets.
const LISTENER: u16 = 0;
const BELL: u16 = 1;

/// In the register: the place of the broker of generation 0, which does not exist, with those of
/// others behind it; of the process that adds slots; of members that a broker has to know, counted
/// by their slots. The places of all members have the numbers of their slots.
const BROKER: u32 = 1 << 20;
const GROWS: u32 = 1 << 19;
const KNOWN: u32 = 1 << 18;
/// Words of the register: the broker's generation; a count of its turns; the vault's number; the
/// broker's slot; bits for the services of each member, counted by their slots.
const GENERATION: u32 = 0;
const BEAT: u32 = 1;
const VAULT: u32 = 2;
const SLOT: u32 = 3;
const SERVICES: u32 = 16;

/// A member's place in a group.
#[derive(Debug)]
pub(super) struct Home {
    pub(super) slot: u16,
    pub(super) bits: u8,
    /// Slot 0's, which the broker reads.
    pub(super) gsi: SlotSocket,
    /// Keeps the sockets of all slots.
    pub(super) vault: Vault,
    /// Says which slots have a member, and which process is the broker.
    pub(super) register: Register,
    /// The slot's socket, until it is taken.
    pub(super) data: Option<SlotSocket>,
    /// Listener at which the broker accepts processes that have no share yet.
    pub(super) listener: SeqListener,
    /// Rings when there is another broker.
    pub(super) bell: EventFd,
}

/// The state of a broker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Office {
    /// Its process has ended, or has given it back.
    Vacant,
    /// Its process is stopped.
    Stopped,
    Held,
}

/// The things that a new broker finds.
#[derive(Debug)]
pub(super) struct Inheritance {
    pub(super) generation: u64,
    /// Slots of other members that it has to know, and that come at once.
    pub(super) members: BTreeSet<u16>,
    /// Slots of others, which are stopped, and of the broker before, if that lives.
    pub(super) passed_over: BTreeSet<u16>,
    /// The broker before lives, and did not answer.
    pub(super) displaces: bool,
}

impl Home {
    /// Makes a new group whose members are found under `name`, and takes a slot of it.
    pub(super) fn found(addr: SocketAddr, name: &[u8]) -> io::Result<Self> {
        let listener = take_name(name)?;
        let bell = EventFd::new(EventFdKind::Counter, FdPlace::Internal)?;
        let beside = [listener.as_fd(), bell.as_fd()];
        let mut made = Err(io::ErrorKind::Unsupported.into());
        for bits in BITS {
            made = Vault::create(addr, layout_of(bits), beside).map(|vault| (vault, bits));
            match &made {
                Err(error) if too_many_passed(error) || is_shortage(error) => {}
                _ => break,
            }
        }
        let (vault, bits) = made?;
        let register = Register::create()?;
        register.set_word(VAULT, vault.number()?)?;
        let gsi = vault.socket(0)?.into();
        let mut home = Self { slot: 0, bits, gsi, vault, register, data: None, listener, bell };
        home.take_any_slot()?;
        Ok(home)
    }

    /// Takes what a broker has handed out: `None` where it is not what it should be. The slot is
    /// this process's when it [holds](Self::hold) that.
    pub(super) fn received(addr: SocketAddr, slot: Slot, passed: Vec<OwnedFd>) -> Option<Self> {
        let [data, vault, register] = <[OwnedFd; 3]>::try_from(passed).ok()?;
        let data = SlotSocket::from(data);
        let home = Self::of_vault(addr, slot, vault, register.into()).ok()?;
        let good = home.has(slot.number) && same_place(data.local_addr().ok()?, addr);
        good.then(|| Self { data: Some(data), ..home })
    }

    /// The home that a member in another process has, without its help, as a debugger would, and
    /// without a slot yet.
    ///
    /// # Errors
    ///
    /// If the system does not let us.
    pub(super) fn of_process(addr: SocketAddr, process: u32, user: u32) -> io::Result<Self> {
        let other = Debuggee::of_user(process, user)?;
        let mut found = Err(io::ErrorKind::NotFound.into());
        // A process has a register but once.
        let ours = process::linked(None, register::LINK)?;
        let is_ours = |file| ours.iter().any(|our| our.file == file);
        let registers = process::linked(Some(process), register::LINK)?;
        for linked in registers.into_iter().filter(|linked| !is_ours(linked.file)) {
            let register = Register::from(other.descriptor(linked.number)?);
            let vault = process::linked(Some(process), &Vault::link(register.word(VAULT)?))?;
            let Some(vault) = vault.first() else { continue };
            let vault = other.descriptor(vault.number)?;
            for bits in BITS {
                let slot = Slot { number: 0, bits };
                let register = register.as_fd().try_clone_to_owned()?.into();
                found = Self::of_vault(addr, slot, vault.try_clone()?, register);
                if found.is_ok() {
                    return found;
                }
            }
        }
        found
    }

    fn of_vault(
        addr: SocketAddr,
        Slot { number, bits }: Slot,
        vault: OwnedFd,
        register: Register,
    ) -> io::Result<Self> {
        if !BITS.contains(&bits) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let vault = Vault::adopt(vault, layout_of(bits));
        let gsi = SlotSocket::from(vault.socket(0)?);
        let listener = SeqListener::from(vault.beside(LISTENER)?);
        let bell = EventFd::from(vault.beside(BELL)?);
        if !same_place(gsi.local_addr()?, addr) || !listener.listens()? {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(Self { slot: number, bits, gsi, vault, register, data: None, listener, bell })
    }

    /// Makes the slot this process's; false where it has become another's.
    ///
    /// # Errors
    ///
    /// From the system.
    pub(super) fn hold(&self) -> io::Result<bool> {
        self.register.hold(self.slot.into())
    }

    /// Takes a free slot.
    ///
    /// # Errors
    ///
    /// From the system; `NotFound` where all are taken.
    pub(super) fn take_any_slot(&mut self) -> io::Result<()> {
        loop {
            let slots = self.vault.slots();
            let first = getrandom::u32()? as u16 % slots;
            for step in 0..slots {
                self.slot = (first + step) % slots;
                if self.slot > 0 && self.hold()? {
                    self.data = Some(self.vault.socket(self.slot)?.into());
                    return Ok(());
                }
            }
            self.grow()?;
        }
    }

    /// Adds slots, and says which.
    ///
    /// # Errors
    ///
    /// `NotFound` where there are all that there can be; `WouldBlock` where another process is at
    /// it; shortages.
    pub(super) fn grow(&self) -> io::Result<Range<u16>> {
        if !self.register.hold(GROWS)? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let before = self.vault.slots();
        let grown = self.gsi.local_addr().and_then(|addr| self.vault.add_wing(addr));
        self.register.release(GROWS)?;
        grown.map(|()| before..self.vault.slots())
    }

    /// True if a member can have the slot.
    fn has(&self, slot: u16) -> bool {
        (1..self.layout().slots()).contains(&slot)
    }

    pub(super) fn layout(&self) -> Layout {
        self.vault.layout()
    }

    /// True if a new broker has to know this member, and waits for it to come.
    pub(super) fn is_to_be_known(&self, known: bool) {
        let place = KNOWN + u32::from(self.slot);
        // Fails where a program has closed our descriptors, and then nothing matters.
        let _ =
            if known { self.register.hold(place).map(drop) } else { self.register.release(place) };
    }

    /// Says which services this member has.
    pub(super) fn tell_services(&self, services: impl Iterator<Item = u64>) {
        let bits = services.fold(0, |bits, service| bits | bit_of(service));
        let _ = self.register.set_word(SERVICES + u32::from(self.slot), bits);
    }

    /// True if another process has the slot and may have the service.
    pub(super) fn may_serve(&self, slot: u16, service: u64) -> io::Result<bool> {
        let bits = self.register.word(SERVICES + u32::from(slot))?;
        Ok(bits & bit_of(service) != 0 && self.has_member(slot)?)
    }

    /// True if the slot is another process's.
    pub(super) fn has_member(&self, slot: u16) -> io::Result<bool> {
        self.register.is_held(slot.into())
    }

    /// The generation of the broker there is, or was last.
    pub(super) fn generation(&self) -> u64 {
        self.register.word(GENERATION).unwrap_or(0)
    }

    /// The number of turns that the broker has had. It changes as long as a broker works that has
    /// work to do.
    pub(super) fn beat(&self) -> u64 {
        self.register.word(BEAT).unwrap_or(0)
    }

    /// Says that the broker, which this process is, has its turn.
    pub(super) fn count_beat(&self) {
        let _ = self.register.set_word(BEAT, self.beat().wrapping_add(1));
    }

    /// The state of the broker of that generation.
    ///
    /// # Errors
    ///
    /// From the system.
    pub(super) fn office(&self, generation: u64) -> io::Result<Office> {
        Ok(match self.register.holder(place_of(generation))? {
            None => Office::Vacant,
            Some(process) if process::is_stopped(process) => Office::Stopped,
            Some(_) => Office::Held,
        })
    }

    /// Becomes the broker behind that of generation `before`, whether that one lives or not. `None`
    /// where another process is faster.
    ///
    /// # Errors
    ///
    /// From the system.
    pub(super) fn succeed(&self, before: u64) -> io::Result<Option<Inheritance>> {
        let generation = before + 1;
        let place = place_of(generation);
        if !self.register.hold(place)? {
            return Ok(None);
        }
        // Only the process that has the place moves on from there.
        if self.register.word(GENERATION)? != before {
            self.register.release(place)?;
            return Ok(None);
        }
        let displaces = self.office(before)? != Office::Vacant;
        let displaced = u16::try_from(self.register.word(SLOT)?).ok().filter(|_| displaces);
        let (mut members, mut passed_over) = (BTreeSet::new(), BTreeSet::new());
        for slot in (1..self.vault.slots()).filter(|slot| *slot != self.slot) {
            match self.register.holder(KNOWN + u32::from(slot))? {
                None => {}
                Some(process) if displaced == Some(slot) || process::is_stopped(process) => {
                    passed_over.insert(slot);
                }
                Some(_) => {
                    members.insert(slot);
                }
            }
        }
        self.register.set_word(SLOT, self.slot.into())?;
        self.register.set_word(GENERATION, generation)?;
        // All members are to look for the new broker.
        self.bell.signal()?;
        Ok(Some(Inheritance { generation, members, passed_over, displaces }))
    }

    /// The place of the broker of that generation is free again.
    pub(super) fn resign(&self, generation: u64) {
        let _ = self.register.release(place_of(generation));
    }
}

/// Of 6 bits: 47 slots for the first members, with 2^18 numbers each, and 1,024 with 2^12. Of 4:
/// 15.
pub(super) const fn layout_of(bits: u8) -> Layout {
    Layout::new(bits as u32, if bits == 6 { 48 } else { 1 << bits })
}

/// One of 64 that stands for a service.
const fn bit_of(service: u64) -> u64 {
    1 << (service.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58)
}

fn place_of(generation: u64) -> u32 {
    BROKER + (generation & 0x0fff_ffff) as u32
}

/// The name under which the broker of a user listens, if no other user has taken it; else it
/// listens under one that begins so, with a slash and a number that no process can know before.
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
        // No process listens, or too many want to speak to it.
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
