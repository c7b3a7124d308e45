// SPDX-License-Identifier: MIT OR Apache-2.0

//! The sockets of the process, by the numbers of their descriptors.

use std::ffi::c_int;
use std::io;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use iwarp::Device;
use iwarp_os::PerProcess;
use iwarp_rsocket::{Devices, Host, Settings, Socket};

use crate::cm::device;
use crate::guard::Errno;
use crate::log;

/// A socket of the program's, and the options that matter here.
pub(super) struct Entry {
    pub(super) socket: Socket,
    options: Mutex<Options>,
}

/// Options that the library acts on by itself or only keeps.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Options {
    pub(super) receive_timeout: Option<Duration>,
    pub(super) send_timeout: Option<Duration>,
    /// Seconds.
    pub(super) linger: Option<u32>,
    pub(super) reuse_address: bool,
    pub(super) keepalive: bool,
    /// The values of options without effect, by level and name.
    pub(super) kept: Kept,
}

/// Most options that are only kept.
const KEPT: usize = 16;

/// Values of options that are only kept.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Kept([(c_int, c_int, c_int); KEPT]);

impl Kept {
    pub(super) fn get(&self, level: c_int, name: c_int) -> Option<c_int> {
        let is_it = |entry: &&(c_int, c_int, c_int)| (entry.0, entry.1) == (level, name);
        self.0.iter().find(is_it).map(|entry| entry.2)
    }

    pub(super) fn set(&mut self, level: c_int, name: c_int, value: c_int) {
        let is_it = |entry: &(c_int, c_int, c_int)| (entry.0, entry.1) == (level, name);
        let place = self.0.iter().position(is_it);
        let place = place.or_else(|| self.0.iter().position(|entry| *entry == (0, 0, 0)));
        if let Some(entry) = place.and_then(|place| self.0.get_mut(place)) {
            *entry = (level, name, value);
        }
    }
}

impl Entry {
    pub(super) fn options(&self) -> Options {
        *self.options.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn change<T>(&self, f: impl FnOnce(&mut Options) -> T) -> T {
        f(&mut self.options.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[derive(Default)]
struct Table {
    entries: RwLock<Vec<Option<Arc<Entry>>>>,
    host: OnceLock<Host>,
    making: Mutex<()>,
}

/// A forked child has none of the parent's: those connections are the parent's.
static TABLE: PerProcess<Table> = PerProcess::new();

/// The devices of the process, as ids have them.
struct Places;

impl Devices for Places {
    fn at(&self, place: usize) -> io::Result<Device> {
        let context = device::context(place);
        let context = context.map_err(|error| io::Error::from_raw_os_error(error.number()))?;
        context.device().sibling()
    }
}

/// The host of the process's sockets.
pub(super) fn host() -> Result<Host, Errno> {
    let table = TABLE.get();
    if let Some(host) = table.host.get() {
        return Ok(host.clone());
    }
    let _one_at_a_time = table.making.lock().unwrap_or_else(PoisonError::into_inner);
    if table.host.get().is_none() {
        crate::guard::prepare();
        let made = Host::with(device::device()?, Box::new(Places), Settings::of_system())?;
        let _ = table.host.set(made);
    }
    table.host.get().cloned().ok_or_else(|| Errno::plain(libc::ENODEV))
}

/// Enters a new socket: its number.
pub(super) fn enter(socket: Socket, options: Options) -> Result<RawFd, Errno> {
    let number = socket.number()?;
    let place = usize::try_from(number).map_err(|_| Errno::plain(libc::EBADF))?;
    let entry = Arc::new(Entry { socket, options: Mutex::new(options) });
    let mut entries = TABLE.get().entries.write().unwrap_or_else(PoisonError::into_inner);
    if entries.len() <= place {
        entries.resize_with(place + 1, || None);
    }
    let before = entries[place].replace(entry);
    drop(entries);
    if let Some(before) = before {
        // The program has closed its number by close(), and the system has given it anew.
        log::say(
            iwarp::Log::Warn,
            format_args!("rsocket: descriptor {number} was closed by close(), and not by rclose()"),
        );
        before.socket.disown();
    }
    Ok(number)
}

/// True if there may be one.
pub(super) fn has_any() -> bool {
    TABLE.get().host.get().is_some()
}

/// The socket of this number.
pub(super) fn get(number: RawFd) -> Result<Arc<Entry>, Errno> {
    find(number).ok_or_else(|| Errno::plain(libc::EBADF))
}

/// As [`get`], where there may be none.
pub(super) fn find(number: RawFd) -> Option<Arc<Entry>> {
    let place = usize::try_from(number).ok()?;
    let entries = TABLE.get().entries.read().unwrap_or_else(PoisonError::into_inner);
    entries.get(place)?.clone()
}

/// Takes the socket of this number out.
pub(super) fn remove(number: RawFd) -> Option<Arc<Entry>> {
    let place = usize::try_from(number).ok()?;
    let mut entries = TABLE.get().entries.write().unwrap_or_else(PoisonError::into_inner);
    entries.get_mut(place)?.take()
}
