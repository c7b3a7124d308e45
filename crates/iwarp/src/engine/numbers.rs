//! Queue pair numbers.
//!
//! A number of 24 bits tells a peer that knows nothing else where its queue pair can be found: the
//! upper 16 bits are a TCP port, the lower 8 say which of the queue pairs there. A queue pair that
//! nobody is to find this way has a number whose upper bits are no port that could be used.

use std::collections::{HashSet, VecDeque};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::Arc;

use iwarp_os::{Ipv6Listen, Sharing, TcpSocket};

use crate::engine::sync::Mutex;

/// Bits of the index.
const INDEX_BITS: u32 = 8;
/// Ports below need privileges, so nobody is found there.
const LOWEST_PORT: u32 = 1024;
/// The first numbers are those of the management queue pairs of InfiniBand.
const LOWEST: u32 = 2;
/// Means "multicast" to InfiniBand.
const RESERVED: u32 = 0x00ff_ffff;
/// A number that was given back rests as long as so many others are free.
const SPARE: usize = 16;
/// How often a port is asked for that others may take at the same time.
const TRIES: usize = 16;

/// The numbers of a device.
#[derive(Debug)]
pub(crate) struct Numbers {
    /// Where ports may be taken from, if not from wherever the system likes.
    range: Option<RangeInclusive<u16>>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Those in use that lead nowhere, and the next to try.
    plain: HashSet<u32>,
    next: u32,
    ports: Vec<Arc<Port>>,
    /// Of all ports, in the order in which they were given back.
    free: VecDeque<u32>,
}

/// A TCP port that is taken for 256 queue pairs.
#[derive(Debug)]
pub(crate) struct Port {
    number: u16,
    socket: TcpSocket,
}

impl Port {
    pub(crate) const fn number(&self) -> u16 {
        self.number
    }

    pub(crate) const fn socket(&self) -> &TcpSocket {
        &self.socket
    }
}

/// A number that nobody else has until it is dropped.
#[derive(Debug)]
pub(crate) struct Number {
    value: u32,
    port: Option<Arc<Port>>,
    numbers: Arc<Numbers>,
}

impl Number {
    pub(crate) const fn value(&self) -> u32 {
        self.value
    }

    /// Where peers find it, if they are to.
    pub(crate) const fn port(&self) -> Option<&Arc<Port>> {
        self.port.as_ref()
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        let mut state = self.numbers.state.lock();
        if self.port.is_some() {
            state.free.push_back(self.value);
        } else {
            state.plain.remove(&self.value);
        }
    }
}

/// The TCP port at which the queue pair with this number is found.
pub(crate) const fn port_of(number: u32) -> u16 {
    (number >> INDEX_BITS) as u16
}

impl Numbers {
    pub(crate) fn new(range: Option<RangeInclusive<u16>>) -> Arc<Self> {
        let state = State { next: LOWEST, ..State::default() };
        Arc::new(Self { range, state: Mutex::new(state) })
    }

    /// A number that leads nowhere.
    pub(crate) fn plain(self: &Arc<Self>) -> Number {
        let mut state = self.state.lock();
        let value = loop {
            let value = state.next;
            state.next = match value + 1 {
                END if state.plain.len() < FULL => LOWEST,
                // Only a program in C, whose numbers are others, minds more than 24 bits.
                END => RESERVED + 1,
                u32::MAX => LOWEST,
                next => next,
            };
            if state.plain.insert(value) {
                break value;
            }
        };
        Number { value, port: None, numbers: Arc::clone(self) }
    }

    /// A number under which a peer finds the queue pair.
    pub(crate) fn addressable(self: &Arc<Self>) -> io::Result<Number> {
        let mut state = self.state.lock();
        if state.free.len() < SPARE {
            match self.take_port(&state.ports) {
                Ok(port) => {
                    let first = u32::from(port.number) << INDEX_BITS;
                    let all = first..first + (1 << INDEX_BITS);
                    state.free.extend(all.filter(|number| *number != RESERVED));
                    state.ports.push(Arc::new(port));
                }
                Err(error) if state.free.is_empty() => return Err(error),
                Err(_) => {}
            }
        }
        let value = state.free.pop_front().ok_or(io::ErrorKind::AddrInUse)?;
        let port = state.ports.iter().find(|port| port.number == port_of(value)).cloned();
        Ok(Number { value, port, numbers: Arc::clone(self) })
    }

    fn take_port(&self, ours: &[Arc<Port>]) -> io::Result<Port> {
        let Some(range) = &self.range else { return any_port() };
        let count = u64::from(range.end() - range.start()) + 1;
        // Not everybody the same first: it saves a search.
        let start = iwarp_os::random::u64().unwrap_or(0) % count;
        let mut failure = io::Error::from(io::ErrorKind::AddrInUse);
        for step in 0..count {
            let number = range.start() + ((start + step) % count) as u16;
            if ours.iter().any(|port| port.number == number) {
                continue;
            }
            match reserve(number) {
                Ok(socket) => return Ok(Port { number, socket }),
                Err(error) => failure = error,
            }
        }
        Err(io::Error::new(failure.kind(), format!("no port is free in IWARP_PORTS: {failure}")))
    }
}

/// Numbers below the first port that could be used, and how many of them may be in use before
/// looking for a free one takes too long.
const END: u32 = LOWEST_PORT << INDEX_BITS;
const FULL: usize = END as usize - END as usize / 8;

/// One that the system chooses. It is asked for by its number, as a port that the system chose
/// for a socket goes when the socket stops listening.
fn any_port() -> io::Result<Port> {
    let mut tries = 0;
    loop {
        let number = reserve(0)?.local_addr()?.port();
        match reserve(number) {
            Ok(socket) if u32::from(number) >= LOWEST_PORT => return Ok(Port { number, socket }),
            Err(error) if tries == TRIES => return Err(error),
            _ => tries += 1,
        }
    }
}

fn reserve(port: u16) -> io::Result<TcpSocket> {
    let at = |ip| TcpSocket::reserve(ip, Ipv6Listen::DualStack, Sharing::Exclusive);
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

    #[test]
    fn numbers_are_those_of_a_port() {
        let numbers = Numbers::new(None);
        let (first, second) = (numbers.addressable().unwrap(), numbers.addressable().unwrap());
        let port = first.port().unwrap();
        assert_eq!(port_of(first.value()), port.number());
        assert_eq!(port.socket().local_addr().unwrap().port(), port.number());
        assert_eq!(second.value(), first.value() + 1);
        assert!(first.value() >= LOWEST_PORT << 8 && first.value() < RESERVED);
    }

    #[test]
    fn a_number_that_was_given_back_rests() {
        let numbers = Numbers::new(None);
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
        let numbers = Numbers::new(None);
        let all: Vec<_> = (0..1000).map(|_| numbers.addressable().unwrap()).collect();
        let distinct: HashSet<_> = all.iter().map(Number::value).collect();
        assert_eq!(distinct.len(), 1000);
        let ports: HashSet<_> = distinct.iter().map(|number| port_of(*number)).collect();
        assert_eq!(ports.len(), 4);
    }

    #[test]
    fn ports_come_from_the_range_and_run_out() {
        // Two ports that are free now, most likely side by side.
        let (first, taken) = loop {
            let first = reserve(0).unwrap().local_addr().unwrap().port();
            if first < u16::MAX
                && let (Ok(_), Ok(taken)) = (reserve(first), reserve(first + 1))
            {
                break (first, taken);
            }
        };
        let numbers = Numbers::new(Some(first..=first + 1));
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
        let numbers = Numbers::new(None);
        let first = numbers.plain();
        assert_eq!(first.value(), LOWEST);
        let others: Vec<_> = (0..END).map(|_| numbers.plain()).collect();
        let distinct: HashSet<_> = others.iter().map(Number::value).collect();
        assert_eq!(distinct.len(), others.len());
        assert!(distinct.iter().all(|number| *number < END || *number > RESERVED));
        assert!(numbers.state.lock().ports.is_empty(), "no descriptor is paid for them");
    }
}
