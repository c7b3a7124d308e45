// SPDX-License-Identifier: MIT OR Apache-2.0

//! Services without a listener for a moment, and the requests that come meanwhile.
//!
//! Some programs stop listening once they have a connection, and later listen at that port for the
//! next one; their peers do not wait in between. So a request for a service that had a listener is
//! held for a second, which peers wait for an answer, and refused only then (ROCE-152).

use alloc::collections::VecDeque;
use core::time::Duration;

use iwarp_types::{Source, Time};

use super::mad::Mad;
use super::service::ServiceId;
use crate::wire::Path;

/// Time that a request is held. Peers ask again after 0.27 s at the earliest, Linux after 4.6 s.
const PATIENCE: Duration = Duration::from_secs(1);
/// Limit of services remembered, and of requests held: any host can send requests.
const MOST: usize = 32;
/// Limit of requests of one source among these.
const SHARE: usize = 16;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Vacancies {
    services: VecDeque<ServiceId>,
    waiting: VecDeque<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    due: Time,
    service: ServiceId,
    path: Path,
    mad: Mad,
}

impl Vacancies {
    /// The service has lost its listener.
    pub(super) fn begin(&mut self, service: ServiceId) {
        self.services.retain(|other| *other != service);
        if self.services.len() == MOST {
            self.services.pop_front();
        }
        self.services.push_back(service);
    }

    /// The service has a listener: requests that wait for it are due.
    pub(super) fn end(&mut self, service: ServiceId) {
        self.services.retain(|other| *other != service);
        for waiting in self.waiting.iter_mut().filter(|waiting| waiting.service == service) {
            waiting.due = Time(Duration::ZERO);
        }
    }

    /// Holds a request until there is a listener; false if it is to be refused instead.
    pub(super) fn hold(&mut self, service: ServiceId, path: &Path, mad: Mad, now: Time) -> bool {
        if !self.services.contains(&service) {
            return false;
        }
        if self.waiting.iter().any(|waiting| waiting.path == *path && waiting.mad == mad) {
            return true;
        }
        let source = |path: &Path| Source::of(path.address.source);
        let own = self.waiting.iter().filter(|waiting| source(&waiting.path) == source(path));
        if self.waiting.len() == MOST || own.count() == SHARE {
            return false;
        }
        self.waiting.push_back(Waiting { due: now.plus(PATIENCE), service, path: *path, mad });
        true
    }

    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.waiting.iter().map(|waiting| waiting.due).min()
    }

    /// A request that is to be answered by `now`. Its service is forgotten, so that no request is
    /// held a second time.
    pub(super) fn expired(&mut self, now: Time) -> Option<(Path, Mad)> {
        let index = self.waiting.iter().position(|waiting| waiting.due <= now)?;
        let Waiting { service, path, mad, .. } = self.waiting.remove(index)?;
        self.services.retain(|other| *other != service);
        Some((path, mad))
    }

    pub(super) fn nobody_waits(&self) -> bool {
        self.waiting.is_empty()
    }
}
