// SPDX-License-Identifier: MIT OR Apache-2.0

//! The services of the host that are this process's.

use std::collections::HashMap;
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::carrier::Carrier;
use crate::port::share::Listening;

/// The time that the process that gives out services may take. It answers within a millisecond, or
/// is being replaced; a service that it has not given yet is asked for again by the carrier.
const PATIENCE: Duration = Duration::from_secs(2);

/// The services that were asked for, and what is known of them.
#[derive(Debug, Default)]
pub(super) struct Grants {
    known: Mutex<HashMap<u64, Option<bool>>>,
    settled: Condvar,
}

impl Grants {
    fn known(&self) -> MutexGuard<'_, HashMap<u64, Option<bool>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for a service, and waits for the answer where some thread may bring it.
    pub(super) fn ask(&self, carrier: &dyn Carrier, service: u64, waits: bool) -> io::Result<()> {
        self.known().insert(service, None);
        let granted = match carrier.listen(service)? {
            Listening::Granted => Some(true),
            Listening::Taken => Some(false),
            Listening::Asked if waits => self.wait(service),
            Listening::Asked => None,
        };
        self.known().remove(&service);
        match granted {
            Some(true) => Ok(()),
            Some(false) => Err(io::ErrorKind::AddrInUse.into()),
            None => {
                tracing::warn!(service, "other processes do not know yet that this one listens");
                Ok(())
            }
        }
    }

    fn wait(&self, service: u64) -> Option<bool> {
        let unknown = |known: &mut HashMap<u64, Option<bool>>| known.get(&service) == Some(&None);
        let waited = self.settled.wait_timeout_while(self.known(), PATIENCE, unknown);
        let (known, _) = waited.unwrap_or_else(PoisonError::into_inner);
        known.get(&service).copied().flatten()
    }

    pub(super) fn settle(&self, service: u64, granted: bool) {
        if let Some(known) = self.known().get_mut(&service) {
            *known = Some(granted);
        }
        self.settled.notify_all();
    }
}
