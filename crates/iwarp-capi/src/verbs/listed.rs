// SPDX-License-Identifier: MIT OR Apache-2.0

//! The objects as other processes see them one by one (`rdma resource show qp`), if `iwarp run`
//! shows them a device, and those that hold on to them.

use std::path::Path;
use std::sync::Arc;

use iwarp_os::roster::{Entry, Roster, Row};
use iwarp_os::{PerProcess, environment};

/// The entry of an object in the list; none where there is no list, or no room in it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Listed(Option<Arc<Entry>>);

impl Listed {
    /// An entry for one more object.
    pub(crate) fn new() -> Self {
        Self(roster().and_then(Roster::entry).map(Arc::new))
    }

    /// The number by which others know the object; 0 where it is not listed.
    pub(super) fn number(&self) -> u32 {
        self.0.as_ref().map_or(0, |entry| entry.number())
    }

    /// Has others see the object as it is now.
    pub(crate) fn show(&self, row: impl FnOnce() -> Row) {
        if let Some(entry) = &self.0 {
            entry.show(row);
        }
    }
}

fn roster() -> Option<&'static Roster> {
    static ROSTER: PerProcess<Option<Roster>> = PerProcess::new();

    let open = |_: Option<&Option<Roster>>| {
        let tree = environment::variable("IWARP_SYSFS")?;
        Roster::open(&Path::new(&tree).join("counted/objects")).ok()
    };
    ROSTER.get_or_make(open).as_ref()
}

/// A use of an object, which others see counted.
#[derive(Debug, Default)]
pub(crate) struct ShownUse(Listed);

impl ShownUse {
    pub(super) fn of(listed: &Listed) -> Self {
        if let Some(entry) = &listed.0 {
            entry.hold();
        }
        Self(listed.clone())
    }
}

impl Clone for ShownUse {
    fn clone(&self) -> Self {
        Self::of(&self.0)
    }
}

impl Drop for ShownUse {
    fn drop(&mut self) {
        if let Some(entry) = &self.0.0 {
            entry.release();
        }
    }
}

/// Tells an object who else uses it: users hold clones. The object's own counts as a use, too.
#[derive(Clone, Debug, Default)]
pub(crate) struct Life {
    holders: Arc<()>,
    _shown: ShownUse,
}

impl Life {
    /// That of an object that is listed.
    pub(super) fn of(listed: &Listed) -> Self {
        Self { holders: Arc::default(), _shown: ShownUse::of(listed) }
    }

    /// True if something else holds on to the object that this belongs to.
    pub(super) fn in_use(&self) -> bool {
        self.users() > 0
    }

    /// The number of holders.
    pub(super) fn users(&self) -> usize {
        Arc::strong_count(&self.holders) - 1
    }
}
