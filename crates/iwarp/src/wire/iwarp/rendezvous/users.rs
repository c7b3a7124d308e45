// SPDX-License-Identifier: MIT OR Apache-2.0

//! Users of this host whose processes a queue pair may be connected with.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use iwarp_os::owner::own_users;
use thiserror::Error;

use crate::engine::options::Users;
use crate::port::{Network, Owner};

/// The reason why a connection is not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub(crate) enum Unwelcome {
    /// The process at its other end is another user's.
    #[error("the other end belongs to user {0}, whom IWARP_ALLOW_USERS does not name")]
    User(u32),
    /// There is no process at its other end.
    #[error("no process owns the other end of the connection")]
    Gone,
}

impl Unwelcome {
    /// True if it is worth telling the user. A connection without a process at its other end was
    /// given up: both ends try to connect, and a peer that has its connection by then closes the
    /// others. If the search fails, the outcome of the last attempt is reported then.
    pub(crate) const fn is_somebody(self) -> bool {
        matches!(self, Self::User(_))
    }
}

/// Checks that the process at `theirs` may be connected with `ours`. Processes of other hosts and
/// of other network namespaces cannot be told apart; they have to prove what they know, as all do.
pub(crate) fn check(
    network: &dyn Network,
    users: &Users,
    theirs: SocketAddr,
    ours: SocketAddr,
) -> Result<(), Unwelcome> {
    let Users::Listed(listed) = users else { return Ok(()) };
    match network.owner_of(theirs, ours) {
        Ok(Owner::Elsewhere) => Ok(()),
        Ok(Owner::None) => Err(Unwelcome::Gone),
        Ok(Owner::User(user)) => {
            let fine = user == ROOT || own_users().contains(&user) || listed.contains(&user);
            if fine { Ok(()) } else { Err(Unwelcome::User(user)) }
        }
        Err(error) => {
            static TOLD: AtomicBool = AtomicBool::new(false);
            if !TOLD.swap(true, Ordering::Relaxed) {
                tracing::debug!(%error, "nothing says whose the connections of this host are");
            }
            Ok(())
        }
    }
}

const ROOT: u32 = 0;
