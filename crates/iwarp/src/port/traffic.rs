// SPDX-License-Identifier: MIT OR Apache-2.0

//! The traffic of this process, for other processes: the counters of the ports of RDMA devices, as
//! `iwarp run` shows them in /sys.
//!
//! A stream counts on the port of its queue pair, and until it has one on that of its address. The
//! socket for datagrams serves all ports: a packet counts on the port that has its address here.
//! Of several ports with an address, all that are bound to its interface count, and without such a
//! one all that have the addresses of all interfaces.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use iwarp_os::ledger::{self, Entry};
use iwarp_os::{Interface, PerProcess, environment};

use super::lock;
use crate::hash::OwnKeys;

static BOOKS: PerProcess<OnceLock<Option<Books>>> = PerProcess::new();
/// This process counts, or the one that it was forked from: without a tree it costs a load and a
/// branch.
static COUNTS: AtomicBool = AtomicBool::new(false);

/// The time for which the ports of an address are known without asking the system.
const LATELY: Duration = Duration::from_millis(100);

/// Begins to count, where this process is shown a tree. Later calls do nothing.
pub(super) fn open() {
    BOOKS.get().get_or_init(|| {
        let tree = environment::variable("IWARP_SYSFS")?;
        COUNTS.store(true, Ordering::Relaxed);
        Some(Books::new(Path::new(&tree).join("counted/processes")))
    });
}

/// The devices of the process have these ports: the interface of each, or `None` for all.
pub(crate) fn set_ports(ports: impl Iterator<Item = Option<String>>) {
    if let Some(books) = books() {
        let ports: Vec<_> = ports.collect();
        // In the order of those who look up.
        let mut lately = lock(&books.lately);
        books.several.store(ports.len() > 1, Ordering::Relaxed);
        *lock(&books.interfaces) = ports;
        lately.places.clear();
    }
}

/// True if the devices of the process have several ports, and other processes look.
pub(crate) fn has_several() -> bool {
    books().is_some_and(|books| books.several.load(Ordering::Relaxed))
}

/// Visits the ports, by their numbers among those of all devices, on which packets to or from an
/// address of this host count. `interface`: of a packet to a group, by which it has come.
pub(crate) fn each_port_at(addr: IpAddr, interface: Option<u32>, visit: impl Fn(usize)) {
    match books() {
        Some(books) => books.at((addr, interface)).iter().for_each(|page| visit(page.port)),
        None => visit(0),
    }
}

fn books() -> Option<&'static Books> {
    if COUNTS.load(Ordering::Relaxed) { BOOKS.get().get()?.as_ref() } else { None }
}

/// The entries on which a stream is counted; none where no process looks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Account(Option<Arc<[Page]>>);

impl Account {
    /// Of a stream that has no queue pair yet, with this address.
    pub(super) fn at(local: Option<IpAddr>) -> Self {
        let pages = |books: &Books| match local {
            Some(addr) => books.at((addr, None)),
            None => books.pages(&[0]),
        };
        Self(books().map(pages))
    }

    /// Of the port with this number among those of all devices.
    pub(super) fn of(port: usize) -> Self {
        Self(books().map(|books| books.pages(&[port])))
    }

    /// Counts what the system took.
    #[inline]
    pub(super) fn sent(&self, octets: usize, packets: impl FnOnce() -> usize) {
        if let Some(pages) = &self.0 {
            count(pages, [(ledger::SENT_OCTETS, octets), (ledger::SENT_PACKETS, packets())]);
        }
    }

    /// Counts what came.
    #[inline]
    pub(super) fn received(&self, octets: usize, packets: impl FnOnce() -> usize) {
        if let Some(pages) = &self.0 {
            let counts = [(ledger::RECEIVED_OCTETS, octets), (ledger::RECEIVED_PACKETS, packets())];
            count(pages, counts);
        }
    }
}

#[inline(never)]
fn count(pages: &[Page], counts: [(usize, usize); 2]) {
    for Page { entry, first, .. } in pages {
        if let Some(entry) = entry {
            counts.iter().for_each(|(count, by)| entry.add(first + count, *by as u64));
        }
    }
}

/// Packets of one address of this host.
pub(super) struct Moved {
    pub(super) addr: IpAddr,
    /// Of a packet to a group, by which it has come.
    pub(super) interface: Option<u32>,
    pub(super) octets: usize,
    pub(super) packets: usize,
}

/// Counts datagrams that the system took.
#[inline]
pub(super) fn sent<I: Iterator<Item = Moved>>(moved: impl FnOnce() -> I) {
    if COUNTS.load(Ordering::Relaxed) {
        count_all(&mut moved(), [ledger::SENT_OCTETS, ledger::SENT_PACKETS]);
    }
}

/// Counts datagrams that came.
#[inline]
pub(super) fn received<I: Iterator<Item = Moved>>(moved: impl FnOnce() -> I) {
    if COUNTS.load(Ordering::Relaxed) {
        count_all(&mut moved(), [ledger::RECEIVED_OCTETS, ledger::RECEIVED_PACKETS]);
    }
}

/// Packets of one place that follow each other are counted together.
#[inline(never)]
fn count_all(all: &mut dyn Iterator<Item = Moved>, [octets, packets]: [usize; 2]) {
    let Some(books) = books() else { return };
    let Some(mut sum) = all.next() else { return };
    let count = |sum: &Moved| {
        let counts = [(octets, sum.octets), (packets, sum.packets)];
        count(&books.at((sum.addr, sum.interface)), counts);
    };
    for more in all {
        if (more.addr, more.interface) == (sum.addr, sum.interface) {
            sum.octets += more.octets;
            sum.packets += more.packets;
        } else {
            count(&sum);
            sum = more;
        }
    }
    count(&sum);
}

/// The counts of a port: an entry, if one was free, and the first of them in it.
#[derive(Clone, Debug)]
struct Page {
    port: usize,
    entry: Option<Arc<Entry>>,
    first: usize,
}

/// An address of this host, or a group and the interface by which a packet to it has come.
type Place = (IpAddr, Option<u32>);

/// The counts of a process.
#[derive(Debug)]
struct Books {
    file: PathBuf,
    /// Entries that were asked for, by their subjects; `None` where none was free.
    entries: Mutex<OwnKeys<u64, Option<Arc<Entry>>>>,
    /// Interfaces of the ports, the first device's first; `None`: all.
    interfaces: Mutex<Vec<Option<String>>>,
    several: AtomicBool,
    /// Counts of the first port.
    first: OnceLock<Arc<[Page]>>,
    lately: Mutex<Lately>,
}

/// The ports of addresses that were looked up a short while ago.
#[derive(Debug)]
struct Lately {
    places: OwnKeys<Place, Arc<[Page]>>,
    since: Instant,
}

impl Books {
    fn new(file: PathBuf) -> Self {
        let lately = Lately { places: OwnKeys::default(), since: Instant::now() };
        Self {
            file,
            entries: Mutex::default(),
            interfaces: Mutex::default(),
            several: AtomicBool::new(false),
            first: OnceLock::new(),
            lately: Mutex::new(lately),
        }
    }

    fn pages(&self, ports: &[usize]) -> Arc<[Page]> {
        let mut entries = lock(&self.entries);
        let of = |port: &usize| {
            let (subject, first) = ledger::traffic(*port);
            let claim = || Entry::claim(&self.file, subject).ok().map(Arc::new);
            let entry = entries.entry(subject).or_insert_with(claim).clone();
            Page { port: *port, entry, first }
        };
        ports.iter().map(of).collect()
    }

    fn at(&self, (addr, interface): Place) -> Arc<[Page]> {
        if !self.several.load(Ordering::Relaxed) {
            return Arc::clone(self.first.get_or_init(|| self.pages(&[0])));
        }
        let place = (addr.to_canonical(), interface);
        let mut lately = lock(&self.lately);
        if lately.since.elapsed() >= LATELY {
            *lately = Lately { places: OwnKeys::default(), since: Instant::now() };
        }
        let look_up = || {
            let there = iwarp_os::addr::interfaces().unwrap_or_default();
            self.pages(&ports_of(&lock(&self.interfaces), &there, place))
        };
        Arc::clone(lately.places.entry(place).or_insert_with(look_up))
    }
}

fn ports_of(ports: &[Option<String>], there: &[Interface], (addr, interface): Place) -> Vec<usize> {
    let has = |one: &Interface| match interface {
        Some(index) => one.index == index,
        None => one.addrs.iter().any(|own| own.ip == addr) || one.loopback && addr.is_loopback(),
    };
    let is_at = |name: &str| there.iter().any(|one| one.name == name && has(one));
    let those = |is_meant: &dyn Fn(Option<&str>) -> bool| -> Vec<usize> {
        let all = ports.iter().enumerate();
        all.filter(|(_, name)| is_meant(name.as_deref())).map(|(place, _)| place).collect()
    };
    let bound = those(&|name| name.is_some_and(is_at));
    let found = if bound.is_empty() { those(&|name| name.is_none()) } else { bound };
    // Loopback is the first port's where none has it.
    if found.is_empty() { vec![0] } else { found }
}

#[cfg(test)]
pub(super) mod tests {
    use std::fs;

    use super::*;

    /// An interface that is up.
    pub(in crate::port) fn interface(name: &str, index: u32, ips: &[&str]) -> Interface {
        let addrs = ips.iter().map(|ip| iwarp_os::InterfaceAddr {
            ip: ip.parse().unwrap(),
            prefix_len: 24,
            scope_id: 0,
        });
        Interface {
            name: name.to_owned(),
            index,
            up: true,
            running: true,
            loopback: name == "lo",
            point_to_point: false,
            bridge: false,
            mtu: None,
            mac: None,
            addrs: addrs.collect(),
        }
    }

    fn there() -> [Interface; 2] {
        let eth0 = interface("eth0", 7, &["192.0.2.1", "2001:db8::1"]);
        [interface("lo", 1, &["127.0.0.1"]), eth0]
    }

    #[test]
    fn packets_count_on_the_ports_that_have_their_address() {
        let on = |ports: &[&str], addr: &str, interface| {
            let of = |name: &&str| Some((*name).to_owned()).filter(|name| !name.is_empty());
            let ports: Vec<_> = ports.iter().map(of).collect();
            ports_of(&ports, &there(), (addr.parse().unwrap(), interface))
        };
        assert_eq!(on(&["eth0", "lo"], "127.9.9.9", None), [1]);
        assert_eq!(on(&["eth0", "lo"], "2001:db8::1", None), [0]);
        // By the interface of a packet to a group.
        assert_eq!(on(&["lo", "eth0"], "224.0.0.9", Some(7)), [1]);
        // Ports that are bound to the interface come before ports with all addresses.
        assert_eq!(on(&["", "eth0", "eth0", ""], "192.0.2.1", None), [1, 2]);
        assert_eq!(on(&["", "eth0", ""], "127.0.0.1", None), [0, 2]);
        assert_eq!(on(&["eth0", "eth1"], "127.0.0.1", None), [0]);
    }

    #[test]
    fn ports_beyond_the_third_have_another_entry() {
        let path = std::env::temp_dir().join(format!("iwarp-traffic-{}", std::process::id()));
        fs::write(&path, vec![0; ledger::OCTETS]).unwrap();
        let books = Books::new(path.clone());
        let pages = books.pages(&[0, 2, 3]);
        let entries = [0, 1, 2].map(|place| Arc::as_ptr(pages[place].entry.as_ref().unwrap()));
        assert!(entries[0] == entries[1] && entries[0] != entries[2]);
        count(&pages[1..2], [(ledger::SENT_OCTETS, 5), (ledger::SENT_PACKETS, 2)]);
        let octets = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let word = |place: usize| u64::from_ne_bytes(octets[place * 8..][..8].try_into().unwrap());
        // Behind the owner and the subject.
        assert_eq!([2, 10, 11, 12, 13].map(word), [0, 5, 0, 2, 0]);
    }
}
