// SPDX-License-Identifier: MIT OR Apache-2.0

//! Services that nobody offers just now, and the requests that come meanwhile.
//!
//! Some programs stop to listen for their first connection, and then listen at the same port for
//! the next one; their peers do not wait in between. So a request for a service that had a listener
//! waits for a second, which peers do for an answer, and is refused only then.

use alloc::collections::VecDeque;
use core::time::Duration;

use iwarp_types::{Source, Time};

use super::mad::Mad;
use super::service::ServiceId;
use crate::wire::Path;

/// A request waits so long. Peers ask again after 0.27 s at the earliest, Linux after 4.6 s.
const PATIENCE: Duration = Duration::from_secs(1);
/// Services that are remembered, and requests that wait. Anybody can send requests.
const MOST: usize = 32;
/// Of these, requests of one source.
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
    /// A listener has gone.
    pub(super) fn begin(&mut self, service: ServiceId) {
        self.services.retain(|other| *other != service);
        if self.services.len() == MOST {
            self.services.pop_front();
        }
        self.services.push_back(service);
    }

    /// There is a listener: what waits for it is due.
    pub(super) fn end(&mut self, service: ServiceId) {
        self.services.retain(|other| *other != service);
        for waiting in self.waiting.iter_mut().filter(|waiting| waiting.service == service) {
            waiting.due = Time(Duration::ZERO);
        }
    }

    /// Whether a request waits for a listener. If not, it is to be refused.
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

    /// A request that is to be answered by `now`. The service is forgotten: nobody waits for it a
    /// second time.
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
