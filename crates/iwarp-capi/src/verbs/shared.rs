// SPDX-License-Identifier: MIT OR Apache-2.0

//! The contexts that connection manager ids have, and the queue pairs that are found in them.

use std::sync::{Mutex, MutexGuard, PoisonError};

use iwarp_os::PerProcess;

use super::book::Key;
use super::context::Held;
use super::open::open;
use super::qp::Qp;
use super::{Context, list};
use crate::abi::flags::IBV_QPT_RC;
use crate::abi::{ibv_context, ibv_qp};
use crate::guard::Errno;
use crate::refuse::refuse;

/// The contexts that connection manager ids have: one of each device that was wanted so far. A
/// forked child has its parent's as well: the ids with which it goes on have them.
static SHARED: PerProcess<Mutex<Vec<Shared>>> = PerProcess::new();

fn shared() -> MutexGuard<'static, Vec<Shared>> {
    SHARED.get_or_copy().lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Clone)]
struct Shared {
    place: usize,
    context: *mut Context,
    /// It stays even if a program closes it, which it must not.
    _held: Held,
}

// SAFETY: a context may be used by all threads.
unsafe impl Send for Shared {}

/// The context that connection manager ids have which are on the device at `place` of the list. It
/// is never closed.
///
/// # Errors
///
/// As for `ibv_open_device`.
pub(crate) fn shared_context(place: usize) -> Result<*mut ibv_context, Errno> {
    let mut all = shared();
    if let Some(shared) = all.iter().find(|shared| shared.place == place) {
        return Ok(shared.context.cast());
    }
    let device = list::devices()?.get(place);
    let device = device.ok_or_else(|| refuse!(EINVAL, "there is no device {place}"))?;
    let held = open(device.as_abi())?;
    let context = held.clone().hand_out();
    all.push(Shared { place, context, _held: held });
    Ok(context.cast())
}

/// Returns the first finding of `find` in these contexts.
fn in_shared<R>(mut find: impl FnMut(&Context) -> Option<R>) -> Option<R> {
    let mut place = 0;
    loop {
        let all = shared();
        let context = all.get(place)?.context;
        drop(all);
        // SAFETY: it is never closed.
        let found = find(unsafe { &*context });
        if found.is_some() {
            return found;
        }
        place += 1;
    }
}

/// The queue pair with this number, if it was made with a context that connection manager ids
/// have and can be connected.
pub(crate) fn by_number(number: u32) -> Option<*mut ibv_qp> {
    with_number(number, |qp| (qp.init.qp_type == IBV_QPT_RC).then(|| qp.as_abi()))?
}

/// Calls `f` with the queue pair of this number, which is not destroyed meanwhile.
pub(crate) fn with_number<R>(number: u32, f: impl FnOnce(&Qp) -> R) -> Option<R> {
    let mut f = Some(f);
    in_shared(|context| {
        let found = context.book.with(Key::Qp(number), |address| {
            // SAFETY: destroying a queue pair strikes it off first, and waits for that.
            let qp = unsafe { &*std::ptr::with_exposed_provenance::<Qp>(address) };
            f.take().map(|f| f(qp))
        });
        found.flatten()
    })
}
