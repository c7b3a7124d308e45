// SPDX-License-Identifier: MIT OR Apache-2.0

//! Types of queue pairs.

use std::ffi::c_uint;

use iwarp::QpType;

use crate::abi::flags::*;
use crate::guard::Errno;
use crate::refuse::refuse;

/// The type of a queue pair, by its number in the header; `None` if it is not supported.
pub(super) const fn kind(qp_type: c_uint) -> Option<QpType> {
    match qp_type {
        IBV_QPT_RC => Some(QpType::Rc),
        IBV_QPT_UC => Some(QpType::Uc),
        IBV_QPT_UD => Some(QpType::Ud),
        _ => None,
    }
}

/// The error for a queue pair of a type that is not supported; tells the user once.
pub(crate) fn no_such_type(qp_type: c_uint) -> Errno {
    let name = match qp_type {
        IBV_QPT_UC => "unreliable connected (UC)",
        IBV_QPT_UD => "datagram (UD)",
        8 => "raw packet",
        9 | 10 => "XRC",
        IBV_QPT_DRIVER => "driver-specific (IBV_QPT_DRIVER: DC of mlx5dv, SRD of efadv)",
        _ => "unknown",
    };
    // UCX takes them to set others up, unless it is told twice not to. The user has to learn the
    // setting here, as UCX gives up with "Invalid parameter".
    let why = match qp_type {
        IBV_QPT_UC | IBV_QPT_UD if does_without_datagrams() => {
            "they need the UDP port of RoCE v2 (4791), which is not available"
        }
        IBV_QPT_UC | IBV_QPT_UD => {
            "they need the UDP port of RoCE v2 (4791), which is not available; UCX does without \
             them if UCX_TLS=^ud,ud:aux"
        }
        IBV_QPT_DRIVER => {
            "they exist on one vendor's cards only; RC, UC and UD are supported (UCX: UCX_TLS=rc,ud; \
             libfabric: FI_PROVIDER=verbs)"
        }
        _ => "only RC, UC and UD are supported",
    };
    refuse!(EOPNOTSUPP, "no {name} queue pairs: {why}")
}

/// True where UCX was told already to do without them.
fn does_without_datagrams() -> bool {
    let transports = iwarp_os::environment::variable("UCX_TLS");
    transports.is_some_and(|transports| transports.split([',', '^']).any(|name| name == "ud:aux"))
}
