// SPDX-License-Identifier: MIT OR Apache-2.0

//! The state of the process that outlives a run: the arenas in which memory lies that others map.

use std::net::Ipv4Addr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use iwarp::port::MemoryNetwork;
use iwarp::{Access, Device, LocalPath, Options};
use iwarp_os::local::{Heap, MappedArena};

/// The right to run: one run at a time has the arenas, so that memory lies where it would lie if
/// there were no other.
pub(crate) struct Turn {
    _is_prepared: MutexGuard<'static, bool>,
}

impl Turn {
    /// Waits for it. The first one has the process know arenas of its own and of others, as every
    /// run finds it from then on.
    pub(crate) fn take() -> Self {
        static IS_PREPARED: Mutex<bool> = Mutex::new(false);
        let mut is_prepared = IS_PREPARED.lock().unwrap_or_else(PoisonError::into_inner);
        if !*is_prepared {
            prepare();
            *is_prepared = true;
        }
        Self { _is_prepared: is_prepared }
    }
}

fn prepare() {
    let platform = MemoryNetwork::new().platform(Ipv4Addr::LOCALHOST.into());
    let options = Options::new().local(LocalPath::Auto);
    let (device, _turns) = Device::turned(options, platform).expect("a device can be opened");
    let memory = device.alloc_pd().allocate(1, Access::LOCAL_WRITE).expect("memory");
    // Without shared memory there is no arena, and every run finds that.
    let mapped = Heap::pass(0, MappedArena::map);
    drop((memory, mapped));
}
