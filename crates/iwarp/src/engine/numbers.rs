// SPDX-License-Identifier: MIT OR Apache-2.0

//! Queue pair numbers.
//!
//! A number of 24 bits tells a peer that knows nothing else where its queue pair can be found: the
//! upper 16 bits are a TCP port, the lower 8 say which of the queue pairs there. A queue pair that
//! is not to be found this way has a number whose upper bits are no port that could be used.
//!
//! Datagrams for a number come to the process in whose slot of the RoCE port it is (see
//! [`port::share`](crate::port::share)). One that is to be found both ways begins with a TCP port
//! of the slot's.
//!
//! The numbers of a port are handed out in an order drawn at random: every user of the host sees
//! which ports are taken, and is not to know which numbers are. Ports without a number in use are
//! given back, except for the one that became so last.
//!
//! The number of a UD or UC queue pair comes from the lower half of the process's slot. An RC queue
//! pair must be reachable over either protocol, so its number begins with a TCP port whose number
//! lies in the upper half of that slot. This module knows the datagram port only as a `Lodging`,
//! which takes its numbers back.

use std::any::Any;
use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::engine::sync::Mutex;
use crate::port::{Ipv6Listen, Network, Reservation, Sharing};
use iwarp_mem::OutOfMemory;

/// Bits of the index.
const INDEX_BITS: u32 = 8;
/// Bits of a packet sequence number.
pub(crate) const PSN_BITS: u32 = 0x00ff_ffff;
/// Ports below need privileges, so no queue pair is found there.
pub(crate) const LOWEST_PORT: u32 = 1024;
/// The first numbers are those of the management queue pairs of InfiniBand.
const LOWEST: u32 = 2;
/// Means "multicast" to InfiniBand.
const RESERVED: u32 = 0x00ff_ffff;
/// A number that was given back rests as long as so many others are free.
const SPARE: usize = 16;
/// Attempts at a port that others may take at this moment.
const TRIES: usize = 16;

/// The numbers of a device.
#[derive(Debug)]
pub(crate) struct Numbers {
    plain: Mutex<Plain>,
    ports: Arc<Ports>,
    /// The user has set the ports.
    has_range: bool,
    /// Numbers in the device's slot of the RoCE port, once it has one.
    of_slot: Mutex<Option<Arc<Ports>>>,
}

/// Numbers that lead nowhere.
#[derive(Debug)]
struct Plain {
    /// Numbers in use, and the next to try.
    used: HashSet<u32>,
    next: u32,
}

/// Numbers that begin with TCP ports.
#[derive(Debug)]
struct Ports {
    network: Arc<dyn Network>,
    /// The ports that may be taken; `None` leaves the choice to the system.
    range: Option<RangeInclusive<u16>>,
    state: Mutex<PortTable>,
}

#[derive(Debug, Default)]
struct PortTable {
    ports: HashMap<u16, Taken>,
    /// Counts the ports that were taken.
    serial: u64,
    /// Free numbers in the order in which they were given back, with those of ports that are gone.
    free: VecDeque<Free>,
    /// The number of those.
    stale: usize,
    /// A port none of whose numbers is in use.
    idle: Option<u16>,
}

/// A port, and how many of its numbers are in use.
#[derive(Debug)]
struct Taken {
    port: Arc<PortNumber>,
    serial: u64,
    used: usize,
}

/// A number, of the port that was the n-th to be taken.
#[derive(Clone, Copy, Debug)]
struct Free {
    value: u32,
    serial: u64,
}

/// A port number that is taken for 256 queue pairs.
#[derive(Debug)]
pub(crate) struct PortNumber {
    number: u16,
    reservation: Box<dyn Reservation>,
}

impl PortNumber {
    pub(crate) const fn number(&self) -> u16 {
        self.number
    }

    pub(crate) fn reservation(&self) -> &dyn Reservation {
        &*self.reservation
    }
}

/// A datagram port, as far as its numbers go.
pub(crate) trait Lodging: Any + Send + Sync + fmt::Debug {
    /// A number of its own is free.
    fn take_back(&self, number: u32);
}

/// A number, not given to another until it is dropped.
#[derive(Debug)]
pub(crate) struct Number {
    value: u32,
    kind: Kind,
    /// The port at which datagrams for it come, which has to stay as long.
    lodging: Option<Box<dyn Lodging>>,
}

#[derive(Debug)]
enum Kind {
    Plain(Arc<Numbers>),
    Port(Arc<PortNumber>, Arc<Ports>),
    /// The lodging's.
    Lodged,
}

impl Number {
    pub(crate) const fn value(&self) -> u32 {
        self.value
    }

    /// Port at which peers find it; `None` if they are not to.
    pub(crate) const fn port(&self) -> Option<&Arc<PortNumber>> {
        match &self.kind {
            Kind::Port(port, _) => Some(port),
            Kind::Plain(_) | Kind::Lodged => None,
        }
    }

    /// The port at which datagrams for it come, if they do.
    pub(crate) fn lodging(&self) -> Option<&dyn Lodging> {
        self.lodging.as_deref()
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        match &self.kind {
            Kind::Plain(numbers) => drop(numbers.plain.lock().used.remove(&self.value)),
            Kind::Port(_, ports) => ports.state.lock().take_back(self.value),
            Kind::Lodged => {
                if let Some(lodging) = &self.lodging {
                    lodging.take_back(self.value);
                }
            }
        }
    }
}

impl PortTable {
    /// The number of queue pair numbers that can be handed out.
    fn spare(&self) -> usize {
        self.free.len() - self.stale
    }

    /// Adds the numbers of a port, in an order that cannot be guessed. There is room for all
    /// numbers at one time, so that giving one back needs no memory.
    fn add(&mut self, port: PortNumber) -> io::Result<()> {
        let used: usize = self.ports.values().map(|taken| taken.used).sum();
        self.free.try_reserve(used + (1 << INDEX_BITS)).map_err(|_| OutOfMemory)?;
        self.ports.try_reserve(1).map_err(|_| OutOfMemory)?;
        let number = port.number;
        let first = u32::from(number) << INDEX_BITS;
        let mut values: Vec<_> =
            (first..first + (1 << INDEX_BITS)).filter(|value| *value != RESERVED).collect();
        shuffle(&mut values)?;
        self.serial += 1;
        let serial = self.serial;
        self.free.extend(values.into_iter().map(|value| Free { value, serial }));
        self.ports.insert(number, Taken { port: Arc::new(port), serial, used: 0 });
        Ok(())
    }

    /// The number that has rested longest.
    fn hand_out(&mut self) -> Option<(u32, Arc<PortNumber>)> {
        loop {
            let Free { value, serial } = self.free.pop_front()?;
            match self.ports.get_mut(&port_of(value)) {
                Some(taken) if taken.serial == serial => {
                    taken.used += 1;
                    self.idle = self.idle.filter(|idle| *idle != taken.port.number);
                    return Some((value, Arc::clone(&taken.port)));
                }
                _ => self.stale -= 1,
            }
        }
    }

    fn take_back(&mut self, value: u32) {
        let number = port_of(value);
        let Some(taken) = self.ports.get_mut(&number) else { return };
        taken.used -= 1;
        self.free.push_back(Free { value, serial: taken.serial });
        if taken.used > 0 {
            return;
        }
        // Its own numbers are still to rest, so it is the former idle one that goes.
        if let Some(former) = self.idle.replace(number) {
            self.ports.remove(&former);
            self.stale += numbers_of(former);
        }
        if self.stale > self.free.len() / 2 {
            let ports = &self.ports;
            self.free.retain(|free| {
                ports.get(&port_of(free.value)).is_some_and(|taken| taken.serial == free.serial)
            });
            self.stale = 0;
        }
    }
}

/// The number of queue pair numbers that a port has.
const fn numbers_of(port: u16) -> usize {
    (1 << INDEX_BITS) - (port == port_of(RESERVED)) as usize
}

/// Fisher and Yates. The few bytes of a draw make some orders likelier than others by less than
/// one part in a million.
fn shuffle(values: &mut [u32]) -> io::Result<()> {
    let mut draws = [0; 4 << INDEX_BITS];
    getrandom::fill(&mut draws)?;
    let (draws, _) = draws.as_chunks::<4>();
    for (place, draw) in draws.iter().enumerate().take(values.len()).skip(1) {
        let other = u32::from_ne_bytes(*draw) as usize % (place + 1);
        values.swap(place, other);
    }
    Ok(())
}

/// The port at which the queue pair with this number is found.
pub(crate) const fn port_of(number: u32) -> u16 {
    (number >> INDEX_BITS) as u16
}

impl Numbers {
    pub(crate) fn new(network: &Arc<dyn Network>, range: Option<RangeInclusive<u16>>) -> Arc<Self> {
        Arc::new(Self {
            plain: Mutex::new(Plain { used: HashSet::new(), next: LOWEST }),
            has_range: range.is_some(),
            ports: Ports::new(network, range),
            of_slot: Mutex::new(None),
        })
    }

    /// A number that leads nowhere.
    pub(crate) fn plain(self: &Arc<Self>) -> Result<Number, OutOfMemory> {
        let mut plain = self.plain.lock();
        plain.used.try_reserve(1).map_err(|_| OutOfMemory)?;
        let value = loop {
            let value = plain.next;
            plain.next = match value + 1 {
                END if plain.used.len() < FULL => LOWEST,
                // Only a program in C, whose numbers are others, minds more than 24 bits.
                END => RESERVED + 1,
                u32::MAX => LOWEST,
                next => next,
            };
            if plain.used.insert(value) {
                break value;
            }
        };
        Ok(Number { value, kind: Kind::Plain(Arc::clone(self)), lodging: None })
    }

    /// A number under which a peer finds the queue pair.
    pub(crate) fn addressable(&self) -> io::Result<Number> {
        let (value, kind) = self.ports.number()?;
        Ok(Number { value, kind, lodging: None })
    }

    /// A number of a lodging's own, which gets it back.
    pub(crate) fn lodged(value: u32, lodging: Box<dyn Lodging>) -> Number {
        Number { value, kind: Kind::Lodged, lodging: Some(lodging) }
    }

    /// A number that begins with one of these TCP ports, and whose queue pair is found at the
    /// lodging as well. If the user has set the TCP ports it is found by TCP alone.
    pub(crate) fn addressable_within(
        &self,
        range: RangeInclusive<u16>,
        lodging: Box<dyn Lodging>,
    ) -> io::Result<Number> {
        if self.has_range {
            return self.addressable();
        }
        let ports = {
            let mut of_slot = self.of_slot.lock();
            // A device keeps its share, and so its slot.
            let known = of_slot.take().filter(|known| known.range.as_ref() == Some(&range));
            let ports = known.unwrap_or_else(|| Ports::new(&self.ports.network, Some(range)));
            Arc::clone(of_slot.insert(ports))
        };
        let (value, kind) = ports.number()?;
        Ok(Number { value, kind, lodging: Some(lodging) })
    }
}

impl Ports {
    fn new(network: &Arc<dyn Network>, range: Option<RangeInclusive<u16>>) -> Arc<Self> {
        Arc::new(Self { network: Arc::clone(network), range, state: Mutex::default() })
    }

    /// A number of its ports.
    fn number(self: &Arc<Self>) -> io::Result<(u32, Kind)> {
        let mut state = self.state.lock();
        if state.spare() < SPARE
            && let Err(error) = self.take_port(&state.ports).and_then(|port| state.add(port))
            && state.spare() == 0
        {
            return Err(error);
        }
        let (value, port) = state.hand_out().ok_or(io::ErrorKind::AddrInUse)?;
        Ok((value, Kind::Port(port, Arc::clone(self))))
    }

    fn take_port(&self, ours: &HashMap<u16, Taken>) -> io::Result<PortNumber> {
        let network = &*self.network;
        let Some(range) = &self.range else { return any_port(network) };
        let count = u64::from(range.end() - range.start()) + 1;
        // Processes begin at different ports, which saves a search.
        let start = getrandom::u64().unwrap_or(0) % count;
        let mut failure = io::Error::from(io::ErrorKind::AddrInUse);
        for step in 0..count {
            let number = range.start() + ((start + step) % count) as u16;
            if ours.contains_key(&number) {
                continue;
            }
            match reserve(network, number) {
                Ok(reservation) => return Ok(PortNumber { number, reservation }),
                Err(error) => failure = error,
            }
        }
        Err(io::Error::new(
            failure.kind(),
            format!("no TCP port is free from {} to {}: {failure}", range.start(), range.end()),
        ))
    }
}

/// Numbers below the first port that could be used, and how many of them may be in use before
/// looking for a free one takes too long.
const END: u32 = LOWEST_PORT << INDEX_BITS;
const FULL: usize = END as usize - END as usize / 8;

/// One that the system chooses. It is asked for by its number, as a port that the system chose
/// for a socket goes when the socket stops listening.
fn any_port(network: &dyn Network) -> io::Result<PortNumber> {
    let mut tries = 0;
    loop {
        let number = reserve(network, 0)?.local_addr()?.port();
        match reserve(network, number) {
            Ok(reservation) if u32::from(number) >= LOWEST_PORT => {
                return Ok(PortNumber { number, reservation });
            }
            Err(error) if tries == TRIES => return Err(error),
            _ => tries += 1,
        }
    }
}

fn reserve(network: &dyn Network, port: u16) -> io::Result<Box<dyn Reservation>> {
    let at = |ip| network.reserve(ip, Ipv6Listen::DualStack, Sharing::Exclusive);
    match at(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port)) {
        Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
            // A host without IPv6.
            at(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port))
        }
        taken => taken,
    }
}

#[cfg(all(test, not(model)))]
mod tests {
    use super::*;
    use crate::port::Platform;

    fn of_any_port() -> Arc<Numbers> {
        Numbers::new(&Platform::default().network, None)
    }

    #[test]
    fn numbers_are_those_of_a_port() {
        let numbers = of_any_port();
        let (first, second) = (numbers.addressable().unwrap(), numbers.addressable().unwrap());
        let port = first.port().unwrap();
        assert_eq!(port_of(first.value()), port.number());
        assert_eq!(port.reservation().local_addr().unwrap().port(), port.number());
        assert_eq!(port_of(second.value()), port.number());
        assert!(first.value() >= LOWEST_PORT << 8 && first.value() < RESERVED);
    }

    #[test]
    fn the_next_number_is_not_known() {
        let numbers = of_any_port();
        let all: Vec<_> = (0..200).map(|_| numbers.addressable().unwrap()).collect();
        let next_to_each_other =
            all.windows(2).filter(|pair| pair[0].value() + 1 == pair[1].value()).count();
        // One in 256, and never more than 16 of 200.
        assert!(next_to_each_other < 16, "{next_to_each_other}");
        let other = of_any_port();
        let index = |number: &Number| number.value() & 0xff;
        let others: Vec<_> = (0..8).map(|_| index(&other.addressable().unwrap())).collect();
        assert_ne!(others, all.iter().take(8).map(index).collect::<Vec<_>>());
    }

    /// However many there were: one port stays, whose numbers rest.
    #[test]
    fn ports_without_numbers_in_use_are_given_back() {
        let numbers = of_any_port();
        let ports = || numbers.ports.state.lock().ports.len();
        let kept = numbers.addressable().unwrap();
        let first = kept.port().unwrap().number();
        for _ in 0..3 {
            let mut many: Vec<_> = (0..5000).map(|_| numbers.addressable().unwrap()).collect();
            assert!(ports() >= 5000 / 256);
            // Every other one first, so that all ports become free at the end.
            let mut left = Vec::new();
            for (place, number) in many.drain(..).enumerate() {
                if place % 2 == 0 {
                    left.push(number);
                }
            }
            assert!(ports() >= 5000 / 256);
            drop(left);
            assert!(ports() <= 2, "{}", ports());
            let state = numbers.ports.state.lock();
            assert!(state.free.len() <= 4 * 256, "{}", state.free.len());
            assert!(state.ports.contains_key(&first), "it is in use");
        }
        // And what is handed out afterwards is of ports that are there.
        for _ in 0..1000 {
            let number = numbers.addressable().unwrap();
            assert_eq!(port_of(number.value()), number.port().unwrap().number());
        }
        drop(kept);
        assert!(ports() <= 2);
    }

    #[test]
    fn a_number_that_was_given_back_rests() {
        let numbers = of_any_port();
        let keep: Vec<_> = (0..250).map(|_| numbers.addressable().unwrap()).collect();
        let freed = numbers.addressable().unwrap().value();
        let mut seen = HashSet::new();
        for _ in 0..6 + SPARE {
            let number = numbers.addressable().unwrap();
            assert_ne!(number.value(), freed);
            seen.insert(number.value());
        }
        assert!(seen.len() > SPARE, "each rests: {seen:?}");
        drop(keep);
    }

    #[test]
    fn numbers_are_unique_and_all_are_used() {
        let numbers = of_any_port();
        let all: Vec<_> = (0..1000).map(|_| numbers.addressable().unwrap()).collect();
        let distinct: HashSet<_> = all.iter().map(Number::value).collect();
        assert_eq!(distinct.len(), 1000);
        let ports: HashSet<_> = distinct.iter().map(|number| port_of(*number)).collect();
        assert_eq!(ports.len(), 4);
    }

    #[test]
    fn ports_come_from_the_range_and_run_out() {
        let network = Platform::default().network;
        let reserve = |port| reserve(&*network, port);
        // Two ports that are free now, most likely side by side.
        let (first, taken) = loop {
            let first = reserve(0).unwrap().local_addr().unwrap().port();
            if first < u16::MAX
                && let (Ok(_), Ok(taken)) = (reserve(first), reserve(first + 1))
            {
                break (first, taken);
            }
        };
        let numbers = Numbers::new(&network, Some(first..=first + 1));
        let mut all: Vec<_> = (0..256).map(|_| numbers.addressable().unwrap()).collect();
        assert!(all.iter().all(|number| port_of(number.value()) == first));
        let error = numbers.addressable().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse, "{error}");
        let freed = all.remove(77).value();
        assert_eq!(numbers.addressable().unwrap().value(), freed);
        drop(taken);
    }

    #[test]
    fn plain_numbers_lead_nowhere() {
        let numbers = of_any_port();
        let first = numbers.plain().unwrap();
        assert_eq!(first.value(), LOWEST);
        let others: Vec<_> = (0..END).map(|_| numbers.plain().unwrap()).collect();
        let distinct: HashSet<_> = others.iter().map(Number::value).collect();
        assert_eq!(distinct.len(), others.len());
        assert!(distinct.iter().all(|number| *number < END || *number > RESERVED));
        assert!(numbers.ports.state.lock().ports.is_empty(), "no descriptor is paid for them");
    }
}
