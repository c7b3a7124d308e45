// SPDX-License-Identifier: MIT OR Apache-2.0

//! Addresses of peers and of listeners, given as such or by name.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, ToSocketAddrs};
use std::sync::mpsc::{self, RecvTimeoutError};

use iwarp_os::thread::spawn_blocked;
use iwarp_types::Time;

use crate::engine::now;

/// The addresses of a peer or a listener: one, several, or a name and a port that the system's
/// resolver turns into addresses.
///
/// A program names this type only to keep one. The calls that connect and listen take anything that
/// converts into one, as those of [`std::net`] do:
///
/// ```
/// use std::net::SocketAddr;
///
/// use iwarp::cm::Addresses;
///
/// let one: Addresses = SocketAddr::from(([127, 0, 0, 1], 7471)).into();
/// assert_eq!(one, "127.0.0.1:7471".into());
/// let named: [Addresses; 2] = ["localhost:7471".into(), ("localhost", 7471).into()];
/// ```
///
/// Several are tried in order, as by [`std::net`], and the error of the last one is returned. Text
/// that is neither an address nor a name with a port is an error (`InvalidInput`) of the call that
/// gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addresses(Given);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Given {
    Known(Vec<SocketAddr>),
    /// A name, a colon and a port, unless it makes no sense.
    Text(String),
    Name(String, u16),
}

impl Addresses {
    /// The addresses, at least one. Asks the resolver, where it has to be asked, in this thread.
    ///
    /// # Errors
    ///
    /// Errors of the resolver; `InvalidInput` if there is no address.
    pub(crate) fn resolve(self) -> io::Result<Vec<SocketAddr>> {
        let Self(given) = self;
        let found = match given {
            Given::Known(known) => known,
            Given::Text(text) => text.to_socket_addrs()?.collect(),
            Given::Name(name, port) => (name.as_str(), port).to_socket_addrs()?.collect(),
        };
        if found.is_empty() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no address"));
        }
        Ok(found)
    }

    /// Calls `done` with the addresses: at once where they are known, and otherwise from a thread
    /// of its own. The resolver may take many seconds, which is neither the caller's time nor the
    /// worker's, and no call ends it sooner.
    ///
    /// # Errors
    ///
    /// When the thread cannot be made.
    pub(crate) fn look_up(
        self,
        done: impl FnOnce(io::Result<Vec<SocketAddr>>) + Send + 'static,
    ) -> io::Result<()> {
        if matches!(self, Self(Given::Known(_))) {
            done(self.resolve());
            return Ok(());
        }
        spawn_blocked("iwarp-names", move || done(self.resolve())).map(drop)
    }

    /// As [`Self::resolve`], until `deadline`.
    ///
    /// # Errors
    ///
    /// As there; `TimedOut`.
    pub(crate) fn resolve_until(self, deadline: Time) -> io::Result<Vec<SocketAddr>> {
        let (sender, found) = mpsc::sync_channel(1);
        self.look_up(move |found| _ = sender.send(found))?;
        found.recv_timeout(deadline.0.saturating_sub(now().0)).map_err(|error| match error {
            RecvTimeoutError::Timeout => io::ErrorKind::TimedOut,
            RecvTimeoutError::Disconnected => io::ErrorKind::Other,
        })?
    }

    /// Tries each until one will do, in this thread.
    ///
    /// # Errors
    ///
    /// That of the last; as [`Self::resolve`].
    #[doc(hidden)]
    pub fn try_each<T>(
        self,
        mut attempt: impl FnMut(SocketAddr) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut last = io::ErrorKind::InvalidInput.into();
        for addr in self.resolve()? {
            match attempt(addr) {
                Ok(done) => return Ok(done),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

impl From<Vec<SocketAddr>> for Addresses {
    fn from(known: Vec<SocketAddr>) -> Self {
        Self(Given::Known(known))
    }
}

impl From<&[SocketAddr]> for Addresses {
    fn from(known: &[SocketAddr]) -> Self {
        known.to_vec().into()
    }
}

impl<const N: usize> From<[SocketAddr; N]> for Addresses {
    fn from(known: [SocketAddr; N]) -> Self {
        known.to_vec().into()
    }
}

macro_rules! from_one {
    ($($type:ty),*) => { $(
        impl From<$type> for Addresses {
            fn from(addr: $type) -> Self {
                Self(Given::Known(vec![addr.into()]))
            }
        }
    )* };
}

from_one!(SocketAddr, SocketAddrV4, SocketAddrV6, (IpAddr, u16), (Ipv4Addr, u16), (Ipv6Addr, u16));

impl From<String> for Addresses {
    fn from(text: String) -> Self {
        match text.parse::<SocketAddr>() {
            Ok(addr) => addr.into(),
            Err(_) => Self(Given::Text(text)),
        }
    }
}

impl From<&String> for Addresses {
    fn from(text: &String) -> Self {
        text.clone().into()
    }
}

impl From<&str> for Addresses {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl From<(String, u16)> for Addresses {
    fn from((name, port): (String, u16)) -> Self {
        match name.parse::<IpAddr>() {
            Ok(ip) => (ip, port).into(),
            Err(_) => Self(Given::Name(name, port)),
        }
    }
}

impl From<(&str, u16)> for Addresses {
    fn from((name, port): (&str, u16)) -> Self {
        (name.to_owned(), port).into()
    }
}

#[cfg(all(test, not(model)))]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::*;

    fn is_known(addresses: impl Into<Addresses>) -> bool {
        matches!(addresses.into(), Addresses(Given::Known(_)))
    }

    #[test]
    fn no_resolver_is_asked_for_an_address() {
        assert!(is_known("127.0.0.1:7471") && is_known("[::1]:7471"));
        assert!(is_known(("127.0.0.1", 7471)) && is_known(("::1", 7471)));
        assert!(is_known((Ipv6Addr::LOCALHOST, 1)) && is_known(String::from("0.0.0.0:0")));
        assert!(!is_known("localhost:7471") && !is_known(("localhost", 7471)));
        // Not an address but for the shell.
        assert!(!is_known("127.1:7471"));
    }

    #[test]
    fn names_become_addresses() {
        for named in ["localhost:7471".into(), Addresses::from(("localhost", 7471))] {
            let found = named.clone().resolve().unwrap();
            assert!(!found.is_empty());
            assert!(found.iter().all(|addr| addr.ip().is_loopback() && addr.port() == 7471));
            let until = now().plus(Duration::from_secs(20));
            assert_eq!(named.resolve_until(until).unwrap(), found);
        }
    }

    #[test]
    fn text_without_an_address_is_an_error() {
        for text in ["", "localhost", "localhost:port", "localhost:70000"] {
            let error = Addresses::from(text).resolve().unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{text:?}: {error}");
        }
        let none = Addresses::from(Vec::new()).resolve().unwrap_err();
        assert_eq!(none.kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn each_is_tried_until_one_will_do() {
        let all = [1, 2, 3].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let mut tried = Vec::new();
        let second = Addresses::from(all).try_each(|addr| {
            tried.push(addr.port());
            if addr.port() == 2 { Ok(addr) } else { Err(io::ErrorKind::AddrInUse.into()) }
        });
        assert_eq!((second.unwrap(), tried), (all[1], vec![1, 2]));
        let failed = Addresses::from(all)
            .try_each(|addr| Err::<(), _>(io::Error::other(addr.port().to_string())));
        assert_eq!(failed.unwrap_err().to_string(), "3");
    }

    #[test]
    fn a_name_is_looked_up_by_another_thread_and_an_address_by_this_one() {
        let this = thread::current().id();
        let asked = |addresses: Addresses| {
            let (sender, thread) = mpsc::channel();
            addresses.look_up(move |_| sender.send(thread::current().id()).unwrap()).unwrap();
            thread.recv_timeout(Duration::from_secs(20)).unwrap()
        };
        assert_eq!(asked("127.0.0.1:1".into()), this);
        assert_ne!(asked("localhost:1".into()), this);
    }
}
