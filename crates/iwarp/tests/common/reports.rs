// SPDX-License-Identifier: MIT OR Apache-2.0

//! The lines that a user sees: all that the library has to say at the default level.

use std::sync::{Arc, Mutex, MutexGuard};

use iwarp::{REPORT, report};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Keeps each line: the message, then ` field=value` for what belongs to it.
#[derive(Clone, Default)]
pub struct Reports(Arc<Mutex<Vec<String>>>);

impl Reports {
    /// Listens in the whole process: a worker's thread may be the one that reports.
    pub fn listen() -> Self {
        let reports = Self::default();
        tracing::subscriber::set_global_default(reports.clone()).unwrap();
        reports
    }

    /// The lines that were reported so far and not taken out.
    pub fn lines(&self) -> MutexGuard<'_, Vec<String>> {
        self.0.lock().unwrap()
    }
}

impl Subscriber for Reports {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn event(&self, event: &Event<'_>) {
        assert_eq!(event.metadata().target(), REPORT, "{:?}", event.metadata());
        self.lines().push(report::line(event));
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}
