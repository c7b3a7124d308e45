// SPDX-License-Identifier: MIT OR Apache-2.0

//! The end of a connection, in words.

use iwarp::Ended;

/// Says how a connection ended, or that it is still up.
pub fn how(ended: Option<Ended>) -> String {
    match ended {
        None => "the connection is still up".to_owned(),
        Some(Ended::Closed) => "the peer disconnected".to_owned(),
        Some(ended) => ended.to_string(),
    }
}
